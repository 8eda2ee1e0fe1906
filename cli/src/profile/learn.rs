//! `hakmem learn`: finds the call sites of a program that allocate long-lived blocks, and settings that gain
//! (gains.rs), and writes a policy file (HAKMEM_POLICY).
//!
//!  1. The command runs a program, or watches a running one, while the library samples allocations. A sample has its
//!     call stack, and how long the block lived or that the block is still live. Where samples were taken before, what
//!     they say counts too, and the time begins with the oldest block.
//!  2. A block is long-lived if it reached the age of a quarter (1 / `SHARE`) of the time. When it is freed, only the
//!     power of two below its age is known, so an eighth may do then.
//!  3. Stacks are grouped by the call of malloc. A group whose blocks are long-lived is a site. A mixed group, such as
//!     that of xmalloc, is divided by the next caller, up to five frames. What is mixed then is a site if most of what
//!     is live there at a time is long-lived: a short-lived block counts by how long it lives.
//!  4. A frame is written as a build id and an offset, so that the file is valid for later runs. Short-lived sites need
//!     no line: their blocks stay in the thread's own heap.
// SPDX-License-Identifier: MIT

use super::command::{interval, Symbols};
use super::gains::Seen;
use super::read;
use super::{Place, Profile, Stack};
use crate::heap::named::Named;
use crate::heap::samples::{Birth, Sampled};
use crate::heap::Target;
use crate::peak;
use crate::symbols::{Linked, Origin};
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::proc::{self, Pid, Process, NEITHER};
use hakmem_base::{files, preload, print, say, scratch, shown, signals};
use hakmem_compare::compare::duration;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The most frames that the library accepts in a line (src/arena/policy.c).
const FRAMES_MAX: usize = 5;
/// Samples a second in each thread, at most (PROFILE_RATE): few that stand for many blocks make each file another one,
/// and more than a fiftieth of the time would hide what settings gain.
const RATE: &str = "20000";
/// Larger blocks have no policy, because they share no page with others.
const BYTES_MAX: u64 = 64 << 10;
/// The most lines that the library accepts.
const LINES_MAX: usize = 4096;
/// A block that lives for this part of the time, one in SHARE, is long-lived.
const SHARE: u32 = 4;
/// A group is not divided if at least this part of its bytes is long-lived.
const PURE: f64 = 0.95;
/// A group that cannot be divided is a site if at least this part of its live bytes is long-lived …
const MIXED: f64 = 0.5;
/// … and if it allocates at most this many times as much: each block costs some 90 instructions more in a lane.
const PASSING: f64 = 64.0;
/// Largest ratio of short-lived to long-lived bytes in a lane: short-lived blocks leave holes.
const LANE_SHORT_SHARE: f64 = 0.25;
/// Sites must bring at least this part of the long-lived bytes of their sizes: what stays in the heap keeps its slabs,
/// whose holes nothing long-lived fills any more.
const COMPLETE: f64 = 0.95;
/// A lane costs up to 1 MiB in partly used slabs for each thread, and gains nothing if few bytes are long-lived, or
/// nearly all.
const WORTH_BYTES: f64 = (2 << 20) as f64;
/// How many characters of a function's name stand in a comment: the library reads lines of up to 12 KiB.
const NAME_MAX: usize = 200;
/// A site needs at least this many long-lived samples.
const SAMPLES_MIN: f64 = 2.0;

#[derive(clap::Args)]
pub struct LearnOptions {
    /// A process that runs HAKMEM; or `-- PROGRAM` to run one
    #[arg(value_name = "PID|NAME", value_parser = Named, conflicts_with = "program")]
    pid: Option<Pid>,
    /// How long to watch a process, as in 30s or 5m
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    #[arg(allow_hyphen_values = true, conflicts_with = "program")]
    time: Duration,
    /// Mean number of bytes between two samples
    #[arg(long, value_name = "N", default_value = "4K", value_parser = interval)]
    bytes: u64,
    /// The policy file to write; `-` is stdout [default: PROGRAM.policy]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The library to run PROGRAM under
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
    #[command(flatten)]
    symbols: Symbols,
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

// ---- what was sampled ----

/// Estimated bytes of a site's blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    allocated: f64,
    long: f64,
    /// A short-lived block counts by its age over a long life, as if no long-lived one lived longer: if a site
    /// allocates evenly, that is what is live of both at any time.
    short: f64,
}

