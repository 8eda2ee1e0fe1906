/* The functions under test as one table, so that a test runs unchanged with the hak_* functions and with the standard
 * symbols; and the same table of glibc's own functions as the oracle. Calls through pointers can't be optimised away.
 *   surface_hak.cc   subject() is hak_*: linked with the allocator built without symbol override
 *   surface_std.cc   subject() is malloc and the rest: linked with libhakmem.so */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_SURFACE_H
#define HAKMEM_TESTS_SURFACE_H

#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

struct Surface {
    const char *name;
    void *(*alloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    void *(*aligned_alloc)(size_t, size_t);
    size_t (*usable_size)(const void *);
    void (*free_sized)(void *, size_t); /* null in the oracle */

    /* Null where the surface has no such function. */
    void *(*reallocarray)(void *, size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    void (*free_aligned_sized)(void *, size_t, size_t);
    int (*trim)(size_t);
    int (*mallopt)(int, int);
    int (*malloc_info)(int, FILE *);
    struct mallinfo2 (*mallinfo2)();
};

const Surface &subject();
const Surface &oracle();

#endif
