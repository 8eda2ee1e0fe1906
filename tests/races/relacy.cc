// A second opinion: the harnesses under Relacy, a race detector that others wrote (Debian's relacy-dev), in place of
// explore.c and model.c.
//
//  1. Relacy decides which thread goes on before each atomic access, which value a load sees, and what is ordered
//     before what. Here are only the values: of each address a cell with those that Relacy may choose from.
//  2. It draws executions by chance, so it says of none that there are no others. It knows fewer than model.c: stores
//     come into effect in the order in which they are made, and a load sees one of the last three.
//  3. Where the threads take turns at each access, one hardly ever does something whole between two steps of another.
//     So one execution in six is such; in the others they take turns at every 4th, 16th, … 1,024th access.
//  4. A thread that must not go on leaves by longjmp, and so do the others then: an execution always comes to its end.
//
// usage: races_relacy EXECUTIONS HARNESS       every execution must be right
//        races_relacy EXECUTIONS --seed BUG    with that bug in the sources (seeds.h), one of its harness must be wrong
// SPDX-License-Identifier: MIT
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include <relacy/relacy.hpp>

extern "C" {
#define _Noreturn [[noreturn]]
#include "model.h"
}

namespace {

enum { CELLS = 1 << 16, STACK_BYTES = 64 * 1024 /* Relacy's */, WRITTEN_MAX = 64, STEPS_MAX = 100000 };

// An address that is accessed atomically.
struct cell {
    uintptr_t address;
    unsigned bytes;
    uint32_t execution;
    rl::atomic_data *data; // what Relacy knows of it
    uint64_t value, history[rl::atomic_history_size];
};

// Eight bytes. Relacy knows of each when which thread read and wrote it last.
struct word {
    uintptr_t address;
    uint32_t execution;
    rl::var_data *byte[8];
};

struct {
    const struct race *race;
    cell cells[CELLS];
    word words[CELLS];
    unsigned used[2 * CELLS], cells_used, words_used; // in this execution: what is to be given back to Relacy
    uintptr_t frame[RACE_THREADS];
    jmp_buf end[RACE_THREADS];
    struct {
        uintptr_t address;
        size_t bytes;
    } written[WRITTEN_MAX]; // plainly, since the last atomic access
    unsigned written_used;
    unsigned stays; // atomic accesses, by chance, for which a thread goes on before another one may
    unsigned begun; // threads: each comes as far as its first atomic access before the next one begins, as in explore.c
    uint32_t execution, seen;
    uint64_t complete;
    bool inside; // the harness runs or the sources, not Relacy, which also copies memory
    bool alone, left, failed, seeded;
    void (*first_value)(rl::atomic_data *data, unsigned index);
} x;

rl::thread_info_base &self() { return *rl::ctx().threadx_; }

[[noreturn]] void leave() {
    x.left = true, x.inside = false;
    longjmp(x.end[explore_thread], 1);
}

// Another thread may go on here. If one has left meanwhile, so does this one.
void point() {
    if (x.begun == explore_thread)
        x.begun++;
    if (rl::ctx().rand(x.stays, rl::sched_type_user) == 0)
        rl::ctx().sched();
    explore_thread = self().index_;
    if (x.left)
        leave();
}

template <class T> T &find(T *table, uintptr_t address, unsigned *used, unsigned &used_count) {
    for (unsigned i = static_cast<unsigned>(address * 0x9e3779b97f4a7c15u >> 48);; i = (i + 1) % CELLS) {
        T &t = table[i];
        if (t.execution == x.execution && t.address == address)
            return t;
        if (t.execution == x.execution)
            continue;
        if (used_count == CELLS / 2)
            explore_give_up("too much memory is accessed by one execution");
        used[used_count++] = i;
        t = T{};
        t.execution = x.execution;
        t.address = address;
        return t;
    }
}

// ---- plain accesses ----

// A plain access, or one by an atomic read, which is in conflict with plain writes.
void touch(uintptr_t address, size_t bytes, bool write, const void *pc) {
    for (size_t i = 0; i < bytes; i++) {
        word &w = find(x.words, (address + i) & ~uintptr_t{7}, x.used + CELLS, x.words_used);
        rl::var_data *&byte = w.byte[(address + i) & 7];
        if (byte == nullptr)
            byte = rl::ctx().var_ctor();
        if (write ? byte->store(self()) : byte->load(self()))
            continue;
        trace_note(write ? OP_STORE : OP_LOAD, address + i, 0, 0, true, pc);
        race_fail("data race: the last access of the trace, with one of another thread");
    }
}

// ---- atomic accesses ----

using reader = unsigned (rl::thread_info_base::*)(rl::atomic_data *);
using changer = unsigned (rl::thread_info_base::*)(rl::atomic_data *, bool &);
using thread = rl::thread_info_base;

reader loading(int order, bool of_cas) {
    if (order == __ATOMIC_SEQ_CST)
        return of_cas ? &thread::atomic_load_seq_cst_rmw : &thread::atomic_load_seq_cst;
    if (order == __ATOMIC_RELAXED || order == __ATOMIC_RELEASE)
        return of_cas ? &thread::atomic_load_relaxed_rmw : &thread::atomic_load_relaxed;
    return of_cas ? &thread::atomic_load_acquire_rmw : &thread::atomic_load_acquire;
}

reader storing(int order) {
    return order == __ATOMIC_SEQ_CST   ? &thread::atomic_store_seq_cst
           : order >= __ATOMIC_RELEASE ? &thread::atomic_store_release
                                       : &thread::atomic_store_relaxed;
}

changer changing(int order) {
    switch (order) {
    case __ATOMIC_RELAXED: return &thread::atomic_rmw_relaxed;
    case __ATOMIC_RELEASE: return &thread::atomic_rmw_release;
    case __ATOMIC_ACQ_REL: return &thread::atomic_rmw_acq_rel;
    case __ATOMIC_SEQ_CST: return &thread::atomic_rmw_seq_cst;
    default: return &thread::atomic_rmw_acquire;
    }
}

cell &cell_at(uintptr_t address, unsigned bytes) {
    cell &c = find(x.cells, address, x.used, x.cells_used);
    if (c.data == nullptr) {
        c.bytes = bytes;
        c.data = rl::ctx().atomic_ctor(&c);
        unsigned index = self().atomic_init(c.data);
        x.first_value(c.data, index);
        c.history[index] = c.value = memory_load(address, bytes);
    }
    if (c.bytes != bytes)
        explore_give_up("accesses of several sizes to one address");
    return c;
}

void put(cell &c, unsigned index, uint64_t value) {
    c.history[index] = c.value = value;
    memory_store(c.address, c.bytes, value);
}

// What was written plainly to a cell is a store that orders nothing.
void settle() {
    for (unsigned n = x.written_used, i = x.written_used = 0; i < n; i++) {
        uintptr_t begin = x.written[i].address, end = begin + x.written[i].bytes;
        for (unsigned used = 0; used < x.cells_used; used++) {
            cell &c = x.cells[x.used[used]];
            uint64_t value = memory_load(c.address, c.bytes);
            if (c.address < end && begin < c.address + c.bytes && value != c.value)
                c.history[self().atomic_store_relaxed(c.data)] = c.value = value;
        }
    }
}

// ---- executions ----

void complete() {
    x.alone = true;
    explore_thread = self().index_;
    if (!x.left && setjmp(x.end[explore_thread]) == 0) {
        x.complete++;
        x.inside = true;
        if (x.race->check != nullptr)
            x.race->check();
    }
    explore_running = x.inside = false;
    for (unsigned i = 0; i < x.cells_used; i++)
        rl::ctx().atomic_dtor(x.cells[x.used[i]].data);
    for (unsigned i = 0; i < x.words_used; i++)
        for (rl::var_data *byte : x.words[x.used[CELLS + i]].byte)
            if (byte != nullptr)
                rl::ctx().var_dtor(byte);
    if (x.failed)
        rl::ctx().fail_test("", rl::test_result_user_assert_failed, $);
}

template <unsigned THREADS> struct suite : rl::test_suite<suite<THREADS>, THREADS> {
    static void first_value(rl::atomic_data *data, unsigned index) {
        auto *record = static_cast<rl::atomic_data_impl<THREADS> *>(data);
        for (rl::timestamp_t &seen : record->history_[index].first_seen_order_)
            seen = static_cast<rl::timestamp_t>(-1); // atomic_init leaves them as they are
    }
    void before() {
        memory_undo(0);
        broken_begin();
        trace_begin();
        x.cells_used = x.words_used = x.written_used = x.begun = 0;
        x.alone = x.left = false;
        x.first_value = first_value;
        x.stays = 1u << 2 * (x.execution++ % 6);
        explore_running = true;
    }
    void thread(unsigned index) {
        while (x.begun < index)
            rl::ctx().sched();
        explore_thread = index;
        x.frame[index] = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
        if (setjmp(x.end[index]) == 0 && !x.left) {
            x.inside = true;
            x.race->thread[index]();
            x.inside = false;
            settle();
        }
        if (x.begun == index)
            x.begun++;
    }
    void after() { complete(); }
};

template <unsigned THREADS> bool simulate(unsigned long executions) {
    std::ostream nowhere(nullptr);
    rl::test_params params;
    params.iteration_count = executions;
    params.execution_depth_limit = STEPS_MAX;
    params.collect_history = true; // else what failed is done again
    params.output_stream = params.progress_stream = &nowhere;
    bool right = rl::simulate<suite<THREADS>>(params);
    if (!right && !x.failed)
        fprintf(stderr, "%s: %s\n", x.race->name, rl::test_result_str(params.test_result));
    return right;
}

bool all_seen() {
    uint32_t missing = ((1u << x.race->outcomes) - 1) & ~x.seen;
    if (missing != 0)
        fprintf(stderr, "%s: outcomes %#x never came about, %#x did\n", x.race->name, missing, x.seen);
    return missing == 0 && (x.race->finish == nullptr || x.race->finish());
}

} // namespace

