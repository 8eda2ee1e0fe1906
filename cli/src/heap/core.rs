//! A core file, read as the process that it was.
//!
//!  1. Its segments are the memory, as far as the kernel or gcore wrote it. What they left out because a file has it
//!     (code, constants) comes from that file, if it is still the one that was mapped.
//!  2. NT_FILE names the mappings, NT_PRSTATUS and NT_FPREGSET have the registers, NT_PRPSINFO the name.
//!  3. A page of zeroes counts as not resident: a core does not tell.
// SPDX-License-Identifier: MIT

use super::area::{self, Area};
use super::patience;
use crate::budget::{self, Budget};
use anyhow::{ensure, Context, Result};
use hakmem_base::files;
use hakmem_base::proc::{page_bytes, About, Pid};
use hakmem_base::table::size;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::ReadCache;
use object::LittleEndian;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Header = elf::FileHeader64<LittleEndian>;
type Part = elf::ProgramHeader64<LittleEndian>;

const TOO_LARGE: &str = "is too large to be read: it has too many notes";

/// In pr_psargs of struct elf_prpsinfo; the process's number stands before.
const PSARGS: std::ops::Range<usize> = 56..136;
const PSINFO_PID: usize = 24;
/// In struct elf_prstatus.
const STATUS_PID: usize = 32;
const STATUS_REGISTERS: usize = 112;
/// Which of the general registers is the stack pointer: by machine, as its user_regs_struct has them.
const STACK_POINTERS: [(&str, usize); 3] = [("x86_64", 19), ("aarch64", 31), ("riscv64", 2)];
/// What is compared of a file to find out whether it is still the one that was mapped.
const HEAD_BYTES: usize = 4096;

/// Memory from `start` to `end`, the first of it in the core.
#[derive(Debug)]
struct Segment {
    start: u64,
    end: u64,
    offset: u64,
    in_core: u64,
    access: String,
}

/// A file's part, mapped.
#[derive(Debug)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
    executable: bool,
    /// None: it is gone, or another one by now.
    file: Option<Arc<File>>,
}

pub struct Core {
    pub path: PathBuf,
    file: File,
    segments: Vec<Segment>,
    files: Vec<Mapped>,
    pid: Pid,
    command: String,
    /// The stack pointer of each thread.
    pub stack_pointers: Vec<u64>,
    /// All registers of all threads, as words.
    pub registers: Vec<u64>,
}

/// Does the file begin as a core does?
pub fn is_core(path: &Path) -> bool {
    files::head(path).is_ok_and(|head| begins_core(&head))
}

pub fn begins_core(head: &[u8]) -> bool {
    let kind = head.get(16..18).map(|kind| u16::from_le_bytes([kind[0], kind[1]]));
    head.starts_with(b"\x7fELF") && kind == Some(elf::ET_CORE)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}

/// The stack pointer among the general registers of a thread, in the order of PTRACE_GETREGSET and NT_PRSTATUS.
pub fn stack_pointer(registers: &[u64]) -> Option<u64> {
    stack_pointer_on(std::env::consts::ARCH, registers)
}

fn stack_pointer_on(machine: &str, registers: &[u64]) -> Option<u64> {
    let (_, number) = STACK_POINTERS.iter().find(|(name, _)| *name == machine)?;
    registers.get(*number).copied()
}

