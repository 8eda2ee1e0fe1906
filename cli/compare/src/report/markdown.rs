//! The standing as text for docs/, with plots beside it: HAKMEM's place, its losses first, and issue 3's goals.
// SPDX-License-Identifier: MIT

mod goals;

use super::counts::Counts;
use super::scatter::{scatter, Point, Scatter};
use super::svg::{self, Dot, Rows};
use super::{say, Measure, Versus, HAKMEM, LEAN_PEERS};
use crate::results::*;
use maud::Markup;
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub struct Page<'a> {
    pub comparison: &'a Comparison,
    /// What it was made from.
    pub results: &'a [PathBuf],
    pub experiments: Option<String>,
    pub counts: Option<Counts>,
    pub text: &'a Path,
    pub plots: &'a Path,
}

/// Text in a table's cell.
fn cell(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' => safe.extend(['\\', letter]),
            _ if letter.is_control() => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

fn row<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| cell.as_ref().to_string()).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The first columns are text, the others numbers.
fn head(titles: &[String], text_columns: usize) -> String {
    let lines = (0..titles.len()).map(|column| if column < text_columns { "---" } else { "---:" });
    format!("{}|{}|\n", row(titles), lines.collect::<Vec<_>>().join("|"))
}

fn titles(titles: &[&str]) -> Vec<String> {
    titles.iter().map(|title| title.to_string()).collect()
}

fn ratio(ratio: &Ratio) -> String {
    format!("{} ({})", say::ratio(ratio.median), say::interval(ratio.low, ratio.high))
}

/// "1.05 (1.03–1.07)" and whether it is beyond the resolution.
fn versus(versus: &Versus) -> String {
    let ratio = say::ratio(versus.ratio);
    match versus.interval {
        Some((low, high)) => format!("{ratio} ({})", say::interval(low, high)),
        None => format!("{ratio} (no interval)"),
    }
}

fn marked(one: &Versus) -> String {
    match one.verdict {
        Verdict::Better => format!("**{}**", versus(one)),
        Verdict::Same => versus(one),
        Verdict::Worse => format!("▲ {}", versus(one)),
    }
}

/// By what the number's name says it is in.
fn value(name: &str, number: f64) -> String {
    match bytes_of(name) {
        Some(unit) => say::bytes(number * unit),
        None => say::number(number),
    }
}

fn bytes_of(name: &str) -> Option<f64> {
    let units = [("bytes", 1.0), ("KiB", 1024.0), ("MiB", 1048576.0)];
    units.into_iter().find(|(unit, _)| name.ends_with(unit)).map(|(_, size)| size)
}

