/* The size classes, exhaustively. If one fails, a block is smaller than requested, memory is wasted, or the owner of an
 * address is computed wrongly. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include "../support.h"
#include "inside.h"

namespace {

size_t waste(size_t size, size_t block) { return block - size; }

TEST(Classes, EverySizeToOneMebibyteHasOneTierAndEnoughRoom) {
    size_t last_block = 0;
    for (size_t size = 0; size <= inside_large_max; size++) {
        size_t block;
        if (size <= inside_tiny_max) {
            unsigned c = inside_tiny_class_of(size);
            ASSERT_LT(c, inside_tiny_classes);
            block = inside_class_at(c).block_bytes;
            ASSERT_EQ(inside_tiny_class_of(block), c) << "size -> class -> size -> class, at " << size;
        } else if (size <= inside_mid_max) {
            unsigned c = inside_mid_class_of(size);
            ASSERT_GE(c, inside_tiny_classes);
            ASSERT_LT(c, inside_classes);
            block = inside_class_at(c).block_bytes;
            ASSERT_EQ(inside_mid_class_of(block), c) << "size -> class -> size -> class, at " << size;
        } else {
            block = inside_large_slots_of(size) * inside_slot_bytes;
        }
        ASSERT_GE(block, size);
        ASSERT_GE(block, last_block) << "block sizes must not fall as sizes grow, at " << size;
        last_block = block;
        if (size > 8 && size <= 256)
            ASSERT_LT(waste(size, block), 16u) << size;
        if (size > 256 && size <= inside_mid_max)
            ASSERT_LE(waste(size, block) * 8, size) << "more than 12.5 % lost at " << size;
        if (size > inside_mid_max)
            ASSERT_LT(waste(size, block), inside_slot_bytes) << size;
    }
}

TEST(Classes, ASizeOneAboveAClassGoesToTheNext) {
    for (unsigned c = 0; c + 1 < inside_classes; c++) {
        size_t size = inside_class_at(c).block_bytes + 1;
        unsigned next = size <= inside_tiny_max ? inside_tiny_class_of(size) : inside_mid_class_of(size);
        EXPECT_EQ(next, c + 1) << size;
        EXPECT_LT(inside_class_at(c).block_bytes, inside_class_at(c + 1).block_bytes);
    }
}

TEST(Classes, HugeIsWholeSuperSlabs) {
    for (size_t size : {inside_large_max + 1, inside_superslab_bytes, inside_superslab_bytes + 1, kGiB, kTiB + 1}) {
        size_t bytes = inside_huge_superslabs_of(size) * inside_superslab_bytes;
        EXPECT_GE(bytes, size);
        EXPECT_LT(bytes - size, inside_superslab_bytes);
    }
}

TEST(Classes, SlabsFitTheirSpans) {
    for (unsigned c = 0; c < inside_classes; c++) {
        struct inside_class k = inside_class_at(c);
        size_t span = k.slots * inside_slot_bytes;
        EXPECT_LE(k.blocks * k.block_bytes, span) << "class " << c;
        EXPECT_GE(k.blocks, 1u);
        EXPECT_EQ(k.block_bytes % (k.block_bytes <= 8 ? 8 : 16), 0u) << "class " << c << ": blocks are not aligned";
        if (c < inside_tiny_classes) {
            EXPECT_EQ(k.slots, 1u);
            EXPECT_GE(k.reuse_at, 1u);
            EXPECT_LE(k.reuse_at, k.blocks / 8);
            EXPECT_GT((k.blocks + 1) * k.block_bytes, span) << "class " << c << " wastes room for a block";
        } else {
            EXPECT_LE(k.blocks, 64u) << "a mid slab's free set is one 64-bit word";
            EXPECT_LE(k.slots, 16u);
        }
    }
}

TEST(Classes, OnlyStartsOfBlocksAreAccepted) {
    for (unsigned c = 0; c < inside_classes; c++) {
        struct inside_class k = inside_class_at(c);
        for (size_t offset = 0; offset < k.slots * inside_slot_bytes; offset++) {
            size_t index = offset % k.block_bytes == 0 ? offset / k.block_bytes : k.blocks;
            ASSERT_EQ(inside_block_index(c, offset), std::min<size_t>(index, k.blocks))
                << "class " << c << " offset " << offset;
        }
    }
}

TEST(Classes, AlignedRequestsGetTheSmallestClassThatIsAligned) {
    for (size_t alignment = 8; alignment <= inside_slot_bytes; alignment *= 2)
        for (size_t size = 1; size <= inside_mid_max; size += size < 2048 ? 1 : 61) {
            unsigned found = inside_class_aligned(size, alignment), expected = 0;
            while (expected < inside_classes && (inside_class_at(expected).block_bytes < size ||
                                                 inside_class_at(expected).block_bytes % alignment != 0))
                expected++;
            ASSERT_EQ(found, expected) << size << " at " << alignment;
        }
}

} // namespace
