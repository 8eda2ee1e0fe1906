/* SPDX-License-Identifier: MIT */
#include "programs.h"

#include <fcntl.h>
#include <hakmem.h>
#include <pthread.h>
#include <stdarg.h>

#include <algorithm>

size_t program_length = 1;

void give_up(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(nullptr);
    _exit(1);
}

/* ---- stamps: a word every so often, so that much memory is checked by touching little of it ---- */

namespace {

constexpr int kUntouched = 12345; /* an errno that no call sets */

size_t stamp_step(size_t size) {
    return size <= 1024 ? 64 : size <= 64 * kKiB ? 8 * kKiB : size <= kMiB ? 64 * kKiB : 256 * kKiB;
}

template <typename Visit> void each_stamp(size_t size, Visit visit) {
    for (size_t at = 0; at + 8 <= size; at += stamp_step(size))
        visit(at);
}

void stamp(unsigned char *p, size_t size, uint64_t tag) {
    each_stamp(size, [&](size_t at) {
        uint64_t word = tag ^ at;
        memcpy(p + at, &word, 8);
    });
}

/* Returns the offset of the first damaged stamp within the first `kept` bytes of a block of `size` bytes, or `kept` if
 * there is none. */
size_t stamp_damage(const unsigned char *p, size_t size, size_t kept, uint64_t tag) {
    size_t damaged = kept;
    each_stamp(size, [&](size_t at) {
        uint64_t word = 0;
        if (at + 8 <= kept && damaged == kept && (memcpy(&word, p + at, 8), word != (tag ^ at)))
            damaged = at;
    });
    return damaged;
}

/* Returns the offset of the first byte that is not zero. Checks all of a small block; of a large one, the places where
 * stamps of blocks of any size may have been. */
size_t dirt(const unsigned char *p, size_t size) {
    if (size <= 64 * kKiB)
        return first_dirty(p, size);
    for (size_t at = 0; at + 8 <= size; at += at < 64 * kKiB ? 1024 : 64 * kKiB)
        if (first_dirty(p + at, 8) != 8)
            return at;
    return size;
}

} // namespace

/* ---- actor ---- */

bool Actor::granted(const void *p, size_t size) const {
    int error = errno;
    if (p != nullptr && error != kUntouched)
        give_up("errno became %d though %zu bytes were had", error, size);
    if (p == nullptr && error != ENOMEM)
        give_up("errno is %d, not ENOMEM, though %zu bytes were refused", error, size);
    if (p == nullptr && strict_)
        give_up("%zu bytes were refused though nothing fails any more", size);
    return p != nullptr;
}

bool Actor::add(size_t size, bool cleared, size_t alignment) {
    errno = kUntouched;
    void *p = cleared ? hak_calloc(1, size) : alignment ? hak_aligned_alloc(alignment, size) : hak_malloc(size);
    if (!granted(p, size))
        return false;
    Block block = {static_cast<unsigned char *>(p), size, ++tags_ << 40 | random_.next() >> 44 << 20};
    if (alignment != 0 && !aligned_to(p, alignment))
        give_up("%p is not aligned to %zu", p, alignment);
    if (cleared && dirt(block.p, size) != size)
        give_up("calloc(%zu): byte %zu is not zero", size, dirt(block.p, size));
    stamp(block.p, size, block.tag);
    blocks_.push_back(block);
    bytes_ += size;
    return true;
}

void Actor::check(size_t index) const {
    const Block &block = blocks_[index];
    size_t damaged = stamp_damage(block.p, block.size, block.size, block.tag);
    if (damaged != block.size)
        give_up("a block of %zu bytes is damaged at %zu", block.size, damaged);
}

bool Actor::resize(size_t index, size_t size) {
    Block &block = blocks_[index];
    check(index);
    errno = kUntouched;
    void *p = hak_realloc(block.p, size);
    if (!granted(p, size)) {
        check(index);
        return false;
    }
    size_t kept = std::min(size, block.size);
    block.p = static_cast<unsigned char *>(p);
    size_t damaged = stamp_damage(block.p, block.size, kept, block.tag);
    if (damaged != kept)
        give_up("realloc from %zu to %zu lost byte %zu", block.size, size, damaged);
    bytes_ += size - block.size;
    block.size = size;
    stamp(block.p, size, block.tag);
    return true;
}

