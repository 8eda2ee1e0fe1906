//! What `top` shows: the samples so far, the last snapshot, and how they are laid out in the room there is.
//!
//! From the top: the process, terms over time with their sizes, rates, classes beside threads' heaps, keys. What
//! matters less is left out first where the terminal is small.
// SPDX-License-Identifier: MIT

use super::stack::Stack;
use crate::heap::model::*;
use crate::picture::{self, Kind, Part, Rate};
use hakmem_base::say;
use hakmem_base::shown;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};
use ratatui::Frame;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Samples that are kept: no terminal is wider.
const SAMPLES_MAX: usize = 1000;

/// A column of the classes: its title, its width, and how soon it is left out where there is no room (0: never). The
/// widths are those of what say::bytes and say::number write, and of a title that the classes are sorted by: no figure
/// loses digits. The first column has room for all names, which are longer in secure mode.
type Column = (&'static str, u16, u8);
const COLUMNS: [Column; 9] = [
    ("class", 6, 0),
    ("slabs", 6, 4),
    ("blocks", 6, 3),
    ("live", 8, 0),
    ("free", 8, 1),
    ("cached", 8, 2),
    ("resident", 9, 2),
    ("misses", 6, 5),
    ("hits", 7, 6),
];
/// Columns of the terminal that the threads' heaps need.
const HEAPS_WIDTH: u16 = 37;

pub enum Action {
    None,
    Quit,
    Purge,
    Profile,
}

/// The column that classes are sorted by, largest first.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sort {
    Live,
    Free,
    Cached,
    Resident,
    Class,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Live, Sort::Free, Sort::Cached, Sort::Resident, Sort::Class];

    fn next(self) -> Sort {
        Sort::ALL[(self as usize + 1) % Sort::ALL.len()]
    }

    fn title(self) -> &'static str {
        ["live", "free", "cached", "resident", "class"][self as usize]
    }

    fn of(self, class: &Class) -> i64 {
        match self {
            Sort::Live => class.live,
            Sort::Free => class.free,
            Sort::Cached => class.cached,
            Sort::Resident => class.resident as i64,
            // The smallest first.
            Sort::Class => -(((class.tier as i64) << 32) + class.block_bytes as i64),
        }
    }
}

pub struct Screen {
    pub interval: Duration,
    last: Option<Snapshot>,
    /// When it came.
    at: Instant,
    parts: Vec<Vec<u64>>,
    counts: Vec<Rate>,
    /// A second, as of the last two snapshots.
    speeds: Option<Vec<f64>>,
    /// Allocations and misses of each class between the last two snapshots.
    recent: HashMap<(Tier, u64), (u64, u64)>,
    sort: Sort,
    /// Lines of both tables that lie above their room.
    scrolled: usize,
    /// Lines of a table that had room when it was last drawn.
    room: Cell<usize>,
    paused: bool,
    ended: bool,
    help: bool,
    said: String,
    /// Nobody can press a key.
    printed: bool,
}

impl Screen {
    pub fn new(interval: Duration) -> Screen {
        Screen {
            interval,
            last: None,
            at: Instant::now(),
            parts: Vec::new(),
            counts: Vec::new(),
            speeds: None,
            recent: HashMap::new(),
            sort: Sort::Live,
            scrolled: 0,
            room: Cell::new(0),
            paused: false,
            ended: false,
            help: false,
            said: String::new(),
            printed: false,
        }
    }

    /// From now on it is drawn for print.
    pub fn print(&mut self) {
        self.printed = true;
    }

