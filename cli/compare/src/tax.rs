//! The allocator's tax: the processor time of its own code, and of the kernel's work on memory.
//!
//! 1. In each measured run perf samples the processor clock of the program and of all that it starts. The program's own
//!    work is in none of the numbers, so they show small differences that wall time hides.
//! 2. A sample inside the preloaded library counts for the library. The system's allocator is part of the C library, so
//!    there the name of the function decides; that needs the debug symbols of the C library.
//! 3. A sample inside the kernel counts if its call chain contains a page fault, a memory call or the end of an address
//!    space. If the kernel hides its symbols, all of its samples count. The work of exec and of the dynamic loader is
//!    included, because it is the same for all allocators.
//! 4. strace counts the madvise calls in the warm-up run, so that it does not disturb the measured runs.
// SPDX-License-Identifier: MIT

use crate::measure::LINKED;
use crate::results::Allocator;
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::proc::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What `Run::values` calls the numbers.
pub const LIBRARY: &str = "library ms";
pub const KERNEL: &str = "kernel ms";
pub const TAX: &str = "tax ms";
pub const MADVISE: &str = "madvise calls";

const SAMPLES_PER_MS: f64 = 1.999;
/// Records 1,999 samples a second, with call chains and without a search for build ids.
const RECORD: [&str; 10] = ["record", "-q", "-B", "-N", "-g", "-e", "cpu-clock", "-F", "1999", "-o"];
/// 48 frames hold the deepest chains of the kernel, those of a fault in a file.
const SCRIPT: [&str; 6] = ["script", "--no-inline", "--max-stack", "48", "-F", "ip,sym,dso"];
/// Finds strace in PATH.
pub const COUNTING_PROGRAM: &str = "/usr/bin/env";
/// With --seccomp-bpf only the counted calls stop the program.
const COUNT: [&str; 11] = [
    "env",
    "strace",
    "-f",
    "-qq",
    "--seccomp-bpf",
    "-c",
    "-U",
    "name,calls",
    "-e",
    "trace=madvise,process_madvise",
    "-o",
];

const MEMORY_CALLS: [&str; 8] =
    ["madvise", "process_madvise", "mmap", "munmap", "mremap", "mprotect", "brk", "membarrier"];

/// The functions of glibc's malloc, without leading underscores.
const SYSTEM_FUNCTIONS: [&str; 30] = [
    "malloc",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "malloc_consolidate",
    "malloc_trim",
    "malloc_printerr",
    "int_malloc",
    "int_free",
    "int_free_merge_chunk",
    "int_free_create_chunk",
    "int_realloc",
    "int_memalign",
    "mid_memalign",
    "sysmalloc",
    "systrim",
    "unlink_chunk",
    "munmap_chunk",
    "mremap_chunk",
    "arena_get2",
    "heap_trim",
    "default_morecore",
    "sbrk",
];

// ---- the tools ----

/// The tools that measure, and their files.
pub struct Tools {
    /// perf's samples of the last run.
    pub samples: PathBuf,
    /// strace's table; None where strace does not run.
    pub calls: Option<PathBuf>,
}

impl Tools {
    /// Samples a program that does nothing, to find out whether perf works here.
    pub fn find(scratch: &Path) -> Result<Tools> {
        let (samples, calls) = (scratch.join("perf.data"), scratch.join("calls"));
        let tried = Command::new("perf").args(RECORD).arg(&samples).args(["--", "true"]).output();
        let tried = tried.context("--tax needs perf, which is not installed (Debian: linux-perf)")?;
        let forbidden = "--tax: perf cannot sample the kernel here; be root, or set kernel.perf_event_paranoid to 1";
        ensure!(tried.status.success(), forbidden);
        // Without the right to sample the kernel, perf samples the program alone and names the event cpu-clock:u.
        let events = Command::new("perf").args(["evlist", "-i"]).arg(&samples).output()?;
        ensure!(String::from_utf8_lossy(&events.stdout).trim() == "cpu-clock", forbidden);
        let traced = Command::new("strace").args(["-qq", "-o"]).arg(&calls).arg("true").output();
        let calls = Some(calls).filter(|_| traced.is_ok_and(|output| output.status.success()));
        Ok(Tools { samples, calls })
    }

