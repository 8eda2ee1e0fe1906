/* Calls every allocating function with edge-case arguments and compares it with glibc's own function in the same
 * process: NULL or not, errno, return code; also checks alignment and room. If one fails, a program that relies on
 * malloc's documented or customary answers misbehaves under HAKMEM: it crashes on NULL, or misses an overflow. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <climits>

#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();
const Surface &G = oracle();

/* Hides the value from the compiler, which would warn about sizes that no object can have. */
size_t opaque(size_t value) {
    volatile size_t hidden = value;
    return hidden;
}

constexpr size_t kPtrdiffMax = PTRDIFF_MAX;

std::vector<size_t> edge_sizes() {
    std::vector<size_t> sizes{0, 1, 2, 7, 8, 9, 15, 16, 17, 4095, 4096, 4097};
    for (size_t border : {size_t{256}, kKiB, 64 * kKiB, kMiB, 2 * kMiB, 32 * kMiB})
        for (size_t size : {border - 1, border, border + 1})
            sizes.push_back(size);
    for (size_t size : {kPtrdiffMax - 4096, kPtrdiffMax - 1, kPtrdiffMax, kPtrdiffMax + 1, SIZE_MAX / 2 + 4096,
                        SIZE_MAX - 4096, SIZE_MAX - 15, SIZE_MAX - 1, SIZE_MAX})
        sizes.push_back(size);
    return sizes;
}

std::vector<size_t> edge_alignments() {
    std::vector<size_t> alignments{0, 3, 5, 6, 7, 12, 17, 24, 40, 100, 1000, 4097, 65537, 3 * kMiB};
    for (size_t a = 1; a <= 8 * kMiB; a *= 2)
        alignments.push_back(a);
    for (size_t a : {size_t{1} << 47, size_t{1} << 62, (size_t{1} << 62) + 1, size_t{1} << 63, (size_t{1} << 63) + 1,
                     SIZE_MAX - 1, SIZE_MAX})
        alignments.push_back(a);
    return alignments;
}

/* The result of a call. */
struct Answer {
    void *block = nullptr;
    int error = 0; /* errno if the call returned NULL, or the return code */
};

template <typename Call> Answer ask(Call call) {
    Answer answer;
    errno = 0;
    answer.block = call();
    answer.error = answer.block == nullptr ? errno : 0;
    return answer;
}

size_t round_up_power_of_two(size_t n) {
    size_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* Compares both answers, checks the room and alignment of a returned block, and frees both blocks. */
void compare(const Answer &ours, const Answer &theirs, size_t size, size_t alignment) {
    EXPECT_EQ(ours.block == nullptr, theirs.block == nullptr) << "a block where glibc has none, or none where it has";
    EXPECT_EQ(ours.error, theirs.error) << "another errno than glibc's";
    if (ours.block != nullptr) {
        EXPECT_TRUE(aligned_to(ours.block, alignment)) << ours.block << " is not aligned to " << alignment;
        EXPECT_GE(S.usable_size(ours.block), size);
        memset(ours.block, 0xa5, size);
    }
    S.free(ours.block);
    G.free(theirs.block);
}

TEST(Api, MallocEdges) {
    for (size_t size : edge_sizes()) {
        SCOPED_TRACE("malloc(" + std::to_string(size) + ")");
        compare(ask([&] { return S.alloc(opaque(size)); }), ask([&] { return G.alloc(opaque(size)); }), size,
                natural_alignment(size));
    }
}

TEST(Api, ZeroSizesAreUniqueBlocks) {
    void *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = i % 4 == 0   ? S.alloc(0)
                    : i % 4 == 1 ? S.calloc(0, 5)
                    : i % 4 == 2 ? S.calloc(5, 0)
                                 : S.realloc(nullptr, 0);
        ASSERT_NE(blocks[i], nullptr) << "programs take NULL for out of memory";
        for (int j = 0; j < i; j++)
            ASSERT_NE(blocks[i], blocks[j]) << "two live blocks at one address";
    }
    for (void *block : blocks)
        S.free(block);
}

