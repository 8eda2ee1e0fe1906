//! One page that needs nothing beside itself: no address is fetched, and it can be read without its script.
//!
//! Every number of a table carries where it is in the JSON (data-path; one that starts with a dot goes on from that of
//! what it is in) and its exact value (data-value), so that a test can compare them.
// SPDX-License-Identifier: MIT

mod workload;

use super::lines::{lines, Line, Lines};
use super::marker::{markers, palette};
use super::scale::Scale;
use super::scatter::{scatter, Point, Scatter};
use super::svg::{self, Dot};
use super::{say, Measure, HAKMEM};
use crate::results::*;
use hakmem_base::page::{self, boxed, titles, TABLES};
use maud::{html, Markup, PreEscaped};

pub fn html(comparison: &Comparison) -> String {
    let page = Page { comparison, names: comparison.allocators.iter().map(|one| one.name.as_str()).collect() };
    let many = comparison.workloads.len() > 1;
    let parts = html! {
        (page.header())
        main {
            @if !comparison.workloads.is_empty() {
                (page.standing())
                @if many { (page.glance()) }
                (page.workloads())
                (page.curves())
                @if many { (page.matrices()) }
            }
            (page.failures())
            (page.conditions())
        }
    };
    // HTML lets these be left out, and a large report has a hundred thousand of them.
    let parts = PreEscaped(parts.into_string().replace("</td>", "").replace("</tr>", ""));
    page::Page {
        title: &comparison.title,
        styles: &[&palette(&page.names)],
        scripts: &[TABLES],
        policy: "",
        head: html!(),
        body: html! {
            svg width="0" height="0" style="position:absolute" aria-hidden="true" { (PreEscaped(markers(&page.names))) }
            (parts)
        },
    }
    .text()
}

struct Page<'a> {
    comparison: &'a Comparison,
    names: Vec<&'a str>,
}

// ---- cells ----

/// A cell that holds a number of the JSON.
fn number(path: &str, value: f64, text: &str) -> Markup {
    html! { td data-path=(path) data-value=(value) { (text) } }
}

/// The baseline's own ratio.
fn one(text: &str) -> Markup {
    html! { td data-value="1" { (text) } }
}

/// How a ratio is coloured.
fn class_of(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Better => Some("good"),
        Verdict::Same => None,
        Verdict::Worse => Some("bad"),
    }
}

/// Ratio and interval, coloured by what they say.
fn ratio_cell(path: &str, ratio: &Ratio) -> Markup {
    html! {
        td data-path={ (path) ".median" } data-value=(ratio.median) class=[class_of(ratio.verdict)] {
            (say::ratio(ratio.median)) " " small { (say::interval(ratio.low, ratio.high)) }
        }
    }
}

/// The ratio alone.
fn matrix_cell(number: usize, measure: Measure, ratio: &Ratio) -> Markup {
    html! {
        td data-path={ ".results[" (number) "].summary.ratios." (measure.field()) ".median" }
            data-value=(ratio.median) class=[class_of(ratio.verdict)] { (say::ratio(ratio.median)) }
    }
}

fn spread_cell(path: &str, spread: &Spread, text: fn(f64) -> String) -> Markup {
    let (least, most) = (text(spread.least), text(spread.most));
    let unit_of = |text: &str| text.rsplit_once(' ').map_or(String::new(), |(_, unit)| unit.to_string());
    let short = if unit_of(&least) == unit_of(&most) { least.split(' ').next().unwrap_or("") } else { &least };
    html! {
        td data-path={ (path) ".median" } data-value=(spread.median) {
            (text(spread.median))
            @if spread.least != spread.most { " " small { (short) "–" (most) } }
        }
    }
}

/// A key of a map in a path.
fn key(name: &str) -> String {
    format!("[{}]", serde_json::Value::from(name))
}

/// The row of an allocator: HAKMEM's own is marked.
fn own_class(name: &str) -> Option<&'static str> {
    (name == HAKMEM).then_some("own")
}

// ---- parts ----

