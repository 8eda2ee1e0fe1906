//! `hakmem doctor`: is HAKMEM really loaded and serving malloc, and what on this machine costs it speed or memory?
//!
//! Each check is a line, and where something is to be done, what. Exit code 1: a check found a problem.
// SPDX-License-Identifier: MIT

use crate::heap::named::Named;
use crate::heap::{Target, SWITCHED_OFF};
use crate::options::Probe;
use anyhow::Result;
use clap::Args;
use hakmem_base::print;
use hakmem_base::proc::{Pid, Process};
use hakmem_base::shown;
use hakmem_base::{elf, preload};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct Options {
    /// The process to check; without it, the machine and the library are checked
    #[arg(value_name = "PID|NAME", value_parser = Named, allow_negative_numbers = true)]
    pid: Option<Pid>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The library to check when no process is named
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It works, but slower, or with less room.
    Cost,
    Problem,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    /// The line to run or to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Ok, found: found.into(), remedy: None }
}

fn bad(name: &'static str, verdict: Verdict, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, verdict, found: found.into(), remedy: Some(remedy.into()) }
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let mut checks = match options.pid {
        Some(pid) => of_process(pid)?,
        None => of_library(options.hakmem.as_deref()),
    };
    checks.extend(of_limits(options.pid));
    checks.extend(of_kernel());
    if options.json {
        print::json(&checks)?;
    } else {
        print::text(&checks.iter().map(text).collect::<String>())?;
    }
    let problem = checks.iter().any(|check| check.verdict == Verdict::Problem);
    Ok(ExitCode::from(u8::from(problem)))
}

fn text(check: &Check) -> String {
    let mark = match check.verdict {
        Verdict::Ok => "ok",
        Verdict::Cost => "cost",
        Verdict::Problem => "PROBLEM",
    };
    let remedy = check.remedy.as_ref().map_or(String::new(), |remedy| format!("{:<31}{remedy}\n", ""));
    format!("{mark:<9}{:<22}{}\n{remedy}", check.name, shown::line(&check.found))
}

fn first_line(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().trim().to_string()
}

// ---- is it there ----

fn of_library(named: Option<&Path>) -> Vec<Check> {
    let library = match preload::hakmem_preload(named) {
        Ok(library) => library,
        Err(error) => {
            return vec![bad(
                "library",
                Verdict::Problem,
                format!("{error:#}"),
                "hakmem doctor --hakmem /path/libhakmem.so",
            )]
        }
    };
    let serving = Probe::start(&library).and_then(|probe| {
        let target = probe.target()?;
        Ok((target.is_serving(), target.version().to_string()))
    });
    let check = match serving {
        Ok((true, version)) => ok("malloc", format!("a program that preloads it allocates from HAKMEM {version}")),
        Ok((false, _)) => bad(
            "malloc",
            Verdict::Problem,
            "a program that preloads it does not allocate from it",
            "another library in LD_PRELOAD or /etc/ld.so.preload comes first: put HAKMEM before it",
        ),
        Err(error) => bad("malloc", Verdict::Problem, format!("{error:#}"), format!("LD_PRELOAD={library} cat")),
    };
    vec![ok("library", library), check]
}

