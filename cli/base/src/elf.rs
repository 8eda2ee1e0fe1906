//! Why an allocator cannot be preloaded into a program: what its ELF file says.
//!
//! Only what is needed: 64-bit little-endian program headers and symbol tables.

use crate::files;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PT_INTERP: u64 = 3;
const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;

/// Of a symbol table, and of its names: the largest programs have some ten MiB.
const TABLE_MOST: u64 = 128 << 20;
const SYMBOL_BYTES: usize = 24;

/// The little-endian number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

/// A file that is read where it is looked at: it may have any size, and say anything.
struct Elf {
    file: File,
    header: Vec<u8>,
}

impl Elf {
    fn read(path: &Path) -> Option<Elf> {
        let mut elf = Elf { file: files::open_regular(path).ok()?, header: Vec::new() };
        elf.header = elf.bytes(0, 64)?;
        (elf.header.starts_with(b"\x7fELF\x02\x01")).then_some(elf)
    }

    fn bytes(&self, at: u64, count: u64) -> Option<Vec<u8>> {
        let end = at.checked_add(count).filter(|_| count <= TABLE_MOST)?;
        let size = self.file.metadata().ok()?.len();
        let mut bytes = vec![0; (end <= size).then_some(count)? as usize];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// The entries of a table whose place, entry size and count are in the header.
    fn table(&self, place: usize, sizes: usize) -> Option<(Vec<u8>, usize)> {
        let (at, size) = (number(&self.header, place, 8)?, number(&self.header, sizes, 2)?);
        let count = number(&self.header, sizes + 2, 2)?;
        Some((self.bytes(at, size * count)?, (size as usize).max(1)))
    }

    fn has_interpreter(&self) -> Option<bool> {
        let (headers, size) = self.table(32, 54)?;
        Some(headers.chunks_exact(size).any(|header| number(header, 0, 4) == Some(PT_INTERP)))
    }

    /// Any of these functions? There is one table of each kind.
    fn defines(&self, names: &[&str]) -> Option<bool> {
        let (sections, size) = self.table(40, 58)?;
        let sections: Vec<&[u8]> = sections.chunks_exact(size).collect();
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let Some(table) = sections.iter().find(|section| number(section, 4, 4) == Some(kind)) else {
                continue;
            };
            let texts = sections.get(number(table, 40, 4)? as usize)?;
            let part = |section: &[u8]| self.bytes(number(section, 24, 8)?, number(section, 32, 8)?);
            let (symbols, texts) = (part(table)?, part(texts)?);
            let is_one = |symbol: &[u8]| names.iter().any(|name| is_definition(symbol, &texts, name));
            if symbols.chunks_exact(SYMBOL_BYTES).any(is_one) {
                return Some(true);
            }
        }
        Some(false)
    }
}

fn is_definition(symbol: &[u8], texts: &[u8], name: &str) -> bool {
    let text = number(symbol, 0, 4).and_then(|offset| texts.get(offset as usize..));
    let same = text.is_some_and(|text| text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0));
    same && number(symbol, 6, 2).is_some_and(|section| section != 0)
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
    Elf::read(path).is_some_and(|elf| elf.defines(names).unwrap_or(false))
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

    /// Else a program whose file lies cannot even be looked at.
    #[test]
    fn any_file_is_a_program_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let main = "#include <stdlib.h>\nint main(void) { return malloc(1) == 0; }\n";
        let (sound, path) = (compile(directory.path(), "sound", main, &[]), directory.path().join("x"));
        let sound = fs::read(sound).unwrap();
        // The tables, and what of the header leads to them.
        let places = |at: usize| (0..at).chain(sound.len() - 2000..sound.len()).collect::<Vec<usize>>();
        let places = places(64 + 56 * 4);
        hakmem_fuzz::cases(300, |seed| {
            let random = &mut hakmem_fuzz::Random::new(seed);
            let mut bytes = sound.clone();
            for _ in 0..=random.below(4) {
                let at = random.choose(&places) / 4 * 4;
                let number = random.choose(&hakmem_fuzz::NUMBERS).to_le_bytes();
                bytes.iter_mut().skip(at).zip(number).for_each(|(byte, new)| *byte = new);
            }
            fs::write(&path, bytes).unwrap();
            hakmem_fuzz::bounded(&format_args!("seed {seed}"), || {
                std::hint::black_box((obstacle(&path), is_static(&path), defines_any(&path, &["none"])));
            });
        });
    }
}
