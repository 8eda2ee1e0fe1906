/* Moving blocks with the program's help. If it fails, a cache that shrank keeps the memory of what it once held, or
 * moves its values in circles, or loses one. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"

namespace {

constexpr size_t kSlot = 64 * kKiB, kMost = 60000; /* blocks */

/* Blocks of one size, each with a pattern of its own. All of them are freed at the end. */
class Blocks {
  public:
    Blocks(size_t size, size_t count) : size_(size) {
        for (size_t i = 0; i < count; i++) {
            blocks_.push_back(hak_malloc(size));
            pattern_write(blocks_.back(), 0, size, static_cast<uint32_t>(i));
            tags_.push_back(static_cast<uint32_t>(i));
        }
    }
    ~Blocks() {
        for (size_t i = 0; i < blocks_.size(); i++) {
            EXPECT_EQ(pattern_check(blocks_[i], size_, size_, tags_[i]), size_);
            hak_free(blocks_[i]);
        }
    }
    /* Frees all but one in `share`, at random. */
    void thin_out(size_t share, uint64_t seed = 1) {
        Random random(seed);
        for (size_t left = blocks_.size() - blocks_.size() / share; left > 0; left--)
            remove(random.below(blocks_.size()));
    }
    void remove(size_t i) {
        hak_free(blocks_[i]);
        forget(i);
    }
    void forget(size_t i) {
        blocks_[i] = blocks_.back(), tags_[i] = tags_.back();
        blocks_.pop_back(), tags_.pop_back();
    }
    void move(size_t i) {
        void *to = hak_malloc_dense(size_);
        ASSERT_NE(to, nullptr);
        memcpy(to, blocks_[i], size_);
        hak_free_dense(blocks_[i]);
        blocks_[i] = to;
    }
    size_t should_move() const {
        size_t n = 0;
        for (void *block : blocks_)
            n += hak_should_move(block) != 0;
        return n;
    }
    /* One pass over all blocks. Returns how many moved. */
    size_t pass() {
        size_t moved = 0;
        for (size_t i = 0; i < blocks_.size(); i++)
            if (hak_should_move(blocks_[i])) {
                move(i);
                moved++;
            }
        return moved;
    }
    size_t slots() const {
        std::set<uintptr_t> slots;
        for (void *block : blocks_)
            slots.insert(reinterpret_cast<uintptr_t>(block) / kSlot);
        return slots.size();
    }
    std::vector<void *> &all() { return blocks_; }
    size_t bytes() const { return blocks_.size() * hak_good_size(size_); }

  private:
    size_t size_;
    std::vector<void *> blocks_;
    std::vector<uint32_t> tags_;
};

/* The bounds are at most so old when the next question of this thread comes. */
void look_anew() {
    hak_defrag cursor{};
    hak_defrag_begin(&cursor, 0);
}

class DefragSizes : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(All, DefragSizes,
                         testing::Values(8, 16, 48, 64, 200, 256, 700, 1024, 1152, 2000, 3000, 5000, 11000));

TEST_P(DefragSizes, MovingEmptiesSparseSlabs) {
    size_t size = GetParam(), slots = 60;
    Blocks blocks(size, std::min(slots * kSlot / size, kMost));
    look_anew();
    EXPECT_LT(blocks.should_move(), blocks.all().size() / 20) << "of a dense heap";
    blocks.thin_out(10);
    size_t before = blocks.slots(), needed = (blocks.bytes() + kSlot - 1) / kSlot;
    look_anew();
    EXPECT_GT(blocks.should_move(), blocks.all().size() * 3 / 4);
    long emptied = counter("dense_emptied_slots");
    for (int i = 0; i < 3; i++) {
        blocks.pass();
        look_anew();
    }
    EXPECT_LE(blocks.slots(), needed + needed / 8 + 4) << "of " << before;
    EXPECT_GE(counter("dense_emptied_slots") - emptied, static_cast<long>(before - blocks.slots()) / 2);
    EXPECT_LE(blocks.should_move(), blocks.all().size() / 8) << "what was moved is to move again";
}

