//! The rows of the library's tables of options and tunables: their names, and their values as texts.
// SPDX-License-Identifier: MIT

use super::layout::{Field, Layout, TableFacts};
use super::remote::Remote;
use anyhow::{ensure, Context, Result};

/// The longest text in the library's tables.
const TEXT_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Number,
    Bytes,
    Choice,
    Text,
}

/// A row of the library's own table.
#[derive(Debug, Clone)]
pub struct OptionEntry {
    pub name: String,
    pub kind: Kind,
    pub live: bool,
    pub(super) initial: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) choices: String,
    pub(super) help: String,
}

/// The rows of the table at `place`.
pub fn entries(remote: &Remote, layout: &Layout, place: u64, rows: u64) -> Result<Vec<OptionEntry>> {
    let facts = &layout.table;
    let table = remote.read_vec(place, (facts.option_size * rows) as usize)?;
    table.chunks_exact(facts.option_size as usize).map(|entry| read_entry(remote, facts, entry)).collect()
}

/// A text of the library's own: no other has control characters.
pub fn table_text(remote: &Remote, at: u64) -> Result<String> {
    let text = remote.text(at)?;
    let plain = text.len() <= TEXT_MAX && !text.contains(char::is_control);
    ensure!(plain, "PID {}: its HAKMEM's tables are damaged: a text in them is none", remote.pid);
    Ok(text)
}

fn read_entry(remote: &Remote, facts: &TableFacts, entry: &[u8]) -> Result<OptionEntry> {
    let text = |field: Field| table_text(remote, field.of(entry));
    let kinds = [
        (facts.kind_number, Kind::Number),
        (facts.kind_bytes, Kind::Bytes),
        (facts.kind_choice, Kind::Choice),
        (facts.kind_text, Kind::Text),
    ];
    let kind = facts.option_kind.of(entry);
    let known = kinds.iter().find(|(value, _)| *value == kind);
    let unknown = || format!("PID {}: its HAKMEM has an option of an unknown kind {kind}", remote.pid);
    Ok(OptionEntry {
        name: text(facts.option_name)?,
        kind: known.with_context(unknown)?.1,
        live: facts.option_when.of(entry) == facts.live,
        initial: facts.option_initial.of(entry),
        min: facts.option_min.of(entry),
        max: facts.option_max.of(entry),
        choices: text(facts.option_choices)?,
        help: text(facts.option_help)?,
    })
}

impl OptionEntry {
    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Number => "number",
            Kind::Bytes => "bytes",
            Kind::Choice => "choice",
            Kind::Text => "text",
        }
    }

    /// What may be given.
    pub(super) fn values(&self) -> String {
        match self.kind {
            Kind::Choice => self.choices.clone(),
            Kind::Text => "text".to_string(),
            _ if self.max == i64::MAX as u64 => format!("{} or more", self.min),
            Kind::Bytes => format!("{} to {}", bytes_text(self.min), bytes_text(self.max)),
            Kind::Number => format!("{} to {}", self.min, self.max),
        }
    }

    pub(super) fn format(&self, value: u64) -> String {
        match self.kind {
            Kind::Choice => self.choices.split('|').nth(value as usize).unwrap_or("?").to_string(),
            Kind::Bytes => bytes_text(value),
            Kind::Text => String::new(),
            Kind::Number => value.to_string(),
        }
    }

    /// Words for 0 and 1, of options that may have these values.
    fn parse_switch(&self, text: &str) -> Option<u64> {
        let has_both = (self.kind == Kind::Number && self.max == 1) || self.choices.starts_with("0|1");
        let words = ["off", "on", "no", "yes", "false", "true"];
        let place = words.iter().position(|word| word.eq_ignore_ascii_case(text)).filter(|_| has_both)?;
        Some(place as u64 % 2)
    }

    /// The option's word.
    pub(super) fn parse(&self, text: &str) -> Option<u64> {
        let allowed = |value: &u64| (self.min..=self.max).contains(value);
        match self.kind {
            Kind::Choice => {
                let place = self.choices.split('|').position(|choice| choice.eq_ignore_ascii_case(text));
                place.map(|place| place as u64).or_else(|| self.parse_switch(text))
            }
            Kind::Text => None,
            Kind::Number | Kind::Bytes => {
                let number = self.parse_switch(text).or_else(|| parse_number(text));
                number.filter(allowed)
            }
        }
    }
}

