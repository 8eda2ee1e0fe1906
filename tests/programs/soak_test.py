#!/usr/bin/env python3
"""Runs soak.py's parts on small rows. If it fails, a program that breaks under HAKMEM is listed as one that runs."""
# SPDX-License-Identifier: MIT
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import soak


def row(**fields):
    return soak.Program(**{"kind": "tools", "name": "it", "packages": "", "probe": "/bin/sh", "run": "echo it",
                           "expect": "it", "witness": "-", **fields})


class Table(unittest.TestCase):
    def setUp(self):
        self.table = soak.read_table(soak.TABLE.read_text())

    def test_names_are_unique(self):
        names = [program.name for program in self.table]
        self.assertEqual(len(names), len(set(names)))

    def test_scripts_are_scripts(self):
        for program in self.table:
            for script in (program.run, program.server, program.ready):
                done = subprocess.run(["/bin/sh", "-n"], input=script, text=True, capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, f"{program.name}: {done.stderr}")


class Sides(unittest.TestCase):
    """What one side finds wrong, without a library: both sides are judged alike."""

    @classmethod
    def setUpClass(cls):
        cls.kit = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-soak-test-"))
        nothing = cls.kit / "nothing.so"
        nothing.write_bytes(b"")
        soak.make_kit(cls.kit, nothing)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.kit)

    def run_row(self, idle_seconds=0, **fields):
        return soak.Side(row(**fields), self.kit, None, idle_seconds).run()

    def problem(self, **fields):
        return self.run_row(**fields).get("problem", "none")

    def test_good(self):
        result = self.run_row()
        self.assertEqual((result.get("problem"), result["output"]), (None, "it\n"))
        self.assertGreater(result["peak_kib"], 100)

    def test_status(self):
        self.assertIn("session: status 3", self.problem(run="echo it; exit 3"))
        self.assertIn("session: status -9", self.problem(run="echo it; kill -9 $$"))

    def test_output(self):
        self.assertIn("the output lacks", self.problem(run="echo other"))

    def test_library_printed(self):
        self.assertIn("hakmem: x", self.problem(run="echo it; echo 'hakmem: x' >&2"))
        self.assertIn("hakmem: x", self.problem(run="echo it; echo 'hakmem: x' >some.log"))
        self.assertIn("hakmem: x", self.problem(run="echo it; echo 'hakmem: x' >&2", says="y$"))
        self.assertEqual(self.problem(run="echo it; echo 'hakmem: x'; echo 'hakmem:   at z'", says="x$"), "none")

    def test_witness(self):
        self.assertEqual(self.problem(witness=os.path.basename(os.path.realpath("/bin/sh"))), "none")
        self.assertIn("no process of nobody was seen", self.problem(witness="nobody"))

    def test_too_long_and_left_behind(self):
        """A script that does not end is ended, and so is what it has put into the background."""
        sleep = f"sleep 98765.{os.getpid()}"  # as no other process on this machine
        self.assertIn("not finished after 1 s", self.problem(run=f"{sleep} & {sleep}", seconds=1))
        self.assertEqual(self.problem(run=f"{sleep} & echo it"), "none")
        left = subprocess.run(["pgrep", "-xf", re.escape(sleep)], capture_output=True, text=True, check=False)
        self.assertEqual(left.stdout, "")

    def test_peak_is_the_largest_process(self):
        """Also of one that has ended long before, and none of the mebibytes of this process count."""
        used = self.run_row(run="head -c 50000000 /dev/zero | sort -z -S 60M | wc -c; echo it")["peak_kib"]
        self.assertGreater(used, 50_000)
        self.assertLess(self.run_row()["peak_kib"], 6_000)

    def test_server(self):
        result = self.run_row(server="trap 'exit 4' TERM; touch ready; while :; do sleep 0.01; done",
                              ready="test -f ready", idle_seconds=0.01)
        self.assertEqual((result.get("problem"), result["status"]), (None, 4))
        self.assertGreater(result["idle_kib"], 50)

    def test_server_ends_early(self):
        self.assertIn("server: ended early with status 5", self.problem(server="exit 5"))
        ended = "test $(wc -l <../../outside/it/server.report) -ge 2"  # its PID, then its status
        session = f"touch end; until {ended}; do sleep 0.01; done; echo it"
        self.assertIn("before it was stopped",
                      self.problem(server="touch ready; while ! test -f end; do sleep 0.01; done; exit 1",
                                   ready="test -f ready", run=session))


class Verdicts(unittest.TestCase):
    def test_judge(self):
        good = {"output": "a\nb\n", "status": 0}
        self.assertIsNone(soak.judge(good, dict(good)))
        self.assertIn("line 2 under glibc: b", soak.judge(good, good | {"output": "a\nc\n"}))
        self.assertIn("status 0 under glibc and 1 preloaded", soak.judge(good, good | {"status": 1}))
        self.assertIn("preloaded: it broke", soak.judge(good, {"problem": "it broke"}))

    def test_what_is_run_again(self):
        """Another version or library is; a side that failed is; glibc's good side is not if the library changed."""
        results = soak.Results(None)
        results.keep("it", key="1", library="x", glibc={"output": ""}, hakmem={"output": ""})
        cases = "1 x glibc", "1 x hakmem", "1 y glibc", "1 y hakmem", "2 x glibc"
        fresh = [results.is_fresh("it", *case.split()) for case in cases]
        self.assertEqual(fresh, [True, True, True, False, False])
        results.keep("it", key="1", library="x", glibc={"output": ""}, hakmem={"problem": "p"}, problem="p")
        self.assertEqual([results.is_fresh("it", "1", "x", side) for side in soak.SIDES], [True, False])


if __name__ == "__main__":
    unittest.main()
