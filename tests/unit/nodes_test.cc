/* Several NUMA nodes, as HAKMEM_NUMA pretends them on any machine. If it fails, a thread works in memory of another
 * node although its own has some: each access that misses the caches takes twice as long; or memory that is free on one
 * node is lost to the others, and a program runs out of memory while half of it is free.
 *
 * Each case is a process of its own with two nodes, and again with four. The test's own sched_getcpu says on which
 * processor a thread runs, as processor N is on node N modulo the nodes. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

static thread_local int processor;
/* Stands in for libc's. */
extern "C" int sched_getcpu() noexcept { return processor; }

namespace {

constexpr size_t kSlot = 64 * kKiB, kPerSuperSlab = INSIDE_SUPERSLAB_SLOTS;

void go_to(unsigned node) { processor = static_cast<int>(node + 8 * inside_nodes()); }

/* In a new thread of that node, which ends. */
void on_node(unsigned node, const std::function<void()> &body) {
    std::thread([&] {
        go_to(node);
        body();
    }).join();
}

/* ---- slots and runs, by a client that is wherever the thread is ---- */

struct Client {
    void *client = inside_pool_client_new();
    ~Client() { inside_pool_client_delete(client); }

    size_t take(unsigned slots = 1) {
        int zero = 0;
        size_t slot = inside_pool_take(client, slots, 1, 0, &zero);
        if (slot != inside_no_slot)
            memset(inside_slot_address(slot), 1, slots * kSlot);
        return slot;
    }
    std::vector<size_t> take_many(size_t n) {
        std::vector<size_t> slots;
        for (size_t i = 0; i < n; i++) {
            slots.push_back(take());
            MUST(slots.back() != inside_no_slot, "no memory");
        }
        return slots;
    }
    /* They become EMPTY. */
    void give(const std::vector<size_t> &slots) {
        for (size_t slot : slots)
            inside_pool_give(client, slot, 1, 0);
        inside_pool_settle(client);
    }
    size_t take_run(size_t superslabs) {
        int zero = 0;
        return inside_pool_take_run(client, superslabs, 2 * kMiB, &zero);
    }
    void give_run(size_t first, size_t superslabs) { inside_pool_give_run(client, first, superslabs, 1); }
    void purge() {
        inside_pool_settle(client);
        inside_pool_purge(client, 0);
    }
};

std::set<size_t> set_of(const std::vector<size_t> &slots) { return {slots.begin(), slots.end()}; }

void must_lie_on(const std::vector<size_t> &slots, unsigned node) {
    for (size_t slot : slots)
        MUST(inside_node_of_slot(slot) == node, "slot %zu lies on node %u, not on %u", slot, inside_node_of_slot(slot),
             node);
}

void empty_slots_stay_with_their_node() {
    Client c;
    std::vector<std::vector<size_t>> had;
    for (unsigned node = 0; node < inside_nodes(); node++) {
        go_to(node);
        had.push_back(c.take_many(40));
        must_lie_on(had[node], node);
    }
    for (auto &slots : had) { /* one slot keeps each SuperSlab in use */
        slots.erase(slots.begin()), slots.pop_back();
        c.give(slots);
    }
    for (unsigned node = 0; node < inside_nodes(); node++) {
        go_to(node);
        auto again = c.take_many(had[node].size());
        must_lie_on(again, node);
        MUST(set_of(again) == set_of(had[node]), "node %u has other EMPTY slots now", node);
    }
}

void unused_slots_stay_with_their_node() {
    Client c;
    go_to(0);
    size_t first = c.take();
    for (unsigned node = 1; node < inside_nodes(); node++) {
        go_to(node);
        size_t slot = c.take();
        MUST(slot / kPerSuperSlab != first / kPerSuperSlab, "node %u got an UNUSED slot of node 0's SuperSlab", node);
        MUST(inside_node_of_slot(slot) == node, "it lies on node %u", inside_node_of_slot(slot));
    }
    go_to(0);
    MUST(c.take() == first + 1, "node 0 has UNUSED slots there");
}

void cached_superslabs_stay_until_they_are_purged() {
    Client c;
    go_to(0);
    auto had = c.take_many(2 * kPerSuperSlab);
    c.give(had);
    MUST(inside_pool_cached() == 2, "%zu SuperSlabs are cached", inside_pool_cached());
    go_to(1);
    size_t other = c.take();
    MUST(set_of(had).count(other) == 0, "node 1 got a cached slot of node 0");
    c.purge();
    MUST(inside_pool_cached() == 0, "%zu SuperSlabs are cached", inside_pool_cached());
    auto more = c.take_many(3 * kPerSuperSlab - 1);
    must_lie_on(more, 1);
    auto all = set_of(more);
    for (size_t slot : had)
        MUST(all.count(slot) == 1, "slot %zu, which was purged, does not serve node 1", slot);
    go_to(0);
    size_t last = c.take();
    MUST(inside_node_of_slot(last) == 0 && all.count(last) == 0, "node 0 has no SuperSlab left");
}

void what_only_another_node_caches_is_purged() {
    Client c;
    go_to(1);
    c.give(c.take_many(2 * kPerSuperSlab));
    MUST(inside_pool_cached() == 2, "%zu SuperSlabs are cached", inside_pool_cached());
    c.purge();
    MUST(inside_pool_cached() == 0, "%zu SuperSlabs are cached", inside_pool_cached());
}

void runs_stay_until_they_are_purged() {
    Client c;
    go_to(0);
    size_t first = c.take_run(3);
    memset(inside_slot_address(first * kPerSuperSlab), 1, 6 * kMiB);
    c.give_run(first, 3);
    go_to(1);
    size_t other = c.take_run(2);
    MUST(other >= first + 3, "node 1 got node 0's run");
    MUST(inside_node_of_slot(other * kPerSuperSlab) == 1, "its run lies elsewhere");
    MUST(!inside_pool_extend_run(c.client, first, 0, 1), "node 1 grew into node 0's run");
    go_to(0);
    MUST(c.take_run(3) == first, "node 0 has a cached run");
    c.give_run(first, 3);
    c.purge();
    go_to(1);
    MUST(c.take_run(3) == first, "a purged run serves any node");
    MUST(inside_node_of_slot(first * kPerSuperSlab) == 1, "it does not know its new node");
}

/* Each node's sets have upper levels, which get memory as the heap grows. */
void nodes_have_many_superslabs() {
    constexpr size_t kMany = 40000;
    Client c;
    for (unsigned node = 1; node < inside_nodes(); node++) {
        go_to(node);
        size_t first = c.take_run(kMany);
        MUST(first != inside_no_slot, "no memory");
        c.give_run(first, kMany);
        MUST(c.take_run(kMany) == first, "node %u has a cached run", node);
    }
}

/* The node is looked up each time. */
void a_thread_that_moves_takes_from_where_it_is() {
    Client c;
    std::vector<size_t> slots;
    for (unsigned i = 0; i < 300; i++) {
        unsigned node = i * 7 % inside_nodes();
        go_to(node);
        slots.push_back(c.take());
        must_lie_on({slots.back()}, node);
        if (i % 3 == 0) {
            c.give({slots[i / 2]});
            slots[i / 2] = slots.back();
            slots.pop_back();
            slots.push_back(c.take());
            must_lie_on({slots.back()}, node);
        }
    }
}

/* What any node has is better than none. The region has 128 SuperSlabs. */
void the_last_memory_is_anybodys() {
    Client c;
    go_to(0);
    std::vector<size_t> slots;
    int zero;
    for (size_t slot; (slot = inside_pool_take(c.client, 1, 1, 0, &zero)) != inside_no_slot;)
        slots.push_back(slot);
    MUST(slots.size() >= 100 * kPerSuperSlab, "node 0 took %zu slots", slots.size());
    must_lie_on(slots, 0);
    go_to(1);
    MUST(c.take() == inside_no_slot, "there is some left");
    /* EMPTY, UNUSED and cached ones. */
    std::vector<size_t> back(slots.end() - 2 * static_cast<ptrdiff_t>(kPerSuperSlab), slots.end());
    for (size_t i = 0; i < kPerSuperSlab * 4; i += 4)
        back.push_back(slots[i]);
    for (size_t i = 0; i < back.size(); i++)
        i % 5 == 1 ? inside_pool_give_purged(c.client, back[i], 1) : inside_pool_give(c.client, back[i], 1, 0);
    inside_pool_settle(c.client);
    std::vector<size_t> got;
    for (size_t slot; (slot = inside_pool_take(c.client, 1, 1, 0, &zero)) != inside_no_slot;)
        got.push_back(slot);
    MUST(set_of(got) == set_of(back), "node 1 got %zu of %zu slots that were free", got.size(), back.size());
    /* Runs, too. */
    for (size_t slot : back)
        inside_pool_give(c.client, slot, 1, 0);
    inside_pool_settle(c.client);
    go_to(inside_nodes() - 1);
    MUST(c.take_run(2) != inside_no_slot, "there are two SuperSlabs");
}

/* Free memory of all nodes counts against the bounds, and is purged by their order. */
void bounds_are_the_processs() {
    Client c;
    std::vector<std::vector<size_t>> had;
    for (unsigned node = 0; node < inside_nodes(); node++) {
        go_to(node);
        had.push_back(c.take_many(2 * kPerSuperSlab));
    }
    for (auto &slots : had)
        c.give(slots);
    MUST(inside_pool_cached() == 2 * inside_nodes(), "%zu are cached", inside_pool_cached());
    MUST(hak_option_set("SS_CACHE_COUNT", "1") == 0, "no such option");
    inside_pool_settle(c.client);
    MUST(inside_pool_cached() == 1, "%zu are cached", inside_pool_cached());
    MUST(inside_pool_count().empty_slots == kPerSuperSlab, "%zu slots are EMPTY", inside_pool_count().empty_slots);
    c.purge();
    MUST(inside_pool_count().empty_slots == 0, "%zu slots are EMPTY", inside_pool_count().empty_slots);
}

/* ---- blocks ---- */

constexpr size_t kSizes[] = {48, 700, 3000, 40000, 200000, 3000000};

void must_hold(const void *block, unsigned node) {
    MUST(block != nullptr, "no memory");
    MUST(inside_node_of_block(block) == node, "a block lies on node %u, not on %u", inside_node_of_block(block), node);
}

/* Blocks of all kinds of threads that ended, and whose slabs are without owner. */
void leave_slabs_without_owner() {
    std::vector<void *> kept;
    for (size_t size : kSizes)
        on_node(0, [&] {
            std::vector<void *> blocks(size > kMiB ? 4 : 200);
            for (void *&block : blocks)
                must_hold(block = hak_malloc(size), 0);
            for (size_t i = 0; i < blocks.size(); i++)
                i % 10 == 0 ? kept.push_back(blocks[i]) : hak_free(blocks[i]);
        });
    for (size_t size : kSizes)
        on_node(1, [&] {
            for (unsigned i = 0; i < 20; i++)
                must_hold(hak_malloc(size), 1);
        });
}

void slabs_without_owner_stay_with_their_node() {
    leave_slabs_without_owner();
    long adopted = counter("slabs_adopted_by_refill");
    on_node(0, [&] {
        for (unsigned i = 0; i < 20; i++)
            must_hold(hak_malloc(700), 0);
    });
    MUST(counter("slabs_adopted_by_refill") > adopted, "node 0 left its slabs alone");
    MUST(counter("node_other") == 0, "%ld takes from another node", counter("node_other"));
    MUST(counter("node_own") > 0, "takes are not counted");
}

/* What others have freed of a slab whose owner sleeps. */
void inboxes_stay_with_their_node() {
    std::vector<void *> blocks(2000);
    go_to(0); /* the owner of the slabs */
    for (void *&block : blocks)
        must_hold(block = hak_malloc(700), 0);
    on_node(1, [&] {
        for (size_t i = 0; i < blocks.size(); i += 2)
            hak_free(blocks[i]);
    });
    on_node(1, [&] {
        for (unsigned i = 0; i < 200; i++)
            must_hold(hak_malloc(700), 1);
    });
    MUST(counter("refill_from_stale_inbox") == 0, "an inbox of node 0 served node 1");
}

/* A heap that rested has slabs of its last thread's node. */
void heaps_rest_on_their_node() {
    hak_free(hak_malloc(1)); /* two threads have a heap: once that has some size there is a purger */
    do
        on_node(0, [&] {
            while (!inside_has_purger())
                must_hold(hak_malloc(60 * kKiB), 0);
            for (size_t size : {48, 700})
                must_hold(hak_malloc(size), 0);
        });
    while (inside_heaps_at_rest() == 0);
    on_node(1, [&] {
        for (size_t size : {48, 700})
            must_hold(hak_malloc(size), 1);
    });
}

/* No block is refused while there is room for it on any node. */
void the_last_blocks_are_anybodys() {
    constexpr size_t kTried[] = {700, 3000};
    for (size_t size : kTried) {
        std::vector<void *> all, more;
        on_node(0, [&] {
            for (void *p; (p = hak_malloc(size)) != nullptr;)
                all.push_back(p);
        });
        MUST(all.size() * size > 150 * kMiB, "%zu blocks", all.size());
        on_node(0, [&] {
            for (size_t i = 0; i < all.size(); i += 3)
                hak_free(all[i]);
        });
        for (unsigned node : {1u, inside_nodes() - 1})
            on_node(node, [&] {
                for (size_t n = 0; n < all.size() / 10; n++)
                    more.push_back(hak_malloc(size));
                for (void *p : more)
                    MUST(p != nullptr, "node %u is refused one of %zu blocks of %zu bytes", node, more.size(), size);
            });
        MUST(counter("node_other") > 0, "takes are not counted");
        for (size_t i = 0; i < all.size(); i++)
            if (i % 3 != 0)
                hak_free(all[i]);
        for (void *p : more)
            hak_free(p);
        hak_trim();
    }
}

/* Near the limit memory passes from node to node by way of the kernel, or as it is where the kernel refuses. */
void hard_limit(bool locked) {
    constexpr size_t kBytes = 64 * kMiB, kBlock = 900 * kKiB;
    MUST(hak_option_set("HARD_LIMIT", std::to_string(kBytes).c_str()) == 0, "no such option");
    hak_option_set("PURGE", "never");
    hak_option_set("ring_blocks", "1");
    std::vector<void *> blocks;
    on_node(0, [&] {
        for (void *p; (p = hak_malloc(kBlock)) != nullptr; blocks.push_back(p))
            memset(p, 1, kBlock);
        if (locked)
            for (void *p : blocks)
                syscall(SYS_mlock, p, kBlock);
        for (size_t i = 0; i < blocks.size(); i++)
            hak_free(blocks[i]);
    });
    MUST(blocks.size() > 50, "%zu blocks", blocks.size());
    on_node(1, [&] {
        for (size_t i = 0; i < 40; i++) {
            void *p = hak_malloc(kBlock);
            MUST(p != nullptr, "node 1 is refused the %zu-th block", i);
            memset(p, 1, kBlock);
        }
    });
}
void a_limit_moves_memory() { hard_limit(false); }
void a_limit_with_locked_memory() { hard_limit(true); }

/* The pages stay where they were touched. If it fails, what is freed there serves the threads of another node. */
void a_block_that_moves_takes_its_pages_along() {
    go_to(0);
    void *block = memset(hak_malloc(3 * kMiB), 1, 3 * kMiB), *wall = hak_malloc(3 * kMiB);
    long moved = counter("huge_moved_pages");
    go_to(1);
    auto *grown = static_cast<char *>(hak_realloc(block, 12 * kMiB));
    must_hold(wall, 0);
    if (counter("huge_moved_pages") == moved)
        return; /* the kernel moves no pages */
    must_hold(grown, 0);
    must_hold(grown + 2 * kMiB, 0);
    must_hold(grown + 4 * kMiB, 1);
}

/* ---- the rest ---- */

void arenas_keep_nodes_apart() {
    hak_arena *arena = hak_arena_new(nullptr);
    std::vector<void *> blocks;
    for (unsigned node = 0; node < inside_nodes(); node++)
        on_node(node, [&] {
            for (size_t size : {size_t{200000}, size_t{3000000}})
                for (unsigned i = 0; i < 30; i++) {
                    blocks.push_back(hak_arena_malloc(arena, size));
                    must_hold(blocks.back(), node);
                    memset(blocks.back(), 1, size);
                }
        });
    hak_arena_destroy(arena);
    go_to(1);
    for (unsigned i = 0; i < 100; i++)
        must_hold(hak_malloc(200000), 1);
}

void the_last_memory_is_any_arenas() {
    hak_arena *arena = hak_arena_new(nullptr);
    std::vector<void *> blocks;
    on_node(0, [&] {
        for (void *p; (p = hak_arena_malloc(arena, 200000)) != nullptr;)
            blocks.push_back(p);
    });
    for (size_t i = 0; i < blocks.size(); i += 2)
        hak_free(blocks[i]);
    on_node(1, [&] {
        for (size_t i = 0; i < blocks.size() / 4; i++)
            MUST(hak_arena_malloc(arena, 200000) != nullptr, "refused the %zu-th block", i);
    });
}

void the_last_spans_are_anybodys() {
    std::vector<void *> blocks;
    on_node(0, [&] {
        for (void *p; (p = hak_malloc(700)) != nullptr;)
            blocks.push_back(p);
    });
    on_node(0, [&] {
        for (void *p : blocks) /* no SuperSlab becomes free */
            if (reinterpret_cast<uintptr_t>(p) % (2 * kMiB) > 2 * kSlot)
                hak_free(p);
    });
    on_node(1, [&] {
        for (size_t i = 0; i < blocks.size() / 2; i++)
            MUST(hak_malloc(700) != nullptr, "refused the %zu-th block of %zu", i, blocks.size());
    });
}

void children_keep_nodes_apart() {
    std::vector<void *> blocks;
    on_node(0, [&] {
        for (unsigned i = 0; i < 1000; i++)
            blocks.push_back(hak_malloc(3000));
        for (void *p : blocks)
            hak_free(p);
    });
    go_to(1);
    hak_free(hak_malloc(1));
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        for (unsigned i = 0; i < 1000; i++)
            must_hold(hak_malloc(3000), 1);
        go_to(0);
        for (unsigned i = 0; i < 1000; i++) {
            void *p = hak_malloc(3100);
            MUST(p != nullptr, "no memory");
            memset(p, 1, 3100);
        }
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    MUST(status == 0, "the child failed");
}

void statistics_tell_nodes_apart() {
    constexpr size_t kMost = 40 * kSlot;
    std::vector<void *> blocks;
    for (unsigned node = 0; node < inside_nodes(); node++)
        on_node(node, [&] { blocks.push_back(hak_malloc((node + 1) * kMiB / 2 + kMiB)); });
    Json stats = heap_stats();
    MUST(stats["nodes"].items.size() == inside_nodes(), "%zu nodes", stats["nodes"].items.size());
    for (unsigned node = 0; node < inside_nodes(); node++) {
        auto bytes = static_cast<size_t>(stats["nodes"].items[node]["slot_bytes"].number);
        MUST(bytes >= (node + 1) * kMiB / 2 + kMiB && bytes <= 4 * kMiB + kMost, "node %u has %zu bytes", node, bytes);
    }
}

/* A page of sets for each node, and nothing for SuperSlabs that are not there. */
void nodes_cost_little() {
    hak_free(hak_malloc(1));
    Json stats = heap_stats();
    auto metadata = static_cast<size_t>(stats["rss_bytes"]["metadata"].number);
    MUST(metadata < 256 * kKiB + inside_nodes() * 16 * kKiB, "%zu bytes of tables", metadata);
}

struct Case {
    const char *name;
    void (*run)();
    std::vector<std::string> environment; /* besides the number of nodes */
} const kCases[] = {
    {"empty", empty_slots_stay_with_their_node, {"HAKMEM_PURGE=never"}},
    {"unused", unused_slots_stay_with_their_node, {"HAKMEM_PURGE=never"}},
    {"cached", cached_superslabs_stay_until_they_are_purged, {"HAKMEM_PURGE=never"}},
    {"cached_elsewhere", what_only_another_node_caches_is_purged, {"HAKMEM_PURGE=never"}},
    {"runs", runs_stay_until_they_are_purged, {"HAKMEM_PURGE=never"}},
    {"many", nodes_have_many_superslabs, {"HAKMEM_PURGE=never"}},
    {"moves", a_thread_that_moves_takes_from_where_it_is, {"HAKMEM_PURGE=never"}},
    {"last", the_last_memory_is_anybodys, {"HAKMEM_REGION_BYTES=256m"}},
    {"bounds", bounds_are_the_processs, {"HAKMEM_PURGE=never"}},
    {"window", empty_slots_stay_with_their_node, {"HAKMEM_REGION_BYTES=0", "HAKMEM_PURGE=never"}},
    {"window_runs", runs_stay_until_they_are_purged, {"HAKMEM_REGION_BYTES=0", "HAKMEM_PURGE=never"}},
    {"offers", slabs_without_owner_stay_with_their_node, {"HAKMEM_PURGER=0"}},
    {"inboxes", inboxes_stay_with_their_node, {"HAKMEM_PURGER=0"}},
    {"rests", heaps_rest_on_their_node, {}},
    {"last_blocks", the_last_blocks_are_anybodys, {"HAKMEM_REGION_BYTES=256m"}},
    {"limit", a_limit_moves_memory, {"HAKMEM_PURGER=0"}},
    {"limit_locked", a_limit_with_locked_memory, {"HAKMEM_PURGER=0"}},
    {"moved_pages", a_block_that_moves_takes_its_pages_along, {"HAKMEM_PURGER=0"}},
    {"arenas", arenas_keep_nodes_apart, {"HAKMEM_PURGER=0"}},
    {"last_arenas", the_last_memory_is_any_arenas, {"HAKMEM_REGION_BYTES=256m"}},
    {"children", children_keep_nodes_apart, {"HAKMEM_PURGER=0"}},
    {"statistics", statistics_tell_nodes_apart, {"HAKMEM_PURGER=0"}},
    {"cost", nodes_cost_little, {"HAKMEM_PURGER=0"}},
    {"secure_last_blocks", the_last_spans_are_anybodys, {"HAKMEM_SECURE=1", "HAKMEM_REGION_BYTES=256m"}},
    {"secure", leave_slabs_without_owner, {"HAKMEM_SECURE=1"}},
};

class Nodes : public testing::TestWithParam<Case> {};
TEST_P(Nodes, KeepTheirMemory) {
    if (kShorter > 1 && strncmp(GetParam().name, "window", 6) == 0)
        GTEST_SKIP() << "a sanitizer's memory is where the window would be";
    for (const char *nodes : {"HAKMEM_NUMA=2", "HAKMEM_NUMA=4"}) {
        std::vector<std::string> environment = GetParam().environment;
        environment.emplace_back(nodes);
        Outcome outcome = run_self({"--case", GetParam().name}, environment);
        EXPECT_TRUE(outcome.exited(0)) << nodes << ", " << outcome.describe();
    }
}
INSTANTIATE_TEST_SUITE_P(All, Nodes, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &of) { return of.param.name; });

