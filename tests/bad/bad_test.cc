/* Small programs that misuse the allocator, each run in its own process. Each must report the error in one line of
 * stable form and end by SIGABRT. If one fails, a bug in a program silently corrupts its heap. */
/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "../heap_stats.h"
#include "../posix_regex.h"
#include "../support.h"
#include "../surface.h"
#include "double_frees.h"

namespace {

/* Frees the block, then others of its size around it. */
void free_among_others(char *block, size_t size, int others) {
    std::vector<char *> more;
    for (int i = 0; i < others; i++)
        more.push_back(live(size));
    S.free(block);
    for (char *other : more)
        S.free(other);
}

void double_free_after_others(size_t size) {
    char *block = live(size), *kept = live(size);
    free_among_others(block, size, 5);
    S.free(block);
    S.free(kept);
}

void double_free_after_one(size_t size) {
    char *block = live(size), *second = live(size);
    S.free(block);
    S.free(second);
    S.free(block);
}

void double_free_by_two_other_threads(size_t size) {
    char *block = live(size), *kept = live(size);
    std::thread([&] { S.free(block); }).join();
    std::thread([&] { S.free(block); }).join();
    S.free(kept);
    for (size_t i = 0; i < std::min<size_t>(2000, 64 * kMiB / size); i++)
        S.free(live(size));
}

/* The block's whole slab, span or run was given back before the second free. */
void double_free_after_release(size_t size) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < std::max<size_t>(4, 4 * 65536 / size); i++)
        blocks.push_back(live(size));
    for (char *block : blocks)
        S.free(block);
    hak_trim();
    S.free(blocks[blocks.size() / 2]);
}

/* The block's page was purged while its slab stayed in use, so its link is gone. */
void double_free_after_trim(size_t size) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < 4 * 65536 / size; i++)
        blocks.push_back(live(size));
    size_t kept = blocks.size() / 3;
    for (size_t i = 0; i < blocks.size(); i++)
        if (i != kept)
            S.free(blocks[i]);
    hak_trim();
    S.free(blocks[kept + 3 * 4096 / size]); /* in the same slab, in another page */
}

void double_free_after_thread_end(size_t size) {
    char *block = nullptr;
    std::thread([&] {
        block = live(size);
        S.free(block);
    }).join();
    S.free(block);
}

void double_free_by_free_sized(size_t size) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    S.free_sized(block, size);
    S.free(kept);
}

void double_free_by_realloc(size_t size) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    hidden(S.realloc(block, size * 3));
    S.free(kept);
}

/* ---- pointers that are not live blocks, and what programs may do with them ---- */

