/* What the unwind tables (.eh_frame) say about a code address: where the caller's registers are.
 *
 *  1. The module's .eh_frame_hdr is searched for the function's entry (FDE), whose program is run up to the address.
 *  2. The result is a row: how to find the CFA (the stack pointer before the call), and a rule for each register.
 *  3. Most rows are packed into 16 bytes: CFA = register + offset, and saved registers are a few words below the CFA.
 *
 * Tables are read only inside their segment; broken ones yield no rows. Nothing is stored. For any thread and for
 * signal handlers. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"

enum cfi_kind {
    CFI_SAME,                /* the caller has the same value */
    CFI_UNDEFINED,           /* lost; for the return address: there is no caller */
    CFI_SAVED,               /* saved at CFA + value */
    CFI_OFFSET,              /* the caller's value is CFA + value */
    CFI_REGISTER,            /* the caller's value is in register `value` */
    CFI_SAVED_AT_EXPRESSION, /* saved at the result of the expression `value` bytes from the base */
    CFI_EXPRESSION,          /* the caller's value is the result of that expression */
};

struct cfi_row {
    int32_t value[REGISTERS], cfa_value;
    uint8_t kind[REGISTERS]; /* enum cfi_kind */
    uint8_t cfa_register;
    bool cfa_by_expression; /* CFA: the expression `cfa_value` bytes from the base; else register + cfa_value */
};

struct cfi {
    struct cfi_row row;
    const uint8_t *base;     /* expressions are found by their distance from it */
    uint8_t return_register; /* its rule gives the return address */
    bool is_interrupted;     /* the caller made no call: a signal interrupted it */
};

/* Finds the row for the code at `address`, which is in the module. */
bool cfi_find(const struct os_module *module, uintptr_t address, struct cfi *cfi);
/* Evaluates an expression, with `first` on its stack. False: it cannot be evaluated. */
bool cfi_expression(const uint8_t *expression, const uintptr_t *registers, uintptr_t first, uintptr_t *value);
/* Loads the word at `address`. False: the address is no multiple of 8, or cannot be read. */
bool cfi_load(uintptr_t address, uintptr_t *word);

/* A packed row: for each register of CALLEE_SAVED, how many words below the CFA it was saved, or one of these. */
enum { PACKED_SAME = 0, PACKED_UNDEFINED = 255, PACKED_CFA_REGISTER = 12, PACKED_BYTES = 16 };
enum { PACKED_RETURN = sizeof(uint8_t[]){CALLEE_SAVED} - 1 };
union cfi_packed {
    uint8_t byte[PACKED_BYTES]; /* the last three: the CFA's offset in words, signed */
    uint64_t word[2];           /* of which the first byte is the lowest */
};
bool cfi_pack(const struct cfi *cfi, union cfi_packed *packed);
HAK_INLINE intptr_t packed_cfa_offset(const union cfi_packed *packed) {
    return (intptr_t)((int64_t)packed->word[1] >> 40) * 8;
}