    pub fn add(&mut self, snapshot: Snapshot) {
        let counts = picture::rates(&snapshot);
        let before = self.last.as_ref().map(|last| last.process.age_ms);
        if let Some(ms) = before.and_then(|before| snapshot.process.age_ms.checked_sub(before)).filter(|ms| *ms > 0) {
            let speed = |(now, then): (&Rate, &Rate)| now.count.saturating_sub(then.count) as f64 * 1000.0 / ms as f64;
            self.speeds = Some(counts.iter().zip(&self.counts).map(speed).collect());
        }
        self.recent = self.last.as_ref().map_or(HashMap::new(), |last| recent(&last.classes, &snapshot.classes));
        self.counts = counts;
        self.parts.push(picture::parts(&snapshot).iter().map(|part| part.bytes).collect());
        if self.parts.len() > SAMPLES_MAX {
            self.parts.remove(0);
        }
        self.last = Some(snapshot);
        self.at = Instant::now();
    }

    pub fn say(&mut self, text: String) {
        self.said = shown::line(&text).into_owned();
    }

    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub fn is_following(&self) -> bool {
        !self.paused && !self.ended
    }

    pub fn press(&mut self, key: KeyEvent) -> Action {
        if std::mem::take(&mut self.help) {
            return Action::None;
        }
        self.said.clear();
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Action::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('P' | 't') if self.ended => {}
            KeyCode::Char('P') => return Action::Purge,
            KeyCode::Char('t') => return Action::Profile,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('h') | KeyCode::Char('?') => self.help = true,
            KeyCode::Up => self.scroll(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scroll(-(self.room.get() as isize)),
            KeyCode::PageDown => self.scroll(self.room.get() as isize),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            _ => {}
        }
        Action::None
    }

    /// To the end of the longer table at most.
    fn scroll(&mut self, lines: isize) {
        let longest = self.last.as_ref().map_or(0, |last| last.classes.len().max(last.heaps.len()));
        let end = longest.saturating_sub(self.room.get());
        self.scrolled = self.scrolled.saturating_add_signed(lines).min(end);
    }

    // ---- drawing ----

    pub fn draw(&self, frame: &mut Frame) {
        let area = frame.area();
        let Some(snapshot) = &self.last else { return };
        if area.width < 40 || area.height < 10 {
            return self.draw_tiny(frame, snapshot);
        }
        let mut rates = self.rates(area.width);
        let parts = picture::parts(snapshot);
        let rest = area.height - 3;
        // The chart has as many lines as there are terms, the classes at least four.
        let chart = (parts.len() as u16 + 1).min(rest);
        let ace = snapshot.ace.as_ref().map_or(String::new(), |ace| ace.line());
        rates.extend(ace.split_terminator("; ").map(|part| shown::line(part).into_owned().into()));
        let shown_rates = if rest >= chart + rates.len() as u16 + 7 { rates.len() as u16 + 2 } else { 0 };
        let [head, memory, slow, tables, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(if rest > chart + 12 + shown_rates { chart + 4 } else { chart }),
            Constraint::Length(shown_rates),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        frame.render_widget(Text::from(vec![self.title(snapshot), self.summary(snapshot)]), head);
        self.draw_memory(frame, memory, &parts);
        if shown_rates > 0 {
            frame.render_widget(Paragraph::new(rates).block(titled("slow paths a second")), slow);
        }
        self.draw_tables(frame, tables, snapshot);
        frame.render_widget(self.foot(), foot);
        if self.help {
            draw_help(frame, area, &parts);
        }
    }

    fn draw_tiny(&self, frame: &mut Frame, snapshot: &Snapshot) {
        let state = if self.ended { ", has ended" } else { "" };
        let lines = [
            format!("{} ({}){state}", picture::name(&snapshot.process), snapshot.process.pid),
            format!("RSS {}", say::bytes(snapshot.process.rss as f64)),
            format!("heap {}", say::bytes(snapshot.heap.total as f64)),
            format!("live {}", say::bytes(snapshot.heap.live as f64)),
            "q quits".to_string(),
        ];
        frame.render_widget(Text::from_iter(lines.map(Line::from)), frame.area());
    }

    fn title(&self, snapshot: &Snapshot) -> Line<'static> {
        let process = &snapshot.process;
        let state = match (self.ended, self.paused) {
            (true, _) => " has ended ".black().on_red(),
            (_, true) => " paused ".black().on_yellow(),
            _ => format!("every {}", say::seconds(self.interval.as_secs_f64())).dim(),
        };
        let name = format!("{} ({})", picture::name(process), process.pid);
        Line::from(vec![name.bold(), format!("  HAKMEM {}  ", process.version).into(), state])
    }

