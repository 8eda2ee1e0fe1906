/* Where slots and slabs lie and when they go back, in processes of their own, whose first slot is the region's. If it
 * fails, memory that is free stays where nobody finds it, or is another's. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <fstream>
#include <future>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

static bool refuses;
/* Of the pieces of these sizes that are mapped in place of others, the first `spared` are; the next `left` are refused,
 * and what they were to replace is lost. */
static struct {
    size_t min, max;
    int spared, left, lost;
} breaks;
static bool is_lost(void *address, size_t bytes) {
    if (bytes < breaks.min || bytes > breaks.max || breaks.spared-- > 0 || breaks.left == 0)
        return false;
    breaks.left--, breaks.lost++;
    munmap(address, bytes);
    return true;
}
static enum { kMove, kRefuse, kBreak } moves; /* of pages, by mremap */
static size_t refused_from = SIZE_MAX;        /* bytes that are mapped in a piece */
static void (*meanwhile)();                   /* what another thread does while a slot is mapped, once */
static bool is_old_kernel;                    /* takes an address that must not be replaced as a wish */
/* These stand in for libc's. */
extern "C" void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t place) noexcept {
    if (void (*now)() = bytes == 64 * kKiB ? std::exchange(meanwhile, nullptr) : nullptr)
        now();
    if (is_old_kernel)
        flags &= ~MAP_FIXED_NOREPLACE;
    if (bytes < refused_from && !((flags & MAP_FIXED) != 0 && is_lost(address, bytes)))
        return reinterpret_cast<void *>(syscall(SYS_mmap, address, bytes, protection, flags, fd, place));
    errno = ENOMEM;
    return MAP_FAILED;
}
extern "C" void *mremap(void *address, size_t before, size_t bytes, int flags, ...) noexcept {
    va_list more;
    va_start(more, flags);
    void *to = va_arg(more, void *);
    va_end(more);
    if (moves == kBreak) { /* as the kernel does: it unmaps the target first */
        munmap(to, 2 * kMiB);
        refused_from = 1;
    }
    if (moves == kMove && bytes < refused_from && !is_lost(to, bytes))
        return reinterpret_cast<void *>(syscall(SYS_mremap, address, before, bytes, flags, to));
    errno = ENOMEM;
    return MAP_FAILED;
}
/* Times that the library measures one after the other with the exact clock, once `measured` are to be known: the first
 * takes so long, the second … */
static struct {
    bool known;
    unsigned readings;
    uint64_t now_ns, takes_ns[2];
} measured;
/* A second passes each time that a thread other than the first reads the coarse clock. */
static std::atomic<bool> rushes;
static std::atomic<time_t> passed_s;
extern "C" int clock_gettime(clockid_t which, struct timespec *now) noexcept {
    if (which != CLOCK_MONOTONIC || !measured.known) {
        int result = static_cast<int>(syscall(SYS_clock_gettime, which, now));
        if (which == CLOCK_MONOTONIC_COARSE)
            now->tv_sec += rushes && gettid() != getpid() ? ++passed_s : passed_s.load();
        return result;
    }
    if (unsigned n = measured.readings++; n < 4 && n % 2 != 0)
        measured.now_ns += measured.takes_ns[n / 2];
    *now = {static_cast<time_t>(measured.now_ns / 1'000'000'000), static_cast<long>(measured.now_ns % 1'000'000'000)};
    return 0;
}
/* Addresses of which the test wants to know how much was purged. */
static struct {
    uintptr_t from, to;
    size_t purged;
} watched;
static void watch_purge(uintptr_t from, uintptr_t to) {
    from = std::max(from, watched.from), to = std::min(to, watched.to);
    watched.purged += from < to ? to - from : 0;
}
extern "C" int madvise(void *address, size_t bytes, int advice) noexcept {
    auto at = reinterpret_cast<uintptr_t>(address);
    if (!refuses && advice == MADV_DONTNEED)
        watch_purge(at, at + bytes);
    if (!refuses)
        return static_cast<int>(syscall(SYS_madvise, address, bytes, advice));
    errno = EINVAL;
    return -1;
}
extern "C" int mprotect(void *address, size_t bytes, int protection) noexcept {
    if (!refuses)
        return static_cast<int>(syscall(SYS_mprotect, address, bytes, protection));
    errno = ENOMEM;
    return -1;
}

