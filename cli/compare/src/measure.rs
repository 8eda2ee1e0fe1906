//! Measures workloads: which run comes when, and which runs count.
//!
//! 1. Warm-up: every allocator runs once, the baseline first. It does not count; files come into the page cache, and
//!    what fails is found. With --tax, strace counts madvise calls in it.
//! 2. Rounds: every allocator runs once, the baseline twice, half the circle apart. Each round starts one place
//!    further, and every other round goes the other way round, so that nobody always follows the same neighbour.
//! 3. A run counts if it ended as expected, the allocator was in it, and its output is right. An allocator that
//!    fails twice in a row is not tried again. If that is the baseline, the workload ends.
//! 4. Only complete rounds count. Each workload gets its share of --max-time, but at least one round.
// SPDX-License-Identifier: MIT

use crate::area;
use crate::launch::{self, Cost, End, Job};
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::results::*;
use crate::statistics;
use crate::suite::Spec;
use crate::tax::{self, Tools};
use hakmem_base::{elf, preload, signals};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const DEFAULT_ROUNDS: usize = 5;

/// File names of allocators that a program may be linked with.
pub const LINKED: [&str; 6] =
    ["libjemalloc", "libtcmalloc", "libmimalloc", "libtbbmalloc", "libsnmalloc", "librpmalloc"];
pub const LINKED_HAKMEM: &str = "libhakmem";

/// The name of that one of these files which is an allocator that a program may be linked with.
pub fn linked_of<'a>(files: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut names = files.into_iter().map(|path| path.rsplit('/').next().unwrap_or(path));
    names.find(|name| LINKED.iter().chain([&LINKED_HAKMEM]).any(|library| name.starts_with(library)))
}

pub struct Session<'a> {
    pub allocators: &'a [Allocator],
    /// Its place in `allocators`.
    pub baseline: usize,
    /// What the command line says; else the suite's, else the default.
    pub rounds: Option<usize>,
    pub deadline: Option<Instant>,
    /// Set if the allocator's tax is measured.
    pub tools: Option<Tools>,
    /// Set if CPU time and memory are priced as one.
    pub area: bool,
    /// Set if a run that fails ends the workload.
    pub all_must_count: bool,
    /// The allocator that the program loads by itself, or that its environment preloads.
    pub linked: Option<String>,
    pub scratch: &'a Path,
    pub signals: &'a libc::sigset_t,
    pub progress: Progress,
    pub notes: Vec<String>,
    pub interrupted: bool,
    first_run: Option<Instant>,
    setups: HashMap<String, Result<(), String>>,
}

/// One place in the circle of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    allocator: usize,
    again: bool,
}

#[derive(Default, Clone)]
struct Tally {
    runs: Vec<Run>,
    failures: Vec<String>,
    failed_in_a_row: usize,
}

impl Tally {
    fn is_dropped(&self) -> bool {
        self.failed_in_a_row >= 2
    }

    fn failed(&mut self, reason: String) {
        self.failed_in_a_row += 1;
        self.failures.push(if self.is_dropped() { format!("{reason}; not tried again") } else { reason });
    }
}

enum Outcome {
    Counts(Box<Run>),
    Fails(String),
    Interrupted,
}

/// A workload while it is measured.
struct Work<'s> {
    spec: &'s Spec,
    program: PathBuf,
    /// By allocator.
    environments: Vec<Vec<OsString>>,
    timeout: Duration,
    /// What the baseline's first run printed.
    expected: Option<String>,
    /// By allocator, counted in the warm-up.
    madvise_calls: Vec<Option<f64>>,
    circle: Vec<Entry>,
    /// By place in the circle.
    tallies: Vec<Tally>,
    rounds: usize,
    /// Runs so far, for the progress.
    done: usize,
}

impl<'a> Session<'a> {
    pub fn new(allocators: &'a [Allocator], baseline: usize, scratch: &'a Path, signals: &'a libc::sigset_t) -> Self {
        Session {
            allocators,
            baseline,
            rounds: None,
            deadline: None,
            tools: None,
            area: false,
            all_must_count: false,
            linked: None,
            scratch,
            signals,
            progress: Progress::new(true, 0),
            notes: Vec::new(),
            interrupted: false,
            first_run: None,
            setups: HashMap::new(),
        }
    }

