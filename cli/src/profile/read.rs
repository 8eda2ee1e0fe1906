//! Profiles from where they come from: a live process, a file of our own format, or the text that a program left at its
//! end (HAKMEM_PROFILE_FILE).
//!
//! That text has a line for each stack: what was allocated (objects in 1 / 65536, bytes), what was freed, how many
//! samples lived how long, and the return addresses; behind it one for what was live at the peak; then what Python's
//! frames are called, the process's mappings, and a line that shows that nothing is missing. So the program needs to
//! know no names.
// SPDX-License-Identifier: MIT

use super::{missing, naming, pprof, python, sites, Lifetime, Place, Profile, Stack};
use crate::budget::{self, Budget};
use crate::heap::remote::{areas, Area, Remote};
use crate::heap::samples::{is_word, Code, Codes, Sampled, SampledStack, Totals};
use crate::heap::{patience, Target};
use crate::symbols::{Module, Origin};
use anyhow::{ensure, Context, Result};
use hakmem_base::files;
use hakmem_base::proc::Pid;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For the names of one process: gigabytes of DWARF take minutes.
pub const NAMING: Duration = Duration::from_secs(600);
/// From the writing of its profile to a program's end.
const ENDING: Duration = Duration::from_secs(10);
/// The largest file with a profile that is read.
const FILE_MAX: u64 = 128 << 20;
/// Files of one process with the names of code made at run time.
const DUMPS_MAX: usize = 16;
const TOO_LARGE: &str = "is too large: its stacks take too much memory";
/// Memory for a place, and for its number in a stack and in tables.
const CALL_BYTES: u64 = size_of::<Place>() as u64 + 56;
const KIND: &str = "hakmem profile";
const HEADER: &str = "hakmem profile 1\n";
/// Estimated objects are counted in this part of one.
pub const OBJECT: u64 = 65536;

// ---- from the tables to a profile ----

/// From parts of one.
pub fn objects(parts: u64) -> u64 {
    parts.saturating_add(OBJECT / 2) / OBJECT
}

fn whole(totals: Totals) -> Totals {
    Totals { objects: objects(totals.objects), bytes: totals.bytes }
}

/// What was freed, divided as the samples are.
fn lifetimes(freed: Totals, samples: &[u64]) -> Vec<Lifetime> {
    // In the library they are numbers of four bytes.
    let samples: Vec<u64> = samples.iter().map(|&samples| samples.min(u32::MAX.into())).collect();
    let all: u64 = samples.iter().sum();
    if all == 0 {
        let unknown = Lifetime { at_least_ns: None, freed };
        return Some(unknown).filter(|_| freed != Totals::default()).into_iter().collect();
    }
    let part = |value: u64, upto: u64| (u128::from(value) * u128::from(upto) / u128::from(all)) as u64;
    let (mut upto, mut found) = (0, Vec::new());
    for (number, &samples) in samples.iter().enumerate().filter(|(_, &samples)| samples > 0) {
        let of = |value| part(value, upto + samples) - part(value, upto);
        let freed = Totals { objects: of(freed.objects), bytes: of(freed.bytes) };
        let at_least_ms = if number == 0 { 0 } else { 1u64 << (number - 1).min(40) };
        found.push(Lifetime { at_least_ns: Some(at_least_ms * 1_000_000), freed });
        upto += samples;
    }
    found
}

/// How long the freed blocks of a stack had lived.
pub fn lifetimes_of(stack: &SampledStack) -> Vec<Lifetime> {
    let freed = stack.freed.objects.min(stack.allocated.objects);
    lifetimes(whole(Totals { objects: freed, bytes: stack.freed.bytes }), &stack.lifetimes)
}

/// Files with code, and the kernel's page with functions.
fn modules(areas: &[Area]) -> Vec<Module> {
    let has_code = |area: &&Area| area.access.contains('x') && (area.inode != 0 || area.name == "[vdso]");
    let module = |area: &Area| Module {
        start: area.start,
        end: area.end,
        offset: area.offset,
        path: area.name.strip_suffix(" (deleted)").unwrap_or(&area.name).to_string(),
        build_id: String::new(),
    };
    areas.iter().filter(has_code).map(module).collect()
}

