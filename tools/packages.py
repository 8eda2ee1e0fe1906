"""Which packages are needed and missing (packages.txt), and installing them where that takes no password."""
# SPDX-License-Identifier: MIT
import fcntl
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import time

from base import BUILD, ROOT, die, output, say

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
LOCK_SECONDS = 1800  # for so long another program may hold one of these
APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60")


def sections():
    """The lists of packages.txt: each line as (probe, package), or (section, "")."""
    lists = {}
    for line in (ROOT / "tools/packages.txt").read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line and not line.startswith("#"):
            probe, _, package = line.partition(" = ")
            lists.setdefault(name, []).append((probe, package))
    return lists


SECTIONS = sections()


def needs(*names):
    """The needs of the sections, as (probe, package); a need may be given instead of a name."""
    for name in names:
        if isinstance(name, tuple):
            yield name
            continue
        for probe, package in SECTIONS[name]:
            yield from [(probe, package)] if package else needs(probe)


def first_numbers(pattern, *command):
    """The numbers that the pattern finds in what the command prints, () if it finds none."""
    found = re.search(pattern, output(*command))
    return tuple(map(int, found.groups())) if found else ()


def present_clippy():
    """Is there a clippy of cargo's release? Another's lints are not those of the compiler."""
    rust = first_numbers(r"^rustc 1\.(\d+)\.", "rustc", "--version")
    return bool(rust) and rust == first_numbers(r"^clippy 0\.1\.(\d+)\b", "cargo-clippy", "--version")


def present_clang_runtime():
    """Are the sanitizers' and the fuzzer's libraries there that this clang would link? Others' may lie beside."""
    said = output("clang", "-###", "-fsanitize=fuzzer", "-x", "c", "/dev/null", errors=subprocess.STDOUT)
    found = re.search(r'"([^" ]*/libclang_rt\.fuzzer[^" ]*)"', said)
    return bool(found) and os.path.isfile(found.group(1))


ASKED = {
    "cargo": lambda: first_numbers(r"^cargo (\d+)\.(\d+)", "cargo", "--version") >= (1, 85),  # as cli/Cargo.toml says
    "cargo-clippy": present_clippy,
    "cbmc": lambda: first_numbers(r"^(\d+)\.", "cbmc", "--version") >= (6,),  # it looks for what is undefined unasked
    "clang-runtime": present_clang_runtime,
}


def present(probe):
    """Is there such a command, or a file of that pattern, or a header for that compiler?"""
    if probe.startswith("/"):
        return bool(glob.glob(probe))
    if " <" in probe:
        compiler, header = probe.split(" ", 1)
        return bool(shutil.which(compiler)) and subprocess.run(
            [compiler, "-E", "-x", "c++", "-"], input=f"#include {header}\n".encode(), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False).returncode == 0
    if probe.startswith("llvm-"):
        return os.access(output("clang", f"--print-prog-name={probe}").strip(), os.X_OK)
    return ASKED[probe]() if probe in ASKED else bool(shutil.which(probe))


def clang_version(package):
    """The version of what goes with clang: of the compiler itself, or of the GCC whose library it takes for C++."""
    if not package.startswith("libstdc++"):
        return output("clang", "-dumpversion").split(".")[0].strip()
    said = output("clang", "-v", errors=subprocess.STDOUT)
    return re.search(r"^Selected GCC installation: .*/(.*)$", said, re.MULTILINE).group(1)


def candidate(package):
    """The version of a package that apt would install, "" if there is none."""
    found = re.search(r"Candidate: ([^(\s]+)", output("apt-cache", "policy", package))
    return found.group(1) if found else ""


def package_for(names):
    """The first of NAME|NAME that apt knows, else the first. Nothing while the clang that tells the version is
    missing."""
    if "@" in names:
        if not shutil.which("clang"):
            return ""
        names = names.replace("@", clang_version(names))
    names = names.split("|")
    return next(filter(candidate, names), names[0])


def missing(*names):
    """The packages whose probe finds nothing, each once."""
    lacking = dict.fromkeys(package for probe, package in dict.fromkeys(needs(*names)) if not present(probe))
    return [name for name in dict.fromkeys(map(package_for, lacking)) if name]


def as_root(*words):
    """The command as root, which fails if that takes a password."""
    return words if os.geteuid() == 0 else ("sudo", "-n", *words)


def holder_of(path):
    """Asks for a lock without taking it: who holds it, or "". By root: others may not read these files."""
    try:
        with open(path, "rb") as file:
            asked = struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("@hhqqi0q", fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return ""
    if kind == fcntl.F_UNLCK:
        return ""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return f"{file.read().strip()} (process {pid})"
    except OSError:
        return "another program"


def lock_holder():
    """Who holds a lock of dpkg's or of apt's, "" if nobody does."""
    return output(*as_root(sys.executable, "-I", os.path.abspath(__file__), *LOCKS)).strip()


def waits():
    """Called once when the installation begins to wait for another program."""


def wait_for_lock(wanted, sleep=time.sleep):
    """Waits while another program installs, and says so; gives up after LOCK_SECONDS and says who it was."""
    seconds = 0
    while holder := lock_holder():
        if seconds == 0:
            waits()
        if seconds >= LOCK_SECONDS:
            die(f"these packages cannot be installed: {wanted}: {holder} has held dpkg's lock for "
                f"{LOCK_SECONDS // 60} minutes")
        if seconds % 30 == 0:
            say(f"waiting for dpkg's lock, which {holder} holds: {seconds // 60}:{seconds % 60:02} …")
        sleep(1)
        seconds += 1


def apt(log, wanted, *words):
    """Returns whether apt-get did it; its output is added to the log."""
    for _ in range(5):  # another program may be quicker to take the lock
        wait_for_lock(wanted)
        done = subprocess.run(as_root(*APT, *words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        log.write(done.stdout)
        log.flush()
        if done.returncode == 0 or not re.search(r"Could not get lock|Unable to acquire|Unable to lock", done.stdout):
            break
    return done.returncode == 0


def install(*names):
    """Installs what is missing, or says the one line to type."""
    wanted = " ".join(missing(*names))
    if not shutil.which("apt-get"):
        die(f"please install what Debian calls: {wanted}")
    if not output(*as_root("echo", "root")):
        die(f"please type:  sudo apt-get update && sudo apt-get install -y {wanted}")
    BUILD.mkdir(exist_ok=True)
    say(f"installing {wanted} …")
    path = BUILD / "packages.log"
    with open(path, "w", encoding="utf-8") as log:
        updated = apt(log, wanted, "update")
        packages = missing(*names)  # by the names that apt knows now
        done = updated and apt(log, wanted, "install", "--no-install-recommends", *packages)
    if not done:
        say(path.read_text(), end="")
        die(f"these packages cannot be installed: {' '.join(packages)}" if updated else "apt-get update failed")


def need(*names):
    """Installs what is missing. Once more after that, for what goes with a compiler that was missing too."""
    for _ in range(2):
        if not missing(*names):
            return
        install(*names)
    if lacking := missing(*names):
        die(f"installed, and yet not what is needed: {' '.join(lacking)}")


def obtained(name):
    """Is all of a section there, or one need, or could it be installed now? For what can be left out; what failed has
    said why."""
    try:
        need(name)
    except SystemExit:
        return False
    return True


def install_each(name):
    """What of a section can be installed; a program that cannot is named as missing by what would run it."""
    for one in needs(name):
        obtained(one)


if __name__ == "__main__":
    print(next(filter(None, map(holder_of, sys.argv[1:])), ""))
