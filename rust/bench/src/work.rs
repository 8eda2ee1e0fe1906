//! What a Rust program does to its allocator. The program's argument is a workload; it prints the KiB that were
//! resident at most.
// SPDX-License-Identifier: MIT
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::mpsc;
use std::{env, fs, thread};

pub fn run() {
    match env::args().nth(1).as_deref() {
        Some("trees") => trees(),
        Some("maps") => maps(),
        Some("vectors") => vectors(),
        Some("messages") => messages(),
        other => panic!("no such workload: {other:?}"),
    }
    let status = fs::read_to_string("/proc/self/status").expect("there is /proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    println!("{}", peak.expect("the kernel knows the peak").trim());
}

struct Tree(#[allow(dead_code)] Option<(Box<Tree>, Box<Tree>)>); // only made and dropped

/// Binary trees, a box for each node.
fn trees() {
    fn grow(depth: u32) -> Tree {
        Tree((depth > 0).then(|| (Box::new(grow(depth - 1)), Box::new(grow(depth - 1)))))
    }
    let kept = grow(18);
    (0..200).for_each(|_| drop(black_box(grow(16))));
    black_box(kept);
}

/// Two threads, each with maps of strings that it fills and from which it removes every other key.
fn maps() {
    let threads: Vec<_> = (0..2usize)
        .map(|seed| {
            thread::spawn(move || {
                let (mut hashed, mut sorted) = (HashMap::new(), BTreeMap::new());
                for i in 0..400_000usize {
                    let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                    hashed.insert(format!("key {key}"), vec![seed as u8; key % 200]);
                    sorted.insert(key, key.to_string());
                    if i % 2 == 0 {
                        hashed.remove(&format!("key {}", (i / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40));
                        sorted.pop_first();
                    }
                }
                black_box((hashed, sorted));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Vectors that grow by pushing, small ones and large ones.
fn vectors() {
    for round in 0..10_000usize {
        let length = if round % 100 == 0 { 1_000_000 } else { 64 << (round % 10) };
        let mut vector = Vec::new();
        (0..length).for_each(|i| vector.push(i));
        black_box(vector);
    }
}

/// Messages that one thread makes and another drops.
fn messages() {
    let (give, take) = mpsc::sync_channel::<Vec<String>>(64);
    let consumer = thread::spawn(move || take.into_iter().for_each(drop));
    for i in 0..60_000usize {
        give.send((0..32).map(|j| "x".repeat((i * 7 + j * 13) % 400)).collect()).expect("the consumer lives");
    }
    drop(give);
    consumer.join().expect("no panic")
}
