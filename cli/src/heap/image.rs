//! A heap to try readers on: the tables and records of a process that is not there, in memory, every byte of which a
//! test can change. Facts are those of the library: facts.txt
//! holds its table as built for x86-64, as tests/heap/evil.c prints it.
// SPDX-License-Identifier: MIT

use super::finding::Found;
use super::remote::{areas, Area, Image, Remote};
use anyhow::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

const FACTS: &str = include_str!("facts.txt");
pub const INSPECT: u64 = 0x10_0000;
const FACTS_AT: u64 = 0x20_0000;
const PLACES_AT: u64 = 0x21_0000;
const TEXTS_AT: u64 = 0x22_0000;
const DATA_AT: u64 = 0x30_0000;
const HEAPS_AT: u64 = 0x5000_0000_0000;
const ROWS_AT: u64 = 0x5400_0000_0000;
const SLABS_AT: u64 = 0x5800_0000_0000;
pub const BASE: u64 = 0x6000_0000_0000;
const SUPERSLABS: u64 = 3;
/// The mapping of the slots ends in the middle of slot 23, and another one begins.
const SLOT_CUT: u64 = 23 * 65536 + 32768;
const HEAPS: u64 = 2;

#[derive(Default)]
pub struct Memory {
    parts: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// What the words are where nothing is, by their addresses; None: reading fails there.
    elsewhere: Option<fn(u64) -> u64>,
    /// Where variables are.
    places: HashMap<&'static str, u64>,
}

impl Image for Memory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let parts = self.parts.lock().unwrap();
        let found = parts.range(..=address).next_back().and_then(|(at, part)| {
            let from = (address - at) as usize;
            part.get(from..from.checked_add(bytes.len())?)
        });
        match found {
            Some(part) => bytes.copy_from_slice(part),
            None => {
                let Some(word) = self.elsewhere else { return false };
                for (i, part) in bytes.chunks_mut(8).enumerate() {
                    part.copy_from_slice(&word(address.wrapping_add(8 * i as u64)).to_le_bytes()[..part.len()]);
                }
            }
        }
        true
    }

    fn mappings(&self, _with_rss: bool) -> Result<Vec<Area>> {
        let area = |start: u64, bytes: u64, name: &str| {
            format!("{start:x}-{:x} rw-p 00000000 00:00 0 {name}\nRss: 64 kB\nAnonHugePages: 0 kB\n", start + bytes)
        };
        let text = area(0x40_0000, 0x1000, "[heap]")
            + &area(HEAPS_AT, 4 << 20, "")
            + &area(BASE, SLOT_CUT, "")
            + &area(BASE + SLOT_CUT, (SUPERSLABS << 21) - SLOT_CUT, "")
            + &area(0x7ff0_0000_0000, 0x2000, "[stack]");
        areas(text.as_bytes())
    }
}

/// What is where in the image.
struct Builder {
    facts: HashMap<&'static str, (u64, u64)>,
    parts: BTreeMap<u64, Vec<u8>>,
    places: Vec<(&'static str, u64)>,
    next: u64,
    texts: Vec<u8>,
}

impl Builder {
    fn constant(&self, name: &str) -> u64 {
        self.facts[name].0
    }

