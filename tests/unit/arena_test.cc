/* Arenas: if one of these fails, a program that frees a request's memory at once loses other memory with it, or keeps
 * some. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "../heap_stats.h"
#include "../support.h"
#include "hakmem.h"

namespace {

const size_t kSizes[] = {0, 1, 16, 48, 100, 1024, 1025, 3000, 30000, 65536, 65537, 300000, 1 << 20, 3 << 20};

class Arena : public testing::Test {
  protected:
    void SetUp() override {
        arena_ = hak_arena_new(nullptr);
        ASSERT_NE(arena_, nullptr);
    }
    void TearDown() override { hak_arena_destroy(arena_); }
    hak_arena *remake() {
        hak_arena_destroy(arena_);
        return arena_ = hak_arena_new(nullptr);
    }
    hak_arena *arena_ = nullptr;
};

hak_arena_stats stats_of(hak_arena *arena) {
    hak_arena_stats stats = {};
    EXPECT_EQ(hak_arena_get_stats(arena, &stats), 0);
    return stats;
}

using Blocks = std::map<void *, size_t>;
Blocks blocks_of(hak_arena *arena) {
    Blocks blocks;
    EXPECT_EQ(hak_arena_visit(
                  arena,
                  [](void *block, size_t bytes, void *all) {
                      EXPECT_TRUE(static_cast<Blocks *>(all)->emplace(block, bytes).second);
                      return 0;
                  },
                  &blocks),
              0);
    return blocks;
}

/* A thread that runs functions one at a time, so that a test decides the order. */
class Worker {
  public:
    ~Worker() {
        run(nullptr);
        thread_.join();
    }
    void run(std::function<void()> work) {
        std::unique_lock<std::mutex> lock(mutex_);
        work_ = std::move(work);
        due_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !due_; });
    }

  private:
    void loop() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (bool more = true; more;) {
            changed_.wait(lock, [this] { return due_; });
            more = work_ != nullptr;
            if (more)
                work_();
            due_ = false;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> work_;
    bool due_ = false;
    std::thread thread_{[this] { loop(); }};
};

void *filled(hak_arena *arena, size_t size) {
    void *block = hak_arena_malloc(arena, size);
    EXPECT_NE(block, nullptr);
    memset(block, 0x5a, size);
    return block;
}

TEST_F(Arena, ServesAllSizesAndKnowsItsBlocks) {
    void *elsewhere = hak_malloc(100);
    EXPECT_EQ(hak_arena_of(elsewhere), nullptr);
    EXPECT_EQ(hak_arena_of(&arena_), nullptr);
    Blocks made;
    for (size_t size : kSizes) {
        void *block = filled(arena_, size);
        EXPECT_GE(hak_usable_size(block), size);
        EXPECT_EQ(hak_arena_of(block), arena_) << size;
        made.emplace(block, hak_usable_size(block));
    }
    EXPECT_EQ(blocks_of(arena_), made);
    for (auto &[block, size] : made)
        hak_free(block);
    EXPECT_TRUE(blocks_of(arena_).empty());
    hak_free(elsewhere);
}

