//! `hakmem map`: a picture of a process's heap, slot by slot, in the terminal or as a page.
//!
//! 1. A cell is a slot: its character tells how much of its slab's blocks are used, its colour the class. Without
//!    colour a letter tells the class, in upper case from half used on.
//! 2. Where there are more SuperSlabs than lines, a cell stands for several neighbouring slots, all of one SuperSlab's
//!    width still 32 cells: it shows what most of them are.
// SPDX-License-Identifier: MIT

use crate::heap::core::{begins_core, is_core};
use crate::heap::model::*;
use crate::heap::named::Subject;
use crate::picture::{self, page, Kind};
use anyhow::{Context, Result};
use hakmem_base::files;
use hakmem_base::print;
use hakmem_base::say;
use hakmem_base::table::Style;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Options {
    /// A process that runs HAKMEM, a core file of one, or a file that `map --json` wrote
    #[arg(value_name = "PID|NAME|CORE|FILE")]
    source: String,
    /// Write a self-contained web page; `-` is stdout
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Draw a row for each SuperSlab, however many there are
    #[arg(long)]
    all: bool,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    print::ensure_one(options.html.as_deref(), options.json)?;
    let snapshot = read(&options.source)?;
    if let Some(path) = &options.html {
        files::write(path, page::html(&snapshot, None))?;
    }
    if options.json {
        print::json_line(&snapshot)?;
    } else if options.html.is_none() {
        let style = Style::of_stdout();
        let rows = if options.all { usize::MAX } else { rows_of_stdout() };
        print::text(&text(&snapshot, style, rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A core file, or what `map --json` writes.
fn begins_map(head: &[u8]) -> bool {
    begins_core(head) || head.trim_ascii_start().starts_with(b"{")
}

fn read(source: &str) -> Result<Snapshot> {
    if let Some(pid) = crate::heap::named::process_or_file(source, begins_map)? {
        return crate::heap::Target::attach(pid)?.snapshot();
    }
    if is_core(Path::new(source)) {
        let target = crate::heap::Target::open(&Subject::Core(source.into()))?;
        target.lacks().iter().for_each(|lack| print::note(lack));
        return target.snapshot();
    }
    let text = hakmem_base::files::read_text(Path::new(source)).with_context(|| format!("cannot read {source}"))?;
    serde_json::from_str(&text).with_context(|| format!("{source} is not what `hakmem map --json` writes"))
}

/// For the map: what remains of the terminal beside summary and legend. A pipe has 64.
fn rows_of_stdout() -> usize {
    hakmem_base::table::terminal_height().map_or(64, |height| height.saturating_sub(12).max(8))
}

// ---- cells ----

/// What is shown of one or several slots.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell {
    Unused,
    Lazy,
    Empty,
    /// Kind, and the share of the blocks that are used.
    Active(Option<Kind>, f64),
}

/// What most of the slots are.
fn cell(slots: &[&Slot]) -> Cell {
    let of = |state: State| slots.iter().filter(move |slot| slot.state == state);
    let active = of(State::Active).count();
    if active * 2 < slots.len() || active == 0 {
        let free = [(State::Unused, Cell::Unused), (State::Lazy, Cell::Lazy), (State::Empty, Cell::Empty)];
        let counts = free.map(|(state, _)| of(state).count());
        let most = counts.into_iter().fold(active, usize::max);
        if let Some(place) = counts.iter().position(|&count| count == most) {
            return free[place].1;
        }
    }
    let mut kinds: BTreeMap<Option<Kind>, usize> = BTreeMap::new();
    of(State::Active).for_each(|slot| *kinds.entry(Kind::of_slot(slot)).or_default() += 1);
    let kind = kinds.into_iter().max_by_key(|(_, count)| *count).and_then(|(kind, _)| kind);
    let fill = |slot: &&Slot| if slot.blocks == 0 { 1.0 } else { f64::from(slot.used) / f64::from(slot.blocks) };
    Cell::Active(kind, of(State::Active).map(fill).sum::<f64>() / active as f64)
}

/// The cells of a row of neighbouring SuperSlabs: slot i of the row's is in cell i / (SuperSlabs in it).
fn cells(row: &[SuperSlab]) -> Vec<Cell> {
    let slots: Vec<&Slot> = row.iter().flat_map(|superslab| &superslab.slots).collect();
    slots.chunks(row.len()).map(cell).collect()
}

// ---- text ----

/// Arenas below the map, and runs of SuperSlabs of each.
const ARENAS_SHOWN: usize = 10;
const RUNS_SHOWN: usize = 4;
const LETTERS: &str = "abcdefghijklmnopqrstuvwxy";
const FILLS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Classes by their share of the map, the largest first: that order is the legend's and decides the letters.
struct Legend {
    kinds: Vec<(Kind, usize)>,
    slot_bytes: u64,
    color: bool,
}

impl Legend {
    fn new(snapshot: &Snapshot, color: bool) -> Legend {
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        let slots = snapshot.superslabs.iter().flat_map(|superslab| &superslab.slots);
        slots.filter_map(Kind::of_slot).for_each(|kind| *counts.entry(kind).or_default() += 1);
        let mut kinds: Vec<(Kind, usize)> = counts.into_iter().collect();
        kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
        Legend { kinds, slot_bytes: snapshot.slot_bytes, color }
    }

    /// The bytes of `slots` slots. A snapshot may claim that a slot has any size.
    fn bytes(&self, slots: usize) -> f64 {
        slots as f64 * self.slot_bytes as f64
    }

    /// z for all that have none of their own.
    fn letter(&self, kind: Option<Kind>) -> char {
        let place = self.kinds.iter().position(|(other, _)| Some(*other) == kind);
        place.and_then(|place| LETTERS.chars().nth(place)).unwrap_or('z')
    }

    fn mark(&self, cell: Cell) -> String {
        match cell {
            Cell::Unused => "·".into(),
            Cell::Lazy => if self.color { "\x1b[90m:\x1b[0m" } else { ":" }.into(),
            Cell::Empty => if self.color { "\x1b[90m░\x1b[0m" } else { "░" }.into(),
            Cell::Active(kind, fill) if self.color => {
                let colour = kind.map_or(7, |kind| kind.colour().in_terminal());
                let fill = FILLS[((fill * 8.0) as usize).min(7)];
                format!("\x1b[38;5;{colour}m{fill}\x1b[0m")
            }
            Cell::Active(kind, fill) if fill < 0.5 => self.letter(kind).into(),
            Cell::Active(kind, _) => self.letter(kind).to_ascii_uppercase().into(),
        }
    }

    fn lines(&self, width: usize) -> String {
        let sign = |kind: Kind| match self.color {
            true => self.mark(Cell::Active(Some(kind), 1.0)),
            false => self.letter(Some(kind)).to_string(),
        };
        let name = |(kind, count): &(Kind, usize)| {
            let text = format!("{} {}", kind.name(), say::bytes(self.bytes(*count)));
            (format!("{} {text}", sign(*kind)), text.chars().count() + 2)
        };
        let fill = if self.color { "▁ to █: blocks used" } else { "upper case: half of the blocks or more used" };
        let states = [fill, "░ EMPTY", ": LAZY (the system's to take)", "· UNUSED (purged or never used)"];
        let states = states.map(|text| (text.to_string(), text.chars().count()));
        let named = LETTERS.len().min(self.kinds.len());
        let others = &self.kinds[named..];
        let rest = self.bytes(others.iter().map(|(_, count)| count).sum());
        let sign = if self.color { "" } else { "z " };
        let rest = format!("{sign}{} more {}", others.len(), say::bytes(rest));
        let rest = (!others.is_empty()).then(|| (rest.clone(), rest.len()));
        wrap(states.into_iter(), width) + &wrap(self.kinds[..named].iter().map(name).chain(rest), width)
    }
}

/// Texts with the columns they take, three spaces between them.
fn wrap(texts: impl Iterator<Item = (String, usize)>, width: usize) -> String {
    let (mut lines, mut at) = (String::new(), 0);
    for (text, columns) in texts {
        if at > 0 && at + 3 + columns > width {
            lines.push('\n');
            at = 0;
        }
        let gap = if at > 0 { 3 } else { 0 };
        let _ = write!(lines, "{:gap$}{text}", "");
        at += gap + columns;
    }
    lines.push('\n');
    lines
}

/// Summary, map and legend. `rows`: lines for the map.
fn text(snapshot: &Snapshot, style: Style, rows: usize) -> String {
    let legend = Legend::new(snapshot, style.color);
    let superslabs = &snapshot.superslabs;
    let width = style.width.min(120);
    let mut text = picture::headline(snapshot) + "\n";
    let part = |part: picture::Part| {
        let text = format!("{} {}", part.name, say::bytes(part.bytes as f64));
        (text.clone(), text.chars().count())
    };
    text += &wrap(picture::parts(snapshot).into_iter().filter(|part| part.bytes > 0).map(part), width);
    let _ = writeln!(text, "{}\n", picture::slots(snapshot));
    let digits = superslabs.last().map_or(1, |last| last.number.to_string().len()).max(3);
    // Several rows beside one another where there is room; a file has one column.
    let room = digits + 1 + 32 + 10;
    let columns = if style.width == usize::MAX { 1 } else { ((style.width + 2) / (room + 2)).max(1) };
    let each = superslabs.len().div_ceil(rows.saturating_mul(columns).max(1)).max(1);
    if each > 1 {
        let _ = writeln!(text, "each row {each} SuperSlabs, each cell what most of {each} slots are; --all shows each");
    }
    let groups: Vec<&[SuperSlab]> = superslabs.chunks(each).collect();
    let lines = groups.len().div_ceil(columns);
    for line in 0..lines {
        let row = groups.iter().skip(line).step_by(lines.max(1));
        let row: Vec<String> = row.map(|group| group_text(group, &legend, digits)).collect();
        let _ = writeln!(text, "{}", row.join("  ").trim_end());
    }
    text + "\n" + &legend.lines(width) + &arenas_text(snapshot, width)
}

/// The SuperSlabs of an arena by their numbers, which begin the rows.
fn arenas_text(snapshot: &Snapshot, width: usize) -> String {
    let name = |arena: &Arena| {
        let of = |one: &&SuperSlab| one.arena == arena.number;
        let numbers: Vec<u64> = snapshot.superslabs.iter().filter(of).map(|one| one.number).collect();
        let used = say::bytes(arena.used as f64);
        let text = format!("arena {}: {used} in use{}", picture::arena_name(arena), superslabs_text(&numbers));
        let cut: String = text.chars().take(width).collect();
        let columns = cut.chars().count();
        (cut, columns)
    };
    let named = snapshot.arenas.iter().take(ARENAS_SHOWN).map(name);
    if snapshot.arenas.is_empty() {
        String::new()
    } else {
        wrap(named, width)
    }
}

/// ", SuperSlabs 3–5, 8": runs, the first ones.
fn superslabs_text(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let texts: Vec<String> = runs
        .clone()
        .take(RUNS_SHOWN)
        .map(|run| match run {
            [one] => one.to_string(),
            _ => format!("{}–{}", run[0], run[run.len() - 1]),
        })
        .collect();
    let more = if runs.count() > RUNS_SHOWN { ", …" } else { "" };
    match texts[..] {
        [] => String::new(),
        _ => format!(", SuperSlabs {}{more}", texts.join(", ")),
    }
}

fn group_text(group: &[SuperSlab], legend: &Legend, digits: usize) -> String {
    let resident: u64 = group.iter().flat_map(|one| &one.slots).map(|slot| slot.resident).fold(0, u64::saturating_add);
    let marks: String = cells(group).into_iter().map(|cell| legend.mark(cell)).collect();
    format!("{:>digits$} {marks} {:>9}", group[0].number, say::bytes(resident as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::snapshot;

    const PLAIN: Style = Style { color: false, width: usize::MAX };

    /// The lines of SuperSlabs: number, cells, resident.
    fn map_lines(text: &str) -> Vec<(u64, Vec<char>)> {
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let number = words.next()?.parse().ok()?;
            let cells: Vec<char> = words.next()?.chars().collect();
            (cells.len() == 32).then_some((number, cells))
        });
        lines.collect()
    }

    #[test]
    fn each_slot_is_a_cell() {
        let snapshot = snapshot(3);
        let text = text(&snapshot, PLAIN, usize::MAX);
        let lines = map_lines(&text);
        assert_eq!(lines.len(), 3, "{text}");
        for ((number, cells), superslab) in lines.iter().zip(&snapshot.superslabs) {
            assert_eq!(*number, superslab.number);
            for (cell, slot) in cells.iter().zip(&superslab.slots) {
                let half = slot.used * 2 >= slot.blocks;
                let wanted = match (slot.state, slot.tier) {
                    (State::Unused, _) => '·',
                    (State::Lazy, _) => ':',
                    (State::Empty, _) => '░',
                    (_, Some(Tier::Tiny)) => {
                        if half {
                            'A'
                        } else {
                            'a'
                        }
                    }
                    (_, Some(Tier::Large)) => 'B',
                    _ => 'C',
                };
                assert_eq!(*cell, wanted, "{slot:?} in\n{text}");
            }
        }
        assert!(text.contains("69 slots ACTIVE, 15 EMPTY, 3 LAZY, 9 UNUSED"), "{text}");
        assert!(text.contains("a 96 3 MiB") && text.contains("b large 768 KiB"), "{text}");
    }

    #[test]
    fn a_pipe_has_no_colour_and_a_terminal_has() {
        let snapshot = snapshot(2);
        assert!(!text(&snapshot, PLAIN, usize::MAX).contains('\x1b'));
        let colourful = text(&snapshot, Style { color: true, width: 100 }, 20);
        assert!(colourful.contains("\x1b[38;5;") && colourful.contains('▁'), "{colourful}");
    }

    /// A heap of 10 GiB must not scroll away.
    #[test]
    fn many_superslabs_fit() {
        let snapshot = snapshot(5000);
        let text = text(&snapshot, PLAIN, 40);
        let lines = map_lines(&text);
        assert!(lines.len() <= 40 && lines.len() > 30, "{}", lines.len());
        assert!(text.contains("each row 125 SuperSlabs"), "{text}");
        let all = super::text(&snapshot, PLAIN, usize::MAX);
        assert_eq!(map_lines(&all).len(), 5000);
    }

    #[test]
    fn lines_stay_within_the_terminal() {
        for width in [50, 80, 100, 160] {
            let text = text(&snapshot(30), Style { color: false, width }, 20);
            // The first line and the hint may be longer: the terminal wraps them.
            for line in text.lines().skip(1).filter(|line| !line.starts_with("each row")) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        let wide = text(&snapshot(30), Style { color: false, width: 160 }, 20);
        assert!(wide.lines().count() < 22, "columns beside one another: {wide}");
    }

    /// A cell of several slots shows what most are.
    #[test]
    fn a_cell_is_what_most_of_its_slots_are() {
        let snapshot = snapshot(1);
        let slots = &snapshot.superslabs[0].slots;
        let (tiny, empty, lazy, unused) = (&slots[1], &slots[23], &slots[28], &slots[29]);
        assert_eq!(cell(&[unused, unused, empty]), Cell::Unused);
        assert_eq!(cell(&[unused, empty, empty]), Cell::Empty);
        assert_eq!(cell(&[tiny, unused, unused]), Cell::Unused);
        assert_eq!(cell(&[lazy, lazy, empty]), Cell::Lazy);
        assert!(matches!(cell(&[tiny, tiny, empty]), Cell::Active(Some(_), _)));
        assert!(matches!(cell(&[&slots[23], tiny]), Cell::Active(..)));
    }

    #[test]
    fn an_empty_heap_is_drawn() {
        let text = text(&snapshot(0), PLAIN, 10);
        assert!(text.contains("0 SuperSlabs") && text.contains("0 slots ACTIVE"), "{text}");
    }

    #[test]
    fn slots_may_claim_any_size() {
        let claim = Snapshot { slot_bytes: u64::MAX, ..snapshot(2) };
        assert!(text(&claim, PLAIN, 40).contains("EMPTY"));
    }

    /// Else a snapshot that somebody sent ends the command, or keeps it.
    #[test]
    fn any_json_is_a_snapshot_or_none() {
        let sound = serde_json::to_string(&snapshot(2)).unwrap();
        hakmem_fuzz::mutations("a snapshot", sound.as_bytes(), 500, |bytes| {
            let Ok(read) = serde_json::from_slice::<Snapshot>(bytes) else { return };
            std::hint::black_box((text(&read, PLAIN, 40), page::html(&read, None)));
        });
    }
}
