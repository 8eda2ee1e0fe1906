/* What compilers say of blocks (src/entry/hinted.c): if one of these fails, a program that clang built with profiles of
 * memory or with allocation tokens does not start, gets blocks that it cannot free, or has its cold blocks, or what an
 * overflow must not reach, among all others. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <thread>
#include <vector>

#include "../hinted.h"
#include "../support.h"

namespace {

const size_t kSizes[] = {0, 1, 8, 24, 100, 1000, 1025, 3000, 30000, 65536, 65537, 3 << 20};
volatile size_t kNever = PTRDIFF_MAX - 4096; /* more than can be had, which the compiler is not to see */
constexpr size_t kLaneMost = 64 * kKiB, kSuperSlab = 2 * kMiB;

/* Lanes share no SuperSlab with one another or with other blocks, and serve blocks of up to 64 KiB. */
enum Lane { kProcess, kCold, kPointers };
class Places {
  public:
    Places() {
        for (size_t size : kSizes)
            for (int i = 0; i < 20; i++)
                note(kProcess, size, malloc(size));
    }
    void note(Lane lane, size_t size, const void *block) {
        if (size > kLaneMost || in_secure_mode())
            return;
        auto place = reinterpret_cast<uintptr_t>(block) / kSuperSlab;
        EXPECT_EQ(lanes_.emplace(place, lane).first->second, lane) << size;
    }

  private:
    std::map<uintptr_t, Lane> lanes_;
};

void fill(void *block, size_t size) { memset(block, 0x5a, size); }

TEST(Hinted, OperatorsGoToTheirLanes) {
    Places places;
    for (const Hinted &call : kHinted)
        for (size_t size : kSizes) {
            void *there = call.make(size, true), *usual = call.make(size, false);
            fill(there, size), fill(usual, size);
            EXPECT_TRUE(aligned_to(there, call.aligned ? 64 : natural_alignment(size))) << call.symbol << size;
            EXPECT_TRUE(aligned_to(usual, call.aligned ? 64 : natural_alignment(size))) << call.symbol << size;
            places.note(strstr(call.symbol, "token") != nullptr ? kPointers : kCold, size, there);
            places.note(kProcess, size, usual);
            std::thread([&] { call.end(there); }).join();
            call.end(usual);
        }
}

/* What a thread had at hand in a lane goes back when it ends, though it lies in no slab of the thread's own. */
TEST(Hinted, AThreadLeavesNothingInTheColdLane) {
    constexpr size_t kBytes = 20000, kBlocks = 24;
    if (in_secure_mode())
        GTEST_SKIP() << "secure mode has no lanes";
    auto page = static_cast<uintptr_t>(getpagesize());
    std::vector<char *> blocks;
    std::thread([&] {
        for (size_t i = 0; i < kBlocks; i++)
            fill(blocks.emplace_back(static_cast<char *>(::operator new(kBytes, hint(true)))), kBytes);
        for (char *block : blocks)
            ::operator delete(block);
    }).join();
    malloc_trim(0);
    size_t resident = 0;
    for (char *block : blocks) {
        unsigned char one = 0;
        char *at = block - reinterpret_cast<uintptr_t>(block) % page;
        resident += mincore(at, page, &one) == 0 && (one & 1) != 0;
    }
    EXPECT_LE(resident, 1u) << "of " << kBlocks;
}

/* Lanes are the process's: malloc_trim gives back free pages in their slabs, too, also those of threads that ended. */
TEST(Hinted, TrimReachesTheColdLane) {
    constexpr size_t kBytes = 1000, kBlocks = 4096, kKeepEvery = 128;
    if (in_secure_mode())
        GTEST_SKIP() << "secure mode has no lanes";
    auto page = static_cast<uintptr_t>(getpagesize());
    std::map<uintptr_t, bool> pages; /* is it free? */
    std::vector<void *> kept;
    std::thread([&] {
        std::vector<void *> blocks;
        for (size_t i = 0; i < kBlocks; i++)
            fill(blocks.emplace_back(::operator new(kBytes, hint(true))), kBytes);
        for (size_t i = 0; i < kBlocks; i++) {
            auto begin = reinterpret_cast<uintptr_t>(blocks[i]);
            for (uintptr_t at : {begin / page, (begin + kBytes - 1) / page})
                pages.emplace(at, true).first->second &= i % kKeepEvery != 0;
            if (i % kKeepEvery == 0)
                kept.push_back(blocks[i]);
            else
                ::operator delete(blocks[i]);
        }
    }).join();
    malloc_trim(0);
    size_t free_pages = 0, resident = 0;
    for (auto [at, is_free] : pages) {
        unsigned char one = 0;
        free_pages += is_free;
        resident += is_free && mincore(reinterpret_cast<void *>(at * page), page, &one) == 0 && (one & 1) != 0;
    }
    EXPECT_LE(resident, free_pages / 4) << "of " << free_pages;
    for (void *block : kept)
        ::operator delete(block);
}

TEST(Hinted, WithoutMemoryNewThrows) {
    for (const Hinted &call : kHinted)
        for (bool lane : {false, true}) {
            if (call.throws)
                EXPECT_THROW(call.make(kNever, lane), std::bad_alloc) << call.symbol;
            else
                EXPECT_EQ(call.make(kNever, lane), nullptr) << call.symbol;
        }
}

