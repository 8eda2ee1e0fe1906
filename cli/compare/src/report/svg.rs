//! Drawings in SVG: what all of them share, and strips of dots.
//!
//! Colours are classes (chart.css and marker.rs), so that a drawing follows the reader's light or dark.
// SPDX-License-Identifier: MIT

use super::marker::{markers, palette};
use super::scale::{tick, Scale};
use crate::results::Ratio;
use hakmem_base::page::{escape, CHART_STYLE};
use maud::{Markup, PreEscaped};
use std::fmt::Write;

/// A file of its own, that wide if there is room.
pub fn alone(drawing: &Markup, names: &[&str], width: f64) -> String {
    let drawing = drawing.0.as_str();
    let head_end = drawing.find('>').map_or(0, |at| at + 1);
    let (head, body) = drawing.split_at(head_end);
    let head = head.replacen("<svg", &format!(r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}""#), 1);
    format!("{head}<style>{CHART_STYLE}{}</style>{}{body}\n", palette(names), markers(names))
}

pub fn head(width: f64, height: f64, id: &str, title: &str, description: &str) -> String {
    format!(
        r#"<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{id}-t {id}-d"><title
        id="{id}-t">{}</title><desc id="{id}-d">{}</desc>"#,
        escape(title),
        escape(description)
    )
}

pub fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

/// One decimal is a tenth of a pixel.
pub fn px(value: f64) -> f64 {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 {
        0.0
    } else {
        rounded
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// A dot of a strip: with the interval or without it.
pub struct Dot {
    pub place: usize,
    pub ratio: Ratio,
    pub interval: bool,
    pub own: bool,
}

/// One row of dots over a scale of per cent, as wide as its box. Heights are in the style.
pub fn strip(scale: &Scale, resolution: Option<f64>, dots: &[Dot]) -> Markup {
    let mut svg = String::from(r#"<svg class="strip" aria-hidden="true">"#);
    let mut bar = |class: &str, low: f64, high: f64| {
        let (from, to) = (scale.at(low), scale.at(high));
        let _ = write!(svg, r#"<rect class="{class}" x="{from}%" width="{}%"/>"#, px(to - from));
    };
    if let Some(resolution) = resolution {
        bar("band", 1.0 / resolution, resolution);
    }
    for dot in dots.iter().filter(|dot| dot.interval && dot.ratio.low < dot.ratio.high) {
        bar(&format!("reach a{}", dot.place), dot.ratio.low, dot.ratio.high);
    }
    let _ = write!(svg, r#"<rect class="unit" x="{}%"/>"#, scale.at(1.0));
    for dot in dots {
        let (at, place) = (scale.at(dot.ratio.median), dot.place);
        let far = if scale.is_beyond(dot.ratio.median) { " far" } else { "" };
        let (size, own) = (if dot.interval { 'n' } else { 'm' }, if dot.own { " own" } else { "" });
        let _ = write!(svg, r##"<use href="#{size}{place}" class="a{place}{own}{far}" x="{at}%"/>"##);
    }
    PreEscaped(svg + "</svg>")
}

/// The numbers above strips, 1 first and no two nearer than that many per cent.
pub fn strip_axis(scale: &Scale, apart: f64) -> Markup {
    let mut svg = String::from(r#"<svg class="strip" aria-hidden="true">"#);
    let mut ticks = scale.ticks(5);
    ticks.sort_by_key(|at| *at != 1.0);
    let mut taken: Vec<f64> = Vec::new();
    for at in ticks.into_iter().filter(|at| !scale.is_beyond(*at)) {
        let place = scale.at(at);
        if taken.iter().all(|other| (other - place).abs() >= apart) {
            taken.push(place);
            let _ = write!(svg, r#"<text x="{place}%" y="16" class="tick mid">{}</text>"#, tick(at));
        }
    }
    PreEscaped(svg + "</svg>")
}

/// Rows of dots in a drawing of its own: workloads by allocators.
pub struct Rows<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub axis: String,
    pub rows: Vec<(String, Option<f64>, Vec<Dot>)>,
    pub names: &'a [&'a str],
}

pub fn rows(chart: &Rows) -> Markup {
    let (width, row_height) = (860.0, 20.0);
    let left = chart.rows.iter().map(|row| width_of(&row.0, 12.0)).fold(80.0, f64::max).min(280.0) + 12.0;
    let legend = legend(chart.names, width);
    let top = legend.1 + 30.0;
    let height = top + chart.rows.len() as f64 * row_height + 34.0;
    let ratios = chart.rows.iter().flat_map(|row| row.2.iter().map(|dot| dot.ratio.median));
    let scale = Scale::of_ratios(ratios, left + 8.0, width - 16.0);
    let description =
        "One row a workload, one mark an allocator; left is better. Shaded: what the machine cannot tell apart.";
    let mut svg = head(width, height, chart.id, chart.title, description);
    svg += &legend.0;
    let bottom = height - 28.0;
    for at in scale.ticks(9) {
        let (place, class) = (scale.at(at), if at == 1.0 { "one" } else { "grid" });
        let _ = write!(svg, r#"<path class="{class}" d="M{place} {}V{bottom}"/>"#, top - 8.0);
        for y in [top - 13.0, bottom + 15.0] {
            let _ = write!(svg, r#"<text x="{place}" y="{y}" class="tick mid">{}</text>"#, tick(at));
        }
    }
    let _ = write!(svg, r#"<text x="0" y="{}" class="axis">{}</text>"#, bottom + 15.0, escape(&chart.axis));
    for (number, (name, resolution, dots)) in chart.rows.iter().enumerate() {
        let y = top + (number as f64 + 0.5) * row_height;
        if let Some(resolution) = resolution {
            let (from, to) = (scale.at(1.0 / resolution), scale.at(*resolution));
            let (y, width) = (y - row_height / 2.0, px(to - from));
            let _ = write!(svg, r#"<rect class="band" x="{from}" y="{y}" width="{width}" height="{row_height}"/>"#);
        }
        let _ = write!(svg, r#"<text x="{left}" y="{}" class="label end">{}</text>"#, y + 4.0, escape(name));
        for dot in dots {
            let (at, place) = (scale.at(dot.ratio.median), dot.place);
            let class = if scale.is_beyond(dot.ratio.median) { " far" } else { "" };
            let scale = if dot.own { " scale(1.2)" } else { " scale(.85)" };
            let _ = write!(
                svg,
                r##"<use href="#m{place}" class="a{place}{class}" transform="translate({at} {y}){scale}"/>"##
            );
        }
    }
    PreEscaped(svg + "</svg>")
}

/// Marker and name of each, and the height they take.
fn legend(names: &[&str], width: f64) -> (String, f64) {
    let (mut svg, mut x, mut y) = (String::new(), 8.0, 12.0);
    for (place, name) in names.iter().enumerate() {
        let room = width_of(name, 12.0) + 30.0;
        if x + room > width {
            (x, y) = (8.0, y + 19.0);
        }
        let _ = write!(svg, r##"<use href="#m{place}" class="a{place}" transform="translate({x} {y})"/>"##);
        let _ = write!(svg, r#"<text x="{}" y="{}" class="name a{place}">{}</text>"#, x + 10.0, y + 4.0, escape(name));
        x = px(x + room);
    }
    (svg, y + 8.0)
}