extern "C" {

unsigned explore_thread;
bool explore_running;
extern const bool explore_reorders = false;

bool model_runs_threads(void) { return explore_running && !x.alone; }

bool model_own(uintptr_t address) {
    if (memory_is_private(address) || address - reinterpret_cast<uintptr_t>(&x) < sizeof x)
        return true;
    for (uintptr_t frame : x.frame)
        if (frame - address < STACK_BYTES)
            return true;
    return false;
}

void model_plain(uintptr_t address, size_t bytes, bool write, const void *pc) {
    if (!x.inside || model_own(address))
        return;
    if (write)
        memory_remember(address, bytes);
    if (x.alone)
        return;
    x.inside = false;
    settle();
    if (write) {
        if (x.written_used == WRITTEN_MAX)
            explore_give_up("too much is written plainly");
        x.written[x.written_used].address = address;
        x.written[x.written_used++].bytes = bytes;
    }
    if (memory_is_watched(address))
        touch(address, bytes, write, pc);
    x.inside = true;
}

void *__real_memset(void *to, int byte, size_t bytes);
void model_set(uintptr_t address, size_t bytes, uint8_t value, const void *pc) {
    model_plain(address, bytes, true, pc);
    __real_memset(reinterpret_cast<void *>(address), value, bytes);
}

uint64_t model_access(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc) {
    if (!model_runs_threads() || model_own(address))
        return memory_atomic(op, address, bytes, operand, expected);
    x.inside = false;
    settle();
    point();
    cell &c = cell_at(address, bytes);
    if (op != OP_STORE)
        touch(address, bytes, false, pc);
    uint64_t old = c.value;
    bool fails = op == OP_CAS && old != *expected, is_aba;
    if (op == OP_LOAD || fails)
        old = c.history[(self().*loading(op == OP_LOAD ? order : failure_order, fails))(c.data)];
    else if (op == OP_STORE)
        put(c, (self().*storing(order))(c.data), memory_result(op, 0, operand, bytes));
    else
        put(c, (self().*changing(order))(c.data, is_aba), memory_result(op, old, operand, bytes));
    trace_note(static_cast<int>(op), address, old, op == OP_LOAD || fails ? 0 : c.value,
               op != OP_LOAD || old == c.value, pc);
    x.inside = true;
    return old;
}

void race_fence_threads(void) {
    if (!model_runs_threads())
        return;
    x.inside = false;
    settle();
    point();
    rl::systemwide_fence($);
    trace_note(OP_FENCE, 0, 0, 0, true, nullptr);
    x.inside = true;
}

unsigned race_choose(unsigned n) { return model_runs_threads() ? rl::ctx().rand(n, rl::sched_type_user) : 0; }
void race_saw(unsigned outcome) { x.seen |= 1u << outcome; }
void race_leave(void) { leave(); }

void race_fail(const char *what) {
    fprintf(stderr, "%s: %s%s\n", x.race->name, x.seeded ? "found: " : "", what);
    if (!x.seeded)
        trace_print();
    if (!explore_running)
        exit(2); // in setup
    x.failed = true;
    leave();
}

void explore_give_up(const char *why) {
    fprintf(stderr, "%s: %s\n", x.race->name, why);
    trace_print();
    exit(2);
}
}

