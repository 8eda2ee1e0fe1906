/* Who allocated and who freed secure mode's blocks, for reports (SECURE_STACKS=1).
 *
 *  1. The last allocation and the last free of a block are one word each: the stack's number, the thread, and what
 *     tells the block from all others whose words have the same place. So a word is whole whoever writes or reads at
 *     the same time, and says nothing of another block: a block whose place was taken is one whose stacks are not
 *     known.
 *  2. Neighbouring blocks have neighbouring places, so few blocks touch few pages. In each 16 MiB of the region, the
 *     places of all blocks differ.
 *  3. Stacks are kept once each, found by hash, and never changed or removed. When there is no room for another, blocks
 *     that come from there have none.
 *
 * The memory is a mapping of fixed size, made when the first block is noted and touched as it fills. Any thread calls
 * anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "observe/stack.h"

/* Notes the calling thread and its stack. Returns p, so that the call can be a caller's last step. */
void *secure_trace_note(void *p, enum stack_event event);
HAK_INLINE void *secure_trace(void *p, enum stack_event event) {
    return unlikely(option(OPT_SECURE_STACKS)) ? secure_trace_note(p, event) : p;
}

/* Who allocated or freed the block that has the address. False: that is not known. In a signal handler, too. */
bool secure_trace_find(const void *p, enum stack_event event, struct stack_taken *stack);
