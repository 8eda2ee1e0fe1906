//! What a snapshot says could be saved, and how: one sentence each, with its figure.
//!
//! Said is what is worth it: at least 4 MiB and a twentieth of what is resident.
// SPDX-License-Identifier: MIT

use super::model::*;
use super::rest::MESHED;
use hakmem_base::shown;
use hakmem_base::table::{count, size};
use serde::Serialize;

/// Advice is given only if it saves at least WORTH_BYTES_MIN bytes and a WORTH_SHARE-th of the RSS.
const WORTH_BYTES_MIN: u64 = 4 << 20;
const WORTH_SHARE: u64 = 20;
/// Classes that are named one by one.
const CLASSES_NAMED: usize = 3;
/// The one it allocates from, and the one it carves.
const SLABS_OF_A_THREAD: u64 = 2;

#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// Bytes at most.
    pub saves: u64,
    pub text: String,
}

/// What can still be done about the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Runs,
    /// It was read at its peak or end, and is no longer there.
    Ended,
}

/// The largest first; empty: nothing is wrong.
pub fn advice(snapshot: &Snapshot, reach: Reach) -> Vec<Advice> {
    let worth = WORTH_BYTES_MIN.max(snapshot.process.rss / WORTH_SHARE);
    let mut all = fragmented(snapshot, worth, reach);
    let terms = &snapshot.heap;
    let figures: [(i64, &dyn Fn(u64) -> String); 5] = [
        (terms.thread_caches, &|bytes| thread_caches(snapshot, bytes, reach)),
        (terms.empty_slots, &|bytes| empty_slots(snapshot, bytes, reach)),
        (terms.lazy, &|bytes| lazy(snapshot, bytes, reach)),
        (terms.huge_rounding, &|bytes| huge_rounding(snapshot, bytes, reach)),
        (terms.metadata, &metadata),
    ];
    let figures = figures.iter().map(|(bytes, text)| (u64::try_from(*bytes).unwrap_or(0), text));
    all.extend(
        figures.filter(|&(bytes, _)| bytes >= worth).map(|(bytes, text)| Advice { saves: bytes, text: text(bytes) }),
    );
    all.extend(not_the_heap(snapshot, worth));
    all.sort_by_key(|advice| std::cmp::Reverse(advice.saves));
    all
}

fn option<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a OptionValue> {
    snapshot.options.iter().find(|option| option.name == name)
}

fn value(snapshot: &Snapshot, name: &str) -> String {
    option(snapshot, name).map_or("?".to_string(), |option| option.value.clone())
}

/// How it is given back, and when: a program without a purger thread has to come to it.
fn by_purge(snapshot: &Snapshot, reach: Reach) -> String {
    let Process { pid, purger, asleep, .. } = snapshot.process;
    match (reach, purger, asleep) {
        (Reach::Ended, ..) => "`hakmem purge` gives it back while the program runs".to_string(),
        (_, true, _) => format!("`hakmem purge {pid}` gives it back at once"),
        (_, false, false) => format!(
            "`hakmem purge {pid}` has it given back at the program's next allocation that leaves the fast path, as the \
             program has no purger thread"
        ),
        (_, false, true) => format!(
            "the program sleeps and has no purger thread, so `hakmem purge {pid}` takes effect only at its next \
             allocation that leaves the fast path; malloc_trim(0) before it sleeps gives it back by then"
        ),
    }
}

/// `settings`: as `hakmem set` takes them.
fn by_setting(snapshot: &Snapshot, settings: &str, reach: Reach) -> String {
    match reach {
        Reach::Runs => format!("`hakmem set {} {settings}`", snapshot.process.pid),
        Reach::Ended => {
            let words = settings.split(' ').map(|setting| format!("HAKMEM_{setting}"));
            format!("`{}` in the environment", words.collect::<Vec<_>>().join(" "))
        }
    }
}

// ---- partly used slabs ----

fn fragmented(snapshot: &Snapshot, worth: u64, reach: Reach) -> Vec<Advice> {
    let mut classes: Vec<&Class> = snapshot
        .classes
        .iter()
        .filter(|class| matches!(class.tier, Tier::Tiny | Tier::Mid) && class.free > 0)
        .collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.free));
    let named: Vec<Advice> = classes
        .iter()
        .filter(|class| class.free as u64 >= worth)
        .take(CLASSES_NAMED)
        .map(|class| Advice { saves: class.free as u64, text: fragmented_class(snapshot, class, reach) })
        .collect();
    let rest: u64 = classes[named.len()..].iter().map(|class| class.free as u64).sum();
    let others = Advice {
        saves: rest,
        text: format!(
            "{} is free in partly used slabs of {} {}classes, a little in each: threads that allocate many sizes hold \
             a slab of each",
            size(rest),
            classes.len() - named.len(),
            if named.is_empty() { "" } else { "other " }
        ),
    };
    named.into_iter().chain((rest >= worth).then_some(others)).collect()
}

