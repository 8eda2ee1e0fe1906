//! Memory over time: a curve an allocator, in the terminal and as a drawing. Each is that of the run that is the median
//! by wall time.
// SPDX-License-Identifier: MIT

use crate::report::lines::{lines, Line, Lines};
use crate::report::{say, svg};
use crate::results::*;
use hakmem_base::table::{bytes, Style};
use maud::Markup;

type Samples = [(f64, u64)];

/// What the chart in the terminal takes beside its labels.
const ROWS: usize = 10;
const COLUMNS_MAX: usize = 84;
const LABEL: usize = 9;

/// The strokes of a curve: along, falling (its top and its bottom), rising (likewise), upright. The first curves differ
/// without colours.
const STROKES: [[char; 6]; 3] =
    [['━', '┓', '┗', '┏', '┛', '┃'], ['─', '╮', '╰', '╭', '╯', '│'], ['═', '╗', '╚', '╔', '╝', '║']];
const COLOURS: [u8; 3] = [32, 33, 36];

fn median_run(result: &WorkloadResult) -> Option<&Run> {
    let mut runs: Vec<&Run> = result.runs.iter().filter(|run| run.rss_over_time.len() > 1).collect();
    runs.sort_by(|one, other| one.wall_s.total_cmp(&other.wall_s));
    runs.get(runs.len() / 2).copied()
}

// ---- in the terminal ----

/// The mean of each of `columns` parts of `end` seconds, for as long as the run took.
pub fn means(samples: &Samples, wall_s: f64, columns: usize, end: f64) -> Vec<f64> {
    let (mut samples, mut last) = (samples.iter().peekable(), 0);
    let mean = |place: usize| {
        let until = end * (place + 1) as f64 / columns as f64;
        let (mut sum, mut count) = (0, 0);
        while let Some((_, bytes)) = samples.next_if(|(second, _)| *second <= until) {
            (last, sum, count) = (*bytes, sum + bytes, count + 1);
        }
        if count == 0 {
            last as f64
        } else {
            sum as f64 / count as f64
        }
    };
    let covered = (wall_s / end * columns as f64).ceil() as usize;
    (0..columns.min(covered)).map(mean).collect()
}

/// A grid of strokes, each with the number of its curve. Rows are counted from below.
struct Grid {
    cells: Vec<Vec<Option<(char, usize)>>>,
}

impl Grid {
    fn new(columns: usize) -> Grid {
        Grid { cells: vec![vec![None; columns]; ROWS] }
    }

    fn draw(&mut self, number: usize, levels: &[usize]) {
        let [along, fall_top, fall_bottom, rise_top, rise_bottom, upright] = STROKES[number];
        for (column, &level) in levels.iter().enumerate() {
            let before = if column == 0 { level } else { levels[column - 1] };
            let (low, high) = (level.min(before), level.max(before));
            for row in &mut self.cells[low..=high] {
                row[column] = Some((upright, number));
            }
            let (top, bottom) = if before > level { (fall_top, fall_bottom) } else { (rise_top, rise_bottom) };
            self.cells[high][column] = Some((top, number));
            self.cells[low][column] = Some((if low == high { along } else { bottom }, number));
        }
    }

    fn row(&self, row: usize, style: Style) -> String {
        let paint = |cell: &Option<(char, usize)>| match cell {
            None => " ".to_string(),
            Some((stroke, number)) => painted(&stroke.to_string(), *number, style),
        };
        self.cells[row].iter().map(paint).collect()
    }
}

fn painted(text: &str, number: usize, style: Style) -> String {
    match style.color {
        true => format!("\x1b[{}m{text}\x1b[0m", COLOURS[number]),
        false => text.to_string(),
    }
}

