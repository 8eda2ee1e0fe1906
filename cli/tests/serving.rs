//! `hakmem run`, `metrics`, `completions` and `man` as a user runs them. HAKMEM_LIBRARY names libhakmem.so.

#[path = "heap/kit.rs"]
mod kit;

use kit::*;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// The value of a sample whose line has all these parts.
fn sample(metrics: &str, parts: &[&str]) -> f64 {
    let line = metrics.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    let line = line.unwrap_or_else(|| panic!("no sample with {parts:?}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

// ---- metrics ----

/// Else a class's counter ends when its last slab goes back, and begins at 0 with the next.
#[test]
fn classes_without_slabs_keep_their_counters() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PURGE", "eager")]);
    program.tell("free 3000 16000");
    program.tell("free 300 100000");
    let pid = program.pid();
    hakmem(&["purge", &pid, "--wait", "0"]);
    program.tell("work");
    let explanation = explain(&pid);
    let classes = explanation["classes"].as_array().unwrap();
    assert!(classes.iter().all(|class| class["block_bytes"] != 16384 && class["tier"] != "large"), "{classes:?}");
    let metrics = text(&["metrics", &pid, "--budget", "60"]);
    let count = |parts: &[&str]| sample(&metrics, &[&["hakmem_class_allocations_total{"], parts].concat());
    assert!((3000.0..3100.0).contains(&count(&["tier=\"mid\"", "\"16384\""])), "{metrics}");
    assert!((300.0..400.0).contains(&count(&["tier=\"large\""])), "{metrics}");
}

/// Else dashboards show what is not there.
#[test]
fn metrics_are_those_of_the_heap() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("blocks 2 30000 400");
    let pid = program.pid();
    for arguments in [vec!["metrics", &pid, "--budget", "60"], vec!["metrics", "--all", "--budget", "60"]] {
        // Its purger may still be at work: what counts is a moment in which nothing changes.
        let (mut before, mut metrics, mut explanation) = (explain(&pid), text(&arguments), explain(&pid));
        while before["heap"] != explanation["heap"] {
            (before, metrics, explanation) = (explanation, text(&arguments), explain(&pid));
        }
        let who = format!("pid=\"{pid}\",process=\"program\"");
        assert_eq!(sample(&metrics, &["hakmem_class_bytes{", &who, "\"416\"", "\"live\""]), 60_000.0 * 416.0);
        for (name, value) in explanation["heap"].as_object().unwrap() {
            if !["total", "mapped_rss", "untouched"].contains(&name.as_str()) {
                let term = format!("term=\"{name}\"");
                assert_eq!(sample(&metrics, &["hakmem_heap_bytes{", &who, &term]), value.as_f64().unwrap(), "{name}");
            }
        }
        assert!(sample(&metrics, &["hakmem_events_total{", &who, "\"slabs_started\""]) > 300.0);
        let count = |name: &str| sample(&metrics, &[name, &who, "\"416\""]);
        let (allocations, misses) = (count("hakmem_class_allocations_total{"), count("hakmem_class_misses_total{"));
        // Not what lists hold: some dozens are left in each of the two threads'.
        assert!((60_000.0..60_010.0).contains(&allocations), "{allocations}");
        assert!(misses > 1000.0 && misses < allocations / 4.0, "{misses}");
        assert!(sample(&metrics, &["hakmem_thread_heaps{", &who, "\"in_use\""]) >= 3.0);
    }
    assert!(refusal(&["metrics", &std::process::id().to_string()]).contains("does not run HAKMEM"));
}

/// Every line is a comment, or a name with labels and a number, and each name was announced.
#[test]
fn metrics_have_the_form_prometheus_reads() {
    let Some(library) = library() else { return };
    let program = Program::known(&library, &[]);
    let metrics = text(&["metrics", &program.pid(), "--openmetrics", "--budget", "60"]);
    let body = metrics.strip_suffix("# EOF\n").expect("OpenMetrics ends so");
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').expect(line);
        let value = rest.rsplit_once("} ").expect(line).1;
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(body.contains(&format!("# TYPE {family} ")), "{name} is not announced");
    }
}