TEST_F(Arena, CallocIsClearAndChecksTheProduct) {
    for (size_t size : kSizes) {
        hak_free(filled(arena_, size));
        auto *block = static_cast<unsigned char *>(hak_arena_calloc(arena_, size, 1));
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(block[i], 0);
        hak_free(block);
    }
    volatile size_t huge = SIZE_MAX / 2;
    errno = 0;
    EXPECT_EQ(hak_arena_calloc(arena_, huge, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(Arena, AlignsAndRefusesWhatIsNoPowerOfTwo) {
    for (size_t alignment = 1; alignment <= 4 << 20; alignment *= 2)
        for (size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{70000}, size_t{3} << 20}) {
            void *block = hak_arena_aligned_alloc(arena_, alignment, size);
            ASSERT_NE(block, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
            EXPECT_EQ(hak_arena_of(block), arena_);
            memset(block, 1, size);
        }
    volatile size_t three = 3;
    errno = 0;
    EXPECT_EQ(hak_arena_aligned_alloc(arena_, three, 10), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Arena, ReallocStaysInTheArenaOrMovesThere) {
    auto *block = static_cast<char *>(hak_arena_strdup(arena_, "contents"));
    for (size_t size : {20, 3000, 100000, 3 << 20, 9 << 20, 500, 16}) {
        block = static_cast<char *>(hak_realloc(block, size));
        ASSERT_NE(block, nullptr);
        EXPECT_STREQ(block, "contents");
        EXPECT_EQ(hak_arena_of(block), arena_) << size;
    }
    auto *outside = static_cast<char *>(hak_malloc(100));
    strcpy(outside, "moves");
    outside = static_cast<char *>(hak_arena_realloc(arena_, outside, 200));
    EXPECT_STREQ(outside, "moves");
    EXPECT_EQ(hak_arena_of(outside), arena_);
    EXPECT_EQ(hak_arena_realloc(arena_, outside, 0), nullptr);
    void *fresh = hak_arena_realloc(arena_, nullptr, 10);
    EXPECT_EQ(hak_arena_of(fresh), arena_);
    void *grown = hak_arena_realloc(arena_, hidden(hak_malloc(0)), 300); /* in secure mode a block without bytes */
    EXPECT_EQ(hak_arena_of(grown), arena_);
    EXPECT_EQ(hak_arena_realloc(arena_, hak_malloc(100), 0), nullptr);
    void *shrunk = hak_arena_realloc(arena_, hak_malloc(100), 1);
    EXPECT_EQ(hak_arena_of(shrunk), arena_);
    EXPECT_EQ(blocks_of(arena_).size(), 4u);
}

TEST_F(Arena, ArenasAndTheProcessShareNoSuperSlab) {
    std::map<uintptr_t, hak_arena *> owner;
    hak_arena *other = hak_arena_new(nullptr);
    std::vector<void *> process;
    for (int i = 0; i < 3000; i++)
        for (hak_arena *arena : {arena_, other, static_cast<hak_arena *>(nullptr)}) {
            size_t size = kSizes[static_cast<size_t>(i) % 11];
            void *block = arena != nullptr ? filled(arena, size) : hak_malloc(size);
            if (arena == nullptr)
                process.push_back(block);
            auto [place, is_new] = owner.emplace(reinterpret_cast<uintptr_t>(block) >> 21, arena);
            ASSERT_EQ(place->second, arena);
            ASSERT_EQ(hak_arena_of(block), arena);
        }
    for (void *block : process)
        hak_free(block);
    hak_arena_destroy(other);
}

/* The process's hints may still lead to a SuperSlab that is the arena's by now. */
TEST_F(Arena, TheProcessTakesNoDenseBlocksFromAnArena) {
    const size_t size = 1000, count = 12 * kMiB / size;
    std::vector<void *> blocks(count);
    Worker().run([&] {
        for (void *&block : blocks)
            block = hak_malloc(size);
        for (size_t i = 0; i < count; i += 2)
            hak_free(std::exchange(blocks[i], nullptr));
    }); /* the thread ends, and its slabs are on offer */
    for (void *block : blocks)
        hak_free(block);
    hak_trim();
    for (size_t i = 0; i < count; i++) {
        void *block = filled(arena_, size);
        if (i % 3 == 0)
            hak_free(block);
    }
    size_t live = blocks_of(arena_).size(); /* and all slabs of the arena are on offer there */
    blocks.clear();
    for (size_t i = 0; i < count / 4; i++) {
        void *block = hak_malloc_dense(size);
        memset(block, 0x11, size);
        ASSERT_EQ(hak_arena_of(block), nullptr) << "block " << i;
        blocks.push_back(block);
    }
    EXPECT_EQ(blocks_of(arena_).size(), live);
    remake();
    for (size_t i = 0; i < count; i++)
        filled(arena_, size);
    for (void *block : blocks) {
        EXPECT_EQ(static_cast<unsigned char *>(block)[size - 1], 0x11);
        hak_free(block);
    }
}

TEST_F(Arena, AnyThreadFrees) {
    Worker worker;
    for (int round = 0; round < 3; round++) {
        std::vector<void *> blocks;
        for (int i = 0; i < 20000; i++)
            blocks.push_back(filled(arena_, kSizes[static_cast<size_t>(i) % 12]));
        size_t used = stats_of(arena_).used_bytes;
        worker.run([&] {
            if (round == 1) /* it has a heap of its own in the arena from now on */
                filled(arena_, 5);
            for (void *block : blocks)
                hak_free(block);
        });
        EXPECT_LT(stats_of(arena_).used_bytes, used / 2);
    }
    EXPECT_EQ(blocks_of(arena_).size(), 1u);
}

TEST_F(Arena, DestroyReachesThreadsThatOnlyHaveCaches) {
    Worker a, b;
    for (int round = 0; round < 50; round++) {
        for (Worker *worker : {&a, &b})
            worker->run([&] {
                std::vector<void *> blocks;
                for (int i = 0; i < 200; i++)
                    blocks.push_back(filled(arena_, kSizes[static_cast<size_t>(i) % 11]));
                for (size_t i = 0; i < blocks.size(); i += 2)
                    hak_free(blocks[i]);
            });
        if (round % 2 == 0)
            b.run([&] { remake(); });
        else
            remake();
        ASSERT_TRUE(blocks_of(arena_).empty());
        ASSERT_EQ(stats_of(arena_).used_bytes, 0u);
    }
}

TEST_F(Arena, AThreadMayEndBeforeOrAfterTheArena) {
    for (int round = 0; round < 20; round++) {
        {
            Worker before;
            before.run([&] { hak_free(filled(arena_, 100)), filled(arena_, 3000); });
        }
        size_t heaps = stats_of(arena_).heaps;
        Worker after;
        after.run([&] { hak_free(filled(arena_, 100)), filled(arena_, 70000); });
        EXPECT_EQ(stats_of(arena_).heaps, heaps); /* that of the ended thread */
        EXPECT_EQ(blocks_of(arena_).size(), 2u);
        remake();
    }
}

TEST_F(Arena, EndedThreadsLeaveTheirBlocksUsable) {
    std::vector<char *> blocks;
    std::thread([&] {
        for (int i = 0; i < 1000; i++)
            blocks.push_back(hak_arena_strdup(arena_, "kept"));
    }).join();
    for (char *block : blocks) {
        EXPECT_STREQ(block, "kept");
        hak_free(block);
    }
    EXPECT_TRUE(blocks_of(arena_).empty());
}

TEST_F(Arena, TenThousandInTurnDoNotGrow) {
    size_t first = 0;
    for (int i = 0; i < times(10000); i++) {
        filled(arena_, 100), filled(arena_, 5000), filled(arena_, 2 << 20);
        remake();
        if (i == 5)
            first = process_rss_bytes();
    }
    if (kShorter == 1) /* a sanitizer's own memory would be counted */
        EXPECT_LT(process_rss_bytes(), first + 8 * kMiB);
}

TEST_F(Arena, MoreInTurnThanThereMayBeAtOnce) {
    for (int i = 0; i < 70000; i++)
        remake();
    EXPECT_NE(arena_, nullptr);
}

TEST_F(Arena, ThousandAtOnceAreApart) {
    std::vector<std::pair<hak_arena *, char *>> all;
    for (int i = 0; i < 1000; i++) {
        hak_arena *arena = hak_arena_new(nullptr);
        all.emplace_back(arena, hak_arena_strdup(arena, std::to_string(i).c_str()));
    }
    for (size_t i = 0; i < all.size(); i += 2)
        hak_arena_destroy(all[i].first);
    for (size_t i = 1; i < all.size(); i += 2) {
        EXPECT_EQ(all[i].second, std::to_string(i));
        EXPECT_EQ(blocks_of(all[i].first).size(), 1u);
        hak_arena_destroy(all[i].first);
    }
}

TEST_F(Arena, ACopyOfATextIsNoLonger) {
    char *block = hak_arena_strdup(arena_, "15 bytes and 0.");
    EXPECT_EQ(hak_usable_size(block), 16U);
    EXPECT_STREQ(block, "15 bytes and 0.");
}

/* Else a program that makes too many writes to an address that is none, or finds its errno changed by a malloc. */
TEST_F(Arena, AreRefusedWhenThereIsNoPlaceForMore) {
    std::vector<hak_arena *> all;
    errno = 0;
    for (hak_arena *arena; all.size() <= UINT16_MAX && (arena = hak_arena_new(nullptr)) != nullptr;)
        all.push_back(arena);
    EXPECT_LE(all.size(), size_t{UINT16_MAX});
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    void *block = hak_alloc_site(100, 0, HAK_POLICY_COLD);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(errno, 0) << "the lane is an arena, too";
    hak_free(block);
    for (hak_arena *arena : all)
        hak_arena_destroy(arena);
}

TEST_F(Arena, ReleaseHandsTheBlocksOver) {
    Worker worker;
    std::vector<void *> blocks;
    auto allocate = [&] {
        for (int i = 0; i < 420; i++)
            blocks.push_back(filled(arena_, kSizes[static_cast<size_t>(i) % 14]));
        for (int i = 0; i < 420; i += 3)
            hak_free(filled(arena_, kSizes[static_cast<size_t>(i) % 14]));
    };
    allocate();
    worker.run(allocate);
    hak_arena_release(arena_);
    arena_ = nullptr;
    for (size_t i = 0; i < blocks.size(); i++) {
        EXPECT_EQ(hak_arena_of(blocks[i]), nullptr);
        size_t size = kSizes[i % 14];
        for (size_t at = 0; at < size; at += 4096)
            ASSERT_EQ(static_cast<char *>(blocks[i])[at], 0x5a);
        hak_free(blocks[i]);
    }
    for (size_t size : kSizes)
        hak_free(hak_malloc(size));
}

TEST_F(Arena, TheLimitIsKept) {
    hak_arena_options options = {"small", kMiB, nullptr, nullptr};
    hak_arena *small = hak_arena_new(&options);
    for (size_t size : kSizes) {
        std::vector<void *> blocks;
        errno = 0;
        for (void *block; (block = hak_arena_malloc(small, size)) != nullptr;) {
            blocks.push_back(block);
            ASSERT_LE(stats_of(small).used_bytes, kMiB);
        }
        EXPECT_EQ(errno, ENOMEM);
        if (size >= 16 && size < kMiB / 4) /* in secure mode a block of one byte is said to have one */
            EXPECT_GT(blocks.size() * hak_usable_size(blocks[0]), kMiB / 4) << size;
        void *outside = hak_malloc(size);
        EXPECT_NE(outside, nullptr);
        hak_free(outside);
        for (void *block : blocks)
            hak_free(block);
    }
    EXPECT_GT(stats_of(small).refusals, 0u);
    EXPECT_LE(stats_of(small).peak_bytes, kMiB);
    EXPECT_EQ(stats_of(small).limit_bytes, kMiB);
    hak_arena_destroy(small);
}

TEST_F(Arena, TheCallbackMakesRoom) {
    struct State {
        std::vector<void *> blocks;
        int calls = 0;
    } state;
    hak_arena_options options = {"cache", kMiB,
                                 [](hak_arena *arena, size_t size, void *argument) {
                                     auto *s = static_cast<State *>(argument);
                                     EXPECT_EQ(size, 100000u);
                                     s->calls++;
                                     if (s->blocks.empty())
                                         return 0;
                                     EXPECT_EQ(hak_arena_of(s->blocks.back()), arena);
                                     hak_free(s->blocks.back());
                                     s->blocks.pop_back();
                                     return 1;
                                 },
                                 &state};
    hak_arena *cache = hak_arena_new(&options);
    for (int i = 0; i < 100; i++)
        state.blocks.push_back(filled(cache, 100000));
    EXPECT_GT(state.calls, 50);
    EXPECT_LT(state.blocks.size(), 11u);
    hak_arena_destroy(cache);
}

/* Else no parser reads the statistics. */
TEST_F(Arena, NamesThatAreCutOffStayUtf8) {
    std::string name = std::string(46, 'a') + "\u00fc";
    hak_arena_options options = {name.c_str(), kMiB, nullptr, nullptr};
    hak_arena *named = hak_arena_new(&options);
    EXPECT_NE(heap_stats_text().find('"' + std::string(46, 'a') + "?\""), std::string::npos);
    hak_arena_destroy(named);
    for (const char *text :
         {"\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff", "?\x80?\xbf?\xc0?\x80?\xc1?\xbf?\xc2?\xdf",
          "?\xe0?\x9f?\xbf?\xed?\xa0?\x80?\xe2?\x82 ?\xe2", "?\xf0?\x8f?\xbf?\xbf?\xf4?\x90?\x80?\x80?\xf5",
          "?\xf0?\x9f?\x98z?\xff\001\n\t"}) {
        std::string given, wanted; /* each byte that is wrong follows a question mark */
        for (const char *at = text; *at != '\0'; at++)
            if (*at == '?')
                given += *++at, wanted += '?';
            else
                given += *at, wanted += *at < ' ' && *at > 0 ? ' ' : *at;
        options.name = given.c_str();
        hak_arena *odd = hak_arena_new(&options);
        EXPECT_NE(heap_stats_text().find('"' + wanted + '"'), std::string::npos) << wanted;
        hak_arena_destroy(odd);
    }
}

TEST_F(Arena, StatisticsNameTheArenas) {
    hak_arena_options options = {"name \"of\" a long arena, which is cut off where it is longer", 16 * kMiB, nullptr,
                                 nullptr};
    hak_arena *named = hak_arena_new(&options);
    filled(named, 3 << 20);
    Json first = heap_stats()["arenas"];
    ASSERT_EQ(first.items.size(), 2u);
    const Json &one = first.items[0]["name"].text.empty() ? first.items[1] : first.items[0];
    EXPECT_EQ(one["name"].text, std::string(options.name).substr(0, 47));
    EXPECT_EQ(one["used_bytes"].number, 4 * kMiB);
    EXPECT_EQ(one["peak_bytes"].number, 4 * kMiB);
    EXPECT_EQ(one["limit_bytes"].number, 16 * kMiB);
    hak_arena_destroy(named);
    EXPECT_EQ(heap_stats()["arenas"].items.size(), 1u);
}

TEST_F(Arena, BlocksAreCountedByClass) {
    const size_t block_bytes = in_secure_mode() ? 0 : 1152; /* whose blocks have no class */
    auto live_bytes = [=] {
        hak_class_use uses[256];
        size_t n = hak_class_uses(uses, 256), live = 0;
        for (size_t i = 0; i < n; i++)
            live += uses[i].block_bytes == block_bytes ? uses[i].live_bytes : 0;
        return live;
    };
    size_t before = live_bytes();
    for (int i = 0; i < 100; i++)
        filled(arena_, 1100);
    EXPECT_GE(live_bytes(), before + 100 * 1100);
}

/* Else slabs of some class are put where its blocks never were, before all other places. In a process of its own, in
 * which no block of 8 bytes was before. */
TEST_F(Arena, ItsLargeBlocksAreOfNoClass) {
    if (in_secure_mode())
        GTEST_SKIP() << "blocks have no class in secure mode";
    if (getenv("HAK_TEST_NO_CLASS") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=Arena.ItsLargeBlocksAreOfNoClass"},
                                   {"HAK_TEST_NO_CLASS=1", "HAKMEM_PURGE=never"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    for (int i = 0; i < 20; i++)
        filled(arena_, 300000);
    remake();
    for (size_t i = 0; i < 4 * kMiB / 8; i++)
        EXPECT_NE(hidden(hak_malloc(8)), nullptr);
    EXPECT_GT(counter("stage1_reused_empty"), 0);
    EXPECT_EQ(counter("stage1_same_class"), 0);
}

TEST_F(Arena, VisitingStopsWhenAskedTo) {
    for (int i = 0; i < 100; i++)
        filled(arena_, 64);
    int calls = 0;
    EXPECT_EQ(hak_arena_visit(
                  arena_, [](void *, size_t, void *n) { return ++*static_cast<int *>(n) == 7 ? 42 : 0; }, &calls),
              42);
    EXPECT_EQ(calls, 7);
}

TEST_F(Arena, TheDefaultTakesWhatNamesNoArena) {
    void *before = hak_malloc(100), *before_mid = hak_malloc(3000), *before_large = hak_malloc(100000);
    hak_arena *was = arena_;
    ASSERT_EQ(hak_arena_set_default(arena_, &was), 0);
    EXPECT_EQ(was, nullptr);
    for (size_t size : kSizes) {
        EXPECT_EQ(hak_arena_of(hak_malloc(size)), arena_) << size;
        EXPECT_EQ(hak_arena_of(hak_calloc(1, size)), arena_);
        EXPECT_EQ(hak_arena_of(hak_realloc(nullptr, size + 1)), arena_);
        EXPECT_EQ(hak_arena_of(hak_aligned_alloc(64, size)), arena_);
        hak_free(hak_malloc(size));
        hak_free(filled(arena_, size));
    }
    hak_arena *other = hak_arena_new(nullptr);
    EXPECT_EQ(hak_arena_of(filled(other, 100)), other);
    std::thread([&] {
        void *block = hak_malloc(10); /* each thread has its own default */
        EXPECT_EQ(hak_arena_of(block), nullptr);
        hak_free(block);
    }).join();
    std::thread([&] { /* one that ends with a default */
                      EXPECT_EQ(hak_arena_set_default(other, nullptr), 0);
                      hak_free(hak_malloc(10)), filled(other, 10);
    })
        .join();
    hak_free(before), hak_free(before_mid), hak_free(before_large);
    EXPECT_EQ(hak_arena_set_default(other, &was), 0);
    EXPECT_EQ(was, arena_);
    EXPECT_EQ(hak_arena_of(hak_malloc(1)), other);
    EXPECT_EQ(hak_arena_set_default(nullptr, &was), 0);
    EXPECT_EQ(was, other);
    before = hak_malloc(1);
    EXPECT_EQ(hak_arena_of(before), nullptr);
    hak_free(before);
    hak_arena_destroy(other);
}

TEST_F(Arena, TheCallbackHasNoDefault) {
    static int calls;
    calls = 0;
    hak_arena_options options = {"full", kMiB,
                                 [](hak_arena *, size_t, void *) {
                                     void *block = hak_malloc(2 * kMiB);
                                     EXPECT_EQ(hak_arena_of(block), nullptr);
                                     hak_free(block);
                                     calls++;
                                     return 0;
                                 },
                                 nullptr};
    hak_arena *full = hak_arena_new(&options), *was = nullptr;
    EXPECT_EQ(hak_arena_set_default(full, nullptr), 0);
    errno = 0;
    void *block = hak_malloc(2 * kMiB);
    EXPECT_EQ(block, nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(hak_arena_set_default(nullptr, &was), 0);
    EXPECT_EQ(was, full);
    hak_arena_destroy(full);
}

TEST_F(Arena, SurvivesFork) {
    Worker worker;
    worker.run([&] { filled(arena_, 100), hak_free(filled(arena_, 3000)); });
    char *block = hak_arena_strdup(arena_, "parent");
    pid_t child = fork();
    if (child == 0) {
        alarm(kChildSeconds);
        bool good = strcmp(block, "parent") == 0 && blocks_of(arena_).size() == 2;
        hak_free(block);
        for (size_t size : kSizes)
            filled(arena_, size);
        if (kShorter == 1) /* ThreadSanitizer does not let the child of a program with threads start one */
            std::thread([&] { filled(arena_, 100); }).join();
        hak_arena_destroy(arena_);
        hak_arena *next = hak_arena_new(nullptr);
        filled(next, 100);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_STREQ(block, "parent");
}

TEST_F(Arena, TrimGivesBackWhatArenasDoNotUse) {
    std::vector<void *> blocks;
    for (int i = 0; i < 300; i++)
        blocks.push_back(filled(arena_, 100000));
    size_t full = process_rss_bytes();
    for (void *block : blocks)
        hak_free(block);
    hak_trim();
    EXPECT_LT(process_rss_bytes(), full - 20 * kMiB);
    EXPECT_NE(filled(arena_, 100000), nullptr);
}

/* Does this process's core dump have the byte? */
bool is_dumped(const void *at) {
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    bool inside = false, dumped = true;
    while (file != nullptr && fgets(line, sizeof line, file) != nullptr) {
        unsigned long from = 0, to = 0;
        auto address = reinterpret_cast<uintptr_t>(at);
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= address && address < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            dumped = strstr(line, " dd") == nullptr;
    }
    if (file != nullptr)
        fclose(file);
    return dumped;
}

/* Whatever its protection; -1: nothing is mapped there. */
int byte_at(const void *address) {
    unsigned char byte = 0;
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    bool done = pread(fd, &byte, 1, static_cast<off_t>(reinterpret_cast<uintptr_t>(address))) == 1;
    close(fd);
    return done ? byte : -1;
}

class Undumped : public Arena {
  protected:
    void SetUp() override {
        Arena::SetUp();
        void *own = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_EQ(madvise(own, 4096, MADV_DONTDUMP), 0);
        bool seen = !is_dumped(own);
        munmap(own, 4096);
        if (!seen)
            GTEST_SKIP() << "the kernel does not say what dumps have";
        ASSERT_EQ(hak_arena_no_dump(arena_), 0);
    }
    void allocate(std::vector<char *> &blocks) {
        for (size_t size : kSizes)
            for (int i = 0; i < 3; i++)
                blocks.push_back(static_cast<char *>(filled(arena_, size + 1)));
        for (char *block : blocks)
            for (const char *at : {block, block + hak_usable_size(block) - 1})
                EXPECT_FALSE(is_dumped(at)) << hak_usable_size(block);
    }
};

/* Else a crash report has the program's keys. */
TEST_F(Undumped, NoDumpHasTheBlocks) {
    std::vector<char *> blocks, more;
    allocate(blocks);
    void *process = malloc(100);
    EXPECT_TRUE(is_dumped(process));
    for (char *block : blocks)
        hak_free(block);
    hak_trim(); /* the memory is mapped anew, some of it */
    allocate(more);
    Worker worker;
    worker.run([&] { allocate(more); });
    free(process);
}

/* Else dumps lack what others allocate there, or have what it held. */
TEST_F(Undumped, ItsEndClearsTheMemoryAndShowsIt) {
    std::vector<char *> blocks;
    allocate(blocks);
    remake();
    for (char *block : blocks) {
        EXPECT_TRUE(is_dumped(block));
        EXPECT_NE(byte_at(block + 1), 0x5a);
    }
}

TEST_F(Undumped, ReleasedBlocksAreInDumps) {
    std::vector<char *> blocks;
    allocate(blocks);
    hak_arena_release(arena_);
    arena_ = hak_arena_new(nullptr);
    for (char *block : blocks) {
        EXPECT_TRUE(is_dumped(block));
        EXPECT_EQ(*block, 0x5a);
        hak_free(block);
    }
}

TEST_F(Undumped, ComesBeforeTheFirstBlock) {
    EXPECT_EQ(hak_arena_no_dump(arena_), 0);
    filled(arena_, 10);
    EXPECT_EQ(hak_arena_no_dump(arena_), EBUSY);
    EXPECT_TRUE(is_dumped(filled(remake(), 10))) << "another arena's wish";
    EXPECT_EQ(hak_arena_no_dump(arena_), EBUSY);
}

using ArenaDeath = Arena;

TEST_F(ArenaDeath, HandlesOfDestroyedArenasAreReported) {
    void *p = nullptr;
    hak_arena *gone = hak_arena_new(nullptr);
    filled(gone, 10);
    hak_arena_destroy(gone);
    const char *line =
        "hakmem: hak_arena_[a-z_]* with 0x[0-9a-f]*, which is no arena, or one that was destroyed or released";
    std::vector<hak_arena *> others; /* one of them gets this thread's heap, which the thread has noted for `gone` */
    auto entry_of = [](hak_arena *arena) { return reinterpret_cast<uintptr_t>(arena) % 256; };
    for (int i = 0; i < 100; i++) {
        others.push_back(hak_arena_new(nullptr));
        if (entry_of(others.back()) != entry_of(gone))
            filled(others.back(), 10);
    }
    EXPECT_DEATH(p = hak_arena_malloc(gone, 10), line);
    for (; !others.empty(); others.pop_back())
        hak_arena_destroy(others.back());
    hak_arena *next = hak_arena_new(nullptr); /* of the same number, as the first of the others was */
    filled(next, 10);
    EXPECT_DEATH(p = hak_arena_malloc(gone, 10), line);
    EXPECT_DEATH(p = hak_arena_calloc(gone, 10, 1000), line);
    EXPECT_DEATH(hak_arena_destroy(gone), line);
    EXPECT_DEATH(hak_arena_release(gone), line);
    EXPECT_DEATH(hak_arena_set_default(gone, nullptr), line);
    EXPECT_DEATH(p = hak_arena_malloc(nullptr, 10), line);
    EXPECT_DEATH(p = hak_arena_malloc(reinterpret_cast<hak_arena *>(&line), 10), line);
    hak_arena_destroy(next);
    hak_arena_destroy(nullptr);
    EXPECT_EQ(p, nullptr);
}

TEST_F(ArenaDeath, MisusedBlocksAreReported) {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); /* in a process that has no purger of an earlier test */
    for (size_t size : {size_t{48}, size_t{3000}, size_t{100000}}) {
        auto *block = static_cast<char *>(filled(arena_, size));
        EXPECT_DEATH(hak_free(block + 8), "hakmem: invalid free of .*inside a [0-9]*-byte block") << size;
        EXPECT_DEATH((hak_free(block), hak_free(block)), "hakmem: double free of ") << size;
        EXPECT_DEATH((hak_free(block), std::thread([=] { hak_free(block); }).join()), "hakmem: double free of ")
            << size;
        EXPECT_DEATH((std::thread([=] { hak_free(block); }).join(), hak_free(block)),
                     "hakmem: (double|invalid) free of ")
            << size;
    }
    auto *gone = static_cast<char *>(filled(arena_, 48));
    remake();
    EXPECT_DEATH(hak_free(gone), "hakmem: invalid free of ");
}

} // namespace
