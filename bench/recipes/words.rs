//! An index of words in parallel, as rayon's users make one: each thread builds maps of strings, which are merged by
//! another thread and dropped; then the pool rests.
// SPDX-License-Identifier: MIT

use rayon::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

const ROUNDS: u64 = 4;
const DOCUMENTS: u64 = 1500;
const WORDS: u64 = 300;
const REST: Duration = Duration::from_millis(200);

type Index = HashMap<String, Vec<u64>>;

fn document(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("word-{:x}", (state >> 40) % (1 + (state & 0x7fff)))
    };
    (0..WORDS).map(|_| word()).collect::<Vec<_>>().join(" ")
}

fn index(number: u64) -> Index {
    let mut index = Index::new();
    for word in document(number).split(' ') {
        index.entry(word.to_string()).or_default().push(number);
    }
    index
}

fn merge(mut one: Index, other: Index) -> Index {
    if one.len() < other.len() {
        return merge(other, one);
    }
    for (word, mut numbers) in other {
        one.entry(word).or_default().append(&mut numbers);
    }
    one
}

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        let documents = round * DOCUMENTS..(round + 1) * DOCUMENTS;
        let whole = pool.install(|| documents.into_par_iter().map(index).reduce(Index::new, merge));
        let mut common: Vec<_> = whole.iter().filter(|(_, numbers)| numbers.len() > 40).map(|(word, _)| word).collect();
        common.sort();
        kept.push((whole.len(), common.len()));
        drop(whole);
        std::thread::sleep(REST);
    }
    println!("{kept:?}");
}
