//! The token without which a server on a port answers nobody: any user of the machine reaches the port.
//!
//! 1. A new token has 128 bits. It is part of the address that the command prints, for browsers and for pprof, and it
//!    ends with the server.
//! 2. A token of a file outlives the server. It is accepted as `Authorization: Bearer TOKEN` only: paths get into
//!    histories and into the logs of proxies.
//! 3. Comparing takes the same time wherever two tokens differ.
// SPDX-License-Identifier: MIT

use anyhow::{ensure, Context, Result};
use hakmem_base::files;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A shorter token could be guessed.
const LETTERS_MIN: usize = 16;
const FILE_BYTES_MAX: u64 = 4096;

pub struct Token {
    text: String,
    /// Where it came from; None: it is new.
    file: Option<PathBuf>,
}

/// Do both have the same bytes? Takes the same time wherever they differ.
pub fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Others may neither know a token nor choose it. A group may read it: a server's and its scraper's.
fn ensure_private(path: &Path, file: &File) -> Result<()> {
    let data = file.metadata()?;
    // SAFETY: it has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    let (name, mode) = (path.display(), data.mode() & 0o777);
    ensure!(data.uid() == own || data.uid() == 0, "{name}: a token file belongs to root or to the server's user");
    ensure!(mode & 0o027 == 0, "{name}: other users may read or write it (mode {mode:03o}); use chmod 600");
    Ok(())
}

impl Token {
    pub fn new() -> Result<Token> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Token { text: bytes.iter().map(|byte| format!("{byte:02x}")).collect(), file: None })
    }

    /// The first line of a file.
    fn of_file(path: &Path) -> Result<Token> {
        let name = || path.display().to_string();
        let file = files::open_regular(path).with_context(name)?;
        ensure_private(path, &file)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(name)?;
        let token = text.lines().next().unwrap_or_default().trim().to_string();
        let is_plain = token.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.~".contains(letter));
        ensure!(
            is_plain && token.len() >= LETTERS_MIN,
            "{}: a token has at least {LETTERS_MIN} letters, digits or -_.~",
            name()
        );
        Ok(Token { text: token, file: Some(path.into()) })
    }

    pub fn from(file: Option<&Path>) -> Result<Token> {
        file.map_or_else(Token::new, Token::of_file)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The path that a request asks for, by its path and its header of that name; None: it lacks the token.
    pub fn path_behind<'a>(&self, path: &'a str, authorization: Option<&str>) -> Option<&'a str> {
        let bearer = authorization.and_then(|value| value.strip_prefix("Bearer "));
        if bearer.is_some_and(|given| is_same(given, &self.text)) {
            return Some(path);
        }
        let (first, _) = path.get(1..)?.split_once('/')?;
        (self.file.is_none() && is_same(first, &self.text)).then(|| &path[1 + first.len()..])
    }

    /// What the command prints of a server at `host`: where to find `path`.
    pub fn address(&self, host: &str, path: &str) -> String {
        match &self.file {
            None => format!("http://{host}/{}{path}", self.text),
            Some(file) => format!("http://{host}{path}, with the token of {}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn said(path: &Path) -> String {
        Token::of_file(path).err().map_or("taken".into(), |error| format!("{error:#}"))
    }

    #[test]
    fn tokens_that_can_be_guessed_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0123456789abcdef\nmore").unwrap();
        assert_eq!(Token::of_file(file.path()).unwrap().text(), "0123456789abcdef");
        for text in ["", "short", "0123456789 abcdef", "0123456789/abcdef"] {
            fs::write(file.path(), text).unwrap();
            assert!(said(file.path()).contains("at least 16 letters"), "{text}");
        }
        assert!(is_same("ab", "ab") && !is_same("ab", "aB") && !is_same("ab", "abc"));
    }

    /// Else a token that all users of the machine can read admits them all, and nobody is warned.
    #[test]
    fn tokens_that_others_can_read_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0123456789abcdef\n").unwrap();
        for (mode, taken) in
            [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o620, false), (0o602, false)]
        {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(said(file.path()) == "taken", taken, "{mode:o}: {}", said(file.path()));
        }
        assert!(said(Path::new("/dev/null")).contains("no regular file"));
    }

    /// Else a token that lasts gets into logs: those of proxies have paths, and no headers.
    #[test]
    fn a_token_that_stays_is_taken_from_the_header_only() {
        let mut token = Token { text: "0123456789abcdef".into(), file: None };
        let bearer = ("/metrics", Some("Bearer 0123456789abcdef"));
        let in_path = ("/0123456789abcdef/metrics", None);
        assert_eq!(token.path_behind(bearer.0, bearer.1), Some("/metrics"));
        assert_eq!(token.path_behind(in_path.0, in_path.1), Some("/metrics"));
        assert_eq!(token.address("h:1", "/metrics"), "http://h:1/0123456789abcdef/metrics");
        for path in ["/metrics", "/0123456789abcdef", "/0123456789abcdee/metrics", "/"] {
            assert_eq!(token.path_behind(path, None), None, "{path}");
        }
        token.file = Some("/etc/token".into());
        assert_eq!(token.path_behind(bearer.0, bearer.1), Some("/metrics"));
        assert_eq!(token.path_behind(in_path.0, in_path.1), None);
        assert!(!token.address("h:1", "/metrics").contains("0123456789abcdef"));
    }
}
