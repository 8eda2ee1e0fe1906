/* day SHAPE [SCALE_PERCENT] [SEED]: one of thirteen shapes of programs: a fixed amount of work, and the rests between.
 *
 *   0 bursts    work in bursts: all of a burst is freed, then a rest
 *   1 swings    a heap that swings between a fifth and all of its size
 *   2 drift     a cache whose sizes drift from small to large and back
 *   3 pipeline  two producers and two consumers, batch by batch
 *   4 pools     pools of threads that come, work and go
 *   5 vectors   threads whose vectors grow to 32 MiB
 *   6 requests  workers with sessions that serve requests, with quiet times
 *   7 compiler  units of translation: nodes, arenas and tables, all freed at the end of each
 *   8 hours     an hour of load and one of rest, by turns
 *   9 tensors   layers forward and backward, of 1 to 24 MiB
 *  10 refill    large blocks: fill, free all, fill again
 *  11 leftovers each hour has sizes of its own; one block in 20 stays
 *  12 service   workers that serve requests from caches, an import beside them, and the evening's rest
 *
 * SCALE_PERCENT scales the bytes, the operations and the rests. `./hak bench area` runs the first dozen, from
 * bench/suites/area.toml, and `./hak run` the service, from service.toml. An operation is one malloc or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { SHAPE, SCALE_PERCENT, SEED };
enum { SHAPES = 13, THREADS_MAX = 4, BLOCK_BYTES_MIN = 24, PAGE = 4096 };

static struct argument args[] = {{"SHAPE", 0, 0, SHAPES - 1}, {"SCALE_PERCENT", 100, 1, 1000}, {"SEED", 42, 0, 0}};

static uint64_t scaled(uint64_t amount) { return amount * args[SCALE_PERCENT].value / 100; }
static uint64_t mib(uint64_t count) { return scaled(count << 20); }
static void rest(unsigned ms) { rest_ms((unsigned)scaled(ms)); }

/* ---- bags of blocks ---- */

/* A thread's blocks. The slots lie in memory of the program's own. */
struct bag {
    struct slot *slots;
    size_t used, room;
    uint64_t bytes, random, operations;
};

static struct bag bags[THREADS_MAX];

static void touch(unsigned char *block, size_t from, size_t size) {
    for (size_t at = from + PAGE; at + 8 < size; at += PAGE)
        block[at] = (unsigned char)(at / PAGE | 1); /* not zero, as what programs write seldom is */
}

static void add(struct bag *bag, size_t size) {
    if (bag->used == bag->room)
        fail(1, "a bag is full");
    struct slot *slot = &bag->slots[bag->used++];
    slot_fill(slot, size, (uint32_t)bag->operations++);
    touch(slot->block, 0, size);
    bag->bytes += size;
}

/* The last one takes its place. */
static void drop(struct bag *bag, size_t at) {
    struct slot *slot = &bag->slots[at];
    bag->bytes -= slot->size;
    bag->operations++;
    slot_clear(slot);
    *slot = bag->slots[--bag->used];
}

static uint32_t between(struct bag *bag, uint32_t least, uint32_t most) {
    return least + random_below(&bag->random, most - least + 1);
}

/* Mostly small; one in 60 is up to 95 KB. */
static uint32_t mixed(struct bag *bag) {
    return random_below(&bag->random, 60) == 0 ? between(bag, 5000, 95000) : between(bag, 16, 3000);
}

/* Until the bag holds so much. */
static void fill(struct bag *bag, uint64_t bytes, uint32_t least, uint32_t most) {
    while (bag->bytes < bytes)
        add(bag, between(bag, least, most));
}

/* In random order, until the bag holds so much. */
static void thin(struct bag *bag, uint64_t bytes) {
    while (bag->bytes > bytes)
        drop(bag, random_below(&bag->random, (uint32_t)bag->used));
}

static void replace(struct bag *bag, uint64_t times, uint32_t least, uint32_t most) {
    while (times-- > 0 && bag->used > 0) {
        drop(bag, random_below(&bag->random, (uint32_t)bag->used));
        add(bag, between(bag, least, most));
    }
}

/* In the order of allocation. */
static void empty(struct bag *bag) {
    slots_clear(bag->slots, bag->used);
    bag->operations += bag->used;
    bag->used = 0;
    bag->bytes = 0;
}

/* ---- one thread ---- */

static void bursts(struct bag *bag) {
    for (int round = 0; round < 8; round++) {
        while (bag->bytes < mib(100))
            add(bag, mixed(bag));
        empty(bag);
        rest(400);
    }
}

static void swings(struct bag *bag) {
    for (int round = 0; round < 14; round++) {
        fill(bag, mib(120), 16, 2000);
        thin(bag, mib(20));
        rest(150);
    }
}

