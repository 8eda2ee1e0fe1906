//! Where things lie in the library of another process: the tables of `struct inspect` (src/observe/inspect.h), checked.
//!
//!  1. The process may lie: whoever runs it wrote these tables. `Layout::read` is the one place that believes them,
//!     after it has checked each fact by its kind: a field lies within its struct, an array has the elements it is read
//!     for, a size or a count is one that a heap can have. What comes out can be used without a second look.
//!  2. A fact that fails ends the reading of this process with a line that names it.
//!  3. What the tables lead to (records, pointers, counts of blocks) may be torn or a lie all the same: readers clamp
//!     it.
//!
//! The only layout known here is that of `struct inspect` and its two tables, version 1.
// SPDX-License-Identifier: MIT

use super::remote::Remote;
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::proc::Pid;
use std::collections::HashMap;
use std::ops::RangeInclusive;

pub const VERSION: u32 = 1;
const MAGIC: &[u8] = b"hakmem inspect\0\0";
const INSPECT_BYTES: usize = 48;
const FACT_NAME: usize = 40;
const FACT_BYTES: usize = 56;
const PLACE_NAME: usize = 24;
const PLACE_BYTES: usize = 32;
const ENTRIES_MAX: usize = 4096;
/// The largest struct that is believed. The largest there is, `struct superslab_row`, has 9 KiB.
const STRUCT_MAX: u64 = 64 << 10;
/// No address of a process is above: five levels of page tables.
const ADDRESS_MAX: u64 = 1 << 57;
/// SuperSlabs in a row of the table.
pub const SUPERSLABS_PER_ROW: usize = 64;

/// A size class as the library has it.
#[derive(Debug, Clone, Copy)]
pub struct SizeClass {
    pub block_bytes: u64,
    pub blocks: u64,
    pub slots: u64,
}

/// A field of a struct.
#[derive(Debug, Clone, Copy, Default)]
pub struct Field {
    pub at: usize,
    pub bytes: usize,
}

impl Field {
    /// The field of the struct at the start of `record`; 0 if the record is cut short.
    pub fn of(self, record: &[u8]) -> u64 {
        let Some(bytes) = record.get(self.at..self.at + self.bytes.min(8)) else {
            return 0;
        };
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    }

    /// An element of the field, which is an array of numbers of `width` bytes each.
    pub fn element(self, record: &[u8], index: usize, width: usize) -> u64 {
        Field { at: self.at + index * width, bytes: width }.of(record)
    }

    pub fn slice(self, record: &[u8]) -> &[u8] {
        record.get(self.at..self.at + self.bytes).unwrap_or(&[])
    }

    fn end(self) -> u64 {
        (self.at + self.bytes) as u64
    }
}

pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub fn word(bytes: &[u8], at: usize) -> u64 {
    Field { at, bytes: 8 }.of(bytes)
}

// ---- what the process says ----

/// Facts and places by name, as they were found.
struct Told {
    pid: Pid,
    version: String,
    facts: HashMap<String, (u64, u64)>,
    places: HashMap<String, u64>,
}

impl Told {
    fn wrong(&self, fact: &str, what: impl std::fmt::Display) -> anyhow::Error {
        anyhow::anyhow!("PID {}: its HAKMEM's tables are damaged: {fact} {what}", self.pid)
    }

    fn fact(&self, name: &str) -> Result<(u64, u64)> {
        let (pid, version) = (self.pid, &self.version);
        let missing =
            || format!("PID {pid}: HAKMEM {version} does not provide {name}: update this command or the library");
        self.facts.get(name).copied().with_context(missing)
    }

    /// "SLOT_BYTES"
    fn constant(&self, name: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let (value, _) = self.fact(name)?;
        ensure!(range.contains(&value), self.wrong(name, format_args!("is {value}")));
        Ok(value)
    }

