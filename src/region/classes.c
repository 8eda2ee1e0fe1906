/* The tables that follow from the size classes in classes.h.
 *
 * reuse_at of a tiny class is a sixteenth of the slab's blocks, or 8. Replacing random blocks among 100,000 of 64 B
 * takes 218 instructions a pair with reuse_at 1, 65 with a sixteenth, 64 with an eighth; resident memory on the mixed
 * run is 60.5, 61.9 and 63.9 MB. At least 8 instead of 4 takes 1 KiB from 122 to 88 instructions and 4 % more
 * memory. */
/* SPDX-License-Identifier: MIT */
#include "region/classes.h"

#define BLOCKS(bytes, slots) ((slots)*SLOT_BYTES / (bytes))
#define TINY_BLOCKS_MAX 8192 /* a 16-bit count, and block_index */

// clang-format off
/* The inverse of an odd number modulo 2^32. Each step doubles the number of correct bits, which is 5 at first. */
#define ODD(n) ((uint32_t)(n) >> __builtin_ctz(n))
#define INVERSE5(o) ((3 * (o)) ^ 2)
#define INVERSE10(o) (INVERSE5(o) * (2 - (o) * INVERSE5(o)))
#define INVERSE20(o) (INVERSE10(o) * (2 - (o) * INVERSE10(o)))
#define INVERSE(o) (INVERSE20(o) * (2 - (o) * INVERSE20(o)))
#define DIVISOR(bytes) (INVERSE(ODD(bytes)) << (16 - __builtin_ctz(bytes)))
#define REUSE_AT(blocks) ((blocks) < 128 ? 8 : (blocks) / 16)

const struct size_class size_classes[CLASSES] = {
#define TINY_CLASS(from, to, slots, lost) {to, DIVISOR(to), BLOCKS(to, slots), REUSE_AT(BLOCKS(to, slots)), slots},
#define MID_CLASS(from, to, slots, lost) {to, DIVISOR(to), BLOCKS(to, slots), 0, slots},
    TINY_TABLE(TINY_CLASS)
    MID_TABLE(MID_CLASS)
};

const uint8_t tiny_class_table[TINY_BYTES_MAX / 8 + 1] = {
#define TINY_LOOKUP(from, to, slots, lost) [((from) + 7) / 8 ... (to) / 8] = CLASS_##to,
    TINY_TABLE(TINY_LOOKUP)
};

const uint8_t mid_class_table[MID_BYTES_MAX / 128] = {
#define MID_LOOKUP(from, to, slots, lost) [((from) - 1) / 128 ... ((to) - 1) / 128] = CLASS_##to,
    MID_TABLE(MID_LOOKUP)
};

/* ---- what each row must keep to ---- */

/* Sizes fill whole entries of the lookup table; the blocks have bits or a number; block_index can divide every offset,
 * which is smaller than 2^16 times the largest power of two that divides the block's size; the tail is small; `lost` is
 * true. */
#define CHECK(from, to, slots, lost, grain, blocks_max) \
    _Static_assert(((from) == 1 || (from) % (grain) == 1) && (to) % (grain) == 0 && (from) < (to), "sizes to " #to); \
    _Static_assert(BLOCKS(to, slots) <= (blocks_max), "blocks of " #to); \
    _Static_assert((slots) * SLOT_BYTES >> __builtin_ctz(to) <= (size_t)1 << 16, "offsets of " #to); \
    _Static_assert((slots) * SLOT_BYTES % (to) * 16 <= (slots) * SLOT_BYTES, "tail of " #to); \
    _Static_assert(100 * ((slots) * SLOT_BYTES - BLOCKS(to, slots) * (from)) / ((slots) * SLOT_BYTES) == (lost), \
                   "lost with " #to);
#define CHECK_TINY(from, to, slots, lost) CHECK(from, to, slots, lost, 8, TINY_BLOCKS_MAX)
#define CHECK_MID(from, to, slots, lost) CHECK(from, to, slots, lost, 128, MID_BLOCKS_MAX)
TINY_TABLE(CHECK_TINY)
MID_TABLE(CHECK_MID)

/* No size is left out. One that is in two rows fills an entry of a lookup table twice, which is a warning. */
#define SIZES(from, to, slots, lost) + ((to) - (from) + 1)
_Static_assert(0 TINY_TABLE(SIZES) == TINY_BYTES_MAX, "every tiny size is in a row");
_Static_assert(TINY_BYTES_MAX MID_TABLE(SIZES) == MID_BYTES_MAX, "every mid size is in a row");
_Static_assert(CLASSES + 1 <= UINT8_MAX, "class + 1 fits the byte of an offer");
// clang-format on
