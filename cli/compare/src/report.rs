//! `hakmem report`: draws what comparisons found, from their JSON alone.
//!
//! 1. Several documents are merged into one standing. What bench/counts.py has counted has a page of its own
//!    (counts.rs).
//! 2. html.rs makes a page of it, markdown.rs a text with plots; both ask the questions below.
//! 3. scatter.rs, lines.rs and svg.rs draw; marker.rs gives each allocator its look, say.rs the words.
//!
//! All ratios are to the baseline; below 1 is better. A peer's ratio r to HAKMEM is HAKMEM's 1/r to the peer.
// SPDX-License-Identifier: MIT

mod counts;
pub mod html;
pub mod lines;
mod markdown;
mod marker;
pub mod say;
mod scale;
mod scatter;
pub mod svg;

use crate::results::*;
use crate::statistics::{reach, standings};
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::files;
use hakmem_base::print;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use html::html;

#[derive(clap::Args)]
pub struct Options {
    /// Results that `hakmem compare --json` wrote; if two workloads have one name, the last one counts
    #[arg(required_unless_present = "counts", value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// Write a self-contained web page; `-` is stdout
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the standings as Markdown, with plots in separate files; `-` is stdout
    #[arg(long, value_name = "FILE", requires = "plots")]
    markdown: Option<PathBuf>,
    /// Directory for the plots of --markdown, or of --counts without results
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
    /// Markdown to append: what was tried and lost
    #[arg(long, value_name = "FILE", requires = "markdown")]
    experiments: Option<PathBuf>,
    /// Counts that do not depend on the machine, from bench/counts.py: a part of --markdown; without results, what
    /// --html shows
    #[arg(long, value_name = "COUNTS.json")]
    counts: Option<PathBuf>,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    ensure!(options.html.is_some() || options.markdown.is_some(), "nothing to write: give --html or --markdown");
    print::ensure_one(options.html.as_deref().into_iter().chain(options.markdown.as_deref()), false)?;
    let counts = options.counts.as_deref().map(read_counts).transpose()?;
    if let (true, Some(counts)) = (options.results.is_empty(), &counts) {
        let page = options.html.as_deref().context("counts without results are a page: give --html")?;
        ensure!(options.markdown.is_none(), "--markdown needs results");
        return write_all(counts.files(page, options.plots.as_deref()));
    }
    ensure!(
        options.markdown.is_some() || options.counts.is_none() && options.plots.is_none(),
        "--counts and --plots with results go with --markdown"
    );
    let documents = options.results.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let comparison = merge(options.results.iter().zip(documents))?;
    if let Some(path) = &options.html {
        write(path, &html(&comparison))?;
    }
    if let (Some(path), Some(plots)) = (&options.markdown, &options.plots) {
        let experiments = options.experiments.as_deref().map(text_of).transpose()?;
        let page = markdown::Page {
            comparison: &comparison,
            results: &options.results,
            experiments,
            counts,
            text: path,
            plots,
        };
        return write_all(page.files());
    }
    Ok(ExitCode::SUCCESS)
}

fn read_counts(path: &Path) -> Result<counts::Counts> {
    let what = || format!("{} is not what bench/counts.py writes", path.display());
    serde_json::from_str(&text_of(path)?).with_context(what)
}

