#!/usr/bin/env python3
"""Writes the library as one file to compile: amalgamate.py DIRECTORY makes hakmem.c there, and copies the headers and
what Meson, Bazel and Zig build it with (packaging/single).

 1. hakmem.c is every C file of CMakeLists.txt in that order; each header of ours stands where it is first included.
 System
    headers and hakmem.h stay includes.
 2. Names that several C files have for themselves (static ones, tags, enumerators) get the file's name in front, by a
 macro
    around the file. Macros that a file defines end with it.
 3. libc.c and libc_stats.c, which define malloc and its kin, are left out with -DHAKMEM_NO_OVERRIDE. The C++ operators
 are left out: those of the
    C++ library call malloc."""
# SPDX-License-Identifier: MIT
import collections
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC, INCLUDE = ROOT / "src", ROOT / "include"
STATIC = re.compile( # HAK_INLINE is static, too
    r"^(?:(?:HAK_\w+ )*static (?:inline )?|HAK_INLINE )(?:const |struct |enum |_Atomic |_Thread_local )*"
    r"\w+[ *]+(?!_Alignas\b)(\w+)(?:\(|\[|;| =)", re.MULTILINE
)
OPENING = """\
/* HAKMEM {version}, a memory allocator for Linux, in one file; made by ./hak amalgamate. Replaces malloc in the program
 * it is linked into. With -DHAKMEM_NO_OVERRIDE it has hak_* alone.
 *
 *     cc -O3 -std=gnu17 -fvisibility=hidden -ftls-model=initial-exec -c hakmem.c
 *
{licence} */
/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define HAK_IN_PROGRAM 1
"""

TAG = re.compile(r"^(?:struct|union|enum) (\w+) \{", re.MULTILINE)
ENUM = re.compile(r"^enum (?:\w+ )?\{(.*?)\}", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


OVERRIDE = ("libc.c", "libc_stats.c")


def sources():
    text = (ROOT / "CMakeLists.txt").read_text()
    named = re.search(r"set\(HAKMEM_SOURCES(.*?)\)", text, re.DOTALL)[1].split()
    return [ROOT / name for name in named if name.endswith(".c")] + [SRC / "entry" / name for name in OVERRIDE]


def own_names(text):
    """The names that a file has for itself; start.h's macro defines one of them."""
    enumerators = [name for body in ENUM.findall(COMMENT.sub("", text)) for name in re.findall(r"(?:^|,)\s*(\w+)",
                                                                                               body)]
    return {*STATIC.findall(text), *TAG.findall(text), *enumerators,
            *(["start_library_wanted"] if "START_LIBRARY_WANTED;" in text else [])}


class Amalgamation:
    def __init__(self, files):
        self.files, self.included, self.lines = files, set(), []
        users = collections.defaultdict(set)
        for file in files:
            for name in own_names(file.read_text()):
                users[name].add(file)
        self.shared = {name for name, where in users.items() if len(where) > 1}

    def header(self, mark, name, includer):
        """The file of ours that `#include "name"` or <name> means, or None."""
        folders = [INCLUDE / "third_party"] if mark == "<" else [includer.parent, SRC, INCLUDE]
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        return path and path != INCLUDE / "hakmem.h" and path.resolve()

    def add(self, file):
        for line in file.read_text().splitlines():
            include = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            header = include and self.header(include[1], include[2], file)
            if not header:
                self.lines += [line] if line != "#pragma once" else []
            elif header not in self.included:
                self.included.add(header)
                self.add(header)

    def add_source(self, file):
        text = file.read_text()
        own = sorted(self.shared & own_names(text))
        self.lines += ["", f"/* ==== {file.relative_to(SRC)} ==== */"]
        self.lines += [f"#define {name} {file.stem}_c_{name}" for name in own]
        self.add(file)
        macros = re.findall(r"^#define (\w+)", text, re.MULTILINE)
        self.lines += [f"#undef {name}" for name in [*own, *dict.fromkeys(macros)]]

    def text(self):
        for file in self.files:
            override = file.name in OVERRIDE
            self.lines += ["#ifndef HAKMEM_NO_OVERRIDE"] if override else []
            self.add_source(file)
            self.lines += ["#endif"] if override else []
        return "\n".join(self.lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    version = re.search(r"project\(hakmem VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    licence = "".join(f" * {line}".rstrip() + "\n" for line in (ROOT / "LICENSE").read_text().splitlines()[2:])
    opening = OPENING.format(version=version, licence=licence.rstrip("\n"))
    (out / "hakmem.c").write_text(opening + Amalgamation(sources()).text())
    for header in "hakmem.h", "hakmem.hpp":
        shutil.copy(INCLUDE / header, out)
    for file in (ROOT / "packaging" / "single").iterdir():
        if file.suffix != ".wrap":
            (out / file.name).write_text(file.read_text().replace("@VERSION@", version))
    print(f"written: {out}/hakmem.c, hakmem.h, hakmem.hpp, and builds for Meson, Bazel and Zig")


main()
