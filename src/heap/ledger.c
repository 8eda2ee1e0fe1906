/* See ledger.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/ledger.h"

HAK_APART struct ledger_row hak_ledger_ended[TUNED_CLASSES];

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
        move(&hak_ledger_ended[c].timed, &rows[c].timed);
        move(&hak_ledger_ended[c].ns, &rows[c].ns);
    }
}

void ledger_note_time(struct ledger_row *row, uint64_t began) {
    ledger_add(&row->timed, 1);
    ledger_add(&row->ns, os_now_ns() - began);
}