void *interior(size_t size) { return live(size) + (size >= 32 ? size / 2 / 16 * 16 : 4); }
void *interior_end(size_t size) { return live(size) + (size > 16 ? size - 16 : 1); }
void *misaligned(size_t size) { return live(size) + 1; }
void *in_the_stack(size_t) {
    char array[64];
    return hidden(array + 16 - (reinterpret_cast<uintptr_t>(array) & 15));
}
alignas(64) char static_array[256];
void *in_a_static(size_t) { return hidden(static_array); }
thread_local char thread_local_array[256];
void *in_a_thread_local(size_t) { return hidden(thread_local_array + 64); }
void *low(size_t) { return reinterpret_cast<void *>(uintptr_t{0x10}); }
void *noncanonical(size_t) { return reinterpret_cast<void *>(uintptr_t{0xdeadbeefdeadbee0}); }
void *top(size_t) { return reinterpret_cast<void *>(~uintptr_t{15}); }
void *mapped(size_t) { return mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
void *other_allocators(size_t) { return oracle().alloc(100); }
/* An address in the heap that malloc has not handed out yet, far behind a live block. */
void *never_allocated(size_t size) { return live(size) + 40 * kMiB; }
/* The last block of a slab that was started after the program's own blocks were allocated; in secure mode those lie
 * anywhere in their slabs. */
void *uncarved(size_t size) {
    size_t blocks_of_a_slab = 65536 / size;
    /* Large enough that no block of the slab is the vector's own. */
    std::vector<char *> ours(4 * blocks_of_a_slab + 10);
    for (;;) {
        for (char *&block : ours)
            block = live(size);
        char *slot = ours.back() - (reinterpret_cast<uintptr_t>(ours.back()) & 0xffff);
        char *last = slot + (blocks_of_a_slab - 1) * size;
        if (std::find(ours.begin(), ours.end(), last) == ours.end())
            return last;
    }
}
void *freed(size_t size) {
    char *block = live(size);
    S.free(block);
    return block;
}

/* If the program goes on, the call must have done nothing. */
void owe(bool holds) {
    if (!holds)
        _exit(9);
}
template <void *pointer(size_t)> void free_it(size_t size) { S.free(pointer(size)); }
template <void *pointer(size_t)> void free_it_sized(size_t size) { S.free_sized(pointer(size), 2000); }
template <void *pointer(size_t)> void resize_it(size_t size) {
    errno = 0;
    owe(S.realloc(pointer(size), 10) == nullptr && errno == EINVAL);
}
template <void *pointer(size_t)> void expand_it(size_t size) { owe(hak_expand(pointer(size), 10) == 0); }
template <void *pointer(size_t)> void measure_it(size_t size) { owe(S.usable_size(pointer(size)) == 0); }

/* ---- sizes that are not the block's ---- */

size_t too_much_for(size_t size) { return hak_good_size(size) + 1; }
/* realloc may leave a block with more than twice its size; operators may not. */
size_t too_little_for(size_t size) {
    for (size_t least = size; least > 0; least--)
        if (hak_good_size(least) != hak_good_size(size))
            return least;
    return 0;
}
void sized_free(size_t size) { S.free_sized(live(size), too_much_for(size)); }
void aligned_sized_free(size_t size) {
    S.free_aligned_sized(hidden(S.aligned_alloc(64, size)), 64, 64 + too_much_for(size));
}

constexpr std::align_val_t kAlign{64};
void sized_delete(size_t size) { ::operator delete(hidden(::operator new(size)), too_much_for(size)); }
void sized_array_delete(size_t size) { ::operator delete[](hidden(::operator new[](size)), too_much_for(size)); }
void sized_aligned_delete(size_t size) {
    ::operator delete(hidden(::operator new(size, kAlign)), 64 + too_much_for(size), kAlign);
}
void sized_aligned_array_delete(size_t size) {
    ::operator delete[](hidden(::operator new[](size, kAlign)), 64 + too_much_for(size), kAlign);
}
void small_sized_delete(size_t size) { ::operator delete(hidden(::operator new(size)), too_little_for(size)); }
void small_sized_array_delete(size_t size) {
    ::operator delete[](hidden(::operator new[](size)), too_little_for(size));
}
void small_sized_aligned_delete(size_t size) {
    ::operator delete(hidden(::operator new(64 + size, kAlign)), too_little_for(size), kAlign);
}
void sized_delete_of_anothers(size_t size) {
    void *block = nullptr;
    std::thread([&] { block = hidden(::operator new(size)); }).join();
    ::operator delete(block, too_much_for(size));
}
/* Smaller blocks lay in its place before, for which the size was right. */
void sized_delete_as_of_earlier_blocks(size_t size) {
    constexpr size_t kEarlier = 100, kSlot = 64 * kKiB;
    std::vector<void *> earlier(8 * size / kEarlier);
    std::set<uintptr_t> slots;
    for (void *&block : earlier) {
        block = hidden(::operator new(kEarlier));
        slots.insert(reinterpret_cast<uintptr_t>(block) / kSlot);
    }
    for (void *block : earlier)
        ::operator delete(block);
    void *block = nullptr;
    do
        block = hidden(::operator new(size));
    while (slots.count(reinterpret_cast<uintptr_t>(block) / kSlot) == 0);
    ::operator delete(block, too_little_for(kEarlier) + 1);
}

/* ---- writes after free ---- */

/* Writes into a freed block what programs typically write. The block's first word links to the next free one. */
void write_after_free(size_t size, const void *what) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    memcpy(block, &what, sizeof what);
    for (int i = 0; i < 3000; i++)
        hidden(S.alloc(size));
    for (int i = 0; i < 3000; i++) /* in secure mode the block waits until others were freed */
        S.free(live(size));
    S.free(kept);
}
void zero_after_free(size_t size) { write_after_free(size, nullptr); }
void pointer_after_free(size_t size) { write_after_free(size, static_array); }
void text_after_free(size_t size) {
    const void *text;
    memcpy(&text, "some text", sizeof text);
    write_after_free(size, text);
}

