/* See log.h. */
/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <string.h>

struct log_class log_class(unsigned tag) {
    struct log_class class = {"large"};
    struct text t = {class.text, sizeof class.text - 1, 0, -1};
    if (tag != 0) {
        text_number(&t, tag - 1);
        class.text[t.length] = '\0';
    }
    return class;
}

bool log_wanted(enum log_kind kind) {
    static const struct {
        const char *word;
        enum option option;
    } kinds[] = {[LOG_ACQUIRE] = {"acquire", OPT_SS_ACQUIRE_DEBUG},
                 [LOG_FREE] = {"free", OPT_SS_FREE_DEBUG},
                 [LOG_LRU] = {"lru", OPT_SS_LRU_DEBUG},
                 [LOG_DRAIN] = {"drain", OPT_TINY_SLL_DRAIN_DEBUG}};
    return option(kinds[kind].option) || strstr(option_text(OPT_DEBUG), kinds[kind].word) != NULL;
}
