#!/usr/bin/env python3
"""Three Python programs under each allocator, with Python's own small-object allocator and without, by turns:
python.py LIBRARY [ROUNDS]. Runs with the packages black, pandas and sympy installed.

For each program: the medians of CPU time and of peak resident memory, relative to Python as it is."""
# SPDX-License-Identifier: MIT
import glob
import os
import statistics
import sys

import measured

PEERS = {
    "jemalloc": "/usr/lib/*/libjemalloc.so.2",
    "mimalloc": "/usr/lib/*/libmimalloc.so.2*",
    "gperftools": "/usr/lib/*/libtcmalloc_minimal.so.4",
}
PROGRAMS = {
    "black": """
import argparse, black, inspect, typing
for module in argparse, inspect, typing:
    black.format_str(inspect.getsource(module), mode=black.Mode(line_length=60))
""",
    "pandas": """
import io, numpy, pandas
random = numpy.random.default_rng(1)
keys = random.integers(0, 20_000, 300_000)
table = pandas.DataFrame({"key": keys, "name": [f"customer {key}" for key in keys], "paid": random.random(300_000)})
text = io.StringIO(table.to_csv(index=False))
again = pandas.read_csv(text)
sums = again.groupby("name")["paid"].agg(["sum", "mean", "max"])
again.merge(sums, left_on="name", right_index=True).sort_values("paid")
""",
    "sympy": """
import sympy
x, y, z = sympy.symbols("x y z")
sympy.expand((x + y + z + 1) ** 24)
sympy.factor(sympy.expand((x**2 - y) ** 6 * (x + y**3) ** 5))
sympy.integrate(sympy.sin(x) ** 4 * sympy.exp(2 * x), x)
""",
}
PEAK = "\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"


def run(program, library, python_malloc):
    environment = {**os.environ, "LD_PRELOAD": library, "PYTHONMALLOC": python_malloc, "PYTHONHASHSEED": "1"}
    return measured.run([sys.executable, "-c", program + PEAK], environment)


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    found = {name: (glob.glob(pattern) or [None])[0] for name, pattern in PEERS.items()}
    libraries = {"system": "", "hakmem": sys.argv[1], **{name: path for name, path in found.items() if path}}
    ways = [(python_malloc, name) for python_malloc in ("default", "malloc") for name in libraries]
    results = {}
    for _ in range(rounds):
        for title, program in PROGRAMS.items():
            for python_malloc, name in ways:
                cost = run(program, libraries[name], python_malloc)
                results.setdefault((title, python_malloc, name), []).append(cost)
    medians = {key: [statistics.median(column) for column in zip(*values)] for key, values in results.items()}
    print(f"CPU time and peak memory relative to Python as it is; medians of {rounds} rounds\n")
    print(f"{'':32}" + "".join(f"{title:>14}" for title in PROGRAMS))
    for python_malloc, name in ways:
        print(f"{'' if python_malloc == 'default' else 'PYTHONMALLOC=malloc':20}{name:12}", end="")
        for title in PROGRAMS:
            base = medians[title, "default", "system"]
            time, memory = (a / b for a, b in zip(medians[title, python_malloc, name], base))
            print(f"{time:8.2f} {memory:5.2f}", end="")
        print()


if __name__ == "__main__":
    main()