/* The rule of averages alone would leave them as they are: each slab is as full as the others. */
TEST_P(DefragSizes, MovesOutOfSlabsThatAreEquallyFull) {
    size_t size = GetParam();
    /* Enough that a slab which the purger holds for a moment, when it was to be filled, does not decide. */
    Blocks blocks(size, std::min(60 * kSlot / size, kMost * 4));
    std::sort(blocks.all().begin(), blocks.all().end());
    size_t thirds = 0;
    for (size_t i = blocks.all().size(); i-- > 0;)
        if (i % 3 == 0)
            hak_free(blocks.all()[i]), blocks.all()[i] = nullptr, thirds++;
    std::vector<void *> kept;
    for (void *block : blocks.all())
        if (block != nullptr)
            kept.push_back(block);
    blocks.all().clear();
    auto count_slots = [&] {
        std::set<uintptr_t> slots;
        for (void *block : kept)
            slots.insert(reinterpret_cast<uintptr_t>(block) / kSlot);
        return slots.size();
    };
    size_t before = count_slots();
    long started = counter("slabs_started"), moved = counter("dense_allocations");
    hak_trim(); /* the ring could hold all that is free, as long as it is in use */
    for (int i = 0; i < 4; i++) {
        look_anew();
        for (void *&block : kept)
            if (hak_should_move(block)) {
                void *to = hak_malloc_dense(size);
                hak_free_dense(block);
                block = to;
            }
    }
    EXPECT_LE(count_slots(), before * 5 / 6 + 1)
        << "of " << before << ", moved " << counter("dense_allocations") - moved << " blocks, started "
        << counter("slabs_started") - started << " slabs";
    for (void *block : kept)
        hak_free(block);
}

TEST(Defrag, ACopyLiesInADenserSlab) {
    Blocks blocks(200, 40000);
    blocks.thin_out(10);
    look_anew();
    size_t moved = 0;
    for (size_t i = 0; i < blocks.all().size() && !testing::Test::HasFailure(); i++) {
        auto from = reinterpret_cast<uintptr_t>(blocks.all()[i]);
        if (!hak_should_move(blocks.all()[i]))
            continue;
        blocks.move(i);
        moved++;
        EXPECT_NE(reinterpret_cast<uintptr_t>(blocks.all()[i]) / kSlot, from / kSlot);
        EXPECT_FALSE(hak_should_move(blocks.all()[i]));
    }
    EXPECT_GT(moved, 2000u);
}

/* Blocks that another thread has freed lie in the slab's inbox, and its owner may not have looked. */
TEST(Defrag, NoCopyLiesInASlabThatAnotherThreadEmptied) {
    constexpr size_t kSize = 272;
    Blocks blocks(kSize, 40000);
    for (size_t i = blocks.all().size(); i-- > 0;)
        if (i % 10 == 0)
            blocks.remove(i); /* so all slabs have room */
    std::thread([&] {
        Random random(1);
        while (blocks.all().size() > 4000) {
            size_t i = random.below(blocks.all().size());
            hak_free_dense(blocks.all()[i]);
            blocks.forget(i);
        }
    }).join();
    look_anew();
    EXPECT_GT(blocks.should_move(), blocks.all().size() * 3 / 4);
    void *copy = hak_malloc_dense(kSize);
    for (void *block : blocks.all())
        EXPECT_NE(reinterpret_cast<uintptr_t>(copy) / kSlot, reinterpret_cast<uintptr_t>(block) / kSlot);
    hak_free_dense(copy);
}

/* Else a tenth of the heap, here 3 MiB, would stay EMPTY until somebody trims. */
TEST(Defrag, WhatMovingEmptiesGoesBackAtOnce) {
    Blocks blocks(1000, kMost);
    blocks.thin_out(2);
    long emptied = counter("dense_emptied_slots");
    for (int i = 0; i < 2; i++) {
        look_anew();
        blocks.pass();
    }
    EXPECT_GT(counter("dense_emptied_slots") - emptied, 300);
    EXPECT_LE(heap_stats()["rss_bytes"]["empty_slots"].number, kMiB + 16 * kSlot);
}

