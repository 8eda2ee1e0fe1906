//! `hakmem leak`: finds the lines that make a running program grow, and how fast each does.
//!
//!  1. If sampling is off, the command switches it on, and off again at the end.
//!  2. For the first third of the time it waits, so that short-lived blocks can end. In the rest it reads the library's
//!     tables READINGS times.
//!  3. The growth of a site's live bytes between two readings is one observation. The growth over the whole time gives
//!     the site's rate, and the scatter of the observations bounds its error: see `Rate`.
//!  4. The growth of the whole heap is known exactly. It shows which sites only replace older blocks.
// SPDX-License-Identifier: MIT

mod lost;
mod rates;
mod sparse;

use super::command::{interval, Symbols};
use super::text::{calls_and_callers, named, share, table};
use super::{read, sites, Profile};
use crate::heap::named::{NamedOrCore, Subject};
use crate::heap::remote::Remote;
use crate::heap::samples::{Birth, Sampled, SampledStack};
use crate::heap::Target;
use crate::symbols::Frame;
use anyhow::{bail, ensure, Result};
use hakmem_base::print;
use hakmem_base::say;
use hakmem_base::signals;
use hakmem_base::table::Style;
use hakmem_compare::compare::duration;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Observations of a site's growth unless the user interrupts, and the minimum for a verdict.
const READINGS: u32 = 20;
const READINGS_MIN: usize = 5;
/// Mean bytes between samples if sampling was off. A leak of 1 MiB/s yields 16 samples a second, each taking about 1
/// µs.
const BYTES: u64 = 64 << 10;

#[derive(clap::Args)]
pub struct LeakOptions {
    /// A process that runs HAKMEM; with --unreachable or --sparse also a core file of one
    #[arg(value_name = "PID|NAME|CORE", value_parser = NamedOrCore, allow_negative_numbers = true)]
    pub subject: Subject,
    /// Stop the process for a moment, and say which blocks nothing in it points to any more
    #[arg(long, conflicts_with_all = ["time", "bytes", "sparse", "rates"])]
    unreachable: bool,
    /// Watch it as without this, and say which lines allocate most a second, and how much of that is freed at once
    #[arg(long, conflicts_with = "sparse")]
    rates: bool,
    /// Say which lines hold blocks in slabs that are less full than this, in percent
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true, default_missing_value = "25",
        value_parser = clap::value_parser!(u64).range(1..=100), conflicts_with_all = ["time", "bytes"])]
    sparse: Option<u64>,
    /// How long to look, as in 30s or 5m; Ctrl-C shows what is known so far
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    #[arg(allow_hyphen_values = true)]
    time: Duration,
    /// Mean number of bytes between two samples [default: 64K, or that of the profile that is on]
    #[arg(long, value_name = "N", value_parser = interval)]
    bytes: Option<u64>,
    /// Maximum number of sites
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub symbols: Symbols,
}

