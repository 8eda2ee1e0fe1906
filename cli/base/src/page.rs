//! Pages: one file each that needs nothing beside itself, and whose scripts are those named here only.
//!
//! Elements are made by maud's `html!`, which escapes every text that is put into them: only what is `Markup` already,
//! or is wrapped in `PreEscaped`, goes in as it is. Drawings are the exception: they write XML and call `escape`.
// SPDX-License-Identifier: MIT

use crate::shown::is_obeyed;
use maud::{html, Markup, PreEscaped};

/// The style of drawings, which may be files of their own.
pub const CHART_STYLE: &str = include_str!("../assets/chart.css");
const STYLE: &str = include_str!("../assets/report.css");

pub struct Script {
    pub source: &'static str,
    /// If it is that of another source, the browser refuses the script and names the right one.
    pub hash: &'static str,
}

/// Sorts tables.
pub const TABLES: Script =
    Script { source: include_str!("../assets/report.js"), hash: "sha256-1ubFZWV/lm6AeBxtIKGZU/N2Kd9Akd6POrpP6WuQ2XM=" };

pub struct Page<'a> {
    pub title: &'a str,
    /// Besides those of all pages.
    pub styles: &'a [&'a str],
    pub scripts: &'a [Script],
    /// What the page may do besides, as a Content-Security-Policy says it; each ends with a semicolon.
    pub policy: &'a str,
    /// Elements of the head besides.
    pub head: Markup,
    pub body: Markup,
}

impl Page<'_> {
    pub fn text(self) -> String {
        let hashes: Vec<String> = self.scripts.iter().map(|script| format!("'{}'", script.hash)).collect();
        let page = html! {
            (PreEscaped("<!doctype html>\n"))
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content={
                        "default-src 'none'; style-src 'unsafe-inline'; script-src " (hashes.join(" ")) "; "
                        (self.policy)
                        "base-uri 'none'; form-action 'none'"
                    };
                    (window())
                    (self.head)
                    title { (self.title) }
                    (styles(self.styles))
                }
                body {
                    (self.body)
                    @for script in self.scripts { script { (PreEscaped(script.source)) } }
                }
            }
            "\n"
        };
        shown(page)
    }
}

/// Those of all pages, and a page's own.
pub fn styles(own: &[&str]) -> Markup {
    html! { style { (PreEscaped(CHART_STYLE)) (PreEscaped(STYLE)) @for style in own { (PreEscaped(style)) } } }
}

/// As large as letters are elsewhere, and as light or dark.
pub fn window() -> Markup {
    html! {
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
    }
}

/// The page, without the characters that would reverse or hide the text beside them.
pub fn shown(page: Markup) -> String {
    let text = page.into_string();
    match text.contains(is_unseen) {
        true => text.replace(is_unseen, "\u{fffd}"),
        false => text,
    }
}

/// Characters that have no place in a page, nor in XML.
fn is_unseen(letter: char) -> bool {
    !matches!(letter, '\t' | '\n') && is_obeyed(letter) || matches!(letter, '\u{fffe}' | '\u{ffff}')
}

/// A table in a box that scrolls by itself where the page is narrow.
pub fn boxed(label: &str, table: Markup) -> Markup {
    html! { div class="box" tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// The titles of a table's columns.
pub fn titles<'a>(titles: impl IntoIterator<Item = &'a str>) -> Markup {
    html! { thead { tr { @for title in titles { th scope="col" { (title) } } } } }
}

/// Text of a drawing, which is XML and may be a file of its own.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ if is_unseen(letter) => safe.push('\u{fffd}'),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the name of a program is markup of the page, or turns the text behind it around.
    #[test]
    fn text_is_no_markup() {
        let evil = "<b>\"&\u{202e}\x1b";
        let page = |body| Page { title: evil, styles: &[], scripts: &[TABLES], policy: "", head: html!(), body }.text();
        let text = page(html! { p title=(evil) { (evil) } });
        assert!(text.contains("<title>&lt;b&gt;&quot;&amp;\u{fffd}\u{fffd}</title>"), "{text}");
        assert!(text.contains("<p title=\"&lt;b&gt;&quot;&amp;\u{fffd}\u{fffd}\">&lt;b&gt;"), "{text}");
        assert!(text.contains(TABLES.source), "the browser would refuse it");
        assert_eq!(escape(evil), "&lt;b&gt;&quot;&amp;\u{fffd}\u{fffd}");
    }
}