impl Weight {
    fn long_lived(bytes: f64) -> Weight {
        Weight { allocated: bytes, long: bytes, short: 0.0 }
    }
    fn add(&mut self, more: Weight) {
        self.allocated += more.allocated;
        self.long += more.long;
        self.short += more.short;
    }
    /// The part of the allocated bytes that is long-lived.
    fn long_share(self) -> f64 {
        self.long / self.allocated.max(1.0)
    }
    /// The part of the live bytes.
    fn long_share_of_live(self) -> f64 {
        self.long / (self.long + self.short).max(1.0)
    }
}

/// A frame as a policy file names it, and as a person does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    place: String,
    name: String,
}

/// The innermost frames of a stack, as far as they can be named.
#[derive(Debug)]
struct Chain {
    frames: Vec<Site>,
    weight: Weight,
    size: u32,
}

/// A number for the mean size of the stack's blocks, as fine as classes are: steps of 16 bytes, from 256 on eight in a
/// doubling.
fn size_number(stack: &Stack) -> u32 {
    let all = stack.allocated();
    let steps = (all.bytes / all.objects.max(1)).saturating_sub(1) / 16;
    let doublings = steps.max(1).ilog2().saturating_sub(3);
    8 * doublings + (steps >> doublings) as u32
}

/// Counts the blocks that were freed. Those that lived longer than `long_ns` are long-lived.
fn freed(stack: &Stack, long_ns: u64) -> Weight {
    let mut weight = Weight::default();
    for lifetime in &stack.lifetimes {
        let (at_least, bytes) = (lifetime.at_least_ns.unwrap_or(0), lifetime.freed.bytes as f64);
        // A range ends at twice its beginning.
        if at_least.saturating_mul(2) > long_ns {
            weight.add(Weight::long_lived(bytes));
        } else {
            let life = 1.5 * at_least as f64 / long_ns as f64;
            weight.add(Weight { allocated: bytes, long: 0.0, short: bytes * life });
        }
    }
    weight
}

fn age(birth: &Birth, now_ms: u32) -> Duration {
    Duration::from_millis(now_ms.wrapping_sub(birth.birth_ms).into())
}

/// Counts the live blocks of the last `time`, by age. Young ones say nothing yet.
fn living(births: &[Birth], now_ms: u32, long: Duration, time: Duration) -> HashMap<u64, Weight> {
    let mut weights = HashMap::<u64, Weight>::new();
    for birth in births.iter().filter(|birth| (long..=time).contains(&age(birth, now_ms))) {
        weights.entry(birth.stack).or_default().add(Weight::long_lived(birth.estimated_bytes as f64));
    }
    weights
}

/// The files that the modules of a profile were mapped from.
struct Modules<'a> {
    origin: &'a Origin,
    known: HashMap<usize, Option<Linked>>,
}

impl Modules<'_> {
    /// None: the module has no build id, or its file is gone.
    fn site(&mut self, profile: &Profile, place: &Place) -> Option<Site> {
        let number = place.module?;
        let module = &profile.modules[number];
        let names = self.known.entry(number).or_insert_with(|| Linked::of(self.origin, module)).as_ref()?;
        let offset = names.linked(place.address.wrapping_sub(module.start).wrapping_add(module.offset))?;
        let name = place.frames.first().map_or_else(|| profile.unnamed(place).function, |frame| frame.function.clone());
        (names.build_id.len() >= 16).then(|| Site {
            place: format!("{}+{:#x}", names.build_id, offset + 1), // places are in the call, one byte before its end
            name: shown::line(name.split('(').next().unwrap_or_default()).chars().take(NAME_MAX).collect(),
        })
    }

    /// Leaves out the library's own frames, because the library skips them as well.
    fn frames(&mut self, profile: &Profile, stack: &Stack) -> Vec<Site> {
        let places = || stack.places.iter().map(|&number| &profile.places[number]);
        let library = places().next().and_then(|place| place.module);
        let callers = places().skip_while(|place| library.is_some() && place.module == library);
        callers.map_while(|place| self.site(profile, place)).take(FRAMES_MAX).collect()
    }
}

