//! `hakmem symbolize`: copies any text and adds function, file and line behind each "/PATH+0x1234" in it, such as in
//! reports of HAKMEM and of the sanitizers, and in glibc's backtraces.
//!
//! The number is an address in the module's own symbol table. If a build id follows, "(build id 5a…)" or "(BuildId:
//! 5a…)", and the file has another one, a debug file with that build id is used. A file that ON_ERROR=report wrote is
//! shown as the lines that the program printed on standard error. All other bytes are copied as they are, but control
//! characters are shown on a terminal.
// SPDX-License-Identifier: MIT

use super::command::Symbols;
use crate::budget;
use crate::symbols::{Frame, Names, Origin};
use anyhow::{Context, Result};
use hakmem_base::print;
use hakmem_base::shown;
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct SymbolizeOptions {
    /// The text [default: stdin]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    symbols: Symbols,
}

/// A place that a line names.
#[derive(Debug, PartialEq)]
struct Named<'a> {
    path: &'a str,
    address: u64,
    /// The build id in lower case; empty: the line has none.
    build_id: String,
    /// Where the place ends in the line.
    end: usize,
}

/// The first place that the line names after `from`.
fn find(line: &str, mut from: usize) -> Option<Named<'_>> {
    loop {
        let plus = from + line.get(from..)?.find("+0x")?;
        from = plus + 3;
        let digits = line[from..].find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(line.len() - from);
        let before = &line[..plus];
        // glibc writes "PATH(+0x12)", and means the instruction behind the call.
        let path_end = before.strip_suffix('(').unwrap_or(before);
        let begins = |(at, _): &(usize, &str)| *at == 0 || path_end[..*at].ends_with([' ', '(', '\t', '[', '"']);
        let start = path_end.rmatch_indices('/').find(begins).map(|(at, _)| at);
        let (Some(start), Ok(number)) = (start, u64::from_str_radix(&line[from..from + digits], 16)) else { continue };
        let mut end = from + digits;
        let mut build_id = String::new();
        for word in [" (build id ", ") (build id ", ") (BuildId: "] {
            if let Some((id, _)) = line[end..].strip_prefix(word).and_then(|rest| rest.split_once(')')) {
                build_id = id.to_ascii_lowercase();
                end += word.len() + id.len() + 1;
                break;
            }
        }
        let address = number.saturating_sub(u64::from(path_end.len() < before.len()));
        return Some(Named { path: &path_end[start..], address, build_id, end });
    }
}

/// The files read so far, by path and build id.
struct Files {
    origin: Origin,
    known: HashMap<(String, String), Option<Names>>,
}

impl Files {
    fn new(directories: &[PathBuf]) -> Files {
        Files { origin: Origin::of_machine(directories), known: HashMap::new() }
    }

    fn frames(&mut self, place: &Named) -> Vec<Frame> {
        if self.known.len() >= budget::OPEN {
            self.known.clear();
        }
        let key = (place.path.to_string(), place.build_id.clone());
        let find = || Names::of_path(&self.origin, Path::new(place.path), &place.build_id);
        let names = self.known.entry(key).or_insert_with(find).as_mut();
        names.and_then(|names| names.at(&self.origin, &[place.address]).pop()).unwrap_or_default()
    }

    /// " → leak at /src/a.cc:7 ← main at /src/a.cc:9"; the frames after the first have inlined those before them.
    fn explain(&mut self, place: &Named) -> String {
        let frames = self.frames(place);
        let text = |frame: &Frame| match (frame.file.as_str(), frame.line) {
            ("", _) => frame.function.clone(),
            (file, 0) => format!("{} at {file}", frame.function),
            (file, line) => format!("{} at {file}:{line}", frame.function),
        };
        let frames: Vec<String> = frames.iter().map(|frame| shown::line(&text(frame)).into_owned()).collect();
        if frames.is_empty() {
            return String::new();
        }
        format!(" → {}", frames.join(" ← "))
    }

    /// What is known of each place in the line.
    fn found(&mut self, line: &str) -> String {
        let (mut from, mut found) = (0, String::new());
        while let Some(place) = find(line, from) {
            from = place.end;
            found += &self.explain(&place);
        }
        found
    }

    /// The line with what is known of its places at its end, before what ends it; else as it is.
    fn line(&mut self, line: &[u8]) -> Vec<u8> {
        let ends = [&b"\r\n"[..], b"\n"].into_iter().find(|end| line.ends_with(end)).unwrap_or_default();
        let text = &line[..line.len() - ends.len()];
        let found = self.found(&String::from_utf8_lossy(text));
        [text, found.as_bytes(), ends].concat()
    }
}

const REPORT: &[u8] = b"{\"hakmem_report\":";
/// A report has all counters and options, which fit. The rest of a larger file is not read.
const REPORT_MAX: u64 = 16 << 20;
/// A longer line is shown as several.
const LINE_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
struct Report {
    error: String,
    pid: u64,
    process: String,
    thread: u64,
    thread_name: String,
    calls: Vec<Call>,
    allocated: Option<Event>,
    freed: Option<Event>,
}

