//! A service in miniature: requests in four threads that build and keep little, a cache that is dropped, and rest.
// SPDX-License-Identifier: MIT
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

fn request(number: usize) -> Vec<String> {
    (0..20 + number % 300).map(|row| format!("user {row} {}", "x".repeat(number * row % 600))).collect()
}

fn hour(requests: usize) -> usize {
    let mut cache = HashMap::new();
    let mut bytes = 0;
    for number in 0..requests {
        let answer = request(number);
        bytes += answer.iter().map(String::len).sum::<usize>();
        cache.insert(number % 200, answer);
    }
    bytes
}

fn day() -> usize {
    [200, 1200, 100].iter().map(|&requests| hour(requests)).sum()
}

fn main() {
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(day)).collect();
    let bytes: usize = threads.into_iter().map(|one| one.join().unwrap()).sum();
    thread::sleep(Duration::from_millis(500));
    println!("{bytes} bytes");
}