void Actor::drop(size_t index) {
    check(index);
    Block block = blocks_[index];
    blocks_[index] = blocks_.back();
    blocks_.pop_back();
    bytes_ -= block.size;
    errno = kUntouched;
    hak_free(block.p);
    if (errno != kUntouched)
        give_up("free of %zu bytes made errno %d", block.size, errno);
}

void Actor::drop_some(size_t of_a_hundred) {
    for (size_t left = count() * of_a_hundred / 100; left > 0; left--)
        drop(random_.below(count()));
}

void Actor::check_all() const {
    for (size_t i = 0; i < count(); i++)
        check(i);
}

void Actor::take_over(Actor &other) {
    blocks_.insert(blocks_.end(), other.blocks_.begin(), other.blocks_.end());
    bytes_ += other.bytes_;
    other.blocks_.clear();
    other.bytes_ = 0;
}

/* ---- programs ---- */

namespace {

/* Allocates up to `bytes` in blocks of random sizes from a range, one in eight cleared and one in eight aligned; then
 * frees most of them. */
void churn(Actor &a, size_t least, size_t most, size_t bytes, unsigned rounds = 3) {
    for (unsigned round = 0; round < rounds * program_length; round++) {
        for (unsigned refused = 0; a.bytes() < bytes && refused < 4;) {
            size_t size = least + a.random().below(most - least + 1), dice = a.random().below(8);
            refused += !a.add(size, dice == 0, dice == 1 ? size_t{16} << a.random().below(9) : 0);
        }
        a.drop_some(round % 2 == 0 ? 80 : 99);
    }
}

void tiny(Actor &a) {
    churn(a, 8, 1024, 150 * kKiB, 1);
    for (size_t size : {1000, 700, 300}) /* one class at a time, so that its slabs become empty */
        churn(a, size - 10, size, a.bytes() + 250 * kKiB, 2);
}
void mid(Actor &a) {
    churn(a, 1025, 64 * kKiB, kMiB, 1);
    for (size_t size : {2000, 9000, 40000})
        churn(a, size - 10, size, a.bytes() + 2 * kMiB / 3, 2);
}
void large(Actor &a) { churn(a, 64 * kKiB + 1, kMiB, 6 * kMiB, 3); }
void huge(Actor &a) { churn(a, kMiB + 1, 5 * kMiB, 16 * kMiB, 3); }
void whole(Actor &a) { churn(a, 2 * kMiB + 1, 3 * kMiB, 6 * kMiB, 2); }

/* Several blocks grow in turns, so that each blocks the others' growth, from tiny to huge, and shrink again. */
void grow(Actor &a) {
    constexpr size_t kSteps[] = {40,           900,      5000,     60 * kKiB, 90 * kKiB, 200 * kKiB, 400 * kKiB,
                                 5 * kMiB / 4, 3 * kMiB, 5 * kMiB, 4 * kMiB,  80 * kKiB, 3000};
    for (size_t round = 0; round < program_length; round++) {
        size_t first = a.count();
        for (unsigned i = 0; i < 3; i++)
            a.add(24);
        for (size_t step : kSteps)
            for (size_t i = first; i < a.count(); i++)
                a.resize(i, step + a.random().below(step / 8));
    }
}

/* Allocates the same sizes again and again; memory that was dirty before is now requested cleared. */
void zero(Actor &a) {
    constexpr size_t kSizes[] = {100, 1000, 3000, 20000, 64 * kKiB, 100000, 500000, 5 * kMiB / 4};
    for (size_t round = 0; round < 2 * program_length; round++) {
        for (size_t size : kSizes)
            for (unsigned i = 0; i < (size > 200000 ? 1 : 3); i++)
                a.add(size, round != 0);
        a.drop_some(90);
        if (round % 2 == 0)
            hak_trim();
    }
}

/* A size that the system clears, if it can. */
void zero_huge(Actor &a) {
    for (bool cleared : {false, true, true})
        if (a.add(33 * kMiB, cleared))
            a.drop(a.count() - 1);
}

/* Free pages inside partly used slabs go back, and are used again. */
void trim(Actor &a) {
    constexpr size_t kSizes[] = {64, 1000, 3000, 30000};
    for (size_t round = 0; round < program_length; round++)
        for (size_t size : kSizes) {
            for (size_t i = 0; i < 80 * kKiB / size; i++)
                a.add(size);
            a.drop_some(93);
            hak_trim();
            for (size_t i = 0; i < 60 * kKiB / size; i++)
                a.add(size, true);
            a.drop_some(70);
        }
}

/* Requests the statistics meanwhile. */
void statistics(Actor &a) {
    char text[4096];
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (size_t round = 0; round < program_length; round++) {
        churn(a, 8, 100 * kKiB, 300 * kKiB, 1);
        hak_stats_print(null);
        if (hak_stats_json(text, sizeof text) == 0)
            give_up("no statistics");
    }
    close(null);
}

/* The child has its parent's blocks, allocates, frees them all and ends; the parent goes on. */
void fork_in_the_middle(Actor &a) {
    churn(a, 8, 200 * kKiB, kMiB, 2);
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        churn(a, 8, 200 * kKiB, 2 * kMiB, 1);
        a.drop_all();
        hak_trim();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up("the child of a fork ended with status %x", status);
    churn(a, 8, 200 * kKiB, 2 * kMiB, 1);
}

/* ---- with threads ---- */

struct Thread {
    Actor actor;
    void (*work)(Thread &);
    Actor *main;
    pthread_barrier_t *barrier;
    pthread_t id;
};

void *enter(void *with) {
    auto *thread = static_cast<Thread *>(with);
    thread->work(*thread);
    return nullptr;
}

void start(Thread &thread) {
    if (pthread_create(&thread.id, nullptr, enter, &thread) != 0)
        give_up("the test's own thread cannot be started");
}

void join(Thread &thread) { pthread_join(thread.id, nullptr); }

/* One thread allocates and another frees: the first still exists, or has ended, or is the one that frees main's
 * blocks. */
void allocates(Thread &t) { churn(t.actor, 8, 30 * kKiB, 200 * kKiB, 1); }
void allocates_and_stays(Thread &t) {
    churn(t.actor, 900, 1000, 150 * kKiB, 1);
    for (int i = 0; i < 300; i++)
        t.actor.add(200);
    pthread_barrier_wait(t.barrier); /* the main thread frees them here */
    pthread_barrier_wait(t.barrier);
    churn(t.actor, 900, 1000, 100 * kKiB, 1);
    t.actor.drop_all();
}
void frees(Thread &t) { t.main->drop_some(60); }

void threads(Actor &a) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 2);
    for (size_t round = 0; round < program_length; round++) {
        Thread one{{a.random().next(), a.strict()}, allocates, &a, &barrier, {}};
        start(one);
        join(one);
        a.take_over(one.actor);
        for (int i = 0; i < 200; i++)
            a.add(8 + a.random().below(1000));
        Thread two{{a.random().next(), a.strict()}, allocates_and_stays, &a, &barrier, {}};
        start(two);
        pthread_barrier_wait(&barrier);
        a.take_over(two.actor);
        a.drop_some(80);
        pthread_barrier_wait(&barrier);
        join(two);
        churn(a, 900, 1000, 200 * kKiB, 1);
        Thread three{{a.random().next(), a.strict()}, frees, &a, &barrier, {}};
        start(three);
        join(three);
        churn(a, 8, 30 * kKiB, 300 * kKiB, 1);
    }
    pthread_barrier_destroy(&barrier);
}

