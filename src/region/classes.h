/* The size classes: which tier and which block size serves a request.
 *
 *   tiny   8, then 16-byte steps to 256, then 8 steps per doubling to 1 KiB   one slot cut into blocks
 *   mid    8 steps per doubling to 64 KiB                                     a span of at most 64 blocks
 *   large  1 MiB and less: a span of whole slots      huge  the rest: a run of whole SuperSlabs
 *
 * So no request above 256 B loses more than 12.5 % to rounding within tiny and mid. Everything here is constant. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

#define SLOT_BYTES (64 * KIB)
#define SUPERSLAB_BYTES (2 * MIB)
#define SUPERSLAB_SLOTS 32u

// clang-format off
/* X(from, to, slots, lost): requests of `from` to `to` bytes get blocks of `to` bytes, cut from a span of `slots`
 * slots. `lost`: percent of the span that is of no use when all requests are of `from` bytes: rounding, and the tail
 * that holds no block, which is never touched. classes.c checks all of it. Mid: the smallest span that holds at least 8
 * blocks with at most 1/16 of it as tail. */
#define TINY_TABLE(X) \
X(    1,     8, 1, 87) \
X(    9,    16, 1, 43) \
X(   17,    32, 1, 46) \
X(   33,    48, 1, 31) \
X(   49,    64, 1, 23) \
X(   65,    80, 1, 18) \
X(   81,    96, 1, 15) \
X(   97,   112, 1, 13) \
X(  113,   128, 1, 11) \
X(  129,   144, 1, 10) \
X(  145,   160, 1,  9) \
X(  161,   176, 1,  8) \
X(  177,   192, 1,  7) \
X(  193,   208, 1,  7) \
X(  209,   224, 1,  6) \
X(  225,   240, 1,  6) \
X(  241,   256, 1,  5) \
X(  257,   288, 1, 10) \
X(  289,   320, 1, 10) \
X(  321,   352, 1,  8) \
X(  353,   384, 1,  8) \
X(  385,   416, 1,  7) \
X(  417,   448, 1,  7) \
X(  449,   480, 1,  6) \
X(  481,   512, 1,  6) \
X(  513,   576, 1, 11) \
X(  577,   640, 1, 10) \
X(  641,   704, 1,  9) \
X(  705,   768, 1,  8) \
X(  769,   832, 1,  8) \
X(  833,   896, 1,  7) \
X(  897,   960, 1,  6) \
X(  961,  1024, 1,  6)

#define MID_TABLE(X) \
X( 1025,  1152, 1, 12) \
X( 1153,  1280, 1, 10) \
X( 1281,  1408, 1, 10) \
X( 1409,  1536, 1,  9) \
X( 1537,  1664, 1,  8) \
X( 1665,  1792, 1,  8) \
X( 1793,  1920, 1,  6) \
X( 1921,  2048, 1,  6) \
X( 2049,  2304, 1, 12) \
X( 2305,  2560, 1, 12) \
X( 2561,  2816, 1, 10) \
X( 2817,  3072, 1,  9) \
X( 3073,  3328, 1, 10) \
X( 3329,  3584, 1,  8) \
X( 3585,  3840, 1,  7) \
X( 3841,  4096, 1,  6) \
X( 4097,  4608, 1, 12) \
X( 4609,  5120, 1, 15) \
X( 5121,  5632, 1, 14) \
X( 5633,  6144, 1, 14) \
X( 6145,  6656, 2, 10) \
X( 6657,  7168, 1,  8) \
X( 7169,  7680, 1, 12) \
X( 7681,  8192, 1,  6) \
X( 8193,  9216, 2, 12) \
X( 9217, 10240, 2, 15) \
X(10241, 11264, 2, 14) \
X(11265, 12288, 2, 14) \
X(12289, 13312, 3, 12) \
X(13313, 14336, 2,  8) \
X(14337, 15360, 2, 12) \
X(15361, 16384, 2,  6) \
X(16385, 18432, 3, 16) \
X(18433, 20480, 3, 15) \
X(20481, 22528, 4, 14) \
X(22529, 24576, 3,  8) \
X(24577, 26624, 5,  9) \
X(26625, 28672, 4,  8) \
X(28673, 30720, 4, 12) \
X(30721, 32768, 4,  6) \
X(32769, 36864, 6, 16) \
X(36865, 40960, 5,  9) \
X(40961, 45056, 7, 10) \
X(45057, 49152, 6,  8) \
X(49153, 53248, 9,  8) \
X(53249, 57344, 7,  7) \
X(57345, 61440, 8, 12) \
X(61441, 65536, 8,  6)
// clang-format on

