//! What the commands share: what they ask of the system (proc.rs, signals.rs, elf.rs, preload.rs), the files they read
//! and write (files.rs, scratch.rs), what they print (print.rs, shown.rs, table.rs, say.rs), and their pages (page.rs).
// SPDX-License-Identifier: MIT

// They panic when nobody reads: print.rs does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod elf;
pub mod files;
pub mod page;
pub mod preload;
pub mod print;
pub mod proc;
pub mod say;
pub mod scratch;
pub mod shown;
pub mod signals;
pub mod table;
