//! The comparison on a terminal: a table per workload, what it means in sentences, and the standing.
//!
//! Ratios are to the baseline, below 1 is better. "*" marks a difference that is not chance. Where the terminal is
//! narrow, the columns that matter least are left out.
// SPDX-License-Identifier: MIT

use crate::results::*;
use crate::statistics::{self, ROUNDS_FOR_VERDICT};
use crate::{area, tax};
use hakmem_base::table::{amount, bytes, cell_of, seconds, table, Cell, Color, Column, Style};

fn interval(ratio: &Ratio) -> String {
    let mark = if ratio.verdict == Verdict::Same { "" } else { "*" };
    format!("{:.2}{mark} [{:.2}–{:.2}]", ratio.median, ratio.low, ratio.high)
}

/// Differences as percentages, without decimals above 10.
pub(crate) fn percent(difference: f64) -> String {
    let percent = difference.abs() * 100.0;
    if percent >= 9.95 {
        format!("{percent:.0}")
    } else {
        format!("{percent:.1}").trim_end_matches(".0").to_string()
    }
}

fn ratio_cell(text: String, ratio: Option<&Ratio>) -> Cell {
    match ratio.map(|ratio| ratio.verdict) {
        Some(Verdict::Better) => Cell::new(text).fg(Color::Green),
        Some(Verdict::Worse) => Cell::new(text).fg(Color::Red),
        _ => Cell::new(text),
    }
}

/// What is compared beside memory: the allocator's tax or the cost where they were measured, else time.
struct Cost<'a> {
    ratio: &'a Ratio,
    name: &'static str,
    better: &'static str,
    worse: &'static str,
}

impl Ratios {
    fn cost(&self) -> Cost<'_> {
        let priced = [(tax::TAX, "tax"), (area::COST, "cost")];
        let priced = priced.into_iter().find_map(|(key, name)| Some((self.values.get(key)?, name)));
        match priced {
            Some((ratio, name)) => Cost { ratio, name, better: "cheaper", worse: "dearer" },
            None => Cost { ratio: &self.time, name: "time", better: "faster", worse: "slower" },
        }
    }
}

fn milliseconds(number: f64) -> String {
    seconds(number / 1e3)
}

/// The name of a baseline as it stands in a title.
fn over(baseline: &str) -> String {
    format!("÷ {baseline}")
}

/// One workload: its table, the A/A line, failures. `what` is compared: "allocator".
pub fn workload(workload: &Workload, what: &str, baseline: &str, style: Style) -> String {
    let measured: Vec<(&WorkloadResult, &Summary)> =
        workload.results.iter().filter_map(|result| Some((result, result.summary.as_ref()?))).collect();
    let mut text = format!("{}  ({})", title(workload), plural(workload.rounds, "round"));
    if !measured.is_empty() {
        text += &format!("\n{}", table(workload_columns(workload, what, &measured, baseline), style));
    }
    if let Some(line) = again_line(workload, baseline) {
        text += &format!("\n{line}");
    }
    if measured.iter().all(|(result, _)| result.allocator != baseline) {
        text += &format!("\nNothing can be compared: {baseline}, the baseline, fails.");
    }
    for result in workload.results.iter().chain(&workload.again) {
        for failure in &result.failures {
            text += &format!("\n{}: {failure}", result.allocator);
        }
    }
    text
}

fn title(workload: &Workload) -> String {
    match workload.group.as_str() {
        "" => workload.name.clone(),
        group => format!("{group}: {}", workload.name),
    }
}

pub(crate) fn plural(count: usize, word: &str) -> String {
    if count == 1 {
        format!("1 {word}")
    } else {
        format!("{count} {word}s")
    }
}

type Measured<'a> = [(&'a WorkloadResult, &'a Summary)];