static void drift(struct bag *bag) {
    enum { CYCLES = 2, STEPS = 128, CYCLE_BITS = 7 };
    for (unsigned step = 0; step < CYCLES * STEPS; step++) {
        unsigned at = step % STEPS, up = at < STEPS / 2 ? at : STEPS - at; /* 0 … 64 … 0 */
        uint32_t middle = 64u << up * CYCLE_BITS / (STEPS / 2);            /* 64 B … 8 KiB … 64 B */
        for (uint64_t left = mib(2); left > middle * 2; left -= middle) {
            add(bag, between(bag, middle / 2, middle * 3 / 2));
            thin(bag, mib(48));
        }
        rest(16);
    }
}

static void hours(struct bag *bag) {
    for (int hour = 0; hour < 3; hour++) {
        fill(bag, mib(150), 16, 8000);
        replace(bag, scaled(300000), 16, 8000);
        thin(bag, mib(8));
        rest(1000);
    }
}

static void refill(struct bag *bag) {
    static const struct { uint32_t size, count; } kinds[] = {{40000, 2000}, {200 << 10, 400}, {3 << 20, 30}};
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int round = 0; round < 10; round++) {
            for (uint64_t left = scaled(kinds[kind].count); left > 0; left--)
                add(bag, kinds[kind].size);
            empty(bag);
            rest(50);
        }
}

static void leftovers(struct bag *bag) {
    static const uint32_t sizes[][2] = {{24, 64}, {300, 900}, {100, 300}, {2000, 9000}, {24, 200}, {1000, 3000}};
    for (unsigned hour = 0; hour < sizeof sizes / sizeof *sizes; hour++) {
        uint64_t before = bag->bytes;
        fill(bag, before + mib(80), sizes[hour][0], sizes[hour][1]);
        thin(bag, before + mib(4));
        rest(400);
    }
}

/* Appends to vectors by turns; each doubles when it is full. */
static void grow(struct bag *bag, uint64_t most) {
    enum { VECTORS = 6 };
    unsigned char *vectors[VECTORS] = {NULL};
    for (size_t room = 64; room <= most; room *= 2)
        for (int i = 0; i < VECTORS; i++, bag->operations++) {
            vectors[i] = must(realloc(vectors[i], room));
            tag_write(vectors[i], room, (uint32_t)i);
            touch(vectors[i], room / 2, room);
        }
    for (int i = 0; i < VECTORS; i++, bag->operations++)
        free(vectors[i]);
}

static void compiler(struct bag *bag) {
    for (int unit = 0; unit < 10; unit++) {
        uint64_t **table = must(calloc(64, sizeof *table)), entries = 0;
        for (size_t room = 64, added = 0; bag->bytes < mib(50); added++) {
            uint32_t kind = random_below(&bag->random, 400);
            add(bag, kind == 0 ? 65536 : kind < 40 ? between(bag, 400, 4000) : between(bag, 24, 200));
            table[added % room] = (uint64_t *)bag->slots[bag->used - 1].block;
            if (++entries < room || room >= 1 << 19)
                continue;
            uint64_t **larger = must(calloc(room * 2, sizeof *larger));
            memcpy(larger, table, room * sizeof *table);
            free(table);
            table = larger;
            room *= 2;
            bag->operations += 2;
        }
        free(table);
        empty(bag);
        rest(300);
    }
}

static void tensors(struct bag *bag) {
    enum { LAYERS = 20 };
    for (int epoch = 0; epoch < 8; epoch++) {
        for (int layer = 0; layer < LAYERS; layer++)
            add(bag, scaled((uint64_t)between(bag, 1 << 20, layer % 4 == 0 ? 24 << 20 : 6 << 20)) + PAGE);
        while (bag->used > 0) {
            size_t size = bag->slots[bag->used - 1].size;
            unsigned char *gradient = must(calloc(1, size));
            touch(gradient, 0, size);
            drop(bag, bag->used - 1);
            free(gradient);
            bag->operations += 2;
        }
        rest(300);
    }
}

/* ---- threads ---- */

static int pipes[2][2]; /* of each pair; by packets, so that nobody waits in a loop, which would count as work */

enum { PACKET = 64 };

static void produce(struct bag *bag, int to, uint64_t packets) {
    void *packet[PACKET];
    for (; packets > 0; packets--, bag->operations += PACKET) {
        for (int i = 0; i < PACKET; i++) {
            size_t size = between(bag, 64, 3000);
            tag_write(packet[i] = must(malloc(size)), size, (uint32_t)size);
        }
        if (write(to, packet, sizeof packet) != sizeof packet) /* as one, since it is shorter than PIPE_BUF */
            fail(1, "write failed");
    }
}