// ---- what follows ----

/// A line of the policy file.
#[derive(Debug)]
struct Line {
    frames: Vec<Site>,
    weight: Weight,
}

/// Writes lines for the long-lived ones among stacks that share their first `depth` frames, of which the first `enough`
/// name them.
fn divide(chains: &[&Chain], depth: usize, enough: usize, interval: f64, lines: &mut Vec<Line>) {
    let mut weight = Weight::default();
    chains.iter().for_each(|chain| weight.add(chain.weight));
    if weight.long < SAMPLES_MIN * interval {
        return;
    }
    let mut callers = BTreeMap::<&Site, Vec<&Chain>>::new();
    for chain in chains {
        if let Some(next) = chain.frames.get(depth) {
            callers.entry(next).or_default().push(chain);
        }
    }
    if weight.long_share() < PURE && !callers.is_empty() && depth < FRAMES_MAX {
        for group in callers.values() {
            let enough = if group.len() == chains.len() { enough } else { depth + 1 };
            divide(group, depth + 1, enough, interval, lines);
        }
    } else if weight.long_share_of_live() >= MIXED && weight.allocated <= PASSING * weight.long {
        lines.push(Line { frames: chains[0].frames[..enough].to_vec(), weight });
    }
}

/// The purest sites, as long as few short-lived bytes are live with them.
fn pure(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by(|a, b| b.weight.long_share_of_live().total_cmp(&a.weight.long_share_of_live()));
    let mut lane = Weight::default();
    let taken = lines.iter().take_while(|line| {
        lane.add(line.weight);
        lane.short <= LANE_SHORT_SHARE * lane.long
    });
    let taken = taken.count();
    lines.truncate(taken);
    lines
}

/// The sites that bring nearly all long-lived blocks of most of their sizes.
fn complete(mut lines: Vec<Line>, chains: &[Chain]) -> Vec<Line> {
    loop {
        let mut sizes = HashMap::<u32, (f64, f64)>::new(); // long-lived bytes, and those of the lines
        let mut of_line = vec![Vec::new(); lines.len()];
        for chain in chains {
            let line = lines.iter().position(|line| chain.frames.starts_with(&line.frames));
            let (all, found) = sizes.entry(chain.size).or_default();
            *all += chain.weight.long;
            if let Some(line) = line {
                *found += chain.weight.long;
                of_line[line].push(chain);
            }
        }
        let is_complete = |chain: &&&Chain| sizes[&chain.size].1 >= COMPLETE * sizes[&chain.size].0;
        let mut of_line = of_line.iter();
        let before = lines.len();
        lines.retain(|line| {
            let chains = of_line.next().into_iter().flatten();
            2.0 * chains.filter(is_complete).map(|chain| chain.weight.long).sum::<f64>() >= line.weight.long
        });
        if lines.len() == before {
            return lines;
        }
    }
}

/// The long-lived sites, those with the most bytes first.
fn lines_of(chains: &[Chain], interval: u64) -> Vec<Line> {
    let mut calls = BTreeMap::<&Site, Vec<&Chain>>::new();
    for chain in chains.iter().filter(|chain| !chain.frames.is_empty()) {
        calls.entry(&chain.frames[0]).or_default().push(chain);
    }
    let mut lines = Vec::new();
    calls.values().for_each(|group| divide(group, 1, 1, interval as f64, &mut lines));
    // Each only takes lines away, and what one has taken the other may have counted on.
    loop {
        let before = lines.len();
        lines = complete(pure(lines), chains);
        if lines.len() == before {
            break;
        }
    }
    lines.sort_by(|a, b| b.weight.long.total_cmp(&a.weight.long));
    lines
}

