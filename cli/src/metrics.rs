//! `hakmem metrics`: what processes' heaps are made of and do, as Prometheus or OpenMetrics text.
//!
//! 1. FAMILIES is the one table of names, types and help; names are stable: dashboards hang on them.
//! 2. Every sample carries `pid` and `process` (the command's name). A class is a label, not a name.
//! 3. `--listen` answers GET /metrics on loopback, each time by reading the processes anew: nothing is kept, so history,
//!    rates and alerts are Prometheus's.
//!
//! A process that ends while it is read is left out; one that may not be read is counted in hakmem_processes.

use crate::heap::{Snapshot, Target};
use crate::http::{self, Request, Response};
use crate::proc::Pid;
use anyhow::{ensure, Result};
use clap::Args;
use std::fmt::Write as _;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

#[derive(Args)]
pub struct Options {
    /// Processes to read
    #[arg(value_name = "PID", required_unless_present_any = ["all", "dashboard"])]
    pids: Vec<Pid>,
    /// All processes of the machine that run HAKMEM and may be read
    #[arg(long, conflicts_with = "pids")]
    all: bool,
    /// Serve /metrics at this address until interrupted, instead of printing once
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// OpenMetrics instead of Prometheus text (a server does as it is asked)
    #[arg(long)]
    openmetrics: bool,
    /// Print a Grafana dashboard that shows these metrics
    #[arg(long, conflicts_with_all = ["pids", "all", "listen"])]
    dashboard: bool,
}

const DASHBOARD: &str = include_str!("../assets/grafana.json");

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Gauge,
    Counter,
}

struct Family {
    /// Without `_total`, which counters' samples end in.
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

const PROCESSES: Family = Family {
    name: "hakmem_processes",
    kind: Kind::Gauge,
    help: "Processes found, by what became of reading them: read, or forbidden by their owner or the kernel.",
};
const INFO: Family =
    Family { name: "hakmem_info", kind: Kind::Gauge, help: "1; the version of the library and the command line." };
const RESIDENT: Family = Family {
    name: "hakmem_process_resident_bytes",
    kind: Kind::Gauge,
    help: "Resident bytes of the process, the heap included.",
};
const HEAP: Family = Family {
    name: "hakmem_heap_bytes",
    kind: Kind::Gauge,
    help:
        "Resident bytes of the heap by what they are; the terms add up to what is resident. untouched_live is negative.",
};
const CLASS: Family = Family {
    name: "hakmem_class_bytes",
    kind: Kind::Gauge,
    help: "Bytes of the blocks of a class: live, cached by threads, or free in slabs that have live blocks, too.",
};
const SUPERSLABS: Family = Family { name: "hakmem_superslabs", kind: Kind::Gauge, help: "SuperSlabs of 2 MiB in use." };
const HEAPS: Family =
    Family { name: "hakmem_thread_heaps", kind: Kind::Gauge, help: "Heaps of threads, by whether a thread has them." };
const EVENTS: Family = Family {
    name: "hakmem_events",
    kind: Kind::Counter,
    help: "Events on slow paths since the process began; docs/counters.md says what each is.",
};
const FAMILIES: [&Family; 8] = [&PROCESSES, &INFO, &RESIDENT, &HEAP, &CLASS, &SUPERSLABS, &HEAPS, &EVENTS];

#[derive(Default)]
struct Reading {
    snapshots: Vec<Snapshot>,
    forbidden: u64,
}

/// A label's value, as both formats escape it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Page {
    text: String,
    openmetrics: bool,
}

impl Page {
    fn head(&mut self, family: &Family) {
        let suffix = if family.kind == Kind::Counter && !self.openmetrics { "_total" } else { "" };
        let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
        let name = family.name;
        let _ = writeln!(self.text, "# HELP {name}{suffix} {}\n# TYPE {name}{suffix} {kind}", family.help);
    }

    fn sample(&mut self, family: &Family, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let suffix = if family.kind == Kind::Counter { "_total" } else { "" };
        let labels: Vec<_> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escape(text))).collect();
        let _ = writeln!(self.text, "{}{suffix}{{{}}} {value}", family.name, labels.join(","));
    }
}

