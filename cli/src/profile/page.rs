//! A profile, or the difference of two, as one page that needs nothing beside itself.
//!
//! The flame graph is drawn here; its script (flame.js) zooms, searches and changes the metric. Each frame of it carries its
//! depth and its values, each number of a table its exact value (data-value).

use super::sites::{changes, sites, Change, Site};
use super::text::{
    difference_headline, headline, named, place_of, range, remark, share, short, signed, typical_lifetime,
};
use super::tree::{Node, Tree};
use super::{Frame, Metric, Profile};
use hakmem_base::page::{escape, CHART_STYLE, SCRIPT, SCRIPT_HASH, STYLE};
use hakmem_base::say;
use std::fmt::Write;

const FLAME_STYLE: &str = include_str!("../../assets/flame.css");
const FLAME_SCRIPT: &str = include_str!("../../assets/flame.js");

/// Of flame.js. If it is another's, the browser refuses the script and names the right one.
const FLAME_SCRIPT_HASH: &str = "sha256-1UvtvCrP+XKNSJoHtePXYq1mCzBM7H5t0j7LYHwCXyo=";

/// Rows of a table at most.
const ROWS: usize = 200;
/// A frame narrower than this part of the whole is not drawn.
const LEAST: f64 = 0.0005;
const HUES: usize = 8;

fn page(title: &str, eyebrow: &str, lead: &[String], body: &str) -> String {
    let lead: String = lead.iter().map(|line| format!(r#"<p class="lead soft">{}</p>"#, escape(line))).collect();
    let (name, eyebrow) = (escape(title), escape(eyebrow));
    format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}' '{FLAME_SCRIPT_HASH}'; base-uri
'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}</title>
<style>{}{STYLE}{FLAME_STYLE}</style></head>
<body><header><p class="eyebrow">{eyebrow}</p><h1>{name}</h1>{lead}</header><main>
{body}
</main>
<script>{SCRIPT}</script><script>{FLAME_SCRIPT}</script></body></html>
"#,
        CHART_STYLE
    )
}

fn date(time_ns: i64) -> String {
    say::date(time_ns / 1_000_000_000).replace('T', " ").replace('Z', " UTC")
}

// ---- flame graphs ----

/// How the frames of one graph look.
struct Look<'a> {
    metric: usize,
    units: [&'static str; 4],
    class: &'a dyn Fn(&Node) -> String,
    title: &'a dyn Fn(&Node) -> String,
}

fn graph(tree: &Tree, look: &Look) -> String {
    let nodes = tree.in_order(LEAST);
    let whole = nodes[0].values[look.metric].max(1) as f64;
    let deepest = nodes.iter().map(|node| node.depth).max().unwrap_or(0);
    let mut html = format!(
        r#"<div class="flame" data-metric="{}" data-units="{}" style="height:{}px">"#,
        look.metric,
        look.units.join(" "),
        (deepest + 1) * 18
    );
    // Where the next frame of each depth begins.
    let mut next = vec![0.0; deepest + 2];
    for node in nodes {
        let width = node.values[look.metric] as f64 / whole * 100.0;
        let left = next[node.depth];
        next[node.depth] += width;
        next[node.depth + 1] = left;
        let [a, b, c, d] = node.values;
        let _ = write!(
            html,
            r#"<div tabindex="0" class="{}" style="left:{left:.4}%;width:{width:.4}%;top:{}px" data-depth="{}" data-values="{a} {b} {c} {d}" title="{}">{}</div>"#,
            (look.class)(node),
            node.depth * 18,
            node.depth,
            escape(&(look.title)(node)),
            escape(&short(&node.name))
        );
    }
    html + "</div>"
}

