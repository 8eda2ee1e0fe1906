/* See account.h. */
/* SPDX-License-Identifier: MIT */
#include "region/account.h"

struct account hak_account;

size_t account_settle(struct client *c) {
    int64_t change = account_pair(c->since.active, c->since.empty);
    c->since.active = 0;
    c->since.empty = 0;
    int64_t slots = change != 0 ? rmw_add(&hak_account.slots, change) + change : load_relaxed(&hak_account.slots);
    return account_not_negative(account_empty_of(slots));
}

bool account_add_resident(size_t slots, size_t max) {
    int64_t pair = load_relaxed(&hak_account.slots);
    do
        if (slots > max || account_resident_of(pair) > (int64_t)(max - slots))
            return false;
    while (!PROVEN(add_resident, rmw_cas(&hak_account.slots, &pair, pair + account_pair((int64_t)slots, 0))));
    return true;
}
