//! A profile, or the difference of two, as one page that needs nothing beside itself.
//!
//! The flame graph is drawn here; its script (flame.js) zooms, searches and changes the metric. Each frame of it
//! carries its depth and its values, each number of a table its exact value (data-value).
// SPDX-License-Identifier: MIT

use super::sites::{self, changes, sites, Change, Site};
use super::text::{
    difference_headline, headline, named, place_of, range, remark, share, short, signed, typical_lifetime,
};
use super::tree::{Node, Tree};
use super::{Frame, Lifetime, Metric, Profile};
use hakmem_base::page::{boxed, titles, Page, Script, TABLES};
use hakmem_base::say;
use maud::{html, Markup};

const FLAME_STYLE: &str = include_str!("../../assets/flame.css");
const FLAME: Script = Script {
    source: include_str!("../../assets/flame.js"),
    hash: "sha256-1UvtvCrP+XKNSJoHtePXYq1mCzBM7H5t0j7LYHwCXyo=",
};

/// Rows of a table at most.
const ROWS: usize = 200;
/// A frame narrower than this part of the whole is not drawn.
const SHARE_MIN: f64 = 0.0005;
const HUES: usize = 8;

fn page(title: &str, eyebrow: &str, lead: &[String], body: Markup) -> String {
    Page {
        title,
        styles: &[FLAME_STYLE],
        scripts: &[TABLES, FLAME],
        policy: "",
        head: html!(),
        body: html! {
            header {
                p class="eyebrow" { (eyebrow) }
                h1 { (title) }
                @for line in lead { p class="lead soft" { (line) } }
            }
            main { (body) }
        },
    }
    .text()
}

fn date(time_ns: i64) -> String {
    say::date(time_ns / 1_000_000_000).replace('T', " ").replace('Z', " UTC")
}

// ---- flame graphs ----

/// How the frames of one graph look.
struct Look<'a> {
    metric: usize,
    units: [&'static str; Metric::COUNT],
    class: &'a dyn Fn(&Node) -> String,
    title: &'a dyn Fn(&Node) -> String,
}

fn graph(tree: &Tree, look: &Look) -> Markup {
    let nodes = tree.in_order(SHARE_MIN);
    let whole = nodes[0].values[look.metric].max(1) as f64;
    let deepest = nodes.iter().map(|node| node.depth).max().unwrap_or(0);
    // Where the next frame of each depth begins.
    let mut next = vec![0.0; deepest + 2];
    let mut style = |node: &Node| {
        let width = node.values[look.metric] as f64 / whole * 100.0;
        let left = next[node.depth];
        next[node.depth] += width;
        next[node.depth + 1] = left;
        format!("left:{left:.4}%;width:{width:.4}%;top:{}px", node.depth * 18)
    };
    html! {
        div class="flame" data-metric=(look.metric) data-units=(look.units.join(" "))
            style={ "height:" ((deepest + 1) * 18) "px" } {
            @for node in nodes {
                div tabindex="0" class=((look.class)(node)) style=(style(node)) data-depth=(node.depth)
                    data-values=(node.values.map(|value| value.to_string()).join(" "))
                    title=((look.title)(node)) { (short(&node.name)) }
            }
        }
    }
}

fn tools(metrics: &[Metric], chosen: Metric) -> Markup {
    html! {
        div class="tools" hidden {
            @if metrics.len() > 1 {
                label {
                    "width "
                    select {
                        @for metric in metrics {
                            option value=(*metric as usize) selected[*metric == chosen] { (metric.title()) }
                        }
                    }
                }
            }
            label { "search " input type="search"; }
            button type="button" hidden { "show all" }
        }
    }
}

const HOW: &str =
    "Each bar is a function, as wide as what it and all it called have allocated; below it is what it called. \
    A click widens a bar to the whole.";

fn flame(profile: &Profile, metric: Metric) -> Markup {
    let tree = Tree::of(profile);
    // The modules with most, each with a colour.
    let mut weights = vec![0; profile.modules.len()];
    for stack in &profile.stacks {
        let inmost = stack.places.first().and_then(|&place| profile.places[place].module);
        if let Some(module) = inmost {
            weights[module] = u64::saturating_add(weights[module], stack.value(metric).max(1));
        }
    }
    let names: Vec<&str> = profile.modules.iter().map(|module| module.name()).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&module| std::cmp::Reverse(weights[module]));
    let mut hues: Vec<&str> = Vec::new();
    for name in order.into_iter().map(|module| names[module]) {
        if !hues.contains(&name) {
            hues.push(name);
        }
    }
    let hue = |module: usize| hues.iter().position(|name| *name == names[module]).unwrap_or(0).min(HUES - 1);
    let look = Look {
        metric: metric as usize,
        units: Metric::ALL.map(Metric::unit),
        class: &|node| node.module.map_or("all".into(), |module| format!("h{}", hue(module))),
        title: &|node| match node.module {
            Some(module) => format!("{} ({})", node.name, names[module]),
            None => node.name.clone(),
        },
    };
    let used: Vec<usize> = tree.nodes.iter().filter_map(|node| node.module).collect();
    let seen = hues.iter().enumerate().filter(|(_, name)| used.iter().any(|&module| names[module] == **name));
    html! {
        section id="flame" {
            h2 { "By call path" }
            p class="note" { (HOW) }
            (tools(&Metric::ALL, metric))
            (graph(&tree, &look))
            p class="status" aria-live="polite" {}
            ul class="legend" aria-label="Files" {
                @for (number, name) in seen.take(HUES) {
                    li class={ "h" (number.min(HUES - 1)) } { span class="key" {} (name) }
                }
            }
        }
    }
}

