/* Small programs that misuse the allocator under HAKMEM_SECURE=1, each run in its own process: each must end with
 * exactly the line that says what is wrong, or with SIGSEGV where it touches a guard. Also correct programs, which must
 * not end so. If one fails, an error that the mode is meant to catch goes unnoticed. All cases of hardened_malloc's own
 * tests are here, under similar names. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"
#include "../unit/inside.h"

namespace {

const Surface &S = subject();

constexpr size_t kLarge = 256 * kKiB;

/* Returns a block whose address appears in the line that the parent expects. */
char *named(size_t size, size_t alignment = 1) {
    char *block = hidden(alignment == 1 ? S.alloc(size) : S.aligned_alloc(alignment, size));
    printf("%p\n", static_cast<void *>(block));
    fflush(stdout);
    return block;
}

/* Allocates and frees until earlier freed blocks have passed through quarantine and pool. */
void churn(size_t size, int times = 20000) {
    for (int i = 0; i < times; i++)
        S.free(hidden(S.alloc(size)));
}

/* ---- double and invalid frees ---- */

void double_free(size_t size) {
    char *block = named(size);
    S.free(block);
    S.free(block);
}
void double_free_delayed(size_t size) {
    char *block = named(size), *other = hidden(S.alloc(size));
    S.free(block);
    S.free(other);
    for (int i = 0; i < 10; i++)
        S.free(hidden(S.alloc(size)));
    S.free(block);
}
void double_free_by_another_thread(size_t size) {
    char *block = named(size);
    S.free(block);
    std::thread([&] { S.free(block); }).join();
}
void double_free_of_a_thread_that_ended(size_t size) {
    char *block = nullptr, *kept = nullptr;
    std::thread([&] {
        block = named(size);
        kept = hidden(S.alloc(size));
        S.free(block);
    }).join();
    S.free(block);
    S.free(kept);
}
/* Two threads free a block at the same moment. The second gives it back after its slab has gone and the memory was cut
 * into slabs of other sizes: the block then lies in the middle of one of those, or in none. */