fn write_all(files: Vec<(PathBuf, String)>) -> Result<ExitCode> {
    for (path, text) in files {
        write(&path, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text_of(path: &Path) -> Result<String> {
    files::read_text(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent().filter(|_| !print::is_stdout(path)) {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    files::publish(path, text)
}

fn read(path: &Path) -> Result<Comparison> {
    parse(path, &text_of(path)?)
}

fn parse(path: &Path, text: &str) -> Result<Comparison> {
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let what = || format!("{} is not what `hakmem compare --json` writes", path.display());
    let found = serde_json::from_str::<Version>(text).with_context(what)?.format;
    if found != FORMAT {
        bail!("{} has format {found}, this program reads format {FORMAT}", path.display());
    }
    serde_json::from_str(text).with_context(what)
}

/// Suites that ran separately become one standing.
fn merge<'a>(mut documents: impl Iterator<Item = (&'a PathBuf, Comparison)>) -> Result<Comparison> {
    let (first, mut whole) = documents.next().context("no results")?;
    let mut merged = false;
    for (path, next) in documents {
        merged = true;
        let (path, first) = (path.display(), first.display());
        let (ours, theirs) = (&whole.baseline, &next.baseline);
        ensure!(ours == theirs, "cannot merge: {path} is relative to {theirs}, {first} to {ours}");
        let (ours, theirs) = (&whole.machine, &next.machine);
        let same = (&ours.processor, ours.cores) == (&theirs.processor, theirs.cores);
        ensure!(same, "cannot merge: {first} and {path} were measured on different machines");
        if !whole.title.split(" · ").any(|title| title == next.title) {
            whole.title = format!("{} · {}", whole.title, next.title);
        }
        whole.duration_s += next.duration_s;
        whole.started = whole.started.min(next.started);
        whole.machine.load = whole.machine.load.max(next.machine.load);
        for new in next.allocators {
            match whole.allocators.iter_mut().find(|old| old.name == new.name) {
                None => whole.allocators.push(new),
                Some(old) if old.version.split(" / ").all(|version| version != new.version) => {
                    old.version = format!("{} / {}", old.version, new.version);
                }
                Some(_) => {}
            }
        }
        let all_missing = [(&mut whole.missing, next.missing), (&mut whole.missing_workloads, next.missing_workloads)];
        for (old, new) in all_missing {
            let known =
                |one: &Missing| old.iter().any(|other| (&other.name, &other.reason) == (&one.name, &one.reason));
            let new: Vec<Missing> = new.into_iter().filter(|one| !known(one)).collect();
            old.extend(new);
        }
        for note in next.notes {
            if !whole.notes.contains(&note) {
                whole.notes.push(note);
            }
        }
        for new in next.workloads {
            match whole.workloads.iter_mut().find(|old| old.name == new.name) {
                Some(old) => *old = new,
                None => whole.workloads.push(new),
            }
        }
    }
    // What one suite lacked another may have.
    let (allocators, workloads) = (&whole.allocators, &whole.workloads);
    whole.missing.retain(|missing| allocators.iter().all(|one| one.name != missing.name));
    whole.missing_workloads.retain(|missing| workloads.iter().all(|one| one.name != missing.name));
    if merged {
        let names: Vec<String> = whole.allocators.iter().map(|one| one.name.clone()).collect();
        (whole.standing, whole.standing_again) = standings(&whole.workloads, &names, &whole.baseline);
    }
    Ok(whole)
}

pub const HAKMEM: &str = "hakmem";

/// They check more and are slower for it: compared, but no peers when HAKMEM's place is named.
const HARDENED: [&str; 4] = ["snmalloc-checks", "hardened", "hardened-light", "scudo"];

/// Those of issue 3's goal for memory.
const LEAN_PEERS: [&str; 4] = ["mimalloc3", "snmalloc", "rpmalloc", "jemalloc"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Time,
    PeakRss,
    AverageRss,
}

impl Measure {
    pub const ALL: [Measure; 3] = [Measure::Time, Measure::PeakRss, Measure::AverageRss];

    /// The field of `Ratios` and `Standing`.
    pub fn field(self) -> &'static str {
        ["time", "peak_rss", "average_rss"][self as usize]
    }

    pub fn title(self) -> &'static str {
        ["Time", "Peak memory", "Average memory"][self as usize]
    }

    fn of(self, ratios: &Ratios) -> Ratio {
        [ratios.time, ratios.peak_rss, ratios.average_rss][self as usize]
    }

    pub fn mean(self, standing: &Standing) -> Ratio {
        [standing.time, standing.peak_rss, standing.average_rss][self as usize]
    }

    /// The median of what was measured, less is better.
    fn median(self, summary: &Summary) -> f64 {
        match (self, summary.metric) {
            (Measure::Time, Some(metric)) => 1.0 / metric.median,
            (Measure::Time, None) => summary.wall_s.median,
            (Measure::PeakRss, _) => summary.peak_rss_bytes.median,
            (Measure::AverageRss, _) => summary.average_rss_bytes.median,
        }
    }
}

impl Ratio {
    pub const ONE: Ratio = Ratio { median: 1.0, low: 1.0, high: 1.0, verdict: Verdict::Same };

    /// The ratio of b to a, where this one is of a to b.
    pub fn inverse(self) -> Ratio {
        let verdict = match self.verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Same => Verdict::Same,
            Verdict::Worse => Verdict::Better,
        };
        Ratio { median: 1.0 / self.median, low: 1.0 / self.high, high: 1.0 / self.low, verdict }
    }

    /// A logarithm of it can be taken.
    pub fn is_usable(&self) -> bool {
        [self.median, self.low, self.high].iter().all(|number| number.is_finite() && *number > 0.0)
    }
}

