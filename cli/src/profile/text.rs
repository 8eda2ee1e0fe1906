//! Profiles on a terminal: the sites that matter most, and what changed between two profiles.
// SPDX-License-Identifier: MIT

use super::sites::{changes, sites, without_return_type, Change, Site};
use super::{Frame, Lifetime, Metric, Profile};
use hakmem_base::say;
use hakmem_base::shown;
use hakmem_base::table::Style;
use std::fmt::Write;

/// "file.cc:12", or nothing.
pub fn place_of(frame: &Frame) -> String {
    let file = frame.file.rsplit('/').next().unwrap_or(&frame.file);
    match (file.is_empty(), frame.line) {
        (true, _) => String::new(),
        (false, 0) => file.to_string(),
        (false, line) => format!("{file}:{line}"),
    }
}

/// A function without its parameters, and without template arguments if it is long.
pub fn short(function: &str) -> String {
    let mut name = function.strip_suffix(" const").unwrap_or(function);
    if name.ends_with(')') && !name.ends_with("(anonymous namespace)") {
        let mut depth = 0;
        let opening = name.char_indices().rev().find(|(_, letter)| {
            depth += i32::from(*letter == ')') - i32::from(*letter == '(');
            depth == 0
        });
        let before = opening.map(|(at, _)| &name[..at]);
        name = before.filter(|before| !["", "operator"].contains(before)).unwrap_or(name);
    }
    if name.chars().count() <= 60 || name.contains("operator<") || name.contains("operator>") || name.contains("->") {
        return name.to_string();
    }
    let (mut out, mut depth) = (String::new(), 0);
    for letter in name.chars() {
        match letter {
            '<' => {
                depth += 1;
                if depth == 1 {
                    out.push_str("<…>");
                }
            }
            '>' => depth -= 1,
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    out
}

pub fn named(frame: &Frame) -> String {
    let (name, place) = (short(&frame.function), place_of(frame));
    let (name, place) = (shown::line(&name), shown::line(&place));
    if place.is_empty() {
        name.into_owned()
    } else {
        format!("{name} at {place}")
    }
}

/// The frame's name, with that of the arena that the blocks are in, if it is not "".
fn named_in(frame: &Frame, arena: &str) -> String {
    match arena {
        "" => named(frame),
        _ => format!("{} in arena {}", named(frame), shown::line(arena)),
    }
}

/// How long half of the freed blocks lived at least, or less than that.
pub fn typical_lifetime(lifetimes: &[Lifetime]) -> String {
    let all: u128 = lifetimes.iter().map(|one| u128::from(one.freed.objects)).sum();
    let mut sum = 0;
    let middle = lifetimes.iter().find(|one| {
        sum += u128::from(one.freed.objects);
        all > 0 && sum * 2 >= all
    });
    middle.map_or("–".into(), range)
}

pub fn range(lifetime: &Lifetime) -> String {
    match lifetime.at_least_ns {
        None => "–".into(),
        Some(0) => "< 1 ms".into(),
        Some(ns) => format!("≥ {}", say::seconds(ns as f64 / 1e9)),
    }
}

pub fn share(value: u64, of: u64) -> String {
    if of == 0 {
        return "–".into();
    }
    format!("{:.1} %", value as f64 * 100.0 / of as f64)
}

/// What was held: now, or at the peak if that is what the metric is about.
fn held_metrics(metric: Metric) -> [Metric; 2] {
    match metric {
        Metric::PeakSpace | Metric::PeakObjects => [Metric::PeakSpace, Metric::PeakObjects],
        _ => [Metric::InuseSpace, Metric::InuseObjects],
    }
}

/// The first line of everything that shows a profile.
pub fn headline(profile: &Profile, metric: Metric) -> String {
    if matches!(metric, Metric::AllocSpace | Metric::AllocObjects) {
        let [bytes, blocks] = [Metric::AllocSpace, Metric::AllocObjects].map(|all| all.text(profile.total(all)));
        return format!("{}: {bytes} allocated in about {blocks} blocks", profile.subject());
    }
    let [space, objects] = held_metrics(metric);
    let (bytes, blocks) = (profile.total(space), profile.total(objects));
    let state = match (space, profile.moment.as_str()) {
        (Metric::PeakSpace, _) => "in use at the peak",
        _ if profile.at_exit => "leaked (in use at exit)",
        (_, "soft limit") => "in use when the heap passed its soft limit",
        (_, "growth") => "in use after the heap had grown",
        (_, "peak") => "in use at a new peak",
        (_, "SIGTERM") => "in use when SIGTERM ended the program",
        _ => "in use",
    };
    format!("{}: {} {state} in about {} blocks", profile.subject(), space.text(bytes), objects.text(blocks))
}

pub fn remark(profile: &Profile) -> String {
    let allocated = Metric::AllocSpace.text(profile.total(Metric::AllocSpace));
    let while_sampled = match profile.duration_ns {
        0 => "since sampling began".to_string(),
        ns => format!("in {}", say::seconds(ns as f64 / 1e9)),
    };
    let samples = match profile.interval {
        0 => String::new(),
        interval => format!("; one sample in {}, so small sums are rough", say::bytes(interval as f64)),
    };
    format!("{allocated} allocated {while_sampled}{samples}")
}

/// Rows of cells, the last column left-aligned, each row with a dim line below it.
pub fn table(titles: &[&str], rows: &[(Vec<String>, String)], style: Style) -> String {
    let cells = || rows.iter().map(|row| &row.0);
    let length = |text: &str| text.chars().count();
    let width =
        |column: usize| cells().map(|row| length(&row[column])).chain([length(titles[column])]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len() - 1).map(width).collect();
    let (bold, dim, plain) = if style.color { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
    let line = |row: &[&str]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:>width$}  ");
        }
        line + row[row.len() - 1]
    };
    let mut text = format!("{bold}{}{plain}\n", line(titles));
    let indent = widths.iter().map(|width| width + 2).sum::<usize>() + 2;
    for (row, below) in rows {
        text += &(line(&row.iter().map(String::as_str).collect::<Vec<_>>()) + "\n");
        if !below.is_empty() {
            let room = style.width.saturating_sub(indent).max(30);
            let cut: String = if length(below) > room {
                below.chars().take(room - 1).chain(['…']).collect()
            } else {
                below.clone()
            };
            let _ = writeln!(text, "{:indent$}{dim}{cut}{plain}", "");
        }
    }
    text
}

