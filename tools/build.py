"""Building: the library, its benchmarks, the checked library, and the hakmem command."""
# SPDX-License-Identifier: MIT
import os
import re
import shutil
import subprocess
import sys
import time

from base import BENCH, BUILD, JOBS, LIBRARY, PEERS, ROOT, TOOL, Failed, die, forked, output, run, say
from packages import need, present

WITH_GCC = ("-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++")
WITH_CLANG = ("-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++")


def configure_in(name, preset, *settings, **more):
    """Configures build/NAME."""
    directory = BUILD / name
    cache = directory / "CMakeCache.txt"
    if not cache.exists() or f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in cache.read_text(errors="replace"):
        cache.unlink(missing_ok=True)  # the whole tree has moved
        shutil.rmtree(directory / "CMakeFiles", ignore_errors=True)
    run("cmake", "--preset", preset, "-B", directory, *settings, cwd=ROOT, **more)


def compile_in(name, preset, *settings, target=None, **more):
    """Configures and builds in build/NAME: everything, or the target."""
    configure_in(name, preset, *settings, **more)
    run("cmake", "--build", BUILD / name, "--parallel", JOBS, *(["--target", target] if target else []), **more)


def compile_logged(log, failure, *args, **more):
    """As compile_in, into a log, which is shown only if that fails; then dies of the failure."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(log, "w", encoding="utf-8") as out:
            compile_in(*args, **more, stdout=out, stderr=subprocess.STDOUT)
    except Failed:
        say(log.read_text(errors="replace"), end="")
        die(failure)


def build_library():
    """Brings the library up to date: silent when it is, else one line on stderr. A compiler we don't know may warn."""
    start = time.monotonic()
    directory = LIBRARY.parent
    need("build")
    if (directory / "build.ninja").is_file() and LIBRARY.is_file() \
            and "no work to do" in output("ninja", "-C", str(directory), "-n"):
        return
    if sys.stderr.isatty():
        say("building the library …", end="\r")
    compile_logged(directory / "build.log", "the library could not be built",
                   "release", "release", "-DHAKMEM_WERROR=OFF")
    say(f"built build/release/libhakmem.so in {time.monotonic() - start:.0f} s")


def build_bench(target=None):
    """Into build/bench: the workloads, and the library they are measured with. build/release is left as it is."""
    need("build")
    compile_logged(BUILD / "bench.log", "the benchmarks could not be built", "bench", "release", "-DHAKMEM_BENCH=ON",
                   "-DHAKMEM_WERROR=OFF", target=target)


def build_lines():
    """What counts lines that move between threads."""
    compile_logged(BUILD / "bench-lines.log", "the library that counts lines could not be built", "bench", "release",
                   "-DHAKMEM_BENCH=ON", "-DHAKMEM_WERROR=OFF", target="lines")


def build_checked():
    """The library with assertions, the debug log and a count of its atomic operations; and the workloads beside it."""
    need("build")
    compile_logged(BUILD / "checked.log", "the checked library could not be built", "checked", "checked",
                   "-DHAKMEM_TESTS=OFF", "-DHAKMEM_WERROR=OFF", "-DHAKMEM_BENCH=ON")


def build(kind="release", *more):
    if kind == "release" and not more:
        build_library()
        print(f"build/release/libhakmem.so ({LIBRARY.stat().st_size // 1024} KiB) and libhakmem.a are up to date")
    elif kind == "checked" and not more:
        build_checked()
        print("build/checked/libhakmem.so is up to date: it asserts, and logs what HAKMEM_DEBUG names; "
              "build/checked/bench has the workloads")
    else:
        die("usage: ./hak build [checked]")


def rust_host():
    return re.search(r"^host: (.*)$", output("rustc", "-vV"), re.MULTILINE).group(1)


# The crates that ./hak test tests: all but the one that writes proto.rs. That needs 50 crates besides, with which cargo
# would compile some of the command's a second time. ./hak soak tests has it, too.
COMMAND_CRATES = ("--workspace", "--exclude", "hakmem-proto")


def in_cli(command, *words, env=None, **more):
    """In cli/, into build/cli: cargo COMMAND WORDS… for this machine (a named target is what cli/.cargo/config.toml
    needs). In ./hak test clippy compiles, and a warning is an error: so its lints need no build of their own; and
    nobody edits between two builds of continuous integration, which sets CI."""
    host = rust_host()
    env = {"CARGO_TARGET_DIR": BUILD / "cli", **(env or {})}
    options = ["--locked"]
    if os.environ.get("HAK_CLI_PROFILE") == "dev":
        env["RUSTC_WORKSPACE_WRAPPER"] = "clippy-driver"
        options += ["--config", f"target.{host}.rustflags = ['-Dwarnings']"]
        if os.environ.get("CI"):
            env["CARGO_INCREMENTAL"] = "0"
    run("cargo", command, *options, "--target", host, *words, cwd=ROOT / "cli", env=env, **more)


def show_crates(lines, log):
    """Writes what cargo says to the log; on a terminal the crate that is being compiled is shown meanwhile."""
    for line in lines:
        log.write(line)
        if sys.stderr.isatty() and " Compiling " in line:
            say(f"\rbuilding the hakmem command: {line.split()[1]} …\033[K", end="")


def build_cli(profile=None):
    """Brings build/hakmem up to date: silent when it is, else one line on stderr, and one before that if it takes long
    because nothing is built yet. HAK_CLI_PROFILE is a profile of cli/Cargo.toml: quick is soon built, release is what
    to install, dev is what ./hak test builds, as the tests are built, so that the crates are compiled once."""
    start = time.monotonic()
    profile = os.environ.get("HAK_CLI_PROFILE") or profile or "quick"
    need("rust tools")
    if not present("cargo"):
        die(f"cargo 1.85 or newer is needed; {shutil.which('cargo')} is older")
    BUILD.mkdir(exist_ok=True)
    built = BUILD / "cli" / rust_host() / profile.replace("dev", "debug") / "hakmem"
    if not built.is_file():
        minutes = "three to five" if profile == "release" else "one to two"
        say("building the hakmem command and the crates it needs, for the first time: "
            f"{minutes} minutes on two cores …")
    elif sys.stderr.isatty():
        say("building the hakmem command …", end="\r")
    log = BUILD / "cli.log"
    reader, writer = os.pipe()
    with open(log, "w", encoding="utf-8") as copy, os.fdopen(reader, errors="replace") as lines:
        pid = forked(in_cli, "build", "--profile", profile, out=writer, errors=writer)
        os.close(writer)
        show_crates(lines, copy)
    if os.waitpid(pid, 0)[1]:
        say(log.read_text(), end="")
        die("the hakmem command could not be built")
    if sys.stderr.isatty():
        say("\r\033[K", end="")
    if not TOOL.exists() or not TOOL.samefile(built):
        fresh = BUILD / f"hakmem.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        os.link(built, fresh)
        fresh.replace(TOOL)
        say(f"built build/hakmem in {time.monotonic() - start:.0f} s")


def measure_what(library):
    """What `hakmem compare` is to measure, unless the caller says something else: this, and the peers that are
    built."""
    os.environ.setdefault("HAKMEM_LIBRARY", str(library))
    if PEERS.is_file():
        os.environ.setdefault("HAKMEM_PEERS", str(PEERS))


def measurable():
    """What every measurement takes. Optimized as a whole, so that what measures takes as little as it can beside what
    is measured."""
    if not PEERS.is_file():
        need("debian peers")
    build_bench()
    build_cli("release")
    measure_what(BENCH / "libhakmem.so")
