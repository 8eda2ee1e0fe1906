//! `hakmem leak --sparse`: which lines hold the slabs that are nearly empty.
//!
//!  1. How much sparse slabs waste is exact, class by class: what is resident of them without their blocks
//!     and what is LAZY.
//!  2. What their blocks are, their contents say. Each block answers for its share of what its slab wastes.
//!  3. Whose blocks they are is estimated from samples: a line's share of a class's waste is the share of the class's
//!     blocks in sparse slabs that its samples stand for. Blocks of tiny classes are sampled in other slabs: there it
//!     is the share of all live blocks of the class.
// SPDX-License-Identifier: MIT

use super::{now_ms, read, sites, LeakOptions};
use crate::contents::{Contents, Tally};
use crate::heap::blocks::Block;
use crate::heap::samples::Birth;
use crate::heap::{patience, Snapshot, State, Target, Tier};
use crate::profile::text::{callers, named, table};
use crate::symbols::Frame;
use anyhow::{ensure, Result};
use hakmem_base::print;
use hakmem_base::say;
use hakmem_base::shown;
use hakmem_base::table::{count, size, Style};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;

/// Blocks of this size in slabs that are sparse.
#[derive(Debug, Default, Clone, Serialize, PartialEq)]
struct SparseClass {
    tier: Option<Tier>,
    block_bytes: u64,
    slabs: u64,
    /// Those that the program holds; while slabs are counted, also those in caches.
    blocks: u64,
    /// Resident pages that the system may take.
    lazy: u64,
    /// Resident, no block's, and not the system's to take.
    wasted: u64,
}

#[derive(Debug, Clone, Serialize)]
struct Holder {
    #[serde(flatten)]
    frame: Frame,
    /// Estimates.
    wasted: u64,
    blocks: u64,
    bytes: u64,
    oldest_ms: Option<u32>,
    callers: Vec<Frame>,
}

#[derive(Serialize)]
struct Sparse {
    process: String,
    pid: i32,
    below_percent: u64,
    slabs: u64,
    sparse_slabs: u64,
    resident: u64,
    wasted: u64,
    classes: Vec<SparseClass>,
    /// The blocks in them, by contents; `holds_bytes` is what they waste.
    kinds: Vec<Tally>,
    holders: Vec<Holder>,
    sampled: bool,
    notes: Vec<String>,
}

/// The sparse slabs: by each of their slots the class; and how many slabs there are, and the resident bytes of sparse
/// ones.
struct Slabs {
    of_slot: HashMap<u64, u64>,
    classes: HashMap<u64, SparseClass>,
    all: u64,
    resident: u64,
}

fn sparse_slabs(snapshot: &Snapshot, percent: u64) -> Slabs {
    let mut slabs = Slabs { of_slot: HashMap::new(), classes: HashMap::new(), all: 0, resident: 0 };
    let mut is_sparse = false;
    for superslab in &snapshot.superslabs {
        for (number, slot) in superslab.slots.iter().enumerate() {
            let has_blocks = slot.state == State::Active && matches!(slot.tier, Some(Tier::Tiny | Tier::Mid));
            if !has_blocks {
                continue;
            }
            if slot.back == 0 {
                slabs.all += 1;
                is_sparse = u64::from(slot.used) * 100 < u64::from(slot.blocks) * percent;
            }
            if is_sparse {
                let class = slabs.classes.entry(slot.block_bytes).or_default();
                (class.tier, class.block_bytes) = (slot.tier, slot.block_bytes);
                if slot.back == 0 {
                    class.slabs += 1;
                    class.blocks += u64::from(slot.used);
                }
                class.wasted += slot.resident;
                class.lazy += slot.lazy;
                slabs.resident += slot.resident;
                slabs.of_slot.insert(
                    (superslab.address + number as u64 * snapshot.slot_bytes) / snapshot.slot_bytes,
                    slot.block_bytes,
                );
            }
        }
    }
    for class in slabs.classes.values_mut() {
        class.wasted = class.wasted.saturating_sub(class.blocks * class.block_bytes + class.lazy);
    }
    slabs
}

/// What each sample in a sparse slab answers for: its class's waste, shared by the blocks that samples stand for.
fn shares(slabs: &Slabs, births: &[Birth], slot_bytes: u64) -> Vec<(Birth, f64)> {
    let class_of = |birth: &Birth| {
        let here = slabs.of_slot.get(&(birth.address / slot_bytes)).copied();
        let class = slabs.classes.get(&birth.block_bytes)?;
        (class.tier == Some(Tier::Tiny) || here == Some(class.block_bytes)).then_some(class.block_bytes)
    };
    let mut weights: HashMap<u64, f64> = HashMap::new();
    for birth in births {
        if let Some(class) = class_of(birth) {
            *weights.entry(class).or_default() += birth.estimated_objects as f64;
        }
    }
    let share = |birth: &Birth| {
        let class = class_of(birth)?;
        let part = birth.estimated_objects as f64 / weights[&class].max(1.0);
        Some((*birth, part * slabs.classes[&class].wasted as f64))
    };
    births.iter().filter_map(share).collect()
}

