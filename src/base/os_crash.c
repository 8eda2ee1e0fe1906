/* See os_crash.h. */
/* SPDX-License-Identifier: MIT */
#include "base/os_crash.h"
#include "base/os.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGABRT};
enum { CRASH_SIGNALS = sizeof crash_signals / sizeof crash_signals[0] };
enum { ENTRIES = 64, ENTRY_BYTES = 16 };

/* What an entry stands for, in one word: the handler, what was added to its flags, and that the entry is taken. */
enum { ENTRY_TAKEN = 1, ADDED_INFO = 2, ADDED_STACK = 4, ADDED_RESTORER = 8, HANDLER_SHIFT = 4 };
enum { RESTORER = 0x04000000 }; /* glibc sets it on x86 */

static struct {
    _Atomic uintptr_t meaning[ENTRIES]; /* 0: free. Set once, by a compare-and-swap that pairs with itself */
    _Atomic(os_crash_report *) report;  /* released before the first signal can come; pairs with hak_crash_arrived */
    _Atomic uint64_t caught;            /* bit n: signal n. Stands for itself */
    _Atomic uint32_t reported[CRASH_SIGNALS]; /* the process that has reported one; 0: none. Stands for itself */
} crash;

/* The entries: each passes its own address on, as a fourth argument. */
extern const char hak_crash_entries[] HAK_HIDDEN;
HAK_HIDDEN void hak_crash_arrived(int signal_number, siginfo_t *info, void *context, uintptr_t code);
_Static_assert(ENTRIES == 64 && ENTRY_BYTES == 16, "as below");
__asm__(".text\n\t.p2align 4\n\t.globl hak_crash_entries\n\t.hidden hak_crash_entries\n"
        "hak_crash_entries:\n\t.cfi_startproc\n\t.rept 64\n\t.p2align 4\n\t"
#if defined(__x86_64__)
        "endbr64\n\tleaq 0(%rip), %rcx\n\tjmp hak_crash_arrived\n\t"
#elif defined(__aarch64__)
        "hint #34\n\tadr x3, .\n\tb hak_crash_arrived\n\t"
#else
        ".option push\n\t.option norelax\n\tauipc a3, 0\n\ttail hak_crash_arrived\n\t.option pop\n\t"
#endif
        ".endr\n\t.cfi_endproc\n\t.size hak_crash_entries, .-hak_crash_entries");

/* ---- libc's own ---- */

#if defined(__GLIBC__)
os_set_action __sigaction; /* NOLINT: its name. The library puts another function in the place of sigaction */
#else
#define __sigaction sigaction
#endif

static int set_action(int signal_number, const struct sigaction *action, struct sigaction *before) {
    os_set_action *set = HAK_IS_SANITIZED ? sigaction : __sigaction; /* the sanitizer has to know */
    return set(signal_number, action, before);
}

void os_end_by(int signal_number) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    set_action(signal_number, &action, NULL);
    raise(signal_number);
}

bool os_on_signal(int signal_number, bool at_default, void (*act)(int signal_number)) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = act;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    if (at_default && (set_action(signal_number, NULL, &before) != 0 || before.sa_handler != SIG_DFL))
        return false;
    return set_action(signal_number, &action, NULL) == 0;
}

/* ---- entries ---- */

/* The number of the entry that lies there; ENTRIES: none does. */
static unsigned entry_at(uintptr_t code) {
    uintptr_t offset = code - (uintptr_t)hak_crash_entries;
    return offset < ENTRIES * ENTRY_BYTES ? (unsigned)(offset / ENTRY_BYTES) : ENTRIES;
}

static unsigned entry_for(uintptr_t meaning) {
    for (unsigned i = 0; i < ENTRIES; i++) {
        uintptr_t had = load_relaxed(&crash.meaning[i]);
        if (had == meaning || (had == 0 && (rmw_cas(&crash.meaning[i], &had, meaning) || had == meaning)))
            return i;
    }
    return ENTRIES;
}

static unsigned number_of(int signal_number) {
    unsigned i = 0;
    while (i + 1 < CRASH_SIGNALS && crash_signals[i] != signal_number)
        i++;
    return i;
}

/* Puts an entry in the handler's place, unless the signal is to be ignored, or to end the program after a report.
 * `added`: to the flags, beside what is added here. */
