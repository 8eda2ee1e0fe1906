//! The process that reads what attackers may have written: debug information, symbols, names of code made at run time.
//!
//!  1. `Child::start` runs this program again, with a socket as its standard input and nothing else of ours. Before it
//!     reads a byte the child gives up its user, groups and capabilities, and can make no files, processes or new
//!     rights (`confine`). It opens nothing: files come over the socket, opened by the parent (origin.rs).
//!  2. A question and its answer are each a length and JSON. The parent waits for an answer for NAMES.time, and
//!     believes no length above ANSWER_MAX.
//!  3. A child that crashes (a stack that overflows, a file cut short while it is mapped), takes too much or is late is
//!     killed, and the frames that it was asked for stay without names. After a few such ones nothing more is asked.
//!
//! There is a child for each file of symbols: what one of them does to its reader leaves the others' names alone.
// SPDX-License-Identifier: MIT

use super::parser::{self, About, Files, Variable};
use super::{jit, Frame};
use crate::budget::{self, Budget};
use anyhow::{bail, ensure, Context, Result};
use memmap2::Mmap;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::process::{setrlimit, Resource, Rlimit};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::cell::Cell;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The argument by which this program knows that it is the child.
pub const ARGUMENT: &str = "--hakmem-names";

/// The answer's names, as JSON has them at worst, and what stands between them.
const ANSWER_MAX: usize = 512 << 20;
const QUESTION_MAX: usize = 256 << 20;

/// Memory of the child's own; files that are mapped do not count.
const DATA_MAX: u64 = 1 << 30;
const STACK_MAX: u64 = 16 << 20;
/// For all that it is asked.
const CPU_SECONDS_MAX: u64 = 60;
/// The socket, and the files that come.
const FILES_MAX: u64 = 16;
const NOBODY: u32 = 65534;
/// Files of debug information that was split off.
const SPLIT_MAX: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// The file that was mapped comes with it.
    Module,
    /// A debug file comes with it: does it fit, by its build id or its checksum?
    Debug {
        build_id: String,
        sum: Option<u32>,
    },
    /// What several debug files have in common comes with it.
    Shared {
        build_id: String,
    },
    /// These are all: what is asked for from now on.
    Functions,
    Variables,
    /// Addresses.
    At(Vec<u64>),
    /// The file that an answer asked for comes with it, if it is to be had.
    Split,
    Demangled(Vec<String>),
    /// The names of code made at run time come with it; addresses, in order.
    Code(Vec<u64>),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Module(Option<About>),
    /// What the file says of itself, if it fits.
    Fits(Option<About>),
    Functions(Vec<Vec<Frame>>),
    /// The path of a file that is needed first.
    Split(String),
    Variables(Vec<Option<Variable>>),
    Demangled(Vec<String>),
    /// Numbers of the addresses, and what is there.
    Code(Vec<(usize, Frame)>),
}

// ---- messages ----

/// Reads until the end of the time.
fn fill(stream: &UnixStream, mut bytes: &mut [u8], end: Option<Instant>) -> Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(left(end)?)?;
        match (&*stream).read(bytes)? {
            0 => bail!("it has ended"),
            got => bytes = &mut bytes[got..],
        }
    }
    Ok(())
}

/// What is left of the time; None: there is no end.
fn left(end: Option<Instant>) -> Result<Option<Duration>> {
    let Some(end) = end else { return Ok(None) };
    let left = end.saturating_duration_since(Instant::now());
    ensure!(!left.is_zero(), "it takes too long");
    Ok(Some(left))
}

fn send(stream: &UnixStream, message: &impl Serialize, file: Option<&File>, end: Option<Instant>) -> Result<()> {
    let body = serde_json::to_vec(message)?;
    let head = (body.len() as u32).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    stream.set_write_timeout(left(end)?)?;
    let sent = sendmsg(stream, &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(&head[sent..])?;
    for part in body.chunks(1 << 20) {
        stream.set_write_timeout(left(end)?)?;
        (&*stream).write_all(part)?;
    }
    Ok(())
}

/// A message, and the file that came with it; None: nobody is there to send one.
fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
    most: usize,
    end: Option<Instant>,
) -> Result<Option<(T, Option<OwnedFd>)>> {
    let (mut head, mut file) = ([0; 4], None);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    stream.set_read_timeout(left(end)?)?;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut head)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    if got == 0 {
        return Ok(None);
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    fill(stream, &mut head[got..], end)?;
    let length = u32::from_le_bytes(head) as usize;
    ensure!(length <= most, "its message is too long");
    let mut body = Vec::new();
    // What was not sent takes no memory.
    while body.len() < length {
        let from = body.len();
        body.resize(length.min(from + (1 << 20)), 0);
        fill(stream, &mut body[from..], end)?;
    }
    Ok(Some((serde_json::from_slice(&body).context("its message is damaged")?, file)))
}

// ---- the parent's side ----

/// Ends with this.
pub struct Child {
    stream: UnixStream,
    running: Option<std::process::Child>,
    failures: Arc<AtomicUsize>,
    /// It did not answer.
    failed: bool,
}

