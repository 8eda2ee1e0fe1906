"""gdb's command `hak block ADDRESS`: which block, slab, heap and arena an address belongs to, and whether the block is
in use.

    gdb -p PID -x docs/block.py -ex 'hak block 0x7f0012345678'      also on a core file

 1. The library describes its own tables (src/observe/inspect.h), so a stripped library is as good as one with debug
    information. The description is found by its magic in the writable pages of the program.
 2. The address leads to the slot's record by arithmetic; the record names the kind, and the kind says what else to
 read.
 3. The program is stopped and none of its functions are called."""
# SPDX-License-Identifier: MIT
import re
import struct

import gdb

MAGIC = b"hakmem inspect\0\0"
STATES = ["free", "in use", "free, kept by a thread"]


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def number(address, size=8):
    return int.from_bytes(read(address, size), "little")


def text(raw):
    return raw.split(b"\0")[0].decode()


def find_inspect():
    """The address of hak_inspect."""
    for line in gdb.execute("info proc mappings", to_string=True).splitlines():
        found = re.match(r"\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s.*/", line)
        if not found:
            continue
        at, end = int(found[1], 16), int(found[2], 16)
        try:
            while (at := gdb.selected_inferior().search_memory(at, end - at, MAGIC)) is not None:
                version, facts, places = struct.unpack("<III", read(at + 16, 12))
                if version == 1 and 0 < facts < 1000 and 0 < places < 100:
                    return at
                at += len(MAGIC)
        except gdb.MemoryError:
            continue
    raise gdb.GdbError("hak: this program does not run HAKMEM")


class Tables:
    """Facts (offset, size) and places (address) by name."""

    def __init__(self):
        at = find_inspect()
        facts, places = struct.unpack("<II", read(at + 20, 8))
        raw = read(number(at + 32), facts * 56)
        self.facts = {text(one): (offset, size) for one, offset, size in struct.iter_unpack("<40sQQ", raw)}
        raw = read(number(at + 40), places * 32)
        self.places = {text(one): address for one, address in struct.iter_unpack("<24sQ", raw)}

    def constant(self, name):
        return self.facts[name][0]

    def field(self, address, name):
        offset, size = self.facts[name]
        return number(address + offset, size)

    def region(self, name):
        return self.field(self.places["region"], "region." + name)

    def heaps(self):
        heap = number(self.places["heap_newest"])
        while heap:
            yield heap
            heap = self.field(heap, "heap.next")


