//! The page: one file that needs nothing beside itself, or the live one that `hakmem view` serves.
//!
//! It holds a `Picture` as JSON; map.js draws it, live.js fetches the next ones. The browser runs these scripts only,
//! by their hashes, and the page asks nobody but its own server.

use super::Picture;
use crate::heap::model::Snapshot;
use hakmem_base::page::{escape, CHART_STYLE, SCRIPT as TABLES, SCRIPT_HASH as TABLES_HASH, STYLE as REPORT_STYLE};
use hakmem_base::shown;

const STYLE: &str = include_str!("../../assets/map.css");
const MAP: &str = include_str!("../../assets/map.js");
const LIVE: &str = include_str!("../../assets/live.js");
const BODY: &str = include_str!("../../assets/map.html");

/// Of map.js and live.js. If one is another's, the browser refuses the script and names the right one.
const MAP_HASH: &str = "sha256-Mw/IMHeympOD4pHydR6S2ixxT9GGSMYlwvaYNrYwBq0=";
const LIVE_HASH: &str = "sha256-Ca/Xz5Jo99/t/5jYNUGOo75ynKlECWEvr9UlQHpZ2ow=";

/// `token`: of the live page, which its requests carry.
pub fn html(snapshot: &Snapshot, token: Option<&str>) -> String {
    let picture = Picture::new(snapshot);
    // So that no text in it can end the element it is in.
    let data = shown::json(serde_json::to_string(&picture).unwrap_or_default()).replace('<', "\\u003c");
    let (hashes, connect, live, script) = match token {
        Some(_) => (format!("'{MAP_HASH}' '{TABLES_HASH}' '{LIVE_HASH}'"), "'self'", "", LIVE),
        None => (format!("'{MAP_HASH}' '{TABLES_HASH}'"), "'none'", "hidden", ""),
    };
    let live_script = if script.is_empty() { String::new() } else { format!("<script>{script}</script>") };
    format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}; connect-src {connect}; base-uri 'none';
form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<meta name="token" content="{}"><link rel="icon" href="data:,">
<title>{}</title>
<style>{}{REPORT_STYLE}{STYLE}</style></head>
<body>{}
<script id="data" type="application/json">{data}</script>
<script>{TABLES}</script><script>{MAP}</script>{live_script}</body></html>
"#,
        escape(token.unwrap_or_default()),
        escape(&format!("{} ({}): heap", super::name(picture.process), picture.process.pid)),
        CHART_STYLE,
        BODY.replace("LIVE", live).replace("HEADLINE", &escape(&picture.headline)),
    )
}

/// What the live page fetches.
pub fn json(snapshot: &Snapshot) -> String {
    shown::json(serde_json::to_string(&Picture::new(snapshot)).unwrap_or_default())
}