    /// A variable of the library.
    fn place(&mut self, name: &'static str, bytes: u64) -> u64 {
        let at = self.next;
        self.next += bytes.next_multiple_of(64);
        self.places.push((name, at));
        self.parts.insert(at, vec![0; bytes as usize]);
        at
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (start, part) = self.parts.range_mut(..=at).next_back().unwrap();
        let from = (at - start) as usize;
        part[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn set(&mut self, record: u64, field: &str, value: u64) {
        let (at, bytes) = self.facts[field];
        self.put(record + at, &value.to_le_bytes()[..bytes.min(8) as usize]);
    }

    fn text(&mut self, text: &str) -> u64 {
        let at = TEXTS_AT + self.texts.len() as u64;
        self.texts.extend(text.as_bytes());
        self.texts.push(0);
        at
    }

    fn tables(&mut self) {
        let (classes, tiny) = (self.constant("CLASSES"), self.constant("TINY_CLASSES"));
        let at = self.place("size_classes", classes * self.constant("sizeof size_class"));
        for class in 0..classes {
            let (bytes, slots) = if class < tiny { (16 * (class + 1), 1) } else { (1024 * (class - tiny + 2), 5) };
            let record = at + class * self.constant("sizeof size_class");
            self.set(record, "size_class.block_bytes", bytes);
            self.set(record, "size_class.blocks", (slots * 65536 / bytes).min(if class < tiny { 4096 } else { 64 }));
            self.set(record, "size_class.slots", slots);
        }
        let count = self.constant("COUNTER_COUNT");
        for name in ["counter_names", "counter_help"] {
            let at = self.place(name, count * 8);
            for i in 0..count {
                let text = self.text(&format!("{name}_{i}"));
                self.put(at + i * 8, &text.to_le_bytes());
            }
        }
        let (count, size) = (self.constant("OPTION_COUNT"), self.constant("sizeof option_entry"));
        let at = self.place("option_table", count * size);
        for i in 0..count {
            let (record, text) = (at + i * size, self.text(&format!("OPTION_{i}")));
            for name in ["option_entry.name", "option_entry.help", "option_entry.choices"] {
                self.set(record, name, text);
            }
            self.set(record, "option_entry.max", 1 << 40);
            self.set(record, "option_entry.kind", i % 4);
            self.set(record, "option_entry.when", i % 2);
        }
        self.place("start_options", count * 8);
        self.place("live_options", count * 8);
        self.place("option_texts", count * self.constant("OPTION_TEXT_BYTES"));
        self.place("ledger_ended", self.constant("TUNED_CLASSES") * self.constant("sizeof ledger_row"));
        self.place("ring_hits_ended", self.constant("RING_CLASSES") * 8);
        let (count, classes) = (self.constant("TUNABLE_COUNT"), self.constant("CLASS_TUNABLE_COUNT"));
        let at = self.place("tunable_table", (count + classes) * size);
        for i in 0..count + classes {
            let (record, text) = (at + i * size, self.text(&format!("tunable_{i}")));
            for name in ["option_entry.name", "option_entry.help", "option_entry.choices"] {
                self.set(record, name, text);
            }
        }
        self.place("tunables", (count + classes * self.constant("TUNED_CLASSES")) * 4);
        let at = self.place("tunable_ranges", classes * 2);
        (0..classes).for_each(|i| self.put(at + 2 * i, &[0, 10]));
        self.place("ace", self.constant("sizeof tuner_seen"));
        self.place("preset_names", self.constant("PRESET_COUNT") * 8);
    }

    fn slabs(&mut self) {
        let (variable, entries) = (self.place("meshed", 8), self.place("meshes", self.constant("sizeof meshed")));
        self.put(variable, &entries.to_le_bytes());
        self.set(entries, "meshed.map", 0b1010);
        let packs = self.place("packs", SUPERSLABS * 32 * self.constant("sizeof pack"));
        // One from the last two pieces of slot 21 to the first three of slot 22, and five behind it.
        for (slot, free, begins, ends) in [(21, !(3 << 62), 1 << 62, 0), (22, !0xff, 1 << 3, 1 << 2 | 1 << 7)] {
            let record = packs + slot * self.constant("sizeof pack");
            for (field, bits) in [("pack.free", free), ("pack.begins", begins), ("pack.ends", ends)] {
                self.set(record, field, bits);
            }
        }
        let (slots, size) = (self.constant("SUPERSLAB_SLOTS"), self.constant("sizeof slab"));
        self.parts.insert(SLABS_AT, vec![0; (SUPERSLABS * slots * size) as usize]);
        self.parts.insert(ROWS_AT, vec![0; self.constant("sizeof superslab_row") as usize]);
        self.parts.insert(BASE, vec![0; (SUPERSLABS << 21) as usize]);
        for superslab in 0..SUPERSLABS {
            let record = ROWS_AT + superslab * self.constant("sizeof superslab");
            self.set(record, "superslab.word", 0xf0ff_ffff_00ff_ffff);
            self.set(record, "superslab.lazy", 0x0f00_0000);
            for slot in 0..slots {
                let record = SLABS_AT + (superslab * slots + slot) * size;
                let kind = match slot {
                    20 => "KIND_MESHED",
                    21 | 22 => "KIND_PACKED",
                    _ => ["KIND_TINY", "KIND_MID", "KIND_LARGE", "KIND_SECURE_SMALL", "KIND_SECURE_LARGE"]
                        [(slot % 5) as usize],
                };
                self.set(record, "slab.kind", self.constant(kind));
                self.set(record, "slab.owner", HEAPS_AT);
                self.set(record, "slab.slots", 1);
                if slot % 5 == 0 {
                    self.set(record, "slab.tiny.page_flags", self.constant("PAGES_LAZY"));
                    self.set(record, "slab.tiny.purged_pages", 0xc000);
                    self.set(record, "slab.tiny.carved", 60);
                    self.set(record, "slab.tiny.countdown", 20);
                    self.set(record, "slab.tiny.list", BASE + (superslab * slots + slot) * 65536);
                }
                self.set(record, "slab.class_id", if slot % 5 == 1 { 60 } else { slot % 8 });
            }
        }
    }

    fn heaps(&mut self) {
        let (bytes, size) = (self.constant("HEAP_BYTES"), self.constant("sizeof heap"));
        let newest = self.place("heap_newest", 8);
        self.put(newest, &(HEAPS_AT + (HEAPS - 1) * bytes).to_le_bytes());
        for i in 0..HEAPS {
            let heap = HEAPS_AT + i * bytes;
            self.parts.insert(heap, vec![0; bytes as usize]);
            self.set(heap, "heap.number", i);
            self.set(heap, "heap.in_use", 1);
            self.set(heap, "heap.next", if i > 0 { heap - bytes } else { 0 });
            let lists = self.facts["heap.list"].0;
            for class in 0..4 {
                self.put(heap + lists + class * 8, &(BASE + class * 5 * 65536).to_le_bytes());
            }
            let (outbox, ring) = (heap + self.facts["heap.outbox"].0, heap + size.next_multiple_of(64));
            self.set(outbox, "outbox_entry.slab", 6);
            self.set(outbox, "outbox_entry.blocks", 3);
            self.put(heap + self.facts["heap.ring"].0, &ring.to_le_bytes());
            self.set(ring, "ring.held_and_popped", (7 << self.constant("RING_HELD_BITS")) + 5);
            self.set(ring, "ring.block_kib", 2);
        }
        // Lists in the blocks: each leads to the next, the fourth ends.
        for slot in 0..SUPERSLABS * 32 {
            let at = BASE + slot * 65536;
            for block in 0..4 {
                let next = if block < 3 { at + (block + 1) * 128 } else { 1 };
                self.put(at + block * 128, &next.to_le_bytes());
            }
        }
    }

    fn rest(&mut self) {
        let region = self.place("region", self.constant("sizeof region"));
        let packs = self.places.iter().find(|(name, _)| *name == "packs").unwrap().1;
        for (field, value) in [
            ("region.base", BASE),
            ("region.slabs", SLABS_AT),
            ("region.rows", ROWS_AT),
            ("region.tables", HEAPS_AT),
            ("region.packs", packs),
            ("region.superslabs_max", 1 << 23),
        ] {
            self.set(region, field, value);
        }
        let used = self.place("region_use", self.constant("sizeof region_use"));
        self.set(used, "region_use.superslabs", SUPERSLABS);
        let arenas = self.place("arenas", self.constant("sizeof arena_table"));
        let size = self.constant("sizeof arena");
        let chunk = self.place("chunk", self.constant("ARENAS_IN_CHUNK") * size);
        self.set(arenas, "arena_table.made", 2);
        self.set(arenas, "arena_table.chunk", chunk);
        for (field, value) in [("arena.handle", 1), ("arena.slots", 3)] {
            self.set(chunk + size, field, value);
        }
        self.set(ROWS_AT, "superslab.arena", 1);
        self.place("fork_page", 8);
        self.place("span_table", 8);
        let page_bytes = self.place("page_bytes", 8);
        self.put(page_bytes, &4096_u64.to_le_bytes());
        let version = self.place("version", 8);
        self.put(version, b"9.9.9\0");
        let asked = self.place("asked", 64);
        self.set(asked, "asked.wanted_bytes", 1 << 19);
        let profile = self.place("profile", 128);
        let stacks = self.place("stacks", 256 * self.constant("sizeof profile_stack"));
        let samples = self.place("samples", 256 * self.constant("sizeof profile_sample"));
        for (field, value) in [
            ("profile.stacks", stacks),
            ("profile.stacks_used", 20),
            ("profile.samples", samples),
            ("profile.levels_used", 1),
        ] {
            self.set(profile, field, value);
        }
        let (python, codes) = (self.place("python", 64), self.place("codes", 8 * self.constant("sizeof python_code")));
        let text = self.text("fa.py\u{1}");
        self.set(python, "python.codes", codes);
        self.set(python, "python.minor", 9);
        for i in 0..8 {
            let code = codes + i * self.constant("sizeof python_code");
            for (field, value) in
                [("text", text), ("name_bytes", 1), ("file_bytes", 4), ("lines_bytes", 1), ("first_line", 7)]
            {
                self.set(code, &format!("python_code.{field}"), value);
            }
        }
        for i in 0..40 {
            let (stack, sample) = (stacks + i * self.constant("sizeof profile_stack"), samples + i * 48);
            self.set(stack, "profile_stack.depth", 3);
            let total = stack + self.facts["profile_stack.allocated"].0;
            self.set(total, "profile_total.estimated_bytes", 1000);
            let callers = stack + self.facts["profile_stack.callers"].0;
            self.put(callers, &0x5555_0000_1234_u64.to_le_bytes());
            self.put(callers + 8, &(3 << 62 | (i % 8) << 32 | 5_u64).to_le_bytes());
            self.set(sample, "profile_sample.address", BASE);
            self.set(sample, "profile_sample.bytes", 100);
            self.set(sample, "profile_sample.estimated_objects", 65536);
        }
    }

    fn finish(mut self) -> BTreeMap<u64, Vec<u8>> {
        let name = |text: &str, bytes: usize| {
            let mut name = text.as_bytes().to_vec();
            name.resize(bytes, 0);
            name
        };
        let (mut facts, mut places) = (Vec::new(), Vec::new());
        for (fact, value, bytes) in facts_of_the_library() {
            facts.extend(name(fact, 40));
            facts.extend(value.to_le_bytes());
            facts.extend(bytes.to_le_bytes());
        }
        for (place, at) in &self.places {
            places.extend(name(place, 24));
            places.extend(at.to_le_bytes());
        }
        let mut inspect = name("hakmem inspect", 16);
        for number in [1, (facts.len() / 56) as u32, self.places.len() as u32, 0] {
            inspect.extend(number.to_le_bytes());
        }
        for word in [FACTS_AT, PLACES_AT] {
            inspect.extend(word.to_le_bytes());
        }
        let texts = std::mem::take(&mut self.texts);
        for (at, bytes) in [(INSPECT, inspect), (FACTS_AT, facts), (PLACES_AT, places), (TEXTS_AT, texts)] {
            self.parts.insert(at, bytes);
        }
        // A text is read to the end of its piece of 256 bytes.
        self.parts.values_mut().for_each(|part| part.extend([0; 256]));
        self.parts
    }
}

/// Name, value or offset, bytes.
pub fn facts_of_the_library() -> Vec<(&'static str, u64, u64)> {
    let fact = |line: &'static str| {
        let (name, numbers) = line.split_once(": ").unwrap();
        let (value, bytes) = numbers.split_once(' ').unwrap();
        (name, value.parse().unwrap(), bytes.parse().unwrap())
    };
    FACTS.lines().map(fact).collect()
}

impl Memory {
    /// A heap that is read without an error.
    pub fn sound() -> &'static Memory {
        Memory::with(None)
    }

