/* The kinds of slabs. The record of every slot names the kind of what lies there: an address leads to the record, the
 * record to the kind, and the kind's row knows the rest.
 *
 *  1. A kind is one file, which ends with its row (`const struct kind`), and one line of KINDS below. Other files
 *     call what they need through the row; the few that name a kind have a short cut for it.
 *  2. A function that a kind does without is NULL in its row; the comment says what happens then.
 *  3. The record of a block of an arena has KIND_IN_ARENA beside the kind. Then the table has kind_arena, which frees;
 *     kind_of gives the kind's own row for all else.
 *  4. alloc.c chooses, in kind_for, which kind serves a request.
 *
 * Rows are constant. Any thread may call any function, with its own heap. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "region/account.h"
#include "region/region.h"

struct ring_entry;

// clang-format off
/* X(number, row) */
#define KINDS(X) \
X(KIND_FREE,         kind_free)          /* the slot is the pool's, or not the first of its block */ \
X(KIND_TINY,         kind_tiny) \
X(KIND_MID,          kind_mid)           /* every slot of the span; first_offset leads to the record that counts */ \
X(KIND_LARGE,        kind_large) \
X(KIND_HUGE,         kind_huge) \
X(KIND_GUARD_PAGE,   kind_guard_page)    /* a slot of the guard pool, one block */ \
X(KIND_SECURE_SMALL, kind_secure_small)  /* secure mode: every slot of the span, as KIND_MID */ \
X(KIND_SECURE_LARGE, kind_secure_large)  /* secure mode, large and huge: the slot the block begins in */ \
X(KIND_MESHED,       kind_meshed)        /* a tiny slab that shares pages with others (mesh/meshed.h) */ \
X(KIND_PACKED,       kind_packed)        /* every slot in which it has pieces (tiers/packed.h) */
// clang-format on

enum slab_kind {
#define NUMBER(number, row) number,
    KINDS(NUMBER)
#undef NUMBER
        KIND_COUNT,
    KIND_IN_ARENA = 16, /* beside a kind: the block is an arena's */
};

/* What a kind knows of an address. */
struct block {
    struct slab *slab; /* the record; of a span with several, the one that counts. NULL: not in the region */
    size_t bytes;      /* size of the block that the address is in; 0: it is in none */
    const char *why;   /* why the address is not the start of a block; NULL: it is */
};
#define BLOCK_NEVER_HANDED_OUT "a block that was never handed out"

/* What is known of a span for the statistics, while other threads may change it. */
struct span_use {
    size_t slots;        /* from the slot that was asked about to the span's end */
    size_t out_bytes;    /* with the program */
    size_t cached_bytes; /* free, and kept by threads or on the way to their owner */
    size_t listed_bytes; /* tiny: free, in the slab's own list; mid: free, and may be resident */
    size_t lazy_bytes;   /* purged, and perhaps still resident; an upper bound */
    unsigned class_id;   /* CLASSES: blocks of the kind have no class */
    bool is_in_pool;     /* on the way from or to the pool: nothing else is known */
};

/* How full a slab is, as far as can be told while other threads change it. */
struct fill {
    struct slab *slab; /* the record that counts */
    unsigned class_id;
    unsigned out; /* blocks */
};
enum { LIVE_WORDS = SLOT_BYTES / BLOCK_ALIGN / 64 }; /* of a map with one bit for each block of a slab */

/* How a slab's free pages go back. */
enum trim {
    TRIM_BUSY, /* more pages may become free soon: they go only if there are enough to be worth a call */
    TRIM_IDLE, /* all pages that look free go */
    TRIM_ALL,  /* all free pages go, whatever is known of them, and none become LAZY */
};

/* Called for a block. False: enough. */
typedef bool block_visitor(void *block, size_t bytes, void *argument);

struct kind {
    const char *name; /* for the crash line */
    bool is_secure;   /* only secure mode has such slabs; without it, heaps hold nothing of the kind */

    /* Allocates. *zero: the block's bytes are known to be zero. NULL: no memory. */
    void *(*malloc)(struct heap *h, size_t bytes, size_t alignment, bool *zero);
    /* Frees. `s` is the record of the slot p lies in. Reports what is not the start of a live block. */
    void (*free)(struct heap *h, struct slab *s, void *p);
    /* As free, when there is no memory for a heap. NULL: call free with heap_afterlife. */
    void (*free_without_heap)(struct slab *s, void *p);
    /* Frees a chain of blocks from the inbox of a slab that was closed for good. NULL: slabs of the kind are never
     * closed. */
    void (*free_chain)(struct heap *h, struct slab *s, uintptr_t block, unsigned blocks);
    /* As free, but past the heap's caches, which belong to another arena than the block. NULL: free keeps nothing
     * there. */
    void (*free_past_caches)(struct heap *h, struct slab *s, void *p);
    /* Gives a live block another size in place. NULL, or returns false: that can't be done. */
    bool (*resize)(struct heap *h, struct slab *s, void *p, size_t bytes);
    size_t resize_from_bytes; /* realloc tries `resize` if both sizes are at least this */
    /* There is no memory for a smaller block, so the live block stays where it is and is one of `bytes` from now on.
     * NULL: the kind keeps no note of such sizes. */
    void (*shrink)(struct slab *s, void *p, size_t bytes);
    /* Returns another block of `bytes`, to which the contents have moved without being copied. NULL, or returns NULL:
     * the caller copies. */
    void *(*move)(struct heap *h, struct slab *s, size_t bytes);

