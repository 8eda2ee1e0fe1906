/* The names of jemalloc that Redis and Valkey call, as they call them (include/hakmem/jemalloc/jemalloc.h). If it
 * fails, a Redis built against HAKMEM does not link, or does not see that it is fragmented. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <jemalloc/jemalloc.h>

#include "../support.h"

#if !defined(JEMALLOC_FRAG_HINT) || JEMALLOC_VERSION_MAJOR <= 2
#error "Redis would build without active defragmentation"
#endif
int je_get_defrag_hint(void *block); /* defrag.c declares it like this */

namespace {

size_t figure_of(const std::string &name) {
    size_t value = 0, bytes = sizeof value;
    EXPECT_EQ(je_mallctl(name.c_str(), &value, &bytes, nullptr, 0), 0) << name;
    return value;
}

unsigned bins() {
    unsigned n = 0;
    size_t bytes = sizeof n;
    EXPECT_EQ(je_mallctl("arenas.nbins", &n, &bytes, nullptr, 0), 0);
    return n;
}

void next_epoch() {
    uint64_t epoch = 1;
    size_t bytes = sizeof epoch;
    EXPECT_EQ(je_mallctl("epoch", &epoch, &bytes, &epoch, bytes), 0);
}

/* What Redis takes for its fragmentation: free blocks in the slabs of all bins. */
size_t free_in_bins() {
    size_t sum = 0;
    for (unsigned i = 0; i < bins(); i++) {
        uint32_t blocks = 0;
        size_t bytes = sizeof blocks;
        std::string n = std::to_string(i);
        EXPECT_EQ(je_mallctl(("arenas.bin." + n + ".nregs").c_str(), &blocks, &bytes, nullptr, 0), 0);
        std::string bin = "stats.arenas." + std::to_string(MALLCTL_ARENAS_ALL) + ".bins." + n;
        sum += (blocks * figure_of(bin + ".curslabs") - figure_of(bin + ".curregs")) *
               figure_of("arenas.bin." + n + ".size");
    }
    return sum;
}

void *active_defrag_alloc(void *block) {
    if (je_get_defrag_hint(block) == 0)
        return nullptr;
    size_t size = je_malloc_usable_size(block);
    void *to = je_mallocx(size, MALLOCX_TCACHE_NONE);
    memcpy(to, block, size);
    je_dallocx(block, MALLOCX_TCACHE_NONE);
    return to;
}

TEST(Redis, DefragmentsAsWithJemalloc) {
    std::vector<void *> values;
    for (int i = 0; i < 100000; i++)
        values.push_back(je_malloc(200));
    next_epoch();
    size_t allocated = figure_of("stats.allocated"), active = figure_of("stats.active");
    EXPECT_GE(allocated, 100000u * 200);
    EXPECT_LE(allocated, active);
    EXPECT_LE(active, figure_of("stats.resident"));
    Random random(1);
    for (size_t left = 90000; left > 0; left--) {
        size_t i = random.below(values.size());
        je_free(values[i]);
        values[i] = values.back();
        values.pop_back();
    }
    next_epoch();
    EXPECT_GT(figure_of("stats.active"), 3 * figure_of("stats.allocated"));
    size_t before = free_in_bins(), moved = 0;
    EXPECT_GT(before, 10 * kMiB);
    for (void *&value : values)
        if (void *to = active_defrag_alloc(value))
            value = to, moved++;
    EXPECT_GT(moved, 7000u);
    next_epoch();
    EXPECT_LT(free_in_bins(), before / 4);
    EXPECT_LT(figure_of("stats.active"), 3 * figure_of("stats.allocated") / 2);
    for (void *value : values)
        je_sdallocx(value, 200, 0);
}

TEST(Redis, OtherCallsDoWhatTheirNamesSay) {
    void *p = je_calloc(10, 10);
    EXPECT_EQ(first_dirty(p, 100), 100u);
    p = je_realloc(p, 300);
    p = je_rallocx(p, 500, 0);
    EXPECT_EQ(je_malloc_usable_size(p), je_nallocx(500, 0));
    je_dallocx(p, 0);
    std::string text;
    je_malloc_stats_print([](void *to, const char *part) { *static_cast<std::string *>(to) += part; }, &text, nullptr);
    EXPECT_EQ(text.front(), '{');
}

TEST(Redis, MallctlKnowsWhatRedisAsksAndSaysNoToTheRest) {
    size_t arenas = 0, bytes = sizeof(unsigned);
    EXPECT_EQ(je_mallctl("arenas.narenas", &arenas, &bytes, nullptr, 0), 0);
    EXPECT_EQ(arenas, 1u);
    EXPECT_EQ(je_mallctl("arena.0.purge", nullptr, nullptr, nullptr, 0), 0);
    char on = 1;
    EXPECT_EQ(je_mallctl("background_thread", nullptr, nullptr, &on, 1), 0);
    size_t value = 0;
    bytes = sizeof value;
    for (const char *name :
         {"stats.no", "arenas.bin.9999.size", "arenas.bin.1.no", "experimental.utilization.query", ""})
        EXPECT_EQ(je_mallctl(name, &value, &bytes, nullptr, 0), ENOENT) << name;
    bytes = 3;
    EXPECT_EQ(je_mallctl("stats.active", &value, &bytes, nullptr, 0), EINVAL);
}

} // namespace
