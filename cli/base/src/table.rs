//! Tables and numbers on a terminal. Where the terminal is narrow, the columns that matter least are left out.
// SPDX-License-Identifier: MIT

use crate::shown;
use comfy_table::{presets, Attribute, CellAlignment, ContentArrangement, Table};
use std::io::IsTerminal;

pub use comfy_table::{Cell, Color};

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub color: bool,
    /// Columns of text.
    pub width: usize,
}

impl Style {
    pub fn of_stdout() -> Style {
        Style::of(std::io::stdout().is_terminal())
    }

    pub fn of_stderr() -> Style {
        Style::of(std::io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Style {
        let width = if terminal { terminal_size().map_or(80, |size| size.0) } else { usize::MAX };
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style { color: terminal && !plain, width }
    }
}

/// Columns and lines, if stdout is a terminal that knows.
fn terminal_size() -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let known = unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &mut size) } == 0 && size.ws_col > 0 && size.ws_row > 0;
    known.then_some((size.ws_col.into(), size.ws_row.into()))
}

pub fn terminal_height() -> Option<usize> {
    std::io::stdout().is_terminal().then(|| terminal_size().map_or(24, |size| size.1))
}

/// A cell with text that may be another program's.
pub fn cell_of(text: &str) -> Cell {
    Cell::new(shown::line(text))
}

// ---- numbers ----

pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

pub fn bytes(bytes: f64) -> String {
    match bytes / f64::from(1 << 20) {
        mib if mib >= 1024.0 => format!("{:.2} GiB", mib / 1024.0),
        mib if mib >= 100.0 => format!("{mib:.0} MiB"),
        mib => format!("{mib:.1} MiB"),
    }
}

/// Memory of a running program, down to single bytes.
pub fn size(count: u64) -> String {
    match count {
        0 => "0".to_string(),
        1..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{} KiB", (count + 512) >> 10),
        _ => bytes(count as f64),
    }
}

/// "40,000"
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap_or("")).collect();
    groups.join(",")
}

pub fn amount(number: f64) -> String {
    for (limit, letter) in [(1e9, " G"), (1e6, " M"), (1e3, " k")] {
        if number >= limit {
            let digits = if number < limit * 10.0 { 2 } else { 1 };
            return format!("{:.digits$}{letter}", number / limit);
        }
    }
    if number.fract() == 0.0 {
        format!("{number:.0}")
    } else {
        format!("{number:.3}")
    }
}

// ---- tables ----

/// A column: its title, its cells, and how soon it is left out (0: never).
pub struct Column {
    title: String,
    leave_out: u8,
    cells: Vec<Cell>,
    is_of_words: bool,
}

impl Column {
    pub fn new(title: impl Into<String>, leave_out: u8, cells: Vec<Cell>) -> Column {
        Column { title: title.into(), leave_out, cells, is_of_words: false }
    }

    /// Words stand on the left.
    pub fn words(title: impl Into<String>, leave_out: u8, cells: Vec<Cell>) -> Column {
        Column { is_of_words: true, ..Column::new(title, leave_out, cells) }
    }
}

fn empty(style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if style.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

pub fn table(mut columns: Vec<Column>, style: Style) -> String {
    loop {
        let mut table = empty(style);
        let header = columns.iter().map(|column| cell_of(&column.title).add_attribute(Attribute::Bold));
        table.set_header(header.collect::<Vec<_>>());
        for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
            table.add_row(columns.iter().map(|column| column.cells[row].clone()).collect::<Vec<_>>());
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            let is_left = place == 0 || columns[place].is_of_words;
            column.set_cell_alignment(if is_left { CellAlignment::Left } else { CellAlignment::Right });
        }
        let width = table.column_max_content_widths().iter().map(|&width| usize::from(width) + 2).sum::<usize>();
        let last = columns.iter().map(|column| column.leave_out).max().unwrap_or(0);
        if width <= style.width || last == 0 {
            return table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n");
        }
        columns.retain(|column| column.leave_out != last);
    }
}

/// Rows under titles: words on the left, figures on the right. A column is of words if its last cell does not begin
/// with a figure.
pub fn plain<const N: usize>(titles: [&str; N], rows: &[[String; N]], style: Style) -> String {
    let mut table = empty(style);
    table.set_header(titles.iter().map(|title| cell_of(title).add_attribute(Attribute::Bold)));
    for row in rows {
        table.add_row(row.iter().map(|text| cell_of(text)));
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        let is_figure = |cell: &String| cell.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit());
        let figures = place > 0 && rows.last().is_some_and(|row| is_figure(&row[place]));
        column.set_padding((0, 2));
        column.set_cell_alignment(if figures { CellAlignment::Right } else { CellAlignment::Left });
    }
    table.lines().map(|line| line.trim_end().to_string() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [seconds(123.4), seconds(1.234), seconds(0.0123), seconds(0.00001)],
            ["123 s", "1.23 s", "12.3 ms", "10 µs"]
        );
        assert_eq!([bytes(1.5 * 1048576.0), bytes(3e9), bytes(2e8)], ["1.5 MiB", "2.79 GiB", "191 MiB"]);
        assert_eq!([amount(1234567.0), amount(12345.0), amount(7.0), amount(0.5)], ["1.23 M", "12.3 k", "7", "0.500"]);
    }

    #[test]
    fn narrow_terminals_lose_columns() {
        let columns = || {
            vec![
                Column::new("allocator", 0, vec![Cell::new("system")]),
                Column::new("time", 0, vec![Cell::new("1.00 s")]),
                Column::new("faults", 5, vec![Cell::new("123456")]),
            ]
        };
        let wide = table(columns(), Style { color: false, width: 100 });
        let narrow = table(columns(), Style { color: false, width: 22 });
        assert!(wide.contains("faults") && !narrow.contains("faults") && narrow.contains("1.00 s"), "{narrow}");
        assert!(!wide.contains('\x1b') && table(columns(), Style { color: true, width: 100 }).contains('\x1b'));
    }
}
