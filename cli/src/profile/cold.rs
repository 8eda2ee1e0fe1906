//! `hakmem cold`: which lines hold memory that the program does not use, and how small it would be compressed.
//!
//!  1. What blocks hold is read twice. A page of a block is cold if it was resident both times and nothing in it has
//!     changed. That needs no help of the kernel, and says of writes alone.
//!  2. Only sampled blocks are looked at, a bounded number of them and of their pages; each counts for as much as its
//!     sample stands for. What is not resident is left alone, so nothing is swapped in.
//!  3. With --touched the kernel says how much of the heap was neither read nor written. It keeps one mark for a page
//!     (/proc/PID/clear_refs), by which it also chooses what to swap: so only whoever asks has it cleared.
//!  4. Cold pages are deflated one by one, as zram and zswap do it; zstd comes out at about the same.
// SPDX-License-Identifier: MIT

use super::leak::{now_ms, wait_until};
use super::text::{callers, named, table};
use super::{read, sites, Symbols};
use crate::heap::area;
use crate::heap::blocks::pages_where;
use crate::heap::named::Named;
use crate::heap::remote::{Pagemap, Remote};
use crate::heap::samples::Birth;
use crate::heap::Target;
use crate::symbols::Frame;
use anyhow::{Context, Result};
use flate2::{write::DeflateEncoder, Compression};
use hakmem_base::print;
use hakmem_base::proc::{kilobytes, page_bytes, Pid};
use hakmem_base::say;
use hakmem_base::shown;
use hakmem_base::signals;
use hakmem_base::table::{size, Style};
use hakmem_compare::compare::duration;
use serde::Serialize;
use std::collections::hash_map::DefaultHasher;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::hash::Hasher;
use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Sampled blocks that are looked at, and pages of each.
const BLOCKS_MAX: usize = 20_000;
const PAGES_MAX: u64 = 16;
/// How many bytes of a site's cold pages are deflated.
const DEFLATED_MAX: u64 = 1 << 20;

#[derive(clap::Args)]
pub struct ColdOptions {
    /// A process that runs HAKMEM and is sampled (HAKMEM_PROFILE=1)
    #[arg(value_name = "PID|NAME", value_parser = Named)]
    pid: Pid,
    /// How long to look, as in 30s or 10m; Ctrl-C ends it sooner
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    #[arg(allow_hyphen_values = true)]
    time: Duration,
    /// Also have the kernel say how much was neither read nor written; it forgets for that what it knows of the process
    #[arg(long)]
    touched: bool,
    /// Maximum number of sites
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    symbols: Symbols,
}

/// Estimates.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
struct Amount {
    /// Bytes of blocks that were live all the time.
    bytes: u64,
    cold: u64,
    /// How many of the cold bytes were deflated, and how many came out.
    deflated_from: u64,
    deflated_to: u64,
    /// What the cold bytes deflate to; None: not known.
    compressed: Option<u64>,
    /// What the parts that were deflated stand for, and what these stand for came out as.
    #[serde(skip)]
    weighed: [f64; 2],
}

impl Amount {
    /// Adds another part of the same site, which is like those before.
    fn add(&mut self, other: &Amount) {
        self.bytes += other.bytes;
        self.cold += other.cold;
        self.deflated_from += other.deflated_from;
        self.deflated_to += other.deflated_to;
        (0..2).for_each(|i| self.weighed[i] += other.weighed[i]);
        let share = (self.weighed[1] / self.weighed[0]).min(1.0);
        self.compressed = (self.weighed[0] > 0.0).then_some((self.cold as f64 * share) as u64);
    }

    /// Of all sites: of each a bounded part was deflated, which says nothing of the others.
    fn sum<'a>(sites: impl Iterator<Item = &'a Amount>) -> Amount {
        let mut all = Amount::default();
        for site in sites {
            let weighed = site.compressed.map_or([0.0; 2], |compressed| [site.cold as f64, compressed as f64]);
            all.add(&Amount { weighed, ..site.clone() });
        }
        all
    }

    fn ratio(&self) -> String {
        let share = |compressed| say::percent(compressed as f64 / self.cold.max(1) as f64);
        self.compressed.map_or("–".into(), share)
    }
}

