/* The tuned constants: every one takes what its range allows and nothing else, and has an effect. If one fails, a user,
 * or a policy, sets a constant of a running program, gets a success, and nothing changes, or the heap breaks. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <map>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

std::string get(const std::string &name) {
    char value[4096] = "";
    hak_option_get(name.c_str(), value, sizeof value);
    return value;
}

int set(const std::string &name, uint64_t value) { return hak_option_set(name.c_str(), std::to_string(value).c_str()); }

void reset() {
    for (unsigned i = 0; i < inside_tunables; i++)
        set(inside_tunable_at(i).name, inside_tunable_at(i).initial);
}

/* ---- setting ---- */

TEST(Tunables, TakeTheirRangeAndNothingElse) {
    for (unsigned i = 0; i < inside_tunables; i++) {
        inside_option t = inside_tunable_at(i);
        EXPECT_EQ(get(t.name), std::to_string(t.initial)) << t.name;
        for (uint64_t value : {t.min, t.max}) {
            EXPECT_EQ(set(t.name, value), 0) << t.name;
            EXPECT_EQ(get(t.name), std::to_string(value));
        }
        EXPECT_EQ(set(t.name, t.max + 1), EINVAL) << t.name;
        EXPECT_EQ(set(t.name, t.min - 1), EINVAL) << t.name; /* 2^64 - 1 where it is 0 */
        EXPECT_EQ(hak_option_set(t.name, "many"), EINVAL) << t.name;
        EXPECT_EQ(get(t.name), std::to_string(t.max)) << "a refused value changes nothing";
    }
    reset();
}

TEST(Tunables, OneClassHasItsOwnValue) {
    EXPECT_EQ(set("carve_bytes:100", 512), 0);
    EXPECT_EQ(get("carve_bytes"), "4096,112:512") << "the class that serves 100 bytes";
    EXPECT_EQ(get("carve_bytes:112"), "512");
    EXPECT_EQ(get("carve_bytes:113"), "4096");
    EXPECT_EQ(set("carve_bytes:1024", 2048), 0);
    EXPECT_EQ(get("carve_bytes"), "4096,112:512,1024:2048") << "the largest of the tiny blocks";
    EXPECT_EQ(set("ring_blocks:1m", 2), 0);
    EXPECT_EQ(set("ring_blocks:3000", 32), 0);
    EXPECT_EQ(get("ring_blocks"), "1024,3072:32,1048576:2");
    for (const char *wrong : {"carve_bytes:3000", "ring_blocks:100", "ring_blocks:2m", "carve_bytes:", "carve_bytes:x",
                              "owned_slabs:100", "owned_slabs:"})
        EXPECT_EQ(set(wrong, 100), EINVAL) << wrong;
    reset();
    EXPECT_EQ(get("ring_blocks"), "1024");
}

/* If it fails, what a program reads is no value that it can set. */
TEST(Tunables, AllSizesThatAreListedAreServed) {
    EXPECT_EQ(set("ring_blocks:1025", 7), 0); /* so that all others are listed */
    std::string listed = get("ring_blocks");
    ASSERT_EQ(listed.rfind("7,1280:1024,", 0), 0u) << listed;
    size_t before = 0;
    for (size_t at = listed.find(','); at != std::string::npos; at = listed.find(',', at + 1)) {
        size_t bytes = strtoul(listed.c_str() + at + 1, nullptr, 10);
        EXPECT_GT(bytes, before) << listed;
        EXPECT_EQ(get("ring_blocks:" + std::to_string(bytes)), "1024") << listed;
        before = bytes;
    }
    EXPECT_EQ(before, kMiB);
    reset();
}

TEST(Tunables, TheEnvironmentSetsThem) {
    Outcome outcome =
        run_self({"--print", "carve_bytes"}, {"HAKMEM_TUNE=owned_slabs=3,carve_bytes=64;carve_bytes:64=1k"});
    EXPECT_EQ(outcome.out, "64,64:1024\n");
    EXPECT_EQ(outcome.err, "");
}

TEST(Tunables, EachWrongPartPrintsOneLine) {
    const std::map<std::string, std::string> lines = {
        {"carve_byte=1", ": no such tunable (docs/options.md lists them); ignored"},
        {"carve_bytes=1", ": expected 64 to 65536 bytes; ignored"},
        {"carve_bytes", ": expected 64 to 65536 bytes; ignored"},
        {"carve_bytes:3000=64", ": carve_bytes has no value for this size; ignored"},
        {"owned_slabs:8=64", ": owned_slabs has no value for this size; ignored"},
    };
    for (auto &[part, line] : lines) {
        Outcome outcome = run_self({"--print", "owned_slabs"}, {"HAKMEM_TUNE=" + part + ",owned_slabs=7"});
        EXPECT_EQ(outcome.out, "7\n");
        EXPECT_EQ(outcome.err, "hakmem: HAKMEM_TUNE=" + part + line + "\n");
    }
}

