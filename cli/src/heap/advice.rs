//! What a snapshot says could be saved, and how: one sentence each, with its figure.
//!
//! Said is what is worth it: at least 4 MiB and a twentieth of what is resident.
// SPDX-License-Identifier: MIT

use super::model::*;
use super::rest::MESHED;
use super::rows::parse_number;
use hakmem_base::say;
use hakmem_base::shown;
use hakmem_base::table::{count, size};
use serde::Serialize;

/// Advice is given only if it saves at least WORTH_BYTES_MIN bytes and a WORTH_SHARE-th of the RSS.
const WORTH_BYTES_MIN: u64 = 4 << 20;
const WORTH_SHARE: u64 = 20;
/// The largest value of RING_BYTES that is advised, and the smallest.
const RING_BYTES_ADVISED: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;
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

/// The share of what is resident that is free, as far as the heap knows: bytes in no block of the program, nor its
/// tables.
pub fn free_bytes(snapshot: &Snapshot) -> u64 {
    let terms = &snapshot.heap;
    let free = [terms.partly_used_slabs, terms.thread_caches, terms.empty_slots, terms.lazy, terms.huge_rounding];
    free.into_iter().map(|bytes| bytes.max(0) as u64).fold(0, u64::saturating_add).min(snapshot.process.rss)
}

/// That there is no advice, and how much of the memory is in use.
pub fn none(snapshot: &Snapshot) -> String {
    let (rss, free) = (snapshot.process.rss, free_bytes(snapshot));
    if free < rss / 100 {
        return "Nothing is wrong: all resident memory is in use".to_string();
    }
    format!(
        "Nothing is wrong: {} % of the resident memory is in use; {} is free, in parts too small for advice (less than \
         {}, or than a {WORTH_SHARE}th of all)",
        100 * (rss - free) / rss.max(1),
        size(free),
        size(WORTH_BYTES_MIN)
    )
}

/// The largest first; empty: nothing is wrong.
pub fn advice(snapshot: &Snapshot, reach: Reach) -> Vec<Advice> {
    let worth = WORTH_BYTES_MIN.max(snapshot.process.rss / WORTH_SHARE);
    let mut all = fragmented(snapshot, worth, reach);
    let terms = &snapshot.heap;
    let figures: [(i64, &dyn Fn(u64) -> String); 7] = [
        (cached(snapshot, &[Tier::Tiny]), &|bytes| lists(snapshot, bytes, reach)),
        (cached(snapshot, &[Tier::Mid, Tier::Large]), &|bytes| rings(snapshot, bytes, reach)),
        (cached(snapshot, &[Tier::Secure]), &|bytes| quarantine(snapshot, bytes)),
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
    let of_slabs = |class: &&Class| matches!(class.tier, Tier::Tiny | Tier::Mid | Tier::Secure) && class.free > 0;
    let mut classes: Vec<&Class> = snapshot.classes.iter().filter(of_slabs).collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.free));
    let named: Vec<Advice> = classes
        .iter()
        .filter(|class| class.free as u64 >= worth)
        .take(CLASSES_NAMED)
        .map(|class| Advice { saves: class.free as u64, text: fragmented_class(snapshot, class, reach) })
        .collect();
    let others = &classes[named.len()..];
    let rest: u64 = others.iter().map(|class| class.free as u64).sum();
    let text = || {
        format!(
            "{} is free in partly used slabs of {} {}classes, a little in each: {}",
            size(rest),
            others.len(),
            if named.is_empty() { "" } else { "other " },
            in_many_classes(snapshot, others, reach)
        )
    };
    let others = (rest >= worth).then(|| Advice { saves: rest, text: text() });
    named.into_iter().chain(others).collect()
}

/// Why there is a little in each of many classes, or what helps.
fn in_many_classes(snapshot: &Snapshot, classes: &[&Class], reach: Reach) -> String {
    let slabs: u64 = classes.iter().map(|class| class.slabs).sum();
    if held_by_threads(snapshot, slabs, classes.len() as u64) {
        return "threads that allocate many sizes hold a slab of each".to_string();
    }
    if is_secure(snapshot) {
        return SECURE_STAYS.to_string();
    }
    let movable: u64 = classes.iter().map(|class| class.movable).fold(0, u64::saturating_add);
    let stays = format!("it {}", stays(snapshot, reach));
    if movable < WORTH_BYTES_MIN {
        return stays;
    }
    format!(
        "{stays}, or have it move them: by hak_should_move (docs/compaction.md) it would get back {}",
        size(movable)
    )
}

fn threads(snapshot: &Snapshot) -> u64 {
    snapshot.heaps.iter().filter(|heap| heap.in_use).count() as u64
}

/// Are these about the slabs from which several threads allocate anyway?
fn held_by_threads(snapshot: &Snapshot, slabs: u64, classes: u64) -> bool {
    let threads = threads(snapshot);
    threads > 1 && slabs <= threads.saturating_mul(SLABS_OF_A_THREAD).saturating_mul(classes)
}

/// Does it run in secure mode?
pub fn is_secure(snapshot: &Snapshot) -> bool {
    value(snapshot, "SECURE") == "1"
}

