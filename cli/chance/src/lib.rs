//! Medians, their intervals by resampling, and what comes about by chance: where `compare` computes for long, on
//! plain numbers. It is a crate of its own so that it alone needs optimizing (cli/Cargo.toml).
// SPDX-License-Identifier: MIT

const RESAMPLES: usize = 2000;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// xorshift64*
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let draw = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((draw * bound as u64) >> 32) as usize
    }
}

/// The median of what is not empty; sorts.
pub fn median_of(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() % 2 {
        1 => numbers[middle],
        _ => (numbers[middle - 1] + numbers[middle]) / 2.0,
    }
}

/// From a sorted list, the two numbers that leave 2.5 % outside at each end.
fn percentiles(sorted: &[f64]) -> (f64, f64) {
    let outside = sorted.len() / 40;
    (sorted[outside], sorted[sorted.len() - 1 - outside])
}

/// Percentiles of medians of resampled ratios.
fn bootstrap(ratios: &[f64]) -> (f64, f64) {
    let mut random = Random(SEED);
    let mut draw = vec![0.0; ratios.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            draw.iter_mut().for_each(|place| *place = ratios[random.below(ratios.len())]);
            median_of(&mut draw)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    percentiles(&medians)
}

/// How many of the means of pairs may be left out at each end so that what is left holds the centre of a symmetric
/// distribution in 95 %: counts the sets of ranks 1…n by their sum. Fewer than 6 ratios: none, whatever that gives.
fn signed_rank_outside(count: usize) -> usize {
    let most = count * (count + 1) / 2;
    let mut sets = vec![0.0; most + 1];
    sets[0] = 0.5f64.powi(count as i32);
    for rank in 1..=count {
        for sum in (rank..=most).rev() {
            sets[sum] += sets[sum - rank];
        }
    }
    let mut chance = 0.0;
    let within = sets.iter().take_while(|&&set| {
        chance += set;
        chance <= 0.025
    });
    within.count().saturating_sub(1)
}

/// The exact interval of the signed ranks, on logarithms.
fn signed_rank_interval(ratios: &[f64]) -> (f64, f64) {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mut means: Vec<f64> = (0..logs.len())
        .flat_map(|i| (i..logs.len()).map(move |j| (i, j)))
        .map(|(i, j)| (logs[i] + logs[j]) / 2.0)
        .collect();
    means.sort_by(f64::total_cmp);
    let outside = signed_rank_outside(logs.len());
    (means[outside].exp(), means[means.len() - 1 - outside].exp())
}

/// Above this many ratios the bootstrap needs no help, and the means of pairs are many.
const EXACT_UP_TO: usize = 40;

/// The interval of the median of ratios, of which there is at least one.
pub fn interval(ratios: &[f64]) -> (f64, f64) {
    let (low, high) = bootstrap(ratios);
    if ratios.len() > EXACT_UP_TO {
        return (low, high);
    }
    let exact = signed_rank_interval(ratios);
    (low.min(exact.0), high.max(exact.1))
}

/// How far the mean of these logarithms is from 0 in 95 % of cases if their signs are random.
fn mean_by_chance(logs: &[f64]) -> f64 {
    let mut random = Random(SEED);
    let mean =
        |_| logs.iter().map(|log| if random.below(2) == 0 { *log } else { -log }).sum::<f64>() / logs.len() as f64;
    let mut means: Vec<f64> = (0..RESAMPLES).map(mean).map(f64::abs).collect();
    means.sort_by(f64::total_cmp);
    means[RESAMPLES * 95 / 100]
}

/// The geometric mean of the lists' medians, and its interval, which is at least as wide as the medians of `noise`
/// make the mean with random signs.
pub fn mean_of_medians(lists: &[Vec<f64>], noise: &[Vec<f64>]) -> (f64, (f64, f64)) {
    let mean = |medians: &mut dyn Iterator<Item = f64>| medians.map(f64::ln).sum::<f64>() / lists.len() as f64;
    let mut random = Random(SEED);
    let mut draw = Vec::new();
    let resampled = |_| {
        mean(&mut lists.iter().map(|ratios| {
            draw.clear();
            draw.extend((0..ratios.len()).map(|_| ratios[random.below(ratios.len())]));
            median_of(&mut draw)
        }))
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(resampled).collect();
    means.sort_by(f64::total_cmp);
    let (low, high) = percentiles(&means);
    let median = mean(&mut lists.iter().map(|ratios| median_of(&mut ratios.clone())));
    let noise: Vec<f64> = noise.iter().map(|ratios| median_of(&mut ratios.clone()).ln()).collect();
    let reach = if noise.is_empty() { 0.0 } else { mean_by_chance(&noise) };
    (median.exp(), (low.min(median - reach).exp(), high.max(median + reach).exp()))
}

/// The chance that the sum of the rounds' first numbers is as low, and as high, if it is any of its round's.
pub fn chances_of_sum(rounds: &[Vec<f64>]) -> (f64, f64) {
    let found: f64 = rounds.iter().map(|round| round[0]).sum();
    let mut random = Random(SEED);
    let (mut lower, mut higher) = (1, 1);
    for _ in 0..RESAMPLES {
        let sum: f64 = rounds.iter().map(|round| round[random.below(round.len())]).sum();
        lower += usize::from(sum <= found);
        higher += usize::from(sum >= found);
    }
    let share = |count: usize| count as f64 / (RESAMPLES + 1) as f64;
    (share(lower), share(higher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median_of(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median_of(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    /// The published critical values of Wilcoxon's signed-rank test, two-sided 5 %.
    #[test]
    fn signed_ranks_as_in_the_tables() {
        let tables = [(5, 0), (6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52), (25, 89)];
        for (count, outside) in tables {
            assert_eq!(signed_rank_outside(count), outside, "{count}");
        }
    }
}
