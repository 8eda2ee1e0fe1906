/* A program sets a handler while the library begins to catch crashes, which it may do at any moment
 * (GUARD_SAMPLE_BYTES). If it fails, the handler is lost: the program ends where it would go on. */
/* SPDX-License-Identifier: MIT */
#include <signal.h>

static int stand_in(int signal_number, const struct sigaction *action, struct sigaction *before);
#define __sigaction stand_in /* NOLINT: libc's, which the source calls */
#include "base/os_crash.c"

#include <stdio.h>

static struct sigaction current; /* of SIGSEGV, as the kernel has it */
static int kernel(int signal_number, const struct sigaction *action, struct sigaction *before) {
    struct sigaction had = current;
    (void)signal_number;
    if (action != NULL)
        current = *action;
    if (before != NULL)
        *before = had;
    return 0;
}

static void first(int signal_number) { (void)signal_number; }
static void second(int signal_number) { (void)signal_number; }
static const struct sigaction others[] = {{.sa_handler = first}, {.sa_handler = second}};
static unsigned set_by_others, most_by_others;

/* Another thread is faster each time. */
static int stand_in(int signal_number, const struct sigaction *action, struct sigaction *before) {
    if (action != NULL && set_by_others < most_by_others)
        os_crash_set_action(kernel, signal_number, &others[set_by_others++], NULL);
    return kernel(signal_number, action, before);
}

int main(void) {
    for (most_by_others = 0; most_by_others < 3; most_by_others++) {
        struct sigaction has;
        memset(&current, 0, sizeof current);
        store_relaxed(&crash.caught, 0);
        set_by_others = 0;
        os_catch_crashes(false);
        bool is_caught = entry_at((uintptr_t)current.sa_sigaction) < ENTRIES;
        os_crash_set_action(kernel, SIGSEGV, NULL, &has);
        if (!is_caught || has.sa_handler != (most_by_others == 0 ? SIG_DFL : others[most_by_others - 1].sa_handler)) {
            printf("a handler is lost: %u were set meanwhile\n", most_by_others);
            return 1;
        }
    }
    puts("ok");
    return 0;
}