/* Else containers that grow into what they got write behind their block. */
TEST(Hinted, ReturnedSizesAreUsable) {
    for (size_t size : kSizes) {
        for (__sized_ptr_t got : {__size_returning_new(size), __size_returning_new_hot_cold(size, hint(true)),
                                  __size_returning_new_hot_cold(size, hint(false))}) {
            EXPECT_GE(got.n, size);
            EXPECT_EQ(got.n, malloc_usable_size(got.p));
            fill(got.p, got.n);
            if (in_secure_mode())
                ::operator delete(got.p);
            else
                ::operator delete(got.p, got.n);
        }
        for (__sized_ptr_t got : {__size_returning_new_aligned(size, kHintedAlignment),
                                  __size_returning_new_aligned_hot_cold(size, kHintedAlignment, hint(true))}) {
            EXPECT_GE(got.n, size);
            EXPECT_TRUE(aligned_to(got.p, 64));
            fill(got.p, got.n);
            ::operator delete(got.p, kHintedAlignment);
        }
    }
    EXPECT_THROW(__size_returning_new(kNever), std::bad_alloc);
    EXPECT_THROW(__size_returning_new_aligned(kNever, kHintedAlignment), std::bad_alloc);
}

/* The tokens of the compiler's default mode, which splits all in halves, and of -falloc-token-max=2. */
TEST(Tokens, SayWhetherATypeHasPointers) {
    Places places;
    for (size_t token : {kWithPointers, SIZE_MAX, size_t{1}})
        places.note(kPointers, 50, __alloc_token_malloc(50, token));
    for (size_t token : {kPlain, size_t{0}, size_t{2}})
        places.note(kProcess, 50, __alloc_token_malloc(50, token));
}

TEST(Tokens, CallsDoWhatTheUsualOnesDo) {
    Places places;
    for (size_t token : {kWithPointers, kPlain})
        for (size_t size : kSizes) {
            void *block = nullptr;
            ASSERT_EQ(__alloc_token_posix_memalign(&block, 256, size, token), 0);
            std::vector<void *> all = {
                __alloc_token_malloc(size, token),
                __alloc_token_realloc(nullptr, size, token),
                __alloc_token_reallocarray(nullptr, size, 1, token),
                __alloc_token_memalign(256, size, token),
                __alloc_token_aligned_alloc(256, size, token),
                block,
            };
            for (size_t i = 3; i < all.size(); i++)
                EXPECT_TRUE(aligned_to(all[i], 256)) << i << " " << size;
            for (void *one : all) {
                places.note(token == kWithPointers ? kPointers : kProcess, size, one);
                fill(one, size);
                free(one);
            }
            auto *zeroes = static_cast<unsigned char *>(__alloc_token_calloc(size, 1, token));
            for (size_t i = 0; i < size; i++)
                ASSERT_EQ(zeroes[i], 0);
            free(zeroes);
            for (void *page : {__alloc_token_valloc(size, token), __alloc_token_pvalloc(size, token)}) {
                EXPECT_TRUE(aligned_to(page, 4096));
                free(page);
            }
        }
}

TEST(Tokens, ABlockThatGrowsStaysInItsLane) {
    Places places;
    auto *block = static_cast<char *>(__alloc_token_malloc(20, kWithPointers));
    fill(block, 20);
    for (size_t size = 40; size < kLaneMost; size *= 2) {
        block = static_cast<char *>(__alloc_token_realloc(block, size, kWithPointers));
        EXPECT_EQ(block[19], 0x5a);
        places.note(kPointers, size, block);
    }
    EXPECT_EQ(__alloc_token_realloc(block, 0, kWithPointers), nullptr);
}

TEST(Tokens, ErrorsAreTheUsualOnes) {
    volatile size_t half = SIZE_MAX / 2;
    for (size_t token : {kWithPointers, kPlain}) {
        void *block = &block, *before = block;
        EXPECT_EQ(__alloc_token_posix_memalign(&block, 3, 10, token), EINVAL);
        EXPECT_EQ(__alloc_token_posix_memalign(&block, 4, 10, token), EINVAL);
        EXPECT_EQ(__alloc_token_posix_memalign(&block, 64, half, token), ENOMEM);
        EXPECT_EQ(block, before);
        using Call = void *(*)(size_t token);
        for (Call call : {Call([](size_t t) { return __alloc_token_malloc(kNever, t); }),
                          Call([](size_t t) { return __alloc_token_calloc(kNever, 8, t); }),
                          Call([](size_t t) { return __alloc_token_realloc(nullptr, kNever, t); }),
                          Call([](size_t t) { return __alloc_token_reallocarray(nullptr, kNever, 8, t); }),
                          Call([](size_t t) { return __alloc_token_memalign(64, kNever, t); })}) {
            errno = 0;
            EXPECT_EQ(call(token), nullptr);
            EXPECT_EQ(errno, ENOMEM);
        }
        errno = 0;
        EXPECT_EQ(__alloc_token_aligned_alloc(half, 10, token), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

} // namespace