fn workload_columns(workload: &Workload, what: &str, measured: &Measured, baseline: &str) -> Vec<Column> {
    let cells = |text: &dyn Fn(&Summary) -> String| measured.iter().map(|(_, one)| Cell::new(text(one))).collect();
    let ratios = |pick: &dyn Fn(&Ratios) -> Option<Ratio>, short: bool| {
        let cell = |summary: &Summary| match summary.ratios.as_ref().and_then(pick) {
            Some(ratio) if short => {
                let mark = if ratio.verdict == Verdict::Same { "" } else { "*" };
                ratio_cell(format!("{:.2}{mark}", ratio.median), Some(&ratio))
            }
            Some(ratio) => ratio_cell(interval(&ratio), Some(&ratio)),
            None => Cell::new("-"),
        };
        measured
            .iter()
            .map(|(result, one)| if result.allocator == baseline { Cell::new("1") } else { cell(one) })
            .collect()
    };
    let time = match &workload.metric {
        Some(metric) => Column::new(&metric.name, 0, cells(&|one| one.metric.map_or("-".into(), |m| amount(m.median)))),
        None => Column::new("time", 0, cells(&|one| seconds(one.wall_s.median))),
    };
    let names = measured.iter().map(|(result, _)| cell_of(&result.allocator)).collect();
    let value = |name: &'static str, text: fn(f64) -> String| {
        cells(&move |one| one.values.get(name).map_or("-".into(), |spread| text(spread.median)))
    };
    if measured.iter().any(|(_, one)| one.values.contains_key(tax::KERNEL)) {
        return vec![
            Column::new(what, 0, names),
            Column::new("library", 0, value(tax::LIBRARY, milliseconds)),
            Column::new("kernel", 0, value(tax::KERNEL, milliseconds)),
            Column::new("tax", 0, value(tax::TAX, milliseconds)),
            Column::new(
                format!("tax {}", over(baseline)),
                0,
                ratios(&|ratios| ratios.values.get(tax::TAX).copied(), false),
            ),
            Column::new("faults", 1, cells(&|one| amount(one.minor_faults.median))),
            Column::new("madvise", 1, value(tax::MADVISE, amount)),
            Column::new("peak RSS", 2, cells(&|one| bytes(one.peak_rss_bytes.median))),
            Column::new(over(baseline), 2, ratios(&|ratios| Some(ratios.peak_rss), true)),
        ];
    }
    if measured.iter().any(|(_, one)| area::is_in(one)) {
        let ratios = ratios(&|ratios| ratios.values.get(area::COST).copied(), false);
        let columns = area::columns(measured, Column::new(over(baseline), 0, ratios));
        return [Column::new(what, 0, names)].into_iter().chain(columns).collect();
    }
    let mut columns = vec![
        Column::new(what, 0, names),
        time,
        Column::new(format!("time {}", over(baseline)), 0, ratios(&|ratios| Some(ratios.time), false)),
        Column::new("CPU", 3, cells(&|one| seconds(one.cpu_s.median))),
        Column::new("peak RSS", 0, cells(&|one| bytes(one.peak_rss_bytes.median))),
        Column::new(over(baseline), 1, ratios(&|ratios| Some(ratios.peak_rss), true)),
        Column::new("average", 4, cells(&|one| bytes(one.average_rss_bytes.median))),
        Column::new(over(baseline), 4, ratios(&|ratios| Some(ratios.average_rss), true)),
        Column::new("faults", 5, cells(&|one| amount(one.minor_faults.median))),
    ];
    let names = measured.iter().flat_map(|(_, one)| one.values.keys()).collect::<std::collections::BTreeSet<_>>();
    for name in names {
        let value = |one: &Summary| one.values.get(name).map_or("-".into(), |spread| amount(spread.median));
        columns.push(Column::new(name, 6, cells(&value)));
    }
    columns
}

/// What the baseline shows against itself.
fn again_line(workload: &Workload, baseline: &str) -> Option<String> {
    let ratios = workload.again.as_ref()?.summary.as_ref()?.ratios.as_ref()?;
    let reach = |ratio: &Ratio| percent(statistics::reach(ratio) - 1.0);
    let cost = ratios.cost();
    let mut line = format!(
        "A/A: {baseline} against itself: {} {}, so within ±{} % means nothing here; peak RSS ±{} %.",
        cost.name,
        interval(cost.ratio),
        reach(cost.ratio),
        reach(&ratios.peak_rss)
    );
    if workload.rounds < ROUNDS_FOR_VERDICT {
        line += &format!(" A verdict takes {ROUNDS_FOR_VERDICT} rounds.");
    }
    Some(line)
}

/// What was measured of all workloads together.
pub fn standing(comparison: &Comparison, style: Style) -> String {
    let mut groups: Vec<&str> = comparison.standing.iter().map(|standing| standing.group.as_str()).collect();
    groups.sort();
    groups.dedup();
    // With one group, it is the whole.
    if groups.len() == 2 && comparison.workloads.iter().all(|workload| workload.group == groups[1]) {
        groups.pop();
    }
    let tables = groups.iter().map(|group| standing_of(comparison, group, style));
    tables.collect::<Vec<_>>().join("\n\n")
}

