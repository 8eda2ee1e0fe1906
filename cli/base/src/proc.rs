//! What /proc says about a process: memory, faults, mapped files, children.
//!
//! statm costs a few microseconds whatever the size of the process; smaps_rollup walks its page tables. No file is read
//! beyond 64 MiB, and none is expected to be UTF-8: a process chooses its name and the names of what it maps. (The
//! crate procfs is not used: it adds 18 CPU seconds to a build, and reads command lines and mappings of any length.)
// SPDX-License-Identifier: MIT

use anyhow::{ensure, Result};
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub type Pid = libc::pid_t;

/// What a command says that takes either, and has neither.
pub const NEITHER: &str = "name a process (PID or NAME), or a program (-- PROGRAM ARGS…); `--help` says more";

pub fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

/// For maps: the kernel's limit of 65,530 mappings with names of usual length is far below.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// A file of /proc, as far as it can be read.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number behind "KEY:" in a text of lines "KEY: NUMBER kB", in bytes.
pub fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A process's statm, kept open for reading it often.
pub struct Statm(fs::File);

impl Statm {
    pub fn open(pid: Pid) -> Option<Statm> {
        fs::File::open(format!("/proc/{pid}/statm")).ok().map(Statm)
    }

    /// Resident bytes; None if the process or its address space is gone.
    pub fn rss(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let pages: u64 = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?.parse().ok()?;
        (pages > 0).then_some(pages.saturating_mul(page_bytes()))
    }
}

/// A process by a descriptor of its directory in /proc, which stays with it: when it has ended, there is nothing below
/// it any more, also while another process has its number. So all that is opened of it is of one process.
#[derive(Debug)]
pub struct Process {
    pub pid: Pid,
    directory: fs::File,
}

/// Who a process is, as far as the kernel decides by it what may be done to the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    started_ticks: u64,
    /// Real, effective, saved, and for files.
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Identity {
    /// The user as whom it makes files.
    pub fn user(&self) -> Option<u32> {
        self.users.get(3).copied()
    }
}

impl Process {
    pub fn open(pid: Pid) -> Result<Process, std::io::Error> {
        let mut options = fs::File::options();
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        Ok(Process { pid, directory: options.read(true).custom_flags(flags).open(format!("/proc/{pid}"))? })
    }

