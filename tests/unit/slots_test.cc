/* Where slots and SuperSlabs lie, in processes of their own, also where the system refuses memory, or has only a part
 * of it. If it fails, a program gets no memory though there is some, or two blocks share it. */
/* SPDX-License-Identifier: MIT */
#include <ucontext.h>

#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "slabs_kit.h"

namespace {

/* What explains a lack of memory needs none. */
void statistics_need_no_memory() {
    static char text[kMiB];
    blocks_of(1, 1000);
    refused_from = 1;
    hak_stats_json(text, sizeof text);
    refused_from = SIZE_MAX;
    Json stats = JsonReader::read(text);
    MUST(stats["counters"]["slabs_started"].number == 1, "%s", text);
}

/* A client that has all slots of the first `superslabs`. The sets no longer lead a search to runs that were free. */
void *client_with_all_slots_of(size_t superslabs, unsigned looks_for) {
    void *client = inside_pool_client_new();
    int zero = 0;
    for (size_t i = 0; i < superslabs * kPerSuperSlab; i++)
        MUST(inside_pool_take(client, 1, 1, 1, &zero) == i, "not slot %zu", i);
    for (size_t i = 0; i < superslabs; i += 16)
        MUST(inside_pool_take(client, looks_for, 1, 1, &zero) / kPerSuperSlab >= superslabs, "it found a run");
    return client;
}

/* Most heaps have 64 SuperSlabs at most, and a search looks at those first. Behind the last of them it goes on. */
void searches_go_on_behind_the_64th_superslab() {
    void *client = client_with_all_slots_of(66, 3);
    int zero = 0;
    size_t two = 63 * kPerSuperSlab + 7, three = 64 * kPerSuperSlab + 9;
    for (size_t slot : {three, three + 1, three + 2, two, two + 1})
        inside_pool_give(client, slot, 1, 1);
    size_t got = inside_pool_take(client, 3, 1, 1, &zero);
    MUST(got == three, "slot %zu, not %zu, where three are free", got, three);
}

/* Many runs may fit and do not. Then those that surely fit are looked at, and no longer ones. */
void a_run_that_surely_fits_is_found() {
    void *client = client_with_all_slots_of(20, 8);
    int zero = 0;
    size_t four = 18 * kPerSuperSlab + 5;
    for (size_t i = 0; i < 4; i++)
        inside_pool_give(client, four + i, 1, 1);
    for (size_t i = 0; i < 18; i++)
        for (size_t slot : {0, 1})
            inside_pool_give(client, i * kPerSuperSlab + 8 + slot, 1, 1);
    size_t got = inside_pool_take(client, 3, 1, 1, &zero);
    MUST(got == four, "slot %zu, not %zu", got, four);
}

/* Under a limit clients owe the totals a few slots. If it fails, it is kept by figures that are wrong by more. */
void clients_owe_few_slots() {
    void *client = inside_pool_client_new();
    int zero = 0;
    for (size_t i = 0; i < kPerSuperSlab; i++)
        inside_pool_take(client, 1, 1, 1, &zero);
    for (size_t i = 0; i < 16; i++)
        inside_pool_give(client, i, 1, 1);
    inside_pool_settle(client);
    inside_pool_give_purged(client, kPerSuperSlab - 1, 1);
    for (size_t i = 0; i < 8; i++) {
        inside_pool_take(client, 1, 1, 1, &zero);
        size_t told = inside_pool_empty_told(), are = inside_pool_count().empty_slots;
        MUST(told < are + 8, "%zu slots are EMPTY, the totals say %zu", are, told);
    }
}

/* The tables count, too. However much they take, the last slot that fits is handed out. */
void the_last_slot_below_the_limit_is_had() {
    void *client = inside_pool_client_new();
    int zero = 0;
    for (size_t superslabs = 1; superslabs < 40; superslabs++) {
        hak_option_set("HARD_LIMIT", "0");
        while (inside_pool_count().superslabs_peak < superslabs)
            inside_pool_take(client, 1, 1, 1, &zero);
        inside_pool_settle(client);
        hak_option_set("HARD_LIMIT", std::to_string(inside_limits_counted_bytes() + kSlot).c_str());
        MUST(inside_pool_take(client, 1, 1, 1, &zero) != inside_no_slot, "refused, with %zu SuperSlabs", superslabs);
        MUST(inside_pool_take(client, 1, 1, 1, &zero) == inside_no_slot, "one more, with %zu SuperSlabs", superslabs);
    }
}

/* 256 MiB are 128 SuperSlabs. */
void the_region_is_used_to_its_last_superslab() {
    void *client = inside_pool_client_new();
    size_t superslabs = 0;
    for (int zero = 0; inside_pool_take_run(client, 1, 2 * kMiB, &zero) != inside_no_slot; zero = 0)
        superslabs++;
    MUST(superslabs == 128, "%zu SuperSlabs", superslabs);
}

/* The first large blocks that are freed become inaccessible, but not their slots while somebody reads there. */
void slots_stay_accessible_while_lists_are_read() {
    constexpr size_t kBytes = 200'000;
    inside_read_lists(1);
    for (char *block : blocks_of(8, kBytes)) {
        hak_free(block);
        volatile char byte = *block;
        (void)byte;
    }
    inside_read_lists(0);
}

/* Nor do the SuperSlabs that go back as the program limits its addresses. */
void superslabs_stay_mapped_while_lists_are_read() {
    char *block = blocks_of(1, 3 * kMiB)[0];
    inside_read_lists(1);
    hak_free(block);
    inside_unmap_free();
    volatile char byte = *block;
    (void)byte;
    inside_read_lists(0);
    inside_unmap_free();
    MUST(msync(block, 1, MS_ASYNC) != 0, "what is free is still mapped");
}

/* Nor does what a huge block left that the kernel had moved there before. */
void what_was_moved_stays_mapped_while_lists_are_read() {
    char *block = blocks_of(1, 3 * kMiB)[0];
    blocks_of(1, 3 * kMiB);
    block = static_cast<char *>(hak_realloc(block, 5 * kMiB));
    blocks_of(2, 3 * kMiB);
    inside_read_lists(1);
    breaks = {3 * kSuperSlab, 3 * kSuperSlab, 1, 1, 0};                   /* the first of them moves the pages */
    MUST(hak_realloc(block, 12 * kMiB) != nullptr, "there is no memory"); /* Linux moves it again from 6.17 on */
    MUST(breaks.lost == 0, "what it left is unmapped");
}

/* Nor do the slots in which the first guarded sample lies. */
void guards_wait_until_lists_are_read() {
    auto blocks = blocks_of(4000, 3000);
    inside_read_lists(1);
    for (char *block : blocks)
        hak_free(block);
    hak_trim();
    MUST(hak_option_set("GUARD_SAMPLE_BYTES", "1") == 0, "the option cannot be set");
    blocks_of(100, 100);
    for (char *block : blocks) {
        volatile char byte = *block;
        (void)byte;
    }
    inside_read_lists(0);
    blocks_of(100, 100);
    MUST(counter("guard_sampled") != 0, "no sample is guarded afterwards");
}

/* The system refuses guards, at once or half-way, and to undo that. No memory is lost to them. */
void refused_guards_cost_no_memory() {
    MUST(hak_option_set("GUARD_SAMPLE_BYTES", "1") == 0, "the option cannot be set");
    for (bool half : {false, true}) {
        refuses = !half, shuts_half = half;
        blocks_of(100, 1000);
        MUST(refuses && counter("guard_sampled") == 0, "nothing was refused");
        refuses = false;
        MUST(inside_pool_count().active_slots < kPerSuperSlab, "%zu slots are in use",
             inside_pool_count().active_slots);
    }
    hak_option_set("GUARD_SAMPLE_BYTES", "0");
    void *client = inside_pool_client_new();
    size_t superslabs = inside_pool_count().superslabs_peak, left = superslabs * kPerSuperSlab;
    int zero = 0;
    for (left -= inside_pool_count().active_slots; left > 0; left--)
        *inside_slot_address(inside_pool_take(client, 1, 1, 1, &zero)) = 1;
    MUST(inside_pool_count().superslabs_peak == superslabs, "%zu SuperSlabs, not %zu",
         inside_pool_count().superslabs_peak, superslabs);
}

/* Whoever has seen one canary knows no other. Behind new memory there is none. */
void canaries_differ_from_block_to_block() {
    constexpr size_t kBytes = 200'000;
    std::set<uint64_t> seen;
    for (char *block : blocks_of(8, kBytes))
        hak_free(block);
    for (char *block : blocks_of(8, kBytes)) {
        uint64_t word;
        memcpy(&word, block + kBytes, sizeof word);
        if (word != 0)
            seen.insert(word);
    }
    MUST(seen.size() > 1, "%zu canaries", seen.size());
}

/* There was no memory when the program started, and there is now. */
void a_heap_may_begin_late() {
    MUST(hak_malloc(100) == nullptr, "there is memory");
    refused_from = SIZE_MAX;
    auto blocks = blocks_of(200, 1000);
    for (char *block : blocks)
        hak_free(block);
}

/* The system has no 2 MiB in a piece any more, but smaller pieces: SuperSlabs get memory slot by slot. */
void superslabs_get_memory_in_part() {
    constexpr size_t kBlocks = 40 * 60, kBytes = 1000;
    hak_free(hak_malloc(1));
    size_t before = inside_pool_count().superslabs;
    refused_from = kMiB;
    std::vector<char *> blocks;
    for (size_t i = 0; i < kBlocks; i++) {
        blocks.push_back(static_cast<char *>(hak_malloc(kBytes)));
        MUST(blocks.back() != nullptr, "block %zu was refused", i);
        memset(blocks.back(), static_cast<int>(i), kBytes);
    }
    for (size_t i = 0; i < kBlocks; i++)
        MUST(blocks[i][0] == static_cast<char>(i) && blocks[i][kBytes - 1] == static_cast<char>(i),
             "block %zu has lost what it held", i);
    MUST(inside_pool_count().superslabs <= before + 2, "%zu SuperSlabs", inside_pool_count().superslabs);
}

/* Two threads have begun a SuperSlab each. The slots that either still lacks are mapped before a third one begins. */
void superslabs_get_memory_in_part_at_the_same_time() {
    take_slots(kPerSuperSlab);
    refused_from = kMiB;
    meanwhile = [] { std::thread(take_slots, 1).join(); };
    take_slots(2 * kPerSuperSlab - 1);
    MUST(inside_pool_count().superslabs == 3, "%zu SuperSlabs", inside_pool_count().superslabs);
}

/* The SuperSlabs that an aligned run leaves free behind it serve the next runs. */
void what_lies_behind_an_aligned_run_serves() {
    constexpr size_t kAlign = 4 * kSuperSlab;
    void *client = inside_pool_client_new();
    int zero = 0;
    auto next = [] { return inside_pool_count().superslabs_peak; };
    while (!aligned_to(inside_slot_address(next() * kPerSuperSlab), kAlign))
        inside_pool_take_run(client, 1, kSuperSlab, &zero);
    size_t first = next();
    MUST(inside_pool_take_run(client, 1, kAlign, &zero) == first, "the run begins elsewhere");
    for (size_t i = 1; i < 4; i++) {
        size_t got = inside_pool_take_run(client, 1, kSuperSlab, &zero);
        MUST(got == first + i, "SuperSlab %zu, not %zu", got, first + i);
    }
}

/* The system refuses to move pages. What was to take them is as it was: free, and not resident. */
void a_refused_move_leaves_nothing_resident() {
    char *block = blocks_of(1, 3 * kMiB)[0];
    blocks_of(1, 3 * kMiB);
    long pushed = counter("cache_pushed");
    moves = kRefuse;
    MUST(hak_realloc(block, 12 * kMiB) != nullptr, "it is not copied either");
    pushed = counter("cache_pushed") - pushed;
    MUST(pushed == 2, "%ld SuperSlabs are cached, 2 were freed", pushed);
}

/* The system refuses to move pages, and has unmapped where they were to go. That is mapped again before it is used. */
void a_move_that_breaks_loses_nothing() {
    char *block = blocks_of(1, 3 * kMiB)[0];
    blocks_of(1, 3 * kMiB);
    size_t resident = inside_pool_resident_slots();
    moves = kBreak;
    MUST(hak_realloc(block, 12 * kMiB) == nullptr, "there is memory");
    moves = kMove;
    MUST(inside_pool_resident_slots() == resident, "%zu slots are resident, %zu were", inside_pool_resident_slots(),
         resident);
    refused_from = SIZE_MAX;
    size_t superslabs = inside_pool_count().superslabs, active = inside_pool_count().active_slots;
    MUST(block[0] == 1 && block[3 * kMiB - 1] == 1, "the block has lost what it held");
    blocks_of(superslabs - active / kPerSuperSlab, kMiB + 1);
    MUST(inside_pool_count().superslabs == superslabs, "%zu SuperSlabs, not %zu", inside_pool_count().superslabs,
         superslabs);
}

/* A block that moves counts once against the limit: its pages are in one place. */
void others_have_memory_while_a_block_moves() {
    char *block = blocks_of(1, 24 * kMiB)[0];
    blocks_of(1, 2 * kMiB);
    hak_option_set("HARD_LIMIT", std::to_string(inside_limits_counted_bytes() + 8 * kMiB).c_str());
    meanwhile_moved = [] {
        std::thread([] { MUST(hak_malloc(200 * kKiB) != nullptr, "another thread is refused memory"); }).join();
    };
    MUST(hak_realloc(block, 28 * kMiB) != nullptr, "there is no memory");
    MUST(meanwhile_moved == nullptr && counter("huge_moved_pages") == 1, "the block was not moved");
    MUST(inside_limits_counted_bytes() > 28 * kMiB, "%zu bytes count", inside_limits_counted_bytes());
}

/* A process without a mapping to spare may still unmap a piece, and map it as a part of its neighbour. */
void a_superslab_that_was_refused_once_serves() {
    moves = kRefuse;
    breaks = {kSuperSlab, kSuperSlab, 0, 1, 0};
    take_slots(1);
    MUST(breaks.lost == 1, "nothing was refused");
    MUST(inside_pool_count().superslabs_peak == 1, "%zu SuperSlabs", inside_pool_count().superslabs_peak);
}

/* A freed block was made inaccessible, and the system refuses to make it accessible again. It waits until it does. */
void a_span_that_stays_inaccessible_is_not_lost() {
    hak_free(blocks_of(1, 200 * kKiB)[0]);
    refuses = true;
    char *block = blocks_of(1, 200 * kKiB)[0];
    refuses = false;
    hak_free(block);
    hak_trim();
    MUST(inside_pool_count().active_slots == 0, "%zu slots are in use", inside_pool_count().active_slots);
}

/* hak_trim does not count what the system refuses to take back. */
void a_refused_purge_gives_nothing_back() {
    hak_free(blocks_of(1, 2 * kMiB)[0]);
    MUST(inside_pool_cached() == 1, "%zu SuperSlabs are cached", inside_pool_cached());
    refuses = true;
    size_t trimmed = hak_trim();
    MUST(trimmed == 0, "hak_trim says that %zu bytes went", trimmed);
}

/* A debugger stops the thread between its look at the clock and the refusal. */
void a_purge_that_was_stopped_ends() {
    hak_free(blocks_of(1, 2 * kMiB)[0]);
    refuses = true;
    stops_s = 120;
    alarm(20);
    hak_trim();
    MUST(stops_s == 0, "nothing was refused");
}

/* The clock comes around after 49 days of uptime. What was never refused must not look as if it just had been. */
void purges_work_when_the_clock_comes_around() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    passed_s = static_cast<time_t>(UINT32_MAX / 1000) - 30 - now.tv_sec;
    hak_free(blocks_of(1, 2 * kMiB)[0]);
    MUST(hak_trim() >= 2 * kMiB, "half a minute before");
    refuses = true;
    hak_free(blocks_of(1, 2 * kMiB)[0]);
    MUST(hak_trim() == 0, "not refused");
    refuses = false;
    passed_s += 2;
    MUST(hak_trim() >= 2 * kMiB, "two seconds after it was refused");
}

