//! The `hakmem` command. `compare`, `tune`, `save` and `report` are the crate hakmem-compare; what all commands share
//! is hakmem-base.
//!
//! `explain`, `options`, `set`, `purge` and `doctor` read and steer a running program: heap/mod.rs. `map`, `view` and
//! `top` show it: picture.rs. `what` says what the blocks are: contents.rs. `profile`, `flame`, `diff`, `leak` and
//! `cold` tell which code holds it: profile.rs, with names by symbols.rs. `metrics` and `serve` are for Prometheus and
//! others that scrape; `run` watches a program to its end: run.rs, over peak.rs.
// SPDX-License-Identifier: MIT

// They panic when nobody reads: print.rs does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod budget;
mod contents;
mod doctor;
mod explain;
mod heap;
mod http;
mod manual;
mod map;
mod metrics;
mod migrate;
mod options;
mod peak;
mod picture;
mod profile;
mod purge;
mod push;
mod run;
mod save;
mod serve;
mod symbols;
mod token;
mod top;
mod view;
mod what;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use hakmem_base::print;
use hakmem_compare::{compare, report, tune};
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "hakmem",
    version,
    about = "Shows where a program's memory is, and which allocator suits the program best",
    after_help = "Exit status: 0 success; 1 doctor found a problem, purge was not honoured in time, an allocator \
        failed in compare, or HAKMEM in save; 2 failure or wrong options, with a line on stderr that says why. run \
        ends with the status of PROGRAM."
)]
struct Command {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run a program or a suite of workloads under every allocator found, and say which is best and how certain that is
    Compare(Box<compare::Options>),
    /// Search the options and tunables under which a program is faster or smaller, and say how certain that is
    Tune(tune::Options),
    /// Run a program with its own allocator and with HAKMEM, and say what HAKMEM would save in money a year
    Save(save::Options),
    /// Run a program under HAKMEM, and sum up its memory when it ends
    Run(run::Options),
    /// Print heaps as Prometheus or OpenMetrics text, or serve them at an address
    Metrics(metrics::Options),
    /// Serve metrics, heap profiles and explanations to Prometheus, Pyroscope and Parca
    Serve(serve::Options),
    /// Print completions for a shell
    Completions(manual::CompletionOptions),
    /// Show the manual page, or write one for each command
    Man(manual::ManOptions),
    /// Draw a report from the JSON that `compare --json` wrote
    Report(report::Options),
    /// Say where the memory of a running program is, and what would save memory
    Explain(explain::Options),
    /// Check that HAKMEM is loaded and serves malloc, and find what costs speed or memory on this machine
    Doctor(doctor::Options),
    /// List HAKMEM's options: those of a running program, or of the library that would be preloaded
    Options(options::Options),
    /// Translate the settings of jemalloc, mimalloc and tcmalloc into HAKMEM's options
    Migrate(migrate::Options),
    /// Change an option of a running program
    Set(options::Set),
    /// Make a running program give unused memory back to the system
    Purge(purge::Options),
    /// Draw the heap of a running process slot by slot, in the terminal or as a web page
    Map(map::Options),
    /// Serve a web page that shows the heap of a running process live, to this machine only
    View(view::Options),
    /// Watch the memory of a running process and the activity of its heap in the terminal
    Top(top::Options),
    /// Sample the allocations of a running program: start, stop, or write the profile so far
    Profile(profile::ProfileOptions),
    /// Show a heap profile as text, flame graph or web page, or convert it for another tool
    Flame(profile::FlameOptions),
    /// Show what grew and what shrank between two heap profiles
    Diff(profile::DiffOptions),
    /// Watch a running program for a while, and say which lines of code let it grow and how fast
    Leak(profile::LeakOptions),
    /// Watch a running program, and say which lines of code hold memory that it does not use, and how that compresses
    Cold(profile::ColdOptions),
    /// Say what the live blocks are by their contents: classes, texts, nodes; also those from before anybody looked
    What(what::Options),
    /// Run a program or watch one, and write a policy file: the call sites whose blocks live long, and settings that
    /// gain
    Learn(profile::LearnOptions),
    /// Add functions, files and lines to a report of HAKMEM, or to any text with places like /PATH+0x1234
    Symbolize(profile::SymbolizeOptions),
}

/// The commands by the question that they answer.
const QUESTIONS: [(&str, &[&str]); 6] = [
    ("Where is the memory?", &["explain", "map", "view", "top", "run", "metrics", "serve"]),
    ("Who holds it?", &["profile", "flame", "diff", "leak", "cold", "what", "symbolize"]),
    ("What is wrong?", &["doctor"]),
    ("What would be better?", &["compare", "report", "tune", "save", "learn"]),
    ("Settings", &["options", "set", "purge", "migrate"]),
    ("This command", &["man", "completions", "help"]),
];

