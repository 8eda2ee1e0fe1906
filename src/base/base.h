/* Compiler, bits and atomics: what every other file may use.
 *
 * Only this file and os_* have #if on the compiler or the machine. Atomic read-modify-writes go through the rmw_* names
 * so that the checked build can count them; plain loads and stores name their order at the call. */
/* SPDX-License-Identifier: MIT */
#pragma once

#if !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ ||                                                 \
    !(defined(__x86_64__) || defined(__aarch64__) || defined(__riscv))
#error "HAKMEM needs a 64-bit little-endian machine: x86-64, aarch64 or riscv64"
#endif

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define prefetch(address) __builtin_prefetch((const void *)(address)) /* the address may be any number */
/* The compiler forgets how the value came about: it changes the register instead of keeping a copy, and reads again
 * what the value points to. */
#define HAK_FORGET(value) __asm__("" : "+r"(value))
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((noinline, cold))
/* cmake/layout.ld says where these are put. Functions that every program runs when it starts, in files that it hardly
 * uses. */
#define HAK_AT_START __attribute__((section(".text.startup")))
/* Large variables, so that the small ones share pages: without an initial value, and with one. */
#define HAK_APART __attribute__((section(".bss.apart")))
#define HAK_APART_DATA __attribute__((section(".data.apart")))
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_HIDDEN __attribute__((visibility("hidden"))) /* on shared variables: reached without the GOT */
#define HAK_API __attribute__((visibility("default")))
#define HAK_WEAK __attribute__((weak))
/* Named in assembly, which link-time optimization does not read. */
#if __has_attribute(externally_visible)
#define HAK_KEPT __attribute__((used, externally_visible))
#else
#define HAK_KEPT __attribute__((used))
#endif
/* For the few functions whose accesses ThreadSanitizer and the model checker must not see. Each name is the reason. */
#if __has_attribute(no_builtin) /* else a loop may become a memcpy, which the sanitizer checks */
#define HAK_UNSEEN __attribute__((no_sanitize("thread"), no_builtin("memcpy", "memset")))
#else
#define HAK_UNSEEN __attribute__((no_sanitize("thread")))
#endif
/* Reads links or canaries in blocks that may be the program's, or that another thread may be linking. */
#define HAK_READS_PROGRAM_BYTES HAK_UNSEEN
/* Reads whole words where other threads write smaller fields, or other fields: a record may begin another life. */
#define HAK_READS_WHOLE_WORDS HAK_UNSEEN
/* Writes what several threads may be writing, all the same values. */
#define HAK_WRITES_SAME_VALUES HAK_UNSEEN
/* For functions that read memory without knowing whose it is. */
#define HAK_STRAY __attribute__((no_sanitize("thread", "address", "undefined")))
#define HAK_LINE 64 /* bytes of a cache line */
#if defined(__x86_64__)
#define HAK_PAGE_MAX 4096 /* bytes of a page, at most */
#else
#define HAK_PAGE_MAX 65536
#endif
/* For the type of a variable that threads write often, or that all read at each free: no other variable is in its
 * lines. */
#define HAK_OWN_LINES __attribute__((aligned(HAK_LINE)))
/* For the type of a variable that is made read-only once it is filled in: it gets pages of its own, next to the other
 * variables that become read-only. */
#define HAK_FROZEN __attribute__((aligned(HAK_PAGE_MAX)))
#define HAK_AMONG_FROZEN __attribute__((section("hak_frozen")))

/* For functions that use vectors of 32 bytes. They may only be called where the machine has these. */
#if defined(__x86_64__)
#define HAK_WIDE __attribute__((target("avx2")))
#else
#define HAK_WIDE
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define TIB ((size_t)1 << 40)

#ifndef __has_feature
#define __has_feature(feature) 0 /* NOLINT: clang's; gcc before 14 defines names instead */
#endif
#if __has_feature(thread_sanitizer) || defined(__SANITIZE_THREAD__)
#define HAK_HAS_TSAN 1
#else
#define HAK_HAS_TSAN 0
#endif
#if HAK_HAS_TSAN || __has_feature(address_sanitizer) || defined(__SANITIZE_ADDRESS__)
#define HAK_IS_SANITIZED true
#else
#define HAK_IS_SANITIZED false
#endif

