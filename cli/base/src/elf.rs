//! Why an allocator cannot be preloaded into a program: what its ELF file says.
//!
//! The crate `object` knows the format. It would read whole files or map them, so the few tables that are needed are
//! read here: a file may have any size, say anything, and change meanwhile. Only 64-bit little-endian files are looked
//! at.
// SPDX-License-Identifier: MIT

use crate::files;
use object::elf::{
    FileHeader64, ProgramHeader64, SectionHeader64, Sym64, PT_INTERP, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB,
};
use object::pod::{self, Pod};
use object::LittleEndian as Little;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The largest table that is read. Symbol tables of the largest programs have some ten MiB.
const TABLE_BYTES_MAX: u64 = 128 << 20;

struct Elf {
    file: File,
    header: FileHeader64<Little>,
}

impl Elf {
    fn read(path: &Path) -> Option<Elf> {
        let file = files::open_regular(path).ok()?;
        let bytes = bytes_of(&file, 0, size_of::<FileHeader64<Little>>() as u64)?;
        let header = *pod::from_bytes(&bytes).ok()?.0;
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(Elf { file, header })
    }

    /// Calls `look` with the entries of a table: `size` is what the header says of one of them.
    fn table<T: Pod, R>(&self, at: u64, size: u16, count: u16, look: impl FnOnce(&[T]) -> R) -> Option<R> {
        let whole = u64::from(size) * u64::from(count);
        let bytes = bytes_of(&self.file, at, whole).filter(|_| count == 0 || usize::from(size) == size_of::<T>())?;
        Some(look(pod::slice_from_all_bytes(&bytes).ok()?))
    }

    fn has_interpreter(&self) -> Option<bool> {
        let header = &self.header;
        let (at, size, count) = (&header.e_phoff, &header.e_phentsize, &header.e_phnum);
        self.table(at.get(Little), size.get(Little), count.get(Little), |parts: &[ProgramHeader64<Little>]| {
            parts.iter().any(|part| part.p_type.get(Little) == PT_INTERP)
        })
    }

    /// Any of these functions? There is one table of each kind.
    fn defines(&self, names: &[&str]) -> Option<bool> {
        let header = &self.header;
        let (at, size, count) = (&header.e_shoff, &header.e_shentsize, &header.e_shnum);
        self.table(at.get(Little), size.get(Little), count.get(Little), |sections: &[SectionHeader64<Little>]| {
            let tables = [SHT_SYMTAB, SHT_DYNSYM].into_iter();
            let mut tables = tables.filter_map(|kind| sections.iter().find(|one| one.sh_type.get(Little) == kind));
            // The first table that cannot be read ends the search, as a definition ends it.
            tables.find_map(|table| match self.table_defines(sections, table, names) {
                Some(false) => None,
                found => Some(found),
            })
        })?
        .unwrap_or(Some(false))
    }

    fn table_defines(
        &self,
        sections: &[SectionHeader64<Little>],
        table: &SectionHeader64<Little>,
        names: &[&str],
    ) -> Option<bool> {
        let part =
            |one: &SectionHeader64<Little>| bytes_of(&self.file, one.sh_offset.get(Little), one.sh_size.get(Little));
        let (symbols, texts) = (part(table)?, part(sections.get(table.sh_link.get(Little) as usize)?)?);
        let count = symbols.len() / size_of::<Sym64<Little>>();
        let (symbols, _) = pod::slice_from_bytes::<Sym64<Little>>(&symbols, count).ok()?;
        // Only as much of a name is looked at as is asked for: the table may be one name of 128 MiB.
        let is_named = |symbol: &Sym64<Little>, name: &str| {
            let text = texts.get(symbol.st_name.get(Little) as usize..).unwrap_or_default();
            text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        let is_one = |symbol: &Sym64<Little>| {
            symbol.st_shndx.get(Little) != SHN_UNDEF && names.iter().any(|name| is_named(symbol, name))
        };
        Some(symbols.iter().any(is_one))
    }
}

/// None where the file has less, or where that is too much.
fn bytes_of(file: &File, at: u64, count: u64) -> Option<Vec<u8>> {
    let end = at.checked_add(count).filter(|_| count <= TABLE_BYTES_MAX)?;
    let size = file.metadata().ok()?.len();
    let mut bytes = vec![0; (end <= size).then_some(count)? as usize];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
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
    fn programs_that_cannot_be_preloaded_are_reported() {
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
