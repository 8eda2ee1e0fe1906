/* The allocator's internal modules as plain functions, because their headers are C11 and C++ cannot include them. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_INSIDE_H
#define HAKMEM_TESTS_INSIDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* bitset.h: a family of `sets` sets over `indices` indices, in its own memory. */
void *inside_bitset_new(size_t indices, unsigned sets);
void inside_bitset_delete(void *family);
void inside_bitset_add(void *family, unsigned set, size_t index);
void inside_bitset_remove(void *family, unsigned set, size_t index);
int inside_bitset_has(void *family, unsigned set, size_t index);
size_t inside_bitset_find(void *family, unsigned set, size_t from);
size_t inside_bitset_find_last(void *family, unsigned set, size_t below);
extern const size_t inside_bitset_none;

/* base/logs.h */
double inside_chance_of(double x);
double inside_minus_log(double u);
double inside_root_of(double x);
double inside_random_unit(uint64_t *state);

/* classes.h */
struct inside_class {
    size_t block_bytes, blocks, reuse_at, slots;
};
extern const unsigned inside_tiny_classes, inside_classes;
extern const size_t inside_tiny_max, inside_mid_max, inside_large_max, inside_slot_bytes, inside_superslab_bytes;
struct inside_class inside_class_at(unsigned class_id);
unsigned inside_tiny_class_of(size_t bytes);
unsigned inside_mid_class_of(size_t bytes);
unsigned inside_large_slots_of(size_t bytes);
size_t inside_huge_superslabs_of(size_t bytes);
unsigned inside_class_aligned(size_t bytes, size_t alignment);
unsigned inside_block_index(unsigned class_id,
                            size_t offset_in_slab); /* the slab's number of blocks if no block begins there */

/* options.h: one row of the table. */
struct inside_option {
    const char *name, *choices;
    int kind; /* one of the constants below, in this order */
    int live;
    uint64_t initial, min, max;
};
enum { INSIDE_NUMBER, INSIDE_BYTES, INSIDE_CHOICE, INSIDE_TEXT };
extern const unsigned inside_options;
struct inside_option inside_option_at(unsigned option);

/* tunables.h: likewise, `choices` is the unit. */
extern const unsigned inside_tunables;
struct inside_option inside_tunable_at(unsigned tunable);

/* learn/ace.h: one controller of the presets that may be in use, the first of them at the start. A fault costs `fault`
 * nanoseconds a slot, a purge an eighth of that. Programs have no purger. */
struct inside_ace_rule {
    uint64_t slots, percent, decay_ns;
    int keeps_all;
};
struct inside_ace_cost {
    double all, in_use;   /* of a preset, and of whatever was in use, in nanoseconds */
    double most, squares; /* that two presets differed by in a round; the sum of the squares of that */
};
void inside_ace_start(unsigned presets, const struct inside_ace_rule *rules, double slot_second, double fault,
                      uint64_t dice);
/* A look, and a turn if one is due. `own_ns` of the process's time since the last turn, of what passed. Returns the
 * preset in use. */
unsigned inside_ace_look(uint64_t now_ns, uint64_t active, uint64_t own_ns);
/* From now on each look gives back `bytes` inside slabs, and each round uses `regrown_slots` slots of such pages
 * again. */
void inside_ace_inside(uint64_t bytes, unsigned regrown_slots);
void inside_ace_purger(int there); /* from now on there is one, or none, as at the start */
struct inside_ace_cost inside_ace_charged(unsigned preset);
int inside_ace_elo(unsigned preset);
int inside_ace_deviation(void);
unsigned inside_ace_rounds(void);
unsigned inside_ace_changes(void);
/* learn/tuner.h: this process is a child that was forked while its parent applied another preset; the program rests. */
void inside_tuner_interrupt(void);
void inside_rest(void);

/* options.h, region.h: overwrites what is frozen after the start. The region is frozen once something was allocated. */
void inside_overwrite_option(unsigned option);
void inside_overwrite_key(void);
uintptr_t inside_key(void);
uintptr_t inside_base(void);

/* Writes the option's words as another process does when it sets the option. */
int inside_option_write(const char *name, const char *value);

/* heap.h, presence.h */
size_t inside_heaps_at_rest(void);
void *inside_heap_of(const void *block); /* a tiny one's */
int inside_heap_is_of_arena(void);       /* the calling thread's */
int inside_has_purger(void);
int inside_purger_is_there(void);                /* in any state, once a thread was made */
void inside_take_purgers_place(unsigned ms_ago); /* as if the program was refused a thread */
int inside_last_thread_calls_purger(void);       /* one that waits, as there were threads; in a process that has none */
/* In a child that has made no thread, as its purger: does that end once the program has had one thread for `ms`, after
 * `times` other such times with threads between them? `pass` lets so much time pass. */
