//! `hakmem top` as a user sees it: on a terminal (a pseudo-terminal that the vt100 crate interprets), on a real
//! program.
//!
//! The program is Debian's python3 under the library that HAKMEM_LIBRARY names; without that variable nothing is
//! tested.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Far beyond what anything takes: a failure, not a measure.
const LIMIT: Duration = Duration::from_secs(60);

// ---- the program that is looked at ----

const PROGRAM: &str = "import sys, threading
keep = [bytes(90) for _ in range(100000)] + [bytes(20000) for _ in range(300)]
stay = threading.Event()
threading.Thread(target=lambda: (keep.append([bytes(500) for _ in range(3000)]), stay.wait()), daemon=True).start()
print('ready', flush=True)
sys.stdin.read()";

struct Program(Child);

impl Program {
    fn start() -> Option<Program> {
        let Some(library) = std::env::var_os("HAKMEM_LIBRARY") else {
            eprintln!("skipped: HAKMEM_LIBRARY does not name the library");
            return None;
        };
        let mut python = Command::new("/usr/bin/python3");
        python
            .args(["-c", PROGRAM])
            .env("LD_PRELOAD", library)
            .env("PYTHONMALLOC", "malloc")
            .env_remove("HAKMEM_LIBRARY");
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Program(child))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---- the terminal ----

/// What has come so far.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    closed: bool,
}

struct Terminal {
    child: Child,
    master: File,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

fn size(columns: u16, lines: u16) -> libc::winsize {
    libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    fn start(arguments: &[&str], columns: u16, lines: u16) -> Terminal {
        let (mut master, mut slave) = (0, 0);
        let null = std::ptr::null_mut();
        let opened = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), &size(columns, lines)) };
        assert_eq!(opened, 0);
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
        command.arg("top").args(arguments).env("TERM", "xterm-256color");
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        unsafe {
            command.pre_exec(|| {
                // Its own session, with this as its terminal.
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        let parser = vt100::Parser::new(lines, columns, 0);
        let seen = Arc::new((Mutex::new(Seen { parser, bytes: Vec::new(), closed: false }), Condvar::new()));
        let (shared, mut from) = (seen.clone(), master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                // A terminal that nobody holds any more gives an error.
                let count = from.read(&mut bytes).unwrap_or(0);
                let mut seen = shared.0.lock().unwrap();
                seen.parser.process(&bytes[..count]);
                seen.bytes.extend(&bytes[..count]);
                seen.closed = count == 0;
                shared.1.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Terminal { child, master, seen }
    }

    /// The screen, once it is as wanted.
    fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            let text = seen.parser.screen().contents();
            if wanted(&text) {
                return text;
            }
            let left = LIMIT.saturating_sub(begun.elapsed());
            assert!(!left.is_zero() && !seen.closed, "{what} did not come; on the screen:\n{text}");
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    fn shows(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, columns: u16, lines: u16) {
        self.seen.0.lock().unwrap().parser.set_size(lines, columns);
        let done = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size(columns, lines)) };
        assert_eq!(done, 0);
    }

    /// How it ends, with the terminal as it was before.
    fn finish(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        let mut state: libc::termios = unsafe { std::mem::zeroed() };
        assert_eq!(unsafe { libc::tcgetattr(self.master.as_raw_fd(), &mut state) }, 0);
        let usual = libc::ICANON | libc::ECHO | libc::ISIG;
        assert_eq!(state.c_lflag & usual, usual, "the terminal is left raw");
        let seen = self.seen.0.lock().unwrap();
        let seen = self.seen.1.wait_timeout_while(seen, LIMIT, |seen| !seen.closed).unwrap().0;
        assert!(!seen.parser.screen().alternate_screen(), "the terminal is left on the other screen");
        assert!(!seen.parser.screen().hide_cursor(), "the cursor is left hidden");
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// ---- tests ----

#[test]
fn the_screen_shows_the_process_and_keys_work() {
    let Some(program) = Program::start() else { return };
    let mut top = Terminal::start(&[&program.pid(), "--interval", "0.2"], 120, 40);
    let screen = top.shows("q quit");
    for wanted in
        [&*program.pid(), "HAKMEM", "RSS ", "partly used slabs", "not the heap", "tiny refills", "▼live", "96"]
    {
        assert!(screen.contains(wanted), "{wanted} in\n{screen}");
    }
    // 100,000 objects of 33 + 90 bytes.
    assert!(screen.contains("128"), "{screen}");
    top.press("s");
    top.shows("▼free");
    top.press("p");
    top.shows("paused");
    top.press("p");
    top.shows("every 200 ms");
    top.press("h");
    top.shows("any key closes it");
    top.press("x");
    top.wait_for("help is closed", |screen| !screen.contains("any key closes it"));
    top.press("P");
    top.shows("given back");
    top.press("t");
    top.shows("sampling allocations");
    top.press("t");
    top.shows("no longer sampling");
    top.press("q");
    assert_eq!(top.finish().code(), Some(0));
}

#[test]
fn the_screen_follows_its_terminal() {
    let Some(program) = Program::start() else { return };
    let mut top = Terminal::start(&[&program.pid()], 120, 40);
    top.shows("threads' heaps");
    top.resize(30, 6);
    top.shows("q quits");
    top.resize(90, 30);
    let screen = top.shows("q quit  p pause");
    assert!(screen.contains("classes") && !screen.contains("threads' heaps"), "{screen}");
    top.press("\x03");
    assert_eq!(top.finish().code(), Some(0));
}

/// Whatever ends it, the shell behind must be usable.
#[test]
fn signals_leave_the_terminal_as_it_was() {
    let Some(program) = Program::start() else { return };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut top = Terminal::start(&[&program.pid()], 80, 24);
        top.shows("q quit");
        unsafe { libc::kill(top.child.id() as i32, signal) };
        assert_eq!(top.finish().code(), Some(0), "signal {signal}");
    }
}

/// A terminal's two ends: the one of whoever shows it, and the one of programs.
fn open_terminal(columns: u16, lines: u16) -> (File, OwnedFd) {
    let (mut master, mut slave, null) = (0, 0, std::ptr::null_mut());
    let opened = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), &size(columns, lines)) };
    assert_eq!(opened, 0);
    let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    (master, slave)
}