    /// "slab.kind", within `struct slab`.
    fn field(&self, name: &str) -> Result<Field> {
        let (at, bytes) = self.fact(name)?;
        let whole = format!("sizeof {}", name.split('.').next().unwrap_or(name));
        let size = match self.facts.contains_key(&whole) {
            true => self.constant(&whole, 1..=STRUCT_MAX)?,
            false => STRUCT_MAX,
        };
        let inside = at.checked_add(bytes).is_some_and(|end| bytes > 0 && end <= size);
        ensure!(inside, self.wrong(name, format_args!("is {bytes} bytes at {at}, in a struct of {size}")));
        Ok(Field { at: at as usize, bytes: bytes as usize })
    }

    /// A number of at most this many bytes.
    fn number(&self, name: &str, max: usize) -> Result<Field> {
        let field = self.field(name)?;
        let fits = matches!(field.bytes, 1 | 2 | 4 | 8) && field.bytes <= max;
        ensure!(fits, self.wrong(name, format_args!("is a number of {} bytes", field.bytes)));
        Ok(field)
    }

    /// One element or more, each of this many bytes.
    fn array(&self, name: &str, element: usize) -> Result<Field> {
        let field = self.field(name)?;
        let fits = field.bytes % element == 0;
        ensure!(fits, self.wrong(name, format_args!("is an array of {} bytes", field.bytes)));
        Ok(field)
    }

    fn place(&self, name: &str) -> Result<u64> {
        let (pid, version) = (self.pid, &self.version);
        let missing = || format!("PID {pid}: HAKMEM {version} does not say where {name} is: update this command");
        let at = *self.places.get(name).with_context(missing)?;
        ensure!((1..ADDRESS_MAX).contains(&at), self.wrong(name, format_args!("is at {at:#x}")));
        Ok(at)
    }
}

// ---- what is believed of it ----

/// A struct of facts, each with the check that it has passed.
macro_rules! facts {
    ($(#[$about:meta])* $name:ident {
        numbers: $($number:ident = $number_name:literal upto $bytes:literal),*;
        arrays: $($array:ident = $array_name:literal of $element:literal),*;
        constants: $($constant:ident = $constant_name:literal in $range:expr),*;
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default)]
        pub struct $name {
            $(pub $number: Field,)*
            $(pub $array: Field,)*
            $(pub $constant: u64,)*
        }
        impl $name {
            fn of(told: &Told) -> Result<$name> {
                Ok($name {
                    $($number: told.number($number_name, $bytes)?,)*
                    $($array: told.array($array_name, $element)?,)*
                    $($constant: told.constant($constant_name, $range)?,)*
                })
            }
        }
    };
}

const BYTE: RangeInclusive<u64> = 0..=255;

