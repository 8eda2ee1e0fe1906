//! Names for addresses, from files alone: nothing of the process is needed, it may be gone.
//!
//! 1. A module's file is taken if its build id is the one that was mapped. origin.rs says which files are opened.
//! 2. Its debug file: DIRECTORY/.build-id/xx/yyy.debug, or the one named by .gnu_debuglink beside it, in .debug, or
//!    below DIRECTORY; itself, if it was not stripped; or what `debuginfod-find` fetches, if DEBUGINFOD_URLS names
//!    servers.
//! 3. All of them are read by a process that has nothing to lose (child.rs), which answers with names (parser.rs). Here
//!    they are opened, and no byte of them is read.
// SPDX-License-Identifier: MIT

mod child;
mod jit;
mod origin;
mod parser;

use crate::budget;
use child::{Answer, Child, Question};
use hakmem_base::files;
use parser::{About, Segments};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use child::{run as run_child, ARGUMENT as CHILD};
pub use origin::Origin;
pub use parser::Variable;

/// A mapped file with code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Module {
    pub start: u64,
    pub end: u64,
    /// Where in the file `start` is.
    pub offset: u64,
    pub path: String,
    /// In hexadecimal digits; empty: it has none.
    pub build_id: String,
}

impl Module {
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    pub function: String,
    /// Empty: not known.
    pub file: String,
    pub line: u64,
}

/// Where servers with debug files are, as all tools know it.
pub const DEBUGINFOD: &str = "DEBUGINFOD_URLS";
/// The largest file with symbols that is read.
const FILE_MAX: u64 = 2 << 30;
/// Addresses in one question.
const QUESTION: usize = 1 << 16;

/// Names of code that was made at run time, from what is in these files, by the number of an address.
pub fn code(origin: &Origin, file: &File, addresses: &[u64]) -> Vec<(usize, Frame)> {
    let asked =
        Child::start(&origin.failures).and_then(|mut child| child.ask(&Question::Code(addresses.to_vec()), Some(file)));
    match asked {
        Some(Answer::Code(names)) => names,
        _ => Vec::new(),
    }
}

/// Demangles names that the program has in its memory.
pub struct Demangler(Option<Child>);

impl Demangler {
    pub fn new(origin: &Origin) -> Demangler {
        Demangler(Child::start(&origin.failures))
    }

    /// As it is, if it cannot be told.
    pub fn demangled(&mut self, name: &str) -> String {
        let question = Question::Demangled(vec![name.to_string()]);
        match self.0.as_mut().and_then(|child| child.ask(&question, None)) {
            Some(Answer::Demangled(names)) => names.into_iter().next(),
            _ => None,
        }
        .unwrap_or_else(|| name.to_string())
    }
}

/// What the files of one module say.
pub struct Names {
    pub linked: Linked,
    child: Child,
}

fn is_small(file: &File) -> bool {
    file.metadata().is_ok_and(|data| data.len() <= FILE_MAX)
}

/// DIRECTORY/.build-id/xx/yyy.debug
pub fn by_build_id(directory: &Path, id: &str) -> Option<PathBuf> {
    (id.bytes().all(|digit| digit.is_ascii_hexdigit()) && id.len() > 2)
        .then(|| directory.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..])))
}

pub fn debuginfod_is_on() -> bool {
    std::env::var_os(DEBUGINFOD).is_some_and(|servers| !servers.is_empty())
}

