//! `hakmem` among hostile users: what they leave in common directories, and programs that lie about themselves.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
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
    let told = explain(pid)["process"]["command"].as_str().unwrap().to_string();
    assert!(told.starts_with(name), "JSON holds the name itself: {told:?}");
    for line in text(&["metrics", pid]).lines().filter(|line| line.contains("OWNED")) {
        let values = line.replace("\\\\", "").replace("\\\"", "");
        assert!(!values.contains('\\') && values.matches('"').count() % 2 == 0, "{line}");
    }
}
