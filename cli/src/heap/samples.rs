//! The heap profile of another process: the tables of `struct profile` (src/observe/profile.h), and the word that
//! switches it.
// SPDX-License-Identifier: MIT

use super::layout::{text, Field, ProfileFacts};
use super::reader::Reader;
use super::remote::Area;
use crate::budget::{self, Budget};
use anyhow::{ensure, Context, Result};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::ops::{AddAssign, Range};

/// Records read by one call.
const CHUNK: u64 = 256;
/// In the table of samples: eight times as many as now.
const SAMPLES_MAX: u64 = 1 << 20;
const SECURE: &str = "runs with HAKMEM_SECURE=1, where nothing is sampled";
/// How many bytes the texts of one Python function may have.
const CODE_TEXT_MAX: usize = 64 << 10;

/// In a word: it is a frame, it is the last of one loop; then the number of its code, and its instruction.
pub const FRAME: u64 = 1 << 63;
pub const ENTRY: u64 = 1 << 62;
pub const NUMBER_SHIFT: u32 = 32;
const NUMBER_MASK: u64 = 0xffff;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub objects: u64,
    pub bytes: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The library's tables (src/observe/profile.h).
#[derive(Debug, Default, Clone)]
pub struct Sampled {
    /// Mean bytes between samples; 0: there are none any more.
    pub interval: u64,
    /// Samples that found no place in the tables.
    pub dropped: u64,
    pub stacks: Vec<SampledStack>,
    /// Of Python's frames.
    pub codes: Codes,
    pub areas: Vec<Area>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampledStack {
    /// In the library's table; 0 if it comes from a file.
    pub number: u64,
    /// Objects are in parts of one.
    pub allocated: Totals,
    pub freed: Totals,
    /// Live when the program held most.
    pub peak: Totals,
    /// Samples that lived less than 1, 2, 4, … ms.
    pub lifetimes: Vec<u64>,
    /// Return addresses, the inmost first; then words of Python's frames, likewise.
    pub callers: Vec<u64>,
    /// The name of the arena that has the blocks.
    pub arena: String,
}

impl Sampled {
    /// What the stacks did since an earlier reading.
    pub fn since(mut self, first: &Sampled) -> Sampled {
        let before: HashMap<u64, &SampledStack> = first.stacks.iter().map(|stack| (stack.number, stack)).collect();
        self.dropped = self.dropped.saturating_sub(first.dropped);
        for stack in &mut self.stacks {
            let Some(before) = before.get(&stack.number) else { continue };
            for (sum, less) in [(&mut stack.allocated, before.allocated), (&mut stack.freed, before.freed)] {
                sum.bytes = sum.bytes.saturating_sub(less.bytes);
                sum.objects = sum.objects.saturating_sub(less.objects);
            }
            for (count, less) in stack.lifetimes.iter_mut().zip(&before.lifetimes) {
                *count = count.saturating_sub(*less);
            }
        }
        self
    }
}

// ---- Python's frames ----

/// What was noted of a code.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Code {
    /// The minor version of the interpreter, 3.x.
    pub minor: u64,
    pub first_line: u64,
    pub name: String,
    pub file: String,
    /// In the interpreter's own form, which depends on the version.
    pub lines: Vec<u8>,
}

/// By number.
pub type Codes = HashMap<u64, Code>;

pub fn is_word(caller: u64) -> bool {
    caller & FRAME != 0
}

/// The number of the word's code.
pub fn code_number(word: u64) -> u64 {
    word >> NUMBER_SHIFT & NUMBER_MASK
}

impl Code {
    /// How many bytes its texts have.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.file.len() + self.lines.len()
    }
}

// ---- reading ----

fn totals(facts: &ProfileFacts, record: &[u8], at: Field) -> Totals {
    let total = at.slice(record);
    Totals { objects: facts.total_objects.of(total), bytes: facts.total_bytes.of(total) }
}

/// What the stack held at the library's high-water mark of this number: kept, or what it holds now.
fn at_mark(facts: &ProfileFacts, mark: u64, record: &[u8], allocated: Totals, freed: Totals) -> Totals {
    if facts.kept_mark.of(record) == mark {
        return Totals { objects: facts.kept_objects.of(record), bytes: facts.kept_bytes.of(record) };
    }
    Totals {
        objects: allocated.objects.saturating_sub(freed.objects),
        bytes: allocated.bytes.saturating_sub(freed.bytes),
    }
}

/// `arenas`: the names by number.
fn stack(facts: &ProfileFacts, number: u64, mark: u64, arenas: &[String], record: &[u8]) -> SampledStack {
    let depth = facts.depth.of(record).min(facts.callers_most) as usize;
    let lifetimes = 0..facts.lifetimes_count as usize;
    let [allocated, freed] = [facts.allocated, facts.freed].map(|at| totals(facts, record, at));
    SampledStack {
        number,
        allocated,
        freed,
        peak: at_mark(facts, mark, record, allocated, freed),
        lifetimes: lifetimes.map(|number| facts.lifetimes.element(record, number, 4)).collect(),
        callers: (0..depth).map(|number| facts.callers.element(record, number, 8)).collect(),
        arena: arenas.get(facts.stack_arena.of(record) as usize).cloned().unwrap_or_default(),
    }
}

