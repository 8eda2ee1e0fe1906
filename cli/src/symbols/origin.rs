//! Where the files of a program are, and which of them are opened.
//!
//!  1. A file is opened once, without rights, and looked at: what is no regular file stays closed. The descriptor is
//!     all that is used from then on.
//!  2. In a process, the file that was mapped comes from the kernel's link to it or, where that may not be followed,
//!     from its path below the process's root directory. No link leads out of that, none of /proc's is followed.
//!  3. A file that is not the one that is mapped must be root's, the process's user's or our own; one that names code
//!     made at run time the process's user's: else anybody could name another's frames.
//!  4. Debug files come from the directories that the command was given, or from beside the program. What several debug
//!     files have in common is read from those directories alone.
// SPDX-License-Identifier: MIT

use super::Module;
use crate::budget;
use crate::heap::core::Core;
use crate::heap::remote::{Area, Remote};
use hakmem_base::files;
use hakmem_base::proc::Pid;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// The processes whose frames are being named: one at a time of each, and the others wait.
static BUSY: (Mutex<BTreeSet<Pid>>, Condvar) = (Mutex::new(BTreeSet::new()), Condvar::new());

struct Turn(Pid);

impl Turn {
    /// None: another one takes its time.
    fn wait(pid: Pid) -> Option<Turn> {
        let busy = BUSY.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = BUSY.1.wait_timeout_while(busy, budget::PROGRAM.time, |busy| busy.contains(&pid));
        let (mut busy, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        (!outcome.timed_out() && busy.insert(pid)).then_some(Turn(pid))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        BUSY.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        BUSY.1.notify_all();
    }
}

enum Of {
    Process(Remote),
    Core(&'static Core),
    /// Files of this machine, whoever owns them.
    Machine,
}

pub struct Origin {
    of: Of,
    /// None: it may not be seen.
    root: Option<File>,
    /// The inodes of mapped files, by where they are mapped.
    inodes: HashMap<u64, u64>,
    pub directories: Vec<PathBuf>,
    /// Children that did not answer.
    pub failures: Arc<AtomicUsize>,
    end: Instant,
    /// None: of no process, or another has it.
    turn: Option<Turn>,
}

fn directory(path: &Path) -> Option<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path).ok()
}

/// Without "." and "..", as far as the names tell.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

impl Origin {
    fn new(of: Of, root: Option<File>, directories: &[PathBuf], turn: Option<Turn>) -> Origin {
        let time = if super::debuginfod_is_on() { budget::FETCHED.time } else { budget::PROGRAM.time };
        Origin {
            of,
            root,
            inodes: HashMap::new(),
            directories: directories.to_vec(),
            failures: Arc::default(),
            end: Instant::now() + time,
            turn,
        }
    }

    /// Files of a process or a core, with its mappings.
    pub fn of(remote: &Remote, areas: &[Area], directories: &[PathBuf]) -> Origin {
        if let Some(core) = remote.core() {
            return Origin::new(Of::Core(core), directory(Path::new("/")), directories, None);
        }
        let root = remote.process().and_then(|process| directory(&process.path("root")));
        let turn = remote.process().and_then(|process| Turn::wait(process.pid));
        let inodes = areas.iter().map(|area| (area.start, area.inode)).collect();
        Origin { inodes, ..Origin::new(Of::Process(remote.clone()), root, directories, turn) }
    }

    /// Files that a profile or a log names.
    pub fn of_machine(directories: &[PathBuf]) -> Origin {
        Origin::new(Of::Machine, directory(Path::new("/")), directories, None)
    }

