/* SPDX-License-Identifier: MIT */
#include "inside.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/alloc.h"
#include "base/bitset.h"
#include "base/log.h"
#include "base/logs.h"
#include "base/options.h"
#include "base/os.h"
#include "base/snapshot.h"
#include "base/text.h"
#include "blocks/block.h"
#include "blocks/inbox.h"
#include "blocks/kinds.h"
#include "blocks/links.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "heap/ring.h"
#include "heap/search.h"
#include "heap/slab.h"
#include "learn/ace.h"
#include "learn/tuner.h"
#include "machine/cgroup.h"
#include "machine/page_cost.h"
#include "mesh/meshed.h"
#include "move/defrag.h"
#include "observe/inspect.h"
#include "observe/probes.h"
#include "observe/profile.h"
#include "pool/limits.h"
#include "pool/pool.h"
#include "pool/retain.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "process/tunables.h"
#include "region/classes.h"
#include "secure/secure.h"
#include "secure/secure_span.h"
#include "space/arena_space.h"
#include "space/purge.h"
#include "threads/purger.h"
#include "threads/thread.h"
#include "tiers/lookup.h"

struct family {
    struct bitset_family bitset;
    char *memory;
};

/* Laid out as bitset.h describes: the words of all sets for the same 64 indices are side by side. */
void *inside_bitset_new(size_t indices, unsigned sets) {
    struct family *f = calloc(1, sizeof *f);
    f->bitset.levels = bitset_shape(indices, f->bitset.rows);
    size_t total = 0;
    for (unsigned level = 0; level < f->bitset.levels; level++)
        total += f->bitset.rows[level] * sets * 8;
    f->memory = calloc(1, total);
    char *at = f->memory;
    for (unsigned level = 0; level < f->bitset.levels; level++) {
        f->bitset.level[level] = at;
        f->bitset.row_bytes[level] = (size_t)sets * 8;
        at += f->bitset.rows[level] * sets * 8;
    }
    return f;
}
void inside_bitset_delete(void *family) {
    free(((struct family *)family)->memory);
    free(family);
}
static const struct bitset_family *bitset_of(void *family) { return &((struct family *)family)->bitset; }
void inside_bitset_add(void *family, unsigned set, size_t index) { bitset_add(bitset_of(family), set, index); }
void inside_bitset_remove(void *family, unsigned set, size_t index) { bitset_remove(bitset_of(family), set, index); }
int inside_bitset_has(void *family, unsigned set, size_t index) { return bitset_has(bitset_of(family), set, index); }
size_t inside_bitset_find(void *family, unsigned set, size_t from) { return bitset_find(bitset_of(family), set, from); }
size_t inside_bitset_find_last(void *family, unsigned set, size_t below) {
    return bitset_find_last(bitset_of(family), set, below);
}
const size_t inside_bitset_none = BITSET_NONE;

const unsigned inside_tiny_classes = TINY_CLASSES, inside_classes = CLASSES;
const size_t inside_tiny_max = TINY_BYTES_MAX, inside_mid_max = MID_BYTES_MAX, inside_large_max = LARGE_BYTES_MAX,
             inside_slot_bytes = SLOT_BYTES, inside_superslab_bytes = SUPERSLAB_BYTES;
struct inside_class inside_class_at(unsigned class_id) {
    const struct size_class *c = &size_classes[class_id];
    return (struct inside_class){c->block_bytes, c->blocks, c->reuse_at, c->slots};
}
double inside_chance_of(double x) { return chance_of(x); }
double inside_minus_log(double u) { return minus_log(u); }
double inside_random_unit(uint64_t *state) { return random_unit(state); }
double inside_root_of(double x) { return root_of(x); }
unsigned inside_tiny_class_of(size_t bytes) { return tiny_class_of(bytes); }
unsigned inside_mid_class_of(size_t bytes) { return mid_class_of(bytes); }
unsigned inside_large_slots_of(size_t bytes) { return large_slots_of(bytes); }
size_t inside_huge_superslabs_of(size_t bytes) { return huge_superslabs_of(bytes); }
unsigned inside_class_aligned(size_t bytes, size_t alignment) {
    size_t whole = class_aligned_bytes(bytes, alignment);
    return whole <= TINY_BYTES_MAX ? tiny_class_of(whole) : mid_class_of(whole);
}
unsigned inside_block_index(unsigned class_id, size_t offset_in_slab) {
    const struct size_class *c = &size_classes[class_id];
    return (unsigned)min_size(block_index(c->divisor, (uint32_t)offset_in_slab), c->blocks);
}

