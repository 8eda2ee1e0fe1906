//! Libraries that are preloaded, and programs run under them.
// SPDX-License-Identifier: MIT

use anyhow::{ensure, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of this command; programs do not get them, where the library would take them for options.
pub const OWN_VARIABLES: [&str; 2] = ["HAKMEM_LIBRARY", "HAKMEM_PEERS"];
/// The library in the build tree or with a development package, and without one.
const LIBRARY_NAMES: [&str; 2] = ["libhakmem.so", "libhakmem.so.0"];

/// The path as LD_PRELOAD takes it: absolute, without symbolic links, so that it is found in maps again.
pub fn preloadable(path: &Path) -> Result<String> {
    let real = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let text = real.to_str().with_context(|| format!("{}: its path is not UTF-8", path.display()))?;
    ensure!(real.is_file(), "{text}: not a file");
    ensure!(!text.contains([' ', ':', '\t', '\n']), "{text:?}: a path with a space or colon cannot be preloaded");
    Ok(text.to_string())
}

/// A program to be run under the library, before anything else that is preloaded.
pub fn under(library: &str, program: &str) -> Command {
    let mut command = Command::new(program);
    let before = std::env::var("LD_PRELOAD").ok().filter(|text| !text.is_empty());
    command.env("LD_PRELOAD", before.map_or(library.to_string(), |before| format!("{library}:{before}")));
    for name in OWN_VARIABLES {
        command.env_remove(name);
    }
    command
}

/// The library as LD_PRELOAD takes it.
pub fn hakmem_preload(named: Option<&Path>) -> Result<String> {
    let library = hakmem_library(named)?.context("no libhakmem.so found; name one with --hakmem LIB")?;
    preloadable(&library)
}

/// The one named, else the one beside this program or installed.
pub fn hakmem_library(named: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = named {
        ensure!(path.is_file(), "{}: there is no such library", path.display());
        return Ok(Some(path.to_path_buf()));
    }
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_path_buf()));
    let multiarch = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    let places = ["", "../lib", "../lib64", &multiarch].map(PathBuf::from);
    let near = beside.iter().flat_map(|bin| places.iter().map(|place| bin.join(place)));
    let found = near.flat_map(|place| LIBRARY_NAMES.map(|name| place.join(name))).find(|path| path.is_file());
    Ok(found.or_else(|| LIBRARY_NAMES.into_iter().find_map(library_find)))
}

fn library_directories() -> Vec<PathBuf> {
    let machine = std::env::consts::ARCH;
    let usual = ["/usr/local/lib", "/usr/lib", "/lib", "/usr/lib64", "/lib64"].map(PathBuf::from);
    let multiarch =
        ["/usr/local/lib", "/usr/lib", "/lib"].map(|lib| PathBuf::from(format!("{lib}/{machine}-linux-gnu")));
    let listed = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let configured = listed.chain([PathBuf::from("/etc/ld.so.conf")]).filter_map(|path| fs::read_to_string(path).ok());
    let named: Vec<PathBuf> = configured
        .flat_map(|text| text.lines().filter(|line| line.starts_with('/')).map(PathBuf::from).collect::<Vec<_>>())
        .collect();
    multiarch.into_iter().chain(usual).chain(named).collect()
}

/// In the directories of the dynamic linker.
pub fn library_find(file: &str) -> Option<PathBuf> {
    library_directories().into_iter().map(|directory| directory.join(file)).find(|path| path.is_file())
}
