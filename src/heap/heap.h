/* A heap is one thread's state; this file is its shape, and who is at its caches.
 *
 *  1. `hak_heap` is the one thread-local pointer: all the hit path needs. Until a thread first allocates it points to
 *     heap_before_birth, whose lists are always empty, so malloc needs no "initialised?" test: the refill finds out.
 *  2. A heap is taken from those of ended threads, else from the table; it is never unmapped.
 *  3. At thread exit the heap is put back (thread.h), and may rest: it keeps the slabs that serve its classes for its
 *     next thread. From then on the thread points to heap_afterlife.
 *  4. fork needs nothing: no lock is ever held. In the child the heaps of the other threads stay in use, and no thread
 *     has them, nor what is in their lists, rings and outboxes. Their slabs keep them as owners: what is freed there
 *     stays in the inboxes, until a well-filled one is taken by whoever allocates the class.
 *
 * All fields are the owning thread's, except those whose comment names others. Any thread may read the atomic ones, as
 * hints. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/ledger.h"
#include "process/asked.h"
#include "region/account.h"
#include "region/region.h"

enum { OUTBOX_ENTRIES = 128, HEAP_FIRST_RINGS = 2304 };
struct ring; /* ring.h */
#define HEAP_NONE UINT32_MAX
#define HEAP_SECURE_BYTES (84 * KIB) /* the end of a heap's memory, which belongs to secure.c */

/* Remote frees gathered for one slab. */
struct outbox_entry {
    _Atomic uint32_t slab; /* slot + 1; 0: unused */
    uint16_t first;        /* offset in the slot of the newest block; links lead to `last` */
    uint16_t last;         /* offset of the oldest one */
    uint16_t blocks;       /* how many are gathered */
    uint16_t full_blocks;  /* at how many the entry is sent */
};

/* Tiny slabs of a heap that are neither current nor fresh, by slot + 1. */
struct slab_lists {
    uint32_t first, last;   /* all, oldest first */
    _Atomic uint32_t slabs; /* length of that list */
    _Atomic uint32_t
        class_first[TINY_CLASSES]; /* by class: the first of the USABLE ones. Read while the purger has the list, too */
};

/* When the next allocation is sampled. This and the next struct are sample.c's and the owning thread's; other threads
 * read `rest` and `mean_bytes`. */
struct sampler {
    uint64_t wanted;           /* hak_asked.wanted when the sampler was last set up */
    uint32_t guard_wanted;     /* the option GUARD_SAMPLE_BYTES then */
    _Atomic float mean_bytes;  /* between samples of either kind; 0: there are none, and the next fields are unused */
    int64_t bytes_left;        /* until the next sample among blocks that are not tiny */
    double profile_mean_bytes; /* between samples for the profile; 0: none */
    unsigned stretch;          /* how often profile_mean_bytes was doubled, as there were too many samples a second */
    uint32_t batch, batch_ms;  /* samples since the rate was last judged; the clock then */
    uint64_t random;           /* state of the generator */
};

/* What the sampler knows of a tiny class. */
struct sampler_class {
    _Atomic uintptr_t rest; /* free blocks of the class that were cut off the heap's list; 0: none */
    uint32_t left;          /* blocks that may still be handed out before the one to be sampled */
    uint32_t seen;          /* the current slab's countdown when the sampler last looked at it */
    uint32_t had;           /* blocks in the heap's list then */
};

/* What the wings keep in a heap. The core touches nothing of it but `holder`. */
struct move_part {
    uint32_t dense[CLASSES];     /* slot + 1 of the slab that dense allocations came from last: a hint */
    uint8_t asked_left[CLASSES]; /* questions about blocks of the class until the next look at the clock */
};
enum { ARENA_ENTRIES = 16 };
struct arena_entry {
    uintptr_t handle_less_1; /* handle - 1, so that neither a handle nor NULL matches an unused entry */
    struct heap *heap;
};
struct arena_part {                          /* see arena_heap.h */
    struct arena_entry noted[ARENA_ENTRIES]; /* the thread's heaps of the arenas it used last */
    _Atomic uintptr_t handle;                /* of an arena's heap: the arena's, 0 once the arena has ended */
    _Atomic(struct heap *) holder; /* the heap whose thread has this one; NULL: none. Cleared as the arena ends, too */
    struct heap *next;             /* the next older one; constant while the arena lives */
};

