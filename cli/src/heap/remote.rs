//! Memory and mappings of another process, and what is wrong when they cannot be had.
//!
//! A process is read and written through one descriptor of its memory, which stays with that memory: when the process
//! executes another program, which may have more rights than it had, the descriptor leads nowhere, not to that program.
//! All else is opened below one descriptor of its directory in /proc (hakmem_base::proc::Process).
//!
//! No read takes more memory than READ_MAX, or begins when the time for this process is over (patience.rs).
// SPDX-License-Identifier: MIT

pub use super::area::Area;
use super::core::Core;
use super::patience;
use anyhow::{ensure, Result};
use hakmem_base::proc::{kilobytes, Identity, Pid, Process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// By one call: the largest table is read in parts of a MiB.
const READ_MAX: usize = 16 << 20;
/// The most memory that mappings take, names included. The kernel's limit of 65,530 mappings with names of usual
/// length is far below.
const AREAS_MAX: usize = 64 << 20;
/// The longest line of maps: a path, in which some characters take four bytes.
const LINE_MAX: u64 = 64 << 10;

/// As many NUMA nodes as the library knows.
const NODES_MAX: usize = 64;

/// The error when memory changes while it is read: the program is being started, loads something, or executes another
/// one. Trying again helps.
#[derive(Debug)]
pub struct Moving {
    pid: Pid,
    executes: bool,
}

impl std::fmt::Display for Moving {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        let why = match self.executes {
            true => "executes another program now, so what it was can no longer be read",
            false => "is just starting or ending: its memory changes while it is read",
        };
        write!(to, "PID {} {why}", self.pid)
    }
}

impl std::error::Error for Moving {}

/// The error when the process belongs to somebody else, or the kernel lets nobody read it: why.
#[derive(Debug)]
pub struct Forbidden(String);

impl std::fmt::Display for Forbidden {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Forbidden {}

#[derive(Clone)]
pub struct Remote {
    pub pid: Pid,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Process(Arc<Live>),
    Image(&'static dyn Image),
    /// There is no such process.
    Nothing,
}

struct Live {
    process: Process,
    /// To be read, and written where that is allowed.
    memory: File,
    /// The identity of the process when its memory was opened.
    identity: Identity,
}

/// Memory and mappings of a process that is not there: a core file, or what a test made up.
pub trait Image: Sync {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    fn mappings(&self, with_rss: bool) -> Result<Vec<Area>>;

    /// Fills in what /proc/PID/pagemap would say of the pages from this one on. False: nobody knows.
    fn pagemap(&self, _first: u64, _entries: &mut [u8]) -> bool {
        false
    }

    fn core(&self) -> Option<&Core> {
        None
    }
}

impl Image for Core {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        Core::read(self, address, bytes)
    }

    fn mappings(&self, with_rss: bool) -> Result<Vec<Area>> {
        Ok(Core::mappings(self, with_rss))
    }

    fn pagemap(&self, first: u64, entries: &mut [u8]) -> bool {
        Core::pagemap(self, first, entries);
        true
    }

    fn core(&self) -> Option<&Core> {
        Some(self)
    }
}

/// What the kernel says of the pages of a process.
pub enum Pagemap {
    File(File),
    Image(&'static dyn Image),
}

impl Pagemap {
    /// Eight bytes for each page from this one on. False: the kernel does not tell.
    pub fn read(&self, first: u64, entries: &mut [u8]) -> bool {
        match self {
            Pagemap::File(file) => file.read_exact_at(entries, first.wrapping_mul(8)).is_ok(),
            Pagemap::Image(image) => image.pagemap(first, entries),
        }
    }
}

impl Remote {
    pub fn of_image(pid: Pid, image: &'static dyn Image) -> Remote {
        Remote { pid, source: Source::Image(image) }
    }

    /// What cannot be read at all.
    fn none(pid: Pid) -> Remote {
        Remote { pid, source: Source::Nothing }
    }

    #[cfg(test)]
    pub fn of_nobody() -> Remote {
        Remote::none(Pid::MAX)
    }

    /// Fails unless there is such a process and its memory may be read.
    pub fn open(pid: Pid) -> Result<Remote> {
        let none = Remote::none(pid);
        let process = Process::open(pid).map_err(|error| none.failure(error))?;
        let failure = |error: Error| match error.kind() {
            ErrorKind::NotFound => none.ended(),
            _ => none.failure(error),
        };
        let nothing_mapped = process.file("maps").and_then(|mut maps| maps.read(&mut [0])).map_err(failure)? == 0;
        ensure!(!nothing_mapped || !process.is_of_kernel(), "PID {pid} is the kernel's own: it has no malloc");
        let path = process.path("mem");
        let memory = File::options().read(true).write(true).open(&path).or_else(|_| File::open(&path));
        let memory = memory.map_err(failure)?;
        let identity = process.identity().ok_or_else(|| none.ended())?;
        Ok(Remote { pid, source: Source::Process(Arc::new(Live { process, memory, identity })) })
    }

