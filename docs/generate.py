#!/usr/bin/env python3
"""Writes options.md and counters.md from the tables in the sources: the one place where each is described."""
# SPDX-License-Identifier: MIT
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNITS = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def table_lines(file, macro):
    """The entries X(…) of the table, each as the list of its arguments."""
    text = (ROOT / "src" / file).read_text()
    body = re.search(r"#define %s\(X\) \\\n((?:X\(.*\n)+)" % macro, text).group(1)
    for line in body.splitlines():
        inside = re.match(r"X\((.*)\)\s*\\?$", line).group(1)
        yield [part.strip() for part in re.findall(r'\s*"[^"]*"|[^,"]+', inside) if part.strip()]


def number(text, kind):
    """A value of the table as a person writes it."""
    product = re.fullmatch(r"(\d+) \* (\w+)", text)
    if product:
        return f"{product.group(1)} {product.group(2)[0]}iB"
    return "" if kind == "TEXT" else text


def values(kind, least, most, choices):
    if kind == "CHOICE":
        return choices.replace("|", ", ")
    if kind == "TEXT":
        return "text"
    if most == "OPTION_UNLIMITED":
        return f"{least} or more"
    return f"{number(least, kind)} to {number(most, kind)}"


def write_options():
    lines = ["# Options", "",
             "Made from the table in `src/options.h` by `./hak doc`. Each is an environment variable `HAKMEM_NAME`, a",
             "`NAME=value` in the string `hak_options` of the program, or an argument of `hak_option_set`. Sizes take",
             "k, m, g and t, and with these a fraction: 512m, 1.5g. Switches, which are 0 or 1, take off, on, no, yes,",
             "false and true, too; the case of names and words does not matter. Live options may be changed while the",
             "program runs. A name or value that cannot be read is answered with one line that says what is right, and",
             "changes nothing. glibc's `MALLOC_TRIM_THRESHOLD_` and",
             "`mallopt(M_TRIM_THRESHOLD)` set RETAIN_BYTES; its other parameters are accepted and mean nothing here.", "",
             "| option | values | default | live | what it does |", "|---|---|---|---|---|"]
    for name, kind, when, initial, least, most, choices, text in table_lines("options.h", "OPTIONS"):
        choices = choices.strip('"')
        default = number(initial, kind)
        if kind == "CHOICE":
            default = initial.rsplit("_", 1)[1].lower() if not initial.endswith("OFF") else "0"
        text = text.strip('"')
        lines.append(f"| {name} | {values(kind, least, most, choices)} | {default} | "
                     f"{'yes' if when == 'LIVE' else ''} | {text} |")
    (ROOT / "docs" / "options.md").write_text("\n".join(lines) + "\n")


def write_counters():
    lines = ["# Counters", "",
             "Made from the table in `src/counters.h` by `./hak doc`. They count events on slow paths only, are kept for",
             "each thread's heap and summed when asked for: by `HAKMEM_STATS`, `hak_stats_print`, `hak_stats_json`.", "",
             "| counter | what it counts |", "|---|---|"]
    for name, text in table_lines("counters.h", "COUNTERS"):
        lines.append(f"| {name} | {text.strip(chr(34))} |")
    (ROOT / "docs" / "counters.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write_options()
    write_counters()