/// Else what is missing from the metrics looks as if it were not there.
#[test]
fn processes_that_may_not_be_read_are_counted() {
    let Some(library) = library() else { return };
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    let mut program = Program::known(&library, &[]);
    program.tell("work");
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = directory.path().join("hakmem");
    copy_by_other_process(env!("CARGO_BIN_EXE_hakmem"), &tool);
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool).args(["metrics", "--all"]);
    let Ok(output) = other.output() else { return eprintln!("skipped: there is no setpriv") };
    let metrics = String::from_utf8(output.stdout).unwrap();
    assert!(sample(&metrics, &["hakmem_processes{state=\"forbidden\"}"]) >= 2.0, "{metrics}");
    assert!(!metrics.contains(&format!("pid=\"{}\"", program.pid())), "{metrics}");
    let own = text(&["metrics", &program.pid(), "--budget", "30"]);
    assert_eq!(sample(&own, &["hakmem_read_budget_seconds{}"]), 30.0);
    let took = sample(&own, &["hakmem_read_seconds{pid=", "process=\"program\""]);
    assert!(took > 0.0 && took < 30.0, "{took}");
    assert_eq!(sample(&own, &["hakmem_processes{state=\"slow\"}"]), 0.0);
}

/// `hakmem COMMAND`, and what it printed first.
fn started(command: &str, arguments: &[&str]) -> (Running, String) {
    let mut hakmem = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    Running::start(hakmem.arg(command).args(arguments).args(["--budget", "60"]))
}

fn ask(mut stream: impl Read + Write, request: &str) -> (String, Vec<u8>) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

fn get(address: &str, path: &str, headers: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    let (head, body) = ask(TcpStream::connect(address).unwrap(), &request);
    (head, String::from_utf8(body).unwrap())
}

/// Else Prometheus gets nothing, or others get what is not theirs.
#[test]
fn metrics_are_served_on_loopback() {
    let Some(library) = library() else { return };
    let program = Program::known(&library, &[]);
    let (mut server, line) = started("metrics", &[&program.pid(), "--listen", "127.0.0.1:0"]);
    let (address, token) = address_and_token(&line);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let (head, metrics) = get(address, "/metrics", &bearer);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("version=0.0.4"), "{head}");
    assert!(metrics.contains("hakmem_process_resident_bytes{pid="));
    let open = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    assert!(get(address, &format!("/{token}/metrics"), open).1.ends_with("# EOF\n"));
    let status = |path: &str, headers: &str| get(address, path, headers).0.split(' ').nth(1).unwrap().to_string();
    assert_eq!((status("/metrics", "").as_str(), status("/x/metrics", "").as_str()), ("401", "401"));
    assert_eq!(status("/metrics", &format!("{bearer}Origin: http://example.org\r\n")), "403");
    assert_eq!(status("/other", &bearer), "404");
    let request = |method: &str, host: &str| {
        let request = format!("{method} /metrics HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n");
        ask(TcpStream::connect(address).unwrap(), &request).0.split(' ').nth(1).unwrap().to_string()
    };
    assert_eq!((request("GET", "example.org").as_str(), request("POST", address).as_str()), ("403", "405"));
    drop(program);
    assert_eq!(server.0.wait().unwrap().code(), Some(0), "nothing is left to be served");
    assert!(refusal(&["metrics", "--all", "--listen", "0.0.0.0:1"]).contains("127.0.0.1 only"));
    assert!(refusal(&["metrics", "--all", "--token-file", "/dev/null"]).contains("--listen"));
}

/// Arguments may hold passwords, and /proc may hide them: a scraper must not see them unasked.
#[test]
fn arguments_are_told_only_if_asked_for() {
    let Some(library) = library() else { return };
    let mut command = Command::new(directory().join("program"));
    let mut program = Program::start(command.arg0("/bin/server --password=secret").env("LD_PRELOAD", library));
    program.tell("work");
    let pid = program.pid();
    for (more, told) in [(&[][..], false), (&["--arguments"][..], true)] {
        let arguments = [&["metrics", &pid, "--budget", "60"], more].concat();
        assert_eq!(text(&arguments).contains("--password=secret"), told, "{arguments:?}");
        let (_server, line) = started("serve", &[&[pid.as_str()], more].concat());
        let (address, token) = address_and_token(&line);
        for path in ["metrics", "explain.json"] {
            let (head, body) = get(address, &format!("/{token}/{path}"), "");
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert_eq!(body.contains("--password=secret"), told, "{path} {more:?}: {body}");
        }
    }
}

