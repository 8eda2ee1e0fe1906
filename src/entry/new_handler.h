/* What new_handler.cc, which includes this as C, has for new.c: what the operators stand on, and what they do without
 * memory. */
/* SPDX-License-Identifier: MIT */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)
/* The forms of the operators that others stand on, as the linker has bound their names: the program may have its own.
 * Constant once the library is loaded. */
struct new_bound {
    void *(*new_scalar)(size_t size);
    void *(*new_array)(size_t size);
    void *(*new_aligned)(size_t size, size_t alignment);
    void *(*new_array_aligned)(size_t size, size_t alignment);
    void (*delete_scalar)(void *p);
    void (*delete_array)(void *p);
    void (*delete_aligned)(void *p, size_t alignment);
    void (*delete_array_aligned)(void *p, size_t alignment);
};
extern const struct new_bound new_bound;

typedef void *new_form(size_t size);
typedef void *new_aligned_form(size_t size, size_t alignment);
/* The functions of this library. */
new_form our_new, our_new_array;
new_aligned_form our_new_aligned, our_new_array_aligned;
static inline bool new_is_ours(bool array, bool aligned) {
    if (aligned)
        return new_bound.new_aligned == our_new_aligned &&
               (!array || new_bound.new_array_aligned == our_new_array_aligned);
    return new_bound.new_scalar == our_new && (!array || new_bound.new_array == our_new_array);
}

/* Ask the new_handler for memory, then throw or return NULL. Alignment 0: the default one. */
void *new_failed(size_t size, size_t alignment);
void *new_failed_nothrow(size_t size, size_t alignment);

/* Calls the program's form; NULL if it throws. */
void *new_nothrow_of_program(new_form *form, size_t size);
void *new_aligned_nothrow_of_program(new_aligned_form *form, size_t size, size_t alignment);

#pragma GCC visibility pop
