/* See huge_pages.h. */
/* SPDX-License-Identifier: MIT */
#include "pool/huge_pages.h"
#include "base/clear.h"
#include "base/options.h"
#include "base/os.h"
#include "machine/page_cost.h"
#include "pool/limits.h"
#include "process/presence.h"
#include "space/purge.h"

#define SLOTS_HELD_BY_THREAD 48 /* partly used: `soak` has 45 to 50 for each thread */
#define ADVICE_CHANGES_MAX 64
#define CYCLE_FROM_SUPERSLABS 8 /* for each thread: 16 MiB purged and wanted back, and the program will do so again */

enum touches { TOUCHES_UNKNOWN, TOUCHES_WHOLE, TOUCHES_PARTS };

/* Written by any thread. Each field is a hint that stands for itself, so relaxed accesses are enough. */
static struct {
    _Atomic uint32_t advice_changes; /* read-modify-writes */
    _Atomic bool advising;
    _Atomic uint8_t touches;          /* enum touches: the larger block that the program freed last */
    _Atomic uint32_t back_superslabs; /* taken in a row that had just been purged; read-modify-writes */
} huge_pages;

/* A thread holds one or two half-used slots of each class that it uses. With huge pages these are wholly resident, so
 * they must be few against all slots in use: a quarter. A huge block has no such slots. Advice differs between
 * neighbours only a few times, as each change is a mapping. */
static bool heap_is_large(size_t superslab, enum contents contents) {
    if (option(OPT_HUGE_PAGES) == HUGE_ALWAYS)
        return true;
    int64_t held = contents != CONTENTS_RUN ? (int64_t)presence_heaps() * SLOTS_HELD_BY_THREAD : 0;
    return superslab * SUPERSLAB_BYTES >= option(OPT_HUGE_PAGES_FROM) && (int64_t)account_active_slots() > 4 * held;
}

/* Did the program touch the end of the block? Then it seems to touch its larger blocks whole. */
void huge_pages_freed_large(const void *block, size_t bytes) {
    const char *page = (const char *)block + round_down(bytes / 8 * 7, os_page_bytes());
    uint8_t touches = is_all_zero(page, os_page_bytes()) ? TOUCHES_PARTS : TOUCHES_WHOLE;
    if (load_relaxed(&huge_pages.touches) != touches)
        store_relaxed(&huge_pages.touches, touches);
}

/* Spans get no huge page until the program has shown that it touches its larger blocks whole. For huge blocks it is
 * enough that huge pages have paid elsewhere. */
static bool touches_whole(enum contents contents) {
    uint8_t touches = load_relaxed(&huge_pages.touches);
    return option(OPT_HUGE_PAGES) == HUGE_ALWAYS || contents == CONTENTS_TOUCHED || touches == TOUCHES_WHOLE ||
           (contents == CONTENTS_RUN && touches == TOUCHES_UNKNOWN);
}

/* Touches new memory that is about to be used. 0: nobody knows how long that took, as the thread was switched out
 * meanwhile. On a busy machine two huge pages of three are. */
static uint64_t touch_ns(char *at, size_t bytes) {
    os_watch_switches();
    uint64_t began = os_now_ns();
    touch_pages(at, bytes);
    uint64_t ns = max_size(os_now_ns() - began, 1);
    return os_was_switched() ? 0 : ns;
}

/* Whether the first touch can be timed: not where the slot may be inaccessible yet. A huge block whose first SuperSlab
 * is not its last counts too, if the program touches such blocks whole (vectors of four threads that grow to 32 MiB:
 * 159,000 page faults to 9,000). */
static bool can_time(enum contents contents, size_t n) {
    bool touched = contents != CONTENTS_RUN || (n > 1 && load_relaxed(&huge_pages.touches) == TOUCHES_WHOLE);
    return option(OPT_HUGE_PAGES) != HUGE_ALWAYS && touched && !mode()->free_is_shut;
}

/* Nobody knows whether the program will touch a huge block, so others have to show first that huge pages pay. */
static bool huge_pages_pay(enum contents contents, bool timed) {
    return option(OPT_HUGE_PAGES) == HUGE_ALWAYS ||
           (timed ? page_cost_try_huge() : page_cost_pays(contents != CONTENTS_RUN));
}

static void time_small_pages(size_t slot) {
    uint64_t ns = touch_ns(slot_address(slot), SLOT_BYTES);
    if (ns != 0)
        page_cost_note_small(ns * SUPERSLAB_SLOTS);
}

