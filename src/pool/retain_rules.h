/* The shares by which retain.c judges, and learn/ computes what another preset would have judged. */
/* SPDX-License-Identifier: MIT */
#pragma once

/* Three quarters of the peak are wanted back, and the program swings; what it keeps meanwhile is not. With half
 * `scaling`, which grows twice, would end with 16 MB LAZY. */
#define SWING_SHARE 4
#define SLACK_SHARE 8  /* of the peak, for what does not fit when sizes differ */
#define FORGET_SHARE 8 /* of the peak, a second */
/* Where there is a purger, what is over the bound stays until the program has done nothing for so long: `day 3` takes
 * 48,000 page faults if the purger gives it back after a tenth of a second, 25,000 after half a second. */
#define LEAN_MS 500