/* A consumer keeps what came last. */
static void consume(struct bag *bag, int from, uint64_t packets) {
    uint64_t window = scaled(300) + 1;
    void *(*kept)[PACKET] = (void *(*)[PACKET])bag->slots;
    for (uint64_t at = 0; at < packets + window; at++, bag->operations += PACKET) {
        void **packet = kept[at % window];
        for (int i = 0; at >= window && i < PACKET; i++)
            free(packet[i]);
        if (at < packets && read(from, packet, sizeof *kept) != sizeof *kept)
            fail(1, "read failed");
        if (at >= packets)
            memset(packet, 0, sizeof *kept);
    }
}

static void *pipeline_work(void *argument) {
    struct worker *worker = argument;
    worker_start(worker);
    int *ends = pipes[worker->index / 2];
    if (worker->index % 2 == 0)
        produce(&bags[worker->index], ends[1], scaled(2000));
    else
        consume(&bags[worker->index], ends[0], scaled(2000));
    worker_end(worker);
    return NULL;
}

static void *pool_work(void *argument) {
    struct worker *worker = argument;
    struct bag *bag = &bags[worker->index];
    worker_start(worker);
    fill(bag, mib(10), 16, 2000);
    replace(bag, scaled(40000), 16, 2000);
    empty(bag);
    worker_end(worker);
    return NULL;
}

static void *vector_work(void *argument) {
    struct worker *worker = argument;
    worker_start(worker);
    grow(&bags[worker->index], mib(worker->index == 0 ? 32 : 8));
    worker_end(worker);
    return NULL;
}

static void serve(struct bag *bag) {
    size_t sessions = bag->used;
    for (uint64_t request = 0; request < scaled(2500); request++) {
        for (uint32_t blocks = between(bag, 20, 300); blocks > 0; blocks--)
            add(bag, random_size(&bag->random, 9));
        if (request % 8 == 0)
            drop(bag, random_below(&bag->random, (uint32_t)sessions)); /* one of the request's blocks takes its place */
        while (bag->used > sessions)
            drop(bag, bag->used - 1);
    }
}

/* The same threads all day. */
static void *request_work(void *argument) {
    struct worker *worker = argument;
    struct bag *bag = &bags[worker->index];
    fill(bag, mib(10), 100, 4000);
    worker_start(worker);
    for (int hour = 0; hour < 8; hour++) {
        serve(bag);
        rest(400);
    }
    worker_end(worker);
    empty(bag);
    return NULL;
}

/* The morning's answers are small and the afternoon's large; in the evening most of the cache is out of date. */
static void serve_all_day(struct bag *bag) {
    enum { HOURS = 4, NOON = 2 };
    for (int hour = 0; hour < HOURS; hour++) {
        uint32_t most = hour < NOON ? 2000 : 8000;
        fill(bag, mib(24), 50, most);
        thin(bag, mib(16));
        serve(bag);
        rest(60);
    }
    thin(bag, mib(3));
}

/* Rows by the hundred thousand, which go again; an index of them stays. */
static void import(struct bag *bag) {
    enum { ROWS_AN_ENTRY = 8 };
    struct bag *index = &bags[THREADS_MAX - 1];
    rest(60);
    while (bag->bytes < mib(60)) {
        add(bag, between(bag, 100, 900));
        if (bag->used % ROWS_AN_ENTRY == 0)
            add(index, 48);
    }
    empty(bag);
}

static void *service_work(void *argument) {
    struct worker *worker = argument;
    struct bag *bag = &bags[worker->index];
    worker_start(worker);
    if (worker->index == 0)
        import(bag);
    else
        serve_all_day(bag);
    worker_end(worker);
    return NULL;
}

static void in_threads(unsigned count, void *(*entry)(void *), int rounds, unsigned pause_ms) {
    for (int round = 0; round < rounds; round++) {
        workers_run(count, entry);
        rest(pause_ms);
    }
}

static void pipeline(struct bag *bag) {
    (void)bag;
    if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0)
        fail(1, "pipe failed");
    in_threads(4, pipeline_work, 10, 300);
}

static void pools(struct bag *bag) {
    (void)bag;
    in_threads(4, pool_work, 16, 150);
}

static void vectors(struct bag *bag) {
    (void)bag;
    in_threads(3, vector_work, 8, 250);
}

static void requests(struct bag *bag) {
    (void)bag;
    in_threads(3, request_work, 1, 0);
}

static void service(struct bag *bag) {
    (void)bag;
    in_threads(3, service_work, 1, 400);
}

static void (*const shapes[SHAPES])(struct bag *) = {bursts,   swings, drift,   pipeline, pools,     vectors, requests,
                                                     compiler, hours,  tensors, refill,   leftovers, service};

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        bags[i].room = mib(160) / BLOCK_BYTES_MIN + 1000;
        bags[i].slots = pages_map(bags[i].room * sizeof *bags[i].slots);
        bags[i].random = random_seed(args[SEED].value + i);
    }
    double start = now_seconds();
    shapes[args[SHAPE].value](&bags[0]);
    uint64_t operations = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        operations += bags[i].operations;
    report_value("operations", operations);
    report_speed(operations, now_seconds() - start);
}