/// The help that `hakmem --help` prints: commands below their questions, which clap knows only as one list.
fn with_questions(mut command: clap::Command) -> clap::Command {
    command.build();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_string();
    for (question, names) in QUESTIONS {
        let known = names.iter().filter_map(|name| command.find_subcommand(name).cloned());
        let mut some = clap::Command::new("").disable_help_subcommand(true).help_template("{subcommands}");
        some = some.subcommands(known);
        text += &format!("{question}\n{}\n", some.render_help());
    }
    command.help_template(text + "Options:\n{options}{after-help}")
}

/// Parses the words that the command was given; the first is its name.
fn parsed(words: Vec<OsString>) -> Result<Command, clap::Error> {
    let asks = words.get(1).is_none_or(|first| first == "-h" || first == "--help" || first == "help");
    let command = Command::command();
    let command = if asks { with_questions(command) } else { command };
    Command::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// What clap says of wrong options, without the usage.
fn one_line(text: &str) -> String {
    let paragraphs = text.trim_start_matches("error: ").split("\n\n");
    let wanted = paragraphs.filter(|one| !one.starts_with("Usage:") && !one.starts_with("For more information"));
    let lines: Vec<String> = wanted.map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    format!("{}; `--help` says more", lines.join("; "))
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == symbols::CHILD) {
        symbols::run_child();
        return ExitCode::SUCCESS;
    }
    let command = match parsed(std::env::args_os().collect()) {
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
        Subcommands::Tune(options) => tune::command(&options),
        Subcommands::Save(options) => save::command(&options),
        Subcommands::Run(options) => run::command(&options),
        Subcommands::Metrics(options) => metrics::command(options),
        Subcommands::Serve(options) => serve::command(&options),
        Subcommands::Completions(options) => manual::completions(&options, Command::command()),
        Subcommands::Man(options) => manual::pages(&options, Command::command()),
        Subcommands::Report(options) => report::command(&options),
        Subcommands::Explain(options) => explain::command(&options),
        Subcommands::Doctor(options) => doctor::command(&options),
        Subcommands::Options(options) => options::command(&options),
        Subcommands::Migrate(options) => migrate::command(&options),
        Subcommands::Set(options) => options::set(&options),
        Subcommands::Purge(options) => purge::command(&options),
        Subcommands::Map(options) => map::command(&options),
        Subcommands::View(options) => view::command(&options),
        Subcommands::Top(options) => top::command(&options),
        Subcommands::Profile(options) => profile::profile(&options),
        Subcommands::Flame(options) => profile::flame(&options),
        Subcommands::Diff(options) => profile::diff(&options),
        Subcommands::Leak(options) => profile::leak(&options),
        Subcommands::Cold(options) => profile::cold(&options),
        Subcommands::What(options) => what::command(&options),
        Subcommands::Learn(options) => profile::learn(&options),
        Subcommands::Symbolize(options) => profile::symbolize(&options),
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

    /// A command that answers no question is in no help.
    #[test]
    fn every_command_is_in_the_help() {
        let mut command = Command::command();
        command.build();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let mut named: Vec<&str> = QUESTIONS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        all.sort();
        named.sort();
        assert_eq!(named, all);
        for words in [&["hakmem"][..], &["hakmem", "--help"], &["hakmem", "-h"], &["hakmem", "help"]] {
            let help = parsed(words.iter().map(OsString::from).collect()).err().unwrap().render().to_string();
            assert!(help.contains("\nWho holds it?\n  profile "), "{help}");
            assert!(help.contains("\nThis command\n") && help.contains("\nExit status: 0 success"), "{help}");
        }
    }

    #[test]
    fn wrong_options_are_one_line() {
        let said = |words: &[&str]| {
            let error = Command::try_parse_from([&["hakmem"], words].concat()).err().unwrap();
            one_line(&error.render().to_string())
        };
        assert_eq!(
            said(&["purge"]),
            "the following required arguments were not provided: <PID|NAME>; `--help` says more"
        );
        let pid = "0 is no PID: a PID is a number above 0; `--help` says more";
        assert_eq!((said(&["purge", "0"]).as_str(), said(&["top", "0"]).as_str()), (pid, pid));
        assert!(said(&["completions", "csh"]).contains("[possible values: bash,"), "{}", said(&["completions", "csh"]));
        assert_eq!(said(&["purge", "-1"]), pid.replacen('0', "-1", 1));
        let above = "invalid value '-1s' for '--for <DURATION>': a duration is above 0; `--help` says more";
        assert_eq!(
            (said(&["leak", "--for", "-1s", "1"]).as_str(), said(&["learn", "--for", "-1s"]).as_str()),
            (above, above)
        );
        Command::command().debug_assert();
    }
}