facts! {
    /// What is needed of `struct slab` and its like.
    SlabFacts {
        numbers: owner = "slab.owner" upto 8, inbox = "slab.inbox" upto 8, class_id = "slab.class_id" upto 4,
            kind = "slab.kind" upto 4, slots = "slab.slots" upto 4,
            list = "slab.tiny.list" upto 8, countdown = "slab.tiny.countdown" upto 4,
            check_after = "slab.tiny.check_after" upto 4, floor = "slab.tiny.floor" upto 4,
            carved = "slab.tiny.carved" upto 4, place = "slab.tiny.place" upto 4,
            purged_blocks = "slab.tiny.purged_blocks" upto 4, purged_pages = "slab.tiny.purged_pages" upto 4,
            closed_index = "slab.tiny.closed_index" upto 4,
            start = "slab.mid.start" upto 8, block_bytes = "slab.mid.block_bytes" upto 4,
            blocks = "slab.mid.blocks" upto 4, secure = "slab.mid.secure" upto 8, bytes = "slab.single.bytes" upto 8,
            single_state = "slab.single.state" upto 4, lead_bytes = "slab.single.lead_bytes" upto 8,
            span_slots = "slab.single.span_slots" upto 8, secure_held = "secure_span.held" upto 4,
            pack_free = "pack.free" upto 8, pack_begins = "pack.begins" upto 8, pack_ends = "pack.ends" upto 8;
        arrays: state = "slab.mid.state" of 1, meshed_map = "meshed.map" of 8;
        constants: slab_size = "sizeof slab" in 1..=4096, secure_line = "SPAN_LINE_BYTES" in 128..=65536,
            secure_states = "SPAN_STATES_LINE" in 1..=255, secure_lines = "SPAN_LINES" in 1..=1024,
            slot_bytes = "SLOT_BYTES" in 64 << 10..=1 << 20, superslab_bytes = "SUPERSLAB_BYTES" in 2 << 20..=32 << 20,
            pack_size = "sizeof pack" in 1..=4096, piece_bytes = "PIECE_BYTES" in 1 << 10..=16 << 10,
            superslab_slots = "SUPERSLAB_SLOTS" in 32..=32, tiny_classes = "TINY_CLASSES" in 1..=128,
            kind_tiny = "KIND_TINY" in BYTE, kind_mid = "KIND_MID" in BYTE, kind_large = "KIND_LARGE" in BYTE,
            kind_huge = "KIND_HUGE" in BYTE, kind_packed = "KIND_PACKED" in BYTE,
            kind_guard_page = "KIND_GUARD_PAGE" in BYTE,
                kind_secure_small = "KIND_SECURE_SMALL" in BYTE, kind_secure_large = "KIND_SECURE_LARGE" in BYTE,
            kind_meshed = "KIND_MESHED" in BYTE, meshed_size = "sizeof meshed" in 1..=STRUCT_MAX,
            kind_in_arena = "KIND_IN_ARENA" in BYTE,
            on_loan = "OWNER_ON_LOAN" in BYTE, place_current = "PLACE_CURRENT" in BYTE,
                block_live = "BLOCK_LIVE" in BYTE,
            block_cached = "BLOCK_CACHED" in BYTE, block_state = "BLOCK_STATE" in BYTE,
            state_freed = "STATE_FREED" in 0..=0xffff, state_slack = "STATE_SLACK" in 0..=0xffff,
            canary_bytes = "CANARY_BYTES" in BYTE, huge_none = "HUGE_NONE" in BYTE;
    }
}

impl SlabFacts {
    pub fn kind_of(&self, record: &[u8]) -> u64 {
        self.kind.of(record) & !self.kind_in_arena
    }

    /// The states of secure mode's blocks are in lines of 64.
    pub fn secure_blocks_max(&self) -> u64 {
        self.secure_lines.saturating_sub(self.secure_states) * 64
    }

    /// How many slots the span has that the record says begins there; None: the kind is not known here.
    pub fn slots_of(&self, record: &[u8]) -> Option<u64> {
        match self.kind_of(record) {
            kind if [self.kind_tiny, self.kind_packed, self.kind_guard_page, self.kind_meshed].contains(&kind) => {
                Some(1)
            }
            kind if [self.kind_mid, self.kind_large, self.kind_secure_small].contains(&kind) => {
                Some(self.slots.of(record))
            }
            kind if kind == self.kind_huge => {
                Some(self.bytes.of(record).div_ceil(self.superslab_bytes) * self.superslab_slots)
            }
            kind if kind == self.kind_secure_large => {
                let lead = self.lead_bytes.of(record) / self.slot_bytes;
                Some(self.span_slots.of(record).saturating_sub(lead))
            }
            _ => None,
        }
    }
}

facts! {
    /// What the system may take and need not have taken: LAZY slots, pages of tiny slabs, blocks of mid slabs.
    LazyFacts {
        numbers: slots = "superslab.lazy" upto 4, page_flags = "slab.tiny.page_flags" upto 4;
        arrays: ;
        constants: pages = "PAGES_LAZY" in BYTE, block = "BLOCK_LAZY" in BYTE;
    }
}

impl LazyFacts {
    /// A library that says nothing of LAZY memory has none.
    fn if_any(told: &Told) -> Result<LazyFacts> {
        match told.facts.contains_key("superslab.lazy") {
            true => LazyFacts::of(told),
            false => Ok(LazyFacts::default()),
        }
    }
}