/* When the first word of a block was overwritten, its second free cannot be detected, but one free too many can. */
void double_free_of_a_written_block(size_t size) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < 4 * 65536 / size; i++)
        blocks.push_back(live(size));
    char *twice = blocks[blocks.size() / 2];
    S.free(twice);
    memset(twice, 1, 8);
    for (char *block : blocks)
        S.free(block);
}

/* A small counter is written to a freed block: half of the first word is unchanged, which is enough to detect the
 * second free. */
void double_free_after_a_small_write(size_t size) {
    char *block = live(size);
    S.free(block);
    memset(block, 1, 4);
    S.free(block);
}

/* The line that each case must produce. */
constexpr char kDouble[] = "hakmem: double free of 0x[0-9a-f]+ \\([^)]*\\)";
constexpr char kInvalid[] = "hakmem: invalid free of 0x[0-9a-f]+ \\(.*\\)";
constexpr char kEither[] = "hakmem: (double|invalid) free of 0x[0-9a-f]+ \\(.*\\)";
constexpr char kWritten[] = "hakmem: (write after|double) free (among|of) .*";
constexpr char kSized[] = "hakmem: free of 0x[0-9a-f]+ with size [0-9]+ \\([0-9]+-byte block\\)";
constexpr char kOver[] = "hakmem: overflow of 0x[0-9a-f]+ \\([0-9]+-byte block\\)";
constexpr char kPointer[] = "hakmem: invalid pointer 0x[0-9a-f]+ in [a-z_]+ \\(.*\\)";

const std::vector<size_t> kSizes{8, 48, 1000, 5000, 40000, 200 * kKiB, 3 * kMiB};
const std::vector<size_t> kNoSize{0};

/* Writes the terminating zero of a string behind a block that was used before. */
void overflow_of_a_used_block(size_t size) {
    S.free(live(size));
    char *block = live(size);
    block[size] = 0;
    S.free(block);
}

void overflow_then_realloc(size_t size) {
    char *block = live(size);
    block[size] = 'x';
    S.free(hidden(S.realloc(block, size + size / 2)));
}

void overflow_of_a_grown_block(size_t size) {
    size_t larger = size + size / 10;
    char *block = static_cast<char *>(hidden(S.realloc(live(size), larger)));
    memset(block + size, 'x', larger - size);
    block[larger + 7] = 0;
    S.free(block);
}

void overflow_of_a_shrunk_block(size_t size) {
    size_t smaller = size - size / 4;
    char *block = static_cast<char *>(hidden(S.realloc(live(size), smaller)));
    block[smaller] = 0;
    S.free(block);
}

/* One byte in each word of what lies behind a block that is zero there as long as nobody writes to it. */
template <unsigned word> void overflow_of_an_unused_block(size_t size) {
    char *block = static_cast<char *>(hidden(S.calloc(1, size)));
    block[size + 8 * word] = 1;
    S.free(block);
}