/// The debug file that the servers have, which debuginfod's own tool fetches once and keeps.
fn fetched(id: &str) -> Option<File> {
    let is_id = !id.is_empty() && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_id || !debuginfod_is_on() {
        return None;
    }
    let mut find = Command::new("debuginfod-find");
    find.args(["debuginfo", id]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (mut find, begun) = (find.spawn().ok()?, Instant::now());
    while matches!(find.try_wait(), Ok(None)) {
        if begun.elapsed() > budget::FETCHED.time {
            let _ = find.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let found = find.wait_with_output().ok()?; // a path, which fits into the pipe
    let path = String::from_utf8_lossy(found.stdout.trim_ascii()).into_owned();
    files::open_regular(Path::new(&path)).ok()
}

/// Where a file may be that others have to be looked for: a module's, and its path in the program.
struct Search<'a> {
    origin: &'a Origin,
    path: &'a Path,
    child: Child,
}

impl Search<'_> {
    fn ask(&mut self, question: Question, file: &File) -> Option<About> {
        match is_small(file).then(|| self.child.ask(&question, Some(file)))?? {
            Answer::Module(about) | Answer::Fits(about) => about,
            _ => None,
        }
    }

    /// Gives the child the debug file, and says where that is.
    fn debug(&mut self, about: &About, fetch: bool) -> Option<(About, PathBuf)> {
        let (origin, id) = (self.origin, &about.build_id);
        let by_id = || Question::Debug { build_id: id.clone(), sum: None };
        for path in origin.directories.iter().filter_map(|directory| by_build_id(directory, id)) {
            if let Some(debug) = origin.in_directories(&path).and_then(|file| self.ask(by_id(), &file)) {
                return Some((debug, path));
            }
        }
        if let Some((name, sum)) = about.link.as_ref().filter(|(name, _)| !name.contains('/')) {
            let beside = self.path.parent()?;
            let below = |directory: &PathBuf| directory.join(beside.strip_prefix("/").unwrap_or(beside)).join(name);
            let near = [beside.join(name), beside.join(".debug").join(name)].map(|path| (origin.beside(&path), path));
            let far = origin.directories.iter().map(below).map(|path| (origin.in_directories(&path), path));
            for (file, path) in near.into_iter().chain(far) {
                let question = Question::Debug { build_id: String::new(), sum: Some(*sum) };
                if let Some(debug) = file.and_then(|file| self.ask(question, &file)) {
                    return Some((debug, path));
                }
            }
        }
        let debug = fetch.then(|| fetched(id)).flatten().and_then(|file| self.ask(by_id(), &file))?;
        Some((debug, PathBuf::new()))
    }

    /// Gives the child what several debug files have in common.
    fn shared(&mut self, about: &About, path: &Path) {
        let Some((link, id)) = &about.shared else { return };
        let beside = path.parent().map(|directory| directory.join(link));
        let by_id = self.origin.directories.iter().filter_map(|directory| by_build_id(directory, id));
        for path in beside.into_iter().chain(by_id) {
            let question = Question::Shared { build_id: id.clone() };
            if self.origin.in_directories(&path).and_then(|file| self.ask(question, &file)).is_some() {
                return;
            }
        }
    }
}

/// Where the code of a module is linked to.
pub struct Linked {
    pub build_id: String,
    segments: Segments,
}

impl Linked {
    pub fn of(origin: &Origin, module: &Module) -> Option<Linked> {
        let file = origin.module(module)?;
        let mut search = Search { origin, path: Path::new(&module.path), child: Child::start(&origin.failures)? };
        let About { build_id, segments, .. } = search.ask(Question::Module, &file)?;
        Some(Linked { build_id, segments })
    }

    /// The address that an offset of the file is linked to.
    pub fn linked(&self, offset: u64) -> Option<u64> {
        let inside = |&&(start, bytes, _): &&(u64, u64, u64)| offset >= start && offset - start < bytes;
        self.segments.iter().find(inside).map(|(start, _, linked)| (offset - start).wrapping_add(*linked))
    }
}

impl Names {
    /// Did the file take too much of the child?
    pub fn have_failed(&self) -> bool {
        self.child.has_failed()
    }

    /// The functions of a module.
    pub fn open(origin: &Origin, module: &Module) -> Option<Names> {
        Names::of_file(origin, &origin.module(module)?, Path::new(&module.path), Question::Functions)
    }

    /// Its functions and variables, without lines.
    pub fn open_variables(origin: &Origin, module: &Module) -> Option<Names> {
        Names::of_file(origin, &origin.module(module)?, Path::new(&module.path), Question::Variables)
    }

    /// `path`: its name for the program.
    fn of_file(origin: &Origin, file: &File, path: &Path, wanted: Question) -> Option<Names> {
        if origin.obstacle().is_some() {
            return None;
        }
        let mut search = Search { origin, path, child: Child::start(&origin.failures)? };
        let about = search.ask(Question::Module, file)?;
        let is_functions = matches!(wanted, Question::Functions);
        if is_functions && about.has_dwarf {
            search.shared(&about, path);
        } else if let Some((debug, path)) = search.debug(&about, is_functions) {
            search.shared(&debug, &path);
        }
        let mut child = search.child;
        child.tell(&wanted);
        Some(Names { linked: Linked { build_id: about.build_id, segments: about.segments }, child })
    }

    /// Those of the file at a path of this machine, or of its debug file.
    pub fn of_path(origin: &Origin, path: &Path, build_id: &str) -> Option<Names> {
        let module = Module { path: path.to_string_lossy().into_owned(), ..Module::default() };
        let fits = |names: &Names| build_id.is_empty() || names.linked.build_id == build_id;
        let debug = || {
            let by_id = origin.directories.iter().filter_map(|directory| by_build_id(directory, build_id));
            let mut files = by_id.filter_map(|path| origin.in_directories(&path));
            files.find_map(|file| Names::of_file(origin, &file, path, Question::Functions).filter(fits))
        };
        Names::open(origin, &module).filter(fits).or_else(debug)
    }

    /// The functions at addresses that they are linked to, the inmost first.
    pub fn at(&mut self, origin: &Origin, addresses: &[u64]) -> Vec<Vec<Frame>> {
        let mut all = Vec::new();
        let split = |path: &Path| origin.beside(path).filter(is_small);
        for some in addresses.chunks(QUESTION) {
            match self.child.ask_with(&Question::At(some.to_vec()), None, &split) {
                Some(Answer::Functions(frames)) => all.extend(frames),
                _ => break,
            }
        }
        all
    }

    /// The symbol that covers this offset of the file.
    pub fn variable(&mut self, offset: u64) -> Option<Variable> {
        let address = self.linked.linked(offset)?;
        match self.child.ask(&Question::At(vec![address]), None)? {
            Answer::Variables(found) => found.into_iter().next()?,
            _ => None,
        }
    }
}
