#!/usr/bin/env python3
"""The table of docs/recipes.md: if it fails, the page shows figures of another allocator, or loses a recipe."""
# SPDX-License-Identifier: MIT
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import page


def spread(median):
    return {"median": median, "least": median, "most": median}


def result(name, ratios=None, rest_mib=50):
    summary = {"peak_rss_bytes": spread(80 << 20), "cpu_s": spread(1.25)}
    if ratios:
        names = (("peak_rss", "same"), ("cpu", "worse"))
        summary["ratios"] = {of: {"median": one, "verdict": verdict} for (of, verdict), one in zip(names, ratios)}
    samples = [[0, 0], [1, rest_mib << 20], [2, 1]]
    return {"allocator": name, "summary": summary, "runs": [{"rss_over_time": samples}]}


class Page(unittest.TestCase):
    def test_rows_are_of_results_and_others_stay(self):
        with tempfile.TemporaryDirectory() as name:
            place = pathlib.Path(name)
            failed = {"allocator": "snmalloc", "summary": None, "runs": []}
            results = [result("system"), failed, result("hakmem", (1.0, 1.25), 25)]
            comparison = {"title": "Jobs", "baseline": "system", "workloads": [{"rounds": 5, "results": results}]}
            comparison["workloads"][0]["processes"] = "main"
            (place / "jobs.json").write_text(json.dumps(comparison))
            old = "| [Old](plots/recipes/words.svg) | 3 |\n"
            gone = "| [Jobs of yesterday](plots/recipes/jobs.svg) | 3 |\n"
            text = place / "recipes.md"
            text.write_text("before\n" + page.BEGIN + "head\n|---|\n" + old + gone + page.END + "after\n")
            (place / "flush.json").write_text(json.dumps({"workloads": []}))  # could not be measured
            subprocess.run([sys.executable, page.__file__, place, text], check=True)
            lines = text.read_text().splitlines()
            self.assertEqual((lines[0], lines[-1]), ("before", "after"))
            row = ("| [Jobs](plots/recipes/jobs.svg) | 5 | 50 MiB, 80 MiB, 1.25 s | 0.50, 1.00, 1.25\\* "
                   "| – | – | – | – | – |")
            self.assertEqual(lines[4:6], [row, old.strip()])


if __name__ == "__main__":
    unittest.main()
