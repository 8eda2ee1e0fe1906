/* replay FILE [REPEAT]: makes a recorded trace's calls (bench/traces/), in as many threads, in the recorded order.
 *
 *   1. FILE (trace.py describes the format) is decoded first, into memory that is mapped and touched before the clock
 *      starts: a stream of events per thread, and a table of blocks, which are numbered.
 *   2. A thread starts where its creator started it, makes its calls in order, and ends where it ended. It waits for
 *      blocks that other threads allocate. No thread runs ahead by more than two windows of the recording, so about as
 *      much is live at once as when it was recorded.
 *   3. The head, the tail and one word of every page of a block are written, and checked when the block ends. Blocks
 *      from calloc must be zero there, and blocks from realloc must have their old contents.
 *   4. Blocks live at the end are freed outside the measured time, before the next of REPEAT rounds.
 *
 * An operation is one call. peak_net_bytes is the peak of resident memory over what was resident before the first
 * call. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>

/* As in trace.py. WINDOW marks a thread's step into another window. */
enum op { WINDOW, MALLOC, CALLOC, ALIGNED, REALLOC, FREE, BIRTH, END };
enum { OP_BITS = 3, OP_MASK = 7, SWITCH = 8, OPERATIONS = 0, SWITCHES, SIZES, ALIGNMENTS, RANKS, COLUMNS };
enum { WINDOW_EVENTS = 4096, PAGE = 4096, THREADS_MAX = 1 << 16 };
static const char magic[] = "HAKTRACE 1\n";

/* An event is op | number << OP_BITS. The number is that of a block, of the new thread, or of the window. A REALLOC of
 * an old block is followed by a word with the new one. */
#define NO_BLOCK (UINT32_MAX >> OP_BITS)

struct block {
    _Atomic(unsigned char *) address; /* NULL before its birth; WAITED if a thread sleeps until then */
    uint64_t size : 48;
    uint64_t log2_alignment : 6;
    uint64_t handed_over : 1; /* another thread than its own ends it */
    uint64_t live_at_end : 1;
};
#define WAITED ((unsigned char *)1)

struct player {
    _Alignas(64) const uint32_t *events;
    uint32_t count;  /* number of words of `events` */
    uint32_t blocks; /* the first of the thread's own */
    bool born;
    bool ends; /* ends before the program does */
    pthread_t thread;
    double end_seconds; /* when it made its last call */
};

static struct player *players;
static struct block *blocks;
static _Atomic uint32_t *windows; /* how many threads have yet to leave each; 0: all are past it */
static uint32_t *window_threads;  /* how many threads have calls in each */
static uint32_t thread_count, event_count, block_count, window_count;
static uint64_t operations, live_peak, bookkeeping;
static _Atomic uint32_t playing;

static _Noreturn void bad_file(void) { fail(1, "FILE is no trace, or cut short"); }

/* ---- the file ---- */

struct column {
    const unsigned char *at, *end;
};

static inline unsigned char byte_take(struct column *column) {
    if (column->at >= column->end)
        bad_file();
    return *column->at++;
}

static uint64_t number_take(struct column *column) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
        unsigned char byte = byte_take(column);
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    bad_file();
}

static uint32_t number_below(struct column *column, uint64_t limit) {
    uint64_t value = number_take(column);
    if (value >= limit)
        bad_file();
    return (uint32_t)value;
}

static struct column file_read(const char *path, size_t *bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    if (size < 0)
        fail(1, "FILE cannot be read");
    *bytes = (size_t)size + 1;
    unsigned char *text = pages_map(*bytes);
    for (off_t at = 0; at < size;) {
        ssize_t got = pread(fd, text + at, (size_t)(size - at), at);
        if (got <= 0)
            fail(1, "FILE cannot be read");
        at += got;
    }
    close(fd);
    return (struct column){text, text + size};
}

