/* What happens when the library is loaded and when the program ends; and the crash line.
 *
 * malloc works without all of this: programs allocate before constructors run and after destructors have run. */
/* SPDX-License-Identifier: MIT */
#include "start.h"
#include "observe/dump.h"
#include "observe/error_file.h"
#include "observe/exit_check.h"
#include "heap.h"
#include "kinds.h"
#include "learn/policies.h"
#include "arena/policy.h"
#include "limits.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "presence.h"
#include "observe/sample.h"
#include "secure/secure.h"
#include "observe/stats.h"
#include "tiny.h"

static const char *what_lies_at(const void *p) {
    if (!region_has(p))
        return "outside the heap";
    return kind_of(slab_at_offset(region_offset(p)))->name;
}

static void report_crash(int signal_number, const void *at, const char *access, uintptr_t code) {
    if (at != NULL)
        error_explain_fault(at, access, code);
    if (option(OPT_CRASH_LOG) || option(OPT_GUARD_SAMPLE_BYTES))
        text_line("hakmem: signal %u in process %u at %x (%s); heap of %b committed, %u threads",
                  (uint64_t)signal_number, (uint64_t)os_process(), (uintptr_t)at,
                  at != NULL ? what_lies_at(at) : "no address", (uint64_t)region_frontier(),
                  (uint64_t)presence_clients());
}

__attribute__((constructor(101))) void start_library(void) {
    os_find_threads();
    options_init();
    bool has_sites = policy_start();
    tunables_init();
    policies_start();
    region_start();
    limits_start();
    stats_init();
    fail_explain(error_explain);
    if (option(OPT_INSPECT))
        os_allow_readers();
    if (dump_start())
        sample_switch(option(OPT_PROFILE_BYTES));
    os_report_crashes(report_crash);
    if (option(OPT_CRASH_LOG))
        os_catch_crashes(true);
    LOG(LOG_LRU, "[SS_LRU_INIT] max_cached=%u max_memory_mb=%u ttl_sec=%u", option(OPT_SS_CACHE_COUNT),
        option(OPT_SS_CACHE_BYTES) / MIB, option(OPT_SS_CACHE_AGE_MS) / 1000);
    if (has_sites)
        heap_watch_sites();
    options_freeze();
    region_freeze();
}

__attribute__((destructor(101))) static void at_end(void) {
    dump_at_end("exit");
    fail_program_is_over(true); /* last, because these may abort the program */
    tiny_check_at_exit();
    exit_check();
    if (option(OPT_SECURE))
        secure_check_at_exit();
    fail_program_is_over(false);
}