pub fn callers(callers: &[Frame]) -> String {
    let names: Vec<String> = callers.iter().take(4).map(|frame| format!("← {}", named(frame))).collect();
    names.join(" ")
}

/// What a site calls on the way to malloc, by name, and who calls it.
pub fn calls_and_callers(calls: &[Frame], of_site: &[Frame]) -> String {
    let name = |frame: &Frame| format!("→ {}", shown::line(&short(without_return_type(&frame.function))));
    let mut parts: Vec<String> = calls.iter().take(2).map(name).collect();
    parts.extend(Some(callers(of_site)).filter(|text| !text.is_empty()));
    parts.join(" ")
}

fn notes(profile: &Profile) -> String {
    profile.remarks().map(|note| format!("Note: {}.\n", shown::line(note))).collect()
}

pub fn text(profile: &Profile, metric: Metric, top: usize, style: Style) -> String {
    let mut text = sites_text(profile, metric, top, "--top N", style);
    if metric == Metric::InuseSpace && profile.has_peak() {
        let peak = profile.total(Metric::PeakSpace);
        let _ =
            writeln!(text, "At the peak {} were in use: `--metric peak_space` shows where.", say::bytes(peak as f64));
    }
    text
}

/// Without a hint to another metric; `how`: what shows the sites that are left out.
pub fn sites_text(profile: &Profile, metric: Metric, top: usize, how: &str, style: Style) -> String {
    let sites = sites(profile, metric);
    let total = profile.total(metric);
    let mut text = format!("{}\n{}\n{}\n", headline(profile, metric), remark(profile), notes(profile));
    if sites.is_empty() {
        return text + "No sample yet.\n";
    }
    let shown = sites.iter().filter(|site| site.value(metric) > 0).take(top);
    let [space, objects] = held_metrics(metric);
    let row = |site: &Site| {
        let cells = vec![
            space.text(site.value(space)),
            objects.text(site.value(objects)),
            Metric::AllocSpace.text(site.allocated.bytes),
            typical_lifetime(&site.lifetimes),
            share(site.value(metric), total),
            named_in(&site.frame, &site.arena),
        ];
        (cells, callers(&site.callers))
    };
    let rows: Vec<_> = shown.map(row).collect();
    let share_title = format!("of {}", metric.title());
    let left = match (space, profile.at_exit) {
        (Metric::PeakSpace, _) => "at the peak",
        (_, true) => "leaked",
        _ => "in use",
    };
    text += &table(&[left, "blocks", "allocated", "freed after", &share_title, "site"], &rows, style);
    let rest = sites.iter().filter(|site| site.value(metric) > 0).count() - rows.len();
    if rest > 0 {
        let _ = writeln!(text, "and {} more ({how})", say::count(rest, "site"));
    }
    text
}

