//! A web server for this machine alone: on 127.0.0.1 or a Unix socket, one answer a connection.
//!
//! 1. One thread accepts connections and reads requests, and waits for none of them alone. A connection without a whole
//!    request has one of `waiting` places for a few seconds; if all are taken, the oldest loses its place. So nobody
//!    without a token can keep others out, or have a thread started.
//! 2. A request that names another host is refused, so that no page elsewhere reaches the server by a name it points
//!    here. So is one that a page of another origin makes, as far as the browser says so, and one without the token.
//! 3. A thread of its own answers each other request, a bounded number at a time. If none can be started, this request
//!    is refused, and the next is tried again. Whoever doesn't take the whole answer in time is cut off.
// SPDX-License-Identifier: MIT

use crate::token::Token;
use anyhow::{ensure, Context, Result};
use hakmem_base::shown;
use serde::Serialize;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const HEAD_BYTES_MAX: usize = 16 << 10;
/// Connections that the kernel keeps for us: more than anybody opens in the time that accepting those takes.
const BACKLOG: libc::c_int = 4096;
/// When the system has no descriptor for a connection, and none can be closed.
const PAUSE: Duration = Duration::from_millis(20);

/// What one server has for all who ask.
#[derive(Clone, Copy)]
struct Limits {
    /// Connections without a whole request.
    waiting: usize,
    /// Requests that are being answered.
    answers: usize,
    /// Until a whole request is there.
    request: Duration,
    /// Until a whole answer has been taken.
    answer: Duration,
}

const LIMITS: Limits =
    Limits { waiting: 256, answers: 32, request: Duration::from_secs(5), answer: Duration::from_secs(30) };

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

    pub fn parse(head: &str) -> Option<Request> {
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

#[derive(Clone)]
pub struct Response {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Response {
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response { status, kind, body: body.into() }
    }

    /// What a person reads, perhaps on a terminal.
    pub fn text(status: &'static str, text: &str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", shown::lines(text, false).into_owned())
    }

    pub fn json(value: &impl Serialize) -> Result<Response> {
        Ok(Response::new("200 OK", "application/json", shown::json(serde_json::to_string(value)?)))
    }

    fn bytes(&self) -> Vec<u8> {
        let Response { status, kind, body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// What has not been taken when the time is over is lost.
    fn send(&self, stream: &dyn Stream, time: Duration) {
        let (bytes, deadline) = (self.bytes(), Instant::now() + time);
        let mut left = &bytes[..];
        loop {
            match stream.put(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [wanted(stream.as_raw_fd(), libc::POLLOUT)], Some(deadline));
                }
                Err(_) => return,
            }
            if left.is_empty() || Instant::now() >= deadline {
                return;
            }
        }
    }
}

/// What both kinds of sockets can do. None of it waits.
trait Stream: AsRawFd + Send + Sync {
    fn take(&self, bytes: &mut [u8]) -> std::io::Result<usize>;
    fn put(&self, bytes: &[u8]) -> std::io::Result<usize>;
}

impl<S: AsRawFd + Send + Sync> Stream for S
where
    for<'a> &'a S: Read + Write,
{
    fn take(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        (&mut &*self).read(bytes)
    }

    fn put(&self, bytes: &[u8]) -> std::io::Result<usize> {
        (&mut &*self).write(bytes)
    }
}

fn wanted(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Until something is ready, or the time is over.
fn poll(places: &mut [libc::pollfd], end: Option<Instant>) {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()).as_millis() + 1);
    let left = left.map_or(-1, |left| left.min(1000) as libc::c_int);
    // SAFETY: the kernel writes into the slice, whose length it is given.
    if unsafe { libc::poll(places.as_mut_ptr(), places.len() as libc::nfds_t, left) } < 0 {
        places.iter_mut().for_each(|place| place.revents = place.events); // interrupted: try all
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

impl Listener {
    fn accept(&self) -> std::io::Result<Arc<dyn Stream>> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Arc::new(stream))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Arc::new(stream))
            }
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Listener::Tcp(listener) => listener.as_raw_fd(),
            Listener::Unix(listener) => listener.as_raw_fd(),
        }
    }

    /// On a Unix socket, which no page of a browser reaches: None.
    fn port(&self) -> Result<Option<u16>> {
        match self {
            Listener::Tcp(listener) => Ok(Some(listener.local_addr()?.port())),
            Listener::Unix(_) => Ok(None),
        }
    }
}

/// A port of 0 is any that is free.
pub fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("cannot listen on 127.0.0.1:{port}"))
}

/// At an address that somebody named.
pub fn listen_at(address: SocketAddr) -> Result<TcpListener> {
    let is_local = address.ip() == Ipv4Addr::LOCALHOST;
    ensure!(is_local, "{address}: the server listens on 127.0.0.1 only; put a proxy with access control in front");
    listen(address.port())
}

