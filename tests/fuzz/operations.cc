/* See operations.h. */
/* SPDX-License-Identifier: MIT */
#include "operations.h"

#include <hakmem.h>
#include <stdarg.h>

#include <new>
#include <thread>

#include "../support.h"

volatile bool machine_does_damage;

namespace {

const char *const call_names[] = {
#define CALL_NAME(name) #name,
    CALLS(CALL_NAME)
#undef CALL_NAME
};

/* The step this thread is at, for the message about an error. */
thread_local Step now;
thread_local long now_at;

[[noreturn]] __attribute__((format(printf, 1, 2))) void broken(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "model: step %ld, %s: ", now_at, step_text(now).c_str());
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

constexpr unsigned kChildAlarmSeconds = 600;

} // namespace

std::string step_text(const Step &step) {
    char text[96];
    snprintf(text, sizeof text, "%u %s %u %u %u", step.thread, call_names[step.call], step.place, step.size,
             step.flavour);
    return text;
}

bool step_read(const char *text, Step *step) {
    unsigned thread, place, size, flavour, call = 0;
    char name[16];
    if (sscanf(text, "%u %15s %u %u %u", &thread, name, &place, &size, &flavour) != 5)
        return false;
    while (call < CALL_COUNT && strcmp(name, call_names[call]) != 0)
        call++;
    *step = {static_cast<uint8_t>(call), static_cast<uint8_t>(flavour), static_cast<uint8_t>(thread),
             static_cast<uint16_t>(place), size};
    return call < CALL_COUNT;
}

/* How many low bits of the size count, chosen by its upper five bits: mostly few. */
constexpr uint8_t kWidths[32] = {0, 1, 2, 3, 4, 4,  5,  5,  5,  6,  6,  6,  7,  7,  7,  8,
                                 8, 8, 9, 9, 9, 10, 10, 11, 11, 12, 13, 14, 16, 17, 20, 23};

Step step_of_bytes(const uint8_t *bytes) {
    uint16_t place;
    uint32_t size;
    memcpy(&place, bytes + 2, sizeof place);
    memcpy(&size, bytes + 4, sizeof size);
    return {static_cast<uint8_t>(bytes[0] % CALL_COUNT), bytes[1], 0, place, size & ((1u << kWidths[size >> 27]) - 1)};
}

/* ---- the world ---- */

void World::born(const Block &block, size_t usable) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = live_.lower_bound(block.at);
    if (after != live_.end() && block.at + usable > after->first)
        broken("%p + %zu overlaps the live block %p", block.at, usable, after->first);
    if (after != live_.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second > block.at)
            broken("%p lies in the live block %p + %zu", block.at, before->first, before->second);
    }
    live_.emplace_hint(after, block.at, usable);
}

void World::dies(const Block &block) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (live_.erase(block.at) != 1)
        broken("the test itself lost track of %p", block.at);
}

void World::put(const Block &block) {
    std::lock_guard<std::mutex> lock(mutex_);
    exchange_.push_back(block);
}

bool World::take(Block *block, size_t which) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (exchange_.empty())
        return false;
    std::swap(exchange_[which % exchange_.size()], exchange_.back());
    *block = exchange_.back();
    exchange_.pop_back();
    return true;
}

size_t World::live() {
    std::lock_guard<std::mutex> lock(mutex_);
    return live_.size();
}

/* ---- the machine ---- */

Machine::Machine(const Surface &surface, World &world, unsigned number, size_t places)
    : surface_(surface), standard_(surface.posix_memalign != nullptr), world_(world), blocks_(places),
      tag_(number << 24) {}

Machine::~Machine() { hak_arena_destroy(arena_); }

