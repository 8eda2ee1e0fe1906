//! `hakmem metrics`: what processes' heaps are made of and do, as Prometheus or OpenMetrics text.
//!
//! 1. FAMILIES is the one table of names, types and help; names are stable: dashboards hang on them.
//! 2. Every sample carries `pid` and `process` (the command's name). A class is a label, not a name.
//! 3. `--listen` answers GET /metrics on loopback, to whoever has the token, each time by reading the processes anew.
//!    History, rates and alerts are Prometheus's. What is kept is the highest figures of each class's counters
//!    (Highest): a counter that falls would count as one that began anew.
//! 4. Processes are read side by side, each within --budget (readers.rs). hakmem_processes counts what became of them.
//! 5. A server of named processes leaves out those that have ended, and ends with the last.
// SPDX-License-Identifier: MIT

mod readers;

use crate::heap::named::Named;
use crate::heap::patience::Late;
use crate::heap::remote::Forbidden;
use crate::heap::{Arena, Class, Snapshot, Target, Tier};
use crate::http::{self, Listener, Request, Response};
use crate::token::Token;
use anyhow::{anyhow, Result};
use clap::Args;
use hakmem_base::print;
use hakmem_base::proc::{self, Pid, Watched};
use hakmem_base::shown;
use readers::Outcome;
pub use readers::Readers;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Which processes to read.
#[derive(Args)]
pub struct Processes {
    /// Processes to read
    #[arg(value_name = "PID|NAME", value_parser = Named, required_unless_present = "all")]
    pids: Vec<Pid>,
    /// All processes of this machine that run HAKMEM and can be read
    #[arg(long, conflicts_with = "pids")]
    all: bool,
    /// Time limit for reading one process; slower processes are left out and counted as slow
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = budget)]
    budget: f64,
    /// Show the arguments of command lines, which may hold secrets, and not only the programs
    #[arg(long)]
    arguments: bool,
}

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    processes: Processes,
    /// Serve /metrics at this address instead of printing once, until interrupted or until every PID has ended
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// File whose first line is the token [default: a new one, printed with the address]
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Print OpenMetrics instead of Prometheus text (a server lets each client choose)
    #[arg(long)]
    openmetrics: bool,
    /// Print a Grafana dashboard that shows these metrics
    #[arg(long, exclusive = true)]
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
    help: "Processes found, by the outcome of reading them: read, forbidden by their owner or the kernel, slow (over \
           the time limit), failed, or ended (only named ones).",
};
const BUDGET: Family =
    Family { name: "hakmem_read_budget_seconds", kind: Kind::Gauge, help: "Time limit for reading one process." };
const READING: Family = Family {
    name: "hakmem_read_seconds",
    kind: Kind::Gauge,
    help: "Time that reading the process took; processes at or above the limit are left out.",
};
const INFO: Family = Family {
    name: "hakmem_info",
    kind: Kind::Gauge,
    help: "1; its labels are the library's version and the program or, with --arguments, its command line.",
};
const RESIDENT: Family = Family {
    name: "hakmem_process_resident_bytes",
    kind: Kind::Gauge,
    help: "Resident bytes of the process, including the heap.",
};
const HEAP: Family = Family {
    name: "hakmem_heap_bytes",
    kind: Kind::Gauge,
    help: "Resident bytes of the heap by kind; the terms add up to the resident heap.",
};
const UNTOUCHED: Family = Family {
    name: "hakmem_untouched_bytes",
    kind: Kind::Gauge,
    help: "Bytes of blocks that the program holds and never touched: not resident.",
};
const CLASS: Family = Family {
    name: "hakmem_class_bytes",
    kind: Kind::Gauge,
    help: "Bytes in the blocks of a class: live, cached by threads, or free in slabs that also have live blocks.",
};
const ALLOCATIONS: Family = Family {
    name: "hakmem_class_allocations",
    kind: Kind::Counter,
    help: "Allocations of a class since the process began.",
};
const MISSES: Family = Family {
    name: "hakmem_class_misses",
    kind: Kind::Counter,
    help: "Of the allocations of a class, those that found no block in their thread's list or ring.",
};
const SUPERSLABS: Family =
    Family { name: "hakmem_superslabs", kind: Kind::Gauge, help: "SuperSlabs of 2 MiB in use: a slot is ACTIVE." };
const HEAPS: Family =
    Family { name: "hakmem_thread_heaps", kind: Kind::Gauge, help: "Heaps of threads, by whether a thread uses them." };
