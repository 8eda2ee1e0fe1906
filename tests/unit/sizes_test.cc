/* The hak_* calls that deal in sizes: good_size, usable_size, expand, alloc_at_least, free_sized. Containers that ask
 * them (strings, vectors, arenas) write up to the size they get: one that is too big corrupts the next block, one that
 * is too small wastes memory. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include "../posix_regex.h"
#include "../support.h"

namespace {

TEST(Sizes, GoodSizeIsTheUsableSizeOfEverySizeToOneMebibyte) {
    const bool shorter = kShorter * from_environment("HAK_TEST_SHORTER") > 1;
    for (size_t size = 0; size <= kMiB + 1; size += shorter && size > 5000 ? 37 : 1) {
        void *block = hak_malloc(size);
        ASSERT_NE(block, nullptr);
        size_t usable = hak_usable_size(block);
        hak_free(block);
        ASSERT_EQ(hak_good_size(size), usable) << "for " << size;
        ASSERT_GE(usable, size);
    }
}

TEST(Sizes, GoodSizeOfHugeBlocks) {
    for (size_t size = kMiB + 1; size < 64 * kMiB; size += 77777) {
        void *block = hak_malloc(size);
        ASSERT_NE(block, nullptr);
        ASSERT_EQ(hak_good_size(size), hak_usable_size(block)) << "for " << size;
        hak_free(block);
    }
}

TEST(Sizes, GoodSizeGrowsWithSizeAndIsItsOwnGoodSize) {
    size_t last = 0;
    for (size_t size = 0; size <= 3 * kMiB; size += size < 100000 ? 1 : 333) {
        size_t good = hak_good_size(size);
        ASSERT_GE(good, last) << "for " << size;
        ASSERT_EQ(hak_good_size(good), good) << "for " << size;
        last = good;
    }
}

TEST(Sizes, GoodSizeOfAnImpossibleSizeIsZero) {
    for (size_t size : {size_t{PTRDIFF_MAX} + 1, SIZE_MAX - 4096, SIZE_MAX})
        EXPECT_EQ(hak_good_size(size), 0u) << size;
}

TEST(Sizes, UsableSizeOfNullIsZero) { EXPECT_EQ(hak_usable_size(nullptr), 0u); }

/* Aligned so far a block is a large one, whose usable size is what was asked for: at least one byte. */
TEST(Sizes, UsableSizeOfNoBytesThatAreAlignedIsOne) {
    if (in_secure_mode())
        GTEST_SKIP() << "other tiers";
    void *block = hak_aligned_alloc(128 * kKiB, 0);
    EXPECT_EQ(hak_usable_size(block), 1u);
    hak_free(block);
}

