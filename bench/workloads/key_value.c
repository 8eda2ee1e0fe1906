/* key_value [KEYS] [OPS] [SEED]: an in-memory store of strings whose values change their size; one thread.
 *
 * A chained hash table that doubles. KEYS keys are drawn, those of the lower half three times as often. An entry is a
 * record, a key and a value: three blocks. Values are 16 B-128 KiB, small ones more often. Of 16 operations
 *   8 get (the value is checked) · 4 set anew (freed, allocated) · 2 append 1-256 B (realloc) · 2 delete
 *
 * set and append add a missing key. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { KEYS, OPS, SEED };
enum { POWERS = 13, VALUE_MAX = 1 << 18 };

static struct argument args[] = {{"KEYS", 40000, 1, 1u << 30}, {"OPS", 1000000, 1, 0}, {"SEED", 42, 0, 0}};

struct entry {
    struct entry *next;
    char *key;
    struct slot value;
};

static struct entry **table;
static uint64_t places, entries;

static uint64_t hash(const char *key) {
    uint64_t hash = 14695981039346656037u;
    for (; *key != 0; key++)
        hash = (hash ^ (unsigned char)*key) * 1099511628211u;
    return hash ^ hash >> 32;
}

static void table_grow(void) {
    uint64_t more = places != 0 ? 2 * places : 16;
    struct entry **grown = must(calloc(more, sizeof *grown));
    for (uint64_t i = 0; i < places; i++) {
        while (table[i] != NULL) {
            struct entry *entry = table[i], **place = &grown[hash(entry->key) % more];
            table[i] = entry->next;
            entry->next = *place;
            *place = entry;
        }
    }
    free(table);
    table = grown;
    places = more;
}

/* Returns the link to the entry, or where it would be. */
static struct entry **find(const char *key) {
    struct entry **place = &table[hash(key) % places];
    while (*place != NULL && strcmp((*place)->key, key) != 0)
        place = &(*place)->next;
    return place;
}

static struct entry *find_or_add(const char *key) {
    if (entries == places)
        table_grow();
    struct entry **place = find(key), *entry = *place;
    if (entry == NULL) {
        entry = *place = must(calloc(1, sizeof *entry));
        entry->key = must(strdup(key));
        entries++;
    }
    return entry;
}

static void entry_delete(struct entry **place) {
    struct entry *entry = *place;
    *place = entry->next;
    slot_clear(&entry->value);
    free(entry->key);
    free(entry);
    entries--;
}

static void append(struct slot *value, uint32_t size, uint32_t tag) {
    uint32_t grown = value->size + size;
    unsigned char *block = must(realloc(value->block, grown));
    if (value->block != NULL)
        tag_check(block, value->size, value->tag);
    *value = (struct slot){block, grown, tag};
    tag_write(block, grown, tag);
}

static void operate(const char *key, uint32_t what, uint32_t tag, uint64_t *random) {
    struct entry **place = find(key);
    if (what < 8) {
        if (*place != NULL)
            tag_check((*place)->value.block, (*place)->value.size, (*place)->value.tag);
    } else if (what >= 14) {
        if (*place != NULL)
            entry_delete(place);
    } else {
        struct slot *value = &find_or_add(key)->value;
        if (what >= 12 && value->size < VALUE_MAX) {
            append(value, 8 + random_below(random, 256), tag);
        } else {
            if (value->block != NULL)
                slot_clear(value);
            slot_fill(value, random_size(random, POWERS), tag);
        }
    }
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint32_t keys = (uint32_t)args[KEYS].value;
    uint64_t random = random_seed(args[SEED].value);
    double start = now_seconds();
    table_grow();
    for (uint64_t op = 0; op < args[OPS].value; op++) {
        char key[48];
        uint32_t one = random_below(&random, keys), two = random_below(&random, keys);
        uint32_t id = one < two ? one : two;
        snprintf(key, sizeof key, id % 2 ? "user:%u" : "session:%u:last-seen", id);
        operate(key, random_below(&random, 16), (uint32_t)op, &random);
    }
    report_speed(args[OPS].value, now_seconds() - start);
    report_value("entries", entries);
    for (uint64_t i = 0; i < places; i++)
        while (table[i] != NULL)
            entry_delete(&table[i]);
    free(table);
}