int inside_purger_ends_alone(unsigned times, unsigned ms, void (*pass)(unsigned ms));
int inside_threads(void);     /* that calls of pthread_create made in this process, as far as it knows */
void inside_await_tick(void); /* until the purger has seen that the heap was settled just now */
void inside_await_park(void); /* likewise, and has parked since. Its pauses are short if the clock says so */
/* What the library does where a program calls pthread_create, and in the new thread. */
void inside_before_thread(void);
void inside_thread_begins(void);
/* heap.h: the calling thread's rings, as the purger sees them. */
void *inside_heap(void);
int inside_has_heap(void); /* the calling thread */
void inside_share_classes(void);
/* A sized delete that is no hit. */
void inside_delete_sized(void *p, size_t bytes);
void inside_block_set_live(void *p); /* as a second thread saw it that frees it at the same moment as the first */
/* For a mid block: the address behind its slab's last block, whose state, if there were one, is that of a live block
 * (its byte had another meaning in another kind of slab); NULL if there is no byte for it. */
void *inside_behind_last_block(const void *p);
void inside_rings_disturb(void *heap); /* freezes and thaws them, as the purger does while the thread is using them */
size_t inside_rings_overfull(void *heap); /* the number of rings that hold more than they have room for */
/* the state when the largest ring has just grown and the sum for all rings is not yet updated */
void inside_rings_interrupt(void *heap);
/* As a child of fork finds it if the heap's thread, or the purger, was sending. */
void inside_outbox_interrupt(void *heap);
int inside_caches_hold(void *heap); /* as the purger sees it */
void inside_caches_freeze(void *heap, int frozen);
void inside_rings_lose(void *heap); /* as a child of fork finds them if the purger had all their blocks in its hands */

/* region.h: the record of the block's slab, as other threads may see it. For a mid block: a slab that is just being
 * made, whose first slot does not tell its kind yet. */
void inside_record_begin(void *block);
/* The slab has changed to another class. For a large or huge block: it has become a tiny slab, whose list is where the
 * size was. */
void inside_record_class(void *block, unsigned class_id);
void inside_record_list(void *block);
/* For a mid block: it has become a slab of secure mode, part of which has not yet reached this processor. */
void inside_record_secure(void *block);
/* For a large block: its slot has become one of a guard pool that is not published yet. */
void inside_record_guard(void *block);
/* For a mid block: what was a meshed slab when its kind was read is a mid slab by now. */
void inside_record_meshed(void *block);

/* region.h, heap.h: the record of a tiny block's slab, and what the heap holds of its class, as docs/design.md shows
 * them. Blocks are given as their index in the slab, or -1 for none. */
enum { INSIDE_OWNER_POOL, INSIDE_OWNER_NONE, INSIDE_OWNER_HEAP };
struct inside_tiny_record {
    void *owner; /* the heap, if `owned` is INSIDE_OWNER_HEAP */
    int owned;   /* one of the constants above */
    int current, fresh, usable;
    unsigned carved, countdown, floor;
    int list[4];            /* the slab's list, starting at its head */
    unsigned inbox_blocks;  /* blocks waiting in the inbox */
    int inbox_newest;       /* the one pushed last */
    int heap_list[4];       /* the heap's list of the class, starting at its head */
    unsigned outbox_blocks; /* blocks of the slab in the heap's outbox */
};
/* `block` lies in the slab; the lists and the outbox are those of `heap`. No thread may change either meanwhile. */
struct inside_tiny_record inside_tiny_record_of(const void *block, void *heap);
unsigned inside_tiny_index(const void *block);
/* The bytes that statistics count in a slab of secure mode, if the snapshot of its record is half of a later life, that
 * of a large block. */
size_t inside_count_of_two_lives(void);
size_t inside_packed_slots_of_two_lives(void); /* likewise the slots of a packed block, now a tiny slab's */
void inside_read_lists(int begins);            /* a thread follows lists of others, or has done so */
void inside_unmap_free(void);                  /* pool.h: pool_unmap_free */
void inside_take_stack(int begins);            /* this thread takes the stack of a sample, or has done so */
/* Looks at the block's slab, which changed, as the purger does. Returns the bytes that are given back inside slabs. */
size_t inside_pages_look(const void *block);
void inside_inherit(void);                    /* from now on the thread's heap had another thread before */
int inside_freer_is_known(const void *block); /* of a tiny block: whether this thread or another has freed it */
/* kinds.h, of tiny blocks: the blocks of its slab that may be moved, were the slab of that class; whether this one may;
 * whether it is free; and the frees that go past the thread's caches, or are of a thread that gets no heap. */