struct Recut {
    size_t before, after; /* block sizes, in slabs of one slot or two */
    /* `slot`: which of every three slots contains the block. `in`: how many slots before it the new slab must begin. */
    uintptr_t slot, in;
};
constexpr Recut kRecuts[] = {{5000, 12000, 2, 1}, {12000, 5000, 2, 1}, {5000, 12000, 0, 1}};
uintptr_t slot_in_superslab(const void *p) {
    return reinterpret_cast<uintptr_t>(p) / inside_slot_bytes % INSIDE_SUPERSLAB_SLOTS;
}
uintptr_t superslab_of(const void *p) { return reinterpret_cast<uintptr_t>(p) / inside_superslab_bytes; }
void double_free_at_the_same_moment_of_a_slab_that_has_gone(size_t number) {
    const Recut &recut = kRecuts[number];
    std::vector<char *> blocks(500);
    char *block = nullptr, *kept = nullptr;
    for (char *&one : blocks)
        one = hidden(S.alloc(recut.before));
    for (char *one : blocks)
        if (slot_in_superslab(one) % 3 == recut.slot && slot_in_superslab(one) > 1)
            block = one;
    for (char *one : blocks)
        if (superslab_of(one) != superslab_of(block))
            kept = one; /* so that its SuperSlab need not stay */
    printf("%p\n", static_cast<void *>(block));
    fflush(stdout);
    std::promise<void> freed, gone;
    std::thread other([&] {
        S.free(block);
        freed.set_value();
        gone.get_future().wait();
    });
    freed.get_future().wait();
    inside_secure_revive(block);
    for (char *one : blocks)
        if (one != kept)
            S.free(one);
    hak_trim();
    for (int i = 0; i < 10000; i++) {
        char *one = hidden(S.alloc(recut.after));
        if (superslab_of(one) == superslab_of(block) && slot_in_superslab(one) + recut.in == slot_in_superslab(block))
            break;
    }
    gone.set_value();
    other.join();
}
void invalid_free_protected(size_t) {
    S.free(hidden(mmap(nullptr, 4096 * 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + 4096);
}
void invalid_free_unprotected(size_t) {
    S.free(hidden(mmap(nullptr, 4096 * 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + 4096);
}
void invalid_free_unaligned(size_t size) { S.free(hidden(S.alloc(size)) + 1); }
void invalid_free_interior(size_t size) { S.free(hidden(S.alloc(size)) + size / 2 / 16 * 16); }
/* The blocks beside it may be free, or never handed out. */
void invalid_free_neighbour(size_t size) { S.free(hidden(S.alloc(size)) + (size + 8 + 15) / 16 * 16); }

/* ---- sizes ---- */

void free_with_size(size_t told) { S.free_sized(named(40), told); }
void free_large_with_size(size_t told) { S.free_sized(named(kLarge), told); }
void free_resized_with_old_size(size_t size) {
    char *block = static_cast<char *>(S.realloc(S.alloc(size), size - 1));
    printf("%p\n", static_cast<void *>(hidden(block)));
    fflush(stdout);
    S.free_sized(block, size);
}
void usable_size_of_freed(size_t size) {
    char *block = named(size);
    S.free(block);
    hidden(reinterpret_cast<void *>(S.usable_size(block)));
}
void usable_size_of_unaligned(size_t size) {
    hidden(reinterpret_cast<void *>(S.usable_size(hidden(S.alloc(size)) + 1)));
}
void realloc_of_freed(size_t size) {
    char *block = named(size);
    S.free(block);
    hidden(S.realloc(block, size + 100));
}

/* ---- overflows ---- */

/* Changes a byte, whatever it was. */
void spoil(char *at) { *at = static_cast<char>(*at + 1); }

void overflow_1_byte(size_t size) {
    char *block = named(size);
    spoil(block + size);
    S.free(block);
}
void overflow_8_bytes(size_t size) {
    char *block = named(size);
    for (int i = 0; i < 8; i++)
        spoil(block + size + i);
    S.free(block);
}
void overflow_by_zeroes(size_t size) {
    char *block = named(size);
    memset(block + size, 0, 8);
    S.free(block);
}
void overflow_of_aligned(size_t size) {
    char *block = named(size, 128);
    spoil(block + size);
    S.free(block);
}
void overflow_freed_by_another_thread(size_t size) {
    char *block = named(size);
    spoil(block + size);
    std::thread([&] { S.free(block); }).join();
}
void overflow_told_by_realloc(size_t size) {
    char *block = named(size);
    spoil(block + size);
    hidden(S.realloc(block, size - 1));
}
void overflow_of_resized(size_t size) {
    char *block = static_cast<char *>(S.realloc(S.alloc(size), size - 1));
    printf("%p\n", static_cast<void *>(hidden(block)));
    fflush(stdout);
    spoil(block + size - 1);
    S.free(block);
}
/* Skips the canary and writes to the unused rest of the block: detected when the block is handed out again. */
void overflow_behind_canary(size_t size) {
    char *block = named(size);
    spoil(block + size + 8);
    S.free(block);
    churn(size);
}
void large_guard_behind(size_t size) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    hidden(S.alloc(size))[(size + page - 1) / page * page] = 1;
}
void grown_guard_behind(size_t size) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), grown = 3 * size;
    static_cast<char *>(S.realloc(S.alloc(size), grown))[(grown + page - 1) / page * page] = 1;
}
void large_guard_before(size_t size) { hidden(S.alloc(size))[-1] = 1; }
/* From a block through its whole slab into the guard behind it. */
void slab_guard(size_t size) { memset(hidden(S.alloc(size)), 1, 2 * 65536 + 8 * 65536 * (size > 8000)); }

/* ---- use after free ---- */

void write_after_free(size_t size) {
    char *block = named(size);
    S.free(block);
    block[size / 2] = 1;
    churn(size);
}
void write_after_free_last_byte(size_t size) {
    char *block = named(size);
    S.free(block);
    block[size - 1] = 1;
    churn(size);
}
/* Another thread writes to the block while it waits in quarantine. */
void write_after_free_by_another_thread(size_t size) {
    char *block = named(size);
    S.free(block);
    std::thread([&] { block[0] = 1; }).join();
    churn(size);
}
/* Frees every fourth of many blocks, writes into those that begin `behind_bytes` or more into their slot, and trims. */
void write_into_freed_and_trim(size_t size, size_t behind_bytes) {
    std::vector<char *> blocks(1024);
    for (char *&block : blocks)
        block = hidden(S.alloc(size));
    for (size_t i = 0; i < blocks.size(); i += 4)
        S.free(blocks[i]);
    for (size_t i = 0; i < blocks.size(); i += 4)
        if (reinterpret_cast<uintptr_t>(blocks[i]) % (64 * kKiB) >= behind_bytes)
            blocks[i][size / 2] = 1;
    hak_trim();
}
/* Such a write must be detected, too, and not be purged with the free pages of slabs in use. */
void write_after_free_and_trim(size_t size) {
    write_into_freed_and_trim(size, 0);
    churn(size);
}
/* As many as a slab has: those from the 65th on, of 64 to a word. Nothing else would find it. */
void write_after_free_far_into_a_slab_and_trim(size_t size) {
    write_into_freed_and_trim(size, 64 * 2 * size + 1);
    _exit(0);
}
/* Many blocks come and go afterwards, so that whole slabs become free and go back before anybody is handed the
 * block. */
void write_and_fill_slabs(size_t size) {
    char *block = named(size);
    memset(block, 7, size);
    S.free(block);
    block[size / 2] = 1;
    std::vector<char *> blocks(400);
    for (char *&other : blocks)
        other = static_cast<char *>(memset(hidden(S.alloc(size)), 7, size));
    for (char *other : blocks)
        S.free(other);
}
void write_after_free_into_a_slab_that_is_trimmed(size_t size) {
    write_and_fill_slabs(size);
    hak_trim();
}
void write_after_free_into_a_slab_that_goes_back_at_once(size_t size) {
    hak_option_set("PURGE", "eager");
    write_and_fill_slabs(size);
}
void write_after_free_into_a_slab_of_a_thread_that_ends(size_t size) {
    hak_option_set("PURGE", "eager");
    std::thread([&] { write_and_fill_slabs(size); }).join();
}
void large_write_after_free(size_t size) {
    char *block = hidden(S.alloc(size));
    S.free(block);
    block[size / 2] = 1;
}
void large_read_after_free(size_t size) {
    char *block = hidden(S.alloc(size));
    S.free(block);
    hidden(reinterpret_cast<void *>(static_cast<uintptr_t>(block[size / 2])));
}
void large_double_free_after_quarantine(size_t size) {
    char *block = hidden(S.alloc(size));
    S.free(block);
    churn(size, 2000);
    S.free(block);
}

/* ---- ends of arenas ---- */

/* What an overflow wrote far behind its block: into one beside it that was never handed out. */
void write_into_a_block_that_was_never_handed_out(size_t size) {
    const size_t block_bytes = size + 8;
    for (;;) {
        hak_arena *arena = hak_arena_new(nullptr);
        char *block = static_cast<char *>(hidden(hak_arena_malloc(arena, size)));
        size_t index = reinterpret_cast<uintptr_t>(block) % inside_slot_bytes / block_bytes;
        if (index < 1 || index + 2 >= inside_slot_bytes / block_bytes) /* no block on both of its sides */
            continue;
        printf("%p\n", static_cast<void *>(block + block_bytes));
        fflush(stdout);
        block[block_bytes + 8] = 1;
        hak_arena_destroy(arena);
        return;
    }
}

/* The end of an arena checks what its frees would have checked. */
void overflow_at_the_end_of_an_arena(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = static_cast<char *>(hidden(hak_arena_malloc(arena, size)));
    printf("%p\n", static_cast<void *>(block));
    fflush(stdout);
    spoil(block + size);
    std::thread([=] { hak_arena_destroy(arena); }).join();
}
void write_after_free_at_the_end_of_an_arena(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = static_cast<char *>(hidden(hak_arena_malloc(arena, size)));
    printf("%p\n", static_cast<void *>(block));
    fflush(stdout);
    std::thread([=] { S.free(block); }).join(); /* it waits in that thread's quarantine */
    block[size / 2] = 1;
    hak_arena_destroy(arena);
}
void use_after_the_end_of_an_arena(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = static_cast<char *>(hidden(hak_arena_malloc(arena, size)));
    hak_arena_destroy(arena);
    spoil(block);
}
void free_after_the_end_of_an_arena(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = static_cast<char *>(hidden(hak_arena_malloc(arena, size)));
    hak_arena_destroy(arena);
    S.free(block);
}

constexpr char kDouble[] = "hakmem: double free of @ (#-byte block)\n";
constexpr char kOwnDouble[] = "hakmem: double free of @ (#-byte block, freed by this thread)\n";
constexpr char kOverflow[] = "hakmem: overflow of @ (#-byte block)\n";
constexpr char kWrite[] = "hakmem: write after free of @ (#-byte block)\n";

const std::vector<size_t> kSmall{1, 8, 24, 48, 200, 1000, 5000, 60000}, kBig{kLarge, 3 * kMiB},
    kAll{1, 8, 24, 48, 200, 1000, 5000, 60000, kLarge, 3 * kMiB};

/* The whole line must match, with @ for the address that the program printed and # for the size. If the text ends in *,
 * only the beginning must match. If it is empty, a guard must kill the program. */
const std::vector<Misuse> &cases() {
    static const std::vector<Misuse> all{
        {"double_free", double_free, kOwnDouble, kAll},
        {"double_free_delayed", double_free_delayed, kOwnDouble, kAll},
        {"double_free_by_another_thread", double_free_by_another_thread, kDouble, kAll},
        {"double_free_of_a_thread_that_ended", double_free_of_a_thread_that_ended, kDouble, kAll},
        {"double_free_at_the_same_moment_of_a_slab_that_has_gone",
         double_free_at_the_same_moment_of_a_slab_that_has_gone,
         "hakmem: invalid free of @ (a block that is free)\n",
         {0, 1, 2}},
        {"invalid_free_protected", invalid_free_protected, "hakmem: invalid free of 0x*", {0}},
        {"invalid_free_unprotected", invalid_free_unprotected, "hakmem: invalid free of 0x*", {0}},
        {"invalid_free_unaligned", invalid_free_unaligned, "hakmem: invalid free of 0x*", kAll},
        {"invalid_free_interior", invalid_free_interior, "hakmem: invalid free of 0x*", {48, 1000, 60000, kLarge}},
        {"invalid_free_neighbour", invalid_free_neighbour, "hakmem: invalid free of 0x*", {8, 24, 1000, kLarge}},
        {"free_with_size", free_with_size, "hakmem: free of @ with size # (40-byte block)\n", {0, 1, 39, 41, 48, 4000}},
        {"free_large_with_size",
         free_large_with_size,
         "hakmem: free of @ with size # (262144-byte block)\n",
         {40, kLarge - 4096, kLarge + 1}},
        {"free_resized_with_old_size",
         free_resized_with_old_size,
         "hakmem: free of @ with size #*",
         {48, 5000, kLarge}},
        {"usable_size_of_freed", usable_size_of_freed,
         "hakmem: invalid pointer @ in hak_usable_size (a block that is free)\n", kAll},
        {"usable_size_of_unaligned", usable_size_of_unaligned, "hakmem: invalid pointer 0x*", kAll},
        {"realloc_of_freed", realloc_of_freed, "hakmem: invalid pointer @ in realloc (a block that is free)\n", kAll},
        {"overflow_1_byte", overflow_1_byte, kOverflow, kSmall},
        {"overflow_8_bytes", overflow_8_bytes, kOverflow, kSmall},
        {"overflow_by_zeroes", overflow_by_zeroes, kOverflow, kSmall},
        {"overflow_of_aligned", overflow_of_aligned, kOverflow, kSmall},
        {"overflow_freed_by_another_thread", overflow_freed_by_another_thread, kOverflow, kSmall},
        {"overflow_told_by_realloc", overflow_told_by_realloc, kOverflow, {48, 1000, 60000, 100001}},
        {"overflow_of_resized", overflow_of_resized, "hakmem: overflow of @ (*", {48, 1000, 60000, 100001}},
        {"overflow_behind_canary", overflow_behind_canary, kWrite, {1000, 1001, 5000, 60000}},
        {"overflow_of_large", overflow_1_byte, kOverflow, {100001, kMiB + 1, 3 * kMiB + 100}},
        {"large_guard_behind", large_guard_behind, nullptr, {100001, kLarge, 3 * kMiB, 3 * kMiB + 100}},
        {"grown_guard_behind", grown_guard_behind, nullptr, {100001, 3 * kMiB, 3 * kMiB + 100}},
        {"large_guard_before", large_guard_before, nullptr, kBig},
        {"slab_guard", slab_guard, nullptr, {24, 200, 5000, 30000}},
        {"write_after_free", write_after_free, kWrite, kSmall},
        {"write_after_free_last_byte", write_after_free_last_byte, kWrite, kSmall},
        {"write_after_free_by_another_thread", write_after_free_by_another_thread, kWrite, kSmall},
        {"write_after_free_and_trim", write_after_free_and_trim, "hakmem: write after free of 0x*", {20000}},
        {"write_after_free_far_into_a_slab_and_trim",
         write_after_free_far_into_a_slab_and_trim,
         "hakmem: write after free of 0x*",
         {100}},
        {"write_after_free_into_a_slab_that_is_trimmed",
         write_after_free_into_a_slab_that_is_trimmed,
         kWrite,
         {100, 3000, 5000, 20000, 60000}},
        {"write_after_free_into_a_slab_that_goes_back_at_once",
         write_after_free_into_a_slab_that_goes_back_at_once,
         kWrite,
         {100, 3000, 5000, 20000, 60000}},
        {"write_after_free_into_a_slab_of_a_thread_that_ends",
         write_after_free_into_a_slab_of_a_thread_that_ends,
         kWrite,
         {100, 3000, 5000, 20000, 60000}},
        {"large_write_after_free", large_write_after_free, nullptr, kBig},
        {"large_read_after_free", large_read_after_free, nullptr, kBig},
        {"large_double_free_after_quarantine", large_double_free_after_quarantine, "hakmem: *", {kLarge}},
        {"overflow_at_the_end_of_an_arena", overflow_at_the_end_of_an_arena, kOverflow, {1, 48, 5000, 60000, 100001}},
        {"write_after_free_at_the_end_of_an_arena", write_after_free_at_the_end_of_an_arena, kWrite, kSmall},
        {"write_into_a_block_that_was_never_handed_out",
         write_into_a_block_that_was_never_handed_out,
         kWrite,
         {1016, 8184}},
        {"use_after_the_end_of_an_arena", use_after_the_end_of_an_arena, nullptr, kAll},
        {"free_after_the_end_of_an_arena", free_after_the_end_of_an_arena, "hakmem: *", kAll},
    };
    return all;
}

const std::vector<std::string> kSecure{"HAKMEM_SECURE=1", "ASAN_OPTIONS=handle_segv=0", "TSAN_OPTIONS=handle_segv=0"};

std::string expected_line(std::string line, const std::string &address, size_t size) {
    for (size_t at; (at = line.find('@')) != std::string::npos;)
        line.replace(at, 1, address);
    for (size_t at; (at = line.find('#')) != std::string::npos;)
        line.replace(at, 1, std::to_string(size));
    return line;
}

class Secure : public testing::TestWithParam<Misuse> {};

void expect_its_end(const Misuse &one, const std::vector<size_t> &sizes, const char *where) {
    const std::string ours = ", freed by this thread"; /* known only without other heaps, and an arena has its own */
    for (size_t size : sizes) {
        Outcome outcome = run_self({where, one.name, std::to_string(size)}, kSecure);
        SCOPED_TRACE(std::string(one.name) + " of " + std::to_string(size) + " bytes: " + outcome.describe());
        if (one.line == nullptr) {
            EXPECT_TRUE(outcome.killed(SIGSEGV)) << "it touched what must be inaccessible";
            continue;
        }
        EXPECT_TRUE(outcome.killed(SIGABRT));
        std::string err = without_calls(outcome.err);
        std::string line = expected_line(one.line, outcome.out.substr(0, outcome.out.find('\n')), size);
        if (strcmp(where, "--case") != 0 && line.find(ours) != std::string::npos)
            line.erase(line.find(ours), ours.size());
        if (line.back() == '*')
            EXPECT_EQ(err.substr(0, line.size() - 1) + "*", line);
        else
            EXPECT_EQ(err, line);
        EXPECT_EQ(err.find('\n'), err.size() - 1) << "more than one line";
    }
}

TEST_P(Secure, EndsWithItsLine) { expect_its_end(GetParam(), GetParam().sizes, "--case"); }
/* Whatever the program allocates is in an arena. */
TEST_P(Secure, EndsWithItsLineInAnArena) {
    if (GetParam().run == double_free_at_the_same_moment_of_a_slab_that_has_gone)
        GTEST_SKIP() << "an arena cuts no SuperSlab anew";
    if (GetParam().run == write_after_free_far_into_a_slab_and_trim)
        GTEST_SKIP() << "a trim leaves what the thread's caches have of an arena";
    expect_its_end(GetParam(), {GetParam().sizes.front(), GetParam().sizes.back()}, "--case-in-an-arena");
}

INSTANTIATE_TEST_SUITE_P(All, Secure, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Misuse> &one) { return one.param.name; });