TEST(Api, CallocEdges) {
    size_t huge = size_t{1} << 32;
    std::vector<std::pair<size_t, size_t>> products;
    for (size_t size : edge_sizes()) {
        products.emplace_back(1, size);
        products.emplace_back(size, 1);
        products.emplace_back(3, size);
        products.emplace_back(size, size >= kMiB && size <= kGiB ? 2 : 16); /* 512 MiB would take seconds to fault in */
        products.emplace_back(0, size);
        products.emplace_back(size, 0);
    }
    for (size_t a : {huge - 1, huge, huge + 1})
        for (size_t b : {huge - 1, huge, huge + 1})
            products.emplace_back(a, b);
    for (auto &product : products) {
        size_t count = product.first, size = product.second;
        SCOPED_TRACE("calloc(" + std::to_string(count) + ", " + std::to_string(size) + ")");
        Answer ours = ask([&] { return S.calloc(opaque(count), opaque(size)); });
        Answer theirs = ask([&] { return G.calloc(opaque(count), opaque(size)); });
        size_t bytes = ours.block != nullptr ? count * size : 0;
        if (ours.block != nullptr)
            EXPECT_EQ(first_dirty(ours.block, bytes), bytes) << "calloc memory that is not zero";
        compare(ours, theirs, bytes, natural_alignment(bytes));
    }
}

TEST(Api, ReallocEdges) {
    for (size_t from : {size_t{0}, size_t{1}, size_t{100}, size_t{5000}, 100 * kKiB, 3 * kMiB})
        for (size_t to : edge_sizes()) {
            SCOPED_TRACE("realloc of " + std::to_string(from) + " bytes to " + std::to_string(to));
            void *mine = S.alloc(from), *glibcs = G.alloc(from);
            ASSERT_NE(mine, nullptr);
            memset(mine, 0x5a, from);
            Answer ours = ask([&] { return S.realloc(mine, opaque(to)); });
            Answer theirs = ask([&] { return G.realloc(glibcs, opaque(to)); });
            if (to != 0 && ours.block == nullptr) { /* a failure leaves the old block unchanged */
                for (size_t i = 0; i < from; i++)
                    ASSERT_EQ(static_cast<unsigned char *>(mine)[i], 0x5a);
                EXPECT_GE(S.usable_size(mine), from);
                S.free(mine);
            }
            if (to != 0 && theirs.block == nullptr)
                G.free(glibcs);
            for (size_t i = 0; ours.block != nullptr && i < (from < to ? from : to); i++)
                ASSERT_EQ(static_cast<unsigned char *>(ours.block)[i], 0x5a) << "byte " << i;
            compare(ours, theirs, to, natural_alignment(to));
        }
}

TEST(Api, ReallocOfNullAllocates) {
    for (size_t size : edge_sizes()) {
        SCOPED_TRACE("realloc(NULL, " + std::to_string(size) + ")");
        compare(ask([&] { return S.realloc(nullptr, opaque(size)); }),
                ask([&] { return G.realloc(nullptr, opaque(size)); }), size, natural_alignment(size));
    }
}

TEST(Api, ReallocToZeroFrees) {
    if (kShorter > 1)
        GTEST_SKIP() << "a sanitizer's own memory would be counted";
    /* If it leaked, a million rounds of 1 KiB would show it. */
    size_t before = process_rss_bytes();
    for (int i = 0; i < 1000000 / kShorter; i++) {
        void *block = S.alloc(1024);
        memset(block, 1, 1024);
        ASSERT_EQ(S.realloc(block, opaque(0)), nullptr);
    }
    EXPECT_LT(process_rss_bytes(), before + 16 * kMiB) << "realloc(p, 0) does not free";
}

TEST(Api, ReallocarrayEdges) {
    if (S.reallocarray == nullptr)
        GTEST_SKIP() << "no such call in " << S.name;
    size_t half = SIZE_MAX / 2;
    const size_t pairs[][2] = {{0, 0},       {0, 8},           {8, 0},        {1, 1},        {100, 100},
                               {1 << 20, 8}, {half, 3},        {3, half},     {SIZE_MAX, 2}, {2, half},
                               {half, 2},    {kPtrdiffMax, 1}, {1, SIZE_MAX}, {SIZE_MAX, 0}, {0, SIZE_MAX}};
    for (auto &pair : pairs)
        for (size_t from : {size_t{0}, size_t{64}}) {
            size_t count = pair[0], size = pair[1];
            SCOPED_TRACE("reallocarray(" + std::to_string(count) + ", " + std::to_string(size) + ")");
            void *mine = from != 0 ? S.alloc(from) : nullptr, *glibcs = from != 0 ? G.alloc(from) : nullptr;
            Answer ours = ask([&] { return S.reallocarray(mine, opaque(count), opaque(size)); });
            Answer theirs = ask([&] { return G.reallocarray(glibcs, opaque(count), opaque(size)); });
            bool frees = count == 0 || size == 0;
            if (!frees && ours.block == nullptr)
                S.free(mine);
            if (!frees && theirs.block == nullptr)
                G.free(glibcs);
            compare(ours, theirs, ours.block != nullptr ? count * size : 0, 8);
        }
}

