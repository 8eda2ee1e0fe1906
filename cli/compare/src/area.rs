//! CPU time and memory as one figure.
//!
//! 1. With --area, memory is sampled every 20 ms from smaps_rollup: what is resident, and what of it is lazy (LazyFree:
//!    the kernel may take it at any moment, and counts it as available).
//! 2. The area is the integral over the run, in GiB x s. Lazy memory counts both ways, so there are two areas.
//! 3. PRICE, in CPU seconds for a GiB x s, makes one figure of CPU time and area: the cost. LOW and HIGH bound it.
//! 4. On each workload an allocator is compared with the cheapest of the others; the standing is the geometric mean.
// SPDX-License-Identifier: MIT

use crate::launch::Cost;
use crate::over_time::means;
use crate::results::*;
use crate::terminal::plural;
use hakmem_base::table::{bytes, cell_of, table, Cell, Column, Style};
use std::collections::BTreeMap;

/// What `Run::values` calls the numbers.
pub const AREA: &str = "GiB s";
pub const LAZY: &str = "lazy GiB s";
pub const COST: &str = "cost s";
const COST_LOW: &str = "cost s, low price";
const COST_HIGH: &str = "cost s, high price";
const COST_LAZY_GONE: &str = "cost s, lazy as gone";

/// CPU seconds for a GiB that is kept for a second: what both cost to rent in the clouds, and bounds.
pub const PRICE: f64 = 0.15;
const LOW: f64 = 0.03;
const HIGH: f64 = 0.6;

const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SPARK_COLUMNS: usize = 24;

/// The numbers of a run that was sampled for them.
pub fn values(cost: &Cost) -> BTreeMap<String, f64> {
    let area_of = |bytes: u64| bytes as f64 / f64::from(1 << 30) * cost.wall_s;
    let (area, lazy) = (area_of(cost.average_rss_bytes), area_of(cost.average_lazy_bytes));
    let at = |price: f64, area: f64| cost.cpu_s + price * area;
    let numbers = [
        (AREA, area),
        (LAZY, lazy),
        (COST, at(PRICE, area)),
        (COST_LOW, at(LOW, area)),
        (COST_HIGH, at(HIGH, area)),
        (COST_LAZY_GONE, at(PRICE, (area - lazy).max(0.0))),
    ];
    numbers.map(|(name, number)| (name.to_string(), number)).into()
}

pub fn is_in(summary: &Summary) -> bool {
    summary.values.contains_key(COST)
}

fn median(summary: &Summary, name: &str) -> f64 {
    summary.values.get(name).map_or(f64::NAN, |spread| spread.median)
}

/// Samples as a row of bars, `top` being the highest; each bar is the mean of its part of `end` seconds.
fn bars(samples: &[(f64, u64)], top: f64, end: f64) -> String {
    let bar = |height: f64| SPARKS[((height / top * SPARKS.len() as f64) as usize).min(SPARKS.len() - 1)];
    means(samples, end, SPARK_COLUMNS, end).into_iter().map(bar).collect()
}

/// Memory over time in the run that is the median by cost.
fn over_time(result: &WorkloadResult, top: f64, end: f64) -> String {
    let mut runs: Vec<&Run> = result.runs.iter().collect();
    let cost = |run: &Run| run.values.get(COST).copied().unwrap_or(f64::INFINITY);
    runs.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    runs.get(runs.len() / 2).map_or(String::new(), |run| bars(&run.rss_over_time, top, end))
}

/// The columns of a workload that are about cost. `ratios`: the costs to the baseline's.
pub fn columns(measured: &[(&WorkloadResult, &Summary)], ratios: Column) -> Vec<Column> {
    let runs = || measured.iter().flat_map(|(result, _)| &result.runs);
    let top = runs().flat_map(|run| &run.rss_over_time).map(|(_, bytes)| *bytes).max().unwrap_or(1) as f64;
    let end = runs().map(|run| run.wall_s).fold(0.0, f64::max);
    let cells = |text: &dyn Fn(&Summary) -> String| measured.iter().map(|(_, one)| Cell::new(text(one))).collect();
    let value = |name: &'static str| cells(&move |one| format!("{:.3}", median(one, name)));
    vec![
        Column::new("CPU s", 0, cells(&|one| format!("{:.3}", one.cpu_s.median))),
        Column::new(AREA, 0, value(AREA)),
        Column::new("of it lazy", 1, value(LAZY)),
        Column::new("cost s", 0, value(COST)),
        ratios,
        Column::new("faults", 2, cells(&|one| format!("{:.0}", one.minor_faults.median))),
        Column::new("peak RSS", 1, cells(&|one| bytes(one.peak_rss_bytes.median))),
        Column::new(
            "over time",
            3,
            measured.iter().map(|(result, _)| Cell::new(over_time(result, top, end))).collect(),
        ),
    ]
}

// ---- all workloads together ----

/// What allocators cost on each workload that all of them finished.
struct Costs<'a> {
    workloads: Vec<&'a Workload>,
    names: Vec<&'a str>,
}