    pub fn measure_tax(&mut self) -> anyhow::Result<()> {
        let tools = Tools::find(self.scratch)?;
        if tools.calls.is_none() {
            self.notes.push("strace does not work here, so madvise calls are not counted".to_string());
        }
        self.notes.push("Times include the cost of sampling with perf (--tax)".to_string());
        self.tools = Some(tools);
        Ok(())
    }

    /// Measures one workload, of which `left` are still to be measured. Err: why it could not be.
    pub fn measure(&mut self, spec: &Spec, left: usize) -> Result<Workload, String> {
        let begun = Instant::now();
        if self.first_run.is_some() && self.deadline.is_some_and(|deadline| begun >= deadline) {
            return Err("no time was left (--max-time)".to_string());
        }
        let share =
            self.deadline.map(|deadline| begun + deadline.saturating_duration_since(begun) / left.max(1) as u32);
        let mut work = self.prepare(spec)?;
        self.first_run.get_or_insert_with(Instant::now);
        let runs = self.allocators.len() + work.rounds * work.circle.len();
        self.progress.workload(runs);
        self.warm_up(&mut work)?;
        let complete = self.run_rounds(&mut work, share);
        self.progress.workload_done();
        if complete == 0 && self.interrupted {
            return Err("interrupted before a round was complete".to_string());
        }
        Ok(self.result(work, complete))
    }

    // ---- preparing ----