static void columns_read(struct column file, struct column *columns) {
    if ((size_t)(file.end - file.at) < sizeof magic - 1 || memcmp(file.at, magic, sizeof magic - 1) != 0)
        bad_file();
    file.at += sizeof magic - 1;
    thread_count = number_below(&file, THREADS_MAX + 1);
    event_count = number_below(&file, UINT32_MAX / 4);
    block_count = number_below(&file, NO_BLOCK);
    for (int i = 0; i < COLUMNS; i++) {
        uint64_t bytes = number_take(&file);
        if (bytes > (uint64_t)(file.end - file.at))
            bad_file();
        columns[i] = (struct column){file.at, file.at + bytes};
        file.at += bytes;
    }
    if (thread_count == 0 || columns[OPERATIONS].end - columns[OPERATIONS].at != (ptrdiff_t)event_count)
        bad_file();
}

/* The numbers of live blocks, in order, as a Fenwick tree. */
struct live {
    uint32_t *sums; /* block_count + 1 */
    uint32_t count;
};

static void live_add(struct live *live, uint32_t block, uint32_t change) {
    live->count += change;
    for (uint32_t at = block + 1; at <= block_count; at += at & -at)
        live->sums[at] += change;
}

/* Returns the live block for which `younger` live blocks are younger. */
static uint32_t live_find(const struct live *live, uint32_t younger) {
    if (younger >= live->count)
        bad_file();
    uint32_t left = live->count - younger, at = 0;
    for (uint32_t step = 1u << (31 - __builtin_clz(block_count)); step != 0; step >>= 1) {
        if (at + step <= block_count && live->sums[at + step] < left) {
            at += step;
            left -= live->sums[at];
        }
    }
    return at;
}

/* ---- decoding ---- */

/* One event as the file has it; reading it advances the columns. */
struct event {
    enum op op;
    uint32_t thread, child;
};

static struct event event_take(struct column *columns, uint32_t thread) {
    unsigned char byte = byte_take(&columns[OPERATIONS]);
    struct event event = {.op = byte & OP_MASK, .thread = thread};
    if (event.op == WINDOW || byte > (SWITCH | OP_MASK))
        bad_file();
    if (byte & SWITCH)
        event.thread = number_below(&columns[SWITCHES], thread_count);
    if (event.op == BIRTH)
        event.child = number_below(&columns[SWITCHES], thread_count);
    return event;
}

static bool op_begins(enum op op) { return op >= MALLOC && op <= REALLOC; }

/* Whether the event takes the thread into another window, as its first call does. A single thread needs no windows. */
static bool window_steps(uint32_t *of_thread, uint32_t at, uint32_t thread) {
    uint32_t window = at / WINDOW_EVENTS + 1;
    bool steps = thread_count > 1 && of_thread[thread] != window;
    of_thread[thread] = window;
    return steps;
}

/* First pass: finds how long each thread's stream is, how many blocks are its own, and who is in which window. */
static void streams_measure(struct column *file_columns, uint32_t *of_thread) {
    struct column columns[COLUMNS];
    memcpy(columns, file_columns, sizeof columns);
    uint32_t born = 1, begun = 0;
    struct event event = {.thread = 0};
    players[0].born = true;
    for (uint32_t i = 0; i < event_count; i++) {
        event = event_take(columns, event.thread);
        struct player *player = &players[event.thread];
        if (window_steps(of_thread, i, event.thread)) {
            player->count++;
            window_threads[i / WINDOW_EVENTS]++;
        }
        player->count += event.op == REALLOC ? 2 : event.op != END;
        player->blocks += op_begins(event.op);
        begun += op_begins(event.op);
        player->ends |= event.op == END && event.thread != 0;
        if (!player->born || (event.op == BIRTH && players[event.child].born))
            bad_file();
        if (event.op == BIRTH) {
            players[event.child].born = true;
            born++;
        }
    }
    if (begun != block_count || born != thread_count)
        bad_file();
}

/* Second pass: fills the streams and the table of blocks. `own` maps a block's number in the file to that in the
 * table. */