fn fragmented_class(snapshot: &Snapshot, class: &Class, reach: Reach) -> String {
    let mut text = format!(
        "{} is free in partly used slabs of class {}: {} live blocks are spread over {} slabs that are {} % full",
        size(class.free as u64),
        class.block_bytes,
        count(class.live_blocks),
        count(class.slabs),
        class.percent_full()
    );
    let threads = snapshot.heaps.iter().filter(|heap| heap.in_use).count() as u64;
    if threads > 1 && class.slabs <= threads * SLABS_OF_A_THREAD {
        return format!("{text}: each of the {} threads holds a slab of it. Fewer threads need less", count(threads));
    }
    let mut rest = "it";
    if class.free_pages >= WORTH_BYTES_MIN {
        rest = "the rest";
        text += &format!("; {} of it is whole pages: {}", size(class.free_pages), by_purge(snapshot, reach));
    }
    let pid = match reach {
        Reach::Runs => format!(" {}", snapshot.process.pid),
        Reach::Ended => String::new(),
    };
    text += &format!(
        "; {rest} stays until the blocks beside it are freed: `hakmem leak --sparse{pid}` says whose they are"
    );
    if class.movable >= WORTH_BYTES_MIN {
        let moving = ", or have it move them: by hak_should_move (docs/compaction.md) it would get back";
        text += &format!("{moving} {}", size(class.movable));
    }
    if class.meshable >= WORTH_BYTES_MIN && value(snapshot, "MESH") != "1" {
        let how = by_setting(snapshot, "MESH=1", reach);
        let purge = if matches!(reach, Reach::Runs) { format!(", then `hakmem purge{pid}`,") } else { String::new() };
        text += &format!("; or let its slabs share pages: {how}{purge} would give back {}", size(class.meshable));
    }
    text
}

// ---- the other terms ----

fn thread_caches(snapshot: &Snapshot, bytes: u64, reach: Reach) -> String {
    let used = snapshot.heaps.iter().filter(|heap| heap.cached > 0).count();
    let largest = snapshot.heaps.iter().map(|heap| heap.cached).max().unwrap_or(0);
    format!(
        "{} waits in the caches of {} threads, {} in the largest: {} limits this (now {})",
        size(bytes),
        count(used as u64),
        size(largest),
        by_setting(snapshot, "RING_BYTES=1m", reach),
        value(snapshot, "RING_BYTES")
    )
}

fn empty_slots(snapshot: &Snapshot, bytes: u64, reach: Reach) -> String {
    let names = ["PURGE", "RETAIN_BYTES", "RETAIN_PERCENT", "DECAY_MS"];
    // Only one of the modes keeps more than the default does.
    let keeps_more =
        |option: &&OptionValue| option.value != option.default && (option.name != "PURGE" || option.value == "never");
    let keeping: Vec<_> = names.iter().filter_map(|name| option(snapshot, name)).filter(keeps_more).collect();
    let settings = |value: fn(&OptionValue) -> String| {
        keeping.iter().map(|option| format!("{}={}", option.name, value(option))).collect::<Vec<_>>()
    };
    let changed = settings(|option| option.value.clone());
    if changed.is_empty() {
        format!(
            "{} is EMPTY: freed recently and kept for reuse. While the program allocates, what is older than {} ms \
             goes back; now: {}",
            size(bytes),
            value(snapshot, "DECAY_MS"),
            by_purge(snapshot, reach)
        )
    } else {
        let defaults = settings(|option| option.default.replace(' ', ""));
        format!(
            "{} is EMPTY, kept because of {}: with {} most of it goes back while the program allocates",
            size(bytes),
            changed.join(", "),
            by_setting(snapshot, &defaults.join(" "), reach)
        )
    }
}

fn lazy(snapshot: &Snapshot, bytes: u64, reach: Reach) -> String {
    format!(
        "{} is LAZY: the system takes it when it needs memory, and MemAvailable and a container's working set count it \
         as free, so there is nothing to do; {}",
        size(bytes),
        by_purge(snapshot, reach)
    )
}

fn huge_rounding(snapshot: &Snapshot, bytes: u64, reach: Reach) -> String {
    format!(
        "{} are unused parts of huge pages: HAKMEM_HUGE_PAGES=never (it is {}) avoids it and costs speed; now: {}",
        size(bytes),
        value(snapshot, "HUGE_PAGES"),
        by_purge(snapshot, reach)
    )
}

fn metadata(bytes: u64) -> String {
    format!("{} are HAKMEM's own tables, which grow with the program's peak memory and its threads", size(bytes))
}

fn not_the_heap(snapshot: &Snapshot, worth: u64) -> Option<Advice> {
    let rest: Vec<_> = snapshot.rest.iter().filter(|mapping| mapping.name != MESHED).collect();
    let bytes: u64 = rest.iter().map(|mapping| mapping.rss).sum();
    if bytes < worth || bytes < snapshot.process.rss / 2 {
        return None;
    }
    let largest: Vec<String> =
        rest.iter().take(2).map(|mapping| format!("{} {}", shown::line(&mapping.name), size(mapping.rss))).collect();
    let percent = 100 * bytes / snapshot.process.rss.max(1);
    let mut text = format!("{} ({percent} %) is not the heap at all: {}", size(bytes), largest.join(", "));
    let program = snapshot.process.command.split(' ').next().unwrap_or_default();
    if rest[0].name == "anonymous" && program.rsplit('/').next().is_some_and(|name| name.starts_with("python")) {
        text += ". Python has an allocator of its own for small objects: PYTHONMALLOC=malloc leaves them to HAKMEM";
    }
    Some(Advice { saves: bytes, text })
}
