//! `hakmem options` and `hakmem set`: the options of a running program, by the library's own table.
// SPDX-License-Identifier: MIT

use crate::heap::named::{Named, NamedOwn};
use crate::heap::{OptionValue, Target};
use anyhow::{Context, Result};
use clap::Args;
use hakmem_base::preload;
use hakmem_base::print;
use hakmem_base::proc::Pid;
use hakmem_base::shown;
use hakmem_base::table::{self, Style};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ExitCode, Stdio};

#[derive(Args)]
pub struct Options {
    /// The process to read; without it, the options of a program started now are listed
    #[arg(value_name = "PID|NAME", value_parser = Named, allow_negative_numbers = true)]
    pid: Option<Pid>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The library to ask when no process is named
    #[arg(long, value_name = "LIB", env = "HAKMEM_LIBRARY")]
    hakmem: Option<PathBuf>,
}

#[derive(Args)]
pub struct Set {
    /// A process that runs HAKMEM; a NAME means a process of this user
    #[arg(value_name = "PID|NAME", value_parser = NamedOwn, allow_negative_numbers = true)]
    pid: Pid,
    /// NAME=VALUE, as in the environment, with or without HAKMEM_
    #[arg(value_name = "OPTION=VALUE", required = true)]
    settings: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn command(options: &Options) -> Result<ExitCode> {
    let values = match options.pid {
        Some(pid) => Target::attach(pid)?.read_settings()?,
        None => Probe::start(&preload::hakmem_preload(options.hakmem.as_deref())?)?.target()?.read_settings()?,
    };
    if options.json {
        print::json(&values)?;
    } else {
        print::text(&list(&values, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(values: &[OptionValue], style: Style) -> String {
    let rows = values.iter().map(|option| {
        let mark = if option.value == option.default { "" } else { "*" };
        let when = if option.live { "live" } else { "start" };
        [
            option.name.clone(),
            format!("{}{mark}", option.value),
            option.default.clone(),
            when.to_string(),
            option.values.clone(),
        ]
    });
    let mut text = table::plain(["option", "value", "default", "set", "values"], &rows.collect::<Vec<_>>(), style);
    text.push_str(
        "\n*: not the default. live: `hakmem set PID OPTION=VALUE` changes it; start: HAKMEM_OPTION=VALUE in the\n\
         environment does. In small letters: tunables. docs/options.md says more of both.\n",
    );
    text
}

pub fn set(options: &Set) -> Result<ExitCode> {
    let target = Target::attach(options.pid)?;
    let mut changes = Vec::new();
    let parts = |setting: &str| {
        let (name, value) = setting.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_string(), value.to_string()))
    };
    let settings = options.settings.iter();
    let settings = settings.map(|one| parts(one).with_context(|| format!("{one}: expected OPTION=VALUE")));
    let settings = settings.collect::<Result<Vec<_>>>()?;
    // All or nothing.
    settings.iter().try_for_each(|(name, value)| target.check_option(name, value))?;
    for (name, value) in &settings {
        let (name, before, after) = target.set_option(name, value)?;
        if !options.json {
            print::line(&format!("{name}: {} -> {}", shown::line(&before), shown::line(&after)))?;
        }
        changes.push(serde_json::json!({"option": name, "before": before, "after": after}));
    }
    if options.json {
        print::json(&changes)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A `cat` that runs under the library while the command reads it.
pub struct Probe(Child);

impl Probe {
    pub fn start(library: &str) -> Result<Probe> {
        let mut command = preload::under(library, "cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut probe = Probe(command.spawn().context("cat")?);
        // It is in its main function when it answers.
        let (input, output) = (probe.0.stdin.as_mut(), probe.0.stdout.as_mut());
        input.context("cat")?.write_all(b"\n").context("cat")?;
        output.context("cat")?.read_exact(&mut [0]).context("cat does not run under the library")?;
        Ok(probe)
    }

    pub fn target(&self) -> Result<Target> {
        Target::attach(self.0.id() as Pid)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}
