#!/usr/bin/env python3
"""`hakmem map` and `hakmem view` from outside: the pages in headless Chromium, on heaps made here and on a real
program.

    map_browser.py HAKMEM LIBRARY [--keep DIRECTORY]

HAKMEM is the built command, LIBRARY is libhakmem.so. Needs Debian's chromium. With --keep the pages and screenshots
stay for a look.
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import unittest

from report_browser import BrowserTest, resolve

MIB = 2**20
SLOT = 64 * 1024
AWKWARD = "</script><b>x</b> & \"ü\""


def slots_of(dice, number):
    """32 slots: slabs of a few tiny and mid classes, large blocks, EMPTY, LAZY and UNUSED slots."""
    slots = []
    while len(slots) < 32:
        room = 32 - len(slots)
        tiny = lambda size: ("active", "tiny", size, SLOT // size, 1)
        state, tier, size, blocks, wide = dice.choice(
            [tiny(96), tiny(96), tiny(16), tiny(512), tiny(1024), ("active", "mid", 24576, 8, 3),
             ("active", "mid", 2048, 32, 1), ("active", "large", 5 * SLOT, 1, 5), ("empty", None, 0, 0, 1),
             ("lazy", None, 0, 0, 1), ("unused", None, 0, 0, 2)])
        if wide > room:
            continue
        # High addresses are emptier, as where the lowest address goes first.
        used = max(1, min(blocks, int(blocks * dice.uniform(0.3, 1.3) * (1 - (number % 60) / 90))))
        owner = dice.randrange(4) if tier == "tiny" and dice.random() < 0.8 else None
        for back in range(wide):
            slots.append({"state": state, "tier": tier, "block_bytes": size, "blocks": blocks,
                          "used": used if state == "active" else 0, "owner": owner,
                          "resident": {"lazy": SLOT // 4, "unused": 0}.get(state, SLOT),
                          "back": back if state == "active" else 0})
    return slots


def classes_of(superslabs):
    found = {}
    for slot in (slot for one in superslabs for slot in one["slots"] if slot["state"] == "active"):
        size = 0 if slot["tier"] == "large" else slot["block_bytes"]
        one = found.setdefault((slot["tier"], size), {
            "tier": slot["tier"], "block_bytes": size, "slabs": 0, "live_blocks": 0, "cached_blocks": 0,
            "free_blocks": 0, "live": 0, "untouched": 0, "cached": 0, "lazy": 0, "free": 0, "resident": 0,
            "partly_used_slabs": 0, "free_pages": 0, "movable": 0, "meshable": 0, "allocations": 0, "misses": 0})
        one["resident"] += slot["resident"]
        if slot["back"] == 0:
            free = slot["blocks"] - slot["used"]
            one["slabs"] += 1
            one["live_blocks"] += slot["used"]
            one["free_blocks"] += free
            one["live"] += slot["used"] * slot["block_bytes"]
            one["free"] += free * slot["block_bytes"]
    return sorted(found.values(), key=lambda one: (one["tier"] != "tiny", one["tier"], one["block_bytes"]))


def snapshot(count, command="a program"):
    dice = random.Random(count)
    superslabs = [{"number": n, "address": 0x7F0000000000 + n * 2 * MIB, "huge_page": n % 7 == 6, "arena": 0,
                   "slots": slots_of(dice, n)} for n in range(count)]
    classes = classes_of(superslabs)
    live, free = sum(one["live"] for one in classes), sum(one["free"] for one in classes)
    empty, lazy = [sum(slot["resident"] for one in superslabs for slot in one["slots"] if slot["state"] == state)
                   for state in ("empty", "lazy")]
    heap = {"live": live, "partly_used_slabs": free, "thread_caches": live // 30,
            "empty_slots": empty, "lazy": lazy, "huge_rounding": count * 9000, "metadata": MIB}
    heap["total"] = heap["mapped_rss"] = sum(heap.values())
    heap["untouched"] = live // 20
    rest = [{"name": "stacks", "rss": 200 * 1024}, {"name": command, "rss": 3 * MIB}]
    rss = heap["total"] + sum(one["rss"] for one in rest)
    counters = [{"name": name, "help": "", "value": dice.randrange(10**6)}
                for name in ("refill_from_slab", "free_remote", "stage1_reused_empty", "stage3_new", "purged_slots")]
    return {"process": {"pid": 4321, "command": command, "version": "1.2.3", "threads": 4, "rss": rss,
                        "rss_peak": rss + MIB, "minor_faults": 12345, "age_ms": 754321, "purger": False,
                        "asleep": False},
            "heap": heap, "rest": rest, "classes": classes, "slot_bytes": SLOT, "superslabs": superslabs,
            "superslab_count": len(superslabs),
            "heaps": [{"number": n, "in_use": n < 3, "cached": 5000 * n, "owned_slabs": 40 - 9 * n} for n in range(4)],
            "arenas": [], "counters": counters, "options": [], "ace": None, "rounding_waste": None}


class Page(BrowserTest):
    """The page of `map --html`, and the command itself, on heaps made here."""

    library = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = snapshot(40)
        cls.page = cls.make("small", cls.document)

    @classmethod
    def map(cls, *arguments):
        return subprocess.run([cls.hakmem, "map", *map(str, arguments)], capture_output=True, text=True, timeout=1200)

    @classmethod
    def make(cls, name, document):
        source, page = cls.place / f"{name}.json", cls.place / f"{name}.html"
        source.write_text(json.dumps(document))
        done = cls.map(source, "--html", page)
        if done.returncode or done.stdout:
            raise AssertionError(done.stderr + done.stdout)
        return page

    def shows(self, text, wanted, path):
        """To three digits; units aside."""
        shown = float(re.search(r"[0-9.]+", text.replace(",", "")).group())
        self.assertTrue(any(math.isclose(shown * unit, wanted, rel_tol=0.006) for unit in (1, 2**10, 2**20, 2**30)),
                        f"{path}: shows {text}, is {wanted}")

    def hover(self, tile, slot):
        """Points at a slot; the words that appear."""
        x, y = self.browser.run(f"""(() => {{
            const [left, top] = corner({tile}), box = canvas.getBoundingClientRect();
            scrollTo(0, 0);
            scrollTo(0, canvas.getBoundingClientRect().top + top - 300);
            const now = canvas.getBoundingClientRect();
            return [now.left + left + ({slot} % 8 + 0.4) * place.size,
                now.top + top + (({slot} >> 3) + 0.4) * place.size];
        }})()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return self.browser.run("by('tip').hidden ? null : by('tip').innerText")

    def test_numbers_of_the_page_are_those_of_the_json(self):
        self.browser.open(self.page)
        cells = self.browser.run("""[...document.querySelectorAll("main [data-path]")].map((one) =>
            [one.dataset.path, Number(one.dataset.value), one.textContent])""")
        own = [cell for cell in cells if not cell[0].startswith("parts")]
        self.assertGreater(len(own), 60)
        for path, value, text in own:
            wanted = resolve(self.document, path)
            self.assertEqual(value, wanted, path)
            self.shows(text, wanted, path)
        # The terms are the process's resident memory.
        self.assertEqual(sum(value for path, value, _ in cells if path.startswith("parts")),
                         self.document["process"]["rss"])
        terms = {text.rsplit(" ", 2)[0]: value for path, value, text in cells if path.startswith("parts")}
        heap = self.document["heap"]
        self.assertEqual(terms["live"], heap["live"])
        self.assertEqual(terms["EMPTY slots"], heap["empty_slots"])
        self.assertEqual(terms["LAZY pages"], heap["lazy"])

    def test_every_slot_is_drawn_in_its_colour(self):
        self.browser.open(self.page)
        drawn = self.browser.run("""(() => {
            const scale = canvas.width / place.width, ink = colours(), names = [];
            const rgb = (text) => { pen.fillStyle = text; return pen.fillStyle; };
            data.superslabs.forEach((_, tile) => {
                for (let slot = 0; slot < 32; slot++) {
                    const [left, top] = corner(tile);
                    // The lowest line of a slot has its full colour if any block of it is used.
                    const x = left + (slot % 8 + 0.4) * place.size, y = top + ((slot >> 3) + 1) * place.size - 2.2;
                    const [r, g, b] = pen.getImageData(x * scale, y * scale, 1, 1).data;
                    const hex = "#" + [r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("");
                    names.push(Object.keys(ink).filter((name) => rgb(ink[name]) === hex));
                }
            });
            return names;
        })()""")
        slots = [slot for one in self.document["superslabs"] for slot in one["slots"]]
        self.assertEqual(len(drawn), len(slots))
        for names, slot in zip(drawn, slots):
            if slot["state"] == "active" and slot["used"] / slot["blocks"] < 0.3:
                continue
            wanted = (slot["state"].upper() if slot["state"] != "active" else None) or (
                "large" if slot["tier"] == "large" else str(slot["block_bytes"]))
            self.assertIn(wanted, names, slot)

    def test_a_slot_describes_itself(self):
        for width in (1280, 360):
            self.browser.open(self.page, width=width)
            for tile in (0, 6, 39):
                for slot in (0, 9, 31):
                    wanted = self.document["superslabs"][tile]["slots"][slot]
                    text = self.hover(tile, slot)
                    huge = ", a huge page" if self.document["superslabs"][tile]["huge_page"] else ""
                    self.assertIn(f"SuperSlab {tile}{huge}, ", text)
                    self.assertIn(f"slot {slot}\n", text)
                    if wanted["state"] != "active":
                        self.assertTrue(text.startswith(wanted["state"].upper()), text)
                        continue
                    name = "large block of" if wanted["tier"] == "large" else f"class {wanted['block_bytes']}\n"
                    self.assertIn(name, text)
                    plural = "" if wanted["blocks"] == 1 else "s"
                    self.assertIn(f"{wanted['used']} of {wanted['blocks']} block{plural} used", text.replace(",", ""))
                    owner = "none" if wanted["owner"] is None else f"heap {wanted['owner']}\n"
                    self.assertIn(f"owner: {owner}", text)
                    self.assertIn("64 KiB resident", text)
                    inside = self.browser.run("""(() => { const box = by("tip").getBoundingClientRect();
                        return box.left >= 0 && box.top >= 0 && box.right <= innerWidth
                            && box.bottom <= innerHeight; })()""")
                    self.assertTrue(inside, "the words are outside of the window")

    def test_keys_and_taps_reach_a_slot(self):
        self.browser.open(self.page, width=360)
        self.browser.run("canvas.focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        # From none to slot 0 with the first key or the focus; then right and down.
        at = self.browser.run("at")
        self.assertIn(at, (9, 10))
        self.assertIn(f"slot {at}\n", self.browser.run("by('tip').innerText"))
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        self.assertTrue(self.browser.run("by('tip').hidden"))
        x, y = self.browser.run("""(() => { canvas.scrollIntoView(); const box = canvas.getBoundingClientRect();
            const [left, top] = corner(0); return [box.left + left + 3, box.top + top + 3]; })()""")
        self.browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.assertIn("SuperSlab 0", self.browser.run("by('tip').innerText"))

    def test_classes_can_be_picked(self):
        self.browser.open(self.page)
        counts = dict(self.browser.run("""[...document.querySelectorAll("#chips [data-name]")].map((one) =>
            [one.dataset.name, Number(one.querySelector("small").dataset.value)])"""))
        wanted = {}
        for slot in (slot for one in self.document["superslabs"] for slot in one["slots"]):
            name = (slot["state"].upper() if slot["state"] != "active" else None) or (
                "large" if slot["tier"] == "large" else str(slot["block_bytes"]))
            wanted[name] = wanted.get(name, 0) + 1
        self.assertEqual(counts, wanted)
        look = "canvas.toDataURL()"
        before = self.browser.run(look)
        press = """document.querySelector("#chips [data-name='96']").click()"""
        self.browser.run(press)
        self.assertEqual(self.browser.run("""[...document.querySelectorAll("#chips [aria-pressed=true]")]
            .map((one) => one.dataset.name)"""), ["96"])
        self.assertTrue(self.browser.run(look) != before, "nothing has become fainter")
        self.browser.run("document.querySelector('#all').click()")
        self.assertTrue(self.browser.run(look) == before, "not all is as it was")

    def test_the_browser_reports_no_problem(self):
        for name, document in {"small": self.document, "none": snapshot(0), "awkward": snapshot(3, AWKWARD)}.items():
            for dark in (False, True):
                self.browser.open(self.make(name, document), dark=dark)
                self.assertEqual(self.browser.complaints(), [], name)
                self.assertEqual(len(self.browser.addresses()), 1, "the page asks for more than itself")
                self.assertEqual(self.browser.run("document.querySelectorAll('main b b, i, img, header b').length"), 0)
                self.assertIn(document["process"]["command"], self.browser.run("document.body.textContent"))
                self.assertTrue(self.browser.run("by('live').hidden"))

    def test_light_and_dark_and_phone(self):
        """For the eye; and what can be told without one."""
        papers = []
        for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 360, False)):
            self.browser.open(self.page, width=width, dark=dark)
            self.hover(7, 9)
            self.browser.screenshot(self.place / f"map-{name}.png", whole=False)
            papers.append(self.browser.run("getComputedStyle(document.documentElement).backgroundColor"))
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
        self.assertNotEqual(papers[0], papers[1])
        # A page that is open follows the change.
        self.browser.open(self.page)
        self.browser.run("window.before = canvas.toDataURL()")
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.browser.settle(UNTIL % "canvas.toDataURL() !== before")

    def test_ten_gigabytes(self):
        page = self.make("large", snapshot(5000))
        self.assertLess(page.stat().st_size, 5_000_000)
        for width in (1280, 360):
            self.browser.open(page, width=width)
            self.assertEqual(self.browser.complaints(), [])
            self.assertEqual(self.browser.run("data.superslabs.length"), 5000)
            self.assertLess(self.browser.run("place.height"), 8000)
            self.assertIn("SuperSlab 4999", self.hover(4999, 31))
        text = self.map(self.place / "large.json").stdout
        self.assertLess(len(text.splitlines()), 80)
        self.assertIn("each row", text)
        self.assertGreater(len(self.map(self.place / "large.json", "--all").stdout.splitlines()), 5000)

    def test_headings_sort_their_table(self):
        self.browser.open(self.page)
        free = self.browser.run("""(() => {
            document.querySelector("#classes th:nth-child(5) button").click();
            document.querySelector("#classes th:nth-child(5) button").click();
            showTables(); // as the live page does every second
            return [...by("classes").tBodies[0].rows].map((row) => Number(row.cells[4].dataset.value));
        })()""")
        self.assertEqual(free, sorted(free, reverse=True))
        self.assertEqual(len(free), len(self.document["classes"]))

    def test_json_goes_in_and_out(self):
        source = self.place / "small.json"
        printed = json.loads(self.map(source, "--json").stdout)
        self.assertEqual(printed, self.document)

    def test_refuses_in_one_line(self):
        (self.place / "nothing.json").write_text("{}")
        for arguments, wanted in {("absent.json",): "no process is named absent.json, and there is no such file",
                                  (self.place / "nothing.json",): "is not what `hakmem map --json` writes",
                                  (self.place / "small.json", "--html", "/nowhere/x.html"): "cannot write",
                                  }.items():
            done = self.map(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(wanted, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


PROGRAM = """
import sys
keep = [bytes(90) for _ in range(50000)] + [bytes(20000) for _ in range(300)]
print("ready", flush=True)
for line in sys.stdin:
    keep = keep + [bytes(700) for _ in range(int(line))] if int(line) else []
    print("done", flush=True)
"""
UNTIL = """new Promise((done, fail) => {
    const begun = Date.now(), look = setInterval(() => {
        let is_so = false, why = "not so";
        try { is_so = %s; } catch (error) { why = error.message; }
        if (is_so) { clearInterval(look); done(true); }
        else if (Date.now() - begun > 600000) { clearInterval(look); fail(new Error("after ten minutes: " + why)); }
    }, 20);
})"""


class Live(BrowserTest):
    """The page of `view`, on a real program."""

    def setUp(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        place = {**os.environ, "LD_PRELOAD": str(pathlib.Path(Page.library).resolve()), "PYTHONMALLOC": "malloc"}
        place.pop("HAKMEM_LIBRARY", None)
        self.program = subprocess.Popen(["/usr/bin/python3", "-c", PROGRAM], env=place, **pipes)
        self.addCleanup(self.stop, self.program)
        self.assertEqual(self.program.stdout.readline(), "ready\n")
        self.server = subprocess.Popen([Page.hakmem, "view", str(self.program.pid)], **pipes)
        self.addCleanup(self.stop, self.server)
        self.address = self.server.stdout.readline().strip()
        self.port, self.secret = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([0-9a-f]{32})/", self.address).groups()

    def stop(self, process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def tell(self, number):
        self.program.stdin.write(f"{number}\n")
        self.program.stdin.flush()
        self.assertEqual(self.program.stdout.readline(), "done\n")

    def wait(self, condition):
        self.browser.settle(UNTIL % condition)

    def ask(self, method="GET", path=None, host=None, to="127.0.0.1", **headers):
        """Status and text of an answer, spoken to without a browser's manners."""
        path = f"/{self.secret}/" if path is None else path
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or '127.0.0.1:' + self.port}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        with socket.create_connection((to, int(self.port)), timeout=1200) as connection:
            connection.sendall("\r\n".join(lines + ["", ""]).encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(answer.split()[1]), answer.split(b"\r\n\r\n", 1)[1].decode()

    # Blocks of a class; bytes(700) takes 733.
    BLOCKS = "data.classes.find((one) => one.block_bytes === %d).live_blocks"

    def test_the_page_follows_the_program(self):
        self.browser.open(self.address)
        self.wait("past.length > 1")
        printed = json.loads(Page.map(self.program.pid, "--json").stdout)
        for one in printed["classes"]:
            if one["live_blocks"] > 100:
                self.assertEqual(self.browser.run(self.BLOCKS % one["block_bytes"]), one["live_blocks"], one)
        self.assertEqual(self.browser.run("data.superslabs.length"), len(printed["superslabs"]))
        before = self.browser.run(self.BLOCKS % 768)
        self.tell(8000)
        self.wait(self.BLOCKS % 768 + f" >= {before} + 8000")
        shown = self.browser.run("""[...by("classes").tBodies[0].rows].find((row) => row.cells[0].textContent === "768")
            .cells[2].textContent""")
        self.assertGreaterEqual(int(shown.replace(",", "")), before + 8000)
        self.assertIn("768", self.browser.run("by('chips').innerText"))
        # Something was refilled meanwhile, and the terms are drawn.
        fast = ("[...by('rates').querySelectorAll('.spark')]"
                ".filter((one) => / [0-9.]*[1-9]/.test(one.getAttribute('d')))")
        self.assertGreater(self.browser.run(f"{fast}.length"), 0)
        self.assertEqual(self.browser.run("by('wave').children.length"), 8)
        self.assertEqual(self.browser.complaints(), [])
        for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 360, False)):
            self.browser.open(self.address, width=width, dark=dark)
            self.wait("past.length > 1")
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
            self.browser.screenshot(self.place / f"view-{name}.png", whole=False)

    def test_pause_keeps_the_picture(self):
        self.browser.open(self.address)
        self.browser.run("by('pause').click()")
        before = self.browser.run(self.BLOCKS % 768)
        self.tell(5000)
        self.browser.run("performance.clearResourceTimings()")
        self.wait("performance.getEntriesByType('resource').length > 1")
        self.assertEqual(self.browser.run(self.BLOCKS % 768), before)
        self.assertEqual(self.browser.run("by('status').textContent"), "Paused")
        self.browser.run("by('pause').click()")
        self.wait(self.BLOCKS % 768 + f" >= {before} + 5000")

    def test_purge_gives_back(self):
        self.browser.open(self.address)
        self.browser.run("by('purge').click()")
        self.wait("by('said').textContent")
        self.assertRegex(self.browser.run("by('said').textContent"), "given back|will give back")
        status, text = self.ask("POST", f"/{self.secret}/purge", X_Hakmem_Token=self.secret)
        self.assertEqual(status, 200, text)

    def test_the_end_of_the_program_is_reported(self):
        for _ in range(50):
            self.browser.open(self.address)
            self.wait("past.length > 1")
            self.program.stdin.close()
            self.program.wait()
            self.wait("/has ended/.test(by('status').textContent)")
            if "last picture" in self.browser.run("by('status').textContent"):
                break
            self.setUp()  # on a busy machine the page may not ask within the five seconds that the server stays
        self.assertTrue(self.browser.run("by('purge').disabled && data.superslabs.length > 0"))
        self.assertIn(f"Process {self.program.pid} has ended", self.server.stdout.read())
        self.assertEqual(self.server.wait(), 0)

    def test_ctrl_c_ends_it(self):
        self.browser.open(self.address)
        self.server.send_signal(signal.SIGINT)
        self.assertEqual(self.server.wait(1200), 0)
        self.wait("/hakmem view has ended/.test(by('status').textContent)")

    def test_strangers_get_nothing(self):
        """Pages of other sites, other users of the machine, and the network."""
        status, text = self.ask()
        self.assertEqual(status, 200)
        self.assertIn(self.secret, text)
        purge = f"/{self.secret}/purge"
        for wanted, request in [
            (403, {"host": "evil.example"}), (403, {"host": f"evil.example:{self.port}"}),
            (403, {"Origin": "http://evil.example"}), (403, {"Sec_Fetch_Site": "cross-site"}),
            (401, {"path": "/"}), (401, {"path": "/snapshot.json"}), (401, {"path": "/" + "0" * 32 + "/"}),
            (403, {"method": "POST", "path": purge}), (404, {"path": purge}),
            (403, {"method": "POST", "path": purge, "X_Hakmem_Token": "0" * 32}),
            (403, {"method": "POST", "path": purge, "X_Hakmem_Token": self.secret, "Origin": "http://evil.example"}),
        ]:
            status, text = self.ask(**request)
            self.assertEqual(status, wanted, request)
            self.assertNotIn("headline", text)
        with self.assertRaises(ConnectionRefusedError):
            self.ask(to="127.0.0.2")
        # A page of another origin, in a browser.
        self.browser.open("about:blank")
        self.assertTrue(self.browser.settle(f"fetch('{self.address}snapshot.json').then(() => false, () => true)"))

    def test_a_process_that_is_not_ours(self):
        done = subprocess.run([Page.hakmem, "view", str(self.server.pid)], capture_output=True, text=True, timeout=1200)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


class Run(BrowserTest):
    """The page of `run --report`: the pages of `map` and `flame`, in the look of all pages."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = pathlib.Path(cls.profile.name) / "run.html"
        program = ["/usr/bin/python3", "-c", "keep = [bytes(3000) for i in range(5000)]"]
        subprocess.run([Page.hakmem, "run", "--hakmem", Page.library, "--profile", "--report", cls.page, "--",
                        *program],
                       check=True, capture_output=True, timeout=1200)

    def test_light_and_dark_narrow_and_wide(self):
        papers = set()
        for width, dark in ((1400, False), (1400, True), (400, False), (400, True)):
            self.browser.open(self.page, width=width, dark=dark)
            self.browser.screenshot(self.place / f"run-{width}-{'dark' if dark else 'light'}.png", whole=False)
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
            own, *framed = self.browser.run("""[document, ...[...document.querySelectorAll("iframe")].map(
                (one) => one.contentDocument)].map((one) => getComputedStyle(one.documentElement).backgroundColor)""")
            self.assertEqual(framed, [own, own], "a page in the page looks unlike it")
            papers.add(own)
        self.assertEqual(len(papers), 2)
        self.assertEqual(self.browser.complaints(), [])

    def test_the_keyboard_reaches_the_map_and_the_flames(self):
        self.browser.open(self.page)
        focusable = self.browser.run("""[...document.querySelectorAll("iframe")].map(
            (one) => one.contentDocument.querySelectorAll('canvas[tabindex="0"], .flame > [tabindex="0"]').length)""")
        self.assertTrue(all(focusable), focusable)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hakmem")
    parser.add_argument("library")
    parser.add_argument("--keep")
    options, rest = parser.parse_known_args()
    BrowserTest.hakmem, Page.library, BrowserTest.keep = options.hakmem, options.library, options.keep
    unittest.main(argv=sys.argv[:1] + rest)
