/* Functions that set signal handlers, behind the library's, as a tool has them that is preloaded after it. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <signal.h>

typedef void handler(int);
typedef handler *setter(int, handler *);
setter sysv_signal;

int behind_calls;

static setter *counted(const char *name) {
    behind_calls++;
    return (setter *)dlsym(RTLD_NEXT, name);
}
handler *signal(int number, handler *to) { return counted("signal")(number, to); }
handler *sysv_signal(int number, handler *to) { return counted("sysv_signal")(number, to); }
handler *sigset(int number, handler *to) { return counted("sigset")(number, to); }