/// Starts what answers at the other end.
#[cfg(not(test))]
fn start(theirs: UnixStream) -> Result<Option<std::process::Child>> {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hakmem").arg(ARGUMENT).env_clear().current_dir("/");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Some(command.spawn().context("cannot start a process that names frames")?))
}

/// Tests run another program.
#[cfg(test)]
fn start(theirs: UnixStream) -> Result<Option<std::process::Child>> {
    std::thread::Builder::new().stack_size(STACK_MAX as usize).spawn(move || answer_all(&theirs))?;
    Ok(None)
}

impl Child {
    /// None: too many have failed, or there can be none.
    pub fn start(failures: &Arc<AtomicUsize>) -> Option<Child> {
        if failures.load(Ordering::Relaxed) >= budget::FAILURES {
            return None;
        }
        let (stream, theirs) = UnixStream::pair().ok()?;
        let running = start(theirs).ok()?;
        Some(Child { stream, running, failures: failures.clone(), failed: false })
    }

    pub fn ask(&mut self, question: &Question, file: Option<&File>) -> Option<Answer> {
        self.ask_with(question, file, &|_| None)
    }

    /// `open` gives files that turn out to be needed.
    pub fn ask_with(
        &mut self,
        question: &Question,
        file: Option<&File>,
        open: &dyn Fn(&Path) -> Option<File>,
    ) -> Option<Answer> {
        if self.failed {
            return None;
        }
        let end = Some(Instant::now() + budget::NAMES.time);
        let ask = || -> Result<Option<Answer>> {
            send(&self.stream, question, file, end)?;
            loop {
                match receive(&self.stream, ANSWER_MAX, end)? {
                    Some((Answer::Split(path), _)) => {
                        send(&self.stream, &Question::Split, open(Path::new(&path)).as_ref(), end)?
                    }
                    answer => return Ok(answer.map(|one| one.0)),
                }
            }
        };
        let answer = ask().ok().flatten();
        if answer.is_none() {
            self.failed = true;
            self.failures.fetch_add(1, Ordering::Relaxed);
            self.end();
        }
        answer
    }

