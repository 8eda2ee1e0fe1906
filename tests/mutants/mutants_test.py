#!/usr/bin/env python3
"""What mutants.py changes, on small sources. If this fails, the score in docs/reliability.md counts something else."""
# SPDX-License-Identifier: MIT
import pathlib
import subprocess
import tempfile
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

# Ends whatever is changed in these lines: `go` counts the rounds.
PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
int which, left = 100;
static int go(void) { if (left-- <= 0) exit(0); return 1; }
struct pair { int a, b; };
static int sum(const int *p, int n) {
    struct pair got = {.a = p[1] + 1, .b = n};
    for (int i = 0; go() && i < n; go(), i++)
        got.b += p[i % 3] /* of three */
               * (n > 2 ? got.a - 1 : 7);
    if (got.b == 3)
        got.a = 2;
    else if (n >= 2)
        got.a |= 4;
    while (go() && got.a > 2)
        got.a--;
    switch (got.a & 3) {
    default: printf("%d\\n", got.a + 1);
    }
    return got.a * 100 + got.b;
}
static const int table[4096] = {[2000] = 1, 2, 3};
int main(int count, char **words) {
    which = atoi(words[1]);
    printf("%d\\n", sum(table + 2000, 2));
    printf("%d\\n", sum(table + 2000, 3));
}
"""
CHANGED = range(6, 22)


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
        changes = dict(enumerate(mutants.changes_of("one.c", PROGRAM)))
        self.assertEqual(mutants.planted(PROGRAM, changes).count("\n"), PROGRAM.count("\n"))

    def test_planted_as_changed(self):
        """What is planted in a program does what the same change of its text does."""
        every = [change for change in mutants.changes_of("one.c", PROGRAM) if change.line in CHANGED]
        changes = dict(enumerate(every))
        self.assertGreater(len(changes), 30)
        with tempfile.TemporaryDirectory() as folder:
            def made(name, text):
                path = pathlib.Path(folder, name)
                command = ["cc", "-w", "-x", "c", "-o", path, "-"]
                subprocess.run(command, input=f"extern int which;\n{text}", text=True, check=True)
                return path

            def says(*command):
                return subprocess.run(command, capture_output=True, text=True, check=True).stdout

            ask = "static int hak_is_mutant(int n) { return which == n; }\n"
            planted = made("planted", ask + mutants.planted(PROGRAM, changes))
            self.assertEqual(says(planted, "-1"), says(made("unchanged", PROGRAM), "-1"))
            for number, change in changes.items():
                text = PROGRAM[:change.start] + change.text + PROGRAM[change.end:]
                self.assertEqual(says(planted, str(number)), says(made("changed", text), "-1"), change)

    def test_a_key_outlives_other_lines(self):
        keys = mutants.keys_of("one.c", TEXT, mutants.changes_of("one.c", TEXT))
        moved = TEXT.replace("    m++;", "    /* more */\n    m++;")
        self.assertEqual(keys.keys(), mutants.keys_of("one.c", moved, mutants.changes_of("one.c", moved)).keys())

    def test_drawn_alike_with_one_seed(self):
        def drawn(seed, only):
            return mutants.drawn(seed, only, {name: [(name, at) for at in range(9)] for name in ("src/a.c", "src/b.c")})
        self.assertEqual(drawn("1", None), drawn("1", None))
        self.assertNotEqual(drawn("1", None), drawn("2", None))
        self.assertEqual({name for name, _ in drawn("1", None)[:2]}, {"src/a.c", "src/b.c"})
        self.assertEqual({name for name, _ in drawn("1", "src/b*")}, {"src/b.c"})


if __name__ == "__main__":
    unittest.main()