/* Where nothing is reserved, another mapping may lie where the next SuperSlab would. It is left out, and no other. */
void a_mapping_in_the_way_is_left_out() {
    auto blocks = blocks_of(30, 200 * kKiB);
    size_t taken = inside_pool_count().superslabs, active = inside_pool_count().active_slots;
    char *next = inside_slot_address(taken * kPerSuperSlab);
    MUST(mmap(next, kSlot, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == next, "is taken");
    for (size_t i = 0; i < 30; i++)
        blocks.push_back(blocks_of(1, 200 * kKiB)[0]);
    for (char *block : blocks)
        MUST(slot_of(block) / kPerSuperSlab != taken, "a block lies there");
    MUST(inside_pool_count().active_slots == 2 * active, "%zu slots are in use, %zu were",
         inside_pool_count().active_slots, active);
    munmap(next, kSlot);
}

/* A kernel before 4.17 maps elsewhere what cannot lie where it should, and says so by the address alone. */
void an_old_kernel_maps_elsewhere() {
    is_old_kernel = true;
    a_mapping_in_the_way_is_left_out();
}

/* What nobody could give says nothing about the memory that there is. */
void memory_is_not_scarce_because_too_much_was_asked_for() {
    auto blocks = blocks_of(1, 100);
    refused_from = 64 * kMiB;
    MUST(hak_malloc(100 * kMiB) == nullptr, "there is memory");
    MUST(!inside_region_is_scarce(), "more than the program has was refused, and memory counts as scarce");
    refused_from = kMiB;
    while (hak_malloc(1000 * kKiB) != nullptr)
        ;
    MUST(inside_region_is_scarce(), "a SuperSlab was refused, and memory does not count as scarce");
}

/* There were no addresses when the program started, and it has limited itself since. Most of them stay its own. */
void a_program_that_limits_itself_keeps_its_addresses() {
    constexpr size_t kLimit = 64 * kGiB;
    MUST(hak_malloc(100) == nullptr, "there is memory");
    refused_from = SIZE_MAX;
    limit_addresses(kLimit);
    blocks_of(1, 100);
    void *own = mmap(nullptr, kLimit / 4 * 3, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(own != MAP_FAILED, "less than three quarters of them are left");
}

/* From a part of the limit on blocks are packed. If it fails, they are only once the system has refused memory. */
void memory_is_scarce_from_a_part_of_the_limit() {
    size_t bytes = 0;
    while (!inside_region_is_scarce() && bytes < kGiB / 2)
        bytes += blocks_of(1, 200 * kKiB).size() * 200 * kKiB;
    MUST(bytes < kGiB / 4, "%zu bytes of %zu", bytes, kGiB);
}

/* A profile begins while a block is packed: memory is refused at first, and malloc tries again. What is packed is in no
 * profile; else malloc calls a function that packed blocks do not have. */
int refusals_left;
void begin_a_profile() {
    hak_profile_start(1);
    refused_from = refusals_left-- > 0 ? kSlot : SIZE_MAX;
    meanwhile = refused_from == kSlot ? begin_a_profile : nullptr;
}
void a_profile_may_begin_while_a_block_is_packed() {
    while (!inside_region_is_scarce())
        blocks_of(1, 200 * kKiB);
    meanwhile_to = kSuperSlab;
    int packed = 0;
    for (int refusals = 1; refusals < 10; refusals++) {
        hak_profile_stop();
        refusals_left = refusals;
        meanwhile = begin_a_profile;
        for (int i = 0; i < 2000 && meanwhile != nullptr; i++)
            packed += hak_malloc(5000) != nullptr;
        MUST(meanwhile == nullptr, "%d refusals: memory was not asked for as often", refusals);
    }
    MUST(packed > 100, "%d blocks", packed);
}

void an_arena_finds_room_in_the_first_superslab() {
    hak_arena *arena = hak_arena_new(nullptr);
    for (int i = 0; i < 8; i++) {
        size_t slot = slot_of(hak_arena_malloc(arena, 200 * kKiB));
        MUST(slot < kPerSuperSlab, "block %d lies at slot %zu", i, slot);
    }
}

#if defined(__x86_64__)
int first_access = -1; /* 0: it reads, 1: it writes */
void note_access(int, siginfo_t *, void *context) {
    enum { WRITE = 2 };
    first_access = (static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_ERR] & WRITE) != 0;
    mprotect(inside_first_page_of_sets(), static_cast<size_t>(getpagesize()), PROT_READ | PROT_WRITE);
}
/* A page that is read before it is written costs two faults. */
void the_first_page_of_the_sets_is_written_first() {
    struct sigaction action = {};
    action.sa_sigaction = note_access;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    mprotect(inside_first_page_of_sets(), static_cast<size_t>(getpagesize()), PROT_NONE);
    hak_free(hak_malloc(1));
    MUST(first_access == 1, "it was read first");
}
#else
void the_first_page_of_the_sets_is_written_first() {}
#endif

size_t metadata() { return static_cast<size_t>(heap_stats()["rss_bytes"]["metadata"].number); }

/* An arena's heap has room for the caches of secure mode, which nobody uses here. */
void ended_arenas_leave_little() {
    constexpr size_t kArenas = 16;
    size_t before = metadata();
    std::vector<hak_arena *> arenas;
    for (size_t i = 0; i < kArenas; i++) {
        arenas.push_back(hak_arena_new(nullptr));
        memset(hak_arena_malloc(arenas.back(), 100), 1, 100);
    }
    size_t during = metadata();
    for (hak_arena *arena : arenas)
        hak_arena_destroy(arena);
    size_t after = metadata();
    MUST(after <= during + kArenas * kKiB, "%zu bytes before, %zu during, %zu after", before, during, after);
}

/* Blocks of all tiers come and go. */
void drift(unsigned seed) {
    Random random(seed);
    std::vector<void *> blocks(400);
    for (int i = 0; i < 3000; i++) {
        void *&block = blocks[random.below(blocks.size())];
        hak_free(block);
        size_t size = 1 + random.log_size(22);
        block = hak_malloc(size);
        memset(block, 1, std::min<size_t>(size, 100));
    }
    for (void *block : blocks)
        hak_free(block);
}

void totals_agree_with_the_records() {
    for (const char *purge : {"auto", "lazy", "eager", "never"}) {
        hak_option_set("PURGE", purge);
        for (unsigned seed = 0; seed < 3; seed++) {
            drift(seed);
            const char *wrong = inside_pool_disagrees();
            MUST(wrong == nullptr, "%s: %s", purge, wrong);
        }
        hak_trim();
        const char *wrong = inside_pool_disagrees();
        MUST(wrong == nullptr, "trimmed, %s: %s", purge, wrong);
    }
}

} // namespace

