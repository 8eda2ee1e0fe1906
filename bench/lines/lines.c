/* See lines.h. What tsan.c calls, and the account of lines. One thread runs at a time, so nothing here is atomic. */
/* SPDX-License-Identifier: MIT */
#define HAK_RACES /* base.h and model.h agree on PROVEN then */
#include "lines.h"
#include "heap/heap.h"
#include "space/superslab.h"
#include "model.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINES_SEEN ((size_t)1 << 22) /* places for lines */
#define TALLIES ((size_t)1 << 16)
enum { WORDS = HAK_LINE / 8 };

/* A line that was accessed, and by whom. Players count from 1 here: 0 is nobody. */
struct line {
    uintptr_t number;                     /* its address / 64; 0: unused */
    uint64_t holders[PLAYERS_MAX / 64];   /* who has a copy */
    uint32_t writes;                      /* so far */
    uint32_t written_at[WORDS];           /* `writes` when each word was last written */
    uint32_t *seen;                       /* of tables: `writes` when each player last had a copy; NULL: not kept */
    uint16_t writer;                      /* who wrote it last */
    uint16_t used[WORDS], written[WORDS]; /* who did so last to each word */
};

/* How often the same happened. */
struct tally {
    const char *event; /* NULL: unused */
    const char *table;
    const char *field;
    uintptr_t data; /* in the library's own data: the address, as the library's symbols have it */
    uintptr_t code; /* the return address of the access */
    uint64_t times;
};

static struct line *lines;
static uint32_t *seen_next; /* memory for lines' `seen` */
static struct tally *tallies;
static uintptr_t data_begin, data_end, data_base; /* the library's own variables, and how far it was moved */
static size_t lines_used, tallies_used;
bool explore_running = true; /* what tsan.c asks before it looks at a memcpy */

_Noreturn void lines_fail(const char *what) {
    (void)!write(2, "lines: ", 7);
    (void)!write(2, what, strlen(what));
    (void)!write(2, "\n", 1);
    _exit(70);
}
_Noreturn void explore_give_up(const char *why) { lines_fail(why); }

static void *pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        lines_fail("no memory");
    return p;
}

static int find_data(struct dl_phdr_info *info, size_t bytes, void *unused) {
    (void)bytes, (void)unused;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W) && (uintptr_t)&lines - begin < end - begin) {
            data_begin = begin, data_end = end, data_base = info->dlpi_addr;
            return 1;
        }
    }
    return 0;
}

static void begin(void) {
    lines = pages(LINES_SEEN * sizeof *lines);
    tallies = pages(TALLIES * sizeof *tallies);
    seen_next = pages(LINES_SEEN / 2 * PLAYERS_MAX * sizeof *seen_next);
    dl_iterate_phdr(find_data, NULL);
}

/* ---- what is in a line ---- */

