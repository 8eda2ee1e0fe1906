/* See defrag.h. */
/* SPDX-License-Identifier: MIT */
#include "move/defrag.h"
#include "base/os.h"
#include "heap/heap.h"
#include "space/superslab.h"
#include "threads/thread.h"

#include <string.h>

/* A question costs a few loads; with a look at the clock each time it would cost half as much again. */
#define ASK_BEFORE_CLOCK 127
#define SURVEY_AGE_MS 250
/* Slots that a survey looks at: 0.1 to 0.5 ms. In a larger heap it looks at every n-th SuperSlab. */
#define SURVEY_SLOTS 16384
/* Slabs are sorted by how full they are, in 64 steps. Those up to HALF are emptied in any case: two of them make one.
 * Those from DENSE on stay, as moving seven blocks to gain the place of one is no gain. */
enum { STEPS = 64, STEP_HALF = STEPS / 2, STEP_DENSE = STEPS * 7 / 8 };
#define CALLS_PER_CLOCK 16 /* steps of the cursor: a block, or a slab that is not sparse */

HAK_APART _Atomic uint64_t defrag_bounds[CLASSES];

static HAK_APART _Atomic uint32_t
    surveyed_ms[CLASSES]; /* when its bound was last found, | 1; 0: never, or it is out of date */

/* ---- the survey ---- */

struct survey {
    unsigned class_id;
    uint32_t slabs[STEPS + 1], out[STEPS + 1]; /* by step: slabs, and their blocks that are out */
    size_t lowest, highest;                    /* slots of the slabs */
};

static bool fill_of(struct slab *s, struct fill *fill) {
    const struct kind *kind = kinds[slab_kind(s)]; /* no block of an arena is worth moving: it would leave the arena */
    return kind->fill != NULL && kind->fill(s, fill);
}

static void survey_slab(struct survey *v, struct slab *s) {
    struct fill fill;
    if (slab_class(s) != v->class_id || !fill_of(s, &fill) || fill.slab != s || fill.class_id != v->class_id)
        return;
    unsigned blocks = size_classes[v->class_id].blocks, out = (unsigned)min_size(fill.out, blocks);
    v->slabs[out * STEPS / blocks]++;
    v->out[out * STEPS / blocks] += out;
    v->lowest = min_size(v->lowest, slot_of(s));
    v->highest = max_size(v->highest, slot_of(s));
}

static void survey_heap(struct survey *v) {
    size_t superslabs = region_frontier() / SUPERSLAB_BYTES;
    size_t stride = superslabs / (SURVEY_SLOTS / SUPERSLAB_SLOTS) + 1;
    for (size_t slot = 0; (slot = superslab_next_active(slot)) != BITSET_NONE;) {
        size_t past = slot % (stride * SUPERSLAB_SLOTS); /* the last SuperSlab that is looked at begins there */
        if (past < SUPERSLAB_SLOTS)
            survey_slab(v, slab_of_slot(slot));
        slot += past < SUPERSLAB_SLOTS ? 1 : stride * SUPERSLAB_SLOTS - past;
    }
}

/* The fewest blocks out with which a slab of `blocks` is at this step. */
static unsigned first_of_step(unsigned step, unsigned blocks) { return (step * blocks + STEPS - 1) / STEPS; }

static uint64_t bound_of(unsigned low, unsigned high, size_t edge) {
    return low | (uint64_t)high << 16 | (uint64_t)edge << 32;
}

/* Empties slabs on paper. `room`: free blocks of those that stay. */
static uint64_t find_bound(const struct survey *v) {
    unsigned blocks = size_classes[v->class_id].blocks, low = 0, high = 0;
    int64_t room = 0, moved = 0, emptied = 0;
    size_t edge = 0;
    for (unsigned step = 0; step < STEPS; step++)
        room += (int64_t)v->slabs[step] * blocks - v->out[step];
    for (unsigned step = 0; step < STEP_DENSE && low == high; step++) {
        int64_t slabs = v->slabs[step], out = v->out[step];
        int64_t places =
            moved < room ? (room - moved) / blocks : 0; /* a slab needs its blocks' room, and its own is lost */
        int64_t fit = step < STEP_HALF || places > slabs ? slabs : places;
        if (slabs == 0)
            continue;
        high = first_of_step(step + 1, blocks);
        low = fit == slabs ? high : first_of_step(step, blocks);
        edge = v->highest + 1 - (v->highest + 1 - v->lowest) * (size_t)fit / (size_t)slabs;
        moved += out * fit / slabs;
        room -= (slabs * blocks - out) * fit / slabs;
        emptied += fit;
    }
    int64_t started = moved > room ? (moved - room + blocks - 1) / blocks : 0;
    return emptied > started ? bound_of(low, high, edge) : 0;
}

/* Not inlined: its frame is large, and a question mostly does without. */
HAK_NOINLINE static void survey(unsigned class_id) {
    struct survey v = {.class_id = class_id, .lowest = SIZE_MAX};
    survey_heap(&v);
    store_relaxed(&defrag_bounds[class_id], find_bound(&v));
}