/* ---- the machine ---- */

TEST(Topology, OneNodeHasNoOthers) {
    if (std::filesystem::exists("/sys/devices/system/node/node1"))
        GTEST_SKIP() << "this machine has several";
    EXPECT_EQ(inside_nodes(), 1u);
    EXPECT_EQ(heap_stats_text().find("\"nodes\""), std::string::npos);
}

TEST(Topology, OffIsOneNode) {
    Outcome outcome = run_self({"--nodes"}, {"HAKMEM_NUMA=off"});
    EXPECT_EQ(outcome.out, "1\n") << outcome.describe();
}

TEST(Topology, IsWhatTheKernelsFilesSay) {
    char name[] = "/tmp/hakmem-tree-XXXXXX";
    std::string root = mkdtemp(name);
    auto file = [&](unsigned node, const char *text) {
        std::string folder = root + "/sys/devices/system/node/node" + std::to_string(node);
        std::filesystem::create_directories(folder);
        ASSERT_TRUE(write_file(folder + "/cpulist", text));
    };
    std::vector<uint8_t> of(INSIDE_PROCESSORS);
    EXPECT_EQ(inside_nodes_read(root.c_str(), of.data()), 1u) << "no files at all";
    file(0, "0-3,8-11\n");
    EXPECT_EQ(inside_nodes_read(root.c_str(), of.data()), 1u);
    file(1, "4-7,12,14-15,8000-99999,100000-100001\n");
    EXPECT_EQ(inside_nodes_read((root + "/././././././.").c_str(), of.data()),
              2u); /* a longer path, before a shorter */
    EXPECT_EQ(inside_nodes_read(root.c_str(), of.data()), 2u);
    for (unsigned i = 0; i < 16; i++)
        EXPECT_EQ(of[i], i != 13 && (i & 4)) << i;
    EXPECT_EQ(of[7999], 0);
    EXPECT_EQ(of[INSIDE_PROCESSORS - 1], 1);
    file(2, "\n");
    EXPECT_EQ(inside_nodes_read(root.c_str(), of.data()), 2u) << "memory without processors";
    file(3, "13\n");
    EXPECT_EQ(inside_nodes_read(root.c_str(), of.data()), 4u);
    EXPECT_EQ(of[13], 3);
    file(5, "100\n");
    EXPECT_EQ(inside_nodes_read(root.c_str(), of.data()), 4u) << "behind a gap";
    inside_nodes_read("", of.data());
    std::filesystem::remove_all(root);
}

} // namespace

int main(int argc, char **argv) {
    if (run_case(argc, argv, kCases))
        return 0;
    if (argc == 2 && strcmp(argv[1], "--nodes") == 0) {
        hak_free(hak_malloc(1));
        printf("%u\n", inside_nodes());
        return 0;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
