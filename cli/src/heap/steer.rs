//! Options and purging of another process: each is one word written.
//!
//! A purge is done by each thread at the end of its next slow path, and by the purger, which then also empties what
//! sleeping threads hold back. A parked purger waits for its word to change: the word is written, and its wait
//! interrupted, as by a debugger that attaches for a moment, so that the kernel looks at the word again.

use super::layout::{word, Field, Layout};
use super::model::OptionValue;
use super::reader::Target;
use super::remote::Remote;
use anyhow::{bail, ensure, Context, Result};
use std::fs;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The purger's next look is 0.1 s away at most, and it may have much to do.
const WAIT_FOR_PURGER: Duration = Duration::from_secs(5);
const WAIT_FOR_THREADS: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Number,
    Bytes,
    Choice,
    Text,
    List,
}

/// A row of the library's own table.
#[derive(Debug, Clone)]
pub struct OptionEntry {
    pub name: String,
    pub kind: Kind,
    pub live: bool,
    initial: u64,
    least: u64,
    most: u64,
    choices: String,
    help: String,
}

pub fn entries(remote: &Remote, layout: &Layout) -> Result<Vec<OptionEntry>> {
    let (size, count) = (layout.size("sizeof option_entry")?, layout.size("OPTION_COUNT")?);
    let table = remote.read_vec(layout.place("option_table")?, size * count)?;
    table.chunks_exact(size).map(|entry| read_entry(remote, layout, entry)).collect()
}

fn read_entry(remote: &Remote, layout: &Layout, entry: &[u8]) -> Result<OptionEntry> {
    let number = |name: &str| Ok::<u64, anyhow::Error>(layout.field(&format!("option_entry.{name}"))?.of(entry));
    let text = |name: &str| remote.text(number(name)?);
    let kinds = [
        ("OPTION_NUMBER", Kind::Number),
        ("OPTION_BYTES", Kind::Bytes),
        ("OPTION_CHOICE", Kind::Choice),
        ("OPTION_TEXT", Kind::Text),
        ("OPTION_LIST", Kind::List),
    ];
    let kind = number("kind")? & 0xffff_ffff;
    let known = kinds.iter().find(|(name, _)| layout.constant(name).is_ok_and(|value| value == kind));
    Ok(OptionEntry {
        name: text("name")?,
        kind: known.with_context(|| format!("an option of an unknown kind {kind}"))?.1,
        live: number("when")? & 0xffff_ffff == layout.constant("LIVE")?,
        initial: number("initial")?,
        least: number("least")?,
        most: number("most")?,
        choices: text("choices")?,
        help: text("help")?,
    })
}

impl OptionEntry {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Number => "number",
            Kind::Bytes => "bytes",
            Kind::Choice => "choice",
            Kind::Text => "text",
            Kind::List => "list",
        }
    }

    /// What may be given.
    fn values(&self) -> String {
        match self.kind {
            Kind::Choice => self.choices.clone(),
            Kind::Text => "text".to_string(),
            _ if self.most == i64::MAX as u64 => format!("{} or more", self.least),
            Kind::Bytes => format!("{} to {}", bytes_text(self.least), bytes_text(self.most)),
            Kind::List => format!("{} to {}, or seven such: 48/48/48/48/48/48/48", self.least, self.most),
            Kind::Number => format!("{} to {}", self.least, self.most),
        }
    }

    fn format(&self, value: u64) -> String {
        match self.kind {
            Kind::Choice => self.choices.split('|').nth(value as usize).unwrap_or("?").to_string(),
            Kind::Bytes => bytes_text(value),
            Kind::Text => String::new(),
            Kind::Number | Kind::List => value.to_string(),
        }
    }

    /// Numbers as the option's words: one, or seven of a list.
    fn parse(&self, text: &str, list_length: usize) -> Option<Vec<u64>> {
        let allowed = |value: &u64| (self.least..=self.most).contains(value);
        match self.kind {
            Kind::Choice => {
                let place = self.choices.split('|').position(|choice| choice.eq_ignore_ascii_case(text))?;
                Some(vec![place as u64])
            }
            Kind::Text => None,
            Kind::Number | Kind::Bytes => parse_number(text).filter(allowed).map(|value| vec![value]),
            Kind::List => {
                let all: Option<Vec<u64>> = text.split('/').map(|part| parse_number(part).filter(allowed)).collect();
                all.and_then(|all| match all.len() {
                    1 => Some(vec![all[0]; list_length]),
                    length if length == list_length => Some(all),
                    _ => None,
                })
            }
        }
    }
}

