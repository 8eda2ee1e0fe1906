//! Sampled heap profiles: which code allocated what a program holds, and what it has held.
//!
//!  1. read.rs takes the tables of a live process, or the file that a program wrote at its end: return addresses,
//!     totals, mapped files. Allocator functions are cut off.
//!  2. naming.rs names the addresses, with ../symbols.rs.
//!  3. python.rs puts Python functions where the interpreter's calls are.
//!  4. pprof.rs is the one file format, written and read; `Profile` below is the same in memory.
//!  5. sites.rs sums by the line of the program that allocated, tree.rs by call path; text.rs, flame.rs and page.rs
//!     show.
//!  6. command.rs has the commands `profile`, `flame` and `diff`, leak.rs has `leak`, with leak/ for some of its
//!     questions, cold.rs `cold`, learn.rs and gains.rs `learn`, symbolize.rs `symbolize`.
//!
//! All totals are estimates from samples, made unbiased by the library: each sample counts for as much as it stands
//! for.
// SPDX-License-Identifier: MIT

mod cold;
mod command;
mod flame;
mod gains;
mod leak;
mod learn;
mod missing;
mod naming;
pub mod page;
pub mod pprof;
mod python;
pub mod read;
mod sites;
mod symbolize;
pub mod text;
mod tree;

use crate::budget::{self, Budget};
use crate::heap::samples::Totals;
use crate::symbols::{Frame, Module};
use hakmem_base::shown;
use serde::Serialize;

pub use cold::{cold, ColdOptions};
pub use command::{diff, flame, interval, profile, DiffOptions, FlameOptions, ProfileOptions, Symbols};
pub use leak::{leak, LeakOptions};
pub use learn::{learn, LearnOptions};
pub use symbolize::{symbolize, SymbolizeOptions};

/// What a stack is weighed by. The names are pprof's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Metric {
    InuseSpace,
    InuseObjects,
    AllocSpace,
    AllocObjects,
    /// In use when the program held most.
    PeakSpace,
    PeakObjects,
}

impl Metric {
    pub const COUNT: usize = 6;
    pub const ALL: [Metric; Metric::COUNT] = [
        Metric::InuseSpace,
        Metric::InuseObjects,
        Metric::AllocSpace,
        Metric::AllocObjects,
        Metric::PeakSpace,
        Metric::PeakObjects,
    ];

    pub fn name(self) -> &'static str {
        ["inuse_space", "inuse_objects", "alloc_space", "alloc_objects", "peak_space", "peak_objects"][self as usize]
    }

    pub fn unit(self) -> &'static str {
        if self.is_space() {
            "bytes"
        } else {
            "count"
        }
    }

    pub fn is_space(self) -> bool {
        matches!(self, Metric::InuseSpace | Metric::AllocSpace | Metric::PeakSpace)
    }

    pub fn title(self) -> &'static str {
        let titles = ["bytes in use", "blocks in use", "bytes allocated", "blocks allocated"];
        titles
            .into_iter()
            .chain(["bytes in use at the peak", "blocks in use at the peak"])
            .nth(self as usize)
            .unwrap_or("")
    }

    /// As a person reads it.
    pub fn text(self, value: u64) -> String {
        use hakmem_base::say;
        if self.is_space() {
            say::bytes(value as f64)
        } else {
            say::number(value as f64)
        }
    }
}

/// A place in the code, in the call instruction: a return address less one; 0 for a line of Python.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    pub address: u64,
    pub module: Option<usize>,
    /// The function called by the others in it stands first: more than one where calls were inlined. Empty: no name
    /// known.
    pub frames: Vec<Frame>,
}

impl Place {
    /// Is it in a language that the program interprets, or compiles as it runs?
    pub fn is_managed(&self) -> bool {
        self.module.is_none() && !self.frames.is_empty()
    }
}

/// Freed blocks that lived this long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// The lower end of a range, which ends where the next one begins. None: not known.
    pub at_least_ns: Option<u64>,
    pub freed: Totals,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Stack {
    /// Places, the one that allocated first.
    pub places: Vec<usize>,
    /// The name of the arena that has the blocks; empty: none, or an arena without a name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arena: String,
    pub live: Totals,
    /// Live when the program held most.
    pub peak: Totals,
    /// In order, each range once.
    pub lifetimes: Vec<Lifetime>,
}

impl Stack {
    pub fn allocated(&self) -> Totals {
        let mut sum = self.live;
        self.lifetimes.iter().for_each(|lifetime| sum += lifetime.freed);
        sum
    }

    pub fn value(&self, metric: Metric) -> u64 {
        match metric {
            Metric::InuseSpace => self.live.bytes,
            Metric::InuseObjects => self.live.objects,
            Metric::AllocSpace => self.allocated().bytes,
            Metric::AllocObjects => self.allocated().objects,
            Metric::PeakSpace => self.peak.bytes,
            Metric::PeakObjects => self.peak.objects,
        }
    }
}

