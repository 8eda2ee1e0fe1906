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

/* "default", or that the user has set the option. */
static const char *origin(enum option o) { return option_was_set(o) ? "set" : "default"; }

void log_start(void) {
    if (!HAK_IS_CHECKED && option(OPT_DEBUG) && option_may_complain(OPT_DEBUG))
        text_line("hakmem: HAKMEM_DEBUG=%s: only the checked build logs events; `./hak build checked` makes it",
                  option_text(OPT_DEBUG));
    LOG(LOG_LRU, "[SS_LRU_INIT] max_cached=%u max_memory_mb=%u ttl_sec=%u", option(OPT_SS_CACHE_COUNT),
        option(OPT_SS_CACHE_BYTES) / MIB, option(OPT_SS_CACHE_AGE_MS) / 1000);
    LOG(LOG_DRAIN, "[TLS_SLL_DRAIN] Drain %s (%s)", option(OPT_DRAIN) ? "ENABLED" : "DISABLED", origin(OPT_DRAIN));
    LOG(LOG_DRAIN, "[TLS_SLL_DRAIN] Interval=%u (%s)", option(OPT_DRAIN_INTERVAL), origin(OPT_DRAIN_INTERVAL));
}

bool log_wanted(enum log_kind kind) {
    static const char *const words[] = {[LOG_ACQUIRE] = "acquire", [LOG_FREE] = "free",     [LOG_LRU] = "lru",
                                        [LOG_DRAIN] = "drain",     [LOG_TABLES] = "tables", [LOG_RETRIES] = "retries"};
    return strstr(option_text(OPT_DEBUG), words[kind]) != NULL;
}