const std::vector<Case> kCases = {
    {"statistics", statistics_need_no_memory, {}, 0},
    {"behind", searches_go_on_behind_the_64th_superslab, {}, 0},
    {"surely", a_run_that_surely_fits_is_found, {"HAKMEM_PURGE=never"}, 0},
    {"owe", clients_owe_few_slots, {"HAKMEM_PURGE=never", "HAKMEM_HARD_LIMIT=1g"}, 0},
    {"last_superslab", the_region_is_used_to_its_last_superslab, {"HAKMEM_REGION_BYTES=256m"}, 0},
    {"readers", slots_stay_accessible_while_lists_are_read, {}, 0},
    {"unmapped", superslabs_stay_mapped_while_lists_are_read, {}, 0},
    {"read_moved", what_was_moved_stays_mapped_while_lists_are_read, {}, 0},
    {"guards", guards_wait_until_lists_are_read, {}, 0},
    {"no_guards", refused_guards_cost_no_memory, {}, 0},
    {"canaries", canaries_differ_from_block_to_block, {}, 0},
    {"last_slot", the_last_slot_below_the_limit_is_had, {"HAKMEM_CGROUP=0"}, 0},
    {"in_part", superslabs_get_memory_in_part, {}, 0},
    {"in_parts", superslabs_get_memory_in_part_at_the_same_time, {}, 0},
    {"aligned", what_lies_behind_an_aligned_run_serves, {}, 0},
    {"refused_once", a_superslab_that_was_refused_once_serves, {}, 0},
    {"refused_move", a_refused_move_leaves_nothing_resident, {}, 0},
    {"broken_move", a_move_that_breaks_loses_nothing, {}, 0},
    {"moves_once", others_have_memory_while_a_block_moves, {"HAKMEM_CGROUP=0"}, 0},
    {"inaccessible", a_span_that_stays_inaccessible_is_not_lost, {}, 0},
    {"late", a_heap_may_begin_late, {"HAK_TEST_REFUSES=1"}, 0},
    {"limits_itself", a_program_that_limits_itself_keeps_its_addresses, {"HAK_TEST_REFUSES=1"}, 0},
    {"refused", a_refused_purge_gives_nothing_back, {"HAKMEM_PURGE=never"}, 0},
    {"stopped", a_purge_that_was_stopped_ends, {"HAKMEM_PURGE=never"}, 0},
    {"clock", purges_work_when_the_clock_comes_around, {"HAKMEM_PURGE=never"}, 0},
    {"in_the_way", a_mapping_in_the_way_is_left_out, {"HAKMEM_REGION_BYTES=0"}, 0},
    {"old_kernel", an_old_kernel_maps_elsewhere, {"HAKMEM_REGION_BYTES=0"}, 0},
    {"scarce", memory_is_scarce_from_a_part_of_the_limit, {}, kGiB},
    {"profile_begins", a_profile_may_begin_while_a_block_is_packed, {}, kGiB},
    {"not_scarce", memory_is_not_scarce_because_too_much_was_asked_for, {"HAKMEM_REGION_BYTES=0"}, 0},
    {"totals", totals_agree_with_the_records, {"HAKMEM_RETAIN_BYTES=0"}, 0},
    {"arenas_end", ended_arenas_leave_little, {}, 0},
    {"arena", an_arena_finds_room_in_the_first_superslab, {}, 0},
    {"written_first", the_first_page_of_the_sets_is_written_first, {}, 0},
};