void inside_overwrite_option(unsigned option) { store_relaxed(option_word((enum option)option), 1); }
void inside_overwrite_key(void) { hak_region.key = 7; }
uintptr_t inside_key(void) { return hak_region.key; }
uintptr_t inside_base(void) { return hak_region.base; }

int inside_option_write(const char *name, const char *value) { return option_set(name, value); }

void *inside_heap(void) { return hak_heap; }
size_t inside_pages_look(const void *block) {
    superslab_note_changed(slot_of(slab_at_offset(region_offset(block))));
    pages_look(hak_heap);
    return account_inside_bytes();
}
int inside_has_heap(void) { return hak_heap->number != HEAP_NONE; }
void inside_share_classes(void) { heap_share_classes(); }
void inside_delete_sized(void *p, size_t bytes) { alloc_delete_sized_else(p, bytes); }
void inside_block_set_live(void *p) {
    struct slab *s = slab_at_offset(region_offset(p));
    store_relaxed(kind_of(s)->state(s, p), BLOCK_LIVE);
}
void *inside_behind_last_block(const void *p) {
    struct slab *s = span_first(slab_at_offset(region_offset(p)));
    if (s->mid.blocks == MID_BLOCKS_MAX)
        return NULL;
    store_relaxed(&s->mid.state[s->mid.blocks], BLOCK_LIVE);
    return (void *)(s->mid.start + (size_t)s->mid.blocks * s->mid.block_bytes);
}
void inside_rings_disturb(void *heap) {
    caches_freeze(heap);
    caches_thaw(heap);
}
size_t inside_heaps_at_rest(void) {
    size_t n = 0;
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        n += heap_rests(h);
    return n;
}
void *inside_heap_of(const void *block) { return load_relaxed(&slab_at_offset(region_offset(block))->owner); }
int inside_heap_is_of_arena(void) { return heap_is_of_arena(hak_heap); }
int inside_has_purger(void) { return presence_has_purger(); }
int inside_purger_is_there(void) { return load_relaxed(&hak_presence.page->purger) != PURGER_NONE; }
void inside_take_purgers_place(unsigned ms_ago) {
    store_seq(&hak_presence.page->place_ms, (os_now_ms() - ms_ago) | 1);
    store_seq(&hak_presence.page->place, PLACE_TAKEN);
    os_wake(&hak_presence.page->purger);
}
int inside_last_thread_calls_purger(void) {
    presence_heaps_changed(1);
    store_seq(&hak_presence.page->purger, PURGER_WAITS);
    presence_heaps_changed(-1);
    return load_seq(&hak_presence.page->purger) == PURGER_ENDS;
}
int inside_purger_ends_alone(unsigned times, unsigned ms, void (*pass)(unsigned ms)) {
    presence_heaps_changed(1); /* its own */
    presence_thread_made();
    store_seq(&hak_presence.page->purger, PURGER_RUNS);
    presence_await();
    bool ends = false;
    for (unsigned i = 0; i <= times; i++, presence_thread_made()) {
        presence_thread_ends();
        ends |= !presence_pause(0);
        pass(ms);
        ends |= i == times && !presence_pause(0);
    }
    return ends;
}
int inside_threads(void) {
    presence_lost_threads();
    return load_relaxed(&hak_presence.threads);
}
void inside_await_tick(void) {
    enum { LOOK_US = 1000 };
    bool may_start;
    presence_settled();
    presence_find_purger(&may_start); /* which wakes it */
    uint32_t settlings = load_relaxed(&hak_presence.settlings), seen = settlings - 1;
    for (; (int32_t)(seen - settlings) < 0; snapshot(&seen, &hak_presence.settlings_seen, sizeof seen))
        usleep(LOOK_US);
}
void inside_await_park(void) {
    inside_await_tick();
    for (struct fork_page *page = hak_presence.page; load_seq(&page->purger) != PURGER_PARKED; sched_yield())
        os_wake(&page->purger);
}
void inside_before_thread(void) { purger_make(); }
void inside_thread_begins(void) { thread_begins(); }

size_t inside_rings_overfull(void *heap) {
    const struct heap *h = heap;
    size_t overfull = 0;
    for (unsigned i = 0; i < RING_CLASSES; i++)
        overfull += h->ring[i] != NULL && h->ring[i]->blocks > h->ring[i]->room;
    return overfull;
}
void inside_rings_interrupt(void *heap) {
    struct heap *h = heap;
    size_t most_kib = 0;
    for (unsigned i = 0; i < RING_CLASSES; i++)
        if (h->ring[i] != NULL)
            most_kib = max_size(most_kib, (size_t)h->ring[i]->cap * h->ring[i]->block_kib);
    h->ring_kib -= most_kib / 2;
}

