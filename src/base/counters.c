/* The counters' names and explanations, from the table in counters.h. */
/* SPDX-License-Identifier: MIT */
#include "base/counters.h"

// clang-format off
const char *const counter_names[COUNTER_COUNT] = {
#define COUNTER_NAME(name, help) #name,
    COUNTERS(COUNTER_NAME)
#undef COUNTER_NAME
};
const char *const counter_help[COUNTER_COUNT] = {
#define COUNTER_HELP(name, help) (help), /* parentheses: a row may be several literals */
    COUNTERS(COUNTER_HELP)
#undef COUNTER_HELP
};
// clang-format on

#ifdef HAK_CHECKED
_Thread_local uint64_t rmw_count;
#endif
