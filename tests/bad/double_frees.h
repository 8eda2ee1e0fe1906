/* Programs that free a block twice, for the tests of the lines they get. */
/* SPDX-License-Identifier: MIT */
#ifndef DOUBLE_FREES_H
#define DOUBLE_FREES_H

#include <cstring>
#include <thread>

#include "../support.h"
#include "../surface.h"

inline const Surface &S = subject();

inline char *live(size_t size) {
    char *block = hidden(S.alloc(size));
    memset(block, 1, size);
    return block;
}

inline void double_free_at_once(size_t size) {
    char *block = live(size);
    S.free(block);
    S.free(block);
}

inline void double_free_by_another_thread(size_t size) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    std::thread([&] { S.free(block); }).join();
    S.free(kept);
}

#endif