/* Slabs that are equally full: the upper ones are emptied into the lower ones, from a slab on that counts itself. */
TEST(Defrag, OfThreeSlabsTheTopmostIsEmptied) {
    constexpr size_t kSize = 448;
    std::map<uintptr_t, std::vector<void *>> by_slot;
    Blocks blocks(kSize, 60 * kSlot / kSize);
    for (void *block : blocks.all())
        by_slot[reinterpret_cast<uintptr_t>(block) / kSlot].push_back(block);
    uintptr_t first = 0;
    size_t whole = kSlot / kSize;
    for (auto &[slot, held] : by_slot)
        if (first == 0 && held.size() == whole && by_slot[slot + 1].size() == whole &&
            by_slot[slot + 2].size() == whole)
            first = slot;
    ASSERT_NE(first, 0u);
    std::map<uintptr_t, size_t> kept;
    for (size_t i = blocks.all().size(); i-- > 0;) {
        uintptr_t slot = reinterpret_cast<uintptr_t>(blocks.all()[i]) / kSlot;
        if (slot < first || slot > first + 2 || ++kept[slot] > whole * 3 / 5)
            blocks.remove(i);
    }
    hak_trim();
    look_anew();
    for (void *block : blocks.all())
        EXPECT_EQ(hak_should_move(block) != 0, reinterpret_cast<uintptr_t>(block) / kSlot == first + 2);
}

TEST(Defrag, WhatIsNotHakmemsNeverMoves) {
    static char global[64];
    char local[64];
    void *other = malloc(100);
    for (void *p : {static_cast<void *>(nullptr), static_cast<void *>(global), static_cast<void *>(local), other,
                    reinterpret_cast<void *>(16), reinterpret_cast<void *>(UINTPTR_MAX),
                    reinterpret_cast<void *>(UINTPTR_MAX / 2)})
        EXPECT_EQ(hak_should_move(p), 0) << p;
    free(other);
    for (size_t size : {size_t{4096}, 8 * kKiB, 20000 * size_t{1}, 64 * kKiB, 300 * kKiB, 5 * kMiB}) {
        void *p = hak_malloc(size);
        EXPECT_EQ(hak_should_move(p), 0) << size;
        hak_free(p);
        EXPECT_EQ(hak_should_move(p), 0) << size << ", freed";
    }
}

TEST(Defrag, AnyAddressOfTheHeapMayBeAskedAbout) {
    Blocks blocks(200, 20000);
    blocks.thin_out(10);
    look_anew();
    auto [low, high] = std::minmax_element(blocks.all().begin(), blocks.all().end());
    for (char *p = static_cast<char *>(*low) - kMiB; p < static_cast<char *>(*high) + 4 * kMiB; p += 1009)
        hak_should_move(p);
}

