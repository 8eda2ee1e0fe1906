/* The unwind tables: see cfi.h. The format is that of the Linux Standard Base (.eh_frame) and DWARF 5, chapter 6.4. */
/* SPDX-License-Identifier: MIT */
#include "observe/cfi.h"

#include <string.h>

/* How pointers are written: the low four bits give the form, the next three what is added. */
enum { FORM_PLAIN, FORM_ULEB, FORM_U2, FORM_U4, FORM_U8, FORM_SLEB = 9, FORM_S2, FORM_S4, FORM_S8, FORM_MASK = 15 };
enum { POINTER_OMITTED = 0xff, POINTER_RELATIVE = 0x10, POINTER_RELATIVE_MASK = 0x70 };
enum { HEADER_BYTES = 12, TABLE_SORTED = 0x3b, ROWS_REMEMBERED = 4, EXPRESSION_DEPTH = 16 };

/* Bytes that are being read. A read beyond the end yields zeroes and marks the reader as bad. */
struct reader {
    const uint8_t *at, *end;
    bool is_bad;
};

/* What a CIE says for all its functions. */
struct common {
    uint64_t code_factor;
    int64_t data_factor;
    struct reader program; /* makes the first row */
    uint8_t return_register, pointer_form;
    bool has_size, is_interrupted;
};

/* A function's program while it runs. */
struct machine {
    const struct common *common;
    struct cfi_row *row;
    const struct cfi_row *first; /* what DW_CFA_restore goes back to */
    const uint8_t *base;
    uintptr_t location;
    unsigned depth;
    struct cfi_row remembered[ROWS_REMEMBERED];
};

/* ---- bytes ---- */

static uint64_t read_bytes(struct reader *r, unsigned n) {
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < n) {
        r->is_bad = true;
        return 0;
    }
    for (unsigned i = 0; i < n; i++)
        value |= (uint64_t)r->at[i] << (8 * i);
    r->at += n;
    return value;
}

