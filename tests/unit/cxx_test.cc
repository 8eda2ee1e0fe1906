/* hakmem.hpp: if one of these fails, a container's elements lie elsewhere than in the arena it was given. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <string>
#include <vector>

#include "../support.h"
#include "hakmem.hpp"

namespace {

struct alignas(256) Wide {
    char bytes[256];
};

TEST(Cxx, PmrContainersLieInTheArena) {
    hakmem::unique_arena arena = hakmem::make_arena();
    hakmem::memory_resource resource(arena.get()), process;
    std::pmr::map<int, std::pmr::string> words(&resource);
    for (int i = 0; i < 1000; i++)
        words.emplace(i, std::string(static_cast<size_t>(i), 'x'));
    for (auto &[key, word] : words) {
        ASSERT_EQ(hak_arena_of(&word), arena.get());
        if (key > 100)
            ASSERT_EQ(hak_arena_of(word.data()), arena.get());
    }
    std::pmr::vector<Wide> wide(50, &resource);
    EXPECT_TRUE(aligned_to(wide.data(), 256));
    EXPECT_EQ(hak_arena_of(wide.data()), arena.get());
    std::pmr::vector<int> outside(1000, 7, &process);
    EXPECT_EQ(hak_arena_of(outside.data()), nullptr);
    EXPECT_GE(hak_usable_size(outside.data()), 4000u);
    EXPECT_TRUE(resource.is_equal(hakmem::memory_resource(arena.get())));
    EXPECT_FALSE(resource.is_equal(process));
    EXPECT_FALSE(resource.is_equal(*std::pmr::new_delete_resource()));
}

TEST(Cxx, TheAllocatorTakesItsArenaAlong) {
    hakmem::unique_arena arena = hakmem::make_arena();
    std::vector<int, hakmem::allocator<int>> numbers(arena.get());
    numbers.resize(10000);
    EXPECT_EQ(hak_arena_of(numbers.data()), arena.get());
    std::vector<int, hakmem::allocator<int>> moved;
    moved = std::move(numbers);
    moved.resize(30000);
    EXPECT_EQ(hak_arena_of(moved.data()), arena.get());
    std::list<Wide, hakmem::allocator<Wide>> list(3, Wide{}, hakmem::allocator<Wide>());
    EXPECT_TRUE(aligned_to(&list.front(), 256));
    EXPECT_EQ(hak_arena_of(&list.front()), nullptr);
    hakmem::allocator<int> of_process;
    EXPECT_NE(hakmem::allocator<int>(arena.get()), of_process);
    EXPECT_THROW(of_process.allocate(SIZE_MAX / 2), std::bad_array_new_length);
}

TEST(Cxx, TheLimitThrowsBadAlloc) {
    hak_arena_options options = {};
    options.limit_bytes = kMiB;
    hakmem::unique_arena arena = hakmem::make_arena(options);
    hakmem::memory_resource resource(arena.get());
    std::pmr::vector<char> bytes(&resource);
    EXPECT_THROW(bytes.resize(2 * kMiB), std::bad_alloc);
    bytes.resize(100000);
}

TEST(Cxx, TheOwnerEndsTheArena) {
    hak_arena *handle = nullptr;
    {
        hakmem::unique_arena arena = hakmem::make_arena();
        handle = arena.get();
        EXPECT_NE(hak_arena_strdup(handle, "text"), nullptr);
    }
    hak_arena_stats stats;
    EXPECT_DEATH(hak_arena_get_stats(handle, &stats), "which is no arena");
}

} // namespace
