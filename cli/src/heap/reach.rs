//! Which live blocks can the program still reach? Those that nothing points to are lost.
//!
//!  1. Roots are the registers of all threads, their stacks from the stack pointer on, and every page outside the heap
//!     that the program has written: variables, thread-local storage, mappings. Stacks are those that the kernel and
//!     libc made; what programs made themselves is looked through as a whole, for other things may lie there.
//!  2. Each aligned word that is an address anywhere in a live block counts as a pointer, and so on from block to
//!     block. A number that looks like an address hides a leak; a pointer that is kept xor something, or in a file,
//!     makes one up.
//!  3. Some of the lost blocks are held by other lost ones. A block that no other one holds is lost directly; of blocks
//!     that hold each other in a circle, the first is.
//!
//! The process stands still while roots and heap are copied, or, where memory lacks for that, until the end.
// SPDX-License-Identifier: MIT

use super::area::{self, Area};
use super::blocks::{pages_where, shared, Bits, Block, Blocks, Copied};
use super::patience;
use super::reader::Reader;
use super::remote::Remote;
use super::stopped::Stopped;
use anyhow::Result;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Read at once.
const PIECE: u64 = 4 << 20;
/// Below the stack pointer a function may keep something all the same.
const RED_ZONE: u64 = 128;
const ADDRESS_MAX: u64 = 1 << 57;

/// A block that the program cannot reach.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    pub block: Block,
    /// No other lost block points to it, but perhaps in a circle.
    pub direct: bool,
    /// The lost blocks that only this one leads to, or this one first, and their bytes.
    pub holds: u64,
    pub holds_bytes: u64,
}

/// What was found.
pub struct Search {
    pub lost: Vec<Lost>,
    pub live_blocks: u64,
    pub live_bytes: u64,
    /// Bytes outside the heap that were looked through.
    pub root_bytes: u64,
    pub threads: usize,
    pub stopped: Duration,
    pub blocks: Blocks,
    pub copied: Copied,
}

struct Marker {
    blocks: Blocks,
    copied: Copied,
    marked: Bits,
    /// Marked, and not looked through.
    waiting: Vec<Block>,
    root_bytes: u64,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

impl Marker {
    fn mark(&mut self, words: impl Iterator<Item = u64>) {
        for word in words {
            if let Some(block) = self.blocks.find(word).filter(|block| self.marked.set(block.number)) {
                self.waiting.push(block);
            }
        }
    }

    /// Follows every block that waits, and calls `found` for each block they lead to.
    fn follow(&mut self, mut found: impl FnMut(&Block)) -> Result<()> {
        let mut next = Vec::new();
        while let Some(block) = self.waiting.pop() {
            let (blocks, marked) = (&self.blocks, &mut self.marked);
            self.copied.each_part(block.address, block.bytes, |bytes| {
                let pointed = words(bytes).filter_map(|word| blocks.find(word));
                next.extend(pointed.filter(|one| marked.set(one.number)));
            });
            self.copied.check()?;
            next.iter().for_each(&mut found);
            self.waiting.append(&mut next);
        }
        Ok(())
    }

    fn root(&mut self, remote: &Remote, range: Range<u64>) -> Result<()> {
        for at in (range.start..range.end).step_by(PIECE as usize) {
            patience::check(remote.pid)?;
            let mut bytes = vec![0; PIECE.min(range.end - at) as usize];
            if remote.read(at, &mut bytes).is_ok() {
                self.root_bytes += bytes.len() as u64;
                self.mark(words(&bytes));
            }
        }
        Ok(())
    }

