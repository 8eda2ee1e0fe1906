//! `hakmem leak --unreachable`: live blocks that nothing points to, by what they are and, where they were sampled, by
//! line.
// SPDX-License-Identifier: MIT

use super::{now_ms, read, sites, LeakOptions};
use crate::contents::{Contents, Tally};
use crate::heap::reach::{Lost, Search};
use crate::heap::samples::Totals;
use crate::heap::{patience, Target};
use crate::profile::text::{callers, named, table};
use crate::symbols::Frame;
use anyhow::Result;
use hakmem_base::print;
use hakmem_base::say;
use hakmem_base::shown;
use hakmem_base::table::{count, size, Style};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;

/// A line whose sampled blocks are lost. All figures are estimates.
#[derive(Debug, Clone, Serialize)]
struct Site {
    #[serde(flatten)]
    frame: Frame,
    /// Nothing points to them; other lost blocks do.
    direct: Totals,
    held: Totals,
    /// Age of the oldest.
    oldest_ms: Option<u32>,
    callers: Vec<Frame>,
}

#[derive(Serialize)]
struct Found {
    process: String,
    pid: i32,
    live: Totals,
    /// Nothing points to these blocks, and to those nothing but lost blocks.
    direct: Totals,
    held: Totals,
    /// What was looked through outside the heap.
    root_bytes: u64,
    threads: usize,
    /// How long the process stood still; None: it is a core file.
    stopped_seconds: Option<f64>,
    /// The blocks that nothing points to, by contents and size.
    kinds: Vec<Tally>,
    sites: Vec<Site>,
    /// Is there a heap profile? In secure mode there can be none.
    sampled: bool,
    #[serde(skip)]
    secure: bool,
    notes: Vec<String>,
}

fn totals<'a>(lost: impl Iterator<Item = &'a Lost>) -> Totals {
    lost.fold(Totals::default(), |sum, one| Totals { objects: sum.objects + 1, bytes: sum.bytes + one.block.bytes })
}

/// The lines of sampled blocks that are lost.
fn sites_of(target: &Target, search: &Search, options: &LeakOptions) -> Result<(Vec<Site>, Vec<String>)> {
    let lost: HashMap<u64, bool> = search.lost.iter().map(|one| (one.block.address, one.direct)).collect();
    let (sampled, births) = (target.samples()?, target.births()?);
    let numbers: HashMap<u64, usize> =
        (sampled.stacks.iter()).enumerate().map(|(at, stack)| (stack.number, at)).collect();
    let now = target.core().is_none().then(now_ms);
    let profile = read::stacks_of(target.remote(), sampled, &options.symbols.debug_directory);
    let mut found: HashMap<Frame, Site> = HashMap::new();
    for birth in births {
        let stack = numbers.get(&birth.stack).and_then(|&at| profile.stacks.get(at));
        let (Some(&direct), Some(stack)) = (lost.get(&birth.address), stack) else { continue };
        let (frame, _, callers) = sites::site(&profile, stack);
        let [none, held] = [Totals::default(); 2];
        let site = found.entry(frame.clone()).or_insert(Site { frame, direct: none, held, oldest_ms: None, callers });
        let sum = if direct { &mut site.direct } else { &mut site.held };
        *sum += Totals { objects: birth.estimated_objects, bytes: birth.estimated_bytes };
        site.oldest_ms = site.oldest_ms.max(now.map(|now| now.wrapping_sub(birth.birth_ms)));
    }
    let mut found: Vec<Site> = found.into_values().collect();
    for sum in found.iter_mut().flat_map(|site| [&mut site.direct, &mut site.held]) {
        sum.objects = read::objects(sum.objects);
    }
    let key = |site: &Site| (site.direct.bytes, site.held.bytes);
    found.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.frame.function.cmp(&b.frame.function)));
    Ok((found, profile.notes))
}