    fn prepare<'s>(&mut self, spec: &'s Spec) -> Result<Work<'s>, String> {
        let path = spec.environment.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
        let find = |name: &str| program_find(name, &spec.directory, path.as_deref().unwrap_or_default());
        for need in &spec.needs {
            find(need).ok_or_else(|| format!("{need} is not installed"))?;
        }
        if let Some(setup) = &spec.setup {
            if !self.setups.contains_key(setup) {
                let outcome = self.set_up(setup, spec);
                self.setups.insert(setup.clone(), outcome);
            }
            self.setups[setup].clone()?;
        }
        let program = find(&spec.command[0]).ok_or_else(|| format!("{}: no such program", spec.command[0]))?;
        let circle = circle(self.allocators.len(), self.baseline);
        Ok(Work {
            spec,
            program,
            environments: environments(self.allocators, spec),
            timeout: spec.timeout.unwrap_or(Duration::from_secs(3600)),
            expected: None,
            madvise_calls: vec![None; self.allocators.len()],
            tallies: vec![Tally::default(); circle.len()],
            circle,
            rounds: self.rounds.or(spec.rounds).unwrap_or(DEFAULT_ROUNDS),
            done: 0,
        })
    }

    fn set_up(&mut self, command: &str, spec: &Spec) -> Result<(), String> {
        self.progress.run(0, &format!("{}: set-up", spec.name));
        let (stdout, stderr) = (self.scratch.join("stdout"), self.scratch.join("stderr"));
        let cost = launch::run(&Job {
            program: Path::new("/bin/sh"),
            arguments: &["sh", "-c", command].map(str::to_string),
            environment: &environment(None, spec),
            directory: &spec.directory,
            libraries: &[],
            processes: Processes::Main,
            timeout: None,
            stdout: &stdout,
            stderr: &stderr,
            signals: self.signals,
            samples: None,
            lazy: false,
            traces: false,
        });
        let words = Output::read(&stdout, &stderr).last_words().unwrap_or("it says nothing".to_string());
        match cost.map_err(|error| format!("its set-up cannot be started: {error:#}"))?.end {
            End::Status(0) => Ok(()),
            End::Status(status) => Err(format!("its set-up fails with status {status}: {words}")),
            End::Signal(signal) => {
                Err(format!("its set-up ends by signal {signal} ({}): {words}", signal_name(signal)))
            }
            End::TimedOut | End::Interrupted => {
                self.interrupted = true;
                Err("interrupted".to_string())
            }
        }
    }

    fn warm_up(&mut self, work: &mut Work) -> Result<(), String> {
        for place in (0..work.circle.len()).filter(|&place| !work.circle[place].again).collect::<Vec<_>>() {
            match self.attempt(work, place, 0) {
                Outcome::Counts(run) => {
                    // A program without a limit of its own gets one from how long it takes.
                    if work.circle[place].allocator == self.baseline && work.spec.timeout.is_none() {
                        work.timeout = Duration::from_secs_f64(60.0 + 20.0 * run.wall_s);
                    }
                }
                Outcome::Fails(reason) => work.tallies[place].failed(format!("warm-up: {reason}")),
                Outcome::Interrupted => return Err("interrupted before a round was complete".to_string()),
            }
        }
        Ok(())
    }

    /// Returns how many rounds are complete.
    fn run_rounds(&mut self, work: &mut Work, share: Option<Instant>) -> usize {
        for round in 1..=work.rounds {
            if self.all_must_count && work.tallies.iter().any(|tally| !tally.failures.is_empty()) {
                return round - 1;
            }
            let begun = Instant::now();
            if !self.run_round(work, round) {
                return round - 1;
            }
            let next_end = Instant::now() + begun.elapsed();
            if round < work.rounds && share.is_some_and(|share| next_end > share) {
                let (name, rounds) = (&work.spec.name, work.rounds);
                self.notes.push(format!("{name}: stopped after {round} of {rounds} rounds (--max-time)"));
                return round;
            }
        }
        work.rounds
    }

    /// False if it could not be completed.
    fn run_round(&mut self, work: &mut Work, round: usize) -> bool {
        for place in order(work.circle.len(), round) {
            if work.tallies[place].is_dropped() {
                continue;
            }
            match self.attempt(work, place, round) {
                Outcome::Counts(run) => {
                    work.tallies[place].failed_in_a_row = 0;
                    work.tallies[place].runs.push(*run);
                }
                Outcome::Fails(reason) => {
                    work.tallies[place].failed(format!("round {round}: {reason}"));
                    if work.circle[place].allocator == self.baseline && work.tallies[place].is_dropped() {
                        return false;
                    }
                }
                Outcome::Interrupted => return false,
            }
        }
        true
    }

    // ---- one run ----

    fn attempt(&mut self, work: &mut Work, place: usize, round: usize) -> Outcome {
        let entry = work.circle[place];
        let allocator = &self.allocators[entry.allocator];
        let what = if round == 0 { "warm-up".to_string() } else { format!("round {round} of {}", work.rounds) };
        self.progress.run(work.done, &format!("{}: {what}, {}", work.spec.name, allocator.name));
        work.done += 1;
        if self.interrupted || signals::interrupted() {
            self.interrupted = true;
            return Outcome::Interrupted;
        }
        let (stdout, stderr) = (self.scratch.join("stdout"), self.scratch.join("stderr"));
        let started_s = self.first_run.map_or(0.0, |first| first.elapsed().as_secs_f64());
        let counting = self.tools.as_ref().filter(|_| round == 0).and_then(|tools| tools.counting(&work.spec.command));
        let job = Job {
            program: if counting.is_some() { Path::new(tax::COUNTING_PROGRAM) } else { &work.program },
            arguments: counting.as_ref().unwrap_or(&work.spec.command),
            environment: &work.environments[entry.allocator],
            directory: &work.spec.directory,
            libraries: if counting.is_some() { &[] } else { &allocator.libraries },
            processes: work.spec.processes,
            timeout: Some(work.timeout),
            stdout: &stdout,
            stderr: &stderr,
            signals: self.signals,
            samples: self.tools.as_ref().filter(|_| round > 0).map(|tools| tools.samples.as_path()),
            lazy: self.area,
            traces: counting.is_some(),
        };
        let cost = match launch::run(&job) {
            Ok(cost) => cost,
            Err(error) => return Outcome::Fails(format!("cannot be started: {error:#}")),
        };
        if cost.end == End::Interrupted {
            self.interrupted = true;
            return Outcome::Interrupted;
        }
        if counting.is_none() {
            self.note(work.spec, allocator, &cost);
        }
        let output = Output::read(&stdout, &stderr);
        let numbers = check(work, allocator, &cost, &output, entry.allocator == self.baseline);
        match numbers.and_then(|numbers| self.with_tax(numbers, work, entry.allocator, round, &cost)) {
            Ok(numbers) => Outcome::Counts(Box::new(run_of(cost, numbers, round, started_s))),
            Err(reason) => Outcome::Fails(reason),
        }
    }

    /// Adds the tax or the area of the run that has just ended to its numbers.
    fn with_tax(
        &self,
        (metric, mut values): Numbers,
        work: &mut Work,
        allocator: usize,
        round: usize,
        cost: &Cost,
    ) -> Result<Numbers, String> {
        if self.area {
            values.extend(area::values(cost));
        }
        let Some(tools) = &self.tools else { return Ok((metric, values)) };
        if round == 0 {
            work.madvise_calls[allocator] = tools.madvise_calls();
            return Ok((metric, values));
        }
        let obstacle = elf::obstacle(Path::new(&cost.executable));
        if let Some(obstacle) = obstacle.filter(|_| self.allocators[allocator].libraries.is_empty()) {
            return Err(format!("no share can be measured: {} {obstacle}", cost.executable));
        }
        values.extend(tools.tax(&self.allocators[allocator]).map_err(|error| format!("{error:#}"))?);
        values.extend(work.madvise_calls[allocator].map(|calls| (tax::MADVISE.to_string(), calls)));
        Ok((metric, values))
    }

    /// What a reader must know of how the run went.
    fn note(&mut self, spec: &Spec, allocator: &Allocator, cost: &Cost) {
        let name = &spec.name;
        let mut say = |text: String| {
            if !self.notes.contains(&text) {
                self.notes.push(text);
            }
        };
        if !cost.traced {
            say("Tracing is forbidden here (ptrace): peak memory and the loaded library are from samples".to_string());
        }
        if cost.left_behind && matches!(cost.end, End::Status(_)) {
            say(format!(
                "{name}: processes that outlived the program were killed; their memory and time are not counted"
            ));
        }
        if spec.processes == Processes::Main && cost.largest_child_bytes > cost.peak_rss_bytes {
            say(format!("{name}: it starts processes that are larger than itself; --processes all counts them, too"));
        }
        if allocator.libraries.is_empty() {
            if let Some(library) = linked_of(cost.mapped.iter().map(String::as_str)) {
                self.linked = Some(library.to_string());
                let allocator = &allocator.name;
                say(format!("{name}: the program loads {library} by itself, so that is what \"{allocator}\" is here"));
            } else if elf::has_malloc(Path::new(&cost.executable)) {
                say(format!(
                    "{name}: the program has a malloc of its own, so that is what \"{}\" is here",
                    allocator.name
                ));
            }
        }
    }

    // ---- the result ----

    fn result(&self, work: Work, complete: usize) -> Workload {
        let mut results: Vec<Option<WorkloadResult>> = vec![None; self.allocators.len()];
        let mut again = None;
        for (entry, mut tally) in work.circle.iter().zip(work.tallies) {
            tally.runs.retain(|run| run.round <= complete);
            let allocator = self.allocators[entry.allocator].name.clone();
            let result = WorkloadResult { allocator, runs: tally.runs, failures: tally.failures, summary: None };
            match entry.again {
                true => again = Some(result),
                false => results[entry.allocator] = Some(result),
            }
        }
        let mut results: Vec<WorkloadResult> = results.into_iter().flatten().collect();
        summarize(&mut results, &mut again, self.baseline);
        let spec = work.spec;
        Workload {
            name: spec.name.clone(),
            group: spec.group.clone(),
            tags: spec.tags.clone(),
            command: spec.command.clone(),
            processes: spec.processes,
            metric: spec.metric.clone(),
            curve: spec.curve.clone(),
            rounds: complete,
            results,
            again,
        }
    }
}

