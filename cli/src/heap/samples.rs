//! The heap profile of another process: the tables of `struct profile` (src/profile.h), and the word that switches it.

use super::layout::{word, Field, Layout};
use super::reader::Target;
use crate::profile::{Sampled, SampledStack, Totals};
use anyhow::{ensure, Context, Result};

/// Where the totals of a stack's record lie.
struct Record {
    depth: Field,
    callers: usize,
    callers_most: usize,
    lifetimes: usize,
    lifetimes_count: usize,
    allocated: usize,
    freed: usize,
    bytes: Field,
    objects: Field,
}

impl Record {
    fn of(layout: &Layout) -> Result<Record> {
        Ok(Record {
            depth: layout.field("profile_stack.depth")?,
            callers: layout.field("profile_stack.callers")?.at,
            callers_most: layout.size("PROFILE_CALLERS")?,
            lifetimes: layout.field("profile_stack.lifetimes")?.at,
            lifetimes_count: layout.size("PROFILE_LIFETIMES")?,
            allocated: layout.field("profile_stack.allocated")?.at,
            freed: layout.field("profile_stack.freed")?.at,
            bytes: layout.field("profile_total.estimated_bytes")?,
            objects: layout.field("profile_total.estimated_objects")?,
        })
    }

    fn totals(&self, record: &[u8], at: usize) -> Totals {
        let total = record.get(at..).unwrap_or(&[]);
        Totals { objects: self.objects.of(total), bytes: self.bytes.of(total) }
    }

    fn read(&self, record: &[u8]) -> SampledStack {
        let depth = (self.depth.of(record) as usize).min(self.callers_most);
        let lifetimes = Field { at: self.lifetimes, bytes: 4 };
        SampledStack {
            allocated: self.totals(record, self.allocated),
            freed: self.totals(record, self.freed),
            lifetimes: (0..self.lifetimes_count).map(|number| lifetimes.element(record, number, 4)).collect(),
            callers: (0..depth).map(|number| word(record, self.callers + number * 8)).collect(),
        }
    }
}

/// Of live samples: fewer say nothing.
const SAMPLES_LEAST: usize = 30;

impl Target {
    /// A field of `struct profile`.
    fn profile_number(&self, name: &str) -> Result<u64> {
        let field = self.layout.field(&format!("profile.{name}"))?;
        let at = self.layout.place("profile")? + field.at as u64;
        let bytes = self.remote.read_vec(at, field.bytes.min(8))?;
        Ok(Field { at: 0, bytes: field.bytes }.of(&bytes))
    }

    /// The part of live blocks' bytes that was not asked for, by the samples that are live; None: there are too few.
    pub fn rounding_share(&self) -> Result<Option<f64>> {
        let samples = self.profile_number("samples")?;
        let levels = self.profile_number("levels_used")? as u32;
        if samples == 0 || levels == 0 {
            return Ok(None);
        }
        let (layout, size) = (&self.layout, self.layout.size("sizeof profile_sample")?);
        let count = layout.size("PROFILE_LEAST_SAMPLES")? * ((1usize << levels.min(16)) - 1);
        let (address, bytes) = (layout.field("profile_sample.address")?, layout.field("profile_sample.bytes")?);
        let objects = layout.field("profile_sample.estimated_objects")?;
        let (mut blocks, mut asked, mut live) = (0.0, 0.0, 0);
        for sample in self.remote.read_vec(samples, count * size)?.chunks_exact(size) {
            if address.of(sample) > 1 {
                let weight = objects.of(sample) as f64;
                blocks += weight * self.block_bytes_for(bytes.of(sample)) as f64;
                asked += weight * bytes.of(sample) as f64;
                live += 1;
            }
        }
        Ok((live >= SAMPLES_LEAST).then(|| 1.0 - asked / blocks))
    }

    /// What was sampled so far.
    pub fn samples(&self) -> Result<Sampled> {
        let (layout, remote) = (&self.layout, &self.remote);
        let number = |name: &str| self.profile_number(name);
        let (stacks, used) = (number("stacks")?, number("stacks_used")? as usize);
        let pid = self.pid();
        ensure!(
            stacks != 0,
            "PID {pid} has no heap profile: `hakmem profile start {pid}` begins one, or start it with HAKMEM_PROFILE=1"
        );
        let size = layout.size("sizeof profile_stack")?;
        let table = remote.read_vec(stacks, used.min(layout.size("PROFILE_STACKS")?) * size)?;
        let record = Record::of(layout)?;
        let stacks = table.chunks_exact(size).map(|bytes| record.read(bytes));
        Ok(Sampled {
            interval: number("wanted_bytes")?,
            dropped: number("dropped")?,
            stacks: stacks.filter(|stack| stack.allocated != Totals::default()).collect(),
            areas: remote.mappings(false)?,
        })
    }

    /// On average a sample every so many bytes now; 0: none.
    pub fn sampled_every(&self) -> Result<u64> {
        self.remote.number(self.wanted_bytes()?)
    }

    fn wanted_bytes(&self) -> Result<u64> {
        Ok(self.layout.place("profile")? + self.layout.field("profile.wanted_bytes")?.at as u64)
    }

    /// A sample every so many bytes on average from now on; 0: none.
    pub fn sample_every(&self, bytes: u64) -> Result<()> {
        let is_secure = self.read_options()?.iter().any(|option| option.name == "SECURE" && option.value == "1");
        ensure!(!is_secure || bytes == 0, "PID {} runs with HAKMEM_SECURE=1, where nothing is sampled", self.pid());
        self.remote.write(self.wanted_bytes()?, &bytes.to_ne_bytes()).context("cannot switch the profile")
    }
}
