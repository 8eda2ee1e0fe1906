//! Text from outside, as it is shown: the command lines, file names and symbols of other programs may hold anything.
//!
//! There is one function for each medium, called where the text is put in; print.rs, which everything printed goes
//! through, calls `lines` once more, so that what was forgotten cannot do more than be coloured. HTML, SVG and other
//! XML have page.rs.
// SPDX-License-Identifier: MIT

use std::borrow::Cow;
use std::fmt::Write;

/// What a terminal obeys instead of showing it: control characters, and those that reverse or hide the text beside
/// them.
pub fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn push_visible(out: &mut String, letter: char) {
    let _ = match letter {
        '\n' => write!(out, "\\n"),
        '\t' => write!(out, "\\t"),
        '\r' => write!(out, "\\r"),
        letter if letter.is_ascii() => write!(out, "\\x{:02x}", u32::from(letter)),
        letter => write!(out, "\\u{{{:x}}}", u32::from(letter)),
    };
}

/// On a terminal, within a line: `\x1b[31m`.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_obeyed(letter) {
            true => push_visible(&mut out, letter),
            false => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// How long the colour is that `text` begins with: ESC [ numbers m.
fn colour_bytes(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\x1b[")?;
    let numbers = rest.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    rest[numbers..].starts_with('m').then_some(2 + numbers + 1)
}

/// All that is printed at once: its line breaks and tabs stay, and where it is coloured its colours.
pub fn lines(text: &str, coloured: bool) -> Cow<'_, str> {
    let is_kept = |letter: char| matches!(letter, '\n' | '\t');
    if !text.contains(|letter: char| is_obeyed(letter) && !is_kept(letter)) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(letter) = rest.chars().next() {
        let colour = colour_bytes(rest).filter(|_| coloured);
        let taken = colour.unwrap_or(letter.len_utf8());
        match colour.is_none() && is_obeyed(letter) && !is_kept(letter) {
            true => push_visible(&mut out, letter),
            false => out.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

/// The value of a Prometheus label, between its quotes.
pub fn label(text: &str) -> String {
    line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// A JSON document: serde escapes what JSON forbids, this the rest of what a terminal obeys. It stands within strings
/// only.
pub fn json(document: String) -> String {
    let is_raw = |letter: char| is_obeyed(letter) && !letter.is_ascii_control() || letter == '\x7f';
    if !document.contains(is_raw) {
        return document;
    }
    let mut out = String::with_capacity(document.len() + 16);
    for letter in document.chars() {
        match is_raw(letter) {
            true => drop(write!(out, "\\u{:04x}", u32::from(letter))),
            false => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "\x1b]0;OWNED\x07\x1b[31mred\r\n\"\\\u{9b}2J\u{202e}\x7f ü";

    fn is_safe(text: &str) -> bool {
        !text.contains(is_obeyed)
    }

    /// Else a program's name changes the title of root's terminal, clears it, or types into it.
    #[test]
    fn control_characters_are_shown() {
        assert_eq!(line(EVIL), "\\x1b]0;OWNED\\x07\\x1b[31mred\\r\\n\"\\\\u{9b}2J\\u{202e}\\x7f ü");
        assert!(is_safe(&line(EVIL)) && is_safe(&label(EVIL)));
        assert!(matches!(line("plain ü"), Cow::Borrowed(_)));
    }

    #[test]
    fn only_colours_of_coloured_text_stay() {
        assert_eq!(lines("\x1b[1ma\x1b[0m\tb\n\x1b[38;5;9mc", true), "\x1b[1ma\x1b[0m\tb\n\x1b[38;5;9mc");
        assert_eq!(lines("\x1b[1ma\n", false), "\\x1b[1ma\n");
        assert_eq!(lines("\x1b[2Ja\x1b[1\x1b", true), "\\x1b[2Ja\\x1b[1\\x1b");
        assert_eq!(lines("\x1b]0;x\x07\x1bm", true), "\\x1b]0;x\\x07\\x1bm");
    }

    #[test]
    fn json_stays_the_same_value() {
        let safe = json(serde_json::to_string(EVIL).unwrap());
        assert!(is_safe(&safe), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), EVIL);
    }

    #[test]
    fn labels_are_quoted() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\\\nd");
        let text = label(EVIL);
        let unescaped = text.replace("\\\\", "").replace("\\\"", "");
        assert!(!unescaped.contains(['"', '\\']), "{text}");
    }
}
