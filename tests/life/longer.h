/* How often the tests of threads and processes do what they do, and what they print of it.
 *
 * HAK_TEST_LONGER=N in the environment: N times as often, for a soak. HAK_TEST_SHORTER=N: a part of it, for an emulator.
 * A line `figure: NAME VALUE` is a result that the documentation is made of: a sum of all runs, or of NAME_most the largest. */
#ifndef HAKMEM_TESTS_LONGER_H
#define HAKMEM_TESTS_LONGER_H

#include "../support.h"

inline int from_environment(const char *name) {
    const char *text = getenv(name);
    int value = text != nullptr ? atoi(text) : 1;
    return value > 1 ? value : 1;
}

/* `usual`, or what the environment and the sanitizer make of it; at least 10. */
inline int times(int usual) {
    int count = usual / kShorter / from_environment("HAK_TEST_SHORTER") * from_environment("HAK_TEST_LONGER");
    return count > 10 ? count : 10;
}

inline void figure(const char *name, long value) { printf("figure: %s %ld\n", name, value > 0 ? value : 0); }

#endif
