/* HAKMEM: a general-purpose memory allocator for Linux.
 *
 * These calls stand beside the standard ones (malloc, free, operator new, …), which the same library provides unless it
 * was built for embedding. Blocks may be mixed freely: free takes what hak_malloc returned, and hak_free what malloc
 * did.
 *
 * Conventions, unless a function says otherwise:
 *   units      sizes are in bytes;
 *   alignment  a block is aligned to 16 bytes, a block of at most 8 bytes to 8, a block above 64 KiB to 4 KiB;
 *   threads    any thread may call any function at any time, but a signal handler must not;
 *   errors     a failed allocation returns NULL, sets errno to ENOMEM and changes nothing;
 *   bad input  a pointer that is not the start of a live block ends the program: one line on the standard error,
 *              "hakmem: …", then abort(). A wrong size, and a call that only asks about such a pointer, print the line,
 *              once for each caller, and the program goes on. The option ON_ERROR makes it all abort, or the line
 *              alone, or nothing. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stddef.h>

#define HAKMEM_VERSION_MAJOR 0
#define HAKMEM_VERSION_MINOR 1
#define HAKMEM_VERSION_PATCH 0
#define HAKMEM_TEXT_OF_(x) #x
#define HAKMEM_TEXT_(major, minor, patch) HAKMEM_TEXT_OF_(major) "." HAKMEM_TEXT_OF_(minor) "." HAKMEM_TEXT_OF_(patch)
#define HAKMEM_VERSION HAKMEM_TEXT_(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH) /* "0.1.0" */

#if defined(__GNUC__)
#define HAK_EXPORT __attribute__((visibility("default")))
#define HAK_ALLOC_SIZE(...) __attribute__((malloc, alloc_size(__VA_ARGS__), warn_unused_result))
#else
#define HAK_EXPORT
#define HAK_ALLOC_SIZE(...)
#endif

