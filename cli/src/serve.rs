//! `hakmem serve`: an HTTP server from which Prometheus, Pyroscope and Parca scrape the processes of this machine.
//!
//! 1. The server answers GET only, and no request changes a process. Whoever wants profiles switches sampling on.
//! 2. On a port of 127.0.0.1 each request needs the token, as `Authorization: Bearer TOKEN` or as the first part of the
//!    path. On a Unix socket the permissions of the file admit its owner only.
//! 3. Each request reads the process anew (metrics.rs). The server keeps nothing.
// SPDX-License-Identifier: MIT

use crate::explain;
use crate::http::{self, Listener, Request, Response};
use crate::metrics::{self, Processes, Source};
use crate::profile;
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::print;
use hakmem_base::proc::{self, Pid};
use serde_json::json;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    processes: Processes,
    /// Address and port on 127.0.0.1 [default: any free port]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "socket")]
    listen: Option<SocketAddr>,
    /// Unix socket instead of a port, for this user alone
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// File whose first line is the token [default: a new one, printed with the address]
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    symbols: profile::Symbols,
}

/// A shorter token could be guessed.
const TOKEN_LETTERS_MIN: usize = 16;

struct Server {
    source: Source,
    /// None: requests need no token.
    token: Option<String>,
    /// The address that a scraper uses.
    address: String,
    directories: Vec<PathBuf>,
}

/// 128 bits that nobody can guess.
pub fn secret() -> Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn token_of(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let token = text.lines().next().unwrap_or_default().trim().to_string();
    let plain = token.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.~".contains(letter));
    ensure!(
        plain && token.len() >= TOKEN_LETTERS_MIN,
        "{}: a token has at least {TOKEN_LETTERS_MIN} letters, digits or -_.~",
        path.display()
    );
    Ok(token)
}

/// Takes the same time wherever the two differ.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The path without its token and query, and the process that the request names.
fn parts(path: &str) -> (&str, Option<Pid>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pid = query.split('&').find_map(|one| one.strip_prefix("pid=")?.parse().ok());
    (path, pid)
}

impl Server {
    /// The path behind the token; None: the request has no valid token.
    fn allowed<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let Some(token) = &self.token else { return Some(&request.path) };
        let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        if bearer.is_some_and(|given| same(given, token)) {
            return Some(&request.path);
        }
        let (first, _) = request.path.get(1..)?.split_once('/')?;
        same(first, token).then(|| &request.path[1 + first.len()..])
    }

    fn answer(&self, request: &Request) -> Response {
        if request.method != "GET" {
            return Response::text("405 Method Not Allowed", "only GET\n");
        }
        let Some(path) = self.allowed(request) else {
            return Response::text("401 Unauthorized", "the request lacks the token that `hakmem serve` printed\n");
        };
        let (path, pid) = parts(path);
        let done = match path {
            "/metrics" => Ok(metrics::page(&self.source, false, request)),
            "/explain.json" => self.explain(pid),
            "/debug/pprof/heap" => self.heap(pid),
            "/targets.json" => Ok(self.targets()),
            _ => return Response::text("404 Not Found", "/metrics, /explain.json, /debug/pprof/heap, /targets.json\n"),
        };
        done.unwrap_or_else(|error| Response::text("503 Service Unavailable", format!("{error:#}\n")))
    }

    /// The process that the request names or, if it names none, the only one served.
    fn process(&self, wanted: Option<Pid>) -> Result<Pid> {
        let pids = self.source.pids();
        match (wanted, pids.as_slice()) {
            (Some(pid), all) if all.contains(&pid) => Ok(pid),
            (Some(pid), _) => bail!("PID {pid} is not served here"),
            (None, [only]) => Ok(*only),
            (None, _) => bail!("which process? Add ?pid=NUMBER; /targets.json lists them"),
        }
    }

    fn explain(&self, pid: Option<Pid>) -> Result<Response> {
        let snapshot = self.source.attach(self.process(pid)?)?.summary()?;
        Ok(Response::new("200 OK", "application/json", explain::json(snapshot)?))
    }

    fn heap(&self, pid: Option<Pid>) -> Result<Response> {
        let profile = profile::read::process(self.process(pid)?, &self.directories)?;
        Ok(Response::new("200 OK", "application/octet-stream", profile::pprof::write(&profile)?))
    }

    /// The list that Prometheus's http_sd_config expects: a target for each process, which the scraper requests with `?pid=`.
    fn targets(&self) -> Response {
        let target = |pid: Pid| {
            let mut labels: serde_json::Map<_, _> =
                metrics::labels_of(pid).into_iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
            labels.insert("pid".into(), json!(pid.to_string()));
            labels.insert("process".into(), json!(proc::name(pid)));
            labels.insert("__param_pid".into(), json!(pid.to_string()));
            json!({"targets": [self.address], "labels": labels})
        };
        let targets: Vec<_> = self.source.readable().into_iter().map(target).collect();
        Response::new("200 OK", "application/json", json!(targets).to_string())
    }
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let source = Source::new(&options.processes)?;
    let (listener, token, address) = match &options.socket {
        Some(path) => (http::listen_unix(path)?, None, format!("unix:{}", path.display())),
        None => {
            let wanted = options.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let local = wanted.ip() == Ipv4Addr::LOCALHOST;
            ensure!(local, "{wanted}: the server listens on 127.0.0.1 only; put a proxy with access control in front");
            let listener = http::listen(wanted.port())?;
            let address = listener.local_addr()?.to_string();
            let token = options.token_file.as_deref().map_or_else(secret, token_of)?;
            (Listener::Tcp(listener), Some(token), address)
        }
    };
    let shown = match (&token, &options.token_file) {
        (Some(token), None) => format!("http://{address}/{token}/metrics"),
        (Some(_), Some(file)) => format!("http://{address}/metrics, with the token of {}", file.display()),
        (None, _) => format!("{address}, /metrics"),
    };
    let directories = options.symbols.debug_directory.clone();
    let server = Arc::new(Server { source, token, address, directories });
    let shared = server.clone();
    http::serve_at(listener, move |request| shared.answer(request))?;
    print::line(&shown)?;
    server.source.wait();
    print::note("hakmem: no process is left to read");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_process() {
        assert_eq!(parts("/debug/pprof/heap?seconds=3&pid=12"), ("/debug/pprof/heap", Some(12)));
        assert_eq!(parts("/metrics?pid=x"), ("/metrics", None));
    }

    #[test]
    fn tokens_that_can_be_guessed_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            token_of(file.path())
        };
        assert_eq!(of("0123456789abcdef\nmore").unwrap(), "0123456789abcdef");
        for text in ["", "short", "0123456789 abcdef", "0123456789/abcdef"] {
            assert!(of(text).unwrap_err().to_string().contains("at least 16 letters"), "{text}");
        }
        assert!(same("ab", "ab") && !same("ab", "aB") && !same("ab", "abc"));
    }
}
