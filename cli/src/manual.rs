//! `hakmem completions` and `hakmem man`: made from the definition of the commands, so that they cannot fall behind.

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct CompletionOptions {
    /// The shell they are for: put them where it looks, e.g. /etc/bash_completion.d/hakmem
    shell: Shell,
}

#[derive(Args)]
pub struct ManOptions {
    /// Writes a page for each command into this directory, instead of hakmem(1) to the terminal
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

pub fn completions(options: &CompletionOptions, mut command: Command) -> Result<ExitCode> {
    clap_complete::generate(options.shell, &mut command, "hakmem", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}

pub fn pages(options: &ManOptions, command: Command) -> Result<ExitCode> {
    match &options.out {
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(command, directory))
                .with_context(|| format!("cannot write to {}", directory.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
