//! A process that runs HAKMEM, and its heap at one moment.
//!
//! A snapshot is taken in this order: pool words, what the kernel says of mappings and pages, records, then heaps. What
//! changes meanwhile shifts bytes from one term to another; each page is counted once.

use super::layout::{word, Layout};
use super::model::*;
use super::remote::{Area, Moving, Remote};
use super::residency::{Residency, Wanted};
use super::spans::{facts, Census, Region, SizeClass, SlabFacts};
use super::{finding, rest, steer};
use crate::proc::{self, Pid};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

const HEAPS_MOST: usize = 1 << 17;
const SUPERSLABS_PER_ROW: usize = 64;
/// At a program whose start is not over: the dynamic linker needs some milliseconds.
const ATTEMPTS: usize = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

facts! {
    /// What is needed of `struct heap` and its like.
    HeapFacts {
        fields: list = "heap.list", owned_slabs = "heap.owned_slabs", outbox = "heap.outbox", ring = "heap.ring",
            pool = "heap.pool", counters = "pool_client.counters", number = "heap.number", in_use = "heap.in_use",
            next = "heap.next", purge_seen = "heap.purge_seen", outbox_slab = "outbox_entry.slab",
            outbox_blocks = "outbox_entry.blocks", ring_blocks = "ring.blocks", ring_block_kib = "ring.block_kib";
        constants: heap_size = "sizeof heap", outbox_entries = "OUTBOX_ENTRIES", outbox_entry_size = "sizeof outbox_entry",
            ring_classes = "RING_CLASSES", counter_count = "COUNTER_COUNT";
    }
}

facts! {
    RegionFacts {
        fields: base = "region.base", window = "region.window", slabs = "region.slabs", key = "region.key",
            rows = "region.rows", heaps = "region.heaps", superslabs_max = "region.superslabs_max",
            superslabs = "region_use.superslabs", word = "superslab.word", huge = "superslab.huge";
        constants: superslab_size = "sizeof superslab", row_size = "sizeof superslab_row";
    }
}

pub struct Target {
    pub(super) remote: Remote,
    pub(super) layout: Layout,
    pub(super) heap_facts: HeapFacts,
    region_facts: RegionFacts,
    slab_facts: SlabFacts,
    sizes: Vec<SizeClass>,
    /// Names and help.
    counters: Vec<(String, String)>,
    pub(super) options: Vec<steer::OptionEntry>,
    /// File that the library is in.
    pub file: String,
}

/// A thread's state, as bytes.
pub(super) struct HeapRecord {
    pub address: u64,
    pub bytes: Vec<u8>,
}

impl Target {
    /// Finds HAKMEM in the process.
    pub fn attach(pid: Pid) -> Result<Target> {
        for _ in 0..ATTEMPTS {
            match Target::find(pid) {
                Err(error) if error.is::<Moving>() => std::thread::sleep(BETWEEN_ATTEMPTS),
                outcome => return outcome,
            }
        }
        Target::find(pid)
    }

    fn find(pid: Pid) -> Result<Target> {
        let remote = Remote::open(pid)?;
        let areas = remote.mappings(false)?;
        if let Some(area) = areas.iter().find(|area| area.access.starts_with('r')) {
            remote.read(area.start, &mut [0])?; // may it be read at all?
        }
        let found = finding::find(&remote, &areas);
        if found.is_empty() {
            match finding::other_malloc(&remote, &areas)? {}
        }
        // Of several copies the one that has a heap.
        let mut opened: Vec<Result<Target>> = found.iter().map(|found| Target::open(remote, found)).collect();
        let serving = opened.iter().position(|target| target.as_ref().is_ok_and(Target::is_serving));
        opened.swap_remove(serving.unwrap_or(0))
    }

