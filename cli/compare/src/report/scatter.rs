//! The scatter of time and memory: markers with crosses for intervals, the front, and names that do not overlap.
// SPDX-License-Identifier: MIT

use super::scale::{tick, Scale};
use super::svg::{head, px, width_of, Area};
use super::{say, HAKMEM};
use crate::results::Ratio;
use hakmem_base::page::escape;
use maud::{Markup, PreEscaped};
use std::fmt::Write;

/// One allocator in a scatter.
pub struct Point<'a> {
    pub place: usize,
    pub name: &'a str,
    pub x: Ratio,
    pub y: Ratio,
}

pub struct Scatter<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub baseline: &'a str,
    pub width: f64,
    pub height: f64,
    /// Name all of them, not only the front.
    pub names: bool,
    pub points: &'a [Point<'a>],
}

/// Points that no other one beats in both, from the fastest to the leanest.
pub fn front<'a>(points: &'a [Point<'a>]) -> Vec<&'a Point<'a>> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| (a.x.median.total_cmp(&b.x.median)).then(a.y.median.total_cmp(&b.y.median)));
    let mut least = f64::INFINITY;
    sorted.retain(|point| {
        let leaner = point.y.median < least;
        least = least.min(point.y.median);
        leaner
    });
    sorted
}

impl Area {
    fn around(x: f64, y: f64, half: f64) -> Self {
        Area { left: x - half, top: y - half, right: x + half, bottom: y + half }
    }

    fn overlap(&self, other: &Area) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }

    fn outside(&self, frame: &Area) -> f64 {
        let over = [frame.left - self.left, frame.top - self.top, self.right - frame.right, self.bottom - frame.bottom];
        over.iter().map(|by| by.max(0.0)).sum()
    }
}

/// Where a label goes that names (x, y): near it, within the frame, on nothing else.
/// Rather not on what is `soft`: lines.
fn place_label(x: f64, y: f64, width: f64, size: f64, frame: &Area, taken: &[Area], soft: &[Area]) -> Area {
    let (half_height, mut best, mut best_cost) = (size * 0.62, None, f64::INFINITY);
    for (ring, distance) in [9.0, 15.0, 23.0, 33.0, 45.0, 60.0, 78.0, 100.0].into_iter().enumerate() {
        for turn in 0..16 {
            // Right first, then left, above, below and between.
            let turn = [0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11][turn] as f64;
            let (sine, cosine) = (turn * std::f64::consts::TAU / 16.0).sin_cos();
            let middle_x = x + cosine * distance + cosine.signum() * (cosine.abs() > 0.3) as i32 as f64 * width / 2.0;
            let middle_y = y - sine * (distance + half_height * 0.4);
            let area = Area {
                left: middle_x - width / 2.0,
                top: middle_y - half_height,
                right: middle_x + width / 2.0,
                bottom: middle_y + half_height,
            };
            let covered: f64 = taken.iter().map(|other| area.overlap(other)).sum();
            let crossed = soft.iter().filter(|line| area.overlap(line) > 0.0).count() as f64;
            let cost = covered * 100.0 + area.outside(frame) * 1000.0 + ring as f64 * 4.0 + crossed * 6.0;
            if cost < best_cost {
                (best, best_cost) = (Some(area), cost);
            }
        }
    }
    best.unwrap_or(Area::around(x, y, half_height))
}

