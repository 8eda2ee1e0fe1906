// `./hak doc` makes this file from the table in src/observe/stats.h.
// SPDX-License-Identifier: MIT
terms! {
    live, "live", "blocks the program holds, rounding included";
    partly_used_slabs, "partly used slabs", "free blocks beside live ones";
    thread_caches, "thread caches", "free blocks in threads' lists, rings and inboxes";
    empty_slots, "EMPTY slots", "free, kept for reuse";
    lazy, "LAZY pages", "free: the system takes them when it needs memory";
    huge_rounding, "huge-page rounding", "UNUSED slots that share a huge page with others";
    metadata, "metadata", "slab records and tables";
}
