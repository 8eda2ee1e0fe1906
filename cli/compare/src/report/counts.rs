//! What bench/counts.py has counted: its data, its drawings, and a page of its own.
// SPDX-License-Identifier: MIT

use super::lines::{lines, Line, Lines};
use super::marker::{markers, palette};
use super::{say, svg, HAKMEM};
use hakmem_base::page::{self, boxed, titles};
use maud::{html, Markup, PreEscaped};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What bench/counts.py writes.
#[derive(Deserialize)]
pub struct Counts {
    pub title: String,
    pub machine: String,
    pub paths: Vec<Counted>,
    /// Where lines move and retries happen.
    #[serde(default)]
    places: Vec<Places>,
    /// What grows with HAKMEM, with the reason if there is one.
    #[serde(default)]
    findings: Vec<Finding>,
    /// Where a peer counts less, and what could not be counted: a line each.
    #[serde(default)]
    losses: Vec<String>,
    #[serde(default)]
    missing: Vec<String>,
}

/// Something that is counted while something else grows.
#[derive(Deserialize)]
pub struct Counted {
    pub name: String,
    pub unit: String,
    pub x_unit: String,
    #[serde(default)]
    pub note: String,
    /// Growth below this does not count.
    #[serde(default)]
    least: f64,
    pub series: Vec<Series>,
}

#[derive(Deserialize)]
pub struct Series {
    pub allocator: String,
    points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Places {
    name: String,
    unit: String,
    places: Vec<Place>,
}

/// A field or a table, and the functions that are there most often.
#[derive(Deserialize)]
struct Place {
    what: String,
    code: Vec<String>,
    points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Finding {
    line: String,
    reason: Option<String>,
}

impl Counts {
    /// These names, and those of the other allocators.
    pub fn names<'a>(&'a self, mut names: Vec<&'a str>) -> Vec<&'a str> {
        for series in self.paths.iter().flat_map(|path| &path.series) {
            if !names.contains(&series.allocator.as_str()) {
                names.push(&series.allocator);
            }
        }
        names
    }

    /// Titles, and the lines below each.
    pub fn lists(&self) -> [(&'static str, Vec<String>); 4] {
        let (with, without): (Vec<&Finding>, Vec<&Finding>) =
            self.findings.iter().partition(|finding| finding.reason.is_some());
        let reasoned = with.iter().map(|one| format!("{}: {}", one.line, one.reason.as_deref().unwrap_or("")));
        [
            ("What grows without a reason", without.iter().map(|one| one.line.clone()).collect()),
            ("What grows, and why", reasoned.collect()),
            ("Where a peer counts less", self.losses.clone()),
            ("Not counted", self.missing.clone()),
        ]
    }

    /// The page, and each drawing as a file in `plots`.
    pub fn files(&self, page: &Path, plots: Option<&Path>) -> Vec<(PathBuf, String)> {
        let names = self.names(Vec::new());
        let mut files = vec![(page.to_path_buf(), self.html(&names))];
        if let Some(plots) = plots {
            let paths = self.paths.iter().filter(|path| !path.is_nothing());
            files.extend(paths.map(|path| {
                let drawing = path.drawing("c", &names);
                (plots.join(format!("{}.svg", slug(&path.title()))), svg::alone(&drawing, &names, 560.0))
            }));
            files.extend(self.glances().into_iter().enumerate().map(|(number, glance)| {
                let names: Vec<&str> = glance.lines.iter().map(|line| line.0.as_str()).collect();
                let path = plots.join(format!("{}.svg", slug(&format!("{} by {}", glance.unit, glance.x_unit))));
                (path, svg::alone(&glance.drawing(&format!("g{number}")), &names, 560.0))
            }));
        }
        files
    }

    /// All that HAKMEM counts in one unit while the same grows: one line a case.
    fn glances(&self) -> Vec<Glance<'_>> {
        let mut glances: Vec<Glance> = Vec::new();
        for path in self.paths.iter().filter(|path| path.least > 0.0) {
            let Some(own) = path.series.iter().find(|one| one.allocator == HAKMEM && one.points.len() > 1) else {
                continue;
            };
            let line = (short(&path.name), own.points.iter().map(|(x, y)| (*x, y.max(path.least))).collect());
            match glances.iter_mut().find(|one| (one.unit, one.x_unit) == (&path.unit, &path.x_unit)) {
                Some(glance) => glance.lines.push(line),
                None => glances.push(Glance {
                    unit: &path.unit,
                    x_unit: &path.x_unit,
                    least: path.least,
                    lines: vec![line],
                }),
            }
        }
        let is_flat =
            |glance: &Glance| glance.lines.iter().flat_map(|line| &line.1).all(|point| point.1 <= glance.least);
        glances.retain(|glance| glance.lines.len() > 1 && !is_flat(glance));
        glances
    }