/* ---- assertions: the checked build only ---- */
#ifdef HAK_CHECKED
#define HAK_IS_CHECKED 1
_Noreturn void fail_assert(const char *file, int line, const char *what);
#define HAK_ASSERT(x) (likely(x) ? (void)0 : fail_assert(__FILE__, __LINE__, #x))
extern _Thread_local uint64_t rmw_count; /* atomic read-modify-writes of this thread, not yet in a counter */
#define RMW_COUNTED(op) (rmw_count++, op)
#else
#define HAK_IS_CHECKED 0
#define HAK_ASSERT(x) ((void)sizeof(x))
#define RMW_COUNTED(op) (op)
#endif

/* ---- atomics ----
 * Read-modify-writes and the _seq accesses are sequentially consistent, which orders a store before a later load
 * without a fence (ThreadSanitizer does not know the fences of C11). On x86 a store costs a locked instruction, which a
 * read-modify-write is anyway, and a load costs nothing. */
#define load_relaxed(p) atomic_load_explicit(p, memory_order_relaxed)
#define load_acquire(p) atomic_load_explicit(p, memory_order_acquire)
#define load_seq(p) atomic_load_explicit(p, memory_order_seq_cst)
#define store_relaxed(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define store_release(p, v) atomic_store_explicit(p, v, memory_order_release)
#define store_seq(p, v) RMW_COUNTED(atomic_store_explicit(p, v, memory_order_seq_cst))
/* For a word that any thread may read but only one thread at a time writes: it needs no read-modify-write. */
#define add_owned(p, n) store_relaxed(p, (__typeof__(load_relaxed(p)))(load_relaxed(p) + (n)))
/* Relaxed accesses that the compiler may fold into other instructions, which gcc does not do with atomics. For hit
 * paths: malloc takes 16 instructions with them, 17 without. The sanitizer and the model checker see atomics. */
#if HAK_HAS_TSAN
#define load_folded(p) load_relaxed(p)
#define store_folded(p, v) store_relaxed(p, v)
#else
#define load_folded(p) (*(const __typeof__(load_relaxed(p)) *)(p))
#define store_folded(p, v) ((void)(*(__typeof__(load_relaxed(p)) *)(p) = (v)))
#endif
/* Strong compare-and-swap; on failure *expected holds what was there. */
#define rmw_cas(p, expected, desired) RMW_COUNTED(atomic_compare_exchange_strong(p, expected, desired))
#define rmw_or(p, v) RMW_COUNTED(atomic_fetch_or(p, v))
#define rmw_and(p, v) RMW_COUNTED(atomic_fetch_and(p, v))
#define rmw_add(p, v) RMW_COUNTED(atomic_fetch_add(p, v))
#define rmw_swap(p, v) RMW_COUNTED(atomic_exchange(p, v))

/* PROVEN(name, access) is the access. The name says that the access is needed as it stands, its order included: the
 * model checker's build breaks it on purpose, in the ways that tests/races/seeds.h lists, and each time a harness must
 * fail. */
#ifdef HAK_RACES
#include "seeds.h"
#else
#define PROVEN(name, access) (access)
#endif

