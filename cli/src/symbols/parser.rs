//! Names from the bytes of a module's files, which may have been written by an attacker. Only child.rs calls this, in a
//! process that has nothing to lose.
//!
//!  1. What a file says of itself: build id, segments, and which debug files belong to it.
//!  2. DWARF gives functions, inlined ones too, with file and line; else the symbol that covers the address gives the
//!     function. An address that no symbol covers stays without a name, rather than get that of a neighbour.
//!  3. Names are cut, their sum is bounded, and debug information that is nested too deep is not read: addr2line would
//!     overflow its stack. What else takes too long, or too much memory, ends the process.
//!
//! Debug information that was split off the program (.dwo) is asked for by its path; packages of it (.dwp) are not
//! read.
// SPDX-License-Identifier: MIT

use super::Frame;
use crate::budget::{self, Budget};
use addr2line::gimli::{self, DwLang, EndianSlice, RunTimeEndian};
use addr2line::{LookupContinuation, LookupResult, SplitDwarfLoad};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// Zlib packs no better. What a section says of its size is room that it gets.
const RATIO_MAX: u64 = 1032;
/// Segments of a file that are believed.
const SEGMENTS_MAX: usize = 4096;

/// Offset in the file, bytes, and the address they are linked to.
pub type Segments = Vec<(u64, u64, u64)>;

/// What a file says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub build_id: String,
    pub has_dwarf: bool,
    pub segments: Segments,
    /// .gnu_debuglink: the name of the debug file, and its checksum.
    pub link: Option<(String, u32)>,
    /// .gnu_debugaltlink: the path and the build id of what several debug files have in common (dwz).
    pub shared: Option<(String, String)>,
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lossy(bytes: &[u8]) -> String {
    budget::cut(&String::from_utf8_lossy(&bytes[..bytes.len().min(budget::NAME_BYTES)])).to_string()
}

pub fn about(bytes: &[u8]) -> Option<About> {
    let file = object::File::parse(bytes).ok()?;
    let segments = file.segments().map(|one| (one.file_range().0, one.file_range().1, one.address()));
    let id = |id: &[u8]| hexadecimal(&id[..id.len().min(64)]);
    let shared = file.gnu_debugaltlink().ok().flatten();
    Some(About {
        build_id: file.build_id().ok().flatten().map(id).unwrap_or_default(),
        has_dwarf: file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0),
        segments: segments.take(SEGMENTS_MAX).collect(),
        link: file.gnu_debuglink().ok().flatten().map(|(name, sum)| (lossy(name), sum)),
        shared: shared.map(|(path, of)| (lossy(path), id(of))),
    })
}

pub fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

// ---- symbols ----

struct Symbol<'a> {
    start: u64,
    end: u64,
    name: &'a [u8],
}

fn symbols<'a>(file: &object::File<'a>, kinds: &[SymbolKind], symbols: &mut Vec<Symbol<'a>>) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if kinds.contains(&symbol.kind()) && symbol.is_definition() && symbol.address() > 0 {
            let name = symbol.name_bytes().unwrap_or_default();
            symbols.push(Symbol { start: symbol.address(), end: symbol.address().saturating_add(symbol.size()), name });
        }
    }
}

/// In order; of several at one address the longest. One without a length, as assemblers leave them, reaches to the
/// next.
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

// ---- demangling ----

/// A text that takes no more than a name may have.
struct Short(String);

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = budget::NAME_BYTES - self.0.len();
        self.0.push_str(budget::cut_to(text, left));
        if text.len() > left {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

/// What is no name has none, one that is too long is cut, and one at which a demangler fails is one name less.
fn demangled_by(demangle: impl Fn(&mut Short) -> Option<bool>) -> Option<String> {
    let mut short = Short(String::new());
    let whole = catch_unwind(AssertUnwindSafe(|| demangle(&mut short))).ok()??;
    Some(short.0).filter(|name| whole || name.len() + 4 > budget::NAME_BYTES)
}

fn of_rust(name: &str) -> Option<String> {
    demangled_by(|short| Some(write!(short, "{:#}", rustc_demangle::try_demangle(name).ok()?).is_ok()))
}

fn of_cpp(name: &str) -> Option<String> {
    demangled_by(|short| {
        let symbol = cpp_demangle::Symbol::new(name).ok()?;
        Some(symbol.structured_demangle(short, &Default::default()).is_ok())
    })
}

pub fn demangled(name: &str) -> String {
    of_rust(name).or_else(|| of_cpp(name)).unwrap_or_else(|| budget::cut(name).to_string())
}

/// As the language has it that the debug information names.
fn demangled_from(name: &str, language: Option<DwLang>) -> String {
    let found = match language {
        None => return demangled(name),
        Some(gimli::DW_LANG_Rust) => of_rust(name),
        Some(
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14,
        ) => of_cpp(name),
        Some(_) => None,
    };
    found.unwrap_or_else(|| budget::cut(name).to_string())
}

// ---- DWARF ----

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Sections<'a> = gimli::DwarfSections<Cow<'a, [u8]>>;

fn sections<'a>(file: &object::File<'a>) -> Option<Sections<'a>> {
    sections_named(file, |id| Some(id.name()))
}

