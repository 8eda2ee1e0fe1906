//! Mutation tests: every reader gets thousands of damaged inputs made from a sound one. Whatever it says of them, it
//! does not panic, ends soon, and takes little memory.
//!
//!  1. Inputs follow from a seed, so a failure comes again; what fails names its seed and case.
//!  2. HAKMEM_FUZZ_SECONDS lets each of the tests go on for so long, with other seeds: `./hak soak` does.
// SPDX-License-Identifier: MIT

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// CPU time for one case, which a busy machine does not lengthen.
const TIME_MAX: Duration = Duration::from_secs(20);
const BYTES_MAX: isize = 256 << 20;

// ---- memory ----

/// Counts what this thread has, and had at most.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        PEAK.set(PEAK.get().max(now.get()));
    });
}

// SAFETY: the system's own, which it calls with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc_zeroed(layout)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        System.dealloc(at, layout);
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        System.realloc(at, layout, size)
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

// ---- cases ----

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.number() >> 11) as usize % end.max(1)
    }

    pub fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What programs that count get wrong.
pub const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    64,
    255,
    256,
    4095,
    65535,
    65536,
    1 << 20,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    1 << 47,
    1 << 57,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// What this thread has had of a processor.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes `time` alone.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Works on one case.
pub fn bounded<T>(case: &dyn std::fmt::Display, work: impl FnOnce() -> T) -> T {
    let (begun, before) = (thread_time(), NOW.get());
    PEAK.set(before);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let (most, time) = (PEAK.get() - before, thread_time() - begun);
    if outcome.is_err() {
        eprintln!("the case that failed: {case}");
    }
    let outcome = outcome.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(most < BYTES_MAX, "{case} takes {most} bytes");
    assert!(time < TIME_MAX, "{case} takes {time:?}");
    outcome
}

fn seconds() -> Option<u64> {
    std::env::var("HAKMEM_FUZZ_SECONDS").ok()?.parse().ok()
}

/// Is there time for more than a few cases?
pub fn is_long() -> bool {
    seconds().is_some()
}

/// Calls `run` with seeds, `count` times or for as long as the environment says.
pub fn cases(count: u64, mut run: impl FnMut(u64)) {
    let (begun, most) = (Instant::now(), seconds().map(Duration::from_secs));
    let goes_on = |seed: u64| most.map_or(seed < count, |most| begun.elapsed() < most);
    let (before, mut tried) = (thread_time(), 0);
    (0..).take_while(|&seed| goes_on(seed)).for_each(|seed| {
        run(seed);
        tried += 1;
    });
    if is_long() {
        let test = std::thread::current().name().unwrap_or("a reader").to_string();
        eprintln!("{test}: {tried} cases, {:.0} s of a processor", (thread_time() - before).as_secs_f64());
    }
}

/// Texts that mean something to one reader or another.
const TOKENS: [&str; 30] = [
    "\n",
    "\0",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    " ",
    "-",
    "=",
    "null",
    "1e999",
    "-1",
    "0x",
    "NaN",
    "\\u0000",
    "stack ",
    "\nmaps\n",
    "[[workload]]\n",
    "{suite}",
    "${x}",
    "(",
    "kB",
    "%",
    "../",
    "\u{202e}",
    "\x1b[2J",
    "9999999999999999999999",
];

fn change_once(text: &mut Vec<u8>, random: &mut Random) {
    let (from, length) = (random.below(text.len() + 1), random.below(16));
    let to = (from + length).min(text.len());
    match random.below(7) {
        0 if from < text.len() => text[from] ^= 1 << random.below(8),
        1 => drop(text.drain(from..to)),
        2 => {
            let piece = text[from..to].to_vec();
            text.splice(from..from, piece);
        }
        3 => drop(text.splice(from..to, random.choose(&TOKENS).bytes())),
        4 => text.truncate(from),
        5 if from < text.len() => text[from] = random.number() as u8,
        _ => {
            // A number becomes another.
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            let start = text[from..].iter().position(is_digit).map_or(text.len(), |at| from + at);
            let digits = text[start..].iter().take_while(|byte| is_digit(byte)).count();
            text.splice(start..start + digits, random.choose(&NUMBERS).to_string().into_bytes());
        }
    }
}

/// The sound input, changed in one to five places.
pub fn mutated(sound: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = sound.to_vec();
    for _ in 0..=random.below(5) {
        change_once(&mut text, random);
    }
    text
}

/// Gives `read` damaged versions of `sound`.
pub fn mutations(name: &str, sound: &[u8], count: u64, read: impl Fn(&[u8])) {
    cases(count, |seed| {
        let input = mutated(sound, &mut Random::new(seed));
        bounded(&format_args!("{name}, seed {seed}"), || read(&input));
    });
}
