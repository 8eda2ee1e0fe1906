//! From runs to ratios and verdicts.
//!
//! 1. A ratio is taken between a run and the baseline's run nearest to it in time; a round gives one ratio. The
//!    baseline runs twice per round, so its second series has ratios, too (A/A): what they reach is the resolution.
//! 2. The median of the ratios is reported, with a 95 % interval by bootstrap (percentiles of resampled medians, fixed
//!    seed). With few rounds that interval is too narrow (with 7 it holds the truth in 88 %), so it is widened to the
//!    exact one of the signed ranks (Wilcoxon; 5 rounds: from the least ratio to the highest, 94 %).
//! 3. A verdict other than "same" takes three things: the interval excludes 1; the median is further from 1 than
//!    the resolution; and the allocator's place among its round's three runs (its own, the baseline's two) is one that
//!    an equal allocator gets in fewer than 0.5 % of comparisons, exactly counted. Fewer than 5 rounds cannot show
//!    that. Of equal allocators about 1 in 500 is judged different with 5 rounds, 1 in 1000 with 7 (simulated with
//!    normal noise, outliers and drift).
//! 4. A standing is a geometric mean over workloads of median ratios; rounds are resampled within each workload. As
//!    few rounds tell little of the noise, the interval is at least as wide as the baseline's own ratios (A/A) make
//!    the mean with random signs. Its verdict takes a permutation test in place of the places: by exchanging the
//!    allocator with the baseline at random within rounds, a mean as far from 1 comes about in fewer than 0.5 %.
// SPDX-License-Identifier: MIT

use crate::results::*;
use hakmem_chance::{chances_of_sum, interval, mean_of_medians, median_of};
use std::collections::{BTreeMap, BTreeSet};

const CHANCE: f64 = 0.005;
/// Least rounds that can give a verdict: by chance an equal allocator is first of three in all of them in 0.4 %.
pub const ROUNDS_FOR_VERDICT: usize = 5;

// ---- small things ----

fn spread(numbers: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut numbers: Vec<f64> = numbers.collect();
    if numbers.is_empty() {
        return None;
    }
    let median = median_of(&mut numbers);
    Some(Spread { median, least: numbers[0], most: numbers[numbers.len() - 1] })
}

pub fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    spread(numbers).map(|spread| spread.median)
}

// ---- what is compared ----

/// A number of a run; less is better.
pub type Measure<'a> = &'a dyn Fn(&Run) -> Option<f64>;

pub fn time(run: &Run) -> Option<f64> {
    Some(run.metric.map_or(run.wall_s, |metric| 1.0 / metric))
}

fn cpu(run: &Run) -> Option<f64> {
    Some(run.cpu_s)
}

pub fn peak_rss(run: &Run) -> Option<f64> {
    Some(run.peak_rss_bytes as f64)
}

pub fn average_rss(run: &Run) -> Option<f64> {
    Some(run.average_rss_bytes as f64)
}

fn minor_faults(run: &Run) -> Option<f64> {
    Some(run.minor_faults as f64)
}

// ---- ratios ----

/// A run's number to the baseline's. Nothing to nothing is 1; a thousandfold is as far as it goes.
fn quotient(number: f64, baseline: f64) -> f64 {
    if number == baseline {
        return 1.0;
    }
    (number / baseline).clamp(1e-3, 1e3)
}

/// The runs of the baseline: the first of each round, and the second.
#[derive(Clone, Copy)]
pub struct Baseline<'a> {
    pub base: &'a [Run],
    pub again: &'a [Run],
}

fn nearest<'a>(run: &Run, runs: impl Iterator<Item = &'a Run>) -> Option<&'a Run> {
    let distance = |other: &&Run| (other.started_s - run.started_s).abs();
    runs.min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

/// One ratio per run, to the baseline's run nearest in time.
fn ratios_of(runs: &[Run], baseline: Baseline, measure: Measure) -> Vec<f64> {
    let pair = |run: &Run| {
        let other = nearest(run, baseline.base.iter().chain(baseline.again))?;
        Some(quotient(measure(run)?, measure(other)?))
    };
    runs.iter().filter_map(pair).collect()
}

/// The ratios of the baseline's second series to its first.
fn ratios_again(baseline: Baseline, measure: Measure) -> Vec<f64> {
    ratios_of(baseline.again, Baseline { base: baseline.base, again: &[] }, measure)
}

// ---- intervals ----