/// The entries of NT_FILE.
fn mapped(note: &[u8]) -> Option<Vec<Mapped>> {
    let mut numbers = words(note);
    let (count, page) = (numbers.next()? as usize, numbers.next()?);
    let count = count.min(budget::NOTES.entries as usize);
    let names = note.get(16_usize.checked_add(count.checked_mul(24)?)?..)?;
    let mut names = names.split(|&byte| byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
    let mut entry = || {
        let (start, end, offset) = (numbers.next()?, numbers.next()?, numbers.next()?.checked_mul(page)?);
        Some(Mapped { start, end, offset, path: names.next()?, executable: false, file: None })
    };
    Some((0..count).map_while(|_| entry()).collect())
}

impl Core {
    pub fn open(path: &Path) -> Result<Core> {
        let file = files::open_regular(path)?;
        let length = file.metadata()?.len();
        let again = file.try_clone()?;
        let cache = ReadCache::new(again);
        let header = Header::parse(&cache).context("is no core file of a 64-bit program")?;
        let endian = header.endian().context("is no core file of this kind of machine")?;
        ensure!(header.e_type(endian) == elf::ET_CORE, "is no core file");
        let mut left = Budget::new(budget::NOTES);
        let count = header.phnum(endian, &cache).context("is damaged")?;
        ensure!(left.have(count as u64, (count * size_of::<Part>()) as u64), TOO_LARGE);
        let headers = header.program_headers(endian, &cache).context("is damaged")?;
        for header in headers {
            let (offset, bytes) = header.file_range(endian);
            let is_whole = offset.checked_add(bytes).is_some_and(|end| end <= length);
            ensure!(is_whole, "is cut short: it has {length} bytes, and should have more (`ulimit -c`, a full disk)");
        }
        let (segments, files, stack_pointers, registers) = Default::default();
        let mut core = Core {
            path: path.to_path_buf(),
            file,
            segments,
            files,
            pid: 0,
            command: String::new(),
            stack_pointers,
            registers,
        };
        for header in headers {
            let (start, bytes) = (header.p_vaddr(endian), header.p_memsz(endian));
            if header.p_type(endian) == elf::PT_LOAD {
                let (offset, in_core) = header.file_range(endian);
                let flag = |bit, letter| if header.p_flags(endian) & bit != 0 { letter } else { '-' };
                let access = [flag(4, 'r'), flag(2, 'w'), flag(1, 'x'), 'p'].iter().collect();
                let end = start.saturating_add(bytes.max(in_core));
                core.segments.push(Segment { start, end, offset, in_core, access });
            }
            // They are read whole, and what is taken of them is kept.
            let note_bytes = if header.p_type(endian) == elf::PT_NOTE { header.p_filesz(endian) } else { 0 };
            ensure!(left.have(0, note_bytes), TOO_LARGE);
            let Some(mut notes) = header.notes(endian, &cache).context("is damaged")? else { continue };
            while let Some(note) = notes.next().context("is damaged")? {
                ensure!(left.has(0), TOO_LARGE);
                core.take_note(note.n_type(endian), note.desc());
            }
        }
        core.segments.sort_by_key(|segment| segment.start);
        core.files.sort_by_key(|mapped| mapped.start);
        ensure!(!core.segments.is_empty() && !core.stack_pointers.is_empty(), "has no memory, or no threads");
        core.open_files();
        Ok(core)
    }

    fn take_note(&mut self, kind: u32, note: &[u8]) {
        match kind {
            kind if kind == elf::NT_PRSTATUS => {
                let registers = words(note.get(STATUS_REGISTERS..).unwrap_or_default());
                let registers: Vec<u64> = registers.collect();
                if self.pid == 0 {
                    self.pid = pid(note, STATUS_PID);
                }
                self.stack_pointers.extend(stack_pointer(&registers));
                self.registers.extend(registers);
            }
            kind if kind == elf::NT_FPREGSET || kind == elf::NT_X86_XSTATE => self.registers.extend(words(note)),
            kind if kind == elf::NT_PRPSINFO => {
                self.pid = pid(note, PSINFO_PID);
                self.command = text(note.get(PSARGS).unwrap_or_default());
            }
            kind if kind == elf::NT_FILE => self.files = mapped(note).unwrap_or_default(),
            _ => {}
        }
    }

    /// Those that are what was mapped: their beginning is the one in the core, or, without that, they are older than
    /// the core.
    fn open_files(&mut self) {
        let written = self.file.metadata().and_then(|data| data.modified());
        let Ok(root) = File::open("/") else { return };
        let mut heads = HashMap::new();
        for mapped in self.files.iter().filter(|one| one.offset == 0) {
            heads.entry(mapped.path.as_str()).or_insert(mapped);
        }
        let is_same = |path: &str, file: &File| {
            let head = heads.get(path);
            let (mut then, mut now) = ([0; HEAD_BYTES], [0; HEAD_BYTES]);
            if !head.is_some_and(|head| self.read_core(head.start, &mut then)) {
                let changed = file.metadata().and_then(|data| data.modified());
                return changed.is_ok_and(|changed| written.as_ref().is_ok_and(|&written| changed <= written));
            }
            file.read_exact_at(&mut now, 0).is_ok() && then == now
        };
        // Each once, however often it was mapped.
        let (mut left, mut known) = (Budget::new(budget::FILES), HashMap::new());
        for mapped in &self.files {
            known.entry(mapped.path.as_str()).or_insert_with(|| {
                let path =
                    Some(Path::new(&mapped.path)).filter(|path| path.is_absolute() && left.has(mapped.path.len()));
                let file = files::below(&root, path?).and_then(files::regular).ok()?;
                is_same(&mapped.path, &file).then(|| (code_of(&file), Arc::new(file)))
            });
        }
        let file = |mapped: &Mapped| {
            let (code, file) = known.get(mapped.path.as_str())?.as_ref()?;
            Some((code.iter().any(|code| code.contains(&mapped.offset)), file.clone()))
        };
        let files: Vec<_> = self.files.iter().map(file).collect();
        for (mapped, file) in self.files.iter_mut().zip(files) {
            mapped.executable = file.as_ref().is_some_and(|one| one.0);
            mapped.file = file.map(|one| one.1);
        }
    }

    /// The segment that has the address.
    fn segment(&self, address: u64) -> Option<&Segment> {
        let at = self.segments.partition_point(|segment| segment.start <= address).checked_sub(1)?;
        Some(&self.segments[at]).filter(|segment| address < segment.end)
    }

    fn mapped(&self, address: u64) -> Option<&Mapped> {
        let at = self.files.partition_point(|mapped| mapped.start <= address).checked_sub(1)?;
        Some(&self.files[at]).filter(|mapped| address < mapped.end)
    }

    /// From the core's own memory, which may go on in the next segment.
    fn read_core(&self, mut address: u64, mut bytes: &mut [u8]) -> bool {
        while !bytes.is_empty() {
            let Some(segment) = self.segment(address) else { return false };
            let from = address - segment.start;
            let most = segment.in_core.saturating_sub(from).min(bytes.len() as u64) as usize;
            let (now, later) = bytes.split_at_mut(most);
            if most == 0 || self.file.read_exact_at(now, segment.offset + from).is_err() {
                return false;
            }
            (address, bytes) = (address + most as u64, later);
        }
        true
    }

    fn read_file(&self, address: u64, bytes: &mut [u8]) -> bool {
        let Some(mapped) = self.mapped(address) else { return false };
        let fits = bytes.len() as u64 <= mapped.end - address;
        let at = address - mapped.start + mapped.offset;
        fits && mapped.file.as_ref().is_some_and(|file| file.read_exact_at(bytes, at).is_ok())
    }

    /// What the core has of a segment, in pieces of whole pages, with their addresses.
    fn each_page(&self, start: u64, bytes: u64, mut look: impl FnMut(u64, &[u8])) {
        const PIECE: u64 = 1 << 20;
        let page = page_bytes() as usize;
        let mut piece = vec![0; PIECE as usize];
        for at in (start..start + bytes).step_by(PIECE as usize) {
            let piece = &mut piece[..PIECE.min(start + bytes - at) as usize];
            // A core with holes may have any size.
            if patience::check(self.pid).is_err() {
                break;
            }
            if self.read_core(at, piece) {
                (at..).step_by(page).zip(piece.chunks(page)).for_each(|(at, page)| look(at, page));
            }
        }
    }

    pub fn about(&self) -> About {
        let threads = self.stack_pointers.len() as u64;
        About { command: self.command.clone(), threads, rss_peak: 0, age_ms: 0 }
    }

    /// The name of its program.
    pub fn program(&self) -> &str {
        let path = self.command.split(' ').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or(path)
    }

    /// The file that was mapped; None: it is not there.
    pub fn file(&self, path: &str) -> Option<File> {
        self.files.iter().find(|mapped| mapped.path == path)?.file.as_ref()?.try_clone().ok()
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// What of the heap it leaves out although it is a sound core: pages that slabs share lie in a file.
    pub fn lacks_shared(&self) -> Option<String> {
        let missing = |mapped: &Mapped| {
            let segment = self.segment(mapped.start);
            let end = segment.map_or(0, |segment| segment.start.saturating_add(segment.in_core));
            mapped.end.saturating_sub(end.max(mapped.start))
        };
        let shared = self.files.iter().filter(|one| area::file_name(&one.path) == Some(area::SHARED_FILE));
        let bytes = shared.map(missing).fold(0, u64::saturating_add);
        let (path, bytes) = (self.path.display(), (bytes > 0).then(|| size(bytes))?);
        Some(format!(
            "{path}: the core leaves out {bytes} of pages that slabs share (HAKMEM_MESH; bit 2 of coredump_filter, \
            core(5))"
        ))
    }

    /// Why HAKMEM was not found, or cannot be read.
    pub fn lacks(&self) -> anyhow::Error {
        let lost = self.files.iter().find(|mapped| mapped.file.is_none() && mapped.path.contains("libhakmem"));
        match lost {
            Some(mapped) => anyhow::anyhow!(
                "the core leaves out the constants of {}, and that file is gone or not the one that was mapped",
                mapped.path
            ),
            None => anyhow::anyhow!(
                "no HAKMEM is in it, or the core leaves out what describes its heap (bits 0 and 4 of coredump_filter, \
                core(5))"
            ),
        }
    }
}

/// How many parts a file that is loaded may have.
const PARTS_MAX: usize = 1024;

/// The parts of an ELF file that are mapped as code, from whole pages on.
fn code_of(file: &File) -> Vec<Range<u64>> {
    let find = || {
        let cache = ReadCache::new(file.try_clone().ok()?);
        let header = Header::parse(&cache).ok()?;
        let is_usual = header.phnum(LittleEndian, &cache).is_ok_and(|count| count <= PARTS_MAX);
        let headers = is_usual.then(|| header.program_headers(LittleEndian, &cache))?.ok()?;
        let loaded = headers.iter().filter(|one| one.p_type(LittleEndian) == elf::PT_LOAD);
        let (page, is_code) = (page_bytes(), |one: &Part| one.p_flags(LittleEndian) & elf::PF_X != 0);
        let code = loaded.filter(|one| is_code(one)).map(|one| {
            let (start, bytes) = one.file_range(LittleEndian);
            start / page * page..start.saturating_add(bytes)
        });
        Some(code.collect())
    };
    find().unwrap_or_default()
}

fn pid(note: &[u8], at: usize) -> Pid {
    note.get(at..at + 4).map_or(0, |bytes| Pid::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

impl Core {
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.read_core(address, bytes) || self.read_file(address, bytes)
    }

    pub fn mappings(&self, with_rss: bool) -> Vec<Area> {
        let mapping = |segment: &Segment| {
            let mapped = self.mapped(segment.start);
            let mut area = Area {
                start: segment.start,
                end: segment.end,
                access: segment.access.clone(),
                offset: mapped.map_or(0, |mapped| mapped.offset + (segment.start - mapped.start)),
                inode: u64::from(mapped.is_some()),
                name: mapped.map_or(String::new(), |mapped| mapped.path.clone()),
                ..Area::default()
            };
            if with_rss {
                self.each_page(segment.start, segment.in_core, |_, page| {
                    area.rss += if is_zero(page) { 0 } else { page.len() as u64 };
                });
            }
            area
        };
        let mut areas: Vec<Area> = self.segments.iter().map(mapping).collect();
        // gcore leaves segments out of which it writes nothing.
        let is_missing = |mapped: &&Mapped| self.segment(mapped.start).is_none();
        areas.extend(self.files.iter().filter(is_missing).map(|mapped| Area {
            start: mapped.start,
            end: mapped.end,
            access: if mapped.executable { "r-xp" } else { "r--p" }.to_string(),
            offset: mapped.offset,
            inode: 1,
            name: mapped.path.clone(),
            ..Area::default()
        }));
        areas.sort_by_key(|area| area.start);
        areas
    }

    /// What /proc/PID/pagemap would say of the pages from this one on.
    pub fn pagemap(&self, first: u64, entries: &mut [u8]) {
        let page = page_bytes();
        entries.fill(0);
        let (start, end) = (first * page, (first + entries.len() as u64 / 8) * page);
        let from = self.segments.partition_point(|segment| segment.end <= start);
        for segment in self.segments[from..].iter().take_while(|segment| segment.start < end) {
            let (from, to) = (segment.start.max(start), (segment.start + segment.in_core).min(end));
            self.each_page(from, to.saturating_sub(from), |at, bytes| {
                if !is_zero(bytes) {
                    let entry = (at / page - first) as usize * 8;
                    entries[entry..entry + 8].copy_from_slice(&(area::PRESENT | area::ALONE).to_le_bytes());
                }
            });
        }
    }
}

/// A core that stays open until the command ends.
pub fn open(path: &Path) -> Result<&'static Core> {
    Ok(Box::leak(Box::new(Core::open(path).with_context(|| path.display().to_string())?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;

    fn note(kind: u32, content: &[u8]) -> Vec<u8> {
        let head = [5, content.len() as u32, kind].map(u32::to_le_bytes).concat();
        [&head, &b"CORE\0\0\0\0"[..], content, &vec![0; content.len().next_multiple_of(4) - content.len()]].concat()
    }

    /// NT_FILE: one path, mapped so often.
    fn files(count: u64, path: &str) -> Vec<u8> {
        let entries = (1..=count).flat_map(|number| [number << 12, (number + 1) << 12, number]);
        let words: Vec<u8> = [count, 1].into_iter().chain(entries).flat_map(u64::to_le_bytes).collect();
        [words, format!("{path}\0").repeat(count as usize).into_bytes()].concat()
    }

    /// A core with these notes, a page of memory, and behind them a hole that is a note.
    fn core(files: &[u8], hole: u64) -> (tempfile::NamedTempFile, Vec<u8>) {
        const HEADERS: u64 = 4096;
        let notes = [note(elf::NT_PRSTATUS, &[0; 336]), note(elf::NT_FILE, files)].concat();
        let memory = HEADERS + notes.len() as u64;
        let parts = [
            [elf::PT_NOTE as u64, HEADERS, 0, notes.len() as u64],
            [elf::PT_LOAD as u64 | 6 << 32, memory, 0x70_0000_0000, 4096],
            [elf::PT_NOTE as u64, memory + 4096, 0, hole],
        ];
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62_u32 };
        bytes.extend([(machine << 16 | 4).to_le_bytes(), 1_u32.to_le_bytes()].concat());
        bytes.extend([0, 64, 0_u64].map(u64::to_le_bytes).concat());
        bytes.extend([0_u16, 0, 64, 56, parts.len() as u16, 0, 0, 0].map(u16::to_le_bytes).concat());
        for [kind, offset, address, size] in parts {
            bytes.extend([kind, offset, address, 0, size, size, 1].map(u64::to_le_bytes).concat());
        }
        bytes.resize(HEADERS as usize, 0);
        bytes.extend(notes);
        bytes.resize(memory as usize + 4096, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        file.as_file().set_len(memory + 4096 + hole).unwrap();
        (file, bytes)
    }

    /// Else each stack is taken for data, and what it held before still holds blocks.
    #[test]
    fn each_machine_has_its_stack_pointer() {
        let registers: Vec<u64> = (0..34).collect();
        let on = |machine| stack_pointer_on(machine, &registers);
        // It comes after r15 to eflags, 19 of them, after x0 to x30, and after pc and ra.
        assert_eq!(["x86_64", "aarch64", "riscv64"].map(on), [Some(19), Some(31), Some(2)]);
        assert_eq!((on("m68k"), stack_pointer_on("aarch64", &registers[..31])), (None, None));
    }

    /// Else a core of some KiB on the disk is read for a minute, into 3 GB of memory.
    #[test]
    fn notes_without_end_are_refused() {
        let sound = core(&files(1, "/none"), 0).0;
        assert!(Core::open(sound.path()).is_ok());
        let hole = core(&files(1, "/none"), 3_000_000_000).0;
        hakmem_fuzz::bounded(&"a hole", || {
            let said = Core::open(hole.path()).err().unwrap().to_string();
            assert!(said.contains("too large"), "{said}");
        });
    }

    /// Else a core has whoever reads it open a device, or wait for a FIFO, or look for each of its files among all.
    #[test]
    fn files_of_a_core_are_opened_once() {
        let place = tempfile::tempdir().unwrap();
        let opened = |path: &Path| {
            let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
            inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).unwrap();
            let core = core(&files(100_000, path.to_str().unwrap()), 0).0;
            hakmem_fuzz::bounded(&path.display(), || {
                assert_eq!(Core::open(core.path()).unwrap().mappings(false).len(), 100_001)
            });
            let mut bytes = [0; 4096];
            rustix::io::read(&watch, &mut bytes).unwrap_or(0) / 16
        };
        let (fifo, file) = (place.path().join("fifo"), place.path().join("file"));
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert_eq!((opened(&fifo), opened(&file)), (0, 1));
        let many: Vec<u8> = (0..10_000).flat_map(|number| format!("/none/{number}\0").into_bytes()).collect();
        let mut note = files(10_000, "");
        note.truncate(16 + 24 * 10_000);
        note.extend(many);
        assert!(Core::open(core(&note, 0).0.path()).is_ok(), "of more files than are opened");
    }

    /// Else a core that somebody sent ends the command, or keeps it.
    #[test]
    fn any_core_is_read_or_refused() {
        let (file, sound) = core(&files(3, "/etc/passwd"), 0);
        hakmem_fuzz::mutations("a core", &sound, 300, |bytes| {
            std::fs::write(file.path(), bytes).unwrap();
            let Ok(core) = Core::open(file.path()) else { return };
            let mappings = core.mappings(true);
            let mut page = [0; 4096];
            mappings.iter().take(100).for_each(|area| {
                core.read(area.start, &mut page);
            });
            std::hint::black_box((core.pagemap(0x0700_0000, &mut [0; 64]), core.about(), core.lacks()));
        });
        // The header and the table behind it, where numbers are that lead somewhere.
        hakmem_fuzz::cases(300, |seed| {
            let random = &mut hakmem_fuzz::Random::new(seed);
            let mut bytes = sound.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(64 + 3 * 56) / 8 * 8;
                bytes[at..at + 8].copy_from_slice(&random.choose(&hakmem_fuzz::NUMBERS).to_le_bytes());
            }
            std::fs::write(file.path(), bytes).unwrap();
            hakmem_fuzz::bounded(&format_args!("a core, seed {seed}"), || {
                Core::open(file.path()).map(|core| core.mappings(false).len()).ok()
            });
        });
    }
}
