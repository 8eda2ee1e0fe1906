/* compiler [UNITS] [FUNCTIONS] [SEED]: allocates what a compiler does: names, trees, lists of instructions.
 *
 * Each of UNITS units has FUNCTIONS functions. For each function:
 *   1. tokens are read: 60-300 names, each copied, looked up in a hash table, and freed again if known;
 *   2. a tree is built over them: nodes of 40-104 B, depending on their number of children;
 *   3. walking the tree emits 1-3 instructions of 48 B per node into a growing array of pointers, and a line of text
 *      into the unit's growing output; then the tree is freed.
 *
 * The unit's instructions and output are freed at its end, the names at the end of the program. An operation is one
 * block allocated or freed, or one growth. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { UNITS, FUNCTIONS, SEED };
enum { CHILDREN = 8, NAMES_BITS = 15 };

static struct argument args[] = {{"UNITS", 10, 1, 0}, {"FUNCTIONS", 600, 1, 1u << 20}, {"SEED", 42, 0, 0}};
static uint64_t operations;

struct name {
    struct name *next;
    uint32_t id;
    char text[];
};

struct node {
    const struct name *name;
    uint32_t id, count;
    struct node *children[];
};

struct instruction {
    const struct name *name;
    uint32_t id, operands[8];
};

struct unit {
    struct instruction **code;
    size_t code_count, code_room;
    char *text;
    size_t text_bytes, text_room;
};

static struct name *names[1 << NAMES_BITS];

static void *take(size_t bytes) {
    operations++;
    return must(malloc(bytes));
}

static void give(void *block) {
    operations++;
    free(block);
}

/* Makes room for `count` items and one more, of `bytes` each, by doubling. */
static void *room_make(void *array, size_t count, size_t *room, size_t bytes) {
    if (count < *room)
        return array;
    operations++;
    *room = *room != 0 ? *room * 2 : 8;
    return must(realloc(array, *room * bytes));
}

/* Returns the unique name with this number. The lexer copies it before looking it up. */
static const struct name *name_read(uint32_t id) {
    char text[64];
    int length = snprintf(text, sizeof text, "%s_%u", id % 3 ? "value" : "a_rather_long_identifier", id);
    struct name *name = take(sizeof *name + (size_t)length + 1), **place = &names[id & ((1 << NAMES_BITS) - 1)];
    memcpy(name->text, text, (size_t)length + 1);
    name->id = id;
    for (struct name *known = *place; known != NULL; known = known->next) {
        if (strcmp(known->text, name->text) == 0) {
            give(name);
            return known;
        }
    }
    name->next = *place;
    return *place = name;
}

/* Builds a tree over the `count` names at `list`. */
static struct node *tree_build(const struct name **list, uint32_t count, uint64_t *random) {
    uint32_t most = count - 1 < CHILDREN ? count - 1 : CHILDREN,
             children = most > 0 ? 1 + random_below(random, most) : 0;
    struct node *node = take(sizeof *node + children * sizeof node->children[0]);
    *node = (struct node){.name = list[0], .id = list[0]->id, .count = children};
    uint32_t at = 1;
    for (uint32_t i = 0; i < children; i++) {
        uint32_t share = (count - at) / (children - i);
        node->children[i] = tree_build(list + at, share, random);
        at += share;
    }
    return node;
}

static void tree_emit(struct unit *unit, const struct node *node, uint64_t *random) {
    if (node->id != node->name->id)
        fail(3, "a node does not hold what was written into it");
    for (uint32_t i = 0; i < node->count; i++)
        tree_emit(unit, node->children[i], random);
    for (uint32_t n = 1 + random_below(random, 3); n > 0; n--) {
        struct instruction *instruction = take(sizeof *instruction);
        instruction->name = node->name;
        instruction->id = node->id;
        unit->code = room_make(unit->code, unit->code_count, &unit->code_room, sizeof *unit->code);
        unit->code[unit->code_count++] = instruction;
    }
    for (const char *c = node->name->text; *c != 0; c++) {
        unit->text = room_make(unit->text, unit->text_bytes, &unit->text_room, 1);
        unit->text[unit->text_bytes++] = *c;
    }
}

static void tree_free(struct node *node) {
    for (uint32_t i = 0; i < node->count; i++)
        tree_free(node->children[i]);
    give(node);
}

static void unit_compile(uint64_t *random) {
    struct unit unit = {0};
    for (uint64_t f = 0; f < args[FUNCTIONS].value; f++) {
        const struct name *list[300];
        uint32_t count = 60 + random_below(random, 241);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t id = random_below(random, 1u << 16);
            list[i] = name_read(random_below(random, id + 1));
        }
        struct node *tree = tree_build(list, count, random);
        tree_emit(&unit, tree, random);
        tree_free(tree);
    }
    for (size_t i = 0; i < unit.code_count; i++) {
        if (unit.code[i]->id != unit.code[i]->name->id)
            fail(3, "an instruction does not hold what was written into it");
        give(unit.code[i]);
    }
    give(unit.code);
    give(unit.text);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value);
    double start = now_seconds();
    for (uint64_t i = 0; i < args[UNITS].value; i++)
        unit_compile(&random);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        while (names[i] != NULL) {
            struct name *name = names[i];
            names[i] = name->next;
            give(name);
        }
    }
    report_speed(operations, now_seconds() - start);
}