struct field {
    size_t offset;
    const char *name;
};
#define FIELD(name)                                                                                                    \
    { offsetof(OF, name), #name }
#define END_OF_FIELDS                                                                                                  \
    { SIZE_MAX, NULL }

#define OF struct slab
#define OF_ALL                                                                                                         \
    FIELD(owner), FIELD(inbox), FIELD(free_blocks), FIELD(divisor), FIELD(hit_blocks), FIELD(tiny_bytes),              \
        FIELD(class_id), FIELD(kind), FIELD(slots), FIELD(first_offset), FIELD(idle_looks)
static const struct field tiny_fields[] = {OF_ALL,
                                           FIELD(tiny.free_to),
                                           FIELD(tiny.link_mark),
                                           FIELD(tiny.out),
                                           FIELD(tiny.due),
                                           FIELD(tiny.next),
                                           FIELD(tiny.class_next),
                                           FIELD(tiny.list),
                                           FIELD(tiny.countdown),
                                           FIELD(tiny.floor),
                                           FIELD(tiny.purged_blocks),
                                           FIELD(tiny.purged_pages),
                                           FIELD(tiny.carved),
                                           FIELD(tiny.place),
                                           FIELD(tiny.page_flags),
                                           FIELD(tiny.own_frees),
                                           FIELD(tiny.check_after),
                                           END_OF_FIELDS};
static const struct field slab_fields[] = {OF_ALL, FIELD(mid.start), FIELD(mid.secure), FIELD(mid.state),
                                           END_OF_FIELDS};
#undef OF_ALL
#undef OF
#define OF struct superslab
static const struct field superslab_fields[] = {
    FIELD(word),          FIELD(changed_ms),       FIELD(inbox_mask), FIELD(offer), FIELD(last_class), FIELD(arena),
    FIELD(next_in_arena), FIELD(arena_inbox_mask), FIELD(moved),      FIELD(huge),  FIELD(is_counted), FIELD(secure),
    END_OF_FIELDS};
#undef OF
#define OF struct heap
static const struct field heap_fields[] = {
    FIELD(list),        FIELD(class_table),  FIELD(in_use),          FIELD(is_of_arena),
    FIELD(has_arenas),  FIELD(number),       FIELD(current),         FIELD(fresh),
    FIELD(owned),       FIELD(outbox_slabs), FIELD(caches_busy),     FIELD(caches_flags),
    FIELD(ring_hand),   FIELD(caches_seen),  FIELD(ring_kib),        FIELD(loans_seen),
    FIELD(purge_seen),  FIELD(rings),        FIELD(client.counters), FIELD(client.start),
    FIELD(sites),       FIELD(next),         FIELD(sample),          FIELD(checks_before_giving),
    FIELD(checks_left), FIELD(returns),      FIELD(deferred),        FIELD(lent),
    FIELD(ledger),      FIELD(ring),         FIELD(outbox),          FIELD(sampled),
    FIELD(callers),     FIELD(move),         FIELD(arena),           END_OF_FIELDS};
#undef OF

static const char *field_at(const struct field *fields, size_t offset) {
    while (fields[1].offset <= offset)
        fields++;
    return fields->name;
}

static const char *field_of_slab(uintptr_t address) {
    const struct slab *s =
        (const struct slab *)(address - (address - (uintptr_t)hak_region.slabs) % sizeof(struct slab));
    size_t offset = address - (uintptr_t)s;
    bool tiny = atomic_load_explicit(&s->owner, memory_order_relaxed) != OWNER_POOL;
    return field_at(tiny ? tiny_fields : slab_fields, offset);
}

static const char *set_name(size_t set) {
    return set < CLASSES            ? "slabs on offer"
           : set == SET_EMPTY       ? "with an EMPTY slot"
           : set <= SET_ROOM_16     ? "with room"
           : set == SET_CACHED      ? "cached"
           : set == SET_CLEAN       ? "clean"
           : set == SET_ARENA_EMPTY ? "arenas"
           : set < SET_SECURE       ? "full inboxes"
                                    : "secure";
}

/* Fills in where the address is; false: not where accesses count. */
static bool place_of(uintptr_t address, struct tally *t) {
    const struct region *r = &hak_region;
    if (address - data_begin < data_end - data_begin) {
        t->table = "data", t->field = "", t->data = (address - data_base) & ~(uintptr_t)7;
        return true;
    }
    if (r->base == 0 || address < (uintptr_t)r->heaps)
        return false;
    if (address >= r->base) {
        t->table = "block", t->field = "";
        return address - r->base < region_frontier();
    }
    if (address >= (uintptr_t)r->slabs) {
        t->table = "slab", t->field = field_of_slab(address);
    } else if (address >= (uintptr_t)r->sets.level[0]) {
        size_t offset = (address - (uintptr_t)r->rows) % sizeof(struct superslab_row);
        bool in_set = address < (uintptr_t)r->rows || offset >= offsetof(struct superslab_row, next_set);
        t->table = in_set ? "set" : "SuperSlab";
        t->field = in_set ? set_name((address - (uintptr_t)r->sets.level[0]) % sizeof(struct superslab_row) / 8)
                          : field_at(superslab_fields, offset % sizeof(struct superslab));
    } else if (address >= (uintptr_t)r->upper) {
        t->table = "set", t->field = "upper level";
    } else {
        size_t offset = (address - (uintptr_t)r->heaps) % HEAP_BYTES;
        t->table = "heap", t->field = offset < sizeof(struct heap) ? field_at(heap_fields, offset) : "ring entries";
    }
    return true;
}

static void tally(const struct tally *found) {
    size_t at = mix_bits((uintptr_t)found->field ^ found->data << 40 ^ found->code << 8) % TALLIES;
    while (tallies[at].event != NULL &&
           (tallies[at].event != found->event || tallies[at].table != found->table ||
            tallies[at].field != found->field || tallies[at].data != found->data || tallies[at].code != found->code))
        at = (at + 1) % TALLIES;
    if (tallies[at].event == NULL) {
        if (++tallies_used > TALLIES / 2)
            lines_fail("too many places in the code");
        tallies[at] = *found;
    }
    tallies[at].times++;
}

/* ---- accesses ---- */

static struct line *line_of(uintptr_t number) {
    size_t at = (mix_bits(number / 64) + number) % LINES_SEEN; /* those of a page side by side */
    while (lines[at].number != number && lines[at].number != 0)
        at = (at + 1) % LINES_SEEN;
    if (lines[at].number == 0) {
        if (++lines_used > LINES_SEEN / 2)
            lines_fail("too many lines");
        lines[at].number = number;
    }
    return &lines[at];
}

static bool others_hold(const struct line *line, unsigned player) {
    for (unsigned i = 0; i < PLAYERS_MAX / 64; i++)
        if (line->holders[i] & ~(i == player / 64 ? (uint64_t)1 << player % 64 : 0))
            return true;
    return false;
}

/* Has another thread written the word since the player last had a copy? Not known of lines of blocks, which are many:
 * whoever wrote it last may have done so before. */
static bool is_new(const struct line *line, unsigned player, size_t word) {
    return line->written[word] != 0 && line->written[word] != player + 1 &&
           (line->seen == NULL || line->written_at[word] > line->seen[player]);
}

/* The bytes lie in one line. */
static void note(uintptr_t address, size_t bytes, bool write, struct tally *t) {
    struct line *line = line_of(address / HAK_LINE);
    unsigned me = turns_player();
    uint64_t bit = (uint64_t)1 << me % 64;
    bool held = line->holders[me / 64] & bit, falsely = true;
    bool moves = write ? others_hold(line, me) : !held && line->writer != 0 && line->writer != me + 1;
    if (moves && line->seen == NULL && t->table[0] != 'b') {
        line->seen = seen_next;
        seen_next += PLAYERS_MAX;
    }
    line->writes += write;
    for (size_t word = address % HAK_LINE / 8; word <= (address % HAK_LINE + bytes - 1) / 8; word++) {
        falsely &= held ? line->used[word] == me + 1 : !is_new(line, me, word);
        line->used[word] = (uint16_t)(me + 1);
        if (write) {
            line->written[word] = (uint16_t)(me + 1);
            line->written_at[word] = line->writes;
        }
    }
    if (write) {
        memset(line->holders, 0, sizeof line->holders);
        line->writer = (uint16_t)(me + 1);
    }
    line->holders[me / 64] |= bit;
    if (line->seen != NULL)
        line->seen[me] = line->writes;
    if (moves) {
        t->event = falsely ? "moved falsely" : "moved";
        tally(t);
    }
}

static bool note_all(uintptr_t address, size_t bytes, bool write, const void *pc) {
    struct tally t = {0};
    if (lines == NULL)
        begin();
    if (!place_of(address, &t))
        return false;
    t.code = (uintptr_t)pc;
    for (size_t part; bytes > 0; address += part, bytes -= part) {
        part = HAK_LINE - address % HAK_LINE;
        part = part < bytes ? part : bytes;
        note(address, part, write, &t);
    }
    return true;
}

void model_plain(uintptr_t address, size_t bytes, bool write, const void *pc) {
    if (bytes != 0 && note_all(address, bytes, write, pc))
        turns_step();
}

void *__real_memset(void *to, int byte, size_t bytes);
void model_set(uintptr_t address, size_t bytes, uint8_t value, const void *pc) {
    model_plain(address, bytes, true, pc);
    __real_memset((void *)address, value, bytes);
}

#define PERFORM(type)                                                                                                  \
    static uint64_t perform_##type(enum model_op op, _Atomic type *p, type v, type expected) {                         \
        switch (op) {                                                                                                  \
        case OP_LOAD: return atomic_load(p);                                                                           \
        case OP_STORE: atomic_store(p, v); return v;                                                                   \
        case OP_SWAP: return atomic_exchange(p, v);                                                                    \
        case OP_ADD: return atomic_fetch_add(p, v);                                                                    \
        case OP_SUB: return atomic_fetch_sub(p, v);                                                                    \
        case OP_AND: return atomic_fetch_and(p, v);                                                                    \
        case OP_OR: return atomic_fetch_or(p, v);                                                                      \
        case OP_XOR: return atomic_fetch_xor(p, v);                                                                    \
        case OP_CAS: atomic_compare_exchange_strong(p, &expected, v); return expected;                                 \
        }                                                                                                              \
        lines_fail("no such operation");                                                                               \
    }
