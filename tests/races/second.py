#!/usr/bin/env python3
"""second.py DIRECTORY [EXECUTIONS] [NAME…]: the model checker's harnesses, and the bugs they must find, under Relacy.

Runs DIRECTORY/races_relacy (relacy.cc) for each harness, or for those that are named: EXECUTIONS each (10,000), and 20
times as many where a bug is to be found. The status is 1 where it finds an error in what the model checker says is
right, or does not find a bug that the model checker does; those that it is not asked for are in CHANCE.
"""
# SPDX-License-Identifier: MIT
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Bugs that one execution in a million shows, where the threads take turns by chance.
CHANCE = {"find_idle_no", "let_go_held_twice", "let_go_held_relaxed"}
LITMUS_TIMES = 20  # it is 25 programs


def main(directory, *arguments):
    executions = int(arguments[0]) if arguments and arguments[0].isdigit() else 10000
    names = set(arguments[1:] if arguments and arguments[0].isdigit() else arguments)
    program = pathlib.Path(directory) / "races_relacy"
    harnesses = re.findall(r"^X\((\w+)\)", (HERE / "races.c").read_text(), re.MULTILINE)
    seeds = re.findall(r"^X\((\w+), +(\w+), +(\w+)\)", (HERE / "seeds.h").read_text(), re.MULTILINE)
    if not harnesses or not seeds:
        sys.exit("second.py: no harnesses, or no bugs")
    counts = dict.fromkeys(("relacy_harnesses", "relacy_executions", "relacy_bugs", "relacy_bugs_left_to_chance"), 0)
    differ = []

    def run(name, times, *options):
        done = subprocess.run([program, str(times), *options], capture_output=True, text=True, check=False)
        text = done.stdout.strip().splitlines()
        print(text[-1] if text else f"{name}: status {done.returncode}", flush=True)
        if done.returncode != 0:
            print(done.stderr, flush=True)
        found = re.search(r"(\d+) executions", done.stdout)
        counts["relacy_executions"] += int(found[1]) if found else 0
        return done.returncode == 0

    for name in harnesses:
        if names and name not in names:
            continue
        counts["relacy_harnesses"] += 1
        if not run(name, executions * (LITMUS_TIMES if name == "litmus" else 1), name):
            differ.append(name)
    for access, fault, harness in seeds:
        if names and harness not in names:
            continue
        seed = f"{access}_{fault}"
        if seed in CHANCE:
            counts["relacy_bugs_left_to_chance"] += 1
        elif run(seed, 20 * executions, "--seed", seed):
            counts["relacy_bugs"] += 1
        else:
            differ.append(seed)
    for name, count in counts.items():
        print(f"figure: {name} {count}")
    if differ:
        sys.exit(f"second.py: here the two checkers differ: {' '.join(differ)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    main(*sys.argv[1:])
