//! Reads many processes at once, none of them for longer than its time.
//!
//! 1. A thread of its own reads each process, a bounded number at a time. A process whose time is over loses its place
//!    to the others: it is slow. While processes of several users wait, no user's have more than half of the places.
//! 2. Whoever wants a process that is being read joins that reading.
//! 3. A thread ends when the kernel lets it. Until then nobody reads that process again, so that slow ones do not
//!    gather threads from request to request.
//! 4. All readings of a request together have a time. What is left then is slow, too.
// SPDX-License-Identifier: MIT

use anyhow::{anyhow, Result};
use hakmem_base::proc::{self, Pid};
use std::collections::{HashMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many times the budget of one process a request may take.
const BUDGETS_MAX: u32 = 8;

/// None: of those that are gone.
type User = Option<libc::uid_t>;

#[derive(Clone)]
pub enum Outcome<T> {
    Read(T),
    Failed(Arc<anyhow::Error>),
    /// Its time was over.
    Slow,
}

/// A reading under way.
struct Reading<T> {
    begun: Instant,
    waiting: Vec<Sender<(Pid, Outcome<T>)>>,
}

type UnderWay<T> = Mutex<HashMap<Pid, Reading<T>>>;

pub struct Readers<T> {
    /// For one process.
    budget: Duration,
    at_a_time: usize,
    read: Arc<dyn Fn(Pid) -> Result<T> + Send + Sync>,
    /// Also those for which nobody waits any more.
    under_way: Arc<UnderWay<T>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next to be read: of a user with less than half of the places, if there is one.
fn next(
    waiting: &mut VecDeque<(Pid, User)>,
    running: &HashMap<Pid, (Instant, User)>,
    places: usize,
) -> Option<(Pid, User)> {
    let has_few = |user: User| running.values().filter(|one| one.1 == user).count() < places.div_ceil(2);
    let index = waiting.iter().position(|one| has_few(one.1)).unwrap_or(0);
    waiting.remove(index)
}

impl<T: Clone + Send + 'static> Readers<T> {
    pub fn new(budget: Duration, read: impl Fn(Pid) -> Result<T> + Send + Sync + 'static) -> Readers<T> {
        let at_a_time = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        Readers { budget, at_a_time, read: Arc::new(read), under_way: Arc::default() }
    }

    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Joins the reading that is under way, or begins one. Returns when that began; None: it is slow.
    fn join(&self, pid: Pid, send: &Sender<(Pid, Outcome<T>)>) -> Result<Option<Instant>, std::io::Error> {
        let mut under_way = lock(&self.under_way);
        if let Some(reading) = under_way.get_mut(&pid) {
            let is_overdue = reading.begun.elapsed() >= self.budget;
            return Ok((!is_overdue).then(|| {
                reading.waiting.push(send.clone());
                reading.begun
            }));
        }
        let (read, all) = (self.read.clone(), self.under_way.clone());
        let work = move || {
            let done =
                catch_unwind(AssertUnwindSafe(|| read(pid))).unwrap_or_else(|_| Err(anyhow!("an error in hakmem")));
            let outcome = done.map_or_else(|error| Outcome::Failed(Arc::new(error)), Outcome::Read);
            let waiting = lock(&all).remove(&pid).map_or(Vec::new(), |reading| reading.waiting);
            for send in waiting {
                let _ = send.send((pid, outcome.clone())); // nobody waits if it was slow
            }
        };
        thread::Builder::new().spawn(work)?; // it cannot end before the lock is free
        let begun = Instant::now();
        under_way.insert(pid, Reading { begun, waiting: vec![send.clone()] });
        Ok(Some(begun))
    }

    /// In the order in which they are named, each with how long it took.
    pub fn read(&self, pids: &[Pid]) -> Vec<(Pid, Outcome<T>, Duration)> {
        let end = Instant::now() + self.budget * BUDGETS_MAX;
        let (send, receive) = channel();
        let mut waiting: VecDeque<(Pid, User)> = pids.iter().map(|&pid| (pid, proc::user(pid))).collect();
        let mut running: HashMap<Pid, (Instant, User)> = HashMap::new();
        let mut done: HashMap<Pid, (Outcome<T>, Duration)> = HashMap::new();
        while Instant::now() < end {
            while running.len() < self.at_a_time {
                let Some((pid, user)) = next(&mut waiting, &running, self.at_a_time) else { break };
                match self.join(pid, &send) {
                    Ok(Some(begun)) => drop(running.insert(pid, (begun, user))),
                    Ok(None) => drop(done.insert(pid, (Outcome::Slow, Duration::ZERO))), // since an earlier request
                    Err(error) => {
                        let error = anyhow!("no thread can be started to read process {pid}: {error}");
                        done.insert(pid, (Outcome::Failed(Arc::new(error)), Duration::ZERO));
                    }
                }
            }
            let Some(first) = running.values().map(|one| one.0).min() else { break };
            match receive.recv_timeout((first + self.budget).min(end).saturating_duration_since(Instant::now())) {
                Ok((pid, outcome)) => {
                    if let Some((begun, _)) = running.remove(&pid) {
                        done.insert(pid, (outcome, begun.elapsed()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => running.retain(|&pid, (begun, _)| {
                    let took = begun.elapsed();
                    if took >= self.budget {
                        done.insert(pid, (Outcome::Slow, took));
                    }
                    took < self.budget
                }),
                Err(RecvTimeoutError::Disconnected) => break, // not while `send` lives
            }
        }
        let of = |&pid: &Pid| {
            let (outcome, took) = done.remove(&pid).unwrap_or_else(|| {
                (Outcome::Slow, running.get(&pid).map_or(Duration::ZERO, |(begun, _)| begun.elapsed()))
            });
            (pid, outcome, took)
        };
        pids.iter().map(of).collect()
    }

    /// One process.
    pub fn read_one(&self, pid: Pid) -> Result<T> {
        match self.read(&[pid]).pop().map(|(_, outcome, _)| outcome) {
            Some(Outcome::Read(value)) => Ok(value),
            Some(Outcome::Failed(error)) => Err(anyhow!("{error:#}")),
            _ => Err(anyhow!("PID {pid} cannot be read within {:?}", self.budget)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn is_slow(outcome: &Outcome<Pid>) -> bool {
        matches!(outcome, Outcome::Slow)
    }

    fn is_read(outcome: &Outcome<Pid>) -> bool {
        matches!(outcome, Outcome::Read(_))
    }

    /// What `readers` read waits at this gate: it says that it has begun, and goes on when it is opened.
    fn gate(
        budget: Duration,
        waits: fn(Pid) -> bool,
    ) -> (Arc<Readers<Pid>>, Sender<()>, std::sync::mpsc::Receiver<Pid>) {
        let ((open, gate), (begin, begun)) = (channel::<()>(), channel());
        let gate = Mutex::new(gate);
        let readers = Readers::new(budget, move |pid| {
            if waits(pid) {
                begin.send(pid).unwrap();
                gate.lock().unwrap().recv().unwrap();
            }
            anyhow::ensure!(pid != 7, "no such process");
            assert!(pid != 8, "an error in hakmem");
            Ok(pid)
        });
        (Arc::new(readers), open, begun)
    }

    /// Else one process that does not answer delays the metrics of all, or costs a thread at each request.
    #[test]
    fn a_slow_process_delays_no_other() {
        let (readers, open, begun) = gate(Duration::from_millis(50), |pid| pid % 10 == 0);
        for held in [10, 20, 30, 40] {
            assert!(is_slow(&readers.read(&[held])[0].1));
            while begun.try_recv() != Ok(held) {
                thread::yield_now(); // until its thread runs, on a busy machine
            }
        }
        let pids: Vec<Pid> = (1..=40).collect();
        let read = readers.read(&pids);
        assert_eq!(read.iter().map(|(pid, ..)| *pid).collect::<Vec<_>>(), pids, "all, in order");
        // A busy machine may make another one slow.
        assert!(read.iter().filter(|(pid, ..)| pid % 10 == 0).all(|(_, outcome, _)| is_slow(outcome)));
        assert!(read.iter().all(|(pid, outcome, _)| ![7, 8].contains(pid) || !is_read(outcome)));
        assert!(begun.try_recv().is_err(), "no second thread is started for them");
        assert!(lock(&readers.under_way).values().all(|reading| reading.waiting.len() <= 1), "nor does anything grow");
        (0..4).for_each(|_| open.send(()).unwrap());
        while lock(&readers.under_way).contains_key(&10) {
            thread::yield_now();
        }
        open.send(()).unwrap();
        while is_slow(&readers.read(&[10])[0].1) {
            open.send(()).unwrap(); // it is read again, as soon as this machine has the time
        }
    }

    /// Else two clients at once drop processes from each other's answers.
    #[test]
    fn two_requests_share_a_reading() {
        let (readers, open, begun) = gate(LONG, |pid| pid == 1);
        let ask = || {
            let readers = readers.clone();
            thread::spawn(move || readers.read(&[1, 2, 7, 8]))
        };
        let asked = [ask(), ask(), ask()];
        let joined = || lock(&readers.under_way).get(&1).map_or(0, |reading| reading.waiting.len());
        while joined() < 3 {
            thread::yield_now();
        }
        open.send(()).unwrap();
        for one in asked {
            let outcomes: Vec<_> = one.join().unwrap().into_iter().map(|(_, outcome, _)| outcome).collect();
            assert!(is_read(&outcomes[0]) && is_read(&outcomes[1]));
            assert!(outcomes[2..].iter().all(|outcome| matches!(outcome, Outcome::Failed(_))));
        }
        assert_eq!(begun.try_iter().count(), 1, "it was read once");
        assert!(
            readers.read_one(2).is_ok() && readers.read_one(7).unwrap_err().to_string().contains("no such process")
        );
    }

    /// Else a user with many slow processes keeps those of all others out of the answer.
    #[test]
    fn no_user_has_all_places() {
        let (evil, honest) = (Some(1000), Some(1001));
        let mut waiting: VecDeque<(Pid, User)> =
            (1..=100).map(|pid| (pid, if pid < 99 { evil } else { honest })).collect();
        let mut running = HashMap::new();
        let mut taken = Vec::new();
        for _ in 0..4 {
            let (pid, user) = next(&mut waiting, &running, 4).unwrap();
            running.insert(pid, (Instant::now(), user));
            taken.push(pid);
        }
        assert_eq!(taken, [1, 2, 99, 100]);
        running.clear();
        let alone: Vec<Pid> = (0..4)
            .map(|_| {
                let (pid, user) = next(&mut waiting, &running, 4).unwrap();
                running.insert(pid, (Instant::now(), user));
                pid
            })
            .collect();
        assert_eq!(alone, [3, 4, 5, 6], "without others they have all");
    }
}
