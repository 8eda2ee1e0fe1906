/* What operator new does when there is no memory, and which operators the program has itself. Only this part needs C++,
 * because a nothrow operator must catch what the program's new_handler or its operator new throws. libstdc++ is not
 * linked: the compiler and this file refer to its functions weakly, and every program that can throw at all has
 * them. Where only a plugin of a C program has them, for itself, they are looked for when they are needed. */
/* SPDX-License-Identifier: MIT */
#include <stdint.h>
#include <stdlib.h>

#include "hakmem.h"
extern "C" {
#include "entry/new_handler.h"
}

__asm__(".weak __gxx_personality_v0\n.weak __cxa_begin_catch\n.weak __cxa_end_catch\n.weak _Unwind_Resume\n"
        ".weak _ZSt9terminatev\n.weak _ZSt15get_new_handlerv\n.weak _ZSt17__throw_bad_allocv");

extern "C" {
typedef void (*handler_function)();
typedef handler_function get_handler();
get_handler hak_get_new_handler __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
void hak_throw_bad_alloc() __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));
void text_line(const char *format, ...) __attribute__((visibility("hidden")));
uintptr_t os_find_function(const char *name, uintptr_t bound, uintptr_t beside) __attribute__((visibility("hidden")));
void *bound_new(size_t) __asm__("_Znwm");
void *bound_new_array(size_t) __asm__("_Znam");
void *bound_new_aligned(size_t, size_t) __asm__("_ZnwmSt11align_val_t");
void *bound_new_array_aligned(size_t, size_t) __asm__("_ZnamSt11align_val_t");
void bound_delete(void *) __asm__("_ZdlPv");
void bound_delete_array(void *) __asm__("_ZdaPv");
void bound_delete_aligned(void *, size_t) __asm__("_ZdlPvSt11align_val_t");
void bound_delete_array_aligned(void *, size_t) __asm__("_ZdaPvSt11align_val_t");
}

/* In a file that does not define them, so that the compiler leaves them to the linker. */
const struct new_bound new_bound = {bound_new,    bound_new_array,    bound_new_aligned,    bound_new_array_aligned,
                                    bound_delete, bound_delete_array, bound_delete_aligned, bound_delete_array_aligned};

static void *try_again(size_t size, size_t alignment) {
    return alignment == 0 ? hak_malloc(size) : hak_aligned_alloc(alignment, size);
}

template <typename Function> static Function *find(Function *bound, const char *name) {
    return bound != nullptr ? bound : reinterpret_cast<Function *>(os_find_function(name, 0, 0));
}

/* Asks the handler for memory until there is enough or the handler gives up. No memory helps if the alignment is no
 * power of two. */
static void *retry(size_t size, size_t alignment, get_handler *get) {
    while ((alignment & (alignment - 1)) == 0) {
        handler_function handler = get != nullptr ? get() : nullptr;
        if (handler == nullptr)
            return nullptr;
        handler();
        if (void *block = try_again(size, alignment))
            return block;
    }
    return nullptr;
}

__attribute__((cold)) void *new_failed(size_t size, size_t alignment) {
    if (void *block = retry(size, alignment, find(hak_get_new_handler, "_ZSt15get_new_handlerv")))
        return block;
    if (auto fail = find(hak_throw_bad_alloc, "_ZSt17__throw_bad_allocv"))
        fail();
    text_line("hakmem: out of memory in operator new, and no C++ library to throw bad_alloc");
    abort();
}

/* A handler that is not bound might throw what this cannot catch. */
__attribute__((cold)) void *new_failed_nothrow(size_t size, size_t alignment) {
    try {
        return retry(size, alignment, hak_get_new_handler);
    } catch (...) {
        return nullptr;
    }
}

void *new_nothrow_of_program(new_form *form, size_t size) {
    try {
        return form(size);
    } catch (...) {
        return nullptr;
    }
}

void *new_aligned_nothrow_of_program(new_aligned_form *form, size_t size, size_t alignment) {
    try {
        return form(size, alignment);
    } catch (...) {
        return nullptr;
    }
}
