/* In a static program there is no table of names: once it has begun, setting a signal's handler takes no lock of the
 * dynamic linker's, which a thread may have held as the process forked. Linked with --wrap=dl_iterate_phdr. */
/* SPDX-License-Identifier: MIT */
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

typedef int visitor(struct dl_phdr_info *, size_t, void *);
int __real_dl_iterate_phdr(visitor *, void *); /* NOLINT: the linker's names */
int __wrap_dl_iterate_phdr(visitor *, void *); /* NOLINT */
static unsigned visits;

int __wrap_dl_iterate_phdr(visitor *visit, void *data) { /* NOLINT */
    visits++;
    return __real_dl_iterate_phdr(visit, data);
}

static void *nothing(void *unused) { return unused; }

int main(void) {
    unsigned before = visits;
    struct sigaction action;
    pthread_t thread;
    if (sigaction(SIGUSR1, NULL, &action) != 0 || signal(SIGUSR2, SIG_IGN) == SIG_ERR ||
        pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    if (before == 0 || visits != before) {
        fprintf(stderr, "%u looks before main, %u in it\n", before, visits - before);
        return 1;
    }
    puts("ok");
    return 0;
}
