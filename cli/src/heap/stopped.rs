//! A process whose threads stand still, and their registers. They go on when this is dropped, or when this command
//! ends.
//!
//! ptrace stops each thread without a signal that the program could see. A system call that waits is begun again by the
//! kernel; those that cannot be (epoll_wait and a few more, signal(7)) return EINTR, as after any SIGSTOP and SIGCONT.
// SPDX-License-Identifier: MIT

use super::core::stack_pointer;
use super::remote::Remote;
use anyhow::{bail, ensure, Result};
use hakmem_base::proc::{Pid, Process};
use std::fs;
use std::io::Error;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// General registers, and those of floating point, as PTRACE_GETREGSET numbers them.
const SETS: [i64; 2] = [1, 2];
const REGISTERS_MAX: usize = 128;
/// A thread that waits for a disk stops when that answers.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_micros(50);

#[derive(Default)]
pub struct Stopped {
    /// Each with the signal that it stopped at, which it gets when it goes on; 0: none.
    threads: Vec<(Pid, libc::c_int)>,
    /// The registers of all threads, as words.
    pub registers: Vec<u64>,
    pub stack_pointers: Vec<u64>,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &(thread, signal) in &self.threads {
            // SAFETY: no memory of ours is touched.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, null_mut::<u8>(), signal as libc::c_long) };
        }
    }
}

/// Those that have not ended: the first thread stays as a zombie until the others have, too.
fn threads_of(process: &Process) -> Vec<Pid> {
    process.threads().into_iter().filter(|&thread| !process.thread_has_ended(thread)).collect()
}

/// The process that traces it already, with its name.
fn tracer(process: &Process) -> Option<String> {
    let status = fs::read_to_string(process.path("status")).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()?;
    (tracer > 0).then(|| format!("{} (process {tracer})", hakmem_base::proc::name(tracer)))
}

impl Stopped {
    /// What a core file keeps of its threads; or all threads of the process, those included that begin meanwhile. The
    /// thread that called this drops it, too: ptrace wants that.
    pub fn stop(remote: &Remote) -> Result<Stopped> {
        let mut stopped = Stopped::default();
        if let Some(core) = remote.core() {
            stopped.registers = core.registers.clone();
            stopped.stack_pointers = core.stack_pointers.clone();
        }
        let Some(process) = remote.process() else { return Ok(stopped) };
        let begun = Instant::now();
        loop {
            let new: Vec<Pid> = threads_of(process).into_iter().filter(|one| !stopped.has(*one)).collect();
            if new.is_empty() {
                break;
            }
            for &thread in &new {
                stopped.seize(process, thread)?;
            }
            for thread in new {
                stopped.wait(thread, begun)?;
            }
        }
        remote.ensure_same()?;
        for (thread, _) in stopped.threads.clone() {
            stopped.read_registers(thread);
        }
        Ok(stopped)
    }

    fn has(&self, thread: Pid) -> bool {
        self.threads.iter().any(|(one, _)| *one == thread)
    }

    fn seize(&mut self, process: &Process, thread: Pid) -> Result<()> {
        let pid = process.pid;
        // SAFETY: no memory of ours is touched.
        let got = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, null_mut::<u8>(), null_mut::<u8>()) };
        let error = Error::last_os_error();
        if got == 0 {
            self.threads.push((thread, 0));
            // SAFETY: likewise.
            unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, null_mut::<u8>(), null_mut::<u8>()) };
            // What is traced keeps its number. Before, another process's thread may have got it.
            ensure!(process.has_thread(thread), "PID {pid} cannot be stopped: its threads end while it is looked at");
            return Ok(());
        }
        match (error.raw_os_error(), tracer(process)) {
            (Some(libc::ESRCH), _) => Ok(()), // the thread has ended
            (_, Some(tracer)) => bail!("PID {pid} cannot be stopped: {tracer} traces it"),
            _ => bail!("PID {pid} cannot be stopped: {error}"),
        }
    }

    /// Until the thread stands still, or has ended.
    fn wait(&mut self, thread: Pid, begun: Instant) -> Result<()> {
        loop {
            let mut status = 0;
            // SAFETY: writes `status` alone.
            match unsafe { libc::waitpid(thread, &mut status, libc::__WALL | libc::WNOHANG) } {
                0 if begun.elapsed() > PATIENCE => bail!("thread {thread} does not stop: it waits in the kernel"),
                0 => std::thread::sleep(LOOK_EVERY),
                got if got == thread && libc::WIFSTOPPED(status) => {
                    // It may be a signal that was on its way, not what we asked for.
                    let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
                    self.threads.iter_mut().filter(|one| one.0 == thread).for_each(|one| one.1 = signal);
                    return Ok(());
                }
                _ => {
                    self.threads.retain(|one| one.0 != thread);
                    return Ok(());
                }
            }
        }
    }

    fn read_registers(&mut self, thread: Pid) {
        for set in SETS {
            let mut words = [0_u64; REGISTERS_MAX];
            let mut piece = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
            // SAFETY: writes at most `piece`, which is `words`.
            let got = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, set, &mut piece) };
            if got == 0 {
                let words = &words[..piece.iov_len.min(size_of_val(&words)) / 8];
                self.registers.extend(words);
                self.stack_pointers.extend(stack_pointer(words).filter(|_| set == SETS[0]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else each stack is taken for data, and what it held before still holds blocks.
    #[test]
    fn a_threads_stack_pointer_leads_to_its_stack() {
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let remote = Remote::open(sleeper.id() as Pid).unwrap();
        let stopped = Stopped::stop(&remote).unwrap();
        let areas = remote.mappings(false).unwrap();
        let stack = areas.iter().find(|area| area.name == "[stack]").unwrap();
        assert_eq!(stopped.stack_pointers.len(), 1);
        let at = stopped.stack_pointers[0];
        drop(stopped);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!((stack.start..stack.end).contains(&at), "{at:#x}, {stack:?}");
    }
}