class Slot:
    """The slot that an address lies in, and its record."""

    def __init__(self, tables, address):
        self.tables, self.address = tables, address
        base = tables.region("base")
        if not base <= address < base + tables.field(tables.places["region_use"], "region_use.frontier"):
            raise gdb.GdbError(f"hak: {address:#x} is not in HAKMEM's region")
        self.number = (address - base) // tables.constant("SLOT_BYTES")
        self.start = base + self.number * tables.constant("SLOT_BYTES")
        self.record = tables.region("slabs") + self.number * tables.constant("sizeof slab")

    def get(self, name):
        return self.tables.field(self.record, "slab." + name)

    def kind(self):
        kind = self.get("kind") % self.tables.constant("KIND_IN_ARENA")
        kinds = [name for name in self.tables.facts if name.startswith("KIND_") and self.tables.constant(name) == kind]
        return kinds[0][5:].lower().replace("_", " ") if kinds else "guard page"

    def arena(self):
        """The lines about the arena that has the slot; none if the process has it."""
        tables, constant = self.tables, self.tables.constant
        row, index = divmod(self.number // constant("SUPERSLAB_SLOTS"), 64)
        rows = tables.region("rows") + row * constant("sizeof superslab_row") + constant("superslab_row.superslab")
        arena = tables.field(rows + index * constant("sizeof superslab"), "superslab.arena")
        if arena == 0:
            return []
        chunk, index = divmod(arena, constant("ARENAS_IN_CHUNK"))
        records = number(tables.places["arenas"] + constant("arena_table.chunk") + 8 * chunk)
        record = records + index * constant("sizeof arena")
        offset, size = tables.facts["arena.name"]
        return [f'arena   {arena}, "{text(read(record + offset, size))}"']

    def state(self, index=0):
        """The state of a block that is not tiny, as an index into STATES."""
        states = self.record + self.tables.constant("slab.mid.state")  # where that of a single block is, too
        return number(states + index, 1) & self.tables.constant("BLOCK_STATE")

    def earlier(self, slots):
        return Slot(self.tables, self.start - slots * self.tables.constant("SLOT_BYTES"))

    def classed(self, name):
        size = self.tables.constant("sizeof size_class")
        return self.tables.field(self.tables.places["size_classes"] + self.get("class_id") * size, "size_class." + name)


def first_of_span(slot):
    """The slot whose record describes the span the slot is in."""
    kind, constant = slot.kind(), slot.tables.constant
    if kind in ("mid", "secure small"):
        return slot.earlier(slot.get("first_offset"))
    if kind != "free":
        return slot
    superslab = constant("SUPERSLAB_SLOTS")
    large = range(1, min(constant("LARGE_SLOTS_MAX"), slot.number + 1))
    huge = range(slot.number % superslab, slot.number + 1, superslab)
    for slots in [*large, *huge]:
        first = slot.earlier(slots)
        if first.kind() in ("large", "huge", "secure large") and slot.address < first.start + first.get("single.bytes"):
            return first
    return slot


def list_has(slot, block, wanted):
    """Is the block in the list of free blocks that begins there? It ends where a link leads out of the slot."""
    for _ in range(slot.classed("blocks")):
        if block == wanted:
            return True
        if block % 8 or not slot.start <= block < slot.start + slot.tables.constant("SLOT_BYTES"):
            return False
        block = number(block) ^ slot.tables.region("key")
    return False


def tiny_state(slot, index, block):
    tables, slot_bytes = slot.tables, slot.tables.constant("SLOT_BYTES")
    if index >= slot.get("tiny.carved"):
        return "never handed out"
    first, last = block - slot.start, block - slot.start + slot.classed("block_bytes") - 1
    if any(slot.get("tiny.purged_pages") >> page & 1 for page in range(first // 4096, last // 4096 + 1)):
        return "free, and its page was given back"
    if number(block) >> 32 != (slot.start ^ tables.region("key")) >> 32:
        return "in use"
    if list_has(slot, slot.get("tiny.list"), block):
        return "free, in the slab's list"
    inbox = slot.get("inbox")
    if inbox and list_has(slot, slot.start + inbox % slot_bytes, block):
        return "free, in the slab's inbox"
    for heap in tables.heaps():
        if list_has(slot, number(heap + tables.constant("heap.list") + 8 * slot.get("class_id")), block):
            return f"free, in the list of heap {tables.field(heap, 'heap.number')}"
    return "free, on the way in a thread's outbox"


def secure_state(slot, index):
    constant = slot.tables.constant
    line = constant("SPAN_STATES_LINE") + index // 64
    state = number(slot.get("mid.secure") + line * constant("SPAN_LINE_BYTES") + index % 64 * 2, 2)
    return "never handed out" if state == 0 else "freed" if state & constant("STATE_FREED") else "in use"


def owner_of(slot):
    owner = slot.get("owner")
    heap = owner & ~slot.tables.constant("OWNER_ON_LOAN")
    if heap == 0:
        return "no heap"
    loan = ", on loan" if owner & slot.tables.constant("OWNER_ON_LOAN") else ""
    return f"heap {slot.tables.field(heap, 'heap.number')} ({heap:#x}){loan}"


def describe(address):
    """The lines that `hak block` prints."""
    here = Slot(Tables(), address)
    slot = first_of_span(here)
    kind = slot.kind()
    if kind == "free":
        return [f"block   none: slot {here.number} at {here.start:#x} is free"]
    slab = f"slab    {kind}, slot {slot.number} at {slot.start:#x}"
    if kind in ("large", "huge", "secure large", "guard page"):
        state = "unknown" if kind == "guard page" else STATES[slot.state()]
        single = f"block   {slot.get('single.bytes')} bytes, the only one of its span"
        return [single, f"state   {state}", slab, *slot.arena()]
    block_bytes, start = slot.classed("block_bytes"), slot.start if kind == "tiny" else slot.get("mid.start")
    index = (address - start) // block_bytes
    block = start + index * block_bytes
    if not 0 <= index < slot.classed("blocks"):
        return ["block   none: the address is behind the slab's last block", slab]
    if kind == "tiny":
        state = tiny_state(slot, index, block)
    elif kind == "mid":
        state = STATES[slot.state(index)]
    else:
        state = secure_state(slot, index)
    place = f"number {index} of {slot.classed('blocks')}; the address is {address - block} bytes into it"
    lines = [f"block   {block:#x}, {block_bytes} bytes, {place}", f"state   {state}"]
    lines += [f"{slab}, class {slot.get('class_id')}"]
    return lines + ([f"heap    {owner_of(slot)}"] if kind == "tiny" else []) + slot.arena()


class Hak(gdb.Command):
    """What HAKMEM knows of the program's memory; see `help hak block`."""

    def __init__(self):
        super().__init__("hak", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class HakBlock(gdb.Command):
    """hak block ADDRESS: the block that the address lies in, whether it is in use, its slab, heap and arena."""

    def __init__(self):
        super().__init__("hak block", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError("usage: hak block ADDRESS")
        print("\n".join(describe(int(gdb.parse_and_eval(f"(unsigned long)({argument})")))))


Hak()
HakBlock()
