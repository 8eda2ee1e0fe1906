/* Starts and stops the heap profile. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SAMPLED_H
#define HAK_SAMPLED_H

#include "base/base.h"

/* Samples a block every `mean_bytes` on average from now on; 0: none. Any thread. */
void sampled_switch(uint64_t mean_bytes);

#endif
