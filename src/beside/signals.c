/* sigaction and signal. While a signal is caught (CRASH_LOG, GUARD_SAMPLE_BYTES) a handler that the program sets comes
 * after the report, not instead of it; all else goes on to libc. See base/os_crash.h. */
/* SPDX-License-Identifier: MIT */
#include "beside/signals.h"
#include "beside/next.h"

#include <errno.h>
#include <string.h>

os_set_action
    __sigaction; /* NOLINT: glibc's names, also in static programs, where no table tells where the functions lie */
signals_set bsd_signal;

HAK_API int sigaction(int signal_number, const struct sigaction *action, struct sigaction *before) {
    uintptr_t found = next_function(NEXT_sigaction);
    os_set_action *next = found != 0 ? (os_set_action *)found : __sigaction; /* NOLINT: an address */
    if (likely(!os_crash_is_caught(signal_number)))
        return next(signal_number, action, before);
    return os_crash_set_action(next, signal_number, action, before);
}

signals_handler *signals_set_by_sigaction(int signal_number, signals_handler *to, int flags, bool blocks_itself) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = to;
    action.sa_flags = flags;
    if (blocks_itself)
        sigaddset(&action.sa_mask, signal_number);
    return sigaction(signal_number, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

HAK_API signals_handler *signal(int signal_number, signals_handler *to) {
    uintptr_t found = next_function(NEXT_signal);
    signals_set *next = found != 0 ? (signals_set *)found : bsd_signal; /* NOLINT: likewise */
    if (likely(!os_crash_is_caught(signal_number)))
        return next(signal_number, to);
    if (to != SIG_ERR)
        return signals_set_by_sigaction(signal_number, to, SA_RESTART, true);
    errno = EINVAL;
    return SIG_ERR;
}

HAK_API signals_set ssignal __THROW __attribute__((alias("signal")));
