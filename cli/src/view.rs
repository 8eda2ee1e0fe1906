//! `hakmem view`: the map as a page that follows the process, served to this machine's browser alone.
//!
//! 1. The address holds a secret, so that other users of the machine find nothing; http.rs refuses other sites' pages.
//! 2. The page fetches a picture every second; its button asks for a purge, which takes the secret as a header too.
//! 3. When the process ends, the answer to the page's next fetch says so, and the server ends.
// SPDX-License-Identifier: MIT

use crate::heap::named::Named;
use crate::heap::Target;
use crate::http::{self, Listener, Request, Response};
use crate::picture::page;
use crate::purge;
use crate::token::{is_same, Token};
use anyhow::{Context, Result};
use hakmem_base::print;
use hakmem_base::proc::{Pid, Watched};
use hakmem_base::signals::{self, Event};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Options {
    /// A process that runs HAKMEM
    #[arg(value_name = "PID|NAME", value_parser = Named, allow_negative_numbers = true)]
    pid: Pid,
    /// Port on 127.0.0.1 [default: any free port]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Open the page in a browser, whose command line shows the address to other users of this machine
    #[arg(long)]
    open: bool,
}

/// How often the process is looked at, and how long a page may take to hear that it has ended.
const LOOK: Duration = Duration::from_millis(200);
const FAREWELL: Duration = Duration::from_secs(5);

struct View {
    target: Target,
    process: Watched,
    token: Arc<Token>,
    /// A page has asked for pictures.
    asked: AtomicBool,
    /// A page knows that the process has ended.
    told: AtomicBool,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let _blocked = signals::block();
    let target = Target::attach(options.pid)?;
    let process = Watched::new(options.pid)?;
    target.snapshot()?;
    let (asked, told) = Default::default();
    let token = Arc::new(Token::new()?);
    let view = Arc::new(View { target, process, token: token.clone(), asked, told });
    let listener = http::listen(options.port)?;
    let address = token.address(&listener.local_addr()?.to_string(), "/");
    let shared = view.clone();
    http::serve(Listener::Tcp(listener), Some(token), move |request| shared.answer(request))?;
    print::line(&format!("{address}\nThe page follows process {}; Ctrl-C ends it.", options.pid))?;
    if options.open {
        let open = Command::new("xdg-open").arg(&address).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        open.context("cannot open a browser: xdg-open is not there")?;
    }
    view.wait();
    Ok(ExitCode::SUCCESS)
}

impl View {
    fn answer(&self, request: &Request) -> Response {
        let is_of_page = || request.header("x-hakmem-token").is_some_and(|given| is_same(given, self.token.text()));
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/") => self.picture("text/html; charset=utf-8", |heap| page::html(heap, Some(self.token.text()))),
            ("GET", "/snapshot.json") => self.picture("application/json", page::json),
            ("POST", "/purge") if is_of_page() => self.purge(),
            ("POST", "/purge") => Response::text("403 Forbidden", "The request lacks the page's token.\n"),
            _ => Response::text("404 Not Found", "Nothing is here.\n"),
        }
    }

    fn picture(&self, kind: &'static str, text: impl Fn(&crate::heap::Snapshot) -> String) -> Response {
        self.asked.store(true, Ordering::Relaxed);
        match self.target.snapshot() {
            Ok(snapshot) if !self.process.has_ended() => Response::new("200 OK", kind, text(&snapshot)),
            Err(error) if !self.process.has_ended() => {
                Response::text("500 Internal Server Error", &format!("{error:#}"))
            }
            _ => {
                self.told.store(true, Ordering::Relaxed);
                let text = format!("Process {} has ended; this is the last picture.", self.process.pid);
                Response::text("410 Gone", &text)
            }
        }
    }

    fn purge(&self) -> Response {
        match purge::said(&self.target) {
            Ok(said) => Response::text("200 OK", &said),
            Err(error) => Response::text("500 Internal Server Error", &format!("{error:#}")),
        }
    }

    /// Until Ctrl-C, or the process has ended and its page knows.
    fn wait(&self) {
        let mut end: Option<Instant> = None;
        loop {
            if let Event::Interrupt = signals::wait(Instant::now() + LOOK) {
                return;
            }
            if end.is_none() && self.process.has_ended() {
                // To a reader, if there is one.
                let _ = print::line(&format!("Process {} has ended.", self.process.pid));
                end = Some(Instant::now() + FAREWELL);
            }
            let told = self.told.load(Ordering::Relaxed) || !self.asked.load(Ordering::Relaxed);
            if end.is_some_and(|end| told || Instant::now() > end) {
                // The answer may still be on its way.
                signals::wait(Instant::now() + LOOK);
                return;
            }
        }
    }
}
