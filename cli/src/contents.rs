//! What a block is, by what is in it: the class of a C++ object, a text, a node of a list, or the first word that
//! blocks share.
//!
//!  1. A first word that points into a mapped file is named by the symbol there: a vtable's is the class, and without a
//!     symbol the class's type information in the program's memory has the name.
//!  2. A first word that is the address of a live block, or of memory elsewhere, is a pointer.
//!  3. Printable bytes are a text, also behind a short header, as strings have it that know their length.
//!  4. Behind a small number (a count of references) a second word may name the type, as in Python's objects. Two words
//!     may come before those: Python's collector links objects by them.
// SPDX-License-Identifier: MIT

use crate::budget::{self, Budget};
use crate::heap::blocks::{Block, Blocks, Copied};
use crate::heap::remote::{Area, Remote};
use crate::symbols::{Demangler, Module, Names as Symbols, Origin};
use anyhow::Result;
use hakmem_base::say;
use hakmem_base::shown;
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How much of a block is looked at.
const LOOKED_AT: u64 = 4096;
/// The shortest text.
const TEXT_MIN: usize = 4;
/// What may come before a text, and how long it must be then.
const HEADER_MAX: usize = 24;
const TEXT_BEHIND_MIN: usize = 8;
/// A count of references is below.
const COUNT_MAX: u64 = 1 << 32;
/// The number of kinds that a tally can have.
const KINDS_MAX: usize = 1 << 16;
/// A first word makes a kind of its own when at least 8 blocks, and 1 in 100 of all blocks, begin with it.
const PATTERN_MIN: u64 = 8;
const PATTERN_SHARE: u64 = 100;
const EXAMPLES: usize = 3;
/// How many bytes of a text are shown.
const TEXT_SHOWN: usize = 32;
/// What an address that is known takes beside its name.
const KNOWN_BYTES: usize = 128;
/// How many bytes of a name are shown.
const NAME_SHOWN: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    /// An object of this C++ class.
    Object(Arc<str>),
    /// A variable that the first word points to, or the second one behind a count.
    Variable(Arc<str>),
    Type(Arc<str>),
    Function(Arc<str>),
    /// A pointer to a block of this size.
    Pointer(u64),
    PointerElsewhere,
    Text,
    TextBehind,
    Zeroes,
    Word(u64),
    Other,
}

impl Kind {
    fn category(&self) -> &'static str {
        match self {
            Kind::Object(_) => "object",
            Kind::Variable(_) => "variable",
            Kind::Type(_) => "type",
            Kind::Function(_) => "function",
            Kind::Pointer(_) | Kind::PointerElsewhere => "pointer",
            Kind::Text | Kind::TextBehind => "text",
            Kind::Zeroes => "zeroes",
            Kind::Word(_) => "word",
            Kind::Other => "other",
        }
    }

    /// Its name, or "".
    fn name(&self) -> &str {
        match self {
            Kind::Object(name) | Kind::Variable(name) | Kind::Type(name) | Kind::Function(name) => name,
            _ => "",
        }
    }

    fn text(&self) -> String {
        let name = budget::cut_to(self.name(), NAME_SHOWN);
        match self {
            Kind::Object(_) => format!("object of class {name}"),
            Kind::Variable(_) => format!("begins with a pointer to {name}"),
            Kind::Type(_) => format!("count, then a pointer to {name}"),
            Kind::Function(_) => format!("begins with a pointer to the function {name}"),
            Kind::Pointer(bytes) => format!("begins with a pointer to a block of {}", say::bytes(*bytes as f64)),
            Kind::PointerElsewhere => "begins with a pointer to memory outside the heap".into(),
            Kind::Text => "text".into(),
            Kind::TextBehind => "text behind a header".into(),
            Kind::Zeroes => "zeroes".into(),
            Kind::Word(word) => format!("begins with {word:#x}"),
            Kind::Other => "other contents".into(),
        }
    }
}