/* The very first allocation, by two threads at once. */
void allocates_first(Thread &t) {
    pthread_barrier_wait(t.barrier);
    for (int i = 0; i < 40; i++)
        t.actor.add(8 + t.actor.random().below(i % 4 == 0 ? 200000 : 2000));
}

void start_up(Actor &a) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 2);
    Thread one{{1, a.strict()}, allocates_first, &a, &barrier, {}};
    Thread two{{2, a.strict()}, allocates_first, &a, &barrier, {}};
    start(one), start(two);
    join(one), join(two);
    a.take_over(one.actor);
    a.take_over(two.actor);
    a.drop_some(50);
    pthread_barrier_destroy(&barrier);
}

/* Enough memory to start a purger, which looks in while two threads go on; time passes when it sleeps. The other thread
 * has a heap before main's grows and until main is done, because a program with one thread gets no purger. */
void works_beside_the_purger(Thread &t) {
    t.actor.add(100);
    pthread_barrier_wait(t.barrier);
    churn(t.actor, 8, 500 * kKiB, 2 * kMiB, 2);
    pthread_barrier_wait(t.barrier);
}

void purger(Actor &a) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 2);
    hak_option_set("PURGER", "1");
    Thread other{{a.random().next(), a.strict()}, works_beside_the_purger, &a, &barrier, {}};
    start(other);
    pthread_barrier_wait(&barrier);
    churn(a, 8, 500 * kKiB, 6 * kMiB, 2);
    pthread_barrier_wait(&barrier);
    join(other);
    a.take_over(other.actor);
    hak_option_set("PURGER", "0");
    pthread_barrier_destroy(&barrier);
}