TEST(Defrag, DenseBlocksAreAsOthers) {
    for (size_t size : kTierSizes) {
        void *p = hak_malloc_dense(size), *q = hak_malloc_dense(size);
        ASSERT_NE(p, nullptr);
        EXPECT_NE(p, q);
        EXPECT_EQ(hak_usable_size(p), hak_good_size(size));
        EXPECT_TRUE(aligned_to(p, natural_alignment(size)));
        pattern_write(p, 0, size, 1);
        pattern_write(q, 0, size, 2);
        p = hak_realloc(p, size + 50);
        EXPECT_EQ(pattern_check(p, size, size, 1), size);
        hak_free_dense(p);
        EXPECT_EQ(pattern_check(q, size, size, 2), size);
        hak_free(q);
    }
    void *none = hak_malloc_dense(0);
    EXPECT_NE(none, nullptr);
    hak_free_dense(none);
    hak_free_dense(nullptr);
    volatile size_t too_much = SIZE_MAX / 2 + 1;
    EXPECT_EQ(hak_malloc_dense(too_much), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(DefragDeathTest, FreeDenseReportsBadPointers) {
    EXPECT_DEATH(hak_free_dense(reinterpret_cast<void *>(4096)), "hakmem: invalid free");
    for (size_t size : {200, 3000}) {
        char *p = hidden(hak_malloc_dense(size)), *q = hidden(hak_malloc_dense(size));
        EXPECT_DEATH(hak_free_dense(p + 16), "hakmem: invalid free");
        hak_free_dense(p);
        EXPECT_DEATH(hak_free_dense(p), "hakmem: double free");
        hak_free(q);
    }
}

TEST(Defrag, CountsWhatMoved) {
    long asked = counter("move_asked"), answered = counter("move_answered_true"), moved = counter("dense_allocations"),
         bytes = counter("dense_bytes");
    Blocks blocks(200, 20000);
    blocks.thin_out(10);
    look_anew();
    long yes = 0;
    for (void *block : blocks.all())
        yes += hak_should_move(block);
    blocks.move(0);
    EXPECT_EQ(counter("move_asked") - asked, static_cast<long>(blocks.all().size()));
    EXPECT_EQ(counter("move_answered_true") - answered, yes);
    EXPECT_EQ(counter("dense_allocations") - moved, 1);
    EXPECT_EQ(counter("dense_bytes") - bytes, 208);
}

/* ---- the cursor ---- */

TEST_P(DefragSizes, TheCursorListsTheLiveBlocksOfSparseSlabs) {
    size_t size = GetParam();
    Blocks blocks(size, std::min(40 * kSlot / size, kMost));
    blocks.thin_out(10);
    look_anew();
    std::set<void *> live(blocks.all().begin(), blocks.all().end()), listed, sparse;
    for (void *block : blocks.all())
        if (hak_should_move(block))
            sparse.insert(block);
    hak_defrag cursor{};
    hak_defrag_begin(&cursor, 0);
    size_t bytes;
    while (void *block = hak_defrag_next(&cursor, &bytes))
        if (bytes == hak_good_size(size)) {
            EXPECT_TRUE(live.count(block)) << block;
            EXPECT_TRUE(listed.insert(block).second) << "listed twice";
        }
    EXPECT_EQ(hak_defrag_end(&cursor), 1);
    EXPECT_EQ(listed, sparse);
    EXPECT_GT(listed.size(), live.size() * 3 / 4);
}

TEST(Defrag, TheCursorGoesOnInTheNextTimeBox) {
    Blocks blocks(200, 40000);
    blocks.thin_out(10);
    std::set<void *> live(blocks.all().begin(), blocks.all().end()), listed;
    hak_defrag cursor{};
    size_t bytes, boxes = 0;
    do {
        hak_defrag_begin(&cursor, 20000);
        while (void *block = hak_defrag_next(&cursor, &bytes))
            EXPECT_TRUE(bytes != 208 || (live.count(block) != 0 && listed.insert(block).second));
        boxes++;
    } while (hak_defrag_end(&cursor) == 0);
    EXPECT_GT(boxes, 1u);
    EXPECT_GT(listed.size(), live.size() * 3 / 4);
    hak_defrag_begin(&cursor, 0);
    EXPECT_NE(hak_defrag_next(&cursor, &bytes), nullptr) << "it does not begin anew";
}

TEST(Defrag, TheLongestTimeBoxIsLongEnough) {
    Blocks blocks(1000, 5000);
    blocks.thin_out(10);
    size_t bytes, listed[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        hak_defrag cursor = {};
        hak_defrag_begin(&cursor, i == 0 ? 0 : ~0ull);
        while (hak_defrag_next(&cursor, &bytes) != nullptr)
            listed[i]++;
    }
    EXPECT_GT(listed[0], 0u);
    EXPECT_EQ(listed[1], listed[0]);
}

/* Else each of a cursor's boxes looks at all slabs again. */
TEST(Defrag, ALaterTimeBoxGoesByTheSameSurvey) {
    Blocks blocks(320, 20000);
    hak_defrag cursor{};
    size_t bytes;
    hak_defrag_begin(&cursor, 0);
    EXPECT_EQ(hak_should_move(blocks.all()[0]), 0) << "of a dense heap";
    hak_defrag_next(&cursor, &bytes);
    blocks.thin_out(10);
    hak_defrag_begin(&cursor,
                     0); /* the questions after the first one are too few to be a reason to look at the clock */
    for (size_t i = 0; i < 50; i++)
        EXPECT_EQ(hak_should_move(blocks.all()[i]), 0);
    look_anew();
    EXPECT_GT(blocks.should_move(), blocks.all().size() / 2);
}

/* A box may be over before the clock was read once. */
TEST(Defrag, TheCursorComesToItsEndInTheShortestTimeBoxes) {
    Blocks blocks(200, 2000);
    hak_defrag cursor{};
    size_t bytes, boxes = 0;
    do {
        hak_defrag_begin(&cursor, 1);
        while (hak_defrag_next(&cursor, &bytes) != nullptr)
            continue;
        ASSERT_LT(boxes++, 1000000u) << "it gets nowhere";
    } while (hak_defrag_end(&cursor) == 0);
}

TEST(Defrag, TheCursorSkipsWhatWasFreedMeanwhile) {
    Blocks blocks(200, 20000);
    blocks.thin_out(10);
    hak_defrag cursor{};
    hak_defrag_begin(&cursor, 0);
    std::set<void *> live(blocks.all().begin(), blocks.all().end());
    size_t bytes;
    for (size_t left = 50; left > 0;) {
        void *block = hak_defrag_next(&cursor, &bytes);
        ASSERT_NE(block, nullptr);
        left -= live.count(block);
    }
    while (!blocks.all().empty())
        blocks.remove(blocks.all().size() - 1);
    while (void *block = hak_defrag_next(&cursor, &bytes))
        EXPECT_FALSE(live.count(block)) << block;
}

/* ---- other threads ---- */

/* Others allocate and free at the same sizes while two threads move what is theirs. */
TEST(Defrag, ThreadsMoveWhileOthersFree) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; t++)
        threads.emplace_back([&stop, t] {
            Random random(t);
            std::vector<void *> mine(3000);
            while (!stop)
                for (unsigned i = 0; i < 3000; i++) {
                    void *&p = mine[random.below(mine.size())];
                    hak_free(p);
                    p = random.below(3) != 0 ? nullptr : hak_malloc(random.below(2) != 0 ? 200 : 3000);
                }
            for (void *p : mine)
                hak_free(p);
        });
    for (unsigned t = 0; t < 2; t++)
        threads.emplace_back([&stop] {
            for (int i = 0; i < times(12); i++) {
                Blocks blocks(i % 2 != 0 ? 200 : 3000, 3000);
                blocks.thin_out(8, static_cast<uint64_t>(i));
                look_anew();
                blocks.pass();
                hak_defrag cursor{};
                size_t bytes;
                hak_defrag_begin(&cursor, 1000000);
                while (hak_defrag_next(&cursor, &bytes) != nullptr) {
                }
                hak_defrag_end(&cursor);
            }
            stop = true;
        });
    for (auto &thread : threads)
        thread.join();
}

