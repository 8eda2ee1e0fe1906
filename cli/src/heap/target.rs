//! A process that runs HAKMEM, as the commands see it. Whatever it does, each question is answered within a time.
// SPDX-License-Identifier: MIT

use super::blocks::{Blocks, Copied};
use super::core::{self, Core};
use super::model::*;
use super::named::Subject;
use super::patience::{self, within};
use super::reach::{self, Search};
use super::reader::{Detail, Reader};
use super::remote::Remote;
use super::samples::{Birth, Sampled};
use super::steer::Purged;
use anyhow::{bail, ensure, Result};
use hakmem_base::proc::Pid;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// For the other threads, once one has purged.
const WAIT_FOR_THREADS: Duration = Duration::from_millis(300);

pub const SWITCHED_OFF: &str = "HAKMEM_SUPERSLAB=0 leaves all of its blocks to libc's own allocator";

pub struct Target {
    reader: Arc<Reader>,
    allowed: Duration,
    /// File that the library is in.
    pub file: String,
}

impl Target {
    /// Finds HAKMEM in the process.
    pub fn attach(pid: Pid) -> Result<Target> {
        Target::attach_within(pid, patience::USUAL)
    }

    /// Each question to it may take so long.
    pub fn attach_within(pid: Pid, allowed: Duration) -> Result<Target> {
        let reader = within(pid, allowed, move || Reader::attach(pid))?;
        Ok(Target { file: reader.file.clone(), reader: Arc::new(reader), allowed })
    }

    /// Finds HAKMEM in the process, or in the core file.
    pub fn open(subject: &Subject) -> Result<Target> {
        Target::open_within(subject, patience::USUAL)
    }

    pub fn open_within(subject: &Subject, allowed: Duration) -> Result<Target> {
        match subject {
            Subject::Process(pid) => Target::attach_within(*pid, allowed),
            Subject::Core(path) => {
                let reader = Reader::of_core(core::open(path)?)?;
                Ok(Target { file: reader.file.clone(), reader: Arc::new(reader), allowed })
            }
        }
    }

    /// None: it does not run HAKMEM.
    pub fn attach_if(pid: Pid, allowed: Duration) -> Result<Option<Target>> {
        let reader = within(pid, allowed, move || Reader::attach_if(pid))?;
        Ok(reader.map(|reader| Target { file: reader.file.clone(), reader: Arc::new(reader), allowed }))
    }

