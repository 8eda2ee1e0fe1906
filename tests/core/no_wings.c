/* The hooks of src/process/hooks.h where there are no wings: all that the core needs to be an allocator of its own.
 * Nothing is sampled, rated, moved or merged, and there are no arenas; SECURE is not to be set. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "blocks/kinds.h"
#include "process/hooks.h"

/* ---- the process ---- */
bool hook_options_are_read(void) { return false; }
void hook_start(void) {}
void hook_end(void) {}
void hook_last_checks(void) {}
bool hook_explain_fault(const void *at, const char *access, uintptr_t code) {
    (void)at, (void)access, (void)code;
    return false;
}

/* ---- observe ---- */
const struct kind kind_guard_page = {.name = "no guard page"};
void *hook_malloc_sampled(struct heap *h, const struct kind *kind, take_call *take, size_t bytes, size_t alignment,
                          bool *zero) {
    (void)kind;
    return take(h, bytes, alignment, zero);
}
void hook_resized(struct heap *h, struct slab *s, const void *p, size_t bytes) {
    (void)h, (void)s, (void)p, (void)bytes;
}
void hook_sampled_freed(const void *p) { (void)p; }
size_t hook_sampled_bytes(const void *p) {
    (void)p;
    return SIZE_MAX;
}
void hook_soft_limit(void) {}

/* ---- learn ---- */
void hook_settled(void) {}
void hook_rests(void) {}

/* ---- arena ---- */
const struct kind kind_arena = {.name = "no arena's"};
void *hook_malloc_in_default(size_t bytes, size_t alignment, bool *zero) {
    (void)bytes, (void)alignment, (void)zero;
    return NULL;
}
void *hook_malloc_near(const struct slab *s, size_t bytes) {
    (void)s;
    return alloc_malloc(bytes, alloc_slow);
}
struct heap *hook_heap_for(struct heap *h, const struct slab *s) {
    (void)s;
    return h;
}
void *hook_malloc_at_site(struct heap *h, size_t bytes) {
    (void)h, (void)bytes;
    return NULL;
}

/* ---- mesh, move ---- */
const struct kind kind_meshed = {.name = "no meshed slab"};
bool hook_is_sparse(unsigned class_id, unsigned out, size_t slot) {
    (void)class_id, (void)out, (void)slot;
    return false;
}
void *hook_tiny_malloc_dense(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    return kind_tiny.malloc(h, bytes, alignment, zero);
}

/* ---- secure ---- */
const struct kind kind_secure_small = {.name = "no secure block"}, kind_secure_large = {.name = "no secure block"};
void *hook_malloc_secure(struct heap *h, size_t bytes) {
    (void)h, (void)bytes;
    return NULL;
}
void *hook_made_by_new(void *p, bool array) {
    (void)array;
    return p;
}
void hook_deleted(const void *p, bool array) { (void)p, (void)array; }