/// The baseline's figures are of all its runs, since each ratio is to the nearest of them.
fn summarize(results: &mut [WorkloadResult], again: &mut Option<WorkloadResult>, baseline: usize) {
    let base = results[baseline].runs.clone();
    let second = again.as_ref().map_or(Vec::new(), |again| again.runs.clone());
    let baseline_runs = statistics::Baseline { base: &base, again: &second };
    let all = [&base[..], &second[..]].concat();
    for (place, result) in results.iter_mut().enumerate() {
        let ratios = (place != baseline).then(|| statistics::ratios_to(&result.runs, baseline_runs)).flatten();
        result.summary = statistics::summary(if place == baseline { &all } else { &result.runs }, ratios);
    }
    if let Some(again) = again {
        again.summary = statistics::summary(&again.runs, statistics::ratios_to_itself(baseline_runs));
    }
}

/// The baseline, the others, and the baseline again half the circle away.
fn circle(allocators: usize, baseline: usize) -> Vec<Entry> {
    let turned = (0..allocators).map(|i| Entry { allocator: (baseline + i) % allocators, again: false });
    let mut circle: Vec<Entry> = turned.collect();
    circle.insert(allocators.div_ceil(2), Entry { allocator: baseline, again: true });
    circle
}

/// The places of a circle as round `round` visits them.
fn order(places: usize, round: usize) -> Vec<usize> {
    let step = |i: usize| if round % 2 == 0 { places - i } else { i };
    (0..places).map(|i| (round + step(i)) % places).collect()
}