facts! {
    /// What is needed of `struct heap` and its like.
    HeapFacts {
        numbers: owned_slabs = "heap.owned.slabs" upto 4, lent_slabs = "heap.lent.slabs" upto 4,
            number = "heap.number" upto 4, in_use = "heap.in_use" upto 4,
            next = "heap.next" upto 8, purge_seen = "heap.purge_seen" upto 8, outbox_slab = "outbox_entry.slab" upto 4,
            outbox_blocks = "outbox_entry.blocks" upto 4, ring_held_and_popped = "ring.held_and_popped" upto 8,
            ring_block_kib = "ring.block_kib" upto 4, row_blocks = "ledger_row.blocks" upto 8,
            row_misses = "ledger_row.misses" upto 8, rest = "sampler_class.rest" upto 8;
        arrays: ledger = "heap.ledger" of 1, list = "heap.list" of 8, outbox = "heap.outbox" of 1,
            sampled = "heap.sampled" of 1, ring = "heap.ring" of 8, client = "heap.client" of 1,
            current = "heap.current" of 8, deferred = "heap.deferred" of 4,
            counters = "client.counters" of 8;
        constants: heap_size = "sizeof heap" in 1..=STRUCT_MAX, outbox_entries = "OUTBOX_ENTRIES" in 1..=4096,
            outbox_entry_size = "sizeof outbox_entry" in 1..=4096, ring_classes = "RING_CLASSES" in 1..=512,
                ring_held_bits = "RING_HELD_BITS" in 1..=32, sampled_size = "sizeof sampler_class" in 1..=4096,
            counter_count = "COUNTER_COUNT" in 1..=512, row_size = "sizeof ledger_row" in 1..=256;
    }
}

facts! {
    RegionFacts {
        numbers: base = "region.base" upto 8, window = "region.window" upto 4, slabs = "region.slabs" upto 8,
            key = "region.key" upto 8, rows = "region.rows" upto 8, tables = "region.tables" upto 8,
            packs = "region.packs" upto 8, superslabs_max = "region.superslabs_max" upto 8,
            superslabs = "region_use.superslabs" upto 8,
            word = "superslab.word" upto 8, huge = "superslab.huge" upto 4, arena = "superslab.arena" upto 4;
        arrays: ;
        constants: region_size = "sizeof region" in 1..=STRUCT_MAX, use_size = "sizeof region_use" in 1..=STRUCT_MAX,
            superslab_size = "sizeof superslab" in 1..=1024, row_size = "sizeof superslab_row" in 1..=STRUCT_MAX;
    }
}

facts! {
    /// What is needed of `struct arena` (src/space/arena_record.h).
    ArenaFacts {
        numbers: made = "arena_table.made" upto 4, handle = "arena.handle" upto 8,
            limit_slots = "arena.limit_slots" upto 8, slots = "arena.slots" upto 8,
            peak_slots = "arena.peak_slots" upto 8, superslabs = "arena.superslabs" upto 8,
                of_heap = "client.arena" upto 4;
        arrays: chunk = "arena_table.chunk" of 8, name = "arena.name" of 1;
        constants: table_size = "sizeof arena_table" in 1..=STRUCT_MAX, arena_size = "sizeof arena" in 1..=4096,
            in_chunk = "ARENAS_IN_CHUNK" in 1..=4096, chunks = "ARENA_CHUNKS" in 1..=4096;
    }
}

