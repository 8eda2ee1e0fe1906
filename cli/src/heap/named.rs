//! The process that an argument means: a PID, or a name that one process has.
//!
//! Where several have the name, those that run HAKMEM count. The error when several of them do lists all. A name that
//! any user can give a process is no way to choose one that is to be changed: there, it means processes of this user
//! only.
// SPDX-License-Identifier: MIT

use super::core::is_core;
use super::Target;
use clap::builder::TypedValueParser;
use clap::error::{Error, ErrorKind};
use hakmem_base::proc::{self, Pid};
use hakmem_base::shown;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many processes of one name an error lists, and how much of each one's command line.
const LISTED: usize = 10;
const COMMAND_CHARS: usize = 60;
/// For looking whether one of several runs HAKMEM.
const LOOK: Duration = Duration::from_secs(2);

/// The parser of such an argument.
#[derive(Clone)]
pub struct Named;

impl TypedValueParser for Named {
    type Value = Pid;

    fn parse_ref(&self, _: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<Pid, Error> {
        process(&value.to_string_lossy()).map_err(|why| Error::raw(ErrorKind::ValueValidation, why))
    }
}

/// The parser for a process that the command changes.
#[derive(Clone)]
pub struct NamedOwn;

impl TypedValueParser for NamedOwn {
    type Value = Pid;

    fn parse_ref(&self, _: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<Pid, Error> {
        own_process(&value.to_string_lossy()).map_err(|why| Error::raw(ErrorKind::ValueValidation, why))
    }
}

/// What can be looked at.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    Process(Pid),
    Core(PathBuf),
}

impl Subject {
    pub fn of(text: &str) -> anyhow::Result<Subject> {
        if is_core(Path::new(text)) {
            return Ok(process_or_file(text)?.map_or_else(|| Subject::Core(text.into()), Subject::Process));
        }
        let how = "and the file is no core file: `coredumpctl dump PID -o FILE` writes one that the system keeps";
        let is_file = Path::new(text).is_file();
        let no_process = |why| if is_file { anyhow::anyhow!("{why}, {how}") } else { anyhow::anyhow!("{why}") };
        process(text).map(Subject::Process).map_err(no_process)
    }
}

/// The parser of an argument for a process or a core file.
#[derive(Clone)]
pub struct NamedOrCore;

impl TypedValueParser for NamedOrCore {
    type Value = Subject;

