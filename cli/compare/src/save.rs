//! `hakmem save -- PROGRAM`: what a service that does this all the time would save with HAKMEM, in money a year.
//!
//! 1. The program runs under the allocator that it has and under HAKMEM, in interleaved rounds as by `compare`; CPU
//!    time is that of all processes, memory the area under their samples (area.rs).
//! 2. One process that repeats the run for a year has its CPU seconds by its wall time as vCPUs, and its average
//!    memory. Prices make money of both. The service has the same work under HAKMEM, however long that takes.
//! 3. What is saved is the part by which HAKMEM's cost is below: median, interval and verdict of ratios within rounds
//!    (statistics.rs). A verdict takes more than an interval without zero, so what is said to be noise may be more.
// SPDX-License-Identifier: MIT

use crate::allocator::HAKMEM;
use crate::area::{AREA, PRICE};
use crate::compare::{duration, program_spec, Scratch};
use crate::launch::SAMPLE_LAZY;
pub use crate::measure::linked_of;
use crate::measure::{Session, LINKED_HAKMEM};
use crate::progress::Progress;
use crate::results::*;
use crate::statistics::{self, Baseline, Measure, ROUNDS_FOR_VERDICT};
use crate::terminal::{percent, plural, spread};
use crate::{allocator, launch};
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::preload::hakmem_preload;
use hakmem_base::print;
use hakmem_base::proc::NEITHER;
use hakmem_base::signals;
use hakmem_base::table::{bytes, count, seconds, table, Cell, Color, Column, Style};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const OWN: &str = "own";
const YEAR_S: f64 = 365.0 * 86400.0;
const HOUR_S: f64 = 3600.0;
/// Round figures, of the size that clouds ask for, whose ratio is the price of area.rs.
const VCPU_HOUR: f64 = 0.04;
const GIB_HOUR: f64 = VCPU_HOUR * PRICE;
/// What is saved below this part of the cost is not worth the change of an allocator.
const WORTH: f64 = 0.01;
const METHOD: &str = "medians of ratios within interleaved rounds; 95 % intervals by bootstrap, with up to 40 rounds \
    widened to those of the signed ranks";

#[derive(clap::Args, Debug, Clone, Copy, Serialize)]
pub struct Prices {
    /// What a vCPU costs for an hour, in dollars or what you like
    #[arg(long, value_name = "PRICE", default_value_t = VCPU_HOUR, value_parser = price)]
    vcpu_hour: f64,
    /// What a GiB of memory costs for an hour
    #[arg(long, value_name = "PRICE", default_value_t = GIB_HOUR, value_parser = price)]
    gib_hour: f64,
}

/// What `hakmem save` takes for a program.
#[derive(clap::Args)]
pub struct Measuring {
    #[command(flatten)]
    pub prices: Prices,
    /// Number of interleaved rounds, of three runs each; fewer than 5 cannot show a difference
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure fewer rounds if all of them would take longer than this: 90s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_time: Option<Duration>,
    /// Exit status of a successful run
    #[arg(long, value_name = "N", default_value_t = 0)]
    exit_status: i32,
    /// Kill a run that takes longer [default: 60 s plus 20 times the first run]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Whose memory counts: that of the program itself, or of all processes it starts
    #[arg(long, value_enum, default_value_t = Processes::All)]
    processes: Processes,
    /// The library to run the program under
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
    /// Print the result as JSON, and everything else to stderr
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// The program to measure, which does its work and ends, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

fn price(text: &str) -> Result<f64> {
    let price: f64 = text.parse().ok().context("a price is a number")?;
    ensure!(price.is_finite() && price >= 0.0, "a price is 0 or more");
    Ok(price)
}

// ---- money ----

impl Default for Prices {
    fn default() -> Prices {
        Prices { vcpu_hour: VCPU_HOUR, gib_hour: GIB_HOUR }
    }
}

impl Prices {
    pub fn ensure(&self) -> Result<()> {
        ensure!(self.vcpu_hour > 0.0 || self.gib_hour > 0.0, "one of --vcpu-hour and --gib-hour must be above 0");
        Ok(())
    }

    /// The price of a year in which `vcpus` processors work.
    pub fn of_vcpus(&self, vcpus: f64) -> f64 {
        vcpus * self.vcpu_hour * YEAR_S / HOUR_S
    }

