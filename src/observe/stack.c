/* The call stack: see stack.h.
 *
 *  1. A frame is the place where a function continues, and the registers it has then. cfi.h's row for the place leads
 *     to the caller's frame.
 *  2. Packed rows are cached by place, so that a frame usually costs one lookup and a few loads.
 *  3. Code without a row may have a frame pointer, which is believed if it leads to a call.
 *  4. A walk ends where neither leads on, where the row says that there is no caller, and where the stack does not go
 *     up. Before an address is read, the kernel is asked whether it can be read.
 *
 * All threads share the cache by relaxed loads and stores: an entry of which two threads wrote one half each does not
 * match its key. The key includes the module's identity, because a library may be loaded where another one was. */
/* SPDX-License-Identifier: MIT */
#include "observe/stack.h"

#include "observe/cfi.h"

enum { CACHE_ENTRIES = 1024, POINTER_FAR_BYTES = 1 << 20 };

struct frame {
    uintptr_t code; /* where it continues */
    uintptr_t registers[REGISTERS];
    bool is_interrupted;     /* at `code`, which does not follow a call */
    struct os_module module; /* the last one found: the module of `code` if it contains it */
    uintptr_t page;          /* number of a 4 KiB page of the stack that can be read */
};

/* The row of a place. `key` is computed from the place and the words. Each atomic pairs with itself. */
struct cached {
    _Atomic uint64_t key, word[2];
};
static HAK_APART struct cached cache[CACHE_ENTRIES];

static uint64_t entry_key(uint64_t place, const union cfi_packed *row) {
    return place ^ mix_bits(row->word[0] + mix_bits(row->word[1]));
}

static bool cache_get(uint64_t place, union cfi_packed *row) {
    struct cached *entry = &cache[place % CACHE_ENTRIES];
    row->word[0] = load_relaxed(&entry->word[0]);
    row->word[1] = load_relaxed(&entry->word[1]);
    return load_relaxed(&entry->key) == entry_key(place, row);
}

static void cache_put(uint64_t place, const union cfi_packed *row) {
    struct cached *entry = &cache[place % CACHE_ENTRIES];
    store_relaxed(&entry->word[0], row->word[0]);
    store_relaxed(&entry->word[1], row->word[1]);
    store_relaxed(&entry->key, entry_key(place, row));
}

/* ---- one frame ---- */

/* The caller of a function that was interrupted, or that is the first, may have the same stack pointer. */
static bool goes_up(const struct frame *f, uintptr_t from, uintptr_t to) {
    return to > from || (to == from && f->is_interrupted);
}

/* Loads the registers whose bytes in this word are not zero. The lowest byte belongs to kept[first]. */
HAK_STRAY static bool load_saved(struct frame *f, uint64_t word, unsigned first, uintptr_t cfa) {
    static const uint8_t kept[PACKED_CFA_REGISTER] = {CALLEE_SAVED};
    while (word != 0) {
        unsigned shift = lowest_bit(word) & ~7u;
        uintptr_t at = cfa - (word >> shift & 255) * sizeof at;
        if (at >> OS_PAGE_SHIFT != f->page && !os_readable_now(at, sizeof at))
            return false;
        f->page = at >> OS_PAGE_SHIFT;
        f->registers[kept[first + shift / 8]] = *(const volatile uintptr_t *)at;
        word &= ~((uint64_t)255 << shift);
    }
    return true;
}

static bool step_packed(struct frame *f, const union cfi_packed *row) {
    uintptr_t cfa = f->registers[row->byte[PACKED_CFA_REGISTER]] + (uintptr_t)packed_cfa_offset(row);
    unsigned of_return = row->byte[PACKED_RETURN];
    if (!goes_up(f, f->registers[REGISTER_STACK], cfa) || of_return == PACKED_UNDEFINED ||
        (of_return == PACKED_SAME && !f->is_interrupted))
        return false;
    if (cfa % sizeof cfa != 0 || !load_saved(f, row->word[0], 0, cfa) || !load_saved(f, (uint32_t)row->word[1], 8, cfa))
        return false;
    f->registers[REGISTER_STACK] = cfa;
    f->code = code_address(f->registers[REGISTER_RETURN]);
    f->is_interrupted = false;
    return true;
}

/* Recovers one register of the caller; `before` are the callee's registers. */
static bool recover(const struct cfi *cfi, unsigned number, const uintptr_t *before, uintptr_t cfa, uintptr_t *value) {
    intptr_t operand = cfi->row.value[number];
    switch (cfi->row.kind[number]) {
    case CFI_SAVED: return cfi_load(cfa + (uintptr_t)operand, value);
    case CFI_OFFSET: *value = cfa + (uintptr_t)operand; return true;
    case CFI_REGISTER:
        if ((size_t)operand >= REGISTERS)
            return false;
        *value = before[operand];
        return true;
    case CFI_EXPRESSION: return cfi_expression(cfi->base + operand, before, cfa, value);
    case CFI_SAVED_AT_EXPRESSION:
        return cfi_expression(cfi->base + operand, before, cfa, value) && cfi_load(*value, value);
    default: return true;
    }
}

