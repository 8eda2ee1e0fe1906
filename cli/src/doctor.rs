//! `hakmem doctor`: is HAKMEM really loaded and serving malloc, and what on this machine costs it speed or memory?
//!
//! Each check is a line, and where something is to be done, what. Exit code 1: a check found a problem.

use crate::heap::Target;
use crate::options::Probe;
use crate::proc::Pid;
use crate::{allocator, elf};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct Options {
    /// Of this process; without it, of the machine and the library
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
        println!("{}", serde_json::to_string_pretty(&checks)?);
    } else {
        checks.iter().for_each(print);
    }
    let problem = checks.iter().any(|check| check.verdict == Verdict::Problem);
    Ok(ExitCode::from(u8::from(problem)))
}

fn print(check: &Check) {
    let mark = match check.verdict {
        Verdict::Ok => "ok",
        Verdict::Cost => "cost",
        Verdict::Problem => "PROBLEM",
    };
    println!("{mark:<9}{:<22}{}", check.name, check.found);
    if let Some(remedy) = &check.remedy {
        println!("{:<31}{remedy}", "");
    }
}

fn first_line(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().trim().to_string()
}

// ---- is it there ----

fn of_library(named: Option<&Path>) -> Vec<Check> {
    let library = match allocator::hakmem_preload(named) {
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
        ok("malloc", "it serves malloc")
    } else {
        bad(
            "malloc",
            Verdict::Problem,
            "it is loaded, but nothing has been allocated from it",
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
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if let Some(obstacle) = elf::obstacle(Path::new(&format!("/proc/{pid}/exe"))) {
        return format!("{} {obstacle}: link it with libhakmem.a instead", program.display());
    }
    if runs_secure(pid) {
        return "it was started with privileges, so the dynamic linker preloads only what /etc/ld.so.preload names"
            .into();
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    match variables.find_map(|variable| variable.strip_prefix("LD_PRELOAD=").map(str::to_string)) {
        Some(preload) if preload.contains("hakmem") => {
            format!("LD_PRELOAD={preload} was set, but the dynamic linker could not load it: see the program's stderr")
        }
        _ => format!("start it with LD_PRELOAD=/path/libhakmem.so {}", program.display()),
    }
}

/// Set-user-ID and the like: AT_SECURE.
fn runs_secure(pid: Pid) -> bool {
    const AT_SECURE: u64 = 23;
    let vector = fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
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
    [Some(address_space), cgroup(&process)].into_iter().flatten().collect()
}

/// The smallest limit from the process's own group up.
fn cgroup(process: &str) -> Option<Check> {
    let group = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let path = group.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_string();
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(path);
    let limits = own.ancestors().take_while(|group| group.starts_with(root)).filter_map(|group| {
        let limit: u64 = first_line(group.join("memory.max")).parse().ok()?;
        let used: u64 = first_line(group.join("memory.current")).parse().ok()?;
        Some((limit, used))
    });
    Some(match limits.collect::<Vec<_>>().into_iter().min() {
        None => ok("memory cgroup", "no limit"),
        Some((limit, used)) if used > limit / 10 * 9 => {
            let found = format!("{} of {} MiB are used", used >> 20, limit >> 20);
            bad(
                "memory cgroup",
                Verdict::Cost,
                found,
                "raise memory.max, or `hakmem purge PID`; HAKMEM_PURGE=eager keeps least",
            )
        }
        Some((limit, used)) => ok("memory cgroup", format!("{} of {} MiB are used", used >> 20, limit >> 20)),
    })
}

// ---- kernel ----

fn of_kernel() -> Vec<Check> {
    vec![huge_pages(), overcommit(), map_count(), yama(), membarrier(), populate()]
}

fn huge_pages() -> Check {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = first_line(path);
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        None => bad("huge pages", Verdict::Cost, "this kernel has none", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE"),
        Some(("never", _)) => {
            bad("huge pages", Verdict::Cost, "never: large heaps fault page by page", format!("echo madvise > {path}"))
        }
        Some((mode, _)) => ok("huge pages", format!("{mode}: large heaps get them")),
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
        return ok("membarrier", "there: caches of sleeping threads can be emptied");
    }
    let found = "not there: what a sleeping thread caches stays with it";
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