    /// The lost blocks. Those of them that others hold are followed from these.
    fn lost(&mut self) -> Result<Vec<Lost>> {
        let numbers: Vec<usize> =
            self.blocks.live().map(|block| block.number).filter(|&one| !self.marked.has(one)).collect();
        let mut held = Bits::of(self.blocks.count());
        for &number in &numbers {
            let (blocks, block) = (&self.blocks, self.blocks.block(number));
            self.copied.each_part(block.address, block.bytes, |bytes| {
                let pointed = words(bytes).filter_map(|word| blocks.find(word));
                for one in pointed.filter(|one| one.number != number) {
                    held.set(one.number);
                }
            });
            self.copied.check()?;
        }
        let mut lost = Vec::new();
        let (heads, rest): (Vec<usize>, Vec<usize>) = numbers.iter().partition(|&&number| !held.has(number));
        for number in heads.into_iter().chain(rest) {
            if self.marked.set(number) {
                let block = self.blocks.block(number);
                let (at, mut holds, mut holds_bytes) = (lost.len(), 0, 0);
                self.waiting.push(block);
                lost.push(Lost { block, direct: true, holds, holds_bytes });
                self.follow(|block| {
                    (holds, holds_bytes) = (holds + 1, holds_bytes + block.bytes);
                    lost.push(Lost { block: *block, direct: false, holds: 0, holds_bytes: 0 });
                })?;
                (lost[at].holds, lost[at].holds_bytes) = (holds, holds_bytes);
            }
        }
        Ok(lost)
    }
}

/// What is left of a range without others.
fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    others.iter().fold(vec![range], |parts, other| {
        let cut = |part: Range<u64>| {
            [part.start..part.end.min(other.start.max(part.start)), part.start.max(other.end.min(part.end))..part.end]
        };
        parts.into_iter().flat_map(cut).filter(|part| part.start < part.end).collect()
    })
}

/// Where a pointer may be outside the heap.
fn is_root(area: &Area) -> bool {
    let is_device =
        area.name.starts_with("/dev/") && !area.name.starts_with("/dev/shm/") && !area.name.starts_with("/dev/zero");
    let is_kernels = area.name.starts_with("[v");
    area.access.starts_with('r') && !is_device && !is_kernels && area.end <= ADDRESS_MAX
}

/// A page that was written: one that no file has, or one in shared memory.
fn is_written(area: &Area, entry: u64) -> bool {
    let is_there = entry & (area::PRESENT | area::SWAPPED) != 0;
    is_there && (entry & area::OF_A_FILE == 0 || area.access.starts_with("rw-s"))
}

fn is_guard(before: &Area, area: &Area) -> bool {
    before.end == area.start && before.access.starts_with("---")
}

/// Is this the used part of a stack that libc made for a thread? The thread's descriptor is at its end, and says in two
/// words where the stack begins, with its guard, and how long it is: in glibc as in musl.
fn is_stack_of_libc(remote: &Remote, guard: &Area, used: Range<u64>) -> bool {
    let (page, start) = (hakmem_base::proc::page_bytes(), used.start.next_multiple_of(8));
    let bytes = remote.read_vec(start, used.end.saturating_sub(start) as usize).unwrap_or_default();
    let words: Vec<u64> = words(&bytes).collect();
    (start..).step_by(8).zip(words.windows(2)).any(|(at, pair)| {
        let (begin, length) = (pair[0], pair[1]);
        let is_whole = (guard.start..guard.end).contains(&begin) && begin % page == 0 && length % page == 0;
        is_whole && begin.checked_add(length).is_some_and(|end| (at..=used.end).contains(&end))
    })
}

impl Reader {
    /// Addresses of blocks that lie there do not hold the blocks.
    fn own_tables(&self) -> Result<Vec<Range<u64>>> {
        let (region, facts) = (self.region()?, &self.layout.slab);
        let end = region.base + region.superslabs as u64 * facts.superslab_bytes;
        let variables = self.layout.places.region;
        Ok(vec![
            region.tables..end,
            variables..variables + self.layout.region.region_size,
            self.samples_table()?,
            self.span_table(&region)?,
        ])
    }

