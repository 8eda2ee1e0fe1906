/* The region: the one reserved address range all blocks come from, and the tables that describe it.
 *
 *   lowest address                                                                                         highest
 *   | records | guard | heaps | guard | packs | guard | sets, SuperSlabs | guard | SuperSlab 0 | … | templates (os.h) |
 *
 *     The sets of further NUMA nodes lie between the rows and the SuperSlabs, at equal distances. So a set of any node
 *     is a set of the one family, under another number.
 *
 *  1. At the first call the whole is reserved without access (REGION_BYTES, halved until it fits). All addresses follow
 *     from the base and the size, which are published together by one compare-and-swap. So two threads that call first
 *     agree without a lock.
 *  2. SuperSlabs are handed out from the lowest up. Whoever takes some maps memory in their place; tables become
 *     accessible in step with them.
 *  3. `frontier` is the size of the committed part: every address below base + frontier has a slab record.
 *     While it is 0, every pointer is foreign.
 *  4. Under a finite RLIMIT_AS, or when nothing can be reserved, the range is a mere window: only tables sized to the
 *     limit are reserved, SuperSlabs are mapped one by one where the window is still free.
 *  5. If the program limits itself later, what is reserved and was never used goes back (region_limit), and the region
 *     is a window from then on.
 *
 * Everything may be called from any thread. Records are never unmapped. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/bitset.h"
#include "region/classes.h"

struct heap;

/* ---- slab records ---- */

enum { BLOCK_ALIGN = 8 }; /* of every block, at least */

/* Where its heap keeps a tiny slab (bits). */
enum slab_place {
    PLACE_CURRENT = 1, /* its free blocks are the heap's list of its class */
    PLACE_FRESH = 2,   /* the heap carves from it next */
    PLACE_OWNED = 4,   /* on the list of all its slabs but current and fresh ones, which is bounded */
    PLACE_USABLE = 8,  /* on the list of its class, too: worth using */
    PLACE_DENSE = 16,  /* dense allocations of its heap come from it; it is not on the list of its class */
};

#define OWNER_POOL ((struct heap *)0) /* the slot has no tiny slab */
#define OWNER_NONE ((struct heap *)1) /* a tiny slab that was let go: the first to free into it adopts it */
#define OWNER_ON_LOAN ((uintptr_t)3)  /* bits beside a heap's address: it has the slab on loan, see slab.h */

/* What may be resident in a tiny slab besides the pages of blocks that are out or listed. */
enum page_flag {
    PAGES_TAIL = 1, /* what is not carved yet */
    PAGES_LAZY = 2, /* purged pages that the system may not have taken yet */
    PAGES_LOST = 4, /* some of the purged pages are unmapped: see purge_keep_apart */
};

/* ---- the part of a slab's record that depends on the kind ----
 * A field is constant if it does not change while the slab lives, or the block that is all of it. */

/* A tiny slab. The blocks, for the owner, and exact:
 *     carved = out + listed + purged_blocks    listed: those in `list`
 *     out    = countdown + floor               while the slab is not current
 *     listed = 0                               while it is: its free blocks are in the heap's list, and count as out
 * slab.h has its states. A field is the owner's alone unless its comment names other threads. */
struct tiny_slab {
    _Atomic uintptr_t *free_to;    /* where a free pushes: the list below or, of a current slab, the heap's */
    uint32_t link_mark;            /* upper half of every link in the slab; constant */
    _Atomic uint32_t closed_index; /* of a closed slab: in the table of whoever closed it, who alone writes that */
    /* The last owner leaves these for whoever frees into the slab then. A thread that comes too late reads them, too:
     * they share their bytes only with fields of secure mode, where no slab is tiny. */
    _Atomic uint32_t out; /* blocks out … */
    _Atomic uint32_t due; /* … and how many of them have to come back until it is worth using; 0: it is */
    /* the second line */
    uint32_t next, prev;             /* on the owned list, as slot + 1 */
    uint32_t class_next, class_prev; /* on the list of its class */
    /* Freed blocks, each linking the next; the slab's terminator ends it. Unused while the slab is current */
    _Atomic uintptr_t list;
    /* Frees until something is to be done; while the slab is current, until it is checked. Plain, because counting down
     * is one instruction of a free then, and three with an atomic */
    uint32_t countdown;
    uint16_t floor;                /* blocks out when the countdown ends: see slab.h */
    uint16_t purged_blocks;        /* blocks that touch purged pages */
    _Atomic uint32_t purged_pages; /* bit i: page i of the slab was purged; its blocks are in no list */
    _Atomic uint32_t carved;       /* blocks cut so far, from the lowest */
    _Atomic uint8_t place;         /* enum slab_place */
    uint8_t page_flags;            /* enum page_flag */
    /* whatever was freed into its list was freed by its owner, and what is in its inbox by others. False without an
     * owner. Written by the owner, read by whoever frees a block twice */
    _Atomic bool own_frees;
    uint32_t check_after; /* while current: what the countdown began with */
    size_t first_size;    /* the smallest size that a free may name; constant */
};

