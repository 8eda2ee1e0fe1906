#!/usr/bin/env python3
"""test_counts.py BENCH: what counts.py says of growth, and the lines that programs move, which must be the same in
every run.

If it fails, ./hak bench counts calls growth what is none, hides what is, or its figures are this machine's. BENCH is
the build tree with the target lines."""
# SPDX-License-Identifier: MIT
import re
import sys
import unittest
from pathlib import Path
from unittest.mock import patch

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import growth  # noqa: E402  (the one beside this file)
from cases import CASES  # noqa: E402
from meters import (ATOMICS, BLOCK_LINES, D1, HAKMEM, INSTRUCTIONS, LEAST_STEP, RETRIES, TABLE_LINES,  # noqa: E402
                    Counter, object_costs)


def path(unit, **series):
    return {"name": "case", "unit": unit, "x_unit": "threads",
            "series": [{"allocator": name, "points": list(zip((1, 2, 4), ys))} for name, ys in series.items()]}


class Growth(unittest.TestCase):
    def test_what_grows_is_found(self):
        self.assertEqual(len(growth.findings([path(INSTRUCTIONS, hakmem=(50, 52, 60))])), 1)
        self.assertEqual(len(growth.findings([path(ATOMICS, hakmem=(0, 9, 0))])), 1,
                         "the highest point counts, not the last")

    def test_noise_is_no_growth(self):
        step = LEAST_STEP[TABLE_LINES]
        self.assertEqual(growth.findings([path(TABLE_LINES, hakmem=(0, 0, step - 1))]), [])
        self.assertEqual(growth.findings([path(INSTRUCTIONS, hakmem=(1000, 1050, 1099))]), [])

    def test_misses_of_the_program_are_not_ours(self):
        self.assertEqual(growth.findings([path(D1, hakmem=(1, 2, 3), system=(1, 2, 3))]), [])
        self.assertEqual(len(growth.findings([path(D1, hakmem=(1, 2, 4), system=(1, 2, 3))])), 1)

    def test_a_reason_explains_as_far_as_it_says(self):
        with patch.object(growth, "REASONS", (growth.Reason("^ca", {ATOMICS: 10}, "so it is"),)):
            found = growth.findings([path(ATOMICS, hakmem=(0, 10, 10)), path(ATOMICS, hakmem=(0, 11, 9)),
                                     path(RETRIES, hakmem=(0, 9, 9))])
        self.assertEqual([each["reason"] for each in found], ["so it is", None, None])
        self.assertEqual([growth.breaks_the_rule(each) for each in found], [False, True, True])

    def test_a_better_peer_is_a_loss(self):
        lines = growth.losses([path(INSTRUCTIONS, hakmem=(50, 50, 50), system=(49, 30, 60))])
        self.assertEqual(lines, ["case, 2 threads: instructions 50.0, system 30.0"])

    def test_each_reason_is_of_a_case(self):
        for reason in growth.REASONS:
            self.assertTrue(any(re.search(reason.cases, case.name) for case in CASES), reason)


class Callgrind(unittest.TestCase):
    def test_what_callees_cost_is_theirs(self):
        costs = object_costs("ob=(1) /a\n10 1 0 0 0 0 0 0 0 0\ncob=(2) /b\ncalls=1 5\n11 90\nob=(2)\n5 90\n")
        self.assertEqual({name: each[0] for name, each in costs.items()}, {"/a": 1, "/b": 90})


class Lines(unittest.TestCase):
    def lines(self, *command):
        return Counter(Path(sys.argv[1]).resolve(), None).lines(HAKMEM, command)

    def test_the_order_is_always_the_same(self):
        first, second = (self.lines("larson", 4, 0, 8, 1000, 200, 4, 42, 3) for _ in range(2))
        for unit in TABLE_LINES, BLOCK_LINES, RETRIES:
            self.assertEqual(first[unit], second[unit])

    def test_threads_that_share_nothing_move_nothing(self):
        short, long = (self.lines("small_mt", 4, n, 100, 16) for n in (10, 100))
        for unit in TABLE_LINES, BLOCK_LINES:
            self.assertLess((long[unit] - short[unit]) / (4 * 90 * 200), LEAST_STEP[unit])

    def test_a_block_that_is_handed_over_moves(self):
        counts = self.lines("producer_consumer", 64, 20000, 1, 1)
        self.assertGreaterEqual(counts[BLOCK_LINES], 1000 * 20000)
        self.assertTrue(any(getattr(place, "code", "") == "the program" for place in counts))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
