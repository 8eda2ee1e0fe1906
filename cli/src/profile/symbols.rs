//! Names for addresses, from files alone: nothing of the process is needed, it may be gone.
//!
//! 1. A module's file is taken if its build id is the one that was mapped.
//! 2. Its debug file: DIRECTORY/.build-id/xx/yyy.debug, or the one named by .gnu_debuglink beside it, in .debug, or below
//!    DIRECTORY; itself, if it was not stripped; or what `debuginfod-find` fetches, if DEBUGINFOD_URLS names servers.
//! 3. DWARF gives functions, inlined ones too, with file and line; else the symbol that covers the address gives the function.
//!    An address that no symbol covers stays without a name, rather than get that of a neighbour.
// SPDX-License-Identifier: MIT

use super::{Frame, Module, Profile};
use addr2line::{demangle_auto, Loader};
use hakmem_base::files;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where servers with debug files are, as all tools know it.
pub const DEBUGINFOD: &str = "DEBUGINFOD_URLS";
/// The largest file with symbols that is read.
const FILE_MAX: u64 = 2 << 30;

/// Names what has no name yet. `file_of` says where the file of a module is now.
pub fn name(profile: &mut Profile, file_of: &dyn Fn(&Module) -> Option<PathBuf>, directories: &[PathBuf]) {
    for number in 0..profile.modules.len() {
        let module = &profile.modules[number];
        let wanted = |place: &super::Place| place.module == Some(number) && place.frames.is_empty();
        if !profile.places.iter().any(wanted) {
            continue;
        }
        let Some(names) = file_of(module).and_then(|path| Names::open(&path, Path::new(&module.path), directories))
        else {
            continue;
        };
        if !module.build_id.is_empty() && module.build_id != names.build_id {
            profile.notes.push(format!("{} is not the file that was mapped (another build id)", module.path));
            continue;
        }
        for place in profile.places.iter_mut().filter(|place| wanted(place)) {
            place.frames = names.frames(place.address.wrapping_sub(module.start).wrapping_add(module.offset));
        }
        profile.modules[number].build_id = names.build_id;
    }
}

struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

/// What the files of one module say.
pub struct Names {
    pub build_id: String,
    /// Offset in the file, bytes, and the address they are linked to.
    segments: Segments,
    /// By address, none twice.
    symbols: Vec<Symbol>,
    dwarf: Option<Loader>,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn build_id(file: &object::File) -> String {
    file.build_id().ok().flatten().map(hexadecimal).unwrap_or_default()
}

fn has_dwarf(file: &object::File) -> bool {
    file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
}

/// DIRECTORY/.build-id/xx/yyy.debug
pub fn by_build_id(directory: &Path, id: &str) -> Option<PathBuf> {
    (id.is_ascii() && id.len() > 2)
        .then(|| directory.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..])))
}

fn text_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// The debug file of the file that was mapped from `path`, with its bytes.
fn debug_file(file: &object::File, path: &Path, directories: &[PathBuf]) -> Option<(PathBuf, Vec<u8>)> {
    let id = build_id(file);
    let fits_id = |bytes: &Vec<u8>| object::File::parse(&**bytes).is_ok_and(|debug| build_id(&debug) == id);
    let read = |path: PathBuf| Some((files::read_regular(&path, FILE_MAX).ok()?, path));
    for directory in directories {
        let found = by_build_id(directory, &id).and_then(read).filter(|(bytes, _)| fits_id(bytes));
        if let Some((bytes, path)) = found {
            return Some((path, bytes));
        }
    }
    let (link, sum) = file.gnu_debuglink().ok()??;
    let (name, beside) = (text_path(link), path.parent()?);
    let below = directories.iter().map(|directory| directory.join(beside.strip_prefix("/").unwrap_or(beside)));
    let places = [beside.to_path_buf(), beside.join(".debug")].into_iter().chain(below);
    let fits_sum = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum() == sum
    };
    let mut found = places.filter_map(|place| read(place.join(&name)));
    found.find(|(bytes, _)| fits_sum(bytes)).map(|(bytes, path)| (path, bytes))
}

pub fn debuginfod_is_on() -> bool {
    std::env::var_os(DEBUGINFOD).is_some_and(|servers| !servers.is_empty())
}

/// The debug file that the servers have, which debuginfod's own tool fetches once and keeps.
fn fetched(file: &object::File) -> Option<(PathBuf, Vec<u8>)> {
    let id = Some(build_id(file)).filter(|id| !id.is_empty() && debuginfod_is_on())?;
    let mut find = Command::new("debuginfod-find");
    let found = find.args(["debuginfo", &id]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let path = text_path(found.stdout.trim_ascii());
    let bytes = files::read_regular(&path, FILE_MAX).ok()?;
    let fits = object::File::parse(&*bytes).is_ok_and(|debug| build_id(&debug) == id);
    fits.then_some((path, bytes))
}

/// What several debug files have in common is in a further one (dwz).
fn shared_part(debug: &object::File, path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let (link, id) = debug.gnu_debugaltlink().ok()??;
    let beside = path.parent()?.join(text_path(link));
    let by_id = directories.iter().filter_map(|directory| by_build_id(directory, &hexadecimal(id)));
    std::iter::once(beside).chain(by_id).find(|path| path.exists())
}

fn symbols(file: &object::File, kinds: &[SymbolKind], symbols: &mut Vec<Symbol>) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if kinds.contains(&symbol.kind()) && symbol.is_definition() && symbol.address() > 0 {
            let name = symbol.name().unwrap_or_default().to_string();
            symbols.push(Symbol { start: symbol.address(), end: symbol.address().saturating_add(symbol.size()), name });
        }
    }
}

