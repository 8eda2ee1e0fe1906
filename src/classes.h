/* The size classes: which tier and which block size serves a request.
 *
 *   tiny   class 0-32    8, then 16-byte steps to 256, then 8 steps per doubling to 1 KiB   one slot cut into blocks
 *   mid    class 33-80   8 steps per doubling to 64 KiB                                     a span of at most 64 blocks
 *   large  1 MiB and less: a span of whole slots      huge  the rest: a run of whole SuperSlabs
 *
 * So no request above 256 B loses more than 12.5 % to rounding within tiny and mid. Everything here is constant. */
#ifndef HAK_CLASSES_H
#define HAK_CLASSES_H

#include "base.h"

#define SLOT_BYTES (64 * KIB)
#define SUPERSLAB_BYTES (2 * MIB)
#define SUPERSLAB_SLOTS 32u

enum {
    TINY_CLASSES = 33,
    MID_CLASSES = 48,
    CLASSES = TINY_CLASSES + MID_CLASSES,
    LARGE_SLOTS_MAX = 16,                             /* slots of the largest large block */
    LARGE_CLASS = CLASSES - 1,                        /* recorded for large and huge blocks: no real class, not tiny */
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
 * power of two. For sizes and alignments of tiny and mid; then the result is at most MID_BYTES_MAX. Rounding up is
 * enough: if the multiple is no block size, the block sizes there are multiples of a larger power of two than the
 * alignment. */
HAK_INLINE size_t class_aligned_bytes(size_t bytes, size_t alignment) { return round_up(bytes, alignment); }

#endif