facts! {
    /// Size classes, options, and what steers the process.
    TableFacts {
        numbers: class_bytes = "size_class.block_bytes" upto 4, class_blocks = "size_class.blocks" upto 4,
            class_slots = "size_class.slots" upto 4, option_name = "option_entry.name" upto 8,
            option_initial = "option_entry.initial" upto 8, option_min = "option_entry.min" upto 8,
            option_max = "option_entry.max" upto 8, option_choices = "option_entry.choices" upto 8,
            option_help = "option_entry.help" upto 8, option_kind = "option_entry.kind" upto 4,
            option_when = "option_entry.when" upto 4, purge_wanted = "asked.purge_wanted" upto 8,
            purger = "fork_page.purger" upto 4;
        arrays: tunable_words = "tunables.word" of 4, tunable_class_words = "tunables.of_class" of 4;
        constants: class_size = "sizeof size_class" in 1..=4096, classes = "CLASSES" in 1..=512,
            option_size = "sizeof option_entry" in 1..=4096, options = "OPTION_COUNT" in 1..=512,
            tunables = "TUNABLE_COUNT" in 1..=512, class_tunables = "CLASS_TUNABLE_COUNT" in 1..=64,
            tuned_classes = "TUNED_CLASSES" in 1..=255,
            kind_number = "OPTION_NUMBER" in BYTE, kind_bytes = "OPTION_BYTES" in BYTE,
            kind_choice = "OPTION_CHOICE" in BYTE, kind_text = "OPTION_TEXT" in BYTE,
            live = "LIVE" in BYTE, text_bytes = "OPTION_TEXT_BYTES" in 1..=4096,
            purger_none = "PURGER_NONE" in BYTE, purger_runs = "PURGER_RUNS" in BYTE,
            purger_parked = "PURGER_PARKED" in BYTE;
    }
}

facts! {
    /// What ACE found (`struct tuner_seen`, src/learn/tuner.h).
    AceFacts {
        numbers: rounds = "tuner_seen.rounds" upto 4, in_use = "tuner_seen.in_use" upto 4,
            best = "tuner_seen.best" upto 4,
            switches = "tuner_seen.switches" upto 4, changes = "tuner_seen.changes" upto 4, ns = "tuner_seen.ns" upto 8,
            deviation = "tuner_seen.deviation" upto 4,
            saved_cpu = "tuner_seen.saved.cpu_ns" upto 8, saved_kept = "tuner_seen.saved.kept" upto 8,
            within_cpu = "tuner_seen.within.cpu_ns" upto 8, within_kept = "tuner_seen.within.kept" upto 8,
            possible_cpu = "tuner_seen.possible.cpu_ns" upto 8, possible_kept = "tuner_seen.possible.kept" upto 8;
        arrays: elo = "tuner_seen.elo" of 4, cost_us = "tuner_seen.cost_us" of 4;
        constants: seen_size = "sizeof tuner_seen" in 1..=4096, presets = "PRESET_COUNT" in 1..=64;
    }
}

facts! {
    /// The heap profile (src/observe/profile.h, python.h).
    ProfileFacts {
        numbers: wanted_bytes = "asked.wanted_bytes" upto 8, requests = "asked.requests" upto 4,
            dropped = "profile.dropped" upto 8,
            stacks = "profile.stacks" upto 8, mark = "profile.mark" upto 8, stacks_used = "profile.stacks_used" upto 8,
            samples = "profile.samples" upto 8, levels_used = "profile.levels_used" upto 8,
            sample_address = "profile_sample.address" upto 8, sample_bytes = "profile_sample.bytes" upto 8,
            sample_objects = "profile_sample.estimated_objects" upto 8,
            sample_estimated = "profile_sample.estimated_bytes" upto 8, sample_stack = "profile_sample.stack" upto 4,
            sample_birth = "profile_sample.birth_ms" upto 4, depth = "profile_stack.depth" upto 4,
            kept_mark = "profile_stack.kept_mark" upto 8, kept_bytes = "profile_stack.kept_bytes" upto 8,
            kept_objects = "profile_stack.kept_objects" upto 8,
            total_bytes = "profile_total.estimated_bytes" upto 8,
                total_objects = "profile_total.estimated_objects" upto 8,
            arenas = "profile.arenas" upto 8, stack_arena = "profile_stack.arena" upto 4,
            codes = "python.codes" upto 8, minor = "python.minor" upto 4, code_text = "python_code.text" upto 8,
            name_bytes = "python_code.name_bytes" upto 4, file_bytes = "python_code.file_bytes" upto 4,
            lines_bytes = "python_code.lines_bytes" upto 4, first_line = "python_code.first_line" upto 4;
        arrays: allocated = "profile_stack.allocated" of 1, freed = "profile_stack.freed" of 1,
            lifetimes = "profile_stack.lifetimes" of 4, callers = "profile_stack.callers" of 8,
                arena_name = "profile_arena.name" of 1;
        constants: stack_size = "sizeof profile_stack" in 1..=4096, sample_size = "sizeof profile_sample" in 1..=4096,
            arenas_most = "PROFILE_ARENAS" in 1..=4096, arena_size = "sizeof profile_arena" in 1..=4096,
            stacks_most = "PROFILE_STACKS" in 1..=1 << 16, least_samples = "PROFILE_SAMPLES_MIN" in 1..=4096,
            callers_most = "PROFILE_CALLERS" in 1..=256, code_size = "sizeof python_code" in 1..=4096,
            codes_most = "PYTHON_CODES" in 1..=1 << 16, lifetimes_count = "PROFILE_LIFETIMES" in 1..=64;
    }
}

