/* The last look at the heap, when the program ends: what no later call would find. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

enum { EXIT_SUPERSLABS = 256 }; /* are looked at, 512 MiB: some 60 us, a page of records each */
/* Reports damage behind live blocks that have a canary, and writes into memory that is unused. Looks only in a program
 * with one thread, and for the latter only where free memory can be read: not in secure mode. */
void exit_check(bool free_is_accessible);