#[derive(Debug, Clone, Serialize)]
struct Site {
    #[serde(flatten)]
    frame: Frame,
    #[serde(flatten)]
    amount: Amount,
    oldest_ms: u32,
    callers: Vec<Frame>,
}

/// What the kernel says of the heap.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
struct Touched {
    resident: u64,
    untouched: u64,
}

#[derive(Serialize)]
struct Cold {
    process: String,
    pid: Pid,
    seconds: f64,
    #[serde(flatten)]
    all: Amount,
    touched: Option<Touched>,
    sites: Vec<Site>,
    notes: Vec<String>,
}

// ---- looking ----

/// A part of a block, in one page.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    at: u64,
    bytes: u64,
    hash: u64,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The parts of a block in some of its pages, evenly: all of them, or PAGES_MAX.
fn ranges(address: u64, bytes: u64, page: u64) -> Vec<Range<u64>> {
    let end = address.saturating_add(bytes);
    let (first, last) = (address / page, end.saturating_sub(1).max(address) / page);
    let pages = last - first + 1;
    let chosen = pages.min(PAGES_MAX);
    let number = |i: u64| first + (u128::from(i) * u128::from(pages) / u128::from(chosen)) as u64;
    let begin = |number: u64| number.saturating_mul(page);
    (0..chosen).map(|i| begin(number(i)).max(address)..begin(number(i) + 1).min(end)).collect()
}

/// What is resident there, of what could be read.
fn look(remote: &Remote, pagemap: Option<&Pagemap>, range: &Range<u64>) -> Option<Vec<u8>> {
    let page = page_bytes();
    let first = range.start / page * page;
    let whole = first..first.saturating_add(page);
    if pages_where(pagemap, whole, |entry| entry & area::PRESENT != 0).is_empty() {
        return None;
    }
    remote.read_vec(range.start, (range.end - range.start) as usize).ok()
}

struct Seen {
    birth: Birth,
    /// All that were chosen, resident or not.
    bytes: u64,
    parts: Vec<Part>,
}

fn see(remote: &Remote, pagemap: Option<&Pagemap>, birth: Birth) -> Seen {
    let ranges = ranges(birth.address, birth.block_bytes, page_bytes());
    let part = |range: &Range<u64>| {
        let bytes = look(remote, pagemap, range)?;
        Some(Part { at: range.start, bytes: bytes.len() as u64, hash: hash(&bytes) })
    };
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    Seen { birth, bytes, parts: ranges.iter().filter_map(part).collect() }
}

/// What of the block has not changed, and what that deflates to; `room`: how much of it may be deflated.
fn compare(remote: &Remote, pagemap: Option<&Pagemap>, seen: &Seen, scale: f64, room: u64) -> Amount {
    let (mut cold, mut from, mut to) = (0, 0, 0);
    for part in &seen.parts {
        let Some(bytes) = look(remote, pagemap, &(part.at..part.at + part.bytes)) else { continue };
        if hash(&bytes) != part.hash {
            continue;
        }
        cold += part.bytes;
        if from + part.bytes <= room {
            from += part.bytes;
            to += deflated(&bytes).min(part.bytes);
        }
    }
    let stands_for = seen.birth.estimated_bytes as f64 * scale;
    let each = stands_for / seen.bytes.max(1) as f64;
    Amount {
        bytes: stands_for as u64,
        cold: (each * cold as f64) as u64,
        deflated_from: from,
        deflated_to: to,
        compressed: None,
        weighed: [each * from as f64, each * to as f64],
    }
}

fn deflated(bytes: &[u8]) -> u64 {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
    let _ = packed.write_all(bytes); // into memory
    packed.finish().map_or(bytes.len(), |packed| packed.len()) as u64
}

// ---- what the kernel knows ----

fn clear_marks(remote: &Remote) -> Result<()> {
    remote.ensure_same()?;
    let process = remote.process().context("it has no process")?;
    let cleared =
        OpenOptions::new().write(true).open(process.path("clear_refs")).and_then(|mut file| file.write_all(b"1"));
    cleared.context("the kernel does not say what was read")
}

