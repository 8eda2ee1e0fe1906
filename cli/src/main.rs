//! The `hakmem` command: `compare` measures a program under several allocators, `report` draws what was measured.
//!
//! `compare` goes: options (compare.rs) → allocators (allocator.rs, elf.rs) and workloads (suite.rs) → runs in
//! interleaved rounds (measure.rs), each started and watched by launch.rs and proc.rs → medians, ratios and verdicts
//! (statistics.rs) → one `results::Comparison`, which table.rs prints and report.rs draws.

mod allocator;
mod compare;
mod elf;
mod launch;
mod machine;
mod manual;
mod measure;
mod metrics;
mod output;
mod proc;
mod progress;
mod report;
mod results;
mod signals;
mod statistics;
mod suite;
mod table;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "hakmem", version, about = "Compares memory allocators on the programs you run")]
struct Command {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run a program, or the workloads of a suite, under every allocator there is, and say which is best and how sure
    /// that is
    Compare(Box<compare::Options>),
    /// Heaps as Prometheus or OpenMetrics text, once or served at an address
    Metrics(metrics::Options),
    /// Completions for a shell
    Completions(manual::CompletionOptions),
    /// Manual pages
    Man(manual::ManOptions),
    /// Draw a report from the JSON that `compare --json` wrote
    Report(report::Options),
}

fn main() -> ExitCode {
    let outcome = match Command::parse().command {
        Subcommands::Compare(options) => compare::command(&options),
        Subcommands::Metrics(options) => metrics::command(&options),
        Subcommands::Completions(options) => manual::completions(&options, Command::command()),
        Subcommands::Man(options) => manual::pages(&options, Command::command()),
        Subcommands::Report(options) => report::command(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("hakmem: {error:#}");
        ExitCode::from(2)
    })
}
