//! From slab records to the terms of the sum: the same counting as in src/observe/stats.c, class by class.
//!
//!  1. Every slot of every SuperSlab is looked at once. ACTIVE ones are spans of some kind: what is resident of a span
//!     is split into live, cached, LAZY and free. EMPTY and LAZY ones are a term each; what is resident of UNUSED ones
//!     is huge-page rounding.
//!  2. Blocks in a thread's list or outbox count as used in their slab; they are moved from live to cached afterwards.
//!  3. The free lists of tiny slabs say which pages hold no live block. The lists lie in the blocks themselves, so only
//!     some slabs of a class are read, and stand for all. What meshing would give back follows from them, too
//!     (meshing.rs).
// SPDX-License-Identifier: MIT

pub use super::layout::SlabFacts;
use super::layout::{LazyFacts, SizeClass};
use super::meshing::{self, Meshed};
use super::model::{Class, Slot, State, SuperSlab, Terms, Tier};
use super::remote::Remote;
use super::residency::Residency;
use anyhow::Result;
use std::collections::HashMap;

/// Slabs of a tiny class whose lists are read.
const LISTS_READ: usize = 32;
/// SuperSlabs whose records are read by one call.
const CHUNK: usize = 256;
/// Bytes that a slab of secure mode has in each line of its SuperSlab's row: `struct secure_span`, or 64 states.
const SECURE_PART: usize = 128;

/// Where the region lies at the moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Region {
    /// Of the process, which a core file may bring from another machine.
    pub page_bytes: u64,
    pub base: u64,
    pub slabs: u64,
    pub key: u64,
    pub rows: u64,
    /// The lowest of them.
    pub tables: u64,
    /// What is known of packed slots.
    pub packs: u64,
    /// What is known of meshed slabs; 0: there is none.
    pub meshed: u64,
    /// Handed out so far.
    pub superslabs: usize,
    pub superslabs_max: u64,
}

/// A SuperSlab as the pool has it.
#[derive(Debug, Clone, Copy)]
pub struct Pooled {
    /// The low half: slots ACTIVE; the high half: slots resident.
    pub word: u64,
    /// Slots that are LAZY unless the word says otherwise.
    pub lazy: u32,
    /// It was advised to have a huge page.
    pub huge_page: bool,
    /// Number of the arena that has it; 0: the process.
    pub arena: u32,
}

impl Pooled {
    pub fn active(&self) -> u32 {
        self.word as u32
    }

    fn state(&self, slot: usize) -> State {
        let is_in = |slots: u32| slots >> slot & 1 != 0;
        match (is_in(self.active()), is_in((self.word >> 32) as u32), is_in(self.lazy)) {
            (true, ..) => State::Active,
            (_, true, _) => State::Empty,
            (_, _, true) => State::Lazy,
            _ => State::Unused,
        }
    }

    /// Is a slot of it ACTIVE? What is being purged is not resident.
    pub fn is_in_use(&self) -> bool {
        self.active() & (self.word >> 32) as u32 != 0
    }

    /// Slots of which pages may be resident, huge pages aside.
    pub fn may_be_resident(&self) -> u32 {
        (self.word >> 32) as u32 | self.lazy
    }
}

/// What is counted, and from what.
pub struct Census<'a> {
    pub remote: &'a Remote,
    pub facts: &'a SlabFacts,
    pub sizes: &'a [SizeClass],
    pub region: Region,
    pub residency: &'a Residency,
    lazy: LazyFacts,
    pub pooled: &'a [Pooled],
    /// Numbers of heaps by address.
    pub heap_numbers: &'a HashMap<u64, u32>,
    /// By number.
    pub arenas: HashMap<u32, Share>,
    pub terms: Terms,
    /// The picture, of the first SuperSlabs that are not hidden.
    superslabs: Vec<SuperSlab>,
    superslabs_most: usize,
    /// The SuperSlab that was shown last.
    last: Option<usize>,
    /// By tier and class number.
    classes: HashMap<(Tier, usize), Class>,
    /// Tiny slabs with a list: slot and first block, by class.
    lists: HashMap<usize, Vec<(usize, u64)>>,
    /// Tiny slabs whose pages could be shared, by class.
    thin: HashMap<usize, Vec<Thin>>,
    /// Slabs whose blocks could move, by tier and class number.
    sparse: HashMap<(Tier, usize), Vec<Fill>>,
}

/// What an arena has of the heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    pub live: u64,
    pub resident: u64,
}

/// A slab of few blocks.
#[derive(Debug, Clone, Copy)]
struct Thin {
    slot: usize,
    list: u64,
    carved: u64,
    purged_pages: u64,
}

/// How full a slab is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fill {
    used_blocks: u64,
    resident: u64,
}

/// Above this, and in blocks of whole pages, the pages of free blocks go back by themselves (`MOVE_BYTES_MAX` of
/// mid.c).
const MOVE_BYTES_MAX: u64 = 16 << 10;