pub fn leak(options: &LeakOptions) -> Result<ExitCode> {
    if options.unreachable {
        return lost::command(options);
    }
    if let Some(percent) = options.sparse {
        return sparse::command(options, percent);
    }
    let Subject::Process(pid) = options.subject else {
        bail!("a core file does not grow: --unreachable, or --sparse, can be asked of it");
    };
    ensure!(options.time >= Duration::from_secs(1), "--for: less than a second shows nothing");
    let blocked = signals::block();
    let target = Target::attach(pid)?;
    let before = target.sampled_every()?;
    let interval = options.bytes.unwrap_or(if before == 0 { BYTES } else { before });
    target.sample_every(interval)?;
    let watched = watch(&target, options.time);
    let switched_back = target.sample_every(before);
    drop(blocked);
    let watched = watched?;
    switched_back?;
    if options.rates {
        let rates = rates::judge(target.remote(), &watched, options, interval);
        match options.json {
            true => print::json(&rates)?,
            false => print::text(&rates::text(&rates, options.top, Style::of_stdout()))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let leak = judge(target.remote(), &watched, options, interval);
    if options.json {
        print::json(&leak)?;
    } else {
        print::text(&text(&leak, options.top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

// ---- what is read ----

/// The library's tables at one moment.
pub struct Reading {
    at: Instant,
    pub sampled: Sampled,
}

pub struct Watched {
    /// When sampling was on, when measuring began and when it ended, by the clock that dates samples.
    begun_ms: u32,
    measured_from_ms: u32,
    ended_ms: u32,
    /// When sampling had just begun.
    first: Sampled,
    /// The first one was taken after the wait for short-lived blocks.
    pub readings: Vec<Reading>,
    births: Vec<Birth>,
    /// Bytes of all blocks at the first and the last reading.
    live: [i64; 2],
}

/// The clock of os_now_ms in the library.
pub fn now_ms() -> u32 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes `now` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000) as u32
}

/// Returns false if the user interrupted it.
pub fn wait_until(due: Instant) -> bool {
    loop {
        match signals::wait(due) {
            signals::Event::Child => {}
            event => return matches!(event, signals::Event::Timeout),
        }
    }
}

fn watch(target: &Target, time: Duration) -> Result<Watched> {
    let read = || Ok::<_, anyhow::Error>(Reading { at: Instant::now(), sampled: target.samples()? });
    let begun_ms = now_ms();
    let Reading { at: begun, sampled: first } = read()?;
    ensure!(wait_until(begun + time / 3), "interrupted before anything could be said");
    let before = target.summary()?.heap.held();
    let mut readings = vec![read()?];
    let (measured_from, measured_from_ms) = (readings[0].at, now_ms());
    for number in 1..=READINGS {
        let goes_on = wait_until(measured_from + time * 2 / 3 * number / READINGS);
        readings.push(read()?);
        if !goes_on {
            break;
        }
    }
    ensure!(readings.len() > READINGS_MIN, "interrupted before anything could be said");
    let live = [before, target.summary()?.heap.held()];
    let births = target.births()?;
    Ok(Watched { begun_ms, measured_from_ms, ended_ms: now_ms(), first, readings, births, live })
}

// ---- what follows ----

/// Bytes or blocks a second.
#[derive(Debug, Clone, Copy, Serialize)]
struct Rate {
    rate: f64,
    /// In 95 of 100 cases the true rate differs by less than this.
    margin: f64,
}

impl Rate {
    /// `values`: seconds, and the value then. Steps differ in length on a busy machine, so what counts is how far each
    /// is from what the rate makes of its length. n independent steps are off by sd * sqrt(n); where the values swing,
    /// the steps scatter more than that.
    fn of(values: &[(f64, f64)]) -> Rate {
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return Rate { rate: 0.0, margin: 0.0 } };
        let seconds = (last.0 - first.0).max(1e-3);
        let rate = (last.1 - first.1) / seconds;
        let off = values.windows(2).map(|two| two[1].1 - two[0].1 - rate * (two[1].0 - two[0].0));
        let count = (values.len() - 1).max(2) as f64;
        let variance = off.map(|off| off * off).sum::<f64>() / (count - 1.0);
        let student = if count < 10.0 {
            2.776
        } else if count < 20.0 {
            2.262
        } else {
            2.093
        };
        Rate { rate, margin: student * (variance * count).sqrt() / seconds }
    }

    fn is_growth(self) -> bool {
        self.rate > self.margin
    }
}

#[derive(Debug, Clone, Serialize)]
struct Growing {
    #[serde(flatten)]
    frame: Frame,
    /// Bytes a second.
    #[serde(flatten)]
    growth: Rate,
    blocks_per_second: f64,
    /// The part of the bytes allocated before measuring began that is still live; None: nothing was allocated.
    still_held: Option<f64>,
    /// Age of the oldest block.
    oldest_ms: Option<u32>,
    /// What the line calls on the way to malloc, the nearest first.
    calls: Vec<Frame>,
    callers: Vec<Frame>,
}

#[derive(Debug, Serialize)]
struct Leak {
    process: String,
    /// How long sampling was on, and how long growth was measured.
    sampled_seconds: f64,
    measured_seconds: f64,
    /// Mean bytes between samples.
    interval: u64,
    /// Bytes in blocks of the whole heap, exactly, before and after.
    live_before: i64,
    live_after: i64,
    notes: Vec<String>,
    /// The sites whose growth is beyond chance, the fastest first.
    sites: Vec<Growing>,
    /// How many other sites grew, but not beyond chance.
    doubtful_sites: usize,
}

/// One site: all its stacks together.
#[derive(Default)]
struct Sums {
    calls: Vec<Frame>,
    callers: Vec<Frame>,
    /// At each reading, live bytes and objects (in parts of one).
    values: Vec<[f64; 2]>,
    /// Bytes of the blocks allocated before measuring began, and of those still live.
    early: u64,
    early_live: u64,
    oldest_ms: Option<u32>,
}

/// The value of each stack, by the stack's number.
fn by_number<T>(sampled: &Sampled, value: impl Fn(&SampledStack) -> T) -> HashMap<u64, T> {
    sampled.stacks.iter().map(|stack| (stack.number, value(stack))).collect()
}

fn live(stack: &SampledStack) -> [f64; 2] {
    let SampledStack { allocated, freed, .. } = stack;
    [allocated.bytes as f64 - freed.bytes as f64, allocated.objects as f64 - freed.objects as f64]
}

impl Watched {
    /// `numbers`: those of the profile's stacks.
    fn by_site(&self, profile: &Profile, numbers: &[u64]) -> HashMap<Frame, Sums> {
        let series: Vec<_> = self.readings.iter().map(|reading| by_number(&reading.sampled, live)).collect();
        let [before, early] =
            [&self.first, &self.readings[0].sampled].map(|one| by_number(one, |stack| stack.allocated.bytes));
        let mut births: HashMap<u64, Vec<&Birth>> = HashMap::new();
        self.births.iter().for_each(|birth| births.entry(birth.stack).or_default().push(birth));
        let age = |ms: u32| self.ended_ms.wrapping_sub(ms);
        let early_ages = age(self.measured_from_ms)..=age(self.begun_ms);

        let mut sites: HashMap<Frame, Sums> = HashMap::new();
        for (stack, number) in profile.stacks.iter().zip(numbers) {
            let (frame, _, callers) = sites::site(profile, stack);
            let values = vec![[0.0; 2]; series.len()];
            let new = || Sums { calls: sites::calls(profile, stack), callers, values, ..Sums::default() };
            let sum = sites.entry(frame).or_insert_with(new);
            for (value, reading) in sum.values.iter_mut().zip(&series) {
                let [bytes, objects] = reading.get(number).copied().unwrap_or_default();
                *value = [value[0] + bytes, value[1] + objects];
            }
            let bytes = |table: &HashMap<u64, u64>| table.get(number).copied().unwrap_or(0);
            sum.early = sum.early.saturating_add(bytes(&early).saturating_sub(bytes(&before)));
            for birth in births.get(number).into_iter().flatten() {
                sum.oldest_ms = sum.oldest_ms.max(Some(age(birth.birth_ms)));
                if early_ages.contains(&age(birth.birth_ms)) {
                    sum.early_live = sum.early_live.saturating_add(birth.estimated_bytes);
                }
            }
        }
        sites
    }

    /// Seconds since the first reading.
    pub fn seconds(&self, reading: &Reading) -> f64 {
        reading.at.duration_since(self.readings[0].at).as_secs_f64()
    }

    fn rate(&self, values: impl Iterator<Item = f64>) -> Rate {
        Rate::of(&self.readings.iter().map(|reading| self.seconds(reading)).zip(values).collect::<Vec<_>>())
    }
}

fn judge(remote: Remote, watched: &Watched, options: &LeakOptions, interval: u64) -> Leak {
    let last = &watched.readings[watched.readings.len() - 1];
    let numbers: Vec<u64> = last.sampled.stacks.iter().map(|stack| stack.number).collect();
    let profile = read::stacks_of(remote, last.sampled.clone(), &options.symbols.debug_directory);
    let (mut sites, mut doubtful_sites) = (Vec::new(), 0);
    for (frame, sum) in watched.by_site(&profile, &numbers) {
        let growth = watched.rate(sum.values.iter().map(|value| value[0]));
        if growth.is_growth() {
            let blocks = watched.rate(sum.values.iter().map(|value| value[1] / read::OBJECT as f64));
            let still_held = (sum.early > 0).then(|| (sum.early_live as f64 / sum.early as f64).min(1.0));
            let Sums { calls, callers, oldest_ms, .. } = sum;
            sites.push(Growing {
                frame,
                growth,
                blocks_per_second: blocks.rate,
                still_held,
                oldest_ms,
                calls,
                callers,
            });
        } else if growth.rate > 0.0 {
            doubtful_sites += 1;
        }
    }
    sites.sort_by(|a, b| b.growth.rate.total_cmp(&a.growth.rate));
    Leak {
        process: profile.subject(),
        sampled_seconds: f64::from(watched.ended_ms.wrapping_sub(watched.begun_ms)) / 1e3,
        measured_seconds: watched.seconds(last),
        interval,
        live_before: watched.live[0],
        live_after: watched.live[1],
        notes: profile.remarks().cloned().collect(),
        sites,
        doubtful_sites,
    }
}

// ---- as text ----

fn per_second(bytes: f64) -> String {
    format!("{}/s", say::bytes(bytes))
}

fn text(leak: &Leak, top: usize, style: Style) -> String {
    let grown = leak.live_after - leak.live_before;
    let heap_rate = grown as f64 / leak.measured_seconds.max(1e-3);
    let (verb, change) = if grown < 0 { ("shrank", -heap_rate) } else { ("grew", heap_rate) };
    let mut text = format!(
        "{}: the blocks it holds {verb} by {} in {}, from {} to {}\nSampled for {}, one allocation in {}; growth is \
         that of the last {}, after short-lived blocks had ended\n",
        leak.process,
        per_second(change),
        say::seconds(leak.measured_seconds),
        say::bytes(leak.live_before as f64),
        say::bytes(leak.live_after as f64),
        say::seconds(leak.sampled_seconds),
        say::bytes(leak.interval as f64),
        say::seconds(leak.measured_seconds),
    );
    leak.notes.iter().for_each(|note| text.push_str(&format!("Note: {note}.\n")));
    text.push('\n');
    let row = |site: &Growing| {
        let cells = vec![
            per_second(site.growth.rate),
            per_second(site.growth.margin),
            say::number(site.blocks_per_second),
            site.still_held.map_or("–".into(), |part| share((part * 1e6) as u64, 1_000_000)),
            site.oldest_ms.map_or("–".into(), |ms| say::seconds(f64::from(ms) / 1e3)),
            named(&site.frame),
        ];
        (cells, calls_and_callers(&site.calls, &site.callers))
    };
    let rows: Vec<_> = leak.sites.iter().take(top).map(row).collect();
    if rows.is_empty() {
        text += "No site grows beyond what chance explains.\n";
    } else {
        text += &table(&["grows by", "±", "blocks/s", "still held", "oldest", "site"], &rows, style);
    }
    if leak.sites.len() > rows.len() {
        let _ = writeln!(text, "and {} more (--top N)", say::count(leak.sites.len() - rows.len(), "site"));
    }
    if leak.doubtful_sites > 0 {
        let _ = writeln!(
            text,
            "{} grew by less than chance explains: look for longer (--for).",
            say::count(leak.doubtful_sites, "site")
        );
    }
    let sum: f64 = leak.sites.iter().map(|site| site.growth.rate).sum();
    if sum > 0.0 && heap_rate < sum / 2.0 {
        text += "The heap as a whole grows far less than these sites: some of their blocks replace blocks from before \
                 sampling began.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(values: impl Iterator<Item = f64>) -> Rate {
        Rate::of(&values.enumerate().map(|(at, value)| (at as f64, value)).collect::<Vec<_>>())
    }

    #[test]
    fn growth_is_told_from_chance() {
        let steady = rate((0..21).map(|at| 100.0 * at as f64));
        assert!((steady.rate - 100.0).abs() < 1e-9 && steady.margin < 1e-9 && steady.is_growth());
        assert!(!rate((0..21).map(|_| 5.0)).is_growth(), "nothing changes");
        assert!(!rate((0..21).map(|at| if at < 10 { 0.0 } else { 1e9 })).is_growth(), "one large block");
        assert!(!rate((0..21).map(|at| f64::from(at % 4))).is_growth(), "a cache that is emptied now and then");
        // Every third interval has a sample: seven in twenty.
        assert!(rate((0..21).map(|at| f64::from(at / 3))).is_growth());
        assert!(!rate((0..21).map(|at| f64::from(at / 10))).is_growth(), "two samples are none");
        // Read late, and then again at once, when the program had caught up.
        let late = Rate::of(&[
            (0.0, 0.0),
            (1.0, 90.0),
            (1.001, 101.0),
            (2.0, 200.0),
            (2.7, 270.0),
            (2.701, 271.0),
            (4.0, 400.0),
        ]);
        assert!((late.rate - 100.0).abs() < 1e-9 && late.margin < 20.0, "{late:?}");
        assert!(!Rate::of(&[]).is_growth() && !Rate::of(&[(0.0, 1.0)]).is_growth());
    }

    #[test]
    fn what_grows_is_shown_with_its_rate() {
        let frame = |name: &str| Frame { function: name.into(), file: "/x/a.cc".into(), line: 7 };
        let site = Growing {
            frame: frame("leak(int)"),
            growth: Rate { rate: 1_300_000.0, margin: 80_000.0 },
            blocks_per_second: 310.0,
            still_held: Some(1.0),
            oldest_ms: Some(30_000),
            calls: vec![frame("Item& std::deque<Item>::emplace_back<>(&&)")],
            callers: vec![frame("main")],
        };
        let mut leak = Leak {
            process: "x (process 7)".into(),
            sampled_seconds: 30.0,
            measured_seconds: 20.0,
            interval: 65536,
            live_before: 0,
            live_after: 26 << 20,
            notes: Vec::new(),
            sites: vec![site],
            doubtful_sites: 1,
        };
        let style = Style { color: false, width: 80 };
        let shown = text(&leak, 10, style);
        assert!(
            shown.starts_with("x (process 7): the blocks it holds grew by 1.3 MiB/s in 20 s, from 0 B to 26 MiB\n"),
            "{shown}"
        );
        assert!(shown.contains("1.24 MiB/s  78.1 KiB/s       310     100.0 %    30 s  leak at a.cc:7\n"), "{shown}");
        let wide = text(&leak, 10, Style { width: 160, ..style });
        assert!(wide.contains("→ std::deque<Item>::emplace_back<> ← main at a.cc:7\n"), "{wide}");
        assert!(shown.contains("1 site grew by less than chance") && !shown.contains("as a whole"), "{shown}");
        leak.live_after = 0;
        assert!(text(&leak, 10, style).contains("The heap as a whole grows far less"));
        leak.sites.clear();
        assert!(text(&leak, 10, style).contains("No site grows"));
    }
}