int main(int argc, char **argv) {
    unsigned long executions = argc > 2 ? strtoul(argv[1], nullptr, 10) : 0;
    const char *name = argc == 3 ? argv[2] : "";
    x.seeded = argc == 4 && strcmp(argv[2], "--seed") == 0;
    if (x.seeded && (name = seed_choose(argv[3])) == nullptr) {
        fprintf(stderr, "no such bug in seeds.h: %s\n", argv[3]);
        return 2;
    }
    for (unsigned i = 0; races[i] != nullptr; i++)
        if (strcmp(name, races[i]->name) == 0)
            x.race = races[i];
    if (x.race == nullptr || executions == 0) {
        fprintf(stderr, "usage: %s EXECUTIONS HARNESS, or EXECUTIONS --seed BUG (see seeds.h)\n", argv[0]);
        return 2;
    }
    unsigned threads = 0;
    while (threads < RACE_THREADS && x.race->thread[threads] != nullptr)
        threads++;
    x.race->setup();
    bool right = threads == 1   ? simulate<1>(executions)
                 : threads == 2 ? simulate<2>(executions)
                                : simulate<3>(executions);
    if (right && !x.seeded)
        right = all_seen();
    printf("%s: %u threads, %u executions, %llu of them to the end, %s\n", x.race->name, threads, x.execution,
           static_cast<unsigned long long>(x.complete), right ? "no error" : "stopped at the first error");
    if (x.seeded && right)
        fprintf(stderr, "%s: the bug put in on purpose was not found: %s\n", x.race->name, argv[3]);
    return right == x.seeded;
}
