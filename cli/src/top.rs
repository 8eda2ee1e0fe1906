//! `hakmem top`: what a process's memory consists of and what its heap does, as it runs.
//!
//! 1. Every interval a snapshot goes to the screen (screen.rs), which keeps what was and draws it; stack.rs draws the
//!    terms over time.
//! 2. Keys are the screen's, or change the process. Signals are taken between two frames, so that the terminal is put
//!    back whatever ends this; a panic puts it back by its hook.
//! 3. When the process ends, the last frame stays until a key.

mod screen;
mod stack;

use crate::heap::Target;
use crate::proc::{Pid, Watched};
use crate::purge;
use crate::signals;
use anyhow::{ensure, Context, Result};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::{DefaultTerminal, Terminal};
use screen::{Action, Screen};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Options {
    /// A process that runs HAKMEM
    pid: Pid,
    /// Seconds from one look to the next
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Prints one frame as text and ends; rates are those of one interval
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("0.1 to 3600 seconds".into())
    }
}

/// How long a signal or the end of the process may wait for the next frame.
const FRAME: Duration = Duration::from_millis(200);

/// As of `hakmem profile start`.
const SAMPLE_BYTES: u64 = 512 << 10;

/// Of a frame that is printed.
const ONCE: (u16, u16) = (110, 40);

pub fn command(options: &Options) -> Result<ExitCode> {
    let target = Target::attach(options.pid)?;
    let process = Watched::new(options.pid)?;
    let interval = Duration::from_secs_f64(options.interval);
    let mut screen = Screen::new(interval);
    screen.add(target.snapshot()?);
    if options.once {
        std::thread::sleep(interval);
        screen.add(target.snapshot()?);
        print!("{}", frame_text(&screen)?);
        return Ok(ExitCode::SUCCESS);
    }
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(terminal, "top needs a terminal; `hakmem top --once {}` prints one frame", options.pid);
    let _blocked = signals::Blocked::new();
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let outcome = follow(&mut terminal, &target, &process, &mut screen);
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

fn told(outcome: Result<String>) -> String {
    outcome.unwrap_or_else(|error| format!("{error:#}"))
}

/// Begins to sample allocations, or ends it.
fn switch_profile(target: &Target) -> Result<String> {
    if target.sampled_every()? != 0 {
        target.sample_every(0)?;
        return Ok(format!("no longer sampling; `hakmem flame {}` shows what was", target.pid()));
    }
    target.sample_every(SAMPLE_BYTES)?;
    Ok(format!("sampling allocations; `hakmem flame {}` shows them", target.pid()))
}

fn frame_text(screen: &Screen) -> Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(ONCE.0, ONCE.1))?;
    let frame = terminal.draw(|frame| screen.draw(frame))?;
    let rows = frame.buffer.content.chunks(ONCE.0.into());
    let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_string());
    Ok(lines.collect::<Vec<_>>().join("\n").trim_end().to_string() + "\n")
}

fn follow(terminal: &mut DefaultTerminal, target: &Target, process: &Watched, screen: &mut Screen) -> Result<()> {
    let mut due = Instant::now() + screen.interval;
    while !signals::interrupted() {
        if !screen.has_ended() && process.has_ended() {
            screen.end();
        }
        if screen.is_following() && Instant::now() >= due {
            match target.snapshot() {
                Ok(snapshot) => screen.add(snapshot),
                Err(_) if process.has_ended() => screen.end(),
                Err(error) => screen.say(format!("{error:#}")),
            }
            due = Instant::now() + screen.interval;
        }
        terminal.draw(|frame| screen.draw(frame))?;
        let wait = due.saturating_duration_since(Instant::now()).min(FRAME);
        if !event::poll(if screen.is_following() { wait } else { FRAME })? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match screen.press(key) {
            Action::None => {}
            Action::Quit => return Ok(()),
            Action::Purge => screen.say(told(purge::said(target))),
            Action::Profile => screen.say(told(switch_profile(target))),
        }
    }
    Ok(())
}
