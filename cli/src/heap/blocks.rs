//! The live blocks of a heap, one by one, and what is in them.
//!
//!  1. Each span's record says how large its blocks are. Which are live, the states beside the record say, or, in a
//!     tiny slab, the blocks themselves: the first word of a free one is a link, whose upper half is that of its slab's
//!     address xor the key. A packed block is a span of its own, from where it begins to where it ends.
//!  2. Slots are copied when they are first needed, without pages that are not there: reading makes nothing resident.
//!     Pages of files, which meshed slabs have, are there although this process may not have touched them.
//!  3. A block has a number; an address anywhere in a live block leads to it by arithmetic.
// SPDX-License-Identifier: MIT

use super::area;
use super::core::Core;
use super::layout::{word, SizeClass};
use super::model::Tier;
use super::patience;
use super::reader::Reader;
use super::remote::{Pagemap, Remote};
use super::spans::{meshed_blocks, secure_states, Pack, Pooled, Region, SlabFacts};
use anyhow::{bail, ensure, Result};
use hakmem_base::proc::page_bytes;
use std::ops::Range;

/// SuperSlabs whose records are read by one call.
const CHUNK: usize = 256;
/// Numbers of blocks, for each of which there are a few bits here: a heap of 128 GiB in blocks of 16 bytes.
const BLOCKS_MAX: usize = 1 << 33;

// ---- copies ----

/// Copies of slots of the region.
pub struct Copied {
    remote: Remote,
    pagemap: Option<Pagemap>,
    base: u64,
    slot_bytes: u64,
    /// Mappings of files, lowest first.
    of_files: Vec<Range<u64>>,
    /// Empty: the slot is zero.
    slots: Vec<Option<Box<[u8]>>>,
    zero: Box<[u8]>,
    held: u64,
    most: u64,
}

/// Half of what this machine has left.
fn spare_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|line| hakmem_base::proc::kilobytes(line, "MemAvailable"));
    free.map_or(1 << 30, |bytes| bytes / 2)
}

/// The parts of a range whose pages pass, by their entries in pagemap, or all of it where the kernel does not tell.
pub fn pages_where(pagemap: Option<&Pagemap>, range: Range<u64>, passes: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
    let page = page_bytes();
    let pages = (range.end - range.start).div_ceil(page);
    let mut entries = vec![0; pages as usize * 8];
    if !pagemap.is_some_and(|pagemap| pagemap.read(range.start / page, &mut entries)) {
        return vec![range];
    }
    let mut found: Vec<Range<u64>> = Vec::new();
    for (number, entry) in entries.chunks_exact(8).enumerate() {
        if passes(word(entry, 0)) {
            let at = range.start + number as u64 * page;
            match found.last_mut().filter(|last| last.end == at) {
                Some(last) => last.end = at + page,
                None => found.push(at..at + page),
            }
        }
    }
    found
}