    /// The price of a year in which `bytes` are resident.
    pub fn of_bytes(&self, bytes: f64) -> f64 {
        bytes / f64::from(1 << 30) * self.gib_hour * YEAR_S / HOUR_S
    }

    /// What the CPU time of one run costs.
    fn cpu(&self, run: &Run) -> Option<f64> {
        Some(run.cpu_s * self.vcpu_hour / HOUR_S)
    }

    fn memory(&self, run: &Run) -> Option<f64> {
        Some(run.values.get(AREA)? * self.gib_hour / HOUR_S)
    }

    fn both(&self, run: &Run) -> Option<f64> {
        Some(self.cpu(run)? + self.memory(run)?)
    }

    pub fn sentence(&self) -> String {
        let usual = self.vcpu_hour == VCPU_HOUR && self.gib_hour == GIB_HOUR;
        let whose = match usual {
            true => ", round figures: give your own by --vcpu-hour and --gib-hour",
            false => "",
        };
        format!("Prices: {} for a vCPU hour, {} for a GiB hour{whose}.", money(self.vcpu_hour), money(self.gib_hour))
    }
}

/// "$12.30", "−$0.012", "$1,234"
pub fn money(amount: f64) -> String {
    let size = amount.abs();
    let text = match size {
        _ if size >= 99.995 => count(size.round() as u64),
        _ if size >= 0.995 || size == 0.0 => format!("{size:.2}"),
        _ => {
            let places = (1.0 - size.log10().floor()) as usize;
            format!("{size:.0$}", places.min(9))
        }
    };
    let sign = if amount < 0.0 && text.contains(|digit: char| ('1'..='9').contains(&digit)) { "−" } else { "" };
    format!("{sign}${text}")
}

// ---- what is saved ----

/// What is saved of one kind of cost in a year.
#[derive(Debug, Clone, Copy, Serialize)]
struct Saving {
    own_a_year: f64,
    saved_a_year: f64,
    saved_low: f64,
    saved_high: f64,
    /// HAKMEM's cost to that of the program's own allocator, for the same work.
    ratio: Ratio,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Savings {
    runs_a_year: f64,
    cpu: Saving,
    memory: Saving,
    both: Saving,
    peak_rss: Ratio,
}

/// Both of each round: what a run of HAKMEM is compared with is one of these.
fn own_runs(workload: &Workload) -> Vec<Run> {
    workload.results.iter().take(1).chain(&workload.again).flat_map(|own| own.runs.clone()).collect()
}

impl Savings {
    /// None without runs of both, or without anything that was taken and priced.
    fn of(prices: &Prices, workload: &Workload) -> Option<Savings> {
        let [own, hakmem] = &workload.results[..] else { return None };
        let baseline = Baseline { base: &own.runs, again: &workload.again.as_ref()?.runs };
        let all = own_runs(workload);
        let runs_a_year = YEAR_S / statistics::median(all.iter().map(|run| run.wall_s))?;
        let saving = |measure: Measure| {
            let ratio = statistics::ratio_to(&hakmem.runs, baseline, measure)?;
            let own_a_year = statistics::median(all.iter().filter_map(measure))? * runs_a_year;
            let saved = |ratio: f64| own_a_year * (1.0 - ratio);
            let (saved_low, saved_high) = (saved(ratio.high), saved(ratio.low));
            Some(Saving { own_a_year, saved_a_year: saved(ratio.median), saved_low, saved_high, ratio })
        };
        Some(Savings {
            runs_a_year,
            cpu: saving(&|run| prices.cpu(run))?,
            memory: saving(&|run| prices.memory(run))?,
            both: saving(&|run| prices.both(run))?,
            peak_rss: statistics::ratio_to(&hakmem.runs, baseline, &statistics::peak_rss)?,
        })
    }