/// As the library writes it: the largest unit that divides it.
fn bytes_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes != 0 && bytes % (1 << shift) == 0) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// "64", "64k", "64 MiB": as in the environment.
fn parse_number(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim_start().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" if unit.is_empty() => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// What came of a purge.
#[derive(Debug, Clone, Copy)]
pub struct Purged {
    pub bytes: u64,
    /// Threads in whose name it was done, and those that had not come to it when this was written.
    pub done: usize,
    pub waiting: usize,
    pub purger: bool,
}

impl Target {
    // ---- options ----

    pub fn read_options(&self) -> Result<Vec<OptionValue>> {
        let values = self.remote.read_vec(self.layout.place("option_values")?, self.options.len() * 8)?;
        let text_bytes = self.layout.size("OPTION_TEXT_BYTES")? as u64;
        let texts = self.layout.place("option_texts")?;
        let caps = self.remote.read_vec(self.layout.place("option_l2_caps")?, self.layout.size("L2_CAP_RANGES")?)?;
        let caps: Vec<String> = caps.iter().map(u8::to_string).collect();
        let each = self.options.iter().zip(values.chunks_exact(8)).zip(0..).map(|((entry, value), number)| {
            let value = match entry.kind {
                Kind::Text => self.remote.text(texts + number * text_bytes)?,
                Kind::List if caps.iter().any(|cap| *cap != caps[0]) => caps.join("/"),
                _ => entry.format(word(value, 0)),
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

    /// Changes a LIVE option. Returns its name, and its value before and after.
    pub fn set_option(&self, name: &str, text: &str) -> Result<(String, String, String)> {
        let bare = match name.get(..7) {
            Some(prefix) if prefix.eq_ignore_ascii_case("HAKMEM_") => &name[7..],
            _ => name,
        };
        let place = self.options.iter().position(|entry| entry.name.eq_ignore_ascii_case(bare));
        let place = place.with_context(|| format!("{name}: no such option; `hakmem options` lists them"))?;
        let entry = &self.options[place];
        ensure!(
            entry.live,
            "{} is fixed when the program starts: start it with HAKMEM_{}={text}",
            entry.name,
            entry.name
        );
        let ranges = self.layout.size("L2_CAP_RANGES")?;
        let expected = || format!("{}={text}: expected {}", entry.name, entry.values());
        let words = entry.parse(text, ranges).with_context(expected)?;
        let before = self.read_options()?[place].value.clone();
        if entry.kind == Kind::List {
            let caps: Vec<u8> = words.iter().map(|&cap| cap as u8).collect();
            self.remote.write(self.layout.place("option_l2_caps")?, &caps)?;
        }
        self.remote.write(self.layout.place("option_values")? + place as u64 * 8, &words[0].to_ne_bytes())?;
        Ok((entry.name.clone(), before, self.read_options()?[place].value.clone()))
    }

    // ---- purging ----

    /// Asks for a purge and waits a moment for it.
    pub fn purge(&self) -> Result<Purged> {
        ensure!(self.is_serving(), "PID {}: nothing has been allocated from HAKMEM in it", self.pid());
        let at = self.layout.inspect + self.layout.field("inspect.purge_wanted")?.at as u64;
        let before = self.given_back()?;
        let wanted = self.remote.number(at)?.wrapping_add(1);
        self.remote.write(at, &wanted.to_ne_bytes())?;
        let purger = self.wake_purger()?;
        let begun = Instant::now();
        loop {
            let (done, waiting) = self.threads_done(wanted)?;
            let limit = if purger && done == 0 { WAIT_FOR_PURGER } else { WAIT_FOR_THREADS };
            if waiting == 0 || begun.elapsed() >= limit {
                let bytes = self.given_back()?.saturating_sub(before);
                return Ok(Purged { bytes, done, waiting, purger });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Bytes purged since the program began.
    fn given_back(&self) -> Result<u64> {
        let counters = self.read_counters()?;
        let of = |name: &str| counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value);
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        Ok(of("purged_slots") * self.layout.constant("SLOT_BYTES")? + of("trimmed_pages") * page)
    }

    /// How many heaps in use have purged, and how many have not.
    fn threads_done(&self, wanted: u64) -> Result<(usize, usize)> {
        let facts = &self.heap_facts;
        let heaps = self.heaps()?;
        let used = heaps.iter().filter(|heap| facts.in_use.of(&heap.bytes) != 0);
        let (done, waiting): (Vec<_>, Vec<_>) = used.partition(|heap| facts.purge_seen.of(&heap.bytes) == wanted);
        Ok((done.len(), waiting.len()))
    }

    /// True: there is a purger, and it runs.
    fn wake_purger(&self) -> Result<bool> {
        let page = self.remote.number(self.layout.place("fork_page")?)?;
        if page == 0 {
            return Ok(false);
        }
        let at = page + self.layout.field("fork_page.purger")?.at as u64;
        let mut state = [0; 4];
        self.remote.read(at, &mut state)?;
        let state = Field { at: 0, bytes: 4 }.of(&state);
        if state == self.layout.constant("PURGER_PARKED")? {
            let runs = self.layout.constant("PURGER_RUNS")? as u32;
            self.remote.write(at, &runs.to_ne_bytes())?;
            interrupt_wait(&self.remote, at)?;
        }
        Ok(state != self.layout.constant("PURGER_NONE")?)
    }
}

/// Makes the thread that waits in the kernel for this word look at it again.
fn interrupt_wait(remote: &Remote, address: u64) -> Result<()> {
    let futex = libc::SYS_futex.to_string();
    for task in fs::read_dir(format!("/proc/{}/task", remote.pid))?.flatten() {
        let text = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let words: Vec<&str> = text.split(' ').collect();
        let first = words.get(1).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        if words[0] == futex && first == Some(address) {
            let thread = task.file_name().to_string_lossy().parse::<i32>()?;
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
        let mut status = 0;
        libc::waitpid(thread, &mut status, libc::__WALL);
        libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, least: u64, most: u64, choices: &str) -> OptionEntry {
        let (name, help, choices) = ("X".to_string(), String::new(), choices.to_string());
        OptionEntry { name, kind, live: true, initial: 0, least, most, choices, help }
    }

    #[test]
    fn values_are_parsed_as_the_library_does() {
        let bytes = entry(Kind::Bytes, 0, 1 << 30, "");
        for (text, value) in [("0", 0), ("64k", 64 << 10), ("3MiB", 3 << 20), ("2mb", 2 << 20), ("1G", 1 << 30)] {
            assert_eq!(bytes.parse(text, 7), Some(vec![value]), "{text}");
        }
        for text in ["", "k", "-1", "1x", "2g", "1 2", "99999999999999999999", "b", "1kbx"] {
            assert_eq!(bytes.parse(text, 7), None, "{text}");
        }
        let choice = entry(Kind::Choice, 0, 2, "never|auto|always");
        assert_eq!((choice.parse("AUTO", 7), choice.parse("often", 7)), (Some(vec![1]), None));
        let list = entry(Kind::List, 1, 128, "");
        assert_eq!(list.parse("9", 7), Some(vec![9; 7]));
        assert_eq!(list.parse("1/2/3/4/5/6/7", 7), Some(vec![1, 2, 3, 4, 5, 6, 7]));
        assert_eq!((list.parse("1/2", 7), list.parse("0", 7), list.parse("129", 7)), (None, None, None));
    }

    #[test]
    fn bytes_are_written_exactly() {
        assert_eq!((bytes_text(0), bytes_text(1 << 20), bytes_text(1536)), ("0".into(), "1 MiB".into(), "1536".into()));
        assert_eq!(bytes_text(512 << 20), "512 MiB");
    }
}
