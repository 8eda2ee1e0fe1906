/* Small programs that misuse an allocator, spread over the kinds that hardened_malloc's tests cover and related ones,
 * one row of the table for each. They call only malloc, free and the operators, so the same program runs under any
 * allocator. The table says how each mode of HAKMEM responds, also where it reports nothing; the counts in
 * docs/costs.md come from it.
 *
 *   misuses          runs all, each in its own process, and prints how many are reported
 *   misuses NAME     runs one of them, and ends as that one ends; status 42 means that the misuse had no effect
 *   misuses --table  prints name, response in default mode and response in secure mode, separated by tabs
 *
 * A misuse counts as told if a signal ends the program, if a line is printed, or if the misuse had no effect: the
 * contents were gone, or the call was refused. The misuse's function decides the latter, and returns true. */
/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <thread>
#include <vector>

#include "../support.h"

extern "C" void free_sized(void *, size_t) __attribute__((weak));

namespace {
constexpr size_t kTiny = 24, kMid = 5000, kLarge = 200000, kHuge = 3 * kMiB + 100;

/* A block in use. Its contents are recognisable where they should not be. */
constexpr char kSecret = 0x5a;
char *live(size_t size) {
    char *block = hidden(malloc(size));
    memset(block, kSecret, size);
    return block;
}
/* Whether no byte of the freed block is as it was. It may contain a link or two. */
bool gone(const char *block, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (const_cast<const volatile char *>(block)[i] == kSecret)
            return false;
    return true;
}
void churn(size_t size, int rounds) {
    std::vector<char *> blocks(32);
    for (int i = 0; i < rounds; i++) {
        for (char *&block : blocks)
            block = hidden(malloc(size));
        for (char *block : blocks)
            free(block);
    }
}
int rounds_for(size_t size) { return size <= 1000 ? 500 : size <= 100000 ? 60 : 4; }

/* ---- double frees ---- */

bool double_free(size_t size) {
    char *block = live(size);
    free(block);
    free(block);
    return false;
}
bool double_free_delayed(size_t size) {
    char *block = live(size), *others[8];
    for (char *&other : others)
        other = live(size);
    free(block);
    for (char *other : others)
        free(other);
    free(block);
    return false;
}
bool double_free_after_other_sizes(size_t size) {
    char *block = live(size);
    free(block);
    for (size_t other : {size_t{40}, size_t{300}, size_t{2000}, size_t{30000}})
        free(live(other));
    free(block);
    return false;
}
bool double_free_by_other_thread(size_t size) {
    char *block = live(size);
    free(block);
    std::thread([&] { free(block); }).join();
    return false;
}
bool double_free_of_thread_that_ended(size_t size) {
    char *block = nullptr;
    std::thread([&] {
        block = live(size);
        free(block);
    }).join();
    free(block);
    return false;
}
bool double_free_after_overwrite(size_t size) {
    char *block = live(size);
    free(block);
    memset(block, 0x41, 16);
    free(block);
    return false;
}
bool double_free_after_realloc(size_t size) {
    char *block = live(size), *behind = live(size), *moved = hidden(realloc(block, 5 * size));
    free(moved != block ? block : moved);
    if (moved == block)
        free(moved);
    free(behind);
    return false;
}
/* Allocates until another allocation has the block, and keeps it. */
void reuse(const char *block, size_t size) {
    for (int round = 0; round < 100000; round++) {
        std::vector<char *> blocks(100);
        for (char *&other : blocks)
            if ((other = live(size)) == block)
                return;
        for (char *other : blocks)
            free(other);
    }
}
bool double_free_after_reuse(size_t size) {
    char *block = live(size);
    free(block);
    reuse(block, size);
    free(block);
    return false;
}
bool double_delete(size_t size) {
    char *block = hidden(::operator new(size));
    ::operator delete(block);
    ::operator delete(block);
    return false;
}
bool double_free_by_realloc_to_nothing(size_t size) {
    char *block = live(size);
    hidden(realloc(block, 0));
    free(block);
    return false;
}

/* ---- frees of pointers that are not blocks ---- */

bool free_interior(size_t size) {
    char *block = live(size);
    free(block + size / 2 / 16 * 16);
    return false;
}
bool free_sixteen_behind(size_t size) {
    char *block = live(size);
    free(block + 16);
    return false;
}
bool free_unaligned(size_t size) {
    char *block = live(size);
    free(block + 1);
    return false;
}
bool free_stack(size_t) {
    alignas(64) char array[256];
    memset(array, 0, sizeof array);
    free(hidden(array + 64));
    return false;
}
alignas(64) char static_array[4096];
bool free_global(size_t) {
    free(hidden(static_array + 1024));
    return false;
}
bool free_protected(size_t) {
    free(hidden(mmap(nullptr, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + 16);
    return false;
}
bool free_mapped(size_t) {
    free(hidden(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + 4096);
    return false;
}
bool free_never_allocated(size_t size) {
    free(live(size) + 40 * kMiB);
    return false;
}
bool free_text(size_t) {
    uintptr_t text = 0;
    memcpy(&text, "AAAAAAAA", 8);
    free(reinterpret_cast<void *>(text));
    return false;
}
bool free_array_with_cookie(size_t) {
    struct Counted {
        ~Counted() { static_array[0]++; }
        long value;
    };
    Counted *array = new Counted[5];
    ::operator delete(hidden(array)); /* eight bytes behind what new[] returned */
    return false;
}

/* ---- queries about pointers that are not blocks ---- */

bool usable_size_of_freed(size_t size) {
    char *block = live(size);
    free(block);
    return malloc_usable_size(block) == 0;
}
bool usable_size_of_unaligned(size_t size) { return malloc_usable_size(live(size) + 1) == 0; }
bool usable_size_of_interior(size_t size) { return malloc_usable_size(live(size) + 16) == 0; }
bool realloc_of_freed(size_t size) {
    char *block = live(size);
    free(block);
    hidden(realloc(block, 2 * size));
    return false;
}
bool realloc_of_interior(size_t size) {
    hidden(realloc(live(size) + 16, 2 * size));
    return false;
}
bool realloc_of_global(size_t) {
    hidden(realloc(hidden(static_array + 1024), 100));
    return false;
}

/* ---- frees that name a size, and operators that do not belong together ---- */

// clang-format off
template <size_t size> struct Type { char content[size]; };
// clang-format on
template <size_t made, size_t deleted> bool delete_as_other_type(size_t) {
    auto *other = reinterpret_cast<Type<deleted> *>(hidden(new Type<made>));
    delete other;
    return false;
}
template <size_t size> bool array_freed_by_delete(size_t) {
    auto *one = reinterpret_cast<Type<size> *>(hidden(new Type<size>[7]));
    delete one;
    return false;
}
bool array_freed_by_unsized_delete(size_t size) {
    ::operator delete(hidden(::operator new[](size)));
    return false;
}
bool object_freed_by_array_delete(size_t size) {
    ::operator delete[](hidden(::operator new(size)));
    return false;
}
bool free_sized_too_large(size_t size) {
    if (free_sized != nullptr)
        free_sized(live(size), 2 * size);
    return false;
}
bool free_sized_too_small(size_t size) {
    if (free_sized != nullptr)
        free_sized(live(size), size - 1);
    return false;
}
bool aligned_delete_of_other_size(size_t size) {
    // clang-format off
    ::operator delete(hidden(::operator new(size, std::align_val_t{64})), 3 * size, std::align_val_t{64});
    // clang-format on
    return false;
}
/* A block of whole pages, as an object aligned to them is: its size less ten is rounded up to the same pages. */
bool aligned_delete_of_ten_less(size_t size) {
    constexpr std::align_val_t align{8192};
    ::operator delete(hidden(::operator new(size, align)), size - 10, align);
    return false;
}

/* ---- writes beside a block ---- */

/* Changes all these bytes: at once, or one by one away from the block. */
void alter(char *at, size_t count, bool copied, bool downward) {
    char other[256];
    for (size_t i = 0; i < count; i++)
        other[i] = static_cast<char>(~const_cast<volatile char *>(at)[i]);
    if (copied)
        memcpy(hidden(at), other, count);
    for (size_t i = 0; i < count && !copied; i++) {
        size_t n = downward ? count - 1 - i : i;
        const_cast<volatile char *>(at)[n] = other[n];
    }
}
/* Writes beside the middle one of several blocks. That block is freed first, then the others. */
template <size_t count, bool copied, bool below> bool beside(size_t size) {
    char *blocks[9];
    for (char *&block : blocks)
        block = live(size);
    alter(below ? blocks[4] - count : blocks[4] + size, count, copied, below);
    free(blocks[4]);
    for (int i = 0; i < 9; i++)
        if (i != 4)
            free(blocks[i]);
    return false;
}
template <size_t count, bool copied> bool overflow(size_t size) { return beside<count, copied, false>(size); }
template <size_t count, bool copied> bool underflow(size_t size) { return beside<count, copied, true>(size); }
/* A single block: the memory around it was never handed out, or is free. */
template <size_t count> bool overflow_of_one(size_t size) {
    char *block = live(size);
    alter(block + size, count, true, false);
    free(block);
    return false;
}
/* The block itself stays in use to the end; the blocks around it are freed. */
template <size_t count> bool overflow_kept(size_t size) {
    std::vector<char *> blocks(2000);
    for (char *&block : blocks)
        block = live(size);
    alter(blocks[1000] + size, count, true, false);
    for (size_t i = 0; i < blocks.size(); i++)
        if (i != 1000)
            free(blocks[i]);
    return false;
}
template <size_t count> bool underflow_kept(size_t size) {
    std::vector<char *> blocks(2000);
    for (char *&block : blocks)
        block = live(size);
    alter(blocks[1000] - count, count, true, true);
    for (size_t i = 0; i < blocks.size(); i++)
        if (i != 1000)
            free(blocks[i]);
    return false;
}
/* A single block that stays in use; the memory below it was never handed out. */
template <size_t count> bool underflow_of_one_kept(size_t size) {
    alter(live(size) - count, count, true, true);
    return false;
}
/* Writes into a free block below, restoring the byte it had while the block was in use. */
bool underflow_with_the_right_byte(size_t size) {
    std::vector<char *> blocks(2000);
    for (char *&block : blocks)
        block = live(size);
    std::sort(blocks.begin(), blocks.end());
    size_t stride = SIZE_MAX, i = 1;
    for (size_t n = 1; n < blocks.size(); n++)
        stride = std::min(stride, static_cast<size_t>(blocks[n] - blocks[n - 1]));
    while (i < blocks.size() - 1 && static_cast<size_t>(blocks[i] - blocks[i - 1]) != stride)
        i++;
    char right = blocks[i][-1];
    free(blocks[i - 1]);
    blocks[i][-1] = right;
    free(blocks[i]);
    return false;
}
/* Skips the bytes right behind the block and writes into what follows them. */
bool overflow_with_a_gap(size_t size) {
    char *block = live(size);
    alter(block + size + 16, 8, true, false);
    free(block);
    return false;
}
/* A string as long as its block: its terminating zero is one byte too far. */
bool string_overflow(size_t size) {
    char *block = live(size), *behind = live(size);
    memset(block, 'x', size);
    *const_cast<volatile char *>(block + size) = 0;
    free(block);
    free(behind);
    return false;
}
/* Overwrites the next block's link, which malloc follows. */
bool overflow_then_allocate(size_t size) {
    char *block = live(size);
    alter(block + size, 16, true, false);
    for (int i = 0; i < 2000; i++)
        live(size);
    return false;
}
/* A loop that does not end. */
bool overflow_without_end(size_t size) {
    char *block = live(size);
    memset(hidden(block), 1, size + 64 * kMiB);
    return false;
}

/* Skips the bytes that follow the block and writes into one of the next blocks, as a wrong index does. */
bool write_into_another_block(size_t size) {
    char *blocks[40];
    for (char *&block : blocks)
        block = live(size);
    for (char *block : blocks)
        if (block != blocks[20] && block > blocks[20] && static_cast<size_t>(block - blocks[20]) < 16 * size)
            block[size / 2] = 1;
    for (char *block : blocks)
        free(block);
    return false;
}

/* ---- reads beside a block ---- */

bool seen(char value) {
    hidden(reinterpret_cast<void *>(static_cast<uintptr_t>(static_cast<unsigned char>(value))));
    return false;
}
bool read_behind(size_t size) { return seen(live(size)[(size + 4095) / 4096 * 4096]); }
bool read_one_behind(size_t size) { return seen(live(size)[size]); }
bool read_before(size_t size) { return seen(live(size)[-1]); }
bool read_without_end(size_t size) {
    const volatile char *block = live(size);
    char sum = 0;
    for (size_t i = 0; i < 64 * kMiB; i += 512)
        sum = static_cast<char>(sum + block[i]);
    return seen(sum);
}

/* ---- blocks of zero bytes ---- */

bool read_zero_size(size_t) { return seen(hidden(malloc(0))[0]); }
bool write_zero_size(size_t) {
    hidden(malloc(0))[0] = 1;
    return false;
}
bool read_zero_size_calloc(size_t) { return seen(hidden(calloc(0, 8))[0]); }
bool write_zero_size_new(size_t) {
    hidden(::operator new[](0))[0] = 1;
    return false;
}
bool write_after_zero_size_free(size_t) {
    char *block = hidden(malloc(0));
    free(block);
    block[0] = 1;
    return false;
}
bool double_free_zero_size(size_t) {
    char *block = hidden(malloc(0));
    free(block);
    free(block);
    return false;
}

/* ---- use after free ---- */

bool read_after_free(size_t size) {
    char *block = live(size);
    free(block);
    return gone(block, size);
}
bool read_after_free_and_reuse(size_t size) {
    char *block = live(size);
    free(block);
    for (int i = 0; i < 4; i++)
        hidden(malloc(size));
    return gone(block, size);
}
bool read_after_free_of_what_is_new(size_t size) {
    char *block = live(size);
    memset(block, 0, size);
    free(block);
    reuse(block, size);
    return gone(block, size);
}
/* Writes right after the free; the program ends soon. */
bool write_after_free(size_t size) {
    char *block = live(size);
    free(block);
    block[size / 2] = static_cast<char>(~block[size / 2]);
    return false;
}
bool write_after_free_at_start(size_t size) {
    char *block = live(size);
    free(block);
    memset(hidden(block), 0x41, 8);
    return false;
}
bool write_after_free_by_other_thread(size_t size) {
    char *block = live(size);
    free(block);
    std::thread([&] { block[size - 1] = static_cast<char>(~block[size - 1]); }).join();
    return false;
}
/* Freed by a thread that then ends and leaves the block to others. */
bool write_after_free_of_thread_that_ended(size_t size) {
    char *block = nullptr;
    std::thread([&] {
        block = live(size);
        free(block);
    }).join();
    block[size / 2] = static_cast<char>(~block[size / 2]);
    return false;
}
bool write_after_free_and_reuse(size_t size) {
    char *block = live(size);
    free(block);
    block[size / 2] = static_cast<char>(~block[size / 2]);
    churn(size, rounds_for(size));
    return false;
}
bool write_after_free_at_start_and_reuse(size_t size) {
    char *block = live(size);
    free(block);
    memset(hidden(block), 0x41, 8);
    churn(size, rounds_for(size));
    return false;
}
bool write_after_free_and_trim(size_t size) {
    std::vector<char *> blocks(64);
    for (char *&block : blocks)
        block = live(size);
    for (char *block : blocks)
        free(block);
    blocks[32][size / 2] = static_cast<char>(~blocks[32][size / 2]);
    malloc_trim(0);
    return false;
}
bool read_after_realloc(size_t size) {
    char *block = live(size), *behind = live(size), *moved = hidden(realloc(block, 6 * size));
    free(behind);
    return moved == block || gone(block, size);
}
bool write_after_realloc(size_t size) {
    char *block = live(size), *behind = live(size), *moved = hidden(realloc(block, 6 * size));
    free(behind);
    if (moved == block)
        return true;
    block[size / 2] = 1;
    return false;
}
bool read_after_shrink(size_t size) {
    char *block = live(size), *moved = hidden(realloc(block, size / 8));
    return gone(moved == block ? block + size / 8 : block, size - size / 8);
}

/* ---- earlier contents ---- */

/* A new block contains nothing of an earlier one. */
bool uninitialized_read(size_t size) {
    for (int round = 0; round < 8; round++) {
        char *blocks[16];
        for (char *&block : blocks) {
            block = hidden(malloc(size));
            if (!gone(block, size))
                return false;
            memset(block, kSecret, size);
        }
        for (char *block : blocks)
            free(block);
    }
    return true;
}
bool uninitialized_read_after_realloc(size_t size) {
    for (int round = 0; round < 8; round++) {
        free(live(4 * size));
        char *grown = hidden(realloc(live(size), 4 * size));
        if (!gone(grown + size, 3 * size))
            return false;
        memset(grown, kSecret, 4 * size);
        free(grown);
    }
    return true;
}

/* ---- requests that are impossible ---- */

bool impossibly_large(size_t) { return hidden(malloc(static_cast<size_t>(PTRDIFF_MAX) + 1)) == nullptr; }
bool calloc_overflow(size_t) { return hidden(calloc(SIZE_MAX / 16 + 2, 16)) == nullptr; }
bool reallocarray_overflow(size_t) { return hidden(reallocarray(live(32), SIZE_MAX / 16 + 2, 16)) == nullptr; }
bool posix_memalign_bad(size_t) {
    void *block = nullptr;
    return posix_memalign(&block, 24, 100) != 0 && posix_memalign(&block, 4, 100) != 0;
}
bool memalign_too_large(size_t) {
    return hidden(memalign(size_t{1} << 62, 100)) == nullptr && hidden(memalign(64, SIZE_MAX - 32)) == nullptr;
}

/* ---- the table ---- */

/* How a mode responds: kUntold, it reports nothing; kGuard, the program ends by SIGSEGV; kNothing, the misuse had no
 * effect; otherwise the line, as a regular expression, after "said " if the program goes on. A guard lies before the
 * first block of a slab and behind the last one. */
constexpr char kUntold[] = "-", kGuard[] = "guard", kNothing[] = "nothing";
constexpr char kDouble[] = "double free of .*", kInvalid[] = "invalid free of .*", kPointer[] = "invalid pointer .*";
constexpr char kSized[] = "free of .* with size .*", kOver[] = "overflow of .*",
               kOverOrGuard[] = "guard or overflow of .*", kUnder[] = "guard or underflow of .*";
constexpr char kWritten[] = "write after free of .*", kAmong[] = "write after free among .*";
constexpr char kBeside[] = "guard or (over|under)flow of .*"; /* which of the two is unpredictable */
constexpr char kOperator[] = "free of .* by operator delete.*";
constexpr char kSaidSized[] = "said free of .* with size .*", kSaidPointer[] = "said invalid pointer .*";
constexpr char kSaidAmong[] = "said write after free among .*"; /* at the end */
constexpr char kEither[] = "(double|invalid) free of .*";

struct Row {
    const char *name;
    bool (*run)(size_t size);
    size_t size;
    const char *in_default, *in_secure;
};

// clang-format off
const Row rows[] = {
    {"double_free_tiny", double_free, kTiny, kDouble, kDouble},
    {"double_free_mid", double_free, kMid, kDouble, kDouble},
    {"double_free_large", double_free, kLarge, kEither, kDouble},
    {"double_free_huge", double_free, kHuge, kEither, kDouble},
    {"double_free_delayed_tiny", double_free_delayed, kTiny, kDouble, kDouble},
    {"double_free_delayed_mid", double_free_delayed, kMid, kDouble, kDouble},
    {"double_free_delayed_large", double_free_delayed, kLarge, kEither, kDouble},
    {"double_free_after_other_sizes_mid", double_free_after_other_sizes, kMid, kDouble, kDouble},
    {"double_free_by_other_thread_tiny", double_free_by_other_thread, kTiny, kDouble, kDouble},
    {"double_free_by_other_thread_mid", double_free_by_other_thread, kMid, kDouble, kDouble},
    {"double_free_by_other_thread_large", double_free_by_other_thread, kLarge, kEither, kDouble},
    {"double_free_of_thread_that_ended_tiny", double_free_of_thread_that_ended, kTiny, kEither, kEither},
    {"double_free_after_overwrite_tiny", double_free_after_overwrite, 200, kUntold, kDouble},
    {"double_free_after_realloc_tiny", double_free_after_realloc, kTiny, kDouble, kDouble},
    {"double_free_after_realloc_large", double_free_after_realloc, kLarge, kEither, kDouble},
    {"double_free_by_realloc_to_nothing", double_free_by_realloc_to_nothing, 100, kDouble, kDouble},
    {"double_free_after_reuse_tiny", double_free_after_reuse, kTiny, kUntold, kUntold},
    {"double_delete_tiny", double_delete, 48, kDouble, kDouble},

    {"free_interior_tiny", free_interior, 64, kInvalid, kInvalid},
    {"free_interior_mid", free_interior, kMid, kInvalid, kInvalid},
    {"free_interior_large", free_interior, kLarge, kInvalid, kInvalid},
    {"free_interior_huge", free_interior, kHuge, kInvalid, kInvalid},
    {"free_sixteen_behind_tiny", free_sixteen_behind, 100, kInvalid, kInvalid},
    {"free_unaligned_tiny", free_unaligned, kTiny, kInvalid, kInvalid},
    {"free_unaligned_mid", free_unaligned, kMid, kInvalid, kInvalid},
    {"free_unaligned_large", free_unaligned, kLarge, kInvalid, kInvalid},
    {"free_stack", free_stack, 0, kInvalid, kInvalid},
    {"free_global", free_global, 0, kInvalid, kInvalid},
    {"free_protected", free_protected, 0, kInvalid, kInvalid},
    {"free_mapped", free_mapped, 0, kInvalid, kInvalid},
    {"free_never_allocated", free_never_allocated, kTiny, kInvalid, kInvalid},
    {"free_text", free_text, 0, kInvalid, kInvalid},
    {"free_array_with_cookie", free_array_with_cookie, 0, kInvalid, kInvalid},

    {"usable_size_of_freed_tiny", usable_size_of_freed, kTiny, kUntold, kPointer},
    {"usable_size_of_freed_large", usable_size_of_freed, kLarge, kSaidPointer, kPointer},
    {"usable_size_of_unaligned", usable_size_of_unaligned, 100, kSaidPointer, kPointer},
    {"usable_size_of_interior", usable_size_of_interior, kMid, kSaidPointer, kPointer},
    {"realloc_of_freed_tiny", realloc_of_freed, kTiny, kPointer, kPointer},
    {"realloc_of_freed_mid", realloc_of_freed, kMid, kPointer, kPointer},
    {"realloc_of_freed_large", realloc_of_freed, kLarge, kPointer, kPointer},
    {"realloc_of_interior", realloc_of_interior, 200, kPointer, kPointer},
    {"realloc_of_global", realloc_of_global, 0, kPointer, kPointer},

    {"delete_as_larger_type", (delete_as_other_type<1, 32>), 0, kSaidSized, kSized},
    {"delete_as_smaller_type", (delete_as_other_type<200, 40>), 0, kSaidSized, kSized},
    {"delete_as_type_of_same_class", (delete_as_other_type<33, 40>), 0, kUntold, kSized},
    {"array_freed_by_delete", (array_freed_by_delete<16>), 0, kSaidSized, kOperator},
    {"array_freed_by_delete_large", (array_freed_by_delete<40000>), 0, kSaidSized, kOperator},
    {"array_freed_by_unsized_delete", array_freed_by_unsized_delete, 80, kUntold, kOperator},
    {"object_freed_by_array_delete", object_freed_by_array_delete, 80, kUntold, kOperator},
    {"free_sized_too_large", free_sized_too_large, 100, kSaidSized, kSized},
    {"free_sized_too_small", free_sized_too_small, 100, kUntold, kSized},
    {"delete_as_larger_type_large", (delete_as_other_type<200000, 200008>), 0, kSaidSized, kSized},
    {"delete_as_smaller_type_huge", (delete_as_other_type<3000000, 2000000>), 0, kSaidSized, kSized},
    {"aligned_delete_of_ten_less_mid", aligned_delete_of_ten_less, 24576, kUntold, kSized},
    {"aligned_delete_of_ten_less_large", aligned_delete_of_ten_less, 81920, kSaidSized, kSized},
    {"aligned_delete_of_other_size", aligned_delete_of_other_size, 100, kSaidSized, kSized},

    {"overflow_1_copied_tiny", (overflow<1, true>), kTiny, kUntold, kOver},
    {"overflow_8_copied_tiny", (overflow<8, true>), kTiny, kUntold, kOver},
    {"overflow_16_copied_tiny", (overflow<16, true>), kTiny, kUntold, kOverOrGuard},
    {"overflow_32_copied_tiny", (overflow<32, true>), kTiny, kUntold, kOverOrGuard},
    {"overflow_1_stepwise_full_class", (overflow<1, false>), 48, kUntold, kOver},
    {"overflow_8_stepwise_full_class", (overflow<8, false>), 48, kUntold, kOver},
    {"overflow_32_stepwise_tiny", (overflow<32, false>), kTiny, kUntold, kOverOrGuard},
    {"overflow_1_copied_mid", (overflow<1, true>), kMid, kUntold, kOver},
    {"overflow_8_stepwise_mid", (overflow<8, false>), kMid, kUntold, kOver},
    {"overflow_32_copied_mid", (overflow<32, true>), kMid, kUntold, kOver},
    {"overflow_16_copied_full_mid", (overflow<16, true>), 8192, kUntold, kOver},
    {"overflow_1_copied_large", (overflow<1, true>), kLarge, kOver, kOver},
    {"overflow_32_stepwise_large", (overflow<32, false>), kLarge, kOver, kOver},
    {"overflow_1_copied_huge", (overflow<1, true>), kHuge, kOver, kOver},
    {"overflow_32_copied_huge", (overflow<32, true>), kHuge, kOver, kOver},
    {"overflow_1_copied_huge_whole_pages", (overflow<1, true>), 3 * kMiB, kOver, kGuard},
    {"overflow_8_of_one_tiny", overflow_of_one<8>, kTiny, kUntold, kOver},
    {"overflow_16_of_one_full_class", overflow_of_one<16>, 48, kSaidAmong, kOver},
    {"overflow_32_kept_tiny", overflow_kept<32>, kTiny, kUntold, kOverOrGuard},
    {"overflow_32_kept_mid", overflow_kept<32>, 2000, kUntold, kOver},
    {"overflow_with_a_gap", overflow_with_a_gap, 1000, kUntold, kOver},
    {"overflow_with_a_gap_large", overflow_with_a_gap, kLarge, kOver, kOver},
    {"overflow_then_allocate", overflow_then_allocate, 48, kAmong, kOver},
    {"string_overflow_tiny", string_overflow, 16, kUntold, kOver},
    {"string_overflow_mid", string_overflow, kMid, kUntold, kOver},
    {"write_into_another_block_tiny", write_into_another_block, 100, kUntold, kUntold},
    {"write_into_another_block_mid", write_into_another_block, kMid, kUntold, kUntold},
    {"overflow_without_end_tiny", overflow_without_end, kTiny, kGuard, kGuard},
    {"overflow_without_end_large", overflow_without_end, kLarge, kGuard, kGuard},

    {"underflow_1_copied_tiny", (underflow<1, true>), kTiny, kUntold, kUnder},
    {"underflow_8_copied_tiny", (underflow<8, true>), kTiny, kUntold, kBeside},
    {"underflow_16_copied_tiny", (underflow<16, true>), kTiny, kUntold, kBeside},
    {"underflow_32_copied_tiny", (underflow<32, true>), kTiny, kUntold, kBeside},
    {"underflow_1_stepwise_mid", (underflow<1, false>), kMid, kUntold, kUnder},
    {"underflow_8_copied_mid", (underflow<8, true>), kMid, kUntold, kUnder},
    {"underflow_32_stepwise_mid", (underflow<32, false>), kMid, kUntold, kUnder},
    {"underflow_1_copied_large", (underflow<1, true>), kLarge, kUntold, kGuard},
    {"underflow_16_copied_large", (underflow<16, true>), kLarge, kUntold, kGuard},
    {"underflow_1_copied_huge", (underflow<1, true>), kHuge, kOver, kGuard},
    {"underflow_32_stepwise_huge", (underflow<32, false>), kHuge, kOver, kGuard},
    {"underflow_8_kept_tiny", underflow_kept<8>, kTiny, kUntold, kBeside},
    {"underflow_32_kept_mid", underflow_kept<32>, 2000, kUntold, kUnder},
    {"underflow_8_of_one_kept_tiny", underflow_of_one_kept<8>, kTiny, kUntold, kUnder},
    {"underflow_with_the_right_byte_tiny", underflow_with_the_right_byte, kTiny, kUntold, kUnder},

    {"read_behind_large", read_behind, kLarge, kUntold, kGuard},
    {"read_behind_huge", read_behind, kHuge, kUntold, kGuard},
    {"read_one_behind_tiny", read_one_behind, kTiny, kUntold, kUntold},
    {"read_one_behind_mid", read_one_behind, kMid, kUntold, kUntold},
    {"read_before_large", read_before, kLarge, kUntold, kGuard},
    {"read_before_huge", read_before, kHuge, kUntold, kGuard},
    {"read_without_end_tiny", read_without_end, kTiny, kGuard, kGuard},
    {"read_without_end_mid", read_without_end, kMid, kGuard, kGuard},

    {"read_zero_size", read_zero_size, 0, kUntold, kGuard},
    {"write_zero_size", write_zero_size, 0, kUntold, kGuard},
    {"read_zero_size_calloc", read_zero_size_calloc, 0, kUntold, kGuard},
    {"write_zero_size_new", write_zero_size_new, 0, kUntold, kGuard},
    {"write_after_zero_size_free", write_after_zero_size_free, 0, kSaidAmong, kGuard},
    {"double_free_zero_size", double_free_zero_size, 0, kDouble, kDouble},

    {"read_after_free_tiny", read_after_free, 100, kUntold, kNothing},
    {"read_after_free_mid", read_after_free, kMid, kUntold, kNothing},
    {"read_after_free_large", read_after_free, kLarge, kGuard, kGuard},
    {"read_after_free_huge", read_after_free, kHuge, kNothing, kGuard},
    {"read_after_free_and_reuse_tiny", read_after_free_and_reuse, 100, kUntold, kNothing},
    {"read_after_free_of_what_is_new_tiny", read_after_free_of_what_is_new, 100, kUntold, kUntold},
    {"read_after_free_and_reuse_large", read_after_free_and_reuse, kLarge, kNothing, kGuard},
    {"write_after_free_tiny", write_after_free, 100, kUntold, kWritten},
    {"write_after_free_mid", write_after_free, kMid, kUntold, kWritten},
    {"write_after_free_large", write_after_free, kLarge, kGuard, kGuard},
    {"write_after_free_huge", write_after_free, kHuge, kUntold, kGuard},
    {"write_after_free_at_start_tiny", write_after_free_at_start, kTiny, kSaidAmong, kWritten},
    {"write_after_free_by_other_thread_tiny", write_after_free_by_other_thread, 100, kUntold, kWritten},
    {"write_after_free_by_other_thread_mid", write_after_free_by_other_thread, kMid, kUntold, kWritten},
    {"write_after_free_of_thread_that_ended_tiny", write_after_free_of_thread_that_ended, 100, kUntold, kWritten},
    {"write_after_free_of_thread_that_ended_mid", write_after_free_of_thread_that_ended, kMid, kUntold, kWritten},
    {"write_after_free_and_reuse_tiny", write_after_free_and_reuse, 100, kUntold, kWritten},
    {"write_after_free_and_reuse_mid", write_after_free_and_reuse, kMid, kUntold, kWritten},
    {"write_after_free_and_reuse_huge", write_after_free_and_reuse, kHuge, kUntold, kGuard},
    {"write_after_free_at_start_and_reuse_tiny", write_after_free_at_start_and_reuse, 100, kAmong, kWritten},
    {"write_after_free_and_trim_tiny", write_after_free_and_trim, 500, kUntold, kWritten},
    {"read_after_realloc_tiny", read_after_realloc, 100, kUntold, kNothing},
    {"read_after_realloc_mid", read_after_realloc, kMid, kUntold, kNothing},
    {"read_after_realloc_large", read_after_realloc, kLarge, kGuard, kGuard},
    {"read_after_realloc_huge", read_after_realloc, kHuge, kNothing, kGuard},
    {"write_after_realloc_tiny", write_after_realloc, 100, kUntold, kWritten},
    {"write_after_realloc_large", write_after_realloc, kLarge, kGuard, kGuard},
    {"read_after_shrink_mid", read_after_shrink, kMid, kUntold, kNothing},

    {"uninitialized_read_tiny", uninitialized_read, 100, kUntold, kNothing},
    {"uninitialized_read_mid", uninitialized_read, kMid, kUntold, kNothing},
    {"uninitialized_read_large", uninitialized_read, kLarge, kUntold, kNothing},
    {"uninitialized_read_after_realloc", uninitialized_read_after_realloc, 100, kUntold, kNothing},

    {"impossibly_large", impossibly_large, 0, kNothing, kNothing},
    {"calloc_overflow", calloc_overflow, 0, kNothing, kNothing},
    {"reallocarray_overflow", reallocarray_overflow, 0, kNothing, kNothing},
    {"posix_memalign_bad", posix_memalign_bad, 0, kNothing, kNothing},
    {"memalign_too_large", memalign_too_large, 0, kNothing, kNothing},
};
// clang-format on

bool is_told(const Outcome &outcome) {
    return outcome.exited(42) || !outcome.err.empty() ||
           (WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) != SIGALRM && WTERMSIG(outcome.status) != SIGTERM);
}

int run_all() {
    size_t told = 0;
    for (const Row &row : rows) {
        Outcome outcome = run_self({row.name});
        told += is_told(outcome);
        std::string line = outcome.err.substr(0, outcome.err.find('\n'));
        printf("%-6s %-45s %s\n", is_told(outcome) ? "told" : "-", row.name,
               line.empty() ? lines_of(outcome.describe())[0].c_str() : line.c_str());
    }
    printf("%zu of %zu\n", told, sizeof rows / sizeof rows[0]);
    return 0;
}

int print_table() {
    for (const Row &row : rows)
        printf("%s\t%s\t%s\n", row.name, row.in_default, row.in_secure);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 1)
        return run_all();
    if (strcmp(argv[1], "--table") == 0)
        return print_table();
    for (const Row &row : rows)
        if (strcmp(row.name, argv[1]) == 0)
            return row.run(row.size) ? 42 : 0;
    return 1;
}