    fn open(remote: Remote, found: &finding::Found) -> Result<Target> {
        let layout = Layout::read(&remote, found.inspect)?;
        let mut target = Target {
            heap_facts: HeapFacts::of(&layout)?,
            region_facts: RegionFacts::of(&layout)?,
            slab_facts: SlabFacts::of(&layout)?,
            sizes: sizes(&remote, &layout)?,
            counters: Vec::new(),
            options: steer::entries(&remote, &layout)?,
            file: found.file.clone(),
            remote,
            layout,
        };
        target.counters = target.counter_names()?;
        Ok(target)
    }

    pub fn pid(&self) -> Pid {
        self.remote.pid
    }

    /// Of the library.
    pub fn version(&self) -> &str {
        &self.layout.version
    }

    /// Has anything been allocated from it?
    pub fn is_serving(&self) -> bool {
        self.region().is_ok_and(|region| region.superslabs > 0)
    }

    fn counter_names(&self) -> Result<Vec<(String, String)>> {
        let count = self.heap_facts.counter_count as usize;
        let texts = |place: &str| -> Result<Vec<String>> {
            let pointers = self.remote.read_vec(self.layout.place(place)?, count * 8)?;
            pointers.chunks_exact(8).map(|pointer| self.remote.text(word(pointer, 0))).collect()
        };
        Ok(texts("counter_names")?.into_iter().zip(texts("counter_help")?).collect())
    }

    fn region(&self) -> Result<Region> {
        let bytes = self.remote.read_vec(self.layout.place("region")?, self.layout.size("sizeof region")?)?;
        let used = self.remote.read_vec(self.layout.place("region_use")?, self.layout.size("sizeof region_use")?)?;
        let facts = &self.region_facts;
        Ok(Region {
            base: facts.base.of(&bytes),
            slabs: facts.slabs.of(&bytes),
            key: facts.key.of(&bytes),
            rows: facts.rows.of(&bytes),
            heaps: facts.heaps.of(&bytes),
            superslabs: facts.superslabs.of(&used).min(facts.superslabs_max.of(&bytes)) as usize,
            superslabs_max: facts.superslabs_max.of(&bytes),
        })
    }

    /// Is nothing reserved, so that SuperSlabs are mapped one by one?
    pub fn is_window(&self) -> Result<bool> {
        let window = self.region_facts.window;
        Ok(window.of(&self.remote.read_vec(self.layout.place("region")?, self.layout.size("sizeof region")?)?) != 0)
    }

    /// Lowest and highest address of region and tables.
    pub fn extent(&self) -> Result<(u64, u64)> {
        let region = self.region()?;
        Ok((region.heaps, region.base + region.superslabs_max * self.slab_facts.superslab_bytes))
    }

    /// The pool's words, and whether the SuperSlab was advised to have a huge page.
    fn words(&self, region: &Region) -> Result<Vec<(u64, bool)>> {
        let facts = &self.region_facts;
        let rows = region.superslabs.div_ceil(SUPERSLABS_PER_ROW);
        let bytes = self.remote.read_vec(region.rows, rows * facts.row_size as usize)?;
        let records = bytes.chunks_exact(facts.row_size as usize).flat_map(|row| {
            row.chunks_exact(facts.superslab_size as usize)
                .take(SUPERSLABS_PER_ROW)
                .map(|superslab| (facts.word.of(superslab), facts.huge.of(superslab) != self.slab_facts.huge_none))
        });
        Ok(records.take(region.superslabs).collect())
    }

    // ---- heaps ----

    /// All heaps there ever were, newest first.
    pub(super) fn heaps(&self) -> Result<Vec<HeapRecord>> {
        let mut address = self.remote.number(self.layout.place("heap_newest")?)?;
        let mut heaps = Vec::new();
        while address != 0 && heaps.len() < HEAPS_MOST {
            let bytes = self.remote.read_vec(address, self.heap_facts.heap_size as usize)?;
            let next = self.heap_facts.next.of(&bytes);
            heaps.push(HeapRecord { address, bytes });
            address = next;
        }
        Ok(heaps)
    }

