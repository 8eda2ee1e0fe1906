//! What all pages share: looks, the script that sorts tables, and text made safe for HTML and XML.

use crate::shown::is_obeyed;

/// Of drawings, which are files of their own, too.
pub const CHART_STYLE: &str = include_str!("../assets/chart.css");
pub const STYLE: &str = include_str!("../assets/report.css");
pub const SCRIPT: &str = include_str!("../assets/report.js");

/// Of report.js. If it is another's, the browser refuses the script and names the right one.
pub const SCRIPT_HASH: &str = "sha256-1ubFZWV/lm6AeBxtIKGZU/N2Kd9Akd6POrpP6WuQ2XM=";

/// For HTML and XML alike, in text and in attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' => safe.push(letter),
            // XML has no way to write these.
            _ if is_obeyed(letter) || matches!(letter, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            _ => safe.push(letter),
        }
    }
    safe
}