/// Of free blocks, in secure mode.
const SECURE_STAYS: &str =
    "secure mode places blocks at random, so free ones lie beside live ones until these are freed (docs/secure.md)";

/// What whoever asks about free blocks can do.
fn stays(snapshot: &Snapshot, reach: Reach) -> String {
    let pid = match reach {
        Reach::Runs => format!(" {}", snapshot.process.pid),
        Reach::Ended => String::new(),
    };
    format!("stays until the blocks beside it are freed: `hakmem leak --sparse{pid}` says whose they are")
}

fn fragmented_class(snapshot: &Snapshot, class: &Class, reach: Reach) -> String {
    let mut text = format!(
        "{} is free in partly used slabs of class {}{}: {} live blocks are spread over {} slabs that are {} % full",
        size(class.free as u64),
        class.block_bytes,
        if class.tier == Tier::Secure { " of secure mode" } else { "" },
        count(class.live_blocks),
        count(class.slabs),
        class.percent_full()
    );
    if held_by_threads(snapshot, class.slabs, 1) {
        let threads = count(threads(snapshot));
        return format!("{text}: each of the {threads} threads holds a slab of it. Fewer threads need less");
    }
    let mut rest = "it";
    if class.free_pages >= WORTH_BYTES_MIN {
        rest = "the rest";
        text += &format!("; {} of it is whole pages: {}", size(class.free_pages), by_purge(snapshot, reach));
    }
    if class.tier == Tier::Secure {
        return format!("{text}; {SECURE_STAYS}");
    }
    text += &format!("; {rest} {}", stays(snapshot, reach));
    if class.movable >= WORTH_BYTES_MIN {
        let moving = ", or have it move them: by hak_should_move (docs/compaction.md) it would get back";
        text += &format!("{moving} {}", size(class.movable));
    }
    if class.meshable >= WORTH_BYTES_MIN && value(snapshot, "MESH") != "1" {
        let how = by_setting(snapshot, "MESH=1", reach);
        let purge = match reach {
            Reach::Runs => format!(", then `hakmem purge {}`,", snapshot.process.pid),
            Reach::Ended => String::new(),
        };
        text += &format!("; or let its slabs share pages: {how}{purge} would give back {}", size(class.meshable));
    }
    text
}

// ---- the other terms ----

/// Bytes that wait in the threads' caches of these tiers' classes.
fn cached(snapshot: &Snapshot, tiers: &[Tier]) -> i64 {
    let classes = snapshot.classes.iter().filter(|class| tiers.contains(&class.tier));
    classes.map(|class| class.cached.max(0)).fold(0, i64::saturating_add)
}

/// "7 threads, 3 MiB in the largest", of all that caches hold.
fn caches(snapshot: &Snapshot) -> String {
    let used = snapshot.heaps.iter().filter(|heap| heap.cached > 0).count();
    format!("{} ({} in the caches of the largest)", say::count(used, "thread"), size(largest_cache(snapshot)))
}

fn largest_cache(snapshot: &Snapshot) -> u64 {
    snapshot.heaps.iter().map(|heap| heap.cached).max().unwrap_or(0)
}

/// No option bounds them.
fn lists(snapshot: &Snapshot, bytes: u64, reach: Reach) -> String {
    let purge = match reach {
        Reach::Runs => format!(
            "; `hakmem purge {}` has each thread empty its own at its next allocation that leaves the fast path",
            snapshot.process.pid
        ),
        Reach::Ended => String::new(),
    };
    format!(
        "{} waits in the lists and inboxes of blocks up to 1 KiB of {}: a thread that calls hak_thread_rests() before \
         a long wait lets others use what its lists hold{purge}",
        size(bytes),
        caches(snapshot)
    )
}

fn rings(snapshot: &Snapshot, bytes: u64, reach: Reach) -> String {
    let text = format!("{} waits in the rings of blocks above 1 KiB of {}", size(bytes), caches(snapshot));
    let now = value(snapshot, "RING_BYTES");
    // Half of what binds now, so that it makes a difference.
    let binds = parse_number(&now).map(|now| now.min(largest_cache(snapshot)).min(bytes) / 2);
    match binds.map(|bytes| bytes.min(*RING_BYTES_ADVISED.end())).filter(|bytes| RING_BYTES_ADVISED.contains(bytes)) {
        Some(bytes) => {
            let kib = 1 << (bytes >> 10).ilog2();
            let setting = format!("RING_BYTES={}", if kib == 1024 { "1m".to_string() } else { format!("{kib}k") });
            format!("{text}: {} limits this (now {now})", by_setting(snapshot, &setting, reach))
        }
        None => format!("{text}: RING_BYTES is {now} already, so fewer threads need less"),
    }
}