    /// Moves what is in the heap's lists and outbox from live to cached; says how much it holds.
    fn count_heap(&self, census: &mut Census, heap: &[u8]) -> ThreadHeap {
        let facts = &self.heap_facts;
        let mut cached = 0;
        for class_id in 0..self.slab_facts.tiny_classes as usize {
            let first = facts.list.element(heap, class_id, 8);
            let blocks = census.list(first, self.sizes[class_id].blocks).len() as u64;
            census.move_to_cache(class_id, blocks);
            cached += blocks * self.sizes[class_id].block_bytes;
        }
        let outbox = facts.outbox.slice(heap).chunks_exact(facts.outbox_entry_size as usize);
        let waiting = outbox.filter_map(|entry| {
            let slot = facts.outbox_slab.of(entry).checked_sub(1)?;
            Some((slot, facts.outbox_blocks.of(entry)))
        });
        for (slot, blocks) in waiting.take(facts.outbox_entries as usize).collect::<Vec<_>>() {
            let Some(class_id) = self.tiny_class_at(census, slot) else {
                continue;
            };
            census.move_to_cache(class_id, blocks);
            cached += blocks * self.sizes[class_id].block_bytes;
        }
        ThreadHeap {
            number: facts.number.of(heap) as u32,
            in_use: facts.in_use.of(heap) != 0,
            cached: cached + self.in_rings(heap),
            owned_slabs: facts.owned_slabs.of(heap) as u32,
        }
    }

    fn tiny_class_at(&self, census: &Census, slot: u64) -> Option<usize> {
        if slot / self.slab_facts.superslab_slots >= census.words.len() as u64 {
            return None;
        }
        let at = census.region.slabs + slot * self.slab_facts.slab_size;
        let record = self.remote.read_vec(at, self.slab_facts.slab_size as usize).ok()?;
        let class_id = self.slab_facts.class_id.of(&record) as usize;
        (class_id < self.slab_facts.tiny_classes as usize).then_some(class_id)
    }

    fn in_rings(&self, heap: &[u8]) -> u64 {
        let facts = &self.heap_facts;
        let bytes = (facts.ring_block_kib.at + facts.ring_block_kib.bytes).max(facts.ring_blocks.at + 2);
        let rings = (0..facts.ring_classes as usize).map(|i| facts.ring.element(heap, i, 8)).filter(|&at| at != 0);
        let pieces: Vec<(u64, usize)> = rings.map(|at| (at, bytes)).collect();
        let mut heads = vec![0; pieces.len() * bytes];
        if self.remote.read_pieces(&pieces, &mut heads).is_err() {
            return 0; // they have just gone back with the thread
        }
        heads.chunks_exact(bytes).map(|ring| facts.ring_blocks.of(ring) * facts.ring_block_kib.of(ring) * 1024).sum()
    }

    fn counters(&self, heaps: &[HeapRecord]) -> Vec<Counter> {
        let at = self.heap_facts.pool.at + self.heap_facts.counters.at;
        let sum = |i: usize| heaps.iter().fold(0u64, |sum, heap| sum.wrapping_add(word(&heap.bytes, at + i * 8)));
        let named = self.counters.iter().enumerate();
        named.map(|(i, (name, help))| Counter { name: name.clone(), help: help.clone(), value: sum(i) }).collect()
    }

    /// All counters, summed over threads.
    pub fn read_counters(&self) -> Result<Vec<Counter>> {
        Ok(self.counters(&self.heaps()?))
    }

    /// The size of the block that so many bytes get; large and huge ones by slots and pages.
    pub(super) fn block_bytes_for(&self, bytes: u64) -> u64 {
        let slot = self.slab_facts.superslab_bytes / self.slab_facts.superslab_slots;
        let class = self.sizes.iter().map(|size| size.block_bytes).find(|&block| block >= bytes);
        class.unwrap_or_else(|| bytes.next_multiple_of(if bytes <= 16 * slot { slot } else { 4096 }))
    }

    /// Of secure mode's blocks; empty without it.
    fn span_table(&self, superslabs: usize) -> Result<Range<u64>> {
        let begin = self.remote.number(self.layout.place("span_table")?)?;
        let row = self.layout.size("SPANS_MOST")? * self.layout.size("sizeof secure_span")?;
        let row = row.next_multiple_of(unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize);
        Ok(begin..begin + if begin != 0 { (superslabs * row) as u64 } else { 0 })
    }