/* A mid slab, or one of secure mode's with blocks of up to 64 KiB. All fields but the states are constant. */
struct mid_slab {
    uintptr_t start;                       /* address of block 0; a packed slot uses this field alone */
    uint32_t block_bytes, blocks;          /* size of a block; blocks in the slab */
    struct secure_span *secure;            /* secure mode: what is known of its blocks */
    _Atomic uint8_t state[MID_BLOCKS_MAX]; /* enum block_state; holder of the block */
};

/* A slab that is one block: large, huge, sampled, or a large one of secure mode. Only whoever holds the block touches
 * the fields, except for the state. */
struct single_slab {
    size_t bytes;          /* large: size of its slots; huge: in whole pages; others: usable size. Constant */
    uint32_t slack_bytes;  /* large, huge: the part of `bytes` behind what was asked for; constant */
    uint16_t kept_pages;   /* secure mode: freed, and resident in the quarantine */
    uint16_t maker;        /* secure mode: enum secure_maker */
    size_t lead_bytes;     /* secure mode, sampled: the part of the span before the block; constant */
    _Atomic uint8_t state; /* enum block_state, in secure mode, too; the thread that makes it free goes on */
    bool is_huge;          /* secure mode: huge pages were asked for; constant */
    bool has_guards;       /* secure mode: the rest of the span is inaccessible guards; constant */
    bool is_shut;          /* the memory is inaccessible: of a large block in a ring, of secure mode's free slot */
    size_t span_slots;     /* secure mode: slots of the whole span; constant. Large: see waiting_spans in large.c */
};

/* A slot has one record, of two cache lines. Whoever frees another heap's block reads the first line, which seldom
 * changes; each free by a tiny slab's owner writes the second. A single line would bounce between processors with every
 * free into another thread's slab. The record of a span is that of its first slot.
 *
 * `owner` tells who may touch the fields that are the owner's. Ownership passes from thread to thread by a sequentially
 * consistent store (let go) and a compare-and-swap (adopt), which pair with one another and carry those fields along.
 * Any thread may read the atomic fields, relaxed, as hints; another thread reads the plain ones in a snapshot
 * (snapshot.h).
 */
struct slab {
    _Atomic(struct heap *) owner;
    _Atomic uint64_t inbox;       /* tiny, any thread: remote frees, newest first; see outbox.h */
    _Atomic uint64_t free_blocks; /* mid, any thread: bit i: block i is free. 0 when this is no mid slab, so that
                                     takers that come too late find nothing */
    uint32_t divisor;             /* tiny, mid, secure: the divisor of its class; constant */
    /* tiny, owner: as `carved`; but 0 while pages are purged, whose blocks do not look free, so that no free is a hit
     * then. Other kinds: 0 */
    _Atomic uint32_t hit_blocks;
    uint16_t tiny_bytes;        /* size of a tiny block; other kinds: 0. Constant */
    _Atomic uint8_t class_id;   /* constant */
    _Atomic uint8_t kind;       /* enum slab_kind (kinds.h); constant */
    uint8_t slots;              /* of the span; constant */
    uint8_t first_offset;       /* mid, secure: slots from the first of the span; constant */
    _Atomic uint8_t idle_looks; /* 1: the purger has looked since blocks were last taken from it */
    union {
        struct tiny_slab tiny;
        struct mid_slab mid;
        struct single_slab single;
    };
    size_t sizes; /* tiny: number of sizes, from first_size on, that a free may name; other kinds: 0. Constant */
};
_Static_assert(offsetof(struct slab, tiny.next) == 64 && offsetof(struct slab, mid.state) == 64 &&
                   offsetof(struct slab, single.state) == 64,
               "what the owner's frees write, and the states of blocks, are in the second line");