    fn ask<T: Send + 'static>(&self, work: impl FnOnce(&Reader) -> Result<T> + Send + 'static) -> Result<T> {
        let reader = self.reader.clone();
        within(self.pid(), self.allowed, move || work(&reader))
    }

    pub fn pid(&self) -> Pid {
        self.reader.pid()
    }

    /// The core file that it is; None: a process.
    pub fn core(&self) -> Option<&'static Core> {
        self.reader.remote.core()
    }

    /// What a core file lacks, so that live blocks seem untouched.
    pub fn lacks(&self) -> Option<String> {
        self.core()?.lacks_shared().map(|lack| format!("hakmem: {lack}: blocks in them count as never touched"))
    }

    pub fn remote(&self) -> Remote {
        self.reader.remote.clone()
    }

    /// The library's version.
    pub fn version(&self) -> &str {
        self.reader.version()
    }

    /// Has anything been allocated from it?
    pub fn is_serving(&self) -> bool {
        self.ask(|reader| Ok(reader.is_serving())).unwrap_or(false)
    }

    /// Fails if nothing has been allocated from it.
    pub fn ensure_serving(&self) -> Result<()> {
        if !self.is_serving() {
            let pid = self.pid();
            ensure!(!self.is_switched_off()?, "PID {pid}: {SWITCHED_OFF}"); // it may also just have ended
            bail!(
                "PID {pid} has loaded HAKMEM, but not allocated from it: it is just starting, or see `hakmem doctor \
                {pid}`"
            );
        }
        Ok(())
    }

    /// Was it started so that nothing is allocated from it?
    pub fn is_switched_off(&self) -> Result<bool> {
        Ok(self.read_options()?.iter().any(|option| option.name == "SUPERSLAB" && option.value == "0"))
    }

    /// Does it run in secure mode?
    pub fn is_secure(&self) -> Result<bool> {
        self.ask(Reader::is_secure)
    }

    /// Is nothing reserved, so that SuperSlabs are mapped one by one?
    pub fn is_window(&self) -> Result<bool> {
        self.ask(Reader::is_window)
    }

    pub fn snapshot(&self) -> Result<Snapshot> {
        self.ask(|reader| reader.snapshot(Detail::Slots))
    }

    /// A snapshot without the slots of SuperSlabs: a few hundred KiB at most, however large the heap.
    pub fn summary(&self) -> Result<Snapshot> {
        self.ask(|reader| reader.snapshot(Detail::Sums))
    }

    pub fn read_options(&self) -> Result<Vec<OptionValue>> {
        self.ask(Reader::read_options)
    }

    /// Options, then tunables.
    pub fn read_settings(&self) -> Result<Vec<OptionValue>> {
        self.ask(|reader| Ok([reader.read_options()?, reader.read_tunables()?].concat()))
    }

    /// Fails if the option may not be set to this.
    pub fn check_option(&self, name: &str, text: &str) -> Result<()> {
        let (name, text) = (name.to_string(), text.to_string());
        self.ask(move |reader| reader.check_setting(&name, &text))
    }

    /// Changes a LIVE option. Returns its name, and its value before and after.
    pub fn set_option(&self, name: &str, text: &str) -> Result<(String, String, String)> {
        let (name, text) = (name.to_string(), text.to_string());
        self.ask(move |reader| reader.set_option(&name, &text))
    }

    /// Asks for a purge, and waits until a thread has done it, or for `patience`. `waiting` is called again and again
    /// meanwhile, with whether there is a purger.
    pub fn purge(&self, patience: Duration, mut waiting: impl FnMut(bool)) -> Result<Purged> {
        ensure!(self.is_serving(), "PID {}: nothing has been allocated from HAKMEM in it", self.pid());
        let (wanted, purger) = self.ask(Reader::want_purge)?;
        let begun = Instant::now();
        let mut first: Option<Instant> = None;
        loop {
            let (done, left) = self.ask(move |reader| reader.threads_done(wanted))?;
            if done > 0 {
                first.get_or_insert_with(Instant::now);
            }
            let over = first.map_or(begun.elapsed() >= patience, |first| first.elapsed() >= WAIT_FOR_THREADS);
            // Before the end, too: on a busy machine this may be the first look for long.
            if done == 0 && !patience.is_zero() {
                waiting(purger);
            }
            if left == 0 || over {
                return Ok(Purged { done, waiting: left, purger });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What was sampled so far.
    pub fn samples(&self) -> Result<Sampled> {
        self.ask(Reader::samples)
    }

    /// The live samples.
    pub fn births(&self) -> Result<Vec<Birth>> {
        self.ask(Reader::births)
    }

    /// The live blocks, as far as they can be told while the process runs on.
    pub fn blocks(&self) -> Result<(Blocks, Copied)> {
        self.ask(Reader::blocks)
    }

    /// The live blocks that nothing points to. The process stands still meanwhile.
    pub fn unreachable(&self) -> Result<Search> {
        self.ask(reach::search)
    }

    /// Bytes between two samples now, on average; 0: there are none.
    pub fn sampled_every(&self) -> Result<u64> {
        self.ask(Reader::sampled_every)
    }

    /// Sets the bytes between two samples, on average; 0: there are to be none.
    pub fn sample_every(&self, bytes: u64) -> Result<()> {
        self.ask(move |reader| reader.sample_every(bytes))
    }
}