PERFORM(uint8_t)
PERFORM(uint16_t)
PERFORM(uint32_t)
PERFORM(uint64_t)

uint64_t model_atomic(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc) {
    (void)failure_order;
    uint64_t wanted = expected != NULL ? *expected : 0;
    bool counts = note_all(address, bytes, op != OP_LOAD, pc);
    uint64_t read = bytes == 1   ? perform_uint8_t(op, (void *)address, (uint8_t)operand, (uint8_t)wanted)
                    : bytes == 2 ? perform_uint16_t(op, (void *)address, (uint16_t)operand, (uint16_t)wanted)
                    : bytes == 4 ? perform_uint32_t(op, (void *)address, (uint32_t)operand, (uint32_t)wanted)
                                 : perform_uint64_t(op, (void *)address, operand, wanted);
    struct tally t = {.code = (uintptr_t)pc};
    if (!counts)
        return read;
    place_of(address, &t);
    t.event = "read-modify-write";
    if (op != OP_LOAD && (op != OP_STORE || order == __ATOMIC_SEQ_CST))
        tally(&t);
    t.event = "failed";
    if (op == OP_CAS && read != wanted)
        tally(&t);
    turns_step(); /* afterwards: what a compare-and-swap was told may be old by now, as anywhere else */
    return read;
}

/* ---- the end ---- */

/* A line each: EVENT, TABLE, FIELD, DATA, MODULE, CODE in it, TIMES; tabs between. */
__attribute__((destructor)) static void report(void) {
    const char *path = getenv("LINES_FILE");
    FILE *out = path != NULL ? fopen(path, "w") : NULL;
    if (out == NULL)
        return;
    for (const struct tally *t = tallies; tallies != NULL && t < tallies + TALLIES; t++) {
        Dl_info module = {0};
        if (t->event == NULL || dladdr((void *)t->code, &module) == 0)
            continue;
        fprintf(out, "%s\t%s\t%s\t%#llx\t%s\t%#llx\t%llu\n", t->event, t->table, t->field, (unsigned long long)t->data,
                module.dli_fname, (unsigned long long)(t->code - (uintptr_t)module.dli_fbase),
                (unsigned long long)t->times);
    }
    fclose(out);
}