static uint64_t read_leb(struct reader *r, bool is_signed) {
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = read_bytes(r, 1);
        if (shift < 64)
            value |= (byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    if (is_signed && shift < 64 && (byte & 64))
        value |= ~low_bits(shift);
    return value;
}
static uint64_t read_uleb(struct reader *r) { return read_leb(r, false); }
static int64_t read_sleb(struct reader *r) { return (int64_t)read_leb(r, true); }

static void skip(struct reader *r, uint64_t n) {
    if (n > (size_t)(r->end - r->at))
        r->is_bad = true, n = 0;
    r->at += n;
}

static uintptr_t read_pointer(struct reader *r, unsigned form) {
    uintptr_t value = 0, here = (uintptr_t)r->at;
    switch (form & FORM_MASK) {
    case FORM_ULEB: value = read_uleb(r); break;
    case FORM_SLEB: value = (uintptr_t)read_sleb(r); break;
    case FORM_U2: value = read_bytes(r, 2); break;
    case FORM_U4: value = read_bytes(r, 4); break;
    case FORM_S2: value = (uintptr_t)(int16_t)read_bytes(r, 2); break;
    case FORM_S4: value = (uintptr_t)(int32_t)read_bytes(r, 4); break;
    default: value = read_bytes(r, 8); break;
    }
    return (form & POINTER_RELATIVE_MASK) == POINTER_RELATIVE ? value + here : value;
}

HAK_STRAY bool cfi_load(uintptr_t address, uintptr_t *word) {
    if (address == 0 || address % sizeof *word != 0 || !os_readable_now(address, sizeof *word))
        return false;
    *word = *(const volatile uintptr_t *)address;
    return true;
}

/* ---- the tables ---- */

static bool in_segment(const struct os_module *m, const uint8_t *at, size_t bytes) {
    return at >= m->table_begin && at < m->table_end && bytes <= (size_t)(m->table_end - at);
}

/* The .eh_frame entry at this address, without its length; bad and empty if it is not within the module's segment. */
static struct reader entry_at(const struct os_module *m, const uint8_t *at) {
    struct reader none = {at, at, true}, r = {at, at + 4, false};
    if (!in_segment(m, at, 4))
        return none;
    uint64_t bytes = read_bytes(&r, 4);
    if (bytes < 8 || !in_segment(m, r.at, bytes))
        return none;
    r.end = r.at + bytes;
    return r;
}

/* How many entries the sorted table of .eh_frame_hdr has: pairs of 32-bit distances from the header, to a function and
 * to its FDE. 0 if the table is missing or has another form. */
static uint64_t table_entries(const struct os_module *m) {
    const uint8_t *header = m->unwind_table;
    struct reader r = {header, header + HEADER_BYTES, false};
    if (header == NULL || !in_segment(m, header, HEADER_BYTES))
        return 0;
    bool is_known = read_bytes(&r, 1) == 1;
    unsigned frame_form = (unsigned)read_bytes(&r, 1) & FORM_MASK;
    is_known &= (frame_form == FORM_U4 || frame_form == FORM_S4) && read_bytes(&r, 1) == FORM_U4;
    is_known &= read_bytes(&r, 1) == TABLE_SORTED;
    skip(&r, 4);
    uint64_t n = read_bytes(&r, 4);
    return is_known && in_segment(m, r.at, n * 8) ? n : 0;
}

static int32_t table_number(const struct os_module *m, uint64_t i) {
    const uint8_t *at = m->unwind_table + HEADER_BYTES + i * 4;
    struct reader r = {at, at + 4, false};
    return (int32_t)read_bytes(&r, 4);
}

/* The FDE of the last function that begins at or before the address. */
static const uint8_t *table_search(const struct os_module *m, uintptr_t address) {
    /* functions below `low` begin at or before the address, those from `high` on behind it */
    uint64_t low = 0, high = table_entries(m);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if ((uintptr_t)(m->unwind_table + table_number(m, 2 * middle)) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? m->unwind_table + table_number(m, 2 * low - 1) : NULL;
}

static bool read_augmentation(struct reader *r, const char *letters, struct common *common) {
    common->has_size = letters[0] == 'z';
    if (letters[0] == '\0')
        return true;
    if (!common->has_size)
        return false;
    uint64_t bytes = read_uleb(r);
    struct reader data = *r;
    skip(r, bytes);
    data.end = r->at;
    while (*++letters != '\0') {
        unsigned form;
        switch (*letters) {
        case 'R': common->pointer_form = (uint8_t)read_bytes(&data, 1); break;
        case 'L': skip(&data, 1); break;
        case 'S': common->is_interrupted = true; break;
        case 'B': /* aarch64: signed with the other key */
        case 'G': /* aarch64: the stack is tagged */ break;
        case 'P':
            form = (unsigned)read_bytes(&data, 1);
            if (form != POINTER_OMITTED)
                read_pointer(&data, form);
            break;
        default: return false;
        }
    }
    return !data.is_bad;
}

static bool read_common(const struct os_module *m, const uint8_t *at, struct common *common) {
    struct reader r = entry_at(m, at);
    if (r.is_bad || read_bytes(&r, 4) != 0)
        return false;
    uint64_t version = read_bytes(&r, 1);
    const char *letters = (const char *)r.at;
    while (read_bytes(&r, 1) != 0) {
    }
    if (version == 4)
        skip(&r, 2); /* sizes of addresses and segments */
    *common = (struct common){.code_factor = read_uleb(&r), .pointer_form = FORM_PLAIN};
    common->data_factor = read_sleb(&r);
    common->return_register = (uint8_t)(version == 1 ? read_bytes(&r, 1) : read_uleb(&r));
    if (r.is_bad || (version != 1 && version != 3 && version != 4) || common->return_register >= REGISTERS)
        return false;
    if (!read_augmentation(&r, letters, common))
        return false;
    common->program = r;
    return !r.is_bad;
}

/* ---- programs ---- */

// clang-format off
enum {
    SET_LOCATION = 1, ADVANCE_1, ADVANCE_2, ADVANCE_4, OFFSET_EXTENDED, RESTORE_EXTENDED, UNDEFINED, SAME_VALUE,
    REGISTER, REMEMBER, RESTORE_STATE, DEFINE_CFA, DEFINE_CFA_REGISTER, DEFINE_CFA_OFFSET, DEFINE_CFA_EXPRESSION,
    EXPRESSION, OFFSET_EXTENDED_SIGNED, DEFINE_CFA_SIGNED, DEFINE_CFA_OFFSET_SIGNED, VALUE_OFFSET,
    VALUE_OFFSET_SIGNED, VALUE_EXPRESSION,
    NEGATE_SIGNATURE_WITH_CODE = 0x2c, NEGATE_SIGNATURE, ARGUMENTS_BYTES,
    ADVANCE = 0x40, OFFSET = 0x80, RESTORE = 0xc0, OPERAND = 0x3f
}; /* DW_CFA_* */
// clang-format on

/* Drops rules of registers that we do not track (floating point). */
static void set_rule(struct machine *m, uint64_t number, enum cfi_kind kind, int64_t value) {
    if (number < REGISTERS) {
        m->row->kind[number] = (uint8_t)kind;
        m->row->value[number] = (int32_t)value;
    }
}

static void restore_rule(struct machine *m, uint64_t number) {
    if (number < REGISTERS) {
        m->row->kind[number] = m->first->kind[number];
        m->row->value[number] = m->first->value[number];
    }
}

/* Skips the expression that comes next and returns its offset from the base. */
static int64_t take_block(struct machine *m, struct reader *r) {
    int64_t at = r->at - m->base;
    skip(r, read_uleb(r));
    return at;
}

static void set_cfa(struct machine *m, struct reader *r, uint64_t number, int64_t offset) {
    r->is_bad |= number >= REGISTERS;
    m->row->cfa_register = (uint8_t)number;
    m->row->cfa_value = (int32_t)offset;
    m->row->cfa_by_expression = false;
}

static void remember_or_restore(struct machine *m, struct reader *r, bool remember) {
    if (remember && m->depth < ROWS_REMEMBERED)
        m->remembered[m->depth++] = *m->row;
    else if (!remember && m->depth > 0)
        *m->row = m->remembered[--m->depth];
    else
        r->is_bad = true;
}

/* Instructions whose first operand is a register's number, a bit each. */
#define NUMBERED                                                                                                       \
    (1u << OFFSET_EXTENDED | 1u << RESTORE_EXTENDED | 1u << UNDEFINED | 1u << SAME_VALUE | 1u << REGISTER |            \
     1u << DEFINE_CFA | 1u << DEFINE_CFA_REGISTER | 1u << EXPRESSION | 1u << OFFSET_EXTENDED_SIGNED |                  \
     1u << DEFINE_CFA_SIGNED | 1u << VALUE_OFFSET | 1u << VALUE_OFFSET_SIGNED | 1u << VALUE_EXPRESSION)

static void run_instruction(struct machine *m, struct reader *r, uint64_t op) {
    int64_t factor = m->common->data_factor;
    uint64_t number = op < 32 && NUMBERED >> op & 1 ? read_uleb(r) : m->row->cfa_register;
    switch (op) {
    case 0:
    case NEGATE_SIGNATURE_WITH_CODE: /* signatures are always taken off */
    case NEGATE_SIGNATURE: break;
    case SET_LOCATION: m->location = read_pointer(r, m->common->pointer_form); break;
    case ADVANCE_1: m->location += read_bytes(r, 1) * m->common->code_factor; break;
    case ADVANCE_2: m->location += read_bytes(r, 2) * m->common->code_factor; break;
    case ADVANCE_4: m->location += read_bytes(r, 4) * m->common->code_factor; break;
    case REMEMBER:
    case RESTORE_STATE: remember_or_restore(m, r, op == REMEMBER); break;
    case DEFINE_CFA:
    case DEFINE_CFA_OFFSET: set_cfa(m, r, number, (int64_t)read_uleb(r)); break;
    case DEFINE_CFA_SIGNED:
    case DEFINE_CFA_OFFSET_SIGNED: set_cfa(m, r, number, read_sleb(r) * factor); break;
    case DEFINE_CFA_REGISTER: set_cfa(m, r, number, m->row->cfa_value); break;
    case DEFINE_CFA_EXPRESSION:
        m->row->cfa_value = (int32_t)take_block(m, r);
        m->row->cfa_by_expression = true;
        break;
    case OFFSET_EXTENDED: set_rule(m, number, CFI_SAVED, (int64_t)read_uleb(r) * factor); break;
    case OFFSET_EXTENDED_SIGNED: set_rule(m, number, CFI_SAVED, read_sleb(r) * factor); break;
    case VALUE_OFFSET: set_rule(m, number, CFI_OFFSET, (int64_t)read_uleb(r) * factor); break;
    case VALUE_OFFSET_SIGNED: set_rule(m, number, CFI_OFFSET, read_sleb(r) * factor); break;
    case EXPRESSION: set_rule(m, number, CFI_SAVED_AT_EXPRESSION, take_block(m, r)); break;
    case VALUE_EXPRESSION: set_rule(m, number, CFI_EXPRESSION, take_block(m, r)); break;
    case REGISTER: set_rule(m, number, CFI_REGISTER, (int64_t)read_uleb(r)); break;
    case RESTORE_EXTENDED: restore_rule(m, number); break;
    case UNDEFINED: set_rule(m, number, CFI_UNDEFINED, 0); break;
    case SAME_VALUE: set_rule(m, number, CFI_SAME, 0); break;
    case ARGUMENTS_BYTES: read_uleb(r); break;
    default: r->is_bad = true;
    }
}

/* Runs the program until the location passes the address. False: an instruction is unknown or cut off. */
static bool cfi_run(struct machine *m, struct reader program, uintptr_t address) {
    while (program.at < program.end && !program.is_bad) {
        uint64_t op = read_bytes(&program, 1);
        switch (op & ~(uint64_t)OPERAND) {
        case ADVANCE: m->location += (op & OPERAND) * m->common->code_factor; break;
        case OFFSET: set_rule(m, op & OPERAND, CFI_SAVED, (int64_t)read_uleb(&program) * m->common->data_factor); break;
        case RESTORE: restore_rule(m, op & OPERAND); break;
        default: run_instruction(m, &program, op);
        }
        if (m->location > address)
            break;
    }
    return !program.is_bad;
}

bool cfi_find(const struct os_module *module, uintptr_t address, struct cfi *cfi) {
    const uint8_t *fde = table_search(module, address);
    struct common common;
    if (fde == NULL)
        return false;
    struct reader r = entry_at(module, fde);
    if (r.is_bad)
        return false;
    const uint8_t *link = r.at;
    if (!read_common(module, link - read_bytes(&r, 4), &common))
        return false;
    uintptr_t begin = read_pointer(&r, common.pointer_form);
    uintptr_t bytes = read_pointer(&r, common.pointer_form & FORM_MASK);
    if (common.has_size)
        skip(&r, read_uleb(&r));
    if (r.is_bad || address - begin >= bytes)
        return false;

    struct cfi_row first;
    memset(&first, 0, sizeof first);
    struct machine m; /* `remembered` is not cleared: it is large */
    m.common = &common, m.first = m.row = &first, m.base = fde, m.location = begin, m.depth = 0;
    if (!cfi_run(&m, common.program, UINTPTR_MAX))
        return false;
    cfi->row = first;
    m.row = &cfi->row;
    m.location = begin;
    cfi->base = fde;
    cfi->return_register = common.return_register;
    cfi->is_interrupted = common.is_interrupted;
    return cfi_run(&m, r, address);
}

/* ---- expressions ---- */

// clang-format off
enum {
    OP_DEREF = 0x06, OP_CONST_1U = 0x08, OP_CONST_8S = 0x0f, OP_CONST_U, OP_CONST_S, OP_DUP, OP_DROP, OP_OVER,
    OP_SWAP = 0x16, OP_AND = 0x1a, OP_MINUS = 0x1c, OP_MULTIPLY = 0x1e, OP_OR = 0x21, OP_PLUS, OP_PLUS_CONST,
    OP_SHIFT_LEFT, OP_SHIFT_RIGHT, OP_EQUAL = 0x29, OP_GREATER_EQUAL, OP_GREATER, OP_LESS_EQUAL, OP_LESS, OP_NOT_EQUAL,
    OP_LITERAL = 0x30, OP_REGISTER = 0x70, OP_BASED = 0x92
}; /* DW_OP_* */
// clang-format on

static bool binary(uint64_t op, uintptr_t a, uintptr_t b, uintptr_t *value) {
    intptr_t x = (intptr_t)a, y = (intptr_t)b;
    switch (op) {
    case OP_AND: *value = a & b; break;
    case OP_OR: *value = a | b; break;
    case OP_PLUS: *value = a + b; break;
    case OP_MINUS: *value = a - b; break;
    case OP_MULTIPLY: *value = a * b; break;
    case OP_SHIFT_LEFT: *value = b < 64 ? a << b : 0; break;
    case OP_SHIFT_RIGHT: *value = b < 64 ? a >> b : 0; break;
    case OP_EQUAL: *value = x == y; break;
    case OP_NOT_EQUAL: *value = x != y; break;
    case OP_GREATER_EQUAL: *value = x >= y; break;
    case OP_GREATER: *value = x > y; break;
    case OP_LESS_EQUAL: *value = x <= y; break;
    case OP_LESS: *value = x < y; break;
    default: return false;
    }
    return true;
}

/* Runs an operation that only pushes a value. False: it is not such an operation. */
static bool cfi_push(uint64_t op, struct reader *r, const uintptr_t *registers, uintptr_t *value) {
    static const uint8_t forms[] = {FORM_U2, FORM_S2, FORM_U4, FORM_S4, FORM_U8, FORM_S8};
    if (op >= OP_LITERAL && op < OP_LITERAL + 32)
        *value = op - OP_LITERAL;
    else if (op == OP_CONST_1U)
        *value = read_bytes(r, 1);
    else if (op == OP_CONST_1U + 1)
        *value = (uintptr_t)(int8_t)read_bytes(r, 1);
    else if (op > OP_CONST_1U && op <= OP_CONST_8S)
        *value = read_pointer(r, forms[op - OP_CONST_1U - 2]);
    else if (op == OP_CONST_U)
        *value = read_uleb(r);
    else if (op == OP_CONST_S)
        *value = (uintptr_t)read_sleb(r);
    else if ((op >= OP_REGISTER && op < OP_REGISTER + 32) || op == OP_BASED) {
        uint64_t number = op == OP_BASED ? read_uleb(r) : op - OP_REGISTER;
        if (number >= REGISTERS)
            return false;
        *value = registers[number] + (uintptr_t)read_sleb(r);
    } else
        return false;
    return true;
}

/* Runs an operation on the stack's top. Returns the new depth, or 0 if it is unknown or takes more than there is. */
static unsigned operate(uint64_t op, struct reader *r, uintptr_t *stack, unsigned depth) {
    uintptr_t *top = &stack[depth - 1], saved = *top;
    switch (op) {
    case OP_DEREF: return cfi_load(*top, top) ? depth : 0;
    case OP_PLUS_CONST: *top += read_uleb(r); return depth;
    case OP_DUP: top[1] = *top; return depth + 1;
    case OP_DROP: return depth - 1;
    }
    if (depth < 2)
        return 0;
    switch (op) {
    case OP_OVER: top[1] = top[-1]; return depth + 1;
    case OP_SWAP: *top = top[-1], top[-1] = saved; return depth;
    default: return binary(op, top[-1], *top, &top[-1]) ? depth - 1 : 0;
    }
}

bool cfi_expression(const uint8_t *expression, const uintptr_t *registers, uintptr_t first, uintptr_t *value) {
    struct reader r = {expression, expression + 10, false}; /* holds any length; all of it is in its entry */
    uint64_t bytes = read_uleb(&r);
    r.end = r.at + bytes;
    uintptr_t stack[EXPRESSION_DEPTH + 1] = {first};
    unsigned depth = 1;
    while (r.at < r.end && depth > 0 && depth < EXPRESSION_DEPTH) {
        uint64_t op = read_bytes(&r, 1);
        if (cfi_push(op, &r, registers, &stack[depth]))
            depth++;
        else
            depth = operate(op, &r, stack, depth);
    }
    *value = stack[depth > 0 ? depth - 1 : 0];
    return depth > 0 && r.at == r.end && !r.is_bad;
}

/* ---- packed rows ---- */

bool cfi_pack(const struct cfi *cfi, union cfi_packed *packed) {
    static const uint8_t kept[] = {CALLEE_SAVED};
    const struct cfi_row *row = &cfi->row;
    int32_t words = row->cfa_value / 8;
    if (row->cfa_by_expression || cfi->is_interrupted || cfi->return_register != REGISTER_RETURN ||
        row->cfa_value % 8 != 0 || words >= 1 << 23 || words < -(1 << 23))
        return false;
    memset(packed, 0, sizeof *packed);
    unsigned rules = 0;
    for (unsigned i = 0; i < sizeof kept; i++) {
        unsigned kind = row->kind[kept[i]];
        int64_t below = -(int64_t)row->value[kept[i]];
        rules += kind != CFI_SAME;
        if (kind == CFI_SAVED && below % 8 == 0 && below > 0 && below < PACKED_UNDEFINED * 8)
            packed->byte[i] = (uint8_t)(below / 8);
        else if (kind == CFI_UNDEFINED && kept[i] == REGISTER_RETURN)
            packed->byte[i] = PACKED_UNDEFINED;
        else if (kind != CFI_SAME)
            return false;
    }
    for (unsigned i = 0; i < REGISTERS; i++)
        rules -= row->kind[i] != CFI_SAME;
    packed->word[1] |= (uint64_t)row->cfa_register << 32 | (uint64_t)(int64_t)words << 40;
    return rules == 0;
}