TEST(Api, AlignedAllocEdges) {
    /* Before 2.38, glibc rounded an alignment up to a power of two. Since then it answers as C17 requires, and so do
     * we. */
    for (size_t alignment : edge_alignments())
        for (size_t size : edge_sizes()) {
            SCOPED_TRACE("aligned_alloc(" + std::to_string(alignment) + ", " + std::to_string(size) + ")");
            bool power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
            Answer ours = ask([&] { return S.aligned_alloc(opaque(alignment), opaque(size)); });
            if (!power_of_two) {
                EXPECT_EQ(ours.block, nullptr);
                EXPECT_EQ(ours.error, EINVAL);
                S.free(ours.block);
                continue;
            }
            Answer theirs = ask([&] { return G.aligned_alloc(opaque(alignment), opaque(size)); });
            compare(ours, theirs, size, ours.block != nullptr ? round_up_power_of_two(alignment) : 1);
        }
}

TEST(Api, MemalignEdges) {
    if (S.memalign == nullptr)
        GTEST_SKIP() << "no such call in " << S.name;
    for (size_t alignment : edge_alignments())
        for (size_t size : edge_sizes()) {
            SCOPED_TRACE("memalign(" + std::to_string(alignment) + ", " + std::to_string(size) + ")");
            Answer ours = ask([&] { return S.memalign(opaque(alignment), opaque(size)); });
            Answer theirs = ask([&] { return G.memalign(opaque(alignment), opaque(size)); });
            compare(ours, theirs, size, ours.block != nullptr ? round_up_power_of_two(alignment) : 1);
        }
}

TEST(Api, PosixMemalignEdges) {
    if (S.posix_memalign == nullptr)
        GTEST_SKIP() << "no such call in " << S.name;
    int untouched;
    for (size_t alignment : edge_alignments())
        for (size_t size : edge_sizes()) {
            SCOPED_TRACE("posix_memalign(" + std::to_string(alignment) + ", " + std::to_string(size) + ")");
            void *mine = &untouched, *glibcs = &untouched;
            Answer ours, theirs;
            errno = 77;
            ours.error = S.posix_memalign(&mine, opaque(alignment), opaque(size));
            int our_errno = errno;
            errno = 77;
            theirs.error = G.posix_memalign(&glibcs, opaque(alignment), opaque(size));
            if (theirs.error != 0) /* on success errno means nothing */
                EXPECT_EQ(our_errno, errno) << "programs print errno, not the return code";
            if (ours.error != 0)
                EXPECT_EQ(mine, &untouched) << "a failed posix_memalign must not touch the result";
            ours.block = ours.error == 0 ? mine : nullptr;
            theirs.block = theirs.error == 0 ? glibcs : nullptr;
            compare(ours, theirs, size, ours.block != nullptr ? alignment : 1);
        }
}

TEST(Api, VallocAndPvallocEdges) {
    if (S.valloc == nullptr)
        GTEST_SKIP() << "no such call in " << S.name;
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t size : edge_sizes()) {
        SCOPED_TRACE("valloc or pvalloc of " + std::to_string(size));
        compare(ask([&] { return S.valloc(opaque(size)); }), ask([&] { return G.valloc(opaque(size)); }), size, page);
        size_t whole_pages = (size + page - 1) / page * page;
        compare(ask([&] { return S.pvalloc(opaque(size)); }), ask([&] { return G.pvalloc(opaque(size)); }), whole_pages,
                page);
    }
}

TEST(Api, NullIsAccepted) {
    S.free(nullptr);
    S.free_sized(nullptr, 48);
    if (S.free_aligned_sized != nullptr)
        S.free_aligned_sized(nullptr, 64, 128);
    EXPECT_EQ(S.usable_size(nullptr), 0u);
}

TEST(Api, FreeKeepsErrno) {
    for (size_t size : kTierSizes) {
        std::vector<void *> blocks;
        for (size_t i = 0; i < (size > kMiB ? 4 : 300); i++) {
            blocks.push_back(S.alloc(size));
            memset(blocks.back(), 1, size);
        }
        for (size_t i = 0; i < blocks.size(); i++) {
            errno = 4321;
            if (i % 2 == 0)
                S.free(blocks[i]);
            else
                S.free_sized(blocks[i], size);
            ASSERT_EQ(errno, 4321) << "free of " << size
                                   << " bytes: error paths that clean up first report the wrong error";
        }
    }
    errno = 4321;
    S.free(nullptr);
    EXPECT_EQ(errno, 4321);
}

} // namespace