const ARENAS: Family = Family {
    name: "hakmem_arena_bytes",
    kind: Kind::Gauge,
    help: "Bytes of the arenas of a name: live, in use, resident, and their limits if all have one.",
};
const PRESETS: Family = Family {
    name: "hakmem_preset_rating",
    kind: Kind::Gauge,
    help: "Ratings of the presets that ACE chooses from, by whether a preset is in use; none with ACE=0.",
};
const EVENTS: Family = Family {
    name: "hakmem_events",
    kind: Kind::Counter,
    help: "Events on slow paths since the process began; docs/options.md describes each.",
};
const FAMILIES: [&Family; 15] = [
    &PROCESSES,
    &BUDGET,
    &READING,
    &INFO,
    &RESIDENT,
    &HEAP,
    &UNTOUCHED,
    &CLASS,
    &ALLOCATIONS,
    &MISSES,
    &SUPERSLABS,
    &HEAPS,
    &ARENAS,
    &PRESETS,
    &EVENTS,
];

/// More names would be as many series.
const ARENA_NAMES_MAX: usize = 100;

#[derive(Default)]
struct Reading {
    snapshots: Vec<Arc<Snapshot>>,
    /// How long each process took that was read, or slow.
    took: Vec<(Pid, String, Duration)>,
    budget: Duration,
    forbidden: u64,
    slow: u64,
    failed: u64,
    ended: u64,
}

fn budget(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.01..=600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("0.01 to 600 seconds".into())
    }
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
        let labels: Vec<_> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", shown::label(text))).collect();
        let _ = writeln!(self.text, "{}{suffix}{{{}}} {value}", family.name, labels.join(","));
    }
}

/// The program's name, without directories.
fn name_of(snapshot: &Snapshot) -> &str {
    let name = snapshot.process.command.split_whitespace().next().unwrap_or_default();
    name.rsplit('/').next().unwrap_or_default()
}

/// Where a process belongs, as far as its cgroup tells: the cgroup, the unit of systemd, the container.
pub fn labels_of(pid: Pid) -> Vec<(&'static str, String)> {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).map_or(Vec::new(), |text| labels_in(&text))
}

/// The innermost of each; what is not there has no label.
fn labels_in(text: &str) -> Vec<(&'static str, String)> {
    let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let version_two = text.lines().find_map(|line| line.strip_prefix("0::"));
    let parts = || paths().flat_map(|path| path.rsplit('/'));
    let unit = parts().find(|part| [".service", ".scope", ".mount", ".socket"].iter().any(|end| part.ends_with(end)));
    // docker-ID.scope, cri-containerd-ID.scope, libpod-ID, or the number alone.
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = |part: &str| part.trim_end_matches(".scope").rsplit(['-', ':']).next().map(str::to_string);
    let container = parts().filter_map(id).find(|part| hex(part));
    let labels =
        [("unit", unit.map(str::to_string)), ("container", container), ("cgroup", version_two.map(str::to_string))];
    labels.into_iter().filter_map(|(key, value)| Some((key, value.filter(|value| value != "/")?))).collect()
}

fn labels_of_class(class: &Class) -> (String, String) {
    (format!("{:?}", class.tier).to_lowercase(), class.block_bytes.to_string())
}

