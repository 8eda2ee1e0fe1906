//! Issue 3's goals for HAKMEM, each with what was measured.
// SPDX-License-Identifier: MIT

use super::*;

const IDLE_LIMIT: f64 = 3.0 * 1048576.0;

struct Goal {
    aim: &'static str,
    measured: String,
    /// None: nothing was measured.
    met: Option<bool>,
}

/// A ratio near 1 needs its third decimal.
fn exactly(one: &Versus) -> String {
    let interval = one.interval.map_or("no interval".into(), |(low, high)| format!("{low:.3}–{high:.3}"));
    let noise = if one.ratio > 1.0 && one.verdict != Verdict::Worse { ", not beyond the resolution" } else { "" };
    format!("{:.3} ({interval}) of {}{noise}", one.ratio, cell(one.peer))
}

impl Page<'_> {
    pub fn goals(&self) -> String {
        let mut text = String::from(
            "\n## Goals\n\nHAKMEM to the best peer; hardened allocators are no peers here. Met or short of it:\n\n",
        );
        text += &head(&titles(&["goal", "measured", ""]), 3);
        let goals = [
            self.goal_of_time(),
            self.goal_of_each(),
            self.goal_of_memory(Measure::PeakRss),
            self.goal_of_memory(Measure::AverageRss),
            self.goal_of_tails(),
            self.goal_of_idle(),
        ];
        for goal in goals {
            let standing = match goal.met {
                Some(true) => "met",
                Some(false) => "**short**",
                None => "not measured",
            };
            text += &row([goal.aim, &goal.measured, standing]);
        }
        text
    }

    fn goal_of_time(&self) -> Goal {
        let found = self.comparison.standing_versus("", Measure::Time, None);
        Goal {
            aim: "time: geometric mean at most 0.97 of the best peer's, its interval below 1",
            measured: found.as_ref().map_or(String::new(), exactly),
            met: found.map(|one| one.ratio <= 0.97 && one.interval.is_some_and(|(_, high)| high < 1.0)),
        }
    }

    fn goal_of_each(&self) -> Goal {
        let all = self
            .comparison
            .workloads
            .iter()
            .filter_map(|workload| Some((workload, self.comparison.versus(workload, Measure::Time)?)));
        let all: Vec<(&Workload, Versus)> = all.collect();
        let slow = |one: &Versus| one.ratio > 1.10 && one.verdict == Verdict::Worse;
        let many = all.iter().filter(|(_, one)| slow(one)).count();
        let worst = all.iter().max_by(|a, b| (slow(&a.1), a.1.ratio).partial_cmp(&(slow(&b.1), b.1.ratio)).unwrap());
        let measured = worst.map_or(String::new(), |(workload, one)| {
            let (name, peer) = (cell(&workload.name), cell(one.peer));
            let noise = if one.verdict == Verdict::Worse { "" } else { ", not beyond the resolution" };
            format!("{many} of {} are; the worst is {name}: {} of {peer}{noise}", all.len(), versus(one))
        });
        let met = (!all.is_empty()).then_some(many == 0);
        Goal { aim: "no workload slower than 1.10 of the best peer on it, beyond the resolution", measured, met }
    }

    fn goal_of_memory(&self, measure: Measure) -> Goal {
        let found = self.comparison.standing_versus("", measure, Some(&LEAN_PEERS));
        Goal {
            aim: match measure {
                Measure::AverageRss => "average memory likewise",
                _ => {
                    "peak memory: geometric mean at most that of the leanest of the fast peers (mimalloc3, snmalloc, \
                      rpmalloc, jemalloc)"
                }
            },
            measured: found.as_ref().map_or(String::new(), exactly),
            met: found.map(|one| one.ratio <= 1.0),
        }
    }

    fn goal_of_tails(&self) -> Goal {
        let all: Vec<(String, Versus)> = self
            .values_named("P99.99")
            .filter_map(|(workload, name, _)| {
                Some((
                    format!("{} ({})", cell(name), cell(&workload.name)),
                    self.comparison.value_versus(workload, name)?,
                ))
            })
            .collect();
        let short: Vec<&(String, Versus)> = all.iter().filter(|(_, one)| one.ratio > 1.0).collect();
        let shown: Vec<String> = short
            .iter()
            .map(|(name, one)| {
                let noise = if one.verdict == Verdict::Worse { "" } else { ", not beyond the resolution" };
                format!("{name}: {} of {}{noise}", versus(one), cell(one.peer))
            })
            .collect();
        let measured = match (all.len(), shown.is_empty()) {
            (0, _) => String::new(),
            (many, true) => format!("all {many} are"),
            (many, false) => format!("{} of {many} are; {}", many - shown.len(), shown.join("; ")),
        };
        let met = (!all.is_empty()).then_some(short.is_empty());
        Goal { aim: "P99.99 of malloc and free: at most the best peer's", measured, met }
    }

    fn goal_of_idle(&self) -> Goal {
        let all: Vec<(String, f64)> = self
            .values_named("idle")
            .map(|(workload, name, number)| (cell(&workload.name), number * bytes_of(name).unwrap_or(1.0)))
            .collect();
        let most = all.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let measured = most.map_or(String::new(), |(name, bytes)| {
            let within = all.iter().filter(|one| one.1 <= IDLE_LIMIT).count();
            format!("{within} of {} are; the most is {name}: {}", all.len(), say::bytes(*bytes))
        });
        let met = most.map(|(_, bytes)| *bytes <= IDLE_LIMIT);
        Goal { aim: "idle: at most 3 MiB resident one second after all is freed", measured, met }
    }
}
