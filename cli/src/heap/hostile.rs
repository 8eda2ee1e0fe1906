//! The readers of a heap, on heaps that lie: every fact of the tables with every number that is likely to do harm, any
//! words of records and tables, and memory without an end.
// SPDX-License-Identifier: MIT

use super::image::{facts_of_the_library, Memory, BASE};
use super::reader::{Detail, Reader};
use super::{advice, patience, reach};
use crate::picture::page;
use hakmem_base::proc::Pid;
use hakmem_base::table::Style;
use hakmem_fuzz::{bounded, cases, is_long as fuzz_is_long, Random, NUMBERS};
use std::time::Duration;

/// All that commands ask of a process, and what they show. How many of the questions were answered.
fn ask_all(memory: &'static Memory) -> usize {
    ask(memory, true)
}

/// The same; `search`: also which blocks are lost, which takes longest.
fn ask(memory: &'static Memory, search: bool) -> usize {
    let (remote, found) = memory.remote();
    let Ok(reader) = Reader::open(remote, &found) else { return 0 };
    let snapshot = reader.snapshot(Detail::Slots);
    if let Ok(snapshot) = &snapshot {
        let style = Style { color: true, width: 80 };
        std::hint::black_box((page::html(snapshot, None), crate::explain::short(snapshot, "", style)));
        std::hint::black_box(advice::advice(snapshot, advice::Reach::Runs));
    }
    let answers = [
        snapshot.is_ok(),
        reader.snapshot(Detail::Sums).is_ok(),
        reader.read_options().is_ok(),
        reader.read_tunables().is_ok(),
        reader.samples().is_ok(),
        reader.births().is_ok(),
        reader.rounding_share().is_ok(),
        reader.threads_done(1).is_ok(),
        reader.has_purger().is_ok(),
        reader.is_window().is_ok(),
        !search || reach::search(&reader).is_ok(),
    ];
    1 + answers.into_iter().filter(|&answered| answered).count()
}

const ALL: usize = 12;

/// Else the tests below try nothing.
#[test]
fn a_sound_heap_is_read_whole() {
    let memory = Memory::sound();
    let (remote, found) = memory.remote();
    let reader = Reader::open(remote, &found).unwrap();
    let snapshot = reader.snapshot(Detail::Slots).unwrap();
    assert_eq!((snapshot.superslabs.len(), snapshot.superslab_count, snapshot.heaps.len()), (3, 3, 2));
    let heap = &snapshot.heap;
    assert!(heap.live > 0 && heap.thread_caches > 0 && heap.empty_slots > 0 && heap.lazy > 0, "{heap:?}");
    assert!(snapshot.classes.len() > 5 && snapshot.classes.iter().any(|class| class.free_pages > 0));
    assert_eq!(snapshot.heaps[0].cached, 4 * (16 + 32 + 48 + 64) + 3 * 96 + 10240, "lists, outbox, ring");
    assert!(snapshot.rounding_waste.is_some());
    let (blocks, _) = reader.blocks().unwrap();
    assert!(blocks.live().count() > 100 && blocks.find(BASE + 60 * 16).is_none());
    let in_meshed = |block: u64| blocks.find(BASE + 20 * 65536 + block * 80).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(in_meshed), [false, true, false, true, false]);
    let piece = |number: u64| blocks.find(BASE + 21 * 65536 + number * 1024 + 1).map(|block| block.bytes);
    assert_eq!([61, 62, 66, 67, 71, 72].map(piece), [None, Some(5120), Some(5120), Some(5120), Some(5120), None]);
    assert!(blocks.find(BASE + 22 * 65536).unwrap() != blocks.find(BASE + 22 * 65536 + 3072).unwrap());
    assert_eq!(reader.samples().unwrap().stacks.len(), 20);
    assert!(reader.snapshot(Detail::Sums).unwrap().superslabs.is_empty());
    assert_eq!(ask_all(memory), ALL);
}

