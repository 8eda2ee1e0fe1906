//! The terminal of `top`: set up, read key by key, and left as it was whatever ends the command.
//!
//! 1. `wait` waits for all there is at once: keys, a signal, an answer, time. A terminal that hangs up, or that ends
//!    its input, is an end like a signal.
//! 2. A frame is drawn only when the terminal takes output. One that stops in the middle of a frame would hold the
//!    command in that write, so that a second thread watches for the end, too: it gives the command a moment, then puts
//!    the terminal's modes back and ends the process itself.
// SPDX-License-Identifier: MIT

use super::screen::Screen;
use anyhow::{Context, Result};
use hakmem_base::signals;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::DefaultTerminal;
use std::io::{Error, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// For the command to end by itself, once it is to.
const GRACE: Duration = Duration::from_millis(700);
/// After an escape that stands alone: a key's other bytes come at once.
const ESCAPE: Duration = Duration::from_millis(50);
const STDIN: RawFd = 0;
const STDOUT: RawFd = 1;
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// What ends a wait.
pub enum Event {
    Keys(Vec<KeyEvent>),
    /// An answer, or time.
    Other,
    /// A signal, or nobody is there any more.
    End,
}

pub struct Terminal {
    /// Never dropped: it would panic when it cannot show the cursor.
    screen: ManuallyDrop<DefaultTerminal>,
    /// Readable when a signal to end has come.
    end: OwnedFd,
}

fn poll(files: &mut [libc::pollfd], timeout: Option<Duration>) -> bool {
    let wait = timeout.map_or(-1, |timeout| timeout.as_micros().div_ceil(1000).min(1 << 20) as libc::c_int);
    // SAFETY: the array is as long as is said.
    unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, wait) > 0 }
}

fn of(file: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd: file, events, revents: 0 }
}

const GONE: libc::c_short = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

impl Terminal {
    /// Signals are to be blocked.
    pub fn new() -> Result<Terminal> {
        let end = signals::descriptor()?;
        let mut modes = std::mem::MaybeUninit::uninit();
        // SAFETY: written before it is read.
        let modes = match unsafe { libc::tcgetattr(STDIN, modes.as_mut_ptr()) } {
            0 => unsafe { modes.assume_init() },
            _ => return Err(Error::last_os_error()).context("cannot use this terminal"),
        };
        let watched = end.try_clone()?;
        std::thread::spawn(move || end_for_sure(watched, &modes));
        let screen = ratatui::try_init().context("cannot use this terminal")?;
        Ok(Terminal { screen: ManuallyDrop::new(screen), end })
    }

    /// False: the terminal is gone.
    pub fn draw(&mut self, screen: &Screen) -> Result<bool> {
        let mut ready = [of(STDOUT, libc::POLLOUT)];
        if !poll(&mut ready, Some(Duration::ZERO)) || ready[0].revents & libc::POLLOUT == 0 {
            return Ok(ready[0].revents & GONE == 0); // it is stopped: the next frame will do
        }
        match self.screen.draw(|frame| screen.draw(frame)) {
            Err(error) if is_gone(&error) => Ok(false),
            outcome => outcome.map(|_| true).context("cannot draw"),
        }
    }

