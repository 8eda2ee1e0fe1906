//! How long one process may take: its memory can be made to answer late, or never.
//!
//!  1. `within` does the work on a thread of its own and waits so long for it, no longer. A read of memory that some
//!     userfaultfd or network file system keeps from its end blocks in the kernel, where nothing but that end stops it.
//!  2. Work that only takes long ends by itself: each read asks `check` first, which fails when the time is over.
//!  3. No second thread is started for a process that is stuck: it has one at most, until its end.
// SPDX-License-Identifier: MIT

use anyhow::{Context, Result};
use hakmem_base::proc::Pid;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For what takes a second on a large heap and an idle machine.
pub const USUAL: Duration = Duration::from_secs(30);
/// A thread that checks ends by itself within this.
const GRACE: Duration = Duration::from_millis(500);

/// The error when the time is over.
#[derive(Debug)]
pub struct Late(String);

impl std::fmt::Display for Late {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

thread_local! {
    /// When the work of this thread is to be over.
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Those for which a thread waits in the kernel.
static STUCK: Mutex<BTreeSet<Pid>> = Mutex::new(BTreeSet::new());

fn stuck() -> MutexGuard<'static, BTreeSet<Pid>> {
    STUCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if the time for this process is over.
pub fn check(pid: Pid) -> Result<()> {
    if END.get().is_some_and(|end| Instant::now() > end) {
        return Err(Late(format!("PID {pid} takes too long to be read: it is left out")).into());
    }
    Ok(())
}

pub fn within<T: Send + 'static>(
    pid: Pid,
    allowed: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if stuck().contains(&pid) {
        return Err(Late(format!("PID {pid} still does not let its memory be read: it is left out")).into());
    }
    let (send, receive) = sync_channel(1);
    let reader = move || {
        END.set(Some(Instant::now() + allowed));
        let outcome = work();
        let mut stuck = stuck(); // whoever waited gives up under it
        if send.send(outcome).is_err() {
            stuck.remove(&pid);
        }
    };
    std::thread::Builder::new().name(format!("reads {pid}")).spawn(reader).context("cannot start a thread")?;
    let ended = || anyhow::anyhow!("PID {pid} could not be read: that is an error in hakmem");
    match receive.recv_timeout(allowed + GRACE) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Disconnected) => Err(ended()),
        Err(RecvTimeoutError::Timeout) => {
            let mut stuck = stuck();
            if let Ok(outcome) = receive.try_recv() {
                return outcome;
            }
            stuck.insert(pid);
            drop(receive);
            Err(Late(format!("PID {pid} does not let its memory be read: it is left out")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Else one process that never answers stops the metrics of all, and costs a thread at each scrape.
    #[test]
    fn a_process_that_never_answers_is_left_out() {
        let (pid, short) = (-7, Duration::from_millis(20));
        let (answer, wait) = channel::<()>();
        let outcome = within(pid, short, move || Ok(wait.recv()?));
        assert!(outcome.unwrap_err().to_string().contains("does not let its memory be read"));
        assert!(within(pid, short, || Ok(())).unwrap_err().to_string().contains("still does not"));
        assert!(within(-8, USUAL, || Ok(5)).is_ok_and(|five| five == 5), "others are read");
        answer.send(()).unwrap();
        while within(pid, USUAL, || Ok(())).is_err() {
            std::thread::yield_now(); // until its thread has ended
        }
    }

    /// On a busy machine its thread may come to it after `within` has given up: then its end lets the process be read
    /// again.
    #[test]
    fn long_work_ends_by_itself() {
        let (pid, (send, said)) = (-9, channel());
        let outcome: Result<()> = within(pid, Duration::from_millis(20), move || loop {
            if let Err(late) = check(pid) {
                send.send(late.to_string()).unwrap();
                return Err(late);
            }
            std::thread::yield_now();
        });
        assert!(said.recv().unwrap().contains("takes too long") && outcome.is_err());
        while within(pid, USUAL, || Ok(())).is_err() {
            std::thread::yield_now();
        }
        assert!(check(pid).is_ok(), "a thread without a limit");
    }
}