    // ---- the whole ----

    pub fn snapshot(&self) -> Result<Snapshot> {
        let region = self.region()?;
        let words = self.words(&region)?;
        let areas = self.remote.mappings(true)?;
        let (begin, end) = self.extent()?;
        let spans = self.span_table(region.superslabs)?;
        let is_span_table = |area: &&Area| area.is_anonymous() && spans.contains(&area.start);
        let is_ours = |area: &&Area| area.start < end && area.end > begin && area.is_anonymous();
        let data_rss =
            areas.iter().filter(|area| is_ours(area) && area.start >= region.base).map(|area| area.rss).sum();
        let metadata: u64 = areas
            .iter()
            .filter(|area| is_ours(area) && area.start < region.base || is_span_table(area))
            .map(|area| area.rss)
            .sum();
        let resident: Vec<u32> = words.iter().map(|&(word, _)| (word >> 32) as u32).collect();
        let residency = Residency::read(
            &self.remote,
            &Wanted {
                base: region.base,
                superslab_bytes: self.slab_facts.superslab_bytes,
                superslab_slots: self.slab_facts.superslab_slots as usize,
                slots: &resident,
                rss: data_rss,
            },
        );
        let heaps = self.heaps()?;
        let number = |heap: &HeapRecord| (heap.address, self.heap_facts.number.of(&heap.bytes) as u32);
        let numbers: HashMap<u64, u32> = heaps.iter().map(number).collect();
        let mut census = Census::new(&self.remote, &self.slab_facts, &self.sizes, region, &residency, &words, &numbers);
        census.count_slots()?;
        let mut threads: Vec<ThreadHeap> = heaps.iter().map(|heap| self.count_heap(&mut census, &heap.bytes)).collect();
        threads.sort_by_key(|heap| heap.number);
        let (mut terms, classes, superslabs) = census.into_parts();
        terms.metadata = metadata as i64;
        terms.total = terms.live
            + terms.untouched_live
            + terms.partly_used_slabs
            + terms.thread_caches
            + terms.empty_slots
            + terms.huge_rounding
            + terms.metadata;
        terms.mapped_rss = (data_rss + metadata) as i64;
        let rest = rest::rest(&self.remote, areas.iter().filter(|area| !is_ours(area) && !is_span_table(area)));
        let rss = terms.total.max(0) as u64 + rest.iter().map(|mapping| mapping.rss).sum::<u64>();
        Ok(Snapshot {
            process: self.process(rss)?,
            heap: terms,
            rest,
            classes,
            superslabs,
            counters: self.counters(&heaps),
            heaps: threads,
            options: self.read_options()?,
            rounding_waste: self.rounding_share()?.map(|share| (terms.live.max(0) as f64 * share) as u64),
        })
    }

    fn process(&self, rss: u64) -> Result<Process> {
        let pid = self.remote.pid;
        let about = proc::about(pid).with_context(|| format!("PID {pid} has just ended"))?;
        Ok(Process {
            pid,
            command: about.command,
            version: self.layout.version.clone(),
            threads: about.threads,
            rss,
            rss_peak: about.rss_peak.max(rss),
            minor_faults: proc::minor_faults(pid),
            age_ms: about.age_ms,
        })
    }
}

fn sizes(remote: &Remote, layout: &Layout) -> Result<Vec<SizeClass>> {
    let (size, count) = (layout.size("sizeof size_class")?, layout.size("CLASSES")?);
    let (bytes, blocks) = (layout.field("size_class.block_bytes")?, layout.field("size_class.blocks")?);
    let slots = layout.field("size_class.slots")?;
    let table = remote.read_vec(layout.place("size_classes")?, size * count)?;
    let entry = |c: &[u8]| SizeClass { block_bytes: bytes.of(c), blocks: blocks.of(c), slots: slots.of(c) };
    Ok(table.chunks_exact(size).map(entry).collect())
}