/// Letters to be put in or left out to make the one name the other, their case aside.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + if x.eq_ignore_ascii_case(&y) { 0 } else { 2 };
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// The name that was meant, if one is near, as in the library: of three letters one may be too many, or missing.
pub(super) fn guess<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let near = names.map(|known| (distance(name, known), known)).min_by_key(|(distance, _)| *distance);
    match near {
        Some((distance, known)) if name.len() <= 32 && distance < (name.len() + 4) / 3 => {
            format!(", did you mean {known}?")
        }
        _ => String::new(),
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

/// "64", "64k", "64 MiB", "1.5g": as in the environment.
pub fn parse_number(text: &str) -> Option<u64> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (whole, mut rest) = text.split_at(digits(text));
    let mut fraction = None;
    if let Some(behind) = rest.strip_prefix('.').filter(|behind| digits(behind) > 0) {
        let (millionths, unit) = behind.split_at(digits(behind));
        fraction = format!("{millionths:0<6}")[..6].parse::<u64>().ok();
        rest = unit;
    }
    let unit = rest.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(rest).to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" if fraction.is_none() => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let part = (fraction.unwrap_or(0) << shift) / 1_000_000;
    whole.parse::<u64>().ok()?.checked_mul(1 << shift)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, min: u64, max: u64, choices: &str) -> OptionEntry {
        let (name, help, choices) = ("X".to_string(), String::new(), choices.to_string());
        OptionEntry { name, kind, live: true, initial: 0, min, max, choices, help }
    }

    #[test]
    fn values_are_parsed_as_the_library_does() {
        let bytes = entry(Kind::Bytes, 0, 1 << 30, "");
        for (text, value) in [("0", 0), ("64k", 64 << 10), ("3MiB", 3 << 20), ("2mb", 2 << 20), ("1G", 1 << 30)] {
            assert_eq!(bytes.parse(text), Some(value), "{text}");
        }
        for (text, value) in [("0.5g", 1 << 29), ("1.5 MiB", 3 << 19), ("0.0000019k", 0), ("1 k", 1024)] {
            assert_eq!(bytes.parse(text), Some(value), "{text}");
        }
        for text in ["", "k", "-1", "1x", "2g", "1 2", "99999999999999999999", "b", "1kbx", "1.5", "1.g", ".5g", "50%"]
        {
            assert_eq!(bytes.parse(text), None, "{text}");
        }
        for text in ["1b", "1ki", "1kbb", "1  k", "1k ", "on"] {
            assert_eq!(bytes.parse(text), None, "{text}");
        }
        let switch = entry(Kind::Number, 0, 1, "");
        for (text, value) in [("on", 1), ("True", 1), ("yes", 1), ("1", 1), ("OFF", 0), ("no", 0), ("false", 0)] {
            assert_eq!(switch.parse(text), Some(value), "{text}");
        }
        assert_eq!(entry(Kind::Number, 0, 10, "").parse("on"), None);
        assert_eq!(entry(Kind::Choice, 0, 2, "0|1|json").parse("on"), Some(1));
        assert_eq!(guess("HARDLIMIT", ["PURGE", "HARD_LIMIT"].into_iter()), ", did you mean HARD_LIMIT?");
        assert_eq!(guess("FOO", ["PURGE", "HARD_LIMIT"].into_iter()), "");
        let choice = entry(Kind::Choice, 0, 2, "never|auto|always");
        assert_eq!((choice.parse("AUTO"), choice.parse("often")), (Some(1), None));
    }

    #[test]
    fn bytes_are_written_exactly() {
        assert_eq!((bytes_text(0), bytes_text(1 << 20), bytes_text(1536)), ("0".into(), "1 MiB".into(), "1536".into()));
        assert_eq!(bytes_text(512 << 20), "512 MiB");
    }
}