_Static_assert(sizeof(struct slab) == 128, "the index arithmetic of the hit path");

/* A packed slot (tiers/packed.h): a bit for each of its pieces. All words are zero while the slot is not packed, so a
 * thread that comes too late finds nothing free. `free` is the truth; in the other words whoever holds a piece writes
 * its bit. */
struct pack {
    _Atomic uint64_t free;   /* any thread */
    _Atomic uint64_t begins; /* a block begins with the piece */
    _Atomic uint64_t ends;   /* it is a block's last piece */
    _Atomic uint64_t clean;  /* it is known to be zero: not touched yet, or purged */
};
enum { PACK_PIECES = 64, PIECE_BYTES = SLOT_BYTES / PACK_PIECES };

/* ---- SuperSlabs ---- */

/* The sets that small programs need least come first: see upper_row in region.c. */
enum {
    SET_INBOX,                       /* + tiny class: has a slab with a well-filled inbox */
    SET_OFFER = TINY_CLASSES,        /* + class: has a slab of that class on offer */
    SET_EMPTY = SET_OFFER + CLASSES, /* in use, with an EMPTY slot */
    SET_ROOM_1,                      /* in use, with a run of 1, 2, 4, 8, 16 slots that are not ACTIVE */
    SET_ROOM_16 = SET_ROOM_1 + 4,
    SET_CACHED,      /* no slot ACTIVE, some resident */
    SET_CLEAN,       /* no slot ACTIVE, none resident */
    SET_ARENA_EMPTY, /* an arena's, with an EMPTY slot; such a SuperSlab is in none of SET_EMPTY to SET_CLEAN */
    SET_LAZY,        /* has a LAZY slot; arenas' SuperSlabs, too */
    SET_CHANGED,     /* has a slab that changed; arenas' SuperSlabs, too */
    SET_SECURE,      /* + order: secure mode's, has a span of 2^order slots that is free */
    SECURE_ORDERS = 4,
    SETS = 136,
};
_Static_assert(SET_SECURE + SECURE_ORDERS <= SETS, "room for all sets");

/* What huge pages do to a SuperSlab's UNUSED slots. */
enum superslab_huge {
    HUGE_NONE,  /* not advised */
    HUGE_WHOLE, /* advised: the first touch makes all of it resident */
    HUGE_SPLIT, /* advised, but purged in part since, or the end of a block: touched page by page */
};

/* The kernel moved pages there, by a mapping that does not join its neighbours. */
enum superslab_moved {
    MOVED_NOT,
    MOVED_RUN,  /* the first of a huge block's run */
    MOVED_KEPT, /* of a run that was freed since, and kept its mapping */
};

enum { HAD_HUGE_MAX = 2 }; /* SuperSlabs that the program's end reads for `had_huge`: some 600 us */

