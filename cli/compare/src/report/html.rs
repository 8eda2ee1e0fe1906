//! One page that needs nothing beside itself: no address is fetched, and it can be read without its script.
//!
//! Every number of a table carries where it is in the JSON (data-path; one that starts with a dot goes on from that of
//! what it is in) and its exact value (data-value), so that a test can compare them.

mod workload;

use super::lines::{lines, Line, Lines};
use super::marker::{markers, palette};
use super::scale::Scale;
use super::scatter::{scatter, Point, Scatter};
use super::svg::{self, Dot};
use super::{say, Measure, HAKMEM};
use crate::results::*;
use hakmem_base::page::{escape, CHART_STYLE, SCRIPT, SCRIPT_HASH, STYLE};
use std::fmt::Write;

pub fn html(comparison: &Comparison) -> String {
    let page = Page { comparison, names: comparison.allocators.iter().map(|one| one.name.as_str()).collect() };
    let mut body = page.header();
    if !comparison.workloads.is_empty() {
        body += &page.standing();
        body += &page.only_of_many(page.glance());
        body += &page.workloads();
        body += &page.curves();
        body += &page.only_of_many(page.matrices());
    }
    body += &page.failures();
    body += &page.conditions();
    // HTML lets these be left out, and a large report has a hundred thousand of them.
    let body = body.replace("</td>", "").replace("</tr>", "");
    format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}'; base-uri 'none'; form-action
'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{}</title>
<style>{}{STYLE}{}</style></head>
<body><svg width="0" height="0" style="position:absolute" aria-hidden="true">{}</svg>
{body}
<script>{SCRIPT}</script></body></html>
"#,
        escape(&comparison.title),
        CHART_STYLE,
        palette(&page.names),
        markers(&page.names),
    )
}

struct Page<'a> {
    comparison: &'a Comparison,
    names: Vec<&'a str>,
}

