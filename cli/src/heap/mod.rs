//! The heap of another process: found, read and steered from outside, without its help.
//!
//!  1. finding.rs finds the ELF note that src/inspect.h describes, among what the process has mapped.
//!  2. layout.rs reads where the fields of the C structs lie, so that nothing here knows their layout.
//!  3. reader.rs takes a `Snapshot` (model.rs): all slab records in bulk, with the kernel's word on which pages are
//!     resident (residency.rs), counted as src/stats.c does (spans.rs); what is resident besides is named by rest.rs.
//!  4. steer.rs sets options and asks for a purge, by one word each.
//!
//! The process runs on meanwhile: every value may be torn or old, so every walk is bounded and every index checked.

pub mod advice;
pub mod finding;
pub mod layout;
pub mod model;
pub mod reader;
pub mod remote;
pub mod residency;
pub mod rest;
pub mod spans;
pub mod steer;

pub use model::*;
pub use reader::Target;