bool Machine::run(const Step &step) {
    now = step;
    now_at = steps++;
    switch (step.call) {
    case CALL_malloc: do_malloc(step); break;
    case CALL_calloc: do_calloc(step); break;
    case CALL_aligned: do_aligned(step); break;
    case CALL_realloc: do_realloc(step); break;
    case CALL_free:
        if (at(step.place) != nullptr)
            release(remove(step.place), step.flavour);
        break;
    case CALL_check:
        if (Block *block = at(step.place))
            check(*block);
        break;
    case CALL_fill: do_fill(step); break;
    case CALL_expand: do_expand(step); break;
    case CALL_give:
        if (at(step.place) != nullptr && hak_arena_of(at(step.place)->at) == nullptr)
            world_.put(remove(step.place));
        break;
    case CALL_receive: {
        Block block;
        if (at(step.place) == nullptr && world_.take(&block, step.size)) {
            check(block);
            blocks_[step.place % blocks_.size()] = block;
            bytes_ += block.size;
        }
        break;
    }
    case CALL_impossible: do_impossible(step); break;
    case CALL_illegal: do_illegal(step); break;
    case CALL_trim: hak_trim(); break;
    case CALL_stats:
        if (hak_stats_json(nullptr, 0) < 100)
            broken("the statistics are short");
        break;
    case CALL_option: do_option(step); break;
    case CALL_elsewhere: do_elsewhere(step); break;
    case CALL_fork: do_fork(); break;
    case CALL_damage: do_damage(step); break;
    case CALL_arena: do_arena(step); break;
    default: return false; /* CALL_end */
    }
    return true;
}

void Machine::free_all() {
    for (size_t place = 0; place < blocks_.size(); place++)
        if (at(place) != nullptr)
            release(remove(place), 0);
}

void Machine::free_the_exchange() {
    for (Block block; world_.take(&block, 0);) {
        check(block);
        release(block, 0);
    }
}

Block *Machine::at(size_t place) {
    Block *block = &blocks_[place % blocks_.size()];
    return block->at != nullptr ? block : nullptr;
}

/* Returns the block at the place or, if there is none, the first one at the 63 places after it. */
Block *Machine::live_near(size_t place) {
    for (size_t i = 0; i < 64; i++)
        if (Block *block = at(place + i))
            return block;
    return nullptr;
}

size_t Machine::allowed(size_t size) const { return bytes_ + size <= most_bytes ? size : size % 1024; }

/* Enters a new block at a free place. */
void Machine::put(size_t place, void *block, size_t size, size_t alignment) {
    if (in_arena_)
        hak_arena_set_default(nullptr, nullptr);
    if (careless)
        return put_unchecked(place, block, size, alignment);
    if (block == nullptr)
        broken("NULL for %zu bytes, errno %d", size, errno);
    if (!aligned_to(block, alignment != 0 ? alignment : natural_alignment(size)))
        broken("%p for %zu bytes is not aligned to %zu", block, size, alignment);
    size_t usable = surface_.usable_size(block);
    if (usable < size)
        broken("%p: %zu bytes usable of %zu", block, usable, size);
    world_.born({static_cast<char *>(block), size, size, alignment, 0}, usable);
    put_unchecked(place, block, size, alignment);
}

void Machine::put_unchecked(size_t place, void *block, size_t size, size_t alignment) {
    if (block == nullptr)
        return;
    Block born{static_cast<char *>(block), size, size, alignment, tag_++};
    pattern_write(born.at, 0, size, born.tag);
    blocks_[place % blocks_.size()] = born;
    bytes_ += size;
}

/* Takes the block off the table after checking its contents; the block stays live. */
Block Machine::remove(size_t place) {
    Block block = blocks_[place % blocks_.size()];
    check(block);
    blocks_[place % blocks_.size()].at = nullptr;
    bytes_ -= block.size;
    return block;
}

void Machine::check(const Block &block) {
    size_t bad = careless ? block.filled : pattern_check(block.at, block.filled, block.filled, block.tag);
    if (bad != block.filled)
        broken("byte %zu of the block %p of %zu is damaged", bad, block.at, block.size);
}

void Machine::release(const Block &block, unsigned flavour) {
    if (!careless)
        world_.dies(block);
    freed_[freed_next_++ % kFreed] = block;
    errno = 1234;
    if (block.alignment == 0)
        call_free(block, flavour);
    else
        call_free_aligned(block, flavour);
    if (errno != 1234 && !careless)
        broken("errno is %d", errno);
}

