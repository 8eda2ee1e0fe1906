/* Atomic accesses that are broken on purpose (seeds.h): they get another order, are split, or come late. */
/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <stdatomic.h>
#include <string.h>

enum { LATE_MAX = 2 };

struct late {
    uintptr_t address;
    uint64_t value;
    size_t bytes;
    int order;
    void (*effect)(void *address, size_t bytes); /* NULL for a store */
};

static struct thread {
    enum fault broken;          /* how the next atomic access is broken */
    struct late late[LATE_MAX]; /* take effect after the next write */
    unsigned late_used;
    bool is_lowered; /* see lower_twice */
} threads[RACE_THREADS];

static struct thread *self(void) { return &threads[explore_thread]; }

void broken_begin(void) { memset(threads, 0, sizeof threads); }
void broken_keep(void) { moment_keep(threads, sizeof threads); }

void model_break_next(enum fault fault) { self()->broken = fault; }

static void put_off(struct late late) {
    struct thread *t = self();
    t->broken = FAULT_none;
    if (t->late_used == LATE_MAX)
        explore_give_up("too much comes late");
    t->late[t->late_used++] = late;
}

bool race_put_off(void (*effect)(void *address, size_t bytes), void *address, size_t bytes) {
    if (!model_runs_threads() || self()->broken != FAULT_late)
        return false;
    put_off((struct late){.address = (uintptr_t)address, .bytes = bytes, .effect = effect});
    return true;
}

/* The thread has written, so everything that was put off happens now. */
static void catch_up(const void *pc) {
    struct thread *t = self();
    for (unsigned n = t->late_used, i = t->late_used = 0; i < n; i++) {
        const struct late *late = &t->late[i];
        if (late->effect != NULL)
            late->effect((void *)late->address, late->bytes); /* NOLINT: addresses are numbers here */
        else
            model_access(OP_STORE, late->address, (unsigned)late->bytes, late->value, NULL, late->order, late->order,
                         pc);
    }
}

/* Breaks a compare-and-swap that lowers a count: instead of 0 it first writes 1, and then 0 with a second one. If the
 * second fails, blocks remain: the source asks again and is answered that the lowering is done. */
static uint64_t lower_twice(uintptr_t address, unsigned bytes, uint64_t operand, uint64_t expected, int order,
                            const void *pc) {
    struct thread *t = self();
    uint64_t one = 1;
    if (t->is_lowered) {
        t->is_lowered = false;
        return expected;
    }
    uint64_t old = model_access(OP_CAS, address, bytes, operand == 0 ? one : operand, &expected, order, order, pc);
    if (old != expected || operand != 0 || model_access(OP_CAS, address, bytes, 0, &one, order, order, pc) == one)
        return old;
    t->is_lowered = true;
    return old + 1;
}

static uint64_t broken_atomic(enum fault fault, enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand,
                              const uint64_t *expected, int order, const void *pc) {
    if (fault == FAULT_split) {
        uint64_t old = model_access(OP_LOAD, address, bytes, 0, NULL, order, order, pc);
        if (op != OP_CAS || old == *expected)
            model_access(OP_STORE, address, bytes, memory_result(op, old, operand, bytes), NULL, order, order, pc);
        return old;
    }
    if (fault == FAULT_late) {
        put_off((struct late){.address = address, .value = operand, .bytes = bytes, .order = order});
        return 0;
    }
    if (fault == FAULT_twice)
        return lower_twice(address, bytes, operand, *expected, order, pc);
    order = fault == FAULT_acquire   ? memory_order_acquire
            : fault == FAULT_release ? memory_order_release
                                     : memory_order_relaxed;
    return model_access(op, address, bytes, operand, expected, order, memory_order_relaxed, pc);
}

uint64_t model_atomic(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc) {
    if (!model_runs_threads() || model_own(address))
        return model_access(op, address, bytes, operand, expected, order, failure_order, pc);
    enum fault fault = self()->broken;
    self()->broken = FAULT_none;
    if (fault != FAULT_none)
        return broken_atomic(fault, op, address, bytes, operand, expected, order, pc);
    uint64_t old = model_access(op, address, bytes, operand, expected, order, failure_order, pc);
    if (self()->late_used != 0 && op != OP_LOAD && (op != OP_CAS || old == *expected))
        catch_up(pc);
    return old;
}
