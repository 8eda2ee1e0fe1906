#!/usr/bin/env python3
"""Writes options.md, counters.md and tunables.md from the tables in the sources, the one place where each is described;
the terms of the sum of RSS, into README.md and for the command; and into migrating.md the table of `COMMAND migrate
--table`.

    generate.py COMMAND"""
# SPDX-License-Identifier: MIT
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNITS = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def table_lines(file, macro):
    """The entries X(…) of the table, each as the list of its arguments. Strings in a row are one."""
    text = (ROOT / "src" / file).read_text()
    body = re.search(r"#define %s\(X\) \\\n((?:.*\\\n)*.*\n)" % macro, text).group(1).replace("\\\n", "\n")
    entry = re.compile(r"\s*X\(((?:\"[^\"]*\"|[^\"()]|\([^()]*\))*)\)\s*")
    at = 0
    while at < len(body):
        found = entry.match(body, at)
        if not found:
            sys.exit(f"{file}: in {macro} is no entry: {body[at:].splitlines()[0]}")
        at = found.end()
        inside = re.sub(r"\"\s+\"", "", found.group(1))
        yield [part.strip() for part in re.findall(r"\s*\"[^\"]*\"|[^,\"]+", inside) if part.strip()]


def number(text, kind):
    """A value of the table as a person writes it."""
    product = re.fullmatch(r"(\d+) \* (\w+)", text)
    if product:
        return f"{product.group(1)} {product.group(2)[0]}iB"
    return "" if kind == "TEXT" else text


def values(kind, lowest, highest, choices):
    if kind == "CHOICE":
        return choices.replace("|", ", ")
    if kind == "TEXT":
        return "text"
    if highest == "OPTION_UNLIMITED":
        return f"{lowest} or more"
    return f"{number(lowest, kind)} to {number(highest, kind)}"


def write_options():
    lines = ["# Options", "",
             "`./hak doc` makes this page from the table in `src/base/options.h`. An option is an environment variable",
             "`HAKMEM_NAME`, a `NAME=value` in the string `hak_options` of the program, or an argument of "
             "`hak_option_set`.",
             "", "- Sizes take k, m, g and t, and a fraction with these: 512m, 1.5g.",
             "- Switches (0 or 1) also take off, on, no, yes, false and true. The case of names and words does not "
             "matter.",
             "- Live options can be changed while the program runs.",
             "- A wrong name or value changes nothing and prints one line that says what is right.",
             "- glibc's `MALLOC_TRIM_THRESHOLD_` and `mallopt(M_TRIM_THRESHOLD)` set RETAIN_BYTES; glibc's other "
             "parameters",
             "  are accepted and ignored.",
             "- Where a value is set in several ways, [one of them counts](#which-setting-counts).", "",
             "| option | values | default | live | what it does |", "|---|---|---|---|---|"]
    for name, kind, when, initial, lowest, highest, choices, text in table_lines("base/options.h", "OPTIONS"):
        choices = choices.strip('"')
        default = number(initial, kind)
        if kind == "CHOICE":
            default = initial.rsplit("_", 1)[1].lower() if not initial.endswith("OFF") else "0"
        text = text.strip('"')
        lines.append(f"| {name} | {values(kind, lowest, highest, choices)} | {default} | "
                     f"{'yes' if when == 'LIVE' else ''} | {text} |")
    lines += ["", "## Which setting counts", "",
              "A value that is set in several ways has that of the first row that names it:", "",
              "| who | sets | when |", "|---|---|---|",
              "| `hak_option_set`, `mallopt`, `hakmem set PID` | live options, [tunables](tunables.md) | while the "
              "program "
              "runs; the last call counts |",
              "| the environment: `HAKMEM_NAME`, and `HAKMEM_TUNE` for tunables | all options, tunables | at the start "
              "|",
              "| a [policy file](sites.md), by `set` lines | live options that are one number or a choice, tunables | "
              "at the "
              "start |",
              "| the string `hak_options` of the program | all options; its `TUNE` counts more than a policy file | at "
              "the "
              "start |",
              "| glibc's `MALLOC_TRIM_THRESHOLD_` | RETAIN_BYTES | at the start |",
              "| the [preset](ace.md) that `HAKMEM_PRESET` names, or that ACE chooses | PURGE, RETAIN_BYTES, "
              "RETAIN_PERCENT, DECAY_MS | at the start; with `HAKMEM_ACE=on` as often as ACE changes it |",
              "| the table above | everything | |", "",
              "A preset leaves alone what differs from the default. So a value that was set to just the default counts "
              "as "
              "not set there."]
    (ROOT / "docs" / "options.md").write_text("\n".join(lines) + "\n")


