/* When slabs go back, pass from thread to thread, and are trimmed, in processes of their own. If it fails, memory that
 * is free stays where nobody finds it, or is another's. */
/* SPDX-License-Identifier: MIT */
#include <future>
#include <iterator>
#include <thread>
#include <vector>

#include "sleeping_thread.h"
#include "slabs_kit.h"

namespace {

/* One block of 1,000 bytes is left there. */
void must_be_trimmed(size_t slot) {
    unsigned char pages[64];
    size_t page = static_cast<size_t>(getpagesize()), left = 0;
    MUST(mincore(inside_slot_address(slot), kSlot, pages) == 0, "mincore");
    for (size_t i = 0; i < kSlot / page; i++)
        left += (pages[i] & 1) * page;
    MUST(left <= std::max(page, kSlot / 4), "%zu bytes of slot %zu stay", left, slot);
}

void the_first_slot_is_trimmed() {
    auto blocks = blocks_of(200, 1000); /* the last slab is the current one, and stays */
    MUST(slot_of(blocks.front()) == 0, "slot %zu", slot_of(blocks.front()));
    for (size_t i = 1; i < blocks.size(); i++)
        hak_free(blocks[i]);
    hak_trim();
    must_be_trimmed(0);
}

/* Frees all that a slot has but its first block. */
void free_most_of(const std::vector<char *> &blocks, size_t slot) {
    for (size_t i = 1; i < blocks.size(); i++)
        if (slot_of(blocks[i]) == slot && slot_of(blocks[i - 1]) == slot)
            hak_free(blocks[i]);
}

/* Two neighbours have free pages, the higher one before the other. They go once less may stay. */
void free_pages_of_neighbours_are_noted() {
    auto blocks = blocks_of(300, 1000);
    for (size_t slot : {2, 1})
        free_most_of(blocks, slot);
    hak_option_set("RETAIN_BYTES", "0");
    free_most_of(blocks, 3);
    must_be_trimmed(1);
    must_be_trimmed(2);
}

/* The blocks fill whole pages, and one in four stays. */
void free_pages_of_mid_slabs_go() {
    if (getpagesize() != 4096) /* a larger page holds parts of several blocks */
        return;
    hak_option_set("ring_blocks", "1"); /* all others go back to their slabs */
    hak_option_set("RETAIN_BYTES", "0");
    auto blocks = blocks_of(400, 12288);
    for (size_t i = 0; i < blocks.size(); i++)
        if (i % 4 != 0)
            hak_free(blocks[i]);
    MUST(counter("trimmed_pages") > 300, "%ld pages went", counter("trimmed_pages"));
}

/* Some pages of a slab that serves its class again have gone, and stay gone. */
void an_empty_slab_without_all_its_pages_goes_back() {
    auto blocks = blocks_of(300, 1000);
    size_t slot = slot_of(blocks[100]);
    std::vector<char *> kept;
    for (char *block : blocks)
        if (slot_of(block) == slot && kept.size() < 10)
            kept.push_back(block);
        else if (slot_of(block) == slot)
            hak_free(block);
    hak_trim();
    size_t active = inside_pool_count().active_slots;
    do
        kept.push_back(blocks_of(1, 1000)[0]);
    while (slot_of(kept.back()) != slot);
    for (char *block : kept)
        hak_free(block);
    for (int i = 0; i < 10000; i++)
        hak_free(hak_malloc(1000));
    hak_trim();
    MUST(inside_pool_count().active_slots < active, "%zu slots, %zu before", inside_pool_count().active_slots, active);
}

/* A block was freed, written to and freed again: as many frees as the slab has blocks, one of which is live. */
void a_slab_with_a_live_block_stays() {
    auto blocks = blocks_of(300, 1000);
    size_t slot = slot_of(blocks[100]);
    hak_free(blocks[100]);
    memset(blocks[100], 1, 8);
    hak_free(blocks[100]);
    for (size_t i = 101; i < blocks.size(); i++)
        if (slot_of(blocks[i]) == slot)
            hak_free(blocks[i]);
    char *live = nullptr;
    for (size_t i = 0; i < 100; i++)
        if (slot_of(blocks[i]) == slot && live != nullptr)
            hak_free(blocks[i]);
        else if (slot_of(blocks[i]) == slot)
            live = blocks[i];
    for (int i = 0; i < 300; i++)
        memset(hak_malloc(1000), 2, 1000);
    MUST(live[0] == 1 && live[999] == 1, "its block was handed out once more");
}

void an_empty_slab_goes_back() {
    for (void *block : blocks_of(60, 1000))
        hak_free(block);
    MUST(inside_pool_count().active_slots == 0, "%zu slots are in use", inside_pool_count().active_slots);
}

/* The slab of a thread that ended serves with what was cut of it. Then it stays with the heap, which cuts the rest
 * later. If it fails, other threads get it meanwhile, and each slab passes from heap to heap. */
void a_slab_that_is_not_all_cut_stays() {
    char *left = nullptr;
    size_t more = 0;
    hak_free(hak_malloc(1)); /* nobody is alone */
    std::thread([&] { left = blocks_of(1, 1000)[0]; }).join();
    while (slot_of(blocks_of(1, 1000)[0]) == slot_of(left))
        more++;
    MUST(more != 0, "the slab did not serve");
    auto record = inside_tiny_record_of(left, inside_heap());
    MUST(record.carved == more + 1, "%u blocks are cut, %zu were handed out", record.carved, more + 1);
    MUST(record.owner == inside_heap() && record.usable, "the heap has let go of the slab");
}

/* A signal's handler forked while the slab was being listed. */
void a_slab_that_is_half_listed_is_taken_off() {
    auto blocks = blocks_of(300, 1000);
    size_t slot = slot_of(blocks[100]), freed = 0;
    MUST(slot != 0, "the lowest slab is to stay as it is");
    for (char *block : blocks)
        if (slot_of(block) == slot && freed++ < inside_class_at(inside_tiny_class_of(1000)).reuse_at)
            hak_free(block);
    MUST(inside_unlist_half_listed(blocks[100]), "the slab's list does not end, or another slab has changed");
}

/* Another thread may have handed out a block since it looked free. Nobody is said to have freed it then. */
void who_freed_a_live_block_is_not_said() {
    hak_free(hak_malloc(1));
    std::thread([] { hak_free(hak_malloc(1)); }).join();
    char *block = blocks_of(100, 1000).back(); /* the first slab in its slot */
    MUST(!inside_freer_is_known(block), "somebody has freed a block that is live");
    hak_free(block);
    MUST(inside_freer_is_known(block), "nobody has freed the block");
}

/* A heap's last thread may have gathered the block. Then nobody knows which of the two freed it. */
void who_freed_a_gathered_block_is_said_if_known() {
    std::vector<char *> blocks;
    hak_free(hak_malloc(1));
    SleepingThread owner([&] { blocks = blocks_of(20, 1000); });
    for (size_t i = 0; i < 3; i++) /* the first one is sent at once */
        hak_free(blocks[i]);
    MUST(inside_freer_is_known(blocks[2]), "this thread has freed the block");
    inside_inherit();
    MUST(!inside_freer_is_known(blocks[2]), "this thread is said to have freed it");
}

/* A slab that nobody owns is on offer from the very block on that makes it worth using, though nobody adopts it then:
 * whoever frees here is at its end. */
void a_slab_is_offered_once_enough_is_free() {
    std::vector<char *> blocks, few;
    hak_free(hak_malloc(1)); /* nobody is alone */
    std::thread([&] { blocks = blocks_of(300, 1000); }).join();
    size_t slot = slot_of(blocks[100]);
    for (char *block : blocks)
        if (slot_of(block) == slot && few.size() < inside_class_at(inside_tiny_class_of(1000)).reuse_at)
            few.push_back(block);
    std::thread([&] {
        for (char *block : few)
            hak_free(block);
    }).join();
    size_t found = 0;
    for (char *block : blocks_of(100, 1000))
        found += slot_of(block) == slot;
    MUST(found == few.size(), "%zu of %zu blocks were handed out again", found, few.size());
}

/* An arena may end at any moment, and its slabs with it: only its own heaps look at them. */
void an_arena_is_trimmed_by_its_own_heaps() {
    const void *block = hak_malloc(100), *of_arena = hak_arena_malloc(hak_arena_new(nullptr), 100);
    for (int lane : {0, 1}) {
        MUST(inside_may_trim(block, lane), "a heap of the process, lane %d, leaves the process's slabs alone", lane);
        MUST(!inside_may_trim(of_arena, lane), "a heap of the process, lane %d, trims an arena", lane);
    }
}

/* An arena ends while another thread, which found the slab before the arena had it, trims it: the slab stays, with its
 * other free blocks. */
void a_mid_slab_that_is_being_trimmed_stays() {
    hak_arena *arena = hak_arena_new(nullptr);
    void *block = hak_arena_malloc(arena, 1500); /* the ring does not get all of the slab */
    uint64_t free = inside_mid_hold(block);
    MUST(free != 0, "the slab has no further free block");
    hak_arena_destroy(arena);
    MUST(inside_mid_free_blocks(block) == free, "of the free blocks %#lx are left", inside_mid_free_blocks(block));
}

/* A fresh slab that serves no more, all of whose blocks others have freed. */
void an_empty_fresh_slab_goes_back() {
    auto blocks = blocks_of(140, 1000);
    size_t first = slot_of(blocks[0]), fresh = slot_of(blocks.back());
    std::vector<char *> of_fresh;
    free_most_of(blocks, first);
    for (char *block : blocks)
        if (slot_of(block) == fresh)
            of_fresh.push_back(block);
    for (char *more; slot_of(more = blocks_of(1, 1000)[0]) == fresh;)
        of_fresh.push_back(more);
    std::thread([&] {
        for (char *block : of_fresh)
            hak_free(block);
    }).join();
    size_t active = inside_pool_count().active_slots;
    hak_trim();
    MUST(inside_pool_count().active_slots == active - 1, "%zu slots are in use, %zu were",
         inside_pool_count().active_slots, active);
}

/* Slabs without owner, on offer for the blocks, which another thread has freed. */
std::vector<std::vector<char *>> slabs_on_offer(size_t count) {
    std::vector<char *> blocks;
    std::vector<std::vector<char *>> of(count);
    hak_free(hak_malloc(1)); /* nobody is alone */
    std::thread([&] { blocks = blocks_of(64 * (count + 2), 1000); }).join();
    size_t first = slot_of(blocks[0]) + 1;
    for (char *block : blocks)
        if (size_t n = slot_of(block) - first;
            n < count && of[n].size() < inside_class_at(inside_tiny_class_of(1000)).reuse_at)
            of[n].push_back(block);
    std::thread([&] {
        for (auto &few : of)
            for (char *block : few)
                hak_free(block);
    }).join();
    return of;
}

size_t found_again(const std::vector<char *> &freed, size_t mallocs) {
    size_t found = 0;
    for (char *block : blocks_of(mallocs, 1000))
        found += slot_of(block) == slot_of(freed[0]);
    return found;
}

/* Whoever has the slab on loan is freeing there as another thread would take it. It stays on offer for later. */
void an_offer_in_use_stays_one() {
    auto slabs = slabs_on_offer(1);
    inside_loan_begin(slabs[0][0]);
    MUST(found_again(slabs[0], 1) == 0, "the slab was taken from a thread that was using it");
    inside_loan_end(slabs[0][0]);
    MUST(found_again(slabs[0], 100) == slabs[0].size(), "its free blocks were not handed out again");
}

/* A child lacks the threads that were freeing into slabs on loan as it was forked. What else is on offer it finds. */
void a_child_finds_offers_behind_lost_loans() {
    constexpr size_t kLost = 8;
    auto slabs = slabs_on_offer(kLost + 1);
    for (size_t i = 0; i < kLost; i++)
        inside_loan_begin(slabs[i][0]);
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(found_again(slabs[kLost], 100) == slabs[kLost].size() ? 0 : 1);
    MUST(waitpid(child, &status, 0) == child && status == 0, "free blocks were not handed out again: %d", status);
}

/* A thread ends another's loan and is interrupted. Before it counts that, the heap that had the loan has served an
 * arena. Were the number wrong then, the purger would look for loans for good. */
void an_arena_leaves_the_number_of_loans() {
    std::vector<char *> blocks;
    void *heap = nullptr;
    hak_free(hak_malloc(1));
    std::thread([&] { blocks = blocks_of(200, 1000); }).join();
    std::thread([&] {
        hak_free(hak_malloc(1));
        heap = inside_heap();
        MUST(inside_borrow(blocks[100]), "somebody owns the slab");
        inside_loan_end_begin(blocks[100]);
    }).join();
    hak_arena *arena = hak_arena_new(nullptr);
    MUST(hak_arena_malloc(arena, 100) != nullptr && inside_serves_arena(heap), "the arena has another heap");
    hak_arena_destroy(arena);
    inside_loan_end_go_on(heap);
    MUST(inside_borrowed(heap) == 0, "%u loans, and there are none", inside_borrowed(heap));
}

/* A slab that is full and nobody's: the blocks of it, in address order. */
std::vector<char *> blocks_of_nobody() {
    std::vector<char *> blocks;
    std::thread([&] { blocks = blocks_of(200, 1000); }).join();
    std::vector<char *> of_slab;
    std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(of_slab),
                 [&](char *block) { return slot_of(block) == slot_of(blocks[100]); });
    return of_slab;
}

