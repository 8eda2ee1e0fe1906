//! Names of code that was made while the program ran, from the files that just-in-time compilers leave for perf:
//! /tmp/perf-PID.map (node --perf-basic-prof, python -X perf, Java's perf-map-agent, .NET's PerfMapEnabled) and
//! jit-PID.dump (node --perf-prof), whose format is that of Linux's tools/perf/Documentation/jitdump-specification.txt.
//!
//! `names` runs in the child that names frames (child.rs), as a process writes these files as it likes.
//!
//! Memory of code is used again: of several names for an address the last one counts.
// SPDX-License-Identifier: MIT

use super::Frame;
use crate::budget::{self, Budget};
use std::collections::HashMap;

const DUMP_MAGIC: &[u8] = b"DTiJ";

/// Places without a name, by address, and what they are called.
struct Unnamed {
    places: Vec<(u64, usize)>,
    frames: HashMap<usize, Frame>,
}

impl Unnamed {
    /// `frame` says what the code at an address between these is called.
    fn found(&mut self, start: u64, bytes: u64, frame: impl Fn(u64) -> Frame) {
        let first = self.places.partition_point(|(address, _)| *address < start);
        let inside = self.places[first..].iter().take_while(|(address, _)| address - start < bytes);
        self.frames.extend(inside.map(|(address, place)| (*place, frame(*address))));
    }
}

/// "JS:*leak /app/a.js:2:18", "py::leak:/app/a.py", or anything: Java's "Ljava/lang/String;::format".
fn frame_of(name: &str) -> Frame {
    let name = budget::cut(name);
    let plain = || Frame { function: name.to_string(), file: String::new(), line: 0 };
    if let Some((function, file)) = name.strip_prefix("py::").and_then(|rest| rest.split_once(':')) {
        return Frame { function: function.to_string(), file: file.to_string(), line: 0 };
    }
    let place = || {
        let (function, place) = name.rsplit_once(' ')?;
        let (place, _column) = place.rsplit_once(':')?;
        let (file, line) = place.rsplit_once(':')?;
        let function = function.split_once(':').map_or(function, |(_kind, function)| function);
        let function = function.trim_start_matches(['~', '^', '+', '*']);
        let function = if function.is_empty() { "(anonymous)" } else { function };
        let file = file.strip_prefix("file://").unwrap_or(file);
        Some(Frame { function: function.to_string(), file: file.to_string(), line: line.parse().ok()? })
    };
    place().unwrap_or_else(plain)
}

/// Lines "START BYTES NAME", in hexadecimal digits.
fn map(text: &[u8], unnamed: &mut Unnamed) {
    for line in text.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let mut words = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        if let (Some(start), Some(bytes), Some(name)) = (number(), number(), words.next()) {
            unnamed.found(start, bytes, |_| frame_of(name));
        }
    }
}

/// A part of a dump. What is read beyond its end is 0.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (head, tail) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = tail;
        head.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0 = &self.0[(end + 1).min(self.0.len())..];
        text
    }

    /// The next bytes, or those that there are.
    fn take(&mut self, bytes: usize) -> Bytes<'a> {
        let (head, tail) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = tail;
        Bytes(head)
    }
}

/// Lines of one piece of code, by address.
type Lines = Vec<(u64, String, u64)>;

fn lines(mut record: Bytes) -> (u64, Lines) {
    let (code, count) = (record.number(8), record.number(8));
    let mut lines = Lines::new();
    while !record.0.is_empty() && (lines.len() as u64) < count {
        let (address, line, _discriminator) = (record.number(8), record.number(4), record.number(4));
        lines.push((address, record.text(), line));
    }
    lines.sort();
    (code, lines)
}

/// Records, each with its kind, its bytes and a time. Those of lines come before the code that they are of.
fn dump(bytes: &[u8], unnamed: &mut Unnamed) {
    const LOAD: u64 = 0;
    const DEBUG_INFO: u64 = 2;
    const PREFIX: usize = 16;
    let mut rest = Bytes(bytes);
    let header = Bytes(&bytes[8.min(bytes.len())..]).number(4);
    rest.take(header as usize);
    let mut known = HashMap::new();
    while rest.0.len() >= PREFIX {
        let (kind, bytes, _time) = (rest.number(4), rest.number(4) as usize, rest.number(8));
        let mut record = rest.take(bytes.saturating_sub(PREFIX));
        if kind == DEBUG_INFO {
            known.extend(Some(lines(record)));
        } else if kind == LOAD {
            record.take(16); // process, thread, address
            let (start, bytes, _number, name) = (record.number(8), record.number(8), record.number(8), record.text());
            let lines = known.remove(&start).unwrap_or_default();
            unnamed.found(start, bytes, |address| {
                let mut frame = frame_of(&name);
                let at = lines.partition_point(|(first, _, _)| *first <= address);
                // V8 gives inlined functions the lines of their own files with the name of another one.
                let line = at.checked_sub(1).map(|at| &lines[at]).filter(|_| frame.file.is_empty());
                if let Some((_, file, line)) = line {
                    (frame.file, frame.line) = (file.clone(), *line);
                }
                frame
            });
        }
    }
}