static void streams_fill(struct column *columns, uint32_t **ends, uint32_t *of_thread, uint32_t *own, uint32_t *next) {
    struct live live = {pages_map(((size_t)block_count + 1) * 4), 0};
    uint64_t live_bytes = 0;
    uint32_t number = 0;
    struct event event = {.thread = 0};
    for (uint32_t i = 0; i < event_count; i++) {
        event = event_take(columns, event.thread);
        uint32_t **end = &ends[event.thread], old = NO_BLOCK;
        if (window_steps(of_thread, i, event.thread))
            *(*end)++ = WINDOW | (i / WINDOW_EVENTS) << OP_BITS;
        uint32_t rank = event.op == REALLOC || event.op == FREE ? number_below(&columns[RANKS], UINT32_MAX) : 0;
        if (rank != 0) {
            uint32_t found = live_find(&live, rank - 1);
            live_add(&live, found, -1u);
            old = own[found];
            struct player *player = &players[event.thread];
            blocks[old].handed_over = old < player->blocks || old >= next[event.thread];
            blocks[old].live_at_end = 0;
            live_bytes -= blocks[old].size;
        }
        if (event.op == REALLOC || event.op == FREE)
            *(*end)++ = event.op | old << OP_BITS;
        if (op_begins(event.op)) {
            struct block *block = &blocks[own[number] = next[event.thread]++];
            block->size = number_take(&columns[SIZES]);
            block->log2_alignment = event.op == ALIGNED ? number_below(&columns[ALIGNMENTS], 48) : 0;
            block->live_at_end = 1;
            live_add(&live, number, 1);
            live_bytes += block->size;
            live_peak = live_bytes > live_peak ? live_bytes : live_peak;
            *(*end)++ = event.op | own[number++] << OP_BITS;
        }
        if (event.op == BIRTH)
            *(*end)++ = BIRTH | event.child << OP_BITS;
        operations += event.op != BIRTH && event.op != END;
    }
    munmap(live.sums, ((size_t)block_count + 1) * 4);
}

static void *bookkeeping_map(size_t bytes) {
    bookkeeping += bytes;
    return memset(pages_map(bytes + 1), 0, bytes + 1);
}

static void trace_decode(const char *path) {
    size_t file_bytes;
    struct column file = file_read(path, &file_bytes), columns[COLUMNS];
    columns_read(file, columns);
    window_count = event_count / WINDOW_EVENTS + 1;
    players = bookkeeping_map(thread_count * sizeof *players);
    blocks = bookkeeping_map(block_count * sizeof *blocks);
    windows = bookkeeping_map(window_count * sizeof *windows);
    window_threads = bookkeeping_map(window_count * sizeof *window_threads);

    size_t words = (size_t)thread_count * 2 + block_count, ends_bytes = thread_count * sizeof(uint32_t *);
    uint32_t *scratch = pages_map(words * 4), *of_thread = scratch, *next = scratch + thread_count;
    uint32_t *own = next + thread_count;
    uint32_t **ends = pages_map(ends_bytes);
    streams_measure(columns, of_thread);
    size_t event_words = 0;
    for (uint32_t i = 0; i < thread_count; i++)
        event_words += players[i].count;
    uint32_t *events = bookkeeping_map(event_words * sizeof *events), first_block = 0;
    for (uint32_t i = 0; i < thread_count; i++) {
        struct player *player = &players[i];
        uint32_t owned = player->blocks;
        player->events = ends[i] = events;
        events += player->count;
        next[i] = player->blocks = first_block;
        first_block += owned;
        of_thread[i] = 0;
    }
    streams_fill(columns, ends, of_thread, own, next);
    munmap(scratch, words * 4);
    munmap(ends, ends_bytes);
    munmap((void *)(uintptr_t)file.at, file_bytes);
}

/* ---- blocks ---- */

/* Marks a block of `size` bytes at its ends and in the first word of its later pages. */
static void marks_write(unsigned char *block, size_t size, uint32_t tag) {
    tag_write(block, size, tag);
    for (size_t at = PAGE; at + 8 <= size; at += PAGE)
        memcpy(block + at, &tag, 4);
}