/// What emptying slabs would give back, by the rule of the library's survey (defrag.c): the emptiest first, while their
/// blocks fit into the others or the slabs are less than half full, and never those that are seven eighths full.
fn gain_by_moving(mut slabs: Vec<Fill>, size: SizeClass) -> u64 {
    slabs.sort_unstable();
    let mut room: i64 = slabs.iter().map(|slab| size.blocks.saturating_sub(slab.used_blocks) as i64).sum();
    let (mut moved, mut given_back, mut emptied) = (0, 0, 0);
    for slab in &slabs {
        let left = room - size.blocks.saturating_sub(slab.used_blocks) as i64;
        let fits = (moved + slab.used_blocks) as i64 <= left;
        if slab.used_blocks * 8 >= size.blocks * 7 || !fits && slab.used_blocks * 2 >= size.blocks {
            break;
        }
        (room, moved, given_back, emptied) = (left, moved + slab.used_blocks, given_back + slab.resident, emptied + 1);
    }
    let free = |slab: &Fill| slab.resident.saturating_sub(slab.used_blocks.saturating_mul(size.block_bytes));
    let free: u64 = slabs[emptied..].iter().map(free).sum();
    given_back.saturating_sub(moved.saturating_mul(size.block_bytes).saturating_sub(free))
}

/// What is known of a span before its bytes are split.
struct Span {
    tier: Tier,
    class_id: usize,
    slots: usize,
    block_bytes: u64,
    blocks: u64,
    live_blocks: u64,
    cached_blocks: u64,
    free_blocks: u64,
    live: u64,
    cached: u64,
    /// Resident pages that the system may take.
    lazy: u64,
    free_pages: u64,
    may_move: bool,
    owner: Option<u32>,
}

