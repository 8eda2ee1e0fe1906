/* See sample.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/sample.h"
#include "base/logs.h"
#include "base/options.h"
#include "base/os.h"

/* Stored in the file, not in zeroed memory, because the kernel finds the semaphores by their offset in the file. */
HAK_KEPT __attribute__((section(".probes"))) struct asked hak_asked;
_Static_assert(offsetof(struct asked, alloc_tracers) == 4 && offsetof(struct asked, free_tracers) == 8, "probes.c");

#define LEFT_MAX INT32_MAX
#define RATE_BATCH 64
#define STRETCH_MAX 16

/* ---- chances ---- */

static double draw_bytes(struct sampler *r) {
    return minus_log(random_unit(&r->random)) * load_relaxed(&r->mean_bytes);
}
static uint32_t draw_blocks(struct sampler *r, unsigned c) {
    double blocks = draw_bytes(r) / size_classes[c].block_bytes;
    return blocks < LEFT_MAX ? (uint32_t)blocks : LEFT_MAX;
}

static double chance_of_bytes(size_t bytes, double mean) { return mean != 0 ? chance_of((double)bytes / mean) : 0; }

/* Draws the purpose of a sample, or both. Each has its own chance. */
static unsigned choose_purposes(struct sampler *r, double profile, double guard) {
    if (guard == 0)
        return SAMPLE_PROFILE;
    double draw = random_unit(&r->random) * (profile + guard - profile * guard);
    if (draw > profile)
        return SAMPLE_GUARD;
    return draw > profile - profile * guard ? SAMPLE_PROFILE | SAMPLE_GUARD : SAMPLE_PROFILE;
}

/* ---- the list of a class ---- */

/* Counts the blocks of a chain, up to `max`, and finds the last of these. The chain ends where it was overwritten. */
static unsigned walk(uintptr_t block, unsigned max, uintptr_t *last) {
    unsigned n = 0;
    uintptr_t slot = block;
    for (; n < max && !is_no_block(block) && same_slot(block, slot) && region_has(block_word(block)); n++) {
        *last = block;
        block = block_next(block);
    }
    return n;
}

/* Counts the blocks that were handed out since the last count. */
static void count_pops(struct heap *h, unsigned c) {
    struct sampler_class *t = &h->sampled[c];
    const struct slab *s = h->current[c];
    uintptr_t last;
    uint32_t listed =
        is_no_block(load_relaxed(&h->list[c])) ? 0 : walk(load_relaxed(&h->list[c]), size_classes[c].blocks, &last);
    uint32_t in = t->had + (s != NULL ? t->seen - s->tiny.countdown : 0);
    uint32_t out = in > listed ? in - listed : 0;
    t->left -= out < t->left ? out : t->left;
    t->had = listed;
    if (s != NULL)
        t->seen = s->tiny.countdown;
}

/* Joins the rest to the list again. `rest` is cleared before the rest is linked, so a child that a signal handler forks
 * in between can at worst lose blocks. */
static void join(struct heap *h, unsigned c) {
    uintptr_t rest = load_relaxed(&h->sampled[c].rest), last;
    if (rest == 0)
        return;
    store_relaxed(&h->sampled[c].rest, 0);
    atomic_signal_fence(memory_order_seq_cst);
    if (is_no_block(load_relaxed(&h->list[c])))
        store_relaxed(&h->list[c], rest);
    else if (walk(load_relaxed(&h->list[c]), size_classes[c].blocks, &last) != 0)
        block_link(last, rest);
}

/* Moves all but the first `keep` blocks of the list to the rest. Returns how many blocks the list has then. */
static unsigned cut(struct heap *h, unsigned c, unsigned keep) {
    uintptr_t last = 0, end, first = load_relaxed(&h->list[c]);
    _Atomic uintptr_t *rest = &h->sampled[c].rest;
    unsigned n = walk(first, keep, &last);
    uintptr_t off = n != 0 ? block_next(last) : first, terminator = (first & ~(uintptr_t)(SLOT_BYTES - 1)) | 1;
    if (n < keep || is_no_block(off) || !same_slot(off, first))
        return n;
    if (n != 0)
        block_link(last, terminator);
    else
        store_relaxed(&h->list[c], terminator);
    atomic_signal_fence(memory_order_seq_cst); /* as above */
    if (load_relaxed(rest) != 0 && walk(off, size_classes[c].blocks, &end) != 0)
        block_link(end, load_relaxed(rest));
    store_relaxed(rest, off);
    return n;
}

void sample_cut(struct heap *h, unsigned c, unsigned blocks) {
    struct sampler_class *t = &h->sampled[c];
    struct slab *s = h->current[c];
    unsigned max = t->left / 2 + t->left % 2;
    t->had = blocks > max ? cut(h, c, max) : blocks;
    if (s == NULL)
        return;
    /* With this many pushes at most `left` blocks are popped: the last push is still listed as the countdown ends. */
    uint32_t frees = t->left - t->had + 1, whole = s->tiny.countdown + load_relaxed(&h->deferred[c]);
    uint32_t deferred = whole > frees ? whole - frees : 0;
    store_relaxed(&h->deferred[c], deferred);
    t->seen = s->tiny.countdown = whole - deferred;
}

void sample_take_back(struct heap *h, unsigned c) {
    count_pops(h, c);
    join(h, c);
    h->sampled[c].had = 0;
}

void sample_made_current(struct heap *h, unsigned c, unsigned blocks) {
    h->sampled[c].had = blocks;
    h->sampled[c].seen = h->current[c]->tiny.countdown;
}