void inside_outbox_interrupt(void *heap) { add_owned(&((struct heap *)heap)->outbox_slabs, 1); }
void inside_caches_freeze(void *heap, int frozen) { frozen ? caches_close(heap) : caches_thaw(heap); }
void inside_rings_lose(void *heap) {
    struct ring_entry entries[RING_PIECE_BLOCKS];
    for (struct ring *ring = ((struct heap *)heap)->rings; ring != NULL; ring = ring->next)
        while (ring_take_piece(ring, entries) != 0) {
        }
}
int inside_caches_hold(void *heap) { return rings_use(heap) != 0; }

static struct slab *mid_slab_of(void *block) { return span_first(slab_at_offset((uintptr_t)block - hak_region.base)); }
void inside_record_begin(void *block) { store_relaxed(&mid_slab_of(block)->kind, KIND_FREE); }
void inside_record_class(void *block, unsigned class_id) {
    store_relaxed(&slab_at_offset((uintptr_t)block - hak_region.base)->class_id, (uint8_t)class_id);
}
void inside_record_list(void *block) {
    _Static_assert(offsetof(struct slab, tiny.free_to) == offsetof(struct slab, single.bytes), "an address for a size");
    struct slab *s = slab_at_offset((uintptr_t)block - hak_region.base);
    s->tiny.free_to = &s->tiny.list;
}
void inside_record_secure(void *block) {
    struct slab *s = mid_slab_of(block);
    s->mid.secure = NULL;
    store_relaxed(&s->kind, KIND_SECURE_SMALL);
}
void inside_record_guard(void *block) {
    store_relaxed(&slab_at_offset((uintptr_t)block - hak_region.base)->kind, KIND_GUARD_PAGE);
}
void inside_record_meshed(void *block) {
    struct slab none;
    struct slab *s = mid_slab_of(block);
    if (meshed_reserve(&none) != NULL) /* there is a table now */
        meshed_cancel(&none);
    store_relaxed(&s->class_id, 1);
    store_relaxed(&s->kind, KIND_MESHED);
}

static struct slab *slab_of(const void *block) { return slab_at_offset((uintptr_t)block - hak_region.base); }
void inside_loan_begin(const void *block) { store_relaxed(&slab_of(block)->owner, slab_in_use_by(&heap_before_birth)); }
void inside_loan_end(const void *block) { store_relaxed(&slab_of(block)->owner, OWNER_NONE); }
int inside_borrow(const void *block) {
    bool adopted = slab_adopt(hak_heap, slab_of(block));
    if (adopted)
        slab_lend(hak_heap, slab_of(block));
    return adopted;
}
int inside_unlist_half_listed(const void *block) {
    enum { NO_NEIGHBOUR = 12345 };
    struct slab *s = slab_of(block), *lowest = slab_of_slot(0);
    _Atomic uint32_t *first = &hak_heap->owned.class_first[slab_class(s)];
    if (load_relaxed(first) != slot_of(s) + 1)
        return 0;
    store_relaxed(first, s->tiny.class_next);
    lowest->tiny.class_next = NO_NEIGHBOUR;
    slab_unlist(hak_heap, s);
    return lowest->tiny.class_next == NO_NEIGHBOUR && load_relaxed(first) == 0;
}
unsigned inside_borrowed(void *heap) { return load_relaxed(&((struct heap *)heap)->lent.slabs); }
int inside_serves_arena(void *heap) { return heap_is_of_arena(heap); }
void inside_loan_end_begin(const void *block) { store_relaxed(&slab_of(block)->owner, OWNER_NONE); }
void inside_loan_end_go_on(void *heap) { rmw_add(&((struct heap *)heap)->lent.slabs, -1u); }
int inside_may_be_freed(void *p) { return lookup_for_free(p); }

uint64_t inside_mid_free_blocks(void *block) { return load_relaxed(&mid_slab_of(block)->free_blocks); }
uint64_t inside_mid_hold(void *block) {
    struct slab *s = mid_slab_of(block);
    uint64_t free = load_relaxed(&s->free_blocks);
    store_relaxed(&s->free_blocks, free & (free - 1));
    return free & (free - 1);
}