impl<'a> Census<'a> {
    pub fn new(
        remote: &'a Remote,
        facts: &'a SlabFacts,
        sizes: &'a [SizeClass],
        region: Region,
        residency: &'a Residency,
        pooled: &'a [Pooled],
        heap_numbers: &'a HashMap<u64, u32>,
    ) -> Census<'a> {
        let (superslabs_most, last) = (0, None);
        let (terms, lazy, superslabs, classes, lists, thin, sparse, arenas) = Default::default();
        Census {
            remote,
            facts,
            sizes,
            region,
            residency,
            lazy,
            pooled,
            heap_numbers,
            arenas,
            terms,
            superslabs,
            superslabs_most,
            last,
            classes,
            lists,
            thin,
            sparse,
        }
    }

    /// Keeps the slots of this many SuperSlabs.
    pub fn with_picture(self, superslabs_most: usize) -> Census<'a> {
        Census { superslabs_most, ..self }
    }

    /// Tells pages that are LAZY from others.
    pub fn with_lazy(self, lazy: &LazyFacts) -> Census<'a> {
        Census { lazy: lazy.clone(), ..self }
    }

    fn count_in_arena(&mut self, slot: usize, live: u64, resident: u64) {
        let number = self.pooled[slot / self.facts.superslab_slots as usize].arena;
        if number != 0 {
            let share = self.arenas.entry(number).or_default();
            (share.live, share.resident) = (share.live.saturating_add(live), share.resident.saturating_add(resident));
        }
    }

    /// Looks at every slot.
    pub fn count_slots(&mut self) -> Result<()> {
        let slots = self.facts.superslab_slots as usize;
        let end = self.pooled.len() * slots;
        let record_bytes = self.facts.slab_size as usize;
        let mut records: (usize, Vec<u8>) = (0, Vec::new()); // from this slot on
        let mut slot = 0;
        while slot < end {
            let superslab = slot / slots;
            let active = self.pooled[superslab].active();
            if active == 0 {
                (slot..slot + slots).for_each(|slot| self.count_free(slot));
                slot += slots;
            } else if active >> (slot % slots) & 1 == 0 {
                self.count_free(slot);
                slot += 1;
            } else {
                let have = records.0..records.0 + records.1.len() / record_bytes;
                if !have.contains(&slot) {
                    let bytes = CHUNK.min(self.pooled.len() - superslab) * slots * record_bytes;
                    let at = self.region.slabs + (superslab * slots * record_bytes) as u64;
                    records = (superslab * slots, self.remote.read_vec(at, bytes)?);
                }
                let from = (slot - records.0) * record_bytes;
                slot += self.count_span(slot, &records.1[from..from + record_bytes]);
            }
        }
        Ok(())
    }

    // ---- slots ----

    /// Keeps the slot for the picture.
    fn show(&mut self, number: usize, slot: Slot) {
        let slots = self.facts.superslab_slots as usize;
        let superslab = number / slots;
        let pooled = self.pooled[superslab];
        let Pooled { huge_page, arena, .. } = pooled;
        if self.last != Some(superslab) {
            self.last = Some(superslab);
            if self.superslabs.len() < self.superslabs_most {
                self.superslabs.push(SuperSlab {
                    number: superslab as u64,
                    address: self.region.base + superslab as u64 * self.facts.superslab_bytes,
                    huge_page,
                    arena,
                    slots: Vec::with_capacity(slots),
                });
            }
        }
        if let Some(shown) = self.superslabs.last_mut().filter(|shown| shown.number == superslab as u64) {
            shown.slots.push(slot);
        }
    }

    fn count_free(&mut self, number: usize) {
        let slots = self.facts.superslab_slots as usize;
        let state = self.pooled[number / slots].state(number % slots);
        let resident = self.residency.slot(number);
        self.count_in_arena(number, 0, resident);
        let terms = &mut self.terms;
        *(match state {
            State::Lazy => &mut terms.lazy,
            State::Unused => &mut terms.huge_rounding,
            _ => &mut terms.empty_slots,
        }) += resident as i64;
        self.show(
            number,
            Slot { state, tier: None, block_bytes: 0, blocks: 0, used: 0, owner: None, resident, lazy: 0, back: 0 },
        );
    }

    /// The span that begins here. Returns how many slots it has.
    fn count_span(&mut self, first: usize, record: &[u8]) -> usize {
        let per_superslab = self.facts.superslab_slots as usize;
        let mut span = self.span(first, record);
        let slots = span.as_ref().map_or(1, |span| span.slots).clamp(1, self.pooled.len() * per_superslab - first);
        if let Some(span) = &mut span {
            // Its size may be another slab's list by now.
            let most = slots as u64 * self.facts.slot_bytes;
            for bytes in [&mut span.block_bytes, &mut span.live, &mut span.cached, &mut span.lazy] {
                *bytes = most.min(*bytes);
            }
        }
        let residents: Vec<u64> = (0..slots).map(|i| self.residency.slot(first + i)).collect();
        let resident: u64 = residents.iter().sum();
        self.count_in_arena(first, span.as_ref().map_or(0, |span| span.live), resident);
        match &span {
            Some(span) => self.split(span, resident),
            None => self.terms.empty_slots += resident as i64, // on its way from or to the pool
        }
        let mut hidden = false; // inside a huge block, nothing of the SuperSlab resident
        for (i, &resident) in residents.iter().enumerate() {
            if (first + i) % per_superslab == 0 {
                hidden = i > 0 && residents[i..].iter().take(per_superslab).all(|&resident| resident == 0);
            }
            if !hidden {
                self.show(first + i, slot_of(span.as_ref(), resident, i));
            }
        }
        slots
    }

    // ---- spans ----

    fn span(&mut self, slot: usize, record: &[u8]) -> Option<Span> {
        let facts = self.facts;
        let slots = facts.slots_of(record)? as usize;
        let is_live = facts.single_state.of(record) & facts.block_state == facts.block_live;
        let bytes = facts.bytes.of(record);
        let one = |tier, live: bool, cached: bool| Span {
            tier,
            class_id: self.sizes.len(), // none
            slots,
            block_bytes: bytes,
            blocks: 1,
            live_blocks: live.into(),
            cached_blocks: cached.into(),
            free_blocks: 0,
            live: if live { bytes } else { 0 },
            cached: if cached { bytes } else { 0 },
            lazy: 0,
            free_pages: 0,
            may_move: false,
            owner: None,
        };
        match facts.kind_of(record) {
            kind if kind == facts.kind_tiny => self.tiny_span(slot, record),
            kind if kind == facts.kind_meshed => self.meshed_span(record),
            kind if kind == facts.kind_mid => self.mid_span(slot, record),
            kind if kind == facts.kind_large => Some(one(Tier::Large, is_live, !is_live)),
            kind if kind == facts.kind_huge => Some(one(Tier::Huge, true, false)),
            kind if kind == facts.kind_packed => {
                let pack = Pack::read(self.remote, facts, &self.region, slot)?;
                let blocks = u64::from(pack.begins.count_ones());
                let live = u64::from((!pack.free).count_ones()) * facts.piece_bytes;
                let span = Span { blocks, live_blocks: blocks, live, ..one(Tier::Large, true, false) };
                Some(Span { block_bytes: facts.slot_bytes, ..span })
            }
            kind if kind == facts.kind_guard_page => Some(one(Tier::Large, is_live, false)),
            kind if kind == facts.kind_secure_small => self.secure_span(record),
            kind if kind == facts.kind_secure_large => Some(one(Tier::Secure, is_live, false)),
            _ => None,
        }
    }

    fn tiny_span(&mut self, slot: usize, record: &[u8]) -> Option<Span> {
        let facts = self.facts;
        let class_id = facts.class_id.of(record) as usize;
        let size = *self.sizes.get(class_id).filter(|_| class_id < facts.tiny_classes as usize)?;
        let (carved, purged) = (facts.carved.of(record).min(size.blocks), facts.purged_blocks.of(record));
        let current = facts.place.of(record) & facts.place_current != 0;
        let used =
            if current { carved.saturating_sub(purged) } else { facts.countdown.of(record) + facts.floor.of(record) };
        let used = used.min(carved);
        let waiting = (facts.inbox.of(record) >> 16).min(used);
        let free_blocks = carved.saturating_sub(used + purged);
        if free_blocks > 0 && !current {
            self.lists.entry(class_id).or_default().push((slot, facts.list.of(record)));
        }
        if !current && facts.kind.of(record) == facts.kind_tiny && meshing::is_sparse(size, used) {
            let (list, purged_pages) = (facts.list.of(record), facts.purged_pages.of(record));
            self.thin.entry(class_id).or_default().push(Thin { slot, list, carved, purged_pages });
        }
        Some(Span {
            tier: Tier::Tiny,
            class_id,
            slots: 1,
            block_bytes: size.block_bytes,
            blocks: size.blocks,
            live_blocks: used - waiting,
            cached_blocks: waiting,
            free_blocks,
            live: (used - waiting) * size.block_bytes,
            cached: waiting * size.block_bytes,
            lazy: self.lazy_pages(slot, record),
            free_pages: 0,
            may_move: !current,
            owner: self.heap_numbers.get(&(facts.owner.of(record) & !facts.on_loan)).copied(),
        })
    }

    /// No thread allocates from it: it has no owner, no list and no inbox.
    fn meshed_span(&self, record: &[u8]) -> Option<Span> {
        let facts = self.facts;
        let class_id = facts.class_id.of(record) as usize;
        let size = *self.sizes.get(class_id).filter(|_| class_id < facts.tiny_classes as usize)?;
        let live = meshed_blocks(self.remote, facts, self.region.meshed, record)?;
        let live_blocks = live.iter().take(size.blocks as usize).filter(|&&live| live).count() as u64;
        Some(Span {
            tier: Tier::Tiny,
            class_id,
            slots: 1,
            block_bytes: size.block_bytes,
            blocks: size.blocks,
            live_blocks,
            cached_blocks: 0,
            free_blocks: size.blocks - live_blocks,
            live: live_blocks * size.block_bytes,
            cached: 0,
            lazy: 0,
            free_pages: 0,
            may_move: false,
            owner: None,
        })
    }

    fn mid_span(&self, slot: usize, record: &[u8]) -> Option<Span> {
        let facts = self.facts;
        let class_id = facts.class_id.of(record) as usize;
        let size = *self.sizes.get(class_id)?;
        let states = (0..size.blocks.min(64)).map(|i| facts.state.element(record, i as usize, 1));
        let is_used = |state: u64| [facts.block_live, facts.block_cached].contains(&(state & facts.block_state));
        let is_lazy = |state: u64| state & self.lazy.block != 0 && !is_used(state);
        let count = |wanted| states.clone().filter(|&state| state & facts.block_state == wanted).count() as u64;
        let (live_blocks, cached_blocks) = (count(facts.block_live), count(facts.block_cached));
        let pages_without = |of: &dyn Fn(u64) -> bool| {
            let blocks = (0..).zip(states.clone()).filter(|&(_, state)| of(state)).map(|(i, _)| i * size.block_bytes);
            self.pages_without(slot, size.slots * facts.slot_bytes, blocks, size.block_bytes)
        };
        let lazy = match states.clone().filter(|&state| is_lazy(state)).count() as u64 {
            0 => 0,
            blocks => pages_without(&|state| !is_lazy(state)).min(blocks * size.block_bytes),
        };
        Some(Span {
            tier: Tier::Mid,
            class_id,
            slots: facts.slots.of(record) as usize,
            block_bytes: size.block_bytes,
            blocks: size.blocks,
            live_blocks,
            cached_blocks,
            free_blocks: size.blocks.saturating_sub(live_blocks + cached_blocks),
            live: live_blocks * size.block_bytes,
            cached: cached_blocks * size.block_bytes,
            lazy,
            free_pages: pages_without(&is_used).saturating_sub(lazy),
            may_move: size.block_bytes % self.residency.page_bytes() as u64 != 0 && size.block_bytes <= MOVE_BYTES_MAX,
            owner: None,
        })
    }

    /// Resident bytes of a tiny slab's purged pages, if the system takes those when it likes.
    fn lazy_pages(&self, slot: usize, record: &[u8]) -> u64 {
        if self.lazy.page_flags.of(record) & self.lazy.pages == 0 {
            return 0;
        }
        let (page, start) = (self.residency.page_bytes(), slot as u64 * self.facts.slot_bytes);
        let purged = self.facts.purged_pages.of(record);
        let is_purged = |offset: &u64| purged >> (offset / self.region.page_bytes).min(63) & 1 != 0;
        let pages = (0..self.facts.slot_bytes).step_by(page).filter(is_purged);
        pages.filter(|offset| self.residency.page_is_present(start + offset)).count() as u64 * page as u64
    }

    /// Resident bytes of the pages of a span that no such block touches. `blocks`: their offsets, ascending.
    fn pages_without(&self, slot: usize, bytes: u64, blocks: impl Iterator<Item = u64>, block_bytes: u64) -> u64 {
        let (page, start) = (self.residency.page_bytes() as u64, slot as u64 * self.facts.slot_bytes);
        let (mut free, mut next) = (0, 0);
        let present =
            |from: u64, to: u64| (from..to).filter(|i| self.residency.page_is_present(start + i * page)).count();
        for block in blocks {
            free += present(next, block / page);
            next = (block + block_bytes).div_ceil(page);
        }
        (free + present(next, bytes / page)) as u64 * page
    }

    fn secure_span(&mut self, record: &[u8]) -> Option<Span> {
        let facts = self.facts;
        let (block_bytes, blocks) = (facts.block_bytes.of(record), facts.blocks.of(record));
        let room = block_bytes.checked_sub(facts.canary_bytes)?;
        let known = facts.secure.of(record);
        let head = self.remote.read_vec(known, SECURE_PART).ok()?;
        let (mut live_blocks, mut live) = (0, 0);
        for state in secure_states(self.remote, facts, known, blocks)? {
            if state != 0 && state & facts.state_freed == 0 {
                live_blocks += 1;
                live += room.saturating_sub((state & facts.state_slack).saturating_sub(1));
            }
        }
        let cached_blocks = facts.secure_held.of(&head).saturating_sub(live_blocks + 1);
        Some(Span {
            tier: Tier::Secure,
            class_id: facts.class_id.of(record) as usize,
            slots: facts.slots.of(record) as usize,
            block_bytes,
            blocks,
            live_blocks,
            cached_blocks,
            free_blocks: blocks.saturating_sub(live_blocks + cached_blocks),
            live,
            cached: cached_blocks * block_bytes,
            lazy: 0,
            free_pages: 0,
            may_move: false,
            owner: None,
        })
    }

    /// Splits what is resident of a span: first live blocks, then cached ones, then what is LAZY.
    fn split(&mut self, span: &Span, resident: u64) {
        let live = span.live.min(resident);
        let cached = span.cached.min(resident - live);
        let lazy = span.lazy.min(resident - live - cached);
        let (untouched, free) = ((span.live - live) as i64, (resident - live - cached - lazy) as i64);
        self.terms.live += live as i64;
        self.terms.thread_caches += cached as i64;
        self.terms.lazy += lazy as i64;
        self.terms.untouched += untouched;
        self.terms.partly_used_slabs += free;
        if span.may_move {
            let fill = Fill { used_blocks: span.live_blocks + span.cached_blocks, resident: resident - lazy };
            self.sparse.entry((span.tier, span.class_id)).or_default().push(fill);
        }
        let class = self.class(span.tier, span.class_id);
        class.slabs += 1;
        class.live_blocks += span.live_blocks;
        class.cached_blocks += span.cached_blocks;
        class.free_blocks += span.free_blocks;
        class.live += live as i64;
        class.untouched += untouched;
        class.cached += cached as i64;
        class.lazy += lazy as i64;
        class.free += free;
        class.resident += resident;
        class.partly_used_slabs += u64::from(span.free_blocks > 0);
        class.free_pages += span.free_pages;
    }

    fn class(&mut self, tier: Tier, class_id: usize) -> &mut Class {
        let block_bytes = self.sizes.get(class_id).map_or(0, |size| size.block_bytes);
        self.classes.entry((tier, class_id)).or_insert(Class {
            tier,
            block_bytes,
            slabs: 0,
            live_blocks: 0,
            cached_blocks: 0,
            free_blocks: 0,
            live: 0,
            untouched: 0,
            cached: 0,
            lazy: 0,
            free: 0,
            resident: 0,
            partly_used_slabs: 0,
            free_pages: 0,
            movable: 0,
            meshable: 0,
            allocations: 0,
            misses: 0,
        })
    }

    // ---- caches, lists, result ----

    /// Blocks of a tiny class that count as used but are a thread's. A program that runs may seem to have more of them
    /// than are used.
    pub fn move_to_cache(&mut self, class_id: usize, blocks: u64) {
        let Some(size) = self.sizes.get(class_id) else {
            return;
        };
        let bytes = (blocks * size.block_bytes) as i64;
        let class = self.class(Tier::Tiny, class_id);
        let bytes = bytes.min(class.live);
        class.live -= bytes;
        class.cached += bytes;
        class.live_blocks = class.live_blocks.saturating_sub(blocks);
        class.cached_blocks += blocks;
        self.terms.live -= bytes;
        self.terms.thread_caches += bytes;
    }

    /// The blocks of a list that begins at `block` and stays in one slot, as offsets in the slot.
    pub fn list(&self, block: u64, blocks_most: u64) -> Vec<u64> {
        let offset = block.wrapping_sub(self.region.base);
        let mut found = Vec::new();
        if block & 1 != 0 || offset >= self.pooled.len() as u64 * self.facts.superslab_bytes {
            return found;
        }
        let slot = offset / self.facts.slot_bytes;
        let start = self.region.base + slot * self.facts.slot_bytes;
        let bytes = self.residency.read_slot(self.remote, self.region.base, slot as usize);
        let mut at = block - start;
        while (found.len() as u64) < blocks_most && at % 8 == 0 && at < self.facts.slot_bytes {
            found.push(at);
            let next = super::layout::word(&bytes, at as usize) ^ self.region.key;
            at = next.wrapping_sub(start); // the terminator is odd, another slot's address too large
        }
        found
    }

    /// Resident pages of free blocks, from some of the slabs that have such.
    fn count_free_pages(&mut self) {
        for (class_id, slabs) in std::mem::take(&mut self.lists) {
            let step = slabs.len().div_ceil(LISTS_READ).max(1);
            let read: Vec<_> = slabs.iter().step_by(step).collect();
            let pages: u64 = read.iter().map(|&&(slot, list)| self.free_pages_of(class_id, slot, list)).sum();
            let all = pages * self.residency.page_bytes() as u64 * slabs.len() as u64 / read.len().max(1) as u64;
            let class = self.class(Tier::Tiny, class_id);
            class.free_pages = all.min(class.resident);
        }
    }

    fn free_pages_of(&self, class_id: usize, slot: usize, list: u64) -> u64 {
        let (size, page) = (self.sizes[class_id], self.residency.page_bytes() as u64);
        let mut free = vec![0u64; (self.facts.slot_bytes / page).max(1) as usize];
        for block in self.list(list, size.blocks) {
            for (number, bytes) in free.iter_mut().enumerate() {
                let (from, to) = (number as u64 * page, (number as u64 + 1) * page);
                *bytes += (block + size.block_bytes).min(to).saturating_sub(block.max(from));
            }
        }
        let start = slot as u64 * self.facts.slot_bytes;
        let whole = (0u64..).zip(&free).filter(|&(_, &bytes)| bytes >= page);
        whole.filter(|&(number, _)| self.residency.page_is_present(start + number * page)).count() as u64
    }

    /// What meshing would give back of each class, as far as the process may have mappings for it.
    fn count_meshable(&mut self) {
        if self.residency.page_bytes() as u64 != meshing::PAGE_BYTES {
            return;
        }
        let mut found = Vec::new();
        for (class_id, slabs) in std::mem::take(&mut self.thin) {
            let read: Vec<&Thin> = slabs.iter().step_by(slabs.len().div_ceil(meshing::SLABS_READ).max(1)).collect();
            let pages = read.iter().flat_map(|slab| self.live_pages(self.sizes[class_id], slab)).collect();
            let Meshed { saved, mapped } = meshing::mesh(pages);
            let all = |pages: u64| pages * slabs.len() as u64 / read.len() as u64;
            found.push((class_id, all(saved), all(mapped)));
        }
        let mapped: u64 = found.iter().map(|&(.., mapped)| mapped).sum();
        let most = meshing::mapped_most().min(mapped);
        for (class_id, saved, _) in found {
            let class = self.class(Tier::Tiny, class_id);
            class.meshable = (saved * most).checked_div(mapped).unwrap_or(0) * meshing::PAGE_BYTES;
        }
    }

    /// The slab's resident pages, as its live blocks cover them.
    fn live_pages(&self, size: SizeClass, slab: &Thin) -> Vec<meshing::PageMap> {
        let purged = |byte: u64| slab.purged_pages >> (byte / meshing::PAGE_BYTES).min(63) & 1 != 0;
        let is_out = |block: u64| !purged(block * size.block_bytes) && !purged((block + 1) * size.block_bytes - 1);
        let mut is_live: Vec<bool> = (0..slab.carved).map(is_out).collect();
        for block in self.list(slab.list, size.blocks) {
            if let Some(live) = is_live.get_mut((block / size.block_bytes) as usize) {
                *live = false;
            }
        }
        let start = slab.slot as u64 * self.facts.slot_bytes;
        let pages = (0u64..).zip(meshing::pages(size, self.facts.slot_bytes, &is_live));
        let is_present = |number| self.residency.page_is_present(start + number * meshing::PAGE_BYTES);
        pages.filter(|&(number, _)| is_present(number)).map(|(_, page)| page).collect()
    }

    /// All classes that have slabs, the smallest first; and the picture.
    pub fn into_parts(mut self) -> (Terms, Vec<Class>, Vec<SuperSlab>) {
        self.count_free_pages();
        self.count_meshable();
        for ((tier, class_id), slabs) in std::mem::take(&mut self.sparse) {
            self.class(tier, class_id).movable = gain_by_moving(slabs, self.sizes[class_id]);
        }
        let mut classes: Vec<Class> = self.classes.into_values().collect();
        classes.sort_by_key(|class| (class.tier as u8, class.block_bytes));
        (self.terms, classes, self.superslabs)
    }
}