impl<'a> Costs<'a> {
    fn of(comparison: &'a Comparison) -> Costs<'a> {
        let is_complete =
            |workload: &&Workload| workload.results.iter().all(|result| result.summary.as_ref().is_some_and(is_in));
        let workloads = comparison.workloads.iter().filter(is_complete).collect();
        Costs { workloads, names: comparison.allocators.iter().map(|allocator| allocator.name.as_str()).collect() }
    }

    /// The numbers of an allocator, one for each workload.
    fn numbers(&self, place: usize, pick: &dyn Fn(&Summary) -> f64) -> Vec<f64> {
        let number = |workload: &&Workload| workload.results[place].summary.as_ref().map_or(f64::NAN, pick);
        self.workloads.iter().map(number).collect()
    }

    /// To the least of the others, on each workload.
    fn to_best(&self, place: usize, pick: &dyn Fn(&Summary) -> f64) -> Vec<f64> {
        let others = (0..self.names.len()).filter(|&other| other != place);
        let others: Vec<Vec<f64>> = others.map(|other| self.numbers(other, pick)).collect();
        let best = |at: usize| others.iter().map(|numbers| numbers[at]).fold(f64::INFINITY, f64::min);
        self.numbers(place, pick).iter().enumerate().map(|(at, number)| number / best(at)).collect()
    }
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// What the cost is, in a sentence.
pub fn explanation() -> String {
    format!("Cost: CPU seconds, and {PRICE} for a GiB resident for a second.")
}

/// The sums and the means, then each workload's ratios. Empty where the area was not measured.
pub fn standing(comparison: &Comparison, style: Style) -> String {
    let costs = Costs::of(comparison);
    if costs.workloads.is_empty() || costs.names.len() < 2 {
        return String::new();
    }
    let value = |name: &'static str| move |summary: &Summary| median(summary, name);
    let mut order: Vec<usize> = (0..costs.names.len()).collect();
    let mean = |place: usize, name: &'static str| geometric_mean(&costs.to_best(place, &value(name)));
    order.sort_by(|&one, &other| mean(one, COST).total_cmp(&mean(other, COST)));
    let cells = |text: &dyn Fn(usize) -> String| order.iter().map(|&place| Cell::new(text(place))).collect();
    let sum = |place: usize, pick: &dyn Fn(&Summary) -> f64| costs.numbers(place, pick).iter().sum::<f64>();
    let sums = |title: &str, leave_out: u8, pick: &dyn Fn(&Summary) -> f64| {
        Column::new(title, leave_out, cells(&|place| format!("{:.2}", sum(place, pick))))
    };
    let means = |title: String, leave_out: u8, pick: &dyn Fn(&Summary) -> f64| {
        let text = |place: usize| format!("{:.2}", geometric_mean(&costs.to_best(place, pick)));
        Column::new(title, leave_out, cells(&text))
    };
    let worst = |place: usize| costs.to_best(place, &value(COST)).into_iter().fold(0.0, f64::max);
    let all = table(
        vec![
            Column::new("allocator", 0, order.iter().map(|&place| cell_of(costs.names[place])).collect()),
            sums("cost s", 0, &value(COST)),
            sums("CPU s", 1, &|summary| summary.cpu_s.median),
            sums(AREA, 1, &value(AREA)),
            sums("of it lazy", 2, &value(LAZY)),
            means(format!("÷ best at {PRICE}"), 0, &value(COST)),
            means(format!("at {LOW}"), 0, &value(COST_LOW)),
            means(format!("at {HIGH}"), 0, &value(COST_HIGH)),
            means("lazy as gone".to_string(), 2, &value(COST_LAZY_GONE)),
            Column::new("worst", 1, cells(&|place| format!("{:.2}", worst(place)))),
            means("peak".to_string(), 1, &|summary| summary.peak_rss_bytes.median),
            means("faults".to_string(), 2, &|summary| summary.minor_faults.median),
            means("time".to_string(), 2, &|summary| summary.wall_s.median),
        ],
        style,
    );
    let rounds = costs.workloads.iter().map(|workload| workload.rounds).min().unwrap_or(0);
    let mut columns =
        vec![Column::new("workload", 0, costs.workloads.iter().map(|workload| cell_of(&workload.name)).collect())];
    for &place in &order {
        let ratios = costs.to_best(place, &value(COST));
        let cells = ratios.iter().map(|ratio| Cell::new(format!("{ratio:.2}"))).collect();
        columns.push(Column::new(costs.names[place], 0, cells));
    }
    format!(
        "{} Sums of medians of {} of {}, then\n\
         geometric means of ratios to the best of the others on each.\n\
         {all}\n\nEach workload's cost to the least of the others:\n{}",
        explanation(),
        plural(rounds, "round"),
        plural(costs.workloads.len(), "workload"),
        table(columns, style)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_means_of_their_part() {
        let samples = [(0.0, 0), (0.1, 800), (12.0, 100), (23.0, 300), (23.5, 500)];
        assert_eq!(bars(&samples, 800.0, 24.0), "▅▇▇▇▇▇▇▇▇▇▇▂▂▂▂▂▂▂▂▂▂▂▄▆".replace('▇', "█"));
    }

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[2.0, 0.5, 8.0]) - 2.0).abs() < 1e-12);
    }

    /// The cheapest is compared with the second, so it is below 1.
    #[test]
    fn standings_are_to_the_best_of_the_others() {
        let mut comparison: Comparison = serde_json::from_str(include_str!("../tests/result.json")).unwrap();
        assert_eq!(standing(&comparison, Style::of_stdout()), "", "the area was not measured");
        for (result, cost) in comparison.workloads[0].results.iter_mut().zip([3.0, 2.0]) {
            let spread = Spread { median: cost, least: cost, most: cost };
            result.summary.as_mut().unwrap().values.insert(COST.to_string(), spread);
        }
        let costs = Costs::of(&comparison);
        let value = |summary: &Summary| median(summary, COST);
        let ratios: Vec<f64> = (0..2).map(|place| costs.to_best(place, &value)[0]).collect();
        assert_eq!(ratios, [3.0 / 2.0, 2.0 / 3.0]);
    }
}
