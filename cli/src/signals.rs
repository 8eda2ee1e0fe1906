//! Signals as events. They are blocked in every thread and taken one by one by `wait`, so that one loop can watch a
//! child, a clock and Ctrl-C without a handler. Children are started with the mask that was there before.

use std::mem::MaybeUninit;
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

/// While it lives, the watched signals are blocked. To be made before any thread starts.
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    pub fn new() -> Self {
        let mut before = MaybeUninit::uninit();
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &watched(), before.as_mut_ptr());
            Blocked { before: before.assume_init() }
        }
    }

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

/// Waits for one of the watched signals, at most until `deadline`.
pub fn wait(deadline: Instant) -> Event {
    let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
    let time = libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() };
    match unsafe { libc::sigtimedwait(&watched(), ptr::null_mut(), &time) } {
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
