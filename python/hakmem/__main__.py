# SPDX-License-Identifier: MIT
"""The `hakmem` command, with Python scripts as programs: see `USAGE`."""
import os
import pathlib
import sys

from hakmem import FOLDER, LIBRARY

USAGE = """usage: python -m hakmem run|explain|profile [OPTIONS] SCRIPT.py|-m MODULE|-c CODE [ARGUMENTS…]
       python -m hakmem library
       python -m hakmem COMMAND …

  run       runs Python under HAKMEM, and sums up its memory when it ends
  explain   says where its memory is
  profile   says which code allocates and holds it
  library   prints the path of the library, for LD_PRELOAD in a container or a unit file
  COMMAND   any command of hakmem: top PID, map PID, doctor, …; hakmem help lists them

Python serves objects of up to 512 bytes from its own allocator, of which HAKMEM sees only arenas. These commands turn
that off (PYTHONMALLOC=malloc), so that HAKMEM serves all objects; set PYTHONMALLOC yourself to choose otherwise.
"""
TRANSLATED = {"run": ["run"], "explain": ["explain"], "profile": ["run", "--profile"]}


# The command's options whose value is a word of its own.
VALUED = ("--hakmem", "--report")


def starts_python(argument):
    return argument in ("-m", "-c") or (argument.endswith(".py") and pathlib.Path(argument).is_file())


def translate(arguments):
    """The command's arguments, where Python's are among these: None if what follows the command's own options is no
    script."""
    if not arguments or arguments[0] not in TRANSLATED:
        return None
    at = 1
    while at < len(arguments) and arguments[at].startswith("--") and arguments[at] != "--":
        at += 2 if arguments[at] in VALUED else 1
    if at >= len(arguments) or not starts_python(arguments[at]):
        return None
    return [*TRANSLATED[arguments[0]], *arguments[1:at], "--", sys.executable, *arguments[at:]]


def command(arguments=None):
    """Becomes the hakmem command. Its process is this one, so signals and the exit status are the command's own."""
    arguments = sys.argv[1:] if arguments is None else arguments
    program = FOLDER / "hakmem"
    os.environ.setdefault("HAKMEM_LIBRARY", str(LIBRARY))
    os.execv(program, [str(program), *arguments])


def main():
    arguments = sys.argv[1:]
    if arguments in ([], ["-h"], ["--help"]):
        print(USAGE, end="")
    elif arguments == ["library"]:
        print(LIBRARY)
    else:
        translated = translate(arguments)
        if translated is not None:
            os.environ.setdefault("PYTHONMALLOC", "malloc")
        command(translated if translated is not None else arguments)


if __name__ == "__main__":
    main()