/// Are enough bytes long-lived, and at least as many short-lived? Only then do long-lived blocks pin pages of others.
fn is_worth_it(long: f64, all: f64) -> bool {
    long >= WORTH_BYTES && all >= 2.0 * long
}

fn policy(name: &str, settings: &[String], lines: &[Line], long: Duration) -> String {
    let mut text = String::from("hakmem policy 1\n");
    let _ = writeln!(
        text,
        "# Learned from {}: blocks that live longer than {} ms are long-lived.",
        shown::line(name),
        long.as_millis()
    );
    for setting in settings {
        let _ = writeln!(text, "{}", shown::line(setting)); // names and values are the program's
    }
    for line in lines {
        let places: Vec<&str> = line.frames.iter().map(|frame| frame.place.as_str()).collect();
        let names: Vec<&str> = line.frames.iter().map(|frame| frame.name.as_str()).collect();
        let (places, names) = (places.join(" "), names.join(" < "));
        let (bytes, share) = (say::bytes(line.weight.allocated), 100.0 * line.weight.long_share());
        let _ = writeln!(text, "long-lived {places} # {names}: {bytes}, {share:.0} % long-lived");
    }
    text
}

// ---- the command ----

/// Everything that was sampled, from one process or several.
#[derive(Default)]
struct Learned {
    name: String,
    long: Duration,
    chains: Vec<Chain>,
    /// Lines of the policy file.
    settings: Vec<String>,
    /// What is missing.
    notes: Vec<String>,
}

fn environment_of(process: Option<&Process>) -> Vec<u8> {
    process.map_or(Vec::new(), |process| process.bytes("environ"))
}

/// What a running program did in the time.
struct Watched {
    sampled: Sampled,
    births: Vec<Birth>,
    time: Duration,
    /// Of `sampled` and `births`, by the clock that dates samples.
    ended_ms: u32,
    seen: Seen,
}

fn sample(target: &Target, time: Duration, was_on: bool) -> Result<Watched> {
    let (first, before, pid) = (target.summary()?, target.samples()?, target.pid());
    let (begun, cpu) = (Instant::now(), proc::cpu_of_threads(pid));
    while matches!(signals::wait(begun + time), signals::Event::Child) {}
    let (sampled, births, ended_ms) = (target.samples()?, target.births()?, super::leak::now_ms());
    let (last, settings, time) = (target.summary()?, target.read_settings()?, begun.elapsed());
    let cpu = proc::cpu_of_threads(pid) - cpu;
    ensure!(time >= Duration::from_secs(1), "less than a second shows nothing");
    let seen = Seen { first: Some(first), last, settings, cpu, environment: environment_of(target.remote().process()) };
    let oldest = births.iter().map(|birth| age(birth, ended_ms)).max().unwrap_or_default();
    let (sampled, time) = if was_on { (sampled, time.max(oldest)) } else { (sampled.since(&before), time) };
    Ok(Watched { sampled, births, time, ended_ms, seen })
}

/// The rate is as before afterwards, whatever happens.
fn sample_at_rate(target: &Target, time: Duration, was_on: bool) -> Result<Watched> {
    let (_, before, _) = target.set_option("PROFILE_RATE", RATE)?;
    let watched = sample(target, time, was_on);
    target.set_option("PROFILE_RATE", &before).and(watched)
}