enum {
#define CLASS_ENUM(from, to, slots, lost) CLASS_##to,
    TINY_TABLE(CLASS_ENUM) TINY_CLASSES,
    BEFORE_MID = TINY_CLASSES - 1,
    MID_TABLE(CLASS_ENUM) CLASSES,
#undef CLASS_ENUM
    MID_CLASSES = CLASSES - TINY_CLASSES,
    MID_BLOCKS_MAX = 56,      /* in a slab: their states fill a record's second line except for one word */
    LARGE_SLOTS_MAX = 16,     /* slots of the largest large block */
    CLASS_NONE = CLASSES - 1, /* in records of large and huge blocks: no class, only no tiny one */
    RING_CLASSES = MID_CLASSES + LARGE_SLOTS_MAX + 1, /* mid classes, then large blocks by slots */
};
#define TINY_BYTES_MAX (1 * KIB)
#define MID_BYTES_MAX (64 * KIB)
#define LARGE_BYTES_MAX (LARGE_SLOTS_MAX * SLOT_BYTES)

struct size_class {
    uint32_t block_bytes;
    uint32_t divisor;  /* the inverse of the odd part of block_bytes, shifted to where block_index wants it */
    uint16_t blocks;   /* in a slab */
    uint16_t reuse_at; /* tiny: a full slab becomes usable again at its reuse_at-th free */
    uint8_t slots;     /* of a slab's span */
};
extern HAK_HIDDEN const struct size_class size_classes[CLASSES];
extern HAK_HIDDEN const uint8_t tiny_class_table[TINY_BYTES_MAX / 8 + 1]; /* by (bytes + 7) / 8 */
extern HAK_HIDDEN const uint8_t mid_class_table[MID_BYTES_MAX / 128];     /* by (bytes - 1) / 128; above tiny */

/* The class of a request of at most TINY_BYTES_MAX bytes. */
HAK_INLINE unsigned tiny_class_of(size_t bytes) { return tiny_class_table[(bytes + 7) / 8]; }

/* The class in a heap whose sizes share classes (heap_share_classes): above 64 bytes powers of two. */
#define SHARED_ABOVE_BYTES 64
HAK_INLINE unsigned tiny_shared_class_of(size_t bytes) {
    return tiny_class_of(bytes <= SHARED_ABOVE_BYTES ? bytes : (size_t)2 << highest_bit(bytes - 1));
}

/* The class of a request above TINY_BYTES_MAX and up to MID_BYTES_MAX bytes. */
HAK_INLINE unsigned mid_class_of(size_t bytes) { return mid_class_table[(bytes - 1) / 128]; }

HAK_INLINE unsigned large_slots_of(size_t bytes) { return (unsigned)((bytes + SLOT_BYTES - 1) / SLOT_BYTES); }
HAK_INLINE size_t huge_superslabs_of(size_t bytes) { return (bytes + SUPERSLAB_BYTES - 1) / SUPERSLAB_BYTES; }

HAK_INLINE unsigned ring_of_class(unsigned class_id) { return class_id - TINY_CLASSES; }
HAK_INLINE unsigned ring_of_slots(unsigned slots) { return MID_CLASSES + slots; }

/* The index of the block that begins at this offset of a slab; at least the slab's number of blocks if none begins
 * there. A block size is its odd part << shift. If it divides the offset, the offset times the inverse of the odd part
 * is the quotient << shift. The divisor is that inverse, shifted so that the quotient begins at bit 16 of the product.
 * The bits below are 0 if the size divides the offset, and the rotation moves them to the top of the result. So only
 * multiples of the size give a result below the number of blocks: offsets have at most 16 + shift bits, and no two of
 * them have the same product in that many bits. */
HAK_INLINE uint32_t block_index(uint32_t divisor, uint32_t offset_in_slab) {
    uint32_t product = offset_in_slab * divisor;
    return product << 16 | product >> 16;
}

/* The request size whose class is the smallest one with blocks of at least `bytes` that are aligned to `alignment`, a
 * power of two: the class of a multiple of the alignment has blocks whose size is such a multiple, too. For sizes and
 * alignments of tiny and mid; then the result is at most MID_BYTES_MAX. */
HAK_INLINE size_t class_aligned_bytes(size_t bytes, size_t alignment) { return round_up(bytes, alignment); }