/* Checks those marks of a block of `size` bytes that lie in its first `kept` bytes. */
static void marks_check(const unsigned char *block, size_t size, size_t kept, uint32_t tag) {
    if (kept == size)
        tag_check(block, size, tag);
    else if (size >= 8 && kept >= 4 && memcmp(block, &tag, 4) != 0)
        fail(3, "realloc has not kept what a block holds");
    for (size_t at = PAGE; at + 8 <= size; at += PAGE)
        if (at + 4 <= kept && memcmp(block + at, &tag, 4) != 0)
            fail(3, "a block does not hold what was written into it");
}

static void zeros_check(const unsigned char *block, size_t size) {
    bool zero = size == 0 || (block[0] | block[size - 1]) == 0;
    for (size_t at = PAGE; at + 8 <= size; at += PAGE)
        zero = zero && block[at] == 0;
    if (!zero)
        fail(3, "calloc gave memory that is not zero");
}

static void futex(_Atomic uint32_t *word, int what, uint32_t value) {
    syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Makes a block known to the threads that will end it. */
static void block_publish(struct block *block, unsigned char *address) {
    if (!block->handed_over)
        atomic_store_explicit(&block->address, address, memory_order_relaxed);
    else if (atomic_exchange_explicit(&block->address, address, memory_order_acq_rel) == WAITED)
        futex((_Atomic uint32_t *)(void *)&block->address, FUTEX_WAKE, INT32_MAX);
}

/* Returns the block's address as soon as it has one. */
static unsigned char *block_await(struct block *block) {
    unsigned char *address = atomic_load_explicit(&block->address, memory_order_acquire);
    for (unsigned tries = 0; address == NULL && tries < 16; tries++) {
        sched_yield();
        address = atomic_load_explicit(&block->address, memory_order_acquire);
    }
    while (address == NULL || address == WAITED) {
        if (address != NULL || atomic_compare_exchange_strong(&block->address, &address, WAITED))
            futex((_Atomic uint32_t *)(void *)&block->address, FUTEX_WAIT, (uint32_t)(uintptr_t)WAITED);
        address = atomic_load_explicit(&block->address, memory_order_acquire);
    }
    return address;
}

static void block_begin(uint32_t number, unsigned char *address) {
    struct block *block = &blocks[number];
    marks_write(must(address), block->size, number);
    block_publish(block, address);
}

static void block_calloc(uint32_t number) {
    size_t size = blocks[number].size;
    unsigned char *address = must(calloc(1, size));
    zeros_check(address, size);
    block_begin(number, address);
}

static void block_align(uint32_t number) {
    size_t alignment = (size_t)1 << blocks[number].log2_alignment;
    void *address;
    if (posix_memalign(&address, alignment, blocks[number].size) != 0)
        fail(1, "out of memory");
    if (((uintptr_t)address & (alignment - 1)) != 0)
        fail(3, "a block is not aligned as was asked for");
    block_begin(number, address);
}

static void block_realloc(uint32_t old, uint32_t number) {
    size_t size = blocks[number].size, old_size = old != NO_BLOCK ? blocks[old].size : 0;
    unsigned char *address = must(realloc(old != NO_BLOCK ? block_await(&blocks[old]) : NULL, size));
    marks_check(address, old_size, old_size < size ? old_size : size, old);
    block_begin(number, address);
}

static void block_free(uint32_t number) {
    unsigned char *address = number != NO_BLOCK ? block_await(&blocks[number]) : NULL;
    if (address != NULL)
        marks_check(address, blocks[number].size, blocks[number].size, number);
    free(address);
}

/* ---- playing ---- */

static void *play(void *argument);

static void birth(struct player *player) {
    player->thread = thread_start(play, player);
    if (player->ends)
        pthread_detach(player->thread);
}

static void window_leave(uint32_t window) {
    if (atomic_fetch_sub(&windows[window], 1) == 1)
        futex(&windows[window], FUTEX_WAKE, INT32_MAX);
}

/* Waits until all threads have left every window more than one before `window`. `past`: the first not yet seen
 * empty. */
static uint32_t window_enter(uint32_t window, uint32_t past) {
    for (; past + 1 < window; past++)
        for (uint32_t left; (left = atomic_load(&windows[past])) != 0;)
            futex(&windows[past], FUTEX_WAIT, left);
    return past;
}

static void *play(void *argument) {
    struct player *player = argument;
    uint32_t window = UINT32_MAX, past = 0;
    for (const uint32_t *at = player->events, *end = at + player->count; at < end; at++) {
        uint32_t number = *at >> OP_BITS;
        switch ((enum op)(*at & OP_MASK)) {
        case WINDOW:
            if (window != UINT32_MAX)
                window_leave(window);
            past = window_enter(window = number, past);
            break;
        case MALLOC: block_begin(number, malloc(blocks[number].size)); break;
        case CALLOC: block_calloc(number); break;
        case ALIGNED: block_align(number); break;
        case REALLOC: block_realloc(number, *++at >> OP_BITS); break;
        case FREE: block_free(number); break;
        case BIRTH: birth(&players[number]); break;
        case END: break;
        }
    }
    if (window != UINT32_MAX)
        window_leave(window);
    player->end_seconds = now_seconds();
    if (atomic_fetch_sub(&playing, 1) == 1)
        futex(&playing, FUTEX_WAKE, INT32_MAX);
    for (uint32_t left; !player->ends && (left = atomic_load(&playing)) != 0;)
        futex(&playing, FUTEX_WAIT, left);
    return NULL;
}

/* Plays everything once. Returns the seconds from the first call to the last. */
static double round_play(void) {
    for (uint32_t i = 0; i < window_count; i++)
        atomic_store(&windows[i], window_threads[i]);
    atomic_store(&playing, thread_count);
    double start = now_seconds(), end = start;
    play(&players[0]);
    for (uint32_t i = 0; i < thread_count; i++)
        end = players[i].end_seconds > end ? players[i].end_seconds : end;
    return end - start;
}

/* The program's end: checks and frees the remaining blocks, and forgets all addresses. */
static void round_end(void) {
    for (uint32_t i = 1; i < thread_count; i++)
        if (!players[i].ends)
            pthread_join(players[i].thread, NULL);
    for (uint32_t i = 0; i < block_count; i++) {
        if (blocks[i].live_at_end)
            block_free(i);
        atomic_store_explicit(&blocks[i].address, NULL, memory_order_relaxed);
    }
}

/* Returns the peak of resident memory in bytes. `reset` restarts it from the current value, where Linux allows that. */
static uint64_t peak_rss_bytes(bool reset) {
    char text[4096];
    int fd = reset ? open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && (write(fd, "5", 1) != 1 || close(fd) != 0))
        fail(1, "clear_refs cannot be written");
    fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[got > 0 ? got : 0] = 0;
    close(fd);
    const char *line = strstr(text, "\nVmHWM:");
    return line != NULL ? strtoull(line + 7, NULL, 10) * 1024 : 0;
}

int main(int argc, char **argv) {
    struct argument args[] = {{"REPEAT", 1, 1, 1u << 20}};
    if (argc < 2)
        fail(2, "usage: replay FILE [REPEAT]");
    ARGUMENTS_READ(argc - 1, argv + 1, args);
    trace_decode(argv[1]);

    uint64_t rss_start = peak_rss_bytes(true), rss_end = 0;
    double seconds = 0;
    for (uint64_t round = 0; round < args[0].value; round++) {
        seconds += round_play();
        rss_end = rss_bytes();
        round_end();
    }
    uint64_t peak = peak_rss_bytes(false);
    report_speed(operations * args[0].value, seconds);
    report_value("threads", thread_count);
    report_value("operations", operations);
    report_value("blocks", block_count);
    report_value("live_peak_bytes", live_peak);
    report_value("bookkeeping_bytes", bookkeeping);
    report_value("rss_end_net_bytes", rss_end > rss_start ? rss_end - rss_start : 0);
    report_value("peak_net_bytes", peak > rss_start ? peak - rss_start : 0);
}
