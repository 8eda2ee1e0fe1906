/* A library that deepbind.c opens. */
/* SPDX-License-Identifier: MIT */
#include "deepbind.h"

#include <stdlib.h>
#include <string.h>

const char *whose(void) { return "the plugin's"; }
const char *plugin_sees(void) { return whose(); }
void *plugin_take(void) { return memset(malloc(50), 'p', 50); }
void plugin_give_back(void *block) { free(block); }
