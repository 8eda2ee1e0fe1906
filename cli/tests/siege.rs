//! Servers of `hakmem` among hostile users: their connections, their processes, a machine without threads.

#[path = "heap/kit.rs"]
mod kit;

use kit::*;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Address {
    host: String,
    token: String,
}

/// A server of the command, and where it listens.
fn listening(command: &mut Command) -> (Running, Address) {
    let (server, line) = Running::start(command);
    let (host, token) = address_and_token(&line);
    let address = Address { host: host.into(), token: token.into() };
    (server, address)
}

fn server(arguments: &[&str]) -> (Running, Address) {
    listening(Command::new(env!("CARGO_BIN_EXE_hakmem")).args(arguments))
}

impl Address {
    /// The whole answer; what is there of it, if the connection breaks.
    fn get(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.get_bytes(path)).into_owned()
    }

    fn get_bytes(&self, path: &str) -> Vec<u8> {
        let Address { host, token } = self;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        let mut answer = Vec::new();
        let _ = TcpStream::connect(host)
            .and_then(|mut stream| stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer)));
        answer
    }

    fn status(&self, path: &str) -> String {
        self.get(path).split(' ').nth(1).unwrap_or("none").to_string()
    }

    /// The answer, once it is as wanted: on a busy machine what is asked for may take longer than the budget, and 256
    /// others may connect before a client that waits for its processor has sent a request.
    fn wait_for(&self, path: &str, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while let Some(answer) = Some(self.get(path)).filter(|answer| !wanted(answer)) {
            assert!(begun.elapsed() < Duration::from_secs(300), "{path}: {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Else a moment in which no thread can be started leaves a server deaf for good.
#[test]
fn a_server_survives_a_time_without_threads() {
    let Some(library) = library() else { return };
    // SAFETY: it has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become a user whom limits bind");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = |from: &Path, name: &str| {
        copy_by_other_process(from.to_str().unwrap(), &place.path().join(name));
        place.path().join(name)
    };
    let (tool, program) =
        (copy(Path::new(env!("CARGO_BIN_EXE_hakmem")), "hakmem"), copy(&directory().join("program"), "program"));
    let library = copy(&library, "libhakmem.so");
    let as_other = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(65_533).gid(65_533).current_dir("/");
        command
    };
    let mut usual = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut usual) }, 0);
    let usual = match usual.rlim_cur {
        libc::RLIM_INFINITY => "unlimited".to_string(),
        most => most.to_string(),
    };
    let served = Program::start(as_other(&program).env("LD_PRELOAD", library));
    for command in ["serve", "metrics"] {
        let arguments = [command, &served.pid(), "--listen", "127.0.0.1:0", "--budget", "60"];
        let (server, address) = listening(as_other(&tool).args(arguments));
        let limit = |threads: &str| {
            let (pid, soft) = (server.0.id().to_string(), format!("--nproc={threads}:"));
            let status = as_other(Path::new("prlimit")).args(["--pid", &pid, &soft]).status();
            assert!(status.expect("the tests need prlimit").success());
        };
        assert_eq!(address.status("/metrics"), "200");
        limit("1");
        (0..3).for_each(|_| assert_eq!(address.status("/metrics"), "503", "{command}"));
        limit(&usual);
        assert_eq!(address.status("/metrics"), "200", "{command}");
    }
}

/// What one user without the token does to a server, on so many connections at once.
struct Siege {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Siege {
    fn of(host: &str) -> Siege {
        let over = Arc::new(AtomicBool::new(false));
        let attack = |attack: fn(&str, &mut Vec<TcpStream>)| {
            let (over, host) = (over.clone(), host.to_string());
            std::thread::spawn(move || {
                let mut held = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    attack(&host, &mut held);
                    held.drain(..held.len().saturating_sub(300));
                    std::thread::sleep(Duration::from_millis(1)); // or this machine runs out of ports
                }
            })
        };
        let threads = vec![
            attack(|host, held| held.extend(TcpStream::connect(host))), // says nothing
            attack(|host, held| held.extend(said(host, "GET /metrics HTTP/1.1\r\nHost: "))), // never ends
            attack(|host, held| held.extend(said(host, &"a".repeat(20_000)))),
            attack(|host, _| {
                // Guesses, and waits for the answer.
                let guess = format!("GET /{}/metrics HTTP/1.1\r\nHost: {host}\r\n\r\n", "0".repeat(32));
                said(host, &guess).map(|mut stream| stream.read_to_end(&mut Vec::new()).ok());
            }),
        ];
        Siege { over, threads }
    }
}