/// In order; of several at one address the longest. One without a length, as assemblers leave them, reaches to the next.
fn ordered(mut symbols: Vec<Symbol>) -> Vec<Symbol> {
    symbols.retain(|symbol| !symbol.name.is_empty());
    symbols.sort_by(|a, b| (a.start, b.end).cmp(&(b.start, a.end)));
    symbols.dedup_by_key(|symbol| symbol.start);
    for at in 1..symbols.len() {
        if symbols[at - 1].end == symbols[at - 1].start {
            symbols[at - 1].end = symbols[at].start;
        }
    }
    symbols
}

type Segments = Vec<(u64, u64, u64)>;

fn segments(file: &object::File) -> Segments {
    file.segments().map(|one| (one.file_range().0, one.file_range().1, one.address())).collect()
}

/// Where the offset of a file is linked to.
fn linked(segments: &Segments, offset: u64) -> Option<u64> {
    let inside = |&&(start, bytes, _): &&(u64, u64, u64)| offset >= start && offset - start < bytes;
    segments.iter().find(inside).map(|(start, _, linked)| (offset - start).wrapping_add(*linked))
}

/// The symbol that covers the address.
fn covering(symbols: &[Symbol], address: u64) -> Option<&str> {
    let at = symbols.partition_point(|symbol| symbol.start <= address).checked_sub(1)?;
    symbols.get(at).filter(|symbol| address < symbol.end).map(|symbol| symbol.name.as_str())
}

/// The functions and variables of one module, without lines.
pub struct Variables {
    segments: Segments,
    symbols: Vec<Symbol>,
}

impl Variables {
    /// As Names::open.
    pub fn open(path: &Path, mapped: &Path, directories: &[PathBuf]) -> Option<Variables> {
        const KINDS: [SymbolKind; 2] = [SymbolKind::Data, SymbolKind::Text];
        let bytes = files::read_regular(path, FILE_MAX).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let mut all = Vec::new();
        symbols(&file, &KINDS, &mut all);
        if let Some((_, bytes)) = debug_file(&file, mapped, directories) {
            symbols(&object::File::parse(&*bytes).ok()?, &KINDS, &mut all);
        }
        Some(Variables { segments: segments(&file), symbols: ordered(all) })
    }

    /// The symbol, as it is in the file, that covers this offset of it.
    pub fn at_offset(&self, offset: u64) -> Option<&str> {
        covering(&self.symbols, linked(&self.segments, offset)?)
    }
}

pub fn demangled(name: &str) -> String {
    demangle_auto(Cow::Borrowed(name), None).into_owned()
}

impl Names {
    /// `path` can be opened, `mapped` is its name in the process.
    pub fn open(path: &Path, mapped: &Path, directories: &[PathBuf]) -> Option<Names> {
        let bytes = files::read_regular(path, FILE_MAX).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let mut all = Vec::new();
        symbols(&file, &[SymbolKind::Text], &mut all);
        let mut dwarf = None;
        if has_dwarf(&file) {
            let shared = shared_part(&file, mapped, directories);
            dwarf = Loader::new_with_sup(path, shared).ok();
        } else if let Some((path, bytes)) = debug_file(&file, mapped, directories).or_else(|| fetched(&file)) {
            let debug = object::File::parse(&*bytes).ok()?;
            symbols(&debug, &[SymbolKind::Text], &mut all);
            dwarf = Loader::new_with_sup(&path, shared_part(&debug, &path, directories)).ok();
        }
        Some(Names { build_id: build_id(&file), segments: segments(&file), symbols: ordered(all), dwarf })
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let name = demangled(covering(&self.symbols, address)?);
        // What a compiler made of it: " [clone .isra.0]".
        Some(name.split(" [clone ").next().unwrap_or(&name).to_string())
    }

    /// The address that an offset of the file is linked to.
    pub fn linked(&self, offset: u64) -> Option<u64> {
        linked(&self.segments, offset)
    }

    /// The functions at an offset of the file, the inmost first.
    fn frames(&self, offset: u64) -> Vec<Frame> {
        self.linked(offset).map_or(Vec::new(), |address| self.at(address))
    }

    /// The functions at an address that they are linked to, the inmost first.
    pub fn at(&self, address: u64) -> Vec<Frame> {
        let frames = self.inlined(address);
        if !frames.is_empty() {
            return frames;
        }
        let symbol = self.symbol(address);
        symbol.map(|function| Frame { function, file: String::new(), line: 0 }).into_iter().collect()
    }

    fn inlined(&self, address: u64) -> Vec<Frame> {
        let mut found = Vec::new();
        let Some(mut frames) = self.dwarf.as_ref().and_then(|dwarf| dwarf.find_frames(address).ok()) else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let named = frame.function.as_ref().and_then(|name| name.demangle().ok().map(Cow::into_owned));
            let Some(function) = named.or_else(|| self.symbol(address)) else {
                continue;
            };
            let (file, line) = frame.location.map_or((None, None), |place| (place.file, place.line));
            let (file, line) = (file.unwrap_or_default().to_string(), line.unwrap_or(0).into());
            found.push(Frame { function, file, line });
        }
        found
    }
}
