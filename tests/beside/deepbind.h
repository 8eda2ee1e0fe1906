/* What deepbind.c, the library that it opens, and the one that opens it for it have in common. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_DEEPBIND_H
#define HAKMEM_TESTS_DEEPBIND_H

const char *whose(void); /* the program has one, too: the flag decides which one the plugin calls */

const char *plugin_sees(void);
void *plugin_take(void);
void plugin_give_back(void *block);

void *opener_open(const char *file, int mode); /* dlopen, called by a library */

#endif
