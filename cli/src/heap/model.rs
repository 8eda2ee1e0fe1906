//! The heap of a running process as it was at one moment: what the commands show, and what `--json` prints.
//!
//! All figures are bytes unless their name says otherwise. The target runs on while it is read: each figure is a recent
//! one, and the terms of a sum are made to add up by the residency the kernel reports.
// SPDX-License-Identifier: MIT

use hakmem_base::proc::Pid;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub process: Process,
    /// Resident bytes of the heap, split so that they add up to `heap.total`.
    pub heap: Terms,
    /// What is resident and not the heap: adds up with `heap.total` to `process.rss`.
    pub rest: Vec<Mapping>,
    pub classes: Vec<Class>,
    /// Those that were used and have no slabs now: of them only `allocations` and `misses` are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_classes: Vec<Class>,
    #[serde(default = "slot_bytes_of_old_files")]
    pub slot_bytes: u64,
    /// At most 65,536.
    pub superslabs: Vec<SuperSlab>,
    /// Those with an ACTIVE slot, as the library's statistics count them.
    #[serde(default)]
    pub superslab_count: u64,
    pub heaps: Vec<ThreadHeap>,
    /// Those that live, the largest first.
    #[serde(default)]
    pub arenas: Vec<Arena>,
    /// Where the kernel has placed the heap: resident bytes by NUMA node; empty on a machine with one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u64>,
    pub counters: Vec<Counter>,
    pub options: Vec<OptionValue>,
    /// None: ACE is off, or nothing has been rated yet.
    #[serde(default)]
    pub ace: Option<Ace>,
    /// Sampled allocations, if profiling is or was on.
    pub rounding_waste: Option<u64>,
}

/// Files that do not say it were saved when no library had slots of another size.
fn slot_bytes_of_old_files() -> u64 {
    64 << 10
}

/// How presets are rated (docs/options.md).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ace {
    pub preset: String,
    /// The one that would have cost least since the start.
    pub best: String,
    pub rounds: u64,
    pub switches: u64,
    pub changes: u64,
    pub ms: u64,
    /// Against the first preset; with ACE=observe, what would have been saved.
    #[serde(default)]
    pub saved: Saved,
    /// Give or take that, in 19 of 20 cases.
    #[serde(default)]
    pub within: Saved,
    /// By `best` from the start on.
    #[serde(default)]
    pub possible: Saved,
    /// How far ratings may be off.
    #[serde(default)]
    pub deviation: i64,
    pub presets: Vec<Rated>,
}

/// CPU time, and memory that did not stay, over time: negative where more stayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    pub cpu_ns: i64,
    pub mib_ms: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rated {
    pub name: String,
    pub rating: i64,
    /// What it would cost in a second: purges, faults, and the memory that it keeps, at the price of GOAL.
    #[serde(default)]
    pub cost_us: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    pub pid: Pid,
    pub command: String,
    /// The library's version.
    pub version: String,
    pub threads: u64,
    pub rss: u64,
    pub rss_peak: u64,
    pub minor_faults: u64,
    /// Milliseconds since the process began.
    pub age_ms: u64,
    /// Has it a thread that gives memory back while the others sleep?
    #[serde(default)]
    pub purger: bool,
    /// Did all of its threads sleep?
    #[serde(default)]
    pub asleep: bool,
}

/// A term of the sum.
pub struct Term {
    /// As in JSON and metrics.
    pub name: &'static str,
    pub label: &'static str,
    pub help: &'static str,
    pub bytes: i64,
}

macro_rules! terms {
    ($($name:ident, $label:literal, $help:literal;)*) => {
        /// As hak_stats_print has them. None is negative.
        #[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
        #[serde(default)] // a saved file may be older than a term
        pub struct Terms {
            $(pub $name: i64,)*
            pub total: i64,
            /// In no term: what blocks that the program holds would add to `live` if they were touched.
            pub untouched: i64,
            /// Rss of the region's mappings as smaps has it: `total` is to be within 2 % of it.
            pub mapped_rss: i64,
        }

        impl Terms {
            /// What the program holds, touched or not.
            pub fn held(&self) -> i64 {
                self.live.saturating_add(self.untouched)
            }

            /// Those that add up to the total.
            pub fn parts(&self) -> Vec<Term> {
                vec![$(Term { name: stringify!($name), label: $label, help: $help, bytes: self.$name },)*]
            }
        }
    };
}

