//! Options and purging of another process: each is one word written.
//!
//! A purge is done by each thread at the end of its next slow path, and by the purger, which then also empties what
//! sleeping threads hold back. A parked purger waits for its word to change: the word is written, and its wait
//! interrupted, as by a debugger that attaches for a moment, so that the kernel looks at the word again.
// SPDX-License-Identifier: MIT

use super::layout::{word, Field};
use super::model::OptionValue;
use super::reader::Reader;
use super::remote::Remote;
use super::rows::{guess, Kind};
use anyhow::{bail, ensure, Context, Result};
use std::fs;
use std::time::{Duration, Instant};

/// A thread that is asked to stop does so at once, unless the kernel has it.
const WAIT_FOR_STOP: Duration = Duration::from_secs(1);
/// What came of a purge.
#[derive(Debug, Clone, Copy)]
pub struct Purged {
    /// Threads in whose name it was done, and those that had not come to it when this was written.
    pub done: usize,
    pub waiting: usize,
    /// Has the program a thread for it?
    pub purger: bool,
}

impl Reader {
    // ---- options ----

    pub fn read_options(&self) -> Result<Vec<OptionValue>> {
        let (places, facts) = (&self.layout.places, &self.layout.table);
        let read = |place| self.remote.read_vec(place, self.options.len() * 8);
        let (fixed, live) = (read(places.start_options)?, read(places.live_options)?);
        let each = self.options.iter().zip(0..).map(|(entry, number)| {
            let value = match entry.kind {
                Kind::Text => self.remote.text(places.option_texts + number as u64 * facts.text_bytes)?,
                _ => entry.format(word(if entry.live { &live } else { &fixed }, 8 * number)),
            };
            Ok(OptionValue {
                name: entry.name.clone(),
                kind: entry.kind_name().to_string(),
                value,
                default: entry.format(entry.initial),
                live: entry.live,
                values: entry.values(),
                help: entry.help.clone(),
            })
        });
        each.collect()
    }

    /// Does it run in secure mode?
    pub fn is_secure(&self) -> Result<bool> {
        Ok(self.read_options()?.iter().any(|option| option.name == "SECURE" && option.value == "1"))
    }

    /// Changes a LIVE option or a tunable. Returns its name, and its value before and after.
    pub fn set_option(&self, name: &str, text: &str) -> Result<(String, String, String)> {
        if let Some((place, addresses, value)) = self.tuned_setting(name, text)? {
            let (before, after) = self.set_tunable(place, &addresses, value)?;
            return Ok((self.tunables[place].name.clone(), before, after));
        }
        let (place, value) = self.setting(name, text)?;
        let entry = &self.options[place];
        let before = self.read_options()?[place].value.clone();
        self.remote.write(self.layout.places.live_options + place as u64 * 8, &value.to_ne_bytes())?;
        self.tell_threads()?;
        Ok((entry.name.clone(), before, self.read_options()?[place].value.clone()))
    }

    /// Fails if the option or tunable may not be set to this.
    pub fn check_setting(&self, name: &str, text: &str) -> Result<()> {
        match self.tuned_setting(name, text)? {
            Some(_) => Ok(()),
            None => self.setting(name, text).map(|_| ()),
        }
    }

    /// The option's number and the word to write; fails if it may not be set, or not to this.
    fn setting(&self, name: &str, text: &str) -> Result<(usize, u64)> {
        let bare = match name.get(..7) {
            Some(prefix) if prefix.eq_ignore_ascii_case("HAKMEM_") => &name[7..],
            _ => name,
        };
        let place = self.options.iter().position(|entry| entry.name.eq_ignore_ascii_case(bare));
        let guess = || guess(bare, self.options.iter().map(|entry| entry.name.as_str()));
        let place = place.with_context(|| format!("{name}: no such option{}; `hakmem options` lists them", guess()))?;
        let entry = &self.options[place];
        ensure!(
            entry.name != "GUARD_SAMPLE_BYTES" || !self.is_secure()?,
            "GUARD_SAMPLE_BYTES has no effect with HAKMEM_SECURE=1, whose checks cover all blocks"
        );
        ensure!(
            entry.live,
            "{} is fixed when the program starts: start it with HAKMEM_{}={text}",
            entry.name,
            entry.name
        );
        let expected = || format!("{}={text}: expected {}", entry.name, entry.values());
        Ok((place, entry.parse(text).with_context(expected)?))
    }

