/* What operator new does when there is no memory: the one part that needs C++, because a nothrow operator must catch what
 * the program's new_handler throws. libstdc++ is not linked: what the compiler and this file need of it are weak
 * references, which are there in every program that can throw at all. */
/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "hakmem.h"

__asm__(".weak __gxx_personality_v0\n.weak __cxa_begin_catch\n.weak __cxa_end_catch\n.weak _Unwind_Resume\n"
        ".weak _ZSt9terminatev\n.weak _ZSt15get_new_handlerv\n.weak _ZSt17__throw_bad_allocv");

extern "C" {
typedef void (*handler_function)();
handler_function hak_get_new_handler() __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
void hak_throw_bad_alloc() __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));
void text_line(const char *format, ...) __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"), cold)) void *new_failed(size_t size, size_t alignment);
__attribute__((visibility("hidden"), cold)) void *new_failed_nothrow(size_t size, size_t alignment);
}

static void *try_again(size_t size, size_t alignment) {
    return alignment == 0 ? hak_malloc(size) : hak_aligned_alloc(alignment, size);
}

/* Asks the handler for memory until it gives up. Memory does not help where the alignment is no power of two. */
static void *retry(size_t size, size_t alignment) {
    while ((alignment & (alignment - 1)) == 0) {
        handler_function handler = hak_get_new_handler != nullptr ? hak_get_new_handler() : nullptr;
        if (handler == nullptr)
            return nullptr;
        handler();
        if (void *block = try_again(size, alignment))
            return block;
    }
    return nullptr;
}

void *new_failed(size_t size, size_t alignment) {
    if (void *block = retry(size, alignment))
        return block;
    if (hak_throw_bad_alloc != nullptr)
        hak_throw_bad_alloc();
    text_line("hakmem: out of memory in operator new, and no C++ library to throw bad_alloc");
    abort();
}

void *new_failed_nothrow(size_t size, size_t alignment) {
    try {
        return retry(size, alignment);
    } catch (...) {
        return nullptr;
    }
}