void Machine::call_free(const Block &block, unsigned flavour) {
    bool is_array = block.maker == Maker::kNewArray, is_object = block.maker == Maker::kNew;
    flavour %= !standard_ ? 4 : block.resized ? 7 : 9;
    if (is_array && (flavour == 4 || flavour == 6))
        flavour = 5;
    else if (is_object && flavour == 5)
        flavour = 4;
    else if (is_array && flavour == 7)
        flavour = 8;
    else if (is_object && flavour == 8)
        flavour = 7;
    switch (flavour) {
    case 0: surface_.free(block.at); break;
    case 1: surface_.free_sized(block.at, block.size); break;
    case 2: hak_free(block.at); break;
    case 3: hak_free_sized(block.at, block.size); break;
    case 4: operator delete(block.at); break;
    case 5: operator delete[](block.at); break;
    case 6: operator delete(block.at, std::nothrow); break;
    case 7: operator delete(block.at, block.size); break;
    default: operator delete[](block.at, block.size);
    }
}

void Machine::call_free_aligned(const Block &block, unsigned flavour) {
    std::align_val_t alignment{block.alignment};
    flavour %= standard_ ? 8 : 2;
    if (block.maker == Maker::kNewArray && (flavour == 3 || flavour == 4))
        flavour += 2;
    else if (block.maker == Maker::kNew && flavour >= 5)
        flavour = flavour == 6 ? 4 : 3;
    switch (flavour) {
    case 0: surface_.free(block.at); break;
    case 1: hak_free(block.at); break;
    case 2: surface_.free_aligned_sized(block.at, block.alignment, block.size); break;
    case 3: operator delete(block.at, alignment); break;
    case 4: operator delete(block.at, block.size, alignment); break;
    case 5: operator delete[](block.at, alignment); break;
    case 6: operator delete[](block.at, block.size, alignment); break;
    default: operator delete[](block.at, alignment, std::nothrow);
    }
}

void Machine::do_malloc(const Step &step) {
    size_t size = allowed(step.size), usable;
    void *block;
    if (at(step.place) != nullptr)
        release(remove(step.place), step.flavour / 16);
    use_arena();
    switch (step.flavour % (standard_ ? 8 : 4)) {
    case 0: block = hak_malloc(size); break;
    case 1:
        block = hak_alloc_at_least(size, &usable);
        if (!careless && (usable != surface_.usable_size(block) || usable != hak_good_size(size)))
            broken("%zu usable, hak_alloc_at_least says %zu, hak_good_size %zu", surface_.usable_size(block), usable,
                   hak_good_size(size));
        break;
    case 4: block = operator new(size); break;
    case 5: block = operator new[](size); break;
    case 6: block = operator new(size, std::nothrow); break;
    case 7: block = operator new[](size, std::nothrow); break;
    default: block = surface_.alloc(size);
    }
    put(step.place, block, size, 0);
    unsigned flavour = step.flavour % (standard_ ? 8 : 4);
    if (at(step.place) != nullptr && flavour >= 4 && flavour <= 7)
        at(step.place)->maker = flavour % 2 == 0 ? Maker::kNew : Maker::kNewArray;
}

void Machine::do_calloc(const Step &step) {
    size_t count = 1 + step.flavour % 5, size = allowed(step.size * count) / count;
    if (at(step.place) != nullptr)
        release(remove(step.place), 0);
    use_arena();
    void *block = step.flavour >= 128 ? hak_calloc(count, size) : surface_.calloc(count, size);
    size_t dirty = block != nullptr ? first_dirty(block, count * size) : 0;
    if (dirty != (block != nullptr ? count * size : 0) && !careless)
        broken("byte %zu of %zu x %zu at %p is not zero", dirty, count, size, block);
    put(step.place, block, count * size, 0);
}

