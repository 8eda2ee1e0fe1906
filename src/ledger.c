/* See ledger.h. */
/* SPDX-License-Identifier: MIT */
#include "ledger.h"

HAK_APART struct ledger_row hak_ledger_ended[TUNED_CLASSES];
_Atomic uint64_t ledger_rated_ns;

static void move(_Atomic uint64_t *to, _Atomic uint64_t *from) {
    rmw_add(to, load_relaxed(from));
    store_relaxed(from, 0);
}

void ledger_close(struct ledger_row *rows, unsigned from) {
    for (unsigned c = from; c < TUNED_CLASSES; c++) {
        if (load_relaxed(&rows[c].misses) == 0)
            continue;
        move(&hak_ledger_ended[c].blocks, &rows[c].blocks);
        move(&hak_ledger_ended[c].misses, &rows[c].misses);
        rmw_add(&hak_ledger_ended[c].timed, load_relaxed(&rows[c].timed));
        store_relaxed(&rows[c].timed, 0);
        move(&hak_ledger_ended[c].ns, &rows[c].ns);
        rows[c].blocks_timed = 0;
    }
}