    fn summary(&self, snapshot: &Snapshot) -> Line<'static> {
        let process = &snapshot.process;
        let slots = picture::slots(snapshot);
        let (rss, peak) = (say::bytes(process.rss as f64), say::bytes(process.rss_peak as f64));
        let threads = say::count(process.threads as usize, "thread");
        let superslabs = picture::superslabs(snapshot);
        Line::from(format!("RSS {rss}, peak {peak}, {threads}, {superslabs}; {slots}"))
    }

    fn draw_memory(&self, frame: &mut Frame, area: Rect, parts: &[Part]) {
        let block = titled("resident");
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let colours: Vec<Color> = parts.iter().map(|part| Color::Indexed(part.colour.in_terminal())).collect();
        let [chart, _, legend] =
            Layout::horizontal([Constraint::Min(0), Constraint::Length(1), Constraint::Length(37)]).areas(inside);
        frame.render_widget(Stack { samples: &self.parts, colours: &colours }, chart);
        let sum: u64 = parts.iter().map(|part| part.bytes).sum::<u64>().max(1);
        let lines = parts.iter().zip(&colours).map(|(part, colour)| {
            let share = 100.0 * part.bytes as f64 / sum as f64;
            let text = format!(" {:<18} {:>9} {share:>3.0} %", part.name, say::bytes(part.bytes as f64));
            Line::from(vec![Span::styled("█", Style::new().fg(*colour)), text.into()])
        });
        // The first is the lowest of the chart.
        frame.render_widget(Text::from_iter(lines.rev()), legend);
    }

    fn rates(&self, width: u16) -> Vec<Line<'static>> {
        let wide = 26;
        let columns = usize::from(width / wide).max(1);
        let text = |(number, rate): (usize, &Rate)| {
            let speed = self.speeds.as_ref().map_or("–".into(), |speeds| say::number(speeds[number].round()));
            Span::raw(format!("{:<15} {speed:>7}   ", rate.name))
        };
        let all: Vec<Span> = self.counts.iter().enumerate().map(text).collect();
        // Down the columns.
        let lines = all.len().div_ceil(columns);
        (0..lines).map(|line| all.iter().skip(line).step_by(lines).cloned().collect()).collect()
    }

    fn draw_tables(&self, frame: &mut Frame, area: Rect, snapshot: &Snapshot) {
        let beside = area.width > width_of(&COLUMNS) + HEAPS_WIDTH;
        let heaps_width = if beside { HEAPS_WIDTH } else { 0 };
        let between = u16::from(beside);
        let widths = [Constraint::Min(0), Constraint::Length(heaps_width)];
        let [classes, heaps] = Layout::horizontal(widths).spacing(between).areas(area);
        // Beside the title and the header.
        self.room.set(usize::from(area.height.saturating_sub(2)));
        self.draw_classes(frame, classes, snapshot);
        if beside {
            let lines = (snapshot.arenas.len() as u16 + 2).min(heaps.height / 2);
            let height = if snapshot.arenas.is_empty() || lines < 3 { 0 } else { lines };
            let [arenas, heaps] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(heaps);
            if height > 0 {
                draw_arenas(frame, arenas, &snapshot.arenas);
            }
            self.draw_heaps(frame, heaps, snapshot);
        }
    }

    /// The lines of a table that are shown, out of `lines`, and the table's title.
    fn shown(&self, what: &str, lines: usize) -> (Range<usize>, String) {
        let room = self.room.get();
        let from = self.scrolled.min(lines.saturating_sub(room));
        let to = lines.min(from + room);
        let all = to - from == lines;
        (from..to, if all { what.to_string() } else { format!("{what} {}–{to} of {lines}", from + 1) })
    }

    fn draw_classes(&self, frame: &mut Frame, area: Rect, snapshot: &Snapshot) {
        let mut classes: Vec<&Class> = snapshot.classes.iter().collect();
        classes.sort_by_key(|class| std::cmp::Reverse(self.sort.of(class)));
        let names = classes.iter().map(|class| Kind::of_class(class).name().len() as u16);
        let columns = columns(area.width, names.max().unwrap_or(0), self.sort.title());
        let row = |class: &&Class| {
            let sizes =
                [class.live, class.free, class.cached, class.resident as i64].map(|size| say::bytes(size as f64));
            let mut cells = vec![Kind::of_class(class).name(), say::number(class.slabs as f64)];
            cells.push(say::number(class.live_blocks as f64));
            cells.extend(sizes);
            cells.extend(self.misses(class));
            let is_shown = |title| columns.iter().any(|(shown, ..)| *shown == title);
            let shown = cells.into_iter().zip(COLUMNS).filter(|(_, (title, ..))| is_shown(*title));
            Row::new(shown.map(|(cell, _)| Line::from(cell).right_aligned()))
        };
        let title = |&(title, ..): &Column| match title == self.sort.title() {
            true => Line::from(format!("▼{title}")).right_aligned().bold(),
            false => Line::from(title.to_string()).right_aligned().dim(),
        };
        let widths = columns.iter().map(|&(_, width, _)| Constraint::Length(width));
        let titles = Row::new(columns.iter().map(title));
        let (shown, name) = self.shown("classes", classes.len());
        let table = Table::new(classes[shown].iter().map(row), widths).header(titles);
        frame.render_widget(table.block(titled(&name)), area);
    }

    /// Since the last snapshot: misses, and the share of hits.
    fn misses(&self, class: &Class) -> [String; 2] {
        let Some(&(allocations, misses)) = self.recent.get(&class.key()) else { return ["–".into(), "–".into()] };
        let hits = allocations.saturating_sub(misses) as f64 / allocations.max(1) as f64;
        let hits = if allocations > 0 { format!("{:.1} %", 100.0 * hits) } else { "–".into() };
        [say::number(misses as f64), hits]
    }

    fn draw_heaps(&self, frame: &mut Frame, area: Rect, snapshot: &Snapshot) {
        let mut heaps: Vec<&ThreadHeap> = snapshot.heaps.iter().collect();
        heaps.sort_by_key(|heap| std::cmp::Reverse((heap.in_use, heap.cached)));
        let right = |text: String| Line::from(text).right_aligned();
        let row = |heap: &&ThreadHeap| {
            let state = if heap.in_use { "" } else { "free" };
            let owned = say::number(f64::from(heap.owned_slabs));
            Row::new([
                right(heap.number.to_string()),
                right(say::bytes(heap.cached as f64)),
                right(owned),
                state.into(),
            ])
        };
        let widths = [6, 10, 7, 5].map(Constraint::Length);
        let titles = ["heap", "cached", "slabs"].map(|title| right(title.to_string()).dim());
        let (shown, name) = self.shown("threads' heaps", heaps.len());
        let table = Table::new(heaps[shown].iter().map(row), widths).header(Row::new(titles)).column_spacing(1);
        frame.render_widget(table.block(titled(&name)), area);
    }

    fn foot(&self) -> Line<'static> {
        if self.printed {
            return Line::default();
        }
        if self.ended {
            return Line::from("The process has ended; this was its heap. q quits".to_string()).bold();
        }
        if !self.said.is_empty() {
            return Line::from(self.said.clone()).bold();
        }
        Line::from("q quit  p pause  s sort  ↑↓ scroll  P purge  t profile  h help").dim()
    }
}

