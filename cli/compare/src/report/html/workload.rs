//! One workload's part of the page: dots with intervals beside their numbers, memory over time, and all numbers.
// SPDX-License-Identifier: MIT

use super::*;
use crate::over_time;

impl Page<'_> {
    /// In short: HAKMEM to the best peer, or who leads.
    fn verdict(&self, workload: &Workload) -> Markup {
        let say = |what: &str, measure: Measure| {
            let versus = self.comparison.versus(workload, measure)?;
            let class = class_of(versus.verdict).unwrap_or("same");
            Some(html! { (what) " " span class=(class) { (say::ratio(versus.ratio)) "×" } " " (versus.peer) })
        };
        let parts: Vec<Markup> =
            [say("time", Measure::Time), say("memory", Measure::PeakRss)].into_iter().flatten().collect();
        html! {
            @if !parts.is_empty() {
                span class="standing" {
                    "HAKMEM: "
                    @for (number, part) in parts.iter().enumerate() { @if number > 0 { ", " } (part) }
                }
            }
        }
    }

    pub fn workload(&self, at: usize, workload: &Workload) -> Markup {
        let speed = match &workload.metric {
            Some(metric) => format!("time is that of one of its {}", metric.name),
            None => "time is wall time".to_string(),
        };
        let points: Vec<Point> = self
            .names
            .iter()
            .enumerate()
            .filter_map(|(place, name)| {
                let x = self.comparison.ratio(workload, name, Measure::Time).filter(Ratio::is_usable)?;
                let y = self.comparison.ratio(workload, name, Measure::PeakRss).filter(Ratio::is_usable)?;
                Some(Point { place, name, x, y })
            })
            .collect();
        let (id, title) = (format!("w{at}s"), format!("{}: time and peak memory", workload.name));
        html! {
            details class="workload" open[self.comparison.workloads.len() <= 3] data-path={ "workloads[" (at) "]" } {
                summary { span class="title" { (workload.name) } (self.verdict(workload)) }
                div class="inside" id={ "w" (at) } {
                    p class="note" {
                        code { (workload.command.join(" ")) } br;
                        (speed) " · " (say::count(workload.rounds, "round"))
                        @if workload.processes == Processes::All { " · memory is that of all its processes" }
                    }
                    div class="pair" {
                        (self.ratio_table(workload, Measure::Time))
                        (self.ratio_table(workload, Measure::PeakRss))
                    }
                    div class="pair charts" {
                        @if points.len() > 1 {
                            figure {
                                figcaption { "Time and peak memory" }
                                (self.scatter(&id, &title, (380.0, 300.0), false, &points))
                            }
                        }
                        @if let Some(drawing) = over_time::drawing(workload, &self.names, &format!("w{at}m")) {
                            figure {
                                figcaption { "Memory over time " small { "each allocator's median run" } }
                                (drawing)
                            }
                        }
                    }
                    (self.numbers(at, workload))
                }
            }
        }
    }

    /// Dots with intervals, and the numbers beside them, the best first.
    fn ratio_table(&self, workload: &Workload, measure: Measure) -> Markup {
        let dots = self.dots(workload, measure, true);
        let itself = workload.against_itself(measure);
        let scale =
            Scale::of_ratios(dots.iter().map(|dot| dot.ratio.median).chain(itself.map(|one| one.median)), 3.0, 97.0);
        let resolution = workload.resolution(measure);
        let path = format!(".ratios.{}", measure.field());
        let mut rows: Vec<(f64, Markup)> = Vec::new();
        for (number, result) in workload.results.iter().enumerate() {
            let (name, place) = (result.allocator.as_str(), self.place(&result.allocator));
            let Some(summary) = &result.summary else { continue };
            let Some(ratio) = self.comparison.ratio(workload, name, measure) else {
                continue;
            };
            let dot: Vec<Dot> = dots.iter().filter(|dot| dot.place == place).map(|dot| Dot { ..*dot }).collect();
            let row = html! {
                tr class=[own_class(name)] data-path={ ".results[" (number) "].summary" } {
                    (self.who(place, name))
                    td class="plot" { (svg::strip(&scale, resolution, &dot)) }
                    @if summary.ratios.is_some() { (ratio_cell(&path, &ratio)) } @else { (one("1.00")) }
                    (self.measured(summary, measure))
                }
            };
            rows.push((ratio.median, row));
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let again = itself.zip(workload.again.as_ref().and_then(|again| again.summary.as_ref()));
        let unit = match (measure, &workload.metric) {
            (Measure::Time, Some(metric)) => metric.name.as_str(),
            (Measure::Time, None) => "wall time",
            _ => "median",
        };
        let table = html! {
            table class="dots sortable" {
                caption {
                    (measure.title()) " " small { "ratio to " (self.comparison.baseline) ", 95 % interval" }
                }
                thead {
                    tr {
                        th scope="col" { "allocator" }
                        th scope="col" class="plot" { (svg::strip_axis(&scale, 36.0)) }
                        th scope="col" { "ratio" }
                        th scope="col" { (unit) }
                    }
                }
                tbody {
                    @for (_, row) in rows { (row) }
                    @for result in workload.results.iter().filter(|result| result.summary.is_none()) {
                        tr {
                            (self.who(self.place(&result.allocator), &result.allocator))
                            td class="text" colspan="3" { (result.failures.last().map_or("no run", String::as_str)) }
                        }
                    }
                    @if let Some((ratio, summary)) = again {
                        @let place = self.place(&self.comparison.baseline);
                        @let dot = Dot { place, ratio, interval: true, own: false };
                        tr class="again" data-path=".again.summary" {
                            td { (self.comparison.baseline) " again " small { "A/A" } }
                            td class="plot" { (svg::strip(&scale, resolution, &[dot])) }
                            (ratio_cell(&path, &ratio))
                            (self.measured(summary, measure))
                        }
                    }
                }
            }
        };
        boxed(&format!("{}: {}", workload.name, measure.title()), table)
    }

    /// What the ratio is of.
    fn measured(&self, summary: &Summary, measure: Measure) -> Markup {
        match (measure, &summary.metric) {
            (Measure::Time, Some(metric)) => number(".metric.median", metric.median, &say::number(metric.median)),
            (Measure::Time, None) => {
                number(".wall_s.median", summary.wall_s.median, &say::seconds(summary.wall_s.median))
            }
            (Measure::PeakRss, _) => number(
                ".peak_rss_bytes.median",
                summary.peak_rss_bytes.median,
                &say::bytes(summary.peak_rss_bytes.median),
            ),
            (Measure::AverageRss, _) => number(
                ".average_rss_bytes.median",
                summary.average_rss_bytes.median,
                &say::bytes(summary.average_rss_bytes.median),
            ),
        }
    }

    /// All that was measured, in one table.
    fn numbers(&self, at: usize, workload: &Workload) -> Markup {
        let values = workload.value_names();
        let rows =
            workload.results.iter().enumerate().map(|(number, result)| (format!("results[{number}]"), result, ""));
        let rows = rows.chain(workload.again.iter().map(|again| ("again".to_string(), again, " again")));
        let table = html! {
            table class="wide sortable" {
                thead {
                    tr {
                        @for title in ["allocator", "runs"] { th scope="col" { (title) } }
                        @if let Some(metric) = &workload.metric { th scope="col" { (metric.name) } }
                        @for title in NUMBERS { th scope="col" { (title) } }
                        @for name in &values { th scope="col" { (name) } th scope="col" { (name) ", ratio" } }
                    }
                }
                tbody {
                    @for (path, result, note) in rows {
                        @if let Some(summary) = &result.summary {
                            @let class = own_class(&result.allocator).filter(|_| note.is_empty());
                            tr class=[class] data-path={ "." (path) ".summary" } {
                                td class={ "a" (self.place(&result.allocator)) } { (result.allocator) (note) }
                                @let runs = result.runs.len();
                                (number(&format!("workloads[{at}].{path}.runs.length"), runs as f64, &runs.to_string()))
                                (numbers_cells(summary, workload.metric.is_some(), &values))
                            }
                        }
                    }
                }
            }
        };
        html! {
            details class="more" {
                summary { "All numbers: medians, and from the least to the most" }
                (boxed(&format!("{}: all numbers", workload.name), table))
            }
        }
    }
}

