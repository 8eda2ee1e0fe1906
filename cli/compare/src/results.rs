//! What a comparison found, as it is written to and read from JSON.
//!
//! One document holds everything a report shows: the machine, the allocators, and per workload each run and what the
//! statistics made of the runs. Reports are drawn from this alone, so a number in a report is a number in the JSON.
//! Times are in seconds, memory in bytes, unless a name says otherwise.
// SPDX-License-Identifier: MIT

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Raised when a reader of older documents would misunderstand a newer one.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    pub format: u32,
    /// Name of the suite, or the command line that was compared.
    pub title: String,
    /// UTC, ISO 8601.
    pub started: String,
    pub duration_s: f64,
    pub machine: Machine,
    /// The allocator that all ratios are taken to.
    pub baseline: String,
    /// In the order of tables. The baseline is among them.
    pub allocators: Vec<Allocator>,
    /// Allocators that were asked for or looked for, and why they are not measured.
    pub missing: Vec<Missing>,
    /// Workloads that were asked for but not measured, e.g. because a program they need is not installed.
    #[serde(default)]
    pub missing_workloads: Vec<Missing>,
    /// What a reader must know beside the numbers, a sentence each, e.g. "stopped after 3 of 7 rounds (--max-time)".
    #[serde(default)]
    pub notes: Vec<String>,
    pub workloads: Vec<Workload>,
    /// Geometric means over the workloads, one entry per allocator and group ("" is all of them).
    pub standing: Vec<Standing>,
    /// The baseline's standing against itself (`Workload::again`), one entry per group: what a standing can resolve.
    #[serde(default)]
    pub standing_again: Vec<Standing>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    pub kernel: String,
    pub memory_bytes: u64,
    /// /sys/kernel/mm/transparent_hugepage/enabled, the word in brackets.
    pub huge_pages: String,
    /// The load average over the last minute before the first run.
    pub load: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Allocator {
    pub name: String,
    /// As the package says; "" if unknown.
    pub version: String,
    /// Preloaded, in order. Empty: the system's own.
    pub libraries: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// From the peers file: "fast", "hardened", "old".
    #[serde(default)]
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Missing {
    pub name: String,
    pub reason: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workload {
    pub name: String,
    pub group: String,
    pub tags: Vec<String>,
    pub command: Vec<String>,
    /// Memory is that of the program itself, or the PSS summed over all processes it starts.
    #[serde(default)]
    pub processes: Processes,
    /// What the program prints of its own speed; None: its wall time is compared.
    pub metric: Option<Metric>,
    /// This workload is one point of a scaling curve.
    pub curve: Option<Curve>,
    /// Complete rounds.
    pub rounds: usize,
    /// One per allocator, in the order of `Comparison::allocators`.
    pub results: Vec<WorkloadResult>,
    /// The baseline a second time: its ratio to itself is what this machine could resolve.
    pub again: Option<WorkloadResult>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Processes {
    #[default]
    Main,
    All,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metric {
    /// E.g. "ops/s". More is better.
    pub name: String,
    pub pattern: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    pub name: String,
    pub x: f64,
    /// E.g. "threads".
    pub unit: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkloadResult {
    pub allocator: String,
    /// Runs that count, in the order they were made.
    pub runs: Vec<Run>,
    /// Runs that do not count, each with the reason, e.g. "round 3: ended by signal 11 (SIGSEGV)".
    pub failures: Vec<String>,
    /// None without a run that counts.
    pub summary: Option<Summary>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub round: usize,
    /// Seconds since the first run of the comparison started.
    pub started_s: f64,
    pub wall_s: f64,
    pub cpu_s: f64,
    /// The program's own: VmHWM, or for a program of several processes the highest sampled sum of their PSS.
    pub peak_rss_bytes: u64,
    /// Averaged over the run's time, from samples.
    pub average_rss_bytes: u64,
    pub minor_faults: u64,
    /// What `Metric` matched.
    pub metric: Option<f64>,
    /// Further numbers, less is better: those that the program prints, by the names the suite gives them, and what
    /// --tax measures.
    pub values: BTreeMap<String, f64>,
    /// (seconds since the start, bytes), at most 200 points.
    pub rss_over_time: Vec<(f64, u64)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Time: 1 / metric where there is one, else wall_s. These are the medians of what was measured.
    pub wall_s: Spread,
    pub cpu_s: Spread,
    pub peak_rss_bytes: Spread,
    pub average_rss_bytes: Spread,
    pub minor_faults: Spread,
    pub metric: Option<Spread>,
    pub values: BTreeMap<String, Spread>,
    /// To the baseline; below 1 is better in all of them (time is wall time, or its inverse metric).
    /// None for the baseline itself (but present for `Workload::again`).
    pub ratios: Option<Ratios>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ratios {
    pub time: Ratio,
    pub cpu: Ratio,
    pub peak_rss: Ratio,
    pub average_rss: Ratio,
    pub minor_faults: Ratio,
    pub values: BTreeMap<String, Ratio>,
}

/// A median of ratios with its 95 % interval (bootstrap).
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Below 1, beyond what the machine can resolve.
    Better,
    /// The interval holds 1, or lies within the resolution.
    Same,
    Worse,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Standing {
    pub allocator: String,
    pub group: String,
    /// How many workloads both this allocator and the baseline finished.
    pub workloads: usize,
    pub time: Ratio,
    pub peak_rss: Ratio,
    pub average_rss: Ratio,
    /// The ratios of the further numbers that all these workloads have.
    #[serde(default)]
    pub values: BTreeMap<String, Ratio>,
}