/// What is known of each block of a slab of secure mode; `known` is its part of the first line of its SuperSlab's row.
pub fn secure_states(remote: &Remote, facts: &SlabFacts, known: u64, blocks: u64) -> Option<Vec<u64>> {
    let lines = blocks.div_ceil(SECURE_PART as u64 / 2).min(facts.secure_lines);
    let at = |line| known.saturating_add((facts.secure_states + line) * facts.secure_line);
    let pieces: Vec<_> = (0..lines).map(|line| (at(line), SECURE_PART)).collect();
    let mut bytes = vec![0; pieces.len() * SECURE_PART];
    remote.read_pieces(&pieces, &mut bytes).ok()?;
    let states = bytes.chunks_exact(2).map(|state| u64::from(u16::from_le_bytes([state[0], state[1]])));
    Some(states.take(blocks as usize).collect())
}

/// A packed slot (src/tiers/packed.c): a bit for each of its 64 pieces.
pub struct Pack {
    pub free: u64,
    /// Blocks begin with these pieces, and end with those, perhaps in a later slot.
    pub begins: u64,
    pub ends: u64,
}

impl Pack {
    pub fn read(remote: &Remote, facts: &SlabFacts, region: &Region, slot: usize) -> Option<Pack> {
        let at = region.packs.checked_add(slot as u64 * facts.pack_size)?;
        let pack = remote.read_vec(at, facts.pack_size as usize).ok()?;
        let [free, begins, ends] = [facts.pack_free, facts.pack_begins, facts.pack_ends].map(|word| word.of(&pack));
        Some(Pack { free, begins, ends })
    }
}