HAK_NOINLINE static bool step_row(struct frame *f, const struct cfi *cfi) {
    const struct cfi_row *row = &cfi->row;
    uintptr_t before[REGISTERS], cfa = f->registers[row->cfa_register] + (uintptr_t)(intptr_t)row->cfa_value;
    for (unsigned i = 0; i < REGISTERS; i++)
        before[i] = f->registers[i];
    if (row->cfa_by_expression && !cfi_expression(cfi->base + row->cfa_value, before, 0, &cfa))
        return false;
    if (row->kind[cfi->return_register] == CFI_UNDEFINED)
        return false;
    f->registers[REGISTER_STACK] = cfa;
    for (unsigned i = 0; i < REGISTERS; i++)
        if (!recover(cfi, i, before, cfa, &f->registers[i]))
            return false;
    if (!cfi->is_interrupted && !goes_up(f, before[REGISTER_STACK], f->registers[REGISTER_STACK]))
        return false;
    f->code = code_address(f->registers[cfi->return_register]);
    f->is_interrupted = cfi->is_interrupted;
    return true;
}

HAK_STRAY static bool is_signal_return(uintptr_t code) {
    const volatile uint32_t *instruction = (const volatile uint32_t *)code;
    return SIGNAL_RETURN_CODE != 0 && code % 4 == 0 && os_readable_now(code, 8) &&
           instruction[0] == (uint32_t)SIGNAL_RETURN_CODE && instruction[1] == SIGNAL_RETURN_CODE >> 32;
}

/* Steps from the code that a signal handler returns to, where it has no table, to the code that was interrupted. */
static bool step_signal(struct frame *f) {
    uintptr_t at = f->registers[REGISTER_STACK] + SIGNAL_FRAME_BYTES;
    if (!is_signal_return(f->code))
        return false;
    /* LCOV_EXCL_START: x86-64 has a table there */
    for (unsigned i = 0; i < REGISTERS; i++)
        if (!cfi_load(at + i * sizeof at, &f->registers[i]))
            return false;
    f->is_interrupted = true;
    return cfi_load(at + SIGNAL_CODE_WORD * sizeof at, &f->code);
    /* LCOV_EXCL_STOP */
}

HAK_STRAY static bool follows_call(uintptr_t code) {
    return code > CALL_BYTES && os_readable_now(code - CALL_BYTES, CALL_BYTES) &&
           is_call((const uint8_t *)(code - CALL_BYTES));
}

/* Steps by the frame pointer, which just-in-time compilers keep, if the stack looks like one that has it: not far above
 * the stack pointer lies an address that follows a call. */
HAK_NOINLINE static bool step_by_pointer(struct frame *f) {
    uintptr_t at = f->registers[REGISTER_FRAME] + (uintptr_t)(intptr_t)FRAME_LINK_BYTES, pointer, code;
    if (at - f->registers[REGISTER_STACK] > POINTER_FAR_BYTES || !cfi_load(at, &pointer) ||
        !cfi_load(at + sizeof pointer, &code) || !follows_call(code_address(code)))
        return false;
    f->registers[REGISTER_FRAME] = pointer;
    f->registers[REGISTER_STACK] = at + 2 * sizeof pointer;
    f->code = code_address(code);
    f->is_interrupted = false;
    return true;
}

/* Steps from code that no table describes. */
static bool step_without_row(struct frame *f) { return step_signal(f) || step_by_pointer(f); }

/* Steps to the caller. */
static bool step(struct frame *f) {
    uintptr_t place = f->is_interrupted ? f->code : f->code - 1; /* a call may be its function's last instruction */
    if (place - f->module.begin >= f->module.end - f->module.begin) {
        if (!os_find_module(place, &f->module)) {
            f->module.end = f->module.begin;
            return step_without_row(f);
        }
    }
    union cfi_packed packed;
    uint64_t key = mix_bits(place ^ f->module.identity);
    if (cache_get(key, &packed))
        return step_packed(f, &packed);
    struct cfi cfi;
    if (!cfi_find(&f->module, place, &cfi))
        return step_without_row(f);
    if (!cfi_pack(&cfi, &packed))
        return step_row(f, &cfi);
    cache_put(key, &packed);
    return step_packed(f, &packed);
}

HAK_NOINLINE unsigned stack_capture(uintptr_t *callers, unsigned max) {
    struct frame f = {.is_interrupted = true};
    f.code = registers_read(f.registers);
    f.page = f.registers[REGISTER_STACK] >> OS_PAGE_SHIFT;
    unsigned n = 0;
    while (n < max && step(&f) && f.code != 0)
        callers[n++] = f.code;
    return n;
}
