//! Reads many processes at once, none of them for longer than its time.
//!
//! 1. A thread of its own reads each process, a bounded number at a time. A process whose time is over loses its place
//!    to the others: it is slow.
//! 2. Its thread ends when the kernel lets it. Until then nobody reads that process again, so that slow ones do not
//!    gather threads from request to request.
// SPDX-License-Identifier: MIT

use anyhow::Result;
use hakmem_base::proc::Pid;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub enum Outcome<T> {
    Read(T),
    Failed(anyhow::Error),
    /// Its time was over.
    Slow,
}

pub struct Readers<T> {
    /// For one process.
    budget: Duration,
    at_a_time: usize,
    read: Arc<dyn Fn(Pid) -> Result<T> + Send + Sync>,
    /// What is being read, also by threads for which nobody waits any more.
    busy: Arc<Mutex<HashSet<Pid>>>,
}

fn lock(busy: &Mutex<HashSet<Pid>>) -> MutexGuard<'_, HashSet<Pid>> {
    busy.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static> Readers<T> {
    pub fn new(budget: Duration, read: impl Fn(Pid) -> Result<T> + Send + Sync + 'static) -> Readers<T> {
        let at_a_time = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        Readers { budget, at_a_time, read: Arc::new(read), busy: Arc::default() }
    }

    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// In the order in which they are named, each with how long it took.
    pub fn read(&self, pids: &[Pid]) -> Vec<(Pid, Outcome<T>, Duration)> {
        let (send, receive) = channel();
        let mut waiting: VecDeque<Pid> = pids.iter().copied().collect();
        let mut running: HashMap<Pid, Instant> = HashMap::new();
        let mut done: HashMap<Pid, (Outcome<T>, Duration)> = HashMap::new();
        loop {
            while running.len() < self.at_a_time {
                let Some(pid) = waiting.pop_front() else { break };
                if !lock(&self.busy).insert(pid) {
                    done.insert(pid, (Outcome::Slow, Duration::ZERO)); // since an earlier request
                    continue;
                }
                let (read, busy, send) = (self.read.clone(), self.busy.clone(), send.clone());
                running.insert(pid, Instant::now());
                std::thread::spawn(move || {
                    let outcome = read(pid);
                    lock(&busy).remove(&pid);
                    let _ = send.send((pid, outcome)); // nobody waits for it: it was slow
                });
            }
            let Some(first) = running.values().min().copied() else { break };
            match receive.recv_timeout((first + self.budget).saturating_duration_since(Instant::now())) {
                Ok((pid, outcome)) => {
                    if let Some(begun) = running.remove(&pid) {
                        let outcome = outcome.map_or_else(Outcome::Failed, Outcome::Read);
                        done.insert(pid, (outcome, begun.elapsed()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let over = |begun: &Instant| begun.elapsed() >= self.budget;
                    done.extend(
                        running
                            .iter()
                            .filter(|(_, begun)| over(begun))
                            .map(|(&pid, begun)| (pid, (Outcome::Slow, begun.elapsed()))),
                    );
                    running.retain(|_, begun| !over(begun));
                }
                Err(RecvTimeoutError::Disconnected) => break, // not while `send` lives
            }
        }
        pids.iter().filter_map(|pid| done.remove(pid).map(|(outcome, took)| (*pid, outcome, took))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_slow(outcome: &Outcome<Pid>) -> bool {
        matches!(outcome, Outcome::Slow)
    }

    /// Else one process that does not answer delays the metrics of all, or costs a thread at each request.
    #[test]
    fn a_slow_process_delays_no_other() {
        let (open, gate) = channel::<()>();
        let (begin, begun) = channel();
        let gate = Mutex::new(gate);
        let readers = Readers::new(Duration::from_millis(50), move |pid| {
            if pid % 10 == 0 {
                begin.send(pid).unwrap();
                gate.lock().unwrap().recv().unwrap();
            }
            anyhow::ensure!(pid != 7, "no such process");
            Ok(pid)
        });
        let pids: Vec<Pid> = (1..=40).collect();
        let read = readers.read(&pids);
        assert_eq!(read.iter().map(|(pid, ..)| *pid).collect::<Vec<_>>(), pids, "all, in order");
        // A busy machine may make another one slow.
        assert!(read.iter().filter(|(pid, ..)| pid % 10 == 0).all(|(_, outcome, _)| is_slow(outcome)));
        assert!(read.iter().any(|(pid, outcome, _)| matches!(outcome, Outcome::Read(own) if own == pid)));
        assert!(read.iter().all(|(pid, outcome, _)| *pid != 7 || !matches!(outcome, Outcome::Read(_))));
        let mut held: Vec<Pid> = begun.try_iter().collect();
        held.sort_unstable();
        assert_eq!(held, [10, 20, 30, 40]);
        assert!(is_slow(&readers.read(&[10])[0].1), "it is still being read");
        assert!(begun.try_recv().is_err(), "and no second thread is started for it");
        (0..4).for_each(|_| open.send(()).unwrap());
        while lock(&readers.busy).contains(&10) {
            std::thread::yield_now();
        }
        open.send(()).unwrap();
        while is_slow(&readers.read(&[10])[0].1) {
            open.send(()).unwrap(); // it is read again, as soon as this machine has the time
        }
    }
}