struct superslab {
    _Atomic uint64_t word;       /* low half: slots ACTIVE; high half: slots resident (ACTIVE or EMPTY). The truth */
    _Atomic uint32_t changed_ms; /* when a slot last became EMPTY */
    _Atomic uint32_t inbox_mask; /* slots whose inbox is well filled: hint for SET_INBOX */
    _Alignas(8) _Atomic uint8_t
        offer[SUPERSLAB_SLOTS];                  /* class + 1 of the slab on offer there, and OFFER_IN_ARENA; a hint */
    _Atomic uint8_t last_class[SUPERSLAB_SLOTS]; /* class + 1 of the last slab there, for class affinity */
    _Atomic uint32_t arena;                      /* number of the arena that has it; 0: the process */
    _Atomic uint32_t next_in_arena;              /* SuperSlab + 1: the next one on the arena's list; 0: none */
    _Atomic uint32_t arena_inbox_mask;           /* as inbox_mask, while an arena has it */
    _Atomic uint8_t moved;                       /* enum superslab_moved; whoever holds the run writes it */
    _Atomic uint8_t huge;                        /* enum superslab_huge */
    bool has_guards;                             /* secure mode: constant while cut into its spans */
    _Atomic uint8_t table_pages; /* secure mode: pages of its row of the table that are accessible; more may be */
    bool in_run;                 /* part of a run of whole SuperSlabs that is one block; whoever holds that writes it */
    _Atomic bool is_counted;     /* it is counted among the cached ones; see superslab_changed */
    _Atomic uint8_t node;        /* the NUMA node of its resident slots' memory: see superslab.h */
    _Atomic bool had_huge;       /* a huge block was freed here: the program's end looks. A hint */
    _Atomic bool undumped;       /* it is left out of core dumps, as its arena wants; see region_set_dumped */
    /* while it has memory in part: its slots that have, from the lowest, which whoever took the chain writes */
    _Atomic uint8_t mapped_slots;
    _Atomic bool apart;            /* a part has a mapping of its own: see purge_keep_apart */
    _Atomic uint32_t next_waiting; /* while it waits for memory, or for the rest: the next one, + 1; 0: none */
    _Atomic uint32_t lazy;         /* slots that are LAZY: see superslab.h */
    _Atomic uint32_t lazy_ms;      /* when a slot last became LAZY; a hint */
    _Atomic uint32_t changed;      /* slots of slabs that may have got free pages: see pages.h */
    _Atomic uint64_t secure;       /* secure mode: its spans, if it is cut into spans; see secure_span.c */
};
_Static_assert(sizeof(struct superslab) == 128, "whole lines");

/* 64 SuperSlabs, and the words that the next 64 have in all sets. So the words of the first 64 lie before the rows, in
 * one page. */
struct superslab_row {
    struct superslab superslab[64];
    _Atomic uint64_t next_set[SETS];
};

/* ---- the region ---- */

/* Constant once it is derived, and read-only once the start has ended: addresses and secrets that an attacker would
 * want. */
struct HAK_FROZEN region {
    uintptr_t base; /* of SuperSlab 0 */
    char *slabs;    /* the records */
    uintptr_t key;  /* links in free blocks are stored xor this */
    struct superslab_row *rows;
    struct bitset_family sets; /* those of node 0 */
    unsigned nodes;            /* nodes_count() */
    size_t node_sets;          /* from the number of a node's set to that of the next node's */
    char *upper;               /* the sets' upper levels, before the rows: where their lowest rows begin */
    struct pack *packs;        /* of the slots */
    char *heaps;
    char *tables; /* the lowest of them: where the reservation begins, or the window's */
    size_t heaps_max;
    size_t superslabs_max;
    uint64_t second_key; /* secure mode: canaries */
    bool window;         /* nothing is reserved: SuperSlabs are mapped one by one */
    bool wide;           /* secure mode: the machine has vectors of 32 bytes */
};
extern HAK_HIDDEN struct region hak_region;

/* Folios: single faults that make a whole slot resident. A machine may give them to whoever does not refuse them. The
 * SuperSlabs below REGION_FOLIOS_FROM refuse, so that small programs stay small. */
#define REGION_FOLIOS_FROM 8 /* SuperSlabs: 16 MiB */
enum region_folios {
    FOLIOS_REFUSED, /* also in secure mode, in a window, and by option */
    FOLIOS_USED,
};