/* ---- correct programs, also run in a child, because the mode is chosen at the start ---- */

int fails = 0;
void check(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        fails++;
    }
}

/* hardened_malloc's read_after_free_small and uninitialized_read_*: how free blocks and new blocks read. */
void memory_is_zero() {
    for (size_t size : kAll)
        for (int round = 0; round < 300; round++) {
            char *block = hidden(S.alloc(size));
            check(first_dirty(block, size) == size, "a new block is not zero");
            memset(block, 0xa5, size);
            S.free(block);
            if (size <= 60000)
                check(first_dirty(block, size) == size, "a freed block still holds its data");
        }
}
/* Blocks that were written only here and there are cleared in another way than blocks written whole. A byte left over
 * would be reported as a write after free, or appear in the next block. */
void blocks_used_in_part_are_zero() {
    for (size_t size : {size_t{121}, size_t{200}, size_t{255}, size_t{1001}, size_t{4090}, size_t{5000}, size_t{20011},
                        size_t{60000}})
        for (size_t at = 0; at < size; at += at < 600 || at + 600 > size ? 1 : 41) {
            char *block = hidden(S.alloc(size));
            block[at] = 1;
            S.free(block);
            check(first_dirty(block, size) == size, "a byte stays in a freed block");
        }
    for (size_t size : {size_t{100000}, 900 * kKiB, 3 * kMiB})
        for (size_t step : {size_t{4096}, size_t{12288}, size_t{65536}, size / 2, size})
            for (int round = 0; round < 150; round++) {
                char *block = hidden(S.alloc(size));
                for (size_t at = round % 2 * 4096; at < size; at += step) {
                    check(block[at] == 0, "a large block is not zero");
                    block[at] = 1;
                }
                S.free(block);
            }
    check(first_dirty(hidden(S.alloc(900 * kKiB)), 900 * kKiB) == 900 * kKiB, "a large block is not zero");
}
void a_large_block_grows_in_place() {
    char *block = hidden(S.alloc(5 * kMiB));
    memset(block, 1, 5 * kMiB);
    int moved = 0;
    for (size_t size = 6 * kMiB; size <= 40 * kMiB; size += kMiB) {
        char *grown = hidden(S.realloc(block, size));
        moved += grown != block;
        block = grown;
        check(block[0] == 1 && block[size - kMiB - 1] == 1, "what was in a grown block is lost");
        check(first_dirty(block + size - kMiB, kMiB) == kMiB, "a grown block is not zero");
        check(S.usable_size(block) == size, "the usable size is not the size asked for");
        memset(block + size - kMiB, 1, kMiB);
    }
    check(moved < 5, "the last block of the heap does not grow in place");
    S.free(block);
}
/* The largest small block, the smallest large one, and what lies beside them; also when the heap has small blocks. */
void small_blocks_end_where_large_ones_begin() {
    for (size_t size = 0; size < inside_mid_max; size += 16)
        S.free(hidden(S.alloc(size)));
    for (size_t size = inside_mid_max - 12; size <= inside_mid_max + 12; size++)
        for (int round = 0; round < 20; round++) {
            char *block = hidden(S.alloc(size));
            check(S.usable_size(block) == size, "the usable size is not the size asked for");
            check(first_dirty(block, size) == size, "a block at the border is not zero");
            memset(block, 1, size);
            S.free(block);
        }
}
void usable_size_is_what_was_asked_for() {
    for (size_t size : {size_t{0}, size_t{1}, size_t{17}, size_t{1000}, size_t{60000}, kLarge, 3 * kMiB + 5})
        check(S.usable_size(hidden(S.alloc(size))) == size, "the usable size is not the size asked for");
}
void a_freed_block_is_not_the_next() {
    for (size_t size : {size_t{24}, size_t{1000}, size_t{60000}, kLarge})
        for (int i = 0; i < 200; i++) {
            char *block = hidden(S.alloc(size));
            S.free(block);
            check(hidden(S.alloc(size)) != block, "the block freed last was handed out next");
        }
}
/* Prints how far each block lies behind the first. Two runs place their blocks in different orders. */
void print_places() {
    char *first = hidden(S.alloc(40));
    for (int i = 0; i < 12; i++)
        printf("%td ", hidden(S.alloc(40)) - first);
}
/* Neighbours are no hint to where the next slab lies. */
void slabs_are_placed_at_random() {
    std::vector<uintptr_t> slots;
    for (int i = 0; i < 100; i++) {
        uintptr_t slot = reinterpret_cast<uintptr_t>(hidden(S.alloc(8000))) / inside_slot_bytes;
        if (std::find(slots.begin(), slots.end(), slot) == slots.end())
            slots.push_back(slot);
    }
    check(slots.size() > 10, "there are few slabs");
    check(!std::is_sorted(slots.begin(), slots.end()), "the next slab lies always behind the last");
}
/* Else who knows which are taken guesses where the next block lies. */
void slabs_have_many_blocks_to_choose_from() {
    for (size_t size : {8 * kKiB - 8, 16 * kKiB - 8, 32 * kKiB - 8, inside_mid_max - 8}) {
        std::set<uintptr_t> blocks;
        for (int i = 0; i < 100; i++)
            blocks.insert(reinterpret_cast<uintptr_t>(hidden(S.alloc(size))));
        unsigned neighbours = 0, most = 0;
        for (uintptr_t block : blocks) {
            neighbours = blocks.count(block - (size + 8)) != 0 ? neighbours + 1 : 1;
            most = std::max(most, neighbours);
        }
        check(most >= 8, "a slab has fewer than eight blocks");
    }
}
/* In place or not: what the allocator knows about a block is right after each step. */
void blocks_shrink_step_by_step() {
    for (size_t from : {size_t{60000}, size_t{49000}, size_t{30000}, size_t{9000}, size_t{1000}, size_t{100}})
        for (size_t divisor : {size_t{2}, size_t{3}, size_t{10}}) {
            char *block = hidden(S.alloc(from));
            for (size_t size = from; size > 16; size -= size / divisor) {
                block = hidden(S.realloc(block, size));
                check(S.usable_size(block) == size, "the usable size is not that of the last realloc");
                memset(block, 1, size);
            }
            S.free(block);
        }
}
void sized_frees_that_fit() {
    for (size_t size : kAll) {
        S.free_sized(S.alloc(size), size);
        S.free_sized(S.realloc(S.alloc(size), size + 5), size + 5);
        S.free_sized(S.aligned_alloc(64, size), size);
        S.free_sized(S.calloc(1, size), size);
    }
}
/* Far more blocks than the kernel allows mappings: the allocator omits guards before the program is refused a block. */
void many_large_blocks() {
    std::vector<char *> blocks;
    for (int i = 0; i < 40000; i++) {
        blocks.push_back(static_cast<char *>(S.alloc(70000)));
        check(blocks.back() != nullptr, "a block was refused");
        blocks.back()[69999] = 1;
        if (fails != 0)
            return;
    }
    check(mmap(nullptr, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED,
          "the program itself gets no mapping any more");
    for (char *block : blocks)
        S.free(block);
}

/* The table uses 2 bytes for each block, a tenth of a heap of small blocks, which the statistics must report. */
void the_table_is_metadata() {
    constexpr size_t kBlocks = 400000;
    double before = heap_stats()["rss_bytes"]["metadata"].number;
    for (size_t i = 0; i < kBlocks; i++)
        *hidden(S.alloc(8)) = 1;
    Json rss = heap_stats()["rss_bytes"];
    double grown = rss["metadata"].number - before;
    check(grown >= 2.0 * kBlocks, "the table of block data is not counted");
    check(grown <= 4.0 * kBlocks, "more is counted as metadata than there can be");
    double sum = 0;
    for (auto &term : rss.members)
        sum += term.first == "total" ? -term.second.number : term.second.number;
    check(sum == 0, "the terms do not add up to the total");
}

/* ---- giving memory back to the system ---- */

double heap_bytes(const char *term) { return heap_stats()["rss_bytes"][term].number; }

/* Allocates `many` blocks and frees them, except one in `keep`; 0 keeps none. */
void allocate_and_free(size_t size, size_t many, size_t keep) {
    std::vector<char *> blocks(many);
    for (char *&block : blocks) {
        block = hidden(S.alloc(size));
        memset(block, 1, size);
    }
    for (size_t i = 0; i < many; i++)
        if (keep == 0 || i % keep != 0)
            S.free(blocks[i]);
}
void the_table_goes_back() {
    double before = heap_bytes("metadata");
    allocate_and_free(8, 1000000, 0);
    hak_trim();
    check(heap_bytes("metadata") - before < kMiB, "the table of blocks that are all free stays");
}
/* About one block in each slab is left of 20 MiB. */
void free_pages_go_back() {
    double before = heap_bytes("total");
    allocate_and_free(48, 300000, 1000);
    hak_trim();
    double grown = heap_bytes("total") - before;
    check(grown < 6.0 * kMiB, "free pages stay in slabs of which something is used");
    allocate_and_free(48, 300000, 0);
}
/* Each second page of 11 MiB has no block, and lies between blocks that live. */
void free_pages_go_back_between_others() {
    constexpr size_t kSize = 100, kBlockMax = kSize + 16, kPage = 4096;
    double before = heap_bytes("total");
    std::vector<char *> blocks(100000);
    for (char *&block : blocks)
        block = static_cast<char *>(memset(hidden(S.alloc(kSize)), 1, kSize));
    double most = heap_bytes("total") - before;
    for (char *block : blocks) {
        auto at = reinterpret_cast<uintptr_t>(block);
        if (at / kPage % 2 == 0 || (at + kBlockMax) / kPage % 2 == 0)
            S.free(block);
    }
    hak_trim();
    double grown = heap_bytes("total") - before;
    check(getpagesize() != kPage || grown < most * 3 / 4, "free pages stay between others");
}
/* A thread's quarantine can keep one slab from being given back for each block in it; a trim empties the quarantines of
 * all threads that go on running. */
void a_trim_reaches_other_threads() {
    double before = 0, after = 0;
    std::thread([&] {
        allocate_and_free(200, 20000, 0);
        allocate_and_free(900, 5000, 0);
        before = heap_bytes("thread_caches");
        std::thread(hak_trim).join();
        allocate_and_free(40, 1000, 0); /* blocks of other classes */
        after = heap_bytes("thread_caches");
    }).join();
    check(after < before / 2, "a trim leaves other threads' quarantines");
}
/* A trim takes all free blocks of a slab, word by word, while others come back to words that it has passed and are
 * taken from words ahead. No block may stay held by nobody: it would be lost, and its slab never end. */
void trims_beside_threads_lose_no_blocks() {
    constexpr int kThreads = 10, kTrimmers = 3;
    std::atomic<bool> ends{false};
    auto all_at_once = [&](int count, auto work) {
        std::vector<std::thread> threads;
        for (int i = 0; i < count; i++)
            threads.emplace_back([=] { work(static_cast<unsigned>(i)); });
        return threads;
    };
    hak_trim();
    double before = heap_bytes("thread_caches");
    auto trimmers = all_at_once(kTrimmers, [&ends](unsigned) {
        while (!ends)
            hak_trim();
    });
    auto workers = all_at_once(kThreads, [](unsigned seed) {
        Random random(seed);
        std::vector<char *> blocks(3000);
        for (int i = 0; i < 800000 / kShorter; i++) {
            char *&block = blocks[random.below(blocks.size())];
            if (block != nullptr)
                S.free(std::exchange(block, nullptr));
            else
                block = static_cast<char *>(S.alloc(8));
        }
        for (char *block : blocks)
            S.free(block);
    });
    for (std::thread &thread : workers)
        thread.join();
    ends = true;
    for (std::thread &thread : trimmers)
        thread.join();
    hak_trim();
    hak_trim();
    check(heap_bytes("thread_caches") <= before, "blocks are held by nobody");
}
/* Statistics copy a slab's record word by word, and its slot may become a large block's meanwhile. */
void a_record_may_be_of_two_lives() {
    S.free(hidden(S.alloc(8)));
    check(inside_count_of_two_lives() == 0, "something is counted");
}
/* A free that sees a trim requested by another thread empties what it was about to spill. No block may then belong to
 * two threads. */
void a_trim_between_frees() {
    constexpr size_t kBlocks = 400, kSize = 40;
    for (int round = 0; round < 20; round++) {
        std::vector<char *> blocks(kBlocks);
        for (char *&block : blocks)
            block = hidden(S.alloc(kSize));
        for (size_t i = 0; i < kBlocks; i++) {
            if (i == kBlocks / 2)
                std::thread(hak_trim).join();
            S.free(blocks[i]);
        }
        std::set<char *> live;
        for (size_t i = 0; i < 2 * kBlocks; i++)
            live.insert(hidden(S.alloc(kSize)));
        check(live.size() == 2 * kBlocks, "a block was handed out twice");
        for (char *block : live)
            S.free(block);
    }
}
/* Statistics read the states of blocks in slabs that another thread begins and ends. */
void statistics_while_slabs_come_and_go() {
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop)
            for (size_t size : {20, 100, 3000, 20000})
                allocate_and_free(size, 400000 / size, 0);
    });
    for (int i = 0; i < 30; i++)
        heap_bytes("total");
    stop = true;
    other.join();
}
/* Freed large blocks wait inaccessible. The part of them that stays resident is bounded, and gone after a trim. */
void large_blocks_in_quarantine_are_bounded() {
    double before = heap_bytes("total");
    for (int i = 0; i < 20000; i++) /* nothing is written there, so there is nothing to keep */
        S.free(hidden(S.alloc(500000)));
    for (int i = 0; i < 2000; i++) {
        char *block = hidden(S.alloc(500000));
        check(first_dirty(block, 500000) == 500000, "a large block is not zero");
        memset(block, 1, 500000);
        S.free(block);
    }
    check(heap_bytes("total") - before < 16.0 * kMiB, "the quarantine of large blocks is resident");
    hak_trim();
    check(heap_bytes("total") - before < 2.0 * kMiB, "a trim leaves the quarantine of large blocks");
}
/* With a limit of 64 MiB: blocks of 2 MiB take 4 MiB each, touched or not. */
void a_limit_admits_blocks_that_are_touched_whole() {
    allocate_and_free(2 * kMiB, 16, 0);
    hak_trim();
    check(hak_option_set("HARD_LIMIT", "64M") == 0, "there is no such option");
    int blocks = 0;
    for (char *block; (block = hidden(S.alloc(2 * kMiB))) != nullptr; blocks++)
        memset(block, 1, 2 * kMiB);
    check(blocks >= 14, "blocks that were touched whole are refused early");
}
/* Pages of the block's that are resident, before somebody touches them. */
size_t resident_pages(char *block, size_t size) {
    std::vector<unsigned char> pages(size / static_cast<size_t>(getpagesize()));
    check(mincore(block, pages.size() * static_cast<size_t>(getpagesize()), pages.data()) == 0, "mincore");
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
}
/* A program that touched its large blocks whole, and does so no more, need not pay for them whole forever. */
void blocks_are_populated_as_long_as_they_are_touched() {
    constexpr size_t kSize = 900 * kKiB;
    const size_t kPages = kSize / static_cast<size_t>(getpagesize());
    check(hak_option_set("POPULATE", "1") == 0, "there is no such option");
    allocate_and_free(kSize, 16, 0);
    hak_trim();
    check(resident_pages(hidden(S.alloc(kSize)), kSize) > kPages / 2, "blocks are touched whole, and not populated");
    for (int i = 0; i < 40; i++)
        S.free(hidden(S.alloc(kSize)));
    hak_trim();
    check(resident_pages(hidden(S.alloc(kSize)), kSize) < kPages / 2, "blocks are populated that nobody touches");
}
/* A slab that was full when its thread went on to another is no hint to anybody; half of its blocks come back then. */
void what_comes_back_to_full_slabs_is_used_again() {
    std::vector<char *> blocks(6000);
    for (char *&block : blocks)
        block = hidden(S.alloc(1000));
    for (size_t i = 0; i < blocks.size(); i += 2)
        S.free(blocks[i]);
    long before = counter("slabs_started");
    for (size_t i = 0; i < blocks.size(); i += 2)
        hidden(S.alloc(1000));
    check(counter("slabs_started") - before < 10, "slabs that were full once are forgotten");
}
int mappings() {
    FILE *file = fopen("/proc/self/maps", "re");
    int lines = 0;
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}
/* A free span that had huge pages must become like its surroundings, or each such block costs mappings forever. */
void shrunk_blocks_leave_no_mappings() {
    allocate_and_free(4 * kMiB, 16, 0); /* touched whole, so the next ones are expected to be, too */
    hak_trim();
    int before = mappings();
    std::vector<char *> blocks(6);
    for (char *&block : blocks)
        block = hidden(S.alloc(4 * kMiB));
    for (char *&block : blocks)
        block = hidden(S.realloc(block, 3 * kMiB));
    for (char *block : blocks)
        S.free(block);
    hak_trim();
    check(mappings() <= before + 3, "mappings stay of blocks that were shrunk, then freed");
}
void what_never_goes_back_is_kept() {
    check(hak_option_set("PURGE", "never") == 0, "there is no such option");
    size_t before = process_rss_bytes();
    allocate_and_free(900 * kKiB, 40, 0);
    check(process_rss_bytes() - before > 30 * kMiB, "large blocks are purged though nothing shall be");
}