/// Median and interval, without a verdict.
fn ratio(ratios: &[f64]) -> Option<Ratio> {
    let median = spread(ratios.iter().copied())?.median;
    let (low, high) = interval(ratios);
    // exp(ln(x)) may differ from x in the last digit.
    Some(Ratio { median, low: low.min(median), high: high.max(median), verdict: Verdict::Same })
}

// ---- verdicts ----

/// How far an A/A interval reaches from 1, as a factor of at least 1.
pub fn reach(ratio: &Ratio) -> f64 {
    ratio.high.max(1.0 / ratio.low).max(1.0)
}

/// Beyond the interval and beyond what the baseline shows against itself?
fn judged(ratio: &Ratio, again: Option<&Ratio>) -> Verdict {
    let Some(resolution) = again.map(reach) else {
        return Verdict::Same;
    };
    if ratio.high < 1.0 && 1.0 / ratio.median > resolution {
        Verdict::Better
    } else if ratio.low > 1.0 && ratio.median > resolution {
        Verdict::Worse
    } else {
        Verdict::Same
    }
}

/// The chance that equal allocators give places as good as these, for lower numbers and for higher ones. Each round is
/// an experiment of its own: the run's place among itself and the baseline's runs, ties counted as lost.
fn chances(runs: &[Run], baseline: Baseline, measure: Measure) -> (f64, f64) {
    let mut chance = vec![1.0];
    let (mut lower, mut higher) = (0, 0);
    for run in runs {
        let others = baseline.base.iter().chain(baseline.again).filter(|other| other.round == run.round);
        let others: Vec<f64> = others.filter_map(measure).collect();
        let Some(number) = measure(run) else { continue };
        lower += others.iter().filter(|&&other| other <= number).count();
        higher += others.iter().filter(|&&other| other >= number).count();
        let places = others.len() + 1;
        let mut next = vec![0.0; chance.len() + places - 1];
        for (sum, before) in chance.iter().enumerate() {
            next[sum..sum + places].iter_mut().for_each(|chance| *chance += before / places as f64);
        }
        chance = next;
    }
    (chance[..=lower].iter().sum(), chance[..=higher].iter().sum())
}

fn compare(runs: &[Run], baseline: Baseline, measure: Measure) -> Option<Ratio> {
    let mut ratio = ratio(&ratios_of(runs, baseline, measure))?;
    let again = self::ratio(&ratios_again(baseline, measure));
    let (lower, higher) = chances(runs, baseline, measure);
    ratio.verdict = match judged(&ratio, again.as_ref()) {
        Verdict::Better if lower < CHANCE => Verdict::Better,
        Verdict::Worse if higher < CHANCE => Verdict::Worse,
        _ => Verdict::Same,
    };
    Some(ratio)
}

// ---- summaries ----

/// `compare` or `ratio` for all that is measured.
fn ratios(names: BTreeSet<&String>, compare: impl Fn(Measure) -> Option<Ratio>) -> Option<Ratios> {
    let value = |name: &String| Some((name.clone(), compare(&|run: &Run| run.values.get(name).copied())?));
    Some(Ratios {
        time: compare(&time)?,
        cpu: compare(&cpu)?,
        peak_rss: compare(&peak_rss)?,
        average_rss: compare(&average_rss)?,
        minor_faults: compare(&minor_faults)?,
        values: names.into_iter().filter_map(value).collect(),
    })
}

fn value_names(runs: &[Run]) -> BTreeSet<&String> {
    runs.iter().flat_map(|run| run.values.keys()).collect()
}

pub fn ratios_to(runs: &[Run], baseline: Baseline) -> Option<Ratios> {
    ratios(value_names(runs), |measure| compare(runs, baseline, measure))
}

/// One measure, with its verdict.
pub fn ratio_to(runs: &[Run], baseline: Baseline, measure: Measure) -> Option<Ratio> {
    compare(runs, baseline, measure)
}

/// The baseline to itself.
pub fn ratios_to_itself(baseline: Baseline) -> Option<Ratios> {
    ratios(value_names(baseline.again), |measure| ratio(&ratios_again(baseline, measure)))
}

