/* Unwind tables with randomly changed bytes: cfi.h must stay inside them, which AddressSanitizer watches. */
/* SPDX-License-Identifier: MIT */
#include "stack_shapes.h"

#include <stdlib.h>
#include <string.h>

#include "observe/cfi.h"

static uint64_t state;
static uint64_t random_number(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static uint32_t number_at(const uint8_t *at) {
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}
static void number_put(uint8_t *at, int64_t number) {
    int32_t narrow = (int32_t)number;
    memcpy(at, &narrow, sizeof narrow);
}

enum { HEADER = 20 }; /* bytes before the CIE */

/* Returns the tables of a module with only one function, in a block that ends with its FDE. The function is as far from
 * its FDE as before. */
static uint8_t *tables_of_one(const struct os_module *m, const uint8_t *fde, size_t *bytes, uintptr_t *function) {
    const uint8_t *cie = fde + 4 - number_at(fde + 4);
    size_t cie_bytes = 4 + number_at(cie), fde_bytes = 4 + number_at(fde);
    *bytes = HEADER + cie_bytes + fde_bytes;
    uint8_t *block = malloc(*bytes), *own = block + HEADER + cie_bytes;
    memcpy(block, m->unwind_table, 8);
    memcpy(block + HEADER, cie, cie_bytes);
    memcpy(own, fde, fde_bytes);
    number_put(own + 4, (int64_t)cie_bytes + 4);
    *function = (uintptr_t)own + 8 + (uintptr_t)(int32_t)number_at(own + 8);
    number_put(block + 8, 1);
    number_put(block + 12, (int64_t)(*function - (uintptr_t)block));
    number_put(block + 16, own - block);
    return block;
}

/* Does everything that can be done with a row, whatever the registers are. */
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

unsigned damaged_tables(uintptr_t code, unsigned rounds, unsigned seed) {
    struct os_module module, other = {0};
    struct cfi cfi;
    size_t bytes;
    uintptr_t function;
    unsigned found = 0;
    state = seed;
    if (!os_find_module(code, &module) || !cfi_find(&module, code, &cfi))
        return rounds;
    uint8_t *block = tables_of_one(&module, cfi.base, &bytes, &function), *whole = malloc(bytes);
    memcpy(whole, block, bytes);
    other.unwind_table = other.table_begin = block;
    other.table_end = block + bytes;
    for (unsigned i = 0; i < rounds; i++) {
        memcpy(block, whole, bytes);
        for (uint64_t changes = i == 0 ? 0 : 1 + random_number() % 3; changes > 0; changes--)
            block[random_number() % bytes] = (uint8_t)random_number();
        bool is_row = cfi_find(&other, function + (i == 0 ? 0 : random_number() % 256), &cfi);
        if (is_row)
            follow(&cfi);
        else if (i == 0)
            found = rounds; /* the intact tables must have the row */
        found += is_row;
    }
    free(block);
    free(whole);
    return found;
}

int table_has_row(uintptr_t code, unsigned version, int behind_end) {
    struct os_module module, other = {0};
    struct cfi cfi;
    size_t bytes;
    uintptr_t function;
    if (!os_find_module(code, &module) || !cfi_find(&module, code, &cfi))
        return -1;
    uint8_t *block = tables_of_one(&module, cfi.base, &bytes, &function);
    const uint8_t *fde = block + (int32_t)number_at(block + 16);
    block[HEADER + 8] = (uint8_t)version; /* behind the length and the mark of a CIE */
    other.unwind_table = other.table_begin = block;
    other.table_end = block + bytes;
    bool is_row = cfi_find(&other, function + number_at(fde + 12) + (uintptr_t)(intptr_t)behind_end, &cfi);
    free(block);
    return is_row;
}

int deep_expression(unsigned depth) {
    uint8_t expression[100];
    uintptr_t registers[REGISTERS] = {0}, value;
    memset(expression + 1, 0x12, depth); /* DW_OP_dup */
    expression[0] = (uint8_t)depth;
    return cfi_expression(expression, registers, 7, &value) && value == 7;
}

int expression(const unsigned char *code, unsigned bytes, uintptr_t first, uintptr_t *value) {
    uint8_t whole[100] = {(uint8_t)bytes};
    uintptr_t registers[REGISTERS];
    for (unsigned i = 0; i < REGISTERS; i++)
        registers[i] = 1000 + i;
    for (unsigned i = 0; i < bytes; i++) /* none may be NULL */
        whole[1 + i] = code[i];
    return cfi_expression(whole, registers, first, value);
}
