#!/usr/bin/env python3
"""wrap.py PAGE…: wraps the prose of pages at 120 columns, from the first wider line of a paragraph on.

Tables, code and headings stay as they are. Words in `code` stay on one line, and no line begins like an item of a
list."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import sys

COLUMNS = 120
WORD = re.compile(r"(?:`+[^`]*`+|[^\s`])+")
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
BEGINS_ITEM = re.compile(r"(?:[-*+>#]+|\d+[.)])$|[#>|]")


def filled(words, first, rest):
    """The words as lines, of which the first begins with `first` and the others with `rest`."""
    line, indent = [], first
    for word in words:
        if line and len(indent + " ".join([*line, word])) > COLUMNS:
            last = [line.pop()] if BEGINS_ITEM.match(word) and len(line) > 1 else []
            yield indent + " ".join(line)
            line, indent = last, rest
        line.append(word)
    yield indent + " ".join(line)


def wrapped_paragraph(lines):
    """The lines of a paragraph or of an item."""
    wide = next((at for at, line in enumerate(lines) if len(line) > COLUMNS), None)
    if wide is None:
        return lines
    item = ITEM.match(lines[0])
    first = re.match(r"\s*", lines[0]).group() if item is None else item.group()
    rest = re.match(r"\s*", lines[1]).group() if len(lines) > 1 else " " * len(first)
    text = " ".join(line.strip() for line in lines[wide:])
    if wide == 0:
        text = text[len(first.strip()):]
    return lines[:wide] + list(filled(WORD.findall(text), rest if wide else first, rest))


def wrapped(text):
    """The text of a page."""
    done, paragraph, in_code = [], [], False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        is_prose = not in_code and line.strip() != "" and not re.match(r"\s*(```|[|#]|<!--|!\[)", line)
        if paragraph and (not is_prose or ITEM.match(line)):
            done += wrapped_paragraph(paragraph)
            paragraph = []
        (paragraph if is_prose else done).append(line)
        in_code ^= is_fence
    return "\n".join(done + wrapped_paragraph(paragraph))


def main():
    for page in map(pathlib.Path, sys.argv[1:]):
        before = page.read_text()
        after = wrapped(before)
        if after != before:
            page.write_text(after)


if __name__ == "__main__":
    main()
