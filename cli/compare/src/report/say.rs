//! Numbers and findings as a person reads them.
// SPDX-License-Identifier: MIT

use super::{Measure, HAKMEM};
use crate::results::*;
use crate::statistics::reach;
pub use hakmem_base::say::*;

pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".into(),
        _ if value < 0.0995 => format!("{value:.3}"),
        _ if value < 9.95 => format!("{value:.2}"),
        _ if value < 99.5 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub fn interval(low: f64, high: f64) -> String {
    format!("{}–{}", ratio(low), ratio(high))
}

/// An allocator at the start of a sentence or in it; HAKMEM's own name is written large.
pub fn name(allocator: &str) -> &str {
    if allocator == HAKMEM {
        "HAKMEM"
    } else {
        allocator
    }
}

/// The standing of one allocator in one measure.
struct Rank<'a> {
    /// One more than are better, beyond the noise where that was measured.
    place: usize,
    of: usize,
    /// None has a better median.
    leads: bool,
    /// The one to name beside it, and its ratio to this: the best of those that are better, else the next.
    other: &'a str,
    ratio: Ratio,
    /// Whether the ratio was measured, not computed from two. One that was computed counts if it is beyond what the
    /// baseline shows against itself.
    sure: bool,
}

fn rank<'a>(comparison: &'a Comparison, subject: &str, measure: Measure) -> Option<Rank<'a>> {
    let sure = subject == comparison.baseline;
    let own = comparison.mean("", subject, measure)?.2.median;
    let resolution = comparison.whole_resolution(measure).unwrap_or(f64::INFINITY);
    let others = comparison.allocators.iter().filter(|one| one.name != subject).filter_map(|allocator| {
        let (_, _, ratio) = comparison.mean("", &allocator.name, measure)?;
        let median = ratio.median / own;
        let verdict = match median {
            _ if sure => ratio.verdict,
            _ if median > resolution => Verdict::Worse,
            _ if median * resolution < 1.0 => Verdict::Better,
            _ => Verdict::Same,
        };
        let (low, high) = if sure { (ratio.low, ratio.high) } else { (median, median) };
        let ratio = Ratio { median, low, high, verdict };
        ratio.is_usable().then_some((allocator.name.as_str(), ratio))
    });
    let mut others: Vec<(&str, Ratio)> = others.collect();
    others.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let is_better = |ratio: &Ratio| ratio.verdict == Verdict::Better;
    let place = 1 + others.iter().filter(|one| is_better(&one.1)).count();
    let &(other, ratio) = others.iter().find(|one| is_better(&one.1)).or(others.first())?;
    let leads = others.iter().all(|one| one.1.median >= 1.0);
    Some(Rank { place, of: others.len() + 1, leads, other, ratio, sure })
}

impl Rank<'_> {
    fn is_level(&self) -> bool {
        self.ratio.verdict == Verdict::Same
    }

    fn short(&self, best: &str, what: &str) -> String {
        match (self.place, self.is_level()) {
            (1, true) => format!("level with the {best}"),
            (1, false) => format!("the {best}"),
            (at, _) => format!("{} in {what}", place(at)),
        }
    }

    fn sentence(&self, own: &str, measure: &str, best: &str, takes: &str) -> String {
        let difference = self.ratio.median - 1.0;
        let more = if difference > 0.0 { "more" } else { "less" };
        let mut ends = [(self.ratio.low - 1.0).abs(), (self.ratio.high - 1.0).abs()];
        ends.sort_by(f64::total_cmp);
        let interval = match self.sure && !self.is_level() {
            true => format!(" ({} to {})", percent(ends[0]).replace("\u{a0}%", ""), percent(ends[1])),
            false => String::new(),
        };
        let noise = if self.is_level() { ", which is within the noise" } else { "" };
        let which = if self.leads { "the next" } else { best };
        let other = name(self.other);
        format!("{measure}: {other}, {which}, {takes} {} {more} than {own}{interval}{noise}.", percent(difference))
    }
}

/// The standing in a line, and what stands behind it in a few more.
pub fn headline(comparison: &Comparison) -> (String, Vec<String>) {
    if comparison.workloads.is_empty() {
        return ("Nothing was measured".into(), vec!["The results hold no workload.".into()]);
    }
    let own = comparison.place_of(HAKMEM).map_or(comparison.baseline.as_str(), |_| HAKMEM);
    let ranks = rank(comparison, own, Measure::Time).zip(rank(comparison, own, Measure::PeakRss));
    let Some((time, memory)) = ranks else {
        let line = format!("{} has nothing to be compared with", name(own));
        return (line, vec!["No other allocator finished a workload that it finished.".into()]);
    };
    let (of, first) = (time.of, time.short("fastest", "time"));
    let second = memory.short("leanest", "memory");
    let line = format!("Of {of} allocators, {} is {first} and {second}", name(own));
    let many = comparison.workloads.len();
    let over = if many > 1 { format!("Time, over {many} workloads") } else { "Time".into() };
    let mut more = vec![
        time.sentence(name(own), &over, "the fastest", "takes"),
        memory.sentence(name(own), "Peak memory", "the leanest", "needs"),
    ];
    let resolution = comparison.resolution(Measure::Time).zip(comparison.resolution(Measure::PeakRss));
    more.push(match resolution {
        Some((time, memory)) => {
            format!(
            "What this machine resolves: {} against itself differs by up to {} in time and {} in peak memory on {}{}.",
            name(&comparison.baseline),
            percent(time - 1.0),
            percent(memory - 1.0),
            if many > 1 { "the median workload" } else { "this workload" },
            match comparison.standing_again.iter().find(|one| one.group.is_empty()).filter(|_| many > 1) {
                Some(again) => {
                    let [time, memory] = [&again.time, &again.peak_rss].map(|one| percent(reach(one) - 1.0));
                    format!(", and by up to {time} and {memory} over all of them")
                }
                None => String::new(),
            }
        )
        }
        None => format!(
            "How small a difference this machine resolves was not measured: {} ran once only in each round.",
            name(&comparison.baseline)
        ),
    });
    (line, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_three_digits() {
        assert_eq!([ratio(0.934), ratio(12.34), ratio(0.0123), ratio(f64::NAN)], ["0.93", "12.3", "0.012", "–"]);
    }
}