/// Blocks of one kind.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tally {
    pub category: &'static str,
    pub what: String,
    pub blocks: u64,
    pub bytes: u64,
    /// What only they lead to, if that was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_bytes: Option<u64>,
    /// The sizes of the smallest and the largest block.
    pub least_bytes: u64,
    pub most_bytes: u64,
    /// Addresses, in hexadecimal digits.
    pub examples: Vec<String>,
    /// What the first text begins with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Tally {
    /// "48", or "16 B to 2 KiB".
    pub fn sizes(&self) -> String {
        match self.least_bytes == self.most_bytes {
            true => say::bytes(self.least_bytes as f64),
            false => format!("{} to {}", say::bytes(self.least_bytes as f64), say::bytes(self.most_bytes as f64)),
        }
    }

    /// With the text that it begins with.
    pub fn described(&self) -> String {
        let text = if self.text.is_empty() { String::new() } else { format!(", as \"{}\"", self.text) };
        shown::line(&(self.what.clone() + &text)).into_owned()
    }

    fn add(&mut self, block: &Block, holds_bytes: Option<u64>) {
        self.holds_bytes = holds_bytes.map(|bytes| self.holds_bytes.unwrap_or(0) + bytes);
        self.least_bytes = if self.blocks == 0 { block.bytes } else { self.least_bytes.min(block.bytes) };
        self.most_bytes = self.most_bytes.max(block.bytes);
        self.blocks += 1;
        self.bytes += block.bytes;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{:#x}", block.address));
        }
    }

    fn join(&mut self, other: Tally) {
        self.least_bytes = if self.blocks == 0 { other.least_bytes } else { self.least_bytes.min(other.least_bytes) };
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.holds_bytes = other.holds_bytes.map(|bytes| self.holds_bytes.unwrap_or(0) + bytes);
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
    }
}

/// How much of the beginning is a text.
fn text_at(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let is_shown = |letter: char| !letter.is_control() || letter.is_ascii_whitespace();
    let text = match std::str::from_utf8(&bytes[..end]) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() + 4 > end => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?, // cut
        Err(_) => return None,
    };
    (text.len() >= TEXT_MIN && text.chars().all(is_shown)).then(|| text.chars().take(TEXT_SHOWN).collect())
}

