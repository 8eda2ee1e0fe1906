// `./hak doc` makes this file from the table in src/base/options.h.
// SPDX-License-Identifier: MIT
[
    ("L2_RING_CAP", "MID_RING_BLOCKS", ""),
    ("L25_RING_CAP", "LARGE_RING_BLOCKS", ""),
    ("SS_ACQUIRE_DEBUG", "DEBUG", "acquire"),
    ("SS_FREE_DEBUG", "DEBUG", "free"),
    ("SS_LRU_DEBUG", "DEBUG", "lru"),
    ("TINY_SLL_DRAIN_DEBUG", "DEBUG", "drain"),
]