int inside_full_heap_gets_ring(void) {
    struct heap *h = hak_heap;
    uint32_t top = h->ring_top;
    h->ring_top = HEAP_BYTES;
    bool has = ring_get(h, 0, KIB) != NULL;
    h->ring_top = top;
    return has;
}

void inside_snapshot(void *to, const void *from, size_t bytes) { snapshot(to, from, bytes); }

static int index_in(const struct slab *s, uintptr_t block) {
    return is_in_slab(block, (uintptr_t)slab_address(s))
               ? (int)((block - (uintptr_t)slab_address(s)) / size_classes[slab_class(s)].block_bytes)
               : -1;
}
static void put_list(const struct slab *s, uintptr_t block, int list[4]) {
    for (unsigned i = 0; i < 4; i++) {
        list[i] = index_in(s, block);
        block = list[i] >= 0 ? block_next(block) : 0;
    }
}
unsigned inside_tiny_index(const void *block) {
    return (unsigned)index_in(slab_at_offset((uintptr_t)block - hak_region.base), (uintptr_t)block);
}
void inside_inherit(void) { hak_heap->inherits = true; }
size_t inside_count_of_two_lives(void) {
    struct slab two;
    struct span_use use;
    memset(&two, 0, sizeof two);
    memset(&use, 0, sizeof use);
    two.slots = 1;
    two.single.lead_bytes = os_page_bytes();
    kinds[KIND_SECURE_SMALL]->count(&two, &use);
    return use.out_bytes + use.cached_bytes;
}
size_t inside_packed_slots_of_two_lives(void) {
    struct slab two;
    struct span_use use;
    memset(&two, 0, sizeof two);
    memset(&use, 0, sizeof use);
    two.mid.start = hak_region.base + ((uintptr_t)1 << 53);
    kinds[KIND_PACKED]->count(&two, &use);
    return use.slots;
}
void inside_read_lists(int begins) { rmw_add(&hak_region_use.readers, begins ? 1u : -1u); }
void inside_unmap_free(void) {
    struct heap *h = thread_enter();
    pool_unmap_free(&h->client);
    thread_leave(h);
}
void inside_take_stack(int begins) { begins ? (void)heap_begin_stack(hak_heap) : heap_end_stack(hak_heap, true); }
int inside_mid_is_live_in_second_slot(void *block, unsigned class_id) {
    struct slab *part = mid_slab_of(block) + 1;
    store_relaxed(&part->mid.state[0], BLOCK_LIVE);
    int is_live = kinds[KIND_MID]->is_live(hak_heap, part, class_id, 0);
    store_relaxed(&part->mid.state[0], 0);
    return is_live;
}
int inside_freer_is_known(const void *block) {
    return search_freer(hak_heap, slab_of(block), (uintptr_t)block) != FREER_UNKNOWN;
}
unsigned inside_tiny_live(const void *block, unsigned class_id) {
    uint64_t map[LIVE_WORDS] = {0};
    unsigned blocks = 0;
    kind_tiny.live(hak_heap, slab_of(block), class_id, map);
    for (unsigned i = 0; i < LIVE_WORDS; i++)
        blocks += count_bits(map[i]);
    return blocks;
}
int inside_tiny_is_live(const void *block, unsigned class_id) {
    return kind_tiny.is_live(hak_heap, slab_of(block), class_id, inside_tiny_index(block));
}
int inside_tiny_is_free(const void *block) {
    struct block b = {slab_of(block), 0, NULL};
    kind_tiny.find(&b, block);
    return kind_tiny.is_free(&b, block);
}
void inside_tiny_free_past_caches(void *block) { kind_tiny.free_past_caches(hak_heap, slab_of(block), block); }
void inside_tiny_free_without_heap(void *block) { kind_tiny.free_without_heap(slab_of(block), block); }
struct inside_tiny_record inside_tiny_record_of(const void *block, void *heap) {
    const struct slab *s = slab_at_offset((uintptr_t)block - hak_region.base);
    const struct heap *h = heap;
    struct heap *owner = load_acquire(&s->owner);
    struct inside_tiny_record r = {
        .owner = owner,
        .owned = owner == OWNER_POOL   ? INSIDE_OWNER_POOL
                 : owner == OWNER_NONE ? INSIDE_OWNER_NONE
                                       : INSIDE_OWNER_HEAP,
        .current = slab_is(s, PLACE_CURRENT),
        .fresh = slab_is(s, PLACE_FRESH),
        .usable = slab_is(s, PLACE_USABLE),
        .carved = slab_carved(s),
        .countdown = s->tiny.countdown,
        .floor = s->tiny.floor,
        .inbox_blocks = inbox_waiting(s),
    };
    r.inbox_newest =
        r.inbox_blocks != 0 ? index_in(s, (uintptr_t)slab_address(s) + (load_acquire(&s->inbox) & 0xffff)) : -1;
    put_list(s, load_relaxed(&s->tiny.list), r.list);
    put_list(s, load_relaxed(&h->list[slab_class(s)]), r.heap_list);
    const struct outbox_entry *e = &h->outbox[slot_of(s) % OUTBOX_ENTRIES];
    r.outbox_blocks = load_relaxed(&e->slab) == slot_of(s) + 1 ? e->blocks : 0;
    return r;
}

