//! The heap of another process: found, read and steered from outside, without its help.
//!
//!  1. finding.rs finds the ELF note that src/observe/inspect.h describes, among what the process has mapped.
//!  2. layout.rs reads where the fields of the C structs lie, so that nothing here knows their layout.
//!  3. reader.rs takes a `Snapshot` (model.rs): all slab records in bulk, with the kernel's word on which pages are
//!     resident (residency.rs), counted as src/observe/stats.c does (spans.rs); what is resident besides is named by
//!     rest.rs. meshing.rs estimates what slabs could share.
//!  4. steer.rs sets options and asks for a purge, by one word each; tuned.rs sets tunables, ace.rs says how presets
//!     are rated. rows.rs has the library's tables of options.
//!  5. samples.rs reads the tables of the heap profile and switches it.
//!  6. target.rs is what the commands see. It limits the time of each question (patience.rs). named.rs finds the
//!     process that a PID or a name on the command line means, or the core file (core.rs), which is read as the process
//!     that it was.
//!  7. blocks.rs tells live blocks one by one. reach.rs finds those that nothing points to, in a process that
//!     stopped.rs stops.
//!
//! The process runs on meanwhile, and may be hostile: every value may be torn, old or a lie. layout.rs checks the
//! tables of facts, once; every walk is bounded, every index checked, and no table is read whole that the process
//! sizes.
// SPDX-License-Identifier: MIT

mod ace;
pub mod advice;
pub mod area;
pub mod blocks;
pub mod core;
pub mod finding;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod image;
pub mod layout;
mod ledger;
mod meshing;
pub mod model;
pub mod named;
pub mod patience;
pub mod reach;
mod reader;
pub mod remote;
pub mod residency;
pub mod rest;
pub mod rows;
pub mod samples;
pub mod spans;
pub mod steer;
mod stopped;
mod target;
mod tuned;

pub use model::*;
pub use target::{Target, SWITCHED_OFF};
