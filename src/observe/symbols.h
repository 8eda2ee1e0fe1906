/* Names code addresses in reports, from the symbol tables of the files that the modules were mapped from, if those are
 * still the same files. Does not allocate, and opens no file in a sandbox. Any thread may call these functions, also in
 * a signal handler. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"
#include "base/text.h"

enum { SYMBOL_BYTES = 192 };
struct symbol {
    char name[SYMBOL_BYTES]; /* the linker's, cut off if it is longer; "": unknown */
    uintptr_t offset;        /* from the beginning of the function to the address */
};
/* Finds the function that covers the address. Returns false if its name is unknown. `room`: some KiB for a part of the
 * table. */
bool symbol_find(const struct os_module *module, uintptr_t address, struct symbol *symbol, void *room,
                 size_t room_bytes);
/* Writes the module's build id in hexadecimal digits between the two texts, or nothing if it has none. */
void symbol_put_build_id(struct text *t, const char *before, const struct os_module *module, const char *after);