/* The only thread owns every slab into which it frees: also those that it has on loan, once enough of their blocks are
 * free, or others have freed blocks there. */
void the_only_thread_keeps_what_it_has_on_loan() {
    hak_free(hak_malloc(1));
    for (bool others_free : {false, true}) {
        auto blocks = blocks_of_nobody();
        MUST(inside_borrow(blocks[0]), "somebody owns the slab");
        if (others_free)
            std::thread([&] { hak_free(blocks[1]); }).join();
        for (size_t i = 2; i < (others_free ? 3 : blocks.size() / 2); i++)
            hak_free(blocks[i]);
        MUST(inside_heap_of(blocks[0]) == inside_heap(), "the thread does not own the slab");
        MUST(inside_borrowed(inside_heap()) == 0, "the loan has not ended");
    }
}

/* Beside another thread, which frees there, too, the loan ends, and nobody owns the slab. */
void a_loan_ends_when_others_free_there() {
    hak_free(hak_malloc(1));
    auto blocks = blocks_of_nobody();
    MUST(inside_borrow(blocks[0]), "somebody owns the slab");
    std::promise<void> freed, ends;
    std::thread other([&] {
        hak_free(blocks[1]);
        freed.set_value();
        ends.get_future().wait();
    });
    freed.get_future().wait();
    hak_free(blocks[2]);
    MUST(inside_tiny_record_of(blocks[0], inside_heap()).owned == INSIDE_OWNER_NONE, "somebody has the slab");
    MUST(inside_borrowed(inside_heap()) == 0, "the loan has not ended");
    ends.set_value();
    other.join();
}

