/* The functions of libc that set signal handlers. While a signal is caught (CRASH_LOG, GUARD_SAMPLE_BYTES) a handler
 * that the program sets comes after the report, not instead of it; all else goes on to libc. See base/os_crash.h. */
/* SPDX-License-Identifier: MIT */
#include "base/os_crash.h"
#include "beside/next.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

typedef void handler(int);
typedef handler *set_handler(int signal_number, handler *to);

enum { INTERRUPTS = 0x20000000 }; /* SA_INTERRUPT: does nothing, and is not kept since Linux 5.11 */

HAK_API int sigaction(int signal_number, const struct sigaction *action, struct sigaction *before) {
    os_set_action *next = (os_set_action *)next_function(NEXT_sigaction); /* NOLINT: an address */
    if (likely(!os_crash_is_caught(signal_number)))
        return next(signal_number, action, before);
    return os_crash_set_action(next, signal_number, action, before);
}

/* What a call of an older kind is in terms of sigaction. */
static handler *set(int signal_number, handler *to, int flags, bool blocks_itself) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = to;
    action.sa_flags = flags;
    if (blocks_itself)
        sigaddset(&action.sa_mask, signal_number);
    return sigaction(signal_number, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

static handler *invalid(void) {
    errno = EINVAL;
    return SIG_ERR;
}

HAK_API handler *signal(int signal_number, handler *to) {
    if (likely(!os_crash_is_caught(signal_number)))
        return ((set_handler *)next_function(NEXT_signal))(signal_number, to); /* NOLINT: likewise */
    return to != SIG_ERR ? set(signal_number, to, SA_RESTART, true) : invalid();
}
HAK_API handler *sysv_signal(int signal_number, handler *to) {
    if (likely(!os_crash_is_caught(signal_number)))
        return ((set_handler *)next_function(NEXT_sysv_signal))(signal_number, to); /* NOLINT: likewise */
    return to != SIG_ERR ? set(signal_number, to, (int)SA_RESETHAND | SA_NODEFER | INTERRUPTS, false) : invalid();
}

/* Other names for the two. */
HAK_API set_handler bsd_signal __THROW __attribute__((alias("signal")));
HAK_API set_handler ssignal __THROW __attribute__((alias("signal")));
HAK_API set_handler __sysv_signal __THROW
    __attribute__((alias("sysv_signal"))); /* NOLINT: signal, in a strict C program */

HAK_API handler *sigset(int signal_number, handler *to) {
    if (likely(!os_crash_is_caught(signal_number)))
        return ((set_handler *)next_function(NEXT_sigset))(signal_number, to); /* NOLINT: likewise */
    sigset_t own, blocked;
    struct sigaction action;
    sigemptyset(&own);
    sigaddset(&own, signal_number);
    handler *before = SIG_ERR;
    if (to == SIG_HOLD)
        before = sigaction(signal_number, NULL, &action) == 0 ? action.sa_handler : SIG_ERR;
    else
        before = set(signal_number, to, 0, false);
    if (before != SIG_ERR)
        sigprocmask(to == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &own, &blocked);
    return before != SIG_ERR && sigismember(&blocked, signal_number) ? SIG_HOLD : before;
}