/// The names of these addresses, which are in order, by their numbers.
pub fn names(bytes: &[u8], addresses: &[u64]) -> Vec<(usize, Frame)> {
    let places = addresses.iter().copied().zip(0..).collect();
    let mut unnamed = Unnamed { places, frames: HashMap::new() };
    match bytes.starts_with(DUMP_MAGIC) {
        true => dump(bytes, &mut unnamed),
        false => map(bytes, &mut unnamed),
    }
    let mut left = Budget::new(budget::NAMES);
    unnamed.frames.into_iter().filter(|(_, frame)| left.has(frame.function.len() + frame.file.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed(addresses: &[u64]) -> Unnamed {
        Unnamed {
            places: addresses.iter().map(|&address| (address, address as usize)).collect(),
            frames: HashMap::new(),
        }
    }

    fn text(frame: &Frame) -> String {
        format!("{} {}:{}", frame.function, frame.file, frame.line)
    }

    #[test]
    fn names_of_all_compilers() {
        for (name, expected) in [
            ("JS:*leak /app/a b.js:2:18", "leak /app/a b.js:2"),
            ("LazyCompile:~get size file:///a.js:7:1", "get size /a.js:7"),
            ("JS:^ /tmp/a.js:7:27", "(anonymous) /tmp/a.js:7"),
            ("py::Service.run:/app/a.py", "Service.run /app/a.py:0"),
            ("Ljava/lang/String;::format", "Ljava/lang/String;::format :0"),
            ("Builtin:Call 1:2", "Builtin:Call 1:2 :0"),
            ("", " :0"),
        ] {
            assert_eq!(text(&frame_of(name)), expected, "{name}");
        }
    }

    #[test]
    fn the_last_name_of_an_address_counts() {
        let mut some = unnamed(&[0xfff, 0x1000, 0x10ff, 0x1100]);
        map(b"1000 100 old\nnot a line\n0x1080 80 JS:*new /a.js:3:1\nffffffffffffffff 9 x\n", &mut some);
        let name = |at: &usize| some.frames.get(at).map(text);
        assert_eq!(name(&0xfff), None);
        assert_eq!(name(&0x1000).unwrap(), "old :0");
        assert_eq!(name(&0x10ff).unwrap(), "new /a.js:3");
        assert_eq!(name(&0x1100), None);
    }

    fn record(kind: u32, words: &[u64], text: &str) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(text.as_bytes());
        let mut record = kind.to_le_bytes().to_vec();
        record.extend((body.len() as u32 + 16).to_le_bytes());
        record.extend([0; 8]);
        record.extend(body);
        record
    }

    fn a_dump() -> Vec<u8> {
        let mut bytes = DUMP_MAGIC.to_vec();
        bytes.extend([1_u32, 40].map(u32::to_le_bytes).concat());
        bytes.resize(40, 0);
        let mut debug = record(2, &[0x1000, 2, 0x1000, 5], "/a.js\0");
        debug.extend([0x1010_u64, 6].map(u64::to_le_bytes).concat());
        debug.extend(b"/b.js\0");
        let whole = debug.len() as u32;
        debug[4..8].copy_from_slice(&whole.to_le_bytes());
        bytes.extend(debug);
        bytes.extend(record(0, &[7, 0x1000, 0x1000, 0x100, 0], "leak\0code"));
        bytes.extend(record(0, &[7, 0x2000, 0x2000, 0x10, 1], "JS:*other /c.js:1:1\0"));
        bytes
    }

    #[test]
    fn a_dump_has_lines() {
        let mut some = unnamed(&[0x1000, 0x1020, 0x2008]);
        dump(&a_dump(), &mut some);
        let names: Vec<String> = [0x1000, 0x1020, 0x2008].iter().map(|at| text(&some.frames[at])).collect();
        assert_eq!(names, ["leak /a.js:5", "leak /b.js:6", "other /c.js:1"]);
    }

    /// Else what a process writes for us ends the command.
    #[test]
    fn any_file_has_names_or_none() {
        let look = |bytes: &[u8]| {
            let mut some = unnamed(&[0, 0x1000, 0x1020, u64::MAX]);
            dump(bytes, &mut some);
            map(bytes, &mut some);
        };
        hakmem_fuzz::mutations("a dump", &a_dump(), 1000, look);
        hakmem_fuzz::mutations("a map", b"1000 100 JS:*a /a.js:1:1\n1010 ffff py::a:b\n", 1000, look);
    }
}