/* The first touch brings the huge page. If there is none, the last pages take as long as small ones. */
static void time_huge_page(size_t slot) {
    enum { LAST = 8 };
    size_t superslab = slot / SUPERSLAB_SLOTS, page = os_page_bytes();
    char *end = slot_address((superslab + 1) * SUPERSLAB_SLOTS);
    uint64_t ns = touch_ns(slot_address(slot), page), small_ns = page_cost_seen().small_ns;
    uint64_t last_ns = touch_ns(end - LAST * page, LAST * page);
    bool given = last_ns < small_ns / (SUPERSLAB_BYTES / page) * LAST / 2;
    if (ns != 0 && last_ns != 0)
        page_cost_note_huge(ns, given);
    if (!given)
        purge_split_huge_page(superslab);
}

/* Nobody has touched these SuperSlabs. False: they may have lost their memory. */
static bool ask_for_huge_pages(size_t first, size_t n) {
    for (size_t i = 0; i < n; i++)
        store_relaxed(&superslab_at(first + i)->huge, HUGE_WHOLE);
    return n == 0 || region_renew(slot_address(first * SUPERSLAB_SLOTS), n * SUPERSLAB_BYTES, true);
}

static size_t untimed_huge_pages(enum contents contents, size_t n) {
    return contents != CONTENTS_RUN || option(OPT_HUGE_PAGES) == HUGE_ALWAYS ? n : page_cost_trusted(n);
}

bool huge_pages_consider(size_t first, size_t n, enum contents contents) {
    if (option(OPT_HUGE_PAGES) == HUGE_NEVER || load_relaxed(&huge_pages.advice_changes) > ADVICE_CHANGES_MAX)
        return true;
    bool fits = !limits_near() && heap_is_large(first, contents) && touches_whole(contents);
    bool timed = fits && can_time(contents, n), pay = fits && huge_pages_pay(contents, timed);
    if (pay != load_relaxed(&huge_pages.advising)) {
        store_relaxed(&huge_pages.advising, pay);
        rmw_add(&huge_pages.advice_changes, 1);
    }
    if (pay && !ask_for_huge_pages(first, timed ? 1 : untimed_huge_pages(contents, n)))
        return false;
    if (timed)
        (pay ? time_huge_page : time_small_pages)(first * SUPERSLAB_SLOTS);
    if (!pay || !timed || ask_for_huge_pages(first + 1, page_cost_trusted(n - 1)))
        return true;
    os_unmap(slot_address(first * SUPERSLAB_SLOTS), SUPERSLAB_BYTES); /* as the rest, so that all can be mapped again */
    return false;
}

/* Does the program purge so much and want it back that what was in use will probably be in use again? */
static bool comes_back(const struct superslab *ss) {
    if (os_age_ms(os_now_ms(), load_relaxed(&ss->changed_ms)) >= option(OPT_DECAY_MS)) {
        store_relaxed(&huge_pages.back_superslabs, 0);
        return false;
    }
    return rmw_add(&huge_pages.back_superslabs, 1) >= presence_heaps() * CYCLE_FROM_SUPERSLABS;
}

/* Claims all slots behind the caller's, which are the SuperSlab's first. False: they are not, or another took some. */
static bool claim_rest(size_t slot, unsigned slots) {
    uint32_t resident;
    if (!superslab_extend(slot, slots, SUPERSLAB_SLOTS, &resident))
        return false;
    if (resident != 0)
        superslab_put_back(slot / SUPERSLAB_SLOTS, span_mask(slots, SUPERSLAB_SLOTS - slots), resident);
    return resident == 0;
}

/* How the SuperSlab is mapped was decided when it was purged; a pause may have begun since. */
static bool reconsider(size_t slot, unsigned slots, enum contents contents) {
    size_t superslab = slot / SUPERSLAB_SLOTS;
    bool huge = superslab_has_huge_page(slot), timed = touches_whole(contents) && can_time(contents, 1);
    bool pay = huge_pages_pay(contents, timed);
    if (huge && (timed || !pay) && claim_rest(slot, slots)) {
        if (pay)
            time_huge_page(slot);
        else if (!purge_renew(superslab, false))
            return false;
        huge = superslab_has_huge_page(slot);
        superslab_put_back(superslab, span_mask(slots, SUPERSLAB_SLOTS - slots), 0);
    }
    if (timed && !pay && !huge)
        time_small_pages(slot);
    return true;
}

bool huge_pages_wanted_back(size_t slot, unsigned slots, enum contents contents) {
    struct superslab *ss = superslab_at(slot / SUPERSLAB_SLOTS);
    bool back = comes_back(ss) && option(OPT_HUGE_PAGES) != HUGE_NEVER && !limits_near();
    if (load_relaxed(&hak_purge.comes_back) != back)
        store_relaxed(&hak_purge.comes_back, back);
    return page_cost_seen().timed == 0 || reconsider(slot, slots, contents);
}