    fn parse_ref(&self, _: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<Subject, Error> {
        let subject = Subject::of(&value.to_string_lossy());
        subject.map_err(|why| Error::raw(ErrorKind::ValueValidation, why.to_string()))
    }
}

fn one_of(name: &str, pids: &[Pid]) -> String {
    let command = |pid| shown::line(&proc::command_line(pid)).chars().take(COMMAND_CHARS).collect::<String>();
    let listed: Vec<String> = pids.iter().take(LISTED).map(|&pid| format!("{pid} ({})", command(pid))).collect();
    let more = if pids.len() > LISTED { ", …" } else { "" };
    format!("{} processes are named {name}: {}{more}: give the PID of one", pids.len(), listed.join(", "))
}

/// None: it is a name.
fn number(text: &str) -> Result<Option<Pid>, String> {
    if text.is_empty() {
        return Err("the PID or name is empty".into());
    }
    if !text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.map(Some).ok_or(format!("{text} is no PID: a PID is a number above 0"))
}

fn process(text: &str) -> Result<Pid, String> {
    match number(text)? {
        Some(pid) => Ok(pid),
        None => one(text, proc::named(text)),
    }
}

fn own_process(text: &str) -> Result<Pid, String> {
    // SAFETY: it has no arguments and cannot fail.
    let user = unsafe { libc::getuid() };
    match number(text)? {
        Some(pid) => Ok(pid),
        None => one_of_user(text, proc::named(text), user),
    }
}

/// Whatever other users call theirs.
fn one_of_user(text: &str, pids: Vec<Pid>, user: libc::uid_t) -> Result<Pid, String> {
    let (own, others): (Vec<Pid>, Vec<Pid>) = pids.into_iter().partition(|&pid| proc::user(pid) == Some(user));
    match others[..] {
        [pid, ..] if own.is_empty() => {
            let whose = proc::user(pid).map_or("another user".into(), |user| format!("user {user}"));
            Err(format!("{} is {whose}'s process {pid}: give its PID if you mean that", shown::line(text)))
        }
        _ => one(text, own),
    }
}

fn one(text: &str, mut pids: Vec<Pid>) -> Result<Pid, String> {
    if pids.len() > 1 {
        let runs_hakmem = |pid: &Pid| Target::attach_if(*pid, LOOK).is_ok_and(|target| target.is_some());
        let running: Vec<Pid> = pids.iter().copied().filter(runs_hakmem).collect();
        pids = if running.is_empty() { pids } else { running };
    }
    match pids[..] {
        [pid] => Ok(pid),
        [] => Err(format!("no process is named {}", shown::line(text))),
        _ => Err(one_of(&shown::line(text), &pids)),
    }
}

/// What an argument for a process or a file means; None: a file. Where there are both, a word with a dot or a slash
/// means the file: a program is often run where its own file is.
pub fn process_or_file(text: &str) -> anyhow::Result<Option<Pid>> {
    let is_file = Path::new(text).exists();
    if is_file && text.contains(['.', '/']) {
        return Ok(None);
    }
    match process(text) {
        Ok(pid) if !is_file || proc::exists(pid) => Ok(Some(pid)),
        _ if is_file => Ok(None),
        Ok(pid) => Ok(Some(pid)),
        Err(why) if why.starts_with("no process is named") => Err(anyhow::anyhow!("{why}, and there is no such file")),
        Err(why) => Err(anyhow::anyhow!("{why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_found_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("a-name-longer-than-comm");
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let start = |program: &Path, words: &[&str]| {
            Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
        };
        let mut first = start(&program, &["-"]);
        let name = "a-name-longer-than-comm";
        while process(name).is_err() {
            std::thread::yield_now(); // until its exec
        }
        assert_eq!(process(name), Ok(first.id() as Pid));
        assert_eq!(own_process(name), Ok(first.id() as Pid));
        // Else a user's process with a service's name gets what root meant for the service.
        let first_pid = first.id() as Pid;
        let said = one_of_user(name, vec![first_pid], proc::user(first_pid).unwrap() + 1).unwrap_err();
        assert!(said.contains(&format!("'s process {first_pid}: give its PID")), "{said}");
        assert!(process("a-name-longer-t").is_ok(), "what the kernel keeps of it");
        let mut second = start(&program, &[]);
        let (one, two) = (first.id(), second.id());
        while process(name).is_ok() {
            std::thread::yield_now();
        }
        let said = process(name).unwrap_err();
        assert!(said.starts_with("2 processes are named a-name-longer-than-comm: "), "{said}");
        let path = program.display().to_string();
        let command: String = format!("{path} -").chars().take(COMMAND_CHARS).collect();
        assert!(said.contains(&format!("{one} ({command})")) && said.contains(&format!("{two} (")), "{said}");
        for child in [&mut first, &mut second] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert_eq!(process(name), Err("no process is named a-name-longer-than-comm".into()));
    }

    #[test]
    fn a_script_is_found_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("hakmem-names-this.sh");
        std::fs::write(&script, "read line\n").unwrap();
        let mut child = Command::new("sh").arg(&script).stdin(Stdio::piped()).spawn().unwrap();
        while process("hakmem-names-this.sh").is_err() {
            std::thread::yield_now();
        }
        assert_eq!(process("hakmem-names-this.sh"), Ok(child.id() as Pid));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn numbers_are_pids() {
        assert_eq!((process("1"), process("007")), (Ok(1), Ok(7)));
        for wrong in ["0", "99999999999", "-5"] {
            assert_eq!(process(wrong), Err(format!("{wrong} is no PID: a PID is a number above 0")));
        }
        assert_eq!(process("\x1b[1m"), Err(format!("no process is named {}", shown::line("\x1b[1m"))));
        assert_eq!(process(""), Err("the PID or name is empty".into()));
        let why = Subject::of("Cargo.toml").unwrap_err().to_string(); // a script's name is often that of a file here
        assert!(why.starts_with("no process is named Cargo.toml, and the file is no core file"), "{why}");
        assert!(process_or_file("/dev/null").unwrap().is_none());
        assert!(process_or_file("no/such").unwrap_err().to_string().ends_with("and there is no such file"));
    }
}
