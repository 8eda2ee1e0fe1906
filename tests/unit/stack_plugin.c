/* A library to load and unload. It is built twice, with only the size of this frame differing, so that one build can be
 * loaded exactly where the other was. */
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
