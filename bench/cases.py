# SPDX-License-Identifier: MIT
"""What counts.py runs: workloads with one argument that grows."""
from dataclasses import dataclass
from functools import partial
from typing import Callable

from meters import MIB

THREADS = (1, 2, 4, 8, 16, 32, 64, 256)
THREADS_IN_STRIDE = 64  # where the work is divided: with more, each does too little to be past its beginning
HEAPS = (1, 16, 256, 4096, 65536)  # MiB
FEW_THREADS = (1, 8, 64)


@dataclass(frozen=True, eq=False)
class Case:
    """A workload with one argument that grows, and one that sets how long it runs."""
    name: str
    x_unit: str
    xs: tuple
    command: Callable  # (x, length) -> words
    operations: Callable  # (x, length) -> how many
    lengths: dict  # meter -> x -> (short, long), or (whole,): what it counts then is no difference
    few: tuple  # the xs at which peers are measured; --quick: the first two HAKMEM, the first one peers
    note: str = ""
    mebibytes: Callable = lambda x: 0  # of memory that a run takes, where that is much

    def xs_of(self, meter, ours, quick) -> list:
        xs = self.xs if ours and not quick else self.few
        if meter in ("callgrind", "kernel") and self.x_unit == "threads":
            xs = [x for x in xs if x <= THREADS_IN_STRIDE]
        return list(xs if not quick else xs[:2] if ours else xs[:1])


# ---- one thread ----