void Machine::do_aligned(const Step &step) {
    size_t size = allowed(step.size), alignment = size_t{8} << step.flavour / 8 % 19;
    void *block = nullptr;
    if (at(step.place) != nullptr)
        release(remove(step.place), step.flavour % 3);
    use_arena();
    // clang-format off
    switch (step.flavour % (standard_ ? 8 : 1)) {
    case 0: block = hak_aligned_alloc(alignment, size); break;
    case 1: block = surface_.memalign(alignment, size); break;
    case 2:
        if (surface_.posix_memalign(&block, alignment, size) != 0)
            broken("posix_memalign(%zu, %zu)", alignment, size);
        break;
    case 3: block = surface_.valloc(size), alignment = 4096; break;
    case 4: block = surface_.pvalloc(size), alignment = 4096, size = (size + 4095) / 4096 * 4096; break;
    case 5: block = operator new(size, std::align_val_t{alignment}); break;
    case 6: block = operator new[](size, std::align_val_t{alignment}, std::nothrow); break;
    default: block = surface_.aligned_alloc(alignment, size);
    }
    // clang-format on
    put(step.place, block, size, alignment);
    unsigned flavour = step.flavour % (standard_ ? 8 : 1);
    if (at(step.place) != nullptr && (flavour == 5 || flavour == 6))
        at(step.place)->maker = flavour == 5 ? Maker::kNew : Maker::kNewArray;
}

void Machine::do_realloc(const Step &step) {
    Block *old = at(step.place);
    if (old == nullptr) {
        size_t size = allowed(step.size);
        return put(step.place, surface_.realloc(nullptr, size), size, 0);
    }
    /* To any size, or to one near the old size. */
    size_t near = old->size / 2 + step.size % (old->size + 2);
    size_t to = allowed(step.flavour % 3 == 0 ? step.size : near);
    Block block = remove(step.place);
    if (!careless)
        world_.dies(block);
    void *moved = step.flavour >= 128 ? hak_realloc(block.at, to)
                  : standard_ && to % 2 == 0 && step.flavour >= 64 && to > 0
                      ? surface_.reallocarray(block.at, to / 2, 2)
                      : surface_.realloc(block.at, to);
    if (to == 0) {
        if (moved != nullptr && !careless)
            broken("realloc(p, 0) is not NULL");
        return;
    }
    if (moved == nullptr && !careless)
        broken("NULL for %zu bytes, errno %d", to, errno);
    size_t kept = block.filled < to ? block.filled : to;
    size_t bad = careless ? kept : pattern_check(moved, kept, block.filled, block.tag);
    if (bad != kept)
        broken("byte %zu lost from %zu to %zu bytes, %p to %p", bad, block.filled, to, block.at, moved);
    put(step.place, moved, to, 0);
    if (moved != nullptr)
        at(step.place)->resized = true;
}

/* The program may use all usable bytes. */
void Machine::do_fill(const Step &step) {
    Block *block = at(step.place);
    if (block == nullptr)
        return;
    check(*block);
    block->filled = step.flavour % 2 == 0 ? surface_.usable_size(block->at) : hak_usable_size(block->at);
    if (block->filled < block->size && !careless)
        broken("%zu bytes usable of %zu", block->filled, block->size);
    pattern_write(block->at, 0, block->filled, block->tag);
}

void Machine::do_expand(const Step &step) {
    Block *block = at(step.place);
    if (block == nullptr)
        return;
    size_t to = allowed(step.flavour % 2 == 0 ? step.size : block->size + step.size % (block->size + 64));
    errno = 1234;
    int done = hak_expand(block->at, to);
    size_t usable = surface_.usable_size(block->at);
    if (careless)
        return;
    if (errno != 1234 || done != (usable >= to))
        broken("hak_expand to %zu says %d, errno %d, %zu bytes usable", to, done, errno, usable);
    check(*block);
    if (done != 0 && to > block->size)
        block->size = to; /* the size to free it with, if it is freed by size */
    world_.dies(*block);
    world_.born(*block, usable);
}