fn tools(metrics: &[Metric], chosen: Metric) -> String {
    let mut html = String::from(r#"<div class="tools" hidden>"#);
    if metrics.len() > 1 {
        html += "<label>width <select>";
        for metric in metrics {
            let selected = if *metric == chosen { " selected" } else { "" };
            let _ = write!(html, r#"<option value="{}"{selected}>{}</option>"#, *metric as usize, metric.title());
        }
        html += "</select></label>";
    }
    html + r#"<label>search <input type="search"></label><button type="button" hidden>show all</button></div>"#
}

const HOW: &str =
    "Each bar is a function, as wide as what it and all it called have allocated; below it is what it called. \
    A click widens a bar to the whole.";

fn flame(profile: &Profile, metric: Metric) -> String {
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
    let mut html = tools(&Metric::ALL, metric) + &graph(&tree, &look);
    html += r#"<p class="status" aria-live="polite"></p><ul class="legend" aria-label="Files">"#;
    let seen = hues.iter().enumerate().filter(|(_, name)| used.iter().any(|&module| names[module] == **name));
    for (number, name) in seen.take(HUES) {
        let _ = write!(html, r#"<li class="h{}"><span class="key"></span>{}</li>"#, number.min(HUES - 1), escape(name));
    }
    format!(r#"<section id="flame"><h2>By call path</h2><p class="note">{HOW}</p>{html}</ul></section>"#)
}

// ---- tables ----

fn number(value: u64, text: &str) -> String {
    format!(r#"<td data-value="{value}">{}</td>"#, escape(text))
}

fn boxed(label: &str, table: &str) -> String {
    format!(r#"<div class="box" tabindex="0" role="region" aria-label="{label}">{table}</div>"#)
}

fn site_cell(frame: &Frame, callers: &[Frame]) -> String {
    let callers: Vec<String> = callers.iter().take(5).map(|frame| format!("← {}", named(frame))).collect();
    let function = escape(&short(&frame.function));
    let (place, whole) = (escape(&place_of(frame)), escape(&frame.file));
    let callers = escape(&callers.join(" "));
    format!(r#"<td><strong>{function}</strong> <span title="{whole}">{place}</span><small>{callers}</small></td>"#)
}

fn head(titles: &[&str]) -> String {
    titles.iter().map(|title| format!(r#"<th scope="col">{title}</th>"#)).collect()
}

fn sites_table(profile: &Profile, metric: Metric) -> String {
    let all = sites(profile, metric);
    let total = profile.total(metric);
    let row = |site: &Site| {
        let value = site.value(metric);
        let mut row = site_cell(&site.frame, &site.callers);
        row += &number(value, &share(value, total));
        for metric in Metric::ALL {
            row += &number(site.value(metric), &metric.text(site.value(metric)));
        }
        let shortest = site.lifetimes.iter().map(|one| one.freed.objects).fold(0, u64::saturating_add);
        format!(
            "<tr>{row}{}</tr>",
            number(shortest, &typical_lifetime(&site.lifetimes)).replace("data-value", "data-freed")
        )
    };
    let body: String = all.iter().take(ROWS).map(row).collect();
    let share_title = format!("of {}", metric.title());
    let titles = ["site", &share_title, "in use", "blocks", "allocated", "blocks", "freed after"];
    let table = format!(
        r#"<table class="sortable sites"><thead><tr>{}</tr></thead><tbody>{body}</tbody></table>"#,
        head(&titles)
    );
    let rest = match all.len().saturating_sub(ROWS) {
        0 => String::new(),
        rest => format!(" {} are left out.", say::count(rest, "smaller site")),
    };
    format!(
        r#"<section id="sites"><h2>By line</h2><p class="note">The innermost line of the program itself: not the
        allocator's, not that of a standard container. Below it, who called it where it weighs most. “Freed after”: how long
        half of its freed blocks had lived.{rest}</p>{}</section>"#,
        boxed("Sites", &table)
    )
}

fn lifetimes(profile: &Profile) -> String {
    let all = profile.lifetimes();
    let most = all.iter().map(|one| one.freed.objects).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let row = |one: &super::Lifetime| {
        let width = one.freed.objects as f64 * 100.0 / most as f64;
        format!(
            r#"<tr><td>{}</td><td><span class="bar" style="width:{width:.2}%"></span></td>{}{}</tr>"#,
            range(one),
            number(one.freed.objects, &Metric::AllocObjects.text(one.freed.objects)),
            number(one.freed.bytes, &Metric::AllocSpace.text(one.freed.bytes))
        )
    };
    let body: String = all.iter().map(row).collect();
    let table = format!(
        r#"<table class="lived"><thead><tr>{}</tr></thead><tbody>{body}</tbody></table>"#,
        head(&["lived", "", "blocks", "bytes"])
    );
    format!(
        r#"<section id="lifetimes"><h2>How long freed blocks had lived</h2>{}</section>"#,
        boxed("Lifetimes", &table)
    )
}

pub fn profile(profile: &Profile, metric: Metric) -> String {
    let mut lead = vec![remark(profile) + "."];
    lead.extend(profile.notes.iter().map(|note| format!("{note}.")));
    let body = flame(profile, metric) + &sites_table(profile, metric) + &lifetimes(profile);
    page(&headline(profile), &format!("Heap profile · {}", date(profile.time_ns)), &lead, &body)
}

pub fn difference(before: &Profile, after: &Profile, metric: Metric) -> String {
    let tree = Tree::of_difference(before, after, metric);
    let growth = |node: &Node| node.values[2] as i64 - node.values[1] as i64;
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
        let [_, old, new, _] = node.values;
        let (old, new) = (metric.text(old), metric.text(new));
        format!("{} {}: {old} before, {new} after", node.name, signed(metric, growth(node)))
    };
    let look = Look { metric: 0, units: [metric.unit(); 4], class: &class, title: &title };
    let graph = tools(&[metric], metric) + &graph(&tree, &look);
    let all = changes(before, after, metric);
    let row = |change: &Change| {
        let growth = change.growth();
        let class = if growth > 0 { "bad" } else { "good" };
        format!(
            r#"<tr>{}<td class="{class}" data-value="{growth}">{}</td>{}{}</tr>"#,
            site_cell(&change.frame, &change.callers),
            escape(&signed(metric, growth)),
            number(change.before, &metric.text(change.before)),
            number(change.after, &metric.text(change.after))
        )
    };
    let body: String = all.iter().take(ROWS).map(row).collect();
    let table = format!(
        r#"<table class="sortable sites"><thead><tr>{}</tr></thead><tbody>{body}</tbody></table>"#,
        head(&["site", "change", "before", "after"])
    );
    let body = format!(
        r#"<section id="flame"><h2>By call path</h2><p class="note">{HOW} Each is as wide as the larger of before and
        after. Red grew, blue shrank by more than a tenth.</p>{graph}<p class="status" aria-live="polite"></p></section>
        <section id="sites"><h2>By line</h2>{}</section>"#,
        boxed("Changes", &table)
    );
    let eyebrow = format!("Heap profiles · {} and {}", date(before.time_ns), date(after.time_ns));
    page(&difference_headline(before, after, metric), &eyebrow, &[], &body)
}