/* What a thread owned before there were others it lets go of a part at a time. */
void a_thread_lets_go_of_few_slabs_at_once() {
    constexpr size_t kAtOnce = 64;
    for (char *block : blocks_of(200 * kAtOnce, 1000)) /* of each slab a half */
        if (reinterpret_cast<uintptr_t>(block) % kSlot < kSlot / 2)
            hak_free(block);
    std::promise<void> blocks_made, ends;
    std::vector<char *> blocks;
    std::thread other([&] {
        blocks = blocks_of(200, 1000);
        blocks_made.set_value();
        ends.get_future().wait();
    });
    blocks_made.get_future().wait();
    MUST(counter("slabs_evicted") == 0, "%ld were let go already", counter("slabs_evicted"));
    hak_free(blocks[0]);
    MUST(counter("slabs_evicted") == kAtOnce, "%ld were let go", counter("slabs_evicted"));
    ends.set_value();
    other.join();
}

/* Of the slabs into which a thread frees beside another one it may own none: it keeps the last. */
void a_thread_keeps_the_slab_that_it_adopted_last() {
    std::promise<void> blocks_made, ends;
    std::vector<char *> blocks;
    hak_free(hak_malloc(1));
    std::thread other([&] {
        blocks = blocks_of(300, 1000);
        blocks_made.set_value();
        ends.get_future().wait();
    });
    blocks_made.get_future().wait();
    for (size_t i : {0, 100, 200}) {
        hak_free(blocks[i]);
        MUST(inside_heap_of(blocks[i]) == inside_heap(), "the thread does not own the slab");
        MUST(i == 0 || inside_heap_of(blocks[i - 100]) != inside_heap(), "the thread owns two slabs");
    }
    ends.set_value();
    other.join();
}