/* Slabs of few blocks share pages, some of which are written to, some freed, and some are merged with others later. */
void mesh(Actor &actor) {
    hak_option_set("MESH", "1");
    for (size_t round = 0; round < program_length; round++) {
        for (size_t size : {500, 1000}) {
            for (size_t i = 0; i < 256 * kKiB / size; i++)
                actor.add(size);
            actor.drop_some(93);
        }
        hak_trim();
        actor.check_all();
        actor.drop_some(50);
        for (size_t i = 0; i < actor.count(); i += 2)
            actor.resize(i, actor.size_of(i) - 8);
        hak_trim();
    }
}

/* The same while another thread could write there. */
void mesh_beside_a_thread(Actor &actor) {
    pthread_barrier_t barrier;
    pthread_t thread;
    pthread_barrier_init(&barrier, nullptr, 2);
    auto wait = [](void *with) -> void * {
        pthread_barrier_wait(static_cast<pthread_barrier_t *>(with));
        return nullptr;
    };
    if (pthread_create(&thread, nullptr, wait, &barrier) != 0)
        give_up("no thread");
    mesh(actor);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, nullptr);
    pthread_barrier_destroy(&barrier);
}

} // namespace

const std::vector<Program> kPrograms = {
    {"tiny", tiny, AUTO | EAGER | LAZILY | WINDOW | SECURED, 1, false},
    {"mid", mid, AUTO | EAGER | LAZILY | WINDOW, 1, false},
    {"large", large, AUTO | EAGER | LAZILY | WINDOW | HUGE_PAGES | SECURED, 1, false},
    {"huge", huge, AUTO | WINDOW, 1, false},
    {"whole", whole, SECURED_WHOLE, 1, false},
    {"grow", grow, AUTO | WINDOW | SECURED, 1, false},
    {"zero", zero, EAGER | LAZILY | WINDOW | LOCKED, 1, false},
    {"zero_huge", zero_huge, AUTO, 1, false},
    {"trim", trim, AUTO | WINDOW, 1, false},
    {"stats", statistics, AUTO, 1, false},
    {"fork", fork_in_the_middle, EAGER | WINDOW, 1, false},
    {"threads", threads, EAGER | WINDOW, 3, false},
    {"start_up", start_up, AUTO | WINDOW, 3, false},
    {"purger", purger, AUTO, 4, true},
    {"mesh", mesh, AUTO, 1, false},
    {"mesh_beside_a_thread", mesh_beside_a_thread, AUTO, 1, false},
};