TEST(Sizes, AllocAtLeastReturnsTheUsableSize) {
    for (size_t size : kTierSizes) {
        size_t usable = 0;
        void *block = hak_alloc_at_least(size, &usable);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(usable, hak_usable_size(block));
        EXPECT_GE(usable, size);
        memset(block, 1, usable);
        hak_free(block);
    }
    size_t usable = 0;
    volatile size_t impossible = SIZE_MAX;
    errno = 0;
    EXPECT_EQ(hak_alloc_at_least(impossible, &usable), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    void *zero = hak_alloc_at_least(0, &usable);
    EXPECT_NE(zero, nullptr);
    EXPECT_EQ(usable, hak_usable_size(zero));
    hak_free(zero);
}

TEST(Sizes, ExpandWithinTheUsableSizeAlwaysWorks) {
    for (size_t size : kTierSizes) {
        void *block = hak_malloc(size);
        size_t usable = hak_usable_size(block);
        EXPECT_EQ(hak_expand(block, size), 1) << size;
        EXPECT_EQ(hak_expand(block, usable), 1) << size;
        hak_free(block);
    }
}

TEST(Sizes, ExpandNeverMovesNorTouchesNeighbours) {
    for (size_t size : kTierSizes) {
        char *blocks[3];
        size_t usable[3];
        for (int i = 0; i < 3; i++) {
            blocks[i] = static_cast<char *>(hak_malloc(size));
            usable[i] = hak_usable_size(blocks[i]);
            pattern_write(blocks[i], 0, usable[i], static_cast<uint32_t>(i));
        }
        for (size_t to : {usable[1] + 1, usable[1] * 2, usable[1] + 3 * kMiB}) {
            errno = 99;
            int grown = hak_expand(blocks[1], to);
            EXPECT_EQ(errno, 99) << "hak_expand must keep errno";
            size_t now = hak_usable_size(blocks[1]);
            EXPECT_EQ(grown, now >= to ? 1 : 0) << "from " << usable[1] << " to " << to << ", usable is now " << now;
            ASSERT_EQ(pattern_check(blocks[1], usable[1], usable[1], 1), usable[1]) << "contents lost";
            usable[1] = now;
            pattern_write(blocks[1], 0, now, 1);
        }
        ASSERT_EQ(pattern_check(blocks[0], usable[0], usable[0], 0), usable[0]) << "grew into a neighbour";
        ASSERT_EQ(pattern_check(blocks[2], usable[2], usable[2], 2), usable[2]) << "grew into a neighbour";
        for (char *block : blocks)
            hak_free(block);
    }
}

TEST(Sizes, ExpandToAnImpossibleSizeFails) {
    volatile size_t impossible = SIZE_MAX, beyond = size_t{PTRDIFF_MAX} + 1;
    for (size_t size : kTierSizes) {
        void *block = hak_malloc(size);
        size_t usable = hak_usable_size(block);
        errno = 99;
        EXPECT_EQ(hak_expand(block, impossible), 0);
        EXPECT_EQ(hak_expand(block, beyond), 0);
        EXPECT_EQ(errno, 99);
        EXPECT_EQ(hak_usable_size(block), usable);
        hak_free(block);
    }
}

TEST(Sizes, FreeSizedAcceptsEverySizeThatTheRequestMayHaveHad) {
    for (size_t size = 0; size <= 70000; size += size < 1100 ? 1 : 61) {
        void *block = hak_malloc(size);
        hak_free_sized(block, size);
        block = hak_malloc(size);
        hak_free_sized(block, hak_usable_size(block));
    }
}

TEST(Sizes, ReallocToHalfStaysInPlace) {
    char secure[8];
    hak_option_get("SECURE", secure, sizeof secure);
    if (secure[0] == '1')
        GTEST_SKIP() << "secure mode keeps each block's size";
    for (size_t size = 50; size <= 32 * kKiB; size += 1 + size / 40) {
        void *block = hak_malloc(size), *half = hak_realloc(block, size / 2);
        EXPECT_EQ(half, block) << size << " bytes";
        EXPECT_GE(hak_usable_size(half), size);
        hak_free(half);
    }
}

TEST(Sizes, TrimGivesBackWhatIsFree) {
    hak_trim();
    std::vector<void *> blocks;
    for (int i = 0; i < 64 * 1024 / kShorter; i++) {
        blocks.push_back(hak_malloc(1024));
        memset(blocks.back(), 1, 1024);
    }
    for (void *block : blocks)
        hak_free(block);
    size_t given = hak_trim();
    EXPECT_LE(given, 80 * kMiB);
    EXPECT_LT(hak_trim(), kMiB) << "the first hak_trim left something behind";
}

TEST(Sizes, VersionMatchesTheHeader) {
    EXPECT_TRUE(Regex("[0-9]+\\.[0-9]+\\.[0-9]+").is_all_of(hak_version())) << hak_version();
    std::string header = std::to_string(HAKMEM_VERSION_MAJOR) + "." + std::to_string(HAKMEM_VERSION_MINOR) + "." +
                         std::to_string(HAKMEM_VERSION_PATCH);
    EXPECT_EQ(header, hak_version());
}

} // namespace