/// Medians of what was measured; `ratios` are passed through.
pub fn summary(runs: &[Run], ratios: Option<Ratios>) -> Option<Summary> {
    let of = |measure: &dyn Fn(&Run) -> Option<f64>| spread(runs.iter().filter_map(measure));
    let value = |name: &String| Some((name.clone(), of(&|run| run.values.get(name).copied())?));
    Some(Summary {
        wall_s: of(&|run| Some(run.wall_s))?,
        cpu_s: of(&cpu)?,
        peak_rss_bytes: of(&peak_rss)?,
        average_rss_bytes: of(&average_rss)?,
        minor_faults: of(&minor_faults)?,
        metric: of(&|run| run.metric),
        values: value_names(runs).into_iter().filter_map(value).collect::<BTreeMap<_, _>>(),
        ratios,
    })
}

// ---- standings ----

/// The geometric mean of the workloads' median ratios. Each list is one workload's; `again` are those of the baseline
/// to itself.
fn geometric_mean(workloads: &[Vec<f64>], again: &[Vec<f64>]) -> Option<Ratio> {
    let [first, rest @ ..] = workloads else { return None };
    if rest.is_empty() {
        return ratio(first);
    }
    let (median, (low, high)) = mean_of_medians(workloads, again);
    Some(Ratio { median, low, high, verdict: Verdict::Same })
}

/// The chance that equal allocators have a mean as low, and as high, as this one's runs.
fn chances_of_mean(workloads: &[(&[Run], Baseline)], measure: Measure) -> (f64, f64) {
    // Per round: by how much each of its runs differs from the others, this allocator's first.
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for (runs, baseline) in workloads {
        for run in *runs {
            let others = baseline.base.iter().chain(baseline.again).filter(|other| other.round == run.round);
            let logs: Vec<f64> =
                [run].into_iter().chain(others).filter_map(measure).map(|n| n.max(1e-12).ln()).collect();
            let (sum, others) = (logs.iter().sum::<f64>(), logs.len() as f64 - 1.0);
            if others > 0.0 {
                let weight = 1.0 / runs.len() as f64;
                rounds.push(logs.iter().map(|log| weight * (log - (sum - log) / others)).collect());
            }
        }
    }
    chances_of_sum(&rounds)
}

fn baseline_of<'a>(workload: &'a Workload, name: &str) -> Option<Baseline<'a>> {
    let base = &workload.results.iter().find(|result| result.allocator == name)?.runs;
    Some(Baseline { base, again: workload.again.as_ref().map_or(&[], |again| &again.runs) })
}

const STANDING_MEASURES: [fn(&Run) -> Option<f64>; 3] = [time, peak_rss, average_rss];

/// One allocator's runs and the baseline's, of the workloads that both finished.
fn finished<'a>(workloads: &[&'a Workload], name: &str, baseline: &str) -> Vec<(&'a [Run], Baseline<'a>)> {
    let pair = |workload: &&'a Workload| {
        let runs = &workload.results.iter().find(|result| result.allocator == name)?.runs;
        let baseline = baseline_of(workload, baseline).filter(|baseline| !baseline.base.is_empty())?;
        (!runs.is_empty()).then_some((runs.as_slice(), baseline))
    };
    workloads.iter().filter_map(pair).collect()
}

fn all_ratios_again(workloads: &[(&[Run], Baseline)], measure: Measure) -> Vec<Vec<f64>> {
    let ratios = workloads.iter().map(|(_, baseline)| ratios_again(*baseline, measure));
    ratios.filter(|ratios| !ratios.is_empty()).collect()
}

/// Mean and verdict in one measure.
fn standing_ratio(workloads: &[(&[Run], Baseline)], measure: Measure) -> Option<Ratio> {
    if let [(runs, baseline)] = workloads {
        return compare(runs, *baseline, measure);
    }
    let ratios: Vec<_> = workloads.iter().map(|(runs, baseline)| ratios_of(runs, *baseline, measure)).collect();
    let again = all_ratios_again(workloads, measure);
    let mut mean = geometric_mean(&ratios, &again)?;
    let (lower, higher) = chances_of_mean(workloads, measure);
    mean.verdict = match judged(&mean, geometric_mean(&again, &again).as_ref()) {
        Verdict::Better if lower < CHANCE => Verdict::Better,
        Verdict::Worse if higher < CHANCE => Verdict::Worse,
        _ => Verdict::Same,
    };
    Some(mean)
}

fn standing(
    name: &str,
    group: &str,
    workloads: &[(&[Run], Baseline)],
    ratio: impl Fn(Measure) -> Option<Ratio>,
) -> Option<Standing> {
    let [time, peak_rss, average_rss] = STANDING_MEASURES.map(|measure| ratio(&measure));
    let value = |name: String| Some((name.clone(), ratio(&|run: &Run| run.values.get(&name).copied())?));
    Some(Standing {
        allocator: name.to_string(),
        group: group.to_string(),
        workloads: workloads.len(),
        time: time?,
        peak_rss: peak_rss?,
        average_rss: average_rss?,
        values: common_values(workloads).into_iter().filter_map(value).collect(),
    })
}

