#!/usr/bin/env python3
"""`hakmem report` from outside: what it refuses, what its pages and texts say, and the page in headless Chromium.

    report_browser.py HAKMEM [--keep DIRECTORY]

HAKMEM is the built command. Needs Debian's chromium (fails without it) and nothing else: the browser is driven by its
DevTools protocol over a pipe. With --keep the pages and screenshots stay for a look.
"""
import argparse
import base64
import fcntl
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

MIB = 2**20
ALLOCATORS = ["hakmem", "system", "mimalloc3", "mimalloc2", "snmalloc", "jemalloc", "tcmalloc", "rpmalloc", "hardened",
              "scudo", "jemalloc-debian", "gperftools", "tbbmalloc", "<script>alert('x')</script> & \"ünï\""]
SPEED = dict(zip(ALLOCATORS, [1, 1.22, 1.06, 1.11, 1.03, 1.12, 1.05, 0.97, 3.4, 1.6, 1.13, 1.1, 1.2, 1.3]))
SIZE = dict(zip(ALLOCATORS, [1, 1.04, 1.1, 1.21, 0.96, 1.08, 1.3, 1.45, 1.7, 1.12, 1.12, 1.35, 1.6, 1.02]))
DEVICE = {"cores": 2, "processor": "A processor <b>", "kernel": "6.1", "memory_bytes": 8 * 2**30,
          "huge_pages": "madvise", "load": 0.3}
CHROMIUM = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]


def ratio(median, width, resolution=0.02):
    low, high = median * (1 - width), median * (1 + width)
    verdict = "better" if high < 1 - resolution else "worse" if low > 1 + resolution else "same"
    return {"median": median, "low": low, "high": high, "verdict": verdict}


def spread(median):
    return {"median": median, "least": median * 0.97, "most": median * 1.05}


def result(name, dice, time, size, metric, values, is_baseline):
    """What one allocator did on one workload; time and size are ratios to the baseline."""
    wall, peak = 1.2 * time, int(40 * MIB * size)
    runs = []
    for number in range(3):
        curve = [(wall * n / 199, int(peak * dice.uniform(0.97, 1) * (0.15 + 0.85 * math.sin(n / 199 * 2.6) ** 2)))
                 for n in range(200)]
        runs.append({"round": number, "started_s": number * 2.0, "wall_s": wall * dice.uniform(0.98, 1.05),
                     "cpu_s": wall, "peak_rss_bytes": peak, "average_rss_bytes": peak // 2, "minor_faults": 9000,
                     "metric": 5e7 / time if metric else None, "values": values, "rss_over_time": curve})
    ratios = None
    if not is_baseline:
        ratios = {"time": ratio(time, 0.015), "cpu": ratio(time, 0.01), "peak_rss": ratio(size, 0.004),
                  "average_rss": ratio(size * 1.01, 0.004), "minor_faults": ratio(size, 0.001),
                  "values": {key: ratio(time * 1.1, 0.05) for key in values}}
    summary = {"wall_s": spread(wall), "cpu_s": spread(wall), "peak_rss_bytes": spread(peak),
               "average_rss_bytes": spread(peak / 2), "minor_faults": spread(9000),
               "metric": spread(5e7 / time) if metric else None,
               "values": {key: spread(value) for key, value in values.items()}, "ratios": ratios}
    return {"allocator": name, "runs": runs, "failures": [], "summary": summary}


def workload(name, group, dice, allocators, baseline="hakmem", metric=True, curve=None, values=(), losses=None):
    """`losses` makes some allocators faster than their habit: name -> time ratio."""
    results = []
    for allocator in allocators:
        own = allocator == baseline
        time = 1 if own else (losses or {}).get(allocator, SPEED[allocator] * math.exp(dice.gauss(0, 0.06)))
        size = 1 if own else SIZE[allocator] * math.exp(dice.gauss(0, 0.05))
        numbers = {key: value * (1 if own else time) for key, value in values}
        results.append(result(allocator, dice, time, size, metric, numbers, own))
    again = result(baseline, dice, 1.006, 1.001, metric, dict(values), False)
    return {"name": name, "group": group, "tags": [], "command": ["bench/program", "<2>", name],
            "metric": {"name": "ops/s", "pattern": "ops/s: ([0-9]+)"} if metric else None, "curve": curve, "rounds": 3,
            "results": results, "again": again}