struct heap {
    /* hit path */
    _Atomic uintptr_t list[TINY_CLASSES + 1]; /* free blocks; an odd value: none. The last one is always empty */
    /* tiny_class_table: in reach without another address; see heap_watch_sites and heap_share_classes */
    uint8_t class_table[TINY_BYTES_MAX / 8 + 1];
    /* birth and end */
    _Atomic bool in_use;      /* by a thread or an arena: the truth behind the set of idle heaps. Any thread */
    _Atomic bool is_of_arena; /* it is an arena's, or about to be; not a lane's */
    bool has_arenas;          /* its thread may hold heaps of arenas */
    _Atomic bool rests;  /* no thread has it, and current and fresh slabs wait for the next one. Whoever takes it */
    uint32_t number;     /* HEAP_NONE: not a thread's */
    uint32_t rest_bytes; /* the maximum that these slabs hold back */
    /* tiny, slow path */
    struct slab *current[TINY_CLASSES]; /* the slab whose free blocks are in the list; NULL: they are of no one slab */
    struct slab *fresh[TINY_CLASSES];   /* the slab to carve from */
    struct slab_lists owned;
    uint32_t looks;          /* how often the thread, when freeing, has looked at slabs that changed */
    uint32_t owned_credit;   /* owned slabs beyond TUNE_owned_slabs: refills from partly used slabs have earned them */
    uint32_t adoptions_left; /* adoptions until the credit falls; each refill adds some */
    uint32_t slabs_given_back;            /* slabs given back so far: some are verified */
    uint32_t drained_at;                  /* heap_remote_frees when the outbox was last drained */
    uint32_t bulk_from;                   /* heap_remote_frees when a list was last refilled */
    uint8_t slabs_of_class[TINY_CLASSES]; /* slabs started so far, up to 255: how hot the class is */
    _Atomic uint32_t outbox_slabs;        /* outbox entries in use */
    /* mid and large, and who is at the caches */
    _Atomic bool
        caches_busy; /* the thread is at its rings or outbox. Pairs with caches_flags through os_fence_threads */
    _Atomic uint8_t caches_flags; /* enum caches_flag; any thread, by read-modify-write */
    uint16_t ring_hand;           /* the ring to check next */
    uint8_t large_frees;          /* frees of large blocks, modulo SHUT_EVERY: see large.c */
    uint8_t large_given;          /* spans of large blocks that went back to the pool, modulo 256 */
    uint32_t caches_seen;         /* the purger's: rings_use when it last looked */
    uint32_t ring_kib;            /* the sum of the rings' caps */
    uint32_t loans_seen;          /* the purger's: loans_use when it last looked */
    bool found_idle;              /* the purger's, while it empties caches */
    bool inherits;                /* caches or slabs may hold what the heap's last thread freed, or what others did */
    uint32_t ring_top;            /* where the next ring begins: in first_rings, then behind the struct */
    uint64_t purge_seen;          /* hak_asked.purge_wanted for which this thread has given back */
    uint64_t asked_seen;          /* hak_asked.wanted when the thread last looked */
    struct ring *rings;           /* newest first */
    /* what the layers below know of the heap */
    struct client client;
    /* what its threads allocated by site, see site_api.c; NULL: nothing yet. It stays when a thread ends */
    _Atomic(struct site_count *) sites;
    struct heap *next; /* every heap there ever was, newest first; constant */
    struct sampler sample;
    uint8_t checks_before_giving[TINY_CLASSES]; /* how often an empty current slab is kept */
    uint8_t checks_left[TINY_CLASSES];          /* how many of these times are left */
    uint8_t returns[TINY_CLASSES];              /* slabs that the thread's own frees brought back, less slabs kept */
    /* of current slabs: frees still to be counted when the countdown, cut short by a sample, ends */
    _Atomic uint32_t deferred[TINY_CLASSES];
    struct {
        _Atomic uint32_t slabs; /* how many are on loan to the heap, see slab.h; any thread, by read-modify-write */
    } lent;
    struct ledger_row ledger[TUNED_CLASSES]; /* the first page has those of the tiny classes */
    /* the rings, and memory for the first: little rings need no further page */
    struct ring *ring[RING_CLASSES];
    _Alignas(HAK_LINE) char first_rings[HEAP_FIRST_RINGS];
    /* what many threads never touch */
    struct outbox_entry outbox[OUTBOX_ENTRIES];
    struct sampler_class sampled[TINY_CLASSES];
    uintptr_t callers[SAMPLE_CALLERS]; /* of the call stack that is being taken: too many for a small stack */
    bool takes_stack;                  /* it is: a signal handler that allocates meanwhile takes none */
    struct move_part move;
    struct arena_part arena;
};

