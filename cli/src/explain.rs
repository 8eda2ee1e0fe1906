//! `hakmem explain`: where the memory of a program is, as a sum that adds up, and what would save some.
// SPDX-License-Identifier: MIT

use crate::heap::advice::{self, advice, Advice, Reach};
use crate::heap::named::{NamedOrCore, Subject};
use crate::heap::rest::MESHED;
use crate::heap::{Arena, Class, Snapshot, Target, Tier};
use crate::http::Response;
use crate::peak::{self, Watched};
use crate::picture;
use anyhow::{ensure, Result};
use clap::Args;
use hakmem_base::preload;
use hakmem_base::print;
use hakmem_base::proc::NEITHER;
use hakmem_base::shown;
use hakmem_base::table::{self, count, size, Cell, Column, Style};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// When a core was read: it does not say what was resident, nor how much ever was.
const IN_CORE: &str = " by the core's pages that are not zero";
/// How many mappings outside the heap are named one by one.
const REST_NAMED: usize = 5;
/// How many arenas, the largest.
const ARENAS_SHOWN: usize = 10;
/// How often a program is looked at again to see whether it grows, and how long after the last look: an answer is still
/// there at once, and a leak of 1 MiB/s is seen.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(60);
/// Growth is worth a word if so much of the blocks would be added in a minute, at least GROWTH_MIN bytes.
const GROWTH_SHARE: i64 = 20;
const GROWTH_MIN: i64 = 4 << 20;
/// Fewer bytes than this are not worth a line.
const ESTIMATES_MIN: u64 = 1 << 20;
/// A class with a smaller share of the heap is not listed.
const CLASS_SHARE_MIN: i64 = 100;

#[derive(Args)]
pub struct Options {
    /// A running process, or a core file
    #[arg(conflicts_with = "program", value_name = "PID|NAME|CORE", value_parser = NamedOrCore,
        allow_negative_numbers = true)]
    subject: Option<Subject>,
    /// Or a program to run under HAKMEM; its peak is explained, or its end if that is about as large
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
    /// Print JSON; PROGRAM's output then goes to stderr
    #[arg(long)]
    json: bool,
    /// The library to run PROGRAM under
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
}

/// The snapshot without the picture of each slot, and what follows from it.
#[derive(Serialize)]
struct Explanation<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    /// Bytes a second by which its blocks grew at each of a few looks; None: they did not, or little.
    grows_by: Option<u64>,
    /// What moving the blocks of sparse slabs would give back of all classes, and what meshing would: one or the other.
    movable: u64,
    meshable: u64,
    advice: Vec<Advice>,
}