/// Without names yet.
fn profile_of(sampled: Sampled) -> Profile {
    let mut profile = Profile { interval: sampled.interval, modules: modules(&sampled.areas), ..Default::default() };
    if sampled.dropped > 0 {
        profile
            .notes
            .push(format!("{} samples found no place in the library's tables and are missing", sampled.dropped));
    }
    let mut by_start: Vec<usize> = (0..profile.modules.len()).collect();
    by_start.sort_by_key(|&number| profile.modules[number].start);
    let mut known = HashMap::new();
    let mut left = Budget::new(budget::PROGRAM);
    for stack in sampled.stacks {
        let mut place = |&caller: &u64| {
            if is_word(caller) {
                return *known.entry(caller).or_insert_with(|| {
                    let mut frame = python::frame(caller, &sampled.codes);
                    if !left.has(frame.function.len() + frame.file.len()) {
                        frame = python::frame(caller, &Codes::new());
                    }
                    let frames = vec![frame];
                    profile.places.push(Place { address: caller, module: None, frames });
                    profile.places.len() - 1
                });
            }
            let address = caller.saturating_sub(1);
            *known.entry(address).or_insert_with(|| {
                let behind = by_start.partition_point(|&one| profile.modules[one].start <= address);
                let module = behind.checked_sub(1).map(|at| by_start[at]);
                let module = module.filter(|&one| address < profile.modules[one].end);
                profile.places.push(Place { address, module, frames: Vec::new() });
                profile.places.len() - 1
            })
        };
        let places = stack.callers.iter().map(&mut place).collect();
        let freed = Totals {
            objects: stack.freed.objects.min(stack.allocated.objects),
            bytes: stack.freed.bytes.min(stack.allocated.bytes),
        };
        let live =
            Totals { objects: stack.allocated.objects - freed.objects, bytes: stack.allocated.bytes - freed.bytes };
        let lifetimes = lifetimes(whole(freed), &stack.lifetimes);
        profile.stacks.push(Stack {
            places,
            arena: stack.arena,
            live: whole(live),
            peak: whole(stack.peak),
            lifetimes,
        });
    }
    profile
}

/// Only modules that a stack goes through, by their new numbers.
fn drop_unused(profile: &mut Profile) {
    let used: HashSet<usize> = profile.stacks.iter().flat_map(|stack| stack.places.iter().copied()).collect();
    let modules: HashSet<usize> = used.iter().filter_map(|&place| profile.places[place].module).collect();
    let renumber = |count: usize, is_used: &HashSet<usize>| {
        let mut next = 0;
        let number = |old: usize| {
            next += usize::from(is_used.contains(&old));
            next.wrapping_sub(1)
        };
        (0..count).map(number).collect::<Vec<usize>>()
    };
    let (places, files) = (renumber(profile.places.len(), &used), renumber(profile.modules.len(), &modules));
    for place in profile.stacks.iter_mut().flat_map(|stack| &mut stack.places) {
        *place = places[*place];
    }
    for module in profile.places.iter_mut().filter_map(|place| place.module.as_mut()) {
        *module = files[*module];
    }
    let mut number = 0..;
    profile.places.retain(|_| number.next().is_some_and(|number| used.contains(&number)));
    let mut number = 0..;
    profile.modules.retain(|_| number.next().is_some_and(|number| modules.contains(&number)));
}

