"""The commands of ./hak, which has found this Python."""
# SPDX-License-Identifier: MIT
import os
import sys

if sys.version_info < (3, 9):
    sys.exit("hak: python 3.9 or newer is needed; python3 is older")

import base
import bench
import build
import fuzz
import lint
import long
import packages
import stages
import use


def needs():
    """The packages that tests and fuzzers need and that are not there."""
    print("".join(f"{name}\n" for name in packages.missing("test", "coverage")), end="")


def test(*words):
    return long.coverage() if words == ("--coverage",) else stages.run_tests(*words)


COMMANDS = {"build": build.build, "library": build.build_library, "run": use.run_demo, "install": use.install,
            "uninstall": use.uninstall, "amalgamate": use.amalgamate, "release": use.release, "compare": use.compare,
            "hakmem": use.hakmem, "bench": bench.bench, "fuzz": fuzz.fuzz, "soak": long.soak, "steady": long.steady,
            "prove": long.prove, "doc": use.doc, "lint": lint.lint, "format": lint.format_all, "needs": needs,
            "test": test, "--version": lambda: print("hakmem", base.version())}


def main(command, *words):
    os.environ.pop("PYTHONCOERCECLOCALE", None)  # the front's, for this process alone
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="surrogateescape")
    command = {"-V": "--version"}.get(command, command)
    if command not in COMMANDS:
        base.die(f"no such command: {command}; see ./hak help, or ./hak hakmem --help for those of hakmem")
    sys.exit(base.ended(COMMANDS[command], *words))


main(*sys.argv[1:])