std::vector<Misuse> frees_and_writes() {
    std::vector<size_t> written_by_zeroes{8, 48, 1000};
    if (getenv("HAKMEM_SECURE") != nullptr)
        written_by_zeroes.clear(); /* free memory is zero there, so nothing changes */
    return {
        {"double_free_at_once", double_free_at_once, kEither, kSizes},
        {"double_free_after_others", double_free_after_others, kEither, kSizes},
        {"double_free_while_the_slab_lives", double_free_after_others, kDouble, {8, 48, 1000, 5000, 40000}},
        {"double_free_after_one", double_free_after_one, kEither, kSizes},
        {"double_free_by_another_thread", double_free_by_another_thread, kEither, kSizes},
        {"double_free_by_two_other_threads", double_free_by_two_other_threads, kEither, kSizes},
        {"double_free_after_release", double_free_after_release, kEither, kSizes},
        {"double_free_after_trim", double_free_after_trim, kEither, {48, 200}},
        {"double_free_after_thread_end", double_free_after_thread_end, kEither, kSizes},
        {"double_free_by_free_sized", double_free_by_free_sized, kDouble, {8, 48, 1000, 5000, 40000, 200 * kKiB}},
        {"double_free_by_realloc", double_free_by_realloc, kPointer, kSizes},
        {"zero_after_free", zero_after_free, kWritten, written_by_zeroes},
        {"pointer_after_free", pointer_after_free, kWritten, {8, 48, 1000}},
        {"text_after_free", text_after_free, kWritten, {8, 48, 1000}},
        {"double_free_of_a_written_block", double_free_of_a_written_block, kWritten, {8, 48, 1000}},
        {"overflow_of_a_used_block", overflow_of_a_used_block, kOver, {100000, 700001}},
        {"overflow_then_realloc", overflow_then_realloc, kOver, {100000, 700001, 3000000}},
        {"overflow_of_a_grown_block", overflow_of_a_grown_block, kOver, {100000, 700001, 3000000}},
        {"overflow_of_a_shrunk_block", overflow_of_a_shrunk_block, kOver, {300000, 900001, 3000000, 7340044}},
        {"overflow_of_an_unused_block_1", overflow_of_an_unused_block<1>, kOver, {3000000}},
        {"overflow_of_an_unused_block_2", overflow_of_an_unused_block<2>, kOver, {3000000}},
        {"double_free_after_a_small_write", double_free_after_a_small_write, kDouble, {8, 48, 1000}},
    };
}

/* Every call that takes a pointer, applied to this one. */
template <void *pointer(size_t)>
void add(std::vector<Misuse> *all, const std::string &name, const std::vector<size_t> &sizes) {
    all->push_back({name + "_free", free_it<pointer>, kInvalid, sizes});
    all->push_back({name + "_free_sized", free_it_sized<pointer>, kInvalid, sizes});
    all->push_back({name + "_realloc", resize_it<pointer>, kPointer, sizes});
    all->push_back({name + "_expand", expand_it<pointer>, kPointer, sizes});
    all->push_back({name + "_usable_size", measure_it<pointer>, kPointer, sizes});
}

const std::vector<Misuse> &cases() {
    static const std::vector<Misuse> all = [] {
        std::vector<Misuse> these = frees_and_writes();
        add<interior>(&these, "interior", kSizes);
        add<interior_end>(&these, "interior_end", kSizes);
        add<misaligned>(&these, "misaligned", kSizes);
        add<in_the_stack>(&these, "stack", kNoSize);
        add<in_a_static>(&these, "static", kNoSize);
        add<in_a_thread_local>(&these, "thread_local", kNoSize);
        add<low>(&these, "low", kNoSize);
        add<noncanonical>(&these, "noncanonical", kNoSize);
        add<top>(&these, "top", kNoSize);
        add<mapped>(&these, "mapped", kNoSize);
        add<other_allocators>(&these, "other_allocators", kNoSize);
        add<never_allocated>(&these, "never_allocated", {48, 5000});
        add<uncarved>(&these, "uncarved", {48, 1000});
        these.push_back({"sized_free", sized_free, kSized, kSizes});
        if (S.free_aligned_sized != nullptr) { /* the operators are the library's, too */
            these.push_back({"aligned_sized_free", aligned_sized_free, kSized, kSizes});
            these.push_back({"sized_delete", sized_delete, kSized, kSizes});
            these.push_back({"sized_array_delete", sized_array_delete, kSized, kSizes});
            these.push_back({"small_sized_delete", small_sized_delete, kSized, {48, 1000, 5000, 40000}});
            these.push_back({"small_sized_array_delete", small_sized_array_delete, kSized, {48, 1000, 5000}});
            these.push_back({"small_sized_aligned_delete", small_sized_aligned_delete, kSized, {48, 1000, 5000}});
            these.push_back({"sized_delete_of_anothers", sized_delete_of_anothers, kSized, kSizes});
            if (getenv("HAKMEM_SECURE") == nullptr) /* where large blocks do not lie in others' place */
                these.push_back(
                    {"sized_delete_as_of_earlier_blocks", sized_delete_as_of_earlier_blocks, kSized, {200 * kKiB}});
            these.push_back({"sized_aligned_delete", sized_aligned_delete, kSized, kSizes});
            these.push_back({"sized_aligned_array_delete", sized_aligned_array_delete, kSized, kSizes});
        }
        these.push_back({"freed_realloc", resize_it<freed>, kPointer, kSizes});
        these.push_back({"freed_expand", expand_it<freed>, kPointer, kSizes});
        /* Whether a tiny block is free nobody looks: that would be a cache miss (misuses.cc has secure mode). */
        these.push_back({"freed_usable_size", measure_it<freed>, kPointer, {5000, 40000, 200000, 5000000}});
        these.push_back({"freed_free_sized", free_it_sized<freed>, kEither, kSizes});
        return these;
    }();
    return all;
}