fn sections_named<'a>(
    file: &object::File<'a>,
    name: impl Fn(gimli::SectionId) -> Option<&'static str>,
) -> Option<Sections<'a>> {
    let mut unpacked = Budget::new(budget::SECTIONS);
    gimli::DwarfSections::load(|id| {
        let section = name(id).and_then(|name| file.section_by_name(name));
        let Some(section) = section else { return Ok(Cow::Borrowed(&[][..])) };
        let packed = section.compressed_file_range().map_err(|_| ())?;
        let is_packed = packed.format != object::CompressionFormat::None;
        let is_likely = packed.uncompressed_size / RATIO_MAX <= packed.compressed_size;
        if is_packed && !(is_likely && unpacked.have(1, packed.uncompressed_size)) {
            return Err(());
        }
        section.uncompressed_data().map_err(|_| ())
    })
    .ok()
}

/// Which units cover an address, and which of them are nested too deep.
struct Units<'a> {
    dwarf: Arc<gimli::Dwarf<Slice<'a>>>,
    headers: Vec<gimli::UnitHeader<Slice<'a>>>,
    /// From, to, and the unit, in order; the greatest `to` so far.
    ranges: Vec<(u64, u64, usize, u64)>,
    /// Those that do not say what they cover.
    anywhere: Vec<usize>,
    is_deep: RefCell<HashMap<usize, bool>>,
}

impl<'a> Units<'a> {
    fn new(dwarf: Arc<gimli::Dwarf<Slice<'a>>>) -> Units<'a> {
        let (mut headers, mut ranges, mut anywhere) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = dwarf.units();
        while let Ok(Some(header)) = all.next() {
            let before = ranges.len();
            let found = dwarf.unit(header).and_then(|unit| dwarf.unit_ranges(&unit));
            if let Ok(mut found) = found {
                while let Ok(Some(range)) = found.next() {
                    ranges.push((range.begin, range.end, headers.len(), 0));
                }
            }
            if ranges.len() == before {
                anywhere.push(headers.len());
            }
            headers.push(header);
        }
        ranges.sort_unstable();
        let mut most = 0;
        for range in &mut ranges {
            most = range.1.max(most);
            range.3 = most;
        }
        Units { dwarf, headers, ranges, anywhere, is_deep: RefCell::default() }
    }

    /// Is debug information that addr2line reads for this address nested too deep?
    fn are_deep(&self, address: u64) -> bool {
        let behind = self.ranges.partition_point(|range| range.0 <= address);
        let some = self.ranges[..behind].iter().rev().take_while(|range| range.3 > address);
        let covering = some.filter(|range| range.1 > address).map(|range| range.2);
        covering.chain(self.anywhere.iter().copied()).any(|unit| {
            let mut known = self.is_deep.borrow_mut();
            *known.entry(unit).or_insert_with(|| self.is_deep(unit))
        })
    }

    fn is_deep(&self, unit: usize) -> bool {
        self.depth(unit).is_none_or(|depth| depth > budget::NESTED as isize)
    }

    fn depth(&self, unit: usize) -> Option<isize> {
        let header = &self.headers[unit];
        let abbreviations = self.dwarf.abbreviations(header).ok()?;
        let mut entries = header.entries_raw(&abbreviations, None).ok()?;
        let mut most = 0;
        while !entries.is_empty() && most <= budget::NESTED as isize {
            most = most.max(entries.next_depth());
            // What is behind damage addr2line does not read, either.
            let Ok(found) = entries.read_abbreviation() else { break };
            if found.is_some_and(|one| entries.skip_attributes(one.attributes()).is_err()) {
                break;
            }
        }
        Some(most)
    }
}

struct Debug<'a> {
    context: addr2line::Context<Slice<'a>>,
    units: Units<'a>,
    endian: RunTimeEndian,
}

