//! `hakmem compare`: options, and the way from them to a printed and written comparison.
// SPDX-License-Identifier: MIT

use crate::allocator::{self, Found, Sources};
use crate::area;
use crate::measure::Session;
use crate::output::{self, Patterns};
use crate::over_time;
use crate::progress::Progress;
use crate::results::*;
use crate::suite::{self, Spec, Suite, Variables};
use crate::{launch, machine, report, statistics, terminal};
use anyhow::{bail, ensure, Context, Result};
use clap::ValueEnum;
use hakmem_base::print;
use hakmem_base::shown;
use hakmem_base::signals;
use hakmem_base::table::Style;
use hakmem_base::{files, scratch};
use regex_lite::Regex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 everything was measured, 1 an allocator failed a run, 2 a wrong option or suite \
    file, 130 interrupted.\nPrograms do not inherit the caller's LD_PRELOAD. They do inherit HAKMEM_* options."
)]
pub struct Options {
    /// Measure the workloads of this file; can be repeated
    #[arg(long, value_name = "FILE")]
    suite: Vec<PathBuf>,
    /// Only workloads of the suite whose names match
    #[arg(long, value_name = "REGEX", requires = "suite")]
    select: Option<String>,
    /// Only workloads of the suite in this group
    #[arg(long, requires = "suite")]
    group: Option<String>,
    /// Only workloads of the suite with this tag
    #[arg(long, requires = "suite")]
    tag: Option<String>,
    /// Value of {NAME} in the suite; can be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "suite")]
    var: Vec<String>,
    /// Another allocator: a library to preload, or several as in NAME=A.so:B.so
    #[arg(long, value_name = "NAME=LIB.so")]
    with: Vec<String>,
    /// Measure only these allocators
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these allocators out
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    without: Vec<String>,
    /// The allocator that all ratios are relative to [default: the suite's, or system]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Number of interleaved rounds; fewer than 5 cannot show a difference [default: the suite's, or 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Measure fewer rounds if all of them would take longer than this: 90s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_time: Option<Duration>,
    /// Finds the program's own measure of its speed in its output, as group 1; higher is better
    #[arg(long, value_name = "REGEX", conflicts_with = "suite")]
    metric: Option<String>,
    /// Name of that measure
    #[arg(long, value_name = "NAME", requires = "metric", default_value = "ops/s")]
    metric_name: String,
    /// Discard runs whose output differs from the baseline's
    #[arg(long, conflicts_with = "suite")]
    check_output: bool,
    /// Ignore these parts of the output
    #[arg(long, value_name = "REGEX", requires = "check_output")]
    ignore: Option<String>,
    /// Exit status of a successful run
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "suite")]
    exit_status: i32,
    /// Kill a run that takes longer [default: 60 s plus 20 times the baseline's first run]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "suite")]
    timeout: Option<Duration>,
    /// Whose memory counts: that of the program itself, or of all processes it starts
    #[arg(long, value_enum, default_value_t = Processes::Main, conflicts_with = "suite")]
    processes: Processes,
    /// The library that is measured as hakmem
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
    /// File that lists allocators
    #[arg(long, value_name = "FILE", env = "HAKMEM_PEERS")]
    peers: Option<PathBuf>,
    /// Compare the processor time of the allocator alone, and of the kernel's work on memory; needs perf
    #[arg(long)]
    tax: bool,
    /// Compare one figure of processor time and memory: the area under the resident size, priced
    #[arg(long, conflicts_with = "tax")]
    area: bool,
    /// Write all measurements; with `-` they go to stdout, and everything else goes to stderr
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report as a web page; `-` is stdout
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Draw resident memory over time, of one workload, as an SVG file; `-` is stdout
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// List the allocators found and the workloads of the suite, and measure nothing
    #[arg(long)]
    list: bool,
    /// Print only errors
    #[arg(long)]
    quiet: bool,
    /// The program to measure, and its arguments
    #[arg(
        last = true,
        value_name = "PROGRAM",
        required_unless_present_any = ["suite", "list"],
        conflicts_with = "suite"
    )]
    command: Vec<String>,
}

impl ValueEnum for Processes {
    fn value_variants<'a>() -> &'a [Self] {
        &[Processes::Main, Processes::All]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(match self {
            Processes::Main => "main",
            Processes::All => "all",
        }))
    }
}