fn width_of(columns: &[Column]) -> u16 {
    columns.iter().map(|&(_, width, _)| width + 1).sum::<u16>().saturating_sub(1)
}

/// The columns that fit, and always the one that the classes are sorted by. The first has room for the longest name.
fn columns(width: u16, letters: u16, sorted_by: &str) -> Vec<Column> {
    let mut columns = COLUMNS.to_vec();
    columns[0].1 = columns[0].1.max(letters);
    while width_of(&columns) > width {
        let can_go = columns.iter().filter(|(title, ..)| *title != sorted_by).map(|&(.., soon)| soon);
        let Some(soonest) = can_go.max().filter(|&soon| soon > 0) else { break };
        columns.retain(|&(title, _, soon)| soon != soonest || title == sorted_by);
    }
    columns
}

fn recent(before: &[Class], now: &[Class]) -> HashMap<(Tier, u64), (u64, u64)> {
    let before: HashMap<_, _> = before.iter().map(|class| (class.key(), class)).collect();
    let since = |class: &Class| {
        let before = before.get(&class.key())?;
        let grown = |now: u64, then: u64| now.saturating_sub(then);
        Some((class.key(), (grown(class.allocations, before.allocations), grown(class.misses, before.misses))))
    };
    now.iter().filter_map(since).collect()
}

