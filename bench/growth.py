# SPDX-License-Identifier: MIT
"""What grows, and why: nothing of HAKMEM may grow with threads but by a reason that is listed here.

1. A finding is a series of HAKMEM that grows along its x by more than TOLERANCE and the unit's least step.
2. REASONS has an entry for each cause: the cases (a regular expression), how high it explains each unit to go, and why.
   A finding without a reason, or above what its reason explains, is unexplained; so is what grows with the heap or with
   sizes.
3. A loss is a point where a peer counts less by as much.
"""
import re
from dataclasses import dataclass

from meters import (ATOMICS, BLOCK_LINES, CALLS, D1, FAULTS, HAKMEM, INSTRUCTIONS, LEAST_STEP, LL, RETRIES, SIMULATED,
                    TABLE_LINES)

TOLERANCE = 1.10


@dataclass(frozen=True)
class Reason:
    cases: str
    most: dict  # unit -> how high it explains that
    text: str


# The figures of docs/costs.md and a quarter more, so that what an order of threads changes is no finding.
REASONS = (
    Reason("random_mixed", {TABLE_LINES: 25},
           "one block in 64 is larger than 1 KiB: several threads have blocks of one mid slab, whose states share a "
           "line"),
    Reason("random_mixed", {D1: 1.3, CALLS: 0.6, FAULTS: 0.8},
           "each thread makes fewer operations, and more of them while the heap still grows"),
    Reason("larson", {TABLE_LINES: 2000, BLOCK_LINES: 5600, RETRIES: 2, ATOMICS: 400},
           "a thread goes on with what another left, which ran on another processor: all of it comes from there"),
    Reason("larson", {CALLS: 21, FAULTS: 16}, "threads begin and end: their stacks are the C library's, and cost peers "
                                              "as much"),
    Reason("mid_large_mt", {TABLE_LINES: 6300, BLOCK_LINES: 430, ATOMICS: 760, INSTRUCTIONS: 160, FAULTS: 1},
           "with more threads than processors, of which 8 count at least, they share RING_BYTES_TOTAL: each has less "
           "than it uses"),
    Reason("groups of", {TABLE_LINES: 80, INSTRUCTIONS: 140, D1: 4.6, LL: 3.3, CALLS: 0.4, FAULTS: 7, ATOMICS: 46},
           "producers run further ahead where more threads than processors take turns, so that more blocks are under "
           "way"),
    Reason("producers and", {TABLE_LINES: 1700, BLOCK_LINES: 5400, RETRIES: 27, INSTRUCTIONS: 240, D1: 9, LL: 5,
                             CALLS: 0.9,
                             FAULTS: 9, ATOMICS: 480},
           "a consumer frees blocks of all producers by turns: of a slab fewer come together before they are sent"),
    Reason("free_thread", {TABLE_LINES: 290, BLOCK_LINES: 4300, INSTRUCTIONS: 220, D1: 6, LL: 4, CALLS: 1.9, FAULTS: 39,
                           ATOMICS: 260},
           "one thread frees the blocks of all others: of a slab fewer come together before they are sent, and more "
           "are under way"),
    Reason("thread_churn", {TABLE_LINES: 650_000, BLOCK_LINES: 300_000, RETRIES: 1200, D1: 680, LL: 18, FAULTS: 200},
           "the life of a thread: its heap and slabs come from one that ended on another processor, and go to another"),
)


def growth(points) -> tuple:
    """(x, y) of the start and of the highest point after it."""
    return points[0], max(points, key=lambda pair: pair[1])


def rise(points, xs) -> float:
    first, highest = growth([pair for pair in points if pair[0] in xs])
    return highest[1] - first[1]


def is_inherent(unit, series) -> bool:
    """The caches are too small for the program's own data, too: misses grow only if they do so more than a peer's."""
    if unit not in SIMULATED[1:]:
        return False
    xs = set.intersection(*({x for x, _ in points} for points in series.values()))
    rises = {name: rise(points, xs) for name, points in series.items()} if xs else {HAKMEM: 0}
    least = min((each for name, each in rises.items() if name != HAKMEM), default=rises[HAKMEM])
    return rises[HAKMEM] <= max(least, 0) * TOLERANCE + LEAST_STEP[unit]


def reason_of(case, unit, most):
    return next((reason for reason in REASONS if most <= reason.most.get(unit, -1) and re.search(reason.cases, case)),
                None)


def findings(paths) -> list:
    """A dictionary each: what grows, as a line, and the reason; None: there is none."""
    found = []
    for path in paths:
        series = {each["allocator"]: each["points"] for each in path["series"]}
        if len(series.get(HAKMEM, ())) < 2 or is_inherent(path["unit"], series):
            continue
        (x0, y0), (x1, y1) = growth(series[HAKMEM])
        if y1 <= y0 * TOLERANCE or y1 - y0 < LEAST_STEP[path["unit"]]:
            continue
        others = [f"{name} {' to '.join(figure(y) for _, y in growth(points))}"
                  for name, points in series.items() if name != HAKMEM and len(points) > 1]
        line = (f"{path['name']}: {path['unit']} grow from {figure(y0)} at {x0:g} to {figure(y1)} at {x1:g} "
                f"{path['x_unit']}" +
                (f" ({'; '.join(others)})" if others else ""))
        reason = reason_of(path["name"], path["unit"], y1)
        found.append({"line": line, "x_unit": path["x_unit"], "reason": reason.text if reason else None})
    return found


def breaks_the_rule(finding) -> bool:
    return finding["x_unit"] == "threads" and finding["reason"] is None


def losses(paths) -> list:
    """Where a peer counts less at a point both were measured at, by more than TOLERANCE and the least step."""
    lines = []
    for path in paths:
        series = {each["allocator"]: dict(each["points"]) for each in path["series"]}
        for x, y in series.get(HAKMEM, {}).items():
            peers = {name: points[x] for name, points in series.items() if name != HAKMEM and x in points}
            best = min(peers, key=peers.get, default=None)
            if best and y > max(peers[best], 0) * TOLERANCE and y - peers[best] >= LEAST_STEP[path["unit"]]:
                lines.append(f"{path['name']}, {x:g} {path['x_unit']}: {path['unit']} {figure(y)}, {best} "
                             f"{figure(peers[best])}")
    return lines


def figure(value) -> str:
    value = 0 if abs(value) < 0.005 else value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
