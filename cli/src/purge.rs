//! `hakmem purge`: a running program gives back what it does not use.
//!
//! 1. The request is one word in the program. Its purger thread honours it, or each thread at its next allocation that
//!    leaves the fast path: the request stands however long that takes.
//! 2. The effect is what is resident before and after, as the kernel counts it: a figure of the library's
//!    own would leave out what the program allocated meanwhile.
//! 3. A program that does not come to it within the time is status 1.
// SPDX-License-Identifier: MIT

use crate::heap::named::NamedOwn;
use crate::heap::{steer::Purged, Target};
use anyhow::Result;
use clap::Args;
use hakmem_base::print;
use hakmem_base::proc::{Pid, Process};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// After this time the command says what it waits for.
const NOTICE: Duration = Duration::from_millis(500);
/// `top` and `view` have more to do than wait.
const WAIT_ASIDE: Duration = Duration::from_secs(2);

#[derive(Args)]
#[command(after_help = "Exit status: 0 the program has given back; 1 it did not in time, and the request \
    remains; 2 the request failed.")]
pub struct Options {
    /// A process that runs HAKMEM; a NAME means a process of this user
    #[arg(value_name = "PID|NAME", value_parser = NamedOwn, allow_negative_numbers = true)]
    pid: Pid,
    /// How long to wait for the program, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    wait: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.0..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("0 to 3600 seconds".into())
    }
}

/// What was resident, and what came of the request.
struct Outcome {
    purged: Purged,
    before: u64,
    after: u64,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let target = Target::attach(options.pid)?;
    let asked = Instant::now();
    let mut told = false;
    let outcome = purge(&target, Duration::from_secs_f64(options.wait), |purger| {
        if !told && asked.elapsed() >= NOTICE {
            told = true;
            print::note(&format!("hakmem: waiting at most {} s for {}", options.wait, awaited(purger)));
        }
    })?;
    let Outcome { purged, before, after } = &outcome;
    if options.json {
        let Purged { done, waiting, purger } = purged;
        print::json(&serde_json::json!({"honoured": *done > 0, "given_back": before.saturating_sub(*after),
            "rss_before": before, "rss_after": after, "threads_done": done, "threads_waiting": waiting,
            "purger": purger}))?;
    } else {
        print::line(&outcome.sentence())?;
    }
    Ok(ExitCode::from(u8::from(purged.done == 0)))
}

/// `waiting` is called now and then, with whether the program has a purger thread.
fn purge(target: &Target, wait: Duration, waiting: impl FnMut(bool)) -> Result<Outcome> {
    let rss = || target.remote().process().and_then(Process::rss_exact).unwrap_or(0);
    let before = rss();
    let purged = target.purge(wait, waiting)?;
    Ok(Outcome { purged, before, after: rss() })
}

/// Has the program purge, and says what came of it.
pub fn said(target: &Target) -> Result<String> {
    Ok(purge(target, WAIT_ASIDE, |_| {})?.sentence())
}

const SLOW: &str = "allocation off the fast path";

fn awaited(purger: bool) -> &'static str {
    if purger {
        "its purger thread"
    } else {
        "its next allocation that leaves the fast path, because it has no purger thread"
    }
}

impl Outcome {
    fn sentence(&self) -> String {
        let Purged { done, waiting, purger } = self.purged;
        if done == 0 {
            return format!("nothing given back yet: the request waits for {}", awaited(purger));
        }
        let given = difference(self.before, self.after);
        // The purger empties rings of sleeping threads, and nobody their lists.
        let asleep = |whose, sleep| match purger {
            true => format!("; while {sleep}, {whose} lists of blocks up to 1 KiB stay"),
            false => String::new(),
        };
        match (waiting, purger) {
            (0, _) => given,
            (1, _) => format!("{given}. 1 more thread gives back at its next {SLOW}{}", asleep("its", "it sleeps")),
            (waiting, _) => {
                let asleep = asleep("their", "they sleep");
                format!("{given}. {waiting} more threads give back at their next {SLOW}{asleep}")
            }
        }
    }
}

/// Three figures that agree: each is rounded to the same unit before they are subtracted.
fn difference(before: u64, after: u64) -> String {
    let (unit, name) = if before.max(after) < 1 << 20 { (1 << 10, "KiB") } else { (1 << 20, "MiB") };
    let tenths = |bytes: u64| (u128::from(bytes) * 10 + unit / 2) / unit;
    let text = |tenths: u128| match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    };
    let (old, new) = (tenths(before), tenths(after));
    let figures = format!("{} resident before, {} now", text(old), text(new));
    match old.checked_sub(new) {
        None => format!("{figures}: meanwhile more became resident than it gave back"),
        Some(0) => format!("nothing given back: {} resident, as before", text(new)),
        Some(given) => format!("{} given back: {figures}", text(given)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a user thinks that sleeping threads hold nothing any more.
    #[test]
    fn threads_that_have_yet_to_act_are_counted() {
        let said = |waiting, purger| {
            Outcome { purged: Purged { done: 1, waiting, purger }, before: 3 << 20, after: 1 << 20 }.sentence()
        };
        let given = "2 MiB given back: 3 MiB resident before, 1 MiB now";
        assert_eq!(said(0, true), given);
        let later = "give back at their next allocation off the fast path";
        assert_eq!(said(9, false), format!("{given}. 9 more threads {later}"));
        let lists = "; while they sleep, their lists of blocks up to 1 KiB stay";
        assert_eq!(said(9, true), format!("{given}. 9 more threads {later}{lists}"));
        assert!(said(1, true).contains("1 more thread gives back at its next") && said(1, true).contains("it sleeps"));
    }

    /// Else "5.7 MiB given back: 70.5 before, 69.6 now".
    #[test]
    fn figures_agree_as_they_are_shown() {
        const MIB: f64 = 1048576.0;
        let said = |before: f64, after: f64| difference((before * MIB) as u64, (after * MIB) as u64);
        assert_eq!(said(70.5, 69.6), "0.9 MiB given back: 70.5 MiB resident before, 69.6 MiB now");
        // 0.98 rounds to 1.0, the others to 70.5 and 69.6.
        assert_eq!(said(70.54, 69.56), "0.9 MiB given back: 70.5 MiB resident before, 69.6 MiB now");
        assert_eq!(said(5000.0, 4000.25), "999.7 MiB given back: 5000 MiB resident before, 4000.3 MiB now");
        assert_eq!(said(70.5, 70.5), "nothing given back: 70.5 MiB resident, as before");
        assert!(said(70.0, 71.0).starts_with("70 MiB resident before, 71 MiB now: meanwhile more became resident"));
        assert_eq!(difference(900 << 10, 100 << 10), "800 KiB given back: 900 KiB resident before, 100 KiB now");
    }
}