/// The names of the values that all runs have.
fn common_values(workloads: &[(&[Run], Baseline)]) -> BTreeSet<String> {
    let runs = workloads.iter().flat_map(|(runs, baseline)| runs.iter().chain(baseline.base).chain(baseline.again));
    let names = runs.map(|run| run.values.keys().cloned().collect::<BTreeSet<String>>());
    names.reduce(|common, names| &common & &names).unwrap_or_default()
}

/// The standings of all allocators and those of the baseline against itself, overall ("") and per group.
pub fn standings(workloads: &[Workload], names: &[String], baseline: &str) -> (Vec<Standing>, Vec<Standing>) {
    let groups: BTreeSet<&str> = workloads.iter().map(|workload| workload.group.as_str()).chain([""]).collect();
    let (mut all, mut all_again) = (Vec::new(), Vec::new());
    for group in groups {
        let inside: Vec<&Workload> =
            workloads.iter().filter(|workload| group.is_empty() || workload.group == group).collect();
        for name in names.iter().filter(|&name| name != baseline) {
            let finished = finished(&inside, name, baseline);
            all.extend(standing(name, group, &finished, |measure| standing_ratio(&finished, measure)));
        }
        let own = finished(&inside, baseline, baseline);
        let again = |measure: Measure| Some(all_ratios_again(&own, measure)).and_then(|all| geometric_mean(&all, &all));
        all_again.extend(standing(baseline, group, &own, again));
    }
    (all, all_again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hakmem_chance::Random;

    fn run(round: usize, started_s: f64, wall_s: f64, peak: u64) -> Run {
        Run {
            round,
            started_s,
            wall_s,
            cpu_s: wall_s,
            peak_rss_bytes: peak,
            average_rss_bytes: peak,
            minor_faults: 0,
            metric: None,
            values: BTreeMap::new(),
            rss_over_time: Vec::new(),
        }
    }

    /// Rounds of an allocator, the baseline and the baseline again, in this order, with these times.
    fn rounds(times: &[[f64; 3]]) -> [Vec<Run>; 3] {
        [0, 1, 2].map(|who| {
            let of_round =
                |(round, times): (usize, &[f64; 3])| run(round + 1, (round * 3 + who) as f64, times[who], 100);
            times.iter().enumerate().map(of_round).collect()
        })
    }

    fn time_of(times: &[[f64; 3]]) -> Ratio {
        let [runs, base, again] = rounds(times);
        compare(&runs, Baseline { base: &base, again: &again }, &time).unwrap()
    }

    #[test]
    fn spreads() {
        let found = spread([3.0, 1.0, 2.0].into_iter()).unwrap();
        assert_eq!((found.median, found.least, found.most), (2.0, 1.0, 3.0));
        assert!(spread([].into_iter()).is_none());
    }

    #[test]
    fn intervals_of_known_ratios() {
        let few = ratio(&[0.9, 1.1, 1.0, 0.8, 1.2]).unwrap();
        assert_eq!((few.median, few.low, few.high), (1.0, 0.8, 1.2));
        let equal = ratio(&[1.25; 7]).unwrap();
        assert_eq!((equal.median, equal.low, equal.high), (1.25, 1.25, 1.25));
        // 7 ratios: the third least of the means of pairs is that of the least and the third, or the second itself;
        // the bootstrap goes no further than the second.
        let seven = ratio(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]).unwrap();
        assert!((seven.low - 2.0).abs() < 1e-9 && (seven.high - 32.0).abs() < 1e-9, "{seven:?}");
        assert!(ratio(&[]).is_none());
    }

    #[test]
    fn a_run_is_compared_with_its_neighbour() {
        // The machine becomes ten times slower on the way; the allocator takes 0.9 of the baseline's time throughout.
        let base: Vec<Run> = (0..10).map(|i| run(i + 1, i as f64, 1.0 + i as f64, 1)).collect();
        let runs: Vec<Run> = (0..10).map(|i| run(i + 1, i as f64 + 0.4, 0.9 * (1.0 + i as f64), 1)).collect();
        let baseline = Baseline { base: &base, again: &[] };
        let ratios = ratios_of(&runs, baseline, &time);
        assert!(ratios.iter().all(|ratio| (ratio - 0.9).abs() < 1e-9), "{ratios:?}");
        // Nearest is the baseline's second run, if that is nearer.
        let again: Vec<Run> = (0..10).map(|i| run(i + 1, i as f64 + 0.5, 1.8 * (1.0 + i as f64), 1)).collect();
        let ratios = ratios_of(&runs, Baseline { base: &base, again: &again }, &time);
        assert!(ratios.iter().all(|ratio| (ratio - 0.5).abs() < 1e-9), "{ratios:?}");
    }

    #[test]
    fn places_by_chance() {
        let first = [[0.5, 1.0, 1.0]; 5];
        let [runs, base, again] = rounds(&first);
        let (lower, higher) = chances(&runs, Baseline { base: &base, again: &again }, &time);
        assert!((lower - 1.0 / 243.0).abs() < 1e-12 && (higher - 1.0).abs() < 1e-12);
        // A tie is a lost place; without the second baseline run there are two places only.
        let [runs, base, again] = rounds(&[[1.0, 1.0, 2.0]]);
        assert_eq!(chances(&runs, Baseline { base: &base, again: &again }, &time).0, 2.0 / 3.0);
        let [runs, base, _] = rounds(&first);
        assert_eq!(chances(&runs, Baseline { base: &base, again: &[] }, &time).0, 1.0 / 32.0);
    }

    #[test]
    fn verdicts() {
        let noise = [1.00, 1.02, 0.99, 1.01, 0.98, 1.0, 1.01];
        let times = |factor: f64, rounds: usize| -> Vec<[f64; 3]> {
            (0..rounds).map(|i| [factor * noise[(i + 2) % 7], noise[i], noise[(i + 4) % 7]]).collect()
        };
        assert_eq!(time_of(&times(0.8, 7)).verdict, Verdict::Better);
        assert_eq!(time_of(&times(1.2, 7)).verdict, Verdict::Worse);
        assert_eq!(time_of(&times(0.8, 5)).verdict, Verdict::Better);
        assert_eq!(time_of(&times(1.0, 7)).verdict, Verdict::Same);
        // Four rounds show nothing, however large it is.
        assert_eq!(time_of(&times(0.1, 4)).verdict, Verdict::Same);
        // The interval excludes 1, but the baseline is as far from itself.
        let wide = [[0.9, 1.0, 1.2], [0.9, 1.0, 1.3], [0.9, 1.0, 0.95], [0.9, 1.0, 1.0], [0.9, 1.0, 1.2]];
        let found = time_of(&wide);
        assert!(found.high < 1.0 && found.verdict == Verdict::Same, "{found:?}");
    }

    #[test]
    fn memory_that_is_always_the_same_needs_no_gap() {
        let [runs, base, again] = rounds(&[[1.0, 1.0, 1.0]; 5]).map(|runs| runs);
        let larger: Vec<Run> = runs.iter().map(|run| Run { peak_rss_bytes: 101, ..run.clone() }).collect();
        let baseline = Baseline { base: &base, again: &again };
        assert_eq!(compare(&larger, baseline, &peak_rss).unwrap().verdict, Verdict::Worse);
        assert_eq!(compare(&runs, baseline, &peak_rss).unwrap().verdict, Verdict::Same);
    }

    /// Noise like that of a busy machine: mostly small, sometimes a run takes half as long again.
    fn noisy(random: &mut Random) -> f64 {
        let uniform = |random: &mut Random| random.below(1 << 20) as f64 / f64::from(1 << 20);
        let bell: f64 = (0..4).map(|_| uniform(random) - 0.5).sum();
        1.0 + 0.09 * bell + if uniform(random) < 0.15 { 0.5 * uniform(random) } else { 0.0 }
    }

    #[test]
    fn equal_allocators_seldom_differ_and_different_ones_often_do() {
        let mut random = Random(7);
        let mut share = |rounds: usize, factor: f64, cases: usize| {
            let judged = (0..cases).filter(|_| {
                let times: Vec<[f64; 3]> = (0..rounds)
                    .map(|_| [factor * noisy(&mut random), noisy(&mut random), noisy(&mut random)])
                    .collect();
                time_of(&times).verdict != Verdict::Same
            });
            judged.count() as f64 / cases as f64
        };
        for rounds in [5, 7, 10] {
            let (equal, half) = (share(rounds, 1.0, 300), share(rounds, 0.5, 60));
            assert!(equal <= 0.01, "{rounds} rounds: {equal} of equal ones are told apart");
            assert!(half >= 0.75, "{rounds} rounds: only {half} of those twice as fast are seen");
        }
    }

    #[test]
    fn the_metric_is_time_inverted() {
        let mut fast = run(1, 0.0, 3.0, 1);
        assert_eq!(time(&fast), Some(3.0));
        fast.metric = Some(4.0);
        assert_eq!(time(&fast), Some(0.25));
        assert_eq!([quotient(0.0, 0.0), quotient(1.0, 0.0), quotient(0.0, 1.0)], [1.0, 1e3, 1e-3]);
    }

    fn workload(name: &str, group: &str, factor: f64) -> Workload {
        let [runs, base, again] = rounds(&[[factor, 1.0, 1.0]; 5]);
        let baseline = Baseline { base: &base, again: &again };
        let result = |allocator: &str, runs: &[Run], ratios| WorkloadResult {
            allocator: allocator.to_string(),
            runs: runs.to_vec(),
            failures: Vec::new(),
            summary: summary(runs, ratios),
        };
        Workload {
            name: name.to_string(),
            group: group.to_string(),
            tags: Vec::new(),
            command: Vec::new(),
            processes: Processes::Main,
            metric: None,
            curve: None,
            rounds: 5,
            results: vec![result("base", &base, None), result("mine", &runs, ratios_to(&runs, baseline))],
            again: Some(result("base", &again, ratios_to_itself(baseline))),
        }
    }

    /// Workloads of one round each, where nothing tells the noise but the baseline itself.
    #[test]
    fn standings_of_single_rounds_are_careful() {
        let single = |count: usize, factor: f64| {
            let mut random = Random(5);
            let mut workloads = Vec::new();
            for i in 0..count {
                let mut one = workload(&i.to_string(), "x", 1.0);
                let noise = [(); 3].map(|_| noisy(&mut random));
                let [runs, base, again] = rounds(&[[factor * noise[0], noise[1], noise[2]]]);
                (one.results[0].runs, one.results[1].runs, one.again.as_mut().unwrap().runs) = (base, runs, again);
                workloads.push(one);
            }
            let (standing, _) = standings(&workloads, &["mine".to_string()], "base");
            standing.into_iter().find(|one| one.group.is_empty()).unwrap().time
        };
        let equal = single(20, 1.0);
        assert!(equal.low < 1.0 && equal.high > 1.0 && equal.verdict == Verdict::Same, "{equal:?}");
        let faster = single(20, 0.6);
        assert!(faster.low < faster.median && faster.verdict == Verdict::Better, "{faster:?}");
        assert_eq!(single(2, 0.6).verdict, Verdict::Same, "two runs are no proof");
    }

    #[test]
    fn standings_are_geometric_means() {
        let workloads = [workload("a", "x", 0.5), workload("b", "x", 0.25), workload("c", "y", 2.0)];
        let (standing, again) = standings(&workloads, &["base".to_string(), "mine".to_string()], "base");
        let find = |group: &str| standing.iter().find(|one| one.group == group).unwrap();
        assert_eq!((standing.len(), again.len(), find("").workloads), (3, 3, 3));
        assert!((find("").time.median - 0.25f64.powf(1.0 / 3.0)).abs() < 1e-9);
        assert!((find("x").time.median - 0.125f64.sqrt()).abs() < 1e-9);
        assert_eq!((find("x").time.verdict, find("y").time.verdict), (Verdict::Better, Verdict::Worse));
        assert_eq!((find("y").time.median, find("y").peak_rss.verdict), (2.0, Verdict::Same));
        // A further number has a mean if all runs have it.
        assert!(find("").values.is_empty());
        let mut counted = workloads.clone();
        let results = counted.iter_mut().flat_map(|one| one.results.iter_mut().chain(&mut one.again));
        for run in results.flat_map(|result| &mut result.runs) {
            run.values.insert("number".to_string(), run.wall_s);
        }
        let (numbers, _) = standings(&counted, &["mine".to_string()], "base");
        assert_eq!(numbers[0].values["number"].median, numbers[0].time.median);
        // What failed on a workload is left out of the mean.
        let mut failed = workloads.clone();
        failed[1].results[1].runs.clear();
        let (standing, _) = standings(&failed, &["mine".to_string()], "base");
        assert_eq!((standing[0].workloads, standing[0].time.median), (2, 1.0));
    }
}