fn holders(
    target: &Target,
    snapshot: &Snapshot,
    slabs: &Slabs,
    options: &LeakOptions,
) -> Result<(Vec<Holder>, Vec<String>)> {
    let (sampled, births) = (target.samples()?, target.births()?);
    let numbers: HashMap<u64, usize> =
        (sampled.stacks.iter()).enumerate().map(|(at, stack)| (stack.number, at)).collect();
    let now = target.core().is_none().then(now_ms);
    let profile = read::stacks_of(target.remote(), sampled, &options.symbols.debug_directory);
    let mut found: HashMap<Frame, (Holder, f64)> = HashMap::new();
    for (birth, wasted) in shares(slabs, &births, snapshot.slot_bytes) {
        let Some(stack) = numbers.get(&birth.stack).and_then(|&at| profile.stacks.get(at)) else { continue };
        let (frame, _, callers) = sites::site(&profile, stack);
        let new = |frame| Holder { frame, wasted: 0, blocks: 0, bytes: 0, oldest_ms: None, callers };
        let (holder, sum) = found.entry(frame.clone()).or_insert_with(|| (new(frame), 0.0));
        *sum += wasted;
        holder.blocks += birth.estimated_objects;
        holder.bytes += birth.estimated_bytes;
        holder.oldest_ms = holder.oldest_ms.max(now.map(|now| now.wrapping_sub(birth.birth_ms)));
    }
    let whole =
        |(holder, sum): (Holder, f64)| Holder { wasted: sum as u64, blocks: read::objects(holder.blocks), ..holder };
    let mut found: Vec<Holder> = found.into_values().map(whole).collect();
    found.sort_by(|a, b| (b.wasted, &a.frame.function).cmp(&(a.wasted, &b.frame.function)));
    Ok((found, profile.notes))
}

/// What the live blocks in sparse slabs are, and how many there are of each class. They are read a moment after the
/// snapshot.
fn kinds_in(
    target: &Target,
    slabs: &Slabs,
    slot_bytes: u64,
    options: &LeakOptions,
) -> Result<(Vec<Tally>, HashMap<u64, u64>)> {
    let (blocks, mut copied) = target.blocks()?;
    let wasted: HashMap<u64, u64> = slabs.classes.values().map(|class| (class.block_bytes, class.wasted)).collect();
    let (remote, directories) = (target.remote(), options.symbols.debug_directory.clone());
    let of_slot = slabs.of_slot.clone();
    patience::within(remote.pid, read::NAMING, move || {
        let mut contents = Contents::new(remote, &directories, true)?;
        let class_of = |block: &Block| of_slot.get(&(block.address / slot_bytes)).copied();
        let mut live: HashMap<u64, u64> = HashMap::new();
        blocks.live().filter_map(|block| class_of(&block)).for_each(|class| *live.entry(class).or_default() += 1);
        for block in blocks.live() {
            if let Some(class) = class_of(&block) {
                let waste = wasted.get(&class).unwrap_or(&0) / live[&class].max(1);
                contents.add(&block, Some(waste), &blocks, &mut copied);
            }
        }
        let mut tallies = contents.tallies();
        tallies.sort_by_key(|tally| std::cmp::Reverse(tally.holds_bytes));
        Ok((tallies, live))
    })
}

