//! What reading may take: bytes, entries and time, for each kind of input that somebody else has written. All are here.
//!
//! A reader makes a `Budget` of its row and takes from it before it allocates: what would be too much is an error, or
//! is left out, as the reader says. The fuzzers (`any_…`) run the readers with these rows, and fail where one takes
//! more memory than hakmem_fuzz allows.
// SPDX-License-Identifier: MIT

use anyhow::{ensure, Result};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of memory that what was read takes.
    pub bytes: u64,
    pub entries: u64,
    pub time: Duration,
}

const fn limits(mib: u64, entries: u64, seconds: u64) -> Limits {
    Limits { bytes: mib << 20, entries, time: Duration::from_secs(seconds) }
}

/// A profile's stacks with all their calls: the largest of the library's own has 8,192 stacks of 64 calls.
pub const PROFILE: Limits = limits(192, 4 << 20, 60);
/// A profile's names, in all stacks in which they stand, as texts and pages show them.
pub const SHOWN: Limits = limits(512, 8 << 20, 60);
/// Notes of a core: registers of 10,000 threads, and the names of its mappings.
pub const NOTES: Limits = limits(128, 1 << 20, 60);
/// Files that a core names, each once.
pub const FILES: Limits = limits(64, 4096, 60);
/// Python's functions in a process's tables.
pub const PYTHON: Limits = limits(64, 1 << 16, 60);
/// Names of one module's frames, in the process that finds them. The time is that of one question.
pub const NAMES: Limits = limits(64, 1 << 20, 15);
/// Debug sections that are unpacked.
pub const SECTIONS: Limits = limits(512, 64, 15);
/// All names of one program. Servers of debug files take longer.
pub const PROGRAM: Limits = limits(192, 1 << 20, 30);
/// Names of what the words in blocks lead to.
pub const CONTENTS: Limits = limits(64, 1 << 20, 600);
pub const FETCHED: Limits = limits(2048, 16, 300);

/// A longer name is cut.
pub const NAME_BYTES: usize = 64 << 10;
/// Inlined calls at one address, and how deep debug information may be nested.
pub const NESTED: usize = 256;
/// Files of symbols, of a log or a program, that are open at a time.
pub const OPEN: usize = 64;
/// Questions about names that failed, for one program: then no more are asked.
pub const FAILURES: usize = 4;

#[derive(Debug, Clone)]
pub struct Budget {
    bytes: u64,
    entries: u64,
    end: Instant,
}

impl Budget {
    pub fn new(limits: Limits) -> Budget {
        Budget { bytes: limits.bytes, entries: limits.entries, end: Instant::now() + limits.time }
    }

    /// Takes an entry of `bytes` from the budget. Returns false, and takes nothing, when the budget is used up.
    #[must_use]
    pub fn has(&mut self, bytes: usize) -> bool {
        self.have(1, bytes as u64)
    }

    #[must_use]
    pub fn have(&mut self, entries: u64, bytes: u64) -> bool {
        let left = (self.entries.checked_sub(entries), self.bytes.checked_sub(bytes));
        let (Some(entries), Some(bytes), false) = (left.0, left.1, self.is_late()) else { return false };
        (self.entries, self.bytes) = (entries, bytes);
        true
    }

    /// Fails if there is no more.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        ensure!(self.has(bytes), "is too large to be read");
        Ok(())
    }

    pub fn is_late(&self) -> bool {
        Instant::now() > self.end
    }
}

/// As much of a name as is kept.
pub fn cut(name: &str) -> &str {
    cut_to(name, NAME_BYTES)
}

pub fn cut_to(name: &str, most: usize) -> &str {
    let end = (0..=most.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_gone() {
        let mut budget = Budget::new(Limits { bytes: 10, entries: 3, time: Duration::from_secs(3600) });
        assert!(budget.has(8) && !budget.has(3) && budget.has(2), "a refusal takes nothing");
        assert!(budget.has(0) && !budget.has(0), "the entries are spent");
        assert!(budget.take(0).unwrap_err().to_string().contains("too large"));
        assert!(Budget::new(Limits { time: Duration::ZERO, ..PROFILE }).is_late());
    }

    #[test]
    fn names_are_cut_between_letters() {
        assert_eq!((cut_to("aäb", 2), cut_to("aäb", 3), cut_to("", 5), cut_to("ä", 1)), ("a", "aä", "", ""));
        assert_eq!(cut(&"x".repeat(NAME_BYTES + 1)).len(), NAME_BYTES);
    }
}
