//! `hakmem run`: a program under HAKMEM, and at its end what its memory was made of.
//!
//!  1. peak.rs watches it: its heap is read when it is largest, and once more when the program has ended but is still
//!     there.
//!  2. With `--profile` the library samples from the start and writes the profile at the program's end.
//!  3. `--report` puts all of it into one file: the summary, the map of the heap at its peak, the profile.
//!
//! What the program prints is its own; the summary goes to stderr. The status is the program's.
// SPDX-License-Identifier: MIT

use crate::explain;
use crate::heap::advice::{advice, Reach};
use crate::heap::{Class, Snapshot};
use crate::peak::{self, Watched};
use crate::picture;
use crate::profile::{self, read, text, Metric, Profile};
use anyhow::Result;
use hakmem_base::files;
use hakmem_base::page;
use hakmem_base::preload;
use hakmem_base::print;
use hakmem_base::scratch;
use hakmem_base::table::{self, count, size, Style};
use maud::{html, PreEscaped};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const SITES: usize = 10;

#[derive(clap::Args)]
pub struct Options {
    /// Sample allocations, with a mean of BYTES between samples, and list the sites that hold and allocate most
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = "512K",
        value_parser = profile::interval)]
    profile: Option<u64>,
    /// Write a web page with the map of the heap at its peak and, with --profile, the profile; with `-` the page goes
    /// to stdout, and PROGRAM's output to stderr
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Print the summary as JSON, also to stderr
    #[arg(long)]
    json: bool,
    /// The library to run the program under
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let library = preload::hakmem_preload(options.hakmem.as_deref())?;
    let place = options.profile.as_ref().map(|_| scratch::directory("run")).transpose()?;
    let mut environment = Vec::new();
    if let (Some(bytes), Some(place)) = (&options.profile, &place) {
        environment.push(("HAKMEM_PROFILE_BYTES", bytes.to_string().into()));
        environment.push(("HAKMEM_PROFILE_FILE", place.path().join("%p").into_os_string()));
    }
    options.report.as_deref().map(files::ensure_place).transpose()?;
    let to_stdout = options.report.as_deref().is_some_and(print::is_stdout);
    let watched = peak::run(&options.program, &library, &environment, to_stdout)?;
    let profile = place.map(|place| read_profile(place.path(), watched.snapshot.process.pid)).transpose();
    let profile = profile.unwrap_or_else(|error| {
        print::note(&format!("hakmem: no profile: {error:#}"));
        None
    });
    if options.json {
        print::json_note(&summary_json(&watched, profile.as_ref()))?;
    } else {
        print::note(summary(&watched, profile.as_ref(), Style::of_stderr()).trim_end());
    }
    if let Some(path) = &options.report {
        let page = report(&watched, profile.as_ref());
        files::write(path, page)?;
    }
    Ok(ExitCode::from(watched.code))
}

fn read_profile(directory: &Path, pid: hakmem_base::proc::Pid) -> Result<Profile> {
    read::file(&directory.join(pid.to_string()), &[PathBuf::from("/usr/lib/debug")])
}

// ---- the summary ----

/// Blocks the program had when it ended, and their bytes.
fn held(end: &Snapshot) -> (u64, u64) {
    (end.classes.iter().map(|class: &Class| class.live_blocks).sum(), end.heap.held().max(0) as u64)
}

fn when(after: Option<std::time::Duration>) -> String {
    match after {
        Some(after) => format!(" {} after its start", table::seconds(after.as_secs_f64())),
        None => " when it ended".to_string(),
    }
}

fn summary(watched: &Watched, profile: Option<&Profile>, style: Style) -> String {
    let mut all = explain::short(&watched.snapshot, &when(watched.after), style);
    for advice in advice(&watched.snapshot, Reach::Ended) {
        all += &format!("- {}.\n", advice.text);
    }
    if let Some(end) = &watched.end {
        let (blocks, bytes) = held(end);
        all += &format!("When it ended it held {} in {} blocks.\n", size(bytes), count(blocks));
    }
    if let Some(profile) = profile {
        for (title, metric) in [
            ("Held at the peak, by allocation site", Metric::PeakSpace),
            ("Still held when it ended", Metric::InuseSpace),
            ("Allocated in all", Metric::AllocSpace),
        ] {
            if profile.total(metric) > 0 {
                all += &format!("\n{title}:\n{}", text::sites_text(profile, metric, SITES, "--json has all", style));
            }
        }
    }
    if let Some(failure) = &watched.failure {
        all += &format!("hakmem: {failure}\n");
    }
    all
}

fn summary_json(watched: &Watched, profile: Option<&Profile>) -> serde_json::Value {
    let end = watched.end.as_ref().map(|end| {
        let (blocks, bytes) = held(end);
        json!({ "live_blocks": blocks, "live": bytes, "heap": end.heap })
    });
    let peak = &watched.snapshot;
    json!({
        "process": peak.process, "peak": peak.heap, "rest": peak.rest, "classes": peak.classes,
        "after_ms": watched.after.map(|after| after.as_millis() as u64), "end": end, "profile": profile,
    })
}

// ---- the report ----

/// The pages of `hakmem map` and `hakmem flame` as they are, each in a frame of its own.
fn report(watched: &Watched, profile: Option<&Profile>) -> String {
    let plain = Style { color: false, width: usize::MAX };
    let name = picture::name(&watched.snapshot.process);
    let frame = |title: &str, page: String| html! { section { h2 { (title) } iframe title=(title) srcdoc=(page) {} } };
    let whole = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (name) ": memory" }
                (page::window())
                link rel="icon" href="data:,";
                (page::styles(&[STYLE]))
            }
            body {
                header {
                    p class="eyebrow" { "hakmem: a run, and its memory" }
                    h1 { (name) }
                }
                main {
                    (page::boxed("Summary", html! { pre { (summary(watched, None, plain)) } }))
                    (frame("The heap at its peak", picture::page::html(&watched.snapshot, None)))
                    @if let Some(profile) = profile {
                        (frame(
                            "Held at the peak, by where it was allocated",
                            profile::page::profile(profile, Metric::PeakSpace),
                        ))
                    }
                }
            }
        }
        "\n"
    };
    page::shown(whole)
}

const STYLE: &str =
    "header{padding-top:40px}h1{font-size:clamp(22px,3vw,32px);max-width:34em}pre{font-size:14px;line-height:1.45}
iframe{width:100%;height:90vh;border:1px solid var(--line);border-radius:6px;background:var(--paper)}";
