//! The thread of `top` that asks the process: it may take long, and the keys are not to wait for that.
// SPDX-License-Identifier: MIT

use crate::heap::{Snapshot, Target};
use crate::purge;
use anyhow::{ensure, Result};
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::mpsc::{channel, Receiver, Sender};

pub enum Question {
    Snapshot,
    Purge,
    /// Begins to sample allocations, or ends it.
    Profile,
}

pub enum Answer {
    Snapshot(Result<Box<Snapshot>>),
    Said(String),
}

/// As of `hakmem profile start`.
const SAMPLE_BYTES: u64 = 512 << 10;

pub struct Worker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// Counts answers (eventfd).
    bell: File,
}

impl Worker {
    pub fn start(target: Target) -> Result<Worker> {
        // SAFETY: the descriptor is new and ours.
        let bell = unsafe {
            let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            ensure!(descriptor >= 0, "eventfd: {}", Error::last_os_error());
            File::from_raw_fd(descriptor)
        };
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        let mut ring = bell.try_clone()?;
        std::thread::spawn(move || {
            for question in asked {
                if answer.send(answer_of(&target, question)).is_err() {
                    return;
                }
                let _ = ring.write_all(&1u64.to_ne_bytes()); // full: it rings already
            }
        });
        Ok(Worker { questions, answers, bell })
    }

    pub fn ask(&self, question: Question) {
        let _ = self.questions.send(question); // the thread lives as long as this
    }

    /// Readable when there is an answer.
    pub fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    pub fn answers(&mut self) -> Vec<Answer> {
        let _ = self.bell.read(&mut [0; 8]); // nothing: it has not rung
        self.answers.try_iter().collect()
    }
}

fn answer_of(target: &Target, question: Question) -> Answer {
    let said = |outcome: Result<String>| Answer::Said(outcome.unwrap_or_else(|error| format!("{error:#}")));
    match question {
        Question::Snapshot => Answer::Snapshot(target.snapshot().map(Box::new)),
        Question::Purge => said(purge::said(target)),
        Question::Profile => said(switch_profile(target)),
    }
}

fn switch_profile(target: &Target) -> Result<String> {
    if target.sampled_every()? != 0 {
        target.sample_every(0)?;
        return Ok(format!("no longer sampling; `hakmem flame {}` shows what was", target.pid()));
    }
    target.sample_every(SAMPLE_BYTES)?;
    Ok(format!("sampling allocations; `hakmem flame {}` shows them", target.pid()))
}