fn now_ns(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

// ---- from a process ----

/// Where just-in-time compilers name their code: files that they map, and the one that carries the process's number as
/// the process knows it.
fn code_files(origin: &Origin, remote: &Remote, areas: &[Area]) -> Vec<File> {
    let Some(process) = remote.process() else { return Vec::new() };
    let is_dump = |name: &&str| name.ends_with(".dump") && name.contains("/jit-");
    let dumps = areas.iter().map(|area| area.name.as_str()).filter(is_dump).take(DUMPS_MAX).map(PathBuf::from);
    let map = PathBuf::from(format!("/tmp/perf-{}.map", process.own_pid()));
    dumps.chain([map]).filter_map(|path| origin.of_its_user(&path)).collect()
}

pub fn process(pid: Pid, directories: &[PathBuf]) -> Result<Profile> {
    let target = Target::attach(pid)?;
    let mut profile = stacks_of(target.remote(), target.samples()?, directories);
    sites::join_equal(&mut profile);
    drop_unused(&mut profile);
    Ok(profile)
}

/// With names, and a stack for each that was sampled, in the same order.
pub fn stacks_of(remote: Remote, sampled: Sampled, directories: &[PathBuf]) -> Profile {
    let mut profile = uncut(remote, sampled, directories);
    python::merge(&mut profile);
    profile.shorten();
    sites::cut_allocator(&mut profile);
    missing::advise(&mut profile);
    profile
}

/// The same, with the allocator's frames, and the interpreter's where there are Python functions.
pub fn uncut(remote: Remote, sampled: Sampled, directories: &[PathBuf]) -> Profile {
    let areas = sampled.areas.clone();
    let mut profile = profile_of(sampled);
    profile.pid = remote.pid as u64;
    profile.command = remote.program();
    profile.time_ns = now_ns(SystemTime::now());
    named(profile, remote, areas, directories)
}

/// Names are found in files that are the process's own, maybe: that has a limit of time, too.
fn named(profile: Profile, remote: Remote, areas: Vec<Area>, directories: &[PathBuf]) -> Profile {
    let (mut unnamed, directories, pid) = (profile.clone(), directories.to_vec(), remote.pid);
    let work = move || {
        let mut profile = profile;
        let origin = Origin::of(&remote, &areas, &directories);
        naming::from_files(&mut profile, &origin, &|_| true);
        let files = code_files(&origin, &remote, &areas);
        naming::from_dumps(&mut profile, &origin, &files);
        Ok(profile)
    };
    patience::within(pid, NAMING, work).unwrap_or_else(|error| {
        unnamed.notes.push(format!("names are missing: {error}"));
        unnamed
    })
}

/// Begins to sample, or ends it (0).
pub fn switch(pid: Pid, bytes: u64) -> Result<()> {
    Target::attach(pid)?.sample_every(bytes)
}

// ---- from a file ----

/// A line "stack ALLOCATED ALLOCATED_BYTES FREED FREED_BYTES N,N,… ADDRESS…".
fn stack_of(line: &str) -> Option<SampledStack> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let allocated = Totals { objects: number()?, bytes: number()? };
    let freed = Totals { objects: number()?, bytes: number()? };
    let lifetimes = words.next()?.split(',').map(|count| count.parse().ok()).collect::<Option<_>>()?;
    let callers = words.map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect::<Option<_>>()?;
    Some(SampledStack { allocated, freed, lifetimes, callers, ..SampledStack::default() })
}

fn from_digits(text: &str) -> Option<Vec<u8>> {
    let pair = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

/// A line "python NUMBER MINOR LINE NAME FILE LINES".
fn code_of(line: &str) -> Option<(u64, Code)> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (place, minor, first_line) = (number()?, number()?, number()?);
    let mut bytes = || from_digits(words.next()?);
    let (name, file, lines) = (bytes()?, bytes()?, bytes()?);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some((place, Code { minor, first_line, name: text(name), file: text(file), lines }))
}

/// "OBJECTS BYTES"
fn totals_of(text: &str) -> Option<Totals> {
    let (objects, bytes) = text.split_once(' ')?;
    Some(Totals { objects: objects.parse().ok()?, bytes: bytes.parse().ok()? })
}

