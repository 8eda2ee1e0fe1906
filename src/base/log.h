/* The debug log of the checked build: one line for each event of the kinds that HAKMEM_DEBUG lists. A release build
 * contains none of it. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "base/text.h"

enum log_kind { LOG_ACQUIRE, LOG_FREE, LOG_LRU, LOG_DRAIN, LOG_TABLES, LOG_RETRIES };

/* At the library's start: says once what the events' bounds are or, in a release build, that it logs nothing. */
void log_start(void);

/* Whether events of this kind are wanted. */
bool log_wanted(enum log_kind kind);

/* How a line names a span's class, from the span's tag in the pool: the class number, or "large" for spans without
 * one. */
struct log_class {
    char text[8];
};
struct log_class log_class(unsigned tag);

/* The table has no place left, so what was asked for is refused or left out. */
#define LOG_TABLE_FULL(table, places)                                                                                  \
    LOG(LOG_TABLES, "[TABLE_FULL] %s: all %u places are taken", table, (uint64_t)(places))

#define LOG(kind, ...) (HAK_IS_CHECKED && unlikely(log_wanted(kind)) ? text_line(__VA_ARGS__) : (void)0)