impl<'a> Explanation<'a> {
    fn new(snapshot: &'a Snapshot, grows_by: Option<u64>, advice: Vec<Advice>) -> Explanation<'a> {
        let (movable, meshable) = estimates(snapshot);
        Explanation { snapshot, grows_by, movable, meshable, advice }
    }
}

/// By moving, and by meshing.
fn estimates(snapshot: &Snapshot) -> (u64, u64) {
    let sum = |part: fn(&Class) -> u64| snapshot.classes.iter().map(part).fold(0, u64::saturating_add);
    (sum(|class| class.movable), sum(|class| class.meshable))
}

pub fn command(options: &Options) -> Result<ExitCode> {
    if let Some(subject) = &options.subject {
        let target = Target::open(subject)?;
        if target.core().is_some() {
            target.lacks().iter().for_each(|lack| print::note(lack));
            return show(target.summary()?, IN_CORE, Reach::Ended, None, options.json);
        }
        target.ensure_serving()?;
        let snapshot = target.summary()?;
        let growth = growth(&target, &snapshot);
        return show(snapshot, "", Reach::Runs, growth, options.json);
    }
    ensure!(!options.program.is_empty(), NEITHER);
    let library = preload::hakmem_preload(options.hakmem.as_deref())?;
    let Watched { snapshot, after, failure, .. } = peak::run(&options.program, &library, &[], options.json)?;
    let when = match after {
        Some(after) => format!(" {} after its start", table::seconds(after.as_secs_f64())),
        None => " when it ended".to_string(),
    };
    let process = &snapshot.process;
    if process.rss < process.rss_peak / 5 * 4 {
        let (peak, rss) = (size(process.rss_peak), size(process.rss));
        print::note(&format!("hakmem: it had {peak} for too short a time: read when it had {rss}"));
    }
    let code = show(snapshot, &when, Reach::Ended, None, options.json)?;
    if let Some(failure) = failure {
        print::note(&format!("hakmem: {}: {failure}", options.program[0]));
    }
    Ok(code)
}

/// Bytes a second by which the program's blocks grow, if they are more at every look.
fn growth(target: &Target, snapshot: &Snapshot) -> Option<u64> {
    let (begun, first) = (Instant::now(), snapshot.heap.held());
    let mut held = first;
    for _ in 0..LOOKS {
        std::thread::sleep(BETWEEN_LOOKS);
        let now = target.summary().ok()?; // it may have ended
        if now.heap.held() <= held {
            return None;
        }
        held = now.heap.held();
    }
    let rate = (held - first) as f64 / begun.elapsed().as_secs_f64();
    (rate * 60.0 >= (first / GROWTH_SHARE).max(GROWTH_MIN) as f64).then_some(rate as u64)
}

fn show(mut snapshot: Snapshot, when: &str, reach: Reach, grows_by: Option<u64>, json: bool) -> Result<ExitCode> {
    let mut advice = advice(&snapshot, reach);
    advice.splice(0..0, grows_by.map(|rate| grows(&snapshot, rate)));
    if json {
        snapshot.superslabs = Vec::new(); // `hakmem map` shows them
        print::json(&Explanation::new(&snapshot, grows_by, advice))?;
    } else {
        print::text(&text(&snapshot, when, reach, &advice, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As `--json`, of a program that runs; without its growth, which takes time to see.
pub fn response(mut snapshot: Snapshot) -> Result<Response> {
    let advice = advice(&snapshot, Reach::Runs);
    snapshot.superslabs = Vec::new(); // `hakmem map` shows them
    Response::json(&Explanation::new(&snapshot, None, advice))
}

fn grows(snapshot: &Snapshot, rate: u64) -> Advice {
    let mut text = format!("It grows now, by {} a second", size(rate));
    if !advice::is_secure(snapshot) {
        let pid = snapshot.process.pid;
        text += &format!(": `hakmem leak {pid}` watches it for 30 seconds and says which lines of code let it grow");
    }
    Advice { saves: 0, text }
}

fn text(snapshot: &Snapshot, when: &str, reach: Reach, advice: &[Advice], style: Style) -> String {
    let mut text = short(snapshot, when, style);
    let classes = class_rows(snapshot);
    if !classes.is_empty() {
        let column = |(place, (title, leave_out)): (usize, (&str, u8))| {
            Column::new(title, leave_out, classes.iter().map(|row| Cell::new(&row[place])).collect())
        };
        let columns = CLASS_COLUMNS.into_iter().enumerate().map(column).collect();
        let _ = writeln!(text, "\n{}", table::table(columns, style));
        text += &both_estimates(snapshot);
    }
    let arenas = arena_rows(snapshot);
    if !arenas.is_empty() {
        let titles = ["arena", "live", "in use", "at most", "limit", "resident"];
        let _ = write!(text, "\n{}", table::plain(titles, &arenas, style));
        let more = snapshot.arenas.len() - arenas.len();
        if more > 0 {
            let arenas = if more == 1 { "arena" } else { "arenas" };
            let _ = writeln!(text, "{} more {arenas}: --json has all.", count(more as u64));
        }
    }
    text.push('\n');
    if snapshot.nodes.len() > 1 {
        let each = snapshot.nodes.iter().enumerate().map(|(node, &bytes)| format!("{} on node {node}", size(bytes)));
        let _ = writeln!(text, "- The heap lies on several NUMA nodes: {}.", each.collect::<Vec<_>>().join(", "));
    }
    if let Some(ace) = &snapshot.ace {
        let _ = writeln!(text, "- ACE: {}.", shown::line(&ace.line()));
    }
    match advice {
        [] => text.push_str(&format!("{}.\n", advice::none(snapshot))),
        all => all.iter().for_each(|advice| text.push_str(&format!("- {}.\n", advice.text))),
    }
    match snapshot.rounding_waste {
        Some(bytes) => {
            let _ = writeln!(text, "Of live, {} is rounding up to block sizes (a sampled estimate).", size(bytes));
        }
        None if advice::is_secure(snapshot) => {
            text.push_str("How much of live is rounding is not known: with HAKMEM_SECURE=1 nothing is sampled.\n");
        }
        None => {
            let how = match reach {
                Reach::Runs => format!("`hakmem profile start {}`", snapshot.process.pid),
                Reach::Ended => "HAKMEM_PROFILE=1 in the environment".to_string(),
            };
            let _ = writeln!(text, "How much of live is rounding needs a profile: {how}.");
        }
    }
    text
}

/// What all classes together would give back, of which each way may do all of it.
fn both_estimates(snapshot: &Snapshot) -> String {
    let (movable, meshable) = estimates(snapshot);
    if movable.max(meshable) < ESTIMATES_MIN {
        return String::new();
    }
    format!(
        "Of all classes {} would come free by moving blocks (hak_should_move), or {} by meshing (HAKMEM_MESH=1): \
        estimates.\n",
        size(movable),
        size(meshable)
    )
}

/// Head and sum alone.
pub fn short(snapshot: &Snapshot, when: &str, style: Style) -> String {
    head(snapshot, when) + "\n" + &sum(snapshot, style)
}

fn head(snapshot: &Snapshot, when: &str) -> String {
    let process = &snapshot.process;
    let command: String = shown::line(&process.command).chars().take(80).collect();
    let threads = if process.threads == 1 { "1 thread".to_string() } else { format!("{} threads", process.threads) };
    let most = match when {
        IN_CORE => String::new(),
        _ => format!(", {} at most so far", size(process.rss_peak)),
    };
    let (pid, version, rss) = (process.pid, &process.version, size(process.rss));
    format!("{command}\nPID {pid}, {threads}, HAKMEM {version}: {rss} resident{when}{most}\n")
}

// ---- the sum ----

fn sum(snapshot: &Snapshot, style: Style) -> String {
    let rss = snapshot.process.rss.max(1);
    let row = |name: &str, bytes: i64, about: &str| {
        let bytes = bytes.max(0) as u64; // a damaged table may say anything
                                         // In a program that runs the figures are some milliseconds apart.
        let percent = if bytes <= rss { format!("{:.1} %", 100.0 * bytes as f64 / rss as f64) } else { String::new() };
        (bytes != 0).then(|| [name.to_string(), size(bytes), percent, about.to_string()])
    };
    let mut rows: Vec<_> =
        snapshot.heap.parts().into_iter().map(|term| row(term.label, term.bytes, term.help)).collect();
    rows.push(row("= heap", snapshot.heap.total, ""));
    let named = snapshot.rest.iter().take(REST_NAMED);
    let about = |name: &str| if name == MESHED { "of the heap: a page counts at each place" } else { "not the heap" };
    rows.extend(named.map(|mapping| row(&mapping.name, mapping.rss as i64, about(&mapping.name))));
    let others: u64 = snapshot.rest.iter().skip(REST_NAMED).map(|mapping| mapping.rss).fold(0, u64::saturating_add);
    let more = match snapshot.rest.len().saturating_sub(REST_NAMED) {
        1 => "1 more mapping".to_string(),
        more => format!("{more} more mappings"),
    };
    rows.push(row(&more, others as i64, "not the heap"));
    rows.push(row("= resident", snapshot.process.rss as i64, ""));
    let rows: Vec<_> = rows.into_iter().flatten().collect();
    let table = table::plain(["", "", "", ""], &rows, style);
    let lines: String = table.lines().skip(1).map(|line| line.to_string() + "\n").collect(); // there are no titles
    match snapshot.heap.untouched {
        ..=0 => lines,
        bytes => {
            format!("{lines}Not resident: {} of blocks that the program holds and never touched.\n", size(bytes as u64))
        }
    }
}

// ---- classes ----

fn class_name(class: &Class) -> String {
    match class.tier {
        Tier::Large => "large (64 KiB to 1 MiB)".to_string(),
        Tier::Huge => "huge (above 1 MiB)".to_string(),
        Tier::Secure if class.block_bytes == 0 => "large (above 64 KiB)".to_string(),
        _ => class.block_bytes.to_string(),
    }
}

fn arena_rows(snapshot: &Snapshot) -> Vec<[String; 6]> {
    let row = |arena: &Arena| {
        [
            picture::arena_name(arena),
            size(arena.live),
            size(arena.used),
            size(arena.peak),
            arena.limit.map_or("–".to_string(), size),
            size(arena.resident),
        ]
    };
    snapshot.arenas.iter().take(ARENAS_SHOWN).map(row).collect()
}

/// Titles, and how soon each is left out on a narrow terminal.
const CLASS_COLUMNS: [(&str, u8); 10] = [
    ("blocks of", 0),
    ("slabs", 4),
    ("live", 0),
    ("live blocks", 5),
    ("full", 1),
    ("free", 0),
    ("cached", 3),
    ("resident", 2),
    ("by moving", 6),
    ("by meshing", 7),
];

fn class_rows(snapshot: &Snapshot) -> Vec<[String; 10]> {
    let least = snapshot.heap.total / CLASS_SHARE_MIN;
    let matters = |class: &&Class| class.live.max(0) + class.cached.max(0) + class.free > least;
    let row = |class: &Class| {
        [
            class_name(class),
            count(class.slabs),
            size(class.live.max(0) as u64),
            count(class.live_blocks),
            format!("{} %", class.percent_full()),
            size(class.free.max(0) as u64),
            size(class.cached.max(0) as u64),
            size(class.resident),
            size(class.movable),
            size(class.meshable),
        ]
    };
    snapshot.classes.iter().filter(matters).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Mapping;

    fn explained(snapshot: &Snapshot, when: &str, width: usize) -> String {
        text(snapshot, when, Reach::Runs, &[], Style { color: false, width })
    }

    /// Else each line is broken in two.
    #[test]
    fn classes_fit_on_a_narrow_terminal() {
        let mut snapshot = crate::picture::tests::snapshot(9);
        for class in &mut snapshot.classes {
            (class.live, class.free, class.live_blocks, class.slabs) = (1 << 38, 1 << 37, 123_456_789, 1_234_567);
        }
        let lines = |width| {
            let text = explained(&snapshot, "", width);
            text.lines().skip_while(|line| !line.starts_with("blocks of")).take(4).map(str::to_string).collect()
        };
        let (narrow, wide): (Vec<String>, Vec<String>) = (lines(80), lines(usize::MAX));
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
        for title in ["live", "free", "resident"] {
            assert!(narrow[0].contains(title), "{narrow:#?}");
        }
        assert!(wide[0].ends_with("by meshing") && wide[3].starts_with("large (64 KiB to 1 MiB)"), "{wide:#?}");
    }

    #[test]
    fn one_is_no_plural() {
        let mut snapshot = crate::picture::tests::snapshot(1);
        let mapping = |number| Mapping { name: format!("file{number}"), rss: 1 << 20 };
        snapshot.rest = (0..REST_NAMED + 1).map(mapping).collect();
        assert!(explained(&snapshot, "", 80).contains("\n1 more mapping "));
        snapshot.rest = (0..REST_NAMED + 2).map(mapping).collect();
        assert!(explained(&snapshot, "", 80).contains("\n2 more mappings "));
    }

    #[test]
    fn a_core_says_nothing_of_its_peak() {
        let snapshot = crate::picture::tests::snapshot(1);
        assert!(!explained(&snapshot, IN_CORE, 80).contains("at most so far"));
        assert!(explained(&snapshot, "", 80).contains(" MiB at most so far\n"));
    }
}
