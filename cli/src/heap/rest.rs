//! What is resident and not the heap, by name.
// SPDX-License-Identifier: MIT

use super::area::SHARED_FILE;
use super::model::Mapping;
use super::remote::{Area, Remote};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The guard that glibc lays below a thread's stack, at most.
const STACK_GUARD_MAX: u64 = 64 << 10;
/// The most names listed, and the most characters of each; further files are added up as one.
const NAMES_MAX: usize = 4096;
const NAME_MAX: usize = 256;
const OTHERS: &str = "other mappings";
/// The heap's pages that slabs share (HAKMEM_MESH): resident counts such a page once for each place.
pub const MESHED: &str = "shared by meshing";
/// Threads whose stacks are looked for.
const THREADS_MAX: usize = 10_000;

/// Mappings of one name together, the largest first; those of which nothing is resident left out.
pub fn rest<'a>(remote: &Remote, areas: impl Iterator<Item = &'a Area>) -> Vec<Mapping> {
    let areas: Vec<&Area> = areas.collect();
    let pointers = stack_pointers(remote);
    let executable: BTreeSet<&str> =
        areas.iter().filter(|area| area.access.contains('x')).filter_map(|area| area.file_name()).collect();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (i, area) in areas.iter().enumerate() {
        let before = i.checked_sub(1).map(|before| areas[before]);
        let mut name: String = name(area, before, &pointers, &executable).chars().take(NAME_MAX).collect();
        if sums.len() >= NAMES_MAX && !sums.contains_key(&name) {
            name = OTHERS.to_string();
        }
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(area.rss);
    }
    let mut all: Vec<Mapping> =
        sums.into_iter().filter(|&(_, rss)| rss > 0).map(|(name, rss)| Mapping { name, rss }).collect();
    all.sort_by(|a, b| b.rss.cmp(&a.rss).then(a.name.cmp(&b.name)));
    all
}

fn name(area: &Area, before: Option<&Area>, pointers: &[u64], executable: &BTreeSet<&str>) -> String {
    let touching = before.filter(|before| before.end == area.start);
    let is_stack = || {
        let guarded = touching.is_some_and(|before| {
            before.access.starts_with("---") && before.is_anonymous() && before.end - before.start <= STACK_GUARD_MAX
        });
        guarded || pointers.iter().any(|pointer| (area.start..area.end).contains(pointer))
    };
    match area.file_name() {
        Some(file) if executable.contains(file) => file.to_string(),
        Some(SHARED_FILE) => MESHED.to_string(),
        Some(_) => format!("{} (mapped)", area.name.trim_end_matches(" (deleted)")),
        None if area.name == "[stack]" => "stacks".to_string(),
        None if area.name == "[heap]" => "heap of another malloc".to_string(),
        None if area.name.starts_with("[v") => "the kernel's pages".to_string(),
        None if !area.is_anonymous() => format!("{} (mapped)", area.name),
        None if area.access.starts_with("rw") && is_stack() => "stacks".to_string(),
        None if !area.name.is_empty() => area.name.trim_start_matches("[anon:").trim_end_matches(']').to_string(),
        // Zeroed variables lie behind the file's own.
        None => match touching.and_then(Area::file_name) {
            Some(file) if area.access.starts_with("rw") => file.to_string(),
            _ => "anonymous".to_string(),
        },
    }
}

/// The stack pointers of threads that sleep in the kernel; the kernel does not tell those of others.
fn stack_pointers(remote: &Remote) -> Vec<u64> {
    if let Some(core) = remote.core() {
        return core.stack_pointers.clone();
    }
    let Some(process) = remote.process() else { return Vec::new() };
    let pointer = |text: String| {
        let word = text.split_whitespace().rev().nth(1)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    let told = |thread| fs::read_to_string(process.path(format_args!("task/{thread}/syscall"))).ok();
    process.threads().into_iter().take(THREADS_MAX).filter_map(|thread| pointer(told(thread)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, end: u64, access: &str, name: &str) -> Area {
        let inode = u64::from(name.starts_with('/'));
        Area { start, end, access: access.to_string(), name: name.to_string(), inode, rss: 4096, ..Area::default() }
    }

    #[test]
    fn mappings_have_names() {
        let areas = [
            area(0x1000, 0x2000, "r-xp", "/lib/libc.so.6"),
            area(0x2000, 0x3000, "rw-p", "/lib/libc.so.6"),
            area(0x3000, 0x4000, "rw-p", ""),
            area(0x4000, 0x5000, "rw-p", ""),
            area(0x8000, 0x9000, "---p", ""),
            area(0x9000, 0xa000, "rw-p", ""),
            area(0xb000, 0xc000, "rw-p", "[heap]"),
            area(0xc000, 0xd000, "r--p", "/data/table (deleted)"),
            area(0xe000, 0xf000, "rw-p", "[anon:pool]"),
            area(0xf000, 0x10000, "rw-p", "/memfd:hakmem (deleted)"),
        ];
        let me = Remote::of_nobody();
        let found = rest(&me, areas.iter());
        let sum = |name: &str| found.iter().find(|mapping| mapping.name == name).map(|mapping| mapping.rss / 4096);
        assert_eq!((sum("libc.so.6"), sum("stacks"), sum("heap of another malloc")), (Some(3), Some(1), Some(1)));
        assert_eq!((sum("/data/table (mapped)"), sum("pool"), sum("anonymous")), (Some(1), Some(1), Some(2)));
        assert_eq!(sum(MESHED), Some(1));
        assert_eq!(found.iter().map(|mapping| mapping.rss).sum::<u64>(), 10 * 4096, "nothing is lost");
    }
}