fn of_process(pid: Pid) -> Result<Vec<Check>> {
    let target = match Target::attach(pid) {
        Ok(target) => target,
        Err(error) if format!("{error:#}").contains("does not run HAKMEM") => {
            return Ok(vec![bad("library", Verdict::Problem, format!("{error:#}"), why_not(pid))])
        }
        Err(error) => return Err(error),
    };
    let mut checks = vec![ok("library", format!("HAKMEM {} of {}", target.version(), target.file))];
    checks.push(if target.is_serving() {
        ok("malloc", "HAKMEM serves malloc")
    } else if target.is_switched_off()? {
        bad("malloc", Verdict::Problem, SWITCHED_OFF, "start it without HAKMEM_SUPERSLAB=0")
    } else {
        bad(
            "malloc",
            Verdict::Problem,
            "HAKMEM is loaded, but nothing has been allocated from it",
            "the program has a malloc of its own, or another library comes before HAKMEM in LD_PRELOAD",
        )
    });
    if target.is_window()? {
        let (found, remedy) = ("no address space is reserved: SuperSlabs are mapped one by one", "ulimit -v unlimited");
        checks.push(bad("address space", Verdict::Cost, found, remedy));
    }
    let changed = target.read_options()?.into_iter().filter(|option| option.value != option.default);
    let changed: Vec<String> = changed.map(|option| format!("{}={}", option.name, option.value)).collect();
    checks.push(ok("options", if changed.is_empty() { "all at their defaults".into() } else { changed.join(" ") }));
    Ok(checks)
}

/// Why a preload did not take, as far as can be told from outside.
fn why_not(pid: Pid) -> String {
    let Ok(process) = Process::open(pid) else { return "the program has ended".into() };
    let program = fs::read_link(process.path("exe")).unwrap_or_default();
    if let Some(obstacle) = elf::obstacle(&process.path("exe")) {
        return format!("{} {obstacle}: link it with libhakmem.a instead", program.display());
    }
    if runs_secure(&process) {
        return "the program has privileges, so the dynamic linker preloads only what /etc/ld.so.preload names".into();
    }
    let environment = process.bytes("environ");
    let mut variables = environment.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    match variables.find_map(|variable| variable.strip_prefix("LD_PRELOAD=").map(str::to_string)) {
        Some(preload) if preload.contains("hakmem") => {
            format!("LD_PRELOAD={preload} was set, but the dynamic linker could not load it: see the program's stderr")
        }
        _ => format!("start it with LD_PRELOAD=/path/libhakmem.so {}", program.display()),
    }
}

/// Set-user-ID and the like: AT_SECURE.
fn runs_secure(process: &Process) -> bool {
    const AT_SECURE: u64 = 23;
    let vector = process.bytes("auxv");
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    vector.chunks_exact(16).any(|entry| word(&entry[..8]) == AT_SECURE && word(&entry[8..]) != 0)
}

// ---- limits ----

fn of_limits(pid: Option<Pid>) -> Vec<Check> {
    let process = pid.map_or("self".to_string(), |pid| pid.to_string());
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space")).unwrap_or_default();
    let address_space = match line.split_whitespace().next() {
        Some("unlimited") | None => ok("RLIMIT_AS", "unlimited"),
        Some(bytes) => {
            let found = format!("{bytes} bytes: nothing is reserved, SuperSlabs are mapped one by one");
            bad("RLIMIT_AS", Verdict::Cost, found, "ulimit -v unlimited; a limit of the container or cgroup instead")
        }
    };
    vec![address_space, cgroup(Path::new("/"), &process)]
}

/// A hierarchy of control groups, as src/machine/cgroup.c knows them.
struct Hierarchy {
    mount: &'static str,
    /// The controllers that /proc/PID/cgroup names beside the process's own group.
    controllers: &'static str,
    limits: &'static [&'static str],
    used: &'static str,
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        mount: "sys/fs/cgroup",
        controllers: "",
        limits: &["memory.max", "memory.high"],
        used: "memory.current",
    },
    Hierarchy {
        mount: "sys/fs/cgroup/memory",
        controllers: "memory",
        limits: &["memory.limit_in_bytes"],
        used: "memory.usage_in_bytes",
    },
];
/// Version 1 has no word for none: it is the most there can be, in whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// The smallest limit from the process's own groups up, with the file it is in and what is used of it.
fn cgroup_limit(root: &Path, process: &str) -> Option<(u64, PathBuf, u64)> {
    let groups = fs::read_to_string(root.join(format!("proc/{process}/cgroup"))).unwrap_or_default();
    let mut least: Option<(u64, PathBuf, u64)> = None;
    for hierarchy in &HIERARCHIES {
        let own = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == hierarchy.controllers).then_some(path)
        });
        let mount = root.join(hierarchy.mount);
        let Some(own) = own.map(|path| mount.join(path.trim_start_matches('/'))) else { continue };
        for group in own.ancestors().take_while(|group| group.starts_with(&mount)) {
            for file in hierarchy.limits.iter().map(|name| group.join(name)) {
                let limit = first_line(&file).parse().ok().filter(|&limit: &u64| limit < NO_LIMIT);
                let used = first_line(group.join(hierarchy.used)).parse().unwrap_or(0);
                if let Some(limit) = limit.filter(|&limit| least.as_ref().is_none_or(|(old, ..)| limit < *old)) {
                    least = Some((limit, file, used));
                }
            }
        }
    }
    least
}