/// The sums over the mappings of smaps that begin in the range.
fn touched_in(smaps: &str, heap: &Range<u64>) -> Touched {
    let (mut resident, mut referenced, mut inside) = (0, 0, false);
    for line in smaps.lines() {
        let begin = line.split_once('-').and_then(|(begin, _)| u64::from_str_radix(begin, 16).ok());
        if let Some(begin) = begin {
            inside = heap.contains(&begin);
        } else if inside {
            resident += kilobytes(line, "Rss").unwrap_or(0);
            referenced += kilobytes(line, "Referenced").unwrap_or(0);
        }
    }
    Touched { resident, untouched: resident.saturating_sub(referenced) }
}

fn touched(target: &Target) -> Result<Touched> {
    let snapshot = target.snapshot()?;
    let addresses = || snapshot.superslabs.iter().map(|superslab| superslab.address);
    let slots = snapshot.superslabs.first().map_or(0, |superslab| superslab.slots.len() as u64);
    let end = addresses().max().unwrap_or(0) + slots * snapshot.slot_bytes;
    let smaps = target.remote().process().map_or(Vec::new(), |process| process.bytes("smaps"));
    Ok(touched_in(&String::from_utf8_lossy(&smaps), &(addresses().min().unwrap_or(0)..end)))
}

// ---- the command ----

