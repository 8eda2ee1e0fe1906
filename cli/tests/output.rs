//! What every command owes those who read its output: a closed pipe ends it in silence, and a file named `-` is stdout.

#[path = "heap/kit.rs"]
mod kit;

use kit::*;
use std::fs::{self, File};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A pipe's end to write to, whose other end is closed.
fn closed_pipe() -> OwnedFd {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    let [_reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    writer
}

fn command(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(arguments).current_dir(directory).env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// What `compare --json` writes of something that takes no time.
fn result_file(directory: &Path) {
    let arguments = ["compare", "--quiet", "--rounds", "1", "--only", "system", "--json", "result.json", "--", "true"];
    let output = command(&arguments, directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A process with a profile, and a directory with the files that commands read.
fn material() -> Option<(Program, tempfile::TempDir)> {
    let library = library()?;
    let mut program = Program::known(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "4096")]);
    program.tell("blocks 1 20000 400");
    let directory = tempfile::tempdir().unwrap();
    result_file(directory.path());
    Some((program, directory))
}

/// Every command that prints, with what it needs.
fn printing<'a>(pid: &'a str, library: &'a str) -> Vec<Vec<&'a str>> {
    vec![
        vec!["explain", pid],
        vec!["explain", pid, "--json"],
        vec!["explain", "--hakmem", library, "--", "true"],
        vec!["options", pid],
        vec!["options", "--hakmem", library, "--json"],
        vec!["set", pid, "DECAY_MS=500"],
        vec!["purge", pid],
        vec!["purge", pid, "--json"],
        vec!["doctor", pid],
        vec!["doctor", "--hakmem", library, "--json"],
        vec!["map", pid],
        vec!["map", pid, "--json"],
        vec!["map", pid, "--html", "-"],
        vec!["view", pid],
        vec!["top", pid, "--once", "--interval", "0.1"],
        vec!["profile", "dump", pid, "-o", "-"],
        vec!["flame", pid],
        vec!["flame", pid, "--json"],
        vec!["flame", pid, "-o", "-", "--format", "svg"],
        vec!["diff", pid, pid],
        vec!["leak", pid, "--for", "1s"],
        vec!["cold", pid, "--for", "1s"],
        vec!["metrics", pid],
        vec!["metrics", pid, "--listen", "127.0.0.1:0"],
        vec!["metrics", "--dashboard"],
        vec!["completions", "bash"],
        vec!["man"],
        vec!["compare", "--list"],
        vec!["compare", "--rounds", "1", "--only", "system", "--", "true"],
        vec!["compare", "--rounds", "1", "--only", "system", "--json", "-", "--", "true"],
        vec!["report", "result.json", "--html", "-"],
        vec!["run", "--hakmem", library, "--report", "-", "--", "true"],
    ]
}

/// Else `hakmem … | head` ends with a panic, or goes on for nobody.
#[test]
fn a_closed_pipe_ends_every_command_in_silence() {
    let Some((program, directory)) = material() else { return };
    let (pid, library) = (program.pid(), library().unwrap().display().to_string());
    for arguments in printing(&pid, &library) {
        let output = command(&arguments, directory.path()).stdout(closed_pipe()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{arguments:?}: {:?} {said}", output.status);
        // The summary of `run` is for stderr, so is what `cold` and, on a busy machine, `purge` wait for, and so are
        // the tables that stand beside `--json -`.
        let beside = ["run", "purge", "cold"].contains(&arguments[0])
            || arguments.contains(&"--json") && arguments[0] == "compare";
        assert!(beside || said.is_empty(), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

/// Else what could not be told becomes another failure.
#[test]
fn a_closed_stderr_changes_nothing() {
    let Some((program, directory)) = material() else { return };
    let (pid, library) = (program.pid(), library().unwrap().display().to_string());
    for (arguments, code) in [
        (vec!["explain", "2147483647"], 2),
        (vec!["run", "--hakmem", &library, "--", "true"], 0),
        (vec!["run", "--hakmem", &library, "--json", "--", "false"], 1),
        (vec!["profile", "start", &pid], 0),
        (vec!["compare", "--rounds", "1", "--only", "system", "--json", "-", "--", "true"], 0),
        (vec!["no-such-command"], 2),
    ] {
        let status = command(&arguments, directory.path()).stdout(Stdio::null()).stderr(closed_pipe()).status();
        assert_eq!(status.unwrap().code(), Some(code), "{arguments:?}");
    }
}

/// Else a full disk looks like success.
#[test]
fn output_that_cannot_be_written_is_reported() {
    for arguments in [vec!["completions", "bash"], vec!["metrics", "--dashboard"], vec!["man"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(&arguments, directory()).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains("cannot write to stdout: No space left"), "{said}");
    }
}

fn stdout_of(arguments: &[&str], directory: &Path) -> Output {
    let output = command(arguments, directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Else a file named "-" is written, and the pipe behind gets tables or nothing.
#[test]
fn a_file_named_dash_is_stdout() {
    let Some((program, directory)) = material() else { return };
    let (pid, library) = (program.pid(), library().unwrap().display().to_string());
    let measure = |option| vec!["compare", "--rounds", "1", "--only", "system", option, "-", "--", "true"];
    let begins: [(Vec<&str>, &[u8]); 11] = [
        (measure("--json"), b"{"),
        (measure("--html"), b"<!doctype html>"),
        (vec!["report", "result.json", "--html", "-"], b"<!doctype html>"),
        (vec!["report", "result.json", "--markdown", "-", "--plots", "plots"], b"#"),
        (vec!["map", &pid, "--html", "-"], b"<!doctype html>"),
        (vec!["flame", &pid, "-o", "-"], b""),
        (vec!["flame", &pid, "-o", "-", "--format", "svg"], b"<?xml"),
        (vec!["diff", &pid, &pid, "-o", "-", "--format", "html"], b"<!doctype html>"),
        (vec!["profile", "dump", &pid, "-o", "-"], &[0x1f, 0x8b]),
        (vec!["run", "--hakmem", &library, "--report", "-", "--", "echo", "said"], b"<!doctype html>"),
        (vec!["man", "--out", "-"], b".ie"),
    ];
    for (arguments, begin) in begins {
        let output = stdout_of(&arguments, directory.path());
        let start = String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(60)]).to_lowercase();
        let begins = output.stdout.to_ascii_lowercase().starts_with(begin);
        assert!(begins && !output.stdout.is_empty(), "{arguments:?}: {start}");
        assert!(!directory.path().join("-").exists(), "{arguments:?} wrote a file named -");
    }
    let json = stdout_of(&measure("--json"), directory.path());
    assert!(serde_json::from_slice::<serde_json::Value>(&json.stdout).is_ok(), "nothing else is on stdout");
    assert!(!json.stderr.is_empty(), "the table is on stderr");
    fs::write(directory.path().join("again.json"), json.stdout).unwrap();
    stdout_of(&["report", "again.json", "--html", "page.html"], directory.path());
    for arguments in [
        vec!["compare", "--json", "-", "--html", "-", "--", "true"],
        vec!["map", &pid, "--json", "--html", "-"],
        vec!["flame", &pid, "-o", "-", "-o", "-"],
        vec!["report", "x.json", "--html", "-", "--markdown", "-", "--plots", "plots"],
    ] {
        assert!(refusal(&arguments).contains("two outputs cannot share stdout"), "{arguments:?}");
    }
}

/// Else a user guesses what is wrong: every refusal is one line that begins with the command's name, status 2, and
/// nothing is done by halves.
#[test]
fn every_refusal_is_one_line() {
    let Some((program, directory)) = material() else { return };
    let (pid, library) = (program.pid(), library().unwrap().display().to_string());
    let mut other = Program::start(&mut Command::new("cat"));
    other.ask("done", "done");
    let mut refusals: Vec<(Vec<&str>, &str)> = Vec::new();
    let other = other.pid();
    for command in [vec!["explain"], vec!["purge"], vec!["view"], vec!["top"], vec!["metrics"], vec!["profile", "stop"]]
    {
        for (who, why) in [
            ("no-such-name", "no process is named no-such-name"),
            ("0", "a PID is a number above 0"),
            ("99999999999", "a PID is a number above 0"),
            ("2147483647", "no process 2147483647"),
            (&other, "does not run HAKMEM: its malloc is glibc's"),
        ] {
            refusals.push(([command.clone(), vec![who]].concat(), why));
        }
    }
    let result = directory.path().join("none/result.json").display().to_string();
    refusals.extend([
        (vec!["map", "nofile"], "no process is named nofile, and there is no such file"),
        (vec!["set", &pid, "PURGE=eager", "DECAY_MS=x"], "DECAY_MS=x: expected"),
        (vec!["set", &pid, "=1"], "=1: expected OPTION=VALUE"),
        (vec!["purge", &pid, "--wait", "x"], "not a number"),
        (vec!["metrics", &pid, "--budget", "0"], "0.01 to 600 seconds"),
        (vec!["run", "--hakmem", &library, "--profile=0", "--", "true"], "a mean distance is 1 byte to 256 MiB"),
        (vec!["run", "--hakmem", &library, "--report", &result, "--", "touch", "done"], "cannot write"),
        (vec!["compare", "--json", &result, "--", "touch", "done"], "cannot write"),
        (vec!["compare", "--rounds", "0", "--", "true"], "0 is not in 1.."),
        (vec!["flame", &pid, "-o", "x.unknown"], "the name does not say the format"),
        (vec!["completions", "csh"], "possible values"),
        (vec!["nonsense"], "unrecognized subcommand"),
    ]);
    for (arguments, why) in refusals {
        let output = command(&arguments, directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.starts_with("hakmem: ") && said.lines().count() == 1, "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    assert!(!directory.path().join("done").exists(), "what cannot be written is found before the program runs");
    let purge = text(&["options", &pid]).lines().find(|line| line.starts_with("PURGE ")).unwrap().to_string();
    assert!(purge.contains(" auto "), "one wrong setting, and none is made: {purge}");
}