/* The purger, which ends the loans of threads that sleep, does not look at the heaps of arenas: these adopt slabs, or
 * leave them alone. */
void a_heap_of_an_arena_borrows_none() {
    std::promise<void> blocks_made, ends;
    std::vector<char *> blocks;
    hak_arena *arena = hak_arena_new(nullptr);
    MUST(hak_arena_malloc(arena, 16) != nullptr, "no memory");
    std::thread other([&] {
        while (blocks.size() < 300)
            blocks.push_back(static_cast<char *>(hak_arena_malloc(arena, 1000)));
        blocks_made.set_value();
        ends.get_future().wait();
    });
    blocks_made.get_future().wait();
    hak_free(blocks.back()); /* the other owns that slab: this thread frees in bulk, by the tunable */
    hak_free(blocks[0]);
    MUST(counter("slabs_lent") == 0 && counter("slabs_adopted_by_free") == 1, "the slab was borrowed");
    ends.set_value();
    other.join();
}

/* The program has written to a free block and freed it once more, so that as many frees as the slab has blocks have
 * come. The block that is still out begins with what could be a link. */
void a_slab_of_which_a_block_was_freed_twice_stays() {
    auto blocks = blocks_of(200, 1000);
    char *live = blocks[5], *twice = blocks[7], *free_one = blocks[8];
    hak_free(twice);
    memset(twice, 1, sizeof(uintptr_t));
    for (char *block : blocks)
        if (slot_of(block) == slot_of(live) && block != live && block != twice)
            hak_free(block);
    memcpy(live, free_one, sizeof(uintptr_t));
    hak_free(twice);
    MUST(inside_heap_of(live) == inside_heap(), "the slab went back with a block that is out");
}

