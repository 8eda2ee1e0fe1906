//! `hakmem purge`: a running program gives back what it does not use.

use crate::heap::{steer::Purged, Target};
use crate::proc::{self, Pid};
use crate::table;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub struct Options {
    pid: Pid,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let rss = || proc::rss_and_peak(options.pid).map_or(0, |(rss, _)| rss);
    let before = rss();
    let purged = Target::attach(options.pid)?.purge()?;
    let after = rss();
    if options.json {
        let Purged { bytes, done, waiting, .. } = purged;
        let value = serde_json::json!({"given_back": bytes, "rss_before": before, "rss_after": after,
            "threads_done": done, "threads_waiting": waiting});
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        println!("{}", sentence(&purged, before, after));
    }
    Ok(ExitCode::SUCCESS)
}

fn sentence(purged: &Purged, before: u64, after: u64) -> String {
    let text = |bytes: u64| table::size(bytes);
    if purged.done == 0 {
        return "it sleeps and has no purger thread: it will give back at its next allocation that leaves the fast path"
            .to_string();
    }
    let given = format!("{} given back: {} resident before, {} now", text(purged.bytes), text(before), text(after));
    match (purged.waiting, purged.purger) {
        (0, _) => given,
        (_, true) => format!("{given}. What sleeping threads held back is included"),
        (waiting, false) => {
            format!("{given}. {waiting} of its threads sleep: theirs follows at their next allocations")
        }
    }
}