/* The part of the region that changes. Any thread. */
struct HAK_OWN_LINES region_use {
    _Atomic size_t frontier;    /* bytes of SuperSlabs with records; grows (relaxed; what it covers was made before) */
    _Atomic uint32_t unmapped;  /* the first of the SuperSlabs that wait to be mapped, + 1 */
    _Atomic size_t superslabs;  /* handed out so far, from the lowest */
    _Atomic size_t moved_runs;  /* huge runs that the kernel moved, each costs mappings */
    _Atomic size_t moved_kept;  /* SuperSlabs that are MOVED_KEPT, likewise */
    _Atomic size_t apart;       /* SuperSlabs a part of which has a mapping of its own, likewise */
    _Atomic uint8_t folios;     /* enum region_folios; relaxed: no other memory depends on it */
    _Atomic uint32_t parts;     /* the first of the SuperSlabs that have memory in part, + 1 */
    _Atomic size_t packs;       /* slots that have a pack, from the lowest; grows */
    _Atomic uint32_t readers;   /* threads that follow others' lists, whose slots stay accessible meanwhile */
    _Atomic size_t scarce_from; /* memory is scarce from this number of SuperSlabs on; relaxed: a hint */
    /* What was kept when the reservation was cut, SIZE_MAX before: SuperSlabs and heaps that have reserved addresses,
     * and SuperSlabs whose tables do. Sequentially consistent: see region_tables.c. */
    _Atomic size_t kept, kept_heaps, kept_tables;
    _Atomic size_t heaps;     /* handed out so far; likewise */
    _Atomic bool cut;         /* whether nothing is reserved any more but what was kept */
    _Atomic uint32_t cutting; /* the process (os_process) in which a thread changes what is kept, or 0 */
    /* A further table that is reserved as long as the region: where it begins, and its bytes for each SuperSlab.
     * Constant after the start. */
    _Atomic(char *) further;
    _Atomic size_t further_bytes;
};
extern HAK_HIDDEN struct region_use hak_region_use;

/* Reserves the region and commits its first step. False: no memory. Any thread may call it at any time; further calls
 * cost nothing. */
bool region_init(void);

/* At the start: reserves the region. Asks first whether the machine is emulated, before the program can change its
 * environment. */
void region_start(void);

/* Before the first search of the sets: writes the page that it reads. Every program with a block writes that page
 * anyway, and reading it first would cost one more page fault. */
void region_touch(void);

/* At the start's end: makes all variables that are frozen read-only, as soon as hak_region is derived. */
void region_freeze(void);

/* The program limits its addresses and its writable memory (SIZE_MAX: it does not). Limited addresses: gives back those
 * that are reserved and were never used. */
void region_limit(size_t addresses, size_t data);
/* At the start: the table that begins at `begin`, reserved like the region, has `bytes_each` bytes for each
 * SuperSlab. */
void region_has_further_table(char *begin, size_t bytes_each);

/* Hands out `n` neighbouring SuperSlabs never used before. BITSET_NONE when there is no room or the system refuses. */
size_t region_take_superslabs(size_t n);

/* Notes whether a part of the SuperSlab has a mapping of its own. Returns whether that is news. */
bool region_note_apart(size_t superslab, bool apart);

/* Memory is scarce: a part of what a limit allows is handed out, or the system has refused some. */
HAK_INLINE bool region_is_scarce(void) {
    return load_relaxed(&hak_region_use.superslabs) >= load_relaxed(&hak_region_use.scarce_from);
}
/* Asked before slots become inaccessible, or may if the system refuses a call: does a thread follow lists of others,
 * perhaps into one of them as it was before? Such a thread counts itself before it loads a list's first block, and a
 * slot is in no list any more once the caller has it: as either side is a read-modify-write, one sees the other. In a
 * child that was forked meanwhile all slots stay accessible. */
HAK_INLINE bool region_is_read(void) { return rmw_add(&hak_region_use.readers, 0) != 0; }
/* Gives memory to the packs of the slots below this one. Further calls cost nothing. */
bool region_commit_packs(size_t slots);
/* Replaces memory that nobody else uses, or reads (region_is_read), by fresh memory, with huge pages (if the system has
 * some) or without: whole pages of one SuperSlab, or whole SuperSlabs. False: it failed. Then whole SuperSlabs have
 * been unmapped; of less than that a part may be unmapped. */
bool region_renew(void *at, size_t bytes, bool huge);

/* Sets whether core dumps have the SuperSlab. Called by whoever gives it to an arena or takes it away. False: the
 * system refused. */
bool region_set_dumped(size_t superslab, bool dumped);
/* After any of it was mapped anew: leaves it out of core dumps again, if it was left out before. */
void region_undump_again(void *at, size_t bytes);

/* SuperSlabs that have addresses but no memory, because the system refused it, wait to be mapped. Their words say
 * ACTIVE. */
void region_put_unmapped(size_t first, size_t n);
/* Maps one of them, which is the caller's then, still ACTIVE, and zero. BITSET_NONE: there is none, or it still cannot
 * be mapped. */
size_t region_map_unmapped(void);