    /// The same in the midst of memory that goes on and on.
    pub fn endless(word: fn(u64) -> u64) -> &'static Memory {
        Memory::with(Some(word))
    }

    fn with(elsewhere: Option<fn(u64) -> u64>) -> &'static Memory {
        let facts = facts_of_the_library().into_iter().map(|(name, value, bytes)| (name, (value, bytes))).collect();
        let (parts, places, next, texts) = (BTreeMap::new(), Vec::new(), DATA_AT, Vec::new());
        let mut builder = Builder { facts, parts, places, next, texts };
        builder.tables();
        builder.slabs();
        builder.heaps();
        builder.rest();
        let places = builder.places.iter().copied().collect();
        Box::leak(Box::new(Memory { parts: Mutex::new(builder.finish()), elsewhere, places }))
    }

    /// As of a process of this pid, which must be there for what /proc tells.
    pub fn remote(&'static self) -> (Remote, Found) {
        let pid = std::process::id() as hakmem_base::proc::Pid;
        (Remote::of_image(pid, self), Found { inspect: INSPECT, file: "libhakmem.so".into() })
    }

    /// Changes memory; what was there before.
    pub fn change(&self, at: u64, bytes: &[u8]) -> Vec<u8> {
        let mut parts = self.parts.lock().unwrap();
        let (start, part) = parts.range_mut(..=at).next_back().unwrap();
        let from = (at - start) as usize;
        let place = &mut part[from..from + bytes.len()];
        let before = place.to_vec();
        place.copy_from_slice(bytes);
        before
    }

    /// Begin and length of each part.
    pub fn extents(&self) -> Vec<(u64, u64)> {
        self.parts.lock().unwrap().iter().map(|(at, part)| (*at, part.len() as u64)).collect()
    }

    /// Sets a word of a variable.
    pub fn set(&self, variable: &str, offset: u64, word: u64) {
        self.change(self.places[variable] + offset, &word.to_le_bytes());
    }

    /// Sets a field of a slot's record.
    pub fn set_slab(&self, slot: u64, field: &str, value: u64) {
        let fact = |name: &str| facts_of_the_library().into_iter().find(|(fact, ..)| *fact == name).unwrap();
        let ((_, at, bytes), (_, size, _)) = (fact(field), fact("sizeof slab"));
        self.change(SLABS_AT + slot * size + at, &value.to_le_bytes()[..bytes as usize]);
    }

    /// Where a fact's name is.
    pub fn fact_name(number: usize) -> u64 {
        FACTS_AT + 56 * number as u64
    }

    /// Where a fact's value and bytes are.
    pub fn fact(number: usize) -> (u64, u64) {
        let at = Memory::fact_name(number) + 40;
        (at, at + 8)
    }

    /// Where a place's address is.
    pub fn place(number: usize) -> u64 {
        PLACES_AT + 32 * number as u64 + 24
    }
}