    /// A path by which this process opens what is below the directory.
    pub fn path(&self, name: impl std::fmt::Display) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()).into()
    }

    pub fn file(&self, name: &str) -> Result<fs::File, std::io::Error> {
        fs::File::open(self.path(name))
    }

    fn text(&self, name: &str) -> Option<String> {
        text(self.path(name))
    }

    /// The first 64 MiB of it.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        // What is read before an error stays.
        let _ = self.file(name).and_then(|file| file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes));
        bytes
    }

    fn stat(&self) -> Option<Stat> {
        Stat::read(self.path("stat"))
    }

    /// None: it has ended.
    pub fn identity(&self) -> Option<Identity> {
        let status = self.text("status")?;
        let numbers = |key: &str| -> Option<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().map(|word| word.parse().ok()).collect()
        };
        let started_ticks = self.stat()?.started_ticks;
        Some(Identity { started_ticks, users: numbers("Uid:")?, groups: numbers("Gid:")? })
    }

    /// The threads that it has.
    pub fn threads(&self) -> Vec<Pid> {
        let tasks = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
    }

    pub fn has_thread(&self, thread: Pid) -> bool {
        self.path(format_args!("task/{thread}/stat")).exists()
    }

    /// A zombie, or gone.
    pub fn has_ended(&self) -> bool {
        self.stat().is_none_or(|stat| stat.has_ended())
    }

    pub fn thread_has_ended(&self, thread: Pid) -> bool {
        Stat::read(self.path(format_args!("task/{thread}/stat"))).is_none_or(|stat| stat.has_ended())
    }

    /// As the kernel knows it: 15 bytes at most.
    pub fn name(&self) -> String {
        self.text("comm").unwrap_or_default().trim().to_string()
    }

    /// The number by which the process knows itself: in a container, another one.
    pub fn own_pid(&self) -> Pid {
        let status = self.text("status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        line.and_then(|line| line.split_whitespace().next_back()?.parse().ok()).unwrap_or(self.pid)
    }

    /// Resident bytes and their peak; its main thread may have ended before the others.
    fn rss_and_peak(&self) -> Option<(u64, u64)> {
        let read = |name: &str| {
            let text = self.text(name)?;
            Some((kilobytes(&text, "VmRSS")?, kilobytes(&text, "VmHWM")?))
        };
        let of_threads = || self.threads().iter().find_map(|thread| read(&format!("task/{thread}/status")));
        read("status").or_else(of_threads)
    }

    /// Resident bytes, counted page by page: the counters behind `rss_and_peak` may be off by some pages a thread.
    pub fn rss_exact(&self) -> Option<u64> {
        let rollup = self.text("smaps_rollup");
        rollup.and_then(|text| kilobytes(&text, "Rss")).or_else(|| Some(self.rss_and_peak()?.0))
    }

    pub fn minor_faults(&self) -> u64 {
        self.stat().map_or(0, |stat| stat.minor_faults)
    }

    /// CPU time of all threads so far, in seconds.
    pub fn cpu_of_threads(&self) -> f64 {
        self.stat().map_or(0.0, |stat| stat.cpu_ticks as f64 / ticks_per_second())
    }

    /// Does no thread of it run, or want to?
    pub fn is_asleep(&self) -> bool {
        let stat = |thread| Stat::read(self.path(format_args!("task/{thread}/stat")));
        self.threads().into_iter().filter_map(stat).all(|stat| stat.state != 'R')
    }

    /// The first 4 KiB of them.
    fn command_words(&self) -> Vec<String> {
        let mut bytes = Vec::new();
        let file = self.file("cmdline");
        let _ = file.and_then(|file| file.take(COMMAND_MAX).read_to_end(&mut bytes)); // what is read of it stays
        bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Its words with spaces between them, or its name if it has none.
    fn command_line(&self) -> String {
        let words = self.command_words().join(" ").trim().to_string();
        if words.is_empty() {
            self.name()
        } else {
            words
        }
    }

    pub fn about(&self) -> Option<About> {
        let stat = self.stat()?;
        let uptime = text("/proc/uptime")?.split(' ').next()?.parse::<f64>().ok()?;
        let started = stat.started_ticks as f64 / ticks_per_second();
        Some(About {
            command: self.command_line(),
            threads: stat.threads,
            rss_peak: self.rss_and_peak().map_or(0, |(_, peak)| peak),
            age_ms: ((uptime - started).max(0.0) * 1e3) as u64,
        })
    }

    /// Is it a thread of the kernel?
    pub fn is_of_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x20_0000;
        self.stat().is_some_and(|stat| stat.flags & PF_KTHREAD != 0)
    }
}

/// A process to which something is to happen only while it runs: another that has got its number is not it.
pub struct Watched {
    pub pid: Pid,
    descriptor: OwnedFd,
}

impl Watched {
    pub fn new(pid: Pid) -> Result<Watched> {
        ensure!(exists(pid), "there is no process {pid}");
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int;
        ensure!(descriptor >= 0, "PID {pid} cannot be watched: {}", std::io::Error::last_os_error());
        Ok(Watched { pid, descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Also while nobody has waited for it.
    pub fn has_ended(&self) -> bool {
        self.ends_within(0)
    }

    /// Until it has ended.
    pub fn wait(&self) {
        while !self.ends_within(-1) {}
    }

    fn ends_within(&self, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        unsafe { libc::poll(&mut poll, 1, timeout_ms) > 0 }
    }
}

/// Resident bytes and their peak, of a process whose main thread may have ended before the others.
pub fn rss_and_peak(pid: Pid) -> Option<(u64, u64)> {
    Process::open(pid).ok()?.rss_and_peak()
}

/// Resident bytes, and those of them that the kernel may take at any moment (MADV_FREE). `shared`: what several
/// processes share is divided among them.
pub fn resident_and_lazy(pid: Pid, shared: bool) -> Option<(u64, u64)> {
    let rollup = text(format!("/proc/{pid}/smaps_rollup"))?;
    let resident = kilobytes(&rollup, if shared { "Pss" } else { "Rss" })?;
    Some((resident, kilobytes(&rollup, "LazyFree").unwrap_or(0)))
}

/// Resident bytes, those that several processes share divided among them.
pub fn pss(pid: Pid) -> Option<u64> {
    kilobytes(&text(format!("/proc/{pid}/smaps_rollup"))?, "Pss")
}

/// What /proc/PID/stat says of a process or a thread, as far as it is used.
struct Stat {
    /// 'R' runs or wants to, 'Z' and 'X' have ended.
    state: char,
    parent: Pid,
    flags: u64,
    minor_faults: u64,
    /// CPU time of all its threads, also of those that have ended.
    cpu_ticks: u64,
    threads: u64,
    /// Since the machine started.
    started_ticks: u64,
}

impl Stat {
    /// The name in brackets may hold anything, brackets too.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            flags: number(6)?,
            minor_faults: number(7)?,
            cpu_ticks: number(11)? + number(12)?,
            threads: number(17)?,
            started_ticks: number(19)?,
        })
    }

