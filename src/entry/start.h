/* Makes the linker take start.c from the archive along with malloc or hak_malloc. Its constructor then runs by
 * itself. */
/* SPDX-License-Identifier: MIT */
#pragma once

void start_library(void);
void start_catching(void); /* crashes, if the options want it: at the start, and when an option has changed */
#define START_LIBRARY_WANTED __attribute__((used)) static void (*const start_library_wanted)(void) = start_library
