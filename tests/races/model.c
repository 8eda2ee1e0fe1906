/* The memory model: RC11, which is C11 with its later corrections and without out-of-thin-air values.
 *  1. An execution is built access by access. A load chooses a store to read, and a store its place among the stores to
 *     its address, within what RC11 allows; a read-modify-write directly follows the store it read. This reaches every
 *     execution whose accesses can be ordered with each read after its write.
 *  2. Vector clocks give coherence: a thread reads nothing older than what was written or read before, in
 *     happens-before order. Releases pass the clock on, through chains of read-modify-writes as in C20.
 *  3. Sequentially consistent accesses follow RC11's axiom exactly: psc has no cycle (edge and may_add). The only fence
 *     is os_fence_threads: with each other thread in turn, each side sees what the other did before.
 *  4. Plain accesses conflict by bytes. Two that are not ordered are a data race, which is an error.
 *  5. Only accesses to addresses that several threads use and at least one writes are decisions. The checker learns
 *     these addresses; each time it finds another one, the search starts again. All other accesses commute.
 *
 * Not covered: consume (unused), mixed sizes at one address, accesses of HAK_UNSEEN functions (they read the latest
 * value). */
/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <stdatomic.h>
#include <string.h>

enum { PLACES = 1 << 16, CELLS = 1 << 14, MESSAGES = 4096, SEQ_MAX = 512 };
enum { STEPS_MAX = 100000 }; /* per thread; more means a loop that does not end */
enum { NONE = -1 };

struct clock {
    uint32_t t[RACE_THREADS]; /* for each thread, how many of its accesses happened before */
};

/* A value written to a shared address. */
struct message {
    uint64_t value, id, order; /* who wrote it; its position among the stores to this address */
    struct clock released;
    uint32_t time, read_time[RACE_THREADS]; /* when it was written, and when each thread first read it; 0: never */
    int writer, next, previous;
    bool succeeded; /* a read-modify-write follows it, and nothing may come between */
};

/* An address that is accessed atomically. */
struct place {
    uintptr_t address;
    uint8_t threads, bytes;
    bool written, shared; /* learned; kept from execution to execution */
    uint32_t execution;   /* the execution to which the fields below belong */
    int first, last;      /* messages */
    uint64_t order_hash;
};

/* Eight bytes, and when each thread last accessed each of them. */
struct cell {
    uintptr_t address;
    uint32_t execution;
    uint8_t threads, messages; /* threads that accessed it; bytes that have messages */
    uint32_t time[4][RACE_THREADS][8];
};
enum { PLAIN_WRITE, ATOMIC_WRITE, PLAIN_READ, ATOMIC_READ };

/* A sequentially consistent access to a shared address. */
struct seq {
    const struct place *place;
    int thread, read, written;  /* messages */
    uint32_t time, left;        /* its own time, and that of the thread's next access to another address; 0: none yet */
    struct clock clock, before; /* after this access, and after the thread's last access to another address */
};

struct thread {
    struct clock now, decided; /* after the last access; after the last shared access */
    struct clock before;       /* after the last access to an address other than `at` */
    uintptr_t at;
    uint64_t hash;
    uint32_t shared_accesses;
    int left_from; /* seq accesses from this index on have no `left` yet */
};

static struct {
    struct place places[PLACES];
    struct cell cells[CELLS];
    struct message messages[MESSAGES];
    struct seq seq[SEQ_MAX];
    struct thread threads[RACE_THREADS];
    struct {
        unsigned messages, seq, cells;
    } used;
    unsigned threads_used, places_used;
    uint32_t execution;
    uint64_t order_hash;
    bool alone;
} m;

/* NOLINTBEGIN: the original, which tsan.c does not intercept */
void *__real_memset(void *to, int byte, size_t bytes);
/* NOLINTEND */

static struct thread *self(void) { return &m.threads[explore_thread]; }

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9u;
    return hash ^ hash >> 32;
}