def live_of(mebibytes, size):
    return max(1, int(mebibytes * MIB) // size)


def one_thread(simulated, native):
    return {"callgrind": simulated, "kernel": native, "atomics": native}


def replace_lengths(size, extra, mebibytes):
    """At least every second place is taken anew before the difference begins, except in heaps too large to wait for."""
    short = min(live_of(mebibytes, size), 1_000_000)
    return short, short + extra


def replace_case(name, size, xs, few, note=""):
    return Case(name, "MiB live", xs,
                lambda x, n: ["random_replace", live_of(x, size), size if size != 528 else 0, n, 42, 1],
                lambda x, n: n, one_thread(partial(replace_lengths, size, 200_000),
                                           partial(replace_lengths, size, 2_000_000)), few, note, lambda x: 1.3 * x)


def sparse_case(name, block, size):
    return Case(f"sparse heap: {name}", "MiB", HEAPS, lambda x, n: ["sparse_heap", x, block, size, n],
                lambda x, n: n, one_thread(lambda x: (100_000, 300_000), lambda x: (1_000_000, 3_000_000)), (1, 4096),
                "the program touches none of the large blocks, so they have addresses and records, but no pages")


SWEEPS = (("in order", 1), ("in reverse", 2), ("in random order", 0), ("in random order, in another thread", 3))


def sweep_case(name, order):
    """Each round allocates and frees every block: operations of both kinds, by halves."""
    return Case(f"bulk: blocks of 64 B freed {name}", "thousand blocks", (1, 3, 10, 30, 100, 300),
                lambda x, n: ["sweep", 64, x * 1000, 1, 100, n, order], lambda x, n: 2 * x * 1000 * n,
                one_thread(lambda x: (1, 1 + max(1, 100 // x)), lambda x: (1, 1 + max(1, 1000 // x))), (1, 30, 300))


def sweep_size_case(name, order):
    return Case(f"bulk: 8 MiB freed {name}, by size", "B", (8, 64, 512, 1024, 4096, 16384, 65536, 262144, 1048576),
                lambda x, n: ["sweep", x, max(1, 8 * MIB // x), 1, 100, n, order],
                lambda x, n: 2 * max(1, 8 * MIB // x) * n,
                one_thread(lambda x: (1, 2 if x < 4096 else 20), lambda x: (1, 3 if x < 4096 else 100)),
                (8, 1024, 16384, 262144))


# ---- threads ----

def threads_lengths(per_unit, simulated, native, lines=(1000, 3000)):
    """How often each of x threads does a unit of `per_unit` operations, for a given total. To count lines, each thread
    does enough to reach its steady state, whatever the others do."""
    def together(totals, x):
        short, long = (max(1, total // (x * per_unit)) for total in totals)
        return short, max(short + 1, long)

    def each(count, x):
        return max(1, max(count, 20 * count // x) // per_unit)

    return {"callgrind": lambda x: together(simulated, x), "kernel": lambda x: together(native, x),
            "atomics": lambda x: together(native, x), "lines": lambda x: tuple(each(count, x) for count in lines)}


CHUNKS, ROUNDS = 200, 4  # larson: 800 replacements per thread and generation
CHURN = 1000  # threads


def handover_case(name, producers, consumers, note=""):
    """Groups of producers and consumers: x is the number of threads, a multiple of the group's."""
    group = producers + consumers
    xs = tuple(x for x in THREADS if x % group == 0)
    return Case(f"threads: groups of {name}", "threads", xs,
                lambda x, n: ["producer_consumer", 64, n * x, producers, consumers, x // group],
                lambda x, n: n * x, threads_lengths(1, (100_000, 300_000), (500_000, 2_500_000)),
                tuple(x for x in (group, 64) if x in xs), note)


def thread_case(name, command, per_unit, operations, few=FEW_THREADS, note="", xs=THREADS, **lengths):
    return Case(f"threads: {name}", "threads", xs, command, operations,
                threads_lengths(per_unit, **{"simulated": (100_000, 300_000), "native": (500_000, 2_500_000),
                                             **lengths}),
                few, note)


CASES = (
    replace_case("hit path: a random one of 256 blocks of 64 B replaced", 64, (1 / 64,), (1 / 64,)),
    replace_case("steady state: a random block of 64 B replaced", 64, (1, 4, 16, 64), (1, 16, 64)),
    replace_case("mixed: a random block of 16-1,040 B replaced", 528, (1, 4, 16, 64, 256), (1, 64)),
    replace_case("large heap: a random block of 1,024 B replaced", 1024, (1, 16, 256, 1024, 4096, 16384), (1, 256),
                 "1 GiB and more: the heap is not replaced as a whole before counting"),
    Case("fill and empty: blocks of 1,024 B", "MiB live", (1, 4, 16, 64, 256, 1024, 4096),
         lambda x, n: ["random_replace", live_of(x, 1024) if n else 1, 1024, 0, 42, 1],
         lambda x, n: live_of(x, 1024) if n else 0, one_thread(lambda x: (0, 1), lambda x: (0, 1)), (1, 256),
         "whole runs: each block costs a malloc, a free and its fresh memory", lambda x: 1.3 * x),
    sparse_case("a random block of 16 KiB replaced", 16384, 0),
    sparse_case("a random block of 1 MiB replaced", MIB, 0),
    sparse_case("a random block of 64 B replaced beside blocks of 1 MiB", MIB, 64),
    Case("classes: larson, one thread, blocks of 8 B to x", "B at most", (16, 64, 256, 1024, 4096, 32768),
         lambda x, n: ["larson", 1, 0, 8, x, 1000, 10, 42, n], lambda x, n: n * 10_000,
         one_thread(lambda x: (10, 30), lambda x: (20, 120)), (16, 1024, 32768)),
    thread_case("small_mt", lambda x, n: ["small_mt", x, n, 100, 16], 200, lambda x, n: 2 * x * n * 100,
                simulated=(100_000, 400_000), native=(1_000_000, 9_000_000)),
    thread_case("random_mixed in each", lambda x, n: ["random_mixed", n, 400, 42, 1, x], 1, lambda x, n: x * n),
    thread_case("larson", lambda x, n: ["larson", x, 0, 8, 1000, CHUNKS, ROUNDS, 42, n], CHUNKS * ROUNDS,
                lambda x, n: x * n * CHUNKS * ROUNDS, note="a thread per 800 replacements"),
    thread_case("mid_large_mt", lambda x, n: ["mid_large_mt", x, n, 128], 1, lambda x, n: x * n),
    handover_case("1 producer, 1 consumer", 1, 1),
    handover_case("1 producer, 3 consumers", 1, 3),
    handover_case("4 producers, 4 consumers", 4, 4),
    thread_case("producers and as many consumers", lambda x, n: ["producer_consumer", 64, n * x, x // 2, x // 2], 1,
                lambda x, n: n * x, (2, 8, 64), "each producer gives to every consumer", THREADS[1:]),
    thread_case("free_thread", lambda x, n: ["free_thread", x - 1, 200, n, 42], 1, lambda x, n: (x - 1) * n, (2, 8, 64),
                "one thread frees what all others allocate", THREADS[1:]),
    Case("threads: thread_churn", "threads", THREADS, lambda x, n: ["thread_churn", n, x, 20, 42], lambda x, n: n,
         {meter: lambda x: (CHURN, 3 * CHURN) for meter in ("callgrind", "kernel", "atomics", "lines")}, FEW_THREADS,
         "an operation is the life of a thread: 20 mallocs and 20 frees"),
    Case("sleepers: a few blocks in each thread", "threads", (1, 16, 256, 10000),
         lambda x, n: ["sleeping_threads", x], lambda x, n: 1, {"bytes": lambda x: (1,)}, (1, 16, 256, 10000),
         "4 blocks of 16-1,040 B; idle: after 1,000 replacements of blocks up to 32 KiB, and 2 s of sleep"),
    *(sweep_case(*each) for each in SWEEPS),
    *(sweep_size_case(*each) for each in SWEEPS),
)