fn standing_of(comparison: &Comparison, group: &str, style: Style) -> String {
    let mut rows: Vec<&Standing> = comparison.standing.iter().filter(|standing| standing.group == group).collect();
    let taxed = rows.iter().any(|standing| standing.values.contains_key(tax::KERNEL));
    let cost = |standing: &Standing| if taxed { standing.values.get(tax::TAX).copied() } else { Some(standing.time) };
    let order = |standing: &Standing| cost(standing).map_or(f64::INFINITY, |ratio| ratio.median);
    rows.sort_by(|one, other| order(one).total_cmp(&order(other)));
    let pick = |pick: &dyn Fn(&Standing) -> Cell| rows.iter().map(|standing| pick(standing)).collect();
    let ratios = |ratio: &dyn Fn(&Standing) -> Option<Ratio>| {
        pick(&|standing| {
            let ratio = ratio(standing);
            ratio_cell(ratio.as_ref().map_or("-".into(), interval), ratio.as_ref())
        })
    };
    let value = |name: &str| ratios(&|standing| standing.values.get(name).copied());
    let costs = match taxed {
        true => [tax::LIBRARY, tax::KERNEL, tax::TAX]
            .map(|name| Column::new(name.trim_end_matches(" ms"), 0, value(name)))
            .into(),
        false => vec![Column::new("time", 0, ratios(&|standing| Some(standing.time)))],
    };
    let columns = [Column::new("allocator", 0, pick(&|standing| cell_of(&standing.allocator)))]
        .into_iter()
        .chain(costs)
        .chain([
            Column::new("peak RSS", 0, ratios(&|standing| Some(standing.peak_rss))),
            Column::new("average RSS", 1, ratios(&|standing| Some(standing.average_rss))),
            Column::new("workloads", 2, pick(&|standing| Cell::new(standing.workloads))),
        ])
        .collect();
    let name = if group.is_empty() { "All workloads" } else { group };
    let mut text = format!(
        "{name}: geometric means of ratios to {}, {} first\n{}",
        comparison.baseline,
        if taxed { "cheapest" } else { "fastest" },
        table(columns, style)
    );
    if let Some(again) = comparison.standing_again.iter().find(|again| again.group == group) {
        let (what, cost) = if taxed { ("tax", cost(again)) } else { ("time", Some(again.time)) };
        let (cost, peak) = (cost.as_ref().map_or("-".into(), interval), interval(&again.peak_rss));
        text += &format!("\nA/A: {} against itself: {what} {cost}, peak RSS {peak}.", comparison.baseline);
    }
    text
}

// ---- sentences ----

/// The name as it begins or ends a sentence.
fn spoken(name: &str) -> String {
    match name {
        "hakmem" => "HAKMEM".to_string(),
        "system" => "the system allocator".to_string(),
        name => name.to_string(),
    }
}

/// "7 % faster (5–9 %)", "2.3 times as large (2.1–2.4)": what a verdict says.
fn judgement(ratio: &Ratio, better: &str, worse: &str) -> String {
    let (one, other) = (percent(1.0 - ratio.low), percent(1.0 - ratio.high));
    let range = |from: String, to: String| {
        if from == to {
            String::new()
        } else {
            format!(" ({from}–{to} %)")
        }
    };
    match ratio.verdict {
        Verdict::Better => format!("{} % {better}{}", percent(1.0 - ratio.median), range(other, one)),
        _ if ratio.median < 2.0 => format!("{} % {worse}{}", percent(ratio.median - 1.0), range(one, other)),
        _ => {
            let factor = |factor: f64| {
                if factor < 10.0 {
                    format!("{factor:.1}")
                } else {
                    format!("{factor:.0}")
                }
            };
            let (low, high) = (factor(ratio.low), factor(ratio.high));
            let range = if low == high { String::new() } else { format!(" ({low}–{high})") };
            format!("{} times {worse}{range}", factor(ratio.median))
                .replace("times more", "times as much")
                .replace("times slower", "times as slow")
                .replace("times dearer", "times as dear")
                .replace("times larger", "times as large")
        }
    }
}