    fn worth(&self, rounds: usize) -> Worth {
        match self.both.ratio.verdict {
            _ if rounds < ROUNDS_FOR_VERDICT => Worth::Unknown,
            Verdict::Same => Worth::Noise,
            Verdict::Worse => Worth::Loses,
            Verdict::Better if 1.0 - self.both.ratio.median < WORTH => Worth::Little,
            Verdict::Better => Worth::Saves,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Worth {
    Saves,
    /// Certain, and less than `WORTH`.
    Little,
    Noise,
    Loses,
    /// Too few rounds.
    Unknown,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    prices: Prices,
    own_allocator: &'a str,
    worth: Worth,
    /// Money of one process that does this all the time.
    #[serde(flatten)]
    savings: Savings,
    method: &'static str,
    workload: &'a Workload,
    notes: &'a [String],
}

// ---- the command ----

pub fn command(options: &Measuring) -> Result<ExitCode> {
    ensure!(!options.program.is_empty(), NEITHER);
    options.prices.ensure()?;
    let library = hakmem_preload(options.hakmem.as_deref())?;
    let mut spec = program_spec(&options.program, None, "")?;
    spec.exit_status = options.exit_status;
    spec.timeout = options.timeout;
    spec.processes = options.processes;
    launch::adopt_orphans();
    let blocked = signals::block();
    let scratch = Scratch::new()?;
    let mut found = allocators(&library);
    found.find_versions();
    let mut session = Session::new(&found.allocators, 0, scratch.directory.path(), blocked.before());
    session.rounds = Some(options.rounds as usize);
    session.deadline = options.max_time.map(|time| Instant::now() + time);
    session.area = true;
    session.all_must_count = true;
    session.progress = Progress::new(options.quiet, 1);
    let measured = session.measure(&spec, 1);
    session.progress.done();
    if session.interrupted {
        return Ok(ExitCode::from(130));
    }
    let workload = match measured {
        Ok(workload) => workload,
        Err(reason) => bail!("{reason}"),
    };
    if session.linked.as_ref().is_some_and(|library| library.starts_with(LINKED_HAKMEM)) {
        bail!("{} runs HAKMEM already: run it without, or take it out of LD_PRELOAD", spec.name);
    }
    if let Some((status, reason)) = failure(&workload) {
        print::note(&format!("hakmem: {} {reason}", options.program[0]));
        return Ok(ExitCode::from(status));
    }
    ensure_sampled(&workload)?;
    let savings = Savings::of(&options.prices, &workload).context("no round was complete")?;
    let own_allocator = session.linked.clone().unwrap_or(match found.allocators[0].version.as_str() {
        "" => "the system's malloc".to_string(),
        version => format!("{version}'s malloc"),
    });
    let answer = Answer {
        prices: options.prices,
        own_allocator: &own_allocator,
        worth: savings.worth(workload.rounds),
        savings,
        method: METHOD,
        workload: &workload,
        notes: &session.notes,
    };
    if options.json {
        print::json(&answer)?;
        print::note(&say(&answer, Style::of_stderr()));
    } else {
        print::line(&say(&answer, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The program as it is, with all that is preloaded here, and the same with HAKMEM before that.
fn allocators(library: &str) -> allocator::Found {
    let before = std::env::var("LD_PRELOAD").ok().filter(|text| !text.is_empty());
    let environment: BTreeMap<String, String> =
        before.map(|before| ("LD_PRELOAD".to_string(), before)).into_iter().collect();
    let allocator = |name: &str, libraries: Vec<String>| Allocator {
        name: name.to_string(),
        version: String::new(),
        libraries,
        environment: environment.clone(),
        tags: Vec::new(),
    };
    let allocators = vec![allocator(OWN, Vec::new()), allocator(HAKMEM, vec![library.to_string()])];
    allocator::Found { allocators, missing: Vec::new() }
}

/// The exit status and the reason, if a run did not end as it should.
fn failure(workload: &Workload) -> Option<(u8, String)> {
    let first = |result: Option<&WorkloadResult>| {
        let text = result?.failures.first()?;
        Some(text.split_once(": ").map_or(text.as_str(), |(_, reason)| reason).to_string())
        // "warm-up: …"
    };
    let own = first(workload.results.first()).or_else(|| first(workload.again.as_ref()));
    match (own, first(workload.results.get(1))) {
        (None, None) => None,
        (None, Some(reason)) => Some((1, format!("fails under HAKMEM alone: {reason}"))),
        (Some(reason), None) => Some((2, format!("fails without HAKMEM: {reason}"))),
        (Some(reason), Some(_)) => Some((2, format!("fails, with HAKMEM and without: {reason}"))),
    }
}

fn ensure_sampled(workload: &Workload) -> Result<()> {
    let wall_s = workload.results[0].summary.as_ref().map_or(f64::INFINITY, |summary| summary.wall_s.median);
    ensure!(
        wall_s >= SAMPLE_LAZY.as_secs_f64(),
        "{} takes {}, and its memory is looked at every {} ms: give it its real work",
        workload.name,
        seconds(wall_s),
        SAMPLE_LAZY.as_millis()
    );
    Ok(())
}

// ---- saying ----

fn signed(difference: f64) -> String {
    let text = percent(difference);
    if difference < 0.0 && text != "0" {
        format!("−{text}")
    } else {
        text
    }
}

/// Too few rounds tell noise from nothing.
fn saved_cell(ratio: &Ratio, rounds: usize) -> Cell {
    let interval = format!("[{} to {}]", signed(1.0 - ratio.high), signed(1.0 - ratio.low));
    let saved = format!("{} % {interval}", signed(1.0 - ratio.median));
    match ratio.verdict {
        Verdict::Same if rounds < ROUNDS_FOR_VERDICT => Cell::new(saved),
        Verdict::Same => Cell::new(format!("noise {interval}")),
        Verdict::Better => Cell::new(saved).fg(Color::Green),
        Verdict::Worse => Cell::new(saved).fg(Color::Red),
    }
}

fn interval(saving: &Saving) -> String {
    format!("[{} to {}]", money(saving.saved_low), money(saving.saved_high))
}

fn columns(answer: &Answer) -> Option<Vec<Column>> {
    let own = statistics::summary(&own_runs(answer.workload), None)?;
    let hakmem = answer.workload.results.get(1)?.summary.as_ref()?;
    let savings = &answer.savings;
    let area: fn(f64) -> String = |area| format!("{area:.3} GiB s");
    let measured = |title: &str, one: &Summary| {
        let cells = [
            spread(&one.cpu_s, seconds),
            one.values.get(AREA).map_or_else(String::new, |numbers| spread(numbers, area)),
            String::new(),
            spread(&one.peak_rss_bytes, bytes),
        ];
        Column::new(title, 1, cells.map(Cell::new).to_vec())
    };
    let a_year = |text: fn(&Saving) -> String| {
        let [cpu, memory, both] = [&savings.cpu, &savings.memory, &savings.both].map(text);
        vec![Cell::new(cpu), Cell::new(memory), Cell::new(both), Cell::new("")]
    };
    let ratios = [&savings.cpu.ratio, &savings.memory.ratio, &savings.both.ratio, &savings.peak_rss];
    let saved = ratios.map(|ratio| saved_cell(ratio, answer.workload.rounds)).to_vec();
    Some(vec![
        Column::new("", 0, ["CPU time", "memory", "both", "peak memory"].map(Cell::new).to_vec()),
        measured("own allocator", &own),
        measured("HAKMEM", hakmem),
        Column::new("saved", 0, saved),
        Column::new("own, a year", 0, a_year(|saving| money(saving.own_a_year))),
        Column::new("saved a year", 0, a_year(|saving| format!("{} {}", money(saving.saved_a_year), interval(saving)))),
    ])
}

fn say(answer: &Answer, style: Style) -> String {
    let (workload, savings) = (answer.workload, &answer.savings);
    let wall_s = YEAR_S / savings.runs_a_year;
    let mut text = format!(
        "{}: its own allocator, {}, and HAKMEM by turns, {}, {} a run\n",
        workload.name,
        answer.own_allocator,
        plural(workload.rounds, "round"),
        seconds(wall_s)
    );
    text += &columns(answer).map_or_else(String::new, |columns| table(columns, style));
    text += &format!(
        "\n\n{}\nA year is that of one process that does this all the time. {}\n\
        [ ]: 95 % intervals, by bootstrap over rounds, widened to those of the signed ranks.",
        verdict(answer),
        answer.prices.sentence()
    );
    for note in answer.notes {
        text += &format!("\nnote: {note}");
    }
    text
}

/// Whether it is worth it, in one sentence.
fn verdict(answer: &Answer) -> String {
    let both = &answer.savings.both;
    let part = percent(1.0 - both.ratio.median);
    match answer.worth {
        Worth::Saves => format!(
            "Worth it: HAKMEM does the same work for {part} % less, {} of {} a year {}.",
            money(both.saved_a_year),
            money(both.own_a_year),
            interval(both)
        ),
        Worth::Little => format!(
            "Hardly worth it: HAKMEM saves {part} %, {} of {} a year.",
            money(both.saved_a_year),
            money(both.own_a_year)
        ),
        Worth::Noise => {
            let has_zero = both.saved_low <= 0.0 && both.saved_high >= 0.0;
            let noise = match has_zero {
                true => "is within the noise",
                false => "is not beyond what its own allocator shows against itself",
            };
            format!(
                "Not worth it by these figures: what HAKMEM would save {noise}, {} of {} a year.",
                interval(both),
                money(both.own_a_year)
            )
        }
        Worth::Loses => format!(
            "Not worth it: HAKMEM does the same work for {part} % more, {} on top of {} a year.",
            money(-both.saved_a_year),
            money(both.own_a_year)
        ),
        Worth::Unknown => format!("No verdict: that takes {}.", plural(ROUNDS_FOR_VERDICT, "round")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices { vcpu_hour: VCPU_HOUR, gib_hour: GIB_HOUR };

    /// A round's run: CPU seconds, GiB x s. Each takes two seconds.
    fn runs(started_s: f64, numbers: &[(f64, f64)]) -> Vec<Run> {
        let run = |(round, &(cpu_s, area)): (usize, &(f64, f64))| Run {
            round: round + 1,
            started_s: started_s + round as f64 * 10.0,
            wall_s: 2.0,
            cpu_s,
            peak_rss_bytes: 1 << 30,
            average_rss_bytes: (area * f64::from(1 << 29)) as u64,
            minor_faults: 1,
            metric: None,
            values: BTreeMap::from([(AREA.to_string(), area)]),
            rss_over_time: Vec::new(),
        };
        numbers.iter().enumerate().map(run).collect()
    }

    fn result(name: &str, runs: Vec<Run>) -> WorkloadResult {
        let summary = statistics::summary(&runs, None);
        WorkloadResult { allocator: name.to_string(), runs, failures: Vec::new(), summary }
    }

    fn workload(own: &[(f64, f64)], hakmem: &[(f64, f64)]) -> Workload {
        Workload {
            name: "program".to_string(),
            group: String::new(),
            tags: Vec::new(),
            command: Vec::new(),
            processes: Processes::All,
            metric: None,
            curve: None,
            rounds: own.len(),
            results: vec![result(OWN, runs(0.0, own)), result(HAKMEM, runs(3.0, hakmem))],
            again: Some(result(OWN, runs(6.0, own))),
        }
    }

    fn said(prices: Prices, workload: &Workload) -> String {
        let savings = Savings::of(&prices, workload).unwrap();
        let answer = Answer {
            prices,
            own_allocator: "glibc 2.36's malloc",
            worth: savings.worth(workload.rounds),
            savings,
            method: METHOD,
            workload,
            notes: &[],
        };
        say(&answer, Style { color: false, width: usize::MAX })
    }

    /// One vCPU and two GiB all the year: 8,760 hours of each.
    #[test]
    fn a_year_has_8760_hours() {
        let savings = Savings::of(&PRICES, &workload(&[(2.0, 4.0); 7], &[(1.0, 3.0); 7])).unwrap();
        let near = |number: f64, expected: f64| assert!((number - expected).abs() < 1e-6, "{number} {expected}");
        near(PRICES.of_vcpus(1.0), 0.04 * 8760.0);
        near(PRICES.of_bytes(f64::from(1 << 30) * 2.0), 2.0 * 0.006 * 8760.0);
        near(savings.cpu.own_a_year, 350.4);
        near(savings.cpu.saved_a_year, 175.2);
        near(savings.memory.own_a_year, 105.12);
        near(savings.memory.saved_a_year, 26.28);
        near(savings.both.saved_a_year, 175.2 + 26.28);
        near(savings.both.saved_low, savings.both.saved_high);
    }

    #[test]
    fn a_gain_is_worth_it_and_a_loss_is_said() {
        let own = [(2.0, 4.0); 7];
        let text = said(PRICES, &workload(&own, &[(1.0, 3.0); 7]));
        let sentence = "\nWorth it: HAKMEM does the same work for 44 % less, $201 of $456 a year [$201 to $201].\n";
        assert!(text.contains(sentence), "{text}");
        let text = said(PRICES, &workload(&own, &[(2.2, 4.4); 7]));
        let sentence = "\nNot worth it: HAKMEM does the same work for 10 % more, $45.55 on top of $456 a year.\n";
        assert!(text.contains(sentence) && text.contains("−10 % [−10 to −10]"), "{text}");
        let text = said(PRICES, &workload(&own, &[(1.99, 3.99); 7]));
        assert!(text.contains("\nHardly worth it: HAKMEM saves 0.4 %, $2.01 of $456 a year.\n"), "{text}");
    }

    /// HAKMEM's runs are nearer to the second of each round: what is said of the program's own has these, too.
    #[test]
    fn all_runs_of_its_own_are_said() {
        let mut measured = workload(&[(2.0, 4.0); 7], &[(3.0, 4.0); 7]);
        measured.again = Some(result(OWN, runs(4.0, &[(4.0, 4.0); 7])));
        let text = said(PRICES, &measured);
        assert!(text.contains("(2.00–4.00)") && text.contains("noise [25 to 25]"), "{text}");
    }

    /// Half of the rounds cost more, half less.
    #[test]
    fn an_interval_with_zero_is_noise() {
        let (own, noise) = ([(2.0, 4.0); 8], [(1.9, 4.0), (2.1, 4.0)].repeat(4));
        let text = said(PRICES, &workload(&own, &noise));
        let sentence = "Not worth it by these figures: what HAKMEM would save is within the noise, [−$17.52 to $17.52]";
        assert!(text.contains(sentence) && text.contains("noise [−5 to 5]"), "{text}");
    }

    /// The same program is worth it where memory is dear, and not where it is cheap.
    #[test]
    fn prices_decide() {
        let measured = workload(&[(2.0, 4.0); 7], &[(2.1, 3.0); 7]);
        let worth = |vcpu_hour, gib_hour| Savings::of(&Prices { vcpu_hour, gib_hour }, &measured).unwrap().worth(7);
        assert_eq!((worth(0.04, 0.006), worth(0.04, 0.0001), worth(0.0, 1.0)), {
            (Worth::Saves, Worth::Loses, Worth::Saves)
        });
        assert!(Prices { vcpu_hour: 0.0, gib_hour: 0.0 }.ensure().is_err());
        assert!(price("-1").is_err() && price("x").is_err() && price("inf").is_err());
        let text = said(Prices { vcpu_hour: 0.05, gib_hour: 0.006 }, &measured);
        assert!(text.contains(" Prices: $0.050 for a vCPU hour, $0.0060 for a GiB hour.\n"), "{text}");
    }

    #[test]
    fn few_rounds_have_no_verdict() {
        let text = said(PRICES, &workload(&[(2.0, 4.0); 4], &[(1.0, 3.0); 4]));
        assert!(text.contains("50 % [50 to 50]") && !text.contains("noise"), "{text}");
        assert!(text.contains("\nNo verdict: that takes 5 rounds.\n"), "{text}");
    }

    #[test]
    fn who_fails_is_said() {
        let failing = |own: &[&str], hakmem: &[&str]| {
            let mut one = workload(&[(2.0, 4.0)], &[(1.0, 3.0)]);
            for (result, failures) in one.results.iter_mut().zip([own, hakmem]) {
                result.failures = failures.iter().map(|text| text.to_string()).collect();
            }
            failure(&one)
        };
        let status = "warm-up: exit status 3 instead of 0: broken: yes";
        let of = |status: u8, text: &str| Some((status, format!("{text}: exit status 3 instead of 0: broken: yes")));
        assert_eq!(failing(&[], &[]), None);
        assert_eq!(failing(&[], &[status]), of(1, "fails under HAKMEM alone"));
        assert_eq!(failing(&[status], &[]), of(2, "fails without HAKMEM"));
        assert_eq!(failing(&[status], &[status]), of(2, "fails, with HAKMEM and without"));
    }

    /// If it passes, what is said of its memory is that of one or two looks.
    #[test]
    fn a_program_between_two_samples_is_refused() {
        let mut short = workload(&[(0.001, 0.001)], &[(0.001, 0.001)]);
        assert!(ensure_sampled(&short).is_ok());
        short.results[0].summary.as_mut().unwrap().wall_s.median = 0.0013;
        let said = ensure_sampled(&short).unwrap_err().to_string();
        assert_eq!(said, "program takes 1.3 ms, and its memory is looked at every 20 ms: give it its real work");
    }

    #[test]
    fn money_has_two_places_or_two_digits() {
        assert_eq!(
            [1234.5, 99.5, 0.06, 0.006, 0.0, -3.2, -1e-12].map(money),
            ["$1,235", "$99.50", "$0.060", "$0.0060", "$0.00", "−$3.20", "$0.000000000"]
        );
    }
}