/// 90, 90s, 1.5m, 2h, 200ms
pub fn duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => bail!("a duration is a number and ms, s, m or h"),
    };
    let number: f64 = digits.parse().ok().context("a duration is a number and ms, s, m or h")?;
    let duration = Duration::try_from_secs_f64(number * unit).ok().filter(|duration| !duration.is_zero());
    duration.context("a duration is above 0")
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let sink = Sink::of(options)?;
    let scratch = Scratch::new()?;
    let (title, baseline, specs) = workloads(options, &scratch.work)?;
    let sources = Sources { hakmem: options.hakmem.clone(), peers: options.peers.clone(), with: options.with.clone() };
    let mut found = allocator::find(&sources)?;
    found.select(&options.only, &options.without)?;
    found.find_versions();
    if options.list {
        print::text(&list(&found, &specs))?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!specs.is_empty(), "no workload is selected");
    ensure!(options.svg.is_none() || specs.len() == 1, "--svg draws one workload: choose it with --select");
    let baseline = baseline_place(options, baseline.as_deref(), &found)?;
    let plan = Plan { options, sink, title, specs, found, baseline, scratch };
    let (comparison, interrupted) = plan.measure()?;
    sink.say(&conclude(&comparison, sink.style()))?;
    write(options, &comparison)?;
    Ok(ExitCode::from(if interrupted { 130 } else { status(&comparison) }))
}

/// 1 if an allocator failed, or if nothing was measured.
fn status(comparison: &Comparison) -> u8 {
    let results = comparison.workloads.iter().flat_map(|workload| workload.results.iter().chain(&workload.again));
    let failed = results.into_iter().any(|result| !result.failures.is_empty());
    u8::from(failed || comparison.workloads.is_empty())
}

/// Where tables and sentences go.
#[derive(Clone, Copy, PartialEq)]
enum Sink {
    Stdout,
    /// stdout is the JSON's or the page's.
    Stderr,
    Nowhere,
}

impl Sink {
    fn of(options: &Options) -> Result<Sink> {
        let mut files = options.json.iter().chain(&options.html).chain(&options.svg).map(PathBuf::as_path);
        print::ensure_one(files.clone(), false)?;
        files.clone().try_for_each(files::ensure_place)?;
        Ok(match options.quiet {
            true => Sink::Nowhere,
            false if files.any(print::is_stdout) => Sink::Stderr,
            false => Sink::Stdout,
        })
    }

    fn style(self) -> Style {
        if self == Sink::Stderr {
            Style::of_stderr()
        } else {
            Style::of_stdout()
        }
    }

    /// Whole lines.
    fn say(self, text: &str) -> Result<()> {
        match self {
            Sink::Stdout => print::text(text)?,
            Sink::Stderr if !text.is_empty() => print::note(text.strip_suffix('\n').unwrap_or(text)),
            _ => {}
        }
        Ok(())
    }
}

// ---- what to measure ----

/// A directory that goes when this does.
pub(crate) struct Scratch {
    pub(crate) directory: TempDir,
    /// {work} of suites
    work: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch> {
        let directory = scratch::directory("compare")?;
        let work = directory.path().join("work");
        fs::create_dir(&work).with_context(|| work.display().to_string())?;
        Ok(Scratch { work: fs::canonicalize(&work)?, directory })
    }
}

/// The title, the baseline the suite wants, and the workloads.
fn workloads(options: &Options, work: &Path) -> Result<(String, Option<String>, Vec<Spec>)> {
    if options.suite.is_empty() {
        let specs = if options.command.is_empty() { Vec::new() } else { vec![command_spec(options)?] };
        return Ok((options.command.join(" "), None, specs));
    }
    let variables: Variables = options.var.iter().map(|text| suite::variable(text)).collect::<Result<_>>()?;
    let read = |path: &PathBuf| suite::read(path, &variables, work);
    let suites: Vec<Suite> = options.suite.iter().map(read).collect::<Result<_>>()?;
    let title = suites.iter().map(|suite| suite.title.as_str()).collect::<Vec<_>>().join(" + ");
    let baseline = suites.iter().find_map(|suite| suite.baseline.clone());
    let mut specs: Vec<Spec> = Vec::new();
    for (suite, path) in suites.into_iter().zip(&options.suite) {
        for spec in suite.workloads {
            let known = specs.iter().any(|old| old.name == spec.name);
            ensure!(!known, "{}: {:?} is in another suite, too", path.display(), spec.name);
            specs.push(spec);
        }
    }
    let select = options.select.as_ref().map(|text| Regex::new(text).context("--select")).transpose()?;
    specs.retain(|spec| {
        select.as_ref().is_none_or(|select| select.is_match(&spec.name))
            && options.group.as_ref().is_none_or(|group| *group == spec.group)
            && options.tag.as_ref().is_none_or(|tag| spec.tags.contains(tag))
    });
    Ok((title, baseline, specs))
}