/// What a program wrote at its end.
fn parse(text: &str) -> Result<Profile> {
    let rest = text.strip_prefix(HEADER).context("is of another version of HAKMEM")?;
    let (tables, maps) = rest.split_once("\nmaps\n").context("is cut short")?;
    let maps = maps.strip_suffix("\nend\n").context("is cut short: its last line is missing")?;
    let (mut sampled, mut command, mut pid) = (Sampled::default(), String::new(), 0);
    let mut left = Budget::new(budget::PROFILE);
    let mut moment = "exit".to_string();
    for line in tables.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let number = || value.parse::<u64>().ok().with_context(|| format!("is damaged: {line}"));
        match key {
            "command" => command = value.to_string(),
            "moment" => moment = value.to_string(),
            "pid" => pid = number()?,
            "interval" => sampled.interval = number()?,
            "dropped" => sampled.dropped = number()?,
            "stack" => {
                let stack = stack_of(value).with_context(|| format!("is damaged: {line}"))?;
                // Each call may be a place of its own.
                let calls = stack.callers.len() as u64;
                ensure!(left.have(calls, calls * CALL_BYTES + size_of::<Stack>() as u64), TOO_LARGE);
                sampled.stacks.push(stack);
            }
            "peak" => {
                let last = sampled.stacks.last_mut().zip(totals_of(value));
                let (stack, peak) = last.with_context(|| format!("is damaged: {line}"))?;
                stack.peak = peak;
            }
            "arena" => {
                let last = sampled.stacks.last_mut().zip(from_digits(value));
                let (stack, name) = last.with_context(|| format!("is damaged: {line}"))?;
                stack.arena = budget::cut(&String::from_utf8_lossy(&name)).to_string();
                ensure!(left.has(stack.arena.len()), TOO_LARGE);
            }
            "python" => {
                let (number, mut code) = code_of(value).with_context(|| format!("is damaged: {line}"))?;
                for text in [&mut code.name, &mut code.file] {
                    text.truncate(budget::cut(text).len());
                }
                ensure!(left.has(code.bytes()), TOO_LARGE);
                sampled.codes.insert(number, code);
            }
            _ => {} // a later version's, or of a command's name with line breaks
        }
    }
    sampled.areas = areas(maps.as_bytes())?;
    ensure!(!sampled.areas.is_empty(), "is cut short: it has no mappings");
    let profile = profile_of(sampled);
    Ok(Profile { command, pid, at_exit: moment == "exit", moment, ..profile })
}

fn changed_since(module: &Module, time: SystemTime) -> bool {
    let changed = fs::metadata(&module.path).and_then(|data| data.modified());
    changed.is_ok_and(|changed| changed > time)
}

/// Is it the beginning of a file that `file` reads?
pub fn begins_profile(head: &[u8]) -> bool {
    pprof::is_pprof(head) || head.starts_with(KIND.as_bytes())
}

pub fn file(path: &Path, directories: &[PathBuf]) -> Result<Profile> {
    let bytes = files::read(path, FILE_MAX).context("cannot be read")?;
    if pprof::is_pprof(&bytes) {
        let mut profile = pprof::read(&bytes)?;
        profile.shorten();
        naming::from_files(&mut profile, &Origin::of_machine(directories), &|_| true);
        missing::advise(&mut profile);
        return Ok(profile);
    }
    let (mut profile, written) = text(path, &bytes, directories)?;
    python::merge(&mut profile);
    profile.shorten();
    sites::cut_allocator(&mut profile);
    sites::join_equal(&mut profile);
    drop_unused(&mut profile);
    missing::advise(&mut profile);
    let changed = profile.modules.iter().filter(|module| changed_since(module, written));
    let notes: Vec<_> =
        changed.map(|one| format!("{} has changed since, so its names are not known", one.path)).collect();
    profile.notes.extend(notes);
    Ok(profile)
}

/// What a program wrote at its end, with the allocator's frames.
pub fn uncut_file(path: &Path, directories: &[PathBuf]) -> Result<Profile> {
    Ok(text(path, &files::read(path, FILE_MAX).context("cannot be read")?, directories)?.0)
}