def write_counters():
    lines = ["# Counters", "",
             "`./hak doc` makes this page from the table in `src/base/counters.h`. Counters count events on slow paths "
             "only. Each",
             "thread's heap has its own, and `HAKMEM_STATS`, `hak_stats_print` and `hak_stats_json` print their sums.",
             "",
             "| counter | what it counts |", "|---|---|"]
    for name, text in table_lines("base/counters.h", "COUNTERS"):
        lines.append(f"| {name} | {text.strip(chr(34))} |")
    (ROOT / "docs" / "counters.md").write_text("\n".join(lines) + "\n")


def write_tunables():
    lines = ["# Tunables", "",
             "`./hak doc` makes this page from the tables in `src/tunables.h`: the tuned constants that can be changed "
             "while a",
             "program runs. `HAKMEM_TUNE=NAME=VALUE,NAME=VALUE` or a [policy file](sites.md) sets them at the start; "
             "`hakmem set PID NAME=VALUE` and",
             "`hak_option_set` set them later. NAME:BYTES is the value for the class that serves requests of BYTES, "
             "such as",
             "`carve_bytes:64=8k`; of the tunables with a value for each class, NAME alone sets all of them. The "
             "defaults are those that",
             "won the measurements named here, so a program rarely gains by another. Options that are tuned constants, "
             "too:",
             "RETAIN_BYTES, RETAIN_PERCENT, DECAY_MS, DRAIN_INTERVAL, RING_BYTES, RING_BYTES_TOTAL, MID_RING_BLOCKS, "
             "LARGE_RING_BLOCKS,",
             "HUGE_PAGES_FROM ([options.md](options.md)).", "",
             "| tunable | values | default | unit | what it does | measured |", "|---|---|---|---|---|---|"]
    kinds = {"TINY": "blocks up to 1 KiB", "RING": "blocks above 1 KiB"}

    def row(name, initial, lowest, highest, *texts):
        lowest, highest = (text.replace("INT32_MAX", str(2**31 - 1)) for text in (lowest, highest))
        lines.append(" | ".join([f"| {name}", f"{lowest} to {highest}", initial,
                                 *(t.strip('"') for t in texts)]) + " |")

    for entry in table_lines("tunables.h", "TUNABLES"):
        row(*entry)
    for name, kind, *entry in table_lines("tunables.h", "CLASS_TUNABLES"):
        row(f"{name}:BYTES ({kinds[kind]})", *entry)
    (ROOT / "docs" / "tunables.md").write_text("\n".join(lines) + "\n")


def write_terms():
    readme, rows = ROOT / "README.md", []
    text = readme.read_text()
    for name, label, meaning in table_lines("observe/stats.h", "TERMS"):
        rows.append(f"    {name}, {label}, {meaning};")
        text, found = re.subn(rf"^(\| `{name}` \|)[^|]*\|", rf"\1 {meaning[1:-1]} |", text, flags=re.MULTILINE)
        if found != 1:
            raise SystemExit(f"README.md: {found} rows of the term `{name}`")
    readme.write_text(text)
    lines = ["// `./hak doc` makes this file from the table in src/observe/stats.h.", "// SPDX-License-Identifier: MIT",
             "terms! {", *rows, "}"]
    (ROOT / "cli" / "src" / "heap" / "terms.rs").write_text("\n".join(lines) + "\n")


def write_settings(command):
    page = ROOT / "docs" / "migrating.md"
    table = subprocess.check_output([command, "migrate", "--table"], text=True)
    page.write_text(re.sub(r"^\| setting \|.*?\n(?=\n)", lambda _: table, page.read_text(),
                           flags=re.MULTILINE | re.DOTALL))


if __name__ == "__main__":
    write_options()
    write_counters()
    write_tunables()
    write_terms()
    write_settings(sys.argv[1])