/// Else a program with an older library cannot be read: it has no LAZY memory, and says nothing of it.
#[test]
fn a_library_without_lazy_memory_is_read() {
    let memory = Memory::sound();
    let of_lazy = ["superslab.lazy", "slab.tiny.page_flags", "PAGES_LAZY", "BLOCK_LAZY"];
    let facts = facts_of_the_library();
    let places: Vec<usize> = (0..facts.len()).filter(|&number| of_lazy.contains(&facts[number].0)).collect();
    assert_eq!(places.len(), of_lazy.len());
    for number in places {
        memory.change(Memory::fact_name(number), b"-");
    }
    let (remote, found) = memory.remote();
    let heap = Reader::open(remote, &found).unwrap().snapshot(Detail::Slots).unwrap().heap;
    assert!(heap.lazy == 0 && heap.empty_slots > 0, "{heap:?}");
    assert_eq!(ask_all(memory), ALL);
}

/// Else free blocks of a machine with larger pages are taken for live ones, in its core files, too.
#[test]
fn purged_pages_are_those_of_the_process() {
    for (page_bytes, is_live) in [(4096, [true, false, true, true]), (16384, [true, true, false, true])] {
        let memory = Memory::sound();
        memory.set("page_bytes", 0, page_bytes);
        for (field, value) in [("slab.class_id", 7), ("slab.tiny.carved", 512), ("slab.tiny.purged_pages", 2)] {
            memory.set_slab(10, field, value);
        }
        let (remote, found) = memory.remote();
        let (blocks, _) = Reader::open(remote, &found).unwrap().blocks().unwrap();
        let is_found = |offset: u64| blocks.find(BASE + 10 * 65536 + offset).is_some();
        assert_eq!([2048, 5120, 20480, 40960].map(is_found), is_live, "{page_bytes}");
    }
}

/// Else what a slot of a later library holds is called lost.
#[test]
fn slots_of_an_unknown_kind_are_roots() {
    let memory = Memory::sound();
    memory.set_slab(23, "slab.kind", 15);
    let (remote, found) = memory.remote();
    let reader = Reader::open(remote, &found).unwrap();
    let block = BASE + 20 * 65536 + 80; // a live one
    let is_lost = || reach::search(&reader).unwrap().lost.iter().any(|one| one.block.address == block);
    for place in [BASE + 23 * 65536, BASE + 24 * 65536 - 8] {
        let before = memory.change(place, &0_u64.to_le_bytes());
        assert!(is_lost());
        memory.change(place, &block.to_le_bytes());
        assert!(!is_lost(), "{place:#x}");
        memory.change(place, &before);
    }
}

/// Else a process that says its slabs have 0 bytes, or that it has 2^40 options, ends or stops whoever looks.
#[test]
fn every_fact_may_be_a_lie() {
    let memory = Memory::sound();
    let facts = facts_of_the_library();
    // Some lies about each fact, and all of them where there is time.
    let (mut refused, part) = (0, if fuzz_is_long() { 1 } else { 14 });
    for (number, (name, value, bytes)) in facts.iter().enumerate() {
        let (value_at, bytes_at) = Memory::fact(number);
        for (at, truth) in [(value_at, value), (bytes_at, bytes)] {
            let near = [truth.wrapping_sub(1), truth + 1, truth * 2, truth / 2];
            let all = NUMBERS.into_iter().chain(near).enumerate();
            for (i, lie) in all.filter(|(i, _)| i % part == number % part) {
                let before = memory.change(at, &lie.to_le_bytes());
                let search = i / part == number / part % 4; // one lie about each fact
                refused += usize::from(bounded(&format_args!("{name} {lie}"), || ask(memory, search)) == 0);
                memory.change(at, &before);
            }
        }
    }
    assert!(refused > facts.len(), "{refused}");
    for number in 0.. {
        let at = Memory::place(number);
        let before = memory.change(at, &[0; 8]);
        if before == [0; 8] {
            break;
        }
        for lie in NUMBERS.into_iter().step_by(3) {
            memory.change(at, &lie.to_le_bytes());
            bounded(&format_args!("place {number} at {lie:#x}"), || ask(memory, number % 3 == 0));
        }
        memory.change(at, &before);
    }
    assert_eq!(ask_all(memory), ALL, "all lies are taken back");
}

