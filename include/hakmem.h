/* HAKMEM: a general-purpose memory allocator for Linux.
 *
 * These calls stand beside the standard ones (malloc, free, operator new, …), which the same library
 * provides unless it was built for embedding. Blocks may be mixed freely: what hak_malloc returns may go
 * to free, and the other way round.
 *
 * Conventions, unless a function says otherwise:
 *   units      sizes are in bytes;
 *   alignment  a block is aligned to 16 bytes, a block of at most 8 bytes to 8;
 *   threads    every function may be called from any thread at any time, but none from a signal handler;
 *   errors     a failed allocation returns NULL with errno ENOMEM; nothing is changed;
 *   bad input  a pointer that is not the start of a live block ends the program with one line on the
 *              standard error, "hakmem: …", and abort(). */
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

/* A block of at least `size` bytes, not cleared. hak_malloc(0) returns a unique block. */
HAK_EXPORT void *hak_malloc(size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(1);

/* A cleared block for `count` objects of `size` bytes. ENOMEM when the product overflows. */
HAK_EXPORT void *hak_calloc(size_t count, size_t size) HAK_NOEXCEPT HAK_ALLOC_SIZE(1, 2);

/* The block resized to `size` bytes, contents kept up to the smaller of both sizes. NULL as `block` is
 * hak_malloc(size); `size` 0 frees the block and returns NULL, as glibc does. On failure the old block is
 * untouched. Blocks above 1 MiB grow by moving pages, not bytes, wherever the kernel can. */
HAK_EXPORT void *hak_realloc(void *block, size_t size) HAK_NOEXCEPT __attribute__((warn_unused_result));

/* Frees a block; NULL is ignored. errno is kept. */
HAK_EXPORT void hak_free(void *block) HAK_NOEXCEPT;

/* As hak_free, by a caller that knows the size it asked for (C23 free_sized). A size that is more than
 * the block has, in secure mode any other size, ends the program like any other bad input. */
HAK_EXPORT void hak_free_sized(void *block, size_t size) HAK_NOEXCEPT;

/* A block aligned to `alignment` bytes, a power of two; else NULL with errno EINVAL. `size` need not be a
 * multiple of it. */
HAK_EXPORT void *hak_aligned_alloc(size_t alignment, size_t size) HAK_NOEXCEPT
    __attribute__((malloc, alloc_align(1), alloc_size(2), warn_unused_result));

/* ---- sizes ---- */

/* How many bytes of the block may be used; all of them may. 0 for NULL. */
HAK_EXPORT size_t hak_usable_size(const void *block) HAK_NOEXCEPT;

/* The usable size a block would have if `size` bytes were asked for (but what was asked for if it is guarded, see
 * GUARD_SAMPLE_BYTES: hak_usable_size knows). 0 if no such block can be. */
HAK_EXPORT size_t hak_good_size(size_t size) HAK_NOEXCEPT;

/* Makes the block usable for `size` bytes without moving it. Returns 1 if it now is, else 0; the block
 * and errno stay as they were. */
HAK_EXPORT int hak_expand(void *block, size_t size) HAK_NOEXCEPT;

/* A block of at least `size` bytes with the usable size put into *usable (not NULL). */
HAK_EXPORT void *hak_alloc_at_least(size_t size, size_t *usable) HAK_NOEXCEPT HAK_ALLOC_SIZE(1);

/* ---- the heap ---- */

/* Gives back to the operating system what is free now: this thread's caches, empty slots, and whole free pages
 * inside partly used slabs. Returns how many bytes were given back. Costs system calls in proportion to that. */
HAK_EXPORT size_t hak_trim(void) HAK_NOEXCEPT;

/* The statistics as text on file descriptor `fd`. The figures are exact when no other thread allocates
 * meanwhile, else each is a recent one. Reads which pages are resident: one system call per SuperSlab. */
HAK_EXPORT void hak_stats_print(int fd) HAK_NOEXCEPT;

/* The statistics as one JSON object, written to `buffer` as a terminated string, cut off to `bytes` bytes.
 * Returns the length of the whole text without its terminator, as snprintf does: call with bytes 0 to ask. */
HAK_EXPORT size_t hak_stats_json(char *buffer, size_t bytes) HAK_NOEXCEPT;

/* The value of option `name` ("PURGE" or "HAKMEM_PURGE", any case) as text in `buffer`, terminated and cut off
 * to `bytes`. Returns its whole length, or 0 with errno EINVAL when there is no such option. */
HAK_EXPORT size_t hak_option_get(const char *name, char *buffer, size_t bytes) HAK_NOEXCEPT;

/* Sets an option to the value written in `value`, in the form the environment takes. Returns 0, or EINVAL (no
 * such option, no such value) or EPERM (the option is read once, at the start). */
HAK_EXPORT int hak_option_set(const char *name, const char *value) HAK_NOEXCEPT;

/* Sets what is called when the heap passes SOFT_LIMIT: `call(argument)`, once each time the limit is passed after the
 * heap was at most 7/8 of it, when everything that could be given back at once was. NULL: nothing is called. The call is
 * made by the thread whose allocation passed the limit, or if that ends before, by the next one that takes the slow
 * path, at the end of malloc, calloc, realloc, new and the like, never in free: the block is made already. It may
 * allocate, free and call everything in this file; no other call begins in that thread meanwhile, though one may in another
 * thread. It must return, without exception or longjmp. The program's code that allocated is below it on the stack: it
 * must not wait for locks under which the program allocates. Not to be set by two threads at once. */
HAK_EXPORT void hak_set_soft_limit_callback(void (*call)(void *argument), void *argument) HAK_NOEXCEPT;
/* ---- the heap profile ---- */

/* From now on one allocation every `mean_bytes` bytes on average is sampled, with its call stack; 0: every PROFILE_BYTES. If
 * that is so already only the mean changes. Threads notice at their next call that is not served from their own free blocks.
 * What was sampled before stays in the profile. Read it with the `hakmem` command. Returns 0, or ENOTSUP in secure mode. */
HAK_EXPORT int hak_profile_start(size_t mean_bytes) HAK_NOEXCEPT;

/* No more samples. Frees of sampled blocks are still told to the profile. */
HAK_EXPORT void hak_profile_stop(void) HAK_NOEXCEPT;

/* "0.1.0": the version of the library that runs, which may be newer than this header. */
HAK_EXPORT const char *hak_version(void) HAK_NOEXCEPT;

/* ---- options compiled into a program ----
 * A program may define   const char *hak_options = "PURGE=eager,HUGE_PAGES=never";
 * The environment goes before it. */

#ifdef __cplusplus
}
#endif
#endif
