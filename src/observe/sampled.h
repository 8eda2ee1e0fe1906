/* Starts and stops the heap profile. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* Samples a block every `mean_bytes` on average from now on; 0: none. Any thread. */
void sampled_switch(uint64_t mean_bytes);