/// One sentence per allocator: what it is compared with the baseline.
pub fn sentences(workload: &Workload, baseline: &str) -> Vec<String> {
    let again = workload.again.as_ref().and_then(|again| again.summary.as_ref()?.ratios.as_ref());
    let sentence = |result: &WorkloadResult| {
        let ratios = result.summary.as_ref()?.ratios.as_ref()?;
        Some(sentence(&spoken(&result.allocator), &spoken(baseline), ratios, again, workload.rounds))
    };
    workload.results.iter().filter(|result| result.allocator != baseline).filter_map(sentence).collect()
}

/// What the area is made of, an allocator after the other: each figure with its difference, or with how far chance
/// reaches.
pub fn against(workload: &Workload, baseline: &str) -> String {
    let again = workload.again.as_ref().and_then(|again| again.summary.as_ref()?.ratios.as_ref());
    let base = workload.results.iter().find(|result| result.allocator == baseline);
    let Some(base) = base.and_then(|result| result.summary.as_ref()) else { return String::new() };
    let others = workload.results.iter().filter(|result| result.allocator != baseline);
    let paragraph = |result: &WorkloadResult| {
        let own = result.summary.as_ref()?;
        let ratios = own.ratios.as_ref()?;
        let line =
            |what: &str, text: fn(f64) -> String, pick: fn(&Summary) -> &Spread, ratio: fn(&Ratios) -> &Ratio| {
                let difference = difference(ratio(ratios), again.map(ratio), workload.rounds);
                let figures = format!("{}, {baseline} {}", spread(pick(own), text), spread(pick(base), text));
                format!("\n  {what:<15} {figures}\n  {:15} {difference}", "")
            };
        Some(
            format!(
                "{} against {}, {}:",
                capital(&spoken(&result.allocator)),
                spoken(baseline),
                plural(workload.rounds, "round")
            ) + &line("CPU time", seconds, |one| &one.cpu_s, |ratios| &ratios.cpu)
                + &line("average memory", bytes, |one| &one.average_rss_bytes, |ratios| &ratios.average_rss)
                + &line("peak memory", bytes, |one| &one.peak_rss_bytes, |ratios| &ratios.peak_rss),
        )
    };
    others.filter_map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// The median, from the least to the most; a unit that all three have is said once.
pub(crate) fn spread(spread: &Spread, text: fn(f64) -> String) -> String {
    let [median, least, most] = [spread.median, spread.least, spread.most].map(text);
    let unit = median.find(' ').map_or("", |place| &median[place..]);
    match (least.strip_suffix(unit), most.strip_suffix(unit)) {
        (Some(least), Some(most)) => format!("{median} ({least}–{most})"),
        _ => format!("{median} ({least}–{most})"),
    }
}

fn difference(ratio: &Ratio, again: Option<&Ratio>, rounds: usize) -> String {
    let reach = again.map_or(1.0, statistics::reach) - 1.0;
    match ratio.verdict {
        _ if rounds < ROUNDS_FOR_VERDICT => {
            format!("{} cannot tell a difference from chance", plural(rounds, "round"))
        }
        Verdict::Same => {
            let measured = format!("measured {:.2} [{:.2}–{:.2}]", ratio.median, ratio.low, ratio.high);
            format!("differences within the noise (A/A ±{} %, {measured})", percent(reach))
        }
        _ => judgement(ratio, "less", "more"),
    }
}

fn capital(text: &str) -> String {
    match text.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => text.to_string(),
    }
}