#[derive(Deserialize)]
struct Event {
    thread: u64,
    calls: Vec<Call>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call {
    address: String,
    function: String,
    function_offset: String,
    path: String,
    offset: String,
    build_id: String,
}

impl Call {
    fn line(&self) -> String {
        let Call { address, function, function_offset, path, offset, build_id } = self;
        let name = if function.is_empty() { String::new() } else { format!(" {function}+{function_offset}") };
        let id = if build_id.is_empty() { String::new() } else { format!(" (build id {build_id})") };
        let place = match (path.as_str(), name.is_empty()) {
            ("", _) => String::new(),
            (path, true) => format!(" {path}+{offset}"),
            (path, false) => format!(" ({path}+{offset})"),
        };
        format!("hakmem:   {address}{name}{place}{id}")
    }
}

impl Report {
    fn lines(&self) -> Vec<String> {
        let Report { error, pid, process, thread, thread_name, .. } = self;
        let mut lines = vec![format!("hakmem: {error}")];
        lines.push(format!("hakmem:   in process {pid} ({process}), thread {thread} ({thread_name})"));
        lines.extend(self.calls.iter().map(Call::line));
        for (what, event) in [("allocated", &self.allocated), ("freed", &self.freed)] {
            let Some(event) = event else { continue };
            lines.push(format!("hakmem: {what} by thread {}:", event.thread));
            lines.extend(event.calls.iter().map(Call::line));
        }
        lines
    }
}

fn report(begin: &[u8], rest: &mut dyn Read) -> Result<Report> {
    let mut bytes = begin.to_vec();
    rest.take(REPORT_MAX).read_to_end(&mut bytes)?;
    serde_json::from_str(&String::from_utf8_lossy(&bytes)).context("the report is damaged")
}

pub fn symbolize(options: &SymbolizeOptions) -> Result<ExitCode> {
    let mut text: Box<dyn BufRead> = match &options.file {
        Some(path) => Box::new(BufReader::new(File::open(path).with_context(|| path.display().to_string())?)),
        None => Box::new(io::stdin().lock()),
    };
    let named = || options.file.as_ref().map_or("stdin".into(), |path| path.display().to_string());
    let mut files = Files::new(&options.symbols.debug_directory);
    let (mut line, to_terminal) = (Vec::new(), io::stdout().is_terminal());
    while text.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).with_context(named)? > 0 {
        if line.starts_with(REPORT) {
            let report = report(&line, &mut text)?;
            return report
                .lines()
                .iter()
                .try_for_each(|one| print::line(&(shown::line(one).into_owned() + &files.found(&shown::line(one)))))
                .map(|()| ExitCode::SUCCESS);
        }
        match (files.line(&line), to_terminal) {
            (line, true) => print::text(&String::from_utf8_lossy(&line))?,
            (line, false) => print::bytes(&line)?,
        }
        line.clear();
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_any_text() {
        let one = |line| find(line, 0).map(|place| (place.path.to_string(), place.address, place.build_id));
        let place = |path: &str, address, id: &str| Some((path.to_string(), address, id.to_string()));
        assert_eq!(one("hakmem:   0x55 f+0x8 (/usr/bin/a+0x1181)"), place("/usr/bin/a", 0x1181, ""));
        assert_eq!(one("hakmem:   0x7f /lib/c.so.6+0x89 (build id 0aF3)"), place("/lib/c.so.6", 0x89, "0af3"));
        assert_eq!(one("    #0 0x4f in main (/a/b c+0x4f) (BuildId: 12)"), place("/a/b c", 0x4f, "12"));
        assert_eq!(one("/opt/x(+0x12) [0x5555]"), place("/opt/x", 0x11, ""));
        for none in ["", "+0x", "a+0x12", "/a+0xg", "1+0x1 /a", "/a+0x11111111111111111", "é+0x1"] {
            assert_eq!(one(none), None, "{none}");
        }
        let two = "/a+0x1 /b+0x2";
        assert_eq!(find(two, find(two, 0).unwrap().end).unwrap().path, "/b");
    }

    /// If this fails, a report that somebody sent ends the command, or is not shown.
    #[test]
    fn a_report_is_shown_as_its_lines() {
        let text = r#"{"hakmem_report":1,"error":"double free of 0x10 (48-byte block)","pid":7,"process":"a","thread":8,
            "thread_name":"b","calls":[{"address":"0x12","function":"f","function_offset":"0x1","path":"/a",
            "offset":"0x2","build_id":"0a"},{"address":"0x13"}],"allocated":{"thread":9,"calls":[
            {"address":"0x14","path":"/c","offset":"0x4","build_id":"0b"}]},"freed":null,"statistics":{}}"#;
        let (begin, mut rest) = text.as_bytes().split_at(30);
        let lines = report(begin, &mut rest).unwrap().lines();
        let wanted = [
            "hakmem: double free of 0x10 (48-byte block)",
            "hakmem:   in process 7 (a), thread 8 (b)",
            "hakmem:   0x12 f+0x1 (/a+0x2) (build id 0a)",
            "hakmem:   0x13",
            "hakmem: allocated by thread 9:",
            "hakmem:   0x14 /c+0x4 (build id 0b)",
        ];
        assert_eq!(lines, wanted);
        hakmem_fuzz::mutations("a report", text.as_bytes(), 2000, |bytes| {
            let mut files = Files::new(&[]);
            let Ok(report) = report(bytes, &mut io::empty()) else { return };
            report.lines().iter().for_each(|line| drop(files.found(line)));
        });
    }

    /// If this fails, a log that somebody sent ends the command.
    #[test]
    fn any_text_is_read() {
        let text = "hakmem:   0x55 f+0x8 (/usr/bin/a+0x1181) (build id 0a)\n/x(+0x12) (BuildId: é) +0x+0x1";
        hakmem_fuzz::mutations("a log", text.as_bytes(), 2000, |bytes| {
            let mut files = Files::new(&[]);
            bytes.split_inclusive(|&byte| byte == b'\n').for_each(|line| drop(files.line(line)));
        });
    }

    /// Else what goes through it is damaged.
    #[test]
    fn what_names_no_place_is_copied_as_it_is() {
        let mut files = Files::new(&[]);
        for line in [&b"a\xff\0\x1b[1m\r\n"[..], b"\n", b"no end", b"\r\r\n", b"/none/such+0x12 \xff\n", b"\xff"] {
            assert_eq!(files.line(line), line);
        }
    }
}
