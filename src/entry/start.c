/* What happens when the library is loaded and when the program ends; and the crash line.
 *
 * malloc works without all of this: programs allocate before constructors run and after destructors have run. */
/* SPDX-License-Identifier: MIT */
#include "entry/start.h"
#include "observe/dump.h"
#include "observe/error_file.h"
#include "observe/exit_check.h"
#include "heap.h"
#include "kinds.h"
#include "learn/presets.h"
#include "arena/policy.h"
#include "beside/other.h"
#include "limits.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "base/os_crash.h"
#include "presence.h"
#include "observe/sample.h"
#include "secure/secure.h"
#include "secure/secure_span.h"
#include "observe/stats.h"
#include "tiny.h"

static const char *what_lies_at(const void *p) {
    if (!region_has(p))
        return "outside the heap";
    return kind_of(slab_at_offset(region_offset(p)))->name;
}

enum { CRASH_LINES_MAX = 16 };       /* runtimes that live on such signals do not fill the log */
static _Atomic uint32_t crash_lines; /* stands for itself */

static bool report_crash(int signal_number, const void *at, const char *access, uintptr_t code) {
    bool said = at != NULL && error_explain_fault(at, access, code);
    if (said || (option(OPT_CRASH_LOG) && rmw_add(&crash_lines, 1) < CRASH_LINES_MAX)) {
        said = true;
        text_line("hakmem: signal %u in process %u at %x (%s); heap of %b committed, %u threads",
                  (uint64_t)signal_number, (uint64_t)os_process(), (uintptr_t)at,
                  at != NULL ? what_lies_at(at) : "no address", (uint64_t)region_frontier(),
                  (uint64_t)presence_clients());
    }
    return said;
}

void start_catching(void) {
    if (option(OPT_CRASH_LOG) || option(OPT_GUARD_SAMPLE_BYTES))
        os_catch_crashes(option(OPT_CRASH_LOG));
}

__attribute__((constructor(101))) void start_library(void) {
    os_know_modules();
    os_find_threads();
    options_init();
    bool has_sites = policy_start();
    tunables_init();
    presets_start();
    region_start();
    presence_start();
    if (option(OPT_SECURE))
        span_start();
    limits_start();
    stats_init();
    fail_explain(error_explain);
    if (option(OPT_INSPECT))
        os_allow_readers();
    if (dump_start())
        sample_switch(option(OPT_PROFILE_BYTES));
    os_report_crashes(report_crash);
    start_catching();
    if (other_is_on())
        os_malloc_start();
    log_start();
    if (has_sites)
        heap_watch_sites();
    region_freeze();
}

static void log_retries(void) {
    struct heap_figures *f = HAK_IS_CHECKED && log_wanted(LOG_RETRIES) ? stats_begin(false) : NULL;
    if (f == NULL)
        return;
    LOG(LOG_RETRIES, "[RETRIES] pool=%u inbox=%u mid=%u offers=%u of %u atomic read-modify-writes",
        f->counters[COUNT_pool_retries], f->counters[COUNT_inbox_retries], f->counters[COUNT_mid_retries],
        f->counters[COUNT_offer_retries], f->counters[COUNT_atomic_rmw]);
    stats_end(f);
}

__attribute__((destructor(101))) static void at_end(void) {
    dump_at_end("exit");
    log_retries();
    fail_program_is_over(true); /* last, because these may abort the program */
    tiny_check_at_exit();
    exit_check();
    if (option(OPT_SECURE))
        secure_check_at_exit();
    fail_program_is_over(false);
}