impl Page<'_> {
    /// The text, and the plots.
    pub fn files(&self) -> Vec<(PathBuf, String)> {
        let found = self.comparison;
        let mut files = Vec::new();
        let mut text = self.opening();
        if found.workloads.is_empty() {
            text += "\nNothing was measured.\n";
        } else {
            text += &self.standing(&mut files);
            text += &self.goals();
            text += &self.losses();
            text += &self.workloads(&mut files);
            text += &self.values();
        }
        if let Some(counts) = &self.counts {
            text += &self.growth(counts, &mut files);
        }
        if let Some(experiments) = &self.experiments {
            let _ = write!(text, "\n{}\n", experiments.trim());
        }
        text += &self.failures();
        text += &self.machine();
        files.insert(0, (self.text.to_path_buf(), text));
        files
    }

    fn names(&self) -> Vec<&str> {
        self.comparison.allocators.iter().map(|one| one.name.as_str()).collect()
    }

    /// Adds a plot and answers the line that shows it.
    fn plot(
        &self,
        files: &mut Vec<(PathBuf, String)>,
        name: &str,
        title: &str,
        drawing: &Markup,
        names: &[&str],
        width: f64,
    ) -> String {
        let path = self.plots.join(format!("{name}.svg"));
        let beside = self.text.parent().and_then(|directory| path.strip_prefix(directory).ok()).unwrap_or(&path);
        let line = format!("\n![{}]({})\n", cell(title), beside.display());
        files.push((path, svg::alone(drawing, names, width)));
        line
    }

    fn opening(&self) -> String {
        let found = self.comparison;
        let (line, more) = say::headline(found);
        let short = |path: &Path| match path.is_absolute() {
            true => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            false => path.display().to_string(),
        };
        let results: Vec<String> = self.results.iter().map(|path| short(path)).collect();
        let extra = format!(
            "{}{}",
            if self.experiments.is_some() { " --experiments FILE" } else { "" },
            if self.counts.is_some() { " --counts FILE" } else { "" }
        );
        let mut text = format!(
            "# Performance\n\nMade by `hakmem report {} --markdown {} --plots {}{extra}`; not to be edited.\n",
            results.join(" "),
            short(self.text),
            short(self.plots)
        );
        let _ = write!(text, "\n**{line}.**");
        for sentence in more.iter().chain(&found.notes) {
            let _ = write!(text, "\n{}", cell(sentence));
        }
        let machine = &found.machine;
        let _ = write!(
            text,
            "\n\nMeasured on {} ({}), {}, kernel {}, huge pages {}, load {:.2} before; started {}, took {}.\n",
            cell(&machine.processor),
            say::count(machine.cores, "core"),
            say::bytes(machine.memory_bytes as f64),
            cell(&machine.kernel),
            cell(&machine.huge_pages),
            machine.load,
            cell(&found.started),
            say::seconds(found.duration_s)
        );
        text
    }

    fn standing(&self, files: &mut Vec<(PathBuf, String)>) -> String {
        let (found, names) = (self.comparison, self.names());
        let to_baseline = |name: &str, one: &Ratio| if name == found.baseline { "1".into() } else { ratio(one) };
        let mean = |group: &str, name: &str, measure| found.mean(group, name, measure).map(|one| one.2);
        let points: Vec<Point> = names
            .iter()
            .enumerate()
            .filter_map(|(place, name)| {
                let (x, y) = (mean("", name, Measure::Time)?, mean("", name, Measure::PeakRss)?);
                (x.is_usable() && y.is_usable()).then_some(Point { place, name, x, y })
            })
            .collect();
        let title = format!("Time and peak memory, relative to {}", found.baseline);
        let baseline = &found.baseline;
        let drawing = scatter(&Scatter {
            id: "s",
            title: &title,
            baseline,
            width: 760.0,
            height: 520.0,
            names: true,
            points: &points,
        });
        let mut text = format!(
            "\n## Standing\n\nGeometric means of the ratios to {}, with 95 % intervals; below 1 is better.\n",
            cell(baseline)
        );
        text += &self.plot(files, "frontier", &title, &drawing, &names, 760.0);
        text += "\n";
        text += &head(&titles(&["allocator", "version", "time", "peak memory", "average memory", "workloads"]), 2);
        let mut order: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
        let key = |name: &str| mean("", name, Measure::Time).map_or(f64::INFINITY, |ratio| ratio.median);
        order.sort_by(|a, b| key(a.1).total_cmp(&key(b.1)));
        for (place, name) in &order {
            let mut cells = vec![cell(name), cell(&found.allocators[*place].version)];
            for measure in Measure::ALL {
                cells.push(mean("", name, measure).map_or("–".into(), |one| {
                    if name == baseline {
                        "1".into()
                    } else {
                        ratio(&one)
                    }
                }));
            }
            cells.push(found.mean("", name, Measure::Time).map_or("0".into(), |one| one.1.to_string()));
            text += &row(cells);
        }
        let groups = found.groups();
        if groups.len() < 2 {
            return text;
        }
        for measure in [Measure::Time, Measure::PeakRss] {
            let _ = write!(text, "\n### {} by group\n\n", measure.title());
            let columns = groups.iter().map(|group| format!("{} ({})", cell(group), found.of_group(group).count()));
            text += &head(&std::iter::once("allocator".to_string()).chain(columns).collect::<Vec<_>>(), 1);
            for (_, name) in &order {
                let means = groups.iter().map(|group| mean(group, name, measure));
                let cells = means.map(|mean| mean.map_or("–".into(), |one| to_baseline(name, &one)));
                text += &row(std::iter::once(cell(name)).chain(cells));
            }
        }
        text
    }

    /// HAKMEM's numbers of such names: workload, name, median.
    fn values_named<'a>(&'a self, part: &'a str) -> impl Iterator<Item = (&'a Workload, &'a str, f64)> {
        let part = part.to_lowercase();
        self.comparison
            .workloads
            .iter()
            .flat_map(|workload| {
                let own = workload.result(HAKMEM).and_then(|result| result.summary.as_ref());
                own.into_iter().flat_map(move |summary| {
                    summary.values.iter().map(move |(name, spread)| (workload, name.as_str(), spread.median))
                })
            })
            .filter(move |(_, name, _)| name.to_lowercase().contains(&part))
    }

    fn losses(&self) -> String {
        let found = self.comparison;
        let mut losses: Vec<(&Workload, Measure, Versus)> = Vec::new();
        for workload in &found.workloads {
            for measure in [Measure::Time, Measure::PeakRss] {
                let versus = found.versus(workload, measure).filter(|one| one.verdict == Verdict::Worse);
                losses.extend(versus.map(|versus| (workload, measure, versus)));
            }
        }
        let mut text = String::from("\n## Where HAKMEM is not first\n\n");
        if losses.is_empty() {
            return text
                + "On no workload is a peer ahead in time or in peak memory beyond what the machine resolves.\n";
        }
        losses.sort_by(|a, b| (a.1 as usize).cmp(&(b.1 as usize)).then(b.2.ratio.total_cmp(&a.2.ratio)));
        text += "Only what is beyond the resolution; the worst first.\n\n";
        text += &head(&titles(&["workload", "group", "in", "first", "HAKMEM to it"]), 4);
        for (workload, measure, one) in losses {
            text += &row([
                cell(&workload.name),
                cell(&workload.group),
                measure.title().to_lowercase(),
                cell(one.peer),
                versus(&one),
            ]);
        }
        text
    }

    fn workloads(&self, files: &mut Vec<(PathBuf, String)>) -> String {
        let (found, names) = (self.comparison, self.names());
        let mut text = String::from(
            "\n## Every workload\n\nHAKMEM to the best peer on each. Bold: ahead beyond the resolution; \
             ▲: behind beyond it.\n",
        );
        for (file, measure) in [("time", Measure::Time), ("memory", Measure::PeakRss)] {
            let rows = found.workloads.iter().map(|workload| {
                let mut dots: Vec<Dot> = names
                    .iter()
                    .enumerate()
                    .filter_map(|(place, name)| {
                        let ratio = found.ratio(workload, name, measure).filter(Ratio::is_usable)?;
                        Some(Dot { place, ratio, interval: false, own: *name == HAKMEM })
                    })
                    .collect();
                dots.sort_by_key(|dot| dot.own);
                (workload.name.clone(), workload.resolution(measure), dots)
            });
            let title = format!("{} by workload, relative to {}", measure.title(), found.baseline);
            let axis = format!("{} to {}", measure.title().to_lowercase(), found.baseline);
            let drawing = svg::rows(&Rows { id: file, title: &title, axis, rows: rows.collect(), names: &names });
            text += &self.plot(files, file, &title, &drawing, &names, 860.0);
        }
        text += "\n";
        text += &head(
            &titles(&["workload", "group", "fastest peer", "leanest peer", "time to it", "peak memory to it"]),
            4,
        );
        for workload in &found.workloads {
            let (time, memory) = (found.versus(workload, Measure::Time), found.versus(workload, Measure::PeakRss));
            let peer = |one: &Option<Versus>| one.as_ref().map_or("–".into(), |one| cell(one.peer));
            let ratio = |one: &Option<Versus>| one.as_ref().map_or("–".into(), marked);
            text += &row([
                cell(&workload.name),
                cell(&workload.group),
                peer(&time),
                peer(&memory),
                ratio(&time),
                ratio(&memory),
            ]);
        }
        text
    }

    fn values(&self) -> String {
        let all: Vec<(&Workload, &str, f64)> = self.values_named("").collect();
        if all.is_empty() {
            return String::new();
        }
        let mut text =
            String::from("\n## Further numbers\n\nWhat workloads print beside their speed; less is better.\n\n");
        text += &head(&titles(&["workload", "number", "best peer", "HAKMEM", "peer", "HAKMEM to it"]), 3);
        for (workload, name, own) in all {
            let found = self.comparison.value_versus(workload, name);
            let peer = found.as_ref().map_or("–".into(), |one| cell(one.peer));
            let theirs = found.as_ref().and_then(|one| workload.result(one.peer)?.summary.as_ref()?.values.get(name));
            text += &row([
                cell(&workload.name),
                cell(name),
                peer,
                value(name, own),
                theirs.map_or("–".into(), |spread| value(name, spread.median)),
                found.as_ref().map_or("–".into(), marked),
            ]);
        }
        text
    }

    fn growth(&self, counts: &Counts, files: &mut Vec<(PathBuf, String)>) -> String {
        let mut text = format!(
            "\n## {}\n\nCounted on {}; these do not depend on its speed.\n",
            cell(&counts.title),
            cell(&counts.machine)
        );
        let names = counts.names(self.names());
        for (title, lines) in counts.lists().into_iter().filter(|list| !list.1.is_empty()) {
            let lines: String = lines.iter().map(|line| format!("- {}\n", cell(line))).collect();
            let _ = write!(text, "\n### {title}\n\n{lines}");
        }
        for (number, path) in counts.paths.iter().enumerate() {
            if number == 0 || counts.paths[number - 1].name != path.name {
                let _ = write!(text, "\n### {}\n", cell(&path.name));
                if !path.note.is_empty() {
                    let _ = write!(text, "\n{}\n", cell(&path.note));
                }
            }
            let _ = write!(text, "\n#### {}\n", cell(&path.unit));
            if path.is_nothing() {
                text += "\nNone by any of them.\n";
                continue;
            }
            let drawing = path.drawing(&format!("c{number}"), &names);
            text += &self.plot(files, &format!("counts-{}", number + 1), &path.title(), &drawing, &names, 560.0);
            text += "\n";
            let xs = path.xs();
            let columns = xs.iter().map(|x| format!("{} {}", say::number(*x), cell(&path.x_unit)));
            text += &head(&std::iter::once("allocator".to_string()).chain(columns).collect::<Vec<_>>(), 1);
            for series in &path.series {
                text += &row(std::iter::once(cell(&series.allocator)).chain(xs.iter().map(|x| series.at(*x))));
            }
        }
        text
    }

    fn failures(&self) -> String {
        let found = self.comparison;
        let mut text = String::new();
        let failures = found.workloads.iter().flat_map(|workload| {
            let results = workload.results.iter().chain(&workload.again);
            results.flat_map(move |result| result.failures.iter().map(move |reason| (workload, result, reason)))
        });
        let rows: String = failures
            .map(|(workload, result, reason)| row([cell(&workload.name), cell(&result.allocator), cell(reason)]))
            .collect();
        if !rows.is_empty() {
            text += "\n## Runs that do not count\n\n";
            text += &(head(&titles(&["workload", "allocator", "why"]), 3) + &rows);
        }
        let missing = found.missing.iter().chain(&found.missing_workloads);
        let rows: String = missing.map(|one| row([cell(&one.name), cell(&one.reason)])).collect();
        if !rows.is_empty() {
            text += "\n## Not measured\n\n";
            text += &(head(&titles(&["what", "why"]), 2) + &rows);
        }
        text
    }

    fn machine(&self) -> String {
        format!(
            "\n## How this was measured\n\nAll allocators run by turns, {0} twice in each round. Each run is compared \
             with {0}'s run nearest to it in\ntime; the ratio is the median of these, its interval holds 95 % \
             (bootstrap). What {0} shows against itself is the\nresolution: a difference within it is called none. \
             Memory is the program's own resident memory. A best peer is\npicked after the fact, the best of many \
             by chance included, so a ratio to it is on the strict side.\n",
            cell(&self.comparison.baseline)
        )
    }
}