/// Else a process that says a slot has as many blocks as the heap has bytes uses up the reader's memory.
#[test]
fn no_slot_has_the_blocks_of_others() {
    let memory = Memory::sound();
    let (remote, found) = memory.remote();
    let reader = Reader::open(remote, &found).unwrap();
    let sound = reader.blocks().unwrap().0.count();
    for slot in (3..23).step_by(5) {
        for (field, value) in [("start", BASE + slot * 65536), ("block_bytes", 1), ("blocks", 1 << 20)] {
            memory.set_slab(slot, &format!("slab.mid.{field}"), value);
        }
    }
    let count = || bounded(&"blocks of a byte", || reader.blocks().unwrap().0.count());
    assert!(count() <= sound, "{} {sound}", count());
    memory.set_slab(3, "slab.mid.blocks", 4096);
    assert_eq!(count(), sound + 4096, "no more blocks than there are states");
}

/// Else a record that changes while it is read does the same.
#[test]
fn any_word_may_be_any_number() {
    let memory = Memory::sound();
    let extents = memory.extents();
    let addresses: Vec<u64> = extents.iter().map(|(at, _)| *at).collect();
    let mut answers = [0; ALL + 1];
    cases(300, |seed| {
        let random = &mut Random::new(seed);
        let mut undo = Vec::new();
        for _ in 0..=random.below(6) {
            let (start, length) = random.choose(&extents);
            // Heaps and blocks are large: what counts of them is at their beginning.
            let words = (length.min(8192) / 8) as usize;
            let at = start + 8 * random.below(words) as u64;
            let lie = match random.below(4) {
                0 => random.choose(&addresses).wrapping_add(random.choose(&NUMBERS) & 0xffff),
                1 => random.number(),
                _ => random.choose(&NUMBERS),
            };
            let bytes = [1, 2, 4, 8][random.below(4)];
            undo.push((at, memory.change(at, &lie.to_le_bytes()[..bytes])));
        }
        answers[bounded(&format_args!("seed {seed}"), || ask(memory, seed % 4 == 0))] += 1;
        undo.into_iter().rev().for_each(|(at, before)| drop(memory.change(at, &before)));
    });
    assert!(answers[0] > 0 && answers[ALL] > 0, "{answers:?}");
    assert_eq!(ask_all(memory), ALL);
}

/// Without these bounds a process with endless tables could keep the reader busy or use up its memory.
#[test]
fn reading_endless_memory_ends() {
    let words: [fn(u64) -> u64; 4] =
        [|_| 0, |_| u64::MAX, |at| at.wrapping_add(65536), |at| at ^ 0x0101_0101_0101_0101];
    for (number, word) in words.into_iter().enumerate() {
        let memory = Memory::endless(word);
        memory.set("region_use", 16, 400_000); // SuperSlabs
        memory.set("heap_newest", 0, 0x7777_0000_0000);
        memory.set("profile", 48, u64::MAX); // stacks and levels
        let (send, ended) = std::sync::mpsc::channel();
        let outcome = patience::within(-20 - number as Pid, Duration::from_millis(500), move || {
            let outcome = bounded(&format_args!("word {number}"), || {
                let (remote, found) = memory.remote();
                let reader = Reader::open(remote, &found)?;
                let samples = reader.samples().map(|_| ());
                let done = reader.threads_done(1).map(|_| ());
                samples.and(done).and(reader.snapshot(Detail::Slots).map(|_| ()))
            });
            send.send(()).unwrap();
            outcome
        });
        // By itself, even where a busy machine has `within` give up before.
        ended.recv().unwrap_or_else(|_| panic!("word {number}: {}", outcome.unwrap_err()));
    }
}
