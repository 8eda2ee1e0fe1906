/* Counts what depends on how threads meet, under an order of accesses that is the same on every machine.
 *
 *  1. Library and workload are compiled with the compiler's ThreadSanitizer instrumentation, and tests/races/tsan.c
 *     passes each access on, here to lines.c instead of the model checker.
 *  2. turns.c lets one thread run at a time, for a turn of a random number of accesses; the generator has a fixed seed,
 *     the clock goes by accesses. A thread that waits for another is passed over. So the order does not depend on the
 *     machine, and a turn may end anywhere, also between a load and its compare-and-swap.
 *  3. lines.c keeps, for each line of 64 bytes, who has a copy, in caches that never evict, as a coherence protocol
 *     would. A line MOVES when a thread reads it that has no copy and another has written it, or when a thread writes
 *     it of which others have copies. The move is FALSE if no other thread has written the 8 bytes that are accessed
 *     since this one had a copy, or used them since this one did.
 *  4. At the program's end a file says what moved, by the field or table in the line and the place in the code.
 *
 * Only accesses to the library's data, its tables and the blocks count; stacks and the program's own data do not. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_BENCH_LINES_H
#define HAKMEM_BENCH_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAYERS_MAX = 640 }; /* threads at a time */

/* The number of the running thread, which is that of its processor: threads that come later may have it again. */
unsigned turns_player(void);
/* One access was made. The turn may end, and this thread wait for its next one. */
void turns_step(void);
/* Virtual: 5 ns an access of one thread, while all that are ready run side by side. */
uint64_t turns_now_ns(void);

_Noreturn void lines_fail(const char *what);

#endif
