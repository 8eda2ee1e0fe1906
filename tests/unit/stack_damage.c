/* Unwind tables with bytes changed at random: cfi.h must stay inside them, which the address sanitizer watches. */
#include "stack_shapes.h"

#include <stdlib.h>

#include "cfi.h"

static uint64_t state;
static uint64_t random_number(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

/* The segment has constants of the program in it, too, between which the sanitizer does not let us read. */
__attribute__((no_sanitize("address"))) static void copy_bytes(uint8_t *to, const volatile uint8_t *from,
                                                               size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
}

/* A block of its own with the same tables, as if the module lay elsewhere. */
static struct os_module moved(const struct os_module *m) {
    size_t bytes = (size_t)(m->table_end - m->table_begin);
    uint8_t *copy = malloc(bytes);
    copy_bytes(copy, m->table_begin, bytes);
    struct os_module other = *m;
    other.table_begin = copy, other.table_end = copy + bytes;
    other.unwind_table = copy + (m->unwind_table - m->table_begin);
    return other;
}

/* All that can be done with a row, whatever its registers are. */
static void follow(const struct cfi *cfi) {
    uintptr_t registers[REGISTERS], value;
    union cfi_packed packed;
    for (unsigned i = 0; i < REGISTERS; i++)
        registers[i] = random_number() % 4 == 0 ? random_number() << 20 : (uintptr_t)registers;
    if (cfi->row.cfa_by_expression)
        cfi_expression(cfi->base + cfi->row.cfa_value, registers, 0, &value);
    for (unsigned i = 0; i < REGISTERS; i++)
        if (cfi->row.kind[i] == CFI_EXPRESSION || cfi->row.kind[i] == CFI_SAVED_AT_EXPRESSION)
            cfi_expression(cfi->base + cfi->row.value[i], registers, (uintptr_t)registers, &value);
    cfi_pack(cfi, &packed);
}

unsigned damaged_tables(const void *code, unsigned rounds, unsigned seed, unsigned *rows) {
    struct os_module module;
    struct cfi cfi;
    unsigned whole = 0;
    state = seed;
    *rows = 0;
    if (!os_find_module((uintptr_t)code, &module) || module.unwind_table == NULL)
        return 0;
    struct os_module other = moved(&module);
    size_t from = (size_t)(other.unwind_table - other.table_begin),
           bytes = (size_t)(other.table_end - other.unwind_table);
    for (unsigned i = 0; i < rounds; i++) {
        if (i % 1000 == 0) /* intact again */
            copy_bytes((uint8_t *)other.table_begin, module.table_begin, (size_t)(other.table_end - other.table_begin));
        uintptr_t address = (uintptr_t)other.unwind_table + ((uintptr_t)code - (uintptr_t)module.unwind_table);
        address += random_number() % (i % 2 == 0 ? 64 : 100000);
        bool found = cfi_find(&other, address, &cfi);
        whole += found && i % 1000 == 0;
        *rows += found;
        if (found)
            follow(&cfi);
        /* Near where it was last looked, too. */
        uint8_t *at = (uint8_t *)other.table_begin + from + random_number() % bytes;
        if (found && i % 4 != 0)
            at = (uint8_t *)cfi.base + random_number() % 64 - 16;
        if (at < other.table_end)
            *at = (uint8_t)random_number();
    }
    free((uint8_t *)other.table_begin);
    return whole;
}
