//! Why an allocator cannot be preloaded into a program: what its ELF file says.
//!
//! Only what is needed: 64-bit little-endian program headers and symbol tables.

use std::fs;
use std::path::Path;

const PT_INTERP: u64 = 3;
const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;

struct Elf(Vec<u8>);

impl Elf {
    fn read(path: &Path) -> Option<Elf> {
        let bytes = fs::read(path).ok()?;
        (bytes.len() > 64 && bytes.starts_with(b"\x7fELF\x02\x01")).then_some(Elf(bytes))
    }

    /// The little-endian number of `width` bytes at `at`.
    fn number(&self, at: u64, width: u64) -> Option<u64> {
        let bytes = self.0.get(at as usize..at.checked_add(width)? as usize)?;
        Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn has_interpreter(&self) -> Option<bool> {
        let (table, size, count) = (self.number(32, 8)?, self.number(54, 2)?, self.number(56, 2)?);
        Some((0..count).any(|i| self.number(table + i * size, 4) == Some(PT_INTERP)))
    }

    fn defines(&self, name: &str) -> Option<bool> {
        let (table, size, count) = (self.number(40, 8)?, self.number(58, 2)?, self.number(60, 2)?);
        let section = |i: u64| table + i * size;
        for i in 0..count {
            if !matches!(self.number(section(i) + 4, 4)?, SHT_SYMTAB | SHT_DYNSYM) {
                continue;
            }
            let (at, bytes, link) =
                (self.number(section(i) + 24, 8)?, self.number(section(i) + 32, 8)?, self.number(section(i) + 40, 4)?);
            let names = self.number(section(link) + 24, 8)?;
            if (0..bytes / 24).any(|k| self.is_definition(at + k * 24, names, name)) {
                return Some(true);
            }
        }
        Some(false)
    }

    fn is_definition(&self, symbol: u64, names: u64, name: &str) -> bool {
        let text = self.number(symbol, 4).and_then(|offset| self.0.get((names + offset) as usize..));
        let same = text.is_some_and(|text| text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0));
        same && self.number(symbol + 6, 2).is_some_and(|section| section != 0)
    }
}

/// What keeps a preloaded allocator from being this program's, if its file says so. It completes "PROGRAM …".
pub fn obstacle(path: &Path) -> Option<&'static str> {
    use std::os::unix::fs::PermissionsExt;
    let elf = Elf::read(path)?;
    if !elf.has_interpreter()? {
        return Some("is statically linked, so nothing can be preloaded");
    }
    if fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o6000 != 0) {
        return Some("changes its user (set-user-ID), so the dynamic linker preloads nothing");
    }
    has_malloc(path).then_some("has a malloc of its own linked in, which no preloaded one replaces")
}

/// Does the program itself define malloc?
pub fn has_malloc(path: &Path) -> bool {
    defines_any(path, &["malloc"])
}

/// Does it define one of these functions, as far as its symbol tables tell?
pub fn defines_any(path: &Path, names: &[&str]) -> bool {
    Elf::read(path).is_some_and(|elf| names.iter().any(|name| elf.defines(name).unwrap_or(false)))
}

/// Does it need no dynamic linker?
pub fn is_static(path: &Path) -> bool {
    Elf::read(path).and_then(|elf| elf.has_interpreter()) == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn compile(directory: &Path, name: &str, source: &str, flags: &[&str]) -> std::path::PathBuf {
        let (c, program) = (directory.join(format!("{name}.c")), directory.join(name));
        fs::write(&c, source).unwrap();
        assert!(Command::new("cc").args(["-o"]).arg(&program).arg(&c).args(flags).status().unwrap().success());
        program
    }

    #[test]
    fn programs_that_cannot_be_preloaded_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let main = "#include <stdlib.h>\nint main(void) { return malloc(1) == 0; }\n";
        let plain = compile(directory.path(), "plain", main, &[]);
        assert_eq!(obstacle(&plain), None);
        let fixed = compile(directory.path(), "fixed", main, &["-static"]);
        assert!(obstacle(&fixed).unwrap().contains("statically"));
        let own = format!("{main}static char block[64];\nvoid *malloc(size_t size) {{ (void)size; return block; }}\n");
        let own = compile(directory.path(), "own", &own, &["-fno-builtin-malloc"]);
        assert!(obstacle(&own).unwrap().contains("of its own"));
        assert_eq!(obstacle(Path::new("/proc/self/maps")), None);
    }
}