    /// What has no answer.
    pub fn tell(&mut self, question: &Question) {
        let end = Some(Instant::now() + budget::NAMES.time);
        let _ = send(&self.stream, question, None, end); // an error shows when it is asked
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// One that the kernel keeps, because a file does not answer, is left to it.
    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.kill();
            let begun = Instant::now();
            while matches!(running.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

// ---- the child's side ----

/// Gives up what the process may do. Where it cannot, it does nothing.
fn confine() -> Result<()> {
    use rustix::thread::{set_capabilities, CapabilitySet, CapabilitySets};
    use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    use rustix::thread::{Gid, Uid};
    let _ = File::options().write(true).open("/proc/self/oom_score_adj").and_then(|mut file| file.write_all(b"1000"));
    for (what, most) in [
        (Resource::Data, DATA_MAX),
        (Resource::Stack, STACK_MAX),
        (Resource::Cpu, CPU_SECONDS_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
    ] {
        let now = rustix::process::getrlimit(what);
        let most = now.maximum.map_or(most, |maximum| maximum.min(most));
        setrlimit(what, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    set_no_new_privs(true)?;
    if rustix::process::geteuid().is_root() {
        // In a container with one user there is nobody else to be.
        let _ = set_thread_groups(&[]);
        let _ = set_thread_res_gid(Gid::from_raw(NOBODY), Gid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let _ = set_thread_res_uid(Uid::from_raw(NOBODY), Uid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// What the program is when it has ARGUMENT.
pub fn run() {
    let Ok(stream) = rustix::io::dup(std::io::stdin()) else { return };
    if confine().is_ok() {
        answer_all(&stream.into());
    }
}

/// Until nobody asks any more. An error ends it: the parent sees that.
fn answer_all(stream: &UnixStream) {
    let _ = Talk(stream).begin();
}

struct Talk<'a>(&'a UnixStream);

fn map(file: Option<OwnedFd>) -> Result<Mmap> {
    let file = file.context("no file came")?;
    // SAFETY: what its owner writes there meanwhile are bytes, which nobody trusts; if he cuts it, SIGBUS ends this
    // process.
    Ok(unsafe { Mmap::map(&File::from(file)) }?)
}

impl Talk<'_> {
    fn next(&self) -> Result<Option<(Question, Option<OwnedFd>)>> {
        receive(self.0, QUESTION_MAX, None)
    }

    fn answer(&self, answer: &Answer) -> Result<()> {
        send(self.0, answer, None, None)
    }

    fn begin(&self) -> Result<()> {
        while let Some((question, file)) = self.next()? {
            match question {
                Question::Module => return self.module(&map(file)?),
                Question::Code(addresses) => self.answer(&Answer::Code(jit::names(&map(file)?, &addresses)))?,
                Question::Demangled(names) => {
                    self.answer(&Answer::Demangled(names.iter().map(|name| parser::demangled(name)).collect()))?
                }
                question => bail!("{question:?} comes too early"),
            }
        }
        Ok(())
    }

    fn module(&self, main: &[u8]) -> Result<()> {
        self.answer(&Answer::Module(parser::about(main)))?;
        let (mut debug, mut shared) = (None, None);
        let variables = loop {
            let Some((question, file)) = self.next()? else { return Ok(()) };
            let (bytes, place) = match &question {
                Question::Debug { .. } => (map(file)?, &mut debug),
                Question::Shared { .. } => (map(file)?, &mut shared),
                Question::Functions => break false,
                Question::Variables => break true,
                question => bail!("{question:?} comes too early"),
            };
            let fits = |about: &About| match &question {
                Question::Debug { sum: Some(sum), .. } => parser::checksum(&bytes) == *sum,
                Question::Debug { build_id, .. } | Question::Shared { build_id } => about.build_id == *build_id,
                _ => false,
            };
            let about = parser::about(&bytes).filter(fits);
            *place = about.is_some().then_some(bytes).or(place.take());
            self.answer(&Answer::Fits(about))?;
        };
        let files = Files { main, debug: debug.as_deref(), shared: shared.as_deref() };
        let left = Cell::new(SPLIT_MAX);
        let split = |path: &str| -> Option<&'static [u8]> {
            left.set(left.get().checked_sub(1)?);
            self.answer(&Answer::Split(path.to_string())).ok()?;
            let (_, file) = self.next().ok()??;
            Some(&**Box::leak(Box::new(map(file).ok()?)))
        };
        let answered = files.read(variables, &split, |parser| -> Result<()> {
            while let Some((Question::At(addresses), _)) = self.next()? {
                let mut left = Budget::new(budget::NAMES);
                self.answer(&match variables {
                    true => Answer::Variables(addresses.iter().map(|&one| parser.variable(one)).collect()),
                    false => Answer::Functions(addresses.iter().map(|&one| parser.at(one, &mut left)).collect()),
                })?;
            }
            Ok(())
        });
        answered.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn questions_are_answered() {
        let mut child = Child::start(&Arc::default()).unwrap();
        let own = File::open("/proc/self/exe").unwrap();
        let Some(Answer::Module(Some(about))) = child.ask(&Question::Module, Some(&own)) else { panic!() };
        assert!(about.segments.len() > 1);
        let wrong = Question::Debug { build_id: "no such".into(), sum: None };
        assert!(matches!(child.ask(&wrong, Some(&own)), Some(Answer::Fits(None))));
        child.tell(&Question::Functions);
        let Some(Answer::Functions(found)) = child.ask(&Question::At(vec![1 << 60, u64::MAX]), None) else { panic!() };
        assert_eq!(found, [vec![], vec![]]);
        let mut child = Child::start(&Arc::default()).unwrap();
        let question = Question::Demangled(vec!["_ZN1a1bEv".into(), "c".repeat(9)]);
        let Some(Answer::Demangled(names)) = child.ask(&question, None) else { panic!() };
        assert_eq!(names, ["a::b()".to_string(), "c".repeat(9)]);
        let Some(Answer::Code(names)) = child.ask(&Question::Code(vec![1, 0x1001]), Some(&with(b"1000 9 made\n")))
        else {
            panic!()
        };
        assert_eq!((names.len(), names[0].0, names[0].1.function.as_str()), (1, 1, "made"));
    }

    /// A crash of a child must not end the command, nor start children without end.
    #[test]
    fn who_does_not_answer_is_not_asked_again() {
        let failures = Arc::<AtomicUsize>::default();
        for _ in 0..budget::FAILURES {
            let (stream, theirs) = UnixStream::pair().unwrap();
            let mut child = Child { stream, running: None, failures: failures.clone(), failed: false };
            drop(theirs);
            assert!(child.ask(&Question::At(vec![1]), None).is_none() && child.has_failed());
            assert!(child.ask(&Question::At(vec![1]), None).is_none(), "it counts once");
        }
        assert_eq!(failures.load(Ordering::Relaxed), budget::FAILURES);
        assert!(Child::start(&failures).is_none());
    }

    /// Else an attacker who took over a child ends its parent, or keeps it.
    #[test]
    fn any_answer_is_believed_or_not() {
        let answer = Answer::Functions(vec![vec![Frame { function: "f".into(), file: "a.c".into(), line: 3 }]]);
        let body = serde_json::to_vec(&answer).unwrap();
        let message = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        hakmem_fuzz::mutations("an answer", &message, 1000, |bytes| {
            let (stream, theirs) = UnixStream::pair().unwrap();
            (&theirs).write_all(bytes).unwrap();
            drop(theirs);
            let _ = receive::<Answer>(&stream, ANSWER_MAX, Some(Instant::now() + budget::NAMES.time));
        });
        let question = serde_json::to_vec(&Question::Code(vec![1, 2])).unwrap();
        let message = [&(question.len() as u32).to_le_bytes()[..], &question].concat();
        hakmem_fuzz::mutations("a question", &message, 1000, |bytes| {
            let (stream, theirs) = UnixStream::pair().unwrap();
            (&stream).write_all(bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            answer_all(&theirs);
        });
    }
}
