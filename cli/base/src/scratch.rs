//! A directory for one run of the command, and the files in it: others cannot guess its name, nor read it.
// SPDX-License-Identifier: MIT

use anyhow::{Context, Result};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

/// New, mode 0700, and gone when its value is.
pub fn directory(name: &str) -> Result<TempDir> {
    let parent = std::env::temp_dir();
    let mode = Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().prefix(&format!("hakmem-{name}-")).rand_bytes(16).permissions(mode).tempdir();
    made.with_context(|| format!("cannot make a directory in {}", parent.display()))
}

/// An empty file for this user alone; what was at its place is removed.
pub fn file(path: &Path) -> Result<File, Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Else a user who guesses the name finds his own directory used by root.
    #[test]
    fn a_scratch_directory_is_new_and_private() {
        let (one, other) = (directory("test").unwrap(), directory("test").unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::metadata(one.path()).unwrap().mode() & 0o777, 0o700);
        assert!(!one.path().to_string_lossy().contains(&std::process::id().to_string()));
        let path = one.path().to_path_buf();
        drop(one);
        assert!(!path.exists());
    }
}