pub fn command(options: &LeakOptions) -> Result<ExitCode> {
    let target = Target::open_within(&options.subject, read::NAMING)?;
    let mut search = target.unreachable()?;
    // Without samples there are no lines.
    let (sites, notes, sampled) = match sites_of(&target, &search, options) {
        Ok((sites, notes)) => (sites, notes, true),
        Err(_) => (Vec::new(), Vec::new(), false),
    };
    let (direct, held) =
        (totals(search.lost.iter().filter(|one| one.direct)), totals(search.lost.iter().filter(|one| !one.direct)));
    let (remote, directories) = (target.remote(), options.symbols.debug_directory.clone());
    let mut found = Found {
        process: remote.program(),
        pid: remote.pid,
        live: Totals { objects: search.live_blocks, bytes: search.live_bytes },
        direct,
        held,
        root_bytes: search.root_bytes,
        threads: search.threads,
        stopped_seconds: target.core().is_none().then_some(search.stopped.as_secs_f64()),
        kinds: Vec::new(),
        sites,
        sampled,
        secure: target.is_secure()?,
        notes,
    };
    found.kinds = patience::within(remote.pid, read::NAMING, move || {
        let mut contents = Contents::new(remote, &directories, true)?;
        for one in search.lost.iter().filter(|one| one.direct) {
            contents.add(&one.block, Some(one.holds_bytes), &search.blocks, &mut search.copied);
        }
        Ok(contents.tallies())
    })?;
    if options.json {
        print::json(&found)?;
    } else {
        print::text(&text(&found, options.top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

// ---- as text ----

fn more(all: usize, top: usize, noun: &str) -> String {
    if all > top {
        format!("and {} more (--top N)\n", say::count(all - top, noun))
    } else {
        String::new()
    }
}

fn text(found: &Found, top: usize, style: Style) -> String {
    let Found { direct, held, live, pid, .. } = found;
    let mut text = format!(
        "{} (process {pid}): {} of {} live blocks are lost: nothing points to {} ({}), and only those lead to {} \
        ({})\n",
        shown::line(&found.process),
        count(direct.objects + held.objects),
        count(live.objects),
        count(direct.objects),
        size(direct.bytes),
        count(held.objects),
        size(held.bytes),
    );
    let stopped =
        found.stopped_seconds.map_or(String::new(), |time| format!("; it stood still for {}", say::seconds(time)));
    let _ = writeln!(
        text,
        "Looked through registers and stacks of {}, {} of variables and mappings, and {} of blocks{stopped}",
        say::count(found.threads, "thread"),
        size(found.root_bytes),
        size(live.bytes),
    );
    found.notes.iter().for_each(|note| text.push_str(&format!("Note: {}.\n", shown::line(note))));
    if direct.objects == 0 {
        return text;
    }
    let row = |kind: &Tally| {
        let example = kind.examples.first().cloned().unwrap_or_default();
        let cells = [size(kind.bytes), count(kind.blocks), kind.sizes(), size(kind.holds_bytes.unwrap_or(0)), example];
        (cells.into_iter().chain([kind.described()]).collect(), String::new())
    };
    let rows: Vec<_> = found.kinds.iter().take(top).map(row).collect();
    text += "\nWhat nothing points to\n";
    text += &table(&["lost", "blocks", "of", "leads to", "for example", "what"], &rows, style);
    text += &more(found.kinds.len(), top, "kind");
    let row = |site: &Site| {
        let oldest = site.oldest_ms.map_or("–".into(), |ms| say::seconds(f64::from(ms) / 1e3));
        let cells = [size(site.direct.bytes), say::number(site.direct.objects as f64), size(site.held.bytes), oldest];
        (cells.into_iter().chain([named(&site.frame)]).collect(), callers(&site.callers))
    };
    let rows: Vec<_> = found.sites.iter().take(top).map(row).collect();
    if !rows.is_empty() {
        text += "\nBy line, estimated from sampled blocks\n";
        text += &table(&["lost", "blocks", "lost with others", "oldest", "site"], &rows, style);
        text += &more(found.sites.len(), top, "site");
    } else if found.sampled {
        text +=
            "\nNone of them was sampled, so their lines are not known: they are few, or from before sampling began.\n";
    } else if found.secure {
        text += "\nTheir lines are not known: with HAKMEM_SECURE=1 nothing is sampled.\n";
    } else {
        let _ = writeln!(
            text,
            "\nTheir lines are known if they are sampled: HAKMEM_PROFILE=1, or `hakmem profile start {pid}` for those \
            to come."
        );
    }
    text
}
