/* What dlopen and dlmopen have in common. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* `mode` without RTLD_DEEPBIND, unless the flag is to stay. `file`: NULL for the program itself, which the flag does
 * not change. After a call of next_function. */
uintptr_t deepbind_without(uintptr_t mode, const char *file);