    /// The arguments with which COUNTING_PROGRAM runs a command and counts its madvise calls.
    pub fn counting(&self, command: &[String]) -> Option<Vec<String>> {
        let calls = self.calls.as_ref()?.display().to_string();
        let words = COUNT.iter().map(|word| word.to_string()).chain([calls, "--".to_string()]);
        Some(words.chain(command.iter().cloned()).collect())
    }

    /// The result of the last counting run.
    pub fn madvise_calls(&self) -> Option<f64> {
        Some(madvise_calls(&fs::read_to_string(self.calls.as_ref()?).ok()?))
    }

    /// The tax in the last measured run.
    pub fn tax(&self, allocator: &Allocator) -> Result<BTreeMap<String, f64>> {
        let output = Command::new("perf").args(SCRIPT).arg("-i").arg(&self.samples).output()?;
        let words = String::from_utf8_lossy(&output.stderr);
        let last_words = words.trim().lines().last().unwrap_or("it says nothing");
        ensure!(output.status.success(), "perf cannot read its samples: {last_words}");
        ensure!(!words.contains(" lost "), "perf lost samples: too much else is running");
        Ok(Shares::of(&String::from_utf8_lossy(&output.stdout), allocator).values())
    }
}

/// perf, while it samples a process and all that it starts.
pub struct Sampler(Child);

impl Sampler {
    /// Returns when perf samples the process, which must not run before.
    pub fn attach(pid: Pid, samples: &Path) -> Result<Sampler> {
        let mut command = Command::new("perf");
        command.args(RECORD).arg(samples).args(["--control=fd:0,1", "-p", &pid.to_string()]);
        let perf = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut sampler = Sampler(perf);
        sampler.say("ping\n");
        let answer = sampler.0.stdout.as_mut().map(|stdout| stdout.read(&mut [0; 16]));
        if !matches!(answer, Some(Ok(1..))) {
            bail!("perf does not start");
        }
        Ok(sampler)
    }

    /// perf ends by itself with the last process, so nobody may be listening.
    fn say(&mut self, what: &str) {
        if let Some(stdin) = &mut self.0.stdin {
            let _ = stdin.write_all(what.as_bytes());
        }
    }

    /// Returns when all samples are written.
    pub fn stop(mut self) {
        self.say("stop\n");
        if let Some(stdout) = &mut self.0.stdout {
            let _ = stdout.read_to_end(&mut Vec::new());
        }
    }
}

// ---- what the tools print ----

#[derive(Debug, Default, PartialEq)]
struct Shares {
    /// None if functions of the C library have no names.
    library: Option<usize>,
    kernel: usize,
}

/// One line of a call chain: "  7f1020 symbol (/path/of/its/object)".
struct Frame<'a> {
    in_kernel: bool,
    symbol: &'a str,
    file: &'a str,
}

impl Frame<'_> {
    fn parse(line: &str) -> Option<Frame<'_>> {
        let (address, rest) = line.trim().split_once(' ')?;
        let (symbol, object) = rest.split_at(rest.rfind(" (/").max(rest.rfind(" (["))?);
        let object = object.trim_start_matches([' ', '(']).trim_end_matches(')').trim_end_matches(" (deleted");
        Some(Frame {
            in_kernel: u64::from_str_radix(address, 16).ok()? >> 63 == 1,
            symbol: symbol.trim(),
            file: object.rsplit('/').next().unwrap_or(object),
        })
    }
}

impl Shares {
    /// Each sample is a paragraph, its innermost function first.
    fn of(text: &str, allocator: &Allocator) -> Shares {
        let mut shares = Shares { library: Some(0), kernel: 0 };
        for sample in text.split("\n\n") {
            let frames: Vec<Frame> = sample.lines().filter_map(Frame::parse).collect();
            match frames.first() {
                Some(first) if first.in_kernel => shares.kernel += usize::from(concerns_memory(&frames)),
                Some(first) if allocator.libraries.is_empty() => match in_system_allocator(first) {
                    Some(inside) => shares.library = shares.library.map(|samples| samples + usize::from(inside)),
                    None => shares.library = None,
                },
                Some(first) => {
                    let inside = allocator.libraries.iter().any(|path| path.rsplit('/').next() == Some(first.file));
                    shares.library = shares.library.map(|samples| samples + usize::from(inside));
                }
                None => {}
            }
        }
        shares
    }

