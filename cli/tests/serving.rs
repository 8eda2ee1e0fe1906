//! `hakmem run`, `metrics`, `completions` and `man` as a user runs them. HAKMEM_LIBRARY names libhakmem.so.

#[path = "heap/kit.rs"]
mod kit;

use kit::*;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The value of a sample whose line has all these parts.
fn sample(metrics: &str, parts: &[&str]) -> f64 {
    let line = metrics.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    let line = line.unwrap_or_else(|| panic!("no sample with {parts:?}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

// ---- metrics ----

/// Else dashboards show what is not there.
#[test]
fn metrics_are_those_of_the_heap() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("blocks 2 30000 400");
    let pid = program.pid();
    for arguments in [vec!["metrics", &pid], vec!["metrics", "--all"]] {
        let metrics = text(&arguments);
        let who = format!("pid=\"{pid}\",process=\"program\"");
        assert_eq!(sample(&metrics, &["hakmem_class_bytes{", &who, "\"416\"", "\"live\""]), 60_000.0 * 416.0);
        let explanation = explain(&pid);
        for (name, value) in explanation["heap"].as_object().unwrap() {
            if name != "total" && name != "mapped_rss" {
                let term = format!("term=\"{name}\"");
                assert_eq!(sample(&metrics, &["hakmem_heap_bytes{", &who, &term]), value.as_f64().unwrap(), "{name}");
            }
        }
        assert!(sample(&metrics, &["hakmem_events_total{", &who, "\"slabs_started\""]) > 300.0);
        assert!(sample(&metrics, &["hakmem_thread_heaps{", &who, "\"in_use\""]) >= 3.0);
    }
    assert!(refusal(&["metrics", &std::process::id().to_string()]).contains("does not run HAKMEM"));
}

/// Every line is a comment, or a name with labels and a number, and each name was announced.
#[test]
fn metrics_have_the_form_prometheus_reads() {
    let Some(library) = library() else { return };
    let program = Program::known(&library, &[]);
    let metrics = text(&["metrics", &program.pid(), "--openmetrics"]);
    let body = metrics.strip_suffix("# EOF\n").expect("OpenMetrics ends so");
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').expect(line);
        let value = rest.rsplit_once("} ").expect(line).1;
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(body.contains(&format!("# TYPE {family} ")), "{name} is not announced");
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Else Prometheus gets nothing, or others get what is not theirs.
#[test]
fn metrics_are_served_on_loopback() {
    let Some(library) = library() else { return };
    let program = Program::known(&library, &[]);
    let pid = program.pid();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(["metrics", &pid, "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap().to_string();
    let ask = |request: String| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("version=0.0.4"), "{answer}");
    assert!(answer.contains("hakmem_process_resident_bytes{pid="));
    let open = "Accept: application/openmetrics-text;version=1.0.0";
    assert!(ask(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n{open}\r\n\r\n")).ends_with("# EOF\n"));
    assert!(ask("GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n".into()).starts_with("HTTP/1.1 403 "));
    assert!(ask(format!("GET /other HTTP/1.1\r\nHost: {address}\r\n\r\n")).starts_with("HTTP/1.1 404 "));
    assert!(ask(format!("POST /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n")).starts_with("HTTP/1.1 405 "));
    drop(program);
    assert!(ask(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n")).starts_with("HTTP/1.1 503 "));
    assert!(refusal(&["metrics", "--all", "--listen", "0.0.0.0:1"]).contains("127.0.0.1 only"));
}

// ---- run ----

/// Else the user does not learn what the program's memory was, or its status is lost.
#[test]
fn a_run_is_summed_up() {
    let Some(library) = library() else { return };
    let report = directory().join("run.html");
    let library = library.to_string_lossy().into_owned();
    let script = "import sys; keep = [bytes(3000) for i in range(5000)]; print('out'); sys.stdout.flush(); import os; os._exit(7)";
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
