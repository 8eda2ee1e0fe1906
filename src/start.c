/* What happens when the library is loaded and when the program ends; and the crash line.
 *
 * malloc works without all of this: programs allocate before constructors run and after destructors have run. */
#include "guard.h"
#include "heap.h"
#include "limits.h"
#include "log.h"
#include "options.h"
#include "os.h"
#include "sample.h"
#include "secure.h"
#include "start.h"
#include "stats.h"
#include "tiers.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGABRT};
enum { CRASH_SIGNALS = 3 };
static struct sigaction before[CRASH_SIGNALS]; /* constant after the start */

static const char *what_lies_at(const void *p) {
    static const char *const kinds[] = {[KIND_FREE] = "free",
                                        [KIND_TINY] = "a tiny slab",
                                        [KIND_MID] = "a mid slab",
                                        [KIND_LARGE] = "a large block",
                                        [KIND_HUGE] = "a huge block",
                                        [KIND_SAMPLED] = "a sampled block",
                                        [KIND_SECURE] = "a secure slab",
                                        [KIND_GUARDED] = "a guarded block"};
    if (!region_has(p))
        return "outside the heap";
    return kinds[slab_kind(slab_at_offset(region_offset(p)))];
}

/* Prints what is known about the crash, then calls the handler that was installed before ours. */
static void on_crash(int signal_number, siginfo_t *info, void *context) {
    unsigned i = 0;
    while (i + 1 < CRASH_SIGNALS && crash_signals[i] != signal_number)
        i++;
    const void *at = signal_number == SIGABRT ? NULL : info->si_addr;
    if (at != NULL)
        guard_report(at, os_fault_access(context));
    if (option(OPT_CRASH_LOG) || option(OPT_GUARD_SAMPLE_BYTES))
        text_line("hakmem: signal %u in process %u at %x (%s); heap of %b committed, %u threads",
                  (uint64_t)signal_number, (uint64_t)getpid(), (uintptr_t)at,
                  at != NULL ? what_lies_at(at) : "no address", (uint64_t)region_frontier(), (uint64_t)pool_clients());
    if (before[i].sa_flags & SA_SIGINFO) {
        before[i].sa_sigaction(signal_number, info, context);
    } else if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN) {
        before[i].sa_handler(signal_number);
    } else {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
}

static void catch_crashes(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (unsigned i = 0; i < CRASH_SIGNALS && (i == 0 || option(OPT_CRASH_LOG)); i++)
        sigaction(crash_signals[i], &action, &before[i]);
}

__attribute__((constructor(101))) void start_library(void) {
    os_find_threads();
    options_init();
    region_start();
    limits_start();
    stats_init();
    if (option(OPT_INSPECT))
        os_allow_readers();
    if (option(OPT_PROFILE) || option_text(OPT_PROFILE_FILE)[0] != '\0' ||
        option_text(OPT_SOFT_LIMIT_PROFILE)[0] != '\0')
        sample_switch(option(OPT_PROFILE_BYTES));
    if (option(OPT_CRASH_LOG) || option(OPT_GUARD_SAMPLE_BYTES))
        catch_crashes();
    LOG(LOG_LRU, "[SS_LRU_INIT] max_cached=%u max_memory_mb=%u ttl_sec=%u", option(OPT_SS_CACHE_COUNT),
        option(OPT_SS_CACHE_BYTES) / MIB, option(OPT_SS_CACHE_AGE_MS) / 1000);
    options_freeze();
    region_freeze();
}

__attribute__((destructor(101))) static void at_end(void) {
    stats_at_exit();
    profile_write_for(OPT_PROFILE_FILE);
    tiny_look_at_exit(); /* last, because these two may abort the program */
    secure_look_at_exit();
}