fn cgroup(root: &Path, process: &str) -> Check {
    const NAME: &str = "memory cgroup";
    match cgroup_limit(root, process) {
        None => ok(NAME, "no limit"),
        Some((limit, file, used)) if used > limit / 10 * 9 => {
            let found = format!("{} of {} MiB are used", used >> 20, limit >> 20);
            let raise = format!("raise {}, or `hakmem purge PID`; HAKMEM_PURGE=eager keeps least", file.display());
            bad(NAME, Verdict::Cost, found, raise)
        }
        Some((limit, file, used)) => {
            ok(NAME, format!("{} of {} MiB are used ({})", used >> 20, limit >> 20, file.display()))
        }
    }
}

// ---- kernel ----

fn of_kernel() -> Vec<Check> {
    vec![
        huge_pages(),
        folios(Path::new("/sys/kernel/mm/transparent_hugepage")),
        overcommit(),
        map_count(),
        yama(),
        membarrier(),
        populate(),
    ]
}

fn huge_pages() -> Check {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match mode_in(path).as_deref() {
        None => bad("huge pages", Verdict::Cost, "this kernel has none", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE"),
        Some("never") => {
            bad("huge pages", Verdict::Cost, "never: large heaps fault page by page", format!("echo madvise > {path}"))
        }
        Some(mode) => {
            let costs = match (fault_us(libc::MADV_HUGEPAGE), fault_us(libc::MADV_NOHUGEPAGE)) {
                (Some(huge), Some(small)) => format!("; now 2 MiB cost {huge} us at once, {small} us page by page"),
                _ => String::new(),
            };
            ok("huge pages", format!("{mode}: large heaps get them while they cost less than small pages{costs}"))
        }
    }
}

/// What it costs to touch 2 MiB for the first time, in microseconds of CPU time: the median of some.
fn fault_us(advice: i32) -> Option<u128> {
    const PIECE: usize = 2 << 20;
    const PIECES: usize = 5;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of our own, written inside its bounds and unmapped again.
    let mut times: Vec<u128> = unsafe {
        let bytes = (PIECES + 1) * PIECE;
        let mapping = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let begin = mapping.cast::<u8>().add(mapping.cast::<u8>().align_offset(PIECE));
        libc::madvise(begin.cast(), PIECES * PIECE, advice);
        let piece = |piece: usize| {
            let began = thread_ns();
            (0..PIECE).step_by(4096).for_each(|at| begin.add(piece * PIECE + at).write_volatile(1));
            (thread_ns() - began) / 1000
        };
        let times = (0..PIECES).map(piece).collect();
        libc::munmap(mapping, bytes);
        times
    };
    times.sort_unstable();
    Some(times[PIECES / 2])
}

fn thread_ns() -> u128 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as u128 * 1_000_000_000 + now.tv_nsec as u128
}

/// The mode in a line such as `always [madvise] never`.
fn mode_in(path: impl AsRef<Path>) -> Option<String> {
    Some(first_line(path).split_once('[')?.1.split_once(']')?.0.to_string())
}