/// HAKMEM against the peer that is best at it.
#[derive(Clone)]
pub struct Versus<'a> {
    pub peer: &'a str,
    pub ratio: f64,
    /// None where HAKMEM is not the baseline: no ratio of these two was measured.
    pub interval: Option<(f64, f64)>,
    pub verdict: Verdict,
}

impl<'a> Versus<'a> {
    /// `ratio` is the peer's to HAKMEM.
    fn measured(peer: &'a str, ratio: Ratio) -> Self {
        let own = ratio.inverse();
        Versus { peer, ratio: own.median, interval: Some((own.low, own.high)), verdict: own.verdict }
    }

    fn computed(peer: &'a str, ratio: f64, resolution: f64) -> Self {
        let verdict = match ratio {
            _ if ratio > resolution => Verdict::Worse,
            _ if ratio < 1.0 / resolution => Verdict::Better,
            _ => Verdict::Same,
        };
        Versus { peer, ratio, interval: None, verdict }
    }
}

/// The peer that leaves HAKMEM worst; one that is ahead beyond the resolution comes before one that may only seem so.
fn hardest<'a>(versus: impl Iterator<Item = Versus<'a>>) -> Option<Versus<'a>> {
    let is_behind = |one: &Versus| one.verdict == Verdict::Worse;
    versus
        .filter(|one| one.ratio.is_finite() && one.ratio > 0.0)
        .max_by(|a, b| is_behind(a).cmp(&is_behind(b)).then(a.ratio.total_cmp(&b.ratio)))
}

