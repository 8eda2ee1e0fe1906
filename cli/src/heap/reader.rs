//! A process that runs HAKMEM, and its heap at one moment.
//!
//! A snapshot is taken in this order: pool words, what the kernel says of mappings and pages, records, then heaps. What
//! changes meanwhile shifts bytes from one term to another; each page is counted once.
// SPDX-License-Identifier: MIT

use super::core::Core;
use super::layout::{text, word, Layout, SizeClass, SUPERSLABS_PER_ROW};
use super::ledger::Ledger;
use super::model::*;
use super::remote::{Area, Moving, Remote};
use super::residency::{Residency, Wanted};
use super::spans::{Census, Pooled, Region, Share};
use super::{finding, patience, rest, rows};
use anyhow::{ensure, Context, Result};
use hakmem_base::proc::{self, Pid};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

const HEAPS_MAX: usize = 1 << 17;
/// A heap of 1 TiB.
const SUPERSLABS_MAX: u64 = 1 << 19;
/// SuperSlabs whose picture is kept, at a KiB and a half each: a heap of 128 GiB.
const PICTURE_MAX: usize = 1 << 16;
/// Rows of the table of SuperSlabs read by one call.
const ROWS: u64 = 64;
/// Blocks in a ring, and KiB of a block: far above what there is.
const RING_MAX: u64 = 1 << 16;
/// At a program whose start is not over: the dynamic linker needs some milliseconds.
const ATTEMPTS: usize = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
const STARTING_MS: u64 = 1000;

/// A ring of a thread's heap.
struct Ring {
    index: usize,
    held_bytes: u64,
    popped: u64,
}

/// How much of a heap a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// No slots.
    Sums,
    Slots,
}

/// A process in which HAKMEM was found, and what is constant there. target.rs calls it, with a limit of time.
pub(super) struct Reader {
    pub(super) remote: Remote,
    pub(super) layout: Layout,
    pub(super) sizes: Vec<SizeClass>,
    /// Names and help.
    counters: Vec<(String, String)>,
    pub(super) options: Vec<rows::OptionEntry>,
    pub(super) tunables: Vec<rows::OptionEntry>,
    /// File that the library is in.
    pub file: String,
}

/// Its library may not be relocated yet, so that what points into its tables leads nowhere.
fn is_starting(pid: Pid) -> bool {
    !proc::has_ended(pid) && proc::about(pid).is_some_and(|about| about.age_ms < STARTING_MS)
}

impl Reader {
    /// Finds HAKMEM in the process. One that has just started may not have loaded it yet.
    pub fn attach(pid: Pid) -> Result<Reader> {
        for _ in 0..ATTEMPTS {
            match Reader::attach_if(pid)? {
                Some(reader) => return Ok(reader),
                None if is_starting(pid) => std::thread::sleep(BETWEEN_ATTEMPTS),
                None => break,
            }
        }
        let remote = Remote::open(pid)?;
        match finding::other_malloc(&remote, &remote.mappings(false)?)? {}
    }

    /// None: it is not there. Whose malloc is there instead takes longer to find.
    pub fn attach_if(pid: Pid) -> Result<Option<Reader>> {
        for _ in 0..ATTEMPTS {
            match Reader::find(pid) {
                Err(error) if error.is::<Moving>() || is_starting(pid) => std::thread::sleep(BETWEEN_ATTEMPTS),
                outcome => return outcome,
            }
        }
        Reader::find(pid)
    }

    /// Finds HAKMEM in a core file.
    pub fn of_core(core: &'static Core) -> Result<Reader> {
        let remote = Remote::of_image(core.pid(), core);
        let found = Reader::find_in(remote).ok().flatten();
        found.ok_or_else(|| core.lacks()).with_context(|| core.path.display().to_string())
    }

    fn find(pid: Pid) -> Result<Option<Reader>> {
        Reader::find_in(Remote::open(pid)?)
    }

