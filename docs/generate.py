#!/usr/bin/env python3
"""Writes the tables of options.md from those in the sources, the one place where each option, tunable and counter is
described; the terms of the sum of RSS, into README.md and for the command; and into migrating.md the table of
`COMMAND migrate --table`.

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


def write_table(page, rows):
    """Puts the rows in the place of the table that begins with the first of them."""
    page = ROOT / "docs" / page
    text, found = re.subn(rf"^{re.escape(rows[0])}\n.*?\n(?=\n|\Z)", lambda _: "".join(f"{row}\n" for row in rows),
                          page.read_text(), flags=re.MULTILINE | re.DOTALL)
    if found != 1:
        sys.exit(f"{page.name}: {found} tables begin with {rows[0]}")
    page.write_text(text)


def write_options():
    rows = ["| option | values | default | live | what it does |", "|---|---|---|---|---|"]
    for name, kind, when, initial, lowest, highest, choices, text in table_lines("base/options.h", "OPTIONS"):
        choices = choices.strip('"')
        default = number(initial, kind)
        if kind == "CHOICE":
            default = initial.rsplit("_", 1)[1].lower() if not initial.endswith("OFF") else "0"
        text = text.strip('"')
        rows.append(f"| {name} | {values(kind, lowest, highest, choices)} | {default} | "
                    f"{'yes' if when == 'LIVE' else ''} | {text} |")
    write_table("options.md", rows)


def write_counters():
    counters = table_lines("base/counters.h", "COUNTERS")
    write_table("options.md", ["| counter | what it counts |", "|---|---|",
                               *(f"| {name} | {text.strip(chr(34))} |" for name, text in counters)])


def write_tunables():
    rows = ["| tunable | values | default | unit | what it does | measured |", "|---|---|---|---|---|---|"]
    kinds = {"TINY": "blocks up to 1 KiB", "RING": "blocks above 1 KiB"}

    def row(name, initial, lowest, highest, *texts):
        lowest, highest = (text.replace("INT32_MAX", str(2**31 - 1)) for text in (lowest, highest))
        rows.append(" | ".join([f"| {name}", f"{lowest} to {highest}", initial,
                                *(t.strip('"') for t in texts)]) + " |")

    for entry in table_lines("process/tunables.h", "TUNABLES"):
        row(*entry)
    for name, kind, *entry in table_lines("process/tunables.h", "CLASS_TUNABLES"):
        row(f"{name}:BYTES ({kinds[kind]})", *entry)
    write_table("options.md", rows)


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
    write_table("migrating.md", subprocess.check_output([command, "migrate", "--table"], text=True).splitlines())


if __name__ == "__main__":
    write_options()
    write_counters()
    write_tunables()
    write_terms()
    write_settings(sys.argv[1])