    fn read(path: impl AsRef<Path>) -> Option<Stat> {
        Stat::parse(&text(path)?)
    }

    fn of(pid: Pid) -> Option<Stat> {
        Stat::read(format!("/proc/{pid}/stat"))
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

pub fn minor_faults(pid: Pid) -> u64 {
    Stat::of(pid).map_or(0, |stat| stat.minor_faults)
}

/// A zombie, or gone.
pub fn has_ended(pid: Pid) -> bool {
    Stat::of(pid).is_none_or(|stat| stat.has_ended())
}

/// What is known about a process besides its memory.
pub struct About {
    pub command: String,
    pub threads: u64,
    pub rss_peak: u64,
    pub age_ms: u64,
}

/// What the kernel keeps of a name.
const COMM_BYTES: usize = 15;
/// How much of a command line is read: a process can point it at any part of its memory.
const COMMAND_MAX: u64 = 4096;

fn command_words(pid: Pid) -> Vec<String> {
    Process::open(pid).map_or(Vec::new(), |process| process.command_words())
}

/// Its words with spaces between them, or its name if it has none.
pub fn command_line(pid: Pid) -> String {
    Process::open(pid).map_or(String::new(), |process| process.command_line())
}

pub fn about(pid: Pid) -> Option<About> {
    Process::open(pid).ok()?.about()
}

/// All processes of the machine that may be seen.
pub fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes with this name, in order: the kernel's name for them, the file name of their program as they were
/// started, or, if none has it, that of the script in an interpreter's command line. Without this process and those
/// that have ended.
pub fn named(name: &str) -> Vec<Pid> {
    let short = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(COMM_BYTES)]).into_owned();
    let word = |pid, number| command_words(pid).into_iter().nth(number).unwrap_or_default();
    let is_word = |pid: &Pid, number| word(*pid, number).rsplit('/').next() == Some(name);
    let mut running = all();
    running.retain(|&pid| pid as u32 != std::process::id() && !has_ended(pid));
    running.sort();
    let has_name = |pid: &Pid| is_word(pid, 0) || (self::name(*pid) == short && name.len() <= COMM_BYTES);
    let found: Vec<Pid> = running.iter().copied().filter(has_name).collect();
    if !found.is_empty() {
        return found;
    }
    running.retain(|pid| is_word(pid, 1));
    running
}