static void remember(const void *address, size_t bytes) { memory_remember((uintptr_t)address, bytes); }

static void join(struct clock *to, const struct clock *from) {
    for (unsigned i = 0; i < RACE_THREADS; i++)
        if (to->t[i] < from->t[i])
            to->t[i] = from->t[i];
}

/* ---- one execution ---- */

void model_begin(unsigned threads) {
    memory_undo(0);
    broken_begin();
    memset(m.threads, 0, sizeof m.threads);
    m.threads_used = threads;
    memset(&m.used, 0, sizeof m.used);
    trace_begin();
    m.order_hash = 0;
    m.alone = false;
    m.execution++;
}

/* The tables are put back word by word, as the program's memory is. */
void model_keep(void) {
    moment_keep(m.threads, sizeof m.threads);
    moment_keep(&m.used, sizeof m.used);
    moment_keep(&m.order_hash, sizeof m.order_hash);
    moment_keep(&m.alone, sizeof m.alone);
    broken_keep();
    trace_keep();
}

void model_check_begins(void) { m.alone = true; }
bool model_runs_threads(void) { return explore_running && !m.alone; }

uint64_t model_hash(void) {
    uint64_t hash = m.order_hash;
    for (unsigned i = 0; i < m.threads_used; i++)
        hash = mix(hash, m.threads[i].hash);
    return hash;
}

bool model_own(uintptr_t address) {
    return memory_is_private(address) || explore_own(address) || address - (uintptr_t)&m < sizeof m;
}

/* Counts one more access by the thread. */
static void step(uintptr_t address) {
    struct thread *t = self();
    uint32_t time = t->now.t[explore_thread] + 1;
    if (time > STEPS_MAX)
        race_fail("a thread does not come to its end");
    if (address != t->at) {
        t->before = t->now;
        for (unsigned i = (unsigned)t->left_from; i < m.used.seq; i++)
            if (m.seq[i].thread == (int)explore_thread && m.seq[i].left == 0) {
                remember(&m.seq[i].left, sizeof m.seq[i].left);
                m.seq[i].left = time;
            }
        t->left_from = (int)m.used.seq;
        t->at = address;
    }
    t->now.t[explore_thread] = time;
}

/* ---- plain accesses, and races with them ---- */

static struct cell *cell_of(uintptr_t address) {
    for (unsigned i = (unsigned)(address >> 3) * 2654435761u >> 18;; i++) {
        struct cell *c = &m.cells[i % CELLS];
        if (c->execution == m.execution && c->address == address)
            return c;
        if (c->execution != m.execution) {
            remember(&c->execution, sizeof c->execution);
            c->execution = m.execution, c->address = address;
            c->threads = c->messages = 0;
            memset(c->time, 0, sizeof c->time);
            if (++m.used.cells == CELLS)
                explore_give_up("too much memory is accessed by one execution");
            return c;
        }
    }
}

static bool later(const struct cell *c, unsigned kind, unsigned other, unsigned byte) {
    return c->time[kind][other][byte] > self()->now.t[other];
}

/* Accesses bytes `from` to `end` - 1 of the cell. */
static void touch(struct cell *c, unsigned from, unsigned end, unsigned kind, const void *pc) {
    bool others = c->threads & ~(1u << explore_thread);
    remember(&c->time[kind][explore_thread][from], (end - from) * sizeof(uint32_t));
    for (unsigned i = from; i < end; i++) {
        c->time[kind][explore_thread][i] = self()->now.t[explore_thread];
        for (unsigned u = 0; others && u < m.threads_used; u++) {
            if (u == explore_thread)
                continue;
            bool race = later(c, PLAIN_WRITE, u, i);
            race |= kind != ATOMIC_READ && kind != ATOMIC_WRITE && later(c, ATOMIC_WRITE, u, i);
            race |= (kind == PLAIN_WRITE || kind == ATOMIC_WRITE) && later(c, PLAIN_READ, u, i);
            race |= kind == PLAIN_WRITE && later(c, ATOMIC_READ, u, i);
            if (race) {
                trace_note(kind == PLAIN_READ || kind == ATOMIC_READ ? OP_LOAD : OP_STORE, c->address + i, 0, 0, true,
                           pc);
                race_fail("data race: the last access of the trace, with one of another thread");
            }
        }
    }
    remember(&c->threads, sizeof c->threads);
    c->threads |= (uint8_t)(1u << explore_thread);
}