/// Pages of 64 KiB, one for each slot: the library takes them where the kernel gives them to whoever does not refuse,
/// but not huge pages as well, with which small programs would grow.
fn folios(directory: &Path) -> Check {
    const NAME: &str = "pages of 64 KiB";
    let of = |size: &str| {
        let mode = mode_in(directory.join(format!("hugepages-{size}/enabled")))?;
        if mode == "inherit" {
            mode_in(directory.join("enabled"))
        } else {
            Some(mode)
        }
    };
    let path = |size: &str| directory.join(format!("hugepages-{size}/enabled"));
    match (of("64kB").as_deref(), of("2048kB").as_deref()) {
        (None, _) => ok(NAME, "this kernel has none (Linux 6.8 has them)"),
        (Some("always"), Some("always")) => {
            let found = "always, as are huge pages: the library refuses both up to 64 MiB";
            bad(NAME, Verdict::Cost, found, format!("echo madvise > {}", path("2048kB").display()))
        }
        (Some("always"), _) => ok(NAME, "always: heaps above 16 MiB fault slot by slot"),
        (Some(mode), _) => {
            let found = format!("{mode}: page faults cost three times as much as they could");
            bad(NAME, Verdict::Cost, found, format!("echo always > {}", path("64kB").display()))
        }
    }
}

fn overcommit() -> Check {
    match first_line("/proc/sys/vm/overcommit_memory").as_str() {
        "2" => bad(
            "overcommit",
            Verdict::Cost,
            "2: memory is counted when it is committed, before it is used",
            "sysctl vm.overcommit_memory=0",
        ),
        mode => ok("overcommit", if mode.is_empty() { "unknown" } else { mode }),
    }
}

fn map_count() -> Check {
    const USUAL: u64 = 65_530;
    match first_line("/proc/sys/vm/max_map_count").parse::<u64>() {
        Ok(count) if count < USUAL => {
            let found = format!("{count}: huge-page advice and secure mode need mappings");
            bad("vm.max_map_count", Verdict::Cost, found, format!("sysctl vm.max_map_count={USUAL}"))
        }
        Ok(count) => ok("vm.max_map_count", count.to_string()),
        Err(_) => ok("vm.max_map_count", "unknown"),
    }
}

fn yama() -> Check {
    let path = "/proc/sys/kernel/yama/ptrace_scope";
    match first_line(path).as_str() {
        "" | "0" => ok("Yama", "processes of the same user may be read"),
        "1" => bad(
            "Yama",
            Verdict::Cost,
            "ptrace_scope 1: other processes of the same user may not be read",
            "sudo hakmem …, or start the program with HAKMEM_INSPECT=1, or sysctl kernel.yama.ptrace_scope=0",
        ),
        scope => {
            let found = format!("ptrace_scope {scope}: only root may read processes, at most");
            bad("Yama", Verdict::Cost, found, "sudo hakmem …, or sysctl kernel.yama.ptrace_scope=1")
        }
    }
}

fn membarrier() -> Check {
    const QUERY: i32 = 0;
    const PRIVATE_EXPEDITED: i64 = 1 << 3;
    // SAFETY: only asks.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    if commands > 0 && commands & PRIVATE_EXPEDITED != 0 {
        return ok("membarrier", "available: caches of sleeping threads can be emptied");
    }
    let found = "missing: a sleeping thread keeps what it caches";
    bad("membarrier", Verdict::Cost, found, "Linux 4.14 or newer, and a seccomp filter that allows membarrier")
}

