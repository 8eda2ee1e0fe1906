/* What happens when the library is loaded and when the program ends; and the crash line.
 *
 * malloc works without all of this: programs allocate before constructors run and after destructors have run. */
/* SPDX-License-Identifier: MIT */
#include "entry/start.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "base/os_crash.h"
#include "beside/other.h"
#include "blocks/kinds.h"
#include "heap/heap.h"
#include "pool/limits.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "process/tunables.h"
#include "tiers/tiny.h"

static const char *what_lies_at(const void *p) {
    if (!region_has(p))
        return "outside the heap";
    return kind_of(slab_at_offset(region_offset(p)))->name;
}

/* A function of the C++ library, which every program that can throw has. NULL: the program has no C++. */
extern char hak_cxx_personality[] __asm__("__gxx_personality_v0") HAK_WEAK;

enum { CRASH_LINES_MAX = 16 };       /* runtimes that live on such signals do not fill the log */
static _Atomic uint32_t crash_lines; /* stands for itself */

static bool report_crash(int signal_number, const void *at, const char *access, uintptr_t code) {
    bool guarded = region_has(at) && slab_kind(slab_at_offset(region_offset(at))) == KIND_GUARD_PAGE;
    bool said = guarded && hooks_observe.explain_fault(at, access, code);
    if (said || (option(OPT_CRASH_LOG) && rmw_add(&crash_lines, 1) < CRASH_LINES_MAX)) {
        said = true;
        text_line("hakmem: signal %u in process %u at %x (%s); heap of %b committed, %u threads",
                  (uint64_t)signal_number, (uint64_t)os_process(), (uintptr_t)at,
                  at != NULL ? what_lies_at(at) : "no address", (uint64_t)region_frontier(),
                  (uint64_t)presence_heaps());
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
    bool has_sites = hook_options_are_read();
    tunables_init();
    region_start();
    presence_start();
    limits_start();
    hook_start();
    os_report_crashes(report_crash);
    start_catching();
    if (other_is_on())
        os_malloc_start();
    log_start();
    if (has_sites)
        heap_watch_sites();
    else if (hak_cxx_personality == NULL && option_text(OPT_TUNE)[0] == '\0') /* tunables are by class */
        heap_share_classes();
    region_freeze();
}

__attribute__((destructor(101))) static void at_end(void) {
    hook_end();
    fail_program_is_over(true); /* last, because these may abort the program */
    tiny_check_at_exit();
    hook_last_checks();
    fail_program_is_over(false);
}
