/* Logarithms and their like, without libm. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* 1 - exp(-x): x is halved until a few terms suffice, then the result is doubled back: 1 - (1 - q)^2 = q (2 - q). */
HAK_INLINE double chance_of(double x) {
    unsigned doublings = 0;
    if (x > 40)
        return 1;
    while (x > 1.0 / 64)
        x /= 2, doublings++;
    double q = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5))));
    for (; doublings > 0; doublings--)
        q *= 2 - q;
    return q;
}

/* -ln u, for 0 < u <= 1: u is doubled until it is near 1, then -ln u = 2 artanh((1 - u) / (1 + u)). */
HAK_INLINE double minus_log(double u) {
    double doublings = 0, sum = 0;
    while (u < 0.7071)
        u *= 2, doublings++;
    double s = (1 - u) / (1 + u), power = s;
    for (int k = 1; k < 20; k += 2, power *= s * s)
        sum += power / k;
    return 2 * sum + doublings * 0.693147180559945309;
}

/* The square root of a number that is not negative, by Newton's steps from above. */
HAK_INLINE double root_of(double x) {
    double root = x > 1 ? x : 1;
    for (double next; (next = (root + x / root) / 2) < root * (1 - 1e-9);)
        root = next;
    return root;
}

/* The next of a series of numbers above 0 and up to 1 that look random (splitmix64). */
HAK_INLINE double random_unit(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)(((z ^ z >> 31) >> 11) + 1) * 0x1p-53;
}
