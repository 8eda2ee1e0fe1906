//! Starts a program, watches it and says what it cost.
//!
//! 1. The child waits until it is traced (ptrace), then executes the program. Time and faults count from there.
//! 2. It runs at full speed: it stops for exec, fork, signals and the end of its main thread only; threads are not
//!    traced. Processes it starts are traced like it.
//! 3. At the exit stop the address space is still there: maps and VmHWM are read. (ru_maxrss would not do: it starts
//!    with the peak of whoever forked the child.) The time this takes is not the program's and is subtracted.
//! 4. In between the same thread samples memory: every 2 ms at first, then every 25th of the time so far, and never so
//!    often that reading takes more than a 50th of a processor. A sample of one process costs 40 to 100 us of a core,
//!    most of it for waking up (measured on a busy virtual machine): 2-5 % of one core in the first 50 ms, 0.6 % over
//!    the first second. Where lazy memory is wanted, too, it is sampled every 20 ms.
//! 5. Nothing is left behind: this process adopts orphans, and kills all that descends from it when a run is over.
//!
//! Where ptrace is forbidden, what the exit stop would tell is taken from the samples.
// SPDX-License-Identifier: MIT

use crate::results::Processes;
use crate::tax::Sampler;
use anyhow::{bail, Context, Result};
use hakmem_base::proc::{self, Pid};
use hakmem_base::scratch;
use hakmem_base::signals::{self, Event};
use std::collections::{BTreeSet, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

const SAMPLE_MIN: Duration = Duration::from_millis(2);
const SAMPLE_UNTRACED_MIN: Duration = Duration::from_micros(200);
/// Where lazy memory is sampled, too: page tables are walked for it, so that reading may take a 20th of a processor.
pub const SAMPLE_LAZY: Duration = Duration::from_millis(20);
/// How long processes that outlive the program may take to end by themselves.
const GRACE: Duration = Duration::from_millis(500);

pub struct Job<'a> {
    /// The file to execute, and its arguments, the name first.
    pub program: &'a Path,
    pub arguments: &'a [String],
    /// "NAME=VALUE"
    pub environment: &'a [OsString],
    pub directory: &'a Path,
    /// What must be mapped, as absolute paths without symbolic links.
    pub libraries: &'a [String],
    pub processes: Processes,
    pub timeout: Option<Duration>,
    pub stdout: &'a Path,
    pub stderr: &'a Path,
    pub signals: &'a libc::sigset_t,
    /// perf writes its samples here.
    pub samples: Option<&'a Path>,
    /// Memory is sampled evenly, and what of it is lazy, too.
    pub lazy: bool,
    /// The program is a tracer itself, so it must not be traced here.
    pub traces: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Status(i32),
    Signal(i32),
    TimedOut,
    Interrupted,
}

#[derive(Debug)]
pub struct Cost {
    pub end: End,
    pub wall_s: f64,
    pub cpu_s: f64,
    pub peak_rss_bytes: u64,
    pub average_rss_bytes: u64,
    /// 0 where it was not sampled.
    pub average_lazy_bytes: u64,
    pub minor_faults: u64,
    /// All of the job's libraries were mapped.
    pub loaded: bool,
    /// File names of everything mapped when the program ended.
    pub mapped: BTreeSet<String>,
    /// The file that the program was when it ended.
    pub executable: String,
    pub traced: bool,
    /// Peak of the largest process that the program started.
    pub largest_child_bytes: u64,
    /// Processes had to be killed that outlived the program.
    pub left_behind: bool,
    pub rss_over_time: Vec<(f64, u64)>,
}

