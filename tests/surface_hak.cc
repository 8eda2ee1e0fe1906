/* SPDX-License-Identifier: MIT */
#include <hakmem.h>

#include "surface.h"

const Surface &subject() {
    static const Surface surface = [] {
        Surface s = {};
        s.name = "hak";
        s.alloc = hak_malloc;
        s.calloc = hak_calloc;
        s.realloc = hak_realloc;
        s.free = hak_free;
        s.aligned_alloc = hak_aligned_alloc;
        s.usable_size = hak_usable_size;
        s.free_sized = hak_free_sized;
        return s;
    }();
    return surface;
}