extern HAK_HIDDEN _Thread_local struct heap *hak_heap;
extern HAK_HIDDEN struct heap heap_before_birth, heap_afterlife;
extern HAK_HIDDEN struct heap heap_of_closed; /* the owner of slabs from which nobody allocates any more */

/* The default arena of a thread. While there is one, hak_heap points to heap_redirected, whose lists are always empty:
 * so no hit path asks. */
struct default_arena {
    struct heap *own; /* the thread's heap; NULL: it has no default arena */
    uintptr_t handle;
};
extern HAK_HIDDEN _Thread_local struct default_arena hak_default_arena;
extern HAK_HIDDEN struct heap heap_redirected;

/* Where the heap gathers blocks of the slab, unless it gathers another slab's there. */
HAK_INLINE struct outbox_entry *outbox_entry_of(const struct heap *h, const struct slab *s) {
    return (struct outbox_entry *)&h->outbox[slot_of(s) % OUTBOX_ENTRIES]; /* NOLINT: for readers, too */
}
/* How many there were, modulo 2^32. */
HAK_INLINE uint32_t heap_remote_frees(const struct heap *h) {
    return (uint32_t)load_relaxed(&h->client.counters.n[COUNT_free_remote]);
}
HAK_INLINE bool outbox_gathers(const struct outbox_entry *e, const struct slab *s) {
    return load_relaxed(&e->slab) == slot_of(s) + 1;
}

/* A heap that no thread uses, made if there is none; NULL: there is no memory. */
struct heap *heap_take(void);
/* Puts a heap back, empty unless it rests. Its thread is no longer counted among those that have a heap. */
void heap_put(struct heap *h);
/* The thread ends: the heap rests once it is put back, and holds back `bytes`. False: together with this one, resting
 * heaps would hold back more than `max`. */
bool heap_begin_rest(struct heap *h, size_t bytes, size_t max);
/* heap_rests is a hint. heap_take_resting returns true if the heap is the caller's from now on; the caller empties it
 * and puts it back with heap_put_emptied. */
bool heap_rests(const struct heap *h);
bool heap_take_resting(struct heap *h);
void heap_put_emptied(struct heap *h);
/* Takes a heap for an arena. It may still hold blocks of its last thread, which are discarded when it is put back. */
struct heap *heap_take_for_arena(void);
void heap_untake_for_arena(struct heap *h); /* no arena has used it: it keeps what it holds */
void heap_put_from_arena(struct heap *h);
/* Called once, at the start: from then on no malloc is a hit in the calling thread's heap or in one taken later,
 * because every size leads to the list that is always empty. So alloc_slow can ask who calls. Frees stay hits. */
void heap_watch_sites(void);
/* From now on the sizes in the process's first heap share classes (tiny_shared_class_of), until the heap has cut
 * SHARED_CUTS pages into blocks: a small program touches a page for each class that it uses, and uses a few blocks of
 * most sizes. For programs without C++, whose sized deletes expect exact classes. At the start, once. */
