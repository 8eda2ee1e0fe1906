//! What ACE found (src/learn/tuner.h): its ratings of presets.
// SPDX-License-Identifier: MIT

use super::layout::word;
use super::model::{Ace, Rated};
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
            deviation: facts.deviation.element(&seen, preset, 4) as i32 as i64,
            matches: facts.matches.element(&seen, preset, 4),
            kept_us: facts.kept_us.element(&seen, preset, 4),
        };
        Ok(Some(Ace {
            preset: name(facts.in_use.of(&seen)),
            best: name(facts.best.of(&seen)),
            rounds: facts.rounds.of(&seen),
            switches: facts.switches.of(&seen),
            changes: facts.changes.of(&seen),
            ms: facts.ns.of(&seen) / NS_IN_MS,
            saved_ms: facts.saved_ns.of(&seen) as i64 / NS_IN_MS as i64,
            spent_ms: facts.spent_ns.of(&seen) / NS_IN_MS,
            presets: names.iter().enumerate().map(rated).collect(),
        }))
    }
}

impl Ace {
    /// "preset bursty 1612, then balanced 1502, lean 1433; saved 12 ms in a second, trying others cost 0.1 ms"
    pub fn line(&self) -> String {
        let mut others: Vec<&Rated> = self.presets.iter().filter(|rated| rated.name != self.preset).collect();
        others.sort_by_key(|rated| -rated.rating);
        let rating = self.presets.iter().find(|rated| rated.name == self.preset).map_or(0, |rated| rated.rating);
        let better = if self.best == self.preset { String::new() } else { format!(" ({} is rated better)", self.best) };
        let others: Vec<String> = others.iter().map(|rated| format!("{} {}", rated.name, rated.rating)).collect();
        let a_second = |ms: f64| format!("{:.1} ms", ms * 1000.0 / self.ms.max(1) as f64);
        format!(
            "preset {} {rating}{better}, then {}; {} {} in a second, trying others cost {}",
            self.preset,
            others.join(", "),
            if self.saved_ms < 0 { "lost" } else { "saved" },
            a_second(self.saved_ms.unsigned_abs() as f64),
            a_second(self.spent_ms as f64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line() {
        let rated = |name: &str, rating| Rated { name: name.into(), rating, deviation: 60, matches: 3, kept_us: 0 };
        let mut ace = Ace {
            preset: "bursty".into(),
            best: "bursty".into(),
            rounds: 10,
            switches: 1,
            changes: 0,
            ms: 2000,
            saved_ms: 24,
            spent_ms: 1,
            presets: vec![rated("lean", 1433), rated("bursty", 1612), rated("balanced", 1502)],
        };
        let tail = "1612, then balanced 1502, lean 1433; saved 12.0 ms in a second, trying others cost 0.5 ms";
        assert_eq!(ace.line(), format!("preset bursty {tail}"));
        ace.preset = "lean".into();
        ace.saved_ms = -2;
        assert_eq!(
            ace.line(),
            "preset lean 1433 (bursty is rated better), then bursty 1612, balanced 1502; lost 1.0 ms in a second, \
             trying others cost 0.5 ms"
        );
    }
}
