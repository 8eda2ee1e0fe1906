/* The shares by which retain.c judges, and learn/ computes what another preset would have judged. */
/* SPDX-License-Identifier: MIT */
#pragma once

/* Three quarters of the peak are wanted back, and the program swings; what it keeps meanwhile is not. With half
 * `scaling`, which grows twice, would end with 16 MB LAZY. */
#define SWING_SHARE 4
#define SLACK_SHARE 8  /* of the peak, for what does not fit when sizes differ */
#define FORGET_SHARE 8 /* of the peak, a second */
/* A freeing thread purges by itself, although there is a purger, above FAR_OVER times the bound plus FAR_OVER_SLOTS. */
#define FAR_OVER 4
#define FAR_OVER_SLOTS 512