/// Adds the ranges of one to those of the other.
pub fn add_lifetimes(sum: &mut Vec<Lifetime>, more: &[Lifetime]) {
    for one in more {
        match sum.binary_search_by_key(&one.at_least_ns, |known| known.at_least_ns) {
            Ok(at) => sum[at].freed += one.freed,
            Err(at) => sum.insert(at, *one),
        }
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Profile {
    pub command: String,
    pub pid: u64,
    /// When the profile was read, in nanoseconds since 1970.
    pub time_ns: i64,
    /// For how long allocations had been sampled; 0: not known.
    pub duration_ns: i64,
    /// Mean number of bytes between two samples.
    pub interval: u64,
    /// The program had ended: what was in use then is leaked.
    pub at_exit: bool,
    /// Why a program wrote it, as src/observe/profile_file.c says; empty: it was read from outside.
    pub moment: String,
    /// What the reader should know: samples that were lost, files that could not be read.
    pub notes: Vec<String>,
    /// How to get what is lacking on this machine now; no file has that.
    pub advice: Vec<String>,
    pub modules: Vec<Module>,
    pub places: Vec<Place>,
    pub stacks: Vec<Stack>,
}

impl Profile {
    /// Did the program hold more at its peak than it does now, and is that known?
    pub fn has_peak(&self) -> bool {
        self.total(Metric::PeakSpace) > self.total(Metric::InuseSpace)
    }

    pub fn total(&self, metric: Metric) -> u64 {
        self.stacks.iter().map(|stack| stack.value(metric)).fold(0, u64::saturating_add)
    }

    pub fn lifetimes(&self) -> Vec<Lifetime> {
        let mut sum = Vec::new();
        self.stacks.iter().for_each(|stack| add_lifetimes(&mut sum, &stack.lifetimes));
        sum
    }

    /// Cuts names where those of all stacks would take too much, and then leaves out calls: a few places with long
    /// names may stand in many stacks, and whatever shows a profile writes them for each.
    pub fn shorten(&mut self) {
        for most in [budget::NAME_BYTES, 4096, 512, 64] {
            if self.shown_bytes() <= budget::SHOWN.bytes {
                return;
            }
            for frame in self.places.iter_mut().flat_map(|place| &mut place.frames) {
                for name in [&mut frame.function, &mut frame.file] {
                    name.truncate(budget::cut_to(name, most).len());
                }
            }
        }
        self.notes.push("names are cut, and inlined calls left out: they would take too much".into());
        self.places.iter_mut().for_each(|place| place.frames.truncate(1));
        let mut left = Budget::new(budget::SHOWN);
        for stack in &mut self.stacks {
            let calls = stack.places.len() as u64;
            if !left.have(calls, calls * 128) {
                stack.places.clear();
            }
        }
    }

    /// The bytes of all names, in each stack in which they stand.
    fn shown_bytes(&self) -> u64 {
        let of_frame = |frame: &Frame| (size_of::<Frame>() + frame.function.len() + frame.file.len()) as u64;
        let of_place =
            |place: &Place| place.frames.iter().map(of_frame).fold(size_of::<Frame>() as u64, u64::saturating_add);
        let places: Vec<u64> = self.places.iter().map(of_place).collect();
        let all = self.stacks.iter().flat_map(|stack| &stack.places).map(|&place| places[place]);
        all.fold(0, u64::saturating_add)
    }

    pub fn module(&self, place: &Place) -> Option<&Module> {
        self.modules.get(place.module?)
    }

    /// A place without a name: its file and offset, or its address.
    pub fn unnamed(&self, place: &Place) -> Frame {
        let function = match self.module(place) {
            Some(module) => {
                format!("{}+{:#x}", module.name(), place.address.wrapping_sub(module.start).wrapping_add(module.offset))
            }
            None => format!("{:#x}", place.address),
        };
        Frame { function, file: String::new(), line: 0 }
    }

    /// The calls of a stack, the one that allocated first, each with its module.
    pub fn frames(&self, stack: &Stack) -> Vec<(Frame, Option<usize>)> {
        let mut frames = Vec::new();
        for place in stack.places.iter().map(|&number| &self.places[number]) {
            if place.frames.is_empty() {
                frames.push((self.unnamed(place), place.module));
            }
            frames.extend(place.frames.iter().map(|frame| (frame.clone(), place.module)));
        }
        frames
    }

    /// What the reader should know, a sentence without its end each.
    pub fn remarks(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.advice)
    }

    /// "python3 (process 12)"
    pub fn subject(&self) -> String {
        let name = shown::line(if self.command.is_empty() { "a program" } else { &self.command });
        if self.pid == 0 {
            name.into_owned()
        } else {
            format!("{name} (process {})", self.pid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hakmem_base::table::Style;

    /// In every form there is.
    pub fn show(profile: &Profile) {
        let style = Style { color: true, width: 80 };
        for metric in Metric::ALL {
            std::hint::black_box(text::text(profile, metric, 20, style));
            std::hint::black_box(page::profile(profile, metric));
            std::hint::black_box(text::difference(profile, &Profile::default(), metric, 20, style));
            let _ = std::hint::black_box(flame::svg(profile, metric));
        }
        std::hint::black_box(flame::speedscope(profile, Metric::InuseSpace));
        pprof::read(&pprof::write(profile).unwrap()).unwrap();
    }
}