fn titled(title: &str) -> Block<'_> {
    let title = Line::from(format!("{title} ")).bold();
    Block::new().borders(ratatui::widgets::Borders::TOP).border_style(Style::new().dim()).title(title)
}

/// The largest.
fn draw_arenas(frame: &mut Frame, area: Rect, arenas: &[Arena]) {
    let right = |text: String| Line::from(text).right_aligned();
    let row = |arena: &Arena| {
        let [live, used] = [arena.live, arena.used].map(|bytes| right(say::bytes(bytes as f64)));
        Row::new([picture::arena_name(arena).into(), live, used])
    };
    let room = usize::from(area.height.saturating_sub(2));
    let titles = [Line::from("arena"), right("live".into()), right("in use".into())].map(Line::dim);
    let widths = [Constraint::Min(0), Constraint::Length(9), Constraint::Length(9)];
    let table = Table::new(arenas.iter().take(room).map(row), widths).header(Row::new(titles)).column_spacing(1);
    let name =
        if arenas.len() > room { format!("arenas 1–{room} of {}", arenas.len()) } else { "arenas".to_string() };
    frame.render_widget(table.block(titled(&name)), area);
}

fn draw_help(frame: &mut Frame, area: Rect, parts: &[Part]) {
    let text: Vec<String> = [
        "q, Esc   quit",
        "p        pause, go on",
        "s        sort classes by live, free, cached, resident, class",
        "↑ ↓ …    scroll the tables, also by Page Up, Page Down, Home, End",
        "P        purge: ask the process to give back what it can",
        "t        begin to sample allocations, or end it (hakmem flame)",
        "h        this help; any key closes it",
        "",
    ]
    .map(String::from)
    .into_iter()
    .chain(parts.iter().map(|part| format!("{}: {}", part.name, part.help)))
    .collect();
    let (width, height) = ((72).min(area.width), (text.len() as u16 + 2).min(area.height));
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(Text::from_iter(text)).block(Block::bordered().title(" hakmem top ")), place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::snapshot;
    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    fn screen() -> Screen {
        let mut screen = Screen::new(Duration::from_secs(1));
        // The second is 10 s older, with twice the counts.
        screen.add(snapshot(10));
        let mut later = snapshot(20);
        later
            .classes
            .iter_mut()
            .for_each(|class| (class.allocations, class.misses) = (2 * class.allocations, 2 * class.misses));
        screen.add(later);
        screen
    }

    fn lines(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let frame = terminal.draw(|frame| screen.draw(frame)).unwrap();
        let rows = frame.buffer.content.chunks(width.into());
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect()
    }

    fn press(screen: &mut Screen, letter: char) -> Action {
        screen.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE))
    }

    /// The line that has this word, as words.
    fn words(lines: &[String], word: &str) -> Vec<String> {
        let line = lines.iter().find(|line| line.split_whitespace().any(|one| one == word));
        line.unwrap_or_else(|| panic!("no {word} in {lines:#?}")).split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn numbers_are_those_of_the_snapshot() {
        let lines = lines(&screen(), 120, 40);
        let text = lines.join("\n");
        for wanted in [
            "a program (4321)  HAKMEM 1.2.3",
            "RSS 46.8 MiB, peak 52.8 MiB, 3 threads, 20 SuperSlabs in use; \
             460 slots ACTIVE, 100 EMPTY, 20 LAZY, 60 UNUSED",
            " live                  30 MiB  64 %",
            " EMPTY slots         6.25 MiB  13 %",
            // Ten SuperSlabs' worth in 10 s: 3,000 of each.
            "tiny refills       3000",
            "page faults         777",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert_eq!(words(&lines, "96")[11..14], ["5000", "99.5", "%"], "misses and hits of 10 s");
        assert_eq!(words(&lines, "24576")[..7], ["24576", "1", "60", "1.41", "MiB", "480", "KiB"]);
        assert!(text.contains('█'), "no chart");
    }

    #[test]
    fn keys_sort_pause_and_quit() {
        let mut screen = screen();
        let order = |screen: &Screen| {
            let lines = lines(screen, 100, 40);
            let from = lines.iter().position(|line| line.contains("▼")).unwrap();
            lines[from + 1..from + 4].iter().map(|line| line.split_whitespace().next().unwrap().to_string()).collect()
        };
        let by_live: Vec<String> = order(&screen);
        assert_eq!(by_live, ["large", "24576", "96"]);
        press(&mut screen, 's');
        let by_free: Vec<String> = order(&screen);
        assert_eq!(by_free, ["24576", "96", "large"]);
        press(&mut screen, 'p');
        assert!(!screen.is_following() && lines(&screen, 80, 24)[0].contains("paused"));
        press(&mut screen, 'p');
        assert!(screen.is_following());
        press(&mut screen, 'h');
        assert!(lines(&screen, 80, 24).join("\n").contains("any key closes it"));
        assert!(matches!(press(&mut screen, 'q'), Action::None), "the first key closes the help");
        assert!(matches!(press(&mut screen, 'P'), Action::Purge));
        assert!(matches!(press(&mut screen, 't'), Action::Profile));
        assert!(matches!(press(&mut screen, 'q'), Action::Quit));
    }

    /// Else "6.2 KiB" stands where 56.2 KiB is.
    #[test]
    fn no_width_cuts_a_figure() {
        let mut screen = screen();
        for class in &mut screen.last.as_mut().unwrap().classes {
            (class.slabs, class.live_blocks, class.resident) = (98_765, 98_765, 1023 << 10);
            (class.live, class.free, class.cached) = (1023 << 10, 1021 << 10, 1022 << 10);
        }
        let figures = ["96", "98.8 k", "1023 KiB", "1021 KiB", "1022 KiB", "5000", "99.5 %"];
        for sort in 0..Sort::ALL.len() as u16 {
            for width in (40 + sort % 3..160).step_by(3) {
                let lines = lines(&screen, width, 40);
                let from = lines.iter().position(|line| line.contains('▼')).unwrap();
                let row = lines[from + 1..].iter().find(|line| line.contains(" 96 ")).unwrap();
                let classes: String = row.chars().take(72).collect();
                let cells = figures.iter().fold(classes, |row, figure| row.replace(figure, ""));
                assert_eq!(cells.trim(), "", "{width} columns: {row}");
                assert!(row.contains("1023 KiB"), "{width} columns: {row}");
                assert_eq!(lines[from].contains("hits"), width >= 72, "{}", lines[from]);
                let has_heaps = lines.iter().any(|line| line.contains("threads' heaps"));
                assert_eq!(has_heaps, width >= 110, "{width} columns");
            }
            press(&mut screen, 's');
        }
        let class = &mut screen.last.as_mut().unwrap().classes[0];
        (class.tier, class.block_bytes) = (Tier::Secure, 65536);
        assert!((40..160).all(|width| lines(&screen, width, 40).join("\n").contains("secure 65536 ")));
    }

    #[test]
    fn what_is_printed_names_no_keys() {
        let mut screen = screen();
        screen.print();
        assert!(!lines(&screen, 110, 40).join("\n").contains("q quit"));
    }

    /// Else more than the heap seems to be live: what was never touched is not resident.
    #[test]
    fn the_smallest_screen_adds_up() {
        let mut screen = screen();
        screen.last.as_mut().unwrap().heap.untouched = 1 << 40;
        assert!(lines(&screen, 39, 8).contains(&format!("{:<39}", "live 30 MiB")));
    }

    #[test]
    fn tables_scroll_to_their_ends() {
        let mut screen = screen();
        let classes = &mut screen.last.as_mut().unwrap().classes;
        for live in 1..40 {
            classes.push(Class { live, block_bytes: 16 * live as u64, ..classes[0].clone() });
        }
        let all = classes.len();
        let shown = |screen: &Screen| {
            let lines = lines(screen, 80, 24);
            let from = lines.iter().position(|line| line.starts_with("classes")).unwrap();
            let title = lines[from].trim_end_matches('─').trim().to_string();
            let names: Vec<String> = lines[from + 2..lines.len() - 1]
                .iter()
                .map(|line| line.split_whitespace().next().unwrap_or("").to_string())
                .collect();
            (title, names)
        };
        let (title, first) = shown(&screen);
        let room = first.len();
        assert!(room < all, "{room} lines for {all} classes: nothing to scroll");
        assert_eq!(title, format!("classes 1–{room} of {all}"));
        let mut press = |code, times| {
            for _ in 0..times {
                screen.press(KeyEvent::new(code, KeyModifiers::NONE));
            }
            shown(&screen)
        };
        let (title, down) = press(KeyCode::Down, 1);
        assert_eq!((title, &down[..room - 1]), (format!("classes 2–{} of {all}", room + 1), &first[1..]));
        // Beyond the end it goes no further, and comes back at once.
        assert_eq!(press(KeyCode::PageDown, all).0, format!("classes {}–{all} of {all}", all - room + 1));
        assert_eq!(press(KeyCode::Up, 1).0, format!("classes {}–{} of {all}", all - room, all - 1));
        assert_eq!(press(KeyCode::Home, 1), (format!("classes 1–{room} of {all}"), first));
        assert_eq!(press(KeyCode::End, 1).0, format!("classes {}–{all} of {all}", all - room + 1));
    }

    #[test]
    fn any_size_has_room_for_the_rss() {
        for (width, height) in [(1, 1), (10, 3), (39, 40), (40, 10), (60, 15), (80, 24), (200, 60), (300, 9)] {
            let text = lines(&screen(), width, height).join("\n");
            assert!(width < 10 || text.contains("RSS 46.8"), "{width} x {height}:\n{text}");
            let tiny = width < 40 || (4..10).contains(&height);
            assert!(height < 5 || text.contains(if tiny { "q quits" } else { "q quit  p" }), "{text}");
        }
        let text = lines(&screen(), 80, 24).join("\n");
        for part in ["live", "partly used slabs", "not the heap", "classes", "q quit"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn the_end_of_the_process_is_reported() {
        let mut screen = screen();
        screen.end();
        assert!(!screen.is_following());
        let text = lines(&screen, 80, 24).join("\n");
        assert!(text.contains(" has ended ") && text.contains("RSS 46.8 MiB"), "{text}");
        assert!(matches!(press(&mut screen, 'P'), Action::None));
    }
}