fn said(host: &str, text: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(host).ok()?;
    let _ = stream.write_all(text.as_bytes());
    Some(stream)
}

impl Drop for Siege {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Programs that lie and programs that never answer, beside an honest one; and a siege of the server.
fn among_hostile_ones(budget: &str, honest: impl Fn(&Address, &str) + Sync) {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PROFILE", "1")]);
    program.tell("blocks 2 3000 400");
    let evil = || Program::start(&mut Command::new(directory().join("evil")));
    let (mut liar, mut silent) = (evil(), [evil(), evil(), evil()]);
    liar.tell("OPTION_COUNT: 1099511627776 1099511627776");
    silent.iter_mut().for_each(|one| drop(one.ask("silence", "done"))); // or this user may not
    let place = tempfile::tempdir().unwrap();
    // For whoever names its frames.
    let nested = cfg!(target_arch = "x86_64").then(|| program_of_nested_calls(place.path(), &library));
    let hostile: Vec<String> = silent.iter().chain([&liar]).chain(&nested).map(Program::pid).collect();
    let pid = program.pid();
    let mut arguments = vec!["serve", &pid, "--budget", budget];
    arguments.extend(hostile.iter().map(String::as_str));
    let (_server, address) = server(&arguments);
    let _siege = Siege::of(&address.host);
    address.get("/metrics"); // those that never answer have their time now, and none later
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| honest(&address, &pid))));
        scope.spawn(|| {
            for path in
                hostile.iter().flat_map(|pid| ["explain.json", "debug/pprof/heap"].map(|of| format!("/{of}?pid={pid}")))
            {
                address.wait_for(&path, |answer| {
                    ["HTTP/1.1 200 ", "HTTP/1.1 503 "].iter().any(|one| answer.starts_with(one))
                });
            }
        });
    });
}

/// What an honest client asks for, and what is in the answer.
fn honest_requests(pid: &str) -> [(String, String); 3] {
    [
        ("/metrics".into(), format!("hakmem_heap_bytes{{pid=\"{pid}\"")),
        (format!("/explain.json?pid={pid}"), format!("\"pid\":{pid}")),
        (format!("/debug/pprof/heap?pid={pid}"), String::new()),
    ]
}

/// Else any user of the machine ends its monitoring.
#[test]
fn honest_requests_are_answered_among_hostile_ones() {
    among_hostile_ones("5", |address, pid| {
        for (path, part) in (0..10).flat_map(|_| honest_requests(pid)) {
            address.wait_for(&path, |answer| answer.starts_with("HTTP/1.1 200 ") && answer.contains(&part));
        }
    });
}

/// The same by the clock: within a second. A profile also has names to find, which takes this build a second alone.
#[test]
#[ignore = "it depends on the machine's load: ./hak soak"]
fn honest_requests_are_answered_within_a_second() {
    among_hostile_ones("0.5", |address, pid| {
        for (path, part) in (0..50).flat_map(|_| honest_requests(pid)).filter(|(path, _)| !path.contains("pprof")) {
            let begun = Instant::now();
            let answer = address.get(&path);
            let took = begun.elapsed();
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&part), "{path}: {answer}");
            assert!(took < Duration::from_secs(1), "{path}: {took:?}");
        }
    });
}

/// Else a program's name writes to the terminal of whoever looks at an answer.
#[test]
fn names_in_answers_are_shown_and_not_obeyed() {
    let Some(library) = library() else { return };
    let mut command = Command::new(directory().join("program"));
    let mut program = Program::start(command.arg0("\x1b]0;OWNED\u{9b}2J\u{202e}").env("LD_PRELOAD", library));
    program.tell("work");
    let (_server, address) = server(&["serve", &program.pid(), "--budget", "60"]);
    for (path, part) in [("/explain.json", "OWNED"), ("/targets.json", "program"), ("/metrics", "OWNED")] {
        let answer = address.get(path);
        let is_raw = |letter: char| letter.is_control() && !"\r\n".contains(letter) || letter == '\u{202e}';
        assert!(answer.contains("200 OK") && answer.contains(part) && !answer.contains(is_raw), "{path}: {answer:?}");
    }
}