/* One thread asks about blocks and moves them that others made, who live and sleep, or have ended. */
TEST(Defrag, MovesBlocksThatOtherThreadsMade) {
    for (bool ends : {true, false}) {
        std::atomic<int> step{0};
        Blocks *blocks = nullptr;
        std::thread maker([&] {
            blocks = new Blocks(200, 40000);
            step = 1;
            while (!ends && step != 2)
                std::this_thread::yield();
        });
        if (ends)
            maker.join();
        while (step != 1)
            std::this_thread::yield();
        blocks->thin_out(10);
        look_anew();
        size_t moved = 0;
        for (int i = 0; i < 3; i++) {
            moved += blocks->pass();
            look_anew();
        }
        EXPECT_GT(moved, blocks->all().size() / 2);
        size_t needed = (blocks->bytes() + kSlot - 1) / kSlot;
        EXPECT_LE(blocks->slots(), needed + needed / 8 + 8);
        delete blocks;
        step = 2;
        if (!ends)
            maker.join();
    }
}

TEST(Defrag, AThreadWithoutAHeapMayAsk) {
    Blocks blocks(200, 20000);
    blocks.thin_out(10);
    look_anew();
    EXPECT_GT(blocks.should_move(), 0u);
    size_t yes = 0;
    std::thread([&] { yes = blocks.should_move(); }).join();
    EXPECT_GT(yes, blocks.all().size() / 2);
}