    fn find_in(remote: Remote) -> Result<Option<Reader>> {
        let areas = remote.mappings(false)?;
        if let Some(area) = areas.iter().find(|area| area.access.starts_with('r') && !remote.is_image()) {
            remote.read(area.start, &mut [0])?; // may it be read at all?
        }
        let found = finding::find(&remote, &areas);
        if found.is_empty() {
            return Ok(None);
        }
        // If there are several copies, take the one that has a heap.
        let mut opened: Vec<Result<Reader>> = found.iter().map(|found| Reader::open(remote.clone(), found)).collect();
        let serving = opened.iter().position(|reader| reader.as_ref().is_ok_and(Reader::is_serving));
        let chosen = opened.swap_remove(serving.unwrap_or(0));
        if chosen.is_err() && finding::find(&remote, &remote.mappings(false)?) != found {
            return Err(remote.moving()); // it has executed another program meanwhile
        }
        chosen.map(Some)
    }

    pub fn open(remote: Remote, found: &finding::Found) -> Result<Reader> {
        let layout = Layout::read(&remote, found.inspect)?;
        let (places, facts) = (&layout.places, &layout.table);
        let mut reader = Reader {
            sizes: sizes(&remote, &layout)?,
            counters: Vec::new(),
            options: rows::entries(&remote, &layout, places.option_table, facts.options)?,
            tunables: rows::entries(&remote, &layout, places.tunable_table, facts.tunables + facts.class_tunables)?,
            file: found.file.clone(),
            remote,
            layout,
        };
        reader.counters = reader.counter_names()?;
        Ok(reader)
    }

    pub fn pid(&self) -> Pid {
        self.remote.pid
    }

    /// The library's version.
    pub fn version(&self) -> &str {
        &self.layout.version
    }

    /// Has anything been allocated from it?
    pub fn is_serving(&self) -> bool {
        self.region().is_ok_and(|region| region.superslabs > 0)
    }

    fn counter_names(&self) -> Result<Vec<(String, String)>> {
        let texts = |place: u64| -> Result<Vec<String>> {
            let pointers = self.remote.read_vec(place, self.layout.heap.counter_count as usize * 8)?;
            let text = |i: usize| rows::table_text(&self.remote, word(&pointers, i * 8));
            (0..self.layout.heap.counter_count as usize).map(text).collect()
        };
        let places = &self.layout.places;
        Ok(texts(places.counter_names)?.into_iter().zip(texts(places.counter_help)?).collect())
    }

    /// Such that no address in it overflows.
    pub(super) fn region(&self) -> Result<Region> {
        let (places, facts, slab) = (&self.layout.places, &self.layout.region, &self.layout.slab);
        let bytes = self.remote.read_vec(places.region, facts.region_size as usize)?;
        let used = self.remote.read_vec(places.region_use, facts.use_size as usize)?;
        let superslabs_max = facts.superslabs_max.of(&bytes);
        let superslabs = facts.superslabs.of(&used).min(superslabs_max);
        let page_bytes = self.remote.number(places.page_bytes)?;
        let is_size = page_bytes.is_power_of_two() && (4096..=slab.slot_bytes).contains(&page_bytes);
        let region = Region {
            page_bytes: if is_size { page_bytes } else { proc::page_bytes() },
            base: facts.base.of(&bytes),
            slabs: facts.slabs.of(&bytes),
            key: facts.key.of(&bytes),
            rows: facts.rows.of(&bytes),
            tables: facts.tables.of(&bytes),
            packs: facts.packs.of(&bytes),
            meshed: self.remote.number(places.meshed)?,
            superslabs: superslabs as usize,
            superslabs_max,
        };
        let pid = self.remote.pid;
        let whole = superslabs_max.checked_mul(slab.superslab_bytes).and_then(|bytes| region.base.checked_add(bytes));
        let records = slab.slab_size * slab.superslab_slots;
        let ends = [(region.slabs, records), (region.rows, facts.row_size)];
        let fits = ends.iter().all(|&(at, each)| superslabs.checked_mul(each).is_some_and(|all| at < u64::MAX - all));
        ensure!(whole.is_some() && fits, "PID {pid}: its heap is where no memory can be");
        ensure!(superslabs <= SUPERSLABS_MAX, "PID {pid}: its heap has {superslabs} SuperSlabs, too many to be read");
        Ok(region)
    }