namespace {

constexpr size_t kSlot = 64 * kKiB, kPerSuperSlab = INSIDE_SUPERSLAB_SLOTS, kSuperSlab = kPerSuperSlab * kSlot;

size_t slot_of(const void *block) {
    return static_cast<size_t>(static_cast<const char *>(block) - inside_slot_address(0)) / kSlot;
}

std::vector<char *> blocks_of(size_t count, size_t bytes) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < count; i++) {
        blocks.push_back(static_cast<char *>(hak_malloc(bytes)));
        memset(blocks.back(), 1, bytes);
    }
    return blocks;
}

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
    std::mutex end;
    std::promise<void> begun;
    end.lock();
    hak_free(hak_malloc(1));
    std::thread owner([&] {
        blocks = blocks_of(20, 1000);
        begun.set_value();
        std::lock_guard<std::mutex> wait(end);
    });
    begun.get_future().wait();
    for (size_t i = 0; i < 3; i++) /* the first one is sent at once */
        hak_free(blocks[i]);
    MUST(inside_freer_is_known(blocks[2]), "this thread has freed the block");
    inside_inherit();
    MUST(!inside_freer_is_known(blocks[2]), "this thread is said to have freed it");
    end.unlock();
    owner.join();
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

void take_slots(size_t count) {
    void *client = inside_pool_client_new();
    int zero = 0;
    while (count-- > 0)
        MUST(inside_pool_take(client, 1, 1, 1, &zero) != inside_no_slot, "no slot");
}