static void touch_all(uintptr_t address, size_t bytes, unsigned kind, const void *pc) {
    for (size_t done = 0; done < bytes;) {
        unsigned from = (unsigned)(address + done) & 7;
        unsigned n = 8 - from < bytes - done ? 8 - from : (unsigned)(bytes - done);
        struct cell *c = cell_of((address + done) & ~(uintptr_t)7);
        if (kind == PLAIN_WRITE && c->messages & ((1u << (from + n)) - (1u << from)))
            explore_give_up("a plain write to a shared atomic: not in the model");
        touch(c, from, from + n, kind, pc);
        done += n;
    }
}

void model_plain(uintptr_t address, size_t bytes, bool write, const void *pc) {
    if (!explore_running || model_own(address))
        return;
    if (write)
        memory_remember(address, bytes);
    if (m.alone || !memory_is_watched(address))
        return;
    step(address);
    touch_all(address, bytes, write ? PLAIN_WRITE : PLAIN_READ, pc);
}

/* ---- shared addresses ---- */

static struct place *place_of(uintptr_t address, unsigned bytes) {
    for (unsigned i = (unsigned)(address * 0x9e3779b97f4a7c15u >> 48);; i = (i + 1) % PLACES) {
        struct place *p = &m.places[i];
        if (p->address == 0) {
            *p = (struct place){.address = address, .bytes = (uint8_t)bytes};
            if (++m.places_used == PLACES)
                explore_give_up("too many atomics");
        }
        if (p->address == address)
            return p;
    }
}

static bool is_shared(struct place *p, bool write) {
    p->threads |= (uint8_t)(1u << explore_thread);
    p->written |= write;
    if (!p->shared && p->written && (p->threads & (p->threads - 1)) != 0) {
        p->shared = true;
        explore_restart();
    }
    return p->shared;
}

static int new_message(struct place *p, uint64_t value, int after) {
    if (m.used.messages == MESSAGES)
        explore_give_up("too many values for one execution");
    int at = (int)m.used.messages++;
    struct message *new = &m.messages[at];
    *new = (struct message){.value = value, .writer = NONE, .previous = after, .next = NONE};
    if (after == NONE) {
        p->first = p->last = at; /* messages_begin has remembered them */
        new->order = (uint64_t)1 << 32;
        return at;
    }
    struct message *before = &m.messages[after];
    new->next = before->next;
    remember(&before->next, sizeof before->next);
    before->next = at;
    if (new->next == NONE) {
        remember(&p->last, sizeof p->last);
        p->last = at;
        new->order = before->order + ((uint64_t)1 << 32);
    } else {
        remember(&m.messages[new->next].previous, sizeof new->previous);
        m.messages[new->next].previous = at;
        new->order = before->order + (m.messages[new->next].order - before->order) / 2;
        if (new->order == before->order)
            explore_give_up("too many values between two");
    }
    return at;
}

static void messages_begin(struct place *p, unsigned bytes) {
    if (p->bytes != bytes)
        explore_give_up("accesses of several sizes to one address: not in the model");
    if (p->execution == m.execution)
        return;
    remember(&p->execution, sizeof *p - offsetof(struct place, execution));
    p->execution = m.execution;
    p->order_hash = 0;
    new_message(p, memory_load(p->address, bytes), NONE);
    unsigned from = p->address & 7;
    struct cell *c = cell_of(p->address & ~(uintptr_t)7);
    remember(&c->messages, sizeof c->messages);
    c->messages |= (uint8_t)((1u << (from + bytes)) - (1u << from));
}