fn watch(pid: Pid, options: &LearnOptions) -> Result<Learned> {
    ensure!(options.time >= Duration::from_secs(1), "--for: less than a second shows nothing");
    let blocked = signals::block();
    let target = Target::attach(pid)?;
    let before = target.sampled_every()?;
    target.sample_every(options.bytes)?; // first, as secure mode refuses this
    let watched = sample_at_rate(&target, options.time, before != 0);
    let watched = target.sample_every(before).and(watched);
    drop(blocked);
    let Watched { sampled, births, time, ended_ms, seen } = watched?;
    let long = time / SHARE;
    let numbers: Vec<u64> = sampled.stacks.iter().map(|stack| stack.number).collect();
    let areas = sampled.areas.clone();
    let profile = read::uncut(target.remote(), sampled, &options.symbols.debug_directory);
    let living = living(&births, ended_ms, long, time);
    let remote = target.remote();
    let origin = Origin::of(&remote, &areas, &options.symbols.debug_directory);
    let mut modules = Modules { origin: &origin, known: HashMap::new() };
    let chain = |(stack, number): (&Stack, &u64)| {
        let mut weight = freed(stack, long.as_nanos() as u64);
        weight.add(living.get(number).copied().unwrap_or_default());
        Chain { frames: modules.frames(&profile, stack), weight, size: size_number(stack) }
    };
    let chains = profile.stacks.iter().zip(&numbers).filter(|(stack, _)| !is_large(stack)).map(chain).collect();
    Ok(Learned { name: profile.command.clone(), long, chains, settings: seen.lines(), notes: profile.notes })
}

fn is_large(stack: &Stack) -> bool {
    stack.allocated().bytes > BYTES_MAX * stack.allocated().objects.max(1)
}

/// What lives at a program's end is long-lived.
fn run(options: &LearnOptions) -> Result<(Learned, u8)> {
    let library = preload::hakmem_preload(options.hakmem.as_deref())?;
    let place = scratch::directory("learn")?;
    let environment = [
        ("HAKMEM_PROFILE_BYTES", options.bytes.to_string().into()),
        ("HAKMEM_PROFILE_FILE", place.path().join("%p").into_os_string()),
        ("HAKMEM_PROFILE_RATE", RATE.into()),
        ("HAKMEM_POLICY", "".into()),
        ("HAKMEM_PROFILE_PYTHON", "0".into()), // the interpreter's own calls are the sites
    ];
    let begun = Instant::now();
    let to_stdout = options.output.as_deref().is_some_and(print::is_stdout);
    let watched = peak::run(&options.program, &library, &environment, to_stdout)?;
    let mut learned = Learned { long: begun.elapsed() / SHARE, ..Learned::default() };
    let program = Path::new(&options.program[0]).file_name().map(|name| name.to_string_lossy().into_owned());
    learned.name = program.unwrap_or_default();
    if let Some(last) = watched.end {
        let own = std::process::id() as Pid;
        let (environment, settings) = (environment_of(Process::open(own).ok().as_ref()), watched.settings);
        learned.settings = Seen { first: None, last, settings, cpu: watched.cpu, environment }.lines();
    }
    for entry in fs::read_dir(place.path())? {
        let entry = entry?;
        if entry.metadata()?.len() == 0 {
            continue; // its process did not come to its end
        }
        let profile = read::uncut_file(&entry.path(), &options.symbols.debug_directory)?;
        let origin = Origin::of_machine(&options.symbols.debug_directory);
        let mut modules = Modules { origin: &origin, known: HashMap::new() };
        for stack in profile.stacks.iter().filter(|stack| !is_large(stack)) {
            let mut weight = freed(stack, learned.long.as_nanos() as u64);
            weight.add(Weight::long_lived(stack.live.bytes as f64));
            learned.chains.push(Chain { frames: modules.frames(&profile, stack), weight, size: size_number(stack) });
        }
        learned.notes.extend(profile.notes);
    }
    Ok((learned, watched.code))
}

