#!/usr/bin/env python3
"""Prints trace_sizes.h: how often the recorded traces (bench/traces) request each size.

  tests/fuzz/trace_sizes.py > tests/fuzz/trace_sizes.h

Each of a trace's most frequent sizes has its own row; the others share rows that span a quarter of a power of two.
"""
# SPDX-License-Identifier: MIT
import collections
import lzma
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "traces"))
sys.dont_write_bytecode = True
import trace  # noqa: E402: from bench/traces

EXACT = 24
SIZES_OF = {trace.Op.MALLOC, trace.Op.CALLOC, trace.Op.ALIGNED, trace.Op.REALLOC}


def span(size: int) -> tuple[int, int]:
    """Returns the quarter of a power of two that contains the size."""
    if size < 8:
        return size, size
    step = 1 << (size.bit_length() - 3)
    return size // step * step, size // step * step + step - 1


def rows(events) -> list[tuple[int, int, int]]:
    """Returns rows of (least, most, calls), the most frequent first."""
    counts = collections.Counter(event.size for event in events if event.op in SIZES_OF)
    exact = dict(counts.most_common(EXACT))
    spans = collections.Counter()
    for size, calls in counts.items():
        spans[(size, size) if size in exact else span(size)] += calls
    return [(least, most, calls) for (least, most), calls in spans.most_common()]


def main():
    print("/* The sizes that programs ask for, from the recorded traces: made by trace_sizes.py, see there. */")
    print("#ifndef HAKMEM_TESTS_TRACE_SIZES_H\n#define HAKMEM_TESTS_TRACE_SIZES_H\n")
    print("#include <stdint.h>\n\n#include <vector>\n")
    print("struct SizeRow {\n    uint32_t least, most, calls;\n};\n")
    print("/* One row of spans for each trace. */\n// clang-format off")
    print("inline const std::vector<SizeRow> kTraceSizes[] = {")
    for path in sorted((ROOT / "bench" / "traces").glob("*.trace.xz")):
        with lzma.open(path) as file:
            lines, line = [], "   "
            for least, most, calls in rows(trace.unpack(file.read())):
                cell = f" {{{least}, {most}, {calls}}},"
                if len(line) + len(cell) > 118:
                    lines.append(line)
                    line = "   "
                line += cell
        print("    { // " + path.name.split(".")[0], *lines, line, "    },", sep="\n")
    print("};\n// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