void heap_share_classes(void);
/* May a block be of the class that its size shares, rather than of its own? */
bool heap_has_shared_classes(void);
/* The heap's sizes have classes of their own again, if they shared any. Blocks stay where they are. */
void heap_end_sharing(struct heap *h);
/* The thread takes a stack into `callers`. False: it is taking one already, and this is a signal handler, which takes
 * none. heap_end_stack gets what heap_begin_stack returned. */
HAK_INLINE bool heap_begin_stack(struct heap *h) {
    bool may_take = !h->takes_stack;
    h->takes_stack = true;
    atomic_signal_fence(memory_order_seq_cst);
    return may_take;
}
HAK_INLINE void heap_end_stack(struct heap *h, bool may_take) {
    atomic_signal_fence(memory_order_seq_cst);
    h->takes_stack = !may_take;
}
HAK_INLINE bool heap_is_of_arena(const struct heap *h) { return load_acquire(&h->is_of_arena); }
/* Has no other thread than this ever had a heap, or been without one for lack of memory? */
bool heap_is_the_only(void);
/* Has the heap's thread gathered blocks of the slab? If so, the purger may send them, into the inbox. */
bool heap_may_have_gathered(const struct heap *h, const struct slab *s);
/* The newest heap; follow `next`. */
struct heap *heap_newest(void);
extern HAK_HIDDEN _Atomic(struct heap *) heap_newest_made;

/* Rings and outbox are the thread's, but the purger may empty those of a thread that sleeps. So the thread calls
 * caches_enter before each use, and does without them if that returns false; it calls caches_leave in either case.
 * Neither of the two waits for the other:
 *
 *   thread:  busy = true;    frozen?           …  busy = false
 *   purger:  frozen = true;  fence;  busy?     …  frozen = false
 *
 * The purger's fence stands in for the one the thread lacks between its store and its load: either the thread sees
 * `frozen`, or the purger sees `busy` and leaves. A child that is forked meanwhile finds its rings frozen, and does
 * without them until it has a purger of its own. */
enum caches_flag {
    CACHES_FROZEN = 1,   /* the purger is at the caches: the thread does without them */
    CACHES_SAMPLING = 2, /* allocations are sampled, or soon will be: none is a hit of a ring */
    CACHES_STALE = 4,    /* the options of rings have changed: the next allocation from a ring is no hit */
    CACHES_WATCHED = 8,  /* the purger is parked and has to know when a ring gets a block: the next put is no hit */
    CACHES_SITED = 16,   /* where blocks come from depends on who asks for them: none is a hit of a ring. Constant */
    HEAP_SHARING = 32,   /* sizes share classes. Only the owner and its birth change it */
};
HAK_INLINE bool caches_enter_unless(struct heap *h, uint8_t flags) {
    store_relaxed(&h->caches_busy, true);
    atomic_signal_fence(memory_order_seq_cst);
    return !(load_acquire(&h->caches_flags) & flags); /* acquire: what the purger took is gone */
}
HAK_INLINE bool caches_enter(struct heap *h) { return caches_enter_unless(h, CACHES_FROZEN); }
HAK_INLINE void caches_leave(struct heap *h) { PROVEN(leave, store_release(&h->caches_busy, false)); }

/* The class of a tiny block. For requests that are no hit, in a heap whose sizes share classes. */
unsigned heap_shared_class(struct heap *h, size_t bytes);
HAK_INLINE unsigned heap_class(struct heap *h, size_t bytes) {
    return unlikely(load_relaxed(&h->caches_flags) & HEAP_SHARING) ? heap_shared_class(h, bytes) : tiny_class_of(bytes);
}

/* Called where a put was no hit. */
void caches_notice(struct heap *h);

/* The purger's side. */
void caches_close(struct heap *h);
bool caches_are_frozen(const struct heap *h); /* after the fence; false: in use. Call caches_thaw in either case */
bool caches_freeze(struct heap *h);           /* closes, fences and looks, for one heap */
void caches_thaw(struct heap *h);
void caches_watch(struct heap *h);
