#!/usr/bin/env python3
"""trace.py: packs the recordings of bench/record.c, and reads packed traces.

  trace.py pack RAW FILE     writes the packed trace to FILE
  trace.py show FILE         prints a trace, one event on each line: THREAD CALL …, blocks numbered from 0 by birth
  trace.py sum FILE          prints a trace's figures, the same as `replay` does

A packed trace is the line "HAKTRACE 1", the numbers of threads, events and blocks, then five columns, each preceded by
its length in bytes. All numbers are varints: seven bits a byte, low bits first, the high bit set on all but the last.
  operations   a byte each: Op, + 8 if another thread goes on
  threads      for each such byte the thread's number; for each BIRTH, after that, the child's
  sizes        for each MALLOC, CALLOC, ALIGNED, REALLOC: the requested bytes
  alignments   for each ALIGNED: its log2
  ranks        for each REALLOC, FREE: 0 for NULL, else 1 + the number of live blocks younger than the one that ends
Columns, and ranks instead of numbers, help xz to find repetitions: 0.5-3 bits a call.
"""
# SPDX-License-Identifier: MIT
import struct
import sys
from enum import IntEnum
from typing import Iterator, NamedTuple

sys.dont_write_bytecode = True
MAGIC = b"HAKTRACE 1\n"
SWITCH = 8


class Op(IntEnum):
    """The same numbers as in record.c and replay.c."""
    MALLOC = 1
    CALLOC = 2
    ALIGNED = 3
    REALLOC = 4
    FREE = 5
    BIRTH = 6
    END = 7


class Event(NamedTuple):
    """A call. `new` is a block that begins and `old` one that ends: addresses in a raw file, otherwise numbers."""
    op: Op
    thread: int
    size: int = 0
    log2_alignment: int = 0
    old: int | None = None
    new: int | None = None
    child: int = 0


class TraceError(Exception):
    """A malformed file."""


class LiveBlocks:
    """Counts live blocks by number, in a Fenwick tree."""

    def __init__(self, most: int):
        self.sums = [0] * (most + 1)
        self.count = 0
        self.top = 1 << most.bit_length()

    def add(self, block: int, change: int):
        self.count += change
        at = block + 1
        while at < len(self.sums):
            self.sums[at] += change
            at += at & -at

    def younger(self, block: int) -> int:
        """Returns how many live blocks have a higher number."""
        at, before = block + 1, 0
        while at:
            before += self.sums[at]
            at &= at - 1
        return self.count - before

    def of_rank(self, younger: int) -> int:
        """Returns the live block for which younger() returns this number."""
        left, at, step = self.count - younger, 0, self.top
        while step:
            if at + step < len(self.sums) and self.sums[at + step] < left:
                at += step
                left -= self.sums[at]
            step >>= 1
        return at


# ---- raw files ----

def raw_read(path: str) -> Iterator[Event]:
    with open(path, "rb") as file:
        while record := file.read(32):
            op, log2_alignment, thread, child, size, old, new = struct.unpack("<BBHIQQQ", record)
            if op == 0:
                return
            yield Event(Op(op), thread, size, log2_alignment, old or None, new or None, child)


def raw_number(path: str) -> tuple[list[Event], int]:
    """Returns the events with blocks numbered, and how many ends of blocks unknown to the recorder were left out.

    A thread whose start was not recorded begins where it first appears; one that ended ends after its last call.
    """
    events = list(raw_read(path))
    last = {event.thread: index for index, event in enumerate(events)}
    ended = {event.thread for event in events if event.op == Op.END}
    born, live, numbered, blocks, unknown = {0}, {}, [], 0, 0
    for index, event in enumerate(events):
        if event.thread not in born:
            born.add(event.thread)
            numbered.append(Event(Op.BIRTH, numbered[-1].thread, child=event.thread))
        if event.op == Op.BIRTH:
            born.add(event.child)
        if event.old is not None:
            old = live.pop(event.old, None)
            unknown += old is None
            event = event._replace(old=old, op=Op.MALLOC if old is None and event.op == Op.REALLOC else event.op)
        if event.new is not None:
            if event.new in live:
                raise TraceError(f"{path}: record {index}: a block begins at {event.new:#x}, where one lives")
            live[event.new] = blocks
            event = event._replace(new=blocks)
            blocks += 1
        if event.op != Op.END and not (event.op == Op.FREE and event.old is None and events[index].old is not None):
            numbered.append(event)
        if event.thread in ended and last[event.thread] == index:
            numbered.append(Event(Op.END, event.thread))
    return numbered, unknown


# ---- packed files ----

def varint_append(column: bytearray, number: int):
    while number > 127:
        column.append(number & 127 | 128)
        number >>= 7
    column.append(number)