fn modes(terminal: &impl AsRawFd) -> libc::tcflag_t {
    let mut state: libc::termios = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &mut state) }, 0);
    state.c_lflag
}

/// On a terminal that is not its controlling one, so that no SIGHUP comes.
fn start_beside(program: &Program, slave: OwnedFd) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(["top", &program.pid()]).env("TERM", "xterm-256color");
    let end = || Stdio::from(slave.try_clone().unwrap());
    command.stdin(end()).stdout(end()).stderr(end());
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        })
    };
    command.spawn().unwrap()
}

fn ends(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::yield_now();
    }
}

/// Else it spins on a closed terminal with a whole core, and no signal ends it.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    let Some(program) = Program::start() else { return };
    let (mut master, slave) = open_terminal(100, 30);
    let mut child = start_beside(&program, slave);
    let (mut parser, mut bytes) = (vt100::Parser::new(30, 100, 0), [0; 4096]);
    while !parser.screen().contents().contains("q quit") {
        let count = master.read(&mut bytes).unwrap();
        parser.process(&bytes[..count]);
    }
    drop(master);
    let status = ends(&mut child);
    assert_eq!(status.code(), Some(0), "{status:?}");
}

/// Else what stands in a terminal that takes no output can only be killed, and leaves it raw.
#[test]
fn a_terminal_that_takes_nothing_does_not_hold_it() {
    let Some(program) = Program::start() else { return };
    let (master, slave) = open_terminal(100, 30);
    let again = format!("/proc/self/fd/{}", slave.as_raw_fd());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut full = File::options().write(true).custom_flags(flags).open(again).unwrap();
    let before = modes(&master);
    let mut child = start_beside(&program, slave);
    let begun = Instant::now();
    while modes(&master) == before {
        assert!(begun.elapsed() < LIMIT, "it does not begin");
        std::thread::yield_now();
    }
    while full.write(&[b'x'; 1000]).is_ok() {}
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(ends(&mut child).code(), Some(0));
    assert_eq!(modes(&master), before, "the terminal is left raw");
}

#[test]
fn the_end_of_the_process_is_reported() {
    let Some(mut program) = Program::start() else { return };
    let mut top = Terminal::start(&[&program.pid()], 80, 24);
    top.shows("q quit");
    program.end();
    let screen = top.shows("The process has ended");
    assert!(screen.contains("has ended") && screen.contains("RSS "), "{screen}");
    top.press("q");
    assert_eq!(top.finish().code(), Some(0));
}

fn top(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hakmem")).arg("top").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn without_a_terminal_it_prints_one_frame_or_says_so() {
    let Some(program) = Program::start() else { return };
    let (code, text, errors) = top(&[&program.pid(), "--once", "--interval", "0.1"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{text}");
    assert!(text.contains("partly used slabs") && text.contains("tiny refills") && !text.contains('\x1b'), "{text}");
    let (code, text, errors) = top(&[&program.pid()]);
    assert_eq!((code, text.as_str(), errors.lines().count()), (Some(2), "", 1), "{errors}");
    assert!(errors.contains("needs a terminal"), "{errors}");
    let (code, _, errors) = top(&[&program.pid(), "--interval", "0"]);
    assert!(code == Some(2) && errors.contains("0.1 to 3600 seconds"), "{errors}");
}
