/* Meshing, an experiment behind HAKMEM_MESH: tiny slabs of few blocks share pages, as blocks that do not overlap fit into the same
 * page. C forbids to move a block, but not to put another page behind its address.
 *
 *  1. A pass runs when memory goes back, and when all SuperSlabs of a growing heap were looked at for free pages. It takes over the slabs
 *     that are sparse and that nobody allocates from, and holds those that earlier passes closed, up to FIT_SLABS_MAX at a time.
 *  2. Pages whose live blocks do not overlap form a group (fit.h); blocks of different sizes may share a page, too.
 *  3. For each group: writers are held off (os_hold_writes), what is live is copied into a file without a name, and the file is
 *     mapped over all the pages, MAP_PRIVATE: whoever writes there later gets a page of their own. The file is closed at once. It lives
 *     as long as a process maps it, so a child of fork keeps what it has, whatever its parent does.
 *  4. A slab that was merged is closed (meshed.h). Its pages without live blocks go back, in this pass and in later ones.
 *
 * A thread makes its own pass, over slabs that it owns meanwhile. Other threads wait for it only in a page fault, while one group is
 * copied. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_MESH_H
#define HAK_MESH_H

#include "heap.h"

/* Merges what it can; `all`: of all slabs, whatever time that takes. Else of those that were not allocated from since the last pass
 * or trim, for some 20 milliseconds. */
void mesh_slabs(struct heap *h, bool all);

#endif