/// A live sample: when its block was allocated, and where.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Birth {
    pub address: u64,
    /// The size of the block that the request would get if it were not sampled.
    pub block_bytes: u64,
    /// Its number in the table of stacks.
    pub stack: u64,
    /// By the library's clock (os_now_ms), which begins again after 49 days.
    pub birth_ms: u32,
    /// What the sample stands for; objects in parts of one.
    pub estimated_bytes: u64,
    pub estimated_objects: u64,
}

/// Fewer live samples than this say nothing.
const SAMPLES_MIN: usize = 30;

impl Reader {
    /// A number in a variable of the library.
    fn number_in(&self, place: u64, field: Field) -> Result<u64> {
        let bytes = self.remote.read_vec(place + field.at as u64, field.bytes)?;
        Ok(Field { at: 0, bytes: field.bytes }.of(&bytes))
    }

    /// A number in `struct profile`.
    fn profile_number(&self, field: Field) -> Result<u64> {
        self.number_in(self.layout.places.profile, field)
    }

    /// Calls `look` with each record of a table.
    fn each_record(&self, at: u64, size: u64, count: u64, mut look: impl FnMut(&[u8])) -> Result<()> {
        for first in (0..count).step_by(CHUNK as usize) {
            let bytes = CHUNK.min(count - first) * size;
            let records = self.remote.read_vec(at.wrapping_add(first * size), bytes as usize)?;
            records.chunks_exact(size as usize).for_each(&mut look);
        }
        Ok(())
    }

    /// Calls `look` with the record of each live sample.
    fn each_live(&self, mut look: impl FnMut(&[u8])) -> Result<()> {
        let (facts, table) = (&self.layout.profile, self.samples_table()?);
        if table.start == 0 {
            return Ok(());
        }
        self.each_record(table.start, facts.sample_size, (table.end - table.start) / facts.sample_size, |sample| {
            if facts.sample_address.of(sample) > 1 {
                look(sample);
            }
        })
    }

    /// Where the table of live samples is: it has the addresses of blocks, and does not hold them.
    pub fn samples_table(&self) -> Result<Range<u64>> {
        let facts = &self.layout.profile;
        let (samples, levels) = (self.profile_number(facts.samples)?, self.profile_number(facts.levels_used)?);
        let count = facts.least_samples * ((1 << levels.min(16)) - 1);
        Ok(samples..samples.saturating_add(count.min(SAMPLES_MAX) * facts.sample_size))
    }

    /// The live samples.
    pub fn births(&self) -> Result<Vec<Birth>> {
        let (facts, mut births) = (&self.layout.profile, Vec::new());
        self.each_live(|sample| {
            births.push(Birth {
                address: facts.sample_address.of(sample),
                block_bytes: self.block_bytes_for(facts.sample_bytes.of(sample)),
                stack: facts.sample_stack.of(sample),
                birth_ms: facts.sample_birth.of(sample) as u32,
                estimated_bytes: facts.sample_estimated.of(sample),
                estimated_objects: facts.sample_objects.of(sample),
            });
        })?;
        Ok(births)
    }

    /// The part of live blocks' bytes that was not asked for, by the samples that are live; None: there are too few.
    pub fn rounding_share(&self) -> Result<Option<f64>> {
        let (facts, mut blocks, mut asked, mut live) = (&self.layout.profile, 0.0, 0.0, 0);
        self.each_live(|sample| {
            let (weight, bytes) = (facts.sample_objects.of(sample) as f64, facts.sample_bytes.of(sample));
            blocks += weight * self.block_bytes_for(bytes) as f64;
            asked += weight * bytes as f64;
            live += 1;
        })?;
        let share = 1.0 - asked / blocks;
        Ok((live >= SAMPLES_MIN && (0.0..=1.0).contains(&share)).then_some(share))
    }

    /// What is known of a Python function; None: nothing yet.
    fn code(&self, minor: u64, record: &[u8]) -> Result<Option<Code>> {
        let facts = &self.layout.profile;
        let at = facts.code_text.of(record);
        let lengths = [facts.name_bytes, facts.file_bytes, facts.lines_bytes].map(|field| field.of(record) as usize);
        let bytes = lengths.iter().sum::<usize>();
        if at == 0 || bytes > CODE_TEXT_MAX {
            return Ok(None);
        }
        let mut name = self.remote.read_vec(at, bytes)?;
        let mut file = name.split_off(lengths[0]);
        let lines = file.split_off(lengths[1]);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let first_line = facts.first_line.of(record);
        Ok(Some(Code { minor, first_line, name: text(name), file: text(file), lines }))
    }

