//! `hakmem top`: what a process's memory consists of and what its heap does, as it runs.
//!
//! 1. Every interval a snapshot goes to the screen (screen.rs), which keeps what was and draws it; stack.rs draws the
//!    terms over time. worker.rs takes it, so that a process that is slow to read holds up nothing.
//! 2. Keys are the screen's, or change the process. terminal.rs takes them, signals and the terminal's end, and puts
//!    the terminal back whatever ends this; a panic puts it back by its hook.
//! 3. When the process ends, the last frame stays until a key.
// SPDX-License-Identifier: MIT

mod screen;
mod stack;
mod terminal;
mod worker;

use crate::heap::named::Named;
use crate::heap::Target;
use anyhow::{ensure, Result};
use hakmem_base::print;
use hakmem_base::proc::{Pid, Watched};
use hakmem_base::signals;
use ratatui::backend::TestBackend;
use screen::{Action, Screen};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terminal::{Event, Terminal};
use worker::{Answer, Question, Worker};

#[derive(clap::Args)]
pub struct Options {
    /// A process that runs HAKMEM
    #[arg(value_name = "PID|NAME", value_parser = Named, allow_negative_numbers = true)]
    pid: Pid,
    /// Seconds between two updates
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print one frame as text and exit; rates are those of one interval
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

/// How long the end of the process, or a new size of the terminal, may wait for the next frame.
const FRAME: Duration = Duration::from_millis(200);

/// Columns and lines of a frame that is printed.
const ONCE: (u16, u16) = (110, 40);

pub fn command(options: &Options) -> Result<ExitCode> {
    // Before any thread starts: one that does not block a signal would be ended by it.
    let _blocked = (!options.once).then(signals::block);
    let target = Target::attach(options.pid)?;
    let process = Watched::new(options.pid)?;
    let interval = Duration::from_secs_f64(options.interval);
    let mut screen = Screen::new(interval);
    screen.add(target.snapshot()?);
    if options.once {
        std::thread::sleep(interval);
        screen.add(target.snapshot()?);
        screen.print();
        print::text(&frame_text(&screen)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(terminal, "top needs a terminal; `hakmem top --once {}` prints one frame", options.pid);
    let mut terminal = Terminal::new()?;
    let outcome = follow(&mut terminal, Worker::start(target)?, &process, &mut screen);
    drop(terminal);
    signals::interrupted(); // it has done what it was sent for
    outcome.map(|()| ExitCode::SUCCESS)
}

fn frame_text(screen: &Screen) -> Result<String> {
    let mut terminal = ratatui::Terminal::new(TestBackend::new(ONCE.0, ONCE.1))?;
    let frame = terminal.draw(|frame| screen.draw(frame))?;
    let rows = frame.buffer.content.chunks(ONCE.0.into());
    let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_string());
    Ok(lines.collect::<Vec<_>>().join("\n").trim_end().to_string() + "\n")
}

/// Until a key, a signal, or the terminal's end.
fn follow(terminal: &mut Terminal, mut worker: Worker, process: &Watched, screen: &mut Screen) -> Result<()> {
    let mut due = Instant::now() + screen.interval;
    let mut asked = false;
    loop {
        for answer in worker.answers() {
            match answer {
                Answer::Said(text) => screen.say(text),
                Answer::Snapshot(outcome) => {
                    asked = false;
                    match outcome {
                        Ok(snapshot) => screen.add(*snapshot),
                        Err(_) if process.has_ended() => screen.end(),
                        Err(error) => screen.say(format!("{error:#}")),
                    }
                }
            }
        }
        if !screen.has_ended() && process.has_ended() {
            screen.end();
        }
        if screen.is_following() && !asked && Instant::now() >= due {
            worker.ask(Question::Snapshot);
            (asked, due) = (true, Instant::now() + screen.interval);
        }
        if !terminal.draw(screen)? {
            return Ok(());
        }
        let wait = due.saturating_duration_since(Instant::now()).min(FRAME);
        let idle = asked || !screen.is_following();
        match terminal.wait(worker.descriptor(), if idle { FRAME } else { wait })? {
            Event::End => return Ok(()),
            Event::Other => {}
            Event::Keys(keys) => {
                for key in keys {
                    match screen.press(key) {
                        Action::None => {}
                        Action::Quit => return Ok(()),
                        Action::Purge => worker.ask(Question::Purge),
                        Action::Profile => worker.ask(Question::Profile),
                    }
                }
            }
        }
    }
}
