/* See account.h. */
/* SPDX-License-Identifier: MIT */
#include "account.h"

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

void account_count_resident(ptrdiff_t slots) { rmw_add(&hak_account.slots, account_pair(slots, 0)); }

void account_count_empty(ptrdiff_t slots) { rmw_add(&hak_account.slots, account_pair(0, slots)); }

void account_count_lazy(ptrdiff_t slots) { rmw_add(&hak_account.lazy_slots, slots); }

size_t account_lazy_slots(void) { return account_not_negative(load_relaxed(&hak_account.lazy_slots)); }

void account_count_inside(ptrdiff_t bytes) { rmw_add(&hak_account.inside_bytes, bytes); }

size_t account_inside_bytes(void) { return account_not_negative(load_relaxed(&hak_account.inside_bytes)); }

void account_count_changed(ptrdiff_t slabs) { rmw_add(&hak_account.changed_slabs, slabs); }

size_t account_changed_slabs(void) { return account_not_negative(load_relaxed(&hak_account.changed_slabs)); }

void account_count_cached(int change) { rmw_add(&hak_account.cached_superslabs, change); }

size_t account_cached_superslabs(void) { return account_not_negative(load_relaxed(&hak_account.cached_superslabs)); }
