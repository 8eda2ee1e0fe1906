//! A heap as `map`, `view` and `top` show it.
//!
//! 1. `parts`: the process's RSS as terms, none negative, that add up to it.
//! 2. `rates`: counters of slow paths, summed by what they tell; how fast they grow is a rate.
//! 3. `Picture`: what the page draws, small enough to be fetched every second (page.rs).
//! 4. look.rs: names and colours.
// SPDX-License-Identifier: MIT

mod look;
pub mod page;

pub use look::{Colour, Kind};

use crate::heap::model::*;
use hakmem_base::say;
use hakmem_base::shown;
use serde::Serialize;
use std::collections::BTreeMap;

/// As the program named it, or its number.
pub fn arena_name(arena: &Arena) -> String {
    if arena.name.is_empty() {
        arena.number.to_string()
    } else {
        format!("\"{}\"", shown::line(&arena.name))
    }
}

/// A term of the RSS.
#[derive(Clone, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub help: &'static str,
    pub bytes: u64,
    #[serde(skip)]
    pub colour: Colour,
}

/// The terms of the heap and the rest of the process. Blocks that the program holds but never touched take no memory.
pub fn parts(snapshot: &Snapshot) -> Vec<Part> {
    let heap = &snapshot.heap;
    let rest = snapshot.rest.iter().map(|mapping| mapping.rss as i64).fold(0, i64::saturating_add);
    let rest = Term { name: "rest", label: "not the heap", help: "stacks, files, other mappings", bytes: rest };
    let part = |term: Term| Part {
        name: term.label,
        help: term.help,
        bytes: i64::max(term.bytes, 0) as u64,
        colour: colour_of_term(term.name),
    };
    heap.parts().into_iter().chain([rest]).map(part).collect()
}

fn colour_of_term(name: &str) -> Colour {
    let (hue, chroma) = match name {
        "live" => (255.0, 0.14),
        "partly_used_slabs" => (65.0, 0.14),
        "thread_caches" => (320.0, 0.14),
        "empty_slots" => (255.0, 0.015),
        "lazy" => (140.0, 0.07),
        "huge_rounding" => (180.0, 0.1),
        "metadata" => (25.0, 0.13),
        _ => (110.0, 0.03),
    };
    Colour::new(hue, chroma)
}

/// Something that grows while slow paths are taken.
#[derive(Clone, Serialize)]
pub struct Rate {
    pub name: &'static str,
    pub help: &'static str,
    /// So far.
    pub count: u64,
}

/// Each refill counts among one of these; some among `refill_from_partial` or `refill_from_let_go`, too.
const TINY_REFILLS: [&str; 5] =
    ["refill_from_slab", "refill_from_inbox", "refill_from_stale_inbox", "refill_from_purged", "refill_by_carving"];

/// (name, help, counters whose names begin so)
const RATES: [(&str, &str, &[&str]); 11] = [
    ("tiny refills", "an empty list was filled", &TINY_REFILLS),
    ("ring refills", "an empty ring was filled", &["ring_refills"]),
    ("ring spills", "a ring gave blocks back", &["ring_spills"]),
    ("remote frees", "blocks freed in another heap's slab", &["free_remote"]),
    ("adoptions", "slabs that found an owner", &["slabs_adopted_"]),
    ("stage 1: EMPTY", "spans from EMPTY slots", &["stage1_reused_empty"]),
    ("stage 2: UNUSED", "spans from UNUSED slots of a SuperSlab in use", &["stage2_"]),
    ("stage 3: cached", "spans for which a cached SuperSlab was taken", &["stage3_from_cache"]),
    ("stage 3: new", "spans for which a new or purged SuperSlab was taken", &["stage3_new"]),
    ("large and huge", "large and huge blocks taken from the pool", &["large_spans", "huge_runs"]),
    ("purged slots", "slots given back to the system", &["purged_slots"]),
];

pub fn rates(snapshot: &Snapshot) -> Vec<Rate> {
    let sum = |names: &[&str]| {
        let of_group = |counter: &&Counter| names.iter().any(|name| counter.name.starts_with(name));
        snapshot.counters.iter().filter(of_group).map(|counter| counter.value).fold(0, u64::saturating_add)
    };
    let mut rates: Vec<Rate> = RATES.map(|(name, help, names)| Rate { name, help, count: sum(names) }).to_vec();
    let help = "pages the kernel had to bring, of the whole process";
    rates.push(Rate { name: "page faults", help, count: snapshot.process.minor_faults });
    rates
}

