//! `hakmem save` as a user runs it: what runs under what, what is printed, who is blamed. No figure of a run decides
//! anything: the arithmetic has tests of its own (cli/compare/src/save.rs). HAKMEM_LIBRARY names libhakmem.so.

#[path = "heap/kit.rs"]
mod kit;

use kit::{library, Program};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Longer than the time between two samples.
const LONG_ENOUGH: &str = "sleep 0.05";

fn save(arguments: &[&str]) -> Output {
    save_in(&[], arguments)
}

fn save_in(environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.env_remove("LD_PRELOAD").args(["save", "--quiet"]).args(arguments);
    command.envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The one line of a command that failed.
fn refused(output: Output, status: i32) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), said.lines().count(), stdout.as_str()), (Some(status), 1, ""), "{said}");
    said
}

#[test]
fn a_program_runs_with_its_own_allocator_and_with_hakmem() {
    let Some(library) = library() else { return };
    let seen = tempfile::NamedTempFile::new().unwrap();
    let program = format!(r#"echo "$LD_PRELOAD" >>{}; {LONG_ENOUGH}"#, seen.path().display());
    let preloaded = [("LD_PRELOAD", "libm.so.6")];
    let answer = json(&save_in(&preloaded, &["--rounds", "1", "--json", "--", "sh", "-c", &program]));
    let seen = std::fs::read_to_string(seen.path()).unwrap();
    let count = |preload: &str| seen.lines().filter(|line| *line == preload).count();
    let both = format!("{}:libm.so.6", library.display());
    assert_eq!((count("libm.so.6"), count(&both), seen.lines().count()), (3, 2, 5), "{seen}");
    assert_eq!((&answer["worth"], &answer["prices"]["vcpu_hour"]), (&"unknown".into(), &0.04.into()));
    for part in ["cpu", "memory", "both"] {
        assert!(answer[part]["own_a_year"].as_f64().unwrap() > 0.0, "{answer}");
    }
    assert_eq!(answer["workload"]["results"][1]["allocator"], "hakmem");
}

#[test]
fn a_table_and_one_sentence_are_printed() {
    if library().is_none() {
        return;
    }
    let prices = ["--vcpu-hour", "0.03", "--gib-hour", "0.004"];
    let output = save(&[&prices[..], &["--rounds", "1", "--", "sh", "-c", LONG_ENOUGH]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("sh -c sleep 0.05: its own allocator, "), "{text}");
    let has_row =
        |row: &str| text.lines().any(|line| line.starts_with(row) && line.contains(" [") && line.contains('$'));
    assert!(["CPU time", "memory", "both"].into_iter().all(has_row), "{text}");
    assert!(text.contains("\nNo verdict: that takes 5 rounds.\n"), "{text}");
    assert!(text.contains("Prices: $0.030 for a vCPU hour, $0.0040 for a GiB hour."), "{text}");
}

/// If it fails, a program that HAKMEM breaks looks like one that saves.
#[test]
fn who_fails_is_said_in_one_line() {
    let Some(library) = library() else { return };
    let missing = refused(save(&["--", "no-such-program"]), 2);
    assert_eq!(missing, "hakmem: no-such-program: no such program\n");
    let broken = refused(save(&["--", "sh", "-c", "echo broken >&2; exit 3"]), 2);
    assert_eq!(broken, "hakmem: sh fails, with HAKMEM and without: exit status 3 instead of 0: broken\n");
    let only = r#"case "$LD_PRELOAD" in *hakmem*) exit 4 ;; esac"#;
    let only = refused(save(&["--", "sh", "-c", only]), 1);
    assert_eq!(only, "hakmem: sh fails under HAKMEM alone: exit status 4 instead of 0\n");
    let already = save_in(&[("LD_PRELOAD", library.to_str().unwrap())], &["--rounds", "1", "--", "sleep", "0.05"]);
    let already = refused(already, 2);
    assert_eq!(already, "hakmem: sleep 0.05 runs HAKMEM already: run it without, or take it out of LD_PRELOAD\n");
}

#[test]
fn wrong_options_are_one_line() {
    let refused = |arguments: &[&str]| refused(save(arguments), 2);
    let nothing = "hakmem: name a process (PID or NAME), or a program (-- PROGRAM ARGS…); `--help` says more\n";
    assert_eq!(refused(&[]), nothing);
    assert!(refused(&["--vcpu-hour", "-1", "--", "true"]).contains("a price is 0 or more"));
    let none = refused(&["--vcpu-hour", "0", "--gib-hour", "0", "--", "true"]);
    assert!(none.contains("one of --vcpu-hour and --gib-hour must be above 0"), "{none}");
    assert!(refused(&["1", "--", "true"]).contains("cannot be used with"));
    assert!(refused(&["no-such-name"]).contains("no process is named"));
}

#[test]
fn a_process_has_a_cost_and_a_bound() {
    let mut cat = Program::start(&mut Command::new("cat"));
    cat.tell("done"); // it has started
    let answer = kit::json(&["save", "--json", &cat.pid()]);
    let number = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
    assert_eq!((answer["pid"].to_string(), &answer["hakmem"]), (cat.pid(), &Value::Null));
    assert_eq!(answer["allocator"], "glibc's malloc");
    assert!(number("memory_saved_at_most") <= number("memory_a_year") && number("memory_a_year") > 0.0, "{answer}");
    let text = kit::text(&["save", &cat.pid()]);
    assert!(text.contains("can't be seen from outside") && text.contains("`hakmem save -- PROGRAM ARGS…`"), "{text}");
}

#[test]
fn a_process_with_hakmem_says_what_it_holds() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("blocks 1 1000 100");
    let answer = kit::json(&["save", "--json", &program.pid()]);
    assert!(answer["hakmem"]["live"].as_i64().unwrap() > 0, "{answer}");
    assert_eq!(answer["memory_saved_at_most"], Value::Null);
    let text = kit::text(&["save", &program.pid()]);
    assert!(text.contains("It runs HAKMEM already. `hakmem explain "), "{text}");
}
