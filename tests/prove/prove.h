/* What the proofs share. A proof is a function `void prove_NAME(void)` in one of these files: cbmc follows it for
 * every value of what is ANY, and sees that no PROVE can fail, nor anything that C leaves undefined happen, nor an
 * assertion of the sources fail. The sources are the shipped ones, included as they are. The comment before a proof
 * says what holds and under which bounds: docs/reliability.md has it. seeds.txt has bugs that the proofs must find;
 * prove.py runs all of it. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_TESTS_PROVE_H
#define HAK_TESTS_PROVE_H

#define HAK_CHECKED 1
#include "base/base.h"

/* Any value at all: a function without a body, each call of which may return another value. */
bool nondet_bool(void);
uint8_t nondet_u8(void);
uint16_t nondet_u16(void);
unsigned nondet_unsigned(void);
uint32_t nondet_u32(void);
uint64_t nondet_u64(void);
size_t nondet_size(void);

#define GIVEN(x) __CPROVER_assume(x)
#define PROVE(x) __CPROVER_assert(x, #x)

_Thread_local uint64_t rmw_count;
_Noreturn void fail_assert(const char *file, int line, const char *what) {
    (void)file, (void)line, (void)what;
    __CPROVER_assert(false, "an assertion of the sources");
    GIVEN(false);
    __builtin_unreachable();
}

/* ---- other threads ----
 * Before each read-modify-write of the sources other threads may write the word, which may be anything then, and so
 * as often as `others_may_write` says. A loop that tries again keeps nothing but the word, so what is proved for
 * one more try is proved for any number. `step` is what the last successful read-modify-write of a 64-bit word did:
 * what holds for every step holds however threads alternate. */
static unsigned others_may_write;
static struct {
    uint64_t before, after;
    unsigned count;
} step;

static inline void step_is(uint64_t before, uint64_t after) {
    step.before = before;
    step.after = after;
    step.count++;
}

#define OTHERS_WRITE(p)                                                                                                \
    do {                                                                                                               \
        if (others_may_write > 0 && nondet_bool()) {                                                                   \
            others_may_write--;                                                                                        \
            *(p) = (__typeof__(*(p) + 0))nondet_u64();                                                                 \
        }                                                                                                              \
    } while (0)
#define RMW(p, now)                                                                                                    \
    ({                                                                                                                 \
        OTHERS_WRITE(p);                                                                                               \
        __typeof__(*(p) + 0) rmw_before = *(p);                                                                        \
        *(p) = (__typeof__(*(p) + 0))(now);                                                                            \
        if (sizeof *(p) == 8)                                                                                          \
            step_is((uint64_t)rmw_before, (uint64_t)(now));                                                            \
        rmw_before;                                                                                                    \
    })
#undef rmw_cas
#undef rmw_or
#undef rmw_and
#undef rmw_add
#undef rmw_swap
#define rmw_or(p, v) RMW(p, rmw_before | (v))
#define rmw_and(p, v) RMW(p, rmw_before &(v))
#define rmw_add(p, v) RMW(p, rmw_before + (v))
#define rmw_swap(p, v) RMW(p, v)
#define rmw_cas(p, expected, desired)                                                                                  \
    ({                                                                                                                 \
        OTHERS_WRITE(p);                                                                                               \
        bool cas_done = *(p) == *(expected);                                                                           \
        if (cas_done && sizeof *(p) == 8)                                                                              \
            step_is((uint64_t) * (p), (uint64_t)(desired));                                                            \
        if (cas_done)                                                                                                  \
            *(p) = (desired);                                                                                          \
        else                                                                                                           \
            *(expected) = *(p);                                                                                        \
        cas_done;                                                                                                      \
    })

#endif