/// The samples of one process in one family.
fn samples(page: &mut Page, family: &Family, s: &Snapshot) {
    let pid = s.process.pid.to_string();
    let who = [("pid", pid.as_str()), ("process", name_of(s))];
    let labels = labels_of(s.process.pid);
    let with = |more: &[(&'static str, &str)]| {
        let mut all: Vec<(&str, String)> = who.iter().map(|&(key, value)| (key, value.to_string())).collect();
        all.extend(labels.iter().filter(|(key, _)| *key != "cgroup" || family.name == INFO.name).cloned());
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
        "hakmem_heap_bytes" => s.heap.parts().iter().for_each(|term| put(&[("term", term.name)], term.bytes.into())),
        "hakmem_untouched_bytes" => put(&[], s.heap.untouched.into()),
        "hakmem_class_allocations" | "hakmem_class_misses" => {
            let classes = s.classes.iter().chain(&s.past_classes);
            for class in classes.filter(|class| class.allocations != 0) {
                let (tier, block_bytes) = labels_of_class(class);
                let count = if family.name == MISSES.name { class.misses } else { class.allocations };
                put(&[("tier", &tier), ("block_bytes", &block_bytes)], count.into());
            }
        }
        "hakmem_class_bytes" => {
            for class in &s.classes {
                let (tier, block_bytes) = labels_of_class(class);
                for (state, bytes) in [("live", class.live), ("cached", class.cached), ("free", class.free)] {
                    put(&[("tier", &tier), ("block_bytes", &block_bytes), ("state", state)], bytes.into());
                }
            }
        }
        "hakmem_superslabs" => put(&[], s.superslab_count.into()),
        "hakmem_thread_heaps" => {
            let used = s.heaps.iter().filter(|heap| heap.in_use).count();
            put(&[("state", "in_use")], used as i128);
            put(&[("state", "idle")], (s.heaps.len() - used) as i128);
        }
        "hakmem_arena_bytes" => {
            let mut names: Vec<&str> = s.arenas.iter().map(|arena| arena.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names.into_iter().take(ARENA_NAMES_MAX) {
                let all = || s.arenas.iter().filter(|arena| arena.name == name);
                let sum = |of: fn(&Arena) -> u64| all().map(of).fold(0, u64::saturating_add);
                let limit =
                    all().map(|arena| arena.limit).try_fold(0u64, |sum, limit| Some(sum.saturating_add(limit?)));
                put(&[("arena", name), ("state", "live")], sum(|arena| arena.live).into());
                put(&[("arena", name), ("state", "in_use")], sum(|arena| arena.used).into());
                put(&[("arena", name), ("state", "resident")], sum(|arena| arena.resident).into());
                limit.into_iter().for_each(|limit| put(&[("arena", name), ("state", "limit")], limit.into()));
            }
        }
        "hakmem_preset_rating" => {
            for (ace, rated) in s.ace.iter().flat_map(|ace| ace.presets.iter().map(move |rated| (ace, rated))) {
                let state = if rated.name == ace.preset { "in_use" } else { "idle" };
                put(&[("preset", &rated.name), ("state", state)], rated.rating.into());
            }
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
            let Reading { forbidden, slow, failed, ended, .. } = *reading;
            for (state, count) in [("forbidden", forbidden), ("slow", slow), ("failed", failed), ("ended", ended)] {
                page.sample(family, &[("state", state)], count);
            }
        }
        if family.name == BUDGET.name {
            page.sample(family, &[], reading.budget.as_secs_f64());
        }
        if family.name == READING.name {
            for (pid, name, took) in &reading.took {
                page.sample(family, &[("pid", &pid.to_string()), ("process", name)], took.as_secs_f64());
            }
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

/// What others may learn of it: a command line may hold passwords, and /proc may be closed to them (hidepid).
fn told(mut snapshot: Snapshot, arguments: bool) -> Snapshot {
    if !arguments {
        let command = &mut snapshot.process.command;
        *command = command.split_whitespace().next().unwrap_or_default().into();
    }
    snapshot
}

/// What counters of classes were at most. A slab that leaves its thread takes its free blocks out of the library's
/// figures, and lists may change while they are counted.
#[derive(Default)]
struct Highest(HashMap<Pid, Counted>);

#[derive(Default)]
struct Counted {
    /// Of the process, when it was read.
    age_ms: u64,
    /// Allocations and misses.
    classes: HashMap<(Tier, u64), [u64; 2]>,
}

impl Highest {
    /// Raises the snapshot's counters to what they were, of classes that it lacks, too.
    fn hold(&mut self, snapshot: &mut Snapshot) {
        let counted = self.0.entry(snapshot.process.pid).or_default();
        if snapshot.process.age_ms < counted.age_ms {
            *counted = Counted::default(); // another process
        }
        counted.age_ms = snapshot.process.age_ms;
        let mut gone = counted.classes.clone();
        for class in snapshot.classes.iter_mut().chain(&mut snapshot.past_classes) {
            gone.remove(&class.key());
            let highest = counted.classes.entry(class.key()).or_default();
            *highest = [highest[0].max(class.allocations), highest[1].max(class.misses)];
            [class.allocations, class.misses] = *highest;
        }
        for ((tier, block_bytes), [allocations, misses]) in gone.into_iter().filter(|(_, counts)| counts[0] > 0) {
            snapshot.past_classes.push(Class { tier, block_bytes, allocations, misses, ..Class::default() });
        }
        snapshot.past_classes.sort_by_key(Class::key);
    }

    fn forget_all_but(&mut self, pids: &[Pid]) {
        self.0.retain(|pid, _| pids.contains(pid));
    }
}

/// What is to be read, and how.
pub struct Source {
    /// Those named; empty: all there are.
    named: Vec<Watched>,
    readers: Readers<Option<Arc<Snapshot>>>,
    arguments: bool,
    highest: Mutex<Highest>,
}

impl Source {
    pub fn new(options: &Processes) -> Result<Source> {
        let named = options.pids.iter().map(|&pid| Watched::new(pid)).collect::<Result<_>>()?;
        let (all, arguments, budget) = (options.all, options.arguments, Duration::from_secs_f64(options.budget));
        let read = move |pid| {
            let target = if all { Target::attach_if(pid, budget)? } else { Some(Target::attach_within(pid, budget)?) };
            let Some(target) = target else { return Ok(None) };
            Ok(Some(Arc::new(told(target.summary()?, arguments))))
        };
        Ok(Source { named, readers: Readers::new(budget, read), arguments, highest: Mutex::default() })
    }

    /// Those named that run, or all there are.
    pub fn pids(&self) -> Vec<Pid> {
        let running = self.named.iter().filter(|process| !process.has_ended());
        if self.named.is_empty() {
            processes()
        } else {
            running.map(|process| process.pid).collect()
        }
    }

    /// Those named that run; if none is named, those that run HAKMEM and can be read.
    pub fn wanted(&self) -> Vec<Pid> {
        if self.named.is_empty() {
            self.readable()
        } else {
            self.pids()
        }
    }

    /// Those that run HAKMEM and can be read.
    pub fn readable(&self) -> Vec<Pid> {
        self.read().0.snapshots.iter().map(|one| one.process.pid).collect()
    }

    /// Reads another thing of processes, within the same budget.
    pub fn readers<T: Clone + Send + 'static>(
        &self,
        of: impl Fn(Snapshot) -> Result<T> + Send + Sync + 'static,
    ) -> Readers<T> {
        let (budget, arguments) = (self.readers.budget(), self.arguments);
        Readers::new(budget, move |pid| of(told(Target::attach_within(pid, budget)?.summary()?, arguments)))
    }

    /// Until all those named have ended.
    pub fn wait(&self) {
        self.named.iter().for_each(Watched::wait);
        while self.named.is_empty() {
            std::thread::park(); // until a signal ends it
        }
    }

    /// Fails if one of those named runs and cannot be read.
    fn read_all(&self) -> Result<Reading> {
        let (reading, failure) = self.read();
        failure.map_or(Ok(reading), Err)
    }

    /// Also the first failure of one of those named.
    fn read(&self) -> (Reading, Option<anyhow::Error>) {
        let mut failure = None;
        let mut reading = Reading { budget: self.readers.budget(), ..Reading::default() };
        let (ended, running): (Vec<_>, Vec<_>) = self.named.iter().partition(|process| process.has_ended());
        let pids: Vec<Pid> = running.iter().map(|process| process.pid).collect();
        let all = self.named.is_empty();
        reading.ended = ended.len() as u64;
        let pids = if all { processes() } else { pids };
        let outcomes = self.readers.read(&pids);
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        highest.forget_all_but(&pids);
        for (pid, outcome, took) in outcomes {
            match outcome {
                Outcome::Read(None) => {} // it does not run HAKMEM
                Outcome::Read(Some(mut snapshot)) => {
                    highest.hold(Arc::make_mut(&mut snapshot));
                    reading.took.push((pid, name_of(&snapshot).to_string(), took));
                    reading.snapshots.push(snapshot);
                }
                Outcome::Failed(error) if !error.is::<Late>() => {
                    if running.iter().any(|one| one.pid == pid && one.has_ended()) {
                        reading.ended += 1;
                        continue;
                    }
                    let forbidden = error.is::<Forbidden>();
                    let failed = !forbidden && proc::exists(pid);
                    reading.forbidden += u64::from(forbidden);
                    reading.failed += u64::from(failed);
                    failure = failure.or((!all).then(|| anyhow!("{error:#}")));
                }
                Outcome::Slow | Outcome::Failed(_) => {
                    reading.took.push((pid, proc::name(pid), took));
                    reading.slow += 1;
                }
            }
        }
        (reading, failure)
    }
}

/// All but this one and the kernel's own.
fn processes() -> Vec<Pid> {
    let own = std::process::id() as Pid;
    let mut pids = proc::all();
    pids.retain(|&pid| pid != own && !proc::is_of_kernel(pid));
    pids.sort_unstable();
    pids
}

// ---- serving ----

fn answer(source: &Source, openmetrics: bool, request: &Request) -> Response {
    if request.method != "GET" {
        return Response::text("405 Method Not Allowed", "only GET\n");
    }
    if request.path.split('?').next() != Some("/metrics") {
        return Response::text("404 Not Found", "the metrics are at /metrics\n");
    }
    page(source, openmetrics, request)
}

/// The metrics as the client wants them.
pub fn page(source: &Source, openmetrics: bool, request: &Request) -> Response {
    let wants = request.header("accept").is_some_and(|value| value.contains("application/openmetrics-text"));
    match source.read() {
        // One that fails takes none of the others along.
        (reading, Some(error)) if reading.snapshots.is_empty() => {
            Response::text("503 Service Unavailable", &format!("{error:#}\n"))
        }
        (reading, _) if wants || openmetrics => Response::new(
            "200 OK",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            render(&reading, true),
        ),
        (reading, _) => Response::new("200 OK", "text/plain; version=0.0.4; charset=utf-8", render(&reading, false)),
    }
}

fn serve(options: &Options, address: SocketAddr) -> Result<ExitCode> {
    let listener = http::listen_at(address)?;
    let token = Arc::new(Token::from(options.token_file.as_deref())?);
    let source = Arc::new(Source::new(&options.processes)?);
    if !options.processes.all {
        source.read_all()?; // report one that cannot be read at once
    }
    let shown = token.address(&listener.local_addr()?.to_string(), "/metrics");
    let (shared, openmetrics) = (source.clone(), options.openmetrics);
    http::serve(Listener::Tcp(listener), Some(token), move |request| answer(&shared, openmetrics, request))?;
    print::line(&shown)?;
    source.wait();
    print::note("hakmem: no process is left to read");
    Ok(ExitCode::SUCCESS)
}

pub fn command(options: Options) -> Result<ExitCode> {
    if options.dashboard {
        print::text(DASHBOARD)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(address) = options.listen {
        return serve(&options, address);
    }
    print::text(&render(&Source::new(&options.processes)?.read_all()?, options.openmetrics))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_labelled_with_where_it_belongs() {
        let id = "0f".repeat(32);
        let of = |text: &str| labels_in(text);
        assert_eq!(of("0::/\n"), []);
        assert_eq!(
            of("0::/system.slice/nginx.service\n"),
            [("unit", "nginx.service".into()), ("cgroup", "/system.slice/nginx.service".into())]
        );
        let docker = format!("/system.slice/docker-{id}.scope");
        let expected = [("unit", format!("docker-{id}.scope")), ("container", id.clone()), ("cgroup", docker.clone())];
        assert_eq!(of(&format!("0::{docker}\n")), expected);
        assert_eq!(of(&format!("4:memory:/kubepods/pod1/{id}\n")), [("container", id)], "version 1");
    }

    /// Else whoever reads the metrics reads the passwords on command lines, which /proc may hide from them.
    #[test]
    fn arguments_are_told_only_if_asked_for() {
        let mut snapshot = crate::picture::tests::snapshot(1);
        snapshot.process.command = "/bin/server --password=secret".into();
        let command = |arguments| {
            let snapshots = vec![Arc::new(told(snapshot.clone(), arguments))];
            let text = render(&Reading { snapshots, ..Reading::default() }, false);
            text.lines().find_map(|line| Some(line.split_once("command=\"")?.1.split('"').next()?.to_string())).unwrap()
        };
        assert_eq!((command(true).as_str(), command(false).as_str()), ("/bin/server --password=secret", "/bin/server"));
    }

    /// Else rates are wrong by all that was ever allocated: Prometheus takes a fall for a new beginning.
    #[test]
    fn counters_of_classes_never_fall() {
        let mut highest = Highest::default();
        let mut read = |age_ms, classes: &[(u64, u64, u64)]| {
            let mut snapshot = crate::picture::tests::snapshot(1);
            let class = |&(block_bytes, allocations, misses): &(u64, u64, u64)| Class {
                block_bytes,
                allocations,
                misses,
                ..Class::default()
            };
            (snapshot.process.age_ms, snapshot.classes) = (age_ms, classes.iter().map(class).collect());
            highest.hold(&mut snapshot);
            let counts = snapshot
                .classes
                .iter()
                .chain(&snapshot.past_classes)
                .map(|class| (class.block_bytes, class.allocations, class.misses));
            counts.collect::<Vec<_>>()
        };
        assert_eq!(read(10, &[(16, 500, 9), (640, 1, 1)]), [(16, 500, 9), (640, 1, 1)]);
        assert_eq!(read(20, &[(16, 400, 10)]), [(16, 500, 10), (640, 1, 1)], "its slabs are gone");
        assert_eq!(read(30, &[(8, 0, 0), (16, 501, 10)]), [(8, 0, 0), (16, 501, 10), (640, 1, 1)]);
        assert_eq!(read(5, &[(16, 3, 1)]), [(16, 3, 1)], "a new process of this number");
        highest.forget_all_but(&[]);
        assert!(highest.0.is_empty());
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page { text: String::new(), openmetrics: false };
        page.sample(&INFO, &[("command", "sh -c \"a\\b\"\n")], 1);
        assert_eq!(page.text, "hakmem_info{command=\"sh -c \\\"a\\\\b\\\"\\\\n\"} 1\n");
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