fn populate() -> Check {
    const MADV_POPULATE_WRITE: i32 = 23;
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a page of our own, unmapped again.
    let works = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), page, access, flags, -1, 0);
        let works = at != libc::MAP_FAILED && libc::madvise(at, page, MADV_POPULATE_WRITE) == 0;
        libc::munmap(at, page);
        works
    };
    if works {
        return ok("MADV_POPULATE_WRITE", "there: pages are faulted in several at a time");
    }
    bad("MADV_POPULATE_WRITE", Verdict::Cost, "not there: pages are faulted in one by one", "Linux 5.14 or newer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::io::Write::write_all(&mut fs::File::create(path).unwrap(), text.as_bytes()).unwrap();
        }
        root
    }

    fn limit(files: &[(&str, &str)]) -> Option<(u64, u64)> {
        cgroup_limit(root(files).path(), "self").map(|(limit, _, used)| (limit, used))
    }

    const UNIFIED: &str = "sys/fs/cgroup/a/b";
    const OLD: &str = "sys/fs/cgroup/memory/c";

    /// If this fails, the advice is to turn on what is on already, or page faults cost time that nobody sees.
    #[test]
    fn modes_of_pages_of_64_kib_are_told_apart() {
        let found = |small: &str, huge: &str, all: &str| {
            let root = root(&[("hugepages-64kB/enabled", small), ("hugepages-2048kB/enabled", huge), ("enabled", all)]);
            folios(root.path())
        };
        let (on, off) = ("[always] inherit madvise never", "always inherit madvise [never]");
        let (inherits, madvise) = ("always [inherit] madvise never", "always [madvise] never");
        for (small, huge, all, verdict, says) in [
            (on, inherits, madvise, Verdict::Ok, "slot by slot"),
            (on, inherits, "[always] madvise never", Verdict::Cost, "as are huge pages"),
            (inherits, inherits, "[always] madvise never", Verdict::Cost, "as are huge pages"),
            (inherits, off, "[always] madvise never", Verdict::Ok, "slot by slot"),
            (inherits, inherits, madvise, Verdict::Cost, "madvise: page faults"),
            (off, inherits, madvise, Verdict::Cost, "never: page faults"),
        ] {
            let check = found(small, huge, all);
            assert!(check.verdict == verdict && check.found.contains(says), "{small}, {huge}, {all}: {}", check.found);
        }
        assert!(found(off, inherits, madvise).remedy.unwrap().starts_with("echo always > "));
        assert!(folios(Path::new("/nowhere")).verdict == Verdict::Ok);
    }

    /// If this fails, the user does not learn of the limit near which the library already purges.
    #[test]
    fn limits_of_both_versions_are_seen() {
        let file = |group: &str, name: &str| format!("{group}/{name}");
        let both = "4:memory:/c\n1:name=systemd:/\n0::/a/b\n";
        let old = [file(OLD, "memory.limit_in_bytes"), file(OLD, "memory.usage_in_bytes")];
        let new = [file(UNIFIED, "memory.max"), file(UNIFIED, "memory.current"), file(UNIFIED, "memory.high")];
        assert_eq!(limit(&[("proc/self/cgroup", both)]), None);
        assert_eq!(limit(&[("proc/self/cgroup", both), (&old[0], "7000\n"), (&old[1], "5000\n")]), Some((7000, 5000)));
        let none = [("proc/self/cgroup", both), (&*old[0], "9223372036854771712\n"), (&*new[0], "max\n")];
        assert_eq!(limit(&none), None, "neither is a limit");
        let all = [
            ("proc/self/cgroup", both),
            (&*old[0], "7000\n"),
            (&*new[0], "6000\n"),
            (&*new[1], "8\n"),
            (&*new[2], "9000\n"),
        ];
        assert_eq!(limit(&all), Some((6000, 8)), "the smallest of all");
        let high = [("proc/self/cgroup", both), (&*new[2], "500\n"), (&*new[1], "8\n")];
        assert_eq!(limit(&high), Some((500, 8)));
        let shared = "3:cpu,memory:/x/y\n";
        let parent = "sys/fs/cgroup/memory/x/memory.limit_in_bytes";
        assert_eq!(limit(&[("proc/self/cgroup", shared), (parent, "300\n")]), Some((300, 0)), "a parent's counts");
    }
}