/* Whether the thread can read nothing older than `msg`. */
static bool is_known(const struct message *msg) {
    const struct clock *now = &self()->now;
    if (msg->previous == NONE || msg->time <= now->t[msg->writer])
        return true;
    for (unsigned u = 0; u < m.threads_used; u++)
        if (msg->read_time[u] != 0 && msg->read_time[u] <= now->t[u])
            return true;
    return false;
}

static uint64_t order_of(int message) { return m.messages[message].order; }

/* ---- sequential consistency: RC11's axiom ----
 * For two sequentially consistent accesses, psc has an edge from a to b if scb has one: by program order; by
 * happens-before between accesses of one address; by the order of stores to that address; from a read to the store that
 * overwrites what it read; or by program order to another address, then happens-before, then program order from another
 * address. */

static bool edge(const struct seq *a, const struct seq *b) {
    if (a->thread == b->thread)
        return a->time < b->time;
    if (a->place == b->place) {
        if (b->clock.t[a->thread] >= a->time)
            return true;
        if (b->written != NONE && a->written != b->written &&
            ((a->written != NONE && order_of(a->written) < order_of(b->written)) ||
             (a->read != NONE && order_of(a->read) < order_of(b->written))))
            return true;
    }
    return a->left != 0 && b->before.t[a->thread] >= a->left;
}

/* Returns whether adding `new` would close a cycle. Among its edges to existing accesses, only those to writes later in
 * the address's order can do that. */
static bool closes_cycle(const struct seq *new, uint64_t order) {
    bool reached[SEQ_MAX] = {false};
    unsigned todo[SEQ_MAX], n = 0;
    for (unsigned i = 0; i < m.used.seq; i++)
        if (m.seq[i].place == new->place &&
            m.seq[i].written != NONE &&m.seq[i].written != new->written &&order_of(m.seq[i].written) > order) {
            reached[i] = true;
            todo[n++] = i;
        }
    while (n > 0) {
        const struct seq *a = &m.seq[todo[--n]];
        if (edge(a, new))
            return true;
        for (unsigned i = 0; i < m.used.seq; i++)
            if (!reached[i] && edge(a, &m.seq[i])) {
                reached[i] = true;
                todo[n++] = i;
            }
    }
    return false;
}

static bool acquires(int order) { return order == memory_order_acquire || order >= memory_order_acq_rel; }
static bool releases(int order) { return order >= memory_order_release; }

/* Returns whether the thread may read `read` (or NONE) and, if it writes, write directly after `after`. */
static bool may_add(const struct place *p, int read, int after, bool write, int order) {
    if (order != memory_order_seq_cst)
        return true;
    struct seq new = {.place = p, .thread = (int)explore_thread, .read = read, .written = NONE};
    new.time = self()->now.t[explore_thread];
    new.clock = self()->now;
    new.before = self()->before;
    if (read != NONE)
        join(&new.clock, &m.messages[read].released);
    if (!write)
        return !closes_cycle(&new, order_of(read));
    /* Adds the write for the duration of the check. */
    if (m.messages[after].next == NONE)
        return true; /* after the latest write, nothing can be later */
    struct message probe = {.order = order_of(after) + 1};
    m.messages[m.used.messages] = probe;
    new.written = (int)m.used.messages;
    return !closes_cycle(&new, order_of(after));
}

static void add_seq(const struct place *p, int read, int written) {
    if (m.used.seq == SEQ_MAX)
        explore_give_up("too many sequentially consistent accesses for one execution");
    m.seq[m.used.seq++] = (struct seq){p, (int)explore_thread, read,          written, self()->now.t[explore_thread],
                                       0, self()->now,         self()->before};
}

