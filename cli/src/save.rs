//! `hakmem save`: what a program would save with HAKMEM. `-- PROGRAM` measures it (hakmem-compare's save.rs).
//!
//! No measurement of a running process tells that, for it has one allocator only: free memory is known to that malloc
//! alone. What the process costs can be seen, and the part of it that is the most that HAKMEM's memory can save.
// SPDX-License-Identifier: MIT

use crate::heap::named::Named;
use crate::heap::remote::{Area, Remote};
use crate::heap::{patience, Snapshot, Target};
use anyhow::{Context, Result};
use clap::Args;
use hakmem_base::print;
use hakmem_base::proc::{self, Pid, Process};
use hakmem_base::table::{seconds, size};
use hakmem_base::{elf, shown};
use hakmem_compare::save::{self, linked_of, money, Prices};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

const ASK: &str = "hakmem save -- PROGRAM ARGS…";

#[derive(Args)]
#[command(
    after_help = "It runs PROGRAM 23 times, or as often as --rounds and --max-time say.\nExit status: 0 measured, \
    whether or not HAKMEM saves; 1 PROGRAM fails under HAKMEM alone; 2 a wrong option, or a program that is not there, \
    fails without HAKMEM, or is too short to be measured; 130 interrupted."
)]
pub struct Options {
    /// A running process: what it costs, and how much of that HAKMEM can save at most
    #[arg(value_name = "PID|NAME", value_parser = Named, conflicts_with = "program", allow_negative_numbers = true)]
    pid: Option<Pid>,
    #[command(flatten)]
    measured: save::Measuring,
}

/// What `--json` prints of a process.
#[derive(Debug, Serialize)]
struct Answer {
    prices: Prices,
    pid: Pid,
    command: String,
    allocator: String,
    age_s: f64,
    /// On average since its start.
    vcpus: f64,
    rss: u64,
    rss_peak: u64,
    /// Its heap, and whatever else is no file's.
    anonymous: u64,
    /// What the heap holds, if the process runs HAKMEM.
    hakmem: Option<Held>,
    cpu_a_year: f64,
    memory_a_year: f64,
    /// What HAKMEM saves of memory is less.
    memory_saved_at_most: Option<f64>,
    /// What measures the rest.
    ask: &'static str,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Held {
    /// Blocks that the program holds.
    live: i64,
    /// Free and still resident: what may be saved by an option.
    free: i64,
    /// Free, and the system may take it.
    lazy: i64,
}

