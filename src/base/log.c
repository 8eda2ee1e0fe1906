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
    static const char *const words[] = {
        [LOG_ACQUIRE] = "acquire", [LOG_FREE] = "free", [LOG_LRU] = "lru", [LOG_DRAIN] = "drain"};
    return strstr(option_text(OPT_DEBUG), words[kind]) != NULL;
}