    /// Is nothing reserved, so that SuperSlabs are mapped one by one?
    pub fn is_window(&self) -> Result<bool> {
        let facts = &self.layout.region;
        let bytes = self.remote.read_vec(self.layout.places.region, facts.region_size as usize)?;
        Ok(facts.window.of(&bytes) != 0)
    }

    /// What the pool says of each SuperSlab.
    pub(super) fn pooled(&self, region: &Region) -> Result<Vec<Pooled>> {
        let (facts, lazy, huge_none) = (&self.layout.region, self.layout.lazy.slots, self.layout.slab.huge_none);
        let pooled = |one: &[u8]| Pooled {
            word: facts.word.of(one),
            lazy: lazy.of(one) as u32,
            huge_page: facts.huge.of(one) != huge_none,
            arena: facts.arena.of(one) as u32,
        };
        let rows = region.superslabs.div_ceil(SUPERSLABS_PER_ROW) as u64;
        let mut all = Vec::with_capacity(rows as usize * SUPERSLABS_PER_ROW);
        for first in (0..rows).step_by(ROWS as usize) {
            let bytes = ROWS.min(rows - first) * facts.row_size;
            let bytes = self.remote.read_vec(region.rows + first * facts.row_size, bytes as usize)?;
            for row in bytes.chunks_exact(facts.row_size as usize) {
                let superslabs = row.chunks_exact(facts.superslab_size as usize).take(SUPERSLABS_PER_ROW);
                all.extend(superslabs.map(pooled));
            }
        }
        all.truncate(region.superslabs);
        Ok(all)
    }

    // ---- arenas ----

    /// Those that live. One that ends meanwhile may be among them.
    fn arenas(&self, shares: &HashMap<u32, Share>) -> Result<Vec<Arena>> {
        let facts = &self.layout.arena;
        let table = self.remote.read_vec(self.layout.places.arenas, facts.table_size as usize)?;
        let size = facts.arena_size as usize;
        let chunks = (facts.made.of(&table) / facts.in_chunk + 1).min(facts.chunks) as usize;
        let mut arenas = Vec::new();
        for chunk in 0..chunks {
            let at = facts.chunk.element(&table, chunk, 8);
            if at == 0 {
                continue;
            }
            let records = self.remote.read_vec(at, facts.in_chunk as usize * size)?;
            let numbers = chunk as u32 * facts.in_chunk as u32..;
            let living = numbers.zip(records.chunks_exact(size)).filter(|(_, record)| facts.handle.of(record) != 0);
            arenas.extend(living.map(|(number, record)| self.arena(number, record, shares)));
        }
        arenas.sort_by_key(|arena| std::cmp::Reverse(arena.used));
        Ok(arenas)
    }

    fn arena(&self, number: u32, record: &[u8], shares: &HashMap<u32, Share>) -> Arena {
        let facts = &self.layout.arena;
        let bytes = |slots: u64| slots.saturating_mul(self.layout.slab.slot_bytes);
        let share = shares.get(&number).copied().unwrap_or_default();
        let limit = Some(facts.limit_slots.of(record)).filter(|&slots| slots != u64::MAX);
        Arena {
            number,
            name: text(facts.name.slice(record)),
            live: share.live,
            used: bytes(facts.slots.of(record)),
            peak: bytes(facts.peak_slots.of(record)),
            limit: limit.map(bytes),
            resident: share.resident,
            superslabs: facts.superslabs.of(record),
        }
    }

    // ---- heaps ----

    /// Calls `look` with address and record of each heap there ever was, the newest first.
    pub(super) fn each_heap(&self, mut look: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let facts = &self.layout.heap;
        let mut address = self.remote.number(self.layout.places.heap_newest)?;
        let mut seen = HashSet::new();
        while address != 0 && seen.len() < HEAPS_MAX && seen.insert(address) {
            let heap = self.remote.read_vec(address, facts.heap_size as usize)?;
            look(address, &heap)?;
            address = facts.next.of(&heap);
        }
        Ok(())
    }

