//! Charts of lines: memory over time, scaling and growth.
// SPDX-License-Identifier: MIT

use super::scale::Scale;
use super::svg::{head, px, width_of, Area};
use super::HAKMEM;
use hakmem_base::page::escape;
use maud::{Markup, PreEscaped};
use std::fmt::Write;

/// One line of a chart.
pub struct Line {
    pub place: usize,
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

pub struct Lines<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub description: String,
    pub x_title: &'a str,
    pub y_title: &'a str,
    /// Ticks are at round multiples of it.
    pub y_unit: f64,
    pub x_text: fn(f64) -> String,
    pub y_text: fn(f64) -> String,
    /// Mark each point; a dense line has only its end marked.
    pub dots: bool,
    pub lines: Vec<Line>,
}

pub fn lines(chart: &Lines) -> Markup {
    let width = 380.0;
    let right = chart.lines.iter().map(|line| width_of(&line.name, 11.0)).fold(30.0, f64::max).min(120.0) + 20.0;
    let bottom = 26.0 + 190f64.max(chart.lines.len() as f64 * 14.0);
    let mut frame = Area { left: 40.0, top: 26.0, right: width - right, bottom };
    let (_, y) = lines_scales(chart, &frame);
    let ticks: Vec<(f64, String)> = y.ticks(5).into_iter().map(|at| (at, (chart.y_text)(at * chart.y_unit))).collect();
    frame.left = ticks.iter().map(|tick| width_of(&tick.1, 11.0) + 8.0).fold(20.0, f64::max);
    let (x, _) = lines_scales(chart, &frame);
    let mut svg = head(width, bottom + 38.0, chart.id, chart.title, &chart.description);
    let _ = write!(svg, r#"<text x="0" y="12" class="axis">{}</text>"#, escape(chart.y_title));
    for (at, text) in ticks {
        let (place, text) = (y.at(at), escape(&text));
        let _ = write!(svg, r#"<path class="grid" d="M{} {place}H{}"/>"#, frame.left, frame.right);
        let _ =
            write!(svg, r#"<text x="{}" y="{}" class="tick end">{text}</text>"#, px(frame.left - 6.0), px(place + 4.0));
    }
    svg += &lines_foot(chart, &x, &frame);
    let mut order: Vec<&Line> = chart.lines.iter().filter(|line| !line.points.is_empty()).collect();
    order.sort_by_key(|line| line.name == HAKMEM);
    let mut ends: Vec<(f64, f64, &Line)> = Vec::new();
    for line in order {
        let inside = line.points.iter().filter(|point| chart.dots || !x.is_beyond(point.0));
        let path: Vec<(f64, f64)> = inside.map(|point| (x.at(point.0), y.at(point.1 / chart.y_unit))).collect();
        let Some(&(end_x, end_y)) = path.last() else { continue };
        let (place, own) = (line.place, if line.name == HAKMEM { " own" } else { "" });
        let _ = write!(svg, r#"<path class="line a{place}{own}" d="{}"/>"#, path_of(&simplify(&path)));
        let marked = if chart.dots { &path[..] } else { &path[path.len() - 1..] };
        for (x, y) in marked {
            let _ = write!(svg, r##"<use href="#n{place}" class="a{place}" x="{x}" y="{y}"/>"##);
        }
        let peak = path.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        ends.push(if chart.dots { (end_x, end_y, line) } else { (end_x, peak, line) });
    }
    PreEscaped(svg + &end_labels(ends, &frame, chart.dots) + "</svg>")
}

fn lines_foot(chart: &Lines, x: &Scale, frame: &Area) -> String {
    let mut svg = String::new();
    let mut xs: Vec<f64> = chart.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let ticks = if chart.dots && xs.len() <= 10 { xs } else { x.ticks(5) };
    let mut free = f64::NEG_INFINITY;
    for at in ticks {
        let (place, text) = (x.at(at), (chart.x_text)(at));
        let half = width_of(&text, 11.0) / 2.0;
        if place - half > free {
            free = place + half + 4.0;
            let text = escape(&text);
            let _ = write!(svg, r#"<text x="{place}" y="{}" class="tick mid">{text}</text>"#, frame.bottom + 16.0);
        }
    }
    let (right, y, title) = (px(frame.right), frame.bottom + 32.0, escape(chart.x_title));
    let _ = write!(svg, r#"<text x="{right}" y="{y}" class="axis end">{title}</text>"#);
    let _ = write!(svg, r#"<path class="one" d="M{} {}H{right}"/>"#, px(frame.left), frame.bottom);
    svg
}

fn lines_scales(chart: &Lines, frame: &Area) -> (Scale, Scale) {
    let (lines, dots) = (&chart.lines, chart.dots);
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let fold = |start: f64, by: fn(f64, f64) -> f64, of: fn(&(f64, f64)) -> f64| all().map(of).fold(start, by);
    let (least, most) = (fold(f64::INFINITY, f64::min, |p| p.0), fold(0.0, f64::max, |p| p.0));
    let x = if dots && least > 0.0 && least.is_finite() && most / least >= 8.0 {
        Scale::logarithmic(least, most, frame.left + 6.0, frame.right - 6.0)
    } else if dots {
        Scale::linear(least.min(most), most, frame.left + 6.0, frame.right - 6.0)
    } else {
        // A few very slow ones leave the frame, lest all others be a stroke at its left edge.
        let mut ends: Vec<f64> = lines.iter().filter_map(|line| line.points.last()).map(|point| point.0).collect();
        ends.sort_by(f64::total_cmp);
        let usual = ends.get(ends.len() / 2).copied().unwrap_or(1.0);
        Scale::linear(0.0, most.min(usual * 2.0), frame.left, frame.right - 6.0)
    };
    let (low, high) = (fold(f64::INFINITY, f64::min, |p| p.1), fold(0.0, f64::max, |p| p.1));
    let (low, high) = (low / chart.y_unit, high / chart.y_unit);
    let y = if dots && low > 0.0 && high / low > 30.0 {
        Scale::logarithmic(low / 1.1, high * 1.1, frame.bottom, frame.top)
    } else {
        Scale::linear(0.0, high * 1.04, frame.bottom, frame.top)
    };
    (x, y)
}

/// Names at the right edge, in the order of the lines' heights, none on another. Lines that end at that edge are led to
/// their names, others have their marker there.
fn end_labels(mut ends: Vec<(f64, f64, &Line)>, frame: &Area, leaders: bool) -> String {
    let step = 14.0;
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places: Vec<f64> = Vec::new();
    for (_, y, _) in &ends {
        let after = places.last().map_or(frame.top, |last| last + step);
        places.push(if leaders { y.max(after) } else { after });
    }
    let mut limit = frame.bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - step;
    }
    let mut svg = String::new();
    for ((x, y, line), place) in ends.iter().zip(places) {
        let (middle, text_y, at) = (px(place), px(place + 4.0), frame.right);
        let (number, own) = (line.place, if line.name == HAKMEM { " own" } else { "" });
        let _ = if leaders {
            write!(svg, r#"<path class="leader a{number}" d="M{} {y}L{} {middle}"/>"#, px(x + 5.0), px(at + 10.0))
        } else {
            let x = px(at + 8.0);
            write!(svg, r##"<use href="#n{number}" class="a{number}" x="{x}" y="{middle}"/>"##)
        };
        let short: String = line.name.chars().take(17).chain(line.name.chars().nth(17).map(|_| '…')).collect();
        let (x, text) = (px(at + 14.0), escape(&short));
        let _ = write!(svg, r#"<text x="{x}" y="{text_y}" class="small a{number}{own}">{text}</text>"#);
    }
    svg
}

/// In whole pixels, each step from the point before: short.
fn path_of(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut last: Option<(i64, i64)> = None;
    for (x, y) in points.iter().map(|(x, y)| (x.round() as i64, y.round() as i64)) {
        let (command, dx, dy) = last.map_or(("M", x, y), |last| ("l", x - last.0, y - last.1));
        if (dx, dy) != (0, 0) || last.is_none() {
            let _ = write!(path, "{command}{dx}{}{dy}", if dy < 0 { "" } else { " " });
        }
        last = Some((x, y));
    }
    path
}

/// Leaves out points that lie within a pixel of the line without them (Douglas and Peucker).
fn simplify(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some(&first), Some(&last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let (dx, dy) = (last.0 - first.0, last.1 - first.1);
    let length = dx.hypot(dy).max(1e-9);
    let away = |point: &(f64, f64)| ((point.0 - first.0) * dy - (point.1 - first.1) * dx).abs() / length;
    let farthest = (1..points.len().saturating_sub(1)).max_by(|a, b| away(&points[*a]).total_cmp(&away(&points[*b])));
    match farthest {
        Some(at) if away(&points[at]) > 1.0 => {
            let mut left = simplify(&points[..=at]);
            left.pop();
            left.extend(simplify(&points[at..]));
            left
        }
        _ if points.len() == 1 => vec![first],
        _ => vec![first, last],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn simplified_lines_keep_their_peaks() {
        let points: Vec<(f64, f64)> = (0..100).map(|n| (n as f64, if n == 50 { 80.0 } else { 10.0 })).collect();
        let simple = simplify(&points);
        assert!(simple.contains(&(50.0, 80.0)) && simple.len() < 8, "{simple:?}");
    }
}
