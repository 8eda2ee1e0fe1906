//! `hakmem completions` and `hakmem man`: made from the definition of the commands, so that they cannot fall behind.
// SPDX-License-Identifier: MIT

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::Shell;
use hakmem_base::files;
use hakmem_base::print;
use hakmem_base::scratch;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

#[derive(Args)]
pub struct CompletionOptions {
    /// The shell; it looks for completions in a place such as /etc/bash_completion.d/hakmem
    shell: Shell,
}

#[derive(Args)]
pub struct ManOptions {
    /// Write a page for each command into this directory, instead of showing hakmem(1), on a terminal by `man`
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

pub fn completions(options: &CompletionOptions, mut command: clap::Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut command, "hakmem", &mut text);
    print::bytes(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Has `man` shown the page? It looks for a pager itself.
fn is_shown_by(man: &str, page: &[u8]) -> Result<bool> {
    let place = scratch::directory("man")?;
    let path = place.path().join("page");
    scratch::file(&path)?.write_all(page)?;
    let status = Command::new(man).args(["-l", "-"]).stdin(fs::File::open(&path)?).status();
    Ok(status.is_ok_and(|status| status.success()))
}

pub fn pages(options: &ManOptions, command: clap::Command) -> Result<ExitCode> {
    match options.out.as_deref().filter(|path| !print::is_stdout(path)) {
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            let to_terminal = options.out.is_none() && std::io::stdout().is_terminal();
            if !to_terminal || !is_shown_by("man", &text)? {
                print::bytes(&text)?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a terminal shows the page's source although `man` is there, or nothing where it is not.
    #[test]
    fn a_page_is_shown_by_man_if_that_is_there() {
        assert!(is_shown_by("true", b"page").unwrap());
        assert!(!is_shown_by("false", &[b'x'; 1 << 20]).unwrap() && !is_shown_by("/none/such", b"").unwrap());
    }
}