/// How many slots are in each state.
pub fn slots(snapshot: &Snapshot) -> String {
    let all = || snapshot.superslabs.iter().flat_map(|superslab| &superslab.slots);
    let states = [State::Active, State::Empty, State::Lazy, State::Unused];
    let [active, empty, lazy, unused] = states.map(|state| all().filter(|slot| slot.state == state).count());
    format!("{active} slots ACTIVE, {empty} EMPTY, {lazy} LAZY, {unused} UNUSED")
}

/// How many SuperSlabs are in use. Saved files may not say it, and the picture may leave some out.
pub fn superslabs(snapshot: &Snapshot) -> String {
    let is_active = |slot: &Slot| slot.state == State::Active;
    let shown = snapshot.superslabs.iter().filter(|superslab| superslab.slots.iter().any(is_active)).count();
    say::count(shown.max(snapshot.superslab_count as usize), "SuperSlab") + " in use"
}

/// A command line without its directory, cut to a readable length, as a terminal may show it.
pub fn name(process: &Process) -> String {
    let command = shown::line(&process.command);
    let (program, arguments) = command.split_once(' ').unwrap_or((&command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    let text = format!("{program} {arguments}");
    match text.char_indices().nth(48) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.trim_end().to_string(),
    }
}

/// The process and its memory, in a line.
pub fn headline(snapshot: &Snapshot) -> String {
    let process = &snapshot.process;
    format!(
        "{} ({}): {} resident, {} of it the heap in {}",
        name(process),
        process.pid,
        say::bytes(process.rss as f64),
        say::bytes(snapshot.heap.total as f64),
        superslabs(snapshot)
    )
}

// ---- what the page draws ----

/// What slots are; `Picture::slots` numbers these.
#[derive(Serialize)]
struct SlotKind {
    name: String,
    state: State,
    tier: Option<Tier>,
    block_bytes: u64,
    blocks: u32,
}

#[derive(Serialize)]
struct Look {
    light: String,
    dark: String,
}

#[derive(Serialize)]
struct Tile {
    number: u64,
    address: String,
    huge_page: bool,
    /// For each slot: kind, blocks used, owner (-1: none), resident bytes, slots back to the first of its span.
    slots: Vec<i64>,
}

/// A snapshot with its slots in few bytes, and what their colours are.
#[derive(Serialize)]
pub struct Picture<'a> {
    headline: String,
    process: &'a Process,
    heap: &'a Terms,
    parts: Vec<Part>,
    rest: &'a [Mapping],
    rates: Vec<Rate>,
    classes: &'a [Class],
    class_names: Vec<String>,
    heaps: &'a [ThreadHeap],
    /// By name of class or part.
    looks: BTreeMap<String, Look>,
    kinds: Vec<SlotKind>,
    superslabs: Vec<Tile>,
}

impl<'a> Picture<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Picture<'a> {
        let parts = parts(snapshot);
        let class_kinds: Vec<Kind> = snapshot.classes.iter().map(Kind::of_class).collect();
        let mut looks = BTreeMap::new();
        let mut look = |name: &str, colour: Colour| {
            looks.insert(name.to_string(), Look { light: colour.on_light(), dark: colour.on_dark() });
        };
        parts.iter().for_each(|part| look(part.name, part.colour));
        class_kinds.iter().for_each(|kind| look(&kind.name(), kind.colour()));
        let mut kinds = Kinds::default();
        let superslabs = snapshot.superslabs.iter().map(|superslab| kinds.tile(superslab)).collect();
        for kind in kinds.places.keys().filter_map(|key| key.0) {
            look(&kind.name(), kind.colour());
        }
        Picture {
            headline: headline(snapshot),
            process: &snapshot.process,
            heap: &snapshot.heap,
            parts,
            rest: &snapshot.rest,
            rates: rates(snapshot),
            classes: &snapshot.classes,
            class_names: class_kinds.iter().map(Kind::name).collect(),
            heaps: &snapshot.heaps,
            looks,
            kinds: kinds.all,
            superslabs,
        }
    }
}

/// The kinds of slots met so far.
#[derive(Default)]
struct Kinds {
    all: Vec<SlotKind>,
    places: BTreeMap<(Option<Kind>, State, u64, u32), usize>,
}

