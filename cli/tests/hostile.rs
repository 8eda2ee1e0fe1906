//! `hakmem` among hostile users: what they leave in common directories, and programs that lie about themselves.

use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

/// `hakmem` with two GiB of addresses and a minute of a processor: what takes more fails.
fn confined(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::null());
    // SAFETY: system calls, and nothing else between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for (what, most) in [(libc::RLIMIT_AS, 2 << 30), (libc::RLIMIT_CPU, 60)] {
                if libc::setrlimit(what, &libc::rlimit { rlim_cur: most, rlim_max: most }) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.output().unwrap()
}

/// Ends soon, by itself, and says what is wrong in one line if it fails.
fn is_civil(arguments: &[&str], lie: &str) {
    let output = confined(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let case = format!("{lie}, {arguments:?}: {:?}, {stderr}", output.status);
    assert!(matches!(output.status.code(), Some(0..=2)), "{case}");
    assert!(!stderr.contains("panicked") && !stderr.contains("an error in hakmem"), "{case}");
    if output.status.code() == Some(2) {
        assert!(stderr.lines().count() == 1 && stderr.starts_with("hakmem: PID "), "{case}");
    }
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
    let metrics = text(&["metrics", "--all", "--budget", "0.3"]);
    // Linux refuses to read it through /proc/PID/mem; what it waits for otherwise takes too long.
    let count = |state: &str| {
        let start = format!("hakmem_processes{{state=\"{state}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse::<u32>().unwrap()
    };
    assert!(count("slow") + count("failed") >= 1, "{metrics}");
    assert!(!metrics.contains(&format!("hakmem_info{{pid=\"{}\"", evil.pid())), "{metrics}");
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
        &["metrics", pid, "--budget", "60"],
        &["metrics", pid, "--budget", "60", "--openmetrics"],
    ] {
        let printed = text(arguments);
        assert!(printed.contains("OWNED") && !obeyed(&printed), "{arguments:?}: {printed:?}");
        assert!(!arguments.contains(&"--html") || !printed.contains("<img"), "{printed}");
    }
    let told = explain(pid)["process"]["command"].as_str().unwrap().to_string();
    assert!(told.starts_with(name), "JSON holds the name itself: {told:?}");
    for line in text(&["metrics", pid, "--budget", "60"]).lines().filter(|line| line.contains("OWNED")) {
        let values = line.replace("\\\\", "").replace("\\\"", "");
        assert!(!values.contains('\\') && values.matches('"').count() % 2 == 0, "{line}");
    }
}

// ---- debug information ----

fn fifo(directory: &Path) -> PathBuf {
    let fifo = directory.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}

fn symbolized(line: &str) -> Output {
    // If the child never ends, the test fails after five minutes instead of hanging.
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_hakmem"), "symbolize"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
    child.wait_with_output().unwrap()
}

/// Else a program that somebody wrote ends whoever names its frames: the stack overflows, or a FIFO never answers.
#[test]
fn debug_information_is_harmless() {
    if !cfg!(target_arch = "x86_64") {
        return eprintln!("skipped: the debug information is of x86-64");
    }
    let place = tempfile::tempdir().unwrap();
    let fifo = fifo(place.path());
    for calls in [10, 1000, 400_000] {
        let source = nested(place.path(), calls, &fifo);
        let flags = ["-shared", "-nostdlib"].map(OsStr::new);
        let library = cc(place.path(), &format!("nested{calls}.so"), &[&flags[..], &[source.as_os_str()]].concat());
        let symbols = Command::new("nm").arg(&library).output().unwrap().stdout;
        let symbols = String::from_utf8(symbols).unwrap();
        let leaf = symbols.lines().find(|line| line.ends_with(" T leaf")).unwrap().split(' ').next().unwrap();
        let output = symbolized(&format!("{}+0x{leaf}", library.display()));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.trim_end().ends_with(" → leaf"), "{calls}: {:?} {said}", output.status);
    }
}

/// A page that the server answers, and its status.
fn get(address: &str, path: &str) -> String {
    let (host, token) = address.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{token}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_string()
}

/// Else one request for the profile of a process that somebody else wrote ends the server of all.
#[test]
fn a_server_outlives_debug_information() {
    let Some(library) = library().filter(|_| cfg!(target_arch = "x86_64")) else { return };
    let place = tempfile::tempdir().unwrap();
    let evil = program_of_nested_calls(place.path(), &library);
    let mut line = String::new();
    let mut server =
        Program::start(Command::new(env!("CARGO_BIN_EXE_hakmem")).args(["serve", &evil.pid(), "--budget", "60"]));
    server.output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches("/metrics");
    for path in ["/metrics", "/debug/pprof/heap", "/debug/pprof/heap", "/metrics"] {
        assert!(get(address, path).contains(" 200 "), "{path}: {}", get(address, path));
    }
    assert!(server.child.try_wait().unwrap().is_none());
    let profile = place.path().join("evil.pb.gz");
    text(&["profile", "dump", &evil.pid(), "--output", profile.to_str().unwrap()]);
    assert!(text(&["flame", profile.to_str().unwrap()]).contains("leaf"), "the symbol names it");
}

/// Else who cuts a file while it is read ends the command: the process that reads it may end, and has no rights to
/// lose.
#[test]
fn a_reader_of_files_is_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    copy_by_other_process(env!("CARGO_BIN_EXE_hakmem"), &path);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.arg("--hakmem-names").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = command.spawn().unwrap();
    drop(command); // and with it our copy of the other end
    let ask = |body: &str, file: Option<&File>| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        files.iter().for_each(|files| assert!(control.push(SendAncillaryMessage::ScmRights(files))));
        let message = [&(body.len() as u32).to_le_bytes(), body.as_bytes()].concat();
        sendmsg(&ours, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL).unwrap();
    };
    let answer = || {
        let mut head = [0; 4];
        (&ours).read_exact(&mut head)?;
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        (&ours).read_exact(&mut body)?;
        std::io::Result::Ok(String::from_utf8(body).unwrap())
    };
    ask("\"Module\"", Some(&File::open(&path).unwrap()));
    assert!(answer().unwrap().contains("segments"));
    let status = fs::read_to_string(format!("/proc/{}/status", reader.id())).unwrap();
    let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_string();
    assert_eq!((of("CapEff:"), of("CapPrm:"), of("NoNewPrivs:")), ("0".repeat(16), "0".repeat(16), "1".to_string()));
    assert!(!of("Uid:").split_whitespace().any(|user| user == "0"), "{status}");
    let limits = fs::read_to_string(format!("/proc/{}/limits", reader.id())).unwrap();
    for (limit, most) in [("Max processes", "0"), ("Max file size", "0"), ("Max data size", "1073741824")] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert_eq!(line[limit.len()..].split_whitespace().next(), Some(most), "{line}");
    }
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    ask("\"Functions\"", None);
    assert!(answer().is_err());
    assert_eq!(reader.wait().unwrap().signal(), Some(libc::SIGBUS));
}
