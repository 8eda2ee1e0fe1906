//! The file format of profiles: pprof's protobuf, gzip.
//!
//! Sample types are alloc_objects, alloc_space, inuse_objects and inuse_space, as Go's and gperftools' heap profiles
//! have them, and peak_objects and peak_space: what was in use when the program held most. A stack is written as one
//! sample of what is in use and one for each range of lifetimes of what was freed, which has a numeric label "lifetime"
//! in nanoseconds: the lower end of the range. Blocks in an arena with a name have it as the label "arena". What pprof
//! has no field for is in comments. Profiles of others are read as far as they have these sample types.
// SPDX-License-Identifier: MIT

use super::{add_lifetimes, Frame, Lifetime, Metric, Module, Place, Profile, Stack, Totals};
use crate::budget::{self, Budget};
use anyhow::{bail, ensure, Context, Result};
use flate2::{read::MultiGzDecoder, write::GzEncoder, Compression};
use hakmem_base::shown;
use prost::Message;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::ops::Range;

#[rustfmt::skip] // as prost-build writes it, from profile.proto
mod proto;
mod wire;

const TOO_LARGE: &str = "is too large: it takes too much memory";

/// In the order they are written. Profiles of others lack the last two.
const TYPES: [Metric; Metric::COUNT] = [
    Metric::AllocObjects,
    Metric::AllocSpace,
    Metric::InuseObjects,
    Metric::InuseSpace,
    Metric::PeakObjects,
    Metric::PeakSpace,
];
/// Those of what is in use.
const LIVE: Range<usize> = 2..4;
/// The largest unpacked profile: a few KiB could unpack to any size.
const PLAIN_MAX: u64 = 64 << 20;
const LIFETIME: &str = "lifetime";
const ARENA: &str = "arena";

pub fn is_pprof(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

// ---- writing ----

/// Strings and functions, each once.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    numbers: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
}

impl Tables {
    /// pprof prints it as it is.
    fn string(&mut self, text: &str) -> i64 {
        let text = shown::line(text);
        let text = text.as_ref();
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.strings.len() as i64;
        self.strings.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        number
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let key = (self.string(&frame.function), self.string(&frame.file));
        let next = self.functions.len() as u64 + 1;
        *self.functions.entry(key).or_insert(next)
    }

    fn value_type(&mut self, name: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { r#type: self.string(name), unit: self.string(unit) }
    }
}

pub fn write(profile: &Profile) -> Result<Vec<u8>> {
    pack(&encode(profile, 0..TYPES.len()))
}

/// What is in use, and nothing that only grows.
pub fn write_live(profile: &Profile) -> Result<Vec<u8>> {
    let mut out = encode(profile, LIVE);
    out.sample.retain(|sample| sample.value.iter().any(|&value| value != 0));
    pack(&out)
}

fn pack(profile: &proto::Profile) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&profile.encode_to_vec())?;
    Ok(packed.finish()?)
}

/// `types`: those of TYPES that it has.
fn encode(profile: &Profile, types: Range<usize>) -> proto::Profile {
    let mut tables = Tables::default();
    tables.string("");
    let mut comments = vec![format!("command: {}", profile.command), format!("pid: {}", profile.pid)];
    comments.extend(profile.at_exit.then(|| "at exit".to_string()));
    comments.extend((!profile.moment.is_empty()).then(|| format!("moment: {}", profile.moment)));
    comments.extend(profile.notes.iter().map(|note| format!("note: {note}")));
    let mut out = proto::Profile {
        sample_type: TYPES[types.clone()].iter().map(|one| tables.value_type(one.name(), one.unit())).collect(),
        sample: profile.stacks.iter().flat_map(|stack| samples(stack, &mut tables)).collect(),
        mapping: mappings(profile, &mut tables),
        location: locations(profile, &mut tables),
        time_nanos: profile.time_ns,
        duration_nanos: profile.duration_ns,
        period_type: Some(tables.value_type("space", "bytes")),
        period: profile.interval as i64,
        comment: comments.iter().map(|text| tables.string(text)).collect(),
        default_sample_type: tables.string(Metric::InuseSpace.name()),
        ..Default::default()
    };
    out.sample.iter_mut().for_each(|sample| sample.value = sample.value[types.clone()].to_vec());
    let mut functions: Vec<_> = tables.functions.into_iter().collect();
    functions.sort_by_key(|function| function.1);
    let function = |((name, filename), id)| proto::Function { id, name, system_name: name, filename };
    out.function = functions.into_iter().map(function).collect();
    out.string_table = tables.strings;
    out
}