impl Page<'_> {
    fn place(&self, name: &str) -> usize {
        self.comparison.place_of(name).unwrap_or(0)
    }

    fn mark(&self, place: usize) -> Markup {
        html! { svg class="mark" aria-hidden="true" { use href={ "#m" (place) } {} } }
    }

    /// The first cell of an allocator's row.
    fn who(&self, place: usize, name: &str) -> Markup {
        html! { td class={ "a" (place) } { (self.mark(place)) (name) } }
    }

    fn header(&self) -> Markup {
        let found = self.comparison;
        let (line, more) = say::headline(found);
        let many = found.workloads.len();
        let parts = [
            (many > 0, "standing", "Standing"),
            (many > 1, "glance", "At a glance"),
            (many > 0, "workloads", "Workloads"),
            (!self.curve_names().is_empty(), "curves", "Scaling"),
            (many > 1, "tables", "All ratios"),
            (true, "machine", "The machine and how to read this"),
        ];
        html! {
            header {
                p class="eyebrow" {
                    (found.title) " · " (found.started.get(..10).unwrap_or(&found.started)) " · "
                    (found.machine.processor)
                }
                h1 { (line) }
                @for (number, sentence) in more.iter().chain(&found.notes).enumerate() {
                    p class={ "lead" @if number + 1 >= more.len() { " soft" } } { (sentence) }
                }
                nav aria-label="Parts" {
                    @for (_, id, title) in parts.into_iter().filter(|part| part.0) {
                        a href={ "#" (id) } { (title) }
                    }
                }
            }
        }
    }

    fn legend(&self) -> Markup {
        html! {
            ul class="legend" aria-label="Allocators" {
                @for (place, name) in self.names.iter().enumerate() {
                    li class={ "a" (place) } { (self.mark(place)) (name) }
                }
            }
        }
    }

    fn group_points(&self, group: &str) -> Vec<Point<'_>> {
        let points = self.names.iter().enumerate().filter_map(|(place, name)| {
            let x = self.comparison.mean(group, name, Measure::Time)?.2;
            let y = self.comparison.mean(group, name, Measure::PeakRss)?.2;
            (x.is_usable() && y.is_usable()).then_some(Point { place, name, x, y })
        });
        points.collect()
    }

    fn scatter(&self, id: &str, title: &str, (width, height): (f64, f64), names: bool, points: &[Point]) -> Markup {
        scatter(&Scatter { id, title, baseline: &self.comparison.baseline, width, height, names, points })
    }

    fn standing(&self) -> Markup {
        let found = self.comparison;
        let points = self.group_points("");
        let title = format!("Time and peak memory, relative to {}", found.baseline);
        // As high as the table beside it.
        let height = (70.0 + points.len() as f64 * 38.0).clamp(380.0, 600.0);
        let groups = found.groups();
        html! {
            section id="standing" {
                h2 { "Standing: time and memory" }
                p class="note" {
                    "Each mark is an allocator: its time and its peak memory as a ratio to " (found.baseline)
                    "'s, each the geometric mean over " (say::count(found.workloads.len(), "workload"))
                    ". Down and left is better; the grey line joins those that nothing beats in both. \
                     Crosses are 95 % intervals."
                }
                div class="split" {
                    figure {
                        div class="wideonly" { (self.scatter("s", &title, (640.0, height), true, &points)) }
                        div class="narrow" { (self.scatter("sn", &title, (340.0, 400.0), true, &points)) }
                    }
                    (self.standing_table("", "All workloads"))
                }
                @if groups.len() > 1 {
                    h3 { "By group" }
                    div class="many" {
                        @for (number, group) in groups.iter().enumerate() { (self.group_standing(number, group)) }
                    }
                    (self.legend())
                    details class="more" {
                        summary { "The groups' numbers" }
                        div class="pair" { @for group in groups { (self.standing_table(group, group)) } }
                    }
                }
            }
        }
    }

    fn group_standing(&self, number: usize, group: &str) -> Markup {
        let count = say::count(self.comparison.of_group(group).count(), "workload");
        let (id, title) = (format!("g{number}"), format!("{group}: time and peak memory"));
        html! {
            figure {
                figcaption { (group) " " small { (count) } }
                (self.scatter(&id, &title, (340.0, 300.0), false, &self.group_points(group)))
            }
        }
    }

    fn standing_table(&self, group: &str, caption: &str) -> Markup {
        let found = self.comparison;
        let values: std::collections::BTreeSet<&str> =
            found.standing.iter().flat_map(|one| one.values.keys()).map(String::as_str).collect();
        let mut rows: Vec<(f64, Markup)> = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            let Some((at, workloads, time)) = found.mean(group, name, Measure::Time) else {
                continue;
            };
            let cell = |measure: Measure| match (at, found.mean(group, name, measure)) {
                (Some(_), Some((_, _, ratio))) if *name != found.baseline => {
                    ratio_cell(&format!(".{}", measure.field()), &ratio)
                }
                (Some(_), Some((_, _, ratio))) => {
                    number(&format!(".{}.median", measure.field()), ratio.median, &say::ratio(ratio.median))
                }
                _ => one("1.00"),
            };
            let row = html! {
                tr class=[own_class(name)] data-path=[at.map(|at| format!("standing[{at}]"))] {
                    (self.who(place, name))
                    @for measure in Measure::ALL { (cell(measure)) }
                    @for value in &values { (self.mean_value(at, value)) }
                    @if at.is_some() {
                        (number(".workloads", workloads as f64, &workloads.to_string()))
                    } @else {
                        td data-value=(workloads) { (workloads) }
                    }
                }
            };
            rows.push((time.median, row));
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let table = html! {
            table class="sortable" {
                caption { (caption) " " small { "ratio to " (found.baseline) ", 95 % interval" } }
                (titles(["allocator", "time", "peak", "average"].into_iter().chain(values).chain(["of"])))
                tbody { @for (_, row) in rows { (row) } }
            }
        };
        boxed(caption, table)
    }

    /// The mean of a further number in the standing at this place; None is the baseline's.
    fn mean_value(&self, at: Option<usize>, name: &str) -> Markup {
        match at.map(|at| self.comparison.standing[at].values.get(name)) {
            Some(Some(ratio)) => ratio_cell(&format!(".values{}", key(name)), ratio),
            Some(None) => html! { td {} },
            None => one("1.00"),
        }
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

    fn glance(&self) -> Markup {
        let found = self.comparison;
        let scales = [Measure::Time, Measure::PeakRss].map(|measure| {
            let dots = found.workloads.iter().flat_map(|workload| self.dots(workload, measure, false));
            Scale::of_ratios(dots.map(|dot| dot.ratio.median), 3.0, 97.0)
        });
        let groups = found.groups();
        let whole = if groups.is_empty() { vec![""] } else { groups };
        html! {
            section id="glance" {
                h2 { "Every workload at a glance" }
                p class="note" {
                    "One row a workload, one mark an allocator; left is better. The line is " (found.baseline)
                    "; shaded is what " (found.baseline)
                    " against itself came to, so what this machine cannot tell apart."
                }
                (self.legend())
                div class="glance" {
                    @for group in whole {
                        div class="row head" {
                            div { @if !group.is_empty() { strong { (group) } } }
                            div { span { "time" } (svg::strip_axis(&scales[0], 16.0)) }
                            div { span { "peak memory" } (svg::strip_axis(&scales[1], 16.0)) }
                        }
                        @for (at, workload) in found.of_group(group) {
                            div class="row" {
                                a href={ "#w" (at) } { (workload.name) }
                                @for (measure, scale) in [Measure::Time, Measure::PeakRss].into_iter().zip(&scales) {
                                    div {
                                        (svg::strip(scale, workload.resolution(measure),
                                            &self.dots(workload, measure, false)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn workloads(&self) -> Markup {
        let found = self.comparison;
        let groups = found.groups();
        let outside = found.workloads.iter().enumerate().filter(|(_, one)| one.group.is_empty());
        let mut parts: Vec<(&str, Vec<(usize, &Workload)>)> = vec![("", outside.collect())];
        parts.extend(groups.into_iter().map(|group| (group, found.of_group(group).collect())));
        html! {
            section id="workloads" {
                h2 { "Workload by workload" }
                @for (group, workloads) in parts.into_iter().filter(|part| !part.1.is_empty()) {
                    @if !group.is_empty() { h3 { (group) } }
                    @for (at, workload) in workloads { (self.workload(at, workload)) }
                }
            }
        }
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

    fn curves(&self) -> Markup {
        let names = self.curve_names();
        html! {
            @if !names.is_empty() {
                section id="curves" {
                    h2 { "Scaling" }
                    p class="note" { "Medians; the points' numbers are with their workloads." }
                    div class="pair charts" {
                        @for (number, name) in names.into_iter().enumerate() {
                            figure { figcaption { (name) } (self.curve(number, name)) }
                        }
                    }
                }
            }
        }
    }

    fn curve(&self, number: usize, name: &str) -> Markup {
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
        lines(&Lines {
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
        })
    }

    /// Workloads by allocators.
    fn matrices(&self) -> Markup {
        let found = self.comparison;
        let cell = |workload: &Workload, name: &str, measure: Measure| {
            let number = workload.results.iter().position(|one| one.allocator == name);
            match number.zip(found.ratio(workload, name, measure)) {
                None => html! { td {} },
                Some(_) if name == found.baseline => one("1"),
                Some((number, ratio)) => matrix_cell(number, measure, &ratio),
            }
        };
        let table = |measure: Measure| {
            html! {
                table class="wide sortable" {
                    (titles(["workload"].into_iter().chain(self.names.iter().copied())))
                    tbody {
                        @for (at, workload) in found.workloads.iter().enumerate() {
                            tr data-path={ "workloads[" (at) "]" } {
                                td { (workload.name) }
                                @for name in &self.names { (cell(workload, name, measure)) }
                            }
                        }
                    }
                }
            }
        };
        html! {
            section id="tables" {
                h2 { "All ratios" }
                p class="note" {
                    "Medians of the ratios to " (found.baseline) "; coloured where the difference is beyond what the \
                     machine resolves. A heading sorts its table."
                }
                @for measure in Measure::ALL {
                    details class="more" open[measure == Measure::Time] {
                        summary { (measure.title()) }
                        (boxed(&format!("{}, all ratios", measure.title()), table(measure)))
                    }
                }
            }
        }
    }

    fn failures(&self) -> Markup {
        let found = self.comparison;
        let results = found
            .workloads
            .iter()
            .flat_map(|workload| workload.results.iter().chain(&workload.again).map(move |result| (workload, result)));
        let reasons = results.flat_map(|(workload, result)| {
            result.failures.iter().map(move |reason| (&workload.name, &result.allocator, reason))
        });
        let (mut reasons, mut missing) =
            (reasons.peekable(), found.missing.iter().chain(&found.missing_workloads).peekable());
        html! {
            @if reasons.peek().is_some() {
                section id="failures" {
                    h2 { "Runs that do not count" }
                    (boxed("Failures", html! {
                        table {
                            thead {
                                tr {
                                    th scope="col" { "workload" }
                                    th scope="col" class="text" { "allocator" }
                                    th scope="col" class="text" { "why the run does not count" }
                                }
                            }
                            tbody {
                                @for (workload, allocator, reason) in reasons {
                                    tr {
                                        td { (workload) }
                                        td class="text" { (allocator) }
                                        td class="text" { (reason) }
                                    }
                                }
                            }
                        }
                    }))
                }
            }
            @if missing.peek().is_some() {
                section id="missing" {
                    h2 { "Not measured" }
                    (boxed("Not measured", html! {
                        table {
                            thead { tr { th scope="col" { "what" } th scope="col" class="text" { "why" } } }
                            tbody { @for one in missing { tr { td { (one.name) } td class="text" { (one.reason) } } } }
                        }
                    }))
                }
            }
        }
    }

    fn conditions(&self) -> Markup {
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
        let preloaded = |allocator: &Allocator| {
            let environment: Vec<String> =
                allocator.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let libraries =
                if allocator.libraries.is_empty() { "the system's own".into() } else { allocator.libraries.join(" ") };
            [environment.join(" "), libraries].join(" ")
        };
        html! {
            section id="machine" {
                h2 { "The machine and the allocators" }
                dl { @for (name, text) in facts { dt { (name) } dd { (text) } } }
                (boxed("Allocators", html! {
                    table class="versions" {
                        thead {
                            tr {
                                th scope="col" { "allocator" }
                                th scope="col" class="text" { "version" }
                                th scope="col" class="text" { "preloaded" }
                            }
                        }
                        tbody {
                            @for (place, allocator) in found.allocators.iter().enumerate() {
                                tr {
                                    (self.who(place, &allocator.name))
                                    td class="text" {
                                        @if allocator.version.is_empty() { "–" } @else { (allocator.version) }
                                    }
                                    td class="text" { code { (preloaded(allocator)) } }
                                }
                            }
                        }
                    }
                }))
                (how_to_read(&found.baseline))
            }
        }
    }
}

fn how_to_read(baseline: &str) -> Markup {
    html! {
        div class="how" id="how" {
            h2 { "How to read this" }
            p {
                strong { "Ratio." } " Every number with × and every axis is a ratio to " (baseline) ": 0.90 took 10 % \
                less. Time is wall time or, where a program prints its own throughput, the inverse of that. Runs of \
                all allocators alternate; each run is compared with " (baseline) "'s beside it, and the ratio is the \
                median of these, so that a machine that grows slower meanwhile does not matter."
            }
            p {
                strong { "Interval." } " In 95 of 100 repetitions the median would lie within (bootstrap). Two \
                allocators whose intervals overlap widely are not told apart."
            }
            p {
                strong { "A/A." } " " (baseline) " runs twice in each round. Its ratio to itself should be 1; how far \
                it and its interval are from 1 is what this machine cannot resolve, shaded in the plots. A difference \
                within it is called none."
            }
            p {
                strong { "Peak and average memory." } " The program's own resident memory: its highest, and its mean \
                over the time it ran. Of programs of several processes, the sum with shared pages counted once."
            }
            p {
                strong { "Geometric mean." } " Of the ratios over workloads: each counts the same, however long it \
                runs. An allocator that failed a workload is averaged over the others (column “of”)."
            }
        }
    }
}