/// And when it was written.
fn text(path: &Path, bytes: &[u8], directories: &[PathBuf]) -> Result<(Profile, SystemTime)> {
    let text = String::from_utf8_lossy(bytes);
    ensure!(
        !text.is_empty(),
        "is empty: it is written when its program ends, but not if that calls _exit or is killed"
    );
    ensure!(text.starts_with(KIND), "is neither a pprof profile nor what HAKMEM_PROFILE_FILE writes");
    let mut profile = parse(&text)?;
    let written = fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::now());
    profile.time_ns = now_ns(written);
    let origin = Origin::of_machine(directories);
    naming::from_files(&mut profile, &origin, &|one| !changed_since(one, written));
    let map = origin.beside(Path::new(&format!("/tmp/perf-{}.map", profile.pid)));
    let owner = fs::metadata(path).map(|data| data.uid()).ok();
    let of_this_process = |file: &File| {
        let data = file.metadata().ok();
        let is_before = |data: &Metadata| data.modified().is_ok_and(|at| at < written + ENDING);
        data.is_some_and(|data| Some(data.uid()) == owner && is_before(&data))
    };
    naming::from_dumps(&mut profile, &origin, map.filter(of_this_process).as_slice());
    Ok((profile, written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Frame;

    const TEXT: &str = "hakmem profile 1\ncommand a b\npid 7\ninterval 1000\ndropped 2\n\
        stack 196608 3000 131072 1000 1,0,3 0x1011 0x2021 0xc000000500000001\n\
        peak 131072 2500\nstack 0 0 65536 10 0\npython 5 9 40 66 2f61 0003\nmaps\n\
        1000-2000 r-xp 00000400 08:01 5                  /nowhere/program\n\
        2000-3000 rw-p 00000000 08:01 5                  /nowhere/program\n\
        7000-8000 r-xp 00000000 00:00 0                  [vdso]\nend\n";

    #[test]
    fn a_text_becomes_a_profile() {
        let mut profile = parse(TEXT).unwrap();
        assert_eq!((profile.command.as_str(), profile.pid, profile.interval, profile.at_exit), ("a b", 7, 1000, true));
        assert!(profile.notes[0].starts_with("2 samples"));
        let stack = &profile.stacks[0];
        assert_eq!(stack.live, Totals { objects: 1, bytes: 2000 });
        assert_eq!(stack.peak, Totals { objects: 2, bytes: 2500 });
        let quarter = Lifetime { at_least_ns: Some(0), freed: Totals { objects: 0, bytes: 250 } };
        let rest = Lifetime { at_least_ns: Some(2_000_000), freed: Totals { objects: 2, bytes: 750 } };
        assert_eq!(stack.lifetimes, [quarter, rest]);
        assert_eq!(stack.allocated(), Totals { objects: 3, bytes: 3000 });
        assert_eq!(profile.stacks[1].live, Totals::default(), "more freed than allocated: read at different moments");
        let place = &profile.places[stack.places[0]];
        assert_eq!((place.address, place.module), (0x1010, Some(0)));
        assert_eq!(profile.unnamed(place).function, "program+0x410");
        assert_eq!(profile.unnamed(&profile.places[stack.places[1]]).function, "0x2020");
        let python = Frame { function: "f".into(), file: "/a".into(), line: 43 };
        assert_eq!(profile.places[stack.places[2]].frames, [python]);
        drop_unused(&mut profile);
        assert_eq!((profile.modules.len(), profile.places.len()), (1, 3));
        assert_eq!(profile.places[profile.stacks[0].places[0]].address, 0x1010);
    }

    /// Else a program that was looked at when it grew is said to leak all it holds.
    #[test]
    fn what_is_not_written_at_exit_is_no_leak() {
        let said = |moment: &str| {
            let text = TEXT.replace("pid 7\n", &format!("pid 7\nmoment {moment}\n"));
            crate::profile::text::headline(&parse(&text).unwrap(), crate::profile::Metric::InuseSpace)
        };
        assert!(said("exit").contains("leaked"), "{}", said("exit"));
        for moment in ["soft limit", "growth", "peak", "interval", "signal", "call", "SIGTERM", "a later version's"] {
            assert!(said(moment).contains(" in use") && !said(moment).contains("leaked"), "{}", said(moment));
        }
        assert!(said("soft limit").contains("when the heap passed its soft limit"));
    }

    #[test]
    fn damaged_texts_are_refused() {
        for (from, to) in [
            ("196608", "x"),
            ("0x1011", "1011"),
            ("profile 1\n", "profile 2\n"),
            ("\nmaps\n", "\n"),
            ("131072 2500", "1"),
            (" 2f61 ", " 2f6 "),
        ] {
            assert!(parse(&TEXT.replacen(from, to, 1)).is_err(), "{from} to {to}");
        }
        assert!(parse(&TEXT[..TEXT.find("\nmaps").unwrap()]).unwrap_err().to_string().contains("cut short"));
    }

    /// Else libraries whose mappings are missing have no functions, or half of the stacks count as all.
    #[test]
    fn a_text_that_was_cut_is_refused_wherever_it_was() {
        for end in HEADER.len()..TEXT.len() {
            let said = parse(&TEXT[..end]).unwrap_err().to_string();
            assert!(said.starts_with("is cut short") || said.starts_with("is damaged"), "{end}: {said}");
        }
    }

    /// Else one long name that stands in many lines takes all memory.
    #[test]
    fn long_names_in_many_places_are_left_out() {
        let name = "61".repeat(1 << 20);
        let words: String = (0..40_000).map(|line| format!(" {:#x}", 0xc000_0005_0000_0000_u64 | line)).collect();
        let text =
            TEXT.replace("python 5 9 40 66 ", &format!("python 5 9 40 {name} ")).replace(" 0xc000000500000001", &words);
        hakmem_fuzz::bounded(&"a long name", || {
            let mut profile = parse(&text).unwrap();
            assert!(profile.places.iter().flat_map(|place| &place.frames).all(|one| one.function.len() <= 64 << 10));
            profile.shorten();
            assert!(profile.places.len() > 40_000);
        });
        let stack = format!("stack 1 1 0 0 0{}\n", " 0x1011".repeat(1000));
        let many = TEXT.replace("python 5", &format!("{}python 5", stack.repeat(8000)));
        hakmem_fuzz::bounded(&"many calls", || assert!(parse(&many).unwrap_err().to_string().contains("too large")));
    }

    /// Else a profile with many mappings is searched for each address, one by one.
    #[test]
    fn mappings_in_any_order_are_found() {
        let maps: String = (0..60_000_u64)
            .rev()
            .map(|n| format!("{:x}-{:x} r-xp 00000000 08:01 5 /x{n}\n", 0x10000 + n * 0x1000, 0x11000 + n * 0x1000))
            .collect();
        let calls: String = (0..60_000_u64).map(|n| format!(" {:#x}", 0x10011 + n * 0x1000)).collect();
        let text = format!("hakmem profile 1\npid 7\nstack 1 1 0 0 0{calls}\nmaps\n{maps}end\n");
        hakmem_fuzz::bounded(&"many mappings", || {
            let profile = parse(&text).unwrap();
            let last = profile.places.last().unwrap();
            assert_eq!(profile.module(last).unwrap().path, "/x59999");
        });
    }

    /// Else a file that somebody sent ends the command, or keeps it.
    #[test]
    fn any_text_is_a_profile_or_none() {
        hakmem_fuzz::mutations("a profile's text", TEXT.as_bytes(), 1000, |bytes| {
            let Ok(mut profile) = parse(&String::from_utf8_lossy(bytes)) else { return };
            python::merge(&mut profile);
            profile.shorten();
            sites::cut_allocator(&mut profile);
            sites::join_equal(&mut profile);
            drop_unused(&mut profile);
            crate::profile::tests::show(&profile);
        });
    }
}
