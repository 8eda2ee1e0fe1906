//! Is HAKMEM in a process, and where? If not: whose malloc is there?
//!
//! ELF headers and notes are read from the process's memory, so that files may be deleted, stripped or in another
//! container. The note (owner "HAKMEM", type 1) holds the distance from its descriptor to `struct inspect`.
// SPDX-License-Identifier: MIT

use super::layout::word;
use super::remote::{Area, Remote};
use anyhow::{bail, Result};
use hakmem_base::elf;
use std::path::PathBuf;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
/// Bytes of notes, and tables of them in a file: there are two or three, of some hundred bytes.
const NOTES_BYTES_MAX: u64 = 1 << 20;
const NOTES_MAX: usize = 16;
const ELF32: u8 = 1;

/// An ELF file in memory that has the note.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub inspect: u64,
    /// File it was mapped from.
    pub file: String,
}

fn half(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at) & 0xffff
}

fn quarter(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at) & 0xffff_ffff
}

/// The copies of HAKMEM in the process: usually one; another where a program that has it linked in also preloads it.
pub fn find(remote: &Remote, areas: &[Area]) -> Vec<Found> {
    let mapped = areas.iter().filter(|area| area.inode != 0 && area.offset == 0 && area.access.starts_with('r'));
    mapped
        .filter_map(|area| Some(Found { inspect: inspect_of(remote, area.start)?, file: area.name.clone() }))
        .collect()
}

/// Address of `struct inspect` of the ELF file mapped here.
fn inspect_of(remote: &Remote, start: u64) -> Option<u64> {
    let header = remote.read_vec(start, HEADER_BYTES).ok().filter(|header| header.starts_with(b"\x7fELF\x02\x01"))?;
    let (table, size, count) = (word(&header, 32), half(&header, 54) as usize, half(&header, 56) as usize);
    if size != PROGRAM_HEADER_BYTES {
        return None;
    }
    let headers = remote.read_vec(start.checked_add(table)?, count * size).ok()?;
    let headers: Vec<&[u8]> = headers.chunks_exact(size).collect();
    let first = headers.iter().find(|header| quarter(header, 0) == PT_LOAD && word(header, 8) == 0)?;
    let bias = start.wrapping_sub(word(first, 16));
    let notes = headers.iter().filter(|header| quarter(header, 0) == PT_NOTE).take(NOTES_MAX);
    notes.filter_map(|note| in_notes(remote, bias.wrapping_add(word(note, 16)), word(note, 40), word(note, 48))).next()
}

fn in_notes(remote: &Remote, at: u64, bytes: u64, align: u64) -> Option<u64> {
    let notes = remote.read_vec(at, bytes.min(NOTES_BYTES_MAX) as usize).ok()?;
    let align = if align == 8 { 8 } else { 4 };
    let mut place = 0;
    while place + 12 <= notes.len() {
        let sizes = (quarter(&notes, place) as usize, quarter(&notes, place + 4) as usize);
        let name = place + 12;
        let descriptor = name.checked_add(sizes.0)?.next_multiple_of(align);
        if quarter(&notes, place + 8) == 1 && sizes == (7, 8) && notes.get(name..name + 7)? == b"HAKMEM\0" {
            let distance = word(&notes, descriptor);
            return Some(at.wrapping_add(descriptor as u64).wrapping_add(distance));
        }
        place = descriptor.checked_add(sizes.1)?.next_multiple_of(align);
    }
    None
}

// ---- what else is there ----

/// Part of a library's file name, functions that only this malloc has, whose it is.
const MALLOCS: [(&str, &[&str], &str); 6] = [
    ("libjemalloc", &["mallctl", "je_mallctl", "_rjem_mallctl"], "jemalloc's"),
    ("libtcmalloc", &["tc_malloc", "TCMallocInternalMalloc"], "tcmalloc's"),
    ("libmimalloc", &["mi_malloc"], "mimalloc's"),
    ("libsnmalloc", &[], "snmalloc's"),
    ("librpmalloc", &["rpmalloc"], "rpmalloc's"),
    ("scudo", &["__scudo_get_stack_depot_addr"], "scudo's"),
];

/// Why there is no HAKMEM: "its malloc is glibc's".
pub fn other_malloc(remote: &Remote, areas: &[Area]) -> Result<std::convert::Infallible> {
    let pid = remote.pid;
    let program = &remote.process().map_or_else(PathBuf::new, |process| process.path("exe"));
    let first = areas.iter().find(|area| area.inode != 0);
    let header = first.and_then(|area| remote.read_vec(area.start, HEADER_BYTES).ok());
    if header.is_some_and(|header| header.starts_with(b"\x7fELF") && header[4] == ELF32) {
        bail!("PID {pid} does not run HAKMEM: it is a 32-bit program");
    }
    let mapped = |part: &str| areas.iter().filter_map(Area::file_name).any(|name| name.starts_with(part));
    let linked = MALLOCS.iter().find(|(file, functions, _)| {
        areas.iter().filter_map(Area::file_name).any(|name| name.contains(file)) || elf::defines_any(program, functions)
    });
    if let Some((_, _, whose)) = linked {
        bail!("PID {pid} does not run HAKMEM: its malloc is {whose}");
    }
    if elf::is_static(program) {
        bail!("PID {pid} does not run HAKMEM: it is a static program, and no HAKMEM is in it");
    }
    if elf::has_malloc(program) {
        bail!("PID {pid} does not run HAKMEM: its malloc is its own");
    }
    if mapped("ld-musl") || mapped("libc.musl") {
        bail!("PID {pid} does not run HAKMEM: its malloc is musl's");
    }
    if mapped("libc.so.6") || mapped("libc-2.") {
        bail!("PID {pid} does not run HAKMEM: its malloc is glibc's");
    }
    bail!("PID {pid} does not run HAKMEM: its malloc is unknown")
}
