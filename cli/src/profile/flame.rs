//! Profiles in the formats of other tools: folded stacks, speedscope's JSON, and flame graphs drawn by inferno.
// SPDX-License-Identifier: MIT

use super::{tree, Metric, Profile};
use anyhow::{ensure, Context, Result};
use hakmem_base::shown;
use inferno::flamegraph::{self, color::BasicPalette, Palette};
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// The largest weight of a stack in a graph: the tools that draw it add up all stacks.
const SUM_MAX: u64 = 1 << 44;

/// One line a stack: its functions, the outmost first, between semicolons, and a number.
pub fn folded(profile: &Profile, metric: Metric) -> String {
    let mut lines = BTreeMap::<String, u64>::new();
    for stack in &profile.stacks {
        let value = stack.value(metric);
        if value > 0 {
            let names: Vec<String> = tree::names(profile, stack).into_iter().map(|name| safe(&name.0)).collect();
            let sum = lines.entry(names.join(";")).or_default();
            *sum = sum.saturating_add(value).min(SUM_MAX);
        }
    }
    lines
        .into_iter()
        .map(|(names, value)| format!("{} {value}\n", if names.is_empty() { "(none)" } else { &names }))
        .collect()
}

/// Without the letter that separates functions, line breaks, and what SVG cannot hold.
fn safe(name: &str) -> String {
    shown::line(&name.replace(';', ":").replace(['\n', '\r'], " ")).into_owned()
}

fn drawn(options: &mut flamegraph::Options, lines: &str) -> Result<Vec<u8>> {
    let mut svg = Vec::new();
    flamegraph::from_lines(options, lines.lines(), &mut svg).context("cannot draw")?;
    Ok(svg)
}

fn options<'a>(title: String, subtitle: String, metric: Metric) -> flamegraph::Options<'a> {
    let mut options = flamegraph::Options::default();
    options.title = title;
    options.subtitle = Some(subtitle);
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    options.text_truncate_direction = flamegraph::TextTruncateDirection::Right;
    options.count_name = if metric.is_space() { "bytes" } else { "blocks" }.into();
    options
}

pub fn svg(profile: &Profile, metric: Metric) -> Result<Vec<u8>> {
    let total = profile.total(metric);
    ensure!(total > 0, "nothing to draw: the profile has no {}", metric.title());
    let subtitle = format!("{}: {}", metric.title(), metric.text(total));
    drawn(&mut options(profile.subject(), subtitle, metric), &folded(profile, metric))
}

/// What grew is red, what shrank blue. The widths are those of the second profile.
pub fn difference_svg(before: &Profile, after: &Profile, metric: Metric) -> Result<Vec<u8>> {
    let (old, new) = (before.total(metric), after.total(metric));
    ensure!(new > 0, "nothing to draw: the second profile has no {}", metric.title());
    let mut lines = Vec::new();
    let (first, second) = (folded(before, metric), folded(after, metric));
    inferno::differential::from_readers(Default::default(), first.as_bytes(), second.as_bytes(), &mut lines)?;
    let subtitle = format!("{}: {} before, {} after", metric.title(), metric.text(old), metric.text(new));
    drawn(&mut options(after.subject(), subtitle, metric), &String::from_utf8_lossy(&lines))
}

/// https://www.speedscope.app/file-format-schema.json: a profile for each metric.
pub fn speedscope(profile: &Profile, metric: Metric) -> Value {
    let (mut frames, mut numbers) = (Vec::new(), BTreeMap::new());
    let mut stacks = Vec::new();
    for stack in &profile.stacks {
        let mut numbered = Vec::new();
        for (frame, _) in profile.frames(stack).into_iter().rev() {
            let key = (frame.function.clone(), frame.file.clone(), frame.line);
            let number = *numbers.entry(key).or_insert_with(|| {
                let mut entry = json!({ "name": frame.function });
                if !frame.file.is_empty() {
                    entry["file"] = frame.file.into();
                    entry["line"] = frame.line.into();
                }
                frames.push(entry);
                frames.len() - 1
            });
            numbered.push(number);
        }
        stacks.push(numbered);
    }
    let one = |metric: Metric| {
        let chosen: Vec<(&Vec<usize>, u64)> =
            stacks.iter().zip(&profile.stacks).map(|(names, stack)| (names, stack.value(metric))).collect();
        let chosen = || chosen.iter().filter(|(_, value)| *value > 0);
        json!({
            "type": "sampled",
            "name": metric.title(),
            "unit": if metric.is_space() { "bytes" } else { "none" },
            "startValue": 0,
            "endValue": profile.total(metric),
            "samples": chosen().map(|one| one.0).collect::<Vec<_>>(),
            "weights": chosen().map(|one| one.1).collect::<Vec<_>>(),
        })
    };
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("hakmem ", env!("CARGO_PKG_VERSION")),
        "name": profile.subject(),
        "activeProfileIndex": metric as usize,
        "shared": { "frames": frames },
        "profiles": Metric::ALL.map(one),
    })
}