pub fn scatter(chart: &Scatter) -> Markup {
    let frame = Area { left: 46.0, top: 14.0, right: chart.width - 12.0, bottom: chart.height - 42.0 };
    let x = Scale::of_ratios(chart.points.iter().map(|point| point.x.median), frame.left, frame.right);
    let y = Scale::of_ratios(chart.points.iter().map(|point| point.y.median), frame.bottom, frame.top);
    let front = front(chart.points);
    let names: Vec<&str> = front.iter().map(|point| point.name).collect();
    let description = format!(
        "{}. Left is faster, down is leaner. Nothing is both faster and leaner than {}. The numbers are in the table.",
        say::count(chart.points.len(), "allocator"),
        names.join(", ")
    );
    let mut svg = head(chart.width, chart.height, chart.id, chart.title, &description);
    for at in x.ticks((chart.width / 75.0) as usize) {
        let (place, class) = (x.at(at), if at == 1.0 { "one" } else { "grid" });
        let _ = write!(svg, r#"<path class="{class}" d="M{place} {}V{}"/>"#, frame.top, frame.bottom);
        let _ = write!(svg, r#"<text x="{place}" y="{}" class="tick mid">{}</text>"#, frame.bottom + 16.0, tick(at));
    }
    for at in y.ticks((chart.height / 45.0) as usize) {
        let (place, class) = (y.at(at), if at == 1.0 { "one" } else { "grid" });
        let _ = write!(svg, r#"<path class="{class}" d="M{} {place}H{}"/>"#, frame.left, frame.right);
        let _ =
            write!(svg, r#"<text x="{}" y="{}" class="tick end">{}</text>"#, frame.left - 7.0, place + 4.0, tick(at));
    }
    let _ = write!(
        svg,
        r#"<text x="{}" y="{}" class="axis end">time to {} →</text><text transform="translate(11 {})rotate(-90)"
        class="axis end">peak memory →</text>"#,
        frame.right,
        chart.height - 8.0,
        escape(chart.baseline),
        frame.top
    );
    let _ =
        write!(svg, r#"<text x="{}" y="{}" class="hint">↙ faster and leaner</text>"#, frame.left, chart.height - 8.0);
    if let (Some(first), Some(last)) = (front.first(), front.last()) {
        let mut path = format!("M{} {}", x.at(first.x.median), frame.top);
        for point in &front {
            let _ = write!(path, "H{}V{}", x.at(point.x.median), y.at(point.y.median));
        }
        let _ = write!(svg, r#"<path class="front" d="{path}H{}"/>"#, frame.right.max(x.at(last.x.median)));
    }
    // HAKMEM last: on top.
    let mut order: Vec<&Point> = chart.points.iter().collect();
    order.sort_by_key(|point| point.name == HAKMEM);
    for point in &order {
        let (cx, cy, r) = (x.at(point.x.median), y.at(point.y.median), &point);
        let cross = format!("M{} {cy}H{}M{cx} {}V{}", x.at(r.x.low), x.at(r.x.high), y.at(r.y.low), y.at(r.y.high));
        let _ = write!(svg, r#"<path class="interval a{}" d="{cross}"/>"#, point.place);
    }
    for point in &order {
        let (cx, cy) = (x.at(point.x.median), y.at(point.y.median));
        let at = match point.name {
            HAKMEM => format!(r#"transform="translate({cx} {cy})scale(1.3)""#),
            _ => format!(r#"x="{cx}" y="{cy}""#),
        };
        let (place, name) = (point.place, escape(point.name));
        let (time, memory) = (say::ratio(point.x.median), say::ratio(point.y.median));
        let _ = write!(
            svg,
            r##"<use href="#m{place}" class="a{place}" {at}><title>{name}: time {time}, memory {memory}</title></use>"##
        );
    }
    svg += &scatter_labels(chart, &front, &order, &x, &y, &frame);
    PreEscaped(svg + "</svg>")
}

fn scatter_labels(chart: &Scatter, front: &[&Point], order: &[&Point], x: &Scale, y: &Scale, frame: &Area) -> String {
    let (size, mut svg) = (12.0, String::new());
    let half = |point: &Point| if point.name == HAKMEM { 8.0 } else { 6.0 };
    let mut taken: Vec<Area> =
        order.iter().map(|point| Area::around(x.at(point.x.median), y.at(point.y.median), half(point))).collect();
    let mut soft = Vec::new();
    for (number, point) in front.iter().enumerate() {
        let (left, bottom) = (x.at(point.x.median), y.at(point.y.median));
        let top = number.checked_sub(1).map_or(frame.top, |before| y.at(front[before].y.median));
        let right = front.get(number + 1).map_or(frame.right, |next| x.at(next.x.median));
        soft.push(Area { left: left - 1.0, top, right: left + 1.0, bottom });
        soft.push(Area { left, top: bottom - 1.0, right, bottom: bottom + 1.0 });
    }
    let in_front = |point: &Point| front.iter().any(|one| one.place == point.place);
    let mut labelled: Vec<&&Point> =
        order.iter().rev().filter(|point| chart.names || in_front(point) || point.name == HAKMEM).collect();
    labelled.sort_by_key(|point| (point.name != HAKMEM, !in_front(point)));
    for point in labelled {
        let (cx, cy) = (x.at(point.x.median), y.at(point.y.median));
        let mut text = point.name.to_string();
        if x.is_beyond(point.x.median) {
            let _ = write!(text, " {}× time", say::ratio(point.x.median));
        }
        if y.is_beyond(point.y.median) {
            let _ = write!(text, " {}× memory", say::ratio(point.y.median));
        }
        let room = width_of(&text, size) * if point.name == HAKMEM { 1.1 } else { 1.0 } + 2.0;
        let area = place_label(cx, cy, room, size, frame, &taken, &soft);
        taken.push(area);
        let middle_y = (area.top + area.bottom) / 2.0;
        let (anchor, at) = match () {
            _ if area.left >= cx => ("", area.left + 1.0),
            _ if area.right <= cx => (" end", area.right - 1.0),
            _ => (" mid", (area.left + area.right) / 2.0),
        };
        let (near_x, near_y) = (cx.clamp(area.left, area.right), cy.clamp(area.top, area.bottom));
        if (near_x - cx).hypot(near_y - cy) > 13.0 {
            let _ =
                write!(svg, r#"<path class="leader a{}" d="M{cx} {cy}L{} {}"/>"#, point.place, px(near_x), px(near_y));
        }
        let bold = if point.name == HAKMEM { " own" } else { "" };
        let _ = write!(
            svg,
            r#"<text x="{}" y="{}" class="name{anchor} a{}{bold}">{}</text>"#,
            px(at),
            px(middle_y + size * 0.34),
            point.place,
            escape(&text)
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn labels_of_crowded_points_do_not_overlap() {
        let frame = Area { left: 46.0, top: 14.0, right: 630.0, bottom: 400.0 };
        let mut taken: Vec<Area> =
            (0..14).map(|n| Area::around(300.0 + (n % 4) as f64 * 14.0, 200.0 + (n / 4) as f64 * 9.0, 6.0)).collect();
        for n in 0..14 {
            let area = place_label(
                300.0 + (n % 4) as f64 * 14.0,
                200.0 + (n / 4) as f64 * 9.0,
                90.0,
                12.0,
                &frame,
                &taken,
                &[],
            );
            assert!(taken.iter().all(|other| area.overlap(other) == 0.0), "label {n}");
            assert_eq!(area.outside(&frame), 0.0, "label {n}");
            taken.push(area);
        }
    }

    #[test]
    fn front_is_what_nothing_beats_in_both() {
        let ratio = |median| Ratio { median, ..Ratio::ONE };
        let point = |place, x, y| Point { place, name: "", x: ratio(x), y: ratio(y) };
        let points =
            [point(0, 1.0, 1.0), point(1, 0.9, 1.2), point(2, 0.95, 1.3), point(3, 1.1, 1.0), point(4, 2.0, 0.5)];
        let places: Vec<usize> = front(&points).iter().map(|point| point.place).collect();
        assert_eq!(places, [1, 0, 4]);
    }
}
