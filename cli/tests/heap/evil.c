/* A program that lies in the tables that other processes read of it. A line "FACT: VALUE BYTES" changes a fact, "reset"
 * takes all lies back, "silence" makes the next reader wait without end; each is answered by "done". "facts" lists all
 * as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fact {
    char name[40];
    uint64_t value, bytes;
};
struct inspect {
    char magic[16];
    uint32_t version, facts_count, places_count, unused;
    struct fact *facts;
    const void *places;
};
extern struct inspect hak_inspect; /* the library is linked in: this is its own */

/* The table of facts where nobody ever answers the fault of whoever reads it. 0: the kernel does not let this
 * program. */
static int silence(void) {
    const size_t bytes = 1 << 20;
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
        return 0;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register place = {.range = {(uintptr_t)at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (at == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &place) != 0)
        return 0;
    hak_inspect.facts = at;
    return 1;
}

int main(void) {
    char line[256], name[64];
    uint64_t value, bytes;
    size_t size = hak_inspect.facts_count * sizeof(struct fact);
    struct fact *truth = hak_inspect.facts, *lies = malloc(size);
    memcpy(lies, truth, size);
    hak_inspect.facts = lies;
    void *blocks[1000];
    for (int i = 0; i < 1000; i++)
        blocks[i] = malloc(1 + i * 37 % 5000);
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "facts\n") == 0)
            for (uint32_t i = 0; i < hak_inspect.facts_count; i++)
                printf("%s: %" PRIu64 " %" PRIu64 "\n", truth[i].name, truth[i].value, truth[i].bytes);
        else if (strcmp(line, "silence\n") == 0)
            printf("%s\n", silence() ? "silent" : "no");
        else if (strcmp(line, "reset\n") == 0)
            memcpy(lies, truth, size);
        else if (sscanf(line, "%63[^:]: %" SCNu64 " %" SCNu64, name, &value, &bytes) == 3)
            for (uint32_t i = 0; i < hak_inspect.facts_count; i++)
                if (strcmp(lies[i].name, name) == 0)
                    lies[i].value = value, lies[i].bytes = bytes;
        printf("done\n");
        fflush(stdout);
    }
    free(blocks[0]);
}