    fn html(&self, names: &[&str]) -> String {
        let glances = self.glances();
        // As many colours as the drawing with the most lines needs.
        let lines = glances.iter().map(|glance| glance.lines.len()).chain([names.len(), PLACES]).max().unwrap_or(0);
        let named = |place: usize| names.get(place).copied().unwrap_or("");
        let all: Vec<&str> = (0..lines).map(named).collect();
        let unexplained = self.findings.iter().filter(|finding| finding.reason.is_none()).count();
        let headline = match unexplained {
            0 => "Nothing grows but by a reason".to_string(),
            more => format!("{} without a reason", say::count(more, "series grows")),
        };
        let cases = self.cases();
        page::Page {
            title: &self.title,
            styles: &[&palette(&all)],
            scripts: &[],
            policy: "",
            head: html!(),
            body: html! {
                svg width="0" height="0" style="position:absolute" aria-hidden="true" { (PreEscaped(markers(&all))) }
                header {
                    p class="eyebrow" { (self.title) " · " (self.machine) }
                    h1 { (headline) }
                    p class="lead soft" {
                        "Per operation, as threads and heaps grow. None of these depends on the speed of a machine."
                    }
                    nav aria-label="Parts" {
                        a href="#glance" { "At a glance" } " " a href="#growth" { "What grows" } " "
                        a href="#cases" { "Case by case" }
                    }
                }
                main {
                    section id="glance" {
                        h2 { "At a glance" }
                        p class="note" { "HAKMEM alone, one line a case. What is below a unit's least step is drawn \
                        there." }
                        div class="pair charts" {
                            @for (number, glance) in glances.iter().enumerate() {
                                figure {
                                    figcaption { (glance.unit) " by " (glance.x_unit) }
                                    (glance.drawing(&format!("g{number}")))
                                }
                            }
                        }
                    }
                    section id="growth" {
                        @for (title, lines) in self.lists().into_iter().filter(|list| !list.1.is_empty()) {
                            h2 { (title) }
                            ul { @for line in lines { li { (line) } } }
                        }
                    }
                    section id="cases" {
                        h2 { "Case by case" }
                        @for (number, paths) in cases.iter().enumerate() { (self.case(number, paths, names)) }
                    }
                }
            },
        }
        .text()
    }

    fn cases(&self) -> Vec<&[Counted]> {
        self.paths.chunk_by(|a, b| a.name == b.name).collect()
    }

    fn case(&self, number: usize, paths: &[Counted], names: &[&str]) -> Markup {
        let of = |unit: &str| self.places.iter().find(|one| one.name == paths[0].name && one.unit == unit);
        html! {
            h3 { (paths[0].name) }
            @if !paths[0].note.is_empty() { p class="note" { (paths[0].note) } }
            div class="pair charts" {
                @for (at, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_nothing()) {
                    figure { figcaption { (path.unit) } (path.drawing(&format!("c{number}-{at}"), names)) }
                    @if let Some(places) = of(&path.unit) {
                        figure {
                            figcaption { (path.unit) ", by what is there" }
                            (places.drawing(&format!("p{number}-{at}"), &path.x_unit))
                        }
                    }
                }
            }
            details class="more" {
                summary { "The numbers" }
                @for path in paths {
                    (boxed(&path.title(), html! {
                        table {
                            caption { (path.unit) }
                            (titles_of("allocator", &path.xs()))
                            tbody {
                                @for series in &path.series { (row(&series.allocator, &series.points, &path.xs())) }
                                @if let Some(places) = of(&path.unit) {
                                    @for place in &places.places {
                                        (row(&format!("{} ({})", place.what, place.code.join(", ")), &place.points,
                                             &path.xs()))
                                    }
                                }
                            }
                        }
                    }))
                }
            }
        }
    }
}

/// How many places one drawing has at most.
const PLACES: usize = 8;

/// What HAKMEM counts in several cases.
struct Glance<'a> {
    unit: &'a str,
    x_unit: &'a str,
    least: f64,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Glance<'_> {
    fn drawing(&self, id: &str) -> Markup {
        let lines = self.lines.iter().map(|(name, points)| (name.as_str(), points.as_slice()));
        draw(id, &format!("{} by {}", self.unit, self.x_unit), self.unit, self.x_unit, lines.enumerate())
    }
}

impl Places {
    fn drawing(&self, id: &str, x_unit: &str) -> Markup {
        let lines = self.places.iter().take(PLACES).map(|place| (place.what.as_str(), place.points.as_slice()));
        draw(id, &format!("{}: {}, by what is there", self.name, self.unit), &self.unit, x_unit, lines.enumerate())
    }
}

impl Counted {
    pub fn title(&self) -> String {
        format!("{}: {} by {}", self.name, self.unit, self.x_unit)
    }

    pub fn is_nothing(&self) -> bool {
        self.series.iter().flat_map(|series| &series.points).all(|point| point.1.abs() < 0.05)
    }