void sample_handed_out(struct heap *h, unsigned c, unsigned blocks) {
    h->sampled[c].left -= h->sampled[c].left != 0;
    sample_cut(h, c, blocks != SAMPLE_UNCOUNTED ? blocks - 1 : blocks);
}

void sample_rejoin(struct heap *h, unsigned c) {
    if (load_relaxed(&h->sampled[c].rest) != 0 && is_no_block(load_relaxed(&h->list[c])))
        sample_take_back(h, c);
}

/* ---- on and off ---- */

/* Makes all heaps' rings take the slow path. Without the flag, a ring that is neither empty nor full has none. */
static void tell_all(void) {
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        rmw_or(&h->caches_flags, CACHES_SAMPLING);
}

/* Sets up the heap's sampling from what the profile and the options want now. */
static void begin_anew(struct heap *h) {
    struct sampler *r = &h->sample;
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        join(h, c);
        if (h->current[c] != NULL)
            h->current[c]->tiny.countdown += load_relaxed(&h->deferred[c]);
        store_relaxed(&h->deferred[c], 0);
    }
    r->wanted = load_relaxed(&hak_asked.wanted); /* first: if that changes meanwhile, the heap begins anew once more */
    uint32_t interval = asked_interval();
    r->profile_mean_bytes = (double)interval * (double)((uint64_t)1 << r->stretch);
    r->guard_wanted = (uint32_t)option(OPT_GUARD_SAMPLE_BYTES);
    bool is_new = rmw_swap(&hak_asked.told, r->wanted) != r->wanted;
    is_new |= rmw_swap(&hak_asked.told_guard_bytes, r->guard_wanted) != r->guard_wanted;
    double often = 0;
    if (interval != 0)
        often += 1 / r->profile_mean_bytes;
    if (r->guard_wanted != 0)
        often += 1 / (double)r->guard_wanted;
    if (often == 0 || !mode()->has_samples) {
        store_relaxed(&r->mean_bytes, 0);
        r->bytes_left = 0;
        rmw_and(&h->caches_flags, (uint8_t)~CACHES_SAMPLING);
        return;
    }
    heap_end_sharing(h); /* what is sampled of a class is of its own sizes */
    store_relaxed(&r->mean_bytes, (float)(1 / often));
    if (r->random == 0)
        r->random = os_random(OS_RANDOM_SEED) ^ (uint64_t)h->number << 40 ^ os_now_ms();
    r->bytes_left = (int64_t)draw_bytes(r);
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        h->sampled[c].left = draw_blocks(r, c);
        sample_cut(h, c, SAMPLE_UNCOUNTED);
    }
    rmw_or(&h->caches_flags, CACHES_SAMPLING);
    if (is_new)
        tell_all();
}

void sample_changed(bool more) {
    rmw_swap(&hak_asked.told, load_relaxed(&hak_asked.wanted));
    if (more)
        tell_all();
}

bool sample_is_far_in_class(struct heap *h, unsigned c) {
    if (!sample_is_set_up(h))
        return false;
    count_pops(h, c);
    return h->sampled[c].left != 0;
}

/* A sample costs a microsecond or more. So a thread that takes them too fast takes half as many, each of which counts
 * twice. When that is decided nothing is known of the next sample, so there is no bias. */
static void keep_rate(struct heap *h) {
    struct sampler *r = &h->sample;
    uint64_t max_rate = option(OPT_PROFILE_RATE);
    uint32_t now = os_now_ms(), ms = now - r->batch_ms,
             min_ms = max_rate != 0 ? (uint32_t)(RATE_BATCH * 1000 / max_rate) : 0;
    bool slow = r->stretch != 0 && ms >= 4 * min_ms;
    if (++r->batch < RATE_BATCH && !slow)
        return;
    r->batch = 0, r->batch_ms = now;
    bool fast = ms < min_ms && r->stretch < STRETCH_MAX;
    r->stretch = r->stretch + fast - slow;
    if (fast || slow)
        begin_anew(h);
}

/* Counts a block of `bytes`. Is it the one to sample? */
static bool is_due(struct heap *h, size_t bytes, unsigned c) {
    struct sampler *r = &h->sample;
    if (c == TINY_CLASSES) {
        r->bytes_left -= (int64_t)bytes;
        if (r->bytes_left >= 0)
            return false;
        r->bytes_left = (int64_t)draw_bytes(r);
        return true;
    }
    count_pops(h, c);
    if (h->sampled[c].left != 0)
        return false;
    h->sampled[c].left = draw_blocks(r, c);
    sample_cut(h, c, h->sampled[c].had);
    return true;
}

struct sample sample_due(struct heap *h, size_t bytes, unsigned c) {
    struct sampler *r = &h->sample;
    struct sample sample = {0, 0};
    if (!sample_is_set_up(h))
        begin_anew(h);
    if (!sample_on(h) || likely(!is_due(h, bytes, c)))
        return sample;
    sample.chance = chance_of_bytes(bytes, r->profile_mean_bytes);
    sample.purposes = choose_purposes(r, sample.chance, chance_of_bytes(bytes, (double)r->guard_wanted));
    if (sample.purposes & SAMPLE_PROFILE)
        keep_rate(h);
    return sample;
}

bool sample_countdown_ended(struct heap *h, unsigned c) {
    bool early = load_relaxed(&h->deferred[c]) != 0;
    if (!sample_is_set_up(h)) {
        begin_anew(h);
        return early;
    }
    sample_take_back(h, c);
    if (early)
        sample_cut(h, c, SAMPLE_UNCOUNTED);
    return early;
}