size_t count_matching(const std::string &text, const std::string &pattern) {
    auto lines = lines_of(text);
    Regex regex(pattern);
    return static_cast<size_t>(
        std::count_if(lines.begin(), lines.end(), [&](auto &line) { return regex.is_all_of(line); }));
}

/* ---- all cases, each in a child forked from a program that does nothing else ---- */

std::string end_of(int status) {
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                               : "status " + std::to_string(WEXITSTATUS(status));
}

std::string title(const Misuse &one, size_t size) {
    return "case " + one.name + " of " + std::to_string(size) + " bytes\n";
}

int run_all_cases() {
    for (auto &one : cases())
        for (size_t size : one.sizes) {
            alarm(2 * kChildSeconds);
            fprintf(stderr, "%s", title(one, size).c_str());
            pid_t pid = fork();
            if (pid == 0) {
                alarm(kChildSeconds);
                one.run(size);
                exit(0);
            }
            int status = 0;
            waitpid(pid, &status, 0);
            fprintf(stderr, "ended by %s\n", end_of(status).c_str());
        }
    return 0;
}

/* Returns what the case wrote, and how it ended. All cases are run at once, once for each value of ON_ERROR, because
 * starting a program takes an emulator a second. */
std::string transcript(const char *on_error, const Misuse &one, size_t size) {
    static std::map<std::string, std::string> of;
    std::string &all = of[on_error];
    if (all.empty())
        all = run_self({"--all-cases"}, {std::string("HAKMEM_ON_ERROR=") + on_error}).err;
    std::string before = title(one, size);
    size_t at = all.find(before);
    if (at == std::string::npos)
        return "never run; the last one:\n" + all.substr(std::min(all.rfind("case "), all.size()));
    at += before.size();
    return all.substr(at, all.find("case ", at) - at);
}

class Bad : public testing::TestWithParam<Misuse> {};

TEST_P(Bad, EndsWithOneLineAndSigabrt) {
    for (size_t size : GetParam().sizes) {
        std::string wrote = transcript("abort", GetParam(), size);
        SCOPED_TRACE(title(GetParam(), size) + wrote);
        EXPECT_EQ(count_matching(wrote, GetParam().line), 1u) << "it owes one line " << GetParam().line;
        EXPECT_EQ(count_matching(wrote, "hakmem: [^ ].*"), 1u)
            << "more than one line, besides the calls that led there";
        EXPECT_EQ(count_matching(wrote, "hakmem:   in process [0-9]+ \\(.*\\), thread [0-9]+ \\(.*\\)"), 1u);
        EXPECT_EQ(count_matching(wrote, "ended by " + end_of(SIGABRT)), 1u);
    }
}

TEST_P(Bad, IsSurvivedOnRequest) {
    for (size_t size : GetParam().sizes) {
        std::string warned = transcript("warn", GetParam(), size), ignored = transcript("ignore", GetParam(), size);
        SCOPED_TRACE(title(GetParam(), size) + warned);
        EXPECT_GE(count_matching(warned, GetParam().line), 1u);
        EXPECT_EQ(count_matching(warned, "ended by " + end_of(0)), 1u);
        EXPECT_EQ(ignored, "ended by " + end_of(0) + "\n");
    }
}

INSTANTIATE_TEST_SUITE_P(All, Bad, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Misuse> &one) { return one.param.name; });