    // ---- purging ----

    /// Asks for a purge. Returns the word that each thread shows when it has done it, and whether a purger runs.
    pub fn want_purge(&self) -> Result<(u64, bool)> {
        let at = self.layout.places.asked + self.layout.table.purge_wanted.at as u64;
        let wanted = self.remote.number(at)?.wrapping_add(1);
        self.remote.write(at, &wanted.to_ne_bytes())?;
        self.tell_threads()?;
        Ok((wanted, self.wake_purger()?))
    }

    /// Changes the word that each thread compares in its next allocation that is not a hit of a list.
    fn tell_threads(&self) -> Result<()> {
        let field = self.layout.profile.requests;
        let at = self.layout.places.asked.wrapping_add(field.at as u64);
        let asked = Field { at: 0, bytes: field.bytes }.of(&self.remote.read_vec(at, field.bytes)?).wrapping_add(1);
        self.remote.write(at, &asked.to_ne_bytes()[..field.bytes])
    }

    /// How many heaps in use have purged, and how many have not.
    pub fn threads_done(&self, wanted: u64) -> Result<(usize, usize)> {
        let (facts, mut done, mut waiting) = (&self.layout.heap, 0, 0);
        self.each_heap(|_, heap| {
            if facts.in_use.of(heap) != 0 {
                *(if facts.purge_seen.of(heap) == wanted { &mut done } else { &mut waiting }) += 1;
            }
            Ok(())
        })?;
        Ok((done, waiting))
    }

    /// What the purger does, and the address of that word; None: its page does not exist yet.
    fn purger_state(&self) -> Result<Option<(u64, u64)>> {
        let page = self.remote.number(self.layout.places.fork_page)?;
        if page == 0 {
            return Ok(None);
        }
        let field = self.layout.table.purger;
        let at = page.wrapping_add(field.at as u64);
        Ok(Some((Field { at: 0, bytes: field.bytes }.of(&self.remote.read_vec(at, field.bytes)?), at)))
    }

    pub fn has_purger(&self) -> Result<bool> {
        let none = self.layout.table.purger_none;
        Ok(self.purger_state()?.is_some_and(|(state, _)| state != none))
    }

    /// True: there is a purger, and it runs.
    fn wake_purger(&self) -> Result<bool> {
        let facts = &self.layout.table;
        let Some((state, at)) = self.purger_state()? else {
            return Ok(false);
        };
        if state == facts.purger_parked {
            self.remote.write(at, &facts.purger_runs.to_ne_bytes()[..facts.purger.bytes])?;
            interrupt_wait(&self.remote, at)?;
        }
        Ok(state != facts.purger_none)
    }
}

/// Makes the thread that waits in the kernel for this word look at it again.
fn interrupt_wait(remote: &Remote, address: u64) -> Result<()> {
    let (futex, Some(process)) = (libc::SYS_futex.to_string(), remote.process()) else { return Ok(()) };
    for thread in process.threads() {
        let text = fs::read_to_string(process.path(format_args!("task/{thread}/syscall"))).unwrap_or_default();
        let words: Vec<&str> = text.split(' ').collect();
        let first = words.get(1).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        if words[0] == futex && first == Some(address) {
            return interrupt(thread).with_context(|| format!("PID {}: its purger thread sleeps", remote.pid));
        }
    }
    Ok(()) // it has just woken by itself
}

fn interrupt(thread: i32) -> Result<()> {
    // SAFETY: no memory of ours is involved but `status`.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) != 0 {
            bail!("it cannot be interrupted: {}", std::io::Error::last_os_error());
        }
        libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0);
        let (mut status, begun) = (0, Instant::now());
        while libc::waitpid(thread, &mut status, libc::__WALL | libc::WNOHANG) == 0 {
            ensure!(begun.elapsed() < WAIT_FOR_STOP, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0);
    }
    Ok(())
}
