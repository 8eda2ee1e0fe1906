//! `hakmem what`: tells from their contents what the live blocks are, including those allocated before anybody looked.
// SPDX-License-Identifier: MIT

use crate::contents::{Contents, Tally};
use crate::heap::named::{NamedOrCore, Subject};
use crate::heap::{patience, Target};
use crate::profile::read::NAMING;
use crate::profile::text::table;
use crate::profile::Symbols;
use anyhow::Result;
use hakmem_base::print;
use hakmem_base::say;
use hakmem_base::shown;
use hakmem_base::table::{count, size, Style};
use serde::Serialize;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Options {
    /// A process that runs HAKMEM, or a core file of one
    #[arg(value_name = "PID|NAME|CORE", value_parser = NamedOrCore, allow_negative_numbers = true)]
    subject: Subject,
    /// Maximum number of kinds
    #[arg(long, value_name = "N", default_value_t = 25)]
    top: usize,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    symbols: Symbols,
}

#[derive(Serialize)]
struct Histogram {
    process: String,
    pid: i32,
    blocks: u64,
    bytes: u64,
    kinds: Vec<Tally>,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let target = Target::open_within(&options.subject, NAMING)?;
    let (blocks, mut copied) = target.blocks()?;
    let (remote, directories) = (target.remote(), options.symbols.debug_directory.clone());
    let kinds = patience::within(remote.pid, NAMING, move || {
        let mut contents = Contents::new(target.remote(), &directories, false)?;
        blocks.live().for_each(|block| contents.add(&block, None, &blocks, &mut copied));
        Ok(contents.tallies())
    })?;
    let sum = |of: fn(&Tally) -> u64| kinds.iter().map(of).sum();
    let (blocks, bytes) = (sum(|kind| kind.blocks), sum(|kind| kind.bytes));
    let histogram = Histogram { process: remote.program(), pid: remote.pid, blocks, bytes, kinds };
    if options.json {
        print::json(&histogram)?;
    } else {
        print::text(&text(&histogram, options.top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(histogram: &Histogram, top: usize, style: Style) -> String {
    let Histogram { process, pid, blocks, bytes, kinds } = histogram;
    let row = |kind: &Tally| {
        let example = kind.examples.first().cloned().unwrap_or_default();
        (vec![size(kind.bytes), count(kind.blocks), kind.sizes(), example, kind.described()], String::new())
    };
    let rows: Vec<_> = kinds.iter().take(top).map(row).collect();
    let mut text = format!(
        "{} (process {pid}): {} live blocks, {}, by what is in them\n\n{}",
        shown::line(process),
        count(*blocks),
        size(*bytes),
        table(&["bytes", "blocks", "of", "for example", "what"], &rows, style)
    );
    if kinds.len() > top {
        text += &format!("and {} more (--top N)\n", say::count(kinds.len() - top, "kind"));
    }
    text
}
