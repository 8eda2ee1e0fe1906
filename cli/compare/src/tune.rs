//! `hakmem tune`: searches the options and tunables under which a program is faster or smaller.
//!
//! 1. Heats: settings are measured beside the default, in interleaved rounds as by `compare`. The better half goes on,
//!    with twice the rounds (successive halving).
//! 2. The final: the settings that are left, and those that gained in the last heat all together.
//! 3. A setting wins only if its gain is beyond its interval and beyond what the default shows against itself.
//! 4. The answer is a line of environment variables and, with `--policy`, a policy file (docs/arenas.md).
// SPDX-License-Identifier: MIT

use crate::compare::{duration, program_spec, Scratch};
use crate::measure::Session;
use crate::progress::Progress;
use crate::results::*;
use crate::statistics::{self, Baseline, ROUNDS_FOR_VERDICT};
use crate::suite::Spec;
use crate::{launch, terminal};
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::files;
use hakmem_base::preload::{hakmem_library, preloadable};
use hakmem_base::print;
use hakmem_base::shown;
use hakmem_base::signals;
use hakmem_base::table::{seconds, Style};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What may pay, and what it may pay for: options in capitals, tunables (docs/options.md) in small letters. Each row
/// is measured for itself; of one option at most one setting wins.
const SETTINGS: [(&str, &str); 22] = [
    ("PURGE", "never"), // a program that ends before its free memory is missed elsewhere
    ("PURGE", "lazy"),  // one that frees much and takes it again
    ("PURGE", "eager"), // one that must be small
    ("RETAIN_BYTES", "16m"),
    ("RETAIN_PERCENT", "0"),
    ("RETAIN_PERCENT", "50"),
    ("HUGE_PAGES", "never"),  // sparse use of memory
    ("HUGE_PAGES", "always"), // a large heap that is used whole
    ("RING_BYTES", "256k"),
    ("RING_BYTES", "32m"),     // many blocks above 1 KiB that come and go
    ("POPULATE", "1"),         // small blocks that fill their slabs
    ("DRAIN_INTERVAL", "128"), // threads that free each other's blocks
    ("DRAIN_INTERVAL", "8192"),
    ("carve_bytes", "16k"), // small blocks that are rarely freed
    ("carve_bytes", "1k"),  // few blocks of each of many sizes
    ("reuse_frees", "1"),   // small blocks replaced at random, which must stay small
    ("kept_slabs", "0"),
    ("owned_slabs", "256"),
    ("loan_from_frees", "2048"),
    ("ring_blocks", "16"), // blocks above 1 KiB of many sizes, few of each
    ("refill_percent", "100"),
    ("large_ring_percent", "100"), // blocks above 48 KiB that come and go
];
/// Options among them that a policy file can't set.
const OF_ENVIRONMENT_ALONE: [&str; 1] = ["HUGE_PAGES"];
const DEFAULT: &str = "default";
const FIRST_ROUNDS: usize = 2;
/// A program that takes less does hardly more than start.
const CPU_MIN_S: f64 = 0.005;
/// How many settings are in the final.
const FINALISTS: usize = 3;

#[derive(clap::Args)]
#[command(
    after_help = "It runs the program some 230 times, or as often as --max-time allows.\nExit status: 0 measured, \
    whether or not a setting gains; 2 a wrong option or a program that fails; 130 interrupted.\nA load on the machine \
    hides small gains. Settings of HAKMEM_* variables in the environment hold in every run."
)]
pub struct Options {
    /// What is to become less: run time, peak resident memory, or the product of both
    #[arg(long, value_enum, default_value_t = Goal::Balanced)]
    goal: Goal,
    /// Number of interleaved rounds in the final; fewer than 5 cannot show a difference
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure fewer rounds if all of them would take longer than this: 90s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_time: Option<Duration>,
    /// Finds the program's own measure of its speed in its output, as group 1; higher is better
    #[arg(long, value_name = "REGEX")]
    metric: Option<String>,
    /// Name of that measure
    #[arg(long, value_name = "NAME", requires = "metric", default_value = "ops/s")]
    metric_name: String,
    /// Exit status of a successful run
    #[arg(long, value_name = "N", default_value_t = 0)]
    exit_status: i32,
    /// Whose memory counts: that of the program itself, or of all processes it starts
    #[arg(long, value_enum, default_value_t = Processes::Main)]
    processes: Processes,
    /// Also write what gains as a policy file, for HAKMEM_POLICY; no file if the default is best
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Replace the policy file if it exists
    #[arg(long, requires = "policy")]
    force: bool,
    /// The library to run the program under
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
    /// Print the result as JSON, and everything else to stderr
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// The program to measure, and its arguments
    #[arg(last = true, value_name = "PROGRAM", required = true)]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Goal {
    Time,
    Memory,
    Balanced,
}