void inside_text_write(int fd, const char *text) {
    TEXT_TO_FD(t, fd, 16);
    text_format(&t, "<%s>", text);
    text_flush(&t);
}

enum { TEXT_BYTES = 32 };
void inside_text_bytes(char *text, uint64_t bytes) {
    struct text t = {text, TEXT_BYTES, 0, -1};
    text_bytes(&t, bytes);
    text[t.length] = '\0';
}
void inside_log_class(char *text, unsigned tag) {
    struct log_class class = log_class(tag);
    memcpy(text, class.text, sizeof class.text);
}

void inside_secure_revive(void *block) {
    struct slab *s = mid_slab_of(block);
    _Atomic uint16_t *state =
        span_state(s->mid.secure, block_index(s->divisor, (uint32_t)((uintptr_t)block - s->mid.start)));
    store_relaxed(state, load_relaxed(state) & ~STATE_FREED);
    size_t unused = (load_relaxed(state) & STATE_SLACK) - 1u;
    secure_put_canary((uintptr_t)block, s->mid.block_bytes, s->mid.block_bytes - CANARY_BYTES - unused);
}

uintptr_t inside_secure_note(void *p, int freed) {
    secure_trace_note(p, freed ? STACK_FREED : STACK_ALLOCATED);
    return (uintptr_t)__builtin_return_address(0);
}
unsigned inside_secure_found(const void *p, int freed, uintptr_t *callers) {
    struct stack_taken stack;
    if (!secure_trace_find(p, freed ? STACK_FREED : STACK_ALLOCATED, &stack))
        return 0;
    memcpy(callers, stack.callers, stack.depth * sizeof *callers);
    return stack.depth;
}

void inside_ask(void) { rmw_add(&hak_asked.requests, 1); }
void inside_ask_for_purge(void) {
    rmw_add(&hak_asked.purge_wanted, 1);
    inside_ask();
}

_Static_assert(INSIDE_NUMBER == (int)OPTION_NUMBER && INSIDE_BYTES == (int)OPTION_BYTES &&
                   INSIDE_CHOICE == (int)OPTION_CHOICE && INSIDE_TEXT == (int)OPTION_TEXT,
               "inside.h follows options.h");
