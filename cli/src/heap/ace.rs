//! What ACE found (src/learn/tuner.h): its ratings of presets.
// SPDX-License-Identifier: MIT

use super::layout::{word, Field};
use super::model::{Ace, Rated, Saved};
use super::reader::Reader;
use super::rows;
use anyhow::Result;

const NS_IN_MS: u64 = 1_000_000;

impl Reader {
    fn preset_names(&self) -> Result<Vec<String>> {
        let count = self.layout.ace.presets as usize;
        let pointers = self.remote.read_vec(self.layout.places.preset_names, count * 8)?;
        (0..count).map(|preset| rows::table_text(&self.remote, word(&pointers, preset * 8))).collect()
    }

    pub(super) fn ace(&self) -> Result<Option<Ace>> {
        let facts = &self.layout.ace;
        let seen = self.remote.read_vec(self.layout.places.ace, facts.seen_size as usize)?;
        if facts.rounds.of(&seen) == 0 {
            return Ok(None);
        }
        let names = self.preset_names()?;
        let name = |preset: u64| names.get(preset as usize).cloned().unwrap_or_default();
        let rated = |(preset, name): (usize, &String)| Rated {
            name: name.clone(),
            rating: facts.elo.element(&seen, preset, 4) as i32 as i64,
            cost_us: facts.cost_us.element(&seen, preset, 4),
        };
        let saved = |cpu: &Field, kept: &Field| Saved { cpu_ns: cpu.of(&seen) as i64, mib_ms: kept.of(&seen) as i64 };
        Ok(Some(Ace {
            preset: name(facts.in_use.of(&seen)),
            best: name(facts.best.of(&seen)),
            rounds: facts.rounds.of(&seen),
            switches: facts.switches.of(&seen),
            changes: facts.changes.of(&seen),
            ms: facts.ns.of(&seen) / NS_IN_MS,
            saved: saved(&facts.saved_cpu, &facts.saved_kept),
            within: saved(&facts.within_cpu, &facts.within_kept),
            possible: saved(&facts.possible_cpu, &facts.possible_kept),
            deviation: facts.deviation.of(&seen) as i64,
            presets: names.iter().enumerate().map(rated).collect(),
        }))
    }
}

/// "1.23"; three digits where there is little.
fn seconds(value: f64) -> String {
    if value.abs() < 0.1 {
        format!("{value:.3}")
    } else {
        format!("{value:.2}")
    }
}

impl Ace {
    /// "preset bursty; saved 0.24 s (0.20 to 0.28) of CPU time and -0.10 GiB x s (-0.12 to -0.08) in 12 s, bursty from
    /// the start 0.30 s and -0.14; ratings (within 60) bursty 1612, balanced 1502, lean 1433"
    pub fn line(&self) -> String {
        let mut all: Vec<&Rated> = self.presets.iter().collect();
        all.sort_by_key(|rated| -rated.rating);
        let ratings: Vec<String> = all.iter().map(|rated| format!("{} {}", rated.name, rated.rating)).collect();
        let cpu = |saved: Saved| saved.cpu_ns as f64 / 1e9;
        let area = |saved: Saved| saved.mib_ms as f64 / 1024e3;
        let interval = |value: f64, within: f64| {
            format!("({} to {})", seconds(value - within), seconds(value + within))
            // 19 in 20 times
        };
        format!(
            "preset {}; saved {} s {} of CPU time and {} GiB x s {} in {:.0} s, {} from the start {} s and {}; ratings \
             (within {}) {}",
            self.preset,
            seconds(cpu(self.saved)),
            interval(cpu(self.saved), cpu(self.within)),
            seconds(area(self.saved)),
            interval(area(self.saved), area(self.within)),
            self.ms as f64 / 1e3,
            self.best,
            seconds(cpu(self.possible)),
            seconds(area(self.possible)),
            self.deviation,
            ratings.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line() {
        let rated = |name: &str, rating| Rated { name: name.into(), rating, cost_us: 0 };
        let saved = |cpu_ms: i64, mib_ms| Saved { cpu_ns: cpu_ms * 1_000_000, mib_ms };
        let ace = Ace {
            preset: "bursty".into(),
            best: "bursty".into(),
            rounds: 10,
            switches: 1,
            changes: 0,
            ms: 12_000,
            saved: saved(240, -102_400),
            within: saved(40, 20_480),
            possible: saved(300, -143_360),
            deviation: 60,
            presets: vec![rated("lean", 1433), rated("bursty", 1612), rated("balanced", 1502)],
        };
        assert_eq!(
            ace.line(),
            "preset bursty; saved 0.24 s (0.20 to 0.28) of CPU time and -0.10 GiB x s (-0.12 to -0.080) in 12 s, \
             bursty from the start 0.30 s and -0.14; ratings (within 60) bursty 1612, balanced 1502, lean 1433"
        );
    }
}