unsigned inside_tiny_live(const void *block, unsigned class_id);
int inside_tiny_is_live(const void *block, unsigned class_id);
int inside_tiny_is_free(const void *block);
/* Likewise of a mid block: whether the record of its slab's second slot has one. */
int inside_mid_is_live_in_second_slot(void *block, unsigned class_id);
void inside_tiny_free_past_caches(void *block);
void inside_tiny_free_without_heap(void *block);

/* slab.h: the slab of a tiny block that nobody owns is on loan to a thread that frees there at this very moment … */
void inside_loan_begin(const void *block);
void inside_loan_end(const void *block); /* … and is nobody's again. */
/* lookup.h: what a second look says of a block that could not be freed as a tiny one. */
int inside_may_be_freed(void *p);
/* slab.h: this thread has the slab on loan from now on. False: somebody owns it. */
int inside_borrow(const void *block);
/* defrag.h: the class's bound as its word; and whether such a slab is sparse. */
void inside_defrag_bound_set(unsigned class_id, uint64_t bound);
uint64_t inside_defrag_bound(unsigned class_id);
int inside_defrag_is_sparse(unsigned class_id, unsigned out, size_t slot);
/* Takes the block's slab, which is first on its class's list, off its heap's lists as a child does whose parent was
 * forked before the last store that put it there. Whether no other slab was taken for its neighbour. */
int inside_unlist_half_listed(const void *block);
unsigned inside_borrowed(void *heap); /* slabs that it has on loan */
/* A thread ends the loan, and is interrupted before it counts that. */
void inside_loan_end_begin(const void *block);
void inside_loan_end_go_on(void *heap);
int inside_serves_arena(void *heap);

/* mid.h: a thread that trims holds a free block of the slab. Returns the other free blocks. */
uint64_t inside_mid_hold(void *block);
uint64_t inside_mid_free_blocks(void *block);

/* ring.h: a heap has no memory for further rings. Whether it gets a ring all the same. */
int inside_full_heap_gets_ring(void);

/* base/snapshot.h */
void inside_snapshot(void *to, const void *from, size_t bytes);

/* text.h: writes a text to a file through a buffer of a few bytes. */
void inside_text_write(int fd, const char *text);
/* How many bytes and a span's class are written; `text` has room for 32. */
void inside_text_bytes(char *text, uint64_t bytes);
void inside_log_class(char *text, unsigned tag);

/* secure.h: the freed block as seen by another thread that frees it at the same moment. */
void inside_secure_revive(void *block);
/* secure_trace.h: notes who calls, and returns the address to which the call returns; copies the callers noted, 0 of
 * none. */
uintptr_t inside_secure_note(void *p, int freed);
unsigned inside_secure_found(const void *p, int freed, uintptr_t *callers);

/* inspect.h: asks as a process outside would. */
void inside_ask(void); /* another process has written an option */
void inside_ask_for_purge(void);

/* os.h: what an address belongs to; path NULL: nothing that is known. */
typedef struct {
    const char *path;
    uintptr_t base;
} inside_module;
inside_module inside_module_at(uintptr_t address);
int inside_has_build_id(const void *image); /* of a module, from its ELF header on */

/* profile.h: what was sampled. */
struct inside_profile_total {
    uint64_t samples, bytes, estimated_bytes, estimated_objects;
};
struct inside_profile_stack {
    const uintptr_t *callers;
    unsigned depth;
    struct inside_profile_total allocated, freed;
    uint64_t peak_bytes; /* at the mark */
    uint64_t lifetimes;  /* the number of all lifetimes */
    uint64_t longest_ms; /* the lower end of the longest one's range */
};
extern const unsigned inside_profile_samples; /* there is room for */
unsigned inside_profile_stacks(void);
struct inside_profile_stack inside_profile_stack_at(unsigned number);
size_t inside_profile_live(void);                        /* samples in the table */
void inside_profile_age(const void *block, uint32_t ms); /* as if it were so much older */
uint64_t inside_profile_dropped(void);
uint64_t inside_profile_most_bytes(void); /* at the mark, all stacks together */