/* ---- bits ---- */
HAK_INLINE unsigned lowest_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }        /* x != 0 */
HAK_INLINE unsigned highest_bit(uint64_t x) { return 63u - (unsigned)__builtin_clzll(x); } /* x != 0 */
/* Without an instruction for it the compiler would call a function of libgcc's, with a table. */
HAK_INLINE uint64_t sums_of_2_bits(uint64_t x) { return x - (x >> 1 & 0x5555555555555555); }
HAK_INLINE uint64_t sums_of_4_bits(uint64_t x) { return (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333); }
HAK_INLINE uint64_t sums_of_8_bits(uint64_t x) { return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f; }
/* In line it would take registers, and so stack. */
__attribute__((noinline, unused)) static unsigned count_bits(uint64_t x) {
    return (unsigned)(sums_of_8_bits(sums_of_4_bits(sums_of_2_bits(x))) * 0x0101010101010101 >> 56);
}
/* `n` one bits, n <= 64 */
HAK_INLINE uint64_t low_bits(unsigned n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }
HAK_INLINE size_t round_up(size_t x, size_t power_of_two) { return (x + power_of_two - 1) & ~(power_of_two - 1); }
HAK_INLINE size_t round_down(size_t x, size_t power_of_two) { return x & ~(power_of_two - 1); }
/* Every bit of the result depends on many of x. For hashes. */
HAK_INLINE uint64_t mix_bits(uint64_t x) {
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}
HAK_INLINE bool is_power_of_two(size_t x) { return x != 0 && (x & (x - 1)) == 0; }
HAK_INLINE size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
HAK_INLINE size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* ---- registers, by the numbers that DWARF gives them ---- CALLEE_SAVED are the registers that a function must
 * restore, and last the one with its return address. SIGNAL_RETURN_CODE is the code that a signal handler returns to
 * where no unwind table describes it (0: one always does). The interrupted registers are SIGNAL_FRAME_BYTES above the
 * stack pointer there, and the address is their word SIGNAL_CODE_WORD. REGISTER_FRAME is the frame pointer: from
 * FRAME_LINK_BYTES behind it on, the caller's was saved, and then the return address. ARGUMENT_n is the register in
 * which a function gets its n-th argument. */
#if defined(__x86_64__)
enum { REGISTERS = 17, REGISTER_FRAME = 6, REGISTER_STACK = 7, REGISTER_RETURN = 16, FRAME_LINK_BYTES = 0 };
enum { SIGNAL_FRAME_BYTES = 0, SIGNAL_CODE_WORD = 0 };
/* The frame pointer's place in CALLEE_SAVED; how many words below the CFA a call leaves the return address, 0:
 * nowhere. */