    fn mark_roots(&self, marker: &mut Marker, stopped: &Stopped) -> Result<()> {
        let (remote, own) = (&self.remote, self.own_tables()?);
        let (areas, pagemap) = (remote.mappings(false)?, remote.pagemap());
        marker.mark(stopped.registers.iter().copied());
        for (number, area) in areas.iter().enumerate().filter(|(_, area)| is_root(area)) {
            let guard = number.checked_sub(1).map(|before| &areas[before]).filter(|before| is_guard(before, area));
            let inside = stopped.stack_pointers.iter().filter(|&&at| (area.start..area.end).contains(&at));
            // What lies below the stack pointer is over, unless the mapping is more than a stack.
            let is_stack = |&&at: &&u64| {
                area.name == "[stack]" || guard.is_some_and(|guard| is_stack_of_libc(remote, guard, at..area.end))
            };
            let begin = inside.min().filter(is_stack);
            let start = begin.map_or(area.start, |at| area.start.max(at.saturating_sub(RED_ZONE) & !7));
            let mut ranges = without(start..area.end, &own);
            // A slot may have several mappings, of which each has a part.
            let others = marker.blocks.others.iter().map(|other| shared(other, &(area.start..area.end)));
            ranges.extend(others.filter(|part| !part.is_empty()));
            for range in ranges {
                for at in (range.start..range.end).step_by(1 << 30) {
                    let range = at..range.end.min(at + (1 << 30));
                    let page = hakmem_base::proc::page_bytes();
                    let whole = range.start & !(page - 1)..range.end;
                    for part in pages_where(pagemap.as_ref(), whole, |entry| is_written(area, entry)) {
                        marker.root(remote, part.start.max(range.start)..part.end.min(range.end))?;
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn search(reader: &Reader) -> Result<Search> {
    let begun = Instant::now();
    let stopped = Stopped::stop(&reader.remote)?;
    let (blocks, copied) = reader.blocks()?;
    let (marked, threads) = (Bits::of(blocks.count()), stopped.stack_pointers.len());
    let mut marker = Marker { blocks, copied, marked, waiting: Vec::new(), root_bytes: 0 };
    reader.mark_roots(&mut marker, &stopped)?;
    let stopped = if marker.copied.copy_all(&marker.blocks) { None } else { Some(stopped) };
    let mut time = begun.elapsed();
    marker.follow(|_| ())?;
    let (mut live_blocks, mut live_bytes) = (0, 0);
    marker.blocks.live().for_each(|block| (live_blocks, live_bytes) = (live_blocks + 1, live_bytes + block.bytes));
    let lost = marker.lost()?;
    if stopped.is_some() {
        time = begun.elapsed();
    }
    drop(stopped);
    let Marker { blocks, copied, root_bytes, .. } = marker;
    Ok(Search { lost, live_blocks, live_bytes, root_bytes, threads, stopped: time, blocks, copied })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else what functions left on the stacks of other threads hides leaks, or what a program keeps beside stacks of
    /// its own is called lost.
    #[test]
    fn stacks_of_libc_are_told_from_others() {
        let is_stack = |at: u64| {
            let me = Remote::open(std::process::id() as hakmem_base::proc::Pid).unwrap();
            let areas = me.mappings(false).unwrap();
            let number = areas.iter().position(|area| (area.start..area.end).contains(&at)).unwrap();
            is_guard(&areas[number - 1], &areas[number])
                && is_stack_of_libc(&me, &areas[number - 1], at..areas[number].end)
        };
        let on_stack = move || {
            let local = 0;
            is_stack(std::ptr::from_ref(std::hint::black_box(&local)) as u64)
        };
        assert!(std::thread::spawn(on_stack).join().unwrap());
        let (bytes, guard, access) = (1 << 20, 64 << 10, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: memory of its own, which stays mapped.
        let own = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
            assert_eq!(libc::mprotect(at, guard, libc::PROT_NONE), 0);
            at as u64
        };
        assert!(!is_stack(own + guard as u64 + 4096));
    }

    #[test]
    fn ranges_are_cut_out() {
        let cut = |start, end, own: &[Range<u64>]| {
            let parts = without(start..end, own).into_iter();
            parts.map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        let own = [10..20, 15..30, 40..50];
        assert_eq!(cut(0, 60, &own), [(0, 10), (30, 40), (50, 60)]);
        assert_eq!(cut(12, 18, &own), []);
        assert_eq!(cut(25, 45, &own), [(30, 40)]);
        assert_eq!(cut(60, 70, &own), [(60, 70)]);
    }
}
