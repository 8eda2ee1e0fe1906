/* SuperSlabs with huge pages: which get some, what they round up, and what was purged in part and stays gone. If it
 * fails, a program pays for huge pages that cost more than small ones, or memory that is free stays resident. */
/* SPDX-License-Identifier: MIT */
#include <cinttypes>
#include <climits>
#include <fstream>
#include <set>
#include <vector>

#include "slabs_kit.h"

namespace {

/* A heap that becomes large after its 80th SuperSlab. Advice, of which there is to be little, did not change before. A
 * time during which the thread was switched out does not count: a busy machine takes a few more. */
void a_large_heap_times_its_pages() {
    take_slots(80 * kPerSuperSlab);
    MUST(inside_page_cost_seen().small_ns == 0, "a page of a small heap was timed");
    for (int more = 0; more < 400 && inside_page_cost_seen().small_ns == 0; more++)
        take_slots(kPerSuperSlab);
    MUST(inside_page_cost_seen().small_ns != 0, "no page was timed");
}

/* The system refuses huge pages for a run, and has unmapped what was there. That serves before new SuperSlabs do. */
void what_a_refusal_unmapped_serves_again() {
    void *client = inside_pool_client_new();
    int zero = 0;
    moves = kRefuse;
    breaks = {2 * kSuperSlab, 2 * kSuperSlab, 1, 1, 0}; /* the first of them makes the run */
    MUST(inside_pool_take_run(client, 2, kSuperSlab, &zero) == inside_no_slot, "the run was not refused");
    take_slots(2 * kPerSuperSlab);
    MUST(inside_pool_count().superslabs_peak == 2, "%zu SuperSlabs", inside_pool_count().superslabs_peak);
}

/* Fills 16 MiB, and frees all but one block in `keep`, so that no slot becomes free. */
std::vector<char *> purged_inside_slabs(size_t bytes, size_t keep) {
    std::vector<char *> blocks(16 * kMiB / bytes), kept;
    for (char *&block : blocks) {
        block = static_cast<char *>(hak_malloc(bytes));
        memset(block, 1, bytes);
    }
    for (size_t i = 0; i < blocks.size(); i++)
        if (i % keep == 0)
            kept.push_back(blocks[i]);
        else
            hak_free(blocks[i]);
    hak_trim();
    return kept;
}

uintptr_t superslab_of(const void *block) { return reinterpret_cast<uintptr_t>(block) / (2 * kMiB); }

/* The SuperSlabs of these blocks of which the kernel may make a huge page of its own accord: those within one mapping
 * that wants huge pages. */
size_t collapsible(const std::vector<char *> &blocks) {
    std::set<uintptr_t> superslabs;
    for (char *block : blocks)
        superslabs.insert(superslab_of(block));
    std::ifstream smaps("/proc/self/smaps");
    uintptr_t from = 0, to = 0;
    size_t n = 0;
    for (std::string line; std::getline(smaps, line);) {
        uintptr_t begin, end;
        if (sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
            from = begin, to = end;
        else if (line.compare(0, 8, "VmFlags:") == 0 && line.find(" hg") != std::string::npos)
            n += std::count_if(superslabs.begin(), superslabs.end(), [&](uintptr_t superslab) {
                return from <= superslab * 2 * kMiB && (superslab + 1) * 2 * kMiB <= to;
            });
    }
    return n;
}

/* Or the kernel's collector of huge pages brings back what was purged. */
void pages_purged_inside_slabs_stay_gone() {
    for (size_t bytes : {size_t{64}, size_t{6000}}) {
        std::vector<char *> kept = purged_inside_slabs(bytes, 65536 / bytes / 2);
        MUST(collapsible(kept) == 0, "%zu bytes: %zu SuperSlabs", bytes, collapsible(kept));
        for (char *block : kept)
            hak_free(block);
    }
}

/* Pages that nobody may touch any more are in no block that is handed out, and the others serve. */
void pages_that_were_lost_are_not_handed_out() {
    for (size_t bytes : {size_t{64}, size_t{6000}}) {
        breaks = {1, 64 * kKiB - 1, 0, INT_MAX, 0}; /* less than a slot */
        std::vector<char *> blocks = purged_inside_slabs(bytes, 65536 / bytes / 2);
        for (size_t left = 16 * kMiB / bytes; left != 0; left--) {
            blocks.push_back(static_cast<char *>(hak_malloc(bytes)));
            memset(blocks.back(), 1, bytes);
        }
        for (char *block : blocks)
            hak_free(block);
        hak_trim();
        MUST(breaks.lost != 0, "%zu bytes: none was lost", bytes);
    }
}

/* Fills 16 MiB with blocks of 64 bytes and keeps one in each page except the sixth of a slab, at another place in each
 * slab, so that pages of different slabs may be merged. Each of them has its number. */
std::vector<char *> sparse_slabs_with_a_free_page() {
    constexpr size_t kBytes = 64, kPerPage = 4096 / kBytes, kFreePage = 5;
    std::vector<char *> kept;
    for (char *block : blocks_of(16 * kMiB / kBytes, kBytes)) {
        size_t at = reinterpret_cast<uintptr_t>(block) % kSlot / kBytes;
        if (at / kPerPage != kFreePage && at % kPerPage == slot_of(block) % kPerPage)
            kept.push_back(block);
        else
            hak_free(block);
    }
    for (size_t i = 0; i < kept.size(); i++)
        memcpy(kept[i], &i, sizeof i);
    return kept;
}
void must_have_all(const std::vector<char *> &blocks) {
    for (size_t i = 0; i < blocks.size(); i++)
        MUST(memcmp(blocks[i], &i, sizeof i) == 0, "block %zu of %zu has lost what it held", i, blocks.size());
    auto live = static_cast<size_t>(heap_stats()["rss_bytes"]["live"].number);
    MUST(live == blocks.size() * 64, "%zu bytes are live, not %zu", live, blocks.size() * 64);
}
/* Slabs that have lost a page are merged with others, or lose one while pages are merged. Blocks keep what they hold,
 * those that are lost are not live, and once all are free each slot has memory again. */
void slabs_that_lost_pages_are_meshed() {
    if (getpagesize() != 4096)
        return;
    for (bool together : {false, true}) {
        std::vector<char *> kept = sparse_slabs_with_a_free_page();
        hak_option_set("MESH", together ? "1" : "0");
        long merged = counter("mesh_merged_pages");
        breaks = {1, kSlot - 1, 0, INT_MAX, 0}; /* less than a slot */
        hak_trim();
        MUST(breaks.lost != 0, "none was lost");
        must_have_all(kept);
        breaks.left = 0;
        hak_option_set("MESH", "1");
        hak_trim();
        MUST(counter("mesh_merged_pages") > merged || !can_hold_writes(), "no page was merged");
        must_have_all(kept);
        for (char *block : kept)
            hak_free(block);
        hak_trim();
        MUST(inside_pool_count().active_slots == 0, "%zu slots are in use", inside_pool_count().active_slots);
    }
}
/* Takes blocks until a second SuperSlab is in use in part, and keeps one in 500. Where its unused slots begin. */
uintptr_t use_huge_pages_in_part() {
    std::vector<char *> more(1, static_cast<char *>(hak_malloc(64)));
    size_t half = 0;
    while (superslab_of(more.back()) == superslab_of(more[0]) || half < 512 * kKiB) {
        more.push_back(static_cast<char *>(hak_malloc(64)));
        half = reinterpret_cast<uintptr_t>(more.back()) % kSuperSlab;
    }
    for (size_t i = 0; i < more.size(); i++)
        if (i % 500 != 0)
            hak_free(more[i]);
    return (reinterpret_cast<uintptr_t>(more.back()) / kSlot + 1) * kSlot;
}

/* Where a huge page is in use in part, the rest goes back too, though pages of slabs in use went first. */
void what_huge_pages_round_up_goes_back() {
    use_huge_pages_in_part();
    hak_trim();
    Json stats = heap_stats();
    double rounding = stats["rss_bytes"]["huge_rounding"].number;
    MUST(rounding == 0, "%.0f bytes", rounding);
}

/* Also where slabs were merged. */
void what_huge_pages_round_up_beside_meshed_slabs_goes_back() {
    uintptr_t unused = use_huge_pages_in_part();
    watched = {unused, (unused / kSuperSlab + 1) * kSuperSlab, 0};
    hak_trim();
    MUST(counter("mesh_merged_pages") > 0 || getpagesize() != 4096 || !can_hold_writes(), "no page was merged");
    MUST(watched.purged == watched.to - watched.from, "%zu bytes of %zu", watched.purged, watched.to - watched.from);
}

constexpr uint64_t kSmallNs = 700'000, kCheapNs = 90'000, kDearNs = 4'000'000; /* for 2 MiB */

/* The first SuperSlabs were purged while huge pages paid, and are to have some when they are wanted back. */
void *client_with_huge_pages_to_come(size_t superslabs) {
    unsigned tag = inside_tiny_class_of(1000) + 1;
    void *client = inside_pool_client_new();
    int zero = 0;
    inside_page_cost_small(kSmallNs);
    inside_page_cost_huge(kCheapNs, 1);
    for (size_t i = 0; i < superslabs * kPerSuperSlab; i++)
        MUST(inside_pool_take(client, 1, 1, tag, &zero) == i, "not slot %zu", i);
    for (size_t i = 0; i < superslabs * kPerSuperSlab; i++)
        inside_pool_give(client, i, 1, tag);
    inside_pool_settle(client);
    hak_trim();
    MUST(inside_pool_count().empty_slots == 0, "%zu slots are EMPTY", inside_pool_count().empty_slots);
    return client;
}

size_t take_small_slot(void *client) {
    int zero = 0;
    size_t slot = inside_pool_take(client, 1, 1, inside_tiny_class_of(1000) + 1, &zero);
    MUST(slot != inside_no_slot && zero, "slot %zu", slot);
    return slot;
}

size_t wanting_huge_pages(size_t superslabs) {
    std::vector<char *> in_each;
    for (size_t i = 0; i < superslabs; i++)
        in_each.push_back(inside_slot_address(i * kPerSuperSlab));
    return collapsible(in_each);
}

/* Huge pages may have become dear since a SuperSlab was purged. Its first touch is timed, as that of a new one. */
void what_was_purged_is_timed_as_it_comes_back() {
    void *client = client_with_huge_pages_to_come(2);
    for (uint64_t ns : {kCheapNs, kDearNs}) {
        inside_page_cost before = inside_page_cost_seen();
        measured = {true, 0, 1, {ns, 0}};
        size_t slot = take_small_slot(client);
        inside_page_cost after = inside_page_cost_seen();
        MUST(slot % kPerSuperSlab == 0 && after.timed == before.timed + 1, "slot %zu: no huge page was timed", slot);
        MUST(after.dear - before.dear == (ns == kDearNs), "%" PRIu64 " ns: dear is not what it should be", ns);
        while ((slot + 1) % kPerSuperSlab != 0)
            slot = take_small_slot(client);
    }
    MUST(!inside_page_cost_seen().pays, "the next SuperSlabs are to have huge pages, too");
}

/* Once huge pages are dear, what was to have some gets small pages, which are timed, and the pause goes on. */
void what_was_purged_comes_back_small_in_a_pause() {
    void *client = client_with_huge_pages_to_come(2);
    inside_page_cost_huge(kDearNs, 1);
    size_t before = wanting_huge_pages(2);
    measured = {true, 0, 1, {kSmallNs, 0}};
    size_t slot = take_small_slot(client), after = wanting_huge_pages(2);
    MUST(slot == 0, "slot %zu", slot);
    MUST(after == before - (before != 0), "%zu SuperSlabs may get huge pages, not %zu", after, before - 1);
    MUST(inside_page_cost_seen().small_ns > 2 * kSmallNs, "small pages were not timed");
    unsigned left = 0;
    while (!inside_page_cost_try_huge())
        left++;
    MUST(left == 63, "%u SuperSlabs are left of the pause", left);
    for (size_t i = 1; i < kPerSuperSlab; i++)
        MUST(take_small_slot(client) == i, "not slot %zu", i);
}

/* That takes a mapping, which the system may refuse when it has unmapped the SuperSlab. It serves later. */
void what_was_lost_in_a_pause_serves_again() {
    void *client = client_with_huge_pages_to_come(1);
    inside_page_cost_huge(kDearNs, 1);
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    size_t slot = take_small_slot(client);
    MUST(breaks.lost == 1 && slot == kPerSuperSlab, "%d were refused, slot %zu", breaks.lost, slot);
    for (size_t i = 0; i < 2 * kPerSuperSlab - 1; i++)
        *inside_slot_address(take_small_slot(client)) = 1;
    MUST(inside_pool_count().superslabs_peak == 2, "%zu SuperSlabs", inside_pool_count().superslabs_peak);
}

/* Nothing is mapped anew while somebody reads there: the system may refuse that when it has unmapped what was there. */
void superslabs_stay_mapped_while_lists_are_read() {
    void *client = client_with_huge_pages_to_come(1);
    unsigned tag = inside_tiny_class_of(1000) + 1;
    inside_page_cost_huge(kDearNs, 1);
    inside_read_lists(1);
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    for (size_t i = 0; i < kPerSuperSlab; i++)
        MUST(take_small_slot(client) == i && breaks.lost == 0, "slot %zu: lost as it came back", i);
    for (size_t i = 0; i < kPerSuperSlab; i++)
        inside_pool_give(client, i, 1, tag);
    hak_trim();
    MUST(breaks.lost == 0, "lost as it was purged");
    MUST(hak_malloc(5 * kMiB / 4) == inside_slot_address(0) && breaks.lost == 0, "lost as a huge block's end");
}

/* Nor are pages inside slabs. */
void pages_stay_mapped_while_lists_are_read() {
    inside_read_lists(1);
    for (size_t bytes : {size_t{64}, size_t{6000}}) {
        breaks = {1, 64 * kKiB - 1, 0, INT_MAX, 0};
        std::vector<char *> kept = purged_inside_slabs(bytes, 65536 / bytes / 2);
        MUST(breaks.lost == 0, "%zu bytes: %d were lost", bytes, breaks.lost);
    }
}

/* Nor is it lost if an arena ends that had it. */
void what_an_arena_lost_serves_again() {
    void *client = client_with_huge_pages_to_come(1);
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = static_cast<char *>(hak_arena_malloc(arena, kSuperSlab));
    MUST(slot_of(block) == 0, "it lies in slot %zu", slot_of(block));
    hak_free(block);
    inside_page_cost_huge(kDearNs, 1);
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    hak_trim();
    MUST(breaks.lost == 1, "nothing was refused");
    hak_arena_destroy(arena);
    for (size_t i = 0; i < 2 * kPerSuperSlab; i++)
        *inside_slot_address(take_small_slot(client)) = 1;
    MUST(inside_pool_count().superslabs_peak == 2, "%zu SuperSlabs", inside_pool_count().superslabs_peak);
}

/* Nor is it used while it is unmapped, if a huge block of the arena lost it. */
void what_an_arenas_block_lost_is_not_used() {
    void *client = client_with_huge_pages_to_come(1);
    hak_arena *arena = hak_arena_new(nullptr);
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    meanwhile_to = kSuperSlab;
    meanwhile = [] { meanwhile = [] { meanwhile = [] { refused_from = 1; }; }; }; /* after a heap and the loss */
    MUST(hak_arena_malloc(arena, 5 * kMiB / 4) == nullptr && breaks.lost == 1, "nothing was refused");
    hak_arena_destroy(arena);
    refused_from = SIZE_MAX;
    for (size_t i = 0; i < 2 * kPerSuperSlab; i++)
        *inside_slot_address(take_small_slot(client)) = 1;
    MUST(inside_pool_count().superslabs_peak == 2, "%zu SuperSlabs", inside_pool_count().superslabs_peak);
}

/* Nor does it count against the arena's limit any more. */
void what_an_arena_lost_is_not_counted() {
    client_with_huge_pages_to_come(1);
    hak_arena_options options = {};
    options.limit_bytes = kSuperSlab;
    hak_arena *arena = hak_arena_new(&options);
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    MUST(hak_arena_malloc(arena, 5 * kMiB / 4) != nullptr, "the arena is full");
    MUST(breaks.lost == 1, "nothing was refused");
}

/* Slots that were LAZY are not once the system has unmapped them, nor when they are mapped again. */
void what_was_lost_is_not_lazy() {
    unsigned tag = inside_tiny_class_of(1000) + 1;
    void *client = inside_pool_client_new();
    int zero = 0;
    inside_page_cost_small(kSmallNs);
    inside_page_cost_huge(kCheapNs, 1);
    for (size_t i = 0; i < kPerSuperSlab; i++)
        MUST(inside_pool_take(client, 1, 1, tag, &zero) == i, "not slot %zu", i);
    for (size_t i = 0; i < kPerSuperSlab; i++)
        inside_pool_give(client, i, 1, tag);
    inside_pool_give(client, inside_pool_take(client, 1, 1, tag, &zero), 1, tag);
    MUST(inside_pool_count().lazy_slots == kPerSuperSlab - 1, "%zu slots are LAZY", inside_pool_count().lazy_slots);
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    inside_pool_purge(client, 0);
    MUST(breaks.lost == 1, "nothing was refused");
    MUST(inside_pool_disagrees() == nullptr, "lost: %s", inside_pool_disagrees());
    for (size_t i = 0; i < kPerSuperSlab; i++)
        MUST(!inside_is_lazy(take_small_slot(client)), "slot %zu is LAZY", i);
    MUST(inside_pool_count().superslabs_peak == 1, "%zu SuperSlabs", inside_pool_count().superslabs_peak);
}

/* Nor are they LAZY if the system unmaps some slots of a SuperSlab with a huge page, as it refuses them a mapping of
 * their own. */
void what_was_lost_in_part_is_not_lazy() {
    void *client = inside_pool_client_new();
    int zero = 0;
    for (size_t i = 0; i < kPerSuperSlab; i++)
        inside_pool_take(client, 1, 1, 1, &zero);
    for (size_t i = 0; i < kPerSuperSlab; i++)
        inside_pool_give(client, i, 1, 1);
    hak_option_set("PURGE", "lazy");
    inside_pool_settle(client);
    MUST(inside_pool_count().lazy_slots == kPerSuperSlab, "%zu slots are LAZY", inside_pool_count().lazy_slots);
    inside_pool_take(client, 1, 1, 1, &zero);
    inside_pool_give(client, inside_pool_take(client, 1, 1, 1, &zero), 1, 1);
    moves = kRefuse;
    breaks = {kSlot, kSuperSlab, 0, 1, 0};
    inside_pool_purge(client, 0);
    MUST(breaks.lost == 1, "nothing was refused");
    MUST(inside_pool_disagrees() == nullptr, "%s", inside_pool_disagrees());
}

/* Whether the program touches larger blocks whole is seen by what lies behind seven eighths of one. */
void a_block_is_touched_whole_if_its_end_is() {
    constexpr size_t kBytes = 3 * kMiB / 2;
    char *parts = static_cast<char *>(hak_malloc(kBytes)), *whole = static_cast<char *>(hak_malloc(kBytes));
    memset(parts, 1, kBytes / 16 * 13);
    memset(whole, 1, kBytes / 16 * 15);
    void *client = inside_pool_client_new();
    int zero = 0;
    for (size_t i = 0; i < 10 * kPerSuperSlab; i++) /* a large heap */
        inside_pool_take(client, 1, 1, 0, &zero);
    inside_page_cost_small(kSmallNs);
    inside_page_cost_huge(kCheapNs, 1);
    for (bool touched : {false, true}) {
        hak_free(touched ? whole : parts);
        inside_page_cost before = inside_page_cost_seen();
        measured = {true, 0, 1, {kCheapNs, 0}};
        for (size_t had = inside_pool_count().superslabs_peak; inside_pool_count().superslabs_peak == had;)
            inside_pool_take(client, 1, 1, 0, &zero);
        bool huge = inside_page_cost_seen().timed != before.timed;
        MUST(huge == touched, "a new SuperSlab %s a huge page", huge ? "got" : "did not get");
    }
}

/* The client of a large heap whose program touches larger blocks whole. */
void *client_with_whole_blocks() {
    void *client = inside_pool_client_new();
    int zero = 0;
    for (size_t i = 0; i < 20 * kPerSuperSlab; i++)
        inside_pool_take(client, 1, 1, 0, &zero);
    char *whole = static_cast<char *>(hak_malloc(3 * kMiB / 2));
    memset(whole, 1, 3 * kMiB / 2);
    hak_free(whole);
    inside_page_cost_small(kSmallNs);
    return client;
}

/* A huge block's first SuperSlab is timed. If its huge page is dear, the rest has none; if it is cheap, as many others
 * of the block have one as were cheap in a row. */
void a_huge_block_gets_what_was_cheap() {
    constexpr size_t kSuperSlabs = 6;
    client_with_whole_blocks();
    for (auto [ns, huge] : {std::pair{kCheapNs, 2}, {kCheapNs, 4}, {kDearNs, 1}}) {
        measured = {true, 0, 1, {ns, 0}};
        char *block = static_cast<char *>(hak_malloc(kSuperSlabs * kSuperSlab - kSlot));
        std::vector<char *> in_each;
        for (size_t i = 0; i < kSuperSlabs; i++)
            in_each.push_back(block + i * kSuperSlab);
        int got = static_cast<int>(collapsible(in_each));
        MUST(got == huge || access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0,
             "%" PRIu64 " ns: %d SuperSlabs may get huge pages, not %d", ns, got, huge);
    }
}

/* The system refuses huge pages for the rest, and has unmapped that. All of the block serves later. */
void a_huge_blocks_rest_is_refused() {
    void *client = client_with_whole_blocks();
    int zero = 0;
    for (int i = 0; i < 4; i++)
        inside_page_cost_huge(kCheapNs, 1);
    size_t had = inside_pool_count().superslabs_peak;
    measured = {true, 0, 1, {kCheapNs, 0}};
    moves = kRefuse;
    breaks = {2 * kSuperSlab, 2 * kSuperSlab, 0, 1, 0};
    MUST(inside_pool_take_run(client, 3, kSuperSlab, &zero) == inside_no_slot, "the run was not refused");
    MUST(breaks.lost == 1, "%d were refused", breaks.lost);
    size_t active = 0;
    for (; inside_pool_count().superslabs_peak <= had + 3; active++)
        *inside_slot_address(inside_pool_take(client, 1, 1, 0, &zero)) = 1;
    MUST(active > 4 * kPerSuperSlab, "only %zu slots serve", active); /* the large block's SuperSlab and the run's */
}

/* On a busy machine the kernel would say that the thread was switched out, and nothing would be timed. */
const std::vector<std::string> kTimed = {"HAKMEM_HUGE_PAGES=auto", "HAKMEM_CGROUP=0",
                                         "GLIBC_TUNABLES=glibc.pthread.rseq=0"};

} // namespace

const std::vector<Case> kCases = {
    {"large",
     a_large_heap_times_its_pages,
     {"HAKMEM_HUGE_PAGES=auto", "HAKMEM_HUGE_PAGES_FROM=160m", "HAKMEM_CGROUP=0"},
     0},
    {"refused_huge", what_a_refusal_unmapped_serves_again, {"HAKMEM_HUGE_PAGES=always", "HAKMEM_CGROUP=0"}, 0},
    {"apart", pages_purged_inside_slabs_stay_gone, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"lost_pages", pages_that_were_lost_are_not_handed_out, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"lost_meshed", slabs_that_lost_pages_are_meshed, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"rounded_up", what_huge_pages_round_up_goes_back, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"rounded_up_meshed",
     what_huge_pages_round_up_beside_meshed_slabs_goes_back,
     {"HAKMEM_HUGE_PAGES=always", "HAKMEM_MESH=1"},
     0},
    {"back_timed", what_was_purged_is_timed_as_it_comes_back, kTimed, 0},
    {"back_small", what_was_purged_comes_back_small_in_a_pause, kTimed, 0},
    {"back_lost", what_was_lost_in_a_pause_serves_again, kTimed, 0},
    {"read", superslabs_stay_mapped_while_lists_are_read, kTimed, 0},
    {"read_pages", pages_stay_mapped_while_lists_are_read, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"arena_lost", what_an_arena_lost_serves_again, kTimed, 0},
    {"arena_block_lost", what_an_arenas_block_lost_is_not_used, kTimed, 0},
    {"arena_limit", what_an_arena_lost_is_not_counted, kTimed, 0},
    {"lost_lazy",
     what_was_lost_is_not_lazy,
     {"HAKMEM_HUGE_PAGES=auto", "HAKMEM_CGROUP=0", "HAKMEM_PURGE=lazy", "HAKMEM_RETAIN_BYTES=0"},
     0},
    {"lost_lazy_part",
     what_was_lost_in_part_is_not_lazy,
     {"HAKMEM_HUGE_PAGES=always", "HAKMEM_CGROUP=0", "HAKMEM_PURGE=never", "HAKMEM_RETAIN_BYTES=0"},
     0},
    {"touched_end", a_block_is_touched_whole_if_its_end_is, kTimed, 0},
    {"run_cheap", a_huge_block_gets_what_was_cheap, kTimed, 0},
    {"run_refused", a_huge_blocks_rest_is_refused, kTimed, 0},
};