TEST(BadText, NamesTheBlockSize) {
    Outcome outcome = run_self({"--case", "double_free_at_once", "48"});
    EXPECT_EQ(count_matching(outcome.err, "hakmem: double free of 0x[0-9a-f]+ \\(48-byte block.*\\)"), 1u)
        << outcome.describe();
    if (getenv("HAKMEM_SECURE") == nullptr) {
        EXPECT_EQ(count_matching(outcome.err,
                                 "hakmem:   HAKMEM_SECURE=1 with HAKMEM_SECURE_STACKS=1 shows who freed it first"),
                  1u)
            << outcome.describe();
    }
    outcome = run_self({"--case", "interior_free", "48"});
    EXPECT_EQ(outcome.err.find("freed it first"), std::string::npos) << outcome.describe();
    EXPECT_EQ(count_matching(outcome.err, "hakmem: invalid free of 0x[0-9a-f]+ \\(inside a 48-byte block.*\\)"), 1u)
        << outcome.describe();
    outcome = run_self({"--case", "static_free", "0"});
    EXPECT_EQ(count_matching(outcome.err, "hakmem: invalid free of 0x[0-9a-f]+ \\(not a block of this heap.*\\)"), 1u)
        << outcome.describe();
}

/* ---- options ---- */

TEST(BadOption, ABadValueIsReportedAndTheDefaultIsUsed) {
    Outcome plain = run_self({"--print-option", "PURGE"});
    ASSERT_TRUE(plain.exited(0)) << plain.describe();
    EXPECT_EQ(plain.err, "");
    for (std::string value : {"foo", "", " ", "abort1", "-5"}) {
        Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_PURGE=" + value});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        EXPECT_EQ(outcome.out, plain.out) << "the default is not used after HAKMEM_PURGE=" << value;
        EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.describe();
        EXPECT_EQ(outcome.err.rfind("hakmem: HAKMEM_PURGE=" + value, 0), 0u) << outcome.describe();
        EXPECT_NE(outcome.err.find("expected"), std::string::npos) << "the legal values are not named\n" << outcome.err;
    }
}

TEST(BadOption, AnUnknownNameIsReported) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_FOO=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.describe();
    EXPECT_EQ(count_matching(outcome.err, "hakmem: .*HAKMEM_FOO.*"), 1u) << outcome.describe();
}

TEST(BadOption, HelpPrintsTheTable) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_HELP=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_NE((outcome.out + outcome.err).find("HAKMEM_PURGE: never|lazy|auto|eager; default auto; live\n"),
              std::string::npos)
        << outcome.describe();
}

TEST(BadOption, EveryOptionRefusesNonsenseWithOneLine) {
    Outcome outcome = run_self({"--list-options"});
    auto names = lines_of(outcome.out);
    ASSERT_GT(names.size(), 3u) << outcome.describe();
    for (auto &name : names) {
        Outcome bad = run_self({"--print-option", name}, {"HAKMEM_" + name + "=\x01nonsense"});
        EXPECT_TRUE(bad.exited(0)) << name << bad.describe();
        bool any_text = name == "DEBUG" || name == "POLICY" ||
                        name.find("FILE") != std::string::npos; /* their values may be any text */
        if (!any_text)
            EXPECT_EQ(lines_of(bad.err).size(), 1u) << name << bad.describe();
        if (!any_text)
            EXPECT_EQ(bad.err.rfind("hakmem: HAKMEM_" + name + "=", 0), 0u) << name << bad.describe();
    }
}

} // namespace

/* Prints an option's value, so that the parent sees which value is in effect. */
static int print_option(const char *name) {
    char value[256];
    hak_free(hak_malloc(10));
    errno = 0;
    if (hak_option_get(name, value, sizeof value) == 0 && errno == EINVAL)
        return 3;
    printf("%s\n", value);
    return 0;
}

static int list_options() {
    Json stats = heap_stats();
    for (auto &member : stats["options"].members)
        printf("%s\n", member.first.c_str());
    return 0;
}

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 4 && strcmp(argv[1], "--case") == 0)
        return run_misuse(cases(), argv[2], strtoul(argv[3], nullptr, 10));
    if (argc == 2 && strcmp(argv[1], "--all-cases") == 0)
        return run_all_cases();
    if (argc == 3 && strcmp(argv[1], "--print-option") == 0)
        return print_option(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--list-options") == 0)
        return list_options();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