pub fn learn(options: &LearnOptions) -> Result<ExitCode> {
    ensure!(options.pid.is_some() || !options.program.is_empty(), NEITHER);
    options.output.as_deref().map(files::ensure_place).transpose()?;
    let (learned, code) = match options.pid {
        Some(pid) => (watch(pid, options)?, 0),
        None => run(options)?,
    };
    ensure!(
        !learned.chains.is_empty() || !learned.settings.is_empty(),
        "nothing was sampled: the program allocates too little, does not use HAKMEM, or goes on in another process \
        (give its PID)"
    );
    if learned.settings.is_empty() && learned.chains.iter().all(|chain| chain.frames.is_empty()) {
        bail!(
            "no call site can be named: the program's files have no build id (link with -Wl,--build-id), or HAKMEM \
        is linked into the program"
        );
    }
    let mut lines = lines_of(&learned.chains, options.bytes);
    let all = learned.chains.iter().fold(0.0, |sum, chain| sum + chain.weight.allocated);
    let long = learned.chains.iter().fold(0.0, |sum, chain| sum + chain.weight.long);
    let found = lines.iter().fold(0.0, |sum, line| sum + line.weight.long);
    if !is_worth_it(found, all) {
        lines.clear();
    }
    lines.truncate(LINES_MAX - learned.settings.len().min(LINES_MAX));
    let path = options.output.clone().unwrap_or_else(|| format!("{}.policy", learned.name.replace('/', "_")).into());
    files::publish(&path, policy(&learned.name, &learned.settings, &lines, learned.long))
        .with_context(|| path.display().to_string())?;
    let path = fs::canonicalize(&path).unwrap_or(path).display().to_string();
    let found = format!("{} of {} that live long, of {} in all", say::bytes(found), say::bytes(long), say::bytes(all));
    let why = match is_worth_it(long, all) {
        true => "the same calls allocate what lives long and what does not",
        false => "there is too little to gain",
    };
    let settings = match learned.settings.len() {
        0 => String::new(),
        settings => format!("; set lines: {settings}, which HAKMEM_POLICY={path} applies"),
    };
    learned.notes.iter().for_each(|note| print::note(note));
    print::note(&match lines.len() {
        0 => format!("{path}: no call sites, as {why}: those that could be told apart allocate {found}{settings}"),
        sites => {
            format!("{path}: {sites} call sites allocate {found}; HAKMEM_POLICY={path} places them apart{settings}")
        }
    });
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::samples::Totals;
    use crate::profile::Lifetime;

    fn chain(frames: &[&str], short: u32, long: u32) -> Chain {
        let site = |name: &&str| Site { place: format!("{name}+0x1"), name: name.to_string() };
        let weight = Weight { allocated: f64::from(short + long), long: f64::from(long), short: f64::from(short) };
        // Chains of different names have blocks of different sizes.
        let size = frames
            .iter()
            .flat_map(|name| name.bytes())
            .fold(0, |sum: u32, byte| sum.wrapping_mul(31) + u32::from(byte));
        Chain { frames: frames.iter().map(site).collect(), weight, size }
    }
    fn names(chains: &[Chain]) -> Vec<String> {
        let name = |line: Line| line.frames.iter().map(|frame| frame.name.clone()).collect::<Vec<_>>().join(" < ");
        lines_of(chains, 10).into_iter().map(name).collect()
    }

    #[test]
    fn sites_that_agree_need_one_frame() {
        let chains = [
            chain(&["load", "main"], 0, 500),
            chain(&["load", "other"], 10, 900),
            chain(&["parse", "main"], 800, 25),
            chain(&["rare", "main"], 0, 15),
            chain(&[], 0, 1000),
        ];
        assert_eq!(names(&chains), ["load"]);
    }

    #[test]
    fn wrappers_are_divided_by_their_callers() {
        let chains = [
            chain(&["xmalloc", "load", "main"], 0, 500),
            chain(&["xmalloc", "parse", "main"], 500, 0),
            chain(&["xmalloc", "copy", "keep"], 10, 300),
            chain(&["xmalloc", "copy", "look"], 300, 10),
            chain(&["xmalloc", "both", "main"], 100, 100),
            chain(&["xmalloc", "both", "main"], 100, 100),
            chain(&["xmalloc", "few", "main"], 90_000, 100),
        ];
        assert_eq!(names(&chains), ["xmalloc < load", "xmalloc < copy < keep", "xmalloc < both"]);
    }

    #[test]
    fn few_short_lived_blocks_come_into_the_lane() {
        let chains = [
            chain(&["table", "main"], 0, 1000),
            chain(&["message", "main"], 150, 200),
            chain(&["header", "main"], 290, 300),
            chain(&["buffer", "main"], 400, 300),
        ];
        assert_eq!(names(&chains), ["table", "message"], "the header makes it more than a quarter");
        assert!(names(&chains[3..]).is_empty());
    }

    #[test]
    fn sites_bring_nearly_all_of_their_sizes() {
        let of_size = |size, chain| Chain { size, ..chain };
        let chains = [
            of_size(4, chain(&["table"], 0, 1000)),
            of_size(4, chain(&["buffer"], 9_000, 40)),
            of_size(5, chain(&["node"], 0, 500)),
            of_size(5, chain(&["message"], 9_000, 40)),
            of_size(5, chain(&["text"], 0, 100)),
            of_size(6, chain(&["text"], 0, 300)),
        ];
        assert_eq!(names(&chains), ["table", "text"], "messages keep the slabs that nodes would leave");
    }

    /// The pure one that goes makes the lane of the rest a bad one.
    #[test]
    fn what_is_taken_away_does_not_count_any_more() {
        let of_size = |size, chain| Chain { size, ..chain };
        let chains = [
            of_size(5, chain(&["table"], 0, 1000)),
            of_size(5, chain(&["buffer"], 9_000, 60)),
            of_size(6, chain(&["message"], 150, 200)),
        ];
        assert!(names(&chains).is_empty());
        assert_eq!(
            names(&[of_size(5, chain(&["table"], 0, 1000)), of_size(6, chain(&["message"], 150, 200))]).len(),
            2
        );
    }

    #[test]
    fn sizes_are_as_fine_as_classes() {
        let number = |bytes| {
            let one = Totals { objects: 1, bytes };
            size_number(&Stack { live: one, ..Stack::default() })
        };
        let numbers: Vec<u32> = [0, 1, 16, 17, 32, 241, 256, 257, 288, 289, 1024, 1025, 1152, 1153].map(number).into();
        assert_eq!(numbers, [0, 0, 0, 1, 1, 15, 15, 16, 16, 17, 31, 32, 32, 33]);
    }

    #[test]
    fn blocks_that_are_freed_at_once_leave_no_holes() {
        let passing = |allocated: u32| {
            let weight = Weight { allocated: f64::from(allocated), long: 100.0, short: 1.0 };
            Chain { weight, ..chain(&["value", "command"], 0, 0) }
        };
        assert_eq!(names(&[passing(6_000)]), ["value"]);
        assert!(names(&[passing(7_000)]).is_empty(), "each takes longer in a lane");
    }

    #[test]
    fn blocks_are_long_lived_by_their_age() {
        let lifetime =
            |ms: u64, bytes| Lifetime { at_least_ns: Some(ms * 1_000_000), freed: Totals { objects: 1, bytes } };
        let stack = Stack {
            lifetimes: vec![lifetime(0, 1), lifetime(4, 10), lifetime(8, 100), lifetime(16, 1000)],
            ..Stack::default()
        };
        let weight = freed(&stack, 16_000_000);
        assert_eq!((weight.allocated, weight.long), (1111.0, 1000.0));
        assert_eq!(weight.short, 10.0 * 1.5 * 4.0 / 16.0 + 100.0 * 1.5 * 8.0 / 16.0);
        let birth = |birth_ms: u32, estimated_bytes| Birth { stack: 3, birth_ms, estimated_bytes, ..Birth::default() };
        let of = |time| {
            living(
                &[birth(u32::MAX - 50, 5), birth(90, 70)],
                100,
                Duration::from_millis(100),
                Duration::from_millis(time),
            )
        };
        assert_eq!(of(400)[&3].long, 5.0);
        assert!(of(140).is_empty(), "allocated before anybody watched");
    }

    #[test]
    fn a_policy_names_its_sites() {
        let lines = lines_of(&[chain(&["a", "b"], 0, 2048)], 10);
        let policy = policy("x\ny", &["set a=1 # b\nset c=2".into()], &lines, Duration::from_millis(50));
        let written: Vec<&str> = policy.lines().collect();
        assert_eq!(written[2..], ["set a=1 # b\\nset c=2", "long-lived a+0x1 # a: 2 KiB, 100 % long-lived"]);
    }
}