/* It has nowhere to note when it last looked, so it would look at all slabs at each question. */
TEST(Defrag, AThreadWithoutAHeapGoesByWhatOthersKnow) {
    Blocks blocks(384, 20000);
    blocks.thin_out(10);
    look_anew();
    size_t yes = 1;
    std::thread([&] { yes = blocks.should_move(); }).join();
    EXPECT_EQ(yes, 0u) << "nobody has looked at this size";
    EXPECT_GT(blocks.should_move(), blocks.all().size() / 2);
}

TEST(Defrag, AForkedChildMoves) {
    Blocks blocks(200, 20000);
    blocks.thin_out(10);
    look_anew();
    for (size_t i = 0; i < 500; i++)
        if (hak_should_move(blocks.all()[i]))
            blocks.move(i);
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        size_t before = blocks.slots();
        blocks.pass();
        _exit(blocks.slots() < before / 2 && !testing::Test::HasFailure() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    blocks.pass();
}

/* ---- beside the other parts ---- */

TEST(Defrag, DenseBlocksAreSampled) {
    ASSERT_EQ(hak_profile_start(4096), 0);
    for (size_t size : {200, 3000}) {
        long sampled = counter("samples_taken");
        for (int i = 0; i < 5000; i++)
            hak_free_dense(hak_malloc_dense(size));
        EXPECT_GT(counter("samples_taken") - sampled, 20);
    }
    hak_profile_stop();
}

/* Run again by the test below. */
TEST(DefragNever, NothingMoves) {
    if (getenv("HAK_TEST_NOTHING_MOVES") == nullptr)
        GTEST_SKIP() << "for the process that another test starts";
    Blocks blocks(200, 300);
    blocks.thin_out(10);
    look_anew();
    EXPECT_EQ(blocks.should_move(), 0u);
    blocks.move(0);
    hak_defrag cursor{};
    size_t bytes;
    hak_defrag_begin(&cursor, 0);
    EXPECT_EQ(hak_defrag_next(&cursor, &bytes), nullptr);
    EXPECT_EQ(hak_defrag_end(&cursor), 1);
}

TEST(Defrag, NothingMovesInSecureModeAndWithoutSuperSlabs) {
    for (const char *mode : {"HAKMEM_SECURE=1", "HAKMEM_SUPERSLAB=0"}) {
        Outcome outcome = run_self({"--gtest_filter=DefragNever.*"}, {mode, "HAK_TEST_NOTHING_MOVES=1"});
        EXPECT_TRUE(outcome.exited(0)) << mode << ' ' << outcome.describe();
        EXPECT_NE(outcome.out.find("[       OK ]"), std::string::npos) << outcome.out;
    }
}

TEST(Defrag, ThreadsMoveBesideThePurger) {
    Outcome outcome = run_self({"--gtest_filter=Defrag.ThreadsMoveWhileOthersFree"}, {"HAKMEM_PURGER=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_NE(outcome.out.find("[       OK ]"), std::string::npos) << outcome.out;
}

} // namespace

/* A purger would take slabs for a moment in which they were to be filled, and empty some itself. */
extern const char *hak_options;
const char *hak_options = "PURGER=0";