impl Comparison {
    /// In the order of their first workloads.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for workload in self.workloads.iter().filter(|workload| !workload.group.is_empty()) {
            if !groups.contains(&workload.group.as_str()) {
                groups.push(&workload.group);
            }
        }
        groups
    }

    /// With their places; "" is all of them.
    pub fn of_group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = (usize, &'a Workload)> {
        self.workloads.iter().enumerate().filter(move |(_, workload)| group.is_empty() || workload.group == group)
    }

    pub fn place_of(&self, allocator: &str) -> Option<usize> {
        self.allocators.iter().position(|one| one.name == allocator)
    }

    fn peers(&self) -> impl Iterator<Item = &str> {
        let is_hardened =
            |one: &Allocator| HARDENED.contains(&one.name.as_str()) || one.tags.iter().any(|tag| tag == "hardened");
        self.allocators
            .iter()
            .filter(move |one| !is_hardened(one))
            .map(|one| one.name.as_str())
            .filter(|name| *name != HAKMEM)
    }

    /// To the baseline; its own is 1. None without a result.
    pub fn ratio(&self, workload: &Workload, allocator: &str, measure: Measure) -> Option<Ratio> {
        let summary = workload.result(allocator)?.summary.as_ref()?;
        match &summary.ratios {
            Some(ratios) => Some(measure.of(ratios)),
            None if allocator == self.baseline => Some(Ratio::ONE),
            None => None,
        }
    }

    /// With its place, unless it is the baseline's and not written down.
    pub fn mean(&self, group: &str, allocator: &str, measure: Measure) -> Option<(Option<usize>, usize, Ratio)> {
        let found = self.standing.iter().position(|one| one.group == group && one.allocator == allocator);
        match found {
            Some(place) => Some((Some(place), self.standing[place].workloads, measure.mean(&self.standing[place]))),
            None if allocator == self.baseline => {
                let finished = self.of_group(group).filter(|(_, one)| self.ratio(one, allocator, measure).is_some());
                let count = finished.count();
                (count > 0).then_some((None, count, Ratio::ONE))
            }
            None => None,
        }
    }

    /// HAKMEM's geometric mean to the least of the peers'.
    pub fn standing_versus(&self, group: &str, measure: Measure, peers: Option<&[&str]>) -> Option<Versus<'_>> {
        let (_, _, own) = self.mean(group, HAKMEM, measure)?;
        hardest(self.peers().filter(|peer| peers.is_none_or(|peers| peers.contains(peer))).filter_map(|peer| {
            let (_, _, ratio) = self.mean(group, peer, measure)?;
            Some(if self.baseline == HAKMEM {
                Versus::measured(peer, ratio)
            } else {
                Versus::computed(peer, own.median / ratio.median, 1.0)
            })
        }))
    }

    /// HAKMEM to the peer that is best on this workload.
    pub fn versus(&self, workload: &Workload, measure: Measure) -> Option<Versus<'_>> {
        let own = workload.result(HAKMEM)?.summary.as_ref()?;
        hardest(self.peers().filter_map(|peer| {
            if self.baseline == HAKMEM {
                return Some(Versus::measured(peer, self.ratio(workload, peer, measure)?));
            }
            let peers = workload.result(peer)?.summary.as_ref()?;
            let ratio = measure.median(own) / measure.median(peers);
            Some(Versus::computed(peer, ratio, workload.resolution(measure).unwrap_or(1.0)))
        }))
    }

    /// Likewise, of a further number that the workload prints.
    pub fn value_versus(&self, workload: &Workload, name: &str) -> Option<Versus<'_>> {
        let own = workload.result(HAKMEM)?.summary.as_ref()?.values.get(name)?.median;
        hardest(self.peers().filter_map(|peer| {
            let summary = workload.result(peer)?.summary.as_ref()?;
            let measured = summary.ratios.as_ref().and_then(|ratios| ratios.values.get(name));
            Some(match measured.filter(|ratio| self.baseline == HAKMEM && ratio.is_usable()) {
                Some(ratio) => Versus::measured(peer, *ratio),
                None => {
                    let peers = summary.values.get(name)?.median;
                    let ratio = if own == peers { 1.0 } else { (own / peers).clamp(1e-3, 1e3) };
                    Versus::computed(peer, ratio, 1.0)
                }
            })
        }))
    }

    /// What the machine resolves on a typical workload: half of them do better.
    pub fn resolution(&self, measure: Measure) -> Option<f64> {
        let mut all: Vec<f64> = self.workloads.iter().filter_map(|workload| workload.resolution(measure)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// What it resolves over all workloads.
    pub fn whole_resolution(&self, measure: Measure) -> Option<f64> {
        let again = self.standing_again.iter().find(|one| one.group.is_empty()).map(|one| measure.mean(one));
        again.filter(Ratio::is_usable).map(|ratio| reach(&ratio)).or_else(|| self.resolution(measure))
    }
}

impl Workload {
    pub fn result(&self, allocator: &str) -> Option<&WorkloadResult> {
        self.results.iter().find(|result| result.allocator == allocator)
    }

    /// The baseline to itself.
    pub fn against_itself(&self, measure: Measure) -> Option<Ratio> {
        let ratios = self.again.as_ref()?.summary.as_ref()?.ratios.as_ref()?;
        Some(measure.of(ratios)).filter(Ratio::is_usable)
    }

    /// Ratios from 1/r to r happen here without any difference.
    pub fn resolution(&self, measure: Measure) -> Option<f64> {
        Some(reach(&self.against_itself(measure)?))
    }

    pub fn value_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .results
            .iter()
            .filter_map(|one| one.summary.as_ref())
            .flat_map(|one| one.values.keys())
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = include_str!("../tests/result.json");

    /// Else a result that somebody sent ends the command, or keeps it.
    #[test]
    fn any_text_is_a_result_or_none() {
        let path = PathBuf::from("result.json");
        assert!(html(&parse(&path, SOUND).unwrap()).contains("hakmem"));
        hakmem_fuzz::mutations("a result", SOUND.as_bytes(), 500, |bytes| {
            let Ok(result) = parse(&path, &String::from_utf8_lossy(bytes)) else { return };
            let both = [(&path, result.clone()), (&path, result.clone())];
            if let Ok(merged) = merge(both.into_iter()) {
                std::hint::black_box(html(&merged));
            }
            let style = hakmem_base::table::Style { color: true, width: 80 };
            std::hint::black_box((html(&result), crate::terminal::standing(&result, style)));
        });
    }
}
