/* See nodes.h. */
/* SPDX-License-Identifier: MIT */
#include "machine/nodes.h"
#include "base/os.h"
#include "base/scratch.h"
#include "base/text.h"

const char *nodes_root = "";
static _Atomic unsigned nodes_known; /* 0: not looked at yet. The first compare-and-swap wins; it releases the table */
/* By processor. Constant once `nodes_known` is not 0; nobody reads it where there is one node. */
static HAK_APART uint8_t node_table[PROCESSORS_MAX];

/* Most machines have no second node, and then nothing else has to be read. */
static bool has_second_node(void) {
    int folder = os_open_input("/sys/devices/system/node/node1");
    if (folder >= 0)
        os_close(folder);
    return folder >= 0;
}

/* What the node's file says, "0-3,8-11" or the like. False: there is no such node. */
HAK_COLD static bool read_processors(unsigned node, char *list, size_t bytes) {
    char path[256];
    struct text t = {path, sizeof path - 1, 0, -1};
    text_format(&t, "%s/sys/devices/system/node/node%u/cpulist", nodes_root, (uint64_t)node);
    path[min_size(t.length, t.bytes)] = '\0';
    return os_read_file(path, list, bytes) != 0;
}

/* Reads the number at *at, and moves *at behind it. A number that is too large counts as PROCESSORS_MAX. */
HAK_COLD static unsigned number_at(const char **at) {
    unsigned n = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        n = (unsigned)min_size(n * 10 + (unsigned)(**at - '0'), PROCESSORS_MAX);
    return n;
}

/* Returns whether there are any. */
HAK_COLD HAK_WRITES_SAME_VALUES static bool note_processors(const char *at, unsigned node, uint8_t *of_processor) {
    bool any = *at >= '0' && *at <= '9';
    while (*at >= '0' && *at <= '9') {
        unsigned first = number_at(&at), last = first;
        if (*at == '-' && (++at, true))
            last = number_at(&at);
        for (; first <= last && first < PROCESSORS_MAX; first++)
            of_processor[first] = (uint8_t)node;
        at += *at == ',';
    }
    return any;
}

HAK_COLD unsigned nodes_read(uint8_t of_processor[PROCESSORS_MAX]) {
    char *list = scratch_take();
    unsigned count = 1;
    for (unsigned node = 0; list != NULL && node < NODES_MAX && read_processors(node, list, SCRATCH_BYTES); node++)
        if (note_processors(list, node, of_processor))
            count = node + 1;
    if (list != NULL)
        scratch_give(list);
    return count;
}

HAK_COLD HAK_WRITES_SAME_VALUES static unsigned pretend(unsigned count) {
    for (unsigned i = 0; i < PROCESSORS_MAX; i++)
        node_table[i] = (uint8_t)(i % count);
    return count;
}

static unsigned look(void) {
    return has_second_node() && os_knows_processor() && !os_places_memory() ? nodes_read(node_table) : 1;
}

void nodes_init(unsigned wanted) {
    unsigned none = 0;
    if (load_acquire(&nodes_known) == 0)
        rmw_cas(&nodes_known, &none, wanted == 0 ? look() : wanted == 1 ? 1 : pretend(wanted));
}

unsigned nodes_count(void) { return load_acquire(&nodes_known); }

unsigned nodes_here(void) {
    unsigned processor = os_processor(), node = processor < PROCESSORS_MAX ? node_table[processor] : 0;
    return node < nodes_count() ? node : 0;
}
