//! Scales of axes, and their ticks.
// SPDX-License-Identifier: MIT

use super::svg::px;

#[derive(Debug, Clone, Copy)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    pub fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        Scale { low, high: if high > low { high } else { low + 1.0 }, from, to, logarithmic: false }
    }

    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        Scale { low, high: if high > low { high } else { low * 2.0 }, from, to, logarithmic: true }
    }

    /// Fits most ratios, and 1; a few far ones lie beyond its ends so that they do not press all others together.
    pub fn of_ratios(ratios: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let mut all: Vec<f64> = ratios.filter(|one| one.is_finite() && *one > 0.0).chain([1.0]).collect();
        all.sort_by(f64::total_cmp);
        let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
        let low = all[0].max(at(0.4) / 2.2);
        let high = all[all.len() - 1].min(at(0.6) * 2.2);
        let room = (high / low).ln().max(0.1) * 0.08;
        let (mut low, mut high) = (low * (-room).exp(), high * room.exp());
        if high / low < 1.16 {
            let middle = (low * high).sqrt();
            (low, high) = (middle / 1.077, middle * 1.077);
        }
        Scale::logarithmic(low, high, from, to)
    }

    pub fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
        px(self.from + share * (self.to - self.from))
    }

    pub fn is_beyond(&self, value: f64) -> bool {
        !(value >= self.low * 0.9999 && value <= self.high * 1.0001)
    }

    /// At most `most` of them, as dense as that allows.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let steps: Vec<Vec<f64>> = if self.logarithmic {
            let nice: [&[f64]; 4] = [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
            let fine = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25].iter().map(|step| self.multiples(*step));
            fine.chain(nice.iter().map(|digits| self.decades(digits))).collect()
        } else {
            let magnitude = 10f64.powf(((self.high - self.low) / most as f64).log10().floor());
            [1.0, 2.0, 2.5, 5.0, 10.0, 20.0].iter().map(|step| self.multiples(step * magnitude)).collect()
        };
        steps
            .into_iter()
            .find(|ticks| ticks.len() <= most && ticks.len() >= 2)
            .unwrap_or_else(|| vec![self.low, self.high])
    }

    fn multiples(&self, step: f64) -> Vec<f64> {
        let (first, last) = ((self.low / step - 1e-9).ceil() as i64, (self.high / step + 1e-9).floor() as i64);
        if last - first > 100 {
            return (0..101).map(|n| n as f64).collect();
        }
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn decades(&self, digits: &[f64]) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let all = (first..=last).flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
        all.filter(|tick| !self.is_beyond(*tick)).collect()
    }
}

/// As short as it can be: 0.9, 1, 1.25.
pub fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn far_ratios_do_not_press_the_others_together() {
        let scale = Scale::of_ratios([0.95, 1.0, 1.02, 1.1, 1.05, 9.0].into_iter(), 0.0, 100.0);
        assert!(scale.is_beyond(9.0) && !scale.is_beyond(1.1));
        assert_eq!(scale.at(9.0), 100.0);
    }

    #[test]
    fn ticks_fit() {
        for (low, high) in [(0.93, 1.08), (0.5, 2.0), (0.2, 12.0), (0.01, 1000.0)] {
            let scale = Scale::logarithmic(low, high, 0.0, 1.0);
            let ticks = scale.ticks(6);
            assert!((2..=6).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| !scale.is_beyond(*tick)), "{low} {high}: {ticks:?}");
        }
    }
}
