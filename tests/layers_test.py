#!/usr/bin/env python3
"""Runs layers.py on small trees. If it fails, an upward include, a circle, a file missing from the table, or a second
reader of OPT_SECURE, goes unnoticed."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from grown import excess

SCRIPT = pathlib.Path(__file__).resolve().parent / "layers.py"
TABLE = ("| layer | folder | files |\n|---|---|---|\n| 1 | `base/` | `base.h` bits · `os` system |\n"
         "| 2 | `heap/` | `pool` over `heap` |\n\nMore.\n")
HEAP = ("pool", "heap")  # in heap/; without a folder, all others are in base/
FILES = {"base.h": "", "os.h": '#include "base.h"\n', "os.c": '#include "os.h"\n', "pool.c": '#include "heap.h"\n',
         "heap.h": '#include "os.h"\n#include "public.h"\n#include <stdlib.h>\n', "heap.c": '#include "heap.h"\n'}


def placed(name):
    """Where the file is in src/."""
    folder = "" if "/" in name else "heap/" if name.split(".")[0] in HEAP else "base/"
    return folder + name


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
                name = placed(name)
                if text is not None:
                    text = re.sub('"(\\w+[.]h)"', lambda include: f'"{placed(include[1])}"', text)
                    (root / "src" / name).parent.mkdir(exist_ok=True)
                    (root / "src" / name).write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.returncode, 1 if done.stdout else 0)
            return done.stdout.splitlines()

    def test_a_true_table(self):
        self.assertEqual(self.said(), [])

    def test_an_include_that_goes_up(self):
        self.assertEqual(self.said(os_h='\n#  include "heap.h"\n', heap_h=""),
                         ["src/base/os.h:2: of layer 1 includes heap/heap.h of layer 2"])

    def test_a_file_that_is_not_listed(self):
        self.assertEqual(self.said(new_c=""), ["src/base/new.c: is in no layer of docs/tour.md"])

    def test_a_file_that_is_listed_twice(self):
        self.assertEqual(self.said(TABLE.replace("system |", "system |\n| 2 | `base/` | `os` |")),
                         ["docs/tour.md: os is in layer 1 and in layer 2"])
        self.assertEqual(self.said(TABLE.replace("`heap`", "`heap` `heap.c`")),
                         ["docs/tour.md: heap is in layer 2 and in layer 2"])

    def test_a_name_without_a_file(self):
        self.assertEqual(self.said(pool_c=None), ["docs/tour.md: layer 2 names pool, which is not in src/heap/"])

    def test_a_file_of_another_folder(self):
        self.assertEqual(self.said(TABLE.replace("`os`", "`os` `pool`").replace("`pool` over ", "")),
                         ["docs/tour.md: layer 1 names pool, which is not in src/base/",
                          "src/heap/pool.c: is in no layer of docs/tour.md"])

    def test_a_folder_on_two_layers(self):
        self.assertEqual(self.said(TABLE.replace("`pool` over `heap` |", "`heap` |\n| 3 | `heap/` | `pool` |")),
                         ["docs/tour.md: heap/ has two rows"])

    def test_an_include_from_a_later_row(self):
        table = TABLE.replace("`heap` |", "`heap` |\n| 2 | `tiers/` | `tiny` |")
        tiny = {"tiers/tiny_h": ""}
        self.assertEqual(self.said(table, **tiny), [])
        self.assertEqual(self.said(table, **tiny, heap_c='#include "tiers/tiny.h"\n'),
                         ["src/heap/heap.c:1: heap/ includes tiers/tiny.h, of a later row"])

    def test_a_layer_that_is_missing(self):
        self.assertEqual(self.said(TABLE.replace("| 2 |", "| 3 |")), ["docs/tour.md: layer 3 follows layer 1"])

    def test_more_layers_than_allowed(self):
        more = "".join(f"| {number} | `x{number}/` | |\n" for number in range(3, 12))
        self.assertEqual(self.said(TABLE.replace("\n\nMore", "\n" + more + "\nMore")),
                         ["docs/tour.md: 11 layers, " + excess("layers", 11)])

    def test_more_files_than_allowed(self):
        names = [f"heap/m{number}" for number in range(36)]
        table = TABLE.replace("`heap` |", "`heap` " + " ".join(f"`{name[5:]}`" for name in names) + " |")
        self.assertEqual(self.said(table, **{f"{name}_c": "" for name in names}),
                         [f"src/: 38 files .c of the allocator, " + excess("allocator", 38)])

    def test_more_floors_than_allowed(self):
        names = [f"m{number:02}" for number in range(19)]
        table = TABLE.replace("`os`", "`os` " + " ".join(f"`{name}`" for name in names))
        chain = {f"{name}_h": f'#include "{below}.h"' for name, below in zip(names[1:], names)}
        self.assertEqual(self.said(table, m00_h="", **chain),
                         ["src/: 19 floors by includes, " + excess("floors", 19) + ": " + ", ".join(reversed(names))])

    def test_the_core_includes_no_wing(self):
        table = TABLE.replace("system |", "system |\n| 1 | `observe/` | `stats` |\n| 1 | `entry/` | `start` |")
        wing = {"observe/stats_h": "", "observe/stats_c": '#include "observe/stats.h"\n'}
        self.assertEqual(self.said(table, **wing, **{"entry/start_c": '#include "observe/stats.h"\n'}), [])
        self.assertEqual(self.said(table, **wing, heap_c='#include "observe/stats.h"\n', **{"entry/start_c": ""}),
                         ["src/heap/heap.c:1: the core includes observe/stats.h, of a wing: hooks.h is between them"])

    def test_one_reader_of_secure(self):
        table = TABLE.replace("`os`", "`os` `options`").replace("\n\nMore", "\n| 2 | `secure/` | `secure` |\n\nMore")
        read = "if (option(OPT_SECURE))\n"
        secure = {"secure/secure_c": read + read}
        self.assertEqual(self.said(table, options_c=read, **secure), [])
        self.assertEqual(self.said(table, options_c=read + read, heap_c="OPT_SECURE_STACKS\n" + read, **secure),
                         [f"src/{name}:2: reads OPT_SECURE: ask mode() what differs (src/base/mode.h)"
                          for name in ("base/options.c", "heap/heap.c")])

    def test_a_circle_within_a_layer(self):
        self.assertEqual(self.said(heap_c='#include "pool.h"\n', pool_h='#include "heap.h"\n'),
                         ["src/: a circle: heap includes pool, pool includes heap"])
        self.assertEqual(self.said(base_h='#include "text.h"\n', text_c='#include "os.h"\n', text_h="",
                                   table=TABLE.replace("`os`", "`os` `text`")),
                         ["src/: a circle: base includes text, text includes os, os includes base"])

    def test_what_grows_wants_a_reason(self):
        self.assertEqual(excess("floors", 1), "")
        said = r"^more than \d+ \(.+\): say why in tests/grown.txt, with the new figure$"
        self.assertRegex(excess("floors", 99), said)

    def test_no_table(self):
        self.assertEqual(len(self.said("")), len(FILES))


if __name__ == "__main__":
    unittest.main()
