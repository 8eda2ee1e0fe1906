#!/usr/bin/env python3
"""prove.py CBMC [NAME…]: proves with cbmc what prove.py --list says, or what is named.

 1. A proof is a function of tests/prove/*.c (prove.h), which includes the shipped sources. It holds if cbmc finds no
    input for which one of its lines fails, a loop runs further than the bound, or the sources do what C leaves
    undefined.
 2. Each proof must fail with each of its bugs: seeds.txt names the proof, a file of src/, a text that must be there
    once, and what stands in a copy of src/ instead. A proof without a bug fails, too.
 3. Every function that a proof reaches must have a body, else cbmc would take any value for its answer, and no effect.

Prints a line for each proof, and figures. The status is 1 if a proof fails or a bug is not found. --fits only says
whether the sources still have what the bugs change, which lint asks."""
# SPDX-License-Identifier: MIT
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SRC = HERE.parent.parent / "src"
PROOF = re.compile(r"^/\*((?:(?!\*/).)*)\*/\nvoid prove_(\w+)\(void\) \{\n    /\* (--unwind [^*]*) \*/$",
                   re.MULTILINE | re.DOTALL)
SEED = re.compile(r"^(\w+) (\S+)\n((?:- .*\n)+)((?:\+ .*\n)+)", re.MULTILINE)
RANGE = re.compile(r"\[([\d\s()+/-]+) \.\.\. ([\d\s()+/-]+)\] = (\w+),")
OPTIONS = ["--object-bits", "12", "--drop-unused-functions", "--verbosity", "6"]
SECONDS_MAX = 3000  # for one run, on a machine that does much else; the longest takes about a minute


class Proof:
    def __init__(self, file, claim, name, options):
        self.file, self.name = file, name
        self.claim = " ".join(claim.replace("\n *", "\n").split())
        self.options = ["--function", f"prove_{name}", *options.split()]


def proofs():
    known = {}
    for path in sorted(HERE.glob("*.c")):
        text = path.read_text()
        found = [Proof(path, *groups) for groups in PROOF.findall(text)]
        if len(found) != len(re.findall(r"^void prove_", text, re.MULTILINE)):
            sys.exit(f"prove.py: {path.name} has proofs without a comment before, or without --unwind in the first "
                     f"line")
        known.update((proof.name, proof) for proof in found)
    return known


def lines_of(diff):
    return "\n".join(line[2:] for line in diff.splitlines())


def seeds():
    """Lists (proof, file of src/, text, what stands there instead)."""
    text = (HERE / "seeds.txt").read_text()
    left = SEED.sub("", text)
    if re.search(r"^[^#\s]", left, re.MULTILINE):
        sys.exit(f"prove.py: seeds.txt cannot be read here: {left.strip().splitlines()[-1]}")
    return [(name, path, lines_of(old), lines_of(new)) for name, path, old, new in SEED.findall(text)]


def spelt_out(ranges):
    """`[2 ... 4] = C,` as three elements, since cbmc 6 takes a range for its first element."""
    first, last = (eval(bound.replace("/", "//"), {}) for bound in ranges.group(1, 2))
    return "".join(f"[{i}] = {ranges[3]}," for i in range(first, last + 1))


def run(cbmc, proof, src, scratch, *more):
    """cbmc on the proof with these sources. Returns its status and output."""
    command = ["cc", "-E", "-D_GNU_SOURCE", "-I", src, "-I", src.parent / "include", proof.file]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    source = pathlib.Path(scratch) / f"{proof.file.stem}.i"
    source.write_text(RANGE.sub(spelt_out, text))
    command = [cbmc, *OPTIONS, *proof.options, *more, source]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return None, f"not done after {SECONDS_MAX} s"
    return done.returncode, done.stdout


def breaches(output):
    """The lines of cbmc's output that say why the proof does not hold."""
    without = {name for name in re.findall(r"no body for function '?(\w+)'?", output) if not name.startswith("nondet_")}
    return [f"{name} has no body" for name in sorted(without)] + re.findall(r"^\[.*: FAILURE$", output, re.MULTILINE)


def prove(cbmc, proof):
    """Returns whether it holds, how many properties cbmc saw to, and the lines to print."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        status, output = run(cbmc, proof, SRC, scratch)
    failed = breaches(output)
    count = re.search(r"\*\* 0 of (\d+) failed", output)
    seconds = time.monotonic() - start
    if status != 0 or failed or count is None:
        return False, 0, [f"FAIL {proof.name}", *(failed or output.splitlines()[-20:])]
    return True, int(count[1]), [f"ok   {proof.name}: {count[1]} properties, {seconds:.0f} s"]


def unfit(path, old):
    """What is wrong with where a bug is planted, "" if nothing is."""
    count = (SRC.parent / path).read_text().count(old)
    return "" if count == 1 else f"{path} has this {count} times: {old}"


def find(cbmc, proof, path, old, new):
    """Plants a bug. Returns whether the proof finds it, 0, and the lines to print."""
    what = f"{proof.name} finds {path}: {' '.join(new.split())}"
    if wrong := unfit(path, old):
        return False, 0, [f"FAIL {what}", wrong]
    with tempfile.TemporaryDirectory() as scratch:
        src = pathlib.Path(scratch) / "src"
        shutil.copytree(SRC, src)
        shutil.copytree(SRC.parent / "include", src.parent / "include")
        (src.parent / path).write_text((src.parent / path).read_text().replace(old, new))
        start = time.monotonic()
        status, output = run(cbmc, proof, src, scratch, "--stop-on-fail")
    if status != 10 or "VERIFICATION FAILED" not in output:
        return False, 0, [f"FAIL {what}", *output.splitlines()[-20:]]
    return True, 0, [f"ok   {what}, {time.monotonic() - start:.0f} s"]


def main():
    known, planted = proofs(), seeds()
    if sys.argv[1:] == ["--list"]:
        print("\n".join(f"{proof.name}: {proof.claim}" for proof in known.values()))
        return
    if sys.argv[1:] == ["--fits"]:
        sys.exit("\n".join(filter(None, (unfit(path, old) for _, path, old, _ in planted))) or 0)
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.split("\n\n")[0])
    cbmc, names = sys.argv[1], sys.argv[2:] or list(known)
    for name in [*names, *(seed[0] for seed in planted)]:
        if name not in known:
            sys.exit(f"prove.py: no such proof: {name}; there are: {' '.join(known)}")
    failed = properties = found = 0
    for name in names:
        if name not in {seed[0] for seed in planted}:
            print(f"FAIL {name} has no bug to find in seeds.txt")
            failed += 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [pool.submit(prove, cbmc, known[name]) for name in names]
        tasks += [pool.submit(find, cbmc, known[seed[0]], *seed[1:]) for seed in planted if seed[0] in names]
        for task in concurrent.futures.as_completed(tasks):
            good, count, lines = task.result()
            print("\n".join(lines), flush=True)
            failed += not good
            properties += count
            found += good and count == 0
    if not sys.argv[2:]:
        print(f"figure: proofs {len(names)}\nfigure: proof_properties {properties}\nfigure: proof_bugs_found {found}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