impl Goal {
    /// A run's number; less is better.
    fn of(self, run: &Run) -> Option<f64> {
        let (time, memory) = (statistics::time(run)?, statistics::peak_rss(run)?);
        Some(match self {
            Goal::Time => time,
            Goal::Memory => memory,
            Goal::Balanced => time * memory,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Goal::Time => "time",
            Goal::Memory => "peak memory",
            Goal::Balanced => "time × peak memory",
        }
    }
}

fn is_tunable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// One or more options and tunables with their values.
#[derive(Debug, Clone, PartialEq)]
struct Setting(Vec<(&'static str, &'static str)>);

impl Setting {
    /// Variables and their values. `inherited` is what HAKMEM_TUNE has without the setting.
    fn variables(&self, inherited: Option<&str>) -> Vec<(String, String)> {
        let (tunables, options): (Vec<_>, Vec<_>) = self.0.iter().partition(|(name, _)| is_tunable(name));
        let mut variables: Vec<_> =
            options.iter().map(|(name, value)| (format!("HAKMEM_{name}"), value.to_string())).collect();
        let parts = tunables.iter().map(|(name, value)| format!("{name}={value}"));
        let inherited = inherited.filter(|text| !text.is_empty()).map(String::from);
        if !tunables.is_empty() {
            variables.push(("HAKMEM_TUNE".into(), inherited.into_iter().chain(parts).collect::<Vec<_>>().join(",")));
        }
        variables
    }

    /// The part of it that a policy file can't set.
    fn of_environment_alone(&self) -> Setting {
        Setting(self.0.iter().filter(|(name, _)| OF_ENVIRONMENT_ALONE.contains(name)).copied().collect())
    }

    /// Lines of a policy file.
    fn lines(&self) -> String {
        let rest = self.0.iter().filter(|(name, _)| !OF_ENVIRONMENT_ALONE.contains(name));
        rest.map(|(name, value)| format!("set {name}={value}\n")).collect()
    }