    pub fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    pub fn drawing(&self, id: &str, names: &[&str]) -> Markup {
        let place_of = |name: &str| names.iter().position(|one| *one == name).unwrap_or(0);
        let lines =
            self.series.iter().map(|one| (place_of(&one.allocator), (one.allocator.as_str(), one.points.as_slice())));
        draw(id, &self.title(), &self.unit, &self.x_unit, lines)
    }
}

impl Series {
    pub fn at(&self, x: f64) -> String {
        at(&self.points, x)
    }
}

/// (place of the colour, (name, points)) each.
fn draw<'a>(
    id: &str,
    title: &str,
    unit: &str,
    x_unit: &str,
    all: impl Iterator<Item = (usize, (&'a str, &'a [(f64, f64)]))>,
) -> Markup {
    lines(&Lines {
        id,
        title,
        description: "One line each; less is better. The numbers are in the table.".into(),
        x_title: &format!("{x_unit} →"),
        y_title: unit,
        y_unit: 1.0,
        x_text: say::number,
        y_text: say::number,
        dots: true,
        lines: all.map(|(place, (name, points))| Line { place, name: name.into(), points: points.to_vec() }).collect(),
    })
}

fn at(points: &[(f64, f64)], x: f64) -> String {
    points.iter().find(|point| point.0 == x).map_or("–".into(), |point| say::number(point.1))
}

fn titles_of(first: &str, xs: &[f64]) -> Markup {
    let xs: Vec<String> = xs.iter().map(|x| say::number(*x)).collect();
    titles(std::iter::once(first).chain(xs.iter().map(String::as_str)))
}

fn row(name: &str, points: &[(f64, f64)], xs: &[f64]) -> Markup {
    html! { tr class=[(name == HAKMEM).then_some("own")] { td { (name) } @for x in xs { td { (at(points, *x)) } } } }
}

/// Without what all cases of its drawing have in common.
fn short(name: &str) -> String {
    let rest = ["threads: ", "sparse heap: ", "groups of "]
        .iter()
        .fold(name, |name, part| name.strip_prefix(part).unwrap_or(name));
    rest.split(", by size").next().unwrap_or(rest).to_string()
}

/// The name of a file.
fn slug(text: &str) -> String {
    let letters = text.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    letters.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        let series = |name: &str, ys: [f64; 3]| {
            let points: Vec<_> = [1.0, 2.0, 64.0].into_iter().zip(ys).collect();
            serde_json::json!({"allocator": name, "points": points})
        };
        let path = |name: &str, unit: &str, ys| {
            serde_json::json!({"name": name, "unit": unit, "x_unit": "threads", "note": "", "least": 5.0,
                               "series": [series("hakmem", ys), series("peer", [ys[0]; 3])]})
        };
        let counts = serde_json::json!({
            "title": "Counts", "machine": "a machine",
            "paths": [path("threads: larson", "lines", [0.0, 20.0, 40.0]),
                path("threads: churn", "lines", [0.0, 8.0, 9.0]),
                      path("threads: churn", "retries", [0.0; 3])],
            "places": [{"name": "threads: churn", "unit": "lines",
                        "places": [{"what": "slab: owner", "code": ["slab_adopt"], "points": [[2.0, 8.0]]}]}],
            "findings": [{"line": "larson grows", "reason": "so it is"}, {"line": "churn grows", "reason": null}],
            "losses": ["churn, 2 threads"], "missing": [],
        });
        serde_json::from_value(counts).unwrap()
    }

    /// Else a reader misses what grows without a reason.
    #[test]
    fn the_page_says_first_what_is_not_explained() {
        let files = counts().files(Path::new("counts.html"), None);
        let (path, page) = &files[0];
        assert_eq!((files.len(), path.as_path()), (1, Path::new("counts.html")));
        for text in ["1 series grows without a reason", "larson grows: so it is", "slab: owner (slab_adopt)"] {
            assert!(page.contains(text), "{text}");
        }
        let lists = counts().lists();
        assert_eq!(lists[0].1, ["churn grows"]);
        assert_eq!(lists[3].1.len(), 0);
    }

    /// Else plots are lost or overwrite each other. What nobody counts has none.
    #[test]
    fn each_drawing_has_a_file() {
        let files = counts().files(Path::new("counts.html"), Some(Path::new("plots")));
        let names: Vec<_> = files[1..].iter().map(|file| file.0.to_str().unwrap()).collect();
        let expected = [
            "plots/threads-larson-lines-by-threads.svg",
            "plots/threads-churn-lines-by-threads.svg",
            "plots/lines-by-threads.svg",
        ];
        assert_eq!(names, expected);
    }

    /// Else a zero has no place on a scale of powers, and a series that is all noise looks like growth.
    #[test]
    fn a_glance_begins_at_the_least_step() {
        let counts = counts();
        let glances = counts.glances();
        assert_eq!(glances.len(), 1);
        assert_eq!(glances[0].lines[0], ("larson".to_string(), vec![(1.0, 5.0), (2.0, 20.0), (64.0, 40.0)]));
    }
}