static bool adds_nothing(const struct clock *a, const struct clock *to) {
    for (unsigned i = 0; i < RACE_THREADS; i++)
        if (a->t[i] > to->t[i] && a->t[i] > self()->now.t[i])
            return false;
    return true;
}

/* Reading the older of two equal values allows every continuation that reading the newer one allows, provided the
 * newer adds nothing to what happened before. Sequentially consistent reads are different: an older one is ordered
 * before more accesses. */
static unsigned drop_newer_equals(int *found, unsigned n, int order) {
    const struct message *oldest = &m.messages[found[n - 1]];
    unsigned kept = 0;
    for (unsigned i = 0; i + 1 < n; i++) {
        const struct message *msg = &m.messages[found[i]];
        if (msg->value != oldest->value || (acquires(order) && !adds_nothing(&oldest->released, &msg->released)))
            found[kept++] = found[i];
    }
    found[kept++] = found[n - 1];
    return kept;
}

/* Not in the threads' stacks, which moments copy; no other thread runs while one chooses. */
static int candidates[MESSAGES];

/* Chooses the message to read. A failing CAS has the order `failure_order` and writes nothing. */
static int choose_read(const struct place *p, enum model_op op, const uint64_t *expected, int order,
                       int failure_order) {
    unsigned n = 0;
    for (int at = p->last; at != NONE; at = m.messages[at].previous) {
        const struct message *msg = &m.messages[at];
        bool write = op != OP_LOAD && !(op == OP_CAS && msg->value != *expected);
        if (!(write && msg->succeeded) && may_add(p, at, at, write, write ? order : failure_order)) {
            candidates[n++] = at;
            if (op == OP_LOAD && order != memory_order_seq_cst)
                n = drop_newer_equals(candidates, n, order);
        }
        if (is_known(msg))
            break;
    }
    return candidates[explore_choose(n)];
}

/* Chooses the message after which the store comes. */
static int choose_after(const struct place *p, int order) {
    unsigned n = 0;
    for (int at = p->last; at != NONE; at = m.messages[at].previous) {
        if (!m.messages[at].succeeded && may_add(p, NONE, at, true, order))
            candidates[n++] = at;
        if (is_known(&m.messages[at]))
            break;
    }
    return candidates[explore_choose(n)];
}

static uint64_t order_hash_of(const struct place *p) {
    uint64_t hash = p->address;
    for (int at = p->first; at != NONE; at = m.messages[at].next)
        hash = mix(hash, m.messages[at].id);
    return hash;
}

static int write_message(struct place *p, uint64_t value, int read, int after, int order) {
    struct thread *t = self();
    int at = new_message(p, value, after);
    struct message *new = &m.messages[at];
    new->writer = (int)explore_thread;
    new->time = t->now.t[explore_thread];
    new->id = (uint64_t)(explore_thread + 1) << 32 | t->shared_accesses;
    if (releases(order))
        new->released = t->now;
    if (read != NONE) {
        remember(&m.messages[read].succeeded, sizeof new->succeeded);
        m.messages[read].succeeded = true;
        join(&new->released, &m.messages[read].released);
    }
    if (at == p->last)
        memory_store(p->address, p->bytes, value);
    m.order_hash -= p->order_hash;
    remember(&p->order_hash, sizeof p->order_hash);
    p->order_hash = order_hash_of(p);
    m.order_hash += p->order_hash;
    return at;
}

