//! Sums by site: the innermost line of the program that is not the allocator's, a wrapper's of malloc, or a standard
//! container's. Below a line of Python or JavaScript, calls in C count only if they are an extension's whose lines are
//! known.
//!
//! A vector's memory is allocated in its header file; whoever asks where memory comes from means the line that fills
//! it.
// SPDX-License-Identifier: MIT

use super::{add_lifetimes, Frame, Lifetime, Metric, Module, Place, Profile, Stack, Totals};
use serde::Serialize;
use std::collections::HashMap;

#[derive(Debug, Clone, Serialize)]
pub struct Site {
    #[serde(flatten)]
    pub frame: Frame,
    pub module: String,
    /// The name of the arena that has the blocks; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arena: String,
    pub in_use: Totals,
    /// In use when the program held most.
    pub peak: Totals,
    pub allocated: Totals,
    pub lifetimes: Vec<Lifetime>,
    /// The callers in the stack that weighs most, the nearest first.
    pub callers: Vec<Frame>,
}

impl Site {
    pub fn value(&self, metric: Metric) -> u64 {
        match metric {
            Metric::InuseSpace => self.in_use.bytes,
            Metric::InuseObjects => self.in_use.objects,
            Metric::AllocSpace => self.allocated.bytes,
            Metric::AllocObjects => self.allocated.objects,
            Metric::PeakSpace => self.peak.bytes,
            Metric::PeakObjects => self.peak.objects,
        }
    }
}

