/* A library to be loaded and unloaded. Two are built of it, which differ in nothing but the size of this frame, so that the
 * one can lie exactly where the other did. */
/* SPDX-License-Identifier: MIT */
#include "stack_shapes.h"

__attribute__((noinline)) int plugin_through(int depth, stack_bottom bottom) {
    volatile char some[STACK_PLUGIN_FRAME_BYTES];
    some[0] = (char)depth;
    if (depth == 0)
        bottom();
    else
        plugin_through(depth - 1, bottom);
    return some[0];
}