/// Gives the bytes of a file with this path, which stay until the end.
pub type Split<'a> = &'a dyn Fn(&str) -> Option<&'static [u8]>;

/// What was split off a unit.
fn split_off<'a>(
    wanted: &SplitDwarfLoad<Slice<'a>>,
    endian: RunTimeEndian,
    split: Split,
) -> Option<Arc<gimli::Dwarf<Slice<'a>>>> {
    let text = |part: Option<Slice>| part.map(|part| lossy(part.slice())).unwrap_or_default();
    let (directory, path) = (text(wanted.comp_dir), text(wanted.path));
    let path = std::path::Path::new(&directory).join(path);
    let file = object::File::parse(split(path.to_str()?)?).ok()?;
    // It is needed as long as what it was split off.
    let sections: &'static Sections = Box::leak(Box::new(sections_named(&file, |id| id.dwo_name())?));
    let mut dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
    dwarf.make_dwo(&wanted.parent);
    let units = Units::new(Arc::new(dwarf));
    let is_wanted = |header: &gimli::UnitHeader<Slice<'a>>| {
        units.dwarf.unit(*header).is_ok_and(|unit| unit.dwo_id == Some(wanted.dwo_id))
    };
    let fits = units.headers.iter().any(is_wanted) && !(0..units.headers.len()).any(|unit| units.is_deep(unit));
    fits.then_some(units.dwarf)
}

// ---- all of a module ----

/// The bytes of a module's files.
#[derive(Clone, Copy, Default)]
pub struct Files<'a> {
    pub main: &'a [u8],
    pub debug: Option<&'a [u8]>,
    pub shared: Option<&'a [u8]>,
}

/// A variable or function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    pub is_vtable: bool,
}

/// What they say.
pub struct Parser<'a> {
    symbols: Vec<Symbol<'a>>,
    debug: Option<Debug<'a>>,
    split: Split<'a>,
}

impl Files<'_> {
    /// `variables`: variables and functions without lines are wanted, not frames.
    pub fn read<R>(&self, variables: bool, split: Split, work: impl FnOnce(&Parser) -> R) -> Option<R> {
        let kinds = if variables { &[SymbolKind::Data, SymbolKind::Text][..] } else { &[SymbolKind::Text] };
        let (mut all, mut parsed) = (Vec::new(), None);
        for bytes in [Some(self.main), self.debug].into_iter().flatten() {
            let file = object::File::parse(bytes).ok()?;
            symbols(&file, kinds, &mut all);
            parsed = Some(file);
        }
        let wanted = parsed.filter(|_| !variables);
        let (of_file, of_shared) = (
            wanted.as_ref().and_then(sections),
            self.shared.and_then(|bytes| object::File::parse(bytes).ok()).as_ref().and_then(sections),
        );
        let endian = match wanted.as_ref().is_none_or(|file| file.is_little_endian()) {
            true => RunTimeEndian::Little,
            false => RunTimeEndian::Big,
        };
        let debug = of_file.as_ref().and_then(|sections| {
            let slice = |section| EndianSlice::new(section as &[u8], endian);
            let mut dwarf = sections.borrow(|section| slice(&**section));
            if let Some(shared) = &of_shared {
                dwarf.set_sup(shared.borrow(|section| slice(&**section)));
            }
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            let dwarf = Arc::new(dwarf);
            let context = addr2line::Context::from_arc_dwarf(dwarf.clone()).ok()?;
            Some(Debug { context, units: Units::new(dwarf), endian })
        });
        Some(work(&Parser { symbols: ordered(all), debug, split }))
    }
}