TEST(Tunables, ALineBreakDoesNotBreakTheLine) {
    Outcome outcome = run_self({"--print", "owned_slabs"}, {"HAKMEM_TUNE=a\nb\x1b[2J=1"});
    EXPECT_EQ(outcome.err, "hakmem: HAKMEM_TUNE=a?b?[2J=1: no such tunable (docs/options.md lists them); ignored\n");
}

/* ---- rings ---- */

/* A heap whose memory is used up gets no ring, however small. */
TEST(Tunables, ARingOfOneBlockNeedsMemoryToo) {
    std::thread([] {
        hak_free(hak_malloc(1));
        set("ring_blocks", 1);
        EXPECT_FALSE(inside_full_heap_gets_ring());
    }).join();
    reset();
}

/* ---- effects ---- */

using Blocks = std::vector<void *>;

Blocks allocate(size_t count, size_t bytes) {
    Blocks blocks(count);
    for (void *&block : blocks)
        block = memset(hak_malloc(bytes), 1, bytes);
    return blocks;
}
void free_all(const Blocks &blocks, size_t step = 1) {
    for (size_t i = 0; i < blocks.size(); i += step)
        hak_free(blocks[i]);
}

/* Replaces blocks at random. */
void replace(size_t count, size_t bytes, int times) {
    Random random(1);
    Blocks blocks = allocate(count, bytes);
    for (int i = 0; i < times; i++) {
        void *&block = blocks[random.below(count)];
        hak_free(block);
        block = hak_malloc(bytes);
    }
    free_all(blocks);
}

void fill_rings(size_t count, size_t bytes) {
    for (int round = 0; round < 20; round++)
        free_all(allocate(count, bytes));
}

void frees_of_another_thread() {
    Blocks blocks = allocate(6000, 512);
    std::thread([&] { free_all(blocks); }).join();
}

struct Effect {
    const char *tunable;
    uint64_t less, more;
    const char *counter; /* grows faster with `more` */
    void (*work)();
};

long grown(const Effect &e, uint64_t value) {
    EXPECT_EQ(set(e.tunable, value), 0) << e.tunable;
    e.work();
    long before = counter(e.counter);
    e.work();
    return counter(e.counter) - before;
}

TEST(Tunables, HaveAnEffect) {
    if (in_secure_mode())
        GTEST_SKIP() << "other tiers";
    static std::vector<Blocks> kept;
    const std::vector<Effect> effects = {
        {"shrunk_slots", 1000000, 16, "rings_emptied", [] { fill_rings(600, 8000); }}, /* before there is a purger */
        {"carve_bytes", 16384, 1024, "refill_by_carving", [] { kept.push_back(allocate(4000, 256)); }},
        {"reuse_frees", 512, 1, "refill_from_partial", [] { replace(20000, 64, 50000); }},
        {"kept_slabs", 8, 0, "slabs_let_go", [] { replace(1000, 1024, 20000); }},
        {"ring_blocks", 1024, 8, "ring_refills", [] { fill_rings(200, 3000); }},
        {"refill_percent", 100, 1, "ring_refills", [] { kept.push_back(allocate(2000, 2000)); }},
        {"spill_percent", 100, 10, "ring_spills", [] { fill_rings(600, 8000); }},
        {"batch_blocks", 128, 4, "outbox_batches", frees_of_another_thread},
        {"ring_min_blocks", 512, 1, "ring_spills", [] { free_all(allocate(2000, 16000)); }},
        {"ring_spills", 255, 1, "ring_spills", [] { free_all(allocate(2000, 4000)); }},
        {"large_ring_percent", 100, 0, "large_spans", [] { fill_rings(12, 200 * kKiB); }},
    };
    hak_option_set("PURGE", "eager"); /* so that no large block stays beyond its share of rings */
    for (auto &e : effects) {
        long less = grown(e, e.less), more = grown(e, e.more);
        EXPECT_GT(more, less + 1) << e.tunable << ": " << e.counter;
        reset();
    }
}

/* Whatever the values, the heap works. */
TEST(Tunables, EveryValueIsSafe) {
    Random random(7);
    for (int round = 0; round < times(40); round++) {
        for (unsigned i = 0; i < inside_tunables; i++) {
            inside_option t = inside_tunable_at(i);
            uint64_t between = t.min + random.below(t.max - t.min + 1);
            set(t.name, random.below(3) == 0 ? t.min : random.below(2) == 0 ? t.max : between);
        }
        Blocks blocks(600);
        for (int i = 0; i < 6000; i++) {
            void *&block = blocks[random.below(blocks.size())];
            hak_free(block);
            size_t bytes = random.log_size(i % 50 == 0 ? 20 : 13);
            block = hak_malloc(bytes);
            ASSERT_NE(block, nullptr);
            memset(block, i, bytes);
        }
        std::thread([&] { free_all(blocks, 2); }).join();
        for (size_t i = 1; i < blocks.size(); i += 2)
            hak_free(blocks[i]);
    }
    reset();
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (argc > 2 && std::string(argv[1]) == "--print") {
        printf("%s\n", get(argv[2]).c_str());
        return 0;
    }
    return RUN_ALL_TESTS();
}
