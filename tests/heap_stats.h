/* Reads hak_stats_json into a Json value, and sums up the resident bytes that the heap reports. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_HEAP_STATS_H
#define HAKMEM_TESTS_HEAP_STATS_H

#include <hakmem.h>
#include <sys/mman.h>

#include <string>

#include "json.h"

/* Writes the text to its own mapping, so that the query does not change what it reports. */
inline std::string heap_stats_text() {
    constexpr size_t kRoom = size_t{1} << 20;
    void *room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto *buffer = static_cast<char *>(room);
    hak_stats_json(buffer, kRoom);
    std::string text(buffer);
    munmap(room, kRoom);
    return text;
}

inline Json heap_stats() { return JsonReader::read(heap_stats_text()); }

inline long counter(const char *name) { return static_cast<long>(heap_stats()["counters"][name].number); }

/* Without what the system can take at once. */
inline size_t heap_rss_bytes() {
    Json stats = heap_stats();
    return static_cast<size_t>(stats["rss_bytes"]["total"].number - stats["rss_bytes"]["lazy"].number);
}

#endif
