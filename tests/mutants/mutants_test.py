#!/usr/bin/env python3
"""What mutants.py changes, on small sources. If this fails, the score in docs/reliability.md counts something else."""
# SPDX-License-Identifier: MIT
import unittest

import mutants

TEXT = """\
/* a < b */
#define MORE 1
static const int table[] = {1, 2};
static int one(int n, char *p) {
    int m = n + 1; /* b < a */
    m++;
    if (m < n && *p == 'x')
        log("1 < 2", n);
    return -m;
}
"""


class Changes(unittest.TestCase):
    def lines(self, text=TEXT):
        return [mutants.lines_of(text, change) for change in mutants.changes_of("one.c", text)]

    def test_each_kind(self):
        found = self.lines()
        for after in ("if (m <= n && *p == 'x')", "if (m < n || *p == 'x')", "if (m < n && *p != 'x')",
                      "if (0 && (m < n && *p == 'x'))", "if (1 || (m < n && *p == 'x'))"):
            self.assertIn(("if (m < n && *p == 'x')", after), found)
        for after in ("int m = n - 1; /* b < a */", "int m = n + 2; /* b < a */", "int m = n + 0; /* b < a */"):
            self.assertIn(("int m = n + 1; /* b < a */", after), found)
        self.assertIn(("m++;", "m--;"), found)
        self.assertIn(("m++;", ";"), found)

    def test_nothing_else(self):
        self.assertEqual({before for before, _ in self.lines()},
                         {"int m = n + 1; /* b < a */", "m++;", "if (m < n && *p == 'x')"})

    def test_no_line_moves(self):
        for change in mutants.changes_of("one.c", TEXT):
            self.assertEqual(mutants.mutated(TEXT, change).count("\n"), TEXT.count("\n"))

    def test_drawn_alike_with_one_seed(self):
        sources = {"src/one.c": TEXT, "src/two.c": TEXT}
        self.assertEqual(mutants.drawn("1", None, sources), mutants.drawn("1", None, sources))
        self.assertNotEqual(mutants.drawn("1", None, sources), mutants.drawn("2", None, sources))
        self.assertEqual(list(mutants.drawn("1", "src/two*", sources)), ["src/two.c"])


if __name__ == "__main__":
    unittest.main()
