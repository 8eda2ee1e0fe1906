//! The page: one file that needs nothing beside itself, or the live one that `hakmem view` serves.
//!
//! It holds a `Picture` as JSON; map.js draws it, live.js fetches the next ones. The browser runs these scripts only,
//! by their hashes, and the page asks nobody but its own server.
// SPDX-License-Identifier: MIT

use super::Picture;
use crate::heap::model::Snapshot;
use hakmem_base::page::{boxed, Page, Script, TABLES};
use hakmem_base::shown;
use maud::{html, Markup, PreEscaped};

const STYLE: &str = include_str!("../../assets/map.css");
const MAP: Script =
    Script { source: include_str!("../../assets/map.js"), hash: "sha256-ceVwV7vPQO7OsqZsxie3V7H5hsCW+I0IbMcudMfYEXw=" };
const LIVE: Script = Script {
    source: include_str!("../../assets/live.js"),
    hash: "sha256-Ca/Xz5Jo99/t/5jYNUGOo75ynKlECWEvr9UlQHpZ2ow=",
};

/// `token`: of the live page, which its requests carry.
pub fn html(snapshot: &Snapshot, token: Option<&str>) -> String {
    let picture = Picture::new(snapshot);
    // So that no text in it can end the element it is in.
    let data = shown::json(serde_json::to_string(&picture).unwrap_or_default()).replace('<', "\\u003c");
    let live = token.is_some();
    let scripts = [TABLES, MAP, LIVE];
    Page {
        title: &format!("{} ({}): heap", super::name(picture.process), picture.process.pid),
        styles: &[STYLE],
        scripts: if live { &scripts } else { &scripts[..2] },
        policy: match live {
            true => "img-src data:; connect-src 'self'; ",
            false => "img-src data:; connect-src 'none'; ",
        },
        head: html! {
            meta name="referrer" content="no-referrer";
            meta name="token" content=(token.unwrap_or_default());
            link rel="icon" href="data:,";
        },
        body: html! {
            (header(&picture.headline, live))
            main { (parts(live)) }
            script id="data" type="application/json" { (PreEscaped(data)) }
        },
    }
    .text()
}

fn header(headline: &str, live: bool) -> Markup {
    html! {
        header {
            p class="eyebrow" { "hakmem: a map of the heap" }
            h1 id="headline" { (headline) }
            p class="lead soft" id="lead" {}
            noscript {
                p class="lead" { "The map is drawn by the page's own script, which this browser does not run." }
            }
            div id="live" hidden[!live] {
                span id="status" role="status" { "Live" } button type="button" id="pause" { "Pause" } " "
                button type="button" id="purge" title="Asks the process to give back what it can" { "Purge" } " "
                span class="soft" id="said" role="status" {}
            }
        }
    }
}

/// What map.js and live.js fill.
fn parts(live: bool) -> Markup {
    html! {
        section {
            h2 { "What is resident" }
            div class="bar" id="bar" aria-hidden="true" {}
            ul class="legend" id="terms" aria-label="Terms" {}
        }
        section hidden[!live] {
            h2 { "Over time" }
            svg class="wave" id="wave" viewBox="0 0 1000 200" preserveAspectRatio="none" role="img"
                aria-label="The terms over time, one on the other" {}
            div class="axis" { span id="since" {} span id="most" {} }
            h3 { "Slow paths a second" }
            div id="rates" {}
        }
        section {
            h2 { "Map" }
            p class="note" {
                "Each tile is a SuperSlab of 2 MiB, each cell one of its 32 slots of 64 KiB, coloured by class and \
                 filled as far as its blocks are used. EMPTY slots are free and still resident, LAZY ones are free \
                 and the system's to take, UNUSED ones were purged or never used. Point at a slot, tap it, or use the \
                 arrow keys; pick classes to see where they are."
            }
            ul class="chips" id="chips" aria-label="Slots by class" {}
            div class="map" {
                canvas id="map" tabindex="0" role="application" aria-label="Slots; arrow keys move"
                    aria-describedby="tip" {}
                div id="cursor" hidden {}
                div id="tip" role="status" hidden {}
            }
        }
        section {
            h2 { "Classes" }
            (table("Classes", "classes", Some("wide"), "resident",
                &["class", "slabs", "live blocks", "cached", "free", "live", "cached", "free", "resident",
                    "free pages"]))
        }
        section class="pair" {
            div {
                h2 { "Threads' heaps" }
                (table("Heaps", "heaps", None, "", &["heap", "is", "slabs owned", "cached"]))
            }
            div { h2 { "Not the heap" } (table("Not the heap", "rest", None, "resident", &["mapping", "resident"])) }
        }
    }
}

/// Without rows yet. `falling`: the column by which it is sorted.
fn table(label: &str, id: &str, width: Option<&str>, falling: &str, titles: &[&str]) -> Markup {
    boxed(
        label,
        html! {
            table class={ @if let Some(width) = width { (width) " " } "sortable" } id=(id) {
                thead {
                    tr {
                        @for title in titles {
                            th scope="col" aria-sort=[(*title == falling).then_some("descending")] { (title) }
                        }
                    }
                }
                tbody {}
            }
        },
    )
}

/// What the live page fetches.
pub fn json(snapshot: &Snapshot) -> String {
    shown::json(serde_json::to_string(&Picture::new(snapshot)).unwrap_or_default())
}