    /* Fills in *b. The caller has set b->slab to the record of the slot that p lies in, b->bytes to 0, and b->why to
     * what it says of an address inside a block; the function changes what is otherwise. */
    void (*find)(struct block *b, const void *p);
    /* Is the block that `find` found free? NULL: `find` finds no free blocks. */
    bool (*is_free)(const struct block *b, const void *p);
    /* May a block of `bytes` at p be freed as one of `claimed`? `exactly`: realloc has left no block larger than
     * needed. NULL: the kind rounds sizes up, so any size that would get such a block is right, and realloc may leave a
     * block as it is. */
    bool (*size_fits)(const void *p, size_t claimed, size_t bytes, bool exactly);
    /* The byte that tells whether the block is in the profile. NULL: blocks of the kind are never in it. */
    _Atomic uint8_t *(*state)(struct slab *s, const void *p);

    /* The thread ends: what the heap holds of the kind goes back. NULL: nothing, or only what rings hold. */
    void (*empty_heap)(struct heap *h);
    /* Memory has run out: what the heap holds back of the kind goes to the pool. NULL: it holds back nothing. */
    void (*empty_caches)(struct heap *h);
    /* Returns blocks from a ring, whichever heap owned it: RING_PIECE_BLOCKS at most. NULL: the kind has no rings. */
    void (*give_back)(struct heap *h, const struct ring_entry *entries, unsigned n);
    /* Gives back free pages that `trim_slab` does not reach: all, or only those that were free at the last call, too.
     * Returns how many. A range that begins with SuperSlab 0 begins a pass. NULL: the kind has none. */
    size_t (*trim)(struct heap *h, struct superslab_range in, bool all);
    /* Gives back the free pages of a slab in use, if nobody is at the slab. `s` may be the record of a later slot, or
     * of another kind's slab by now. Returns how many. NULL: slabs of the kind have no such pages. */
    size_t (*trim_slab)(struct heap *h, struct slab *s, enum trim how);

    /* The program ends: reports damage beside the block that begins at the record, if it is live. NULL: blocks of the
     * kind have no canaries, or are checked elsewhere. */
    void (*check)(struct slab *s);

    /* Calls `call` for each live block of the slab that begins at the record, until it returns false. NULL: no arena
     * has such slabs. */
    void (*visit)(struct slab *s, block_visitor *call, void *argument);
    /* The slab's arena ends, and no thread of it is in a call. True: from now on nobody finds anything in the slab.
     * False: a thread of another arena is at the slab, which it found while the SuperSlab was the process's, so the
     * slab must stay; or the kind has checked and freed what is there. NULL: as true. */
    bool (*drop)(struct heap *h, struct slab *s);

    /* ---- moving blocks with the program's help (move/defrag.h) ---- */

    /* Fills in *fill for the slab to which the record `s` belongs. False: its blocks are not to move, because somebody
     * allocates from it. NULL: blocks of the kind gain nothing by moving. */
    bool (*fill)(struct slab *s, struct fill *fill);
    /* Sets the bits of the blocks of the class that are live, if the heap can tell. `s` is the record that counts. NULL
     * where `fill` is NULL. */
    void (*live)(struct heap *h, struct slab *s, unsigned class_id, uint64_t map[LIVE_WORDS]);
    /* Is a block that was live then live still? */
    bool (*is_live)(const struct heap *h, const struct slab *s, unsigned class_id, unsigned block);
    /* As free, but past all caches. Returns how many slots became EMPTY. NULL: call free. */
    unsigned (*free_dense)(struct heap *h, struct slab *s, void *p);

    /* Fills in *use, which is zero except for class_id (CLASSES), for the statistics. `s` is a snapshot of the
     * record. */
    void (*count)(const struct slab *s, struct span_use *use);
};

#define ROW(number, row) extern const struct kind row;
KINDS(ROW)
#undef ROW
/* For rows: `visit` of slabs that are one block, at the first byte or at p; and of slabs with a state per block. */
void kind_visit_first(struct slab *s, block_visitor *call, void *argument);
bool kind_visit_at(struct slab *s, void *p, block_visitor *call, void *argument);
void kind_visit_span(struct slab *s, block_visitor *call, void *argument);
/* lookup.c: a free at an address where there is no slab. An error, unless another allocator serves and the address is
 * that allocator's. */
void lookup_free_none(struct heap *h, struct slab *s, void *p);
extern const struct kind kind_arena;     /* arena_heap.c: frees blocks of arenas */
extern const struct kind *const kinds[]; /* by number; NULL ends the kinds, those of arenas follow */

/* The record's kind, whether an arena has the slab or not. */
HAK_INLINE unsigned slab_tier(const struct slab *s) { return slab_kind(s) & (KIND_IN_ARENA - 1); }
HAK_INLINE const struct kind *kind_of(const struct slab *s) { return kinds[slab_tier(s)]; }
/* Are there slabs of the kind in this mode? Even in secure mode there are some of the usual kinds, from before the
 * options were read. */
HAK_INLINE bool kind_serves(const struct kind *kind) { return !kind->is_secure || mode()->front_kind != NULL; }
HAK_INLINE bool kind_has_freed(const struct block *b, const void *p) {
    return kind_of(b->slab)->is_free != NULL && kind_of(b->slab)->is_free(b, p);
}
/* What a slab that the client takes has in its record as kind. */
HAK_INLINE uint8_t kind_for_client(const struct client *c, unsigned kind) {
    return (uint8_t)(c->arena != 0 ? kind | KIND_IN_ARENA : kind);
}