/* Under a limit that is reached, realloc to less than half finds no other block. */
void a_block_that_cannot_move_is_freed_by_its_new_size() {
    check(hak_option_set("HARD_LIMIT", "24M") == 0, "there is no such option");
    const size_t pairs[][2] = {{100, 1},       {100, 50},       {5000, 100},     {40000, 25000}, {60000, 40000},
                               {60000, 100},   {100000, 70000}, {100000, 60000}, {300000, 10},   {3 * kMiB, 2 * kMiB},
                               {3 * kMiB, 100}};
    std::vector<char *> blocks, all;
    all.reserve(20000); /* nothing else is allocated from now on */
    for (auto &pair : pairs)
        blocks.push_back(static_cast<char *>(memset(hidden(S.alloc(pair[0])), 7, pair[0])));
    for (size_t size = 1 * kMiB; size >= 8; size = size > 100 ? size / 2 : size - 8)
        for (char *more; all.size() < all.capacity() && (more = hidden(S.alloc(size))) != nullptr;)
            all.push_back(more);
    check(all.size() < all.capacity(), "there is no limit");
    for (size_t i = 0; i < blocks.size(); i++) {
        char *block = hidden(S.realloc(blocks[i], pairs[i][1]));
        check(block != nullptr && block[0] == 7 && block[pairs[i][1] - 1] == 7, "a block shrank to nothing");
        S.free_sized(block, pairs[i][1]);
    }
    for (char *block : all)
        S.free(block);
}