/* Where the system refuses a whole SuperSlab it may grant some slots. Gives the next slots of one SuperSlab memory:
 * `slots`, or what it has left. Returns their bits; they are the caller's then, still ACTIVE, and zero. 0: refused. */
uint32_t region_map_slots(unsigned slots, size_t *superslab);

/* The memory of heap number `index`, committed and zero; NULL when there is none. Called once for each index. */
void *region_commit_heap(size_t index);
enum { HEAP_BYTES = 128 * 1024, HEAPS_MAX = 1 << 17 };

/* From the lowest to the highest address of the reservation or window, tables included. */
void region_extent(uintptr_t *begin, uintptr_t *end);

/* The committed bytes of the tables, as REGION_TABLES ranges; for the statistics. */
struct region_range {
    void *begin;
    size_t bytes;
};
#define REGION_TABLES (2 + hak_region.nodes)
struct region_range region_table(unsigned number);

/* ---- between the files of region/ ---- */

/* Bytes of a row of levels 1 and 2 of all sets; SuperSlabs whose rows of sets get memory at once: 300 KiB, and in
 * dumps. */
#define REGION_LEVEL_BYTES (SETS * sizeof(uint64_t))
#define REGION_UPPER_ROW_BYTES (2 * REGION_LEVEL_BYTES)
#define REGION_SETS_FIRST ((size_t)2048)
/* Makes tables for at least `superslabs` SuperSlabs. Several threads may do so at once: committing again is harmless,
 * and the frontier only grows. */
bool region_commit_superslabs(size_t superslabs);
/* Gives back what is reserved and was never used, unless another thread is doing so. `bytes`: how much the program may
 * take beyond what it has. */
HAK_COLD void region_cut(size_t bytes);
/* The system has refused a little memory, and the reservation had not been cut: the program may have limited itself by
 * a call that the library did not see. Then it is cut. True: try again. */
HAK_COLD bool region_cut_blindly(void);
HAK_INLINE bool region_was_cut(void) { return load_acquire(&hak_region_use.cut); } /* pairs with cut_reserved */
/* Maps memory where nothing is reserved any more, or soon will not be. Returns what os_map does. */
void *region_map_at(char *at, size_t bytes);
/* Makes the first SuperSlab one that has memory in part. */
bool region_begin_in_part(void);

HAK_INLINE size_t region_frontier(void) { return load_folded(&hak_region_use.frontier); }
HAK_INLINE uintptr_t region_offset(const void *p) { return (uintptr_t)p - hak_region.base; }
HAK_INLINE bool region_has(const void *p) { return region_offset(p) < region_frontier(); }
HAK_INLINE struct slab *slab_at_offset(uintptr_t offset) {
    return (struct slab *)(void *)(hak_region.slabs + (offset >> 16) * sizeof(struct slab));
}
HAK_INLINE size_t slot_of(const struct slab *s) { return (size_t)((const char *)s - hak_region.slabs) / sizeof *s; }
HAK_INLINE struct slab *slab_of_slot(size_t slot) {
    return (struct slab *)(void *)(hak_region.slabs + slot * sizeof(struct slab));
}
HAK_INLINE char *slot_address(size_t slot) {
    return (char *)hak_region.base + slot * SLOT_BYTES; /* NOLINT: the region is addresses */
}
HAK_INLINE char *slab_address(const struct slab *s) { return slot_address(slot_of(s)); }
HAK_INLINE struct superslab *superslab_at(size_t index) { return &hak_region.rows[index / 64].superslab[index % 64]; }
/* SuperSlabs by number. */
struct superslab_range {
    size_t first, end; /* `end` is the first one behind, or any beyond the region's */
};
#define SUPERSLABS_ALL ((struct superslab_range){0, SIZE_MAX})

/* What the record says: one of enum slab_kind (kinds.h), with KIND_IN_ARENA if an arena has the slab. */
HAK_INLINE uint8_t slab_kind(const struct slab *s) { return load_relaxed(&s->kind); }
HAK_INLINE unsigned slab_class(const struct slab *s) { return load_relaxed(&s->class_id); }
/* A tiny slab ends: other kinds have none of these. */
HAK_INLINE void slab_end_hits(struct slab *s) { s->tiny_bytes = 0, s->sizes = 0, store_relaxed(&s->hit_blocks, 0); }