#ifdef __cplusplus
extern "C" {
#define HAK_NOEXCEPT noexcept
#else
#define HAK_NOEXCEPT
#endif

/* ---- blocks ---- */

/* Returns a block of at least `size` bytes, not cleared. hak_malloc(0) returns a unique block, to be freed like any
 * other. */
HAK_EXPORT void *hak_malloc(size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(1);

/* Returns a cleared block for `count` objects of `size` bytes each. If the product overflows: NULL and ENOMEM. */
HAK_EXPORT void *hak_calloc(size_t count, size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(1, 2);

/* Resizes the block to `size` bytes and returns it, perhaps at another address. The contents are kept up to the smaller
 * of both sizes; what is new is not cleared.
 *   - `block` NULL: the same as hak_malloc(size).
 *   - `size` 0: frees the block and returns NULL, as glibc does.
 *   - Failure: NULL and ENOMEM; the old block is untouched.
 * Blocks above 1 MiB grow by moving pages instead of bytes wherever the kernel can. */
HAK_EXPORT void *hak_realloc(void *block, size_t size) HAK_NOEXCEPT __attribute__((warn_unused_result));

/* Frees a block. NULL is ignored. errno is kept. */
HAK_EXPORT void hak_free(void *block) HAK_NOEXCEPT;

/* Frees a block of which the caller knows the size it asked for (C23's free_sized). NULL is ignored. A size larger than
 * the block is bad input; in secure mode any wrong size is. */
HAK_EXPORT void hak_free_sized(void *block, size_t size) HAK_NOEXCEPT;

/* Returns a block of at least `size` bytes, aligned to `alignment` bytes. `alignment` is a power of two, or else the
 * result is NULL with errno EINVAL. `size` need not be a multiple of `alignment`. */
HAK_EXPORT void *hak_aligned_alloc(size_t alignment, size_t size) HAK_NOEXCEPT
    __attribute__((malloc, alloc_align(1), alloc_size(2), warn_unused_result));

/* ---- sizes ---- */

/* Returns how many bytes of the block the program may use: at least the size asked for. 0 for NULL. */
HAK_EXPORT size_t hak_usable_size(const void *block) HAK_NOEXCEPT;

/* Returns the usable size that a block of `size` bytes would have, or 0 if there can be no such block. A block that is
 * put between guard pages (the option GUARD_SAMPLE_BYTES) has exactly the size asked for instead, and a small program
 * without C++ may get larger blocks; hak_usable_size returns what a block has. */
HAK_EXPORT size_t hak_good_size(size_t size) HAK_NOEXCEPT;

/* Makes `size` bytes of the block usable without moving it. Returns 1 if they are usable now, and a free may name this
 * size; else 0, and then the block is as before. errno is kept. */
HAK_EXPORT int hak_expand(void *block, size_t size) HAK_NOEXCEPT;

/* Returns a block of at least `size` bytes and stores its usable size in *usable, which must not be NULL. On failure
 * *usable is 0. */
HAK_EXPORT void *hak_alloc_at_least(size_t size, size_t *usable) HAK_NOEXCEPT HAK_ALLOC_SIZE(1);

/* ---- the heap ---- */

/* Gives free memory back to the operating system: this thread's caches, EMPTY slots, and whole free pages inside partly
 * used slabs. Returns how many bytes it gave back. Makes a number of system calls in proportion to that. */
HAK_EXPORT size_t hak_trim(void) HAK_NOEXCEPT;

/* The calling thread is about to wait, for a request, a lock, an event: what its caches hold, and the slabs from which
 * it allocates, become everybody's, so that other threads allocate from them, and what is free goes back by the usual
 * bounds. A sleeping thread keeps some KiB for each size of block that it has used; without this call nobody else can
 * use those. Its caches alone the library empties by itself, a second later or so. The thread's next allocations take
 * longer, once for each size, and may fault in a few pages, so it pays before long waits: in the idle callback of an
 * event loop, or where a worker parks. Makes at most one system call, besides those that give slots back. Any thread
 * may call it at any time; what the thread has of arenas stays as it is. */
HAK_EXPORT void hak_thread_rests(void) HAK_NOEXCEPT;

/* Writes the statistics as text to the file descriptor `fd`. The figures are exact if no other thread allocates
 * meanwhile; otherwise each was true a moment ago. Asks the kernel which pages are resident: one system call a
 * SuperSlab (2 MiB). */
HAK_EXPORT void hak_stats_print(int fd) HAK_NOEXCEPT;

/* Writes the statistics as one JSON object into `buffer`: a terminated string, cut off to `bytes` bytes. Returns the
 * length of the whole text without the terminator, like snprintf; with `bytes` 0 nothing is written and `buffer` may be
 * NULL. `rss_bytes` has the terms of what is resident, and their sum; `retained_bytes` what of that is free, and how
 * many bytes of EMPTY slots may stay (absent without a bound); `arenas` the arenas by name (`limit_bytes` is absent
 * without a limit). `huge_pages` has what pages cost in this process: nanoseconds for a huge page and for 2 MiB in
 * small pages (0: not known), how many huge pages were timed, and how many of them did not pay; and whether
 * slots come in one page fault each (`folios`, 1 or 0).
 * `tiny_classes` has for blocks up to 1 KiB the number of allocations, and `misses`: those that found no block in the
 * thread's list. `rings` has the misses of larger blocks, whose hits nobody counts. With ACE=observe `miss_ns` is the
 * mean time of the `timed_misses`. `tiny` has the sums, and what became of the blocks: freed by a thread that owns
 * their slab (`frees_local`), or by another (`frees_remote`, `frees_on_loan`). `nodes`, where there are several NUMA
 * nodes, has for each the size of the slots that its threads took (`slot_bytes`, in use or EMPTY). */
HAK_EXPORT size_t hak_stats_json(char *buffer, size_t bytes) HAK_NOEXCEPT;

/* Writes the value of the option `name` ("PURGE" or "HAKMEM_PURGE", in any case) as text into `buffer`: terminated, cut
 * off to `bytes` bytes. Returns the length of the whole text without the terminator. No such option: 0 with errno
 * EINVAL. */
HAK_EXPORT size_t hak_option_get(const char *name, char *buffer, size_t bytes) HAK_NOEXCEPT;

/* Sets the option `name` to `value`, written as in the environment. Returns 0; EINVAL if there is no such option or
 * value; or EPERM if the option is only read at the start. The rings of other threads follow at their next slow path.
 * Both calls take the names of tunables, too, in small letters (docs/options.md): hak_option_set("carve_bytes:64",
 * "8k"). */
HAK_EXPORT int hak_option_set(const char *name, const char *value) HAK_NOEXCEPT;

/* Sets the function to call when the heap passes SOFT_LIMIT; NULL: none. Two threads must not set it at once.
 *   when     once each time the limit is passed, after the heap was at most 7/8 of it; everything that can be given
 *            back at once has been given back by then.
 *   who      the thread whose allocation passed the limit, or, if that thread ends first, the next one to take a slow
 *            path.
 *   where    at the end of malloc, calloc, realloc, new and the like, never in free. The block is made already.
 *   may      allocate, free, and call everything in this file. No other call begins in this thread meanwhile, but one
 *            may begin in another thread.
 *   must     return normally: no exception, no longjmp.
 *   must not wait for a lock under which the program allocates, because the code that allocated is below it on the
 *   stack. */
HAK_EXPORT void hak_set_soft_limit_callback(void (*call)(void *argument), void *argument) HAK_NOEXCEPT;

/* ---- arenas ----
 * An arena is a heap of its own: blocks that are destroyed together, limited together and counted together. hak_free,
 * free, hak_realloc, hak_usable_size and all other calls on a block take blocks of any arena, in any thread; realloc
 * leaves a block in its arena. Arenas share no SuperSlab (2 MiB of addresses) with each other or with the process;
 * resident is only what is used, in steps of 64 KiB for small blocks.
 *
 * Any thread may use any arena at any time; each thread has its own lists of free blocks in each arena it uses. A
 * handle that is no arena's is bad input: one line, then abort(), or EINVAL under ON_ERROR=warn and ignore.
 *
 * Blocks of arenas are in the heap profile, and not put between guard pages. What secure mode promises holds for
 * them. */

typedef struct hak_arena hak_arena;

typedef struct hak_arena_options {
    const char *name; /* shown by statistics; 47 bytes of it are copied. NULL: none */
    /* How many bytes of slots (64 KiB) may be in use, rounded down to whole slots. An allocation that would pass the
     * limit fails. 0: no limit. */
    size_t limit_bytes;
    /* Called when an allocation of `size` bytes would pass the limit, in the thread that allocates, with nothing
     * half-done: it may free blocks and call everything in this file. It returns non-zero to have the allocation tried
     * again, 0 to have it return NULL. NULL: no call. */
    int (*over_limit)(hak_arena *arena, size_t size, void *argument);
    void *argument; /* for the call */
} hak_arena_options;

/* Makes an arena; `options` NULL: without name and limit. NULL with ENOMEM without memory or above 65,535 arenas. */
HAK_EXPORT hak_arena *hak_arena_new(const hak_arena_options *options) HAK_NOEXCEPT;

/* Keeps all blocks of the arena out of core dumps (MADV_DONTDUMP): keys and passwords, or a cache that would make dumps
 * large. To be called before anything is allocated there.
 *   - hak_arena_destroy clears the memory before others have it, at the cost of its pages' next faults.
 *     hak_arena_release gives the blocks to the process's heap, whose blocks are in dumps.
 *   - Each SuperSlab takes up to two mappings of those that a process may have (vm.max_map_count). Where the system
 *     refuses, one line says so, and the blocks may be in dumps.
 * Returns 0; EBUSY if something was allocated there before; EINVAL after bad input. */
HAK_EXPORT int hak_arena_no_dump(hak_arena *arena) HAK_NOEXCEPT;

/* Frees all blocks of the arena at once, whoever allocated them, and ends it, in time proportional to its SuperSlabs;
 * in secure mode, which checks all blocks, to its memory. No other thread may be in a call on the arena or on a block
 * of it, and nobody may use its blocks afterwards. Threads that used the arena before need do nothing. NULL is
 * ignored. */
HAK_EXPORT void hak_arena_destroy(hak_arena *arena) HAK_NOEXCEPT;

/* Ends the arena and hands its blocks over to the process's heap: they live on, to be freed one by one. The same rule
 * for other threads, during the call. NULL is ignored. */
HAK_EXPORT void hak_arena_release(hak_arena *arena) HAK_NOEXCEPT;

/* As hak_malloc, hak_calloc and hak_aligned_alloc, in the arena. */
HAK_EXPORT void *hak_arena_malloc(hak_arena *arena, size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(2);
HAK_EXPORT void *hak_arena_calloc(hak_arena *arena, size_t count, size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(2, 3);
HAK_EXPORT void *hak_arena_aligned_alloc(hak_arena *arena, size_t alignment, size_t size) HAK_NOEXCEPT
    __attribute__((malloc, alloc_align(2), alloc_size(3), warn_unused_result));

/* As hak_realloc. A block that is elsewhere, in the process's heap or another arena, moves into this one. */
HAK_EXPORT void *hak_arena_realloc(hak_arena *arena, void *block, size_t size) HAK_NOEXCEPT
    __attribute__((warn_unused_result));

/* Copies a string into the arena. `text` must not be NULL. */
HAK_EXPORT char *hak_arena_strdup(hak_arena *arena, const char *text) HAK_NOEXCEPT
    __attribute__((malloc, warn_unused_result));

/* From now on whatever the calling thread allocates without naming an arena is in this one: malloc, new, strdup, a
 * library's own blocks. NULL: in the process's heap again. *before, unless `before` is NULL, becomes the default until
 * now, NULL if there was none. An allocation takes some 40 instructions more then. While `over_limit` or the function
 * of a soft limit runs there is no default. Whoever destroys the arena sets another default first. Whoever starts a
 * thread or loads a library meanwhile must keep the arena: libc never frees all that it allocates for them. Returns 0,
 * EINVAL after bad input, or ENOMEM if the thread has no heap. */
HAK_EXPORT int hak_arena_set_default(hak_arena *arena, hak_arena **before) HAK_NOEXCEPT;

/* Returns the arena that has the block; NULL: none has. */
HAK_EXPORT hak_arena *hak_arena_of(const void *block) HAK_NOEXCEPT;

typedef struct hak_arena_stats {
    size_t used_bytes;     /* of slots in use, free blocks in them included: what the limit applies to */
    size_t peak_bytes;     /* most of these so far */
    size_t limit_bytes;    /* 0: no limit */
    size_t reserved_bytes; /* of SuperSlabs: addresses, resident as far as they were used and not purged */
    size_t heaps;          /* threads that use the arena, and ended ones whose lists wait for the next thread */
    size_t refusals;       /* slots that the limit refused */
} hak_arena_stats;

/* Fills in *stats: figures of a moment ago if other threads use the arena. Returns 0, or EINVAL after bad input. */
HAK_EXPORT int hak_arena_get_stats(hak_arena *arena, hak_arena_stats *stats) HAK_NOEXCEPT;

typedef int hak_arena_visitor(void *block, size_t bytes, void *argument);

/* Calls visit(block, usable size, argument) for each live block of the arena, in no certain order, until a call returns
 * other than 0, which is then returned; else 0, or -1 after bad input. No other thread may be in a call on the arena or
 * its blocks meanwhile, and `visit` must not allocate or free in it. */
HAK_EXPORT int hak_arena_visit(hak_arena *arena, hak_arena_visitor *visit, void *argument) HAK_NOEXCEPT;

/* ---- the heap profile ---- */

/* Begins to sample: one allocation every `mean_bytes` bytes on average, with its call stack; 0 means every
 * PROFILE_BYTES.
 *   - If sampling is on already, only the mean changes. Samples taken before stay in the profile.
 *   - A thread notices at its next call that its own free blocks do not serve.
 *   - The `hakmem` command reads the profile.
 * Returns 0, or ENOTSUP in secure mode. */
HAK_EXPORT int hak_profile_start(size_t mean_bytes) HAK_NOEXCEPT;

/* Stops sampling. The profile still records when blocks that were sampled are freed. */
HAK_EXPORT void hak_profile_stop(void) HAK_NOEXCEPT;

/* Writes what was sampled so far to a file of this name, for `hakmem flame`. %p in the name becomes the process id, and
 * %n the number of the file among those that the process has written. A file that is there is overwritten if it belongs
 * to this user or to root. Unlike most calls, this one is allowed in a signal handler.
 * Returns 0; EIO if the file cannot be opened; ENOTSUP in secure mode. errno is kept. */
HAK_EXPORT int hak_profile_dump(const char *path) HAK_NOEXCEPT;

/* Returns the version of the running library, such as "0.1.0". It may be newer than this header. */
HAK_EXPORT const char *hak_version(void) HAK_NOEXCEPT;

/* ---- call sites ----
 * A program that knows how long blocks will live can say so where it allocates them. Long-lived blocks then share no
 * slab with short-lived ones, so a burst of these leaves no pages behind that a few old blocks pin. docs/arenas.md has
 * the figures, and how HAKMEM learns the same of programs that say nothing.
 *
 * Any thread calls these at any time. Blocks are freed, resized and measured as all others; realloc leaves a block
 * among blocks of its policy. In secure mode all policies are the default one. */

enum hak_policy {
    HAK_POLICY_DEFAULT,     /* as hak_malloc; for hak_alloc_site: that of the site */
    HAK_POLICY_SHORT_LIVED, /* as hak_malloc, which frees fastest: long-lived blocks lie elsewhere */
    HAK_POLICY_LONG_LIVED,  /* in slabs of long-lived blocks; a free takes about 70 instructions more */
    HAK_POLICY_HOT,         /* used all the time: in slabs of such blocks, close together */
    HAK_POLICY_COLD,        /* hardly ever used: in slabs of such blocks, away from the others */
    HAK_POLICY_DENSE,       /* as hak_malloc_dense */
};

/* Returns a number for a place of the program's code, to be made once: 1 or more. A name that was used before has the
 * number that it had, and the policy; two threads that use a new name at once may get two numbers. 47 bytes of the name
 * are copied. 0 with EINVAL without a name or for an unknown policy, with ENOMEM above 1,023 sites. */
HAK_EXPORT unsigned hak_site_new(const char *name, int policy) HAK_NOEXCEPT;

/* As hak_malloc, for a site (0: none), whose count goes up. `policy`: HAK_POLICY_DEFAULT for the site's own, or another
 * one for this block. Blocks above 64 KiB have no policy. NULL with EINVAL for an unknown site or policy. */
HAK_EXPORT void *hak_alloc_site(size_t size, unsigned site, int policy) HAK_NOEXCEPT HAK_ALLOC_SIZE(1);

typedef struct hak_site_stats {
    const char *name; /* of the site; lives as long as the process */
    int policy;
    size_t blocks; /* allocated so far, exact; what other threads allocate meanwhile may be missing */
    size_t bytes;  /* asked for in these */
} hak_site_stats;

/* Fills in the figures of a site. Returns 0, or EINVAL for an unknown site. */
HAK_EXPORT int hak_site_get_stats(unsigned site, hak_site_stats *stats) HAK_NOEXCEPT;

/* ---- moving blocks ----
 * Memory that a few old blocks pin can be had back by moving them, which only the program can do, as it knows its
 * pointers:
 *
 *     if (hak_should_move(p)) {
 *         q = hak_malloc_dense(n);
 *         memcpy(q, p, n);
 *         …all pointers to p become q…
 *         hak_free_dense(p);
 *     }
 *
 * Nothing here takes a lock. Blocks up to 16 KiB may gain, except those of whole pages, which pin nothing. In secure
 * mode, and with SUPERSLAB=0, no block does. docs/compaction.md has the rule and an example. */

/* Returns 1 if the block lies in a sparse slab and a copy by hak_malloc_dense would lie in a denser one, else 0. Any
 * address may be asked about: 0 for NULL and for what is not HAKMEM's. Takes about 20 ns; one call in thousands, after
 * 250 ms, counts the heap anew, which takes up to 0.5 ms. */
HAK_EXPORT int hak_should_move(const void *block) HAK_NOEXCEPT;

/* As hak_malloc, but the block comes from a dense slab, and from none of the thread's caches. Slower than
 * hak_malloc. */
HAK_EXPORT void *hak_malloc_dense(size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(1);

/* As hak_free, but the block goes to its slab at once, past the thread's caches: if it was the last one there, the
 * memory is free at once. If another thread owns the slab, the block is free when that thread allocates the size
 * next. */
HAK_EXPORT void hak_free_dense(void *block) HAK_NOEXCEPT;

/* A cursor over the live blocks of sparse slabs, for programs that reach all pointers to a block from the block itself,
 * as by a handle in it. Zero it before the first use; afterwards it remembers its place. One thread at a time uses a
 * cursor.
 *
 *     hak_defrag_begin(&d, 1000000);
 *     while ((p = hak_defrag_next(&d, &bytes)) != NULL)
 *         move(p);
 *     all_was_looked_at = hak_defrag_end(&d); */
struct hak_defrag {
    unsigned long long state[136];
};

/* Opens a time box of `ns` nanoseconds, 0: without end. The cursor goes on where it was. */
HAK_EXPORT void hak_defrag_begin(struct hak_defrag *cursor, unsigned long long ns) HAK_NOEXCEPT;

/* Returns the next block and stores its usable size in *bytes. NULL: the time is up, or all slabs were looked at. The
 * program may move and free blocks between the calls. A block that another thread is just allocating or freeing may be
 * listed. Blocks up to 1 KiB in a slab that another thread owns are left out, and all blocks in slabs that somebody
 * allocates from now. */
HAK_EXPORT void *hak_defrag_next(struct hak_defrag *cursor, size_t *bytes) HAK_NOEXCEPT;

/* Closes the time box. Returns 1 if all slabs were looked at, and then the cursor begins anew; else 0. */
HAK_EXPORT int hak_defrag_end(struct hak_defrag *cursor) HAK_NOEXCEPT;

/* What the blocks of one size take. */
struct hak_class_use {
    size_t block_bytes; /* usable bytes of a block; 0: all blocks above 64 KiB together, and those of secure mode */
    size_t slab_blocks; /* how many a slab has; 0 as above */
    size_t slabs;       /* in use */
    size_t slab_bytes;  /* of these together, free blocks included */
    size_t live_bytes;  /* blocks the program holds, and those in threads' caches */
    size_t held_bytes;  /* the same and free blocks whose pages were not given back */
};

/* Stores what each class of blocks takes, the smallest first and the last as above, in at most `room` entries. Returns
 * how many entries there are. One walk over all slabs, 10 ns each, without a system call; a guess while other threads
 * allocate. */
HAK_EXPORT size_t hak_class_uses(struct hak_class_use *classes, size_t room) HAK_NOEXCEPT;

/* ---- options compiled into a program ----
 * A program may define   const char *hak_options = "PURGE=eager,HUGE_PAGES=never";
 * The environment takes precedence. */

#ifdef __cplusplus
}
#endif
#endif
