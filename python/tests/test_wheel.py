# SPDX-License-Identifier: MIT
"""The installed wheel, in the Python it was installed for: tests/wheel.sh runs this file."""
import http.client
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import hakmem
from hakmem.__main__ import VALUED, translate

# Holds much until its parent, which looks every 2 ms by one read, has made a thousand.
HOLD = """
import os, time
held = [bytes(1000) for _ in range(20_000)]
reads = lambda: int(open(f"/proc/{os.getppid()}/io").read().split()[5])
enough = reads() + 1000
while reads() < enough:
    time.sleep(0.01)
"""
LOADED = "'libhakmem.so' in open('/proc/self/maps').read()"


def python(*arguments, **environment):
    """Runs this Python; returns its result, output and errors as text."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=1200, env={**os.environ, **environment}
    )


def under_hakmem(code):
    return python("-c", code, LD_PRELOAD=str(hakmem.LIBRARY), PYTHONMALLOC="malloc")


class Module(unittest.TestCase):
    def passes(self, code):
        result = under_hakmem("import hakmem\n" + code)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_without_the_library_it_says_so(self):
        self.assertFalse(hakmem.is_active())
        with self.assertRaisesRegex(RuntimeError, "python -m hakmem run"):
            hakmem.stats()

    def test_statistics_know_what_the_program_holds(self):
        live = """
assert hakmem.is_active()
before = hakmem.stats()["rss_bytes"]["live"]
held = [bytes(1000) for _ in range(20_000)]
print(hakmem.stats()["rss_bytes"]["live"] - before)
"""
        self.assertGreater(int(self.passes(live)), 20_000_000)

    def test_library_command_and_wheel_have_one_version(self):
        version = importlib.metadata.version("hakmem")
        self.assertEqual(self.passes("import ctypes; hak_version = ctypes.CDLL(None).hak_version\n"
                                     "hak_version.restype = ctypes.c_char_p; print(hak_version().decode())"),
                                     f"{version}\n")
        self.assertEqual(python("-m", "hakmem", "--version").stdout, f"hakmem {version}\n")

    def test_the_package_says_who_made_it_and_where_its_pages_are(self):
        metadata = importlib.metadata.metadata("hakmem")
        self.assertEqual(metadata["Author"], "The HAKMEM authors")
        urls = dict(url.split(", ") for url in metadata.get_all("Project-URL"))
        self.assertEqual(urls.keys(), {"Homepage", "Documentation", "Changelog", "Issues"})
        self.assertEqual({url for url in urls.values() if not url.startswith("https://github.com/hakmem/hakmem")}, set())

    def test_trim_gives_memory_back(self):
        self.assertGreater(int(self.passes("held = [bytes(1000) for _ in range(20_000)]\ndel "
                                           "held\nprint(hakmem.trim())")), 0)

    def test_options_are_read_and_set(self):
        code = """
hakmem.set_option("RETAIN_PERCENT", 3)
print(hakmem.option("RETAIN_PERCENT"))
for call, error in (
    (lambda: hakmem.option("NONE"), ValueError),
    (lambda: hakmem.set_option("NONE", 1), ValueError),
    (lambda: hakmem.set_option("PURGE", "often"), ValueError),
    (lambda: hakmem.set_option("SECURE", 1), PermissionError),
):
    try:
        call()
    except error:
        continue
    raise SystemExit(f"no {error}")
print(repr(hakmem.option("STATS_FILE")))
"""
        self.assertEqual(self.passes(code).split(), ["3", "''"])

    def test_the_profile_starts_and_stops(self):
        code = """