/// A template's name may begin with its return type: "int& std::vector<int, …>::emplace_back<int>(int&&)".
pub fn without_return_type(function: &str) -> &str {
    let (mut depth, mut begin) = (0usize, 0);
    for (at, letter) in function.char_indices() {
        match letter {
            '(' if depth == 0 && !function[at..].starts_with("(anonymous") => break,
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &function[begin..]
}

/// A function of the standard libraries of C++ and Rust: containers, and what starts threads and calls main.
fn is_compiled_library(frame: &Frame) -> bool {
    const NAMES: [&str; 8] =
        ["std::", "__gnu_cxx::", "alloc::", "core::", "<alloc::", "<core::", "<std::", "hashbrown::"];
    const FILES: [&str; 4] = ["/include/c++/", "/rustc/", "/library/alloc/", "/rustlib/src/"];
    let name = without_return_type(&frame.function);
    NAMES.iter().any(|start| name.starts_with(start))
        || FILES.iter().any(|part| frame.file.contains(part))
        || name.starts_with("libstdc++.so") // what starts a thread there has no name
}

/// A function that stands between the program and the allocator, in the standard libraries of C++, Rust, Python
/// and Node.js.
fn is_container(frame: &Frame) -> bool {
    is_compiled_library(frame)
        || frame.file.starts_with("<frozen ")
        || frame.file.starts_with("node:")
        || (frame.file.contains("/lib/python3") && frame.file.ends_with(".py") && !frame.file.contains("-packages/"))
}

/// A function whose name says that it hands on what malloc gave it: xmalloc, sqlite3Malloc, g_malloc0, PyMem_RawMalloc.
fn is_wrapper(frame: &Frame) -> bool {
    let name = frame.function.split(['(', '@']).next().unwrap_or_default().to_ascii_lowercase();
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_');
    ["malloc", "calloc", "realloc", "strdup", "strndup", "memdup"].iter().any(|end| name.ends_with(end))
}

/// Wrappers are that near the top.
const WRAPPERS_MAX: usize = 6;

/// Which frame of a stack is the site, of those that can be.
fn site_of(frames: &[Frame], can_be: &[bool]) -> usize {
    let top = frames.len().min(WRAPPERS_MAX);
    let first = frames[..top].iter().rposition(is_wrapper).map_or(0, |at| at + 1);
    let found = (first..frames.len()).find(|&at| can_be[at] && !is_container(&frames[at]));
    found.or_else(|| can_be.iter().position(|&can| can)).unwrap_or(0)
}

/// Python's own calls in C.
fn is_interpreter(module: &Module) -> bool {
    let name = module.name();
    name.starts_with("libpython") || name.starts_with("python") || module.path.contains("/lib-dynload/")
}

/// Which of the stack's frames can be its site: all; or those in a managed language, and of the extension that these
/// call.
fn can_be_site(profile: &Profile, stack: &Stack) -> Vec<bool> {
    let places = || stack.places.iter().map(|&number| &profile.places[number]);
    let first = places().position(|place| place.is_managed());
    let can_be = |(at, place): (usize, &Place)| {
        let has_line = place.frames.iter().any(|frame| frame.line > 0);
        let is_extension = has_line && !profile.module(place).is_some_and(is_interpreter);
        let can_be = first.is_none_or(|first| place.is_managed() || (at < first && is_extension));
        vec![can_be; place.frames.len().max(1)]
    };
    places().enumerate().flat_map(can_be).collect()
}

/// What calls main and the first function of a thread: the same for every stack.
fn is_start(frame: &Frame) -> bool {
    const NAMES: [&str; 5] = ["_start", "start_thread", "clone", "clone3", "__clone3"];
    NAMES.contains(&frame.function.as_str()) || frame.function.starts_with("__libc_start_")
}

/// The calls of a stack, the one that allocated first, without those by which a runtime starts main and threads, and
/// calls the program back. All, if none is the program's.
pub fn without_runtime(mut frames: Vec<(Frame, Option<usize>)>) -> Vec<(Frame, Option<usize>)> {
    let is_runtime = |frame: &Frame| is_start(frame) || is_compiled_library(frame);
    if let Some(own) = frames.iter().position(|(frame, _)| !is_runtime(frame)) {
        let outer = frames.split_off(own).into_iter().filter(|(frame, _)| !is_runtime(frame));
        frames.extend(outer);
    }
    frames
}

/// "malloc", "operator new(unsigned long)" …: a function that programs call to allocate.
fn is_allocator(function: &str) -> bool {
    const NAMES: [&str; 18] = [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "reallocarray",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
        "operator new",
        "operator new[]",
        "__rust_alloc",
        "__rust_alloc_zeroed",
        "__rust_realloc",
        "__libc_malloc",
        "__libc_calloc",
        "__libc_realloc",
    ];
    /// HAKMEM's own functions, for programs that link it or load it under another name.
    const OWN: [&str; 10] = [
        "profile_add",
        "take_sampled",
        "resample",
        "alloc_any",
        "alloc_slow",
        "alloc_in_arena",
        "arena_malloc_slow",
        "alloc_calloc",
        "alloc_realloc",
        "alloc_aligned",
    ];
    let name = function.split(['(', '@']).next().unwrap_or(function);
    let rust = name.strip_suffix("::__rust_alloc").is_some() || name.contains("__rustc::__r");
    NAMES.contains(&name) || OWN.contains(&name) || name.starts_with("hak_") || rust
}

/// Allocator functions are that near the top.
const TOP: usize = 24;

/// Cuts what is the allocator's off the top of stacks.
pub fn cut_allocator(profile: &mut Profile) {
    let own = |module: Option<&Module>| module.is_some_and(|module| module.name().starts_with("libhakmem"));
    let is_cut: Vec<bool> = (profile.places.iter())
        .map(|place| own(profile.module(place)) || place.frames.iter().any(|frame| is_allocator(&frame.function)))
        .collect();
    for stack in &mut profile.stacks {
        let top = stack.places.len().min(TOP);
        let cut = stack.places[..top].iter().rposition(|&place| is_cut[place]).map_or(0, |at| at + 1);
        stack.places.drain(..cut);
    }
}

/// Joins stacks that are equal now that the allocator's part is gone.
pub fn join_equal(profile: &mut Profile) {
    let (mut stacks, mut known) = (Vec::<Stack>::new(), HashMap::<(Vec<usize>, String), usize>::new());
    for stack in std::mem::take(&mut profile.stacks) {
        let key = (stack.places.clone(), stack.arena.clone());
        match known.get(&key) {
            Some(&at) => {
                let same: &mut Stack = &mut stacks[at];
                same.live += stack.live;
                same.peak += stack.peak;
                add_lifetimes(&mut same.lifetimes, &stack.lifetimes);
            }
            None => {
                known.insert(key, stacks.len());
                stacks.push(stack);
            }
        }
    }
    profile.stacks = stacks;
}

/// What the line that a stack counts for calls on the way to malloc, the nearest first: containers and wrappers.
pub fn calls(profile: &Profile, stack: &Stack) -> Vec<Frame> {
    let frames: Vec<Frame> = profile.frames(stack).into_iter().map(|(frame, _)| frame).collect();
    let at = site_of(&frames, &can_be_site(profile, stack));
    frames.into_iter().take(at).rev().collect()
}

/// The line that a stack counts for, its module, and its callers, the nearest first: the program's own, without those
/// of iterators and of what starts its threads.
pub fn site(profile: &Profile, stack: &Stack) -> (Frame, Option<usize>, Vec<Frame>) {
    let (frames, modules): (Vec<Frame>, Vec<_>) = profile.frames(stack).into_iter().unzip();
    let at = site_of(&frames, &can_be_site(profile, stack));
    let none = || Frame { function: "(no call stack)".into(), file: String::new(), line: 0 };
    let frame = frames.get(at).cloned().unwrap_or_else(none);
    let callers = frames.into_iter().skip(at + 1).take_while(|frame| !is_start(frame));
    let callers = callers.filter(|frame| !is_compiled_library(frame)).collect();
    (frame, modules.get(at).copied().flatten(), callers)
}

/// Largest first.
pub fn sites(profile: &Profile, metric: Metric) -> Vec<Site> {
    let mut sites: HashMap<(Frame, String), (Site, u64)> = HashMap::new();
    for stack in &profile.stacks {
        let (frame, module, callers) = site(profile, stack);
        let (key, arena) = ((frame.clone(), stack.arena.clone()), stack.arena.clone());
        let module = module.map_or(String::new(), |number| profile.modules[number].name().to_string());
        let (site, most) = sites.entry(key).or_insert_with(|| {
            let [in_use, peak, allocated] = [Totals::default(); 3];
            (Site { frame, module, arena, in_use, peak, allocated, lifetimes: Vec::new(), callers: Vec::new() }, 0)
        });
        site.in_use += stack.live;
        site.peak += stack.peak;
        site.allocated += stack.allocated();
        add_lifetimes(&mut site.lifetimes, &stack.lifetimes);
        let value = stack.value(metric);
        if value > *most || site.callers.is_empty() {
            *most = value;
            site.callers = callers;
        }
    }
    let mut sites: Vec<Site> = sites.into_values().map(|(site, _)| site).collect();
    sites.sort_by(|a, b| {
        let names = |site: &Site| (site.frame.function.clone(), site.frame.line, site.arena.clone());
        (b.value(metric), names(a)).cmp(&(a.value(metric), names(b)))
    });
    sites
}

/// As far as it can be told: sums of a file that lies may have any size.
pub fn growth(before: u64, after: u64) -> i64 {
    (i128::from(after) - i128::from(before)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// What a site had before and after.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    #[serde(flatten)]
    pub frame: Frame,
    pub before: u64,
    pub after: u64,
    pub callers: Vec<Frame>,
}

impl Change {
    pub fn growth(&self) -> i64 {
        growth(self.before, self.after)
    }
}

/// The sites that changed, the largest change first.
pub fn changes(before: &Profile, after: &Profile, metric: Metric) -> Vec<Change> {
    let mut changes: HashMap<(String, String, u64), Change> = HashMap::new();
    for (is_after, profile) in [(true, after), (false, before)] {
        for site in sites(profile, metric) {
            let key = (site.frame.function.clone(), site.frame.file.clone(), site.frame.line);
            let value = site.value(metric);
            let new = Change { frame: site.frame, before: 0, after: 0, callers: site.callers };
            let change = changes.entry(key).or_insert(new);
            let sum = if is_after { &mut change.after } else { &mut change.before };
            *sum = sum.saturating_add(value);
        }
    }
    let mut changes: Vec<Change> = changes.into_values().filter(|change| change.growth() != 0).collect();
    changes.sort_by(|a, b| {
        (b.growth().unsigned_abs(), &a.frame.function, a.frame.line).cmp(&(
            a.growth().unsigned_abs(),
            &b.frame.function,
            b.frame.line,
        ))
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_growth_can_be_told() {
        assert_eq!((growth(3, 5), growth(5, 3)), (2, -2));
        assert_eq!((growth(0, u64::MAX), growth(u64::MAX, 0)), (i64::MAX, i64::MIN));
    }

    #[test]
    fn the_site_is_the_programs_own_line() {
        let site = |names: &[&str]| {
            let frame = |name: &&str| Frame { function: name.to_string(), file: String::new(), line: 1 };
            site_of(&names.iter().map(frame).collect::<Vec<_>>(), &vec![true; names.len()])
        };
        assert_eq!(site(&["work", "main"]), 0);
        assert_eq!(site(&["std::vector<int>::reserve(unsigned long)", "work", "main"]), 1);
        assert_eq!(site(&["Item& std::deque<Item, std::allocator<Item> >::emplace_back<>(&&)", "work", "main"]), 1);
        assert_eq!(site(&["std::pair<a, b>* std::copy<std::pair<a, b>*>(int (*)(int), int)", "work"]), 1);
        assert_eq!(site(&["std::string (anonymous namespace)::name(std::string const&)", "main"]), 0, "it returns one");
        assert_eq!(site(&["xmalloc", "xstrdup(char const*)", "work", "main"]), 2);
        assert_eq!(site(&["libsqlite3.so+0x12", "sqlite3Malloc", "work"]), 2, "an unnamed part of the wrapper");
        assert_eq!(site(&["g_malloc0", "std::string::assign", "work"]), 2);
        assert_eq!(site(&["test_malloc_speed", "main"]), 0);
        assert_eq!(site(&["xmalloc"]), 0, "there is nothing else");
        assert_eq!(site(&[]), 0);
    }

    /// What starts a thread of C++ or Rust says nothing about the program.
    #[test]
    fn callers_are_the_programs_own() {
        let callers = |names: &[&str]| {
            let frame = |name: &&str| Frame { function: name.to_string(), file: String::new(), line: 1 };
            let place = |name| Place { address: 0, module: None, frames: vec![frame(name)] };
            let places: Vec<Place> = names.iter().map(place).collect();
            let stack = Stack { places: (0..names.len()).collect(), ..Stack::default() };
            let callers = site(&Profile { places, ..Profile::default() }, &stack).2;
            callers.into_iter().map(|frame| frame.function).collect::<Vec<_>>()
        };
        let invoked = "void std::__invoke_impl<void, void (*)(int), int>(std::__invoke_other, void (*&&)(int), int&&)";
        let thread = "std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)(int), int> > >::_M_run()";
        assert_eq!(callers(&["work", "serve", invoked, thread, "start_thread", "clone3"]), ["serve"]);
        let spawned = ["std::sys::backtrace::__rust_begin_short_backtrace", "core::ops::function::FnOnce::call_once"];
        let chain =
            [&["work", "core::iter::Iterator::for_each", "app::main"][..], &spawned, &["main", "_start"]].concat();
        assert_eq!(callers(&chain), ["app::main", "main"]);
        assert_eq!(callers(&["<alloc::vec::Vec<T> as core::clone::Clone>::clone", "work", "main"]), ["main"]);
    }

    #[test]
    fn stacks_have_no_runtime() {
        let left = |names: &[&str]| {
            let frame = |name: &&str| (Frame { function: name.to_string(), file: String::new(), line: 1 }, None);
            let left = without_runtime(names.iter().map(frame).collect());
            left.into_iter().map(|(frame, _)| frame.function).collect::<Vec<_>>()
        };
        let container = "std::vector<int>::reserve(unsigned long)";
        let thread = ["void std::__invoke_impl<void>()", "libstdc++.so.6.0.30+0xd44a2", "start_thread", "clone3"];
        assert_eq!(left(&[&[container, "work", "serve"][..], &thread].concat()), [container, "work", "serve"]);
        let rust = ["std::rt::lang_start_internal", "main", "__libc_start_call_main", "__libc_start_main", "_start"];
        assert_eq!(left(&[&["app::main"][..], &rust].concat()), ["app::main", "main"]);
        assert_eq!(left(&thread), thread, "nothing else is there");
        assert!(left(&[]).is_empty());
    }

    #[test]
    fn the_site_is_a_line_of_python() {
        let place = |(module, function, file, line): (Option<usize>, &str, &str, u64)| Place {
            address: module.map_or(0, |_| 9),
            module,
            frames: vec![Frame { function: function.into(), file: file.into(), line }],
        };
        let module = |path: &str| Module { path: path.into(), ..Module::default() };
        let modules = ["/usr/lib/libpython3.12.so.1.0", "/x/_json.so", "/lib/libc.so.6"].map(module).to_vec();
        let site = |places: &[(Option<usize>, &str, &str, u64)]| {
            let stack = Stack { places: (0..places.len()).collect(), ..Stack::default() };
            let places = places.iter().map(|&one| place(one)).collect();
            super::site(&Profile { modules: modules.clone(), places, ..Profile::default() }, &stack).0.function
        };
        let (c, library, own) = ((Some(0), "list_append", "l.c", 5), "/usr/lib/python3.12/json/a.py", "/app/a.py");
        assert_eq!(site(&[c, (None, "dumps", library, 8), (None, "work", own, 3)]), "work");
        assert_eq!(site(&[c, (None, "dumps", library, 8), (Some(2), "main", "m.c", 3)]), "dumps");
        assert_eq!(site(&[(Some(1), "scan", "s.c", 7), (None, "work", own, 3)]), "scan", "an extension's line");
        assert_eq!(site(&[(Some(1), "scan", "", 0), (None, "work", own, 3)]), "work", "its line is not known");
        assert_eq!(site(&[(None, "go", "/usr/lib/python3/dist-packages/a.py", 3), (None, "work", own, 3)]), "go");
    }
}