HAK_NOINLINE static void renew_bound(unsigned class_id) {
    uint32_t now = os_now_ms(), then = load_relaxed(&surveyed_ms[class_id]);
    if (then != 0 && os_age_ms(now, then) < SURVEY_AGE_MS)
        return;
    store_relaxed(&surveyed_ms[class_id], now | 1);
    survey(class_id);
}

/* ---- questions ---- */

/* The slab that the heap's dense allocations come from is none, however few blocks are out. */
static bool is_sparse(const struct heap *h, const struct fill *fill) {
    size_t slot = slot_of(fill->slab);
    return h->move.dense[fill->class_id] != slot + 1 && defrag_is_sparse(fill->class_id, fill->out, slot);
}

bool defrag_should_move(const void *p) {
    struct heap *h = thread_own();
    struct fill fill;
    bool known = region_has(p) && fill_of(slab_at_offset(region_offset(p)), &fill);
    if (unlikely(h->number == HEAP_NONE))
        return known && is_sparse(h, &fill);
    count(&h->client.counters, COUNT_move_asked);
    if (!known)
        return false;
    if (unlikely(h->move.asked_left[fill.class_id]-- == 0)) {
        h->move.asked_left[fill.class_id] = ASK_BEFORE_CLOCK;
        renew_bound(fill.class_id);
    }
    bool sparse = is_sparse(h, &fill);
    count_add(&h->client.counters, COUNT_move_answered_true, sparse);
    return sparse;
}

/* ---- the cursor ---- */

void defrag_begin(struct defrag_cursor *cursor, uint64_t ns) {
    uint64_t now = os_now_ns();
    cursor->end_ns = ns == 0 ? 0 : now + ns >= now ? now + ns : UINT64_MAX;
    cursor->calls = 0;
    struct heap *h = thread_enter(); /* slabs without owner become this heap's, so that their blocks can be read */
    thread_leave(h);
    if (cursor->slot != 0)
        return;
    for (unsigned c = 0; c < CLASSES; c++)
        store_relaxed(&surveyed_ms[c], 0);
    if (thread_own()->number != HEAP_NONE)
        memset(thread_own()->move.asked_left, 0, sizeof thread_own()->move.asked_left);
}

/* Finds the live blocks of the slab, if it is sparse. Another thread may end the slab meanwhile. */
static void open_slab(struct defrag_cursor *cursor, size_t slot) {
    struct fill fill;
    struct heap *h = thread_own();
    struct slab *s = slab_of_slot(slot);
    const struct kind *kind = kinds[slab_kind(s)];
    if (kind->fill == NULL || !kind->fill(s, &fill) || fill.slab != s)
        return;
    renew_bound(fill.class_id);
    if (!is_sparse(h, &fill))
        return;
    memset(cursor->live, 0, sizeof cursor->live);
    kind->live(h, s, fill.class_id, cursor->live);
    cursor->live_slot = slot;
    cursor->class_id = fill.class_id;
    cursor->words = LIVE_WORDS;
}

/* Takes a block from the map. False: there is none left. */
static bool take_block(struct defrag_cursor *cursor, unsigned *block) {
    for (; cursor->words != 0; cursor->words--) {
        uint64_t *word = &cursor->live[cursor->words - 1];
        if (*word == 0)
            continue;
        *block = (cursor->words - 1) * 64 + lowest_bit(*word);
        *word &= *word - 1;
        return true;
    }
    return false;
}

/* The block's address; NULL: it was freed since its slab was opened. */
static void *still_live(const struct defrag_cursor *cursor, unsigned block) {
    const struct slab *s = slab_of_slot(cursor->live_slot);
    const struct kind *kind = kinds[slab_kind(s)];
    if (kind->is_live == NULL || !kind->is_live(thread_own(), s, cursor->class_id, block))
        return NULL;
    return slot_address(cursor->live_slot) + (size_t)block * size_classes[cursor->class_id].block_bytes;
}

/* Not at the first steps: a box that is shorter than a reading of the clock makes some way, too. */
static bool time_is_up(struct defrag_cursor *cursor) {
    return cursor->end_ns != 0 && ++cursor->calls % CALLS_PER_CLOCK == 0 && os_now_ns() >= cursor->end_ns;
}

void *defrag_next(struct defrag_cursor *cursor, size_t *bytes) {
    while (!defrag_is_done(cursor) && !time_is_up(cursor)) {
        unsigned block;
        void *p = NULL;
        if (take_block(cursor, &block)) {
            p = still_live(cursor, block);
        } else {
            size_t slot = superslab_next_active(cursor->slot);
            cursor->slot = slot != BITSET_NONE ? slot + 1 : DEFRAG_DONE;
            if (slot != BITSET_NONE)
                open_slab(cursor, slot);
        }
        if (p != NULL) {
            *bytes = size_classes[cursor->class_id].block_bytes;
            return p;
        }
    }
    return NULL;
}

bool defrag_end(struct defrag_cursor *cursor) {
    bool done = defrag_is_done(cursor);
    if (done)
        cursor->slot = 0;
    return done;
}
