/* What the unwind tables (.eh_frame) say of a place in the code: where its caller's registers are.
 *
 *  1. The module's .eh_frame_hdr is searched for the function (FDE), whose program is run up to the address.
 *  2. The outcome is a row: how to find the CFA (the stack pointer as it was before the call), and a rule for each register.
 *  3. Most rows are packed into 16 bytes: CFA = register + offset, and what is saved lies a few words below it.
 *
 * Tables are read only inside their segment: broken ones have no rows. Nothing is stored; any thread, signal handlers too. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_CFI_H
#define HAK_CFI_H

#include "os.h"

enum cfi_kind {
    CFI_SAME,                /* the caller's is what it is now */
    CFI_UNDEFINED,           /* lost; of the return address: nobody called */
    CFI_SAVED,               /* at CFA + value */
    CFI_OFFSET,              /* it is CFA + value */
    CFI_REGISTER,            /* it is in register `value` */
    CFI_SAVED_AT_EXPRESSION, /* at what the expression `value` bytes from the row's base yields */
    CFI_EXPRESSION,          /* it is what that yields */
};

struct cfi_row {
    int32_t value[REGISTERS], cfa_value;
    uint8_t kind[REGISTERS]; /* enum cfi_kind */
    uint8_t cfa_register;
    bool cfa_by_expression; /* `cfa_value` bytes from the base, else register + cfa_value */
};

struct cfi {
    struct cfi_row row;
    const uint8_t *base;     /* of expressions */
    uint8_t return_register; /* whose rule is the return address's */
    bool is_interrupted;     /* the caller did not call: a signal came */
};

/* The row for the code at `address`, which lies in the module. */
bool cfi_find(const struct os_module *module, uintptr_t address, struct cfi *cfi);
/* The expression's value, with `first` on its stack. False: it can't be told. */
bool cfi_expression(const uint8_t *expression, const uintptr_t *registers, uintptr_t first, uintptr_t *value);
/* The word at `address`, a multiple of 8; false: it can't be read. */
bool cfi_load(uintptr_t address, uintptr_t *word);

/* A packed row: for each register of CALLEE_SAVED the words from the CFA down to where it was saved, or one of these. */
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

#endif