/// Makes this process the parent of all orphans below it.
pub fn adopt_orphans() {
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Runs the job to its end. Fails if the program cannot be started.
pub fn run(job: &Job) -> Result<Cost> {
    let child = start(job)?;
    let mut watch = Watch::new(job, child.pid, child.traced);
    if !child.traced {
        watch.begin();
    }
    let end = watch.until_end();
    if let Some(sampler) = child.sampler {
        sampler.stop();
    }
    let left_behind = end_tree(if matches!(end, End::Status(_)) { GRACE } else { Duration::ZERO });
    Ok(watch.cost(end, left_behind))
}

// ---- starting ----

struct Child {
    pid: Pid,
    traced: bool,
    sampler: Option<Sampler>,
}

/// Everything the child needs between fork and exec, where it must not allocate.
struct Image {
    program: CString,
    directory: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    files: [File; 3],
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes()).with_context(|| format!("{text:?} has a NUL byte"))
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

fn image(job: &Job) -> Result<Image> {
    let create = |path: &Path| scratch::file(path).with_context(|| path.display().to_string());
    Ok(Image {
        program: c_string(job.program.as_os_str())?,
        directory: c_string(job.directory.as_os_str())?,
        arguments: job.arguments.iter().map(|text| c_string(OsStr::new(text))).collect::<Result<_>>()?,
        environment: job.environment.iter().map(|text| c_string(text)).collect::<Result<_>>()?,
        files: [File::open("/dev/null")?, create(job.stdout)?, create(job.stderr)?],
    })
}

/// The end to read from, and the end to write to.
fn pipe() -> Result<(File, File)> {
    let mut ends = [0; 2];
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        bail!("pipe: {}", Error::last_os_error());
    }
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Forks; returns when the program is being executed.
fn start(job: &Job) -> Result<Child> {
    let image = image(job)?;
    let (mut go_read, mut go_write) = pipe()?;
    let (mut error_read, error_write) = pipe()?;
    let (arguments, environment) = (pointers(&image.arguments), pointers(&image.environment));
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        bail!("fork: {}", Error::last_os_error());
    }
    if pid == 0 {
        drop(go_write);
        unsafe { child_prepare(&image, job.signals) };
        if matches!(go_read.read(&mut [0]), Ok(1)) {
            unsafe { libc::execve(image.program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        }
        let number = Error::last_os_error().raw_os_error().unwrap_or(0);
        let _ = (&error_write).write(&number.to_ne_bytes());
        unsafe { libc::_exit(127) };
    }
    drop((go_read, error_write));
    let traced = !job.traces && trace(pid);
    let sampler = job.samples.map(|samples| Sampler::attach(pid, samples)).transpose();
    let sampler = sampler.inspect_err(|_| {
        end_tree(Duration::ZERO);
    })?;
    go_write.write_all(&[1])?;
    let mut number = [0; 4];
    if error_read.read_exact(&mut number).is_ok() {
        end_tree(Duration::ZERO);
        bail!("{}: {}", job.program.display(), Error::from_raw_os_error(i32::from_ne_bytes(number)));
    }
    Ok(Child { pid, traced, sampler })
}

unsafe fn child_prepare(image: &Image, signals: &libc::sigset_t) {
    libc::setpgid(0, 0);
    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    libc::sigprocmask(libc::SIG_SETMASK, signals, ptr::null_mut());
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    libc::setrlimit(libc::RLIMIT_CORE, &none);
    for (number, file) in image.files.iter().enumerate() {
        libc::dup2(file.as_raw_fd(), number as i32);
    }
    libc::chdir(image.directory.as_ptr());
}

fn ptrace(request: libc::c_uint, pid: Pid, data: usize) -> libc::c_long {
    unsafe { libc::ptrace(request, pid, 0usize, data) }
}

fn trace(pid: Pid) -> bool {
    let options = libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SEIZE, pid, options as usize) == 0
}

// ---- watching ----

struct Watch<'a> {
    job: &'a Job<'a>,
    main: Pid,
    traced: bool,
    /// The program's processes, as far as tracing tells.
    tree: HashSet<Pid>,
    started: Option<Instant>,
    ended: Option<Instant>,
    /// How long the program was stopped at its end.
    held: Duration,
    faults_before: u64,
    cpu_before: f64,
    statm: Option<proc::Statm>,
    usage: Option<libc::rusage>,
    samples: Vec<(f64, u64)>,
    lazy_samples: Vec<(f64, u64)>,
    next_sample: Instant,
    peak: u64,
    /// The main thread has ended; others may still run.
    main_exiting: bool,
    loaded: bool,
    mapped: BTreeSet<String>,
    executable: String,
    largest_child: u64,
}

impl<'a> Watch<'a> {
    fn new(job: &'a Job<'a>, main: Pid, traced: bool) -> Self {
        Watch {
            job,
            main,
            traced,
            tree: HashSet::from([main]),
            started: None,
            ended: None,
            held: Duration::ZERO,
            faults_before: 0,
            cpu_before: 0.0,
            statm: None,
            usage: None,
            samples: Vec::new(),
            lazy_samples: Vec::new(),
            next_sample: Instant::now() + Duration::from_secs(3600),
            peak: 0,
            main_exiting: false,
            loaded: false,
            mapped: BTreeSet::new(),
            executable: job.program.display().to_string(),
            largest_child: 0,
        }
    }

    /// The program is in memory and about to run.
    fn begin(&mut self) {
        self.faults_before = proc::minor_faults(self.main);
        self.cpu_before = proc::cpu(self.main);
        self.statm = proc::Statm::open(self.main);
        self.sample();
        self.started = Some(Instant::now());
    }

    fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    fn until_end(&mut self) -> End {
        let begun = Instant::now();
        let limit = begun + self.job.timeout.unwrap_or(Duration::from_secs(365 * 86400));
        loop {
            let event = signals::wait(self.next_sample.min(limit));
            if matches!(event, Event::Interrupt) {
                return End::Interrupted;
            }
            while let Some((pid, status, usage)) = wait_any() {
                if libc::WIFSTOPPED(status) {
                    self.stopped(pid, status);
                } else if pid == self.main {
                    self.ended = Some(Instant::now());
                    self.usage = Some(usage);
                    return match libc::WIFSIGNALED(status) {
                        true => End::Signal(libc::WTERMSIG(status)),
                        false => End::Status(libc::WEXITSTATUS(status)),
                    };
                } else {
                    self.tree.remove(&pid);
                }
            }
            if Instant::now() >= limit {
                return End::TimedOut;
            }
            if Instant::now() >= self.next_sample {
                self.sample();
            }
        }
    }

    fn stopped(&mut self, pid: Pid, status: i32) {
        let since = Instant::now();
        self.tree.insert(pid);
        match status >> 16 {
            libc::PTRACE_EVENT_EXEC if pid == self.main && self.started.is_none() => self.begin(),
            libc::PTRACE_EVENT_EXIT => self.exiting(pid),
            _ => {}
        }
        resume(pid, status);
        if pid == self.main && self.main_exiting {
            self.held += since.elapsed();
        }
    }

    /// The exit stop of a process.
    fn exiting(&mut self, pid: Pid) {
        let all = self.job.processes == Processes::All;
        if pid == self.main {
            self.main_exiting = true;
            self.executable = executable(pid).unwrap_or(std::mem::take(&mut self.executable));
            if let (Some((rss, peak)), false) = (proc::rss_and_peak(pid), all) {
                self.peak = peak;
                self.samples.push((self.elapsed().as_secs_f64(), rss));
            }
        } else if let Some((_, peak)) = proc::rss_and_peak(pid) {
            self.largest_child = self.largest_child.max(peak);
        }
        if all && (pid == self.main || Instant::now() >= self.next_sample) {
            self.sample();
        }
        if pid == self.main || (all && !self.loaded) {
            self.look_at_maps(pid);
        }
    }

    fn look_at_maps(&mut self, pid: Pid) {
        let files = proc::mapped_files(pid);
        self.loaded |= self.job.libraries.iter().all(|library| files.contains(library));
        self.mapped.extend(files);
    }

    // ---- sampling ----

    fn sample(&mut self) {
        let before = thread_cpu();
        let bytes = match self.job.processes {
            _ if self.job.lazy => self.sample_lazy(),
            Processes::All => self.sample_tree(),
            Processes::Main => self.sample_main(),
        };
        let elapsed = self.elapsed();
        if let Some(bytes) = bytes {
            self.samples.push((elapsed.as_secs_f64(), bytes));
        }
        if !self.traced && !self.loaded {
            self.look_at_maps(self.main);
        }
        let cost = thread_cpu().saturating_sub(before);
        let early = !self.traced && elapsed < SAMPLE_MIN;
        let pause = match self.job.lazy {
            true => SAMPLE_LAZY.max(cost * 20),
            false if early => SAMPLE_UNTRACED_MIN,
            false => SAMPLE_MIN.max(elapsed / 25).max(cost * 50),
        };
        self.next_sample = Instant::now() + pause;
    }

    fn sample_main(&mut self) -> Option<u64> {
        if self.traced && !self.main_exiting {
            return self.statm.as_ref()?.rss();
        }
        let (rss, peak) = proc::rss_and_peak(self.main)?;
        self.peak = self.peak.max(peak);
        Some(rss)
    }

    /// The tree as it is now, as far as tracing does not tell.
    fn tree(&mut self) -> &HashSet<Pid> {
        if !self.traced {
            self.tree = proc::descendants(std::process::id() as Pid).into_iter().collect();
        }
        &self.tree
    }

    fn sample_lazy(&mut self) -> Option<u64> {
        let all = self.job.processes == Processes::All;
        let pids = if all { self.tree().iter().copied().collect() } else { vec![self.main] };
        let samples = pids.into_iter().filter_map(|pid| proc::resident_and_lazy(pid, all));
        let (sum, lazy) = samples.fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
        if sum == 0 {
            return if all { None } else { self.sample_main() }; // its main thread has ended
        }
        if all {
            self.peak = self.peak.max(sum);
        }
        self.lazy_samples.push((self.elapsed().as_secs_f64(), lazy));
        Some(sum)
    }

    fn sample_tree(&mut self) -> Option<u64> {
        let sum = self.tree().iter().filter_map(|&pid| proc::pss(pid)).sum();
        self.peak = self.peak.max(sum);
        (sum > 0).then_some(sum)
    }

