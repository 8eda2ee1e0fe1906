// How numbers are written in statistics, messages and the debug log. If this fails, they say something else than is so.
// SPDX-License-Identifier: MIT
#include "inside.h"

#include <gtest/gtest.h>
#include <string>

namespace {

std::string bytes(uint64_t n) {
    char text[32];
    inside_text_bytes(text, n);
    return text;
}

std::string span_class(unsigned tag) {
    char text[32];
    inside_log_class(text, tag);
    return text;
}

TEST(Text, BytesUpToOneKibibyteAreWhole) {
    EXPECT_EQ(bytes(0), "0 B");
    EXPECT_EQ(bytes(1), "1 B");
    EXPECT_EQ(bytes(1023), "1023 B");
    EXPECT_EQ(bytes(1024), "1.0 KiB");
}

TEST(Text, BytesAreRoundedToATenth) {
    EXPECT_EQ(bytes(1024 + 51), "1.0 KiB"); // 1.0498
    EXPECT_EQ(bytes(1024 + 52), "1.1 KiB"); // 1.0508
    EXPECT_EQ(bytes(1536), "1.5 KiB");
    EXPECT_EQ(bytes(10 << 10), "10.0 KiB");
}

// What is rounded up to 1,024 of a unit is one of the next.
TEST(Text, BytesChangeTheirUnitWhereTheyAreRoundedToIt) {
    EXPECT_EQ(bytes((1 << 20) - 52), "1023.9 KiB");
    EXPECT_EQ(bytes((1 << 20) - 51), "1.0 MiB");
    EXPECT_EQ(bytes(1 << 20), "1.0 MiB");
    EXPECT_EQ(bytes(1 << 30), "1.0 GiB");
    EXPECT_EQ(bytes(uint64_t{1} << 40), "1.0 TiB");
    EXPECT_EQ(bytes(uint64_t{5} << 50), "5120.0 TiB"); // no unit is larger
}

TEST(Text, BytesOfNumbersThatTenTimesWouldOverflow) {
    EXPECT_EQ(bytes((uint64_t{1} << 60) - 1), "1048576.0 TiB");
    EXPECT_EQ(bytes(uint64_t{1} << 60), "1048576.0 TiB");
    EXPECT_EQ(bytes(UINT64_MAX / 10), "1677721.6 TiB");
    EXPECT_EQ(bytes(UINT64_MAX / 10 + 1), "1677721.6 TiB");
    EXPECT_EQ(bytes(UINT64_MAX), "16777216.0 TiB");
}

TEST(Text, ASpansClassIsItsTagLessOne) {
    EXPECT_EQ(span_class(0), "large");
    EXPECT_EQ(span_class(1), "0");
    EXPECT_EQ(span_class(42), "41");
}

} // namespace
