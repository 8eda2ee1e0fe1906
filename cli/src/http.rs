//! A web server for this machine alone: on 127.0.0.1 or a Unix socket, one answer a connection.
//!
//! 1. A request that names another host is refused, so that no page elsewhere reaches it by a name it points here.
//! 2. So is one that a page of another origin makes, as far as the browser says so.
//! 3. What is slow or large is cut off; more than 32 connections at a time are not answered.
// SPDX-License-Identifier: MIT

use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEAD_BYTES_MAX: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 32;

#[derive(Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// By its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn parse(head: &str) -> Option<Request> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, path, version) = (words.next()?, words.next()?, words.next()?);
        if !version.starts_with("HTTP/1.") || !path.starts_with('/') {
            return None;
        }
        let header = |line: &str| {
            let (key, value) = line.split_once(':')?;
            Some((key.to_ascii_lowercase(), value.trim().to_string()))
        };
        let headers = lines.filter(|line| !line.is_empty()).map(header).collect::<Option<_>>()?;
        Some(Request { method: method.into(), path: path.into(), headers })
    }

    /// Why it is not answered. One Host, and that is us.
    fn refusal(&self, port: u16) -> Option<&'static str> {
        let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let named: Vec<&(String, String)> = self.headers.iter().filter(|(key, _)| key == "host").collect();
        if named.len() != 1 || !hosts.contains(&named[0].1) {
            return Some("this server answers to 127.0.0.1 and localhost only");
        }
        let own = |origin: &str| origin.strip_prefix("http://").is_some_and(|host| hosts.iter().any(|one| one == host));
        let elsewhere = self.header("origin").is_some_and(|origin| !own(origin));
        let cross = self.header("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
        (elsewhere || cross).then_some("this server does not answer other pages")
    }
}

pub struct Response {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Response {
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response { status, kind, body: body.into() }
    }

    pub fn text(status: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response::new(status, "text/plain; charset=utf-8", body)
    }

    fn send(&self, stream: &mut impl Stream) -> std::io::Result<()> {
        let Response { status, kind, body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)
    }
}

/// What both kinds of sockets can do.
trait Stream: Read + Write {
    fn patience(&self, reads: Duration, writes: Duration) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn patience(&self, reads: Duration, writes: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(reads)).and_then(|()| self.set_write_timeout(Some(writes)))
    }
}

impl Stream for UnixStream {
    fn patience(&self, reads: Duration, writes: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(reads)).and_then(|()| self.set_write_timeout(Some(writes)))
    }
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// For this user alone. What is left there of a server that has ended is replaced.
pub fn listen_unix(path: &Path) -> Result<Listener> {
    let is_left = UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_left && std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
    // SAFETY: it only sets the mask of this process, which has one thread.
    let before = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    Ok(Listener::Unix(listener.with_context(|| format!("cannot listen on {}", path.display()))?))
}

/// A port of 0 is any that is free.
pub fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("cannot listen on 127.0.0.1:{port}"))
}

/// Answers in threads of its own until the program ends.
pub fn serve(listener: TcpListener, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Result<()> {
    serve_at(Listener::Tcp(listener), answer)
}

pub fn serve_at(listener: Listener, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Result<()> {
    let answer: Arc<Answer> = Arc::new(answer);
    match listener {
        Listener::Tcp(listener) => {
            let port = Some(listener.local_addr()?.port());
            std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| accept(stream, port, &answer)));
        }
        Listener::Unix(listener) => {
            std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| accept(stream, None, &answer)));
        }
    }
    Ok(())
}

type Answer = dyn Fn(&Request) -> Response + Send + Sync;

fn accept(stream: impl Stream + Send + 'static, port: Option<u16>, answer: &Arc<Answer>) {
    // The thread that listens holds one.
    if Arc::strong_count(answer) <= CONNECTIONS_MAX {
        let answer = answer.clone();
        std::thread::spawn(move || talk(stream, port, &*answer));
    }
}

/// `port`: None on a Unix socket, which no page of a browser reaches.
fn talk(mut stream: impl Stream, port: Option<u16>, answer: &Answer) {
    let Some(head) = read_head(&mut stream) else { return };
    let response = match Request::parse(&head) {
        None => Response::text("400 Bad Request", "not a request\n"),
        Some(request) => match port.and_then(|port| request.refusal(port)) {
            Some(reason) => Response::text("403 Forbidden", format!("{reason}\n")),
            None => answer(&request),
        },
    };
    let _ = stream.patience(PATIENCE, PATIENCE);
    let _ = response.send(&mut stream);
}

/// Up to the empty line; None if it does not come.
fn read_head(stream: &mut impl Stream) -> Option<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let left = deadline.checked_duration_since(Instant::now())?;
        stream.patience(left.max(Duration::from_millis(1)), PATIENCE).ok()?;
        let mut bytes = [0; 1];
        if head.len() >= HEAD_BYTES_MAX || stream.read(&mut bytes).ok()? == 0 {
            return None;
        }
        head.push(bytes[0]);
    }
    String::from_utf8(head).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(headers: &str) -> Option<&'static str> {
        Request::parse(&format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n")).unwrap().refusal(80)
    }

    /// Else a page on the web could read the heap of a program on this machine, or purge it.
    #[test]
    fn requests_from_elsewhere_are_refused() {
        assert_eq!(refusal("Host: 127.0.0.1:80"), None);
        assert_eq!(refusal("hOST: localhost:80\r\nOrigin: http://localhost:80\r\nSec-Fetch-Site: same-origin"), None);
        for headers in [
            "Accept: x",
            "Host: 127.0.0.1",
            "Host: 127.0.0.1:81",
            "Host: evil.example:80",
            "Host: 127.0.0.1:80\r\nHost: evil.example",
            "Host: 127.0.0.1:80\r\nOrigin: http://evil.example",
            "Host: 127.0.0.1:80\r\nOrigin: null",
            "Host: 127.0.0.1:80\r\nOrigin: https://127.0.0.1:80",
            "Host: 127.0.0.1:80\r\nSec-Fetch-Site: cross-site",
            "Host: 127.0.0.1:80\r\nSec-Fetch-Site: same-site",
        ] {
            assert!(refusal(headers).is_some(), "{headers}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in
            ["", "GET\r\n\r\n", "GET / SPDY\r\n\r\n", "GET http://x/ HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nx\r\n\r\n"]
        {
            assert!(Request::parse(head).is_none(), "{head:?}");
        }
    }

    #[test]
    fn one_answer_a_connection() {
        let listener = listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.ip().is_loopback());
        serve(listener, |request| Response::text("200 OK", format!("{} {}", request.method, request.path))).unwrap();
        let ask = |text: String| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = ask(format!("POST /a HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nPOST /a"), "{answer}");
        assert!(ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n".into()).starts_with("HTTP/1.1 403 "));
        assert!(ask("nonsense\r\n\r\n".into()).starts_with("HTTP/1.1 400 "));
    }
}