/// Draws the first allocators' curves; HAKMEM's has the first strokes and is drawn last. "" without samples.
pub fn in_terminal(workload: &Workload, style: Style) -> String {
    let results = workload.results.iter().filter_map(|result| Some((result.allocator.as_str(), median_run(result)?)));
    let mut curves: Vec<(&str, &Run)> = results.collect();
    curves.sort_by_key(|(name, _)| *name != "hakmem");
    curves.truncate(STROKES.len());
    let end = curves.iter().map(|(_, run)| run.wall_s).fold(0.0, f64::max);
    let most = curves.iter().flat_map(|(_, run)| &run.rss_over_time).map(|(_, bytes)| *bytes).max();
    let Some(most) = most.filter(|most| *most > 0 && end > 0.0) else { return String::new() };
    let columns = COLUMNS_MAX.min(style.width.saturating_sub(LABEL + 3)).max(20);
    let mut grid = Grid::new(columns);
    for (number, (_, run)) in curves.iter().enumerate().rev() {
        let level = |bytes: f64| ((bytes / most as f64 * ROWS as f64) as usize).min(ROWS - 1);
        let levels: Vec<usize> = means(&run.rss_over_time, run.wall_s, columns, end).into_iter().map(level).collect();
        grid.draw(number, &levels);
    }
    let keys = curves.iter().enumerate().map(|(number, (name, _))| {
        format!("{} {name}", painted(&STROKES[number][0].to_string().repeat(3), number, style))
    });
    let mut text =
        format!("Resident memory over time, the median run of each:  {}\n", keys.collect::<Vec<_>>().join("  "));
    for row in (0..ROWS).rev() {
        let label = match row {
            0 => "0".to_string(),
            row if row == ROWS - 1 => bytes(most as f64),
            row if row == ROWS / 2 => bytes(most as f64 / 2.0),
            _ => String::new(),
        };
        text += format!("{label:>LABEL$} ┤{}", grid.row(row, style)).trim_end();
        text.push('\n');
    }
    let (line, last) = ("─".repeat(columns), format!("{end:.1} s"));
    text + &format!("{0:LABEL$} └{line}\n{0:LABEL$}  0 s{last:>1$}\n", "", columns - 3)
}

// ---- drawn ----

/// As a part of a page or a file. `names`: the allocators by their places.
pub fn drawing(workload: &Workload, names: &[&str], id: &str) -> Option<Markup> {
    let line = |(place, name): (usize, &&str)| {
        let result = workload.results.iter().find(|result| result.allocator == *name)?;
        let points = median_run(result)?.rss_over_time.iter().map(|(second, bytes)| (*second, *bytes as f64)).collect();
        Some(Line { place, name: name.to_string(), points })
    };
    let all: Vec<Line> = names.iter().enumerate().filter_map(line).collect();
    let most = all.iter().flat_map(|line| line.points.iter()).map(|point| point.1).fold(0.0, f64::max);
    (!all.is_empty()).then(|| {
        lines(&Lines {
            id,
            title: &format!("{}: resident memory over time", workload.name),
            description: "One line an allocator, from samples of its median run. Peak and average are in the table."
                .into(),
            x_title: "time →",
            y_title: "resident memory",
            y_unit: say::byte_unit(most),
            x_text: say::seconds,
            y_text: say::bytes,
            dots: false,
            lines: all,
        })
    })
}

/// A file of its own.
pub fn file(workload: &Workload) -> Option<String> {
    let names: Vec<&str> = workload.results.iter().map(|result| result.allocator.as_str()).collect();
    Some(svg::alone(&drawing(workload, &names, "memory")?, &names, 760.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_the_mean_of_its_part_and_a_run_ends() {
        let samples = [(0.0, 0), (0.1, 800), (2.0, 100), (3.0, 300), (3.5, 500)];
        assert_eq!(means(&samples, 4.0, 4, 4.0), [400.0, 100.0, 300.0, 500.0]);
        assert_eq!(means(&samples[..3], 2.0, 4, 4.0), [400.0, 100.0]);
    }

    #[test]
    fn curves_rise_and_fall_without_gaps() {
        let mut grid = Grid::new(5);
        grid.draw(1, &[0, 2, 2, 1, 1]);
        let style = Style { color: false, width: 80 };
        let rows: Vec<String> = (0..4).rev().map(|row| grid.row(row, style)).collect();
        assert_eq!(rows, ["     ", " ╭─╮ ", " │ ╰─", "─╯   "]);
        grid.draw(0, &[2]);
        assert_eq!(grid.row(2, style), "━╭─╮ ", "the later one covers");
    }
}