/* Without a reservation there are no guards, and no more spans than with them: those of small blocks are larger. */
void print_superslabs_of_small_blocks() {
    for (size_t i = 0; i < 16 * kMiB / 32; i++)
        hidden(S.alloc(24));
    printf("%.0f", heap_stats()["superslabs"].number);
}

struct Fine {
    const char *name;
    void (*run)();
};
void PrintTo(const Fine &one, std::ostream *out) { *out << one.name; }
const Fine kFine[] = {
    {"memory_is_zero", memory_is_zero},
    {"blocks_used_in_part_are_zero", blocks_used_in_part_are_zero},
    {"small_blocks_end_where_large_ones_begin", small_blocks_end_where_large_ones_begin},
    {"slabs_are_placed_at_random", slabs_are_placed_at_random},
    {"slabs_have_many_blocks_to_choose_from", slabs_have_many_blocks_to_choose_from},
    {"blocks_are_populated_as_long_as_they_are_touched", blocks_are_populated_as_long_as_they_are_touched},
    {"what_comes_back_to_full_slabs_is_used_again", what_comes_back_to_full_slabs_is_used_again},
    {"a_large_block_grows_in_place", a_large_block_grows_in_place},
    {"usable_size_is_what_was_asked_for", usable_size_is_what_was_asked_for},
    {"a_freed_block_is_not_the_next", a_freed_block_is_not_the_next},
    {"blocks_shrink_step_by_step", blocks_shrink_step_by_step},
    {"sized_frees_that_fit", sized_frees_that_fit},
    {"a_trim_between_frees", a_trim_between_frees},
    {"a_record_may_be_of_two_lives", a_record_may_be_of_two_lives},
    {"trims_beside_threads_lose_no_blocks", trims_beside_threads_lose_no_blocks},
    {"print_places", print_places},
    {"print_superslabs_of_small_blocks", print_superslabs_of_small_blocks},
    {"many_large_blocks", many_large_blocks},
    {"the_table_is_metadata", the_table_is_metadata},
    {"the_table_goes_back", the_table_goes_back},
    {"free_pages_go_back", free_pages_go_back},
    {"free_pages_go_back_between_others", free_pages_go_back_between_others},
    {"a_trim_reaches_other_threads", a_trim_reaches_other_threads},
    {"statistics_while_slabs_come_and_go", statistics_while_slabs_come_and_go},
    {"large_blocks_in_quarantine_are_bounded", large_blocks_in_quarantine_are_bounded},
    {"a_limit_admits_blocks_that_are_touched_whole", a_limit_admits_blocks_that_are_touched_whole},
    {"shrunk_blocks_leave_no_mappings", shrunk_blocks_leave_no_mappings},
    {"a_block_that_cannot_move_is_freed_by_its_new_size", a_block_that_cannot_move_is_freed_by_its_new_size},
    {"what_never_goes_back_is_kept", what_never_goes_back_is_kept}};

