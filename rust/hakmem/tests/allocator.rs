//! A program with the global allocator. If these tests fail, Rust programs lose what they wrote, or get memory that is
//! too small, not aligned or not cleared.
// SPDX-License-Identifier: MIT
use hakmem::{Hakmem, Stats};
use proptest::prelude::*;
use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};
use std::collections::HashMap;
use std::slice;
use std::sync::mpsc;
use std::thread;

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

/// A block of the global allocator beside what its bytes must be.
struct Block {
    at: *mut u8,
    layout: Layout,
    bytes: Vec<u8>,
}

impl Block {
    fn new(size: usize, alignment: usize, is_zeroed: bool) -> Block {
        let layout = Layout::from_size_align(size, alignment).unwrap();
        let at = unsafe {
            if is_zeroed {
                alloc_zeroed(layout)
            } else {
                alloc(layout)
            }
        };
        assert!(!at.is_null());
        let mut block = Block { at, layout, bytes: vec![0; size] };
        if !is_zeroed {
            block.fill(0, 0xa5);
        }
        block.check();
        block
    }

    fn fill(&mut self, from: usize, byte: u8) {
        self.bytes[from..].fill(byte);
        unsafe { self.at.add(from).write_bytes(byte, self.bytes.len() - from) };
    }

    fn resize(&mut self, size: usize, byte: u8) {
        let old = self.bytes.len();
        self.at = unsafe { realloc(self.at, self.layout, size) };
        assert!(!self.at.is_null());
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.bytes.resize(size, 0);
        self.fill(old.min(size), byte);
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.at as usize % self.layout.align(), 0, "{:?}", self.layout);
        assert!(unsafe { Hakmem.usable_size(self.at) } >= self.layout.size());
        assert!(unsafe { slice::from_raw_parts(self.at, self.layout.size()) } == self.bytes, "{:?}", self.layout);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        unsafe { dealloc(self.at, self.layout) }
    }
}

#[test]
fn program_runs_on_hakmem() {
    let kept: Vec<Box<[u8; 100]>> = (0..100_000).map(|_| Box::new([7; 100])).collect();
    assert!(Stats::now().get("live") >= Some(10_000_000));
    assert!(kept.iter().all(|block| block[99] == 7));
}

#[test]
fn every_size_has_every_alignment_and_keeps_it_when_resized() {
    for alignment in (0..=16).map(|shift| 1 << shift) {
        for size in [1, 7, 8, 9, 24, 100, 1_000, 1_025, 20_000, 65_536, 65_537, 300_000, 1_100_000] {
            for is_zeroed in [false, true] {
                let mut block = Block::new(size, alignment, is_zeroed);
                for other in [size / 2 + 1, size * 3, 1, 70_000, 8, 5_000, size] {
                    block.resize(other, 0x3c);
                }
            }
        }
    }
}

#[test]
fn large_zeroed_blocks_are_cleared_again() {
    for size in [100_000, 2 << 20, 40 << 20] {
        drop(Block::new(size, 64, false));
        drop(Block::new(size, 64, true));
    }
}

#[test]
fn threads_free_what_others_allocate() {
    let (give, take) = mpsc::channel::<HashMap<usize, String>>();
    let consumer =
        thread::spawn(move || take.iter().map(|map| map.values().map(String::len).sum::<usize>()).sum::<usize>());
    let producers: Vec<_> = (0..4)
        .map(|seed| {
            let give = give.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    give.send((0..200).map(|i| (i, "x".repeat(i * (seed + 1) + round))).collect()).unwrap();
                }
            })
        })
        .collect();
    drop(give);
    for producer in producers {
        producer.join().unwrap();
    }
    let letters =
        |seed: usize| (0..50).map(|round| (0..200).map(|i| i * (seed + 1) + round).sum::<usize>()).sum::<usize>();
    assert_eq!(consumer.join().unwrap(), (0..4).map(letters).sum::<usize>());
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, shift: u32, is_zeroed: bool },
    Resize { index: usize, size: usize, byte: u8 },
    Free { index: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || prop_oneof![4 => 1..2_000usize, 2 => 1..80_000usize, 1 => 1..3_000_000usize];
    let step = prop_oneof![
        3 => (size(), 0..=16u32, any::<bool>())
            .prop_map(|(size, shift, is_zeroed)| Step::Allocate { size, shift, is_zeroed }),
        3 => (any::<usize>(), size(), any::<u8>()).prop_map(|(index, size, byte)| Step::Resize { index, size, byte }),
        2 => any::<usize>().prop_map(|index| Step::Free { index }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_hold_what_was_written(steps in steps()) {
        let mut blocks: Vec<Block> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate { size, shift, is_zeroed } => blocks.push(Block::new(size, 1 << shift, is_zeroed)),
                _ if blocks.is_empty() => {}
                Step::Resize { index, size, byte } => {
                    let count = blocks.len();
                    blocks[index % count].resize(size, byte);
                }
                Step::Free { index } => drop(blocks.swap_remove(index % blocks.len())),
            }
        }
        blocks.iter().for_each(Block::check);
    }
}