/* A request that no machine can satisfy: the answer must be NULL and ENOMEM, and nothing changes. */
void Machine::do_impossible(const Step &step) {
    volatile size_t size = SIZE_MAX - (size_t{step.size} << 29), count = 2 + step.place;
    Block *block = careless ? nullptr : at(step.place);
    void *got = nullptr;
    errno = 0;
    switch (step.flavour % (standard_ ? 9 : 5)) {
    case 0: got = surface_.alloc(size); break;
    case 1: got = surface_.calloc(size / 2 + 2, count); break;
    case 2: got = hak_aligned_alloc(size_t{8} << step.size % 20, size); break;
    case 3:
        if (block != nullptr)
            got = surface_.realloc(block->at, size);
        else
            errno = ENOMEM;
        break;
    case 4:
        if (hak_good_size(size) != 0 || (block != nullptr && hak_expand(block->at, size) != 0) || errno != 0)
            broken("%zu bytes are taken for possible, errno %d", static_cast<size_t>(size), errno);
        errno = ENOMEM;
        break;
    case 5: got = operator new[](size, std::nothrow); break;
    case 6: /* sets errno, too, as glibc does */
        if (surface_.posix_memalign(&got, 64, size) != ENOMEM)
            broken("posix_memalign, errno %d", errno);
        break;
    case 7: got = surface_.reallocarray(block != nullptr ? block->at : nullptr, size / 2 + 2, count); break;
    default: try { got = operator new(size);
        } catch (const std::bad_alloc &) {
            errno = ENOMEM;
        }
    }
    if (got != nullptr || errno != ENOMEM)
        broken("%p, errno %d", got, errno);
    if (block != nullptr)
        check(*block);
}

/* An invalid alignment or an unknown option. */
void Machine::do_illegal(const Step &step) {
    volatile size_t alignment = 24 + 8 * (step.size % 5); /* 24 … 56, but 32 is a power of two */
    if (alignment == 32)
        alignment = 0;
    errno = 0;
    void *got = hak_aligned_alloc(alignment, 100);
    if (got != nullptr || errno != EINVAL)
        broken("hak_aligned_alloc(%zu): %p, errno %d", static_cast<size_t>(alignment), got, errno);
    if (standard_ && surface_.posix_memalign(&got, alignment, 100) != EINVAL)
        broken("posix_memalign(%zu)", static_cast<size_t>(alignment));
    if (hak_option_set("NO_SUCH", "1") != EINVAL || hak_option_set("PURGE", "perhaps") != EINVAL)
        broken("hak_option_set");
}

/* For each option, the default comes first. */
static const char *const settings[][2] = {
    {"PURGE", "auto"},       {"PURGE", "eager"},   {"PURGE", "lazy"},          {"PURGE", "never"},
    {"DRAIN", "1"},          {"DRAIN", "0"},       {"DRAIN_INTERVAL", "1024"}, {"DRAIN_INTERVAL", "1"},
    {"RING_BYTES", "4m"},    {"RING_BYTES", "0"},  {"RETAIN_BYTES", "1m"},     {"RETAIN_BYTES", "0"},
    {"POPULATE", "1"},       {"POPULATE", "0"},    {"SS_CACHE_COUNT", "256"},  {"SS_CACHE_COUNT", "0"},
    {"ring_blocks", "1024"}, {"ring_blocks", "1"}, {"ring_blocks:1m", "1024"}, {"ring_blocks:1m", "1"},
    {"PURGER", "1"},         {"PURGER", "0"},
};
constexpr size_t kSettings = sizeof settings / sizeof settings[0];

void Machine::reset_options() {
    for (size_t i = 0; i < kSettings; i++)
        if (i == 0 || strcmp(settings[i][0], settings[i - 1][0]) != 0)
            hak_option_set(settings[i][0], settings[i][1]);
}

void Machine::do_option(const Step &step) {
    auto &setting = settings[step.flavour % kSettings];
    if (hak_option_set(setting[0], setting[1]) != 0)
        broken("%s=%s is refused", setting[0], setting[1]);
}

/* A thread that lives only for this step frees blocks and leaves others behind. */
void Machine::do_elsewhere(const Step &step) {
    std::thread([&] {
        now = step;
        now_at = steps;
        for (size_t i = 0; i < 1u + step.flavour % 64; i++) {
            size_t place = step.place + i;
            if (at(place) != nullptr)
                release(remove(place), step.flavour / 64);
            if (i % 2 == 0)
                put(place, surface_.alloc(step.size % 65536), step.size % 65536, 0);
        }
    }).join();
}

