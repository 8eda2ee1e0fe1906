//! What the command prints.
//!
//! 1. A file named `-` is stdout: files.rs asks here.
//! 2. When the reader of stdout has gone, printing fails with `Closed`. The command unwinds, which removes what it made
//!    and ends what it started, and main ends it as SIGPIPE would have: in silence.
//! 3. Control characters are shown, not sent (shown.rs).
//! 4. What stderr does not take is lost: nobody is left to tell.
// SPDX-License-Identifier: MIT

use crate::shown;
use crate::table::Style;
use anyhow::{ensure, Context, Result};
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Nobody reads stdout any more: its pipe is closed, or its terminal gone.
#[derive(Debug)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(to, "nobody reads stdout")
    }
}

impl std::error::Error for Closed {}

/// To stdout, at once.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if is_closed(&error) => Err(Closed.into()),
        outcome => outcome.context("cannot write to stdout"),
    }
}

fn is_closed(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(libc::EIO)
}

pub fn text(text: &str) -> Result<()> {
    bytes(shown::lines(text, Style::of_stdout().color).as_bytes())
}

pub fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

pub fn json(value: &impl Serialize) -> Result<()> {
    line(&shown::json(serde_json::to_string_pretty(value)?))
}

/// In one line.
pub fn json_line(value: &impl Serialize) -> Result<()> {
    line(&shown::json(serde_json::to_string(value)?))
}

/// To stderr.
pub fn note(text: &str) {
    let text = format!("{text}\n");
    let _ = std::io::stderr().write_all(shown::lines(&text, Style::of_stderr().color).as_bytes());
}

/// JSON, to stderr.
pub fn json_note(value: &impl Serialize) -> Result<()> {
    note(&shown::json(serde_json::to_string_pretty(value)?));
    Ok(())
}

pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Fails if more than one output would be mixed on stdout. `json`: a flag that prints there is given.
pub fn ensure_one<'a>(files: impl IntoIterator<Item = &'a Path>, json: bool) -> Result<()> {
    let count = files.into_iter().filter(|path| is_stdout(path)).count() + usize::from(json);
    ensure!(count <= 1, "two outputs cannot share stdout: write one of them to a file");
    Ok(())
}

/// Ends this process as a signal would, which is what a shell expects of a closed pipe.
pub fn end_by(signal: libc::c_int) -> ! {
    // SAFETY: no memory is involved but the set, which is written before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_output_is_stdout() {
        let files = |names: &'static [&'static str]| names.iter().map(Path::new);
        assert!(ensure_one(files(&["-", "a", "./-"]), false).is_ok() && ensure_one(files(&["a"]), true).is_ok());
        assert!(ensure_one(files(&["-", "-"]), false).is_err() && ensure_one(files(&["-"]), true).is_err());
    }
}
