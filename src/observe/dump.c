/* See dump.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/dump.h"
#include "base/os.h"
#include "base/text.h"
#include "observe/profile.h"
#include "observe/stats.h"

#include <errno.h>
#include <signal.h>

#define PEAK_STEP 8 /* a peak counts as new when it is higher by an eighth */
#define PEAK_STEP_BYTES MIB

/* Any thread reads and writes these words. Each stands for itself: after reading an old value a thread dumps too early
 * or too late. */
static struct {
    _Atomic uint32_t number;   /* dumps so far; %n in names */
    _Atomic uint32_t begun_ms; /* when the last dump began; before the first, when the program did */
    _Atomic uint64_t live_bytes,
        peak_bytes;                 /* estimates from live samples: the minimum since then; the peak until then */
    _Atomic uint64_t written_bytes; /* to all files */
    /* Process numbers, because a child forked during a dump goes on by itself: which process is writing a dump, or 0;
     * which one has written its last files. Each pairs with itself. */
    _Atomic uint32_t writer, ended;
} dumps;

static bool dump_claim(void) {
    uint32_t own = os_process(), writer = load_relaxed(&dumps.writer);
    return writer != own && rmw_cas(&dumps.writer, &writer, own);
}

/* Returns the number of the dump that begins now. Intervals and growth count from here. */
static uint32_t dump_begin(void) {
    store_relaxed(&dumps.begun_ms, os_now_ms());
    store_relaxed(&dumps.live_bytes, load_relaxed(&hak_profile.live_bytes));
    store_relaxed(&dumps.peak_bytes, load_relaxed(&hak_profile.most_bytes));
    return rmw_add(&dumps.number, 1) + 1;
}

static struct end_file profile_at_end = {{-1, 0, 0}, 0}; /* of PROFILE_FILE */

static bool dump_profile_named(const char *pattern, enum output_name name, uint32_t number, const char *moment) {
    int fd = text_begin_output(&profile_at_end, pattern, name, number);
    bool written = fd >= 0 && profile_write(fd, moment);
    rmw_add(&dumps.written_bytes, text_end_output(&profile_at_end, fd));
    return written;
}

/* Writes to the file that the option names. The option must not be empty. */
static void dump_profile_for(enum option o, enum output_name name, uint32_t number, const char *moment) {
    if (!dump_profile_named(option_text(o), name, number, moment))
        text_line("hakmem: cannot write HAKMEM_%s=%s", option_name(o), option_text(o));
}

static bool dump_has_room(void) { return load_relaxed(&dumps.written_bytes) < option(OPT_DUMP_BYTES); }

static void dump_all(const char *moment) {
    if (!dump_has_room() || !dump_claim())
        return;
    uint32_t number = dump_begin();
    if (load_acquire(&hak_profile.stacks) != NULL) {
        if (option_text(OPT_PROFILE_FILE)[0] != '\0')
            dump_profile_for(OPT_PROFILE_FILE, NAME_NUMBERED, number, moment);
        else if (!dump_profile_named("hakmem.%p.%n.heap", NAME_NUMBERED, number, moment))
            text_line("hakmem: cannot write a profile into the working directory; HAKMEM_PROFILE_FILE names another");
    }
    rmw_add(&dumps.written_bytes, stats_write(NAME_NUMBERED, number));
    store_release(&dumps.writer, 0);
}

/* ---- moments ---- */

static const char *dump_due_for(uint32_t age_ms) {
    uint64_t live = load_relaxed(&hak_profile.live_bytes), min = load_relaxed(&dumps.live_bytes);
    uint64_t peak = load_relaxed(&hak_profile.most_bytes), peak_before = load_relaxed(&dumps.peak_bytes);
    uint64_t interval = option(OPT_DUMP_INTERVAL_MS), growth = option(OPT_DUMP_GROWTH_BYTES);
    if (live < min)
        store_relaxed(&dumps.live_bytes, live);
    if (interval != 0 && age_ms >= interval)
        return "interval";
    if (load_relaxed(&dumps.number) != 0 && age_ms < option(OPT_DUMP_PAUSE_MS))
        return NULL;
    if (growth != 0 && live > min && live - min >= growth)
        return "growth";
    if (option(OPT_DUMP_PEAK) && peak >= peak_before + max_size(peak_before / PEAK_STEP, PEAK_STEP_BYTES))
        return "peak";
    return NULL;
}

void dump_if_due(void) {
    const char *moment = dump_due_for(os_age_ms(os_now_ms(), load_relaxed(&dumps.begun_ms)));
    if (moment != NULL)
        dump_all(moment);
}

void dump_at_soft_limit(void) {
    if (!dump_has_room() || !dump_claim())
        return;
    dump_profile_for(OPT_SOFT_LIMIT_PROFILE, NAME_NUMBERED, dump_begin(), "soft limit");
    store_release(&dumps.writer, 0);
}

int dump_profile(const char *path) {
    return dump_profile_named(path, NAME_EXACT, rmw_add(&dumps.number, 1) + 1, "call") ? 0 : EIO;
}

void dump_at_end(const char *moment) {
    bool has_file = option_text(OPT_PROFILE_FILE)[0] != '\0';
    if (option(OPT_STATS) == STATS_OFF && !has_file)
        return;
    uint32_t number = load_relaxed(&dumps.number) + 1, own = os_process();
    if (rmw_swap(&dumps.ended, own) == own)
        return;
    if (option(OPT_STATS) != STATS_OFF)
        stats_write(NAME_PROCESS, number);
    if (has_file && (option(OPT_PROFILE) || load_acquire(&hak_profile.stacks) != NULL))
        dump_profile_for(OPT_PROFILE_FILE, NAME_PROCESS, number, moment);
}

/* ---- signals ---- */

static void on_dump_signal(int signal_number) {
    (void)signal_number;
    dump_all("signal");
}

static void on_end_signal(int signal_number) {
    dump_at_end("SIGTERM");
    os_end_by(signal_number);
}

bool dump_start(void) {
    uint64_t signal_number = option(OPT_DUMP_SIGNAL);
    store_relaxed(&dumps.begun_ms, os_now_ms());
    if (signal_number != 0 && !os_on_signal((int)signal_number, false, on_dump_signal) &&
        option_may_complain(OPT_DUMP_SIGNAL))
        text_line("hakmem: HAKMEM_DUMP_SIGNAL=%u: this signal has no handlers", signal_number);
    if (option_text(OPT_PROFILE_FILE)[0] != '\0' && option(OPT_PROFILE))
        text_open_end_file(&profile_at_end, option_text(OPT_PROFILE_FILE));
    if (option_text(OPT_PROFILE_FILE)[0] != '\0' || option(OPT_STATS))
        os_on_signal(SIGTERM, true, on_end_signal);
    return option(OPT_PROFILE);
}