/// Else a token that all can read admits them all; or one that lasts is found in the logs of a proxy.
#[test]
fn a_token_of_a_file_is_private_and_stays_out_of_paths() {
    let Some(library) = library() else { return };
    let program = Program::known(&library, &[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    fs::write(path, "0123456789abcdef\n").unwrap();
    for command in ["serve", "metrics"] {
        let arguments = [program.pid(), "--listen".into(), "127.0.0.1:0".into(), "--token-file".into(), path.into()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refusal(&[&[command], &arguments[..]].concat()).contains("other users may read or write it"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        let (_server, line) = started(command, &arguments);
        let (address, with) = line.strip_prefix("http://").unwrap().split_once('/').unwrap();
        assert_eq!(with, format!("metrics, with the token of {path}"));
        let status = |path: &str, headers: &str| get(address, path, headers).0.split(' ').nth(1).unwrap().to_string();
        assert_eq!(status("/metrics", "Authorization: Bearer 0123456789abcdef\r\n"), "200");
        assert_eq!(status("/0123456789abcdef/metrics", ""), "401");
    }
}

// ---- serve ----

fn serve(arguments: &[&str]) -> (Running, String) {
    started("serve", arguments)
}

/// Else fleets have metrics of their heaps, but no profiles; or others of the machine have them.
#[test]
fn profiles_are_served_to_those_with_the_token() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "1000")]);
    program.tell("blocks 1 30000 400");
    let pid = program.pid();
    let (mut server, line) = serve(&[&pid]);
    let (address, token) = address_and_token(&line);
    let get = |path: &str, headers: &str| {
        ask(TcpStream::connect(address).unwrap(), &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n"))
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for (path, headers) in [("/metrics", ""), ("/metrics", "Authorization: Bearer x\r\n"), ("/x/debug/pprof/heap", "")]
    {
        assert!(get(path, headers).0.starts_with("HTTP/1.1 401 "), "{path} {headers}");
    }
    let metrics = String::from_utf8(get(&format!("/{token}/metrics"), "").1).unwrap();
    assert!(metrics.contains("hakmem_process_resident_bytes{pid="), "{metrics}");
    let explanation: serde_json::Value = serde_json::from_slice(&get("/explain.json", &bearer).1).unwrap();
    assert_eq!(explanation["process"]["pid"].to_string(), pid);
    assert!(explanation["advice"].is_array());
    let targets: serde_json::Value = serde_json::from_slice(&get("/targets.json", &bearer).1).unwrap();
    assert_eq!(
        (&targets[0]["targets"][0], &targets[0]["labels"]["__param_pid"]),
        (&address.into(), &pid.as_str().into())
    );
    // The profile is one for pprof, and for the command itself.
    let file = directory().join("served.pb.gz");
    let (head, profile) = get(&format!("/debug/pprof/heap?pid={pid}"), &bearer);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(profile[..2], [0x1f, 0x8b], "gzip");
    fs::write(&file, profile).unwrap();
    assert!(text(&["flame", file.to_str().unwrap()]).contains("in use in about"));
    for (request, status) in [
        ("/debug/pprof/heap?pid=1", "404"),
        ("/explain.json?pid=2147483647", "404"),
        ("/explain.json?pid=abc", "400"),
        ("/explain.json?pid=", "400"),
        ("/other", "404"),
    ] {
        assert!(get(request, &bearer).0.starts_with(&format!("HTTP/1.1 {status} ")), "{request}");
    }
    let posted = ask(
        TcpStream::connect(address).unwrap(),
        &format!("POST /metrics HTTP/1.1\r\nHost: {address}\r\n{bearer}\r\n"),
    );
    assert!(posted.0.starts_with("HTTP/1.1 405 "), "it only reads");
    drop(program);
    assert_eq!(server.0.wait().unwrap().code(), Some(0), "nothing is left to be served");
}

/// A server of profiles that takes one request of the command and answers it.
fn take(server: &TcpListener, command: &mut Running, status: &str) -> (String, Vec<u8>) {
    server.set_nonblocking(true).unwrap();
    let stream = loop {
        match server.accept() {
            Ok((stream, _)) => break stream,
            Err(_) => assert!(command.0.try_wait().unwrap().is_none(), "it has ended"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    stream.set_nonblocking(false).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    write!(reader.into_inner(), "HTTP/1.1 {status}\r\n\r\nbecause\n").unwrap();
    (head, body)
}

/// Else whoever has no agent has no profiles; or one refusal ends them.
#[test]
fn profiles_are_pushed() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "1000")]);
    program.tell("blocks 1 30000 400");
    let pid = program.pid();
    let pyroscope = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", pyroscope.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(["serve", &pid, "--push", &url, "--every", "1s"]).stderr(Stdio::piped());
    let (mut pushing, _) = Running::start(&mut command);
    let (head, body) = take(&pyroscope, &mut pushing, "503 Service Unavailable");
    let query = format!("POST /ingest?name=program%7Bpid%3D{pid}");
    assert!(head.starts_with(&query) && head.contains("&format=pprof&"), "{head}");
    let mut errors = BufReader::new(pushing.0.stderr.take().unwrap());
    let mut error = String::new();
    errors.read_line(&mut error).unwrap();
    assert!(error.contains("the server says 503 Service Unavailable: because"), "{error}");
    let (_, again) = take(&pyroscope, &mut pushing, "200 OK");
    for body in [body, again] {
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("name=\"sample_type_config\"") && text.contains("inuse_space"), "{text}");
        let begin = body.windows(2).position(|two| two == [0x1f, 0x8b]).unwrap();
        let end = body.windows(10).position(|ten| ten == b"\r\n--hakmem").unwrap();
        let mut profile = Vec::new();
        flate2::read::GzDecoder::new(&body[begin..end]).read_to_end(&mut profile).unwrap();
        let profile = String::from_utf8_lossy(&profile);
        assert!(profile.contains("inuse_space") && profile.contains("hold_blocks"), "{profile}");
        assert!(!profile.contains("alloc_space"), "what only grows would be added up again and again");
    }
    drop(program);
    assert_eq!(pushing.0.wait().unwrap().code(), Some(0), "nothing is left to be pushed");
    assert!(refusal(&["serve", &pid, "--push", "https://host"]).contains("https is not spoken here"));
}