    fn image(&self) -> Option<&'static dyn Image> {
        match self.source {
            Source::Image(image) => Some(image),
            _ => None,
        }
    }

    fn live(&self) -> Option<&Live> {
        match &self.source {
            Source::Process(live) => Some(live),
            _ => None,
        }
    }

    /// None: it is no process that runs.
    pub fn process(&self) -> Option<&Process> {
        self.live().map(|live| &live.process)
    }

    /// The user as whom it makes files.
    pub fn user(&self) -> Option<u32> {
        self.live()?.identity.user()
    }

    pub fn is_image(&self) -> bool {
        self.image().is_some()
    }

    pub fn core(&self) -> Option<&'static Core> {
        self.image()?.core()
    }

    /// None: the kernel lets nobody see it.
    pub fn pagemap(&self) -> Option<Pagemap> {
        match &self.source {
            Source::Image(image) => Some(Pagemap::Image(*image)),
            Source::Process(live) => live.process.file("pagemap").ok().map(Pagemap::File),
            Source::Nothing => None,
        }
    }

    fn has_ended(&self) -> bool {
        self.process().is_some_and(Process::has_ended)
    }

    /// The name of the program.
    pub fn program(&self) -> String {
        match self.core() {
            Some(core) => core.program().to_string(),
            None => self.process().map_or(String::new(), Process::name),
        }
    }

    fn ended(&self) -> anyhow::Error {
        anyhow::anyhow!("PID {} has just ended", self.pid)
    }