fn samples(stack: &Stack, tables: &mut Tables) -> Vec<proto::Sample> {
    let location_id: Vec<u64> = stack.places.iter().map(|place| *place as u64 + 1).collect();
    let number = |value: u64| value.min(i64::MAX as u64) as i64;
    let arena = (!stack.arena.is_empty()).then(|| {
        let (key, str) = (tables.string(ARENA), tables.string(&stack.arena));
        proto::Label { key, str, ..Default::default() }
    });
    let mut samples = Vec::new();
    if stack.live != Totals::default() || stack.peak != Totals::default() {
        let [live, peak] = [stack.live, stack.peak].map(|one| [number(one.objects), number(one.bytes)]);
        let value = [live, live, peak].concat();
        samples.push(proto::Sample { location_id: location_id.clone(), value, label: arena.into_iter().collect() });
    }
    for lifetime in &stack.lifetimes {
        let label = lifetime.at_least_ns.map(|at_least_ns| proto::Label {
            key: tables.string(LIFETIME),
            num: number(at_least_ns),
            num_unit: tables.string("nanoseconds"),
            ..Default::default()
        });
        samples.push(proto::Sample {
            location_id: location_id.clone(),
            value: vec![number(lifetime.freed.objects), number(lifetime.freed.bytes), 0, 0, 0, 0],
            label: label.into_iter().chain(arena).collect(),
        });
    }
    samples
}

fn mappings(profile: &Profile, tables: &mut Tables) -> Vec<proto::Mapping> {
    let mapping = |(number, module): (usize, &Module)| {
        let frames = || profile.places.iter().filter(|place| place.module == Some(number)).flat_map(|one| &one.frames);
        let named = frames().next().is_some();
        proto::Mapping {
            id: number as u64 + 1,
            memory_start: module.start,
            memory_limit: module.end,
            file_offset: module.offset,
            filename: tables.string(&module.path),
            build_id: tables.string(&module.build_id),
            has_functions: named,
            has_filenames: frames().any(|frame| !frame.file.is_empty()),
            has_line_numbers: frames().any(|frame| frame.line > 0),
            has_inline_frames: named,
        }
    };
    profile.modules.iter().enumerate().map(mapping).collect()
}

fn locations(profile: &Profile, tables: &mut Tables) -> Vec<proto::Location> {
    let location = |(number, place): (usize, &Place)| proto::Location {
        id: number as u64 + 1,
        mapping_id: place.module.map_or(0, |module| module as u64 + 1),
        address: place.address,
        line: place
            .frames
            .iter()
            .map(|frame| proto::Line { function_id: tables.function(frame), line: frame.line as i64 })
            .collect(),
    };
    profile.places.iter().enumerate().map(location).collect()
}

// ---- reading ----

pub fn read(bytes: &[u8]) -> Result<Profile> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).take(PLAIN_MAX + 1).read_to_end(&mut plain).context("is damaged")?;
    ensure!(plain.len() as u64 <= PLAIN_MAX, "is too large: it unpacks to more than {} MiB", PLAIN_MAX >> 20);
    parse(&plain)
}

fn parse(plain: &[u8]) -> Result<Profile> {
    let mut left = Budget::new(budget::PROFILE);
    ensure!(wire::fits(plain, &mut left), TOO_LARGE);
    decode(&proto::Profile::decode(plain).context("is not a pprof profile")?, left)
}

/// Where the numbers of a sample are, and of its values which is which.
struct Reader<'a> {
    from: &'a proto::Profile,
    values: [Option<usize>; Metric::COUNT],
    places: HashMap<u64, usize>,
}

fn text(from: &proto::Profile, number: i64) -> &str {
    usize::try_from(number).ok().and_then(|number| from.string_table.get(number)).map_or("", String::as_str)
}