def standing(workloads, allocators):
    rows = []
    for group in [""] + list(dict.fromkeys(one["group"] for one in workloads)):
        for allocator in allocators[1:]:
            found = [line["summary"]["ratios"] for one in workloads if group in ("", one["group"])
                     for line in one["results"] if line["allocator"] == allocator and line["summary"]]
            if not found:
                continue
            mean = {key: math.exp(sum(math.log(one[key]["median"]) for one in found if one) / len(found))
                    for key in ("time", "peak_rss", "average_rss")}
            rows.append({"allocator": allocator, "group": group, "workloads": len(found),
                         **{key: ratio(value, 0.01) for key, value in mean.items()}})
    return rows


def comparison(workloads, allocators=ALLOCATORS, baseline="hakmem", title="A “suite” <i>of</i> tests"):
    return {"format": 1, "title": title, "started": "2026-01-02T03:04:05Z", "duration_s": 61.5, "machine": dict(DEVICE),
            "baseline": baseline, "workloads": workloads, "standing": standing(workloads, allocators),
            "allocators": [{"name": name, "version": "1.0", "libraries": [f"lib{name}.so"], "environment": {"A": "<1>"}}
                           for name in allocators],
            "notes": ["stopped <early>"], "missing_workloads": [{"name": "postgres", "reason": "no postgres"}],
            "missing": [{"name": "rpmalloc2", "reason": "needs glibc 2.38 <or newer>"}]}


def suite(size=14):
    """Awkward on purpose: names that are markup, failures, an allocator without a summary, further numbers."""
    dice = random.Random(7)
    latency = [("malloc P99.99 ns", 900.0), ('free "P99.99" ns', 700.0)]
    curve = {"name": "larson", "unit": "threads"}
    workloads = [workload(f"larson {n}", "reports", dice, ALLOCATORS, curve={**curve, "x": n})
                 for n in (1, 2, 4, 8, 16)]
    workloads += [workload("latency", "field", dice, ALLOCATORS, metric=False, values=latency),
                  workload("idle", "field", dice, ALLOCATORS, values=[("idle RSS bytes", 2.5 * MIB)]),
                  workload("<img src=x onerror=alert(1)> & ' \" ü", "field", dice, ALLOCATORS,
                           losses={"jemalloc": 0.8})]
    workloads += [workload(f"program number {n}", ["reports", "field", "real programs"][n % 3], dice, ALLOCATORS)
                  for n in range(size - len(workloads))]
    failed = workloads[3]["results"][8]
    failed.update(runs=[], summary=None, failures=["round 1: ended by signal 11 (SIGSEGV) <b>"])
    workloads[4]["results"][2]["failures"] = ["round 2: printed something else"]
    return comparison(workloads)


def resolve(document, path):
    """What is at workloads[3].results[2].summary.values["a b"].median; .length is that of a list."""
    rest = path
    while rest:
        step = re.match(r'\.?(\w+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]', rest)
        if not step:
            raise ValueError(f"cannot follow {path}")
        name, place, key = step.groups()
        if place:
            document = document[int(place)]
        elif key:
            document = document[json.loads(key)]
        else:
            document = len(document) if name == "length" and isinstance(document, list) else document[name]
        rest = rest[step.end():]
    return document


