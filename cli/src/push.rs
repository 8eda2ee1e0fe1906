//! `hakmem serve --push URL`: heap profiles sent to Pyroscope, or to any server that takes pprof by POST, without an
//! agent.
//!
//! 1. Each --every, the processes that are served are read one after the other, and each profile is sent by a request
//!    of its own. So one profile is in memory at a time.
//! 2. A profile has what is in use alone. What was allocated only grows, and a server of profiles adds up what it
//!    gets.
//! 3. A request has a time for all of it. An answer is read as far as an error line needs it.
//! 4. What fails is one line, once for each process until something else happens, and is tried again the next time.
// SPDX-License-Identifier: MIT

use crate::metrics::{self, Readers};
use anyhow::{anyhow, bail, ensure, Context, Result};
use hakmem_base::print;
use hakmem_base::proc::{self, Pid};
use hakmem_base::shown;
use hakmem_compare::compare::duration;
use serde_json::json;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub struct Push {
    /// Also send heap profiles to this server: http://HOST[:PORT] of Pyroscope, or with the path of another server
    #[arg(long, value_name = "URL")]
    push: Option<Destination>,
    /// How often to send them
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration, requires = "push")]
    every: Duration,
}

/// Pyroscope's own.
const INGEST: &str = "/ingest";
/// For a whole request and its answer.
const REQUEST_TIME: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 4096;
const CHUNK_BYTES: usize = 64 << 10;
/// How much of an answer an error line shows.
const REASON_LETTERS: usize = 200;

#[derive(Clone, Debug, PartialEq)]
struct Destination {
    /// As the header `Host` has it.
    host: String,
    /// With its port.
    address: String,
    path: String,
}

impl FromStr for Destination {
    type Err = anyhow::Error;

    fn from_str(url: &str) -> Result<Destination> {
        ensure!(
            !url.starts_with("https://"),
            "https is not spoken here: name a proxy or collector of this machine by http"
        );
        let rest = url.strip_prefix("http://").context("an address is http://HOST[:PORT][/PATH]")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let fits = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"#@<>\\".contains(&byte));
        ensure!(!host.is_empty() && fits(rest), "an address is http://HOST[:PORT][/PATH]");
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_string() } else { format!("{host}:80") };
        let path = if path.len() > 1 { path } else { INGEST };
        Ok(Destination { host: host.into(), address, path: path.into() })
    }
}

/// As a query has it.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Pyroscope's name of a series: the program, and labels.
fn series(pid: Pid) -> String {
    let plain =
        |text: &str| text.replace(|letter: char| !letter.is_ascii_alphanumeric() && !"-_./".contains(letter), "_");
    let labels = metrics::labels_of(pid).into_iter().map(|(key, value)| format!(",{key}={}", plain(&value)));
    format!("{}{{pid={pid}{}}}", plain(&proc::name(pid)), labels.collect::<String>())
}

fn head_of(to: &Destination, name: &str, from: u64, until: u64, boundary: &str, bytes: usize) -> String {
    let joint = if to.path.contains('?') { '&' } else { '?' };
    format!(
        "POST {}{joint}name={}&from={from}&until={until}&format=pprof&spyName=hakmem HTTP/1.1\r\nHost: {}\r\n\
         User-Agent: hakmem/{}\r\nContent-Type: multipart/form-data; boundary={boundary}\r\n\
         Content-Length: {bytes}\r\nConnection: close\r\n\r\n",
        to.path,
        escaped(name),
        to.host,
        env!("CARGO_PKG_VERSION"),
    )
}

