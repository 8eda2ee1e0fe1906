/* Names for code addresses in reports, without allocating and without the heap: from the symbol tables of the files that the
 * addresses' modules were mapped from, if these are still the same files. In a sandbox no file is opened. Any thread calls
 * these, in a signal handler, too. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SYMBOLS_H
#define HAK_SYMBOLS_H

#include "base/os.h"
#include "base/text.h"

enum { SYMBOL_BYTES = 192 };
struct symbol {
    char name[SYMBOL_BYTES]; /* as the linker knows it, cut off if it is longer; "": none */
    uintptr_t offset;        /* of the address from the function's beginning */
};
/* The function that covers the address. False: no name is known. `room`: memory for a part of a symbol table, some KiB. */
bool symbol_find(const struct os_module *module, uintptr_t address, struct symbol *symbol, void *room,
                 size_t room_bytes);
/* The build id in hexadecimal digits between the two texts, if the module has one. */
void symbol_put_build_id(struct text *t, const char *before, const struct os_module *module, const char *after);

#endif
