/* The NUMA nodes of the machine: how many there are, and on which of them a thread runs.
 *
 *  1. The kernel's files list the processors of each node. They are read once, at the start, or in a first allocation
 *     that comes before it. On a machine with one node that is one call, which finds no second node.
 *  2. A thread's node is that of its processor, whose number libc knows without asking the kernel. Where that is not
 *     so, the machine counts as one node.
 *  3. Only nodes that have processors count, up to the first number that the kernel left out. A processor that comes
 *     later counts as node 0's: only memory is slower then.
 *
 * Any thread calls anything; nothing waits, nothing allocates. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* As many processors as Linux has at most on these machines; one beyond counts as node 0's. */
enum { NODES_MAX = 64, PROCESSORS_MAX = 8192 };

/* Finds out how many nodes there are, if that is not known yet. `wanted`: acts as if the machine had that many,
 * processor N being on node N modulo their number; 0: as many as it has. */
void nodes_init(unsigned wanted);
unsigned nodes_count(void); /* never changes, whatever the machine does later; 0 before nodes_init */
unsigned nodes_here(void);  /* below nodes_count(). The thread may run elsewhere by the time the caller knows */

/* Reads the files, and returns how many nodes there are. Paths begin with nodes_root, "" except in tests. */
unsigned nodes_read(uint8_t of_processor[PROCESSORS_MAX]);
extern const char *nodes_root;