// ---- tables ----

fn number(value: u64, text: &str) -> Markup {
    html! { td data-value=(value) { (text) } }
}

fn site_cell(frame: &Frame, callers: &[Frame]) -> Markup {
    let callers: Vec<String> = callers.iter().take(5).map(|frame| format!("← {}", named(frame))).collect();
    html! {
        td {
            strong { (short(&frame.function)) } " " span title=(frame.file) { (place_of(frame)) }
            small { (callers.join(" ")) }
        }
    }
}

fn sites_table(profile: &Profile, metric: Metric) -> Markup {
    let all = sites(profile, metric);
    let total = profile.total(metric);
    let freed = |site: &Site| site.lifetimes.iter().map(|one| one.freed.objects).fold(0, u64::saturating_add);
    let share_title = format!("of {}", metric.title());
    let table = html! {
        table class="sortable sites" {
            (titles(["site", &share_title, "in use", "blocks", "allocated", "blocks", "at the peak", "blocks",
                "freed after"]))
            tbody {
                @for site in all.iter().take(ROWS) {
                    tr {
                        (site_cell(&site.frame, &site.callers))
                        (number(site.value(metric), &share(site.value(metric), total)))
                        @for metric in Metric::ALL { (number(site.value(metric), &metric.text(site.value(metric)))) }
                        td data-freed=(freed(site)) { (typical_lifetime(&site.lifetimes)) }
                    }
                }
            }
        }
    };
    html! {
        section id="sites" {
            h2 { "By line" }
            p class="note" {
                "The innermost line of the program itself: not the allocator's, not that of a standard container. \
                 Below it, who called it where it weighs most. “Freed after”: how long half of its freed blocks had \
                 lived."
                @if all.len() > ROWS { " " (say::count(all.len() - ROWS, "smaller site")) " are left out." }
            }
            (boxed("Sites", table))
        }
    }
}

fn lifetimes(profile: &Profile) -> Markup {
    let all = profile.lifetimes();
    let most = all.iter().map(|one| one.freed.objects).max().unwrap_or(0);
    let width = |one: &Lifetime| format!("width:{:.2}%", one.freed.objects as f64 * 100.0 / most as f64);
    let table = || {
        html! {
            table class="lived" {
                (titles(["lived", "", "blocks", "bytes"]))
                tbody {
                    @for one in &all {
                        tr {
                            td { (range(one)) }
                            td { span class="bar" style=(width(one)) {} }
                            (number(one.freed.objects, &Metric::AllocObjects.text(one.freed.objects)))
                            (number(one.freed.bytes, &Metric::AllocSpace.text(one.freed.bytes)))
                        }
                    }
                }
            }
        }
    };
    html! {
        @if most > 0 {
            section id="lifetimes" { h2 { "How long freed blocks had lived" } (boxed("Lifetimes", table())) }
        }
    }
}

pub fn profile(profile: &Profile, metric: Metric) -> String {
    let mut lead = vec![remark(profile) + "."];
    lead.extend(profile.remarks().map(|note| format!("{note}.")));
    let body = html! { (flame(profile, metric)) (sites_table(profile, metric)) (lifetimes(profile)) };
    page(&headline(profile, metric), &format!("Heap profile · {}", date(profile.time_ns)), &lead, body)
}

pub fn difference(before: &Profile, after: &Profile, metric: Metric) -> String {
    let tree = Tree::of_difference(before, after, metric);
    let growth = |node: &Node| sites::growth(node.values[1], node.values[2]);
    let class = |node: &Node| match growth(node) {
        _ if node.depth == 0 => "all".to_string(),
        0 => "same".to_string(),
        // The more of it changed, the stronger the colour.
        by => {
            let part = by.unsigned_abs() as f64 / node.values[0].max(1) as f64;
            let name = if by > 0 { "grew" } else { "shrank" };
            if part < 0.1 {
                "same".to_string()
            } else {
                name.to_string()
            }
        }
    };
    let title = |node: &Node| {
        let [_, old, new, ..] = node.values;
        let (old, new) = (metric.text(old), metric.text(new));
        format!("{} {}: {old} before, {new} after", node.name, signed(metric, growth(node)))
    };
    let look = Look { metric: 0, units: [metric.unit(); Metric::COUNT], class: &class, title: &title };
    let all = changes(before, after, metric);
    let row = |change: &Change| {
        let growth = change.growth();
        html! {
            tr {
                (site_cell(&change.frame, &change.callers))
                td class=(if growth > 0 { "bad" } else { "good" }) data-value=(growth) { (signed(metric, growth)) }
                (number(change.before, &metric.text(change.before)))
                (number(change.after, &metric.text(change.after)))
            }
        }
    };
    let table = html! {
        table class="sortable sites" {
            (titles(["site", "change", "before", "after"]))
            tbody { @for change in all.iter().take(ROWS) { (row(change)) } }
        }
    };
    let body = html! {
        section id="flame" {
            h2 { "By call path" }
            p class="note" {
                (HOW) " Each is as wide as the larger of before and after. Red grew, blue shrank by more than a tenth."
            }
            (tools(&[metric], metric))
            (graph(&tree, &look))
            p class="status" aria-live="polite" {}
        }
        section id="sites" { h2 { "By line" } (boxed("Changes", table)) }
    };
    let eyebrow = format!("Heap profiles · {} and {}", date(before.time_ns), date(after.time_ns));
    page(&difference_headline(before, after, metric), &eyebrow, &[], body)
}