/// The environment of a program under an allocator, or under none.
fn environment(allocator: Option<&Allocator>, spec: &Spec) -> Vec<OsString> {
    let mut all: HashMap<OsString, OsString> = std::env::vars_os().collect();
    all.retain(|name, _| name != "LD_PRELOAD" && !preload::OWN_VARIABLES.iter().any(|own| name == own));
    all.extend(spec.environment.iter().map(|(name, value)| (name.into(), value.into())));
    if let Some(allocator) = allocator {
        all.extend(allocator.environment.iter().map(|(name, value)| (name.into(), value.into())));
        if !allocator.libraries.is_empty() {
            let before = allocator.environment.get("LD_PRELOAD").map(String::as_str);
            let libraries: Vec<&str> = allocator.libraries.iter().map(String::as_str).chain(before).collect();
            all.insert("LD_PRELOAD".into(), libraries.join(":").into());
        }
    }
    let join = |(name, value): (OsString, OsString)| [name, "=".into(), value].into_iter().collect::<OsString>();
    let mut all: Vec<OsString> = all.into_iter().map(join).collect();
    all.sort();
    all
}

/// The environments of all allocators, of one size: where the stack begins must not differ by allocator.
fn environments(allocators: &[Allocator], spec: &Spec) -> Vec<Vec<OsString>> {
    let bytes = |all: &[OsString]| all.iter().map(|entry| entry.len() + 1).sum::<usize>();
    let mut environments: Vec<_> = allocators.iter().map(|allocator| environment(Some(allocator), spec)).collect();
    let most = environments.iter().map(|all| bytes(all)).max().unwrap_or(0);
    for all in &mut environments {
        let padding = "x".repeat(most - bytes(all));
        all.push(format!("COMPARE_PADDING={padding}").into());
    }
    environments
}

/// As execvp would: a path, relative to where it runs, or a name in PATH.
fn program_find(name: &str, directory: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let runs =
        |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        return Some(directory.join(name)).filter(runs);
    }
    std::env::split_paths(path).map(|place| place.join(name)).find(runs)
}

// ---- which runs count ----

type Numbers = (Option<f64>, std::collections::BTreeMap<String, f64>);

