//! Files that the command reads, never more than so much of them, and those that it writes: made anew, never through a
//! link that somebody left at their place.
//!
//!  1. `write` makes a new file beside the place and renames it. What was at the place is replaced and never written
//!     to: a link goes, its target stays. A reader sees the old file or the whole new one.
//!  2. What is no regular file (a FIFO, a terminal, /dev/stdout) is written to as it is. Links are followed in /dev, of
//!     the entries that only the system makes, and where the system lists descriptors. `-` is stdout.
//!  3. A new file is for its user alone: pages and profiles say what is in the memory of a program. `publish` is for
//!     what others are to read.
// SPDX-License-Identifier: MIT

use crate::print;
use anyhow::{Context, Result};
use rustix::fs::{openat, openat2, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path};

pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    write_with(path, bytes.as_ref(), 0o600)
}

/// A new file then has the permissions that the umask leaves.
pub fn publish(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    write_with(path, bytes.as_ref(), 0o666)
}

fn write_with(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    if print::is_stdout(path) {
        return print::bytes(bytes);
    }
    let found = existing(path).and_then(|there| match there {
        There::Special => special(path)?.write_all(bytes),
        There::Nothing => replace(path, None, bytes, mode),
        There::File(old) => replace(path, Some(&old), bytes, mode),
    });
    match found {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(print::Closed.into()),
        found => found.with_context(|| format!("cannot write {}", path.display())),
    }
}

/// For what a text may have: the largest suite and the largest result that there are have some MiB.
const TEXT_MAX: u64 = 256 << 20;

/// Reads the whole file. A file of more than `most` bytes is refused (FileTooLarge).
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    read_from(File::open(path)?, most)
}

pub fn read_text(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path, TEXT_MAX)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text"))
}

/// A file that another process names: it may have put a FIFO or a device there. To open a device may change it (a tape
/// is rewound, a line is raised), so the file is opened without rights and looked at first.
pub fn open_regular(path: &Path) -> Result<File, Error> {
    regular(File::options().read(true).custom_flags(libc::O_PATH).open(path)?)
}

/// How much of a file says what it is.
const HEAD_BYTES: u64 = 64;

/// What a regular file begins with.
pub fn head(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(HEAD_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens for reading what was opened without rights (O_PATH), if it is a regular file.
pub fn regular(place: File) -> Result<File, Error> {
    if !place.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// For a path that something is renamed on.
const ATTEMPTS: usize = 8;

/// Opens, without rights, what the path means to a process with this root directory. Its links stay below the root, and
/// none of /proc's is followed (/proc/PID/fd, cwd, root), which would lead anywhere.
pub fn below(root: impl AsFd, path: &Path) -> Result<File, Error> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => continue,
            Err(Errno::NOSYS | Errno::PERM) => break, // Linux before 5.6, or a sandbox that does not know the call
            found => return Ok(found?.into()),
        }
    }
    below_without_links(root, path)
}

/// The same, where the system has no call for it: no link at all is followed.
fn below_without_links(root: impl AsFd, path: &Path) -> Result<File, Error> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut place = openat(root, ".", flags, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => place = openat(&place, name, flags, Mode::empty())?,
            _ => return Err(Error::new(ErrorKind::InvalidInput, "its path leads up")),
        }
    }
    Ok(place.into())
}

pub fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    read_from(open_regular(path)?, most)
}

fn read_from(file: File, most: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MiB", most >> 20))),
        false => Ok(bytes),
    }
}

/// Fails where a file could not be written, before anything takes its time to find what goes into it.
pub fn ensure_place(path: &Path) -> Result<()> {
    if print::is_stdout(path) {
        return Ok(());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = fs::metadata(directory).and_then(|found| match found.is_dir() {
        true => existing(path).map(|_| ()),
        false => Err(Error::from_raw_os_error(libc::ENOTDIR)),
    });
    there.with_context(|| format!("cannot write {}", path.display()))
}

enum There {
    Nothing,
    /// A regular file.
    File(Metadata),
    /// What is written to as it is.
    Special,
}

/// Does only the system make what has this name? An entry of /dev itself, a terminal, a descriptor of this process.
/// Other places may be anybody's: /dev/shm is, and so is what /proc/PID/cwd and descriptors of directories lead to.
fn is_of_system(path: &Path) -> bool {
    if !path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))) {
        return false;
    }
    let parts: Vec<&str> = path.components().map(|part| part.as_os_str().to_str().unwrap_or("")).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match parts[..] {
        ["/", "dev", _] => true,
        ["/", "dev", "fd" | "pts", number] => is_number(number),
        ["/", "proc", "self" | "thread-self", "fd", number] => is_number(number),
        _ => false,
    }
}