    /// The Python functions in these stacks.
    fn codes(&self, stacks: &[SampledStack]) -> Result<Codes> {
        let (facts, place) = (&self.layout.profile, self.layout.places.python);
        let (at, minor) = (self.number_in(place, facts.codes)?, self.number_in(place, facts.minor)?);
        let words = stacks.iter().flat_map(|stack| &stack.callers).copied().filter(|&caller| is_word(caller));
        let numbers: BTreeSet<u64> = words.map(code_number).filter(|&number| number < facts.codes_most).collect();
        let (mut codes, mut left) = (Codes::new(), Budget::new(budget::PYTHON));
        for number in numbers {
            let record = self.remote.read_vec(at.wrapping_add(number * facts.code_size), facts.code_size as usize)?;
            let code = self.code(minor, &record)?;
            // Others stay functions without a name.
            codes.extend(code.filter(|code| left.has(code.bytes())).map(|code| (number, code)));
        }
        Ok(codes)
    }

    /// The names of arenas that samples have, by number; the first one is none.
    fn arena_names(&self) -> Result<Vec<String>> {
        let (facts, mut names) = (&self.layout.profile, Vec::new());
        let at = self.profile_number(facts.arenas)?;
        let count = if at == 0 { 0 } else { facts.arenas_most };
        self.each_record(at, facts.arena_size, count, |record| names.push(text(facts.arena_name.slice(record))))?;
        Ok(names)
    }

    /// What was sampled so far.
    pub fn samples(&self) -> Result<Sampled> {
        let facts = &self.layout.profile;
        let (at, used) = (self.profile_number(facts.stacks)?, self.profile_number(facts.stacks_used)?);
        let (pid, interval) = (self.pid(), self.sampled_every()?);
        let none = at == 0 && interval == 0;
        ensure!(!none || !self.is_secure()?, "PID {pid} {SECURE}");
        ensure!(
            !none,
            "PID {pid} has no heap profile: `hakmem profile start {pid}` begins one, or start it with HAKMEM_PROFILE=1"
        );
        let (mut stacks, mut number, mark) = (Vec::new(), 0, self.profile_number(facts.mark)?);
        let used = if at == 0 { 0 } else { used.min(facts.stacks_most) }; // the tables are made for the first sample
        let arenas = self.arena_names()?;
        self.each_record(at, facts.stack_size, used, |record| {
            stacks.extend(
                Some(stack(facts, number, mark, &arenas, record)).filter(|stack| stack.allocated != Totals::default()),
            );
            number += 1;
        })?;
        Ok(Sampled {
            interval,
            dropped: self.profile_number(facts.dropped)?,
            codes: self.codes(&stacks)?,
            stacks,
            areas: self.remote.mappings(false)?,
        })
    }

    /// Bytes between two samples now, on average; 0: there are none.
    pub fn sampled_every(&self) -> Result<u64> {
        self.number_in(self.layout.places.asked, self.layout.profile.wanted_bytes)
    }

    /// Sets the bytes between two samples, on average; 0: there are to be none.
    pub fn sample_every(&self, bytes: u64) -> Result<()> {
        ensure!(bytes == 0 || !self.is_secure()?, "PID {} {SECURE}", self.pid());
        let field = self.layout.profile.wanted_bytes;
        let at = self.layout.places.asked + field.at as u64;
        self.remote.write(at, &bytes.to_ne_bytes()[..field.bytes]).context("cannot switch the profile")
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::{facts_of_the_library, Memory};
    use super::*;

    /// Else a process whose Python functions have long names takes gigabytes of whoever looks.
    #[test]
    fn names_of_python_are_bounded() {
        // Elsewhere is a record whose texts have 20 KiB each, and the texts.
        let memory = Memory::endless(|_| 0x5000_0000_5000);
        let at = |name: &str| facts_of_the_library().into_iter().find(|fact| fact.0 == name).unwrap().1;
        memory.set("python", at("python.codes"), 0x7777_0000_0000);
        const CALLERS: u64 = 62;
        for stack in 0..20 {
            let record = stack * at("sizeof profile_stack");
            memory.set("stacks", record + at("profile_stack.depth"), CALLERS);
            for caller in 0..CALLERS {
                let word = 3 << 62 | (stack * CALLERS + caller) << 32;
                memory.set("stacks", record + at("profile_stack.callers") + 8 * caller, word);
            }
        }
        let (remote, found) = memory.remote();
        let reader = Reader::open(remote, &found).unwrap();
        let codes = hakmem_fuzz::bounded(&"long names", || reader.samples().unwrap().codes);
        let bytes: usize = codes.values().map(Code::bytes).sum();
        assert!(bytes as u64 <= budget::PYTHON.bytes && codes.len() > 1000, "{} of {bytes}", codes.len());
        assert!(codes.len() < 20 * CALLERS as usize, "{} of {bytes}", codes.len());
    }
}