class Reader:
    """Takes varints and bytes from the front of a byte string."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise TraceError("the trace is cut short")
        return self.data[self.at - count:self.at]

    def number(self) -> int:
        value = shift = 0
        while (byte := self.take(1)[0]) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift


def pack(events: list[Event]) -> bytes:
    blocks = sum(event.new is not None for event in events)
    threads = 1 + max((max(event.thread, event.child) for event in events), default=0)
    columns = operations, switches, sizes, alignments, ranks = [bytearray() for _ in range(5)]
    live, thread = LiveBlocks(blocks), 0
    for event in events:
        operations.append(event.op | (SWITCH if event.thread != thread else 0))
        if event.thread != thread:
            varint_append(switches, event.thread)
        thread = event.thread
        if event.op == Op.BIRTH:
            varint_append(switches, event.child)
        if event.op == Op.ALIGNED:
            varint_append(alignments, event.log2_alignment)
        if event.op in (Op.REALLOC, Op.FREE):
            varint_append(ranks, 0 if event.old is None else 1 + live.younger(event.old))
        if event.old is not None:
            live.add(event.old, -1)
        if event.new is not None:
            varint_append(sizes, event.size)
            live.add(event.new, 1)
    packed = bytearray(MAGIC)
    for number in (threads, len(events), blocks):
        varint_append(packed, number)
    for column in columns:
        varint_append(packed, len(column))
        packed += column
    return bytes(packed)


def unpack(data: bytes) -> Iterator[Event]:
    if not data.startswith(MAGIC):
        raise TraceError("not a packed trace")
    reader = Reader(data[len(MAGIC):])
    _, _, blocks = (reader.number() for _ in range(3))
    operations, switches, sizes, alignments, ranks = (Reader(reader.take(reader.number())) for _ in range(5))
    live, thread, block = LiveBlocks(blocks), 0, 0
    for byte in operations.data:
        op = Op(byte & 7)
        thread = switches.number() if byte & SWITCH else thread
        child = switches.number() if op == Op.BIRTH else 0
        rank = ranks.number() if op in (Op.REALLOC, Op.FREE) else 0
        old = live.of_rank(rank - 1) if rank else None
        if old is not None:
            live.add(old, -1)
        if op in (Op.MALLOC, Op.CALLOC, Op.ALIGNED, Op.REALLOC):
            live.add(block, 1)
            yield Event(op, thread, sizes.number(), alignments.number() if op == Op.ALIGNED else 0, old, block)
            block += 1
        else:
            yield Event(op, thread, old=old, child=child)


# ---- printing ----

def line(event: Event) -> str:
    old = "NULL" if event.old is None else f"#{event.old}"
    text = {
        Op.MALLOC: f"malloc({event.size}) = #{event.new}",
        Op.CALLOC: f"calloc({event.size}) = #{event.new}",
        Op.ALIGNED: f"aligned({1 << event.log2_alignment}, {event.size}) = #{event.new}",
        Op.REALLOC: f"realloc({old}, {event.size}) = #{event.new}",
        Op.FREE: f"free({old})",
        Op.BIRTH: f"birth of {event.child}",
        Op.END: "end",
    }[event.op]
    return f"{event.thread} {text}"


def figures(events: list[Event]) -> dict[str, int]:
    sizes, live, peak = {}, 0, 0
    for event in events:
        live -= sizes.pop(event.old, 0)
        if event.new is not None:
            sizes[event.new] = event.size
            live += event.size
        peak = max(peak, live)
    return {"threads": 1 + sum(event.op == Op.BIRTH for event in events),
            "operations": sum(event.op not in (Op.BIRTH, Op.END) for event in events),
            "blocks": sum(event.new is not None for event in events),
            "live_peak_bytes": peak, "live_end_bytes": live, "live_end_blocks": len(sizes)}


def main(words: list[str]) -> int:
    if len(words) == 3 and words[0] == "pack":
        events, unknown = raw_number(words[1])
        with open(words[2], "wb") as file:
            file.write(pack(events))
        left_out = f"; {unknown} ends of blocks older than the recording left out" if unknown else ""
        print(f"{words[2].rpartition('/')[2]}: {figures(events)['operations']} calls{left_out}")
    elif len(words) == 2 and words[0] in ("show", "sum"):
        with open(words[1], "rb") as file:
            events = list(unpack(file.read()))
        lines = map(line, events) if words[0] == "show" else (f"{k}: {v}" for k, v in figures(events).items())
        print("\n".join(lines))
    else:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, TraceError) as error:
        print(f"trace.py: {error}", file=sys.stderr)
        sys.exit(1)
