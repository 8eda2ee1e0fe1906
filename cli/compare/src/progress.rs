//! What runs now and how long it will still take, in one line on stderr, if that is a terminal.
// SPDX-License-Identifier: MIT

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub struct Progress {
    bar: Option<ProgressBar>,
    /// How many runs the workload that is being measured takes.
    runs: u64,
    begun: Instant,
    workloads_left: usize,
    /// What finished workloads took, and their number.
    finished: (Duration, u32),
}

impl Progress {
    pub fn new(quiet: bool, workloads: usize) -> Self {
        let style = "{spinner} {bar:20} {wide_msg}";
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(1);
            bar.set_style(ProgressStyle::with_template(style).expect("the template is constant"));
            bar
        });
        Progress { bar, runs: 1, begun: Instant::now(), workloads_left: workloads, finished: (Duration::ZERO, 0) }
    }

    /// A workload begins, which takes that many runs.
    pub fn workload(&mut self, runs: usize) {
        (self.runs, self.begun) = (runs.max(1) as u64, Instant::now());
        self.workloads_left = self.workloads_left.saturating_sub(1);
        if let Some(bar) = &self.bar {
            bar.set_length(self.runs);
            bar.set_position(0);
        }
    }

    pub fn workload_done(&mut self) {
        self.finished = (self.finished.0 + self.begun.elapsed(), self.finished.1 + 1);
    }

    /// The run that starts, the `done`th of the workload.
    pub fn run(&self, done: usize, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
            let left = self.left(done as u32).map_or(String::new(), |left| format!("{} left, ", clock(left)));
            bar.set_message(format!("{left}{text}"));
            bar.tick();
        }
    }

    /// This workload's runs at their pace so far, other workloads as long as those finished and this one on average.
    fn left(&self, done: u32) -> Option<Duration> {
        let each = self.begun.elapsed().checked_div(done)?;
        let own = each * self.runs as u32;
        let average = (self.finished.0 + own) / (self.finished.1 + 1);
        Some(own.saturating_sub(self.begun.elapsed()) + average * self.workloads_left as u32)
    }

    /// Has something printed without disturbing the line.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// 0:07, 12:30, 1:02:03
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks() {
        let text = |seconds| clock(Duration::from_secs(seconds));
        assert_eq!((text(7), text(750), text(3723)), ("0:07".into(), "12:30".into(), "1:02:03".into()));
    }
}