fn existing(path: &Path) -> Result<There, Error> {
    if is_of_system(path) {
        return Ok(There::Special);
    }
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(There::Nothing),
        found => found?,
    };
    let kind = found.file_type();
    if kind.is_dir() {
        return Err(Error::from_raw_os_error(libc::EISDIR));
    }
    if kind.is_symlink() {
        return Ok(There::Nothing);
    }
    if found.is_file() {
        return Ok(There::File(found));
    }
    // SAFETY: it has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    if (kind.is_fifo() || kind.is_char_device()) && (found.uid() == own || found.uid() == 0) {
        return Ok(There::Special);
    }
    Err(Error::other("a special file of another user is at this place"))
}

/// Nothing is cut: what a shell has redirected may hold something already.
fn special(path: &Path) -> Result<File, Error> {
    let follow = if is_of_system(path) { 0 } else { libc::O_NOFOLLOW };
    OpenOptions::new().append(true).custom_flags(follow | libc::O_NOCTTY).open(path)
}

/// `mode`: of a new file, less the umask. One of this user's that is replaced keeps its own.
fn replace(path: &Path, old: Option<&Metadata>, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = Permissions::from_mode(mode);
    let made = tempfile::Builder::new().prefix(".hakmem-").rand_bytes(16).permissions(mode).tempfile_in(directory);
    let mut new = match (made, old) {
        (Err(error), Some(old)) if error.kind() == ErrorKind::PermissionDenied => return rewrite(path, old, bytes),
        (made, _) => made.map_err(without_path)?,
    };
    // SAFETY: as above.
    if let Some(old) = old.filter(|old| old.uid() == unsafe { libc::geteuid() }) {
        new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
    }
    new.write_all(bytes).map_err(without_path)?;
    new.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The error of a file that nobody knows by its name, which tempfile puts behind it.
fn without_path(error: Error) -> Error {
    match error.to_string().rsplit_once(" at path \"") {
        Some((why, _)) => Error::new(error.kind(), why),
        None => error,
    }
}

/// The directory takes no new files: the old one is written again if it is what it was.
fn rewrite(path: &Path, old: &Metadata, bytes: &[u8]) -> Result<(), Error> {
    let mut file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let now = file.metadata()?;
    if !now.is_file() || (now.dev(), now.ino(), now.nlink()) != (old.dev(), old.ino(), 1) {
        return Err(Error::other("the file was exchanged, or has other names"));
    }
    file.set_len(0)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;
    use std::os::unix::fs::symlink;

    /// Else somebody's link in a common directory makes root overwrite any file.
    #[test]
    fn a_link_is_replaced_and_its_target_stays() {
        let place = tempfile::tempdir().unwrap();
        let (target, path) = (place.path().join("target"), place.path().join("page.html"));
        fs::write(&target, "precious").unwrap();
        for to in [target.clone(), place.path().join("nowhere")] {
            let _ = fs::remove_file(&path);
            symlink(&to, &path).unwrap();
            write(&path, "new").unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(
                (fs::read_to_string(&path).unwrap(), fs::read_to_string(&target).unwrap()),
                ("new".into(), "precious".into())
            );
        }
        assert!(!place.path().join("nowhere").exists());
        let other = place.path().join("other");
        fs::hard_link(&target, &other).unwrap();
        write(&other, "new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious", "another name of a file is not the file");
    }

    /// Else a page, with what is in the memory of root's programs, is there for all users to read.
    #[test]
    fn a_new_file_is_for_its_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(place.path().join(name)).unwrap().mode() & 0o777;
        write(&place.path().join("page"), "x").unwrap();
        assert_eq!(mode("page"), 0o600);
        fs::write(place.path().join("usual"), "x").unwrap();
        publish(&place.path().join("manual"), "x").unwrap();
        assert_eq!(mode("manual"), mode("usual"));
    }

    /// Else a link in a directory that anybody may write to is followed: /proc/self/cwd is one, by another name.
    #[test]
    fn names_of_the_system_are_few() {
        for name in ["/dev/stdout", "/dev/./tty", "/dev//null", "/dev/fd/12", "/dev/pts/0", "/proc/self/fd/1"] {
            assert!(is_of_system(Path::new(name)), "{name}");
        }
        for name in [
            "/dev/shm/x",
            "/dev/./shm/x",
            "/dev//shm/x",
            "/dev/shm/../shm/x",
            "/dev/..",
            "/dev/fd/3/x",
            "/dev/fd/x",
            "/dev/mqueue/x",
            "/proc/self/cwd/x",
            "/proc/self/root/tmp/x",
            "/proc/self/fd/3/x",
            "/proc/1/cwd",
            "/proc/1/fd/1",
            "dev/stdout",
            "/proc/self/task/1/fd/1",
            "/tmp/x",
        ] {
            assert!(!is_of_system(Path::new(name)), "{name}");
        }
    }

    /// Else the next file is written without the care that this one takes.
    #[test]
    fn all_files_are_written_here() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut places = ["src", "base/src", "compare/src"].map(|place| workspace.join(place)).to_vec();
        let mut read = 0;
        let is_allowed = |place: &Path| place.ends_with("files.rs") || place.ends_with("scratch.rs");
        while let Some(place) = places.pop() {
            if place.is_dir() {
                places.extend(fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = fs::read_to_string(&place).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let writing =
                ["fs::write(", "File::create", ".create(true)", "create_new(", "fs::copy", "fs::rename", "temp_dir()"];
            let found = writing.iter().find(|call| code.contains(**call));
            assert!(found.is_none() || is_allowed(&place), "{}: {found:?}", place.display());
            read += 1;
        }
        assert!(read > 60, "{read} files");
    }

    /// Else a user's own report cannot be written again, or a failure leaves half of one.
    #[test]
    fn files_of_ones_own_are_written_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        write(&path, "one, which is longer").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(write(place.path(), "x").unwrap_err().to_string().contains("cannot write"));
        let said = format!("{:#}", write(&place.path().join("none/x"), "x").unwrap_err());
        assert!(said.ends_with("none/x: No such file or directory (os error 2)"), "{said}");
    }

    /// Else a core or a process that names a tape has it rewound, and one that names a FIFO keeps whoever reads it.
    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
        assert!(open_regular(&fifo).is_err() && open_regular(Path::new("/dev/null")).is_err());
        assert_eq!(rustix::io::read(&watch, &mut [0; 64]), Err(Errno::AGAIN), "it was opened");
        fs::write(place.path().join("file"), "text").unwrap();
        assert_eq!(read_regular(&place.path().join("file"), 9).unwrap(), b"text");
    }

    /// Else a path in a container leads to a file of the host's, and one through /proc to any process's.
    #[test]
    fn links_stay_below_the_root() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("tmp")).unwrap();
        fs::write(at("tmp/real"), "inside").unwrap();
        symlink("/tmp/real", at("absolute")).unwrap();
        symlink("../../../../../../tmp/real", at("tmp/up")).unwrap();
        symlink("/proc/self/root/etc/passwd", at("magic")).unwrap();
        let root = File::open(place.path()).unwrap();
        let text = |file: File| {
            let mut text = String::new();
            regular(file).unwrap().read_to_string(&mut text).map(|_| text).unwrap()
        };
        for path in ["/absolute", "absolute", "/tmp/up", "/../../tmp/real"] {
            assert_eq!(text(below(&root, Path::new(path)).unwrap()), "inside", "{path}");
        }
        assert!(below(&root, Path::new("/magic")).is_err() && below(&root, Path::new("/tmp/none")).is_err());
        let host = File::open("/").unwrap();
        assert!(below(&host, Path::new("/proc/self/root/etc/passwd")).is_err());
        // Without openat2.
        assert_eq!(text(below_without_links(&root, Path::new("/tmp/real")).unwrap()), "inside");
        for path in ["/../tmp/real", "/absolute/x", "/tmp/none"] {
            assert!(below_without_links(&root, Path::new(path)).is_err(), "{path}");
        }
        assert!(regular(below_without_links(&root, Path::new("/absolute")).unwrap()).is_err(), "a link is none");
    }

    /// Else `--html >(gzip)` and /dev/stdout are gone.
    #[test]
    fn pipes_are_written_to() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("fifo");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path).unwrap()
        });
        write(&path, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        let (mut end, other) = std::io::pipe().unwrap();
        use std::os::fd::AsRawFd;
        write(Path::new(&format!("/dev/fd/{}", other.as_raw_fd())), "through").unwrap();
        drop(other);
        let mut text = String::new();
        end.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }
}