static bool put_entry(int signal_number, struct sigaction *action, uintptr_t added) {
    uintptr_t handler = (uintptr_t)action->sa_sigaction, meaning = ENTRY_TAKEN | added | handler << HANDLER_SHIFT;
    bool is_default = action->sa_handler == SIG_DFL;
    if (action->sa_handler == SIG_IGN || action->sa_handler == SIG_ERR || entry_at(handler) < ENTRIES ||
        (is_default && load_relaxed(&crash.reported[number_of(signal_number)]) == os_process()))
        return false;
    meaning |= action->sa_flags & SA_SIGINFO ? 0 : ADDED_INFO;
    meaning |= !is_default || action->sa_flags & SA_ONSTACK ? 0 : ADDED_STACK;
    unsigned i = entry_for(meaning);
    if (i == ENTRIES)
        return false;
    action->sa_sigaction = (void (*)(int, siginfo_t *, void *))((uintptr_t)hak_crash_entries + i * ENTRY_BYTES);
    action->sa_flags |= SA_SIGINFO | (is_default ? SA_ONSTACK : 0);
    return true;
}

/* Back to what the program has set. */
static void take_entry(struct sigaction *action) {
    unsigned i = entry_at((uintptr_t)action->sa_sigaction);
    if (i == ENTRIES)
        return;
    uintptr_t meaning = load_relaxed(&crash.meaning[i]);
    action->sa_sigaction = (void (*)(int, siginfo_t *, void *))(meaning >> HANDLER_SHIFT); /* NOLINT: a function */
    action->sa_flags &= ~((meaning & ADDED_INFO ? SA_SIGINFO : 0) | (meaning & ADDED_STACK ? SA_ONSTACK : 0) |
                          (meaning & ADDED_RESTORER ? RESTORER : 0));
}

bool os_crash_is_caught(int signal_number) {
    return (unsigned)signal_number < 64 && load_relaxed(&crash.caught) >> signal_number & 1;
}

int os_crash_set_action(os_set_action *set, int signal_number, const struct sigaction *action,
                        struct sigaction *before) {
    struct sigaction with_entry, had;
    if (action != NULL) {
        with_entry = *action;
        put_entry(signal_number, &with_entry, 0);
    }
    int result = set(signal_number, action != NULL ? &with_entry : NULL, before != NULL ? &had : NULL);
    if (result == 0 && before != NULL) {
        take_entry(&had);
        *before = had;
    }
    return result;
}

/* ---- a signal ---- */

static uintptr_t fault_code(const void *context) {
#if defined(__x86_64__)
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc;
#else
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.__gregs[REG_PC];
#endif
}

static const char *fault_access(const void *context) {
#if defined(__x86_64__)
    return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#else
    (void)context;
    return "access";
#endif
}

/* Reports, then does what the program wants. Its handler is called as the kernel would call it, and returns where
 * that does. */
HAK_KEPT void hak_crash_arrived(int signal_number, siginfo_t *info, void *context, uintptr_t code) {
    int saved = errno;
    uintptr_t meaning = load_relaxed(&crash.meaning[entry_at(code)]);
    void (*handler)(int, siginfo_t *, void *) =
        (void (*)(int, siginfo_t *, void *))(meaning >> HANDLER_SHIFT); /* NOLINT */
    os_crash_report *report = load_acquire(&crash.report);
    bool has_address = info->si_code > 0 && signal_number != SIGABRT; /* it was the kernel, not another process */
    if (report != NULL &&
        report(signal_number, has_address ? info->si_addr : NULL, fault_access(context), fault_code(context)))
        store_relaxed(&crash.reported[number_of(signal_number)], os_process());
    errno = saved;
    if (handler == NULL) {
        os_end_by(signal_number);
        return;
    }
    handler(signal_number, info, context);
}

void os_report_crashes(os_crash_report *report) { store_release(&crash.report, report); }

/* Puts an entry in the place of what the program has set. What another thread sets in between is what counts: then that
 * is put back, with an entry, until nothing but ours was replaced. */
static void catch_signal(int signal_number) {
    struct sigaction action, replaced;
    if (set_action(signal_number, NULL, &replaced) != 0)
        return;
    action = replaced;
    if (!put_entry(signal_number, &action, action.sa_flags & RESTORER ? 0 : ADDED_RESTORER))
        return;
    void (*expected)(int, siginfo_t *, void *) = replaced.sa_sigaction;
    while (set_action(signal_number, &action, &replaced) == 0 && replaced.sa_sigaction != expected) {
        expected = action.sa_sigaction;
        action = replaced;
        put_entry(signal_number, &action, action.sa_flags & RESTORER ? 0 : ADDED_RESTORER);
    }
}

void os_catch_crashes(bool all) {
    int saved = errno;
    for (unsigned i = 0; i < (all ? CRASH_SIGNALS : 1); i++) {
        uint64_t bit = (uint64_t)1 << crash_signals[i];
        if (!(rmw_or(&crash.caught, bit) & bit))
            catch_signal(crash_signals[i]);
    }
    errno = saved;
}