/// A cell that holds a number of the JSON.
fn number(path: &str, value: f64, text: &str) -> String {
    format!(r#"<td data-path="{}" data-value="{value}">{}</td>"#, escape(path), escape(text))
}

/// Ratio and interval, coloured by what they say.
fn ratio_cell(path: &str, ratio: &Ratio) -> String {
    let class = match ratio.verdict {
        Verdict::Better => r#" class="good""#,
        Verdict::Same => "",
        Verdict::Worse => r#" class="bad""#,
    };
    let (path, median, text) = (escape(path), ratio.median, say::ratio(ratio.median));
    let interval = say::interval(ratio.low, ratio.high);
    format!(r#"<td data-path="{path}.median" data-value="{median}"{class}>{text} <small>{interval}</small></td>"#)
}

fn spread_cell(path: &str, spread: &Spread, text: fn(f64) -> String) -> String {
    let (least, most) = (text(spread.least), text(spread.most));
    let unit_of = |text: &str| text.rsplit_once(' ').map_or(String::new(), |(_, unit)| unit.to_string());
    let short = if unit_of(&least) == unit_of(&most) { least.split(' ').next().unwrap_or("") } else { &least };
    let between = if spread.least == spread.most { String::new() } else { format!(" <small>{short}–{most}</small>") };
    let (path, median) = (escape(path), spread.median);
    format!(r#"<td data-path="{path}.median" data-value="{median}">{}{between}</td>"#, text(median))
}

/// A key of a map in a path.
fn key(name: &str) -> String {
    format!("[{}]", serde_json::Value::from(name))
}

/// A table in a box that scrolls by itself where the page is narrow.
fn boxed(label: &str, table: &str) -> String {
    format!(r#"<div class="box" tabindex="0" role="region" aria-label="{}">{table}</div>"#, escape(label))
}

impl Page<'_> {
    /// A part that says nothing new where there is one workload.
    fn only_of_many(&self, part: String) -> String {
        if self.comparison.workloads.len() > 1 {
            part
        } else {
            String::new()
        }
    }

    fn place(&self, name: &str) -> usize {
        self.comparison.place_of(name).unwrap_or(0)
    }

    fn mark(&self, place: usize) -> String {
        format!(r##"<svg class="mark" aria-hidden="true"><use href="#m{place}"/></svg>"##)
    }

    /// The first cell of an allocator's row.
    fn who(&self, place: usize, name: &str) -> String {
        format!(r#"<td class="a{place}">{}{}</td>"#, self.mark(place), escape(name))
    }

    fn header(&self) -> String {
        let found = self.comparison;
        let (line, more) = say::headline(found);
        let mut html = format!(
            r#"<header><p class="eyebrow">{} · {} · {}</p><h1>{}</h1>"#,
            escape(&found.title),
            escape(found.started.get(..10).unwrap_or(&found.started)),
            escape(&found.machine.processor),
            escape(&line)
        );
        for (number, sentence) in more.iter().chain(&found.notes).enumerate() {
            let class = if number + 1 >= more.len() { "lead soft" } else { "lead" };
            let _ = write!(html, r#"<p class="{class}">{}</p>"#, escape(sentence));
        }
        let many = found.workloads.len();
        let parts = [
            (many > 0, "standing", "Standing"),
            (many > 1, "glance", "At a glance"),
            (many > 0, "workloads", "Workloads"),
            (!self.curve_names().is_empty(), "curves", "Scaling"),
            (many > 1, "tables", "All ratios"),
            (true, "machine", "The machine and how to read this"),
        ];
        html += "<nav aria-label=\"Parts\">";
        for (_, id, title) in parts.into_iter().filter(|part| part.0) {
            let _ = write!(html, r##"<a href="#{id}">{title}</a>"##);
        }
        html + "</nav></header><main>"
    }

    fn legend(&self) -> String {
        let items = self
            .names
            .iter()
            .enumerate()
            .map(|(place, name)| format!(r#"<li class="a{place}">{}{}</li>"#, self.mark(place), escape(name)));
        format!(r#"<ul class="legend" aria-label="Allocators">{}</ul>"#, items.collect::<String>())
    }

    fn group_points(&self, group: &str) -> Vec<Point<'_>> {
        let points = self.names.iter().enumerate().filter_map(|(place, name)| {
            let x = self.comparison.mean(group, name, Measure::Time)?.2;
            let y = self.comparison.mean(group, name, Measure::PeakRss)?.2;
            (x.is_usable() && y.is_usable()).then_some(Point { place, name, x, y })
        });
        points.collect()
    }

    fn scatter(&self, id: &str, title: &str, (width, height): (f64, f64), names: bool, points: &[Point]) -> String {
        scatter(&Scatter { id, title, baseline: &self.comparison.baseline, width, height, names, points })
    }

    fn standing(&self) -> String {
        let found = self.comparison;
        let base = escape(&found.baseline);
        let mut html = format!(
            r#"<section id="standing"><h2>Standing: time and memory</h2><p class="note">Each mark is an allocator:
            its time and its peak memory as a ratio to {base}'s, each the geometric mean over {}. Down and left is
            better; the grey line joins those that nothing beats in both. Crosses are 95 % intervals.</p>"#,
            say::count(found.workloads.len(), "workload")
        );
        let points = self.group_points("");
        let title = format!("Time and peak memory, relative to {}", found.baseline);
        // As high as the table beside it.
        let height = (70.0 + points.len() as f64 * 38.0).clamp(380.0, 600.0);
        let _ = write!(
            html,
            r#"<div class="split"><figure><div class="wideonly">{}</div><div class="narrow">{}</div></figure>{}</div>"#,
            self.scatter("s", &title, (640.0, height), true, &points),
            self.scatter("sn", &title, (340.0, 400.0), true, &points),
            self.standing_table("", "All workloads")
        );
        let groups = found.groups();
        if groups.len() > 1 {
            html += "<h3>By group</h3><div class=\"many\">";
            for (number, group) in groups.iter().enumerate() {
                let count = say::count(found.of_group(group).count(), "workload");
                let points = self.group_points(group);
                let drawing = self.scatter(
                    &format!("g{number}"),
                    &format!("{group}: time and peak memory"),
                    (340.0, 300.0),
                    false,
                    &points,
                );
                let group = escape(group);
                let _ = write!(
                    html,
                    r#"<figure><figcaption>{group} <small>{count}</small></figcaption>{drawing}</figure>"#
                );
            }
            html += "</div>";
            html += &self.legend();
            html += r#"<details class="more"><summary>The groups' numbers</summary><div class="pair">"#;
            for group in groups {
                html += &self.standing_table(group, group);
            }
            html += "</div></details>";
        }
        html + "</section>"
    }

    fn standing_table(&self, group: &str, caption: &str) -> String {
        let found = self.comparison;
        let mut rows: Vec<(f64, String)> = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            let Some((at, workloads, time)) = found.mean(group, name, Measure::Time) else {
                continue;
            };
            let class = if *name == HAKMEM { r#" class="own""# } else { "" };
            let mut row = match at {
                Some(at) => format!(r#"<tr{class} data-path="standing[{at}]">"#),
                None => format!("<tr{class}>"),
            };
            row += &self.who(place, name);
            for measure in Measure::ALL {
                row += &match (at, found.mean(group, name, measure)) {
                    (Some(_), Some((_, _, ratio))) if *name != found.baseline => {
                        ratio_cell(&format!(".{}", measure.field()), &ratio)
                    }
                    (Some(_), Some((_, _, ratio))) => {
                        number(&format!(".{}.median", measure.field()), ratio.median, &say::ratio(ratio.median))
                    }
                    _ => r#"<td data-value="1">1.00</td>"#.to_string(),
                };
            }
            row += &match at {
                Some(_) => number(".workloads", workloads as f64, &workloads.to_string()),
                None => format!(r#"<td data-value="{workloads}">{workloads}</td>"#),
            };
            rows.push((time.median, row + "</tr>"));
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let body: String = rows.into_iter().map(|row| row.1).collect();
        let base = escape(&found.baseline);
        let table = format!(
            r#"<table class="sortable"><caption>{} <small>ratio to {base}, 95 %
            interval</small></caption><thead><tr><th scope="col">allocator</th><th scope="col">time</th><th
            scope="col">peak</th><th scope="col">average</th><th
            scope="col">of</th></tr></thead><tbody>{body}</tbody></table>"#,
            escape(caption)
        );
        boxed(caption, &table)
    }

    fn dots(&self, workload: &Workload, measure: Measure, interval: bool) -> Vec<Dot> {
        let dots = self.names.iter().enumerate().filter_map(|(place, name)| {
            let ratio = self.comparison.ratio(workload, name, measure).filter(Ratio::is_usable)?;
            Some(Dot { place, ratio, interval, own: *name == HAKMEM })
        });
        let mut dots: Vec<Dot> = dots.collect();
        dots.sort_by_key(|dot| dot.own);
        dots
    }

    fn glance(&self) -> String {
        let found = self.comparison;
        let base = escape(&found.baseline);
        let scales = [Measure::Time, Measure::PeakRss].map(|measure| {
            let dots = found.workloads.iter().flat_map(|workload| self.dots(workload, measure, false));
            Scale::of_ratios(dots.map(|dot| dot.ratio.median), 3.0, 97.0)
        });
        let mut html = format!(
            r#"<section id="glance"><h2>Every workload at a glance</h2><p class="note">One row a workload, one mark
            an allocator; left is better. The line is {base}; shaded is what {base} against itself came to, so what
            this machine cannot tell apart.</p>{}<div class="glance">"#,
            self.legend()
        );
        let groups = found.groups();
        let whole = if groups.is_empty() { vec![""] } else { groups };
        for group in whole {
            let title = if group.is_empty() { String::new() } else { format!("<strong>{}</strong>", escape(group)) };
            let _ = write!(
                html,
                r#"<div class="row head"><div>{title}</div><div><span>time</span>{}</div><div><span>peak
                memory</span>{}</div></div>"#,
                svg::strip_axis(&scales[0], 16.0),
                svg::strip_axis(&scales[1], 16.0)
            );
            for (at, workload) in found.of_group(group) {
                let _ = write!(html, r##"<div class="row"><a href="#w{at}">{}</a>"##, escape(&workload.name));
                for (measure, scale) in [Measure::Time, Measure::PeakRss].iter().zip(&scales) {
                    let dots = self.dots(workload, *measure, false);
                    let _ = write!(html, "<div>{}</div>", svg::strip(scale, workload.resolution(*measure), &dots));
                }
                html += "</div>";
            }
        }
        html + "</div></section>"
    }

    fn workloads(&self) -> String {
        let found = self.comparison;
        let mut html = String::from(r#"<section id="workloads"><h2>Workload by workload</h2>"#);
        let groups = found.groups();
        let outside = found.workloads.iter().enumerate().filter(|(_, one)| one.group.is_empty());
        let mut parts: Vec<(&str, Vec<(usize, &Workload)>)> = vec![("", outside.collect())];
        parts.extend(groups.into_iter().map(|group| (group, found.of_group(group).collect())));
        for (group, workloads) in parts.into_iter().filter(|part| !part.1.is_empty()) {
            if !group.is_empty() {
                let _ = write!(html, "<h3>{}</h3>", escape(group));
            }
            for (at, workload) in workloads {
                html += &self.workload(at, workload);
            }
        }
        html + "</section>"
    }

    fn curve_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for curve in self.comparison.workloads.iter().filter_map(|workload| workload.curve.as_ref()) {
            if !names.contains(&curve.name.as_str()) {
                names.push(&curve.name);
            }
        }
        names
    }

    fn curves(&self) -> String {
        let names = self.curve_names();
        if names.is_empty() {
            return String::new();
        }
        let mut html = String::from(
            r#"<section id="curves"><h2>Scaling</h2><p class="note">Medians; the points' numbers are with their
            workloads.</p><div class="pair charts">"#,
        );
        for (number, name) in names.into_iter().enumerate() {
            let mut points: Vec<(f64, &Workload)> = self
                .comparison
                .workloads
                .iter()
                .filter_map(|workload| {
                    let curve = workload.curve.as_ref().filter(|curve| curve.name == name)?;
                    Some((curve.x, workload))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let metric = points[0].1.metric.as_ref();
            let of = |summary: &Summary| {
                if metric.is_some() {
                    summary.metric
                } else {
                    Some(summary.wall_s)
                }
            };
            let all = self.names.iter().enumerate().map(|(place, allocator)| {
                let points = points
                    .iter()
                    .filter_map(|(x, workload)| Some((*x, of(workload.result(allocator)?.summary.as_ref()?)?.median)));
                Line { place, name: allocator.to_string(), points: points.collect() }
            });
            let unit = points[0].1.curve.as_ref().map_or("", |curve| &curve.unit);
            let (y_title, better) = metric.map_or(("wall time", "down"), |metric| (metric.name.as_str(), "up"));
            let drawing = lines(&Lines {
                id: &format!("c{number}"),
                title: &format!("{name}: {y_title} by {unit}"),
                description: format!("One line an allocator; {better} is better."),
                x_title: &format!("{unit} →"),
                y_title: &format!("{y_title}, {better} is better"),
                y_unit: 1.0,
                x_text: say::number,
                y_text: if metric.is_some() { say::number } else { say::seconds },
                dots: true,
                lines: all.collect(),
            });
            let _ = write!(html, "<figure><figcaption>{}</figcaption>{drawing}</figure>", escape(name));
        }
        html + "</div></section>"
    }

    /// Workloads by allocators.
    fn matrices(&self) -> String {
        let found = self.comparison;
        let mut html = format!(
            r#"<section id="tables"><h2>All ratios</h2><p class="note">Medians of the ratios to {}; coloured where
            the difference is beyond what the machine resolves. A heading sorts its table.</p>"#,
            escape(&found.baseline)
        );
        for measure in Measure::ALL {
            let mut head = String::from(r#"<th scope="col">workload</th>"#);
            for name in &self.names {
                let _ = write!(head, r#"<th scope="col">{}</th>"#, escape(name));
            }
            let mut body = String::new();
            for (at, workload) in found.workloads.iter().enumerate() {
                let _ = write!(body, r#"<tr data-path="workloads[{at}]"><td>{}</td>"#, escape(&workload.name));
                for name in &self.names {
                    let number = workload.results.iter().position(|one| one.allocator == *name);
                    body += &match number.zip(found.ratio(workload, name, measure)) {
                        None => "<td></td>".to_string(),
                        Some(_) if *name == found.baseline => r#"<td data-value="1">1</td>"#.to_string(),
                        Some((number, ratio)) => matrix_cell(number, measure, &ratio),
                    };
                }
                body += "</tr>";
            }
            let title = measure.title();
            let table =
                format!(r#"<table class="wide sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"#);
            let open = if measure == Measure::Time { " open" } else { "" };
            let table = boxed(&format!("{title}, all ratios"), &table);
            let _ = write!(html, r#"<details class="more"{open}><summary>{title}</summary>{table}</details>"#);
        }
        html + "</section>"
    }

    fn failures(&self) -> String {
        let found = self.comparison;
        let mut body = String::new();
        for workload in &found.workloads {
            for result in workload.results.iter().chain(&workload.again) {
                for reason in &result.failures {
                    let _ = write!(
                        body,
                        r#"<tr><td>{}</td><td class="text">{}</td><td class="text">{}</td></tr>"#,
                        escape(&workload.name),
                        escape(&result.allocator),
                        escape(reason)
                    );
                }
            }
        }
        let mut html = String::new();
        if !body.is_empty() {
            let table = format!(
                r#"<table><thead><tr><th scope="col">workload</th><th scope="col" class="text">allocator</th><th
                scope="col" class="text">why the run does not count</th></tr></thead><tbody>{body}</tbody></table>"#
            );
            let _ = write!(
                html,
                r#"<section id="failures"><h2>Runs that do not count</h2>{}</section>"#,
                boxed("Failures", &table)
            );
        }
        let mut missing = found.missing.iter().chain(&found.missing_workloads).peekable();
        if missing.peek().is_some() {
            let rows = missing.map(|one| {
                format!(r#"<tr><td>{}</td><td class="text">{}</td></tr>"#, escape(&one.name), escape(&one.reason))
            });
            let table = format!(
                r#"<table><thead><tr><th scope="col">what</th><th scope="col"
                class="text">why</th></tr></thead><tbody>{}</tbody></table>"#,
                rows.collect::<String>()
            );
            let _ = write!(
                html,
                r#"<section id="missing"><h2>Not measured</h2>{}</section>"#,
                boxed("Not measured", &table)
            );
        }
        html
    }

    fn conditions(&self) -> String {
        let found = self.comparison;
        let machine = &found.machine;
        let facts = [
            ("processor", format!("{}, {}", machine.processor, say::count(machine.cores, "core"))),
            ("memory", say::bytes(machine.memory_bytes as f64)),
            ("kernel", machine.kernel.clone()),
            ("huge pages", machine.huge_pages.clone()),
            ("load before", format!("{:.2}", machine.load)),
            ("started", found.started.clone()),
            ("took", say::seconds(found.duration_s)),
        ];
        let mut html = String::from(r#"<section id="machine"><h2>The machine and the allocators</h2><dl>"#);
        for (name, text) in facts {
            let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&text));
        }
        html += "</dl>";
        let mut body = String::new();
        for (place, allocator) in found.allocators.iter().enumerate() {
            let environment: Vec<String> =
                allocator.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let libraries =
                if allocator.libraries.is_empty() { "the system's own".into() } else { allocator.libraries.join(" ") };
            let _ = write!(
                body,
                r#"<tr>{}<td class="text">{}</td><td class="text"><code>{}</code></td></tr>"#,
                self.who(place, &allocator.name),
                escape(if allocator.version.is_empty() { "–" } else { &allocator.version }),
                escape(&[environment.join(" "), libraries].join(" "))
            );
        }
        let table = format!(
            r#"<table class="versions"><thead><tr><th scope="col">allocator</th><th scope="col"
            class="text">version</th><th scope="col"
            class="text">preloaded</th></tr></thead><tbody>{body}</tbody></table>"#
        );
        html += &boxed("Allocators", &table);
        html + &HOW.replace("BASELINE", &escape(&found.baseline)) + "</section></main>"
    }
}

fn matrix_cell(number: usize, measure: Measure, ratio: &Ratio) -> String {
    let class = match ratio.verdict {
        Verdict::Better => r#" class="good""#,
        Verdict::Same => "",
        Verdict::Worse => r#" class="bad""#,
    };
    let (field, median, text) = (measure.field(), ratio.median, say::ratio(ratio.median));
    format!(
        r#"<td data-path=".results[{number}].summary.ratios.{field}.median" data-value="{median}"{class}>{text}</td>"#
    )
}

const HOW: &str = r#"<div class="how" id="how"><h2>How to read this</h2>
<p><strong>Ratio.</strong> Every number with × and every axis is a ratio to BASELINE: 0.90 took 10 % less. Time is
wall time or, where a program prints its own throughput, the inverse of that. Runs of all allocators alternate; each
run is compared with BASELINE's beside it, and the ratio is the median of these, so that a machine that grows slower
meanwhile does not matter.</p>
<p><strong>Interval.</strong> In 95 of 100 repetitions the median would lie within (bootstrap). Two allocators whose
intervals overlap widely are not told apart.</p>
<p><strong>A/A.</strong> BASELINE runs twice in each round. Its ratio to itself should be 1; how far it and its
interval are from 1 is what this machine cannot resolve, shaded in the plots. A difference within it is called none.</p>
<p><strong>Peak and average memory.</strong> The program's own resident memory: its highest, and its mean over the
time it ran. Of programs of several processes, the sum with shared pages counted once.</p>
<p><strong>Geometric mean.</strong> Of the ratios over workloads: each counts the same, however long it runs. An
allocator that failed a workload is averaged over the others (column “of”).</p></div>"#;
