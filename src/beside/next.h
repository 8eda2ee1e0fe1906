/* The functions of libc that the library stands before: dlopen, pthread_create and those that set signal handlers and
 * limits or lock memory. Most calls go on to what the program would call without the library, which is libc's, or a
 * tool's that was preloaded behind it.
 *
 * All are looked up before main, because that takes the dynamic linker's lock; earlier calls, by constructors of
 * other libraries, look them up themselves. A static program has no table of names, so nothing is found there. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

// clang-format off
#define NEXT_FUNCTIONS(X) X(dlopen) X(dlmopen) X(sigaction) X(signal) X(sysv_signal) X(sigset) X(pthread_create) \
    X(setrlimit) X(prlimit) X(mlockall)
// clang-format on

enum next {
#define NEXT_ENUM(f) NEXT_##f,
    NEXT_FUNCTIONS(NEXT_ENUM)
#undef NEXT_ENUM
        NEXT_COUNT
};

uintptr_t next_function(enum next which); /* 0: there is none */
/* dlopen's and dlmopen's `mode` without RTLD_DEEPBIND, unless the flag is to stay. `file`: NULL for the program itself,
 * which the flag does not change. After a call of next_function. */
uintptr_t deepbind_without(uintptr_t mode, const char *file);
bool next_malloc_is_own(void); /* the program's malloc is this library's */