fn decode(from: &proto::Profile, mut left: Budget) -> Result<Profile> {
    let values = TYPES.map(|metric| from.sample_type.iter().position(|one| text(from, one.r#type) == metric.name()));
    if let Some(at) = values[..4].iter().position(Option::is_none) {
        bail!("is no heap profile: it has no {}", TYPES[at].name());
    }
    let mut profile = Profile {
        time_ns: from.time_nanos,
        duration_ns: from.duration_nanos,
        interval: from.period.max(0) as u64,
        ..Default::default()
    };
    for comment in from.comment.iter().map(|&number| text(from, number)) {
        match comment.split_once(": ") {
            Some(("command", command)) => profile.command = command.to_string(),
            Some(("pid", pid)) => profile.pid = pid.parse().unwrap_or(0),
            Some(("moment", moment)) => profile.moment = moment.to_string(),
            Some(("note", note)) => {
                left.take(note.len()).context(TOO_LARGE)?;
                profile.notes.push(note.to_string());
            }
            _ => profile.at_exit |= comment == "at exit",
        }
    }
    let module = |one: &proto::Mapping| -> Result<Module> {
        let name = |number| budget::cut(text(from, number)).to_string();
        let (path, build_id) = (name(one.filename), name(one.build_id));
        left.take(path.len() + build_id.len()).context(TOO_LARGE)?;
        Ok(Module { start: one.memory_start, end: one.memory_limit, offset: one.file_offset, path, build_id })
    };
    profile.modules = from.mapping.iter().map(module).collect::<Result<_>>()?;
    let modules: HashMap<u64, usize> = from.mapping.iter().enumerate().map(|(at, one)| (one.id, at)).collect();
    let functions: HashMap<u64, &proto::Function> = from.function.iter().map(|one| (one.id, one)).collect();
    let frame = |line: &proto::Line| {
        let function = functions.get(&line.function_id);
        let of = |number: fn(&proto::Function) -> i64| {
            budget::cut(function.map_or("", |one| text(from, number(one)))).to_string()
        };
        Frame { function: of(|one| one.name), file: of(|one| one.filename), line: line.line.max(0) as u64 }
    };
    let place = |one: &proto::Location| -> Result<Place> {
        let frames = one.line.iter().take(budget::NESTED).map(|line| {
            let frame = frame(line);
            left.take(frame.function.len() + frame.file.len()).context(TOO_LARGE).map(|()| frame)
        });
        Ok(Place {
            address: one.address,
            module: modules.get(&one.mapping_id).copied().filter(|&at| profile.modules[at].start <= one.address),
            frames: frames.collect::<Result<_>>()?,
        })
    };
    profile.places = from.location.iter().map(place).collect::<Result<_>>()?;
    let places = from.location.iter().enumerate().map(|(at, one)| (one.id, at)).collect();
    profile.stacks = Reader { from, values, places }.stacks(left)?;
    Ok(profile)
}

impl Reader<'_> {
    /// Samples of one stack come together again.
    fn stacks(&self, mut left: Budget) -> Result<Vec<Stack>> {
        let (mut stacks, mut known) = (Vec::<Stack>::new(), HashMap::new());
        for sample in &self.from.sample {
            let place = |id: &u64| self.places.get(id).copied().with_context(|| format!("has no location {id}"));
            let places = sample.location_id.iter().map(place).collect::<Result<Vec<_>>>()?;
            let label = |key| sample.label.iter().find(|label| text(self.from, label.key) == key);
            let arena = budget::cut(label(ARENA).map_or("", |label| text(self.from, label.str))).to_string();
            left.take(2 * (arena.len() + places.len() * 8) + size_of::<Stack>()).context(TOO_LARGE)?;
            let at = *known.entry((places.clone(), arena.clone())).or_insert_with(|| {
                stacks.push(Stack { places, arena, ..Stack::default() });
                stacks.len() - 1
            });
            let [objects, bytes, live_objects, live_bytes, peak_objects, peak_bytes] = self.numbers(sample)?;
            stacks[at].peak += Totals { objects: peak_objects, bytes: peak_bytes };
            stacks[at].live += Totals { objects: live_objects, bytes: live_bytes };
            let freed =
                Totals { objects: objects.saturating_sub(live_objects), bytes: bytes.saturating_sub(live_bytes) };
            if freed != Totals::default() {
                let at_least_ns = label(LIFETIME).map(|label| label.num.max(0) as u64);
                add_lifetimes(&mut stacks[at].lifetimes, &[Lifetime { at_least_ns, freed }]);
            }
        }
        Ok(stacks)
    }

    fn numbers(&self, sample: &proto::Sample) -> Result<[u64; Metric::COUNT]> {
        ensure!(sample.value.len() == self.from.sample_type.len(), "has a sample of {} values", sample.value.len());
        let numbers = self.values.map(|at| at.map_or(0, |at| sample.value[at]));
        if numbers.iter().any(|&number| number < 0) {
            bail!("has a negative value; it is a difference, not a profile");
        }
        Ok(numbers.map(|number| number as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sites;

    fn frame(function: &str, line: u64) -> Frame {
        Frame { function: function.into(), file: "a \u{e4}.cc".into(), line }
    }

    fn example() -> Profile {
        let totals = |objects, bytes| Totals { objects, bytes };
        Profile {
            command: "x: y".into(),
            pid: 12,
            time_ns: 5,
            duration_ns: 6,
            interval: 524_288,
            at_exit: true,
            moment: "exit".into(),
            notes: vec!["one: two".into()],
            advice: Vec::new(),
            modules: vec![Module { start: 4096, end: 8192, offset: 0, path: "/a/b".into(), build_id: "00ff".into() }],
            places: vec![
                Place { address: 5000, module: Some(0), frames: vec![frame("inner", 3), frame("outer<int, 2>", 9)] },
                Place { address: 9, module: None, frames: vec![] },
            ],
            stacks: vec![
                Stack {
                    places: vec![0, 1],
                    arena: "parser".into(),
                    live: totals(3, 300),
                    peak: totals(4, 800),
                    lifetimes: vec![
                        Lifetime { at_least_ns: Some(0), freed: totals(1, 10) },
                        Lifetime { at_least_ns: Some(1000), freed: totals(2, 20) },
                    ],
                },
                Stack { places: vec![1], live: totals(1, u64::MAX >> 1), peak: totals(4, 800), ..Stack::default() },
                Stack { places: vec![1], arena: "a scene".into(), live: totals(2, 9), ..Stack::default() },
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (written, packed) = (example(), write(&example()).unwrap());
        assert!(is_pprof(&packed));
        let read = read(&packed).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&written).unwrap());
    }

    #[test]
    fn other_profiles_are_refused_in_words() {
        let all = || Budget::new(budget::PROFILE);
        let mut other = encode(&example(), 0..TYPES.len());
        other.sample_type[3].r#type = 0;
        assert!(decode(&other, all()).unwrap_err().to_string().contains("it has no inuse_space"));
        let mut broken = encode(&example(), 0..TYPES.len());
        broken.sample[0].location_id[0] = 77;
        assert!(decode(&broken, all()).unwrap_err().to_string().contains("no location 77"));
        let mut difference = encode(&example(), 0..TYPES.len());
        difference.sample[0].value[0] = -1;
        assert!(decode(&difference, all()).unwrap_err().to_string().contains("negative"));
        assert!(read(&write(&example()).unwrap()[..40]).is_err());
    }

    /// Else a file that somebody sent ends the command, or keeps it.
    #[test]
    fn any_bytes_are_a_profile_or_none() {
        let sound = encode(&example(), 0..TYPES.len()).encode_to_vec();
        hakmem_fuzz::mutations("a pprof profile", &sound, 1000, |bytes| {
            if let Ok(mut profile) = parse(bytes) {
                profile.shorten();
                crate::profile::tests::show(&profile);
            }
        });
        let packed = write(&example()).unwrap();
        hakmem_fuzz::mutations("a packed profile", &packed, 300, |bytes| drop(read(bytes)));
    }

    /// Else a file of 254 bytes takes 800 MB, and one of 1,142 bytes all memory.
    #[test]
    fn names_that_stand_in_many_places_are_cut() {
        for (letters, lines) in [(100_000, 1000), (1_000_000, 4000)] {
            let mut one = encode(&example(), 0..TYPES.len());
            let name = one.string_table.len() as i64;
            one.string_table.push("A".repeat(letters));
            one.function = vec![proto::Function { id: 1, name, ..Default::default() }];
            one.location[0].line = vec![proto::Line { function_id: 1, line: 1 }; lines];
            let bytes = one.encode_to_vec();
            hakmem_fuzz::bounded(&format_args!("{letters} letters in {lines} lines"), || {
                let Ok(mut profile) = parse(&bytes) else { return };
                profile.shorten();
                let frames = &profile.places[0].frames;
                assert!(frames.len() <= budget::NESTED && frames[0].function.len() <= budget::NAME_BYTES);
                std::hint::black_box(sites::site(&profile, &profile.stacks[0]));
            });
        }
    }

    /// Else 64 MiB of empty messages, which pack to nothing, are gigabytes.
    #[test]
    fn empty_messages_are_counted() {
        for (name, field) in [("samples", 2), ("mappings", 3), ("locations", 4), ("functions", 5), ("strings", 6)] {
            let bytes = [field << 3 | 2, 0].repeat(5 << 20);
            hakmem_fuzz::bounded(&name, || assert!(parse(&bytes).unwrap_err().to_string().contains("too large")));
        }
        let inner = |field: u8, content: &[u8]| [&[field << 3 | 2, content.len() as u8], content].concat();
        let location = inner(4, &inner(4, &[]).repeat(60));
        let sample = inner(2, &inner(1, &[1; 100]));
        for (name, message) in [("lines", location), ("numbers", sample)] {
            let bytes = message.repeat((10 << 20) / message.len());
            hakmem_fuzz::bounded(&name, || assert!(parse(&bytes).unwrap_err().to_string().contains("too large")));
        }
    }

    /// Else a file of a MiB takes a GiB of memory, and one of a GiB all.
    #[test]
    fn a_profile_does_not_unpack_without_end() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        (0..66).for_each(|_| packed.write_all(&zeros).unwrap());
        let packed = packed.finish().unwrap();
        let said = hakmem_fuzz::bounded(&"a bomb", || read(&packed).unwrap_err().to_string());
        assert!(said.contains("too large"), "{said}");
    }
}