hakmem.start_profile(4096)
held = [bytes(1000) for _ in range(20_000)]
hakmem.stop_profile()
print(hakmem.stats()["counters"]["samples_taken"])
"""
        self.assertGreater(int(self.passes(code)), 100)


class Command(unittest.TestCase):
    def test_run_passes_arguments_output_and_status_on(self):
        result = python("-m", "hakmem", "run", "-c", f"import sys; print(sys.argv[1:], {LOADED}); sys.exit(3)",
                        "--json", "x")
        self.assertEqual((result.returncode, result.stdout), (3, "['--json', 'x'] True\n"))
        self.assertIn("resident", result.stderr)

    def test_options_before_the_script_are_the_commands(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "hold.py")
            script.write_text(HOLD)
            result = python("-m", "hakmem", "explain", "--json", str(script))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(json.loads(result.stdout)["heap"]["live"], 20_000_000)

    def test_only_the_first_word_starts_python(self):
        """Else an option of another program, or the value of one of ours, is taken for Python's."""
        with tempfile.TemporaryDirectory() as folder:
            script = str(pathlib.Path(folder, "script.py"))
            pathlib.Path(script).write_text("")
            begin = ["--", sys.executable]
            for arguments, translated in (
                (["run", "-m", "json.tool", "-c", "x"], ["run", *begin, "-m", "json.tool", "-c", "x"]),
                (["run", "--json", script, "--", "-m"], ["run", "--json", *begin, script, "--", "-m"]),
                (["profile", "--report", script, "-c", "1"],
                 ["run", "--profile", "--report", script, *begin, "-c", "1"]),
                (["run", "--", "server", "-m", "x"], None), (["run", "server", "-m", "x"], None),
                (["explain", "1", "-c", "x"], None), (["run", "--report"], None), (["top", "-m", "x"], None),
                ([], None),
            ):
                self.assertEqual(translate(arguments), translated, arguments)

    def test_options_with_values_are_the_commands(self):
        """Else the value is taken for the script."""
        for name in ("run", "explain"):
            told = python("-m", "hakmem", name, "--help").stdout
            words = re.findall(r"^ +(?:-\w, )?(--[a-z-]+) <", told, re.MULTILINE)
            self.assertLessEqual(set(words), set(VALUED), told)

    def test_profile_names_the_code(self):
        result = python("-m", "hakmem", "profile", "-m", "json.tool", "--help")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("<frozen importlib._bootstrap", result.stderr)

    def test_the_users_choice_of_pythons_allocator_holds(self):
        shows = "import os; print(os.environ['PYTHONMALLOC'])"
        self.assertEqual(python("-m", "hakmem", "run", "-c", shows).stdout, "malloc\n")
        self.assertEqual(python("-m", "hakmem", "run", "-c", shows, PYTHONMALLOC="default").stdout, "default\n")

    def test_other_commands_are_the_commands(self):
        script = pathlib.Path(sys.executable).parent / "hakmem"
        version = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(python("-m", "hakmem", "--version").stdout, version)
        self.assertEqual(python("-m", "hakmem", "library").stdout, f"{hakmem.LIBRARY}\n")
        self.assertNotEqual(python("-m", "hakmem", "nonsense").returncode, 0)


class Programs(unittest.TestCase):
    def test_children_of_multiprocessing_run_under_it(self):
        code = """
import multiprocessing
def loaded(_):
    return sum(len(bytes(n)) for n in range(2000)) > 0 and %s
if __name__ == "__main__":
    for method in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(all(pool.map(loaded, range(8))))
""" % LOADED
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "pool.py")
            script.write_text(code)
            result = python("-m", "hakmem", "run", str(script))
        self.assertEqual((result.returncode, result.stdout), (0, "True\nTrue\nTrue\n"), result.stderr)

    def test_extension_modules_of_wheels_allocate_from_it(self):
        code = """
import hakmem, msgpack
assert msgpack.Packer.__module__ == "msgpack._cmsgpack", "the extension is not there"
def held():
    stats = hakmem.stats()
    return stats["rss_bytes"]["live"] + stats["untouched_bytes"]
before = held()
packers = [msgpack.Packer(buf_size=100_000) for _ in range(100)]
print(held() - before > 9_000_000)
kept = [msgpack.unpackb(packers[i].pack({"key": list(range(i))})) for i in range(100)]
"""
        result = under_hakmem(code)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "True\n", ""))

    def test_a_server_with_workers(self):
        application = """
import hakmem
def app(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [str(hakmem.stats()["rss_bytes"]["live"]).encode()]
"""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "site_app.py").write_text(application)
            # Its socket is there before it runs, so that it is neither another's nor asked too early.
            with socket.create_server(("127.0.0.1", 0)) as listening:
                port = listening.getsockname()[1]
                server = subprocess.Popen(
                    [sys.executable, "-m", "gunicorn", "--workers", "2", "--timeout", "0", "--graceful-timeout", "600",
                     "--bind", f"fd://{listening.fileno()}", "site_app:app"],
                    cwd=folder, stderr=subprocess.PIPE, text=True, pass_fds=[listening.fileno()],
                    env={**os.environ, "LD_PRELOAD": str(hakmem.LIBRARY)},
                )
            try:
                for _ in range(20):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
                    connection.request("GET", "/")
                    self.assertGreater(int(connection.getresponse().read()), 100_000)
            finally:
                server.send_signal(signal.SIGTERM)
                errors = server.communicate(timeout=600)[1]
        self.assertEqual(server.returncode, 0, errors)


if __name__ == "__main__":
    unittest.main()