pub fn exists(pid: Pid) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// Who started it: its real user. (The owner of /proc/PID is root for whatever asks not to be dumped.) None: it is
/// gone.
pub fn user(pid: Pid) -> Option<libc::uid_t> {
    let status = text(format!("/proc/{pid}/status"))?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// As the kernel knows it: 15 bytes at most.
pub fn name(pid: Pid) -> String {
    text(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()
}

/// Is it a thread of the kernel?
pub fn is_of_kernel(pid: Pid) -> bool {
    Process::open(pid).is_ok_and(|process| process.is_of_kernel())
}

fn ticks_per_second() -> f64 {
    // SAFETY: no memory is involved.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

/// CPU time of all threads so far, in seconds.
pub fn cpu_of_threads(pid: Pid) -> f64 {
    Stat::of(pid).map_or(0.0, |stat| stat.cpu_ticks as f64 / ticks_per_second())
}

/// CPU time of the main thread so far, in seconds.
pub fn cpu(pid: Pid) -> f64 {
    let text = text(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

/// The files that are mapped, each once.
pub fn mapped_files(pid: Pid) -> Vec<String> {
    let text = text(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut files: Vec<String> = text.lines().filter_map(|line| Some(line[line.find('/')?..].to_string())).collect();
    files.sort();
    files.dedup();
    files
}

/// All processes below `root`, `root` itself not included.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut parents = HashMap::new();
    for pid in all() {
        if let Some(stat) = Stat::of(pid) {
            parents.insert(pid, stat.parent);
        }
    }
    let below = |mut pid: Pid| {
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(&parent) if parent == root => return true,
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|&pid| below(pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_found() {
        let me = std::process::id() as Pid;
        let (rss_now, peak) = rss_and_peak(me).unwrap();
        assert!(Statm::open(me).unwrap().rss().unwrap() > 0 && rss_now > 0 && peak >= rss_now);
        assert!(pss(me).unwrap() > 0);
        assert!(resident_and_lazy(me, false).unwrap().0 >= resident_and_lazy(me, true).unwrap().0 / 2);
        assert!(minor_faults(me) > 0 && cpu(me) < 3600.0 && cpu_of_threads(me) < 3600.0);
        assert_eq!(Process::open(me).unwrap().own_pid(), me);
    }

    #[test]
    fn numbers_in_kilobytes() {
        let text = "Rss:     12 kB\nPss_Dirty:  3 kB\nPss:   5 kB\n";
        assert_eq!(kilobytes(text, "Pss"), Some(5 * 1024));
        assert_eq!(kilobytes(text, "VmHWM"), None);
    }

    /// Else a program that calls itself so is another's child, or never ends.
    #[test]
    fn a_name_in_brackets_may_hold_brackets() {
        let numbers = (0..40).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let stat = Stat::parse(&format!("7 (x) Z 1 (y) R {numbers}")).unwrap();
        assert_eq!((stat.state, stat.parent, stat.flags, stat.minor_faults), ('R', 0, 5, 6));
        assert_eq!((stat.cpu_ticks, stat.threads, stat.started_ticks), (10 + 11, 16, 18));
        assert!(Stat::parse("7 (x").is_none() && Stat::parse("7 (x) R 1").is_none());
    }

    /// Else a program hides by a name that is no UTF-8: it seems to have ended, and its memory to be unknown.
    #[test]
    fn a_name_need_not_be_utf8() {
        use std::os::unix::ffi::OsStrExt;
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let mut child = std::process::Command::new(program).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as Pid;
        while rss_and_peak(pid).is_none() || name(pid) != "\u{fffd}\u{fffd}" {
            std::thread::yield_now();
        }
        assert!(!has_ended(pid) && !is_of_kernel(pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(has_ended(pid));
    }

    #[test]
    fn an_end_is_seen_before_anybody_waits() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let watched = Watched::new(child.id() as Pid).unwrap();
        assert!(!watched.has_ended());
        drop(child.stdin.take());
        while !watched.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(watched.has_ended());
    }

    #[test]
    fn a_user_is_who_started_it() {
        // SAFETY: it has no arguments and cannot fail.
        let own = unsafe { libc::getuid() };
        assert_eq!((user(std::process::id() as Pid), user(Pid::MAX)), (Some(own), None));
    }

    #[test]
    fn a_grandchild_is_a_descendant() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 30 & echo; wait"]).spawn().unwrap();
        let me = std::process::id() as Pid;
        let child = shell.id() as Pid;
        while descendants(child).is_empty() {
            std::thread::yield_now();
        }
        let all = descendants(me);
        let grandchild = descendants(child)[0];
        assert!(all.contains(&child) && all.contains(&grandchild));
        unsafe { libc::kill(grandchild, libc::SIGKILL) };
        shell.wait().unwrap();
    }
}