    // ---- the result ----

    fn cost(self, end: End, left_behind: bool) -> Cost {
        let wall = match (self.started, self.ended) {
            (Some(started), Some(ended)) => (ended - started).saturating_sub(self.held).as_secs_f64(),
            _ => self.elapsed().as_secs_f64(),
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        let sampled_peak = self.samples.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        Cost {
            end,
            wall_s: wall,
            cpu_s: self
                .usage
                .map_or(0.0, |usage| (seconds(usage.ru_utime) + seconds(usage.ru_stime) - self.cpu_before).max(1e-6)),
            peak_rss_bytes: if self.peak > 0 { self.peak } else { sampled_peak },
            average_rss_bytes: average(&self.samples, wall),
            average_lazy_bytes: average(&self.lazy_samples, wall),
            minor_faults: self.usage.map_or(0, |usage| (usage.ru_minflt as u64).saturating_sub(self.faults_before)),
            loaded: self.loaded,
            mapped: self.mapped,
            executable: self.executable,
            traced: self.traced,
            largest_child_bytes: self.largest_child,
            left_behind,
            rss_over_time: thin(&self.samples, 200),
        }
    }
}

fn executable(pid: Pid) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/exe")).ok()?.display().to_string())
}

fn wait_any() -> Option<(Pid, i32, libc::rusage)> {
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed() });
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG | libc::__WALL, &mut usage) };
    (pid > 0).then_some((pid, status, usage))
}

/// Lets a stopped process go on, with the signal that stopped it unless that was tracing itself.
fn resume(pid: Pid, status: i32) {
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => ptrace(libc::PTRACE_CONT, pid, signal as usize),
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => ptrace(libc::PTRACE_LISTEN, pid, 0),
        _ => ptrace(libc::PTRACE_CONT, pid, 0),
    };
}

fn has_children() -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    unsafe { libc::waitid(libc::P_ALL, 0, &mut std::mem::zeroed(), options) == 0 }
}

/// Waits until nothing that was started is left; what lives after `grace` is killed. Was something?
fn end_tree(grace: Duration) -> bool {
    let until = Instant::now() + grace;
    let mut killed = false;
    loop {
        while let Some((pid, status, _)) = wait_any() {
            if libc::WIFSTOPPED(status) {
                resume(pid, status);
            }
        }
        if !has_children() {
            return killed;
        }
        if Instant::now() >= until {
            killed = true;
            for pid in proc::descendants(std::process::id() as Pid) {
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

// ---- samples ----

/// The processor time of the calling thread. Waiting for a processor is no cost of a sample.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time and nothing else. It cannot fail: the clock exists since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The average over time of what was sampled, lines drawn from sample to sample, the last one kept until `end`.
fn average(samples: &[(f64, u64)], end: f64) -> u64 {
    let (Some(&(first, _)), Some(&(last, bytes))) = (samples.first(), samples.last()) else {
        return 0;
    };
    let end = end.max(last);
    if end <= first {
        return bytes;
    }
    let area = |pair: &[(f64, u64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) as f64 / 2.0;
    let sum: f64 = samples.windows(2).map(area).sum::<f64>() + (end - last) * bytes as f64;
    (sum / (end - first)) as u64
}

/// At most `most` samples: the first, the last, and the highest of equal pieces between them.
fn thin(samples: &[(f64, u64)], most: usize) -> Vec<(f64, u64)> {
    if samples.len() <= most {
        return samples.to_vec();
    }
    let inner = &samples[1..samples.len() - 1];
    let piece = inner.len().div_ceil(most - 2);
    let highest = inner.chunks(piece).filter_map(|chunk| chunk.iter().max_by_key(|sample| sample.1));
    samples.first().into_iter().chain(highest).chain(samples.last()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_weighs_by_time() {
        assert_eq!(average(&[], 1.0), 0);
        assert_eq!(average(&[(0.0, 100)], 0.0), 100);
        // 100 for 9 s, then 0 for 1 s, with a steep fall between.
        let samples = [(0.0, 100), (9.0, 100), (9.0, 0)];
        assert_eq!(average(&samples, 10.0), 90);
        assert_eq!(average(&[(0.0, 0), (0.001, 1000)], 0.001), 500);
    }

    #[test]
    fn thinning_keeps_ends_and_peaks() {
        let samples: Vec<_> = (0..5000u64).map(|i| (i as f64, if i == 3333 { 9999 } else { i % 7 })).collect();
        let thinned = thin(&samples, 200);
        assert!(thinned.len() <= 200 && thinned.len() > 100);
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), (samples[0], samples[4999]));
        assert!(thinned.contains(&(3333.0, 9999)));
        assert!(thinned.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
