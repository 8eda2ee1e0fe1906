/* System calls without libc's wrappers, for the os_*.c files alone. The values are numbers and addresses. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"

#include <errno.h>
#include <unistd.h>

enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

/* errno as the wrapper would leave it. */
HAK_INLINE long os_ask(long number, long a, long b, long c) { return syscall(number, a, b, c, 0L, 0L); }

/* A call's answer, with errno as it was saved before. */
HAK_INLINE long os_answer(int saved, long answer) { return errno = saved, answer; }

/* For calls of which only the result matters: errno stays. */
HAK_INLINE long os_call(long number, long a, long b, long c) {
    int saved = errno;
    return os_answer(saved, os_ask(number, a, b, c));
}