/// Which blocks of a meshed slab are live.
pub fn meshed_blocks(remote: &Remote, facts: &SlabFacts, table: u64, record: &[u8]) -> Option<Vec<bool>> {
    let place = facts.closed_index.of(record) * facts.meshed_size + facts.meshed_map.at as u64;
    let map = remote.read_vec(table.checked_add(place).filter(|_| table != 0)?, facts.meshed_map.bytes).ok()?;
    Some(map.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 != 0)).collect())
}

fn slot_of(span: Option<&Span>, resident: u64, back: usize) -> Slot {
    Slot {
        state: State::Active,
        tier: span.map(|span| span.tier),
        block_bytes: span.map_or(0, |span| span.block_bytes),
        blocks: span.map_or(0, |span| span.blocks as u32),
        used: span.map_or(0, |span| (span.live_blocks + span.cached_blocks) as u32),
        owner: span.and_then(|span| span.owner),
        resident,
        lazy: span.filter(|_| back == 0).map_or(0, |span| span.lazy),
        back: back as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Field;
    use super::super::residency::Wanted;
    use super::*;
    use hakmem_base::proc::Pid;

    const SLOT: usize = 64 << 10;
    const SUPERSLAB: usize = 32 * SLOT;

    fn at(at: usize, bytes: usize) -> Field {
        Field { at, bytes }
    }

    /// Kinds from 1 on, in the order of their names here.
    fn facts() -> SlabFacts {
        let (slot_bytes, superslab_bytes, superslab_slots, tiny_classes) = (SLOT as u64, SUPERSLAB as u64, 32, 1);
        let constants =
            SlabFacts { slot_bytes, superslab_bytes, superslab_slots, tiny_classes, ..SlabFacts::default() };
        let kinds =
            SlabFacts { kind_tiny: 1, kind_mid: 2, kind_large: 3, kind_huge: 4, kind_secure_small: 5, ..constants };
        let kinds = SlabFacts { kind_in_arena: 16, ..kinds };
        let counts = SlabFacts { kind: at(0, 1), class_id: at(1, 1), slots: at(2, 1), place: at(3, 1), ..kinds };
        let counts =
            SlabFacts { countdown: at(4, 4), block_bytes: at(4, 4), list: at(8, 8), bytes: at(8, 8), ..counts };
        let counts = SlabFacts { inbox: at(16, 8), secure: at(24, 8), floor: at(32, 2), blocks: at(36, 4), ..counts };
        let counts = SlabFacts { carved: at(40, 4), purged_blocks: at(44, 2), state: at(64, 64), ..counts };
        let counts = SlabFacts { purged_pages: at(48, 4), ..counts };
        let guarded = SlabFacts { kind_secure_large: 6, single_state: at(64, 1), lead_bytes: at(72, 8), ..counts };
        SlabFacts { span_slots: at(80, 8), secure_lines: 2, block_live: 1, block_cached: 2, block_state: 3, ..guarded }
    }

    fn lazy() -> LazyFacts {
        LazyFacts { slots: at(0, 4), page_flags: at(52, 1), pages: 2, block: 64 }
    }

    /// Two SuperSlabs of this process, all ACTIVE, the first resident.
    fn with_census(test: impl FnOnce(Census, &mut [u64])) {
        with_pooled(Pooled { word: u64::MAX, lazy: 0, huge_page: false, arena: 0 }, test);
    }

    /// The same, each with what the pool says.
    fn with_pooled(each: Pooled, test: impl FnOnce(Census, &mut [u64])) {
        let memory = vec![0u64; 3 * SUPERSLAB / 8].leak();
        let skipped = memory.as_ptr().align_offset(SUPERSLAB);
        let memory = &mut memory[skipped..skipped + 2 * SUPERSLAB / 8];
        let (base, facts) = (memory.as_ptr() as u64, facts());
        let me = Remote::open(std::process::id() as Pid).unwrap();
        memory[..SUPERSLAB / 8].fill(1);
        let (slots, rss) = (&[u32::MAX, 0], SUPERSLAB as u64);
        let (superslab_bytes, superslab_slots) = (facts.superslab_bytes, 32);
        let wanted = Wanted { base, superslab_bytes, superslab_slots, slots, rss };
        let residency = Residency::read(&me, &wanted).unwrap();
        let sizes = [(96, 682, 1), (40960, 8, 5)];
        let sizes = sizes.map(|(block_bytes, blocks, slots)| SizeClass { block_bytes, blocks, slots });
        let region = Region { page_bytes: 4096, base, superslabs: 2, superslabs_max: 2, ..Region::default() };
        let (pooled, numbers) = ([each; 2], HashMap::new());
        test(Census::new(&me, &facts, &sizes, region, &residency, &pooled, &numbers).with_lazy(&lazy()), memory);
    }

    /// Else memory that the system may take counts as rounding, or what another has taken since counts as LAZY.
    #[test]
    fn a_free_slot_is_lazy_if_it_is_not_empty() {
        let word = 0b0011_u64 << 32; // slots 0 and 1 are EMPTY
        with_pooled(Pooled { word, lazy: 0b0110, huge_page: true, arena: 0 }, |census, _| {
            let mut census = census.with_picture(2);
            census.count_slots().unwrap();
            let (terms, _, superslabs) = census.into_parts();
            let of_slots = [terms.empty_slots, terms.lazy, terms.huge_rounding].map(|bytes| bytes / SLOT as i64);
            assert_eq!(of_slots, [2, 1, 29], "{terms:?}");
            let states: Vec<State> = superslabs[0].slots.iter().take(4).map(|slot| slot.state).collect();
            assert_eq!(states, [State::Empty, State::Empty, State::Lazy, State::Unused]);
        });
    }

    #[test]
    fn pages_inside_slabs_are_lazy_as_far_as_they_are_resident() {
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != 4096 {
            return eprintln!("skipped: pages are not of 4 KiB");
        }
        with_census(|mut census, _| {
            let mut tiny = [0u8; 128];
            (tiny[0], tiny[4], tiny[40], tiny[44], tiny[48], tiny[52]) = (1, 10, 200, 129, 0b1110, 2);
            let mut mid = [0u8; 128];
            (mid[0], mid[1], mid[2]) = (2, 1, 5);
            // Live, cached, free, four that are LAZY, one that was and is live again.
            mid[64..72].copy_from_slice(&[1, 2, 0, 80, 80, 80, 80, 65]);
            for first in [3, 40] {
                census.count_span(first, &tiny); // of the second SuperSlab nothing is resident
                census.count_span(first + 1, &mid);
            }
            tiny[52] = 1; // the purged pages are gone
            census.count_span(10, &tiny);
            let block = 40960;
            let (terms, classes, ..) = census.into_parts();
            assert_eq!((terms.live, terms.thread_caches), (2 * 960 + 2 * block, block), "{terms:?}");
            assert_eq!(terms.lazy, 3 * 4096 + 4 * block, "{terms:?}");
            let free = 65536 - 960 - 3 * 4096 + block + 65536 - 960;
            assert_eq!(terms.partly_used_slabs, free, "{terms:?}");
            let mid = classes.iter().find(|class| class.tier == Tier::Mid).unwrap();
            assert_eq!((mid.lazy, mid.free, mid.free_pages), (4 * block, block, block as u64), "{mid:?}");
        });
    }

    /// A list is read while its thread changes it: what is no block of the slot ends it.
    #[test]
    fn a_list_ends_where_it_leaves_its_slot() {
        with_census(|census, memory| {
            let start = census.region.base + SLOT as u64;
            for wrong in [start.wrapping_sub(8), start - SLOT as u64, start + SLOT as u64, start + 1, 0, u64::MAX, 8] {
                memory[SLOT / 8] = start + 96;
                memory[SLOT / 8 + 12] = wrong;
                assert_eq!(census.list(start, 100), [0, 96], "{wrong:#x}");
            }
            memory[SLOT / 8 + 12] = start;
            assert_eq!(census.list(start, 5), [0, 96, 0, 96, 0], "it bites its tail");
        });
    }

    #[test]
    fn moving_empties_the_emptiest_slabs() {
        let size = SizeClass { block_bytes: 640, blocks: 100, slots: 1 };
        let slabs = |used: &[u64]| used.iter().map(|&used_blocks| Fill { used_blocks, resident: 64000 }).collect();
        let gain = |used: &[u64]| gain_by_moving(slabs(used), size);
        assert_eq!(gain(&[]), 0);
        assert_eq!(gain(&[100, 100]), 0, "they are full");
        assert_eq!(gain(&[10; 10]), 9 * 64000, "ten slabs make one");
        assert_eq!(gain(&[10, 95]), 64000 - 5 * 640, "five blocks fit beside the others");
        assert_eq!(gain(&[70, 70, 70, 70]), 64000, "three can take in the fourth");
        assert_eq!(gain(&[90; 20]), 0, "it would move 90 blocks for the place of ten");
    }

    /// The block was freed since its kind was read, and where its size was there is a list.
    #[test]
    fn no_block_is_larger_than_the_heap() {
        for kind in [3, 4, 6, 3 | 16, 4 | 16] {
            with_census(|mut census, _| {
                let mut record = [1u8; 128];
                record[0] = kind;
                record[8..16].copy_from_slice(&(census.region.base | 1).to_le_bytes());
                let slots = census.count_span(3, &record);
                let most = (slots * SLOT) as i64;
                assert!(slots <= 61 && census.terms.live <= most, "kind {kind}: {slots}, {:?}", census.terms);
            });
        }
    }

    /// Records of any bytes: nothing overflows, and no walk stands still or runs out of the heap.
    #[test]
    fn any_record_is_a_span() {
        with_census(|mut census, _| {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for round in 0..20_000 {
                let mut record = [0u8; 128];
                for byte in &mut record {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = if round % 3 == 0 { 0xff } else { (random >> 56) as u8 };
                }
                record[0] = (round % 8) as u8;
                let first = round % 64;
                let slots = census.count_span(first, &record);
                assert!(slots >= 1 && first + slots <= 64, "{record:?}");
            }
            let (_, classes, ..) = census.into_parts();
            assert!(!classes.is_empty());
        });
    }
}
