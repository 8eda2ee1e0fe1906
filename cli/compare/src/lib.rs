//! `compare` measures a program under several allocators, `report` draws what was measured, `tune` searches HAKMEM's
//! options and tunables for a program (tune.rs), and `save` says what HAKMEM would save in money (save.rs).
//!
//! `compare` goes: options (compare.rs) → allocators (allocator.rs) and workloads (suite.rs) → runs in interleaved
//! rounds (measure.rs), each started and watched by launch.rs and, with --tax, sampled by tax.rs or, with --area,
//! priced by area.rs → medians, ratios and verdicts (statistics.rs) → one `results::Comparison`, which terminal.rs
//! prints and report.rs draws. Memory over time is drawn by over_time.rs, for both.
// SPDX-License-Identifier: MIT

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod allocator;
mod area;
pub mod compare;
pub mod launch;
mod machine;
mod measure;
mod output;
mod over_time;
mod progress;
pub mod report;
pub mod results;
pub mod save;
mod statistics;
mod suite;
mod tax;
mod terminal;
pub mod tune;