fn quarantine(snapshot: &Snapshot, bytes: u64) -> String {
    format!(
        "{} waits in secure mode's quarantine: HAKMEM_QUARANTINE_BYTES in the environment bounds this (now {}), and a \
         shorter quarantine finds fewer uses after free",
        size(bytes),
        value(snapshot, "QUARANTINE_BYTES")
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
            "{} is EMPTY: freed recently and kept for reuse. While the program allocates, or has threads, what is \
             older than {} ms goes back; now: {}",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::snapshot;

    fn with(options: &[(&str, &str)]) -> Snapshot {
        let mut snapshot = snapshot(0);
        let option = |&(name, value): &(&str, &str)| OptionValue {
            name: name.into(),
            value: value.into(),
            ..OptionValue::default()
        };
        snapshot.options = options.iter().map(option).collect();
        snapshot.classes.clear();
        snapshot.rest.clear();
        snapshot.process.rss = 100 << 20;
        snapshot
    }

    fn texts(snapshot: &Snapshot) -> Vec<String> {
        advice(snapshot, Reach::Runs).into_iter().map(|advice| advice.text).collect()
    }

    /// Else a user of secure mode learns that all is in use when three quarters are not.
    #[test]
    fn free_blocks_of_secure_mode_count() {
        let mut snapshot = with(&[("SECURE", "1")]);
        let class = Class { tier: Tier::Secure, block_bytes: 128, free: 77 << 20, slabs: 9, ..Class::default() };
        snapshot.classes = vec![class];
        let said = texts(&snapshot).join("\n");
        assert!(said.contains("77.0 MiB is free in partly used slabs of class 128 of secure mode"), "{said}");
        assert!(!said.contains("leak --sparse") && !said.contains("hak_should_move"), "{said}");
        let split = |tier| Class { tier, block_bytes: 128, free: 2 << 20, slabs: 9, ..Class::default() };
        snapshot.classes = vec![split(Tier::Secure); 9];
        let said = texts(&snapshot).join("\n");
        assert!(
            said.contains("18.0 MiB is free in partly used slabs of 9 classes") && said.contains("secure"),
            "{said}"
        );
    }

    #[test]
    fn what_is_in_use_is_said_as_it_is() {
        let mut snapshot = with(&[]);
        assert_eq!(none(&snapshot), "Nothing is wrong: all resident memory is in use");
        snapshot.heap.partly_used_slabs = 40 << 20;
        snapshot.heap.thread_caches = 3 << 20;
        let said = none(&snapshot);
        assert!(said.contains("57 % of the resident memory is in use; 43.0 MiB is free"), "{said}");
    }

    /// Else the advice to a program with one thread is to have fewer.
    #[test]
    fn many_slabs_are_not_those_that_threads_hold() {
        let mut snapshot = with(&[]);
        let class = |number: u64| Class {
            block_bytes: 16 * number,
            free: 3 << 20,
            slabs: 50,
            movable: 1 << 20,
            ..Class::default()
        };
        snapshot.classes = (1..=10).map(class).collect();
        snapshot.heaps.truncate(1);
        let said = |snapshot: &Snapshot| texts(snapshot).join("\n");
        let one = said(&snapshot);
        assert!(one.contains("of 10 classes, a little in each: it stays until") && !one.contains("threads"), "{one}");
        assert!(one.contains("`hakmem leak --sparse 4321`") && one.contains("it would get back 10.0 MiB"), "{one}");
        let heap = ThreadHeap { number: 1, in_use: true, cached: 0, owned_slabs: 3 };
        snapshot.heaps = vec![heap.clone(); 10];
        assert!(said(&snapshot).contains("`hakmem leak --sparse 4321`"), "500 slabs are more than 10 threads hold");
        snapshot.heaps = vec![heap; 30];
        assert!(said(&snapshot).contains("threads that allocate many sizes hold a slab of each"));
    }

    /// Else a user sets what is set, or what bounds nothing.
    #[test]
    fn a_bound_of_rings_is_advised_only_where_it_bounds() {
        let cached = |tier, bytes| Class { tier, cached: bytes, ..Class::default() };
        let said = |ring_bytes: &str, tier, largest: u64| {
            let mut snapshot = with(&[("RING_BYTES", ring_bytes)]);
            snapshot.classes = vec![cached(tier, 50 << 20)];
            snapshot.heaps = vec![ThreadHeap { number: 0, in_use: true, cached: largest, owned_slabs: 0 }];
            texts(&snapshot).join("\n")
        };
        let tiny = said("4 MiB", Tier::Tiny, 8 << 20);
        assert!(!tiny.contains("RING_BYTES") && tiny.contains("hak_thread_rests()"), "{tiny}");
        for (now, largest, advised) in [
            ("4 MiB", 4 << 20, Some("RING_BYTES=1m")),
            ("1 MiB", 1 << 20, Some("RING_BYTES=512k")),
            ("4 MiB", 300 << 10, Some("RING_BYTES=128k")),
            ("1000000", 1 << 30, Some("RING_BYTES=256k")),
            ("0", 4 << 20, None),
            ("64 KiB", 4 << 20, None),
            ("?", 4 << 20, None),
        ] {
            let said = said(now, Tier::Mid, largest);
            let found = said.find("RING_BYTES=").map(|at| said[at..].split('`').next().unwrap().to_string());
            assert_eq!(found.as_deref(), advised, "{said}");
        }
    }
}
