/* Meshing, an experiment behind HAKMEM_MESH: sparse tiny slabs share pages, because blocks that do not overlap fit into
 * one page. C forbids an allocator to move a block, but not to put another page behind the block's address.
 *
 *  1. A pass runs when memory goes back, and after a growing heap has searched all its SuperSlabs for free pages. The
 *     pass takes over sparse slabs that nobody allocates from, and holds those that earlier passes closed, up to
 *     FIT_SLABS_MAX at a time.
 *  2. Pages whose live blocks do not overlap form a group (fit.h). Blocks of different sizes may share a page.
 *  3. For each group the pass holds off writers (os_hold_writes), copies the live blocks into a file without a name,
 *     and maps the file over all the pages, privately: whoever writes there later gets a page of their own. The pass
 *     closes the file at once. The file lives as long as a process maps it, so a child of fork keeps its contents
 *     whatever its parent does.
 *  4. Merged slabs are closed (meshed.h). Their pages without live blocks go back, in this pass and in later ones.
 *
 * A thread runs the pass over slabs that it owns meanwhile. Other threads wait only in a page fault, while one group is
 * copied. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_MESH_H
#define HAK_MESH_H

#include "heap.h"

/* Merges what it can. If `all`, considers every slab, however long that takes; otherwise only slabs that nobody
 * allocated from since the last pass or trim, for about 20 milliseconds. */
void mesh_slabs(struct heap *h, bool all);

#endif
