/* scaling [SIZE]: 100,000, 500,000, then 1,000,000 blocks of 16 B, allocated and freed; RSS while live and after.
 *
 * The program maps the array of pointers itself and counts it as its data. Overhead is RSS minus RSS at the start minus
 * data. RSS is taken again one idle second after the last free. An operation is one malloc or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

static struct argument args[] = {{"SIZE", 16, 4, 1u << 20}};

int main(int argc, char **argv) {
    static const size_t phases[] = {100000, 500000, 1000000};
    ARGUMENTS_READ(argc, argv, args);
    size_t size = args[0].value;
    (void)rss_bytes(); /* touches its own pages, which would count otherwise */
    uint64_t at_start = rss_bytes(), operations = 0;
    double seconds = 0;

    report_value("rss_start_bytes", at_start);
    for (size_t phase = 0; phase < sizeof phases / sizeof phases[0]; phase++) {
        size_t count = phases[phase];
        uint32_t **blocks = pages_map(count * sizeof *blocks);
        double start = now_seconds();
        for (size_t i = 0; i < count; i++) {
            blocks[i] = must(malloc(size));
            *blocks[i] = (uint32_t)i;
        }
        seconds += now_seconds() - start;

        uint64_t live = rss_bytes(), data = count * (size + sizeof *blocks);
        char key[64];
        snprintf(key, sizeof key, "rss_live_%zu_bytes", count);
        report_value(key, live);
        snprintf(key, sizeof key, "data_%zu_bytes", count);
        report_value(key, data);
        snprintf(key, sizeof key, "overhead_%zu_bytes", count);
        report_value(key, live > at_start + data ? live - at_start - data : 0);

        start = now_seconds();
        for (size_t i = 0; i < count; i++) {
            if (*blocks[i] != (uint32_t)i)
                fail(3, "a block does not hold what was written into it");
            free(blocks[i]);
        }
        seconds += now_seconds() - start;
        operations += 2 * count;
        munmap(blocks, count * sizeof *blocks);
    }
    uint64_t freed = rss_bytes();
    rest_ms(1000);
    uint64_t after = rss_bytes();
    report_value("rss_freed_bytes", freed);
    report_value("rss_after_1s_bytes", after);
    report_value("kept_after_1s_bytes", after > at_start ? after - at_start : 0);
    report_speed(operations, seconds);
}