static const struct inside_option options[] = {
#define INSIDE_OPTION(name, kind, when, initial, min, max, choices, help)                                              \
    {#name, choices, OPTION_##kind, when == LIVE, initial, min, max},
    OPTIONS(INSIDE_OPTION)
#undef INSIDE_OPTION
};
const unsigned inside_options = OPTION_COUNT;
struct inside_option inside_option_at(unsigned option_id) {
    struct inside_option row = options[option_id];
    return row;
}

const unsigned inside_tunables = TUNABLE_COUNT + CLASS_TUNABLE_COUNT;
struct inside_option inside_tunable_at(unsigned tunable) {
    const struct option_entry *e = &tunable_table[tunable];
    return (struct inside_option){e->name, e->choices, INSIDE_NUMBER, 1, e->initial, e->min, e->max};
}

inside_module inside_module_at(uintptr_t address) {
    struct os_module module;
    inside_module none = {NULL, 0};
    return os_find_module(address, &module) ? (inside_module){module.path, module.base} : none;
}

int inside_has_build_id(const void *image) {
    struct os_module module = {.base = (uintptr_t)image, .path = "an image"};
    struct os_build_id id;
    return os_build_id(&module, &id);
}

static struct inside_profile_total total_of(const struct profile_total *t) {
    return (struct inside_profile_total){load_relaxed(&t->samples), load_relaxed(&t->bytes),
                                         load_relaxed(&t->estimated_bytes), load_relaxed(&t->estimated_objects)};
}
const unsigned inside_profile_samples = PROFILE_SAMPLES;
unsigned inside_profile_stacks(void) {
    return (unsigned)min_size(load_relaxed(&hak_profile.stacks_used), PROFILE_STACKS);
}
struct inside_profile_stack inside_profile_stack_at(unsigned number) {
    struct profile_stack *s = &load_acquire(&hak_profile.stacks)[number];
    uint64_t lifetimes = 0, longest = 0;
    for (unsigned i = 0; i < PROFILE_LIFETIMES; i++) {
        lifetimes += load_relaxed(&s->lifetimes[i]);
        longest = load_relaxed(&s->lifetimes[i]) != 0 && i != 0 ? (uint64_t)1 << (i - 1) : longest;
    }
    return (struct inside_profile_stack){s->callers,
                                         load_acquire(&s->depth),
                                         total_of(&s->allocated),
                                         total_of(&s->freed),
                                         profile_at_mark(s).bytes,
                                         lifetimes,
                                         longest};
}
void inside_profile_age(const void *block, uint32_t ms) {
    for (size_t i = 0; i < PROFILE_SAMPLES; i++)
        if (load_relaxed(&hak_profile.samples[i].address) == (uintptr_t)block)
            hak_profile.samples[i].birth_ms -= ms;
}
size_t inside_profile_live(void) {
    size_t live = 0;
    unsigned used = PROFILE_SAMPLES_MIN * ((1u << load_relaxed(&hak_profile.levels_used)) - 1);
    for (unsigned i = 0; i < used; i++)
        live += load_relaxed(&hak_profile.samples[i].address) != 0;
    return live;
}
uint64_t inside_profile_most_bytes(void) { return load_relaxed(&hak_profile.most_bytes); }
uint64_t inside_profile_dropped(void) { return load_relaxed(&hak_profile.dropped); }

const size_t inside_no_slot = BITSET_NONE;
void *inside_pool_client_new(void) { return region_init() ? calloc(1, sizeof(struct client)) : NULL; }
void inside_pool_client_delete(void *client) { free(client); }
unsigned inside_lowest_stretches(void) {
    enum { STRETCH = 4096, WORDS = BITSET_LEVELS * SETS + 1 };
    uintptr_t found[WORDS];
    unsigned n = 0;
    region_init();
    for (unsigned word = 0; word <= hak_region.sets.levels * SETS; word++) {
        uintptr_t at = (uintptr_t)superslab_at(0);
        if (word != 0 && (word - 1) % SETS < SET_OFFER + CLASS_256)
            continue;
        if (word != 0)
            at = (uintptr_t)bitset_word(&hak_region.sets, (word - 1) % SETS, (word - 1) / SETS, 0);
        unsigned i = 0;
        while (i < n && found[i] != at / STRETCH)
            i++;
        if (i == n)
            found[n++] = at / STRETCH;
    }
    return n;
}
size_t inside_pool_take(void *client, unsigned slots, unsigned align, unsigned tag, int *zero) {
    bool is_zero = false;
    size_t slot = pool_take(client, slots, align, tag, &is_zero);
    *zero = is_zero;
    return slot;
}
void inside_pool_give(void *client, size_t slot, unsigned slots, unsigned tag) {
    pool_give(client, slot, slots, tag, true);
}
void inside_pool_give_purged(void *client, size_t slot, unsigned slots) { pool_give(client, slot, slots, 0, false); }
int inside_pool_extend(void *client, size_t slot, unsigned slots, unsigned wanted) {
    return pool_extend(client, slot, slots, wanted);
}
size_t inside_pool_take_run(void *client, size_t superslabs, size_t align, int *zero) {
    bool is_zero = false;
    size_t first = pool_take_run(client, superslabs, align, &is_zero);
    *zero = is_zero;
    return first;
}
void inside_pool_give_run(void *client, size_t first, size_t superslabs, int resident) {
    pool_give_run(client, first, superslabs, resident != 0);
}
int inside_pool_extend_run(void *client, size_t first, size_t superslabs, size_t wanted) {
    return pool_extend_run(client, first, superslabs, wanted);
}
void inside_pool_settle(void *client) { retain_settle(client); }
void inside_pool_rest(void *client) { retain_rests(client); }
int inside_leaves_lazy(void) { return retain_is_lazy(); }
size_t inside_may_stay_noted(void) {
    size_t slabs = 0;
    while (retain_may_note(slabs + 1))
        slabs++;
    return slabs;
}
void inside_pool_grew_inside(void *client, size_t slots) { retain_grew_inside(client, slots * SLOT_BYTES); }
int inside_may_trim(const void *block, int lane) {
    struct client client = {.arena = lane ? ARENAS_MAX - 1 : 0, .is_lane = lane};
    return space_may_trim(&client, region_offset(block) / SUPERSLAB_BYTES);
}
char *inside_first_page_of_sets(void) {
    uintptr_t at = (uintptr_t)bitset_word(&hak_region.sets, 0, hak_region.sets.levels - 1, 0);
    return (char *)(at - at % os_page_bytes()); /* NOLINT: the region is addresses */
}
int inside_is_lazy(size_t slot) {
    return (superslab_lazy_in(slot / SUPERSLAB_SLOTS, UINT32_MAX) >> slot % SUPERSLAB_SLOTS & 1) != 0;
}
size_t inside_pool_purge(void *client, size_t keep_slots) { return purge_empty(client, keep_slots, false); }
struct inside_totals inside_pool_count(void) {
    struct superslab_totals t;
    superslab_count(&t);
    return (struct inside_totals){t.active_slots, t.empty_slots, t.lazy_slots, t.superslabs, t.superslabs_peak};
}
void inside_pool_decay(void *client, uint32_t ms) { purge_decay(client, os_now_ms() + ms); }
uint32_t inside_pool_clock_ms(void) { return account_clock_ms(); }
size_t inside_pool_cached(void) { return account_cached_superslabs(); }
uint32_t inside_age_ms(uint32_t now, uint32_t then) { return os_age_ms(now, then); }
int inside_same_slot(uintptr_t a, uintptr_t b) { return same_slot(a, b); }
size_t inside_pool_empty_told(void) { return account_empty_slots(); }
const char *inside_pool_disagrees(void) {
    size_t changed = 0, lazy = 0, cached = 0;
    for (size_t at = 0; (at = superslab_next_changed(at)) != BITSET_NONE; at++)
        changed++;
    for (size_t i = 0; i < load_relaxed(&hak_region_use.superslabs); i++) {
        uint64_t w = load_relaxed(&superslab_at(i)->word);
        lazy += count_bits(load_relaxed(&superslab_at(i)->lazy) & ~word_active(w));
        cached += word_is_cached(w);
    }
    return changed != account_changed_slabs()      ? "slabs that changed"
           : lazy != account_lazy_slots()          ? "LAZY slots"
           : cached != account_cached_superslabs() ? "cached SuperSlabs"
                                                   : NULL;
}
int inside_moved_is_counted(void) {
    size_t found[MOVED_KEPT + 1] = {0};
    for (size_t i = 0; i < region_frontier() / SUPERSLAB_BYTES; i++)
        found[load_relaxed(&superslab_at(i)->moved)]++;
    return found[MOVED_RUN] == load_relaxed(&hak_region_use.moved_runs) &&
           found[MOVED_KEPT] == load_relaxed(&hak_region_use.moved_kept);
}
char *inside_slot_address(size_t slot) { return slot_address(slot); }
unsigned inside_nodes(void) { return region_init() ? hak_region.nodes : 0; }
unsigned inside_node_of_slot(size_t slot) { return superslab_node(slot / SUPERSLAB_SLOTS); }
unsigned inside_node_of_block(const void *block) { return superslab_node(region_offset(block) / SUPERSLAB_BYTES); }
unsigned inside_nodes_read(const char *root, uint8_t *of_processor) {
    nodes_root = root;
    return nodes_read(of_processor);
}
char *inside_fence(unsigned number) {
    struct region_range slots = {slot_address(0), region_frontier()};
    struct region_range r = number / 2 < REGION_TABLES ? region_table(number / 2) : slots;
    return (char *)r.begin + (number % 2 == 0 ? (ptrdiff_t)-1 : (ptrdiff_t)round_up(r.bytes, os_page_bytes()));
}

int inside_region_is_scarce(void) { return region_is_scarce(); }
int inside_region_cut_after(uint32_t process, size_t bytes) {
    store_relaxed(&hak_region_use.cutting, process);
    region_cut(bytes);
    return region_was_cut() && load_relaxed(&hak_region_use.cutting) == 0;
}

size_t inside_limits_counted_bytes(void) { return limits_counted_bytes(); }
size_t inside_pool_resident_slots(void) { return account_resident_slots(); }
int inside_limits_near(void) { return limits_near(); }
void inside_limits_set_root(const char *root) { cgroup_root = root; }
void inside_limits_start(void) { limits_start(); }
void inside_limits_refresh(void) { limits_refresh(); }
uint64_t inside_limits_cgroup_bytes(void) { return limits_cgroup_bytes(); }
int inside_limits_scarce(void) { return limits_poll_pressure(); }
void inside_probe_alloc(const void *block, size_t bytes, size_t weight_bytes) {
    if (hak_asked.alloc_tracers != 0)
        probe_alloc(block, bytes, weight_bytes);
}
void inside_probe_free(const void *block) {
    if (hak_asked.free_tracers != 0)
        probe_free(block);
}
int inside_probe_alloc_wanted(void) { return hak_asked.alloc_tracers != 0; }

int inside_page_cost_try_huge(void) { return page_cost_try_huge(); }
void inside_page_cost_small(uint64_t ns) { page_cost_note_small(ns); }
void inside_page_cost_huge(uint64_t ns, int given) { page_cost_note_huge(ns, given != 0); }
size_t inside_page_cost_trusted(size_t wanted) { return page_cost_trusted(wanted); }
struct inside_page_cost inside_page_cost_seen(void) {
    struct page_cost_seen seen = page_cost_seen();
    return (struct inside_page_cost){seen.small_ns, seen.huge_ns, seen.timed, seen.dear, page_cost_pays(true)};
}

static struct ace ace;
static struct ace_prices ace_prices;
static struct inside_ace_cost ace_cost;
static uint64_t ace_inside_bytes;
static unsigned ace_regrown_slots;
static bool ace_has_purger;
void inside_ace_start(unsigned presets, const struct inside_ace_rule *rules, double slot_second, double fault,
                      uint64_t dice) {
    struct ace_rule copies[ACE_PRESETS_MAX];
    struct ace_sight sight = {1, 0, 0, false};
    for (unsigned i = 0; i < presets; i++)
        copies[i] = (struct ace_rule){rules[i].keeps_all != 0, rules[i].slots, rules[i].percent, rules[i].decay_ns};
    ace_start(&ace, presets, copies, 0, &sight);
    ace.dice = dice;
    ace_prices = (struct ace_prices){slot_second, fault, fault / 8, fault / 8, fault / 8};
    ace_cost = (struct inside_ace_cost){0};
    inside_ace_inside(0, 0);
    inside_ace_purger(0);
}
void inside_ace_purger(int there) { ace_has_purger = there != 0; }
void inside_ace_inside(uint64_t bytes, unsigned regrown_slots) {
    ace_inside_bytes = bytes;
    ace_regrown_slots = regrown_slots;
}
unsigned inside_ace_look(uint64_t now_ns, uint64_t active, uint64_t own_ns) {
    struct ace_sight sight = {now_ns, active, ace_inside_bytes, ace_has_purger};
    struct ace_round round = {ace_prices, own_ns, 0, ace_regrown_slots, ace.policy[ace.in_use].rule.keeps_all};
    double before[ACE_PRESETS_MAX], least = 0, most = 0;
    unsigned was = ace.in_use;
    ace_look(&ace, &sight);
    if (!ace_is_due(&ace))
        return was;
    for (unsigned i = 0; i < ace.policies; i++)
        before[i] = ace.policy[i].all_ns;
    ace_turn(&ace, &round);
    for (unsigned i = 0; i < ace.policies; i++) {
        double cost = ace.policy[i].all_ns - before[i];
        least = i == 0 || cost < least ? cost : least;
        most = cost > most ? cost : most;
    }
    ace_cost.in_use += ace.policy[was].all_ns - before[was];
    ace_cost.most = most - least > ace_cost.most ? most - least : ace_cost.most;
    ace_cost.squares += (most - least) * (most - least);
    return ace.in_use;
}
struct inside_ace_cost inside_ace_charged(unsigned preset) {
    ace_cost.all = ace.policy[preset].all_ns;
    return ace_cost;
}
int inside_ace_elo(unsigned preset) { return ace_elo(&ace, preset); }
int inside_ace_deviation(void) { return ace_deviation(&ace); }
unsigned inside_ace_rounds(void) { return ace.rounds; }
unsigned inside_ace_changes(void) { return ace.changes; }
void inside_tuner_interrupt(void) {
    preset_apply(PRESET_THROUGHPUT);
    store_relaxed(&tuner_holder, 1);
}
void inside_rest(void) { hooks_learn.rests(); }
void inside_defrag_bound_set(unsigned class_id, uint64_t bound) { store_relaxed(&defrag_bounds[class_id], bound); }
uint64_t inside_defrag_bound(unsigned class_id) { return load_relaxed(&defrag_bounds[class_id]); }
int inside_defrag_is_sparse(unsigned class_id, unsigned out, size_t slot) {
    return defrag_is_sparse(class_id, out, slot);
}
