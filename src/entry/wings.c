/* How the wings start and end: the hooks of hooks.h for the whole process. */
/* SPDX-License-Identifier: MIT */
#include "arena/policy.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "learn/presets.h"
#include "observe/dump.h"
#include "observe/inspect.h"
#include "observe/report.h"
#include "observe/sampled.h"
#include "observe/stats.h"
#include "process/hooks.h"
#include "secure/secure_span.h"

/* Makes the linker take the tables that other processes read from the archive: nothing calls them. */
__attribute__((used)) static const struct inspect *const tables_wanted = &hak_inspect;

bool hook_options_are_read(void) { return mode()->has_lanes && policy_start(); }

void hook_start(void) {
    presets_start();
    if (option(OPT_STATS) || option(OPT_ACE) || option(OPT_MESH) || option(OPT_PROFILE))
        os_process(); /* a sandbox may forbid the question later */
    if (kind_serves(&kind_secure_small))
        span_start();
    stats_init();
    fail_explain(report_error);
    if (option(OPT_INSPECT))
        os_allow_readers();
    if (dump_start())
        sampled_switch(option(OPT_PROFILE_BYTES));
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

void hook_end(void) {
    dump_at_end("exit");
    log_retries();
}