/// What `numbers_cells` shows besides the metric and the values.
const NUMBERS: [&str; 8] =
    ["wall", "CPU", "CPU ratio", "peak", "average", "average ratio", "minor faults", "faults ratio"];

fn numbers_cells(summary: &Summary, has_metric: bool, values: &[&str]) -> Markup {
    let empty = || html! { td {} };
    let ratio = |of: fn(&Ratios) -> Ratio, field: &str| match &summary.ratios {
        Some(ratios) => ratio_cell(&format!(".ratios.{field}"), &of(ratios)),
        None => empty(),
    };
    html! {
        @if has_metric { (summary.metric.map_or_else(empty, |one| spread_cell(".metric", &one, say::number))) }
        (spread_cell(".wall_s", &summary.wall_s, say::seconds))
        (spread_cell(".cpu_s", &summary.cpu_s, say::seconds))
        (ratio(|ratios| ratios.cpu, "cpu"))
        (spread_cell(".peak_rss_bytes", &summary.peak_rss_bytes, say::bytes))
        (spread_cell(".average_rss_bytes", &summary.average_rss_bytes, say::bytes))
        (ratio(|ratios| ratios.average_rss, "average_rss"))
        (spread_cell(".minor_faults", &summary.minor_faults, say::number))
        (ratio(|ratios| ratios.minor_faults, "minor_faults"))
        @for name in values {
            @let key = key(name);
            @let value = summary.values.get(*name);
            (value.map_or_else(empty, |one| spread_cell(&format!(".values{key}"), one, say::number)))
            @let ratio = summary.ratios.as_ref().and_then(|ratios| ratios.values.get(*name));
            (ratio.map_or_else(empty, |one| ratio_cell(&format!(".ratios.values{key}"), one)))
        }
    }
}
