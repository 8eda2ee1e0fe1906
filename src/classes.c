/* The table of size classes, one line per entry.
 *
 * Mid: the smallest span that holds at least 8 blocks and leaves at most 1/16 of itself unused (the unused tail is
 * never touched). Tiny: reuse_at is a sixteenth of the slab's blocks, or 8 if that is more. Replacing random blocks
 * among 100,000 of 64 B takes 218 instructions a pair with reuse_at 1, 65 with a sixteenth, 64 with an eighth; resident
 * memory in the mixed run is 60.5, 61.9 and 63.9 MB. With at least 8 instead of 4, blocks of 1 KiB take 88 instructions
 * instead of 122, and 4 % more memory. */
#include "classes.h"

// clang-format off
/* The inverse of an odd number modulo 2^32. Each step doubles the number of correct bits, which is 5 at first. */
#define ODD(n) ((uint32_t)(n) >> __builtin_ctz(n))
#define INVERSE5(o) ((3 * (o)) ^ 2)
#define INVERSE10(o) (INVERSE5(o) * (2 - (o) * INVERSE5(o)))
#define INVERSE20(o) (INVERSE10(o) * (2 - (o) * INVERSE10(o)))
#define INVERSE(o) (INVERSE20(o) * (2 - (o) * INVERSE20(o)))
#define DIVISOR(bytes) (INVERSE(ODD(bytes)) << (16 - __builtin_ctz(bytes)))
#define TINY(bytes) {bytes, DIVISOR(bytes), SLOT_BYTES / bytes, SLOT_BYTES / bytes < 128 ? 8 : SLOT_BYTES / bytes / 16, 1}
#define MID(bytes, slots) {bytes, DIVISOR(bytes), \
                           slots * SLOT_BYTES / bytes < 64 ? slots * SLOT_BYTES / bytes : 64, 0, slots}

const struct size_class size_classes[CLASSES] = {
    TINY(8),
    TINY(16),  TINY(32),  TINY(48),  TINY(64),  TINY(80),  TINY(96),  TINY(112), TINY(128),
    TINY(144), TINY(160), TINY(176), TINY(192), TINY(208), TINY(224), TINY(240), TINY(256),
    TINY(288), TINY(320), TINY(352), TINY(384), TINY(416), TINY(448), TINY(480), TINY(512),
    TINY(576), TINY(640), TINY(704), TINY(768), TINY(832), TINY(896), TINY(960), TINY(1024),

    MID(1152, 1),  MID(1280, 1),  MID(1408, 1),  MID(1536, 1),  MID(1664, 1),  MID(1792, 1),  MID(1920, 1),  MID(2048, 1),
    MID(2304, 1),  MID(2560, 1),  MID(2816, 1),  MID(3072, 1),  MID(3328, 1),  MID(3584, 1),  MID(3840, 1),  MID(4096, 1),
    MID(4608, 1),  MID(5120, 1),  MID(5632, 1),  MID(6144, 1),  MID(6656, 2),  MID(7168, 1),  MID(7680, 1),  MID(8192, 1),
    MID(9216, 2),  MID(10240, 2), MID(11264, 2), MID(12288, 2), MID(13312, 3), MID(14336, 2), MID(15360, 2), MID(16384, 2),
    MID(18432, 3), MID(20480, 3), MID(22528, 4), MID(24576, 3), MID(26624, 5), MID(28672, 4), MID(30720, 4), MID(32768, 4),
    MID(36864, 6), MID(40960, 5), MID(45056, 7), MID(49152, 6), MID(53248, 9), MID(57344, 7), MID(61440, 8), MID(65536, 8),
};

#define ROW2(c) c, c
#define ROW4(c) c, c, c, c
#define ROW8(c) ROW4(c), ROW4(c)
const uint8_t tiny_class_table[TINY_BYTES_MAX / 8 + 1] = {
    0, 0, /* 0 to 8 bytes */
    1, ROW2(2), ROW2(3), ROW2(4), ROW2(5), ROW2(6), ROW2(7), ROW2(8),
    ROW2(9), ROW2(10), ROW2(11), ROW2(12), ROW2(13), ROW2(14), ROW2(15), ROW2(16),
    ROW4(17), ROW4(18), ROW4(19), ROW4(20), ROW4(21), ROW4(22), ROW4(23), ROW4(24),
    ROW8(25), ROW8(26), ROW8(27), ROW8(28), ROW8(29), ROW8(30), ROW8(31), ROW8(32),
};
#define ROW16(c) ROW8(c), ROW8(c)
#define ROW32(c) ROW16(c), ROW16(c)
#define DOUBLING(row, c) row(c), row(c + 1), row(c + 2), row(c + 3), row(c + 4), row(c + 5), row(c + 6), row(c + 7)
#define ROW1(c) c
const uint8_t mid_class_table[MID_BYTES_MAX / 128] = {
    0, 0, 0, 0, 0, 0, 0, 0, /* tiny */
    DOUBLING(ROW1, 33), DOUBLING(ROW2, 41), DOUBLING(ROW4, 49),
    DOUBLING(ROW8, 57), DOUBLING(ROW16, 65), DOUBLING(ROW32, 73),
};
// clang-format on