    /// By tiny class, frees into the heap's current slab that no slow path has counted yet, as in src/observe/stats.c.
    fn uncounted_frees(&self, heap: &[u8]) -> Vec<u64> {
        let (facts, slab) = (&self.layout.heap, &self.layout.slab);
        let mut frees = vec![0; slab.tiny_classes as usize];
        let current = (0..frees.len()).map(|class| (class, facts.current.element(heap, class, 8)));
        let current: Vec<(usize, u64)> = current.filter(|&(_, at)| at != 0).collect();
        let pieces: Vec<(u64, usize)> = current.iter().map(|&(_, at)| (at, slab.slab_size as usize)).collect();
        let mut records = vec![0; pieces.len() * slab.slab_size as usize];
        if self.remote.read_pieces(&pieces, &mut records).is_err() {
            return frees; // what cannot be read changes
        }
        for (&(class, _), record) in current.iter().zip(records.chunks_exact(slab.slab_size as usize)) {
            let left = slab.countdown.of(record) + facts.deferred.element(heap, class, 4);
            frees[class] = slab.check_after.of(record).saturating_sub(left);
        }
        frees
    }

    /// Moves what is in the heap's lists and outbox from live to cached; says how much it holds.
    fn count_heap(&self, census: &mut Census, ledger: &mut Ledger, heap: &[u8]) -> ThreadHeap {
        let facts = &self.layout.heap;
        let arena = word(heap, facts.client.at + self.layout.arena.of_heap.at) as u32;
        let mut cached = 0;
        let mut cache = |census: &mut Census, class_id: usize, blocks: u64| {
            let size = self.sizes[class_id];
            let blocks = blocks.min(size.blocks);
            census.move_to_cache(class_id, blocks);
            cached += blocks * size.block_bytes;
            if let Some(share) = census.arenas.get_mut(&arena) {
                share.live = share.live.saturating_sub(blocks * size.block_bytes);
            }
        };
        // While allocations are sampled, a part of each list waits beside it.
        let rests = facts.sampled.slice(heap).chunks_exact(facts.sampled_size as usize);
        let rests = rests.map(|sampled| facts.rest.of(sampled));
        for ((class_id, freed), rest) in self.uncounted_frees(heap).into_iter().enumerate().zip(rests) {
            ledger.correct(class_id, 0, freed);
            for first in [facts.list.element(heap, class_id, 8), rest] {
                let blocks = census.list(first, self.sizes[class_id].blocks).len() as u64;
                ledger.correct(class_id, blocks, 0);
                cache(census, class_id, blocks);
            }
        }
        let outbox = facts.outbox.slice(heap).chunks_exact(facts.outbox_entry_size as usize);
        for entry in outbox.take(facts.outbox_entries as usize) {
            let slot = facts.outbox_slab.of(entry).checked_sub(1);
            if let Some(class_id) = slot.and_then(|slot| self.tiny_class_at(census, slot)) {
                cache(census, class_id, facts.outbox_blocks.of(entry));
            }
        }
        ThreadHeap {
            number: facts.number.of(heap) as u32,
            in_use: facts.in_use.of(heap) != 0,
            cached: cached + self.rings(heap).iter().map(|ring| ring.held_bytes).sum::<u64>(),
            owned_slabs: (facts.owned_slabs.of(heap) + facts.lent_slabs.of(heap)) as u32,
        }
    }

    fn tiny_class_at(&self, census: &Census, slot: u64) -> Option<usize> {
        let facts = &self.layout.slab;
        if slot / facts.superslab_slots >= census.pooled.len() as u64 {
            return None;
        }
        let record =
            self.remote.read_vec(census.region.slabs + slot * facts.slab_size, facts.slab_size as usize).ok()?;
        let class_id = facts.class_id.of(&record);
        (class_id < facts.tiny_classes).then_some(class_id as usize)
    }