fn heap_terms(snapshot: &Snapshot) -> [(&'static str, i64); 7] {
    let t = &snapshot.heap;
    [
        ("live", t.live),
        ("untouched_live", t.untouched_live),
        ("partly_used_slabs", t.partly_used_slabs),
        ("thread_caches", t.thread_caches),
        ("empty_slots", t.empty_slots),
        ("huge_rounding", t.huge_rounding),
        ("metadata", t.metadata),
    ]
}

/// The samples of one process in one family.
fn samples(page: &mut Page, family: &Family, s: &Snapshot) {
    let pid = s.process.pid.to_string();
    let name = s.process.command.split_whitespace().next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let who = [("pid", pid.as_str()), ("process", name)];
    let with = |more: &[(&'static str, &str)]| {
        let mut all: Vec<(&str, String)> = who.iter().map(|&(key, value)| (key, value.to_string())).collect();
        all.extend(more.iter().map(|&(key, value)| (key, value.to_string())));
        all
    };
    let mut put = |more: &[(&'static str, &str)], value: i128| {
        let all = with(more);
        let borrowed: Vec<(&str, &str)> = all.iter().map(|(key, value)| (*key, value.as_str())).collect();
        page.sample(family, &borrowed, value);
    };
    match family.name {
        "hakmem_info" => put(&[("version", &s.process.version), ("command", &s.process.command)], 1),
        "hakmem_process_resident_bytes" => put(&[], s.process.rss.into()),
        "hakmem_heap_bytes" => heap_terms(s).iter().for_each(|&(term, bytes)| put(&[("term", term)], bytes.into())),
        "hakmem_class_bytes" => {
            for class in &s.classes {
                let tier = format!("{:?}", class.tier).to_lowercase();
                let block_bytes = class.block_bytes.to_string();
                for (state, bytes) in [("live", class.live), ("cached", class.cached), ("free", class.free)] {
                    put(&[("tier", &tier), ("block_bytes", &block_bytes), ("state", state)], bytes.into());
                }
            }
        }
        "hakmem_superslabs" => put(&[], s.superslabs.len() as i128),
        "hakmem_thread_heaps" => {
            let used = s.heaps.iter().filter(|heap| heap.in_use).count();
            put(&[("state", "in_use")], used as i128);
            put(&[("state", "idle")], (s.heaps.len() - used) as i128);
        }
        "hakmem_events" => s.counters.iter().for_each(|c| put(&[("event", &c.name)], c.value.into())),
        _ => {}
    }
}

fn render(reading: &Reading, openmetrics: bool) -> String {
    let mut page = Page { text: String::new(), openmetrics };
    for family in FAMILIES {
        page.head(family);
        if family.name == PROCESSES.name {
            page.sample(family, &[("state", "read")], reading.snapshots.len());
            page.sample(family, &[("state", "forbidden")], reading.forbidden);
        }
        for snapshot in &reading.snapshots {
            samples(&mut page, family, snapshot);
        }
    }
    if openmetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

/// Those named, each of which must be readable, or all that are.
fn read(options: &Options) -> Result<Reading> {
    let mut reading = Reading::default();
    for &pid in &options.pids {
        reading.snapshots.push(Target::attach(pid)?.snapshot()?);
    }
    if options.all {
        read_all(&mut reading);
    }
    Ok(reading)
}

fn read_all(reading: &mut Reading) {
    let own = std::process::id() as Pid;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<Pid> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids.into_iter().filter(|&pid| pid != own) {
        match Target::attach(pid) {
            Ok(target) => reading.snapshots.extend(target.snapshot().ok()),
            Err(error) => reading.forbidden += u64::from(is_forbidden(&error)),
        }
    }
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let system = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        matches!(system, Some(libc::EPERM | libc::EACCES))
    })
}

// ---- serving ----

fn answer(options: &Options, request: &Request) -> Response {
    if request.method != "GET" {
        return Response::text("405 Method Not Allowed", "only GET\n");
    }
    if request.path.split('?').next() != Some("/metrics") {
        return Response::text("404 Not Found", "the metrics are at /metrics\n");
    }
    let wants = request.header("accept").is_some_and(|value| value.contains("application/openmetrics-text"));
    match read(options) {
        Ok(reading) if wants || options.openmetrics => Response::new(
            "200 OK",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            render(&reading, true),
        ),
        Ok(reading) => Response::new("200 OK", "text/plain; version=0.0.4; charset=utf-8", render(&reading, false)),
        Err(error) => Response::text("503 Service Unavailable", format!("{error:#}\n")),
    }
}

fn serve(options: Options, address: SocketAddr) -> Result<ExitCode> {
    let loopback = address.ip() == Ipv4Addr::LOCALHOST;
    ensure!(loopback, "{address}: metrics are served at 127.0.0.1 only; put a proxy with access control before it");
    let listener = http::listen(address.port())?;
    println!("http://{}/metrics", listener.local_addr()?);
    std::io::stdout().flush()?;
    http::serve(listener, move |request| answer(&options, request))?;
    loop {
        std::thread::park(); // until a signal ends it
    }
}

pub fn command(options: Options) -> Result<ExitCode> {
    if options.dashboard {
        print!("{DASHBOARD}");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(address) = options.listen {
        return serve(options, address);
    }
    print!("{}", render(&read(&options)?, options.openmetrics));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page { text: String::new(), openmetrics: false };
        page.sample(&INFO, &[("command", "sh -c \"a\\b\"\n")], 1);
        assert_eq!(page.text, "hakmem_info{command=\"sh -c \\\"a\\\\b\\\"\\n\"} 1\n");
    }

    #[test]
    fn both_formats_name_counters_their_way() {
        let text = render(&Reading::default(), false);
        assert!(text.contains("# TYPE hakmem_events_total counter\n") && !text.contains("# EOF"), "{text}");
        let text = render(&Reading::default(), true);
        assert!(text.contains("# TYPE hakmem_events counter\n") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn the_dashboard_shows_metrics_there_are() {
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() >= 6);
        for panel in panels {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let known = |family: &&Family| {
                    expression.contains(&format!("{}{{", family.name))
                        || expression.contains(&format!("{}_total{{", family.name))
                };
                assert!(FAMILIES.iter().any(known), "{expression}");
            }
        }
    }
}