    fn values(&self) -> BTreeMap<String, f64> {
        let tax = self.library.map(|library| library + self.kernel);
        let numbers = [(LIBRARY, self.library), (KERNEL, Some(self.kernel)), (TAX, tax)];
        let measured = numbers.into_iter().filter_map(|(name, samples)| Some((name.to_string(), samples?)));
        measured.map(|(name, samples)| (name, samples as f64 / SAMPLES_PER_MS)).collect()
    }
}

/// Is the kernel at a page fault, a memory call or the end of an address space? Yes, if its symbols are hidden.
fn concerns_memory(frames: &[Frame]) -> bool {
    let mut symbols = frames.iter().take_while(|frame| frame.in_kernel).map(|frame| frame.symbol);
    let is_call = |symbol: &str| symbol.rsplit_once("_sys_").is_some_and(|(_, call)| MEMORY_CALLS.contains(&call));
    symbols.clone().all(|symbol| symbol == "[unknown]")
        || symbols.any(|symbol| {
            symbol.contains("page_fault") || symbol == "handle_mm_fault" || symbol == "exit_mmap" || is_call(symbol)
        })
}

/// None if the function has no name.
fn in_system_allocator(frame: &Frame) -> Option<bool> {
    if !frame.file.starts_with("libc.so") && !frame.file.starts_with("libc-") {
        return Some(LINKED.iter().any(|library| frame.file.starts_with(library)));
    }
    let name = frame.symbol.split(['@', '.']).next().unwrap_or_default();
    let name = name.trim_start_matches('_').trim_start_matches("libc_");
    (frame.symbol != "[unknown]").then(|| SYSTEM_FUNCTIONS.contains(&name) || name.starts_with("tcache_"))
}

/// The sum of the calls in strace's table.
fn madvise_calls(table: &str) -> f64 {
    let row = |line: &str| {
        let (name, calls) = line.trim().split_once(' ')?;
        calls.trim().parse::<u64>().ok().filter(|_| name.ends_with("madvise"))
    };
    table.lines().filter_map(row).sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &str = include_str!("../tests/samples.txt");

    fn shares(libraries: &[&str], text: &str) -> Shares {
        let libraries = libraries.iter().map(|library| library.to_string()).collect();
        let (name, version) = (String::new(), String::new());
        Shares::of(text, &Allocator { name, version, libraries, environment: BTreeMap::new(), tags: Vec::new() })
    }

    #[test]
    fn samples_are_classified() {
        let hakmem = shares(&["/opt/libhakmem.so.0.1.0"], SAMPLES);
        assert_eq!(hakmem, Shares { library: Some(3), kernel: 5 });
        assert_eq!(shares(&[], SAMPLES), Shares { library: Some(2), kernel: 5 });
        let tax = hakmem.values();
        assert_eq!((tax[LIBRARY], tax[TAX]), (3.0 / SAMPLES_PER_MS, 8.0 / SAMPLES_PER_MS));
    }

    /// Else the system's allocator looks better than it is where debug symbols are missing.
    #[test]
    fn without_symbols_the_share_of_the_system_is_unknown() {
        let stripped = SAMPLES.replace("_int_malloc", "[unknown]");
        assert_eq!(shares(&[], &stripped), Shares { library: None, kernel: 5 });
        assert_eq!(shares(&[], &stripped).values().keys().collect::<Vec<_>>(), [KERNEL]);
        let hidden = "\n\tffffffff815e4ca6 [unknown] ([kernel.kallsyms])\n\n\n";
        assert_eq!(shares(&[], hidden), Shares { library: Some(0), kernel: 1 });
    }

    #[test]
    fn calls_are_summed() {
        let table =
            "syscall                calls\n---- ----\nprocess_madvise          2\nmadvise  31\n---- ----\ntotal  33\n";
        assert_eq!((madvise_calls(table), madvise_calls("")), (33.0, 0.0));
    }
}
