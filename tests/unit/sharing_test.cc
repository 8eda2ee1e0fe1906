/* Sizes that share classes while a C program is small, each case in a process of its own. If it fails, small programs
 * touch a page for each size that they use, large ones waste half of many blocks, or a C++ library that a C program
 * loads is accused of wrong sizes. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <hakmem.h>

#include "../support.h"
#include "inside.h"

namespace {

size_t class_bytes(size_t size) { return inside_class_at(inside_tiny_class_of(size)).block_bytes; }
size_t shared_bytes(size_t size) {
    size_t power = 64;
    while (power < size)
        power *= 2;
    return size <= 64 ? class_bytes(size) : power;
}

char *block_of(size_t size) {
    char *block = static_cast<char *>(hak_malloc(size));
    MUST(block != nullptr, "no memory");
    memset(block, static_cast<int>(size), size);
    return block;
}

bool is_whole(const char *block, size_t size) {
    return std::all_of(block, block + size, [=](char c) { return c == static_cast<char>(size); });
}

void grow() {
    for (int i = 0; i < 2000; i++)
        block_of(48);
}

void sizes_share_until_the_heap_grows() {
    inside_share_classes();
    std::vector<char *> blocks;
    for (size_t size = 1; size <= inside_tiny_max; size += 16) {
        blocks.push_back(block_of(size));
        MUST(hak_usable_size(blocks.back()) == shared_bytes(size), "%zu bytes: %zu", size,
             hak_usable_size(blocks.back()));
    }
    grow();
    for (size_t size = inside_tiny_max; size >= 1; size--) {
        size_t usable = hak_usable_size(block_of(size));
        MUST(usable == class_bytes(size), "%zu bytes: %zu", size, usable);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        MUST(hak_usable_size(blocks[i]) == shared_bytes(1 + 16 * i) && is_whole(blocks[i], 1 + 16 * i), "block %zu", i);
        hak_free(blocks[i]);
    }
}

void few_blocks_of_many_sizes_share_pages() {
    inside_share_classes();
    std::vector<size_t> pages;
    for (size_t size : {280, 300, 340, 370, 410, 440, 470, 510})
        pages.push_back(reinterpret_cast<size_t>(block_of(size)) / 4096);
    MUST(pages.front() == pages.back(), "the pages differ");
}

void sizes_stay_exact_unless_they_share() {
    for (size_t size = 1; size <= inside_tiny_max; size++)
        MUST(hak_usable_size(block_of(size)) == class_bytes(size), "%zu bytes", size);
}

void shared_blocks_are_aligned_and_resized() {
    inside_share_classes();
    for (size_t alignment = 16; alignment <= inside_tiny_max; alignment *= 2)
        for (size_t size = 1; size <= inside_tiny_max; size += 60) {
            const void *block = hak_aligned_alloc(alignment, size);
            MUST(reinterpret_cast<size_t>(block) % alignment == 0, "%zu at %zu", size, alignment);
        }
    for (size_t size = 1, more = 70; more <= inside_tiny_max; size = more, more += 70) {
        char *block = static_cast<char *>(hak_realloc(block_of(size), more));
        MUST(is_whole(block, size) && hak_usable_size(block) >= more, "%zu to %zu", size, more);
        hak_free_sized(block, more);
    }
}

/* ON_ERROR=abort: a false report ends the process. */
void sized_deletes_fit_before_and_after() {
    std::vector<char *> before, shared;
    for (size_t size = 1; size <= inside_tiny_max; size += 7)
        before.push_back(block_of(size));
    inside_share_classes();
    for (size_t size = 1; size <= inside_tiny_max; size += 7)
        shared.push_back(block_of(size));
    for (size_t i = 0; i < before.size(); i++) {
        inside_delete_sized(before[i], 1 + 7 * i);
        inside_delete_sized(shared[i], 1 + 7 * i);
    }
}

void sampling_ends_it() {
    inside_share_classes();
    MUST(hak_usable_size(block_of(300)) == 512, "not shared");
    MUST(hak_profile_start(size_t{1} << 30) == 0, "no profile");
    for (int i = 0; i < 20; i++)
        block_of(600);
    MUST(hak_usable_size(block_of(300)) == class_bytes(300), "still shared");
}

void a_child_goes_on() {
    inside_share_classes();
    char *block = block_of(300);
    pid_t child = fork();
    if (child == 0) {
        MUST(is_whole(block, 300) && hak_usable_size(block_of(400)) == 512, "in the child");
        hak_free(block);
        grow();
        MUST(hak_usable_size(block_of(400)) == class_bytes(400), "still shared in the child");
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    MUST(hak_usable_size(block_of(400)) == 512, "no longer shared");
}

/* The first thread's heap shares for a while; the others' never do. Blocks go to and fro, so slabs do, too. */
void threads_exchange_blocks() {
    inside_share_classes();
    constexpr size_t kPlaces = 512, kThreads = 3;
    static std::atomic<char *> places[kPlaces]; /* a block begins with its size */
    auto exchange = [](uint64_t seed, int rounds) {
        Random random(seed);
        for (int i = 0; i < rounds; i++) {
            size_t size = 2 + random.below(inside_tiny_max - 1);
            char *block = static_cast<char *>(hak_malloc(size));
            MUST(block != nullptr && hak_usable_size(block) >= size, "%zu bytes", size);
            memset(block, static_cast<int>(size), size);
            auto small = static_cast<uint16_t>(size);
            memcpy(block, &small, 2);
            block = places[random.below(kPlaces)].exchange(block);
            if (block == nullptr)
                continue;
            memcpy(&small, block, 2);
            MUST(std::all_of(block + 2, block + small, [=](char c) { return c == static_cast<char>(small); }),
                 "%u bytes changed", small);
            hak_free_sized(block, small);
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; i++)
        threads.emplace_back(exchange, i, times(30000));
    exchange(kThreads, times(30000));
    for (std::thread &thread : threads)
        thread.join();
    for (std::atomic<char *> &place : places)
        hak_free(place.exchange(nullptr));
    const char *wrong = inside_pool_disagrees();
    MUST(wrong == nullptr, "%s", wrong);
}

const struct Case {
    const char *name;
    void (*run)();
} kCases[] = {
    {"until_the_heap_grows", sizes_share_until_the_heap_grows},
    {"pages", few_blocks_of_many_sizes_share_pages},
    {"exact", sizes_stay_exact_unless_they_share},
    {"aligned", shared_blocks_are_aligned_and_resized},
    {"deleted", sized_deletes_fit_before_and_after},
    {"sampling", sampling_ends_it},
    {"child", a_child_goes_on},
    {"threads", threads_exchange_blocks},
};

class Sharing : public testing::TestWithParam<Case> {};
TEST_P(Sharing, Holds) {
    Outcome outcome = run_self({"--case", GetParam().name}, {"HAKMEM_ON_ERROR=abort"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}
INSTANTIATE_TEST_SUITE_P(All, Sharing, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &of) { return of.param.name; });

} // namespace

int main(int argc, char **argv) {
    if (run_case(argc, argv, kCases))
        return 0;
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