/// "+1.2 MiB"
pub fn signed(metric: Metric, growth: i64) -> String {
    let sign = if growth < 0 { "−" } else { "+" };
    format!("{sign}{}", metric.text(growth.unsigned_abs()))
}

pub fn difference_headline(before: &Profile, after: &Profile, metric: Metric) -> String {
    let (old, new) = (before.total(metric), after.total(metric));
    let growth = super::sites::growth(old, new);
    let (subject, title) = (after.subject(), metric.title());
    if growth == 0 {
        return format!("{subject}: {title} as before, {}", metric.text(new));
    }
    let (verb, by) = (if growth > 0 { "grew" } else { "shrank" }, metric.text(growth.unsigned_abs()));
    format!("{subject}: {title} {verb} by {by}, from {} to {}", metric.text(old), metric.text(new))
}

pub fn difference(before: &Profile, after: &Profile, metric: Metric, top: usize, style: Style) -> String {
    let all = changes(before, after, metric);
    let mut text = format!("{}\n\n", difference_headline(before, after, metric));
    let row = |change: &Change| {
        let values = [change.before, change.after].map(|value| metric.text(value));
        let [old, new] = values;
        (vec![signed(metric, change.growth()), old, new, named(&change.frame)], callers(&change.callers))
    };
    let rows: Vec<_> = all.iter().take(top).map(row).collect();
    if rows.is_empty() {
        return text + "No site changed.\n";
    }
    text += &table(&["change", "before", "after", "site"], &rows, style);
    if all.len() > rows.len() {
        let _ = writeln!(text, "and {} more (--top N)", say::count(all.len() - rows.len(), "site"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::samples::Totals;
    use crate::profile::{Place, Stack};

    /// Else what was freed long ago counts as leaked, and a command without --top is said to have one.
    #[test]
    fn each_table_says_what_it_is_about() {
        let place = |address| Place { address, module: None, frames: Vec::new() };
        let live = Totals { objects: 1, bytes: 4096 };
        let stack =
            |place| Stack { places: vec![place], arena: String::new(), live, peak: live, lifetimes: Vec::new() };
        let (places, stacks) = (vec![place(1), place(2)], vec![stack(0), stack(1)]);
        let profile = Profile { at_exit: true, places, stacks, ..Profile::default() };
        let style = Style { color: false, width: 80 };
        let text = |metric| sites_text(&profile, metric, 1, "--json has all", style);
        assert!(text(Metric::InuseSpace).starts_with("a program: 8 KiB leaked (in use at exit) in about 2 blocks\n"));
        let all = text(Metric::AllocSpace);
        assert!(all.starts_with("a program: 8 KiB allocated in about 2 blocks\n"), "{all}");
        assert!(all.ends_with("\nand 1 site more (--json has all)\n"), "{all}");
    }

    #[test]
    fn names_are_shortened_where_nothing_is_lost() {
        assert_eq!(short("leak(int, std::vector<int>) const"), "leak");
        assert_eq!(short("(anonymous namespace)::f()"), "(anonymous namespace)::f");
        assert_eq!(short("main::{lambda(int)#1}::operator()(int) const"), "main::{lambda(int)#1}::operator()");
        let long = format!("Map<{}>::insert(int)", "std::string, ".repeat(10));
        assert_eq!(short(&long), "Map<…>::insert");
        assert_eq!(short("malloc"), "malloc");
        assert_eq!(short("operator()"), "operator()");
    }
}