fn sentence(name: &str, baseline: &str, ratios: &Ratios, again: Option<&Ratios>, rounds: usize) -> String {
    if rounds < ROUNDS_FOR_VERDICT {
        let rounds = plural(rounds, "round");
        return format!("{} and {baseline}: {rounds} cannot tell a difference from chance.", capital(name));
    }
    let (cost, peak) = (ratios.cost(), &ratios.peak_rss);
    let parts: Vec<String> = [(cost.ratio, cost.better, cost.worse), (peak, "smaller", "larger")]
        .into_iter()
        .filter(|(ratio, ..)| ratio.verdict != Verdict::Same)
        .map(|(ratio, better, worse)| judgement(ratio, better, worse))
        .collect();
    let within = |pick: &dyn Fn(&Ratios) -> Ratio, own: &Ratio| {
        let reach = again.map_or(1.0, |again| statistics::reach(&pick(again)));
        format!("A/A ±{} %, measured {:.2} [{:.2}–{:.2}]", percent(reach - 1.0), own.median, own.low, own.high)
    };
    let mut text = match parts.is_empty() {
        true => format!("{} and {baseline}:", capital(name)),
        false => {
            let as_large = parts.iter().any(|part| part.contains(" times as "));
            format!(
                "{} is {} {} {baseline} here.",
                capital(name),
                parts.join(" and "),
                if as_large { "compared with" } else { "than" }
            )
        }
    };
    if cost.ratio.verdict == Verdict::Same {
        let within = within(&|ratios| *ratios.cost().ratio, cost.ratio);
        text += &format!(" No difference in {} that this machine can show ({within}).", cost.name);
    }
    if peak.verdict == Verdict::Same {
        let equal = if (peak.median - 1.0).abs() < 0.0005 { "The same peak memory." } else { "" };
        match equal {
            "" => text += &format!(" None in peak memory either way ({}).", within(&|ratios| ratios.peak_rss, peak)),
            equal => text += &format!(" {equal}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_short() {
        assert_eq!([percent(0.071), percent(-0.12), percent(0.05)], ["7.1", "12", "5"]);
    }

    #[test]
    fn spreads_name_a_unit_once() {
        let spread_of = |median, least, most| spread(&Spread { median, least, most }, seconds);
        assert_eq!(spread_of(0.12, 0.11, 0.13), "120.0 ms (110.0–130.0)");
        assert_eq!(spread_of(0.9, 0.8, 1.2), "900.0 ms (800.0 ms–1.20 s)");
        assert_eq!(spread_of(1.11, 0.823, 1.36), "1.11 s (823.0 ms–1.36 s)");
    }

    #[test]
    fn differences_are_told_with_their_noise() {
        let again = ratio(1.0, 0.97, 1.04, Verdict::Same);
        let smaller = ratio(0.7, 0.67, 0.85, Verdict::Better);
        assert_eq!(difference(&smaller, Some(&again), 5), "30 % less (15–33 %)");
        assert_eq!(difference(&smaller, Some(&again), 4), "4 rounds cannot tell a difference from chance");
        assert_eq!(difference(&ratio(2.5, 2.4, 2.6, Verdict::Worse), Some(&again), 5), "2.5 times as much (2.4–2.6)");
        let same = ratio(0.89, 0.86, 1.02, Verdict::Same);
        let text = "differences within the noise (A/A ±4 %, measured 0.89 [0.86–1.02])";
        assert_eq!(difference(&same, Some(&again), 5), text);
    }

    fn ratio(median: f64, low: f64, high: f64, verdict: Verdict) -> Ratio {
        Ratio { median, low, high, verdict }
    }

    fn ratios(time: Ratio, peak_rss: Ratio) -> Ratios {
        Ratios { time, cpu: time, peak_rss, average_rss: peak_rss, minor_faults: peak_rss, values: Default::default() }
    }

    #[test]
    fn sentences_say_what_is_known() {
        let again = ratios(ratio(1.0, 0.97, 1.04, Verdict::Same), ratio(1.0, 1.0, 1.0, Verdict::Same));
        let say =
            |time, peak, rounds| sentence("HAKMEM", "the system allocator", &ratios(time, peak), Some(&again), rounds);
        let faster = ratio(0.93, 0.91, 0.95, Verdict::Better);
        let smaller = ratio(0.88, 0.88, 0.88, Verdict::Better);
        assert_eq!(
            say(faster, smaller, 5),
            "HAKMEM is 7 % faster (5–9 %) and 12 % smaller than the system allocator here."
        );
        let same = ratio(1.01, 0.96, 1.03, Verdict::Same);
        let text = say(same, ratio(2.5, 2.4, 2.6, Verdict::Worse), 5);
        assert!(
            text.starts_with("HAKMEM is 2.5 times as large (2.4–2.6) compared with the system allocator"),
            "{text}"
        );
        assert!(text.contains("No difference in time that this machine can show (A/A ±4 %"), "{text}");
        let text = say(same, ratio(1.0, 1.0, 1.0, Verdict::Same), 5);
        assert!(text.starts_with("HAKMEM and the system allocator: No difference"), "{text}");
        assert!(say(faster, smaller, 3).contains("3 rounds cannot tell"), "{text}");
    }
}