fn command_spec(options: &Options) -> Result<Spec> {
    let ignore = options.ignore.as_ref().map(|text| output::pattern(text).context("--ignore")).transpose()?;
    let mut spec = program_spec(&options.command, options.metric.as_deref(), &options.metric_name)?;
    spec.patterns = Patterns { check: options.check_output, ignore, ..spec.patterns };
    Ok(Spec { exit_status: options.exit_status, timeout: options.timeout, processes: options.processes, ..spec })
}

/// A program on the command line as a workload.
pub(crate) fn program_spec(command: &[String], metric: Option<&str>, metric_name: &str) -> Result<Spec> {
    let pattern = metric.map(|text| output::number_pattern(text).context("--metric")).transpose()?;
    let name = Path::new(&command[0]).file_name().map(|name| name.to_string_lossy().into_owned());
    let words: Vec<String> = name.into_iter().chain(command[1..].iter().cloned()).collect();
    Ok(Spec {
        name: words.join(" "),
        group: String::new(),
        tags: Vec::new(),
        command: command.to_vec(),
        metric: metric.map(|pattern| Metric { name: metric_name.to_string(), pattern: pattern.to_string() }),
        patterns: Patterns { metric: pattern, values: BTreeMap::new(), check: false, ignore: None },
        curve: None,
        environment: BTreeMap::new(),
        directory: std::env::current_dir()?,
        setup: None,
        needs: Vec::new(),
        exit_status: 0,
        timeout: None,
        processes: Processes::Main,
        rounds: None,
    })
}

/// Which of the allocators is the baseline.
fn baseline_place(options: &Options, suites: Option<&str>, found: &Found) -> Result<usize> {
    let place = |name: &str| found.allocators.iter().position(|allocator| allocator.name == name);
    let names: Vec<&str> = found.allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    ensure!(!names.is_empty(), "no allocator is left to measure");
    if let Some(name) = &options.baseline {
        let known = place(name);
        return known.with_context(|| format!("--baseline {name}: it is not among {}", names.join(", ")));
    }
    let wanted = [suites.unwrap_or(allocator::SYSTEM), allocator::SYSTEM, allocator::HAKMEM];
    Ok(wanted.iter().find_map(|name| place(name)).unwrap_or(0))
}

fn list(found: &Found, specs: &[Spec]) -> String {
    let mut text = String::new();
    for one in &found.allocators {
        let version = if one.version.is_empty() { "-" } else { &one.version };
        let _ = writeln!(text, "{:18} {version:40} {}", one.name, one.libraries.join(":"));
    }
    for missing in &found.missing {
        let _ = writeln!(text, "{:18} not found: {}", missing.name, missing.reason);
    }
    for spec in specs {
        let _ = writeln!(text, "\n{}  [{}] {}", spec.name, spec.group, spec.tags.join(" "));
        let _ = writeln!(text, "    {}", spec.command.join(" "));
    }
    text
}

// ---- measuring ----

/// All that is decided before the first run.
struct Plan<'a> {
    options: &'a Options,
    sink: Sink,
    title: String,
    specs: Vec<Spec>,
    found: Found,
    /// Its place among the allocators.
    baseline: usize,
    scratch: Scratch,
}