impl<'a> Parser<'a> {
    fn covering(&self, address: u64) -> Option<Cow<'_, str>> {
        let at = self.symbols.partition_point(|symbol| symbol.start <= address).checked_sub(1)?;
        let symbol = self.symbols.get(at).filter(|symbol| address < symbol.end)?;
        Some(String::from_utf8_lossy(&symbol.name[..symbol.name.len().min(budget::NAME_BYTES)]))
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let name = demangled(&self.covering(address)?);
        // What a compiler made of it: " [clone .isra.0]".
        Some(name.split(" [clone ").next().unwrap_or(&name).to_string())
    }

    pub fn variable(&self, address: u64) -> Option<Variable> {
        let name = self.covering(address)?;
        Some(Variable { is_vtable: name.starts_with("_ZTV"), name: demangled(&name) })
    }

    /// The functions at an address that they are linked to, the inmost first; none where the budget is spent.
    pub fn at(&self, address: u64, budget: &mut Budget) -> Vec<Frame> {
        let mut frames = self.inlined(address);
        if frames.is_empty() {
            let symbol = self.symbol(address);
            frames.extend(symbol.map(|function| Frame { function, file: String::new(), line: 0 }));
        }
        let bytes: usize = frames.iter().map(|frame| frame.function.len() + frame.file.len()).sum();
        if !budget.have(frames.len() as u64, bytes as u64) {
            frames.clear();
        }
        frames
    }

    fn frames<'d>(&self, debug: &'d Debug<'a>, address: u64) -> Option<addr2line::FrameIter<'d, Slice<'a>>> {
        let mut looked = debug.context.find_frames(address);
        loop {
            looked = match looked {
                LookupResult::Output(frames) => return frames.ok(),
                LookupResult::Load { load, continuation } => {
                    continuation.resume(split_off(&load, debug.endian, self.split))
                }
            };
        }
    }

    fn inlined(&self, address: u64) -> Vec<Frame> {
        let mut found = Vec::new();
        // addr2line looks at the address behind it.
        let debug = self.debug.as_ref().filter(|debug| address < u64::MAX && !debug.units.are_deep(address));
        let Some(mut frames) = debug.and_then(|debug| self.frames(debug, address)) else { return found };
        while let (Ok(Some(frame)), true) = (frames.next(), found.len() < budget::NESTED) {
            let named = frame.function.as_ref().and_then(|name| {
                let raw = name.raw_name().ok()?;
                Some(demangled_from(budget::cut(&raw), name.language))
            });
            let Some(function) = named.or_else(|| self.symbol(address)) else {
                continue;
            };
            let (file, line) = frame.location.map_or((None, None), |place| (place.file, place.line));
            let (file, line) = (budget::cut(file.unwrap_or_default()).to_string(), line.unwrap_or(0).into());
            found.push(Frame { function, file, line });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hakmem_fuzz::{bounded, cases, Random, NUMBERS};
    use std::process::Command;

    const SOURCE: &str = "struct a { int x; };\n\
        static inline __attribute__((always_inline)) int inner(struct a *a) { return a->x * 3; }\n\
        int outer(struct a *a) { return inner(a) + 1; }\nint variable = 7;\nchar *name(void) { return \"x\"; }\n";

    fn compiled(flags: &[&str]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let (c, library) = (directory.path().join("a.c"), directory.path().join("a.so"));
        std::fs::write(&c, SOURCE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-g", "-O1", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id", "-o"])
            .arg(&library)
            .arg(&c)
            .args(flags);
        assert!(cc.status().unwrap().success());
        std::fs::read(library).unwrap()
    }

    fn address_of(bytes: &[u8], name: &str) -> u64 {
        let file = object::File::parse(bytes).unwrap();
        let found = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address();
        found
    }

    fn budget() -> Budget {
        Budget::new(budget::NAMES)
    }

    /// All that the child is asked.
    fn ask(main: &[u8], debug: Option<&[u8]>, addresses: &[u64]) -> usize {
        std::hint::black_box((about(main), checksum(main)));
        let files = Files { main, debug, shared: debug };
        let frames = files.read(false, &|_| None, |parser| {
            let mut left = budget();
            addresses.iter().map(|&address| parser.at(address, &mut left).len()).sum()
        });
        files.read(true, &|_| None, |parser| addresses.iter().filter_map(|&one| parser.variable(one)).count());
        frames.unwrap_or(0)
    }

    #[test]
    fn functions_are_named_with_their_lines() {
        let bytes = compiled(&[]);
        let about = about(&bytes).unwrap();
        assert!(about.has_dwarf && about.build_id.len() == 40 && about.shared.is_none(), "{about:?}");
        let (outer, variable) = (address_of(&bytes, "outer"), address_of(&bytes, "variable"));
        let files = Files { main: &bytes, ..Files::default() };
        let frames =
            files.read(false, &|_| None, |parser| (outer..outer + 8).map(|at| parser.at(at, &mut budget())).collect());
        let frames: Vec<Vec<Frame>> = frames.unwrap();
        let inlined = frames.iter().find(|frames| frames.len() == 2).expect("inner is inlined");
        let [inner, outer] = &inlined[..] else { panic!() };
        assert_eq!(
            (inner.function.as_str(), inner.line, outer.function.as_str(), outer.line),
            ("inner", 2, "outer", 3)
        );
        let found = files.read(true, &|_| None, |parser| (parser.variable(variable), parser.variable(8))).unwrap();
        assert_eq!(found, (Some(Variable { name: "variable".into(), is_vtable: false }), None));
        let mut spent = Budget::new(budget::Limits { bytes: 3, ..budget::NAMES });
        assert!(files.read(false, &|_| None, |parser| parser.at(variable - 1, &mut spent)).unwrap().is_empty());
    }

    /// Else a program that was built with -gsplit-dwarf has no inlined calls, or has them from another one's file.
    #[test]
    fn what_was_split_off_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let (c, library) = (directory.path().join("a.c"), directory.path().join("a.so"));
        std::fs::write(&c, SOURCE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-g", "-gsplit-dwarf", "-O1", "-shared", "-fPIC", "-nostdlib", "-o"]).arg(&library).arg(&c);
        assert!(cc.current_dir(directory.path()).status().unwrap().success());
        let bytes = std::fs::read(&library).unwrap();
        let (outer, files) = (address_of(&bytes, "outer"), Files { main: &bytes, ..Files::default() });
        let calls = |split: Split| {
            let most = |parser: &Parser| (outer..outer + 8).map(|at| parser.at(at, &mut budget()).len()).max();
            files.read(false, split, most).flatten()
        };
        let asked = RefCell::new(Vec::new());
        let found = calls(&|path| {
            asked.borrow_mut().push(path.to_string());
            Some(Box::leak(std::fs::read(path).unwrap().into_boxed_slice()))
        });
        assert_eq!((found, asked.borrow().len()), (Some(2), 1), "{asked:?}");
        let other: &'static [u8] = Box::leak(compiled(&[]).into_boxed_slice());
        assert_eq!((calls(&|_| None), calls(&|_| Some(other))), (Some(1), Some(1)));
    }

    /// Else whoever names a symbol decides how much memory the command takes.
    #[test]
    fn names_that_demangle_into_gigabytes_are_cut() {
        let mut name = "_Z1f1AIiiE".to_string();
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        (0..30).for_each(|at| name += &format!("S_IS{0}_S{0}_E", digits[at] as char));
        let short = bounded(&"a name", || demangled(&name));
        assert!(short.starts_with("f(A<int, int>, A<A<int, int>, A<int, int> >") && short.len() <= budget::NAME_BYTES);
        assert!(short.len() > 1000, "{short}");
        assert_eq!(demangled("_ZN3abc3defEv"), "abc::def()");
        assert_eq!(demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangled(&"x".repeat(budget::NAME_BYTES + 9)).len(), budget::NAME_BYTES);
    }

    #[test]
    fn any_name_is_demangled_or_stays() {
        let names = ["_ZN3abcIiSt6vectorIS_IiEES2_E3defERKS1_PFvvE", "_RNvCs1234_7mycrate3foo", "_ZTV1A"];
        for name in names {
            hakmem_fuzz::mutations(name, name.as_bytes(), 1000, |bytes| {
                assert!(demangled(&String::from_utf8_lossy(bytes)).len() <= budget::NAME_BYTES);
            });
        }
    }

    /// Else a file that a program has mapped ends whoever names its frames, or takes all memory.
    #[test]
    fn any_file_has_symbols_or_none() {
        let plain = compiled(&[]);
        let packed = compiled(&["-gz=zlib"]);
        let old = compiled(&["-gdwarf-4"]);
        let outer = address_of(&plain, "outer");
        let addresses: Vec<u64> = [0, u64::MAX, 0x1000].into_iter().chain(outer - 4..outer + 24).collect();
        assert!(ask(&plain, None, &addresses) > 10 && ask(&plain, Some(&packed), &addresses) > 10);
        cases(600, |seed| {
            let random = &mut Random::new(seed);
            let sound = random.choose(&[&plain, &packed, &old]);
            let mut bytes = sound.clone();
            if seed % 3 == 0 {
                bytes = hakmem_fuzz::mutated(sound, random);
            } else {
                // The tables of sections, and debug information.
                let debug = sound.windows(4).position(|word| word == b"GCC:").unwrap_or(0);
                let places = [(0, 64), (sound.len() - 3000, 3000), (debug, 2000)];
                for _ in 0..=random.below(4) {
                    let (start, length) = random.choose(&places);
                    let number = random.choose(&NUMBERS).to_le_bytes();
                    let (at, length) = (start + random.below(length), random.choose(&[1, 2, 4, 8]));
                    bytes.iter_mut().skip(at).zip(&number[..length]).for_each(|(byte, new)| *byte = *new);
                }
            }
            let debug = (seed % 4 == 0).then_some(sound.as_slice());
            bounded(&format_args!("symbols, seed {seed}"), || ask(&bytes, debug, &addresses));
        });
    }
}