pub fn command(options: &LeakOptions, percent: u64) -> Result<ExitCode> {
    let target = Target::open_within(&options.subject, read::NAMING)?;
    let snapshot = target.snapshot()?;
    ensure!(
        !target.is_secure()?,
        "PID {} runs with HAKMEM_SECURE=1, which places blocks at random: no line of code makes its slabs sparse",
        target.pid()
    );
    let slabs = sparse_slabs(&snapshot, percent);
    let (holders, notes, sampled) = match holders(&target, &snapshot, &slabs, options) {
        Ok((holders, notes)) => (holders, notes, true),
        Err(_) => (Vec::new(), Vec::new(), false),
    };
    let (kinds, live) = kinds_in(&target, &slabs, snapshot.slot_bytes, options)?;
    let mut classes: Vec<SparseClass> = slabs.classes.into_values().collect();
    classes.iter_mut().for_each(|class| class.blocks = live.get(&class.block_bytes).copied().unwrap_or(0));
    classes.sort_by_key(|class| (std::cmp::Reverse(class.wasted), class.block_bytes));
    let sparse = Sparse {
        process: target.remote().program(),
        pid: target.pid(),
        below_percent: percent,
        slabs: slabs.all,
        sparse_slabs: classes.iter().map(|class| class.slabs).sum(),
        resident: slabs.resident,
        wasted: classes.iter().map(|class| class.wasted).sum(),
        classes,
        kinds,
        holders,
        sampled,
        notes,
    };
    if options.json {
        print::json(&sparse)?;
    } else {
        print::text(&text(&sparse, options.top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(sparse: &Sparse, top: usize, style: Style) -> String {
    let mut text = format!(
        "{} (process {}): {} of {} slabs are less than {} % full: {} resident, {} of it free\n",
        shown::line(&sparse.process),
        sparse.pid,
        count(sparse.sparse_slabs),
        count(sparse.slabs),
        sparse.below_percent,
        size(sparse.resident),
        size(sparse.wasted),
    );
    sparse.notes.iter().for_each(|note| text.push_str(&format!("Note: {}.\n", shown::line(note))));
    if sparse.classes.is_empty() {
        return text;
    }
    let row = |class: &SparseClass| {
        let cells = [size(class.wasted), count(class.slabs), count(class.blocks), class.block_bytes.to_string()];
        (cells.to_vec(), String::new())
    };
    let rows: Vec<_> = sparse.classes.iter().filter(|class| class.wasted > 0).take(top).map(row).collect();
    let _ = write!(text, "\n{}", table(&["free", "slabs", "live blocks in them", "blocks of"], &rows, style));
    let row = |kind: &Tally| {
        let example = kind.examples.first().cloned().unwrap_or_default();
        let wasted = kind.holds_bytes.unwrap_or(0);
        (vec![size(wasted), count(kind.blocks), kind.sizes(), example, kind.described()], String::new())
    };
    let keeps = |kind: &&Tally| kind.holds_bytes > Some(0);
    let rows: Vec<_> = sparse.kinds.iter().filter(keeps).take(top).map(row).collect();
    text += "\nWhat keeps them\n";
    text += &table(&["keeps free", "live blocks", "of", "for example", "what"], &rows, style);
    let row = |one: &Holder| {
        let oldest = one.oldest_ms.map_or("–".into(), |ms| say::seconds(f64::from(ms) / 1e3));
        let cells = [size(one.wasted), say::number(one.blocks as f64), size(one.bytes), oldest, named(&one.frame)];
        (cells.to_vec(), callers(&one.callers))
    };
    let rows: Vec<_> = sparse.holders.iter().take(top).map(row).collect();
    if !rows.is_empty() {
        text += "\nWhose blocks keep them, estimated from sampled blocks\n";
        text += &table(&["keeps free", "blocks", "bytes", "oldest", "site"], &rows, style);
    } else if sparse.sampled {
        let pid = sparse.pid;
        let _ = writeln!(
            text,
            "\nNo sampled block lies in them. `hakmem profile start {pid}`, then what fills them once more, then this \
            again."
        );
    } else {
        let pid = sparse.pid;
        let _ = writeln!(
            text,
            "\nLines need samples: HAKMEM_PROFILE=1, or `hakmem profile start {pid}` for blocks to come."
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a line is blamed for slabs that are full, or the shares do not add up to what is wasted.
    #[test]
    fn the_waste_is_shared_by_the_blocks_in_sparse_slabs() {
        let mut snapshot = crate::picture::tests::snapshot(2);
        for slot in snapshot.superslabs.iter_mut().flat_map(|superslab| &mut superslab.slots) {
            (slot.used, slot.back) = (slot.blocks, 0);
        }
        let tiny = |slot: &crate::heap::Slot| slot.tier == Some(Tier::Tiny);
        let at = snapshot.superslabs[1].slots.iter().position(tiny).unwrap();
        let (address, slot_bytes) = (snapshot.superslabs[1].address, snapshot.slot_bytes);
        let slot = &mut snapshot.superslabs[1].slots[at];
        (slot.used, slot.resident, slot.lazy) = (slot.blocks / 50, 60_000, 8192);
        let (used, block_bytes) = (u64::from(slot.used), slot.block_bytes);
        let slabs = sparse_slabs(&snapshot, 25);
        let wasted = 60_000 - 8192 - used * block_bytes;
        let class = SparseClass { tier: Some(Tier::Tiny), block_bytes, slabs: 1, blocks: used, lazy: 8192, wasted };
        assert_eq!(slabs.classes.into_values().collect::<Vec<_>>(), [class]);
        let slabs = sparse_slabs(&snapshot, 25);
        let birth =
            |block_bytes, estimated_objects| Birth { address, block_bytes, estimated_objects, ..Birth::default() };
        let births = [birth(block_bytes, 3), birth(block_bytes, 1), birth(block_bytes + 16, 5)];
        let shares = shares(&slabs, &births, slot_bytes);
        let parts: Vec<u64> = shares.iter().map(|(_, part)| *part as u64).collect();
        assert_eq!(parts, [wasted * 3 / 4, wasted / 4]);
    }
}