class SecureFine : public testing::TestWithParam<Fine> {};

TEST_P(SecureFine, IsNoError) {
    Outcome outcome = run_self({"--fine", GetParam().name}, kSecure);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
}
INSTANTIATE_TEST_SUITE_P(All, SecureFine, testing::ValuesIn(kFine),
                         [](const testing::TestParamInfo<Fine> &one) { return std::string(one.param.name); });

TEST(SecurePlaces, AreUsedWithoutGuardsToo) {
    if (kShorter != 1)
        GTEST_SKIP() << "ThreadSanitizer allows no such mapping";
    std::vector<std::string> environment = kSecure;
    environment.emplace_back("HAKMEM_REGION_BYTES=0");
    Outcome outcome = run_self({"--fine", "print_superslabs_of_small_blocks"}, environment);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_LE(atoi(outcome.out.c_str()), 10) << "of 2 MiB, for 16 MiB";
}

TEST(SecurePlaces, DifferFromRunToRun) {
    std::set<std::string> seen;
    for (int i = 0; i < 5; i++)
        seen.insert(run_self({"--fine", "print_places"}, kSecure).out);
    EXPECT_EQ(seen.size(), 5u) << "blocks come in a predictable order: " << *seen.begin();
}

int run_named(const std::string &name, size_t size) {
    run_misuse(cases(), name, size);
    for (auto &one : kFine)
        if (name == one.name)
            one.run();
    return fails != 0;
}

} // namespace

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    bool in_arena = argc >= 3 && strcmp(argv[1], "--case-in-an-arena") == 0;
    if (in_arena)
        hak_arena_set_default(hak_arena_new(nullptr), nullptr);
    if (argc >= 3 && (in_arena || strcmp(argv[1], "--case") == 0 || strcmp(argv[1], "--fine") == 0))
        return run_named(argv[2], argc > 3 ? strtoul(argv[3], nullptr, 10) : 0);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