impl Kinds {
    fn place(&mut self, slot: &Slot) -> usize {
        let kind = Kind::of_slot(slot);
        let all = &mut self.all;
        *self.places.entry((kind, slot.state, slot.block_bytes, slot.blocks)).or_insert_with(|| {
            let name = match slot.state {
                State::Active => kind.map_or("unknown".into(), |kind| kind.name()),
                State::Empty => "EMPTY".into(),
                State::Lazy => "LAZY".into(),
                State::Unused => "UNUSED".into(),
            };
            let (block_bytes, blocks) = (slot.block_bytes, slot.blocks);
            all.push(SlotKind { name, state: slot.state, tier: slot.tier, block_bytes, blocks });
            all.len() - 1
        })
    }

    fn tile(&mut self, superslab: &SuperSlab) -> Tile {
        let numbers = superslab.slots.iter().flat_map(|slot| {
            let owner = slot.owner.map_or(-1, i64::from);
            [self.place(slot) as i64, slot.used.into(), owner, slot.resident as i64, slot.back.into()]
        });
        Tile {
            number: superslab.number,
            slots: numbers.collect(),
            address: format!("{:#x}", superslab.address),
            huge_page: superslab.huge_page,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;
    const SLOT_BYTES: u64 = 64 << 10;

    fn slot(state: State, tier: Option<Tier>, block_bytes: u64, blocks: u32, used: u32) -> Slot {
        let resident = match state {
            State::Active | State::Empty => SLOT_BYTES,
            State::Lazy => SLOT_BYTES / 4,
            State::Unused => 0,
        };
        let owner = (tier == Some(Tier::Tiny)).then_some(used % 3);
        Slot { state, tier, block_bytes, blocks, used, owner, resident, lazy: 0, back: 0 }
    }

    fn class(tier: Tier, block_bytes: u64, live_blocks: u64, free_blocks: u64) -> Class {
        let size = if block_bytes == 0 { 100_000 } else { block_bytes };
        Class {
            tier,
            block_bytes,
            slabs: 1 + live_blocks / 100,
            live_blocks,
            cached_blocks: 10,
            free_blocks,
            live: (live_blocks * size) as i64,
            untouched: 0,
            cached: 10 * size as i64,
            lazy: 0,
            free: (free_blocks * size) as i64,
            partly_used_slabs: 1,
            resident: (live_blocks + free_blocks + 10) * size,
            free_pages: 0,
            movable: 0,
            meshable: 0,
            allocations: if tier == Tier::Tiny { 200 * live_blocks } else { 0 },
            misses: live_blocks,
        }
    }

    /// A heap of that many SuperSlabs: in each, slabs of class 96 more or less used, a mid span, a large block, EMPTY,
    /// LAZY and UNUSED slots.
    pub fn snapshot(superslabs: u64) -> Snapshot {
        let superslab = |number: u64| {
            let tiny =
                |at: u64| slot(State::Active, Some(Tier::Tiny), 96, 682, ((number * 131 + at * 67) % 683) as u32);
            let mut slots: Vec<Slot> = (0..16).map(tiny).collect();
            slots.extend((0..3).map(|back| Slot { back, ..slot(State::Active, Some(Tier::Mid), 24576, 8, 6) }));
            slots.extend((0..4).map(|back| Slot { back, ..slot(State::Active, Some(Tier::Large), 262_144, 1, 1) }));
            slots.extend((0..5).map(|_| slot(State::Empty, None, 0, 0, 0)));
            slots.extend((0..4).map(|at| slot(if at == 0 { State::Lazy } else { State::Unused }, None, 0, 0, 0)));
            SuperSlab {
                number,
                address: 0x1000_0000 + (number << 21),
                huge_page: number % 5 == 4,
                arena: u32::from(number % 4 == 2),
                slots,
            }
        };
        let count = superslabs as i64;
        let names =
            ["refill_from_slab", "refill_by_carving", "free_remote", "stage1_reused_empty", "stage1_same_class"];
        let counter = |(at, name): (usize, &&str)| Counter {
            name: name.to_string(),
            help: "".into(),
            value: 1000 * (at as u64 + 1) * superslabs,
        };
        let heap = Terms {
            live: MIB * 3 / 2 * count,
            untouched: MIB / 2 * count,
            partly_used_slabs: MIB / 4 * count,
            thread_caches: MIB / 16 * count,
            empty_slots: 5 * SLOT_BYTES as i64 * count,
            lazy: SLOT_BYTES as i64 / 4 * count,
            huge_rounding: 0,
            metadata: MIB,
            total: (MIB * 3 / 2 + MIB / 4 + MIB / 16 + 21 * SLOT_BYTES as i64 / 4) * count + MIB,
            mapped_rss: 0,
        };
        Snapshot {
            process: Process {
                pid: 4321,
                command: "a program".into(),
                version: "1.2.3".into(),
                threads: 3,
                rss: (heap.total + 3 * MIB) as u64,
                rss_peak: (heap.total + 9 * MIB) as u64,
                minor_faults: 777 * superslabs,
                age_ms: 1000 * superslabs,
                purger: true,
                asleep: false,
            },
            heap,
            rest: vec![
                Mapping { name: "stacks".into(), rss: MIB as u64 },
                Mapping { name: "libc.so.6".into(), rss: 2 * MIB as u64 },
            ],
            classes: vec![
                class(Tier::Tiny, 96, 5000, 700),
                class(Tier::Mid, 24576, 60, 20),
                class(Tier::Large, 0, superslabs, 0),
            ],
            past_classes: Vec::new(),
            superslabs: (0..superslabs).map(superslab).collect(),
            slot_bytes: SLOT_BYTES,
            superslab_count: superslabs,
            heaps: (0..3)
                .map(|number| ThreadHeap {
                    number,
                    in_use: number < 2,
                    cached: 4096 << number,
                    owned_slabs: 5 + number,
                })
                .collect(),
            counters: names.iter().enumerate().map(counter).collect(),
            ace: None,
            nodes: Vec::new(),
            arenas: vec![
                Arena {
                    number: 1,
                    name: "requests\x1b".into(),
                    live: 3 << 20,
                    used: 4 << 20,
                    peak: 5 << 20,
                    limit: Some(64 << 20),
                    resident: 7 << 19,
                    superslabs: 2,
                },
                Arena {
                    number: 2,
                    name: "".into(),
                    live: 8 << 10,
                    used: 8 << 10,
                    peak: 9 << 10,
                    limit: None,
                    resident: 0,
                    superslabs: 0,
                },
            ],
            options: Vec::new(),
            rounding_waste: None,
        }
    }

    #[test]
    fn names_are_short() {
        let name = |command: &str| name(&Process { command: command.into(), ..snapshot(0).process });
        assert_eq!(name("/usr/bin/python3 /x/y.py"), "python3 /x/y.py");
        assert_eq!([name("redis-server"), name("/opt/a/")], ["redis-server", ""]);
        assert_eq!(name(&format!("/bin/sh -c {}", "ü".repeat(99))), format!("sh -c {}…", "ü".repeat(42)));
    }

    #[test]
    fn parts_add_up_to_the_rss() {
        let snapshot = snapshot(7);
        let sum: u64 = parts(&snapshot).iter().map(|part| part.bytes).sum();
        assert_eq!(sum, snapshot.process.rss);
    }

    /// Every counter of slow paths has its line, none counts twice.
    #[test]
    fn rates_sum_their_counters() {
        let rates = rates(&snapshot(1));
        let count = |name: &str| rates.iter().find(|rate| rate.name == name).unwrap().count;
        assert_eq!([count("tiny refills"), count("remote frees"), count("stage 1: EMPTY")], [3000, 3000, 4000]);
        assert_eq!(count("page faults"), 777);
    }

    #[test]
    fn a_picture_holds_every_slot() {
        let snapshot = snapshot(3);
        let picture = serde_json::to_value(Picture::new(&snapshot)).unwrap();
        for (tile, superslab) in picture["superslabs"].as_array().unwrap().iter().zip(&snapshot.superslabs) {
            let numbers: Vec<i64> = tile["slots"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
            assert_eq!(numbers.len(), 5 * 32);
            for (five, slot) in numbers.chunks(5).zip(&superslab.slots) {
                let kind = &picture["kinds"][five[0] as usize];
                assert_eq!(kind["block_bytes"], slot.block_bytes);
                assert_eq!(kind["blocks"], slot.blocks);
                assert_eq!(kind["state"], serde_json::to_value(slot.state).unwrap());
                assert_eq!(
                    five[1..],
                    [slot.used as i64, slot.owner.map_or(-1, i64::from), slot.resident as i64, slot.back as i64]
                );
            }
        }
        assert!(picture["looks"]["96"]["light"].as_str().unwrap().starts_with('#'));
    }
}