    fn rings(&self, heap: &[u8]) -> Vec<Ring> {
        let facts = &self.layout.heap;
        let (word, kib) = (facts.ring_held_and_popped, facts.ring_block_kib);
        let bytes = (word.at + word.bytes).max(kib.at + kib.bytes);
        let places = (0..facts.ring_classes as usize).map(|i| (i, facts.ring.element(heap, i, 8)));
        let places: Vec<(usize, u64)> = places.filter(|&(_, at)| at != 0).collect();
        let pieces: Vec<(u64, usize)> = places.iter().map(|&(_, at)| (at, bytes)).collect();
        let mut heads = vec![0; pieces.len() * bytes];
        if self.remote.read_pieces(&pieces, &mut heads).is_err() {
            return Vec::new(); // they have just gone back with the thread
        }
        let ring = |(&(index, _), ring): (&(usize, u64), &[u8])| {
            let (word, kib) = (word.of(ring), kib.of(ring).min(RING_MAX));
            let held = (word & ((1 << facts.ring_held_bits) - 1)).min(RING_MAX);
            Ring { index, held_bytes: held * kib * 1024, popped: word >> facts.ring_held_bits }
        };
        places.iter().zip(heads.chunks_exact(bytes)).map(ring).collect()
    }

    /// Adds the counters of a heap.
    fn add_counters(&self, sums: &mut [u64], heap: &[u8]) {
        let facts = &self.layout.heap;
        let at = facts.client.at + facts.counters.at;
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = sum.wrapping_add(word(heap, at + i * 8));
        }
    }

    fn named_counters(&self, sums: &[u64]) -> Vec<Counter> {
        let named = self.counters.iter().zip(sums);
        named.map(|((name, help), &value)| Counter { name: name.clone(), help: help.clone(), value }).collect()
    }

    /// The size of the block that serves a request; large and huge ones by slots and pages.
    pub(super) fn block_bytes_for(&self, bytes: u64) -> u64 {
        let slot = self.layout.slab.slot_bytes;
        let class = self.sizes.iter().map(|size| size.block_bytes).find(|&block| block >= bytes);
        let rounded = || bytes.checked_next_multiple_of(if bytes <= 16 * slot { slot } else { 4096 });
        class.or_else(rounded).unwrap_or(bytes)
    }

    /// Where the table of secure mode's blocks is; empty without secure mode.
    pub(super) fn span_table(&self, region: &Region) -> Result<Range<u64>> {
        let begin = self.remote.number(self.layout.places.span_table)?;
        let row = self.layout.slab.secure_lines * self.layout.slab.secure_line;
        let row = row.next_multiple_of(region.page_bytes);
        Ok(begin..begin.saturating_add(if begin != 0 { region.superslabs as u64 * row } else { 0 }))
    }

    // ---- the whole ----

    pub fn snapshot(&self, detail: Detail) -> Result<Snapshot> {
        let (region, facts) = (self.region()?, &self.layout.slab);
        let pooled = self.pooled(&region)?;
        let areas = self.remote.mappings(true)?;
        let (begin, end) = (region.tables, region.base + region.superslabs_max * facts.superslab_bytes);
        let spans = self.span_table(&region)?;
        let is_span_table = |area: &&Area| area.is_anonymous() && spans.contains(&area.start);
        let is_ours = |area: &&Area| area.start < end && area.end > begin && area.is_anonymous();
        let data_rss =
            areas.iter().filter(|area| is_ours(area) && area.start >= region.base).map(|area| area.rss).sum();
        let metadata: u64 = areas
            .iter()
            .filter(|area| is_ours(area) && area.start < region.base || is_span_table(area))
            .map(|area| area.rss)
            .sum();
        let resident: Vec<u32> = pooled.iter().map(Pooled::may_be_resident).collect();
        let wanted = Wanted {
            base: region.base,
            superslab_bytes: facts.superslab_bytes,
            superslab_slots: facts.superslab_slots as usize,
            slots: &resident,
            rss: data_rss,
        };
        let residency = Residency::read(&self.remote, &wanted)?;
        let (mut numbers, mut counters) = (HashMap::new(), vec![0; self.counters.len()]);
        let classes = 0..self.layout.table.tuned_classes as usize;
        let block_bytes: Vec<u64> = classes.map(|class| self.class_bytes(class)).collect();
        let mut ledger = Ledger::read(&self.remote, &self.layout, &block_bytes, self.sizes.len())?;
        self.each_heap(|address, heap| {
            numbers.insert(address, self.layout.heap.number.of(heap) as u32);
            self.add_counters(&mut counters, heap);
            Ok(())
        })?;
        let picture = if detail == Detail::Slots { PICTURE_MAX } else { 0 };
        let census = Census::new(&self.remote, facts, &self.sizes, region, &residency, &pooled, &numbers);
        let mut census = census.with_picture(picture).with_lazy(&self.layout.lazy);
        census.count_slots()?;
        let mut threads = Vec::new();
        self.each_heap(|_, heap| {
            let popped = self.rings(heap).into_iter().map(|ring| (ring.index, ring.popped));
            ledger.add(self.layout.heap.ledger.slice(heap), popped);
            threads.push(self.count_heap(&mut census, &mut ledger, heap));
            patience::check(self.pid())
        })?;
        threads.sort_by_key(|heap| heap.number);
        let arenas = self.arenas(&census.arenas)?;
        let (mut terms, mut classes, superslabs) = census.into_parts();
        classes.iter_mut().for_each(|class| ledger.enter(class));
        terms.metadata = metadata as i64;
        terms.total = terms.parts().iter().map(|term| term.bytes).sum();
        terms.mapped_rss = (data_rss + metadata) as i64;
        let rest = rest::rest(&self.remote, areas.iter().filter(|area| !is_ours(area) && !is_span_table(area)));
        let rss = terms.total.max(0) as u64 + rest.iter().map(|mapping| mapping.rss).sum::<u64>();
        Ok(Snapshot {
            process: self.process(rss)?,
            heap: terms,
            rest,
            past_classes: ledger.past(&classes),
            classes,
            slot_bytes: self.layout.slab.slot_bytes,
            superslabs,
            superslab_count: pooled.iter().filter(|one| one.is_in_use()).count() as u64,
            counters: self.named_counters(&counters),
            heaps: threads,
            arenas,
            nodes: self.remote.node_bytes(begin..end),
            options: self.read_options()?,
            ace: self.ace()?,
            rounding_waste: self.rounding_share()?.map(|share| (terms.held().max(0) as f64 * share) as u64),
        })
    }

    fn process(&self, rss: u64) -> Result<Process> {
        let pid = self.remote.pid;
        let process = self.remote.process();
        let about = match self.remote.core() {
            Some(core) => core.about(),
            None => process
                .map_or_else(|| proc::about(pid), proc::Process::about)
                .with_context(|| format!("PID {pid} has just ended"))?,
        };
        Ok(Process {
            pid,
            command: about.command,
            version: self.layout.version.clone(),
            threads: about.threads,
            rss,
            rss_peak: about.rss_peak.max(rss),
            minor_faults: process.map_or(0, proc::Process::minor_faults),
            age_ms: about.age_ms,
            purger: self.has_purger()?,
            asleep: process.is_none_or(proc::Process::is_asleep),
        })
    }
}

/// Such that the blocks of a slab fit into it.
fn sizes(remote: &Remote, layout: &Layout) -> Result<Vec<SizeClass>> {
    let (facts, slab) = (&layout.table, &layout.slab);
    let table = remote.read_vec(layout.places.size_classes, (facts.class_size * facts.classes) as usize)?;
    let size = |entry: &[u8]| {
        let (block_bytes, blocks) = (facts.class_bytes.of(entry), facts.class_blocks.of(entry));
        let slots = facts.class_slots.of(entry);
        let fits = block_bytes > 0 && slots <= slab.superslab_slots && block_bytes * blocks <= slots * slab.slot_bytes;
        ensure!(fits, "PID {}: its HAKMEM's tables are damaged: a class of blocks of {block_bytes}", remote.pid);
        Ok(SizeClass { block_bytes, blocks, slots })
    };
    table.chunks_exact(facts.class_size as usize).map(size).collect()
}