/// The profile, and how to add up over time what it has: not at all.
fn body_of(profile: &[u8], boundary: &str) -> Vec<u8> {
    let average = |units: &str, name: &str| json!({"units": units, "aggregation": "average", "display-name": name});
    let types = json!({
        "inuse_objects": average("objects", "inuse_objects"),
        "inuse_space": average("bytes", "inuse_space"),
    });
    let part = |name: &str, kind: &str| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\
             Content-Type: {kind}\r\n\r\n"
        )
    };
    [
        part("profile", "application/octet-stream").as_bytes(),
        profile,
        b"\r\n",
        part("sample_type_config", "application/json").as_bytes(),
        types.to_string().as_bytes(),
        format!("\r\n--{boundary}--\r\n").as_bytes(),
    ]
    .concat()
}

/// A connection that has a time.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn open(address: &str, time: Duration) -> Result<Timed> {
        let deadline = Instant::now() + time;
        let mut failure = None;
        for one in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&one, deadline.saturating_duration_since(Instant::now()).max(TICK)) {
                Ok(stream) => return Ok(Timed { stream, deadline }),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.map_or_else(|| anyhow!("the name has no address"), Into::into))
    }

    fn left(&self) -> Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "it took too long");
        Ok(left)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.stream.set_write_timeout(Some(self.left()?))?;
            self.stream.write_all(chunk)?;
        }
        Ok(())
    }

    /// Up to the end, or to as much as is wanted of it.
    fn answer(&mut self) -> Result<String> {
        let mut answer = Vec::new();
        let mut bytes = [0; 1024];
        while answer.len() < ANSWER_BYTES_MAX {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => answer.extend(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) if !answer.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A timeout of 0 is an error.
const TICK: Duration = Duration::from_millis(1);

/// Was it taken? Else why not, in a line.
fn ensure_taken(answer: &str) -> Result<()> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.lines().next().and_then(|line| line.split_once(' ')).map(|(_, status)| status);
    let Some(status) = status.filter(|_| head.starts_with("HTTP/")) else { bail!("the answer is not HTTP") };
    if !status.starts_with('2') {
        let reason: String = body.lines().next().unwrap_or_default().chars().take(REASON_LETTERS).collect();
        bail!("the server says {status}{}{reason}", if reason.is_empty() { "" } else { ": " });
    }
    Ok(())
}

fn send(to: &Destination, pid: Pid, from: u64, until: u64, profile: &[u8], time: Duration) -> Result<()> {
    let boundary = format!("hakmem-{pid}-{until}-9b51c7e4d20f");
    let body = body_of(profile, &boundary);
    let mut server = Timed::open(&to.address, time)?;
    server.send(head_of(to, &series(pid), from, until, &boundary, body.len()).as_bytes())?;
    server.send(&body)?;
    ensure_taken(&server.answer()?)
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What was said of each process last; nothing: it went well.
#[derive(Default)]
struct Said(HashMap<Pid, String>);

impl Said {
    /// The line to print, if there is one.
    fn note(&mut self, pid: Pid, to: &Destination, outcome: Result<()>) -> Option<String> {
        let line = match outcome {
            Ok(()) => String::new(),
            Err(error) => {
                shown::line(&format!("hakmem: no profile of PID {pid} to {}: {error:#}", to.host)).into_owned()
            }
        };
        let before = self.0.insert(pid, line.clone()).unwrap_or_default();
        (line != before && !line.is_empty()).then_some(line)
    }

    /// Forgets the processes that have ended.
    fn keep(&mut self, pids: &[Pid]) {
        self.0.retain(|pid, _| pids.contains(pid));
    }
}

fn push(pids: impl Fn() -> Vec<Pid>, profiles: &Readers<Vec<u8>>, to: &Destination, every: Duration) {
    let (mut said, mut from) = (Said::default(), seconds_now().saturating_sub(every.as_secs()));
    loop {
        let (begun, until, pids) = (Instant::now(), seconds_now(), pids());
        for &pid in &pids {
            let outcome = profiles.read_one(pid).and_then(|profile| send(to, pid, from, until, &profile, REQUEST_TIME));
            if let Some(line) = said.note(pid, to, outcome) {
                print::note(&line);
            }
        }
        said.keep(&pids);
        from = until;
        thread::sleep(every.saturating_sub(begun.elapsed()));
    }
}

/// Sends in a thread of its own until the program ends, if that is wanted.
pub fn start(options: &Push, pids: impl Fn() -> Vec<Pid> + Send + 'static, profiles: Readers<Vec<u8>>) -> Result<()> {
    let Some(to) = options.push.clone() else { return Ok(()) };
    let every = options.every;
    let pushing = thread::Builder::new().name("push".into()).spawn(move || push(pids, &profiles, &to, every));
    pushing.map(|_| ()).context("no thread can be started")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn to(url: &str) -> Destination {
        url.parse().unwrap()
    }

    #[test]
    fn an_address_is_taken_apart() {
        let parts = |url: &str| {
            let Destination { host, address, path } = to(url);
            [host, address, path]
        };
        assert_eq!(parts("http://pyroscope:4040"), ["pyroscope:4040", "pyroscope:4040", "/ingest"]);
        assert_eq!(parts("http://10.0.0.1/"), ["10.0.0.1", "10.0.0.1:80", "/ingest"]);
        assert_eq!(parts("http://[::1]:80/a/b?c=d"), ["[::1]:80", "[::1]:80", "/a/b?c=d"]);
        for url in ["pyroscope:4040", "http://", "http:///ingest", "http://user@host", "http://a b", "http://a/\r\n"] {
            assert!(url.parse::<Destination>().is_err(), "{url}");
        }
        let https = "https://host".parse::<Destination>().unwrap_err().to_string();
        assert!(https.contains("https is not spoken here"), "{https}");
    }

    #[test]
    fn a_request_names_its_series_and_its_time() {
        let head = head_of(&to("http://host/x?y=z"), "a{pid=1}", 10, 20, "b", 30);
        let line = "POST /x?y=z&name=a%7Bpid%3D1%7D&from=10&until=20&format=pprof&spyName=hakmem HTTP/1.1\r\n";
        assert!(head.starts_with(line) && head.contains("\r\nContent-Length: 30\r\n"), "{head}");
        assert!(series(std::process::id().try_into().unwrap()).contains("{pid="));
    }

    /// Else a server that takes no profiles looks like one that does.
    #[test]
    fn what_was_not_taken_is_a_line_once() {
        ensure_taken("HTTP/1.1 200 OK\r\n\r\n").unwrap();
        ensure_taken("HTTP/1.1 204 No Content\r\n").unwrap();
        let refused = |answer: &str| ensure_taken(answer).unwrap_err().to_string();
        assert_eq!(
            refused("HTTP/1.1 422 Unprocessable\r\nA: b\r\n\r\nno name\nmore"),
            "the server says 422 Unprocessable: no name"
        );
        assert_eq!(refused("HTTP/1.1 301 Moved\r\n\r\n"), "the server says 301 Moved");
        assert_eq!(refused("SSH-2.0"), "the answer is not HTTP");
        let (mut said, host) = (Said::default(), to("http://host"));
        let mut note = |outcome| said.note(7, &host, outcome);
        assert_eq!(note(Err(anyhow!("x\ny"))).unwrap().lines().count(), 1);
        assert_eq!(note(Err(anyhow!("x\ny"))), None);
        assert!(note(Err(anyhow!("z"))).is_some());
        assert_eq!(note(Ok(())), None);
        assert!(note(Err(anyhow!("z"))).is_some(), "again, after it went well");
        said.keep(&[]);
        assert!(said.0.is_empty());
    }

    /// Else a server that hangs stops the profiles of all processes.
    #[test]
    fn a_request_has_a_time() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let time = Duration::from_millis(1);
        assert!(send(&to(&url), 1, 0, 1, &vec![0; 64 << 20], time).is_err(), "nobody reads it");
        assert!(send(&to(&url), 1, 0, 1, &[], time).is_err(), "nobody answers");
        drop(server);
        assert!(send(&to(&url), 1, 0, 1, &[], REQUEST_TIME).is_err(), "nobody is there");
    }
}