/// What two ranges share; it may be empty.
pub fn shared(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

impl Copied {
    fn new(remote: Remote, region: &Region, facts: &SlabFacts) -> Result<Copied> {
        let areas = remote.mappings(false)?;
        Ok(Copied {
            pagemap: remote.pagemap(),
            remote,
            base: region.base,
            slot_bytes: facts.slot_bytes,
            of_files: areas.iter().filter(|area| area.inode != 0).map(|area| area.start..area.end).collect(),
            slots: vec![None; region.superslabs * facts.superslab_slots as usize],
            zero: vec![0; facts.slot_bytes as usize].into(),
            held: 0,
            most: spare_memory(),
        })
    }

    fn read(&self, slot: usize) -> Box<[u8]> {
        let start = self.base + slot as u64 * self.slot_bytes;
        let whole = start..start + self.slot_bytes;
        let is_there = |entry: u64| entry & (area::PRESENT | area::SWAPPED) != 0;
        let mut parts = pages_where(self.pagemap.as_ref(), whole.clone(), is_there);
        let first = self.of_files.partition_point(|range| range.end <= start);
        let of_files = self.of_files[first..].iter().take_while(|range| range.start < whole.end);
        parts.extend(of_files.map(|range| shared(range, &whole)));
        let mut bytes = if parts.is_empty() { Vec::new() } else { vec![0; self.slot_bytes as usize] };
        for part in parts {
            // What cannot be read stays zero.
            let _ =
                self.remote.read(part.start, &mut bytes[(part.start - start) as usize..(part.end - start) as usize]);
        }
        bytes.into()
    }

    /// Fails if the time is over: then slots are zero that are not.
    pub fn check(&self) -> Result<()> {
        patience::check(self.remote.pid)
    }

    /// The bytes of a slot.
    pub fn slot(&mut self, slot: usize) -> &[u8] {
        if self.slots[slot].is_none() {
            if self.held > self.most {
                self.slots.fill(None);
                self.held = 0;
            }
            let bytes = self.read(slot);
            self.held += bytes.len() as u64;
            self.slots[slot] = Some(bytes);
        }
        self.slots[slot].as_deref().filter(|bytes| !bytes.is_empty()).unwrap_or(&self.zero)
    }

    /// Copies all slots of these blocks. False: there is no room for that.
    pub fn copy_all(&mut self, blocks: &Blocks) -> bool {
        for slot in blocks.slots() {
            if self.slots[slot].is_none() && self.held + self.slot_bytes > self.most {
                return false;
            }
            self.slot(slot);
        }
        true
    }

    /// Calls `look` with the bytes from this address on, slot by slot.
    pub fn each_part(&mut self, address: u64, bytes: u64, mut look: impl FnMut(&[u8])) {
        let (mut at, end) = (address - self.base, address - self.base + bytes);
        while at < end {
            let (slot, from) = (at / self.slot_bytes, at % self.slot_bytes);
            let to = self.slot_bytes.min(from + end - at);
            look(&self.slot(slot as usize)[from as usize..to as usize]);
            at += to - from;
        }
    }
}

// ---- blocks ----

#[derive(Debug, Clone, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub fn of(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }

    pub fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Was it not set before?
    pub fn set(&mut self, at: usize) -> bool {
        let before = self.has(at);
        self.0[at / 64] |= 1 << (at % 64);
        !before
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().enumerate().filter(|(_, &word)| word != 0);
        words.flat_map(|(at, &word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * 64 + bit))
    }
}

/// Neighbouring blocks of one size.
#[derive(Debug, Clone, Copy)]
struct Span {
    tier: Tier,
    /// The address of block 0.
    start: u64,
    block_bytes: u64,
    blocks: u64,
    /// The number of its block 0.
    first: usize,
}

/// A block, whose number is its place in the heap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    pub number: usize,
    pub address: u64,
    pub bytes: u64,
    pub tier: Tier,
}

#[derive(Debug, Default)]
pub struct Blocks {
    base: u64,
    slot_bytes: u64,
    /// Lowest first.
    spans: Vec<Span>,
    /// The last span that has a part of each slot, + 1.
    of_slot: Vec<u32>,
    live: Bits,
    /// ACTIVE, and no span of blocks.
    pub others: Vec<Range<u64>>,
}

impl Blocks {
    /// How many numbers there are, of live and of free blocks.
    pub fn count(&self) -> usize {
        self.spans.last().map_or(0, |span| span.first + span.blocks as usize)
    }

    fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.of_slot.iter().enumerate().filter(|(_, &span)| span != 0).map(|(slot, _)| slot)
    }

    /// The live block that the address is in.
    pub fn find(&self, address: u64) -> Option<Block> {
        let slot = address.wrapping_sub(self.base) / self.slot_bytes.max(1);
        let mut last = self.of_slot.get(slot as usize)?.checked_sub(1)? as usize;
        while self.spans[last].start > address {
            last = last.checked_sub(1)?;
        }
        let span = &self.spans[last];
        let index = address.checked_sub(span.start)? / span.block_bytes;
        let found = index < span.blocks && self.live.has(span.first + index as usize);
        found.then(|| span.block(index))
    }

    pub fn block(&self, number: usize) -> Block {
        let span = &self.spans[self.spans.partition_point(|span| span.first <= number) - 1];
        span.block((number - span.first) as u64)
    }

    /// All that are live, by their addresses.
    pub fn live(&self) -> impl Iterator<Item = Block> + '_ {
        self.live.iter().map(|number| self.block(number))
    }
}

impl Span {
    fn block(&self, index: u64) -> Block {
        let address = self.start + index * self.block_bytes;
        Block { number: self.first + index as usize, address, bytes: self.block_bytes, tier: self.tier }
    }
}

