//! `hakmem` among hostile users: what they leave in common directories, and programs that lie about themselves.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[path = "heap/kit.rs"]
mod kit;

use kit::*;

/// Else any user of the machine has root's next comparison overwrite a file of their choice.
#[test]
fn compare_takes_no_directory_that_is_there() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    fs::write(&target, "precious").unwrap();
    // The process id is known before the command runs: the shell becomes it.
    let script = r#"
        mkdir -p "$TMPDIR/hakmem-compare-$$/work" "$TMPDIR/hakmem-run-$$"
        for name in stdout stderr; do ln -s "$TARGET" "$TMPDIR/hakmem-compare-$$/$name"; done
        exec "$HAKMEM" compare --only system --rounds 1 --quiet -- echo overwritten"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("TMPDIR", place.path()).env("TARGET", &target);
    shell.env("HAKMEM", env!("CARGO_BIN_EXE_hakmem")).env_remove("HAKMEM_LIBRARY").stdin(Stdio::null());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    let left = fs::read_dir(place.path()).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 2, "those of the hostile user, and none of its own");
}

// ---- lies ----

/// `hakmem` with two GiB of addresses: what takes more fails.
fn confined(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::null());
    let most = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
    // SAFETY: a system call, and nothing else between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &most) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.output().unwrap()
}