    /// `answers`: readable when there is one.
    pub fn wait(&self, answers: RawFd, timeout: Duration) -> Result<Event> {
        let mut files = [of(STDIN, libc::POLLIN), of(self.end.as_raw_fd(), libc::POLLIN), of(answers, libc::POLLIN)];
        if !poll(&mut files, Some(timeout)) {
            return Ok(Event::Other);
        }
        if files[1].revents != 0 {
            return Ok(Event::End);
        }
        if files[0].revents == 0 {
            return Ok(Event::Other);
        }
        let mut bytes = Vec::new();
        if files[0].revents & libc::POLLIN == 0 || !read_some(&mut bytes)? {
            return Ok(Event::End);
        }
        while is_begun(&bytes) && poll(&mut [of(STDIN, libc::POLLIN)], Some(ESCAPE)) {
            if !read_some(&mut bytes)? {
                return Ok(Event::End);
            }
        }
        Ok(Event::Keys(keys(&bytes)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If the terminal is gone, nothing is left to restore.
        let _ = self.screen.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// False: the terminal is gone.
fn read_some(bytes: &mut Vec<u8>) -> Result<bool> {
    let mut some = [0; 256];
    // SAFETY: the buffer is as long as is said. Not by way of std's buffer, of which poll knows nothing.
    let count = unsafe { libc::read(STDIN, some.as_mut_ptr().cast(), some.len()) };
    match usize::try_from(count).map_err(|_| Error::last_os_error()) {
        Ok(0) => Ok(false),
        Ok(count) => {
            bytes.extend(&some[..count]);
            Ok(true)
        }
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(true),
        Err(error) => Err(error).context("cannot read the terminal"),
    }
}

fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(libc::EIO)
}

/// The command is to end, and is given the time for it.
fn end_for_sure(end: OwnedFd, modes: &libc::termios) {
    let mut files = [of(end.as_raw_fd(), libc::POLLIN), of(STDIN, 0)];
    while !poll(&mut files, None) {}
    std::thread::sleep(GRACE);
    let mut ready = [of(STDOUT, libc::POLLOUT)];
    // SAFETY: system calls on memory that lives.
    unsafe {
        libc::tcsetattr(STDIN, libc::TCSANOW, modes);
        if poll(&mut ready, Some(Duration::ZERO)) && ready[0].revents & libc::POLLOUT != 0 {
            libc::write(STDOUT, LEAVE.as_ptr().cast(), LEAVE.len());
        }
        libc::_exit(0)
    }
}

// ---- keys ----

const SEQUENCES: [(&[u8], KeyCode); 16] = [
    (b"\x1b[A", KeyCode::Up),
    (b"\x1bOA", KeyCode::Up),
    (b"\x1b[B", KeyCode::Down),
    (b"\x1bOB", KeyCode::Down),
    (b"\x1b[5~", KeyCode::PageUp),
    (b"\x1b[6~", KeyCode::PageDown),
    (b"\x1b[H", KeyCode::Home),
    (b"\x1bOH", KeyCode::Home),
    (b"\x1b[1~", KeyCode::Home),
    (b"\x1b[7~", KeyCode::Home),
    (b"\x1b[F", KeyCode::End),
    (b"\x1bOF", KeyCode::End),
    (b"\x1b[4~", KeyCode::End),
    (b"\x1b[8~", KeyCode::End),
    (b"\x1b[C", KeyCode::Right),
    (b"\x1b[D", KeyCode::Left),
];

/// Bytes of the sequence at the beginning, which is not over if that is all there are.
fn sequence(bytes: &[u8]) -> usize {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            end.map_or(bytes.len() + 1, |end| end + 3)
        }
        [0x1b, b'O', ..] => 3,
        [0x1b] => 2,
        _ => 1,
    }
}

/// Does it end within a sequence?
fn is_begun(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let length = sequence(bytes);
        if length > bytes.len() {
            return bytes.len() < 16;
        }
        bytes = &bytes[length..];
    }
    false
}

/// The keys that bytes of a terminal stand for; what is unknown is left out.
fn keys(mut bytes: &[u8]) -> Vec<KeyEvent> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let (one, rest) = bytes.split_at(sequence(bytes).min(bytes.len()));
        bytes = rest;
        let (code, modifiers) = match one {
            [3] => (Some(KeyCode::Char('c')), KeyModifiers::CONTROL),
            [0x1b] => (Some(KeyCode::Esc), KeyModifiers::NONE),
            [byte @ 0x20..=0x7e] => (Some(KeyCode::Char(char::from(*byte))), KeyModifiers::NONE),
            _ => (SEQUENCES.iter().find(|(known, _)| *known == one).map(|(_, code)| *code), KeyModifiers::NONE),
        };
        keys.extend(code.map(|code| KeyEvent::new(code, modifiers)));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        let codes = |bytes: &[u8]| keys(bytes).iter().map(|key| key.code).collect::<Vec<_>>();
        assert_eq!(
            codes(b"q\x1b[A\x1bOB\x1b[5~P"),
            [KeyCode::Char('q'), KeyCode::Up, KeyCode::Down, KeyCode::PageUp, KeyCode::Char('P')]
        );
        assert_eq!(codes(b"\x1b"), [KeyCode::Esc]);
        assert_eq!(codes(b"\x1b[<35;10;20M\x1b[200~\xc3\xa4s"), [KeyCode::Char('s')], "what is unknown is left out");
        assert!(keys(b"\x03")[0].modifiers.contains(KeyModifiers::CONTROL));
        assert!(is_begun(b"\x1b") && is_begun(b"q\x1b[") && is_begun(b"\x1b[5") && is_begun(b"\x1bO"));
        assert!(!is_begun(b"") && !is_begun(b"\x1b[5~") && !is_begun(b"\x1bOA") && !is_begun(b"q"));
    }
}
