//! `hakmem completions` and `hakmem man`: made from the definition of the commands, so that they cannot fall behind.
// SPDX-License-Identifier: MIT

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use hakmem_base::files;
use hakmem_base::print;
use hakmem_base::scratch;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct CompletionOptions {
    /// The shell; it looks for completions in a place such as /etc/bash_completion.d/hakmem
    shell: Shell,
}

#[derive(Args)]
pub struct ManOptions {
    /// Write a page for each command into this directory, instead of showing hakmem(1)
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

pub fn completions(options: &CompletionOptions, mut command: Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut command, "hakmem", &mut text);
    print::bytes(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn pages(options: &ManOptions, command: Command) -> Result<ExitCode> {
    match options.out.as_deref().filter(|path| !print::is_stdout(path)) {
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            print::bytes(&text)?;
        }
        Some(directory) => {
            let failed = || format!("cannot write to {}", directory.display());
            fs::create_dir_all(directory).with_context(failed)?;
            let scratch = scratch::directory("man")?;
            clap_mangen::generate_to(command, &scratch)?;
            for page in fs::read_dir(&scratch)? {
                let page = page?;
                files::publish(&directory.join(page.file_name()), fs::read(page.path())?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
