#!/usr/bin/env python3
"""Runs layers.py on small trees. If it fails, an upward include, or a file missing from the table, goes unnoticed."""
# SPDX-License-Identifier: MIT
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "layers.py"
TABLE = "| layer | files |\n|---|---|\n| 1 | `base.h` bits · `os` system |\n| 2 | `pool` over `heap` |\n\nMore.\n"
FILES = {"base.h": "", "os.h": '#include "base.h"\n', "os.c": '#include "os.h"\n', "pool.c": '#include "heap.h"\n',
         "heap.h": '#include "os.h"\n#include "public.h"\n#include <stdlib.h>\n', "heap.c": '#include "heap.h"\n'}


class Layers(unittest.TestCase):
    def said(self, table=TABLE, **changed):
        """Returns what the script prints about FILES with these changes; None removes a file."""
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "src").mkdir()
            (root / "docs").mkdir()
            (root / "docs" / "tour.md").write_text("# A tour\n\n" + table)
            files = FILES | {name.replace("_", "."): text for name, text in changed.items()}
            for name, text in files.items():
                if text is not None:
                    (root / "src" / name).write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.returncode, 1 if done.stdout else 0)
            return done.stdout.splitlines()

    def test_a_true_table(self):
        self.assertEqual(self.said(), [])

    def test_an_include_that_goes_up(self):
        self.assertEqual(self.said(os_h='\n#  include "heap.h"\n'),
                         ["src/os.h:2: of layer 1 includes heap.h of layer 2"])

    def test_a_file_that_is_not_listed(self):
        self.assertEqual(self.said(new_c=""), ["src/new.c: is in no layer of docs/tour.md"])

    def test_a_file_that_is_listed_twice(self):
        self.assertEqual(self.said(TABLE.replace("`heap`", "`heap` `os`")),
                         ["docs/tour.md: os is in layer 1 and in layer 2"])
        self.assertEqual(self.said(TABLE.replace("`heap`", "`heap` `heap.c`")),
                         ["docs/tour.md: heap is in layer 2 and in layer 2"])

    def test_a_name_without_a_file(self):
        self.assertEqual(self.said(pool_c=None), ["docs/tour.md: layer 2 names pool, which is not in src/"])

    def test_a_layer_that_is_missing(self):
        self.assertEqual(self.said(TABLE.replace("| 2 |", "| 3 |")), ["docs/tour.md: layer 3 follows layer 1"])

    def test_no_table(self):
        self.assertEqual(len(self.said("")), len(FILES))


if __name__ == "__main__":
    unittest.main()