static uint64_t shared_atomic(struct place *p, enum model_op op, uint64_t operand, const uint64_t *expected, int order,
                              int failure_order, const void *pc) {
    struct thread *t = self();
    int read = NONE, written = NONE;
    uint64_t old = 0;
    bool write = op != OP_LOAD;
    t->shared_accesses++;
    if (op != OP_STORE) {
        read = choose_read(p, op, expected, order, failure_order);
        old = m.messages[read].value;
        if (op == OP_CAS && old != *expected)
            write = false, order = failure_order;
        if (acquires(order))
            join(&t->now, &m.messages[read].released);
        uint32_t *read_time = &m.messages[read].read_time[explore_thread];
        if (*read_time == 0) {
            remember(read_time, sizeof *read_time);
            *read_time = t->now.t[explore_thread];
        }
    }
    bool latest = read == NONE || m.messages[read].next == NONE;
    uint64_t value = write ? memory_result(op, old, operand, p->bytes) : 0;
    if (write)
        written = write_message(p, value, read, read != NONE ? read : choose_after(p, order), order);
    if (order == memory_order_seq_cst)
        add_seq(p, read, written);
    t->hash = mix(mix(mix(t->hash, p->address), (uint64_t)op << 1 | write), read != NONE ? m.messages[read].id : 0);
    t->decided = t->now;
    trace_note((int)op, p->address, old, value, latest && (written == NONE || m.messages[written].next == NONE), pc);
    touch_all(p->address, p->bytes, write ? ATOMIC_WRITE : ATOMIC_READ, pc);
    return old;
}

uint64_t model_access(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc) {
    if (!explore_running || m.alone || model_own(address))
        return memory_atomic(op, address, bytes, operand, expected);
    struct place *p = place_of(address, bytes);
    if (is_shared(p, op != OP_LOAD)) {
        explore_point(p - m.places, op != OP_LOAD);
        messages_begin(p, bytes);
        step(address);
        return shared_atomic(p, op, operand, expected, order, failure_order, pc);
    }
    step(address);
    uint64_t old = memory_atomic(op, address, bytes, operand, expected);
    touch_all(address, bytes, op == OP_LOAD || (op == OP_CAS && old != *expected) ? ATOMIC_READ : ATOMIC_WRITE, pc);
    return old;
}

static void set_plain(uintptr_t from, uintptr_t to, uint8_t value, const void *pc) {
    if (from == to)
        return;
    model_plain(from, to - from, true, pc);
    __real_memset((void *)from, value, to - from); /* NOLINT: addresses are numbers here */
}

/* Bytes that several threads access atomically become stores in the model; the others are written at once. */
void model_set(uintptr_t address, size_t bytes, uint8_t value, const void *pc) {
    uintptr_t end = address + bytes, plain = address;
    bool watched = model_runs_threads() && !model_own(address) && memory_is_watched(address);
    for (uintptr_t at = address; watched && at < end;) {
        const struct cell *c = cell_of(at & ~(uintptr_t)7);
        if (!(c->messages >> (at & 7) & 1)) {
            at = c->messages == 0 ? (at | 7) + 1 : at + 1;
            continue;
        }
        unsigned n = place_of(at, 0)->bytes;
        set_plain(plain, at, value, pc);
        model_access(OP_STORE, at, n, value * (UINT64_MAX / UINT8_MAX) >> (64 - 8 * n), NULL, memory_order_relaxed,
                     memory_order_relaxed, pc);
        plain = at += n;
    }
    set_plain(plain, end, value, pc);
}

/* The other thread may be interrupted anywhere after its last shared access. Directly after it is the point that
 * reveals least. */
void race_fence_threads(void) {
    if (!explore_running || m.alone)
        return;
    for (unsigned u = 0; u < m.threads_used; u++) {
        if (u == explore_thread)
            continue;
        explore_point(EXPLORE_ALL, true);
        struct thread *t = self(), *other = &m.threads[u];
        step(0);
        join(&other->now, &t->now);
        join(&t->now, &other->decided);
        t->decided = t->now;
        join(&other->decided, &t->now);
        uint64_t met = mix(t->hash, other->hash);
        t->hash = mix(met, 1), other->hash = mix(met, 2);
        trace_note(OP_FENCE, 0, u, 0, true, NULL);
    }
}

unsigned race_choose(unsigned n) {
    if (!explore_running || m.alone)
        return 0;
    unsigned chosen = explore_choose(n);
    self()->hash = mix(self()->hash, chosen + 1);
    return chosen;
}