#[test]
fn a_socket_is_for_its_user_alone() {
    use std::os::unix::net::UnixStream;
    let Some(library) = library() else { return };
    let program = Program::known(&library, &[]);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("hakmem.sock");
    for _ in 0..2 {
        // The second finds what the first has left.
        let (_server, line) = serve(&[&program.pid(), "--socket", socket.to_str().unwrap()]);
        assert_eq!(line, format!("unix:{}, /metrics", socket.display()));
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let (head, _) = ask(UnixStream::connect(&socket).unwrap(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let (head, body) = ask(UnixStream::connect(&socket).unwrap(), "GET /debug/pprof/heap HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 503 ") && String::from_utf8(body).unwrap().contains("hakmem profile start"));
    }
    assert!(refusal(&["serve", "--all", "--listen", "0.0.0.0:1"]).contains("127.0.0.1 only"));
}

// ---- run ----

/// Else the user does not learn what the program's memory was, or its status is lost.
#[test]
fn a_run_is_summed_up() {
    let Some(library) = library() else { return };
    let report = directory().join("run.html");
    let library = library.to_string_lossy().into_owned();
    let script = "import sys; keep = [bytes(3000) for i in range(5000)]; print('out'); sys.stdout.flush(); \
        import os; os._exit(7)";
    let arguments = ["run", "--hakmem", &library, "--report", report.to_str().unwrap(), "--", "python3", "-c", script];
    let output = hakmem(&arguments);
    let summary = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), b"out\n".as_slice()), "{summary}");
    for part in ["= heap", "= resident", "When it ended it held", "it ended with status 7"] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.contains("<iframe") && page.contains("= resident"), "{page}");
    assert!(refusal(&["run", "--hakmem", &library, "--", "/no/such/program"]).contains("/no/such/program"));
}