    fn name(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// A setting with what it does to the goal.
#[derive(Debug, Clone)]
struct Rated {
    setting: Setting,
    goal: Ratio,
    time: Ratio,
    peak_rss: Ratio,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    goal: Goal,
    /// None: the default is best.
    best: Option<BTreeMap<&'a str, &'a str>>,
    ratio: Option<Ratio>,
    time: Option<Ratio>,
    peak_rss: Option<Ratio>,
    /// The final.
    workload: &'a Workload,
    notes: &'a [String],
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let before = options.policy.as_deref().map(|path| before_policy(path, options.force)).transpose()?;
    let library = match hakmem_library(options.hakmem.as_deref())? {
        Some(library) => preloadable(&library)?,
        None => bail!("no libhakmem.so found; name one with --hakmem LIB"),
    };
    let mut spec = program_spec(&options.command, options.metric.as_deref(), &options.metric_name)?;
    spec.exit_status = options.exit_status;
    spec.processes = options.processes;
    launch::adopt_orphans();
    let blocked = signals::block();
    let scratch = Scratch::new()?;
    let deadline = options.max_time.map(|time| Instant::now() + time);
    let place = Place { library, scratch: scratch.directory.path(), signals: blocked.before(), deadline };
    let search =
        Search { goal: options.goal, spec, place, final_rounds: options.rounds as usize, quiet: options.quiet };
    let mut notes = Vec::new();
    let Some((workload, rated)) = search.run(&mut notes)? else {
        return Ok(ExitCode::from(130));
    };
    let best = best_of(&rated);
    if let (Some(path), Some(before), Some(best)) = (&options.policy, &before, best) {
        files::publish(path, before.clone() + &policy(options, best))?;
    }
    if options.json {
        print::json(&answer(options.goal, best, &workload, &notes))?;
        print::note(&say(options, best, &workload, &notes, Style::of_stderr()));
    } else {
        print::line(&say(options, best, &workload, &notes, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

// ---- the policy file ----

/// What the file begins with: the policy that holds in every run, as only one file can be named. Fails where the file
/// can't be written.
fn before_policy(path: &Path, force: bool) -> Result<String> {
    ensure!(!print::is_stdout(path), "--policy: name a file");
    ensure!(force || path.symlink_metadata().is_err(), "{} exists; --force replaces it", path.display());
    files::ensure_place(path)?;
    match std::env::var_os("HAKMEM_POLICY").filter(|old| !old.is_empty()).map(PathBuf::from) {
        Some(old) => files::read_text(&old).with_context(|| format!("HAKMEM_POLICY={}", old.display())),
        None => Ok("hakmem policy 1\n".into()),
    }
}

fn policy(options: &Options, best: &Rated) -> String {
    let program = Path::new(&options.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut text = format!("# Tuned for {}: {}.\n", shown::line(&program), gain(best)) + &best.setting.lines();
    for (name, value) in best.setting.of_environment_alone().variables(None) {
        text += &format!("# The figures are those with {name}={value}, which the environment alone sets.\n");
    }
    text
}

// ---- searching ----

/// Where heats are measured.
struct Place<'a> {
    library: String,
    scratch: &'a Path,
    signals: &'a libc::sigset_t,
    deadline: Option<Instant>,
}

struct Search<'a> {
    goal: Goal,
    spec: Spec,
    place: Place<'a>,
    final_rounds: usize,
    quiet: bool,
}

impl Search<'_> {
    /// The final, rated; None if interrupted.
    fn run(&self, notes: &mut Vec<String>) -> Result<Option<(Workload, Vec<Rated>)>> {
        let mut field: Vec<Setting> = SETTINGS.iter().map(|&one| Setting(vec![one])).collect();
        let mut rounds = FIRST_ROUNDS;
        while field.len() > FINALISTS {
            let heats = (field.len() as f64 / FINALISTS as f64).log2().ceil() as usize;
            let Some((workload, mut rated)) = self.heat(&field, rounds, heats + 1, notes)? else { return Ok(None) };
            self.ensure_work(&workload)?;
            rated.sort_by(|one, other| one.goal.median.total_cmp(&other.goal.median));
            let left = (field.len() / 2).max(FINALISTS).min(rated.len());
            field = rated.iter().take(left).map(|one| one.setting.clone()).collect();
            if field.len() <= FINALISTS {
                field.extend(together(&rated[..left]));
                break;
            }
            rounds *= 2;
        }
        self.heat(&field, self.final_rounds, 1, notes)
    }

    /// Without a measure of the program's own, what starting it takes would be all there is to tell settings apart.
    fn ensure_work(&self, workload: &Workload) -> Result<()> {
        let cpu_s = workload.results[0].summary.as_ref().map_or(f64::INFINITY, |summary| summary.cpu_s.median);
        ensure!(
            self.spec.metric.is_some() || cpu_s >= CPU_MIN_S,
            "{} takes {} of CPU time, so there is nothing to tune: give it its real work",
            self.spec.name,
            seconds(cpu_s)
        );
        Ok(())
    }

    /// Measures settings beside the default; `heats` are still to come, this one included.
    fn heat(
        &self,
        field: &[Setting],
        rounds: usize,
        heats: usize,
        notes: &mut Vec<String>,
    ) -> Result<Option<(Workload, Vec<Rated>)>> {
        let allocators = self.allocators(field);
        let mut session = Session::new(&allocators, 0, self.place.scratch, self.place.signals);
        session.rounds = Some(rounds);
        session.deadline = self.place.deadline;
        session.progress = Progress::new(self.quiet, 1);
        let measured = session.measure(&self.spec, heats);
        session.progress.done();
        for note in session.notes.drain(..) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        match measured {
            Ok(workload) if workload.results[0].summary.is_none() => {
                bail!("{}", workload.results[0].failures.join("; "))
            }
            Ok(_) | Err(_) if session.interrupted => Ok(None),
            Ok(workload) => {
                let rated = field.iter().filter_map(|setting| self.rate(setting, &workload)).collect();
                Ok(Some((workload, rated)))
            }
            Err(reason) => bail!("{reason}"),
        }
    }

    /// The default first. All names are of this library.
    fn allocators(&self, field: &[Setting]) -> Vec<Allocator> {
        let allocator = |name: String, environment: BTreeMap<String, String>| Allocator {
            name,
            version: String::new(),
            libraries: vec![self.place.library.clone()],
            environment,
            tags: Vec::new(),
        };
        let inherited = inherited_tune();
        let variables = |setting: &Setting| setting.variables(inherited.as_deref()).into_iter().collect();
        let settings = field.iter().map(|setting| allocator(setting.name(), variables(setting)));
        std::iter::once(allocator(DEFAULT.to_string(), BTreeMap::new())).chain(settings).collect()
    }

    /// None without a run that counts.
    fn rate(&self, setting: &Setting, workload: &Workload) -> Option<Rated> {
        let name = setting.name();
        let result = workload.results.iter().find(|result| result.allocator == name)?;
        let again = workload.again.as_ref()?;
        let baseline = Baseline { base: &workload.results[0].runs, again: &again.runs };
        let goal = statistics::ratio_to(&result.runs, baseline, &|run| self.goal.of(run))?;
        let ratios = result.summary.as_ref()?.ratios.as_ref()?;
        Some(Rated { setting: setting.clone(), goal, time: ratios.time, peak_rss: ratios.peak_rss })
    }
}

/// Those that gained, in one setting: the best of each option. None if that is no more than one.
fn together(rated: &[Rated]) -> Option<Setting> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for one in rated.iter().filter(|one| one.goal.median < 1.0) {
        for &(name, value) in &one.setting.0 {
            if all.iter().all(|(known, _)| *known != name) {
                all.push((name, value));
            }
        }
    }
    (all.len() > 1).then_some(Setting(all))
}

/// The best of those that gain for certain; several options together only if they are better than each alone.
fn best_of(rated: &[Rated]) -> Option<&Rated> {
    let winners = || rated.iter().filter(|one| one.goal.verdict == Verdict::Better);
    let best = |alone: bool| {
        let some = winners().filter(|one| (one.setting.0.len() == 1) == alone);
        some.min_by(|one, other| one.goal.median.total_cmp(&other.goal.median))
    };
    match (best(true), best(false)) {
        (Some(one), Some(all)) if all.goal.high < one.goal.median => Some(all),
        (Some(one), _) => Some(one),
        (None, all) => all,
    }
}

// ---- saying ----

fn answer<'a>(goal: Goal, best: Option<&Rated>, workload: &'a Workload, notes: &'a [String]) -> Answer<'a> {
    Answer {
        goal,
        best: best.map(|one| one.setting.0.iter().copied().collect()),
        ratio: best.map(|one| one.goal),
        time: best.map(|one| one.time),
        peak_rss: best.map(|one| one.peak_rss),
        workload,
        notes,
    }
}

fn inherited_tune() -> Option<String> {
    std::env::var("HAKMEM_TUNE").ok()
}

fn gain(one: &Rated) -> String {
    let cost = |ratio: &Ratio| format!("{:.2} [{:.2}–{:.2}]", ratio.median, ratio.low, ratio.high);
    format!("{} of the default's time and {} of its peak memory", cost(&one.time), cost(&one.peak_rss))
}

/// A line to be typed.
fn typed(options: &Options, variables: &[(String, String)]) -> String {
    let variables = variables.iter().map(|(name, value)| {
        let value = shlex::try_quote(value).map_or_else(|_| value.clone(), |quoted| quoted.into_owned());
        format!("{name}={value} ")
    });
    let command = shlex::try_join(options.command.iter().map(String::as_str));
    variables.collect::<String>() + &command.unwrap_or_else(|_| options.command.join(" "))
}

fn say(options: &Options, best: Option<&Rated>, workload: &Workload, notes: &[String], style: Style) -> String {
    let mut text = terminal::workload(workload, "setting", DEFAULT, style) + "\n\n";
    match best {
        Some(one) => {
            let variables = one.setting.variables(inherited_tune().as_deref());
            text += &format!("{} takes {}. Type:\n{}", one.setting.name(), gain(one), typed(options, &variables));
            if let Some(path) = &options.policy {
                let path = path.canonicalize().unwrap_or(path.clone()).display().to_string();
                let mut variables = one.setting.of_environment_alone().variables(None);
                variables.push(("HAKMEM_POLICY".into(), path));
                text += &format!("\nor, with the policy file:\n{}", typed(options, &variables));
            }
        }
        None if workload.rounds < ROUNDS_FOR_VERDICT => {
            text += &format!("No verdict: that takes {ROUNDS_FOR_VERDICT} rounds in the final.");
        }
        None => {
            text += &format!("The default is best: no setting lowers {} beyond the noise.", options.goal.name());
        }
    }
    if let (None, Some(path)) = (best, &options.policy) {
        text += &format!(" {} was not written.", path.display());
    }
    for note in notes {
        text += &format!("\nnote: {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rated(setting: &[(&'static str, &'static str)], median: f64, verdict: Verdict) -> Rated {
        let ratio = Ratio { median, low: median * 0.99, high: median * 1.01, verdict };
        Rated { setting: Setting(setting.to_vec()), goal: ratio, time: ratio, peak_rss: ratio }
    }

    const PURGE: (&str, &str) = ("PURGE", "never");
    const LAZY: (&str, &str) = ("PURGE", "lazy");
    const RINGS: (&str, &str) = ("RING_BYTES", "32m");

    #[test]
    fn what_gains_goes_together_once_for_each_option() {
        let field = [
            rated(&[PURGE], 0.8, Verdict::Better),
            rated(&[LAZY], 0.9, Verdict::Better),
            rated(&[RINGS], 0.95, Verdict::Same),
        ];
        assert_eq!(together(&field), Some(Setting(vec![PURGE, RINGS])));
        assert_eq!(together(&field[..2]), None);
        assert_eq!(together(&[rated(&[PURGE], 0.9, Verdict::Better), rated(&[RINGS], 1.1, Verdict::Worse)]), None);
    }

    #[test]
    fn tunables_share_a_variable_and_a_file_has_lines() {
        let setting = Setting(vec![RINGS, ("carve_bytes", "16k"), ("HUGE_PAGES", "always"), ("kept_slabs", "0")]);
        let typed = |inherited| {
            let each = setting.variables(inherited).into_iter().map(|(name, value)| name + "=" + &value);
            each.collect::<Vec<_>>().join(" ")
        };
        let tune = "HAKMEM_RING_BYTES=32m HAKMEM_HUGE_PAGES=always HAKMEM_TUNE=";
        assert_eq!(typed(None), format!("{tune}carve_bytes=16k,kept_slabs=0"));
        assert_eq!(typed(Some("regrets=3")), format!("{tune}regrets=3,carve_bytes=16k,kept_slabs=0"));
        assert_eq!(setting.lines(), "set RING_BYTES=32m\nset carve_bytes=16k\nset kept_slabs=0\n");
        assert_eq!(setting.of_environment_alone().name(), "HUGE_PAGES=always");
    }

    /// The library's tables know each row, and say which rows a file can't set.
    #[test]
    fn each_row_is_in_the_librarys_tables() {
        let header = |path: &str| std::fs::read_to_string(format!("{}/../../src/{path}", env!("CARGO_MANIFEST_DIR")));
        let (options, tunables) = (header("base/options.h").unwrap(), header("process/tunables.h").unwrap());
        for (name, value) in SETTINGS {
            let table = if is_tunable(name) { &tunables } else { &options };
            let entry = format!("X({name},");
            let entry = table.lines().find(|line| line.starts_with(&entry)).unwrap_or_else(|| panic!("{name}={value}"));
            let is_live = is_tunable(name) || entry.split(',').nth(2).unwrap().trim() == "LIVE";
            assert_eq!(is_live, !OF_ENVIRONMENT_ALONE.contains(&name), "{name}");
        }
    }

    #[test]
    fn the_best_is_certain_and_simple() {
        let name = |field: &[Rated]| best_of(field).map(|one| one.setting.name());
        let (one, two) = (rated(&[PURGE], 0.90, Verdict::Better), rated(&[RINGS], 0.95, Verdict::Better));
        assert_eq!(name(&[rated(&[PURGE], 0.9, Verdict::Same)]), None);
        assert_eq!(name(&[two.clone(), one.clone()]), Some("PURGE=never".into()));
        let both = |median| rated(&[PURGE, RINGS], median, Verdict::Better);
        assert_eq!(name(&[one.clone(), two.clone(), both(0.80)]), Some("PURGE=never RING_BYTES=32m".into()));
        assert_eq!(name(&[one, two, both(0.895)]), Some("PURGE=never".into()));
        assert_eq!(name(&[rated(&[PURGE], 0.9, Verdict::Same), both(0.8)]), Some("PURGE=never RING_BYTES=32m".into()));
    }
}
