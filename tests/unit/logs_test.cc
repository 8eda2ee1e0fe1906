/* Logarithms and their like against libm's. If one fails, the sampler's intervals and what ACE learns are skewed, which
 * no other test sees: they only look at the order of magnitude. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <cmath>

#include "inside.h"

namespace {

TEST(Logs, MinusLogIsLibms) {
    for (double u = 1; u > 1e-20; u *= 0.97)
        ASSERT_NEAR(inside_minus_log(u), -std::log(u), 1e-8) << u;
}

TEST(Logs, ChanceIsLibms) {
    for (double x = 1e-12; x < 60; x *= 1.03)
        ASSERT_NEAR(inside_chance_of(x) / -std::expm1(-x), 1, 1e-9) << x;
    EXPECT_EQ(inside_chance_of(0), 0);
    EXPECT_EQ(inside_chance_of(41), 1);
}

TEST(Logs, RootIsLibms) {
    for (double x = 1e-6; x < 1e15; x *= 1.1)
        ASSERT_NEAR(inside_root_of(x) / std::sqrt(x), 1, 1e-6) << x;
}

TEST(Logs, RandomUnitIsSplitmix64) {
    uint64_t state = 0; /* the series from 0 that others publish */
    for (uint64_t word : {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u, 0x06c45d188009454fu})
        EXPECT_EQ(inside_random_unit(&state), std::ldexp(static_cast<double>((word >> 11) + 1), -53));
}

} // namespace
