//! Which allocators there are: the system's, HAKMEM, those of a peers file, those installed, and those named by --with.
//!
//! An allocator is what is preloaded for it. Names are unique, and a library is listed once: what the peers file says
//! wins over what is found in the system's directories.
// SPDX-License-Identifier: MIT

use crate::results::{Allocator, Missing};
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::preload::{hakmem_library, library_find, preloadable};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const SYSTEM: &str = "system";
pub const HAKMEM: &str = "hakmem";

/// What distributions install. "-" stands for the distribution's name; of several files in a row any one will do.
const INSTALLED: [(&str, &[&str]); 8] = [
    ("jemalloc-", &["libjemalloc.so.2"]),
    ("gperftools", &["libtcmalloc_minimal.so.4"]),
    ("mimalloc2-", &["libmimalloc.so.2"]),
    ("mimalloc3-", &["libmimalloc.so.3"]),
    ("tbbmalloc", &["libtbbmalloc.so.2", "libtbbmalloc_proxy.so.2"]),
    ("snmalloc", &["libsnmallocshim.so"]),
    ("snmalloc-checks", &["libsnmallocshim-checks.so"]),
    ("rpmalloc-", &["librpmalloc.so.1"]),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeersFile {
    #[serde(default)]
    allocator: Vec<Peer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Peer {
    name: String,
    #[serde(default)]
    version: String,
    /// The day on which it was obtained.
    #[serde(default)]
    taken: Option<String>,
    libraries: Vec<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    tags: Vec<String>,
}

/// Where to look.
#[derive(Debug, Default)]
pub struct Sources {
    pub hakmem: Option<PathBuf>,
    pub peers: Option<PathBuf>,
    /// NAME=LIB.so or NAME=A.so:B.so
    pub with: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Found {
    pub allocators: Vec<Allocator>,
    pub missing: Vec<Missing>,
}

pub fn find(sources: &Sources) -> Result<Found> {
    let mut found = Found::default();
    found.add(allocator(SYSTEM, Vec::new()));
    match hakmem_library(sources.hakmem.as_deref())? {
        Some(library) => found.add(allocator(HAKMEM, vec![preloadable(&library)?])),
        None => found.miss(HAKMEM, "no libhakmem.so found; name one with --hakmem LIB"),
    }
    for text in &sources.with {
        found.add_with(text)?;
    }
    if let Some(path) = &sources.peers {
        found.add_peers(path)?;
    }
    found.add_installed();
    Ok(found)
}

fn allocator(name: &str, libraries: Vec<String>) -> Allocator {
    let (name, version) = (name.to_string(), String::new());
    Allocator { name, version, libraries, environment: BTreeMap::new(), tags: Vec::new() }
}

impl Found {
    /// Unless its name or its library is there already.
    fn add(&mut self, new: Allocator) {
        let same = |old: &Allocator| old.name == new.name || old.libraries == new.libraries;
        if !self.allocators.iter().any(same) {
            self.allocators.push(new);
        }
    }

    fn miss(&mut self, name: &str, reason: impl ToString) {
        self.missing.push(Missing { name: name.to_string(), reason: reason.to_string() });
    }

    fn add_with(&mut self, text: &str) -> Result<()> {
        let (name, libraries) =
            text.split_once('=').with_context(|| format!("--with {text}: expected NAME=LIBRARY"))?;
        ensure!(!name.is_empty(), "--with {text}: expected NAME=LIBRARY");
        ensure!(name != SYSTEM, "--with {text}: {SYSTEM} is the name of what runs without a preload");
        ensure!(!libraries.is_empty(), "--with {text}: expected NAME=LIBRARY");
        let libraries = libraries.split(':').map(|library| preloadable(Path::new(library)));
        let libraries: Vec<String> = libraries.collect::<Result<_>>().with_context(|| format!("--with {text}"))?;
        // A name that is given wins over one that is found, and one library may be measured under several names.
        let new = allocator(name, libraries);
        match self.allocators.iter_mut().find(|old| old.name == name) {
            Some(old) if name == HAKMEM => *old = new,
            Some(_) => bail!("--with {text}: there is already one named {name}"),
            None => self.allocators.push(new),
        }
        self.missing.retain(|missing| missing.name != name);
        Ok(())
    }

    fn add_peers(&mut self, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| format!("the peers file {}", path.display()))?;
        let file: PeersFile = toml::from_str(&text).map_err(|error| {
            let line = text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1;
            anyhow::anyhow!("{}:{line}: {}", path.display(), error.message().replace('\n', " "))
        })?;
        for peer in file.allocator {
            let place = |library: &PathBuf| preloadable(&path.parent().unwrap_or(Path::new(".")).join(library));
            match peer.libraries.iter().map(place).collect::<Result<Vec<_>>>() {
                Ok(libraries) if !libraries.is_empty() => self.add(Allocator {
                    name: peer.name,
                    version: peer.version + &peer.taken.map_or(String::new(), |day| format!(", taken {day}")),
                    libraries,
                    environment: peer.environment,
                    tags: peer.tags,
                }),
                Ok(_) => self.miss(&peer.name, "the peers file names no library"),
                Err(error) => self.miss(&peer.name, format!("{error:#}")),
            }
        }
        Ok(())
    }

    fn add_installed(&mut self) {
        let distribution = distribution();
        let scudo = scudo_library().map(|path| ("scudo".to_string(), vec![path]));
        let libraries = INSTALLED.iter().map(|(name, files)| {
            let name = if name.ends_with('-') { format!("{name}{distribution}") } else { name.to_string() };
            (name, files.iter().filter_map(|file| library_find(file)).collect::<Vec<_>>(), files.len())
        });
        let whole = libraries.filter(|(_, paths, count)| paths.len() == *count).map(|(name, paths, _)| (name, paths));
        for (name, paths) in whole.chain(scudo) {
            if let Ok(libraries) = paths.iter().map(|path| preloadable(path)).collect::<Result<Vec<_>>>() {
                self.add(allocator(&name, libraries));
            }
        }
    }

    /// Looks for versions that are not known. To be done for those that are measured: it takes a while.
    pub fn find_versions(&mut self) {
        for one in self.allocators.iter_mut().filter(|one| one.version.is_empty()) {
            one.version = match one.libraries.first() {
                None => system_version(),
                Some(library) if one.name == HAKMEM => hakmem_version(library).unwrap_or_default(),
                Some(library) => package_version(library).unwrap_or(file_version(library)),
            };
        }
    }

    /// Keeps those named, or all but those named.
    pub fn select(&mut self, only: &[String], without: &[String]) -> Result<()> {
        for name in only.iter().chain(without) {
            if let Some(missing) = self.missing.iter().find(|missing| missing.name == *name) {
                bail!("{name}: {}", missing.reason);
            }
            if !self.allocators.iter().any(|allocator| allocator.name == *name) {
                let known: Vec<&str> = self.allocators.iter().map(|allocator| allocator.name.as_str()).collect();
                bail!("{name}: no such allocator; there are {}", known.join(", "));
            }
        }
        self.allocators.retain(|one| (only.is_empty() || only.contains(&one.name)) && !without.contains(&one.name));
        self.missing.retain(|_| only.is_empty());
        Ok(())
    }
}

// ---- files ----

/// The newest clang's scudo; clang keeps it in a directory of its own.
fn scudo_library() -> Option<PathBuf> {
    let file = format!("libclang_rt.scudo_standalone-{}.so", std::env::consts::ARCH);
    let children = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let llvm = children("/usr/lib".into()).filter(|path| path.to_string_lossy().starts_with("/usr/lib/llvm-"));
    let clang = llvm.map(|path| path.join("lib/clang")).chain([PathBuf::from("/usr/lib/clang")]);
    let versions =
        clang.flat_map(children).map(|path| path.join("lib/linux").join(&file)).filter(|path| path.is_file());
    let number = |path: &PathBuf| {
        let version = path.ancestors().nth(3)?.file_name()?.to_str()?;
        version.split('.').next()?.parse::<u32>().ok()
    };
    versions.max_by_key(number)
}

// ---- versions ----

/// What a command prints, if it succeeds.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_string())
}

fn system_version() -> String {
    answer(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default()
}

/// HAKMEM tells it in the statistics of any program.
fn hakmem_version(library: &str) -> Option<String> {
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", fs::canonicalize(library).ok()?).env("HAKMEM_STATS", "json");
    let output = command.env_remove("HAKMEM_STATS_FILE").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let value: serde_json::Value = serde_json::from_str(text.lines().find(|line| line.starts_with('{'))?).ok()?;
    Some(value.get("version")?.as_str()?.to_string())
}

/// The version of the Debian package that owns the file.
fn package_version(path: &str) -> Option<String> {
    let name = Path::new(path).file_name()?.to_str()?;
    let owners = answer(Command::new("dpkg-query").args(["-S", &format!("*/{name}")]))?;
    let same = |line: &&str| {
        line.split_once(": ").is_some_and(|(_, file)| fs::canonicalize(file).is_ok_and(|file| file == Path::new(path)))
    };
    let package = owners.lines().find(same)?.split_once(": ")?.0;
    answer(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))
}

/// "1.2.3" of "lib.so.1.2.3"; nothing if it is the number of an interface only.
fn file_version(path: &str) -> String {
    let version = path.rsplit_once(".so.").map_or("", |(_, version)| version);
    if version.contains('.') {
        version.to_string()
    } else {
        String::new()
    }
}

/// "debian" on Debian.
fn distribution() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("system");
    id.trim_matches('"').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(found: &Found) -> Vec<&str> {
        found.allocators.iter().map(|allocator| allocator.name.as_str()).collect()
    }

    #[test]
    fn what_is_named_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["libhakmem.so", "liba.so.1.2", "libb.so"] {
            fs::write(path(name), "").unwrap();
        }
        let peers = "[[allocator]]\nname = \"peer\"\nversion = \"3\"\ntaken = \"2026-11-26\"\n\
            libraries = [\"libb.so\", \"liba.so.1.2\"]\nenvironment = { X = \"1\" }\n\
            [[allocator]]\nname = \"gone\"\nlibraries = [\"libgone.so\"]\n";
        fs::write(path("peers.toml"), peers).unwrap();
        let with = format!("mine={}", path("liba.so.1.2").display());
        let sources = Sources { hakmem: Some(path("libhakmem.so")), peers: Some(path("peers.toml")), with: vec![with] };
        let mut found = find(&sources).unwrap();
        found.find_versions();
        assert_eq!(names(&found)[..4], [SYSTEM, HAKMEM, "mine", "peer"]);
        let versions = (found.allocators[2].version.as_str(), found.allocators[3].version.as_str());
        assert_eq!(versions, ("1.2", "3, taken 2026-11-26"));
        assert_eq!((found.allocators[3].libraries.len(), &found.allocators[3].environment["X"][..]), (2, "1"));
        assert!(found.missing.iter().any(|missing| missing.name == "gone" && missing.reason.contains("libgone.so")));

        let text = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let error = found.select(&text(&["pear"]), &[]).unwrap_err().to_string();
        assert!(error.contains("pear: no such allocator") && error.contains("system, hakmem, mine, peer"), "{error}");
        found.select(&text(&["peer", SYSTEM]), &[]).unwrap();
        assert_eq!(names(&found), [SYSTEM, "peer"]);
    }

    #[test]
    fn wrong_names_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let spaced = directory.path().join("a b.so");
        fs::write(&spaced, "").unwrap();
        let with = |text: &str| {
            let sources = Sources { with: vec![text.to_string()], ..Sources::default() };
            format!("{:#}", find(&sources).unwrap_err())
        };
        assert!(with(&format!("x={}", spaced.display())).contains("a path with a space"));
        assert!(with("x=/nowhere/lib.so").contains("No such file"));
        assert!(with("lib.so").contains("NAME=LIBRARY") && with("system=/x.so").contains("without a preload"));
        fs::write(directory.path().join("peers.toml"), "[[allocator]]\nname = \"x\"\nlibs = []\n").unwrap();
        let sources = Sources { peers: Some(directory.path().join("peers.toml")), ..Sources::default() };
        assert!(format!("{:#}", find(&sources).unwrap_err()).contains("peers.toml:3: "));
    }

    #[test]
    fn file_versions() {
        assert_eq!((file_version("/lib/libx.so.1.2.3"), file_version("/lib/libx.so.2")), ("1.2.3".into(), "".into()));
        assert_eq!(file_version("/lib/libx.so"), "");
    }
}
