//! The process that an argument means: a PID, or a name that one process has.
//!
//! Where several have the name, those that run HAKMEM count. The error when several of them do lists all. A name that
//! any user can give a process is no way to choose one that is to be changed: there, it means processes of this user
//! only.
// SPDX-License-Identifier: MIT

use super::core::begins_core;
use super::Target;
use clap::builder::TypedValueParser;
use clap::error::{Error, ErrorKind};
use hakmem_base::files;
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
        let path = Path::new(text);
        let head = files::head(path);
        if head.as_ref().is_ok_and(|head| begins_core(head)) {
            let found = process_or_file(text, begins_core)?;
            return Ok(found.map_or_else(|| Subject::Core(text.into()), Subject::Process));
        }
        process(text).map(Subject::Process).map_err(|why| match path.is_file() && is_no_process(&why) {
            true => anyhow::anyhow!("{why}, and {}", why_no_core(head)),
            false => anyhow::anyhow!("{why}"),
        })
    }
}

/// What is wrong with a file that begins so.
fn why_no_core(head: std::io::Result<Vec<u8>>) -> String {
    match head {
        Ok(_) => {
            "the file is no core file: `coredumpctl dump PID -o FILE` writes one that the system keeps".to_string()
        }
        Err(error) => format!("the file cannot be read: {error}"),
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

const NONE: &str = "no process is named";

fn is_no_process(why: &str) -> bool {
    why.starts_with(NONE)
}

fn one(text: &str, mut pids: Vec<Pid>) -> Result<Pid, String> {
    if pids.len() > 1 {
        let runs_hakmem = |pid: &Pid| Target::attach_if(*pid, LOOK).is_ok_and(|target| target.is_some());
        let running: Vec<Pid> = pids.iter().copied().filter(runs_hakmem).collect();
        pids = if running.is_empty() { pids } else { running };
    }
    match pids[..] {
        [pid] => Ok(pid),
        [] => Err(format!("{NONE} {}", shown::line(text))),
        _ => Err(one_of(&shown::line(text), &pids)),
    }
}

/// What an argument for a process or a file means; None: a file. A program is often run where its own file is, so where
/// there are both, a word without a slash means the file only if `is_wanted` says so of its beginning, and the word has
/// a dot or is no process's name.
pub fn process_or_file(text: &str, is_wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<Option<Pid>> {
    let path = Path::new(text);
    let is_file = path.exists();
    let is_wanted = || files::head(path).is_ok_and(|head| is_wanted(&head));
    if is_file && (text.contains('/') || text.contains('.') && is_wanted()) {
        return Ok(None);
    }
    match process(text) {
        Ok(pid) if !is_file || proc::exists(pid) => Ok(Some(pid)),
        Err(why) if is_file && !is_no_process(&why) && !is_wanted() => Err(anyhow::anyhow!("{why}")),
        _ if is_file => Ok(None),
        Ok(pid) => Ok(Some(pid)),
        Err(why) if is_no_process(&why) => Err(anyhow::anyhow!("{why}, and there is no such file")),
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

    /// Else a user looks for what is wrong with a core that he may not read.
    #[test]
    fn a_file_that_cannot_be_read_is_no_wrong_one() {
        let said = why_no_core(Err(std::io::Error::from_raw_os_error(libc::EACCES)));
        assert!(said.starts_with("the file cannot be read: Permission denied"), "{said}");
        let sealed = "/proc/sys/net/ipv4/route/flush"; // which can be written alone, by root, too
        if files::head(Path::new(sealed)).is_err_and(|error| error.raw_os_error() == Some(libc::EACCES)) {
            let said = Subject::of(sealed).unwrap_err().to_string();
            assert!(said.ends_with("cannot be read: Permission denied (os error 13)"), "{said}");
        }
    }

    /// Else a program that runs where its file is can be named in no way.
    #[test]
    fn a_file_that_is_not_wanted_is_no_hindrance() {
        let name = "hakmem-names.both"; // beside Cargo.toml, where tests run
        let file = Path::new(name);
        struct Gone<'a>(&'a Path);
        impl Drop for Gone<'_> {
            fn drop(&mut self) {
                let _ = std::fs::remove_file(self.0);
            }
        }
        let _gone = Gone(file);
        std::os::unix::fs::symlink("/bin/cat", file).unwrap();
        let start = || Command::new(format!("./{name}")).stdin(Stdio::piped()).spawn().unwrap();
        let mut first = start();
        while process(name).is_err() {
            std::thread::yield_now(); // until its exec
        }
        let pid = first.id() as Pid;
        let of = |wanted: bool| process_or_file(name, |head| wanted && head.starts_with(b"\x7fELF"));
        assert_eq!((of(false).unwrap(), of(true).unwrap()), (Some(pid), None));
        assert_eq!(process_or_file(&format!("./{name}"), |_| false).unwrap(), None, "a path is a file");
        assert_eq!(Subject::of(name).unwrap(), Subject::Process(pid));
        let mut second = start();
        while process(name).is_ok() {
            std::thread::yield_now();
        }
        for said in [of(false).unwrap_err(), Subject::of(name).unwrap_err()] {
            let said = said.to_string();
            assert!(said.starts_with("2 processes are named") && said.ends_with("give the PID of one"), "{said}");
        }
        for child in [&mut first, &mut second] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        let said = Subject::of(name).unwrap_err().to_string();
        assert!(said.contains("and the file is no core file") && of(false).unwrap().is_none(), "{said}");
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
        let any = |text| process_or_file(text, |_| true);
        assert!(any("/dev/null").unwrap().is_none());
        assert!(any("no/such").unwrap_err().to_string().ends_with("and there is no such file"));
    }
}