// ---- from the records ----

struct Finder<'a> {
    reader: &'a Reader,
    facts: &'a SlabFacts,
    region: Region,
    copied: Copied,
    blocks: Blocks,
    /// Where the packed block begins that goes on in this slot.
    packed: Option<(u64, usize)>,
}

impl Reader {
    /// All live blocks.
    pub fn blocks(&self) -> Result<(Blocks, Copied)> {
        if let Some(lack) = self.remote.core().and_then(Core::lacks_shared) {
            bail!("{lack}: what blocks hold is not known");
        }
        let (region, facts) = (self.region()?, &self.layout.slab);
        let slots = region.superslabs * facts.superslab_slots as usize;
        let blocks =
            Blocks { base: region.base, slot_bytes: facts.slot_bytes, of_slot: vec![0; slots], ..Blocks::default() };
        let copied = Copied::new(self.remote.clone(), &region, facts)?;
        let pooled = self.pooled(&region)?;
        let mut finder = Finder { reader: self, facts, region, copied, blocks, packed: None };
        finder.look_at(&pooled)?;
        Ok((finder.blocks, finder.copied))
    }
}

impl Finder<'_> {
    fn look_at(&mut self, pooled: &[Pooled]) -> Result<()> {
        let (slots, bytes) = (self.facts.superslab_slots as usize, self.facts.slab_size as usize);
        let mut next = 0; // what lies before belongs to a span
        for first in (0..pooled.len()).step_by(CHUNK) {
            let some = &pooled[first..pooled.len().min(first + CHUNK)];
            let at = self.region.slabs + (first * slots * bytes) as u64;
            let records = self.reader.remote.read_vec(at, some.len() * slots * bytes)?;
            for (number, record) in records.chunks_exact(bytes).enumerate() {
                let slot = first * slots + number;
                if slot >= next && some[number / slots].active() >> (slot % slots) & 1 != 0 {
                    next = slot + self.look_at_span(slot, record);
                    self.copied.check()?;
                    let (pid, count) = (self.reader.pid(), self.blocks.count());
                    ensure!(count <= BLOCKS_MAX, "PID {pid}: its heap has too many blocks to be read");
                }
            }
        }
        Ok(())
    }

    /// Returns how many slots it has.
    fn look_at_span(&mut self, slot: usize, record: &[u8]) -> usize {
        let facts = self.facts;
        let start = self.region.base + slot as u64 * facts.slot_bytes;
        if facts.kind_of(record) == facts.kind_packed {
            match Pack::read(&self.reader.remote, facts, &self.region, slot) {
                Some(pack) => self.look_at_pieces(slot, start, &pack),
                None => self.blocks.others.push(start..start + facts.slot_bytes),
            }
            return 1;
        }
        let left = self.blocks.of_slot.len() - slot;
        let slots = facts.slots_of(record).unwrap_or(1).clamp(1, left as u64);
        let room = slots * facts.slot_bytes;
        let (bytes, lead) = (facts.bytes.of(record).min(room), facts.lead_bytes.of(record) % facts.slot_bytes);
        let first = self.blocks.count();
        let one = |tier, start| Span { tier, start, block_bytes: bytes, blocks: 1, first };
        let class = |sizes: &[SizeClass]| sizes.get(facts.class_id.of(record) as usize).copied();
        let class = |tier| {
            class(&self.reader.sizes).map(|size| Span {
                tier,
                start,
                block_bytes: size.block_bytes,
                blocks: size.blocks,
                first,
            })
        };
        let span = match facts.kind_of(record) {
            kind if [facts.kind_tiny, facts.kind_meshed].contains(&kind) => class(Tier::Tiny),
            kind if kind == facts.kind_mid => class(Tier::Mid),
            kind if kind == facts.kind_large => Some(one(Tier::Large, start)),
            kind if kind == facts.kind_huge => Some(one(Tier::Huge, start)),
            kind if kind == facts.kind_guard_page => Some(one(Tier::Large, start + lead)),
            kind if kind == facts.kind_secure_small => {
                let (start, block_bytes) = (facts.start.of(record), facts.block_bytes.of(record));
                let blocks = facts.blocks.of(record);
                Some(Span { tier: Tier::Secure, start, block_bytes, blocks, first })
            }
            kind if kind == facts.kind_secure_large => Some(one(Tier::Secure, start + lead)),
            _ => None,
        };
        let fits = |span: &Span| {
            let end = span.block_bytes.checked_mul(span.blocks).and_then(|bytes| span.start.checked_add(bytes));
            let has_states = span.tier != Tier::Secure || span.blocks <= facts.secure_blocks_max();
            span.block_bytes > 0 && has_states && span.start >= start && end.is_some_and(|end| end <= start + room)
        };
        match span.filter(fits) {
            Some(span) => self.add(slot, slots as usize, span, record),
            None => self.blocks.others.push(start..start + room),
        }
        slots as usize
    }

    fn look_at_pieces(&mut self, slot: usize, start: u64, pack: &Pack) {
        let mut begin = self.packed.filter(|&(_, next)| next == slot).map(|(begin, _)| begin);
        for piece in 0..64 {
            let at = start + piece * self.facts.piece_bytes;
            if pack.begins >> piece & 1 != 0 {
                begin = Some(at);
            }
            if let Some(begin) = begin.take_if(|_| pack.ends >> piece & 1 != 0) {
                let (block_bytes, first) = (at + self.facts.piece_bytes - begin, self.blocks.count());
                let slots = ((begin - self.region.base) / self.facts.slot_bytes) as usize..slot + 1;
                self.push(slots, Span { tier: Tier::Large, start: begin, block_bytes, blocks: 1, first }, &[true]);
            }
        }
        self.packed = begin.map(|begin| (begin, slot + 1));
    }

    fn add(&mut self, slot: usize, slots: usize, span: Span, record: &[u8]) {
        let live: Vec<bool> = match span.tier {
            Tier::Tiny if self.facts.kind_of(record) == self.facts.kind_meshed => self.live_meshed(record),
            Tier::Tiny => self.live_tiny(slot, &span, record),
            Tier::Huge => vec![true],
            Tier::Secure if self.facts.kind_of(record) == self.facts.kind_secure_small => {
                self.live_secure(&span, record)
            }
            Tier::Large | Tier::Secure => vec![self.is_live(self.facts.single_state.of(record))],
            Tier::Mid => {
                (0..span.blocks as usize).map(|i| self.is_live(self.facts.state.element(record, i, 1))).collect()
            }
        };
        self.push(slot..slot + slots, span, &live);
    }

    fn push(&mut self, slots: Range<usize>, span: Span, live: &[bool]) {
        let blocks = &mut self.blocks;
        blocks.spans.push(span);
        let number = blocks.spans.len() as u32;
        blocks.of_slot[slots].fill(number);
        blocks.live.0.resize(blocks.count().div_ceil(64), 0);
        for (index, _) in live.iter().take(span.blocks as usize).enumerate().filter(|(_, &live)| live) {
            blocks.live.set(span.first + index);
        }
    }

    fn is_live(&self, state: u64) -> bool {
        state & self.facts.block_state == self.facts.block_live
    }

    fn live_tiny(&mut self, slot: usize, span: &Span, record: &[u8]) -> Vec<bool> {
        let facts = self.facts;
        let (carved, purged) = (facts.carved.of(record).min(span.blocks), facts.purged_pages.of(record));
        let page_bytes = self.region.page_bytes;
        let mark = (span.start ^ self.region.key) >> 32;
        let bytes = self.copied.slot(slot);
        let is_live = |index: u64| {
            let (from, to) = (index * span.block_bytes, (index + 1) * span.block_bytes);
            let gone = (from / page_bytes..to.div_ceil(page_bytes)).any(|page| purged >> page.min(63) & 1 != 0);
            !gone && word(bytes, from as usize) >> 32 != mark
        };
        (0..carved).map(is_live).collect()
    }

    fn live_meshed(&self, record: &[u8]) -> Vec<bool> {
        meshed_blocks(&self.reader.remote, self.facts, self.region.meshed, record).unwrap_or_default()
    }

    fn live_secure(&self, span: &Span, record: &[u8]) -> Vec<bool> {
        let facts = self.facts;
        let states = secure_states(&self.reader.remote, facts, facts.secure.of(record), span.blocks);
        states.unwrap_or_default().iter().map(|state| *state != 0 && state & facts.state_freed == 0).collect()
    }
}
