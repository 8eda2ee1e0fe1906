//! `hakmem tune` as a user runs it, on programs whose speed depends on their settings alone. HAKMEM_LIBRARY names
//! libhakmem.so.

#[path = "heap/kit.rs"]
mod kit;

use kit::library;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Says how fast it is: ten times as fast with one option, twice as fast with another.
const PROGRAM: &str = r#"
speed=100
case $HAKMEM_PURGE in lazy) speed=$((speed * 10)) ;; eager) speed=$((speed / 2)) ;; esac
case $HAKMEM_POPULATE in 1) speed=$((speed * 2)) ;; esac
echo "speed $speed"
"#;

fn tune(arguments: &[&str], program: &str) -> Output {
    tune_in(&[], arguments, program)
}

fn tune_in(environment: &[(&str, &str)], arguments: &[&str], program: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(["tune", "--metric", r"speed (\d+)", "--quiet"]).args(arguments).args(["--", "sh", "-c", program]);
    command.envs(environment.iter().copied()).stdin(Stdio::null()).env_remove("LD_PRELOAD").output().unwrap()
}

fn json(arguments: &[&str], program: &str) -> Value {
    let output = tune(&[arguments, &["--json"]].concat(), program);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn settings_that_gain_are_found_and_put_together() {
    if library().is_none() {
        return;
    }
    let answer = json(&["--goal", "time", "--rounds", "6"], PROGRAM);
    assert_eq!(answer["best"], serde_json::json!({"PURGE": "lazy", "POPULATE": "1"}));
    assert_eq!(answer["time"]["median"].as_f64().map(|ratio| (ratio * 100.0).round()), Some(5.0));
    let output = tune(&["--goal", "time", "--rounds", "6"], PROGRAM);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("HAKMEM_PURGE=lazy HAKMEM_POPULATE=1 sh -c '\nspeed=100"), "{text}");
}

#[test]
fn the_default_may_be_best() {
    if library().is_none() {
        return;
    }
    assert_eq!(json(&["--goal", "time", "--rounds", "5"], "echo speed 100")["best"], Value::Null);
    let slower = r#"[ -z "$(env | grep '^HAKMEM_[A-Z_]*=' | grep -v LIBRARY)" ] && echo speed 100 || echo speed 50"#;
    let output = tune(&["--goal", "time", "--rounds", "5"], slower);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nThe default is best: no setting lowers time beyond the noise.\n"), "{text}");
}

/// Else what was found can't be kept, or the file does something else.
#[test]
fn what_gains_becomes_a_policy_file() {
    let Some(library) = library() else { return };
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (place.path().join("old.policy"), place.path().join("new.policy"));
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    std::fs::write(old, "hakmem policy 1\nset ring_spills=5\n").unwrap();
    let program = r#"
speed=100
case $HAKMEM_TUNE in *carve_bytes=16k*) speed=$((speed * 10)) ;; esac
case $HAKMEM_RING_BYTES in 32m) speed=$((speed * 2)) ;; esac
case $HAKMEM_HUGE_PAGES in always) speed=$((speed * 4)) ;; esac
echo "speed $speed"
"#;
    let arguments = ["--goal", "time", "--rounds", "6", "--policy", new];
    let environment = [("HAKMEM_POLICY", old), ("HAKMEM_TUNE", "shrunk_slots=9")];
    let text = String::from_utf8(tune_in(&environment, &arguments, program).stdout).unwrap();
    let variables = "HAKMEM_HUGE_PAGES=always HAKMEM_RING_BYTES=32m HAKMEM_TUNE='shrunk_slots=9,carve_bytes=16k' sh -c";
    assert!(text.contains(variables), "{text}");
    let with_file = format!("\nor, with the policy file:\nHAKMEM_HUGE_PAGES=always HAKMEM_POLICY={new} sh -c ");
    assert!(text.contains(&with_file), "{text}");
    let written = std::fs::read_to_string(new).unwrap();
    let lines: Vec<&str> = written.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[..2], ["hakmem policy 1", "set ring_spills=5"], "{written}");
    let mut found = lines[2..].to_vec();
    found.sort();
    assert_eq!(found, ["set RING_BYTES=32m", "set carve_bytes=16k"], "{written}");
    assert!(
        written.contains("# Tuned for sh: ") && written.contains("with HAKMEM_HUGE_PAGES=always, which"),
        "{written}"
    );
    let started = Command::new("true").env("LD_PRELOAD", &library).env("HAKMEM_POLICY", new).output().unwrap();
    assert_eq!(String::from_utf8(started.stderr).unwrap(), "", "{written}");
    let mut options = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    let options = options.args(["options", "--json"]).env("HAKMEM_POLICY", new).output().unwrap();
    let options: Value = serde_json::from_slice(&options.stdout).unwrap();
    let value =
        |name: &str| options.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()["value"].clone();
    assert_eq!(
        (value("RING_BYTES"), value("carve_bytes"), value("ring_spills")),
        ("32 MiB".into(), "16384".into(), "5".into())
    );
    let refused = String::from_utf8(tune(&arguments, program).stderr).unwrap();
    assert_eq!(refused, format!("hakmem: {new} exists; --force replaces it\n"));
    let again = tune(&["--goal", "time", "--rounds", "5", "--policy", new, "--force"], "echo speed 100").stdout;
    assert!(String::from_utf8(again).unwrap().ends_with(&format!(" noise. {new} was not written.\n")));
    assert_eq!(std::fs::read_to_string(new).unwrap(), written);
}

#[test]
fn without_enough_rounds_there_is_no_verdict() {
    if library().is_none() {
        return;
    }
    let output = tune(&["--goal", "time", "--rounds", "2"], PROGRAM);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nNo verdict: that takes 5 rounds in the final.\n"), "{text}");
}

/// If it fails, a table of settings that only says how long a program takes to start looks like an answer.
#[test]
fn a_program_that_does_nothing_has_nothing_to_tune() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    let output = command.args(["tune", "--quiet", "--", "true"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{said}");
    assert!(said.starts_with("hakmem: true takes ") && said.contains("nothing to tune"), "{said}");
}

#[test]
fn a_program_that_fails_is_named_in_one_line() {
    if library().is_none() {
        return;
    }
    let output = tune(&[], "echo broken >&2; exit 3");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("hakmem: ") && errors.contains("status 3") && errors.lines().count() == 1, "{errors}");
}

/// What is searched, the library takes: else a line on stderr says what is wrong.
#[test]
fn the_library_knows_every_setting() {
    if library().is_none() {
        return;
    }
    let seen = tempfile::NamedTempFile::new().unwrap();
    let program = format!(
        r#"setting=$(env | grep '^HAKMEM_[A-Z_]*=' | grep -v LIBRARY); [ -z "$setting" ] || echo "$setting" >>{0}
        error=$(cat /dev/null 2>&1); [ -z "$error" ] || echo "$error" >>{0}; echo speed 1"#,
        seen.path().display()
    );
    tune(&["--rounds", "1"], &program);
    let seen = std::fs::read_to_string(seen.path()).unwrap();
    assert!(seen.lines().all(|line| line.starts_with("HAKMEM_") && line.contains('=')), "{seen}");
    let is_seen = |setting: &str| seen.lines().any(|line| line == setting);
    assert!(is_seen("HAKMEM_PURGE=never") && is_seen("HAKMEM_TUNE=large_ring_percent=100"), "{seen}");
}