class Browser:
    """Headless Chromium, spoken to over a pipe in messages that end with a zero byte."""

    def __init__(self, profile):
        program = shutil.which("chromium")
        if not program:
            raise RuntimeError("chromium is not installed (Debian package chromium)")
        to_child, self.requests = os.pipe()
        self.answers, from_child = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_child, from_child)]
        os.close(to_child)
        os.close(from_child)
        shell = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'
        command = ["bash", "-c", shell, program, *CHROMIUM, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in ends:
            os.close(end)
        self.number, self.buffer, self.events = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session = None

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.answers, 2**20)
            if not more:
                raise RuntimeError("chromium ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.requests, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.message())

    def open(self, path, width=1280, dark=False):
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media="screen",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        address = str(path) if str(path).startswith(("http:", "about:")) else pathlib.Path(path).resolve().as_uri()
        self.call("Page.navigate", url=address)
        self.wait("Page.loadEventFired")

    def settle(self, script):
        """What a promise becomes."""
        return self.run(script, wait=True)

    def run(self, script, wait=False):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=wait)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def complaints(self):
        found = []
        for event in self.events:
            if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                found.append(json.dumps(event["params"])[:600])
        return found

    def addresses(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def screenshot(self, path, whole=True):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        os.close(self.requests)
        self.process.kill()
        self.process.wait()
        os.close(self.answers)


class BrowserTest(unittest.TestCase):
    """Tests that share a browser and the folder `place`, which is kept if `keep` names one."""

    hakmem = keep = None

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.place = pathlib.Path(cls.keep or cls.directory.name)
        cls.place.mkdir(parents=True, exist_ok=True)
        cls.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.browser = Browser(cls.profile.name)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.profile.cleanup()
        cls.directory.cleanup()


class Report(BrowserTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = suite()
        cls.page = cls.make("suite", cls.document)

    @classmethod
    def write(cls, name, document):
        path = cls.place / f"{name}.json"
        path.write_text(json.dumps(document))
        return str(path)

    @classmethod
    def report(cls, *arguments):
        command = [cls.hakmem, "report", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=1200)

    @classmethod
    def make(cls, name, document):
        page = cls.place / f"{name}.html"
        done = cls.report(cls.write(name, document), "--html", page)
        if done.returncode:
            raise AssertionError(done.stderr)
        return page

    def cells(self):
        return self.browser.run("""[...document.querySelectorAll("[data-path][data-value]")].map((cell) => {
            let path = cell.dataset.path;
            for (let box = cell.parentElement; path.startsWith("."); box = box.parentElement)
                path = (box.dataset.path ?? "") + path;
            return [path, Number(cell.dataset.value), cell.textContent, cell.querySelector("small")?.textContent];
        })""")

    def shows(self, text, wanted, path):
        """To three digits; units and prefixes aside."""
        shown = float(re.match(r"[0-9.]+", text).group())
        scales = [1, 1e-3, 1e3, 1e6, 1e9, 1e-6, 1 / 60, 2**10, 2**20, 2**30]
        self.assertTrue(any(math.isclose(shown * scale, wanted, rel_tol=0.006, abs_tol=0.0051 * (scale == 1))
                            for scale in scales), f"{path}: shows {text}, is {wanted}")

    def test_numbers_of_the_page_are_those_of_the_json(self):
        self.browser.open(self.page)
        cells = self.cells()
        self.assertGreater(len(cells), 14 * 14 * 10)
        for path, value, text, between in cells:
            wanted = resolve(self.document, path)
            self.assertTrue(math.isclose(value, wanted, rel_tol=1e-12), f"{path}: {value}, not {wanted}")
            self.shows(text, wanted, path)
            if between:
                around = resolve(self.document, path.removesuffix(".median"))
                for part, names in zip(between.split("–"), (("low", "least"), ("high", "most"))):
                    self.shows(part, next(around[name] for name in names if name in around), path)
        paths = {cell[0] for cell in cells}
        for wanted in ['workloads[5].results[4].summary.values["free \\"P99.99\\" ns"].median',
                       "standing[3].time.median", "workloads[2].again.summary.ratios.time.median",
                       "workloads[0].results[2].summary.ratios.time.median"]:
            self.assertIn(wanted, paths)

    def test_the_browser_reports_no_problem(self):
        for dark in (False, True):
            self.browser.open(self.page, dark=dark)
            self.assertEqual(self.browser.complaints(), [])
            self.assertEqual(len(self.browser.addresses()), 1, "the page asks for more than itself")
        buttons = self.browser.run("document.querySelectorAll('th button').length")
        self.assertGreater(buttons, 20, "the script did not run")

    def test_names_stay_text(self):
        self.browser.open(self.page)
        self.assertEqual(self.browser.run("document.querySelectorAll('script').length"), 1)
        count = "document.querySelectorAll('img, i, b, main script, header script').length"
        self.assertEqual(self.browser.run(count), 0)
        text = self.browser.run("document.body.textContent")
        for name in (ALLOCATORS[-1], self.document["title"], "<img src=x onerror=alert(1)> & ' \" ü", "A=<1>",
                     "needs glibc 2.38 <or newer>", "round 1: ended by signal 11 (SIGSEGV) <b>", "A processor <b>"):
            self.assertIn(name, text)

    def test_a_phone_scrolls_only_up_and_down(self):
        for dark in (False, True):
            self.browser.open(self.page, width=360, dark=dark)
            self.browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            self.assertEqual(self.browser.run("document.documentElement.scrollWidth"), 360)
            wide = self.browser.run("""[...document.querySelectorAll("main *")].filter((one) =>
                one.getBoundingClientRect().right > 361 && !one.closest(".box, svg"))
                .map((one) => one.outerHTML.slice(0, 99))""")
            self.assertEqual(wide, [])
            small = self.browser.run("""[...document.querySelectorAll("svg text")].filter((one) => {
                const box = one.getBoundingClientRect(); return box.width && Math.min(box.height, box.width * 9) < 9;
            }).map((one) => one.textContent)""")
            self.assertEqual(small, [], "letters too small to read")

    def test_light_and_dark(self):
        seen = []
        for dark in (False, True):
            self.browser.open(self.page, dark=dark)
            seen.append(self.browser.run("""(() => {
                const colours = (one) => [getComputedStyle(one).color, getComputedStyle(one).fill];
                const marks = [".chart .name", ".tick"].map((name) => colours(document.querySelector(name)));
                const paper = getComputedStyle(document.documentElement).backgroundColor;
                return [paper, getComputedStyle(document.body).color, ...marks.flat()];
            })()"""))
        self.assertNotIn(True, [a == b for a, b in zip(*seen) if a != "rgb(0, 0, 0)"], seen)
        background = [int(number) for number in re.findall(r"\d+", seen[1][0])]
        self.assertLess(max(background), 60, "dark is not dark")

    def test_labels_of_the_front_do_not_overlap(self):
        for width in (1280, 360):
            self.browser.open(self.page, width=width)
            overlaps = self.browser.run("""(() => {
                const charts = [...document.querySelectorAll("#standing .split .chart")];
                const names = charts.find((one) => one.clientWidth > 0).querySelectorAll(".name");
                const boxes = [...names].map((one) => [one.textContent, one.getBoundingClientRect()]);
                const found = [];
                for (const [a, p] of boxes) for (const [b, q] of boxes) {
                    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
                    const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
                    if (a < b && wide > 2 && high > 4) found.push(a + " on " + b);
                }
                return boxes.length < 14 ? ["some have no label"] : found;
            })()""")
            self.assertEqual(overlaps, [], f"at {width}")

    def test_headings_sort_their_table(self):
        self.browser.open(self.page)
        sort = """(() => {
            const table = document.querySelector("#standing table.sortable");
            table.tHead.rows[0].cells[%d].querySelector("button").click();
            return [...table.tBodies[0].rows].map((row) => row.cells[%d].dataset.value ?? row.cells[%d].textContent);
        })()"""
        up = [float(one) for one in self.browser.run(sort % (2, 2, 2))]
        self.assertEqual(up, sorted(up))
        self.assertEqual(len(up), 14)
        down = [float(one) for one in self.browser.run(sort % (2, 2, 2))]
        self.assertEqual(down, sorted(down, reverse=True))
        names = self.browser.run(sort % (0, 0, 0))
        self.assertEqual(sorted(names), sorted(ALLOCATORS))
        self.assertEqual(self.browser.run("document.querySelector('#standing th[aria-sort]').textContent"), "allocator")

    def test_charts_have_names_for_those_who_cannot_see_them(self):
        self.browser.open(self.page)
        bad = self.browser.run("""[...document.querySelectorAll("svg.chart")].filter((one) =>
            one.getAttribute("role") !== "img" || one.getAttribute("aria-labelledby").split(" ").some((id) =>
                !document.getElementById(id)?.textContent)).length""")
        self.assertEqual(bad, 0)
        twice = self.browser.run("""(() => { const all = [...document.querySelectorAll("[id]")].map((one) => one.id);
            return all.filter((id, at) => all.indexOf(id) !== at); })()""")
        self.assertEqual(twice, [])

    def test_the_largest_stays_small(self):
        page = self.make("largest", suite(60))
        self.assertLess(page.stat().st_size, 3_000_000)

    def test_everything_is_there_without_a_script(self):
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.open(self.page)
        finally:
            self.browser.call("Emulation.setScriptExecutionDisabled", value=False)
        self.assertEqual(self.browser.complaints(), [])
        self.assertGreater(self.browser.run("document.querySelectorAll('svg.chart').length"), 20)

    def test_little_is_enough(self):
        dice = random.Random(1)
        for name, document in {
            "none": comparison([]),
            "alone": comparison([workload("one", "", dice, ["hakmem"])], ["hakmem"]),
            "foreign": comparison([workload("one", "", dice, ["system", "jemalloc"], baseline="system")],
                                  ["system", "jemalloc"], baseline="system"),
        }.items():
            self.browser.open(self.make(name, document))
            self.assertEqual(self.browser.complaints(), [], name)
            self.assertGreater(len(self.browser.run("document.querySelector('h1').textContent")), 10)
            for path, value, *_ in self.cells():
                self.assertTrue(math.isclose(value, resolve(document, path), rel_tol=1e-12), path)

    def test_suites_become_one_standing(self):
        dice = random.Random(2)
        old, new = ["hakmem", "jemalloc"], ["hakmem", "snmalloc"]
        first = comparison([workload("one", "a", dice, old), workload("two", "a", dice, old)], old, title="first")
        second = comparison([workload("two", "b", dice, new)], new, title="second")
        # jemalloc takes twice as long in "one", snmalloc half as long in "two".
        for document, factor in ((first, 2.0), (second, 0.5)):
            for one in document["workloads"]:
                for line in one["results"] + [one["again"]]:
                    for run in line["runs"]:
                        slow = line["allocator"] != "hakmem"
                        run.update(metric=1e6 / factor if slow else 1e6)
        page = self.place / "merged.html"
        done = self.report(self.write("first", first), self.write("second", second), "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.browser.open(page)
        self.assertEqual(self.browser.complaints(), [])
        titles = "[...document.querySelectorAll('summary .title')].map((one) => one.textContent)"
        self.assertEqual(self.browser.run(titles), ["one", "two"])
        means = self.browser.run("""[...document.querySelector("#standing table").tBodies[0].rows].map((row) =>
            [row.cells[0].textContent, Number(row.cells[1].dataset.value), Number(row.cells[4].dataset.value)])""")
        self.assertEqual([[name, round(time, 9), count] for name, time, count in means],
                         [["snmalloc", 0.5, 1], ["hakmem", 1, 2], ["jemalloc", 2, 1]])

    def test_refuses_in_one_line(self):
        dice = random.Random(3)
        good = self.write("good", comparison([workload("one", "", dice, ["hakmem"])], ["hakmem"]))
        other = comparison([workload("one", "", dice, ["system"], baseline="system")], ["system"], baseline="system")
        elsewhere = comparison([workload("one", "", dice, ["hakmem"])], ["hakmem"])
        elsewhere["machine"]["cores"] = 64
        newer = comparison([], [])
        newer["format"] = 99
        page = self.place / "refused.html"
        for arguments, wanted in {
            (good, self.write("other", other), "--html", page): "is relative to system",
            (good, self.write("elsewhere", elsewhere), "--html", page): "different machines",
            (self.write("newer", newer), "--html", page): "has format 99, this program reads format 1",
            (self.write("nothing", {"a": 1}), "--html", page): "is not what `hakmem compare --json` writes",
            (self.place / "absent.json", "--html", page): "cannot read",
            (good,): "nothing to write",
        }.items():
            done = self.report(*arguments)
            self.assertNotEqual(done.returncode, 0, wanted)
            self.assertIn(wanted, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertFalse(page.exists())

    def text(self, name, document, *more):
        path = self.place / name / "performance.md"
        done = self.report(self.write(name, document), "--markdown", path, "--plots", path.parent / "plots", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        for plot in re.findall(r"\]\((\S+\.svg)\)", path.read_text()):
            root = xml.etree.ElementTree.parse(path.parent / plot).getroot()
            self.assertTrue(root.tag.endswith("svg") and "prefers-color-scheme" in root.find("{*}style").text)
        return path.read_text()

    def rows(self, text, heading):
        """The table under a heading."""
        part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        lines = [line[2:-2].split(" | ") for line in part.splitlines() if line.startswith("| ")]
        return lines[1:]

    def race(self, times, sizes=None, values=None):
        """One workload: peers' ratios to HAKMEM by name; values: name -> (HAKMEM's, jemalloc's)."""
        names = ["hakmem"] + list(times)
        dice = random.Random(4)
        one = workload("race", "", dice, names, losses=times)
        for line in one["results"][1:]:
            size = (sizes or {}).get(line["allocator"], 1.2)
            line["summary"]["ratios"].update(peak_rss=ratio(size, 0.001), average_rss=ratio(size, 0.001))
        for name, (own, peer) in (values or {}).items():
            for line in one["results"]:
                number = own if line["allocator"] == "hakmem" else peer
                line["summary"]["values"][name] = spread(number)
                if line["summary"]["ratios"]:
                    line["summary"]["ratios"]["values"][name] = ratio(peer / own, 0.01)
        return comparison([one], names)

    def goals(self, document):
        return [row[2] for row in self.rows(self.text("goals", document), "Goals")]

    def test_goals_and_losses_of_the_text(self):
        values = {"malloc P99.99 ns": (100, 120), "idle over start bytes": (3 * MIB, 5 * MIB)}
        self.assertEqual(self.goals(self.race({"jemalloc": 1.10, "scudo": 0.5}, values=values)), ["met"] * 6,
                         "a hardened allocator is no peer here")
        values = {"malloc P99.99 ns": (100, 90), "idle over start bytes": (3 * MIB + 1, 0)}
        behind = self.race({"jemalloc": 0.85, "system": 1.3}, {"jemalloc": 0.9}, values)
        self.assertEqual(self.goals(behind), ["**short**"] * 6)
        # 0.98 of the best is not enough for the mean, and no loss on the workload; tbbmalloc is none of the lean peers.
        few = self.race({"jemalloc": 1.02, "tbbmalloc": 2}, {"jemalloc": 1.01, "tbbmalloc": 0.5})
        self.assertEqual(self.goals(few), ["**short**", "met", "met", "met", "not measured", "not measured"])
        lost = self.text("lost", self.race({"jemalloc": 0.8, "mimalloc3": 0.9}))
        self.assertEqual(self.rows(lost, "Where HAKMEM is not first"),
                         [["race", "", "time", "jemalloc", "1.25 (1.23–1.27)"]])
        self.assertIn("▲ 1.25", lost)
        won = self.text("won", self.race({"jemalloc": 1.2}))
        self.assertIn("On no workload is a peer ahead", won)
        self.assertIn("**0.83 (0.82–0.85)**", won)

    def test_headline_says_no_more_than_was_measured(self):
        def line(document):
            return re.search(r"\*\*(Of .*)\.\*\*", self.text("headline", document)).group(1)
        self.assertEqual(line(self.race({"jemalloc": 1.2})), "Of 2 allocators, HAKMEM is the fastest and the leanest")
        self.assertEqual(line(self.race({"jemalloc": 1.01, "system": 1.3}, {"jemalloc": 0.9})),
                         "Of 3 allocators, HAKMEM is level with the fastest and 2nd in memory")
        # What is ahead by less than the noise does not count: behind tcmalloc and snmalloc, level with rpmalloc.
        self.assertEqual(line(self.race({"tcmalloc": 0.8, "snmalloc": 0.9, "rpmalloc": 0.99})),
                         "Of 4 allocators, HAKMEM is 3rd in time and the leanest")
        # Nor where the ratio to a peer is computed from two: it counts if it is beyond what the baseline shows against
        # itself.
        names = ["system", "hakmem", "jemalloc"]
        for jemalloc, said in ((0.795, "level with the fastest"), (0.6, "2nd in time"), (1.2, "the fastest")):
            one = workload("race", "", random.Random(5), names, baseline="system", metric=False,
                           losses={"hakmem": 0.8, "jemalloc": jemalloc})
            self.assertIn(f"HAKMEM is {said} and", line(comparison([one], names, baseline="system")))

    def test_the_text_stays_text(self):
        experiments = self.place / "experiments.md"
        experiments.write_text("## Tried\n\n| what | gave |\n|---|---|\n| nothing | 0 |\n")
        counts = {"title": "Counts", "machine": "x <y>", "paths": [
            {"name": "malloc | hit", "unit": "instructions", "x_unit": "threads", "note": "one size", "series": [
                {"allocator": "hakmem", "points": [[1, 30], [64, 31.5]]},
                {"allocator": "new <one>", "points": [[1, 40]]}]},
            {"name": "malloc | hit", "unit": "misses", "x_unit": "threads", "series": [
                {"allocator": "hakmem", "points": [[1, 0]]}]}], "findings": [
                    {"line": "hit <grows>", "reason": None}, {"line": "misses grow", "reason": "so <it> is"}]}
        extra = ["--experiments", experiments, "--counts", self.write("counts", counts)]
        text = self.text("awkward", self.document, *extra)
        self.assertIn("### What grows without a reason\n\n- hit &lt;grows>", text)
        self.assertIn("- misses grow: so &lt;it> is", text)
        self.assertIn("#### misses\n\nNone by any of them.", text)
        self.assertIn("&lt;script>alert('x')&lt;/script> &amp; \"ünï\"", text)
        self.assertNotRegex(text, "<(script|img|b|i)")
        self.assertEqual(self.rows(text, "Counts"), [["hakmem", "30", "31.5"], ["new &lt;one>", "40", "–"]])
        self.assertIn("malloc \\| hit", text)
        self.assertEqual(self.rows(text, "Tried"), [["nothing", "0"]])
        self.assertEqual(self.rows(text, "Runs that do not count")[0],
                         ["larson 8", "hardened", "round 1: ended by signal 11 (SIGSEGV) &lt;b>"])
        self.assertEqual(len(self.rows(text, "Every workload")), len(self.document["workloads"]))
        self.assertIn("Nothing was measured", self.text("empty", comparison([])))

    def test_counts_alone_are_a_page(self):
        counts = self.write("alone", {"title": "Counts", "machine": "x <y>", "paths": [
            {"name": "hit", "unit": "lines", "x_unit": "threads", "series": [
                {"allocator": "hakmem", "points": [[1, 0], [64, 31.5]]}]}],
                "findings": [{"line": "hit <grows>", "reason": None}]})
        page, plots = self.place / "counts.html", self.place / "counts"
        done = self.report("--counts", counts, "--html", page, "--plots", plots)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("hit &lt;grows&gt;", page.read_text())
        self.assertEqual([plot.name for plot in plots.iterdir()], ["hit-lines-by-threads.svg"])
        self.assertIn("give --html", self.report("--counts", counts, "--markdown", page, "--plots", plots).stderr)

    def test_another_baseline_has_no_interval(self):
        dice = random.Random(5)
        names = ["system", "hakmem", "jemalloc"]
        times = {"hakmem": 0.8, "jemalloc": 0.5}
        one = workload("race", "", dice, names, baseline="system", metric=False, losses=times)
        text = self.text("foreign-text", comparison([one], names, baseline="system"))
        self.assertEqual(self.rows(text, "Where HAKMEM is not first")[0],
                         ["race", "", "time", "jemalloc", "1.60 (no interval)"])

    def test_keeps_pictures(self):
        """For the eye; and the page must not be blank."""
        for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 360, False)):
            self.browser.open(self.page, width=width, dark=dark)
            path = self.place / f"{name}.png"
            self.browser.screenshot(path)
            self.assertGreater(path.stat().st_size, 50_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hakmem")
    parser.add_argument("--keep")
    options, rest = parser.parse_known_args()
    Report.hakmem, Report.keep = options.hakmem, options.keep
    unittest.main(argv=sys.argv[:1] + rest)