/// A longer text behind a header.
fn text_behind(bytes: &[u8]) -> Option<String> {
    let at = (1..bytes.len().min(HEADER_MAX)).find(|&at| bytes[at] >= b' ')?;
    let end = bytes[at..].iter().position(|&byte| byte == 0)?;
    text_at(&bytes[at..at + end]).filter(|text| text.len() >= TEXT_BEHIND_MIN)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

/// The class, from what a demangler makes of its vtable or of its name's symbol: "{vtable(Node)}", "typeinfo name for
/// Node".
fn bare(shown: &str) -> String {
    let inner = shown.trim_start_matches('{').split_once('(').and_then(|(_, rest)| rest.strip_suffix(")}"));
    let name = inner.or_else(|| shown.split_once(" for ").map(|(_, name)| name));
    name.unwrap_or(shown).to_string()
}

/// As much of a name as is kept.
fn kept(name: String) -> Arc<str> {
    budget::cut(&name).into()
}

/// What addresses were found to lead to. The names are those of a program that somebody wrote.
struct Known {
    kinds: HashMap<u64, Kind>,
    left: Budget,
    is_full: bool,
}

impl Known {
    fn new() -> Known {
        Known { kinds: HashMap::new(), left: Budget::new(budget::CONTENTS), is_full: false }
    }

    /// The kind as it was found, or one without a name where names take too much memory.
    fn keep(&mut self, address: u64, kind: Kind) -> Kind {
        self.is_full |= !self.left.has(kind.name().len() + KNOWN_BYTES);
        if self.is_full {
            return Kind::PointerElsewhere;
        }
        self.kinds.insert(address, kind.clone());
        kind
    }
}

/// Names for addresses outside the heap.
struct Names {
    remote: Remote,
    areas: Vec<Area>,
    origin: Origin,
    demangler: Demangler,
    modules: HashMap<String, Option<Symbols>>,
    known: Known,
}

impl Names {
    fn area(&self, address: u64) -> Option<&Area> {
        let at = self.areas.partition_point(|area| area.start <= address).checked_sub(1)?;
        Some(&self.areas[at]).filter(|area| address < area.end && !area.access.starts_with("---"))
    }

    /// What a pointer to outside the heap leads to; None: nothing is there.
    fn kind(&mut self, address: u64) -> Option<Kind> {
        let area = self.area(address)?;
        if area.inode == 0 {
            return Some(Kind::PointerElsewhere);
        }
        if let Some(known) = self.known.kinds.get(&address) {
            return Some(known.clone());
        }
        if self.known.is_full {
            return Some(Kind::PointerElsewhere);
        }
        let found = self.in_file(area.clone(), address);
        Some(self.known.keep(address, found))
    }

    fn in_file(&mut self, area: Area, address: u64) -> Kind {
        let offset = address - area.start + area.offset;
        let (start, end, path) = (area.start, area.end, area.name.trim_end_matches(" (deleted)").to_string());
        let module = Module { start, end, offset: area.offset, path: path.clone(), build_id: String::new() };
        if self.modules.len() >= budget::OPEN {
            self.modules.clear();
        }
        let open = || Symbols::open_variables(&self.origin, &module);
        let found = self.modules.entry(path).or_insert_with(open).as_mut();
        match found.and_then(|symbols| symbols.variable(offset)) {
            Some(symbol) if symbol.is_vtable => Kind::Object(kept(bare(&symbol.name))),
            Some(symbol) if area.access.contains('x') => Kind::Function(kept(symbol.name)),
            Some(symbol) => Kind::Variable(kept(symbol.name)),
            None => match self.class_of_vtable(address) {
                Some(name) => Kind::Object(kept(name)),
                None => Kind::Variable(kept(format!("{}+{offset:#x}", module.name()))),
            },
        }
    }

    /// The word before a vtable's functions leads to the type information, whose second word leads to the name.
    fn class_of_vtable(&mut self, address: u64) -> Option<String> {
        let information = self.remote.number(address.checked_sub(8)?).ok()?;
        let name = self.remote.number(information.checked_add(8)?).ok()?;
        self.area(information).filter(|area| area.inode != 0)?;
        self.area(name).filter(|area| area.inode != 0)?;
        let name = self.remote.text(name).ok()?;
        let mangled = format!("_ZTS{}", name.trim_start_matches('*'));
        let shown = self.demangler.demangled(&mangled);
        (shown != mangled).then(|| bare(&shown))
    }
}

/// The kinds of some blocks, those with most bytes first.
pub struct Contents {
    names: Names,
    /// By kind, and by size if sizes are to be told apart.
    tallies: HashMap<(Kind, u64), Tally>,
    by_size: bool,
}

impl Contents {
    pub fn new(remote: Remote, directories: &[PathBuf], by_size: bool) -> Result<Contents> {
        let (modules, known) = (HashMap::new(), Known::new());
        let areas = remote.mappings(false)?;
        let origin = Origin::of(&remote, &areas, directories);
        let demangler = Demangler::new(&origin);
        let names = Names { remote, areas, origin, demangler, modules, known };
        Ok(Contents { names, tallies: HashMap::new(), by_size })
    }

    pub fn add(&mut self, block: &Block, holds_bytes: Option<u64>, blocks: &Blocks, copied: &mut Copied) {
        let mut bytes = Vec::with_capacity(block.bytes.min(LOOKED_AT) as usize);
        copied.each_part(block.address, block.bytes.min(LOOKED_AT), |part| bytes.extend(part));
        let (kind, text) = self.kind(&bytes, blocks);
        let key = (kind, if self.by_size { block.bytes } else { 0 });
        let is_new = !self.tallies.contains_key(&key);
        let key = if is_new && self.tallies.len() > KINDS_MAX { (Kind::Other, 0) } else { key };
        let tally = self.tallies.entry(key).or_insert_with(|| Tally { text, ..Tally::default() });
        tally.add(block, holds_bytes);
    }

    fn kind(&mut self, bytes: &[u8], blocks: &Blocks) -> (Kind, String) {
        let plain = |kind| (kind, String::new());
        if bytes.iter().all(|&byte| byte == 0) {
            return plain(Kind::Zeroes);
        }
        if let Some(kind) = self.typed(bytes, 16).or_else(|| self.typed(bytes, 0)) {
            return plain(kind);
        }
        let first = word(bytes, 0);
        let pointed = blocks.find(first).map(|block| Kind::Pointer(block.bytes));
        if let Some(kind) = pointed.or_else(|| self.names.kind(first)) {
            return plain(kind);
        }
        let text = text_at(bytes).map(|text| (Kind::Text, text));
        text.or_else(|| Some((Kind::TextBehind, text_behind(bytes)?))).unwrap_or_else(|| plain(Kind::Word(first)))
    }

    /// A count at this place, and behind it a pointer to a type.
    fn typed(&mut self, bytes: &[u8], at: usize) -> Option<Kind> {
        let is_count = (1..COUNT_MAX).contains(&word(bytes, at));
        match is_count.then(|| self.names.kind(word(bytes, at + 8)))?? {
            Kind::Variable(name) if !name.contains("+0x") => Some(Kind::Type(name)),
            _ => None,
        }
    }

    pub fn tallies(self) -> Vec<Tally> {
        let (mut all, mut other) = (Vec::new(), Tally::default());
        let blocks: u64 = self.tallies.values().map(|tally| tally.blocks).sum();
        let least = PATTERN_MIN.max(blocks / PATTERN_SHARE); // a first word that differs is no pattern
        for ((kind, _), tally) in self.tallies {
            match kind {
                Kind::Other => other.join(tally),
                Kind::Word(_) if tally.blocks < least => other.join(tally),
                kind => all.push(Tally { category: kind.category(), what: kind.text(), ..tally }),
            }
        }
        if other.blocks > 0 {
            all.push(Tally { category: Kind::Other.category(), what: Kind::Other.text(), ..other });
        }
        all.sort_by(|a, b| (b.bytes, b.blocks, &a.what).cmp(&(a.bytes, a.blocks, &b.what)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a library whose 100,000 symbols have a name of 65,000 bytes takes gigabytes.
    #[test]
    fn names_take_a_bounded_part_of_memory() {
        hakmem_fuzz::bounded(&"long names", || {
            let (mut known, mut all) = (Known::new(), Vec::new());
            for address in 0..100_000 {
                all.push(known.keep(address, Kind::Variable(kept("x".repeat(65_000)))));
            }
            assert!(known.is_full && known.kinds.len() > 500 && all[0] == known.kinds[&0]);
            assert_eq!(all.last(), Some(&Kind::PointerElsewhere));
            assert!(all[0].text().len() < 2 * NAME_SHOWN);
        });
    }

    #[test]
    fn texts_are_told_from_numbers() {
        let text = |bytes: &[u8]| text_at(bytes);
        assert_eq!(text(b"GET /index.html\0\x01\x02").as_deref(), Some("GET /index.html"));
        assert_eq!(text("Grüße\nund mehr\0".as_bytes()).as_deref(), Some("Grüße\nund mehr"));
        assert_eq!(text(&"xyzé".as_bytes()[..4]).as_deref(), None, "three letters, and a cut one");
        assert_eq!(text(b"abc\0"), None);
        assert_eq!(text(&[1, 2, 3, 4, 5, 6, 7, 8]), None);
        assert_eq!(text(&[0x80; 16]), None);
        assert_eq!(text(b""), None);
        assert_eq!(text_behind(b"\x09\x0a\x01user:1234\0\0").as_deref(), Some("user:1234"));
        assert_eq!(text_behind(b"\x01\0\0\0\0\0\0\0ab\0"), None);
    }
}