/// Addresses of the library's variables.
macro_rules! places {
    ($($name:ident)*) => {
        #[derive(Debug, Clone, Default)]
        pub struct Places { $(pub $name: u64,)* }
        impl Places {
            fn of(told: &Told) -> Result<Places> {
                Ok(Places { $($name: told.place(stringify!($name))?,)* })
            }
        }
    };
}

places! {
    page_bytes region region_use heap_newest fork_page size_classes counter_names counter_help option_table
    start_options live_options option_texts ledger_ended ring_hits_ended tunable_table tunables tunable_ranges ace
    preset_names asked profile python span_table meshed arenas
}

#[derive(Debug)]
pub struct Layout {
    pub version: String,
    pub places: Places,
    pub slab: SlabFacts,
    pub lazy: LazyFacts,
    pub heap: HeapFacts,
    pub region: RegionFacts,
    pub arena: ArenaFacts,
    pub table: TableFacts,
    pub ace: AceFacts,
    pub profile: ProfileFacts,
}

fn read_places(remote: &Remote, at: u64, count: usize) -> Result<HashMap<String, u64>> {
    let table = remote.read_vec(at, count * PLACE_BYTES)?;
    Ok(table.chunks_exact(PLACE_BYTES).map(|entry| (text(&entry[..PLACE_NAME]), word(entry, PLACE_NAME))).collect())
}

/// "1.2.3-rc1"; anything else is no version.
fn is_version(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || ".-+~_".contains(letter);
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_part)
}

impl Layout {
    pub fn read(remote: &Remote, inspect: u64) -> Result<Layout> {
        let pid = remote.pid;
        ensure!(inspect < ADDRESS_MAX, "PID {pid}: its HAKMEM's tables are damaged");
        let head = remote.read_vec(inspect, INSPECT_BYTES)?;
        ensure!(head.starts_with(MAGIC), "PID {pid}: its HAKMEM's tables are overwritten");
        let number = |at| Field { at, bytes: 4 }.of(&head) as usize;
        let (tables, facts, places) = (number(16) as u32, number(20), number(24));
        ensure!(facts <= ENTRIES_MAX && places <= ENTRIES_MAX, "PID {pid}: its HAKMEM's tables are damaged");
        let (facts_at, places_at) = (word(&head, 32), word(&head, 40));
        let places = read_places(remote, places_at, places);
        let version = places.as_ref().ok().and_then(|places| remote.text(*places.get("version")?).ok());
        let version = version.filter(|text| is_version(text)).unwrap_or("of an unknown version".to_string());
        if tables != VERSION {
            bail!(
                "PID {pid} runs HAKMEM {version}, whose tables have version {tables}; this command knows version \
                 {VERSION}: update it"
            );
        }
        let facts = remote
            .read_vec(facts_at, facts * FACT_BYTES)?
            .chunks_exact(FACT_BYTES)
            .map(|entry| (text(&entry[..FACT_NAME]), (word(entry, FACT_NAME), word(entry, FACT_NAME + 8))))
            .collect();
        Layout::of(&Told { pid, version, facts, places: places? })
    }

