/* interpreter [STEPS] [GLOBALS] [SEED]: the blocks of a scripting language at work: boxed, counted, mostly short-lived.
 *
 * A stack machine with reference counts. Every operation makes new blocks for numbers (24 B) and strings (up to 200 B);
 * lists grow by realloc; calls allocate a frame of 2-9 locals and free it on return. Of 16 steps
 *   4 push a number · 3 add or join the top two · 2 push a string · 2 store to one of GLOBALS · 1 load one
 *   1 append to a list · 1 push an empty list · 1 call · 1 return
 *
 * An operation is one step. At the end the number of live values must agree with the counts. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"
#include <stddef.h>

enum { STEPS, GLOBALS, SEED };
enum { STACK = 200, STRING_MAX = 200, LIST_MAX = 1000 };

static struct argument args[] = {{"STEPS", 12000000, 1, 0}, {"GLOBALS", 5000, 1, 1u << 24}, {"SEED", 42, 0, 0}};

enum kind { NUMBER, STRING, LIST };

struct value {
    uint32_t references;
    uint32_t kind;
    union {
        int64_t number; /* 24 B are requested */
        struct {
            uint32_t length;
            char text[]; /* all the same character; the value is one block */
        } string;
        struct {
            uint32_t count, room;
            struct value **items; /* numbers and strings only: no cycles */
        } list;
    };
};

struct frame {
    struct frame *caller;
    uint32_t count;
    struct value *locals[];
};

static struct value *stack[STACK], **globals;
static struct frame *frame;
static uint32_t top;
static uint64_t alive;

static struct value *value_new(enum kind kind, size_t size) {
    struct value *value = must(malloc(size));
    value->references = 1;
    value->kind = kind;
    alive++;
    return value;
}

static struct value *number_new(int64_t number) {
    struct value *value = value_new(NUMBER, 24);
    value->number = number;
    return value;
}

static struct value *string_new(char letter, uint32_t length) {
    struct value *value = value_new(STRING, offsetof(struct value, string.text) + length + 1);
    value->string.length = length;
    memset(value->string.text, letter, length);
    value->string.text[length] = 0;
    return value;
}

static struct value *list_new(void) {
    struct value *value = value_new(LIST, sizeof *value);
    value->list.count = value->list.room = 0;
    value->list.items = NULL;
    return value;
}

static struct value *value_keep(struct value *value) {
    if (value != NULL)
        value->references++;
    return value;
}

static void value_drop(struct value *value) {
    if (value == NULL || --value->references > 0)
        return;
    if (value->kind == STRING) {
        const char *text = value->string.text;
        uint32_t last = value->string.length - 1;
        if (text[0] != text[last] || text[last + 1] != 0)
            fail(3, "a string does not hold what was written into it");
    } else if (value->kind == LIST) {
        for (uint32_t i = 0; i < value->list.count; i++)
            value_drop(value->list.items[i]);
        free(value->list.items);
    } else if (value->kind != NUMBER) {
        fail(3, "a value does not hold what was written into it");
    }
    free(value);
    alive--;
}

static void list_append(struct value *list, struct value *item) {
    if (list->list.count == list->list.room) {
        list->list.room = list->list.room != 0 ? list->list.room + list->list.room / 2 : 4;
        list->list.items = must(realloc(list->list.items, list->list.room * sizeof *list->list.items));
    }
    list->list.items[list->list.count++] = item;
}

static struct value *add(const struct value *a, const struct value *b) {
    if (a->kind == STRING && b->kind == STRING) {
        uint32_t length = a->string.length + b->string.length;
        return string_new(a->string.text[0], length < STRING_MAX ? length : STRING_MAX);
    }
    return number_new((a->kind == NUMBER ? a->number : 1) + (b->kind == NUMBER ? b->number : 1));
}

static void call(uint64_t *random) {
    uint32_t count = 2 + random_below(random, 8);
    struct frame *called = must(malloc(sizeof *called + count * sizeof called->locals[0]));
    called->caller = frame;
    called->count = count;
    for (uint32_t i = 0; i < count; i++)
        called->locals[i] = i < top ? value_keep(stack[top - 1 - i]) : NULL;
    frame = called;
}

static void give_back(void) {
    struct frame *done = frame;
    for (uint32_t i = 0; i < done->count; i++)
        value_drop(done->locals[i]);
    frame = done->caller;
    free(done);
}

static void push(struct value *value) {
    if (top == STACK) { /* drops the older half */
        for (uint32_t i = 0; i < STACK / 2; i++)
            value_drop(stack[i]);
        memmove(stack, stack + STACK / 2, STACK / 2 * sizeof *stack);
        top = STACK / 2;
    }
    stack[top++] = value;
}

static void step(uint64_t *random) {
    uint32_t what = random_below(random, 16);
    struct value **global = &globals[random_below(random, (uint32_t)args[GLOBALS].value)];
    if (what < 4 || top < 2) {
        push(number_new((int64_t)*random));
    } else if (what < 7) {
        struct value *one = stack[--top], *two = stack[--top];
        push(add(one, two));
        value_drop(one);
        value_drop(two);
    } else if (what < 9) {
        push(string_new((char)('a' + *random % 26), 1 + random_below(random, 40)));
    } else if (what < 11) {
        value_drop(*global);
        *global = stack[--top];
    } else if (what == 11) {
        if (*global != NULL)
            push(value_keep(*global));
    } else if (what == 12) {
        struct value *item = stack[top - 1];
        if (*global != NULL && (*global)->kind == LIST && item->kind != LIST && (*global)->list.count < LIST_MAX)
            list_append(*global, value_keep(item));
    } else if (what == 13) {
        push(list_new());
    } else if (what == 14) {
        call(random);
    } else if (frame != NULL) {
        give_back();
    }
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value);
    globals = must(calloc(args[GLOBALS].value, sizeof *globals));
    double start = now_seconds();
    for (uint64_t i = 0; i < args[STEPS].value; i++)
        step(&random);
    report_speed(args[STEPS].value, now_seconds() - start);
    report_value("values_alive", alive);
    while (frame != NULL)
        give_back();
    while (top > 0)
        value_drop(stack[--top]);
    for (uint64_t i = 0; i < args[GLOBALS].value; i++)
        value_drop(globals[i]);
    if (alive != 0)
        fail(3, "the counts of references are wrong");
    free(globals);
}