/// Else a leak is not found at its line.
#[test]
fn a_run_names_what_leaked() {
    let Some(library) = library() else { return };
    let source = directory().join("leaks.c");
    fs::write(
        &source,
        "#include <stdlib.h>\n#include <string.h>\n\
         __attribute__((noinline)) void *lose(size_t bytes) { return memset(malloc(bytes), 1, bytes); }\n\
         int main(void) {\n  for (int i = 0; i < 3000; i++)\n    lose(5000);\n  return 0;\n}\n",
    )
    .unwrap();
    let program = directory().join("leaks");
    let cc = Command::new("cc").args(["-g", "-O1", "-fno-builtin", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(cc.success());
    let library = library.to_string_lossy().into_owned();
    let output = hakmem(&["run", "--profile=64K", "--hakmem", &library, "--json", "--", program.to_str().unwrap()]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(summary["end"]["live"].as_u64().unwrap() >= 15_000_000, "{}", summary["end"]);
    let profile = summary["profile"].to_string();
    assert!(profile.contains("\"lose\"") && profile.contains("leaks.c"), "{profile}");
}

// ---- their end ----

/// The signals that end a command, and how it ends then: by itself, or by the signal.
/// Programs that a shell or nohup starts in the background inherit ignored signals; this one does not.
fn heeds_signals(command: &mut Command) -> &mut Command {
    let heed = || {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    unsafe { command.pre_exec(heed) }
}

fn ends_by_signals(arguments: &[&str], code: Option<i32>) {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
        let mut server = Running(heeds_signals(&mut command).args(arguments).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        unsafe { libc::kill(server.0.id() as i32, signal) };
        let status = server.0.wait().unwrap();
        let expected = if code.is_some() { (code, None) } else { (None, Some(signal)) };
        assert_eq!((status.code(), status.signal()), expected, "{arguments:?}, signal {signal}");
    }
}

/// Else a server stays behind its terminal.
#[test]
fn servers_end_by_signals() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("work");
    ends_by_signals(&["view", &program.pid()], Some(0));
    ends_by_signals(&["metrics", "--all", "--listen", "127.0.0.1:0"], None);
}

/// Else a supervisor that ends `hakmem run` leaves the program, or gets no summary of it.
#[test]
fn signals_reach_the_program_that_is_run() {
    let Some(library) = library() else { return };
    let library = library.to_string_lossy().into_owned();
    for (signal, script, code) in [
        (libc::SIGTERM, "echo ready; while :; do sleep 0.01; done", 128 + libc::SIGTERM),
        (libc::SIGHUP, "echo ready; while :; do sleep 0.01; done", 128 + libc::SIGHUP),
        (libc::SIGTERM, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done", 5),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
        command.args(["run", "--hakmem", &library, "--profile", "--", "sh", "-c", script]);
        let command = heeds_signals(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = Running(command.spawn().unwrap());
        let mut lines = BufReader::new(run.0.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        unsafe { libc::kill(run.0.id() as i32, signal) };
        let mut said = String::new();
        run.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(run.0.wait().unwrap().code(), Some(code), "{script}: {said}");
        assert!(said.contains("= resident"), "the summary: {said}");
    }
    // One that does not listen is ended by the second signal.
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    let deaf = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
    command.args(["run", "--hakmem", &library, "--", "sh", "-c", deaf]);
    let mut run = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(run.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    while run.0.try_wait().unwrap().is_none() {
        unsafe { libc::kill(run.0.id() as i32, libc::SIGTERM) };
        std::thread::yield_now();
    }
    let gone = || !Path::new(&format!("/proc/{}", line.trim())).exists();
    while !gone() {
        std::thread::yield_now(); // the kernel ends it with its tracer
    }
}

// ---- completions and manual pages ----

#[test]
fn completions_and_pages_know_all_commands() {
    let pages = directory().join("man");
    let bash = text(&["completions", "bash"]);
    assert_eq!(text(&["man", "--out", pages.to_str().unwrap()]), "");
    for command in [
        "run", "explain", "map", "view", "top", "profile", "flame", "diff", "metrics", "purge", "set", "options",
        "doctor",
    ] {
        assert!(
            bash.contains(&format!("hakmem__{command}")) || bash.contains(&format!("hakmem__subcmd__{command}")),
            "{command}"
        );
        let page = fs::read_to_string(pages.join(format!("hakmem-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
}