    fn of(told: &Told) -> Result<Layout> {
        let layout = Layout {
            version: told.version.clone(),
            places: Places::of(told)?,
            slab: SlabFacts::of(told)?,
            lazy: LazyFacts::if_any(told)?,
            heap: HeapFacts::of(told)?,
            region: RegionFacts::of(told)?,
            arena: ArenaFacts::of(told)?,
            table: TableFacts::of(told)?,
            ace: AceFacts::of(told)?,
            profile: ProfileFacts::of(told)?,
        };
        layout.check(told)?;
        Ok(layout)
    }

    /// What holds between facts.
    fn check(&self, told: &Told) -> Result<()> {
        let (slab, heap, region, profile) = (&self.slab, &self.heap, &self.region, &self.profile);
        let rules = [
            ("SLOT_BYTES", slab.slot_bytes.is_power_of_two()),
            ("SUPERSLAB_BYTES", slab.superslab_bytes == slab.superslab_slots * slab.slot_bytes),
            ("PIECE_BYTES", slab.slot_bytes == 64 * slab.piece_bytes),
            ("TINY_CLASSES", slab.tiny_classes <= self.table.classes),
            ("heap.list", heap.list.bytes as u64 >= slab.tiny_classes * 8),
            ("heap.current", heap.current.bytes as u64 >= slab.tiny_classes * 8),
            ("heap.deferred", heap.deferred.bytes as u64 >= slab.tiny_classes * 4),
            ("heap.sampled", heap.sampled.bytes as u64 >= slab.tiny_classes * heap.sampled_size),
            ("heap.ring", heap.ring.bytes as u64 >= heap.ring_classes * 8),
            ("heap.outbox", heap.outbox.bytes as u64 >= heap.outbox_entries * heap.outbox_entry_size),
            ("heap.client", heap.client.at as u64 + heap.counters.end() <= heap.heap_size),
            ("client.counters", heap.counters.bytes as u64 >= heap.counter_count * 8),
            ("ring.held_and_popped", heap.ring_held_and_popped.end().max(heap.ring_block_kib.end()) <= 4096),
            ("sizeof superslab_row", region.row_size >= SUPERSLABS_PER_ROW as u64 * region.superslab_size),
            ("client.arena", heap.client.at as u64 + self.arena.of_heap.end() <= heap.heap_size),
            ("arena_table.chunk", self.arena.chunk.bytes as u64 >= self.arena.chunks * 8),
            ("profile_stack.callers", profile.callers.bytes as u64 >= profile.callers_most * 8),
            ("profile_stack.lifetimes", profile.lifetimes.bytes as u64 >= profile.lifetimes_count * 4),
        ];
        match rules.into_iter().find(|(_, holds)| !holds) {
            Some((fact, _)) => Err(told.wrong(fact, "does not fit the others")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_widths() {
        let record: Vec<u8> = (1..=16).collect();
        assert_eq!(Field { at: 1, bytes: 1 }.of(&record), 2);
        assert_eq!(Field { at: 2, bytes: 4 }.of(&record), 0x0605_0403);
        assert_eq!(Field { at: 14, bytes: 8 }.of(&record), 0, "cut short");
        assert_eq!(Field { at: 0, bytes: 16 }.element(&record, 3, 2), 0x0807);
        assert_eq!(Field { at: 4, bytes: 3 }.slice(&record), [5, 6, 7]);
    }

    #[test]
    fn versions_are_plain() {
        assert!(is_version("0.1.0") && is_version("1.2-rc_3+git~4"));
        assert!(!is_version("") && !is_version("1\x1b[31m") && !is_version("1\n2") && !is_version(&"1".repeat(65)));
    }
}