    /// What an error of a system call on the process means for the user.
    fn failure(&self, error: Error) -> anyhow::Error {
        let pid = self.pid;
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => self.forbidden(),
            _ if error.kind() == ErrorKind::NotFound && self.live().is_some() => self.ended(),
            _ if error.kind() == ErrorKind::NotFound => anyhow::anyhow!("there is no process {pid}"),
            Some(libc::ESRCH) => self.ended(), // its memory goes before it is a zombie
            _ if self.has_ended() => self.ended(),
            Some(libc::EFAULT) => self.moving(),
            _ => anyhow::anyhow!("PID {pid} cannot be read: {error}"),
        }
    }

    pub fn moving(&self) -> anyhow::Error {
        Moving { pid: self.pid, executes: false }.into()
    }

    fn forbidden(&self) -> anyhow::Error {
        let own = unsafe { libc::geteuid() };
        let user = fs::metadata(format!("/proc/{}/stat", self.pid)).map_or(own, |data| data.uid());
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        Forbidden(format!("PID {} {}", self.pid, why_forbidden(own, user, scope.trim()))).into()
    }

    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len();
        self.read_pieces(&[(address, length)], buffer)
    }

    pub fn read_vec(&self, address: u64, length: usize) -> Result<Vec<u8>> {
        ensure!(length <= READ_MAX, "PID {}: one of its tables has {length} bytes, too many to be read", self.pid);
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    pub fn number(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Ranges (address, bytes), one behind the other into `buffer`.
    pub fn read_pieces(&self, pieces: &[(u64, usize)], mut buffer: &mut [u8]) -> Result<()> {
        patience::check(self.pid)?;
        if let Some(image) = self.image() {
            return self.read_image(image, pieces, buffer);
        }
        let memory = &self.live().ok_or_else(|| self.ended())?.memory;
        for pieces in pieces.chunk_by(|&(at, length), &(next, _)| at.checked_add(length as u64) == Some(next)) {
            let (mut at, wanted) = (pieces[0].0, pieces.iter().map(|&(_, length)| length).sum());
            let (mut now, later) = buffer.split_at_mut(wanted);
            while !now.is_empty() {
                let got = self.moved(memory.read_at(now, at))?;
                (at, now) = (at.wrapping_add(got as u64), &mut now[got..]);
            }
            buffer = later;
        }
        Ok(())
    }

    /// The bytes that were read or written, at least one.
    fn moved(&self, outcome: Result<usize, Error>) -> Result<usize> {
        match outcome {
            Ok(0) if self.has_ended() => Err(self.ended()),
            Ok(0) => Err(Moving { pid: self.pid, executes: true }.into()), // the memory is gone
            Ok(bytes) => Ok(bytes),
            // Nothing is at this address, or nothing can be.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                Err(self.failure(Error::from_raw_os_error(libc::EFAULT)))
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    fn read_image(&self, image: &dyn Image, pieces: &[(u64, usize)], mut buffer: &mut [u8]) -> Result<()> {
        for &(at, length) in pieces {
            let (now, later) = buffer.split_at_mut(length);
            ensure!(image.read(at, now), "PID {}: the memory at {at:#x} is missing", self.pid);
            buffer = later;
        }
        Ok(())
    }

    /// Fails where the process is not what it was when it was found: it has got other rights, or executes another
    /// program.
    pub fn ensure_same(&self) -> Result<()> {
        let pid = self.pid;
        ensure!(!self.is_image(), "PID {pid}: a core file cannot be changed");
        let live = self.live().ok_or_else(|| self.ended())?;
        if live.process.has_ended() {
            return Err(self.ended());
        }
        // Reading memory that is gone gives nothing, and no error. At address 0 nothing is mapped, or it can be read.
        if matches!(live.memory.read_at(&mut [0], 0), Ok(0)) {
            return Err(self.executed());
        }
        let same = live.process.identity().is_some_and(|now| now == live.identity);
        ensure!(same, "PID {pid} has changed its user meanwhile: nothing is written to it");
        Ok(())
    }

    fn executed(&self) -> anyhow::Error {
        anyhow::anyhow!("PID {} has executed another program meanwhile: nothing is written to it", self.pid)
    }

    /// What executes another program between the test and the writing is not written to, either: its memory is another
    /// one.
    pub fn write(&self, mut address: u64, mut bytes: &[u8]) -> Result<()> {
        self.ensure_same()?;
        let memory = &self.live().ok_or_else(|| self.ended())?.memory;
        while !bytes.is_empty() {
            let written = match memory.write_at(bytes, address) {
                Ok(0) if !self.has_ended() => return Err(self.executed()),
                outcome => self.moved(outcome)?,
            };
            (address, bytes) = (address.wrapping_add(written as u64), &bytes[written..]);
        }
        Ok(())
    }

    /// A text that ends with a NUL, or is cut.
    pub fn text(&self, address: u64) -> Result<String> {
        const CHUNK: u64 = 256;
        let mut bytes = Vec::new();
        while bytes.len() < 4096 {
            let at = address.wrapping_add(bytes.len() as u64);
            let chunk = self.read_vec(at, (CHUNK - at % CHUNK) as usize)?; // stays within a page
            if let Some(end) = chunk.iter().position(|&byte| byte == 0) {
                bytes.extend(&chunk[..end]);
                break;
            }
            bytes.extend(chunk);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All mappings, lowest first; `with_rss`: with what is resident of each, which makes the kernel walk the page
    /// tables.
    pub fn mappings(&self, with_rss: bool) -> Result<Vec<Area>> {
        if let Some(image) = self.image() {
            return image.mappings(with_rss);
        }
        let file = if with_rss { "smaps" } else { "maps" };
        let process = self.process().ok_or_else(|| self.ended())?;
        let file = process.file(file).map_err(|error| self.failure(error))?;
        let pid = self.pid;
        let areas = areas(BufReader::new(file)).map_err(|error| match error.downcast() {
            Ok(error) => self.failure(error),
            Err(error) => error.context(format!("PID {pid} cannot be read")),
        })?;
        if areas.is_empty() {
            return Err(self.ended());
        }
        Ok(areas)
    }

    /// Resident bytes by NUMA node of the mappings that begin in the range. Empty on a machine with one node, where the
    /// kernel would look at each page for nothing.
    pub fn node_bytes(&self, range: Range<u64>) -> Vec<u64> {
        let process = self.process().filter(|_| Path::new("/sys/devices/system/node/node1").exists());
        let file = process.and_then(|process| process.file("numa_maps").ok());
        file.map_or(Vec::new(), |file| node_bytes(BufReader::new(file), range))
    }
}

/// Resident bytes by NUMA node of the mappings that begin in the range, in the text of numa_maps.
fn node_bytes(text: impl BufRead, range: Range<u64>) -> Vec<u64> {
    let mut nodes = Vec::new();
    for line in text.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line); // paths of files are in it
        let begin = line.split(' ').next().and_then(|word| u64::from_str_radix(word, 16).ok());
        if !begin.is_some_and(|begin| range.contains(&begin)) {
            continue;
        }
        let value = |word: &str, key: &str| word.strip_prefix(key).and_then(|rest| rest.parse::<u64>().ok());
        let page_kib = line.split(' ').find_map(|word| value(word, "kernelpagesize_kB=")).unwrap_or(4);
        for (node, pages) in line.split(' ').filter_map(|word| word.strip_prefix('N')?.split_once('=')) {
            let (Ok(node), Ok(pages)) = (node.parse::<usize>(), pages.parse::<u64>()) else { continue };
            if node < NODES_MAX {
                nodes.resize(nodes.len().max(node + 1), 0u64);
                nodes[node] = nodes[node].saturating_add(pages.saturating_mul(page_kib).saturating_mul(1024));
            }
        }
    }
    nodes
}

/// `own`: the reader's user; `scope`: Yama's, "" without it.
fn why_forbidden(own: u32, user: u32, scope: &str) -> String {
    match (own, scope) {
        (0, _) => "may not be read, not even by root here: the container lacks the capability SYS_PTRACE, or \
            kernel.yama.ptrace_scope is 3"
            .to_string(),
        _ if user != own => format!("is another user's (user {user}): run `sudo hakmem …`"),
        (_, "1") => "may not be read: kernel.yama.ptrace_scope is 1. Run `sudo hakmem …`, or start the program with \
            HAKMEM_INSPECT=1"
            .to_string(),
        _ => "may not be read (it changed its user, or has privileges): run `sudo hakmem …`".to_string(),
    }
}

// ---- mappings ----

/// The mappings in the text of maps or smaps. Fails where they take too much memory.
pub fn areas(mut text: impl BufRead) -> Result<Vec<Area>> {
    let (mut all, mut bytes, mut line) = (Vec::<Area>::new(), 0, Vec::new());
    loop {
        line.clear();
        if text.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(all);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        // Values begin with a capital letter, addresses are in small hexadecimal digits.
        if line.starts_with(|first: char| first.is_ascii_uppercase()) {
            if let (Some(area), Some((key, _))) = (all.last_mut(), line.split_once(':')) {
                match key {
                    "Rss" => area.rss = kilobytes(line, key).unwrap_or(0),
                    "AnonHugePages" => area.huge = kilobytes(line, key).unwrap_or(0),
                    _ => {}
                }
            }
        } else if let Some(area) = Area::parse(line) {
            bytes += size_of::<Area>() + area.name.len() + area.access.len();
            ensure!(bytes <= AREAS_MAX, "its mappings are too many to be read");
            all.push(area);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    /// A process gives back its memory before it is a zombie: reads fail although its state is that of a running one.
    #[test]
    fn a_process_without_memory_has_ended() {
        let own = std::process::id() as Pid;
        let error = Remote::none(own).failure(Error::from_raw_os_error(libc::ESRCH));
        assert_eq!(error.to_string(), format!("PID {own} has just ended"));
    }

    #[test]
    fn mappings_are_read() {
        let text = "7f00-7f10 rw-p 0000a000 fd:01 77                         /usr/lib/a b.so (deleted)\nSize: 4 kB\n\
            Rss:                  12 kB\nAnonHugePages:         8 kB\nVmFlags: rd\n7f10-7f20 ---p 00000000 00:00 0 \n";
        let all = areas(text.as_bytes()).unwrap();
        assert_eq!((all.len(), all[0].start, all[0].end, all[0].offset), (2, 0x7f00, 0x7f10, 0xa000));
        assert_eq!((all[0].rss, all[0].huge, all[0].file_name()), (12 << 10, 8 << 10, Some("a b.so")));
        assert!(all[1].is_anonymous() && !all[0].is_anonymous());
    }

    #[test]
    fn nodes_are_those_of_the_range() {
        let text = b"7f00 default file=/lib/\xe9 mapped=9 N0=9 kernelpagesize_kB=4\n\
            8000 default anon=12 dirty=12 active=0 N0=8 N2=4 kernelpagesize_kB=4\n8800 default\n\
            9000 bind:1 anon=1 huge dirty=1 N2=1 N=3 N99999=1 Nx=7 kernelpagesize_kB=2048\na000 default N1=1\n";
        assert_eq!(node_bytes(text.as_slice(), 0x8000..0xa000), [8 << 12, 0, (4 << 12) + (2 << 20)]);
        assert!(node_bytes("".as_bytes(), 0..u64::MAX).is_empty());
    }

    #[test]
    fn own_memory_is_read_and_written() {
        let me = Remote::open(std::process::id() as Pid).unwrap();
        let (text, mut word) = (std::ffi::CString::new("x".repeat(600)).unwrap(), Box::new(1u64));
        assert_eq!(me.text(text.as_ptr() as u64).unwrap(), "x".repeat(600));
        me.write(&*word as *const u64 as u64, &7u64.to_ne_bytes()).unwrap();
        assert_eq!(std::hint::black_box(&mut word).as_ref(), &7);
        assert!(me.number(8).unwrap_err().to_string().contains("its memory changes"));
    }

    /// What the process says next.
    fn line(child: &mut Child) -> String {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line
    }

    fn start(program: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Else a process that executes a program with other rights while it is looked at has root write into that, a value
    /// and an address of its choice.
    #[test]
    fn what_executes_another_program_is_not_written_to() {
        let mut child = start("sh", &["-c", "echo ready; read line; exec cat"]);
        assert_eq!(line(&mut child), "ready\n"); // else it may still be what it was before it became sh
        let remote = Remote::open(child.id() as Pid).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\nthrough\n").unwrap();
        assert_eq!(line(&mut child), "through\n", "it is cat by now");
        let now = Remote::open(child.id() as Pid).unwrap();
        let at = now.mappings(false).unwrap().into_iter().find(|area| area.name == "[stack]").unwrap().end - 64;
        let word = now.number(at).unwrap();
        let said = remote.write(at, &(!word).to_ne_bytes()).unwrap_err().to_string();
        assert!(said.contains("has executed another program meanwhile: nothing is written"), "{said}");
        assert_eq!(now.number(at).unwrap(), word);
        let said = remote.number(at).unwrap_err();
        assert!(said.is::<Moving>() && said.to_string().contains("executes another program now"), "{said}");
        assert!(now.write(at, &word.to_ne_bytes()).is_ok());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(now.write(at, &[0]).unwrap_err().to_string().contains("has just ended"));
    }

    #[test]
    fn who_becomes_another_user_is_not_written_to() {
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: only root can become another user");
        }
        let script = "import os, sys
for step in [lambda: 0, lambda: os.setuid(65534)]:
    step(); print('done', flush=True); sys.stdin.readline()";
        let mut child = start("python3", &["-c", script]);
        assert_eq!(line(&mut child), "done\n"); // whatever had to be executed first
        let remote = Remote::open(child.id() as Pid).unwrap();
        let at = remote.mappings(false).unwrap().into_iter().find(|area| area.name == "[stack]").unwrap().end - 64;
        remote.write(at, &remote.number(at).unwrap().to_ne_bytes()).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(line(&mut child), "done\n");
        let said = remote.write(at, &[0]).unwrap_err().to_string();
        assert!(said.contains("has changed its user"), "{said}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn each_prohibition_has_its_remedy() {
        assert!(why_forbidden(1000, 0, "1").contains("(user 0): run `sudo hakmem …`"));
        assert!(why_forbidden(1000, 1000, "1").contains("HAKMEM_INSPECT=1"));
        assert!(!why_forbidden(1000, 1000, "2").contains("HAKMEM_INSPECT=1"), "it would not help");
        assert!(why_forbidden(1000, 1000, "").contains("has privileges"));
        assert!(why_forbidden(0, 1000, "3").contains("SYS_PTRACE"));
    }

    #[test]
    fn no_such_process() {
        assert_eq!(Remote::open(Pid::MAX).err().unwrap().to_string(), format!("there is no process {}", Pid::MAX));
        assert!(Remote::open(2).map_or_else(|error| error.to_string(), |_| String::new()).contains("PID 2 "));
    }

    #[test]
    fn any_text_is_a_list_of_mappings() {
        let text = "7f00-7f10 rw-p 0000a000 fd:01 77                         /usr/lib/a b.so (deleted)\nSize: 4 kB\n\
            Rss:                  12 kB\nAnonHugePages:         8 kB\nVmFlags: rd\n7f10-7f20 ---p 00000000 00:00 0 \n";
        hakmem_fuzz::mutations("smaps", text.as_bytes(), 2000, |bytes| {
            let all = areas(bytes).unwrap();
            assert!(all.iter().all(|area| area.start <= area.end));
            super::super::rest::rest(&Remote::of_nobody(), all.iter());
        });
        // Lines that are long, and many.
        let long = vec![b'1'; 1 << 20];
        assert!(areas(&long[..]).unwrap().is_empty());
        let line = format!("1000-2000 rw-p 0 00:00 1 /{}\n", "x".repeat(4000));
        hakmem_fuzz::bounded(&"many mappings", || assert!(areas(line.repeat(30_000).as_bytes()).is_err()));
    }
}