impl Plan<'_> {
    /// The comparison, and whether it was interrupted.
    fn measure(self) -> Result<(Comparison, bool)> {
        let (begun, started, machine) = (Instant::now(), machine::now(), machine::describe());
        let blocked = signals::block();
        let mut session =
            Session::new(&self.found.allocators, self.baseline, self.scratch.directory.path(), blocked.before());
        session.rounds = self.options.rounds.map(|rounds| rounds as usize);
        session.deadline = self.options.max_time.map(|time| begun + time);
        if self.options.tax {
            session.measure_tax()?;
        }
        session.area = self.options.area;
        session.progress = Progress::new(self.options.quiet, self.specs.len());
        if std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty()) {
            session.notes.push("LD_PRELOAD is set; it was not passed on to the programs".to_string());
        }
        let (workloads, missing_workloads) = self.run(&mut session)?;
        let (notes, interrupted) = (session.notes, session.interrupted);
        if let ([only], true, false) = (&missing_workloads[..], self.options.suite.is_empty(), interrupted) {
            bail!("{}", only.reason);
        }
        let names: Vec<String> = self.found.allocators.iter().map(|allocator| allocator.name.clone()).collect();
        let baseline = names[self.baseline].clone();
        let (standing, standing_again) = statistics::standings(&workloads, &names, &baseline);
        let comparison = Comparison {
            format: FORMAT,
            title: self.title,
            started,
            duration_s: begun.elapsed().as_secs_f64(),
            machine,
            baseline,
            allocators: self.found.allocators,
            missing: self.found.missing,
            missing_workloads,
            notes,
            workloads,
            standing,
            standing_again,
        };
        Ok((comparison, interrupted))
    }

    /// Measures workload by workload, and prints each.
    fn run(&self, session: &mut Session) -> Result<(Vec<Workload>, Vec<Missing>)> {
        launch::adopt_orphans();
        let style = self.sink.style();
        let baseline = &self.found.allocators[self.baseline].name;
        let (mut measured, mut missing) = (Vec::new(), Vec::new());
        for (place, spec) in self.specs.iter().enumerate() {
            match session.measure(spec, self.specs.len() - place) {
                Ok(workload) => {
                    let text = format!("{}\n\n", terminal::workload(&workload, "allocator", baseline, style));
                    session.progress.suspend(|| self.sink.say(&text))?;
                    measured.push(workload);
                }
                Err(reason) => missing.push(Missing { name: spec.name.clone(), reason }),
            }
            if session.interrupted {
                let (done, all) = (measured.len(), self.specs.len());
                session.notes.push(format!("interrupted; {done} of {all} workloads were measured"));
                break;
            }
        }
        session.progress.done();
        Ok((measured, missing))
    }
}

/// What is printed behind the tables of the workloads.
fn conclude(comparison: &Comparison, style: Style) -> String {
    let area = area::standing(comparison, style);
    let mut lines = match &comparison.workloads[..] {
        [only] if !area.is_empty() => {
            vec![
                area::explanation() + "\n",
                over_time::in_terminal(only, style),
                terminal::against(only, &comparison.baseline),
            ]
        }
        _ if !area.is_empty() => vec![area],
        [] => Vec::new(),
        [only] => terminal::sentences(only, &comparison.baseline),
        _ => vec![terminal::standing(comparison, style)],
    };
    for missing in comparison.missing_workloads.iter().chain(&comparison.missing) {
        lines.push(format!("not measured: {}: {}", missing.name, missing.reason));
    }
    lines.extend(comparison.notes.iter().map(|note| format!("note: {note}")));
    lines.iter().map(|line| line.clone() + "\n").collect()
}

fn write(options: &Options, comparison: &Comparison) -> Result<()> {
    if let Some(path) = &options.json {
        files::publish(path, shown::json(serde_json::to_string_pretty(comparison)?) + "\n")?;
    }
    if let Some(path) = &options.html {
        files::publish(path, report::html(comparison))?;
    }
    if let (Some(path), [only]) = (&options.svg, &comparison.workloads[..]) {
        files::publish(path, over_time::file(only).context("--svg: no run was long enough to be sampled")?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let seconds = |text: &str| duration(text).map(|duration| duration.as_secs_f64()).ok();
        assert_eq!(
            [seconds("90"), seconds("90s"), seconds("1.5m"), seconds("200ms")],
            [Some(90.0), Some(90.0), Some(90.0), Some(0.2)]
        );
        assert_eq!([seconds("0"), seconds("-1s"), seconds("5x"), seconds("")], [None; 4]);
    }
}