include!("terms.rs");

/// A mapping, or several of the same name together, outside the region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mapping {
    /// "stacks", "heap of another malloc", "libc.so.6", "/path/file (mapped)", "anonymous" …
    pub name: String,
    pub rss: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    #[default]
    Tiny,
    Mid,
    Large,
    Huge,
    Secure,
}

/// All slabs of one class; large blocks, huge ones and large ones of secure mode as one class each, `block_bytes` 0.
/// `live`, `cached`, `free` and `untouched` are this class's part of the heap's figure of that name, so they add up to
/// it. `lazy` does not: LAZY slots are of no class.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Class {
    pub tier: Tier,
    pub block_bytes: u64,
    pub slabs: u64,
    pub live_blocks: u64,
    pub cached_blocks: u64,
    /// In slabs that also have live blocks, free and carved.
    pub free_blocks: u64,
    pub live: i64,
    pub untouched: i64,
    pub cached: i64,
    /// Resident pages of free blocks that the system may take.
    #[serde(default)]
    pub lazy: i64,
    /// Resident and neither live nor cached nor LAZY: free blocks, and what was not carved yet but is resident.
    pub free: i64,
    pub resident: u64,
    /// Slabs with free blocks that could be used at once.
    pub partly_used_slabs: u64,
    /// Resident bytes of whole pages without a live block, LAZY ones aside: what `hakmem purge` could give back of
    /// `free` at most. Of tiny classes an estimate from some of their slabs.
    pub free_pages: u64,
    /// Resident bytes that would come free if the program moved the blocks of sparse slabs (`hak_should_move`): an
    /// estimate.
    #[serde(default)]
    pub movable: u64,
    /// Resident bytes that would come free if sparse slabs shared pages (`HAKMEM_MESH=1`): an estimate. What moving
    /// gives back meshing cannot.
    #[serde(default)]
    pub meshable: u64,
    /// Since the process began, without blocks that wait in threads' lists. 0 of huge blocks and in secure
    /// mode.
    #[serde(default)]
    pub allocations: u64,
    /// The allocations that found no block in their thread's list or ring.
    #[serde(default)]
    pub misses: u64,
}

impl Class {
    /// How many of the blocks in its slabs the program holds.
    pub fn percent_full(&self) -> u64 {
        let all = self.live_blocks + self.cached_blocks + self.free_blocks;
        (100 * self.live_blocks + all / 2).checked_div(all).unwrap_or(0)
    }

    /// What is the same class in another snapshot.
    pub fn key(&self) -> (Tier, u64) {
        (self.tier, self.block_bytes)
    }
}

/// Those handed out so far, but those inside a huge block of which nothing is resident.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuperSlab {
    pub number: u64,
    pub address: u64,
    pub huge_page: bool,
    /// Number of the arena that has it; 0: the process.
    #[serde(default)]
    pub arena: u32,
    pub slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Unused,
    Lazy,
    Empty,
    Active,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Slot {
    pub state: State,
    /// Known of ACTIVE slots only.
    pub tier: Option<Tier>,
    pub block_bytes: u64,
    /// Blocks in the slab this slot belongs to, and how many are with the program or in caches.
    pub blocks: u32,
    pub used: u32,
    /// Heap that owns it or has it on loan; None: nobody, or a tier without owners.
    pub owner: Option<u32>,
    pub resident: u64,
    /// In the first slot of a span, its resident pages of free blocks that the system may take.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lazy: u64,
    /// Slots back to the first of its span.
    pub back: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ThreadHeap {
    pub number: u32,
    pub in_use: bool,
    /// In its lists, rings and outbox.
    pub cached: u64,
    /// Partly used ones that it owns or has on loan.
    pub owned_slabs: u32,
}

/// A heap that the program made (`hak_arena_new`). Its bytes are part of the terms.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Arena {
    pub number: u32,
    /// As the program named it, perhaps empty.
    pub name: String,
    /// Blocks that the program holds.
    pub live: u64,
    /// Slots in use, most of them so far, and how many there may be.
    pub used: u64,
    pub peak: u64,
    pub limit: Option<u64>,
    pub resident: u64,
    pub superslabs: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counter {
    pub name: String,
    pub help: String,
    pub value: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OptionValue {
    pub name: String,
    pub kind: String,
    pub value: String,
    pub default: String,
    pub live: bool,
    pub values: String,
    pub help: String,
}