/* A heap that becomes large after its 64th SuperSlab. Advice, of which there is to be little, did not change before. */
void a_large_heap_times_its_pages() {
    take_slots(90 * kPerSuperSlab);
    MUST(inside_page_cost_seen().small_ns != 0, "no page was timed");
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

void limit_addresses(long bytes) {
    struct rlimit limit = {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
    setrlimit(RLIMIT_AS, &limit);
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

void an_arena_finds_room_in_the_first_superslab() {
    hak_arena *arena = hak_arena_new(nullptr);
    for (int i = 0; i < 8; i++) {
        size_t slot = slot_of(hak_arena_malloc(arena, 200 * kKiB));
        MUST(slot < kPerSuperSlab, "block %d lies at slot %zu", i, slot);
    }
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
}

/* A page's worth of blocks came back to slabs that nobody owns: too few for them to be noted. The purger passes twice
 * before it parks, and what stayed free from one pass to the other goes. */
void what_stays_free_while_the_program_rests_goes() {
    constexpr long kSlabs = 40, kPerSlab = 64;
    if (getpagesize() != 4096) /* seven blocks have no larger page */
        return;
    std::mutex end;
    std::promise<void> begun;
    std::vector<char *> blocks;
    end.lock();
    std::thread other([&] {
        hak_free(hak_malloc(1));
        begun.set_value();
        std::lock_guard<std::mutex> wait(end);
    });
    begun.get_future().wait();
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
    end.unlock();
    other.join();
}

/* A program with two threads gets no purger while it uses little memory. */
void a_small_program_gets_no_purger() {
    std::mutex end;
    std::promise<void> begun;
    end.lock();
    std::thread other([&] {
        hak_free(hak_malloc(1));
        begun.set_value();
        std::lock_guard<std::mutex> wait(end);
    });
    begun.get_future().wait();
    blocks_of(20, 100'000);
    MUST(!inside_has_purger(), "there is one");
    blocks_of(40, 200'000);
    MUST(inside_has_purger(), "there is none, though 8 MB are in use");
    end.unlock();
    other.join();
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

/* On a busy machine the kernel would say that the thread was switched out, and nothing would be timed. */
const std::vector<std::string> kTimed = {"HAKMEM_HUGE_PAGES=auto", "HAKMEM_CGROUP=0",
                                         "GLIBC_TUNABLES=glibc.pthread.rseq=0"};

struct Case {
    const char *name;
    void (*run)();
    std::vector<std::string> environment;
    long address_bytes; /* that the process may have; 0: as many as there are */
} const kCases[] = {
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
    {"statistics", statistics_need_no_memory, {}, 0},
    {"behind", searches_go_on_behind_the_64th_superslab, {}, 0},
    {"surely", a_run_that_surely_fits_is_found, {"HAKMEM_PURGE=never"}, 0},
    {"owe", clients_owe_few_slots, {"HAKMEM_PURGE=never", "HAKMEM_HARD_LIMIT=1g"}, 0},
    {"canaries", canaries_differ_from_block_to_block, {}, 0},
    {"last_slot", the_last_slot_below_the_limit_is_had, {"HAKMEM_CGROUP=0"}, 0},
    {"large",
     a_large_heap_times_its_pages,
     {"HAKMEM_HUGE_PAGES=auto", "HAKMEM_HUGE_PAGES_FROM=160m", "HAKMEM_CGROUP=0"},
     0},
    {"in_part", superslabs_get_memory_in_part, {}, 0},
    {"in_parts", superslabs_get_memory_in_part_at_the_same_time, {}, 0},
    {"aligned", what_lies_behind_an_aligned_run_serves, {}, 0},
    {"refused_huge", what_a_refusal_unmapped_serves_again, {"HAKMEM_HUGE_PAGES=always", "HAKMEM_CGROUP=0"}, 0},
    {"refused_once", a_superslab_that_was_refused_once_serves, {}, 0},
    {"refused_move", a_refused_move_leaves_nothing_resident, {}, 0},
    {"broken_move", a_move_that_breaks_loses_nothing, {}, 0},
    {"inaccessible", a_span_that_stays_inaccessible_is_not_lost, {}, 0},
    {"late", a_heap_may_begin_late, {"HAK_TEST_REFUSES=1"}, 0},
    {"limits_itself", a_program_that_limits_itself_keeps_its_addresses, {"HAK_TEST_REFUSES=1"}, 0},
    {"refused", a_refused_purge_gives_nothing_back, {"HAKMEM_PURGE=never"}, 0},
    {"in_the_way", a_mapping_in_the_way_is_left_out, {"HAKMEM_REGION_BYTES=0"}, 0},
    {"old_kernel", an_old_kernel_maps_elsewhere, {"HAKMEM_REGION_BYTES=0"}, 0},
    {"scarce", memory_is_scarce_from_a_part_of_the_limit, {}, kGiB},
    {"not_scarce", memory_is_not_scarce_because_too_much_was_asked_for, {"HAKMEM_REGION_BYTES=0"}, 0},
    {"totals", totals_agree_with_the_records, {"HAKMEM_RETAIN_BYTES=0"}, 0},
    {"arenas_end", ended_arenas_leave_little, {}, 0},
    {"arena", an_arena_finds_room_in_the_first_superslab, {}, 0},
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
    {"apart", pages_purged_inside_slabs_stay_gone, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"lost_pages", pages_that_were_lost_are_not_handed_out, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"rounded_up", what_huge_pages_round_up_goes_back, {"HAKMEM_HUGE_PAGES=always"}, 0},
    {"rounded_up_meshed",
     what_huge_pages_round_up_beside_meshed_slabs_goes_back,
     {"HAKMEM_HUGE_PAGES=always", "HAKMEM_MESH=1"},
     0},
    {"back_timed", what_was_purged_is_timed_as_it_comes_back, kTimed, 0},
    {"back_small", what_was_purged_comes_back_small_in_a_pause, kTimed, 0},
    {"touched_end", a_block_is_touched_whole_if_its_end_is, kTimed, 0},
    {"back_lost", what_was_lost_in_a_pause_serves_again, kTimed, 0},
    {"written_first", the_first_page_of_the_sets_is_written_first, {}, 0},
};

class Slabs : public testing::TestWithParam<Case> {};
TEST_P(Slabs, LieAndGo) {
    const Case &of = GetParam();
    Outcome outcome = run_self({"--case", of.name}, of.environment, of.address_bytes != 0 ? limit_addresses : nullptr,
                               of.address_bytes);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}
INSTANTIATE_TEST_SUITE_P(All, Slabs, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &of) { return of.param.name; });

} // namespace

/* Before the library starts. */
static void refuse_first(int, char **, char **environment) {
    for (; *environment != nullptr; environment++)
        if (strcmp(*environment, "HAK_TEST_REFUSES=1") == 0)
            refused_from = 1;
}
__attribute__((section(".preinit_array"), used)) static void (*const refuse_at_once)(int, char **,
                                                                                     char **) = refuse_first;

extern const char *hak_options;
const char *hak_options = "PURGER=0,HUGE_PAGES=never";

int main(int argc, char **argv) {
    if (run_case(argc, argv, kCases))
        return 0;
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
