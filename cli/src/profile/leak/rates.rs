//! `hakmem leak --rates`: which lines allocate most a second, and how much of that is freed at once.
//!
//! What a line allocated between the first and the last reading is its rate. What was freed meanwhile was
//! freed after lifetimes that the library counts: those below a millisecond are temporary blocks.
// SPDX-License-Identifier: MIT

use super::{read, sites, LeakOptions, Profile, Watched};
use crate::heap::remote::Remote;
use crate::heap::samples::Totals;
use crate::profile::text::{callers, named, share, table, typical_lifetime};
use crate::profile::{add_lifetimes, Lifetime};
use crate::symbols::Frame;
use hakmem_base::say;
use hakmem_base::table::Style;
use serde::Serialize;
use std::collections::HashMap;

#[derive(Debug, Serialize)]
struct Site {
    #[serde(flatten)]
    frame: Frame,
    bytes_per_second: f64,
    blocks_per_second: f64,
    /// The part of what was freed that lived less than a millisecond; None: nothing was freed.
    temporary: Option<f64>,
    lifetimes: Vec<Lifetime>,
    callers: Vec<Frame>,
}

#[derive(Debug, Serialize)]
pub struct Rates {
    process: String,
    seconds: f64,
    /// Mean bytes between samples.
    interval: u64,
    notes: Vec<String>,
    /// Those that allocate most first.
    sites: Vec<Site>,
}

fn temporary(lifetimes: &[Lifetime]) -> Option<f64> {
    let sum = |all: &mut dyn Iterator<Item = &Lifetime>| all.map(|one| one.freed.objects).sum::<u64>() as f64;
    let all = sum(&mut lifetimes.iter());
    (all > 0.0).then(|| sum(&mut lifetimes.iter().filter(|one| one.at_least_ns == Some(0))) / all)
}

pub fn judge(remote: Remote, watched: &Watched, options: &LeakOptions, interval: u64) -> Rates {
    let last = &watched.readings[watched.readings.len() - 1];
    let seconds = watched.seconds(last).max(1e-3);
    let sampled = last.sampled.clone().since(&watched.readings[0].sampled);
    let allocated: Vec<(Totals, Vec<Lifetime>)> =
        sampled.stacks.iter().map(|stack| (stack.allocated, read::lifetimes_of(stack))).collect();
    let profile: Profile = read::stacks_of(remote, sampled, &options.symbols.debug_directory);
    let mut found: HashMap<Frame, Site> = HashMap::new();
    for (stack, (allocated, lifetimes)) in profile.stacks.iter().zip(allocated).filter(|(_, (all, _))| all.bytes > 0) {
        let (frame, _, callers) = sites::site(&profile, stack);
        let new = |frame| Site {
            frame,
            bytes_per_second: 0.0,
            blocks_per_second: 0.0,
            temporary: None,
            lifetimes: Vec::new(),
            callers,
        };
        let site = found.entry(frame.clone()).or_insert_with(|| new(frame));
        site.bytes_per_second += allocated.bytes as f64 / seconds;
        site.blocks_per_second += allocated.objects as f64 / read::OBJECT as f64 / seconds;
        add_lifetimes(&mut site.lifetimes, &lifetimes);
    }
    let mut sites: Vec<Site> = found.into_values().collect();
    sites.iter_mut().for_each(|site| site.temporary = temporary(&site.lifetimes));
    sites.sort_by(|a, b| b.bytes_per_second.total_cmp(&a.bytes_per_second));
    Rates { process: profile.subject(), seconds, interval, notes: profile.notes, sites }
}

pub fn text(rates: &Rates, top: usize, style: Style) -> String {
    let sum: f64 = rates.sites.iter().map(|site| site.bytes_per_second).sum();
    let mut text = format!(
        "{}: allocates {}/s, measured for {}, one allocation in {} sampled\n",
        rates.process,
        say::bytes(sum),
        say::seconds(rates.seconds),
        say::bytes(rates.interval as f64),
    );
    rates.notes.iter().for_each(|note| text.push_str(&format!("Note: {note}.\n")));
    let row = |site: &Site| {
        let cells = vec![
            format!("{}/s", say::bytes(site.bytes_per_second)),
            say::number(site.blocks_per_second),
            site.temporary.map_or("–".into(), |part| share((part * 1e6) as u64, 1_000_000)),
            typical_lifetime(&site.lifetimes),
            named(&site.frame),
        ];
        (cells, callers(&site.callers))
    };
    let rows: Vec<_> = rates.sites.iter().take(top).map(row).collect();
    if rows.is_empty() {
        return text + "No allocation was sampled: it allocates nothing, or little (--bytes, --for).\n";
    }
    text += "\n";
    text += &table(&["allocates", "blocks/s", "freed at once", "freed after", "site"], &rows, style);
    if rates.sites.len() > rows.len() {
        text += &format!("and {} more (--top N)\n", say::count(rates.sites.len() - rows.len(), "site"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::samples::{Sampled, SampledStack};

    /// Else what was allocated before anybody looked counts as today's rate.
    #[test]
    fn what_was_there_before_does_not_count() {
        let stack = |objects, lifetimes: [u64; 2]| SampledStack {
            number: 3,
            allocated: Totals { objects: objects * read::OBJECT, bytes: objects * 100 },
            freed: Totals { objects: lifetimes.iter().sum::<u64>() * read::OBJECT, bytes: 0 },
            lifetimes: lifetimes.to_vec(),
            ..SampledStack::default()
        };
        let sampled = |stacks| Sampled { stacks, ..Sampled::default() };
        let other = SampledStack { number: 4, ..stack(5, [0, 0]) };
        let last = Sampled { dropped: 7, ..sampled(vec![other.clone(), stack(140, [110, 30])]) };
        let rest = last.since(&Sampled { dropped: 4, ..sampled(vec![stack(100, [80, 20])]) });
        assert_eq!(rest.dropped, 3);
        assert_eq!(rest.stacks, [other, stack(40, [30, 10])]);
        assert_eq!(temporary(&read::lifetimes_of(&rest.stacks[1])), Some(0.75));
        assert_eq!(temporary(&[]), None);
    }
}
