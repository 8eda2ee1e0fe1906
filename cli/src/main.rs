//! The `hakmem` command. `compare` and `report` are the crate hakmem-compare, what all commands share is hakmem-base.
//!
//! `explain`, `options`, `set`, `purge` and `doctor` read and steer a running program: heap/mod.rs. `map`, `view` and
//! `top` show it: picture.rs. `profile`, `flame` and `diff` tell which code holds it: profile.rs. `metrics` is for
//! Prometheus; `run` watches a program to its end: run.rs, over peak.rs.
// SPDX-License-Identifier: MIT

// They panic when nobody reads: print.rs does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod doctor;
mod explain;
mod heap;
mod http;
mod manual;
mod map;
mod metrics;
mod options;
mod peak;
mod picture;
mod profile;
mod purge;
mod run;
mod top;
mod view;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use hakmem_base::print;
use hakmem_compare::{compare, report};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "hakmem",
    version,
    about = "Says where the memory of programs is, and which allocator is best for them",
    after_help = "Exit status: 0 it is done; 1 doctor found a problem, purge was not honoured in time, or an allocator \
        failed in compare; 2 it cannot be done, or the options are wrong: one line on stderr says why. run and explain \
        -- PROGRAM: run's is PROGRAM's."
)]
struct Command {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run a program, or the workloads of a suite, under every allocator there is, and say which is best and how sure
    /// that is
    Compare(Box<compare::Options>),
    /// Run a program under HAKMEM, and say at its end what its memory was made of
    Run(run::Options),
    /// Heaps as Prometheus or OpenMetrics text, once or served at an address
    Metrics(metrics::Options),
    /// Completions for a shell
    Completions(manual::CompletionOptions),
    /// Manual pages
    Man(manual::ManOptions),
    /// Draw a report from the JSON that `compare --json` wrote
    Report(report::Options),
    /// Say where the memory of a running program is, and what would save some
    Explain(explain::Options),
    /// Check that HAKMEM is loaded and serves malloc, and what on this machine costs it speed or memory
    Doctor(doctor::Options),
    /// List HAKMEM's options: those of a running program, or of the library that would be preloaded
    Options(options::Options),
    /// Change an option of a running program
    Set(options::Set),
    /// Have a running program give back to the system what it does not use
    Purge(purge::Options),
    /// Draw the heap of a running process, slot by slot, in the terminal or as a page
    Map(map::Options),
    /// Serve the map of a running process as a page that follows it, on this machine only
    View(view::Options),
    /// Show on the terminal what a process's memory consists of, and what its heap does, as it runs
    Top(top::Options),
    /// Sample which code of a running program allocates what: start, stop, or write down what was sampled so far
    Profile(profile::ProfileOptions),
    /// Show a heap profile: as text, flame graph, page, or in the format of another tool
    Flame(profile::FlameOptions),
    /// Say what grew and what shrank between two heap profiles
    Diff(profile::DiffOptions),
}

/// What clap says of wrong options, without the usage.
fn one_line(text: &str) -> String {
    let paragraphs = text.trim_start_matches("error: ").split("\n\n");
    let wanted = paragraphs.filter(|one| !one.starts_with("Usage:") && !one.starts_with("For more information"));
    let lines: Vec<String> = wanted.map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    format!("{}; `--help` says more", lines.join("; "))
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(parsed) => parsed.command,
        Err(error) if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        Err(error) => {
            print::note(&format!("hakmem: {}", one_line(&error.render().to_string())));
            return ExitCode::from(2);
        }
    };
    let outcome = match command {
        Subcommands::Compare(options) => compare::command(&options),
        Subcommands::Run(options) => run::command(&options),
        Subcommands::Metrics(options) => metrics::command(options),
        Subcommands::Completions(options) => manual::completions(&options, Command::command()),
        Subcommands::Man(options) => manual::pages(&options, Command::command()),
        Subcommands::Report(options) => report::command(&options),
        Subcommands::Explain(options) => explain::command(&options),
        Subcommands::Doctor(options) => doctor::command(&options),
        Subcommands::Options(options) => options::command(&options),
        Subcommands::Set(options) => options::set(&options),
        Subcommands::Purge(options) => purge::command(&options),
        Subcommands::Map(options) => map::command(&options),
        Subcommands::View(options) => view::command(&options),
        Subcommands::Top(options) => top::command(&options),
        Subcommands::Profile(options) => profile::profile(&options),
        Subcommands::Flame(options) => profile::flame(&options),
        Subcommands::Diff(options) => profile::diff(&options),
    };
    outcome.unwrap_or_else(|error| {
        if error.chain().any(|cause| cause.is::<print::Closed>()) {
            print::end_by(libc::SIGPIPE);
        }
        print::note(&format!("hakmem: {error:#}"));
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_are_one_line() {
        let said = |words: &[&str]| {
            let error = Command::try_parse_from([&["hakmem"], words].concat()).err().unwrap();
            one_line(&error.render().to_string())
        };
        assert_eq!(said(&["purge"]), "the following required arguments were not provided: <PID>; `--help` says more");
        let pid = "invalid value 'x' for '<PID>': a PID is a number above 0; `--help` says more";
        assert_eq!((said(&["purge", "x"]).as_str(), said(&["top", "x"]).as_str()), (pid, pid));
        assert!(said(&["completions", "csh"]).contains("[possible values: bash,"), "{}", said(&["completions", "csh"]));
        assert!(said(&["purge", "-1"]).starts_with("unexpected argument '-1' found"));
        Command::command().debug_assert();
    }
}
