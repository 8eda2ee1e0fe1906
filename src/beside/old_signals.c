/* The older functions that set signal handlers, as signals.c does it. In the shared library alone: in a static
 * program glibc's own could not be found. */
/* SPDX-License-Identifier: MIT */
#include "beside/next.h"
#include "beside/signals.h"

#include <errno.h>

enum { INTERRUPTS = 0x20000000 }; /* SA_INTERRUPT: does nothing, and is not kept since Linux 5.11 */

HAK_API signals_set bsd_signal, __sysv_signal; /* NOLINT: the latter is signal, in a strict C program */

HAK_API signals_handler *bsd_signal(int signal_number, signals_handler *to) { return signal(signal_number, to); }

HAK_API signals_handler *sysv_signal(int signal_number, signals_handler *to) {
    if (likely(!os_crash_is_caught(signal_number)))
        return ((signals_set *)next_function(NEXT_sysv_signal))(signal_number, to); /* NOLINT: an address */
    if (to != SIG_ERR)
        return signals_set_by_sigaction(signal_number, to, (int)SA_RESETHAND | SA_NODEFER | INTERRUPTS, false);
    errno = EINVAL;
    return SIG_ERR;
}

HAK_API signals_handler *__sysv_signal(int signal_number, signals_handler *to) { /* NOLINT: likewise */
    return sysv_signal(signal_number, to);
}

HAK_API signals_handler *sigset(int signal_number, signals_handler *to) {
    if (likely(!os_crash_is_caught(signal_number)))
        return ((signals_set *)next_function(NEXT_sigset))(signal_number, to); /* NOLINT: likewise */
    sigset_t own, blocked;
    struct sigaction action;
    signals_handler *before = SIG_ERR;
    sigemptyset(&own);
    sigaddset(&own, signal_number);
    if (to != SIG_HOLD)
        before = signals_set_by_sigaction(signal_number, to, 0, false);
    else if (sigaction(signal_number, NULL, &action) == 0)
        before = action.sa_handler;
    if (before != SIG_ERR)
        sigprocmask(to == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &own, &blocked);
    return before != SIG_ERR && sigismember(&blocked, signal_number) ? SIG_HOLD : before;
}
