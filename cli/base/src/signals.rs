//! Signals as events. They are blocked in every thread and taken one by one by `wait`, so that one loop can watch a
//! child, a clock and Ctrl-C without a handler. Children are started with the mask that was there before.
// SPDX-License-Identifier: MIT

use anyhow::{ensure, Result};
use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

pub enum Event {
    /// A child has stopped or ended.
    Child,
    /// Ctrl-C, or a request to terminate.
    Interrupt,
    Timeout,
}

const INTERRUPTS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

fn watched() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        for signal in INTERRUPTS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// While it lives, the watched signals are blocked.
pub struct Blocked {
    before: libc::sigset_t,
}

/// Blocks the watched signals. To be called before any thread starts.
pub fn block() -> Blocked {
    let mut before = MaybeUninit::uninit();
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &watched(), before.as_mut_ptr());
        Blocked { before: before.assume_init() }
    }
}

impl Blocked {
    /// The mask for children.
    pub fn before(&self) -> &libc::sigset_t {
        &self.before
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// Readable when a signal to end has come, which stays there.
pub fn descriptor() -> Result<OwnedFd> {
    // SAFETY: the set is written before it is read, the descriptor is new and ours.
    unsafe {
        let mut set = watched();
        libc::sigdelset(&mut set, libc::SIGCHLD);
        let descriptor = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        ensure!(descriptor >= 0, "signalfd: {}", Error::last_os_error());
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// A signal that is to end this process.
pub struct Request {
    pub number: libc::c_int,
    /// By another process: not by the terminal, which tells all processes on it.
    pub sent: bool,
}

/// Waits for a request to end, or for a child, at most until `deadline`.
pub fn wait_for_end(deadline: Instant) -> Option<Request> {
    let (signal, code) = take(deadline);
    INTERRUPTS.contains(&signal).then_some(Request { number: signal, sent: code <= 0 })
}

/// The next of the watched signals and its si_code; -1 if none comes until `deadline`. The kernel's wait also ends when
/// this process is stopped and goes on.
fn take(deadline: Instant) -> (libc::c_int, libc::c_int) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
        let time = libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() };
        // SAFETY: zero is a value of it, and all it points to lives.
        let (signal, code) = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(&watched(), &mut about, &time);
            (signal, about.si_code)
        };
        if signal > 0 || Instant::now() >= deadline {
            return (signal, code);
        }
    }
}

/// Waits for one of the watched signals, at most until `deadline`.
pub fn wait(deadline: Instant) -> Event {
    match take(deadline).0 {
        libc::SIGCHLD => Event::Child,
        signal if INTERRUPTS.contains(&signal) => Event::Interrupt,
        _ => Event::Timeout,
    }
}

/// Has Ctrl-C been pressed? It is taken by this.
pub fn interrupted() -> bool {
    loop {
        match wait(Instant::now()) {
            Event::Interrupt => return true,
            Event::Child => continue,
            Event::Timeout => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    extern "C" fn nothing(_: libc::c_int) {}

    /// Else `learn --for 4h` ends after an hour, or when a shell stops it and lets it go on, with half of its figures.
    #[test]
    fn a_wait_that_is_interrupted_goes_on() {
        // SAFETY: the handler does nothing, and the thread that gets the signal is alive.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
            let (waiter, done) = (libc::pthread_self(), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        libc::pthread_kill(waiter, libc::SIGUSR1);
                        std::thread::yield_now();
                    }
                });
                let deadline = Instant::now() + Duration::from_millis(100);
                let (signal, _) = take(deadline);
                let reached = Instant::now() >= deadline;
                done.store(true, Ordering::Relaxed);
                assert!(signal == -1 && reached);
            });
        }
    }
}
