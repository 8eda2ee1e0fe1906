/* producer_consumer SIZE BLOCKS: one thread allocates, another frees; blocks travel through a ring of 1,024 places.
 *
 * An operation is one block: a malloc here and a free there. */
#include "workload.h"

enum { SIZE, BLOCKS };

static struct argument args[] = {{"SIZE", 64, 1, 1u << 30}, {"BLOCKS", 5000000, 1, 0}};
static struct handover ring;

static void *consume(void *argument) {
    (void)argument;
    for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
        unsigned char *block = handover_take(&ring);
        tag_check(block, args[SIZE].value, (uint32_t)i);
        free(block);
    }
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    pthread_t consumer = thread_start(consume, NULL);
    double start = now_seconds();
    for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
        unsigned char *block = must(malloc(args[SIZE].value));
        tag_write(block, args[SIZE].value, (uint32_t)i);
        handover_give(&ring, block);
    }
    pthread_join(consumer, NULL);
    report_speed(args[BLOCKS].value, now_seconds() - start);
}
