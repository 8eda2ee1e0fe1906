/* One mistake, which the sanitizer of this build must find: else what it says of all other tests means nothing. Without
 * a sanitizer each of them ends well. */
/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int shared;

static void *count(void *unused) {
    for (int i = 0; i < 1000; i++)
        shared++;
    return unused;
}

static void race(void) {
    pthread_t other;
    pthread_create(&other, NULL, count, NULL);
    count(NULL);
    pthread_join(other, NULL);
}

static void overflow(void) {
    char text[8];
    volatile size_t end = sizeof text;
    ((volatile char *)text)[end] = 1;
}

static void freed(void) {
    volatile char *block = malloc(8);
    free((void *)block);
    block[0] = 1;
}

static void undefined(void) {
    volatile int most = INT_MAX;
    most = most + 1;
}

int main(int argc, char **argv) {
    const char *mistake = argc > 1 ? argv[1] : "";
    if (strcmp(mistake, "race") == 0)
        race();
    if (strcmp(mistake, "overflow") == 0)
        overflow();
    if (strcmp(mistake, "freed") == 0)
        freed();
    if (strcmp(mistake, "undefined") == 0)
        undefined();
    return 0;
}
