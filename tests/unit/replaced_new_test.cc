/* A program that has some of the C++ operators itself, with blocks that no other form knows. If one fails, a program
 * that replaces `operator new(size_t)` and `operator delete(void *)` alone, as the standard allows, ends at its first
 * sized delete. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "../hinted.h"

namespace {

constexpr size_t kHeader = 64;
std::atomic<long> blocks{0}, misplaced{0};
bool refuses = false;

/* A header before the block: free() would not know it, and delete must not get a block without one. */
void *own_new(size_t size, size_t mark) {
    if (refuses)
        throw std::bad_alloc();
    auto *start = static_cast<char *>(aligned_alloc(kHeader, kHeader + (size + kHeader - 1) / kHeader * kHeader));
    *reinterpret_cast<size_t *>(start + kHeader - sizeof(size_t)) = mark;
    blocks++;
    return start + kHeader;
}
void own_delete(void *p, size_t mark) {
    if (p == nullptr)
        return;
    blocks--;
    if (reinterpret_cast<size_t *>(p)[-1] == mark)
        free(static_cast<char *>(p) - kHeader);
    else
        misplaced++;
}

} // namespace

enum : size_t { kScalar = 0x1111, kAligned = 0x2222, kArray = 0x3333 };
constexpr std::align_val_t kAlignment{32};

#if defined HAK_TEST_REPLACED_SCALARS
void *operator new(size_t size) { return own_new(size, kScalar); }
void operator delete(void *p) noexcept { own_delete(p, kScalar); }
constexpr size_t kScalars = kScalar, kArrays = kScalar;
#elif defined HAK_TEST_REPLACED_ARRAYS
void *operator new[](size_t size) { return own_new(size, kArray); }
void operator delete[](void *p) noexcept { own_delete(p, kArray); }
constexpr size_t kScalars = 0, kArrays = kArray;
#else
constexpr size_t kScalars = 0, kArrays = 0;
#endif
#if defined HAK_TEST_REPLACED_ARRAYS
constexpr size_t kAlignedOnes = 0;
#else
void *operator new(size_t size, std::align_val_t) { return own_new(size, kAligned); }
void operator delete(void *p, std::align_val_t) noexcept { own_delete(p, kAligned); }
constexpr size_t kAlignedOnes = kAligned;
#endif

namespace {

/* A form of new, a form of delete, and which of the program's operators both stand on; 0: on none. */
struct Pair {
    const char *name;
    size_t mark;
    void *(*make)(size_t);
    void (*end)(void *, size_t);
};

constexpr Pair kPairs[] = {
    {"delete", kScalars, [](size_t n) { return ::operator new(n); }, [](void *p, size_t) { ::operator delete(p); }},
    {"sized", kScalars, [](size_t n) { return ::operator new(n); }, [](void *p, size_t n) { ::operator delete(p, n); }},
    {"nothrow", kScalars, [](size_t n) { return ::operator new(n, std::nothrow); },
     [](void *p, size_t) { ::operator delete(p, std::nothrow); }},
    {"array", kArrays, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t) { ::operator delete[](p); }},
    {"array, sized", kArrays, [](size_t n) { return ::operator new[](n); },
     [](void *p, size_t n) { ::operator delete[](p, n); }},
    {"array, nothrow", kArrays, [](size_t n) { return ::operator new[](n, std::nothrow); },
     [](void *p, size_t) { ::operator delete[](p, std::nothrow); }},
    {"aligned", kAlignedOnes, [](size_t n) { return ::operator new(n, kAlignment); },
     [](void *p, size_t) { ::operator delete(p, kAlignment); }},
    {"aligned, sized", kAlignedOnes, [](size_t n) { return ::operator new(n, kAlignment); },
     [](void *p, size_t n) { ::operator delete(p, n, kAlignment); }},
    {"aligned, nothrow", kAlignedOnes, [](size_t n) { return ::operator new(n, kAlignment, std::nothrow); },
     [](void *p, size_t) { ::operator delete(p, kAlignment, std::nothrow); }},
    {"aligned array", kAlignedOnes, [](size_t n) { return ::operator new[](n, kAlignment); },
     [](void *p, size_t) { ::operator delete[](p, kAlignment); }},
    {"aligned array, sized", kAlignedOnes, [](size_t n) { return ::operator new[](n, kAlignment); },
     [](void *p, size_t n) { ::operator delete[](p, n, kAlignment); }},
    {"aligned array, nothrow", kAlignedOnes, [](size_t n) { return ::operator new[](n, kAlignment, std::nothrow); },
     [](void *p, size_t) { ::operator delete[](p, kAlignment, std::nothrow); }},
};

TEST(ReplacedNew, EveryFormLeadsToTheProgramsOwn) {
    for (const Pair &pair : kPairs)
        for (size_t size : {1, 40, 100, 1000, 5000, 70000, 3000000}) {
            long before = blocks;
            void *p = pair.make(size);
            ASSERT_NE(p, nullptr) << pair.name;
            if (pair.mark != 0) {
                EXPECT_EQ(blocks, before + 1) << pair.name << " " << size;
                EXPECT_EQ(static_cast<size_t *>(p)[-1], pair.mark) << pair.name << " " << size;
            } else {
                EXPECT_EQ(blocks, before) << pair.name << " " << size;
            }
            pair.end(p, size);
            EXPECT_EQ(blocks, before) << pair.name << " " << size;
            pair.end(nullptr, size);
        }
    EXPECT_EQ(misplaced, 0);
}

/* Also those by which a compiler says more of the block. A program's own operator says nothing of sizes. */
TEST(ReplacedNew, HintedFormsLeadThere) {
    for (const Hinted &call : kHinted) {
        size_t mark = call.aligned ? kAlignedOnes : strstr(call.symbol, "_Zna") != nullptr ? kArrays : kScalars;
        for (bool lane : {false, true}) {
            long before = blocks;
            void *p = call.make(100, lane);
            EXPECT_EQ(blocks, before + (mark != 0)) << call.symbol;
            if (mark != 0)
                EXPECT_EQ(static_cast<size_t *>(p)[-1], mark) << call.symbol;
            call.end(p);
            EXPECT_EQ(blocks, before) << call.symbol;
        }
    }
    __sized_ptr_t got = __size_returning_new(100);
    EXPECT_EQ(got.n, kScalars == 0 ? malloc_usable_size(got.p) : 100);
    ::operator delete(got.p);
    EXPECT_EQ(misplaced, 0);
}

TEST(ReplacedNew, AnotherThreadMayDelete) {
    for (const Pair &pair : kPairs) {
        void *p = pair.make(200);
        std::thread([&] { pair.end(p, 200); }).join();
    }
    EXPECT_EQ(misplaced, 0);
}

TEST(ReplacedNew, NothrowCatchesWhatTheProgramThrows) {
    for (const Pair &pair : kPairs) {
        if (std::string(pair.name).find("nothrow") == std::string::npos || pair.mark == 0)
            continue;
        refuses = true;
        void *p = pair.make(100);
        refuses = false;
        EXPECT_EQ(p, nullptr) << pair.name;
    }
}

TEST(ReplacedNew, ContainersWork) {
    long before = blocks;
    {
        std::vector<std::string> words(1000, std::string(100, 'x'));
        std::vector<char> large(5000000);
        auto *objects = new std::string[50];
        delete[] objects;
    }
    EXPECT_EQ(blocks, before);
    EXPECT_EQ(misplaced, 0);
}

} // namespace
