"""What users of the library do: run, compare, hakmem, install, amalgamate, release, doc."""
# SPDX-License-Identifier: MIT
import os
import pathlib
import shutil
import time

from base import BENCH, BUILD, LIBRARY, ROOT, TOOL, Failed, die, python, replace_by, run, version
from build import build_bench, build_cli, build_library, measure_what
from packages import need

SHOWN = """
The curves are also in build/service.svg. The same of your own program, and where its memory is:
  ./hak compare --area -- PROGRAM ARGS…
  ./hak hakmem explain -- PROGRAM ARGS…"""


def run_demo(*options):
    """The service of bench/workloads/day.c, measured as `./hak bench area` measures, and drawn in build/service.svg."""
    build_library()
    build_cli()
    build_bench("bench_day")
    measure_what(LIBRARY)
    print("A service's day in a second: requests, caches, an import and a rest. "
          "Runs by turns for less than 30 seconds.\n")
    run(TOOL, "compare", "--suite", ROOT / "bench/suites/service.toml", "--var", f"bench={BENCH}/bench", "--area",
        "--only", "system,hakmem", "--max-time", "28s", "--svg", BUILD / "service.svg", *options)
    print(SHOWN)


def compare(*words):
    if not words:
        die("usage: ./hak compare [OPTIONS] -- PROGRAM ARGS…; --help says more")
    build_library()
    build_cli()
    measure_what(LIBRARY)
    replace_by(TOOL, "compare", *words)


def hakmem(*words):
    """The command on processes that run, and programs under the library."""
    build_library()
    build_cli()
    os.environ.setdefault("HAKMEM_LIBRARY", str(LIBRARY))
    replace_by(TOOL, *words)


def prefix_of(command, words):
    """The absolute path of the prefix that the words name."""
    if not words:
        return "/usr/local"
    if len(words) != 2 or words[0] != "--prefix" or not words[1]:
        die(f"usage: ./hak {command} [--prefix DIRECTORY]")
    return pathlib.Path(words[1]).resolve()


def install(*words):
    prefix = prefix_of("install", words)
    build_library()
    build_cli("release")
    run(ROOT / "packaging/install.sh", "install", LIBRARY.parent, prefix)


def uninstall(*words):
    run(ROOT / "packaging/install.sh", "uninstall", prefix_of("uninstall", words))


def amalgamate(*words):
    if len(words) > 1:
        die("usage: ./hak amalgamate [DIRECTORY]")
    python("packaging/amalgamate.py", *(words or [BUILD / "amalgamation"]))


def doc(*words):
    build_library()
    build_cli()
    python("docs/generate.py", TOOL)
    python("docs/reliability.py", *words)
    python("docs/tried.py", *words)


def or_die(failure, *words, **more):
    try:
        run(*words, **more)
    except Failed:
        die(f"release: {failure}")


def release(*words):
    """Everything a release consists of, into build/releases/VERSION, once every check has passed. Publishes nothing."""
    if len(words) != 1:
        die("usage: ./hak release VERSION | --rehearse")
    if words[0] == "--rehearse":
        return rehearse_release()
    script = ROOT / "packaging/release.sh"
    run(script, "check", *words)
    or_die("./hak test fails", ROOT / "hak", "test")
    or_die("the packages are not good", ROOT / "hak", "soak", "packages")
    run(script, "check", *words)
    run(script, "make", *words, BUILD / "releases" / words[0])
    print(f"build/releases/{words[0]} is complete: tag the commit v{words[0]}, then publish it")


def rehearse_release():
    """Releases the last commit in a clone of its own, where the changelog has today's date."""
    clone = BUILD / "rehearsal"
    shutil.rmtree(clone, ignore_errors=True)
    run("git", "clone", "--quiet", "--no-local", "--depth", "1", f"file://{ROOT}", clone)
    changes = clone / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace(f"\n## {version()} (not released yet)",
                                                   f"\n## {version()} ({time.strftime('%F')})"))
    run("git", "-C", clone, "-c", "user.name=rehearsal", "-c", "user.email=rehearsal", "commit", "--quiet",
        "--allow-empty", "--all", "--message", "rehearsal")
    run(clone / "hak", "release", version())
    print("a rehearsal: it is all in build/rehearsal")