pub fn cold(options: &ColdOptions) -> Result<ExitCode> {
    let _blocked = signals::block();
    let target = Target::attach_within(options.pid, read::NAMING)?;
    let (remote, pid) = (target.remote(), target.pid());
    let pagemap = remote.pagemap();
    target.samples()?; // fails if there are none
    let births = target.births()?;
    let step = births.len().div_ceil(BLOCKS_MAX).max(1);
    let seen: Vec<Seen> = births.iter().step_by(step).map(|&birth| see(&remote, pagemap.as_ref(), birth)).collect();
    let mut notes = Vec::new();
    let clear = options.touched.then(|| clear_marks(&remote));
    let begun = Instant::now();
    print::note(&format!(
        "hakmem: watching PID {pid} for {}; Ctrl-C ends it",
        say::seconds(options.time.as_secs_f64())
    ));
    let due = begun + options.time;
    wait_until(due);
    let seconds = begun.elapsed().as_secs_f64();
    let touched = match clear {
        Some(Ok(())) => touched(&target).map(Some),
        Some(Err(error)) => Err(error),
        None => Ok(None),
    };
    let touched = touched.unwrap_or_else(|error| {
        notes.push(format!("{error:#}"));
        None
    });
    let live: HashMap<u64, Birth> = target.births()?.into_iter().map(|birth| (birth.address, birth)).collect();
    let sampled = target.samples()?;
    let numbers: HashMap<u64, usize> =
        (sampled.stacks.iter()).enumerate().map(|(at, stack)| (stack.number, at)).collect();
    let profile = read::stacks_of(target.remote(), sampled, &options.symbols.debug_directory);
    notes.extend(profile.notes.iter().cloned());
    let mut found: HashMap<Frame, Site> = HashMap::new();
    for one in seen.iter().filter(|one| live.get(&one.birth.address) == Some(&one.birth)) {
        let Some(stack) = numbers.get(&one.birth.stack).and_then(|&at| profile.stacks.get(at)) else { continue };
        let (frame, _, callers) = sites::site(&profile, stack);
        let new = |frame| Site { frame, amount: Amount::default(), oldest_ms: 0, callers };
        let site = found.entry(frame.clone()).or_insert_with(|| new(frame));
        let room = DEFLATED_MAX.saturating_sub(site.amount.deflated_from);
        site.amount.add(&compare(&remote, pagemap.as_ref(), one, step as f64, room));
        site.oldest_ms = site.oldest_ms.max(now_ms().wrapping_sub(one.birth.birth_ms));
    }
    let mut sites: Vec<Site> = found.into_values().collect();
    sites.sort_by(|a, b| (b.amount.cold, &a.frame.function).cmp(&(a.amount.cold, &b.frame.function)));
    let all = Amount::sum(sites.iter().map(|site| &site.amount));
    let cold = Cold { process: remote.program(), pid, seconds, all, touched, sites, notes };
    if options.json {
        print::json(&cold)?;
    } else {
        print::text(&text(&cold, options.top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(cold: &Cold, top: usize, style: Style) -> String {
    let mut text = format!(
        "{} (process {}), watched for {}: of about {} in blocks that were live all the time, {} was not written",
        shown::line(&cold.process),
        cold.pid,
        say::seconds(cold.seconds),
        size(cold.all.bytes),
        size(cold.all.cold),
    );
    if cold.all.compressed.is_some() {
        let _ = write!(text, "; page by page it compresses to about {}", cold.all.ratio());
    }
    text.push_str(".\n");
    if let Some(Touched { resident, untouched }) = cold.touched {
        let (untouched, resident) = (size(untouched), size(resident));
        let _ = writeln!(text, "The kernel: {untouched} of the heap's {resident} was neither read nor written.");
    }
    cold.notes.iter().for_each(|note| text.push_str(&format!("Note: {}.\n", shown::line(note))));
    let row = |site: &Site| {
        let Amount { bytes, cold, .. } = site.amount;
        let oldest = say::seconds(f64::from(site.oldest_ms) / 1e3);
        (vec![size(cold), size(bytes), site.amount.ratio(), oldest, named(&site.frame)], callers(&site.callers))
    };
    let rows: Vec<_> = cold.sites.iter().filter(|site| site.amount.cold > 0).take(top).map(row).collect();
    if !rows.is_empty() {
        let _ = write!(text, "\n{}", table(&["not written", "of", "compresses to", "oldest", "site"], &rows, style));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_in_one_page_each_and_in_the_block() {
        assert_eq!(ranges(0x1000, 100, 4096).first(), Some(&(0x1000..0x1064)));
        assert_eq!(ranges(0x1ff0, 0x20, 4096), [0x1ff0..0x2000, 0x2000..0x2010]);
        assert_eq!(ranges(0x1000, 0, 4096).first(), Some(&(0x1000..0x1000)));
        for (address, bytes) in [(0x5123, 1 << 40), (0x5000, 17 * 4096), (u64::MAX - 5000, u64::MAX)] {
            let ranges = ranges(address, bytes, 4096);
            assert!(ranges.len() as u64 == PAGES_MAX || address > 1 << 50);
            assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start), "{ranges:?}");
            assert!(ranges.iter().all(|range| range.end - range.start <= 4096 && range.start >= address));
        }
    }

    /// Else a heap counts as used that nobody uses, or what lies beside it counts.
    #[test]
    fn the_kernels_marks_are_summed_in_the_heap() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0\nRss: 400 kB\nReferenced: 100 kB\n\
            2000-3000 rw-p 00000000 00:00 0\nRss: 50 kB\nReferenced: 50 kB\n\
            9000-a000 rw-p 00000000 00:00 0\nRss: 7 kB\nReferenced: 0 kB\n";
        assert_eq!(touched_in(smaps, &(0x1000..0x9000)), Touched { resident: 450 << 10, untouched: 300 << 10 });
    }

    #[test]
    fn what_compresses_is_told() {
        let page = vec![7; 4096];
        assert!(deflated(&page) < 100);
        assert_eq!(Amount::default().ratio(), "–");
    }

    /// Else 1 MiB of one site says how 10 GiB of another compress.
    #[test]
    fn sites_and_parts_count_for_what_they_stand_for() {
        let part = |cold: u64, share: f64| {
            let weighed = [cold as f64, cold as f64 * share];
            Amount { bytes: cold, cold, deflated_from: 4096, deflated_to: 99, weighed, ..Amount::default() }
        };
        let mut large = Amount::default();
        [part(9000, 0.5), part(1000, 0.0)].iter().for_each(|part| large.add(part));
        assert_eq!((large.compressed, large.ratio().as_str()), (Some(4500), "45\u{a0}%"));
        // Room for a tenth of it was left.
        large.add(&Amount { cold: 10_000, ..Amount::default() });
        assert_eq!(large.compressed, Some(9000));
        let (mut small, unknown) = (Amount::default(), Amount { cold: 5000, bytes: 5000, ..Amount::default() });
        small.add(&part(100, 1.0));
        let all = Amount::sum([&large, &small, &unknown].into_iter());
        assert_eq!((all.cold, all.ratio()), (25_100, say::percent(9100.0 / 20_100.0)));
    }
}
