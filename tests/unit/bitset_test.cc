/* The bitmap behind the pool. If a search misses a member for good, free memory is lost; if it invents one, two owners
 * meet in one slab. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "../support.h"
#include "inside.h"

namespace {

class Bitset {
  public:
    Bitset(size_t indices, unsigned sets) : indices_(indices), family_(inside_bitset_new(indices, sets)) {}
    ~Bitset() { inside_bitset_delete(family_); }
    void add(unsigned set, size_t index) { inside_bitset_add(family_, set, index); }
    void remove(unsigned set, size_t index) { inside_bitset_remove(family_, set, index); }
    bool has(unsigned set, size_t index) { return inside_bitset_has(family_, set, index) != 0; }
    size_t find(unsigned set, size_t from) { return inside_bitset_find(family_, set, from); }
    size_t find_last(unsigned set, size_t below) { return inside_bitset_find_last(family_, set, below); }
    /* Returns all members, found by searching upwards; a downward search must find the same. */
    std::set<size_t> members(unsigned set) {
        std::set<size_t> up, down;
        for (size_t at = find(set, 0); at != inside_bitset_none; at = find(set, at + 1))
            up.insert(at);
        for (size_t at = find_last(set, indices_); at != inside_bitset_none; at = find_last(set, at))
            down.insert(at);
        EXPECT_EQ(up, down);
        return up;
    }

  private:
    size_t indices_;
    void *family_;
};

const size_t kShapes[] = {1, 2, 63, 64, 65, 128, 4095, 4096, 4097, 64 * 4096 - 1, 64 * 4096, 64 * 4096 + 1, 1 << 20};

TEST(Bitset, EmptyHasNoMembers) {
    for (size_t indices : kShapes) {
        Bitset bits(indices, 3);
        for (unsigned set = 0; set < 3; set++) {
            EXPECT_EQ(bits.find(set, 0), inside_bitset_none) << indices;
            EXPECT_EQ(bits.find(set, indices - 1), inside_bitset_none);
            EXPECT_EQ(bits.find(set, indices), inside_bitset_none);
            EXPECT_EQ(bits.find_last(set, indices), inside_bitset_none);
            EXPECT_EQ(bits.find_last(set, 0), inside_bitset_none);
        }
    }
}

TEST(Bitset, OneMemberIsFoundFromEverywhere) {
    for (size_t indices : kShapes)
        for (size_t member : {size_t{0}, indices / 3, indices / 2, indices - 1}) {
            Bitset bits(indices, 2);
            bits.add(1, member);
            bits.add(1, member); /* adding twice is the same as adding once */
            for (size_t from : {size_t{0}, member / 2, member > 0 ? member - 1 : 0, member})
                ASSERT_EQ(bits.find(1, from), member) << indices << " from " << from;
            for (size_t below : {member + 1, member + (indices - member) / 2 + 1, indices})
                ASSERT_EQ(bits.find_last(1, below > indices ? indices : below), member)
                    << indices << " below " << below;
            ASSERT_EQ(bits.find(1, member + 1), inside_bitset_none);
            ASSERT_EQ(bits.find_last(1, member), inside_bitset_none);
            ASSERT_EQ(bits.find(0, 0), inside_bitset_none) << "it leaked into the set beside it";
            ASSERT_TRUE(bits.has(1, member));
            bits.remove(1, member);
            bits.remove(1, member);
            ASSERT_FALSE(bits.has(1, member));
            ASSERT_EQ(bits.find(1, 0), inside_bitset_none);
        }
}

TEST(Bitset, FollowsAModelSet) {
    for (size_t indices : {size_t{64}, size_t{1000}, size_t{300000}}) {
        Random random(indices);
        Bitset bits(indices, 4);
        std::set<size_t> model[4];
        for (int step = 0; step < 200000 / kShorter; step++) {
            unsigned set = static_cast<unsigned>(random.below(4));
            size_t index = random.below(2) != 0 ? random.below(indices) : random.below(indices < 200 ? indices : 200);
            if (random.below(100) < 55) {
                bits.add(set, index);
                model[set].insert(index);
            } else if (!model[set].empty()) {
                auto at = model[set].lower_bound(index);
                if (at == model[set].end())
                    at = model[set].begin();
                bits.remove(set, *at);
                model[set].erase(at);
            }
            size_t from = random.below(indices + 1);
            auto next = model[set].lower_bound(from);
            ASSERT_EQ(bits.find(set, from), next == model[set].end() ? inside_bitset_none : *next);
            ASSERT_EQ(bits.find_last(set, from), next == model[set].begin() ? inside_bitset_none : *--next);
        }
        for (unsigned set = 0; set < 4; set++)
            ASSERT_EQ(bits.members(set), model[set]);
    }
}

/* Threads add and remove indices of their own, in words they share. In the end exactly the members are found. */
TEST(Bitset, ConcurrentChangesLoseNothing) {
    constexpr size_t kIndices = 64 * 64 * 8;
    constexpr unsigned kThreads = 4;
    for (int round = 0; round < 20 / (kShorter > 4 ? 4 : kShorter); round++) {
        Bitset bits(kIndices, 2);
        std::set<size_t> kept[kThreads];
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kThreads; t++)
            threads.emplace_back([&, t] {
                Random random(static_cast<uint64_t>(round) * 10 + t);
                for (int step = 0; step < 60000 / kShorter; step++) {
                    /* Few words, so that whole words keep becoming empty and full. */
                    size_t index = random.below(8) * 64 * (round % 2 != 0 ? 1 : 64) + random.below(16) * kThreads + t;
                    if (kept[t].count(index) == 0) {
                        bits.add(0, index);
                        kept[t].insert(index);
                    } else {
                        bits.remove(0, index);
                        kept[t].erase(index);
                    }
                    if (step % 64 == 0)
                        bits.find(0, random.below(kIndices));
                }
            });
        for (auto &thread : threads)
            thread.join();
        std::set<size_t> all;
        for (auto &part : kept)
            all.insert(part.begin(), part.end());
        ASSERT_EQ(bits.members(0), all) << "round " << round;
        ASSERT_TRUE(bits.members(1).empty());
    }
}

} // namespace