/* pool.h: spans and runs, by slot number, in a region of this process. */
enum { INSIDE_SUPERSLAB_SLOTS = 32 };
extern const size_t inside_no_slot;
struct inside_totals {
    size_t active_slots, empty_slots, lazy_slots, superslabs, superslabs_peak;
};
void *inside_pool_client_new(void);
void inside_pool_client_delete(void *client);
size_t inside_pool_take(void *client, unsigned slots, unsigned align, unsigned tag, int *zero);
void inside_pool_give(void *client, size_t slot, unsigned slots, unsigned tag);
void inside_pool_give_purged(void *client, size_t slot, unsigned slots);
int inside_pool_extend(void *client, size_t slot, unsigned slots, unsigned wanted);
size_t inside_pool_take_run(void *client, size_t superslabs, size_t align, int *zero);
void inside_pool_give_run(void *client, size_t first, size_t superslabs, int resident);
int inside_pool_extend_run(void *client, size_t first, size_t superslabs, size_t wanted);
void inside_pool_settle(void *client);
/* As when the program has been idle: LAZY slots go back, and nothing that leaves becomes LAZY. */
void inside_pool_rest(void *client);
int inside_is_lazy(size_t slot);
int inside_leaves_lazy(void);       /* would what leaves now be LAZY? */
size_t inside_may_stay_noted(void); /* how many changed slabs at most, without a look at them */
void inside_pool_grew_inside(void *client, size_t slots);
/* Whether a heap of the process, or with `lane` a lane's, may give back free pages of the block's slab. */
int inside_may_trim(const void *block, int lane);
/* The page that a search of the pool's sets reads first. */
char *inside_first_page_of_sets(void);
size_t inside_pool_purge(void *client, size_t keep_slots);
struct inside_totals inside_pool_count(void);
void inside_pool_decay(void *client, uint32_t ms); /* as if this many milliseconds had passed */
size_t inside_pool_cached(void);                   /* SuperSlabs */
size_t inside_pool_empty_told(void); /* account.h: EMPTY slots by the totals, to which clients may owe some */
/* account.h: what the totals say that the records do not, or NULL. No other thread may be at work. */
const char *inside_pool_disagrees(void);
uint32_t inside_pool_clock_ms(void); /* as of the last settling */
char *inside_slot_address(size_t slot);
/* Stretches of 4 KiB that have the lowest words of the sets that small programs need, at each level, and the record of
 * the first SuperSlab. */
unsigned inside_lowest_stretches(void);

/* os.h, links.h */
uint32_t inside_age_ms(uint32_t now, uint32_t then);
int inside_same_slot(uintptr_t a, uintptr_t b);

/* Do the counts of runs that the kernel moved, and of mappings that were kept, agree with the records? */
int inside_moved_is_counted(void);

/* nodes.h, superslab.h: how many nodes there are; whose the memory at a slot, at a block is. Reads the kernel's files
 * below `root`, and returns the number of nodes; `of_processor` has room for INSIDE_PROCESSORS. */
enum { INSIDE_PROCESSORS = 8192 };
unsigned inside_nodes(void);
unsigned inside_node_of_slot(size_t slot);
unsigned inside_node_of_block(const void *block);
unsigned inside_nodes_read(const char *root, uint8_t *of_processor);

int inside_region_is_scarce(void); /* region.h */
/* region.h: as if this process had been forked while a thread of its parent, `process`, gave back reserved addresses.
 * Then gives them back for a limit of `bytes`. False: they are still reserved, or somebody is still at it. */
int inside_region_cut_after(uint32_t process, size_t bytes);

/* region.h: the bytes just outside the heap and its tables, on both sides. No page there is writable. */
enum { INSIDE_FENCES = 6 };
char *inside_fence(unsigned number);

/* limits.h: what counts against the limits, and what is read from the kernel's files, below `root` instead of "". */
size_t inside_limits_counted_bytes(void);
/* the resident slots among them, from the totals; inside_pool_count counts them one by one */
size_t inside_pool_resident_slots(void);
int inside_limits_near(void);
void inside_limits_set_root(const char *root);
void inside_limits_start(void);
void inside_limits_refresh(void);
uint64_t inside_limits_cgroup_bytes(void); /* UINT64_MAX if there is none */
int inside_limits_scarce(void);            /* reads the pressure */
/* probes.h */
void inside_probe_alloc(const void *block, size_t bytes, size_t weight_bytes);
void inside_probe_free(const void *block);
int inside_probe_alloc_wanted(void);

/* page_cost.h */
struct inside_page_cost {
    uint64_t small_ns, huge_ns, timed, dear;
    int pays;
};
int inside_page_cost_try_huge(void);
void inside_page_cost_small(uint64_t ns);
void inside_page_cost_huge(uint64_t ns, int given);
size_t inside_page_cost_trusted(size_t wanted);
struct inside_page_cost inside_page_cost_seen(void);

#ifdef __cplusplus
}
#endif
#endif
