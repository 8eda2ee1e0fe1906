//! Runs a program under HAKMEM and reads its heap when it was largest.
//!
//!  1. It is traced: it stops for its exec, its signals and its end only. At the last stop its memory is still there.
//!  2. Its Rss is looked at every few milliseconds; whenever it is well above that of the last snapshot another one is
//!     taken, while the program runs on. All of them together take a tenth of a processor at most, once it runs for
//!     long.
//!  3. Signals that would end this process go to the program, so that it is read at its end; a second one ends both.
//!     What the terminal sends reaches the program anyhow.
//!  4. A program that ends with nearly what it had at its peak is read at its end, when nothing moves.
// SPDX-License-Identifier: MIT

use crate::heap::{OptionValue, Snapshot, Target};
use anyhow::{bail, Context, Result};
use hakmem_base::preload;
use hakmem_base::print;
use hakmem_base::proc::{self, Pid};
use hakmem_base::signals;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(2);
const STEP_BYTES: u64 = 256 << 10;
/// Snapshots may take a tenth of a processor, and so much more. By the clock a busy machine would leave none but the
/// first.
const SHARE: u32 = 10;
const FREE: Duration = Duration::from_millis(200);

pub struct Watched {
    pub snapshot: Snapshot,
    /// How long the program had run when the snapshot was taken; None: its end.
    pub after: Option<Duration>,
    /// What was left when the program had ended.
    pub end: Option<Snapshot>,
    /// Options and tunables as they were then.
    pub settings: Vec<OptionValue>,
    /// Seconds of processor time.
    pub cpu: f64,
    /// How the program ended, if not well.
    pub failure: Option<String>,
    /// Its status, as a shell tells it.
    pub code: u8,
}

struct Watch {
    pid: Pid,
    begun: Instant,
    statm: Option<proc::Statm>,
    best: Option<(Snapshot, Option<Duration>)>,
    end: Option<Snapshot>,
    settings: Vec<OptionValue>,
    cpu: f64,
    cost: Duration,
    /// Rss at most, known at the end.
    peak: u64,
    error: Option<anyhow::Error>,
}

/// `quiet`: what the program prints goes to stderr.
pub fn run(program: &[String], library: &str, environment: &[(&str, OsString)], quiet: bool) -> Result<Watched> {
    let mut command = preload::under(library, &program[0]);
    command.args(&program[1..]).envs(environment.iter().cloned());
    if quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let blocked = signals::block();
    let mask = *blocked.before();
    // SAFETY: system calls, and nothing else between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let child = command.spawn().with_context(|| program[0].clone())?;
    let (pid, begun) = (child.id() as Pid, Instant::now());
    let mut watch = Watch {
        pid,
        begun,
        statm: None,
        best: None,
        end: None,
        settings: Vec::new(),
        cpu: 0.0,
        cost: Duration::ZERO,
        peak: 0,
        error: None,
    };
    let (code, failure) = watch.until_end()?;
    signals::interrupted(); // what was meant for the program is not to end this process now
    match (watch.best, watch.error) {
        (Some((mut snapshot, after)), _) => {
            snapshot.process.rss_peak = snapshot.process.rss_peak.max(watch.peak);
            Ok(Watched { snapshot, after, end: watch.end, settings: watch.settings, cpu: watch.cpu, failure, code })
        }
        (None, Some(error)) => Err(error),
        (None, None) => bail!("{} ended before it could be read", program[0]),
    }
}

impl Watch {
    /// Says how it ended, if not well.
    fn until_end(&mut self) -> Result<(u8, Option<String>)> {
        let (mut prepared, mut passed_on) = (false, false);
        loop {
            let mut status = 0;
            // SAFETY: of the child that was just made.
            let got = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG | libc::__WALL) };
            if got < 0 {
                bail!("waiting for PID {}: {}", self.pid, std::io::Error::last_os_error());
            }
            if got == 0 {
                match signals::wait_for_end(Instant::now() + LOOK_EVERY) {
                    Some(signal) if passed_on && signal.sent => print::end_by(signal.number),
                    Some(signal) if signal.sent => {
                        // SAFETY: no memory is involved.
                        unsafe { libc::kill(self.pid, signal.number) };
                        passed_on = true;
                    }
                    _ => {} // the terminal has sent it to the program, too
                }
                self.look();
            } else if libc::WIFEXITED(status) {
                let code = libc::WEXITSTATUS(status);
                return Ok((code as u8, (code != 0).then(|| format!("it ended with status {code}"))));
            } else if libc::WIFSIGNALED(status) {
                let signal = libc::WTERMSIG(status);
                return Ok((128 + signal as u8, Some(format!("signal {signal} ended it"))));
            } else if !prepared {
                prepared = true; // the stop at its exec
                let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
                ptrace(libc::PTRACE_SETOPTIONS, self.pid, options as usize);
                self.statm = proc::Statm::open(self.pid);
                ptrace(libc::PTRACE_CONT, self.pid, 0);
            } else {
                self.stopped(status);
            }
        }
    }

    fn stopped(&mut self, status: i32) {
        let event = status >> 16;
        if event == libc::PTRACE_EVENT_EXIT {
            self.look_at_end();
        } else if event == libc::PTRACE_EVENT_EXEC {
            self.statm = proc::Statm::open(self.pid);
        }
        let signal = if event == 0 { libc::WSTOPSIG(status) } else { 0 };
        ptrace(libc::PTRACE_CONT, self.pid, signal as usize);
    }

    fn rss(&self) -> u64 {
        self.statm.as_ref().and_then(proc::Statm::rss).unwrap_or(0)
    }

    fn look(&mut self) {
        let best = self.best.as_ref().map_or(0, |(snapshot, _)| snapshot.process.rss);
        if self.cost <= self.begun.elapsed() / SHARE + FREE && self.rss() > best + best / 20 + STEP_BYTES {
            let after = Some(self.begun.elapsed());
            self.take(after, best);
        }
    }

    fn look_at_end(&mut self) {
        self.cpu = proc::cpu_of_threads(self.pid);
        self.peak = proc::rss_and_peak(self.pid).map_or(0, |(_, peak)| peak);
        let best = self.best.as_ref().map_or(0, |(snapshot, _)| snapshot.process.rss);
        let counts = self.rss() >= best - best / 20;
        self.take(None, if counts { best - best / 20 } else { u64::MAX });
    }

    fn take(&mut self, after: Option<Duration>, least: u64) {
        let begun = processor_time();
        match Target::attach(self.pid).and_then(|target| Ok((target.snapshot()?, target))) {
            Ok((snapshot, target)) => {
                if after.is_none() {
                    self.settings = target.read_settings().unwrap_or_default();
                }
                self.end = after.is_none().then(|| snapshot.clone());
                if snapshot.process.rss >= least {
                    self.best = Some((snapshot, after));
                }
            }
            Err(error) => self.error = Some(error),
        }
        self.cost += processor_time() - begun;
    }
}

/// That of this process.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn ptrace(request: libc::c_uint, pid: Pid, data: usize) {
    // SAFETY: no memory of ours is involved. It fails when the process is gone, which waitpid tells.
    unsafe { libc::ptrace(request, pid, 0usize, data) };
}
