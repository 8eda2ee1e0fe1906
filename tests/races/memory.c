/* What an execution finds in memory and what it leaves there: what was written since it began, or since a moment in it,
 * is undone before another one goes on from there. And which memory is none of its concern. */
/* SPDX-License-Identifier: MIT */
#include "model.h"

enum { UNDO_MAX = 1 << 20, PRIVATE_MAX = 8 };

static struct {
    struct {
        uintptr_t address;
        uint64_t value;
        unsigned bytes;
    } undo[UNDO_MAX];
    struct piece private[PRIVATE_MAX], unwatched;
    unsigned undo_used, private_used;
} memory;

/* NOLINTBEGIN: the original, which tsan.c does not intercept; addresses are numbers here */
void *__real_memcpy(void *to, const void *from, size_t bytes);

unsigned memory_written(void) { return memory.undo_used; }

void memory_undo(unsigned written) {
    while (memory.undo_used > written) {
        memory.undo_used--;
        __real_memcpy((void *)memory.undo[memory.undo_used].address, &memory.undo[memory.undo_used].value,
                      memory.undo[memory.undo_used].bytes);
    }
}

void memory_remember(uintptr_t address, size_t bytes) {
    for (; bytes > 0; memory.undo_used++) {
        unsigned n = bytes < 8 ? (unsigned)bytes : 8;
        if (memory.undo_used == UNDO_MAX)
            explore_give_up("too much is written for one execution");
        memory.undo[memory.undo_used].address = address;
        memory.undo[memory.undo_used].bytes = n;
        __real_memcpy(&memory.undo[memory.undo_used].value, (void *)address, n);
        address += n, bytes -= n;
    }
}

uint64_t memory_load(uintptr_t address, unsigned bytes) {
    uint64_t value = 0;
    __real_memcpy(&value, (const void *)address, bytes); /* little endian */
    return value;
}

void memory_store(uintptr_t address, unsigned bytes, uint64_t value) {
    if (explore_running && !model_own(address))
        memory_remember(address, bytes);
    __real_memcpy((void *)address, &value, bytes);
}
/* NOLINTEND */

uint64_t memory_result(enum model_op op, uint64_t old, uint64_t operand, unsigned bytes) {
    switch (op) {
    case OP_ADD: old += operand; break;
    case OP_SUB: old -= operand; break;
    case OP_AND: old &= operand; break;
    case OP_OR: old |= operand; break;
    case OP_XOR: old ^= operand; break;
    default: old = operand;
    }
    return bytes == 8 ? old : old & (((uint64_t)1 << bytes * 8) - 1);
}

uint64_t memory_atomic(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand,
                       const uint64_t *expected) {
    uint64_t old = memory_load(address, bytes);
    if (op != OP_LOAD && !(op == OP_CAS && old != *expected))
        memory_store(address, bytes, memory_result(op, old, operand, bytes));
    return old;
}

static bool is_in(const struct piece *piece, uintptr_t address) {
    return address - (uintptr_t)piece->address < piece->bytes;
}

void race_private(const void *address, size_t bytes) {
    memory.private[memory.private_used++] = (struct piece){(void *)(uintptr_t)address, bytes};
}

void race_unwatched(const void *address, size_t bytes) {
    memory.unwatched = (struct piece){(void *)(uintptr_t)address, bytes};
}

bool memory_is_watched(uintptr_t address) { return !is_in(&memory.unwatched, address); }

bool memory_is_private(uintptr_t address) {
    for (unsigned i = 0; i < memory.private_used; i++)
        if (is_in(&memory.private[i], address))
            return true;
    return address - (uintptr_t)&memory < sizeof memory;
}

void race_zero(void *address, size_t bytes, size_t step) {
    for (size_t at = 0; at < bytes; at += step) {
        uint64_t *word = (uint64_t *)((char *)address + at);
        model_plain((uintptr_t)word, 8, true, __builtin_return_address(0));
        *word = 0;
    }
}
