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
use hakmem_base::table::{self, cell_of, Column, Style};
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
    let value = |option: &OptionValue| {
        let mark = if option.value == option.default { "" } else { "*" };
        format!("{}{mark}", option.value)
    };
    let cells = |text: &dyn Fn(&OptionValue) -> String| values.iter().map(|option| cell_of(&text(option))).collect();
    let when = |option: &OptionValue| if option.live { "live" } else { "start" }.to_string();
    let columns = vec![
        Column::new("option", 0, cells(&|option| option.name.clone())),
        Column::new("value", 0, cells(&value)),
        Column::new("default", 2, cells(&|option| option.default.clone())),
        Column::words("set", 0, cells(&when)),
        Column::words("values", 1, cells(&|option| option.values.clone())),
    ];
    let mut text = table::table(columns, style);
    text.push_str(
        "\n\n*: not the default. live: `hakmem set PID OPTION=VALUE` changes it; start: HAKMEM_OPTION=VALUE in the\n\
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a file's long name, or a tunable's values for many classes, breaks all lines of the table.
    #[test]
    fn words_begin_in_one_column_and_long_values_cost_others() {
        let option = |name: &str, value: &str, values: &str| OptionValue {
            name: name.into(),
            value: value.into(),
            values: values.into(),
            live: true,
            ..OptionValue::default()
        };
        let mut all = vec![option("PURGE", "auto", "never|lazy"), option("refill_percent", "50", "1 to 100 percent")];
        let lines = |all: &[OptionValue]| -> Vec<String> {
            list(all, Style { color: false, width: 80 }).lines().take(3).map(str::to_string).collect()
        };
        let begins = |line: &str, word: &str| line.find(word).unwrap_or_else(|| panic!("no {word} in {line}"));
        let table = lines(&all);
        let column = begins(&table[0], "values");
        assert_eq!((begins(&table[1], "never|"), begins(&table[2], "1 to 100")), (column, column), "{table:#?}");
        all[0].value = "/a/long/name".repeat(4);
        let table = lines(&all);
        assert!(table.iter().all(|line| line.chars().count() <= 80), "{table:#?}");
        assert!(table[0].contains("set") && !table[0].contains("default"), "{table:#?}");
    }
}