/// The numbers that were printed, or why the run does not count.
fn check(work: &mut Work, allocator: &Allocator, cost: &Cost, output: &Output, base: bool) -> Result<Numbers, String> {
    let with_words = |reason: String| match output.last_words() {
        Some(words) => format!("{reason}: {words}"),
        None => reason,
    };
    match cost.end {
        End::Status(status) if status == work.spec.exit_status => {}
        End::Status(status) => {
            return Err(with_words(format!("exit status {status} instead of {}", work.spec.exit_status)))
        }
        End::Signal(signal) => return Err(with_words(format!("ended by signal {signal} ({})", signal_name(signal)))),
        _ => return Err(with_words(format!("still running after {:.1} s, killed", work.timeout.as_secs_f64()))),
    }
    if !allocator.libraries.is_empty() {
        let program = Path::new(&cost.executable);
        if let Some(obstacle) =
            elf::obstacle(program).filter(|_| !cost.loaded || work.spec.processes == Processes::Main)
        {
            return Err(format!("{} {obstacle}", program.display()));
        }
        if !cost.loaded {
            return Err(with_words(format!("{} was not loaded", allocator.libraries.join(" "))));
        }
    }
    let patterns = &work.spec.patterns;
    let numbers = output.numbers(patterns).map_err(|error| with_words(format!("{error:#}")))?;
    if patterns.check {
        let text = output.masked(patterns);
        match &work.expected {
            Some(expected) => output::difference(&text, expected)
                .map_or(Ok(()), |difference| Err(format!("prints something else than the baseline: {difference}")))?,
            None if base => work.expected = Some(text),
            None => return Err("its output cannot be checked, as the baseline's is missing".to_string()),
        }
    }
    Ok(numbers)
}

fn run_of(cost: Cost, (metric, values): Numbers, round: usize, started_s: f64) -> Run {
    Run {
        round,
        started_s,
        wall_s: cost.wall_s,
        cpu_s: cost.cpu_s,
        peak_rss_bytes: cost.peak_rss_bytes,
        average_rss_bytes: cost.average_rss_bytes,
        minor_faults: cost.minor_faults,
        metric,
        values,
        rss_over_time: cost.rss_over_time,
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGXCPU => "SIGXCPU",
        _ => "see signal(7)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_there_twice_half_the_circle_apart() {
        for count in 1..=13 {
            for baseline in 0..count {
                let circle = circle(count, baseline);
                let base = circle.iter().position(|entry| entry.allocator == baseline && !entry.again).unwrap();
                let again = circle.iter().position(|entry| entry.again).unwrap();
                let apart = base.abs_diff(again).min(circle.len() - base.abs_diff(again));
                assert_eq!((circle.len(), apart), (count + 1, circle.len() / 2), "{count} {baseline}");
            }
        }
    }

    #[test]
    fn every_round_visits_all_and_starts_further_on() {
        let mut starts = Vec::new();
        for round in 1..=5 {
            let mut order = order(5, round);
            starts.push(order[0]);
            order.sort();
            assert_eq!(order, [0, 1, 2, 3, 4]);
        }
        starts.sort();
        assert_eq!(starts, [0, 1, 2, 3, 4]);
        assert_eq!((order(4, 1), order(4, 2)), (vec![1, 2, 3, 0], vec![2, 1, 0, 3]));
    }

    /// A baseline that takes now 1 s, now 3 s.
    #[test]
    fn all_runs_of_the_baseline_are_summed_up() {
        let run = |started_s: f64, wall_s: f64| Run {
            round: 1,
            started_s,
            wall_s,
            cpu_s: wall_s,
            peak_rss_bytes: 1,
            average_rss_bytes: 1,
            minor_faults: 1,
            metric: None,
            values: Default::default(),
            rss_over_time: Vec::new(),
        };
        let result = |name: &str, run: Run| WorkloadResult {
            allocator: name.to_string(),
            runs: vec![run],
            failures: Vec::new(),
            summary: None,
        };
        let mut results = vec![result("base", run(0.0, 1.0)), result("mine", run(3.0, 2.0))];
        let mut again = Some(result("base", run(2.0, 3.0)));
        summarize(&mut results, &mut again, 0);
        let wall = |result: &WorkloadResult| result.summary.as_ref().map(|one| (one.wall_s.least, one.wall_s.most));
        let all = [&results[0], &results[1], again.as_ref().unwrap()].map(wall);
        assert_eq!(all, [Some((1.0, 3.0)), Some((2.0, 2.0)), Some((3.0, 3.0))]);
    }

    #[test]
    fn programs_are_found_as_a_shell_would() {
        let find = |name: &str| program_find(name, Path::new("/bin"), "/nowhere:/bin".as_ref());
        assert_eq!(find("sh"), Some("/bin/sh".into()));
        assert_eq!(find("./sh"), Some("/bin/./sh".into()));
        assert_eq!((find("no-such-program"), find("./no-such"), find("/etc/passwd")), (None, None, None));
    }
}