/* Until the next put: the test's own blocks are not to be in the arena. */
void Machine::use_arena() {
    if (in_arena_ && hak_arena_set_default(arena_, nullptr) != 0)
        broken("no default arena");
}

/* What is in the arena dies with it, or is the process's from now on. */
void Machine::end_arena(bool keep_blocks) {
    for (size_t place = 0; place < blocks_.size() && !keep_blocks; place++)
        if (at(place) != nullptr && hak_arena_of(at(place)->at) == arena_) {
            Block block = remove(place);
            if (!careless)
                world_.dies(block);
        }
    in_arena_ = false;
    (keep_blocks ? hak_arena_release : hak_arena_destroy)(arena_);
    arena_ = nullptr;
}

/* The steps that follow allocate in an arena, or no longer; a block is made there; the arena ends. */
void Machine::do_arena(const Step &step) {
    if (arena_ == nullptr)
        arena_ = hak_arena_new(nullptr);
    if (arena_ == nullptr)
        return; /* no memory */
    unsigned flavour = step.flavour % 16;
    if (flavour < 4)
        in_arena_ = flavour < 2;
    else if (flavour < 6)
        end_arena(flavour == 4);
    else {
        size_t size = allowed(step.size), alignment = step.flavour < 128 ? 0 : size_t{8} << step.flavour / 16;
        if (at(step.place) != nullptr)
            release(remove(step.place), step.flavour / 16);
        put(step.place,
            alignment != 0 ? hak_arena_aligned_alloc(arena_, alignment, size) : hak_arena_malloc(arena_, size), size,
            alignment);
    }
}

/* The child finds all blocks intact, and can free and allocate. */
void Machine::do_fork() {
    fflush(nullptr);
    pid_t pid = fork();
    if (pid < 0)
        return;
    if (pid == 0) {
        alarm(kChildAlarmSeconds);
        for (size_t place = 0; place < blocks_.size(); place++)
            if (at(place) != nullptr)
                surface_.free(remove(place).at);
        careless = true; /* the world's mutex may be held by a thread that does not exist here */
        for (size_t place = 0; place < 64; place++)
            put(place, surface_.alloc(place * 40), place * 40, 0);
        for (size_t place = 0; place < 64; place++)
            surface_.free(remove(place).at);
        _exit(0);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0)
        broken("the forked child ended with status %#x", static_cast<unsigned>(status));
}

/* Does what buggy programs do: writes through a stale pointer or beyond a block, frees twice, frees a wrong address. */
void Machine::do_damage(const Step &step) {
    Block *live = live_near(step.place);
    Block stale = freed_[step.place % kFreed];
    if (!damage_allowed || live == nullptr || stale.at == nullptr)
        return;
    careless = true;
    size_t length = 1 + step.size % 128, usable = surface_.usable_size(live->at);
    uint64_t value = step.size * 0x9e3779b97f4a7c15u;
    machine_does_damage = true;
    switch (step.flavour % 10) {
    case 0: memcpy(stale.at, &value, sizeof value); break;                           /* the link of a freed block */
    case 1: memset(stale.at, step.flavour, stale.size); break;                       /* the whole block */
    case 2: stale.at[step.size % (stale.size + 1)] ^= 1 << step.flavour / 32; break; /* one bit of it */
    case 3: memset(live->at - length, step.flavour, length); break;                  /* before a block */
    case 4: memset(live->at + usable, step.flavour, length); break;                  /* behind a block */
    case 5: memcpy(stale.at, live->at, sizeof value); break;                         /* a plausible wrong link */
    default: machine_does_damage = false;
    }
    machine_does_damage = false;
    switch (step.flavour % 10) {
    case 6: return surface_.free(stale.at);
    case 7: return surface_.free(live->at + 1 + step.size % (usable + 1));
    case 8: return surface_.free_sized(live->at, usable + 1 + step.size);
    case 9: surface_.free(reinterpret_cast<void *>(value)); break;
    default: break;
    }
}