enum { FRAME_AMONG_SAVED = 1, RETURN_WORDS = 1 };
enum { CALL_BYTES = 7 };
#define CALLEE_SAVED 3, 6, 12, 13, 14, 15, 16
#define ARGUMENT_1 "rdi"
#define ARGUMENT_2 "rsi"
#define ARGUMENT_3 "rdx"
#define SIGNAL_RETURN_CODE ((uint64_t)0)
/* Reads the registers that lead to the caller's frame, at the place where this is expanded. Returns that place. */
HAK_INLINE uintptr_t registers_read(uintptr_t *registers) {
    uintptr_t here;
    __asm__ volatile("movq %%rbx, 24(%1)\n\tmovq %%rbp, 48(%1)\n\tmovq %%rsp, 56(%1)\n\t"
                     "movq %%r12, 96(%1)\n\tmovq %%r13, 104(%1)\n\tmovq %%r14, 112(%1)\n\tmovq %%r15, 120(%1)\n\t"
                     "leaq 0(%%rip), %0"
                     : "=&r"(here)
                     : "r"(registers)
                     : "memory");
    return here;
}
HAK_INLINE uintptr_t code_address(uintptr_t x) { return x; } /* removes what the machine adds to a return address */
/* Can these CALL_BYTES end with a call? E8 and a distance, or FF, whose operand's form fixes the length. */
HAK_INLINE bool is_call(const uint8_t *code) {
    static const uint8_t indirect[] = {2, 3, 4, 6, 7}; /* bytes */
    bool found = code[CALL_BYTES - 5] == 0xe8;
    for (unsigned i = 0; i < sizeof indirect; i++)
        found |= code[CALL_BYTES - indirect[i]] == 0xff && (code[CALL_BYTES - indirect[i] + 1] & 0x38) == 0x10;
    return found;
}
#elif defined(__aarch64__)
enum { REGISTERS = 32, REGISTER_FRAME = 29, REGISTER_STACK = 31, REGISTER_RETURN = 30, FRAME_LINK_BYTES = 0 };
enum { SIGNAL_FRAME_BYTES = 128 + 176 + 8, SIGNAL_CODE_WORD = REGISTERS };
enum { FRAME_AMONG_SAVED = 10, RETURN_WORDS = 0 };
enum { CALL_BYTES = 4 };
#define CALLEE_SAVED 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
#define ARGUMENT_1 "x0"
#define ARGUMENT_2 "x1"
#define ARGUMENT_3 "x2"
#define SIGNAL_RETURN_CODE ((uint64_t)0xd4000001d2801168)        /* mov x8, #139; svc #0 */
HAK_INLINE uintptr_t registers_read(uintptr_t *registers) {
    uintptr_t here;
    __asm__ volatile("stp x19, x20, [%1, #152]\n\tstp x21, x22, [%1, #168]\n\tstp x23, x24, [%1, #184]\n\t"
                     "stp x25, x26, [%1, #200]\n\tstp x27, x28, [%1, #216]\n\tstp x29, x30, [%1, #232]\n\t"
                     "mov %0, sp\n\tstr %0, [%1, #248]\n\tadr %0, ."
                     : "=&r"(here)
                     : "r"(registers)
                     : "memory");
    return here;
}
HAK_INLINE uintptr_t code_address(uintptr_t x) { /* removes the signature of a pointer; a no-op on older machines */
    register uintptr_t link __asm__("x30") = x;
    __asm__("hint #7" : "+r"(link));
    return link;
}
HAK_INLINE bool is_call(const uint8_t *code) { /* bl, or blr */
    uint32_t instruction =
        (uint32_t)code[0] | (uint32_t)code[1] << 8 | (uint32_t)code[2] << 16 | (uint32_t)code[3] << 24;
    return instruction >> 26 == 0x25 || (instruction & 0xfffffc1f) == 0xd63f0000;
}
#else                                                            /* riscv64 */
enum { REGISTERS = 32, REGISTER_FRAME = 8, REGISTER_STACK = 2, REGISTER_RETURN = 1, FRAME_LINK_BYTES = -16 };
enum {
    SIGNAL_FRAME_BYTES = 128 + 176,
    SIGNAL_CODE_WORD = 0
}; /* the address where register 0 would be, which is none */
enum { FRAME_AMONG_SAVED = 0, RETURN_WORDS = 0 };
enum { CALL_BYTES = 4 };
#define CALLEE_SAVED 8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 1 /* without s11: a packed row has 12 */
#define ARGUMENT_1 "a0"
#define ARGUMENT_2 "a1"
#define ARGUMENT_3 "a2"
#define SIGNAL_RETURN_CODE ((uint64_t)0x0000007308b00893) /* li a7, 139; ecall */
HAK_INLINE uintptr_t registers_read(uintptr_t *registers) {
    uintptr_t here;
    __asm__ volatile("sd ra, 8(%1)\n\tsd sp, 16(%1)\n\tsd s0, 64(%1)\n\tsd s1, 72(%1)\n\t"
                     "sd s2, 144(%1)\n\tsd s3, 152(%1)\n\tsd s4, 160(%1)\n\tsd s5, 168(%1)\n\tsd s6, 176(%1)\n\t"
                     "sd s7, 184(%1)\n\tsd s8, 192(%1)\n\tsd s9, 200(%1)\n\tsd s10, 208(%1)\n\tsd s11, 216(%1)\n\t"
                     "auipc %0, 0"
                     : "=&r"(here)
                     : "r"(registers)
                     : "memory");
    return here;
}
HAK_INLINE uintptr_t code_address(uintptr_t x) { return x; }
HAK_INLINE bool is_call(const uint8_t *code) { /* jal ra, jalr ra, or the short jalr */
    uint32_t half = (uint32_t)code[2] | (uint32_t)code[3] << 8;
    uint32_t instruction = (uint32_t)code[0] | (uint32_t)code[1] << 8 | half << 16;
    return (instruction & 0xfff) == 0x0ef || (instruction & 0x7fff) == 0x00e7 ||
           ((half & 0xf07f) == 0x9002 && (half & 0x0f80) != 0);
}
#endif