    /// What keeps names from being found.
    pub fn obstacle(&self) -> Option<&'static str> {
        let failed = self.failures.load(std::sync::atomic::Ordering::Relaxed) >= budget::FAILURES;
        match &self.of {
            Of::Process(_) if self.turn.is_none() => Some("its frames are being named for somebody else"),
            _ if failed => Some("its debug information cannot be read"),
            Of::Process(_) | Of::Core(_) if Instant::now() > self.end => Some("its debug information takes too long"),
            _ => None,
        }
    }

    fn user(&self) -> Option<u32> {
        match &self.of {
            Of::Process(remote) => remote.user(),
            _ => None,
        }
    }

    /// Root's, the process's user's or our own; of no process anybody's.
    fn is_allowed(&self, file: &File) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let owner = file.metadata().map(|data| data.uid());
        self.user().is_none_or(|user| owner.is_ok_and(|owner| [0, user, own].contains(&owner)))
    }

    /// The file at a path as the program sees it, if it is a regular one.
    fn regular(&self, path: &Path) -> Option<File> {
        let place = files::below(self.root.as_ref()?, path).ok()?;
        files::regular(place).ok()
    }

    /// The file of a module.
    pub fn module(&self, module: &Module) -> Option<File> {
        let path = Path::new(&module.path);
        match &self.of {
            Of::Core(core) => core.file(&module.path),
            _ if !path.is_absolute() => None,
            Of::Machine => self.regular(path),
            Of::Process(remote) => {
                let link = format!("map_files/{:x}-{:x}", module.start, module.end);
                let mapped = remote.process().and_then(|process| files::open_regular(&process.path(link)).ok());
                let is_mapped = |file: &File| {
                    let inode = file.metadata().ok().map(|data| data.ino());
                    inode.is_some() && self.inodes.get(&module.start).copied() == inode
                };
                mapped.or_else(|| self.regular(path).filter(|file| is_mapped(file) || self.is_allowed(file)))
            }
        }
    }

    /// A debug file beside the program, or what was split off it.
    pub fn beside(&self, path: &Path) -> Option<File> {
        self.regular(path).filter(|file| self.is_allowed(file))
    }

    /// A debug file in one of the directories: in none but those if the path comes from a file.
    pub fn in_directories(&self, path: &Path) -> Option<File> {
        let path = plain(path);
        self.directories.iter().find(|directory| path.starts_with(plain(directory)))?;
        let place = files::below(directory(Path::new("/"))?, &path).ok()?;
        files::regular(place).ok().filter(|file| self.is_allowed(file))
    }

    /// Names of code that was made at run time: the process's own.
    pub fn of_its_user(&self, path: &Path) -> Option<File> {
        let file = self.regular(path)?;
        let owner = file.metadata().ok()?.uid();
        self.user().is_some_and(|user| user == owner).then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn paths_lead_nowhere_else() {
        for (path, expected) in [("/a/../b/./c", "/b/c"), ("/../x", "/x"), ("/a/b/../../..", "/")] {
            assert_eq!(plain(Path::new(path)), Path::new(expected), "{path}");
        }
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (place.path().join("x.debug"), other.path().join("y.debug"));
        for path in [&inside, &outside] {
            std::fs::write(path, "x").unwrap();
        }
        let origin = Origin::of_machine(&[place.path().into()]);
        assert!(origin.in_directories(&inside).is_some() && origin.in_directories(&outside).is_none());
        let up = place.path().join("..").join(outside.strip_prefix("/tmp").unwrap_or(&outside));
        assert!(origin.in_directories(&up).is_none());
    }

    /// Else anybody who guesses the number of root's process names its frames, or has a file of the host's read as a
    /// container's.
    #[test]
    fn names_of_code_are_the_processs_own() {
        let mut cat = Command::new("cat");
        let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap(); // all is mapped
        let remote = Remote::open(child.id() as Pid).unwrap();
        let (place, areas) = (tempfile::tempdir().unwrap(), remote.mappings(false).unwrap());
        let origin = Origin::of(&remote, &areas, &[]);
        let (map, link) = (place.path().join("perf-1.map"), place.path().join("link"));
        std::fs::write(&map, "1000 100 made").unwrap();
        std::os::unix::fs::symlink(format!("/proc/self/root{}", map.display()), &link).unwrap();
        assert!(origin.of_its_user(&map).is_some() && origin.of_its_user(&link).is_none());
        assert!(origin.of_its_user(place.path()).is_none() && origin.of_its_user(Path::new("/dev/null")).is_none());
        let code = areas.iter().find(|area| area.access.contains('x') && area.inode != 0).unwrap();
        let module = Module { start: code.start, end: code.end, path: code.name.clone(), ..Module::default() };
        assert!(origin.module(&module).is_some(), "{module:?}");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&map, Some(65534), None).unwrap();
            assert!(origin.of_its_user(&map).is_none() && origin.beside(&map).is_none());
            let module = Module { path: map.to_string_lossy().into_owned(), ..Module::default() };
            assert!(origin.module(&module).is_none(), "nobody's file, which is not mapped");
        }
        drop((origin, child.stdin.take()));
        child.wait().unwrap();
    }

    /// Else requests for one process start as many readers of what it has written.
    #[test]
    fn one_at_a_time_names_a_process() {
        let first = Turn::wait(-30).unwrap();
        assert!(Turn::wait(-31).is_some(), "others do not wait");
        let second = std::thread::spawn(|| Turn::wait(-30).is_some());
        drop(first);
        assert!(second.join().unwrap());
    }
}