/* A thread that has no heap, and has one made for the library's own, still has none. */
void who_starts_the_purger_gets_no_heap() {
    MUST(!inside_has_heap(), "the thread has a heap from the start");
    inside_before_thread();
    MUST(!inside_has_heap(), "the thread was given a heap that it did not need");
}

/* Only threads that pthread_create made count as threads. That others have ended, their heaps tell. */
void the_last_heap_that_goes_calls_the_purger() {
    hak_free(hak_malloc(1));
    MUST(inside_last_thread_calls_purger(), "it waits for good");
    MUST(!inside_has_purger(), "it has waited and will end, and others leave their memory to it");
}

/* A page's worth of blocks came back to slabs that nobody owns: too few for them to be noted. The purger passes twice
 * before it parks, and what stayed free from one pass to the other goes. */
void what_stays_free_while_the_program_rests_goes() {
    constexpr long kSlabs = 40, kPerSlab = 64;
    if (getpagesize() != 4096) /* seven blocks have no larger page */
        return;
    std::vector<char *> blocks;
    SleepingThread other([] { hak_free(hak_malloc(1)); });
    std::thread([&] { blocks = blocks_of(kSlabs * kPerSlab, 1000); }).join();
    auto large = blocks_of(40, 200'000);
    MUST(inside_has_purger(), "there is no purger");
    for (char *block : blocks)
        if (size_t place = static_cast<size_t>(block - inside_slot_address(0)) % kSlot / 1000; place >= 9 && place < 16)
            hak_free(block); /* one after the other, and a slab in use has 64 */
    long before = counter("trimmed_pages");
    rushes = true;
    inside_await_park();
    long went = counter("trimmed_pages") - before;
    MUST(went >= kSlabs - 2, "%ld pages went", went);
}

/* A program with two threads gets no purger while it uses little memory. */
void a_small_program_gets_no_purger() {
    SleepingThread other([] { hak_free(hak_malloc(1)); });
    blocks_of(20, 100'000);
    MUST(!inside_has_purger(), "there is one");
    blocks_of(40, 200'000);
    MUST(inside_has_purger(), "there is none, though 8 MB are in use");
}

} // namespace

const std::vector<Case> kCases = {
    {"first", the_first_slot_is_trimmed, {}, 0},
    {"neighbours", free_pages_of_neighbours_are_noted, {}, 0},
    {"mid", free_pages_of_mid_slabs_go, {}, 0},
    {"live", a_slab_with_a_live_block_stays, {"HAKMEM_ON_ERROR=warn"}, 0},
    {"empty", an_empty_slab_goes_back, {}, 0},
    {"empty_in_part", an_empty_slab_without_all_its_pages_goes_back, {}, 0},
    {"offered", a_slab_is_offered_once_enough_is_free, {}, 0},
    {"not_all_cut", a_slab_that_is_not_all_cut_stays, {}, 0},
    {"half_listed", a_slab_that_is_half_listed_is_taken_off, {}, 0},
    {"gathered", who_freed_a_gathered_block_is_said_if_known, {}, 0},
    {"freer", who_freed_a_live_block_is_not_said, {}, 0},
    {"own_heaps", an_arena_is_trimmed_by_its_own_heaps, {}, 0},
    {"held", a_mid_slab_that_is_being_trimmed_stays, {}, 0},
    {"fresh", an_empty_fresh_slab_goes_back, {}, 0},
    {"offer_in_use", an_offer_in_use_stays_one, {}, 0},
    {"lost_loans", a_child_finds_offers_behind_lost_loans, {}, 0},
    {"loan_kept", the_only_thread_keeps_what_it_has_on_loan, {"HAKMEM_PURGER=0"}, 0},
    {"loan_ends", a_loan_ends_when_others_free_there, {"HAKMEM_PURGER=0"}, 0},
    {"at_once", a_thread_lets_go_of_few_slabs_at_once, {"HAKMEM_PURGER=0"}, 0},
    {"adopted_last",
     a_thread_keeps_the_slab_that_it_adopted_last,
     {"HAKMEM_TUNE=owned_slabs=0,credit_slabs=0", "HAKMEM_PURGER=0"},
     0},
    {"arena_adopts",
     a_heap_of_an_arena_borrows_none,
     {"HAKMEM_TUNE=owned_slabs=0,credit_slabs=0,loan_from_frees=1"},
     0},
    {"twice", a_slab_of_which_a_block_was_freed_twice_stays, {"HAKMEM_ON_ERROR=warn"}, 0},
    {"counted_late", an_arena_leaves_the_number_of_loans, {}, 0},
    {"small", a_small_program_gets_no_purger, {"HAKMEM_PURGER=1"}, 0},
    {"rests",
     what_stays_free_while_the_program_rests_goes,
     {"HAKMEM_PURGER=1", "HAKMEM_DECAY_MS=600000", "HAKMEM_TUNE=owned_slabs=0,credit_slabs=0"},
     0},
    {"called", the_last_heap_that_goes_calls_the_purger, {"HAKMEM_PURGER=1"}, 0},
    {"no_heap", who_starts_the_purger_gets_no_heap, {"HAKMEM_PURGER=1"}, 0},
};