type Answer = dyn Fn(&Request) -> Response + Send + Sync;

/// Answers in threads of its own until the program ends. Requests need the token if there is one; `answer` gets them
/// without it.
pub fn serve(
    listener: Listener,
    token: Option<Arc<Token>>,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Result<()> {
    serve_within(LIMITS, listener, token, answer)
}

fn serve_within(
    limits: Limits,
    listener: Listener,
    token: Option<Arc<Token>>,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Result<()> {
    let port = listener.port()?;
    // SAFETY: no memory is involved. The listeners of Rust's own library keep 128.
    unsafe {
        libc::listen(listener.fd(), BACKLOG);
        libc::fcntl(listener.fd(), libc::F_SETFL, libc::fcntl(listener.fd(), libc::F_GETFL) | libc::O_NONBLOCK);
    }
    let mut server = Server { limits, listener, port, token, answer: Arc::new(answer), waiting: VecDeque::new() };
    let listening = thread::Builder::new().name("listen".into()).spawn(move || loop {
        server.step();
    });
    listening.context("no thread can be started")?;
    Ok(())
}

/// A connection whose request is not whole yet.
struct Waiting {
    stream: Arc<dyn Stream>,
    head: Vec<u8>,
    deadline: Instant,
}

enum Progress {
    Partial,
    /// Up to the empty line.
    Whole,
    /// It ended, or it is no request.
    Lost,
}

impl Waiting {
    fn read(&mut self) -> Progress {
        let mut bytes = [0; 2048];
        loop {
            let seen = self.head.len().saturating_sub(3);
            match self.stream.take(&mut bytes) {
                Ok(0) => return Progress::Lost,
                Ok(count) => self.head.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Partial,
                Err(_) => return Progress::Lost,
            }
            if let Some(end) = self.head[seen..].windows(4).position(|four| four == b"\r\n\r\n") {
                self.head.truncate(seen + end + 4);
                return Progress::Whole;
            }
            if self.head.len() >= HEAD_BYTES_MAX {
                return Progress::Lost;
            }
        }
    }
}

/// The state of the thread that listens.
struct Server {
    limits: Limits,
    listener: Listener,
    port: Option<u16>,
    token: Option<Arc<Token>>,
    /// Each thread that answers holds one, and this one.
    answer: Arc<Answer>,
    /// The oldest first.
    waiting: VecDeque<Waiting>,
}

impl Server {
    fn step(&mut self) {
        let mut places = vec![wanted(self.listener.fd(), libc::POLLIN)];
        places.extend(self.waiting.iter().map(|one| wanted(one.stream.as_raw_fd(), libc::POLLIN)));
        poll(&mut places, self.waiting.iter().map(|one| one.deadline).min());
        // Requests first: one that is whole is not lost for a new connection.
        let ready = places[1..].iter().map(|place| place.revents != 0);
        for (one, is_ready) in std::mem::take(&mut self.waiting).into_iter().zip(ready) {
            match is_ready {
                true => self.receive(one),
                false => self.waiting.push_back(one),
            }
        }
        let now = Instant::now();
        self.waiting.retain(|one| one.deadline > now);
        if places[0].revents != 0 {
            self.accept();
        }
    }

    /// As many as there may be, then it is others' turn.
    fn accept(&mut self) {
        for _ in 0..self.limits.waiting {
            match self.listener.accept() {
                Ok(stream) => {
                    let deadline = Instant::now() + self.limits.request;
                    self.receive(Waiting { stream, head: Vec::new(), deadline });
                    if self.waiting.len() > self.limits.waiting {
                        self.waiting.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                // No descriptor or memory is left for it.
                Err(_) if self.waiting.pop_front().is_some() => {}
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }

    fn receive(&mut self, mut one: Waiting) {
        match one.read() {
            Progress::Partial => self.waiting.push_back(one),
            Progress::Whole => {
                if let Err(refusal) = self.admit(&one.head).and_then(|request| self.start(request, &one.stream)) {
                    refusal.send(&*one.stream, Duration::ZERO); // it is short
                }
            }
            Progress::Lost => {}
        }
    }

    /// The request without its token.
    fn admit(&self, head: &[u8]) -> Result<Request, Response> {
        let request = std::str::from_utf8(head).ok().and_then(Request::parse);
        let mut request = request.ok_or_else(|| Response::text("400 Bad Request", "not a request\n"))?;
        if let Some(reason) = self.port.and_then(|port| request.refusal(port)) {
            return Err(Response::text("403 Forbidden", &format!("{reason}\n")));
        }
        if let Some(token) = &self.token {
            let lacks = || Response::text("401 Unauthorized", "the request lacks the token: use the printed address\n");
            let authorization = request.header("authorization");
            request.path = token.path_behind(&request.path, authorization).ok_or_else(lacks)?.to_string();
        }
        Ok(request)
    }

    fn start(&self, request: Request, stream: &Arc<dyn Stream>) -> Result<(), Response> {
        let unavailable = |why| Response::text("503 Service Unavailable", why);
        if Arc::strong_count(&self.answer) > self.limits.answers {
            return Err(unavailable("too many requests are being answered\n"));
        }
        let (answer, stream, most) = (self.answer.clone(), stream.clone(), self.limits.answer);
        let talk = move || answer(&request).send(&*stream, most);
        let talking = thread::Builder::new().name("answer".into()).spawn(talk);
        talking.map(|_| ()).map_err(|_| unavailable("no thread can be started now\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

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

    fn server(
        limits: Limits,
        token: Option<Token>,
        answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> SocketAddr {
        let listener = listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        serve_within(limits, Listener::Tcp(listener), token.map(Arc::new), answer).unwrap();
        address
    }

    fn echo(request: &Request) -> Response {
        Response::text("200 OK", &format!("{} {}", request.method, request.path))
    }

    /// The server may have closed it meanwhile.
    fn open(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(text.as_bytes());
        stream
    }

    fn rest(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn ask(address: SocketAddr, method: &str, path: &str) -> String {
        rest(open(address, &format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")))
    }

    #[test]
    fn one_answer_a_connection() {
        let address = server(LIMITS, None, echo);
        assert!(address.ip().is_loopback());
        let answer = ask(address, "POST", "/a");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nPOST /a"), "{answer}");
        assert!(rest(open(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")).starts_with("HTTP/1.1 403 "));
        assert!(rest(open(address, "nonsense\r\n\r\n")).starts_with("HTTP/1.1 400 "));
        assert!(rest(open(address, &("GET /".to_string() + &"a".repeat(HEAD_BYTES_MAX)))).is_empty());
    }

    #[test]
    fn answers_get_the_path_behind_the_token() {
        let token = Token::new().unwrap();
        let path = format!("/{}/metrics", token.text());
        let address = server(LIMITS, Some(token), echo);
        assert!(ask(address, "GET", &path).ends_with("\r\n\r\nGET /metrics"));
        assert!(ask(address, "GET", "/metrics").starts_with("HTTP/1.1 401 "));
    }

    /// Else any user of the machine keeps Prometheus out, with connections that say nothing.
    #[test]
    fn connections_without_a_request_keep_nobody_out() {
        let limits = Limits { waiting: 4, request: Duration::from_secs(600), ..LIMITS };
        let address = server(limits, None, echo);
        let mut idle = Vec::new();
        for number in 0..50 {
            idle.push(open(address, if number % 2 == 0 { "" } else { "GET / HTTP/1.1\r\nHost: " }));
            assert!(ask(address, "GET", "/a").ends_with("GET /a"), "{number}");
        }
        let late = idle.split_off(46);
        idle.into_iter().for_each(|stream| assert!(rest(stream).is_empty(), "the oldest are closed"));
        for mut stream in late.into_iter().skip(1).step_by(2) {
            write!(stream, "{address}\r\n\r\n").unwrap(); // the newest may still become one
            assert!(rest(stream).ends_with("GET /"));
        }
    }

    /// Else a request that never ends keeps its place.
    #[test]
    fn a_request_has_a_time() {
        let limits = Limits { request: Duration::from_millis(1), ..LIMITS };
        let address = server(limits, None, echo);
        assert!(rest(open(address, "GET / HTTP/1.1\r\n")).is_empty());
    }

    /// Without this deadline a client could keep its connection forever by reading a byte now and then.
    #[test]
    fn a_slow_reader_is_dropped() {
        const BODY: usize = 64 << 20;
        let limits = Limits { answer: Duration::ZERO, ..LIMITS };
        let address = server(limits, None, |_| Response::new("200 OK", "text/plain", vec![b'a'; BODY]));
        assert!(ask(address, "GET", "/").len() < BODY, "it may read on and on: its time was over");
    }

    /// Else one scraper's requests take all memory of the machine.
    #[test]
    fn answers_are_bounded() {
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let address = server(Limits { answers: 2, ..LIMITS }, None, move |request| {
            begin.send(()).unwrap();
            ended.lock().unwrap().recv().unwrap();
            echo(request)
        });
        let held: Vec<TcpStream> =
            (0..2).map(|_| open(address, &format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n"))).collect();
        (0..2).for_each(|_| begun.recv().unwrap());
        assert!(ask(address, "GET", "/").starts_with("HTTP/1.1 503 "));
        (0..2).for_each(|_| end.send(()).unwrap());
        held.into_iter().for_each(|stream| assert!(rest(stream).ends_with("GET /")));
        end.send(()).unwrap();
        while ask(address, "GET", "/").starts_with("HTTP/1.1 503 ") {} // until their threads have ended
    }
}