impl Held {
    fn of(snapshot: &Snapshot) -> Held {
        let heap = &snapshot.heap;
        let free = heap.partly_used_slabs + heap.thread_caches + heap.empty_slots;
        Held { live: heap.live, free, lazy: heap.lazy }
    }
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let Some(pid) = options.pid else { return save::command(&options.measured) };
    let prices = options.measured.prices;
    prices.ensure()?;
    let answer = look(pid, prices)?;
    if options.measured.json {
        print::json(&answer)?;
    } else {
        print::line(&text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn look(pid: Pid, prices: Prices) -> Result<Answer> {
    let ended = || format!("PID {pid} has ended");
    let target = Target::attach_if(pid, patience::USUAL)?;
    target.as_ref().map_or(Ok(()), Target::ensure_serving)?;
    let process = Process::open(pid).with_context(ended)?;
    let (about, cpu_s) = (process.about().with_context(ended)?, process.cpu_of_threads());
    let rss = process.rss_exact().with_context(ended)?;
    let areas = Remote::open(pid)?.mappings(true)?;
    let anonymous = areas.iter().filter(|area| is_anonymous(area)).map(|area| area.rss).sum();
    let snapshot = target.as_ref().map(Target::summary).transpose()?;
    let allocator = match &target {
        Some(target) => format!("HAKMEM {}", target.version()),
        None => allocator(&proc::mapped_files(pid), &process.path("exe")),
    };
    let age_s = about.age_ms as f64 / 1e3;
    let vcpus = if age_s > 0.0 { cpu_s / age_s } else { 0.0 };
    Ok(Answer {
        prices,
        pid,
        command: about.command,
        allocator,
        age_s,
        vcpus,
        rss,
        rss_peak: about.rss_peak,
        anonymous,
        cpu_a_year: prices.of_vcpus(vcpus),
        memory_a_year: prices.of_bytes(rss as f64),
        memory_saved_at_most: snapshot.is_none().then(|| prices.of_bytes(anonymous as f64)),
        hakmem: snapshot.as_ref().map(Held::of),
        ask: ASK,
    })
}

fn is_anonymous(area: &Area) -> bool {
    area.is_anonymous() || area.name == "[heap]"
}

/// By what is mapped, else by the program's own file.
fn allocator(files: &[String], program: &Path) -> String {
    let has =
        |start: &str| files.iter().any(|file| file.rsplit('/').next().is_some_and(|name| name.starts_with(start)));
    match linked_of(files.iter().map(String::as_str)) {
        Some(library) => library.to_string(),
        None if elf::has_malloc(program) => "a malloc of its own".to_string(),
        None if has("libc.so.6") || has("libc-2") => "glibc's malloc".to_string(),
        None => "an unknown malloc".to_string(),
    }
}

fn text(answer: &Answer) -> String {
    let Answer { pid, rss, rss_peak, anonymous, .. } = answer;
    let mut lines = vec![
        format!(
            "{} (process {pid}): {}, {} old",
            shown::line(&answer.command),
            answer.allocator,
            seconds(answer.age_s)
        ),
        format!("  CPU     {:.2} vCPUs on average since its start: {} a year", answer.vcpus, money(answer.cpu_a_year)),
        format!("  memory  {} resident now, {} at its peak: {} a year", size(*rss), size(*rss_peak), {
            money(answer.memory_a_year)
        }),
    ];
    match (&answer.hakmem, answer.memory_saved_at_most) {
        (Some(held), _) => {
            let bytes = |number: i64| size(number.max(0) as u64);
            let (live, free, lazy) = (bytes(held.live), bytes(held.free), bytes(held.lazy));
            lines
                .push(format!("  of it   {live} in use, {free} free and kept for reuse, {lazy} free and the system's"));
            lines.push(format!(
                "It runs HAKMEM already. `hakmem explain {pid}` says what would save some of that; what another \
                allocator\nwould need is seen by running the program without HAKMEM: `{ASK}`."
            ));
        }
        (None, most) => {
            let most = money(most.unwrap_or(0.0));
            lines.push(format!("  of it   {} are no file's, as its heap: HAKMEM saves less than {most} of it", {
                size(*anonymous)
            }));
            lines.push(format!(
                "How much of the heap is free, and what malloc takes of the CPU time, can't be seen from outside. A \
                run\nof the program that does its work and ends tells it: `{ASK}`."
            ));
        }
    }
    lines.push(answer.prices.sentence());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(hakmem: Option<Held>) -> Answer {
        Answer {
            prices: Prices::default(),
            pid: 7,
            command: "server --all".into(),
            allocator: "glibc's malloc".into(),
            age_s: 1000.0,
            vcpus: 0.5,
            rss: 2 << 30,
            rss_peak: 3 << 30,
            anonymous: 1 << 30,
            cpu_a_year: Prices::default().of_vcpus(0.5),
            memory_a_year: Prices::default().of_bytes(2147483648.0),
            memory_saved_at_most: hakmem.is_none().then(|| Prices::default().of_bytes(1073741824.0)),
            hakmem,
            ask: ASK,
        }
    }

    #[test]
    fn what_is_seen_and_what_is_not() {
        let text = text(&answer(None));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "server --all (process 7): glibc's malloc, 1000 s old");
        assert_eq!(lines[1], "  CPU     0.50 vCPUs on average since its start: $175 a year");
        assert_eq!(lines[2], "  memory  2.00 GiB resident now, 3.00 GiB at its peak: $105 a year");
        assert_eq!(lines[3], "  of it   1.00 GiB are no file's, as its heap: HAKMEM saves less than $52.56 of it");
        assert!(text.contains("can't be seen from outside") && text.contains(ASK), "{text}");
    }

    #[test]
    fn a_process_with_hakmem_has_its_own_figures() {
        let text = text(&answer(Some(Held { live: 1 << 30, free: 1 << 20, lazy: 0 })));
        assert!(text.contains("\n  of it   1.00 GiB in use, 1.0 MiB free and kept for reuse, 0 free and"), "{text}");
        assert!(text.contains("It runs HAKMEM already. `hakmem explain 7`"), "{text}");
    }

    #[test]
    fn allocators_are_known_by_their_files() {
        let of = |files: &[&str]| {
            allocator(&files.iter().map(|file| file.to_string()).collect::<Vec<_>>(), Path::new("/nowhere"))
        };
        assert_eq!(of(&["/usr/bin/x", "/lib/libc.so.6"]), "glibc's malloc");
        assert_eq!(of(&["/lib/libc.so.6", "/opt/libjemalloc.so.2"]), "libjemalloc.so.2");
        assert_eq!(of(&["/lib/ld-musl-x86_64.so.1"]), "an unknown malloc");
    }
}
