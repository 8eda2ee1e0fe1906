/* The table of harnesses. */
#include "explore.h"

extern const struct race litmus_race, adopt_race, let_go_race, last_race, exit_race, foreign_race, foreign_long_race,
    stale_race, pool_race, cache_race, cache_long_race, bitset_race, trim_race, retire_race, retire_long_race,
    reuse_race, next_life_race, late_offer_race, rings_race, mid_rings_race, keep_race, keep_long_race, outbox_race,
    outbox_long_race, home_race, birth_race, borrow_race;

const struct race *const races[] = {&litmus_race,    &adopt_race,      &let_go_race,       &last_race,
                                    &exit_race,      &foreign_race,    &foreign_long_race, &stale_race,
                                    &pool_race,      &cache_race,      &cache_long_race,   &trim_race,
                                    &bitset_race,    &retire_race,     &retire_long_race,  &reuse_race,
                                    &next_life_race, &late_offer_race, &rings_race,        &mid_rings_race,
                                    &keep_race,      &keep_long_race,  &outbox_race,       &outbox_long_race,
                                    &home_race,      &birth_race,      &borrow_race,       NULL};