/// Ends soon, by itself, and says what is wrong in one line if it fails.
fn is_civil(arguments: &[&str], lie: &str) {
    let begun = Instant::now();
    let output = confined(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let case = format!("{lie}, {arguments:?}: {:?}, {stderr}", output.status);
    assert!(matches!(output.status.code(), Some(0..=2)), "{case}");
    assert!(!stderr.contains("panicked") && !stderr.contains("an error in hakmem"), "{case}");
    if output.status.code() == Some(2) {
        assert!(stderr.lines().count() == 1 && stderr.starts_with("hakmem: PID "), "{case}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{case}: {:?}", begun.elapsed());
}

/// Else any user's process can end or block root's `metrics --all`.
#[test]
fn no_lie_of_a_process_is_believed() {
    let Some(_) = library() else { return };
    let mut evil = Program::start(&mut Command::new(directory().join("evil")));
    let facts = evil.ask("facts", "done");
    assert!(facts.len() > 100, "{facts:?}");
    let facts: Vec<&str> = facts.iter().map(|fact| fact.split(':').next().unwrap()).collect();
    let known = include_str!("../src/heap/facts.txt");
    let is_known = |fact: &str| known.lines().any(|line| line.split(':').next() == Some(fact));
    let new: Vec<_> = facts.iter().filter(|fact| !is_known(fact)).collect();
    assert!(new.is_empty(), "src/heap/facts.txt is what this program answers to \"facts\"; it lacks {new:?}");
    let pid = evil.pid();
    let pid = pid.as_str();
    let page = directory().join(format!("hostile-{}.pb.gz", std::process::id()));
    let commands: [&[&str]; 11] = [
        &["explain", pid],
        &["metrics", pid],
        &["map", pid],
        &["options", pid],
        &["explain", pid, "--json"],
        &["set", pid, "RING_BYTES=1m"],
        &["doctor", pid],
        &["purge", "--wait", "0.1", pid],
        &["top", "--once", "--interval", "0.1", pid],
        &["flame", pid],
        &["profile", "dump", pid, "--output", page.to_str().unwrap()],
    ];
    let values = [(0, 0), (1 << 40, 1 << 40), (u64::MAX, u64::MAX), (1, 8)];
    let mut lie = |fact: &str, (value, bytes): (u64, u64), arguments: &[&str]| {
        evil.tell(&format!("{fact}: {value} {bytes}"));
        is_civil(arguments, &format!("{fact} {value} {bytes}"));
        evil.tell("reset");
    };
    for fact in ["OPTION_COUNT", "sizeof slab", "CLASSES", "region_use.superslabs"] {
        values.iter().for_each(|&value| lie(fact, value, &["metrics", pid]));
    }
    // A lie of each fact to one of the commands: the readers' own tests tell them all.
    for (at, fact) in facts.iter().enumerate() {
        lie(fact, values[at % values.len()], commands[at % commands.len()]);
    }
    for arguments in &commands[..7] {
        assert!(hakmem(arguments).status.code() != Some(2), "{arguments:?}: the truth is believed");
    }
}

/// Else one process whose memory never answers stops the metrics of all: nothing but its end wakes who reads it.
#[test]
fn memory_that_never_answers_is_left_out() {
    let Some(_) = library() else { return };
    let mut evil = Program::start(&mut Command::new(directory().join("evil")));
    if evil.ask("silence", "done") != ["silent"] {
        return eprintln!("skipped: this user may not have faults of the kernel wait (userfaultfd)");
    }
    let begun = Instant::now();
    let metrics = text(&["metrics", "--all", "--budget", "0.3"]);
    let slow = metrics.lines().find_map(|line| line.strip_prefix("hakmem_processes{state=\"slow\"} ")).unwrap();
    assert!(slow.parse::<u32>().unwrap() >= 1, "{metrics}");
    assert!(!metrics.contains(&format!("hakmem_info{{pid=\"{}\"", evil.pid())), "{metrics}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

// ---- servers ----

/// A server of the command; it ends with its value.
struct Listening(Child);

struct Address {
    host: String,
    token: String,
}

impl Listening {
    fn start(arguments: &[&str]) -> (Listening, Address) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
        Listening::run(command.args(arguments))
    }

    fn run(command: &mut Command) -> (Listening, Address) {
        let mut server = Listening(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (host, rest) = line.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let token = rest.strip_suffix("/metrics").unwrap().to_string();
        (server, Address { host: host.into(), token })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
        let mut stream = TcpStream::connect(host).unwrap();
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
        answer
    }

    fn status(&self, path: &str) -> String {
        self.get(path).split(' ').nth(1).unwrap_or("none").to_string()
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
        let (server, address) = Listening::run(as_other(&tool).args(arguments));
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
    let pid = program.pid();
    let mut arguments = vec!["serve".to_string(), pid.clone(), liar.pid()];
    arguments.extend(silent.iter().map(Program::pid));
    arguments.extend(["--budget".into(), budget.into()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (_server, address) = Listening::start(&arguments);
    let _siege = Siege::of(&address.host);
    address.get("/metrics"); // those that never answer have their time now, and none later
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| honest(&address, &pid))));
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
            let answer = address.get(&path);
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&part), "{path}: {answer}");
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

// ---- names ----

/// Else a program's name writes to the terminal of whoever looks, or into the page that shows it.
#[test]
fn a_name_is_shown_and_not_obeyed() {
    let Some(library) = library() else { return };
    let name = "\x1b]0;OWNED\x07\x1b[31mred <img src=x onerror=alert(1)></title>\n\"\\ \u{9b}2J\u{202e}";
    let mut command = Command::new(directory().join("program"));
    let mut program = Program::start(command.arg0(name).env("LD_PRELOAD", library));
    program.tell("blocks 1 1000 100");
    let pid = program.pid();
    let pid = pid.as_str();
    let obeyed =
        |text: &str| text.contains(|letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}');
    for arguments in [
        &["explain", pid][..],
        &["explain", pid, "--json"],
        &["top", "--once", "--interval", "0.1", pid],
        &["map", pid],
        &["map", pid, "--json"],
        &["map", pid, "--html", "-"],
        &["metrics", pid],
        &["metrics", pid, "--openmetrics"],
    ] {
        let printed = text(arguments);
        assert!(printed.contains("OWNED") && !obeyed(&printed), "{arguments:?}: {printed:?}");
        assert!(!arguments.contains(&"--html") || !printed.contains("<img"), "{printed}");
    }
    let (_server, address) = Listening::start(&["serve", pid, "--arguments", "--budget", "60"]);
    for path in ["/explain.json", "/targets.json"] {
        let answer = address.get(path);
        assert!(answer.contains("200 OK") && !obeyed(&answer.replace('\r', "")), "{path}: {answer:?}");
        assert!(path != "/explain.json" || answer.contains("OWNED"), "{answer}");
    }
    let told = explain(pid)["process"]["command"].as_str().unwrap().to_string();
    assert!(told.starts_with(name), "JSON holds the name itself: {told:?}");
    for line in text(&["metrics", pid]).lines().filter(|line| line.contains("OWNED")) {
        let values = line.replace("\\\\", "").replace("\\\"", "");
        assert!(!values.contains('\\') && values.matches('"').count() % 2 == 0, "{line}");
    }
}
