/* The entry points that instrumented code calls, instead of ThreadSanitizer's. They only pass the accesses on.
 *
 * The linker wraps memcpy and similar functions (--wrap), because instrumented code calls them like any others. */
/* SPDX-License-Identifier: MIT */
#include "model.h"

/* NOLINTBEGIN: these names belong to the compiler */
#define PC __builtin_return_address(0)

#define PLAIN(bytes)                                                                                                   \
    void __tsan_read##bytes(void *p) { model_plain((uintptr_t)p, bytes, false, PC); }                                  \
    void __tsan_write##bytes(void *p) { model_plain((uintptr_t)p, bytes, true, PC); }                                  \
    void __tsan_unaligned_read##bytes(void *p) { model_plain((uintptr_t)p, bytes, false, PC); }                        \
    void __tsan_unaligned_write##bytes(void *p) { model_plain((uintptr_t)p, bytes, true, PC); }                        \
    void __tsan_read_write##bytes(void *p) { model_plain((uintptr_t)p, bytes, true, PC); }                             \
    void __tsan_unaligned_read_write##bytes(void *p) { model_plain((uintptr_t)p, bytes, true, PC); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_init(void) {}
void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void) {}
void __tsan_read_range(void *p, size_t bytes) { model_plain((uintptr_t)p, bytes, false, PC); }
void __tsan_write_range(void *p, size_t bytes) { model_plain((uintptr_t)p, bytes, true, PC); }

#define RMW(bits, type, name, op)                                                                                      \
    type __tsan_atomic##bits##_##name(volatile type *p, type v, int order) {                                           \
        return (type)model_atomic(op, (uintptr_t)p, bits / 8, v, NULL, order, order, PC);                              \
    }
#define CAS(bits, type, name)                                                                                          \
    int __tsan_atomic##bits##_##name(volatile type *p, type *expected, type v, int order, int failure) {               \
        uint64_t wanted = *expected;                                                                                   \
        type read = (type)model_atomic(OP_CAS, (uintptr_t)p, bits / 8, v, &wanted, order, failure, PC);                \
        int done = read == *expected;                                                                                  \
        *expected = read;                                                                                              \
        return done;                                                                                                   \
    }
#define ATOMIC(bits, type)                                                                                             \
    type __tsan_atomic##bits##_load(const volatile type *p, int order) {                                               \
        return (type)model_atomic(OP_LOAD, (uintptr_t)p, bits / 8, 0, NULL, order, order, PC);                         \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *p, type v, int order) {                                            \
        model_atomic(OP_STORE, (uintptr_t)p, bits / 8, v, NULL, order, order, PC);                                     \
    }                                                                                                                  \
    RMW(bits, type, exchange, OP_SWAP)                                                                                 \
    RMW(bits, type, fetch_add, OP_ADD)                                                                                 \
    RMW(bits, type, fetch_sub, OP_SUB)                                                                                 \
    RMW(bits, type, fetch_and, OP_AND)                                                                                 \
    RMW(bits, type, fetch_or, OP_OR)                                                                                   \
    RMW(bits, type, fetch_xor, OP_XOR)                                                                                 \
    CAS(bits, type, compare_exchange_strong)                                                                           \
    CAS(bits, type, compare_exchange_weak)                                                                             \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *p, type expected, type v, int order, int failure) { \
        uint64_t wanted = expected;                                                                                    \
        return (type)model_atomic(OP_CAS, (uintptr_t)p, bits / 8, v, &wanted, order, failure, PC);                     \
    }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_signal_fence(int order) { (void)order; }
void __tsan_atomic_thread_fence(int order) {
    (void)order;
    explore_give_up("a fence: the model has none but that of os_fence_threads");
}

void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int byte, size_t bytes);

static void copying(void *to, const void *from, size_t bytes, const void *pc) {
    if (bytes == 0 || !explore_running)
        return;
    model_plain((uintptr_t)from, bytes, false, pc);
    model_plain((uintptr_t)to, bytes, true, pc);
}
void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    copying(to, from, bytes, PC);
    return __real_memcpy(to, from, bytes);
}
void *__wrap_memmove(void *to, const void *from, size_t bytes) {
    copying(to, from, bytes, PC);
    return __real_memmove(to, from, bytes);
}
void *__wrap_memset(void *to, int byte, size_t bytes) {
    if (!explore_running)
        return __real_memset(to, byte, bytes);
    model_set((uintptr_t)to, bytes, (uint8_t)byte, PC);
    return to;
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return __wrap_memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return __wrap_memmove(to, from, bytes); }
void *__tsan_memset(void *to, int byte, size_t bytes) { return __wrap_memset(to, byte, bytes); }
/* NOLINTEND */
