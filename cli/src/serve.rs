//! `hakmem serve`: an HTTP server from which Prometheus, Pyroscope and Parca scrape the processes of this machine.
//!
//! 1. The server answers GET only, and no request changes a process. Whoever wants profiles switches sampling on.
//! 2. On a port of 127.0.0.1 each request needs the token (token.rs). On a Unix socket the permissions of the file
//!    admit its owner only.
//! 3. Each request reads the process anew, or joins a reading that is under way (metrics.rs). The server keeps nothing.
//! 4. With --push it also sends profiles where nobody scrapes (push.rs).
// SPDX-License-Identifier: MIT

use crate::explain;
use crate::http::{self, Listener, Request, Response};
use crate::metrics::{self, Processes, Readers, Source};
use crate::profile;
use crate::push;
use crate::token::Token;
use anyhow::Result;
use hakmem_base::print;
use hakmem_base::proc::{self, Pid};
use hakmem_base::shown;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

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
    push: push::Push,
    #[command(flatten)]
    symbols: profile::Symbols,
}

/// For a profile with its names.
const PROFILE_TIME: Duration = Duration::from_secs(60);

struct Server {
    source: Source,
    /// The address that a scraper uses.
    address: String,
    explanations: Readers<Response>,
    profiles: Readers<Response>,
}

/// The path without its query, and the process that the request names; or what it names instead.
fn parts(path: &str) -> (&str, Result<Option<Pid>, &str>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pid = query.split('&').find_map(|one| one.strip_prefix("pid="));
    (path, pid.map(|pid| pid.parse().map_err(|_| pid)).transpose())
}

fn bad_request(why: &str) -> Response {
    Response::text("400 Bad Request", &format!("{why}\n"))
}

impl Server {
    fn new(source: Source, address: String, directories: Vec<PathBuf>) -> Server {
        let explanations = source.readers(explain::response);
        let profiles = Readers::new(PROFILE_TIME, move |pid| {
            let profile = profile::read::process(pid, &directories)?;
            Ok(Response::new("200 OK", "application/octet-stream", profile::pprof::write(&profile)?))
        });
        Server { source, address, explanations, profiles }
    }

    fn answer(&self, request: &Request) -> Response {
        if request.method != "GET" {
            return Response::text("405 Method Not Allowed", "only GET\n");
        }
        let (path, pid) = parts(&request.path);
        let done = match path {
            "/metrics" => Ok(metrics::page(&self.source, false, request)),
            "/explain.json" => self.of_process(pid, &self.explanations),
            "/debug/pprof/heap" => self.of_process(pid, &self.profiles),
            "/targets.json" => self.targets(),
            _ => return Response::text("404 Not Found", "/metrics, /explain.json, /debug/pprof/heap, /targets.json\n"),
        };
        done.unwrap_or_else(|error| Response::text("503 Service Unavailable", &format!("{error:#}\n")))
    }

    /// Of the process that the request names or, if it names none, of the only one served.
    fn of_process(&self, wanted: Result<Option<Pid>, &str>, readers: &Readers<Response>) -> Result<Response> {
        let pids = self.source.pids();
        match (wanted, pids.as_slice()) {
            (Ok(Some(pid)), all) if all.contains(&pid) => readers.read_one(pid),
            (Ok(Some(pid)), _) => Ok(Response::text("404 Not Found", &format!("PID {pid} is not served here\n"))),
            (Ok(None), [only]) => readers.read_one(*only),
            (Ok(None), _) => Ok(bad_request("which process? Add ?pid=NUMBER; /targets.json lists them")),
            (Err(wrong), _) => Ok(bad_request(&format!("pid={}: a PID is a number", shown::line(wrong)))),
        }
    }

    /// The list that Prometheus's http_sd_config expects: a target for each process, which the scraper requests with
    /// `?pid=`.
    fn targets(&self) -> Result<Response> {
        let target = |pid: Pid| {
            let mut labels: serde_json::Map<_, _> =
                metrics::labels_of(pid).into_iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
            labels.insert("pid".into(), json!(pid.to_string()));
            labels.insert("process".into(), json!(proc::name(pid)));
            labels.insert("__param_pid".into(), json!(pid.to_string()));
            json!({"targets": [self.address], "labels": labels})
        };
        let targets: Vec<_> = self.source.readable().into_iter().map(target).collect();
        Response::json(&targets)
    }
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let source = Source::new(&options.processes)?;
    let (listener, token, address) = match &options.socket {
        Some(path) => (http::listen_unix(path)?, None, format!("unix:{}", path.display())),
        None => {
            let listener = http::listen_at(options.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into()))?;
            let address = listener.local_addr()?.to_string();
            (Listener::Tcp(listener), Some(Arc::new(Token::from(options.token_file.as_deref())?)), address)
        }
    };
    let shown = token.as_ref().map_or(format!("{address}, /metrics"), |token| token.address(&address, "/metrics"));
    let server = Arc::new(Server::new(source, address, options.symbols.debug_directory.clone()));
    let (shared, directories) = (server.clone(), options.symbols.debug_directory.clone());
    let profiles =
        Readers::new(PROFILE_TIME, move |pid| profile::pprof::write_live(&profile::read::process(pid, &directories)?));
    push::start(&options.push, move || shared.source.wanted(), profiles)?;
    let shared = server.clone();
    http::serve(listener, token, move |request| shared.answer(request))?;
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
        assert_eq!(parts("/debug/pprof/heap?seconds=3&pid=12"), ("/debug/pprof/heap", Ok(Some(12))));
        assert_eq!(parts("/metrics?x=1"), ("/metrics", Ok(None)));
        assert_eq!(parts("/explain.json?pid=abc"), ("/explain.json", Err("abc")));
    }
}
