/* Makes the linker take start.c out of the archive wherever malloc or hak_malloc is: its constructor runs by itself. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_START_H
#define HAK_START_H

void start_library(void);
#define START_LIBRARY_WANTED __attribute__((used)) static void (*const start_library_wanted)(void) = start_library

#endif
