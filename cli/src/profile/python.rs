//! Python functions in stacks: what the library noted of their code (src/observe/python.h) becomes names and lines, and
//! takes the place of the interpreter's own calls.
//!
//! A stack comes as its calls in C, and behind them a word for each Python frame. Each call of the interpreter's loop
//! runs the frames up to one that is marked as its entry; what the interpreter does from one loop to the next is left
//! out.
// SPDX-License-Identifier: MIT

use super::{Frame, Profile};
use crate::heap::samples::{code_number, is_word, Code, Codes, ENTRY};

const LOOP: &str = "_PyEval_EvalFrameDefault";

pub fn frame(word: u64, codes: &Codes) -> Frame {
    let instruction = word & u64::from(u32::MAX);
    match codes.get(&code_number(word)) {
        Some(code) => Frame { function: code.name.clone(), file: code.file.clone(), line: code.line(instruction) },
        None => Frame { function: "(a Python function)".into(), file: String::new(), line: 0 },
    }
}

// ---- lines ----

/// Signed and unsigned numbers in parts of six bits.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    let (mut value, mut shift) = (0, 0);
    for byte in bytes {
        value |= u64::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    value
}

fn signed_varint(bytes: &mut impl Iterator<Item = u8>) -> i64 {
    let value = varint(bytes);
    let half = (value >> 1) as i64;
    if value & 1 == 0 {
        half
    } else {
        -half
    }
}

impl Code {
    /// The line of an instruction, which has two bytes; 0: none.
    fn line(&self, instruction: u64) -> u64 {
        let first = self.first_line as i64;
        let line = match self.minor {
            ..=9 => self.line_by_deltas(first, instruction.saturating_mul(2)),
            10 => self.line_by_ranges(first, instruction.saturating_mul(2)),
            _ => self.line_by_locations(first, instruction),
        };
        line.try_into().unwrap_or(0)
    }

    /// 3.9: pairs of steps, of the instructions' bytes and of lines.
    fn line_by_deltas(&self, mut line: i64, wanted: u64) -> i64 {
        let mut at = 0;
        for pair in self.lines.chunks_exact(2) {
            at += u64::from(pair[0]);
            if at > wanted {
                break;
            }
            line = line.saturating_add(i64::from(pair[1] as i8));
        }
        line
    }

    /// 3.10: pairs of a range's length in bytes, and of its line's distance from the last one; -128: it has none.
    fn line_by_ranges(&self, mut line: i64, wanted: u64) -> i64 {
        let mut end = 0;
        for pair in self.lines.chunks_exact(2) {
            let has_line = pair[1] != 0x80;
            line = line.saturating_add(if has_line { i64::from(pair[1] as i8) } else { 0 });
            end += u64::from(pair[0]);
            if wanted < end {
                return if has_line { line } else { 0 };
            }
        }
        0
    }

    /// 3.11 and later: entries of which the first byte has the highest bit set, a form, and a length in instructions.
    fn line_by_locations(&self, mut line: i64, wanted: u64) -> i64 {
        let mut end = 0;
        let mut rest = &self.lines[..];
        while let Some((&first, tail)) = rest.split_first() {
            let more = tail.iter().position(|byte| byte & 0x80 != 0).unwrap_or(tail.len());
            let form = first >> 3 & 15;
            line = line.saturating_add(match form {
                10..=12 => i64::from(form) - 10,
                13 | 14 => signed_varint(&mut tail[..more].iter().copied()),
                _ => 0,
            });
            end += u64::from(first & 7) + 1;
            if wanted < end {
                return if form == 15 { 0 } else { line };
            }
            rest = &tail[more..];
        }
        0
    }
}

// ---- stacks ----

/// What the interpreter calls to come from one Python function to the next.
fn is_between(frame: &Frame) -> bool {
    const STARTS: [&str; 24] = [
        "_PyEval",
        "PyEval_",
        "_PyFunction_",
        "PyFunction_",
        "_PyObject_",
        "PyObject_",
        "_PyVectorcall",
        "PyVectorcall",
        "vectorcall",
        "_PyCFunction",
        "cfunction_",
        "method_vectorcall",
        "object_",
        "slot_",
        "type_call",
        "call_function",
        "do_call_core",
        "function_code",
        "run_",
        "pyrun_",
        "_PyRun",
        "PyRun_",
        "pymain_",
        "Py_",
    ];
    STARTS.iter().any(|start| frame.function.starts_with(start))
}

/// The stack's places with Python's frames where they belong; None: it has none.
fn merged(profile: &Profile, places: &[usize]) -> Option<Vec<usize>> {
    let word = |place: &usize| profile.places[*place].address;
    let first = places.iter().position(|place| is_word(word(place)))?;
    let (calls, frames) = places.split_at(first);
    let mut frames = frames.iter().copied().peekable();
    let mut merged = Vec::new();
    let mut interpreter = None;
    for &call in calls {
        let place = &profile.places[call];
        if place.frames.iter().any(|frame| frame.function == LOOP) && frames.peek().is_some() {
            interpreter = place.module;
            for frame in frames.by_ref() {
                merged.push(frame);
                if word(&frame) & ENTRY != 0 {
                    break;
                }
            }
        } else if place.is_managed() {
            // What `python -X perf` puts between: frames has it with its line.
        } else if interpreter.is_none() || place.module != interpreter || !place.frames.iter().all(is_between) {
            merged.push(call);
        }
    }
    merged.extend(frames);
    Some(merged)
}

/// Puts Python's frames where the loops stand that run them. What has a name in C is named already.
pub fn merge(profile: &mut Profile) {
    for number in 0..profile.stacks.len() {
        if let Some(places) = merged(profile, &profile.stacks[number].places) {
            profile.stacks[number].places = places;
        }
    }
    profile.places.iter_mut().filter(|place| is_word(place.address)).for_each(|place| place.address = 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::samples::{FRAME, NUMBER_SHIFT};
    use crate::profile::{Place, Stack};

    fn code(minor: u64, lines: &[u8]) -> Code {
        Code { minor, first_line: 10, name: "f".into(), file: "/a.py".into(), lines: lines.to_vec() }
    }

    #[test]
    fn a_first_line_may_be_any_number() {
        for minor in [9, 10, 11] {
            for first_line in [u64::MAX, i64::MAX as u64] {
                let code = Code { first_line, ..code(minor, &[1, 1, 1, 1, 0xf8, 1]) };
                assert!([0, 1, u64::MAX].iter().all(|at| code.line(*at) <= first_line));
            }
        }
    }

    /// As `dis` tells them of
    ///     def f(a):
    ///         b = [
    ///             a,
    ///         ]
    ///         return b
    #[test]
    fn lines_of_all_versions() {
        let old = code(9, &[0, 1, 2, 1, 2, 0xff, 4, 3]);
        let lines: Vec<u64> = (0..6).map(|at| old.line(at)).collect();
        assert_eq!(lines, [11, 12, 11, 11, 14, 14]);
        let ranges = code(10, &[0, 1, 2, 0, 2, 1, 4, 0xff, 2, 0x80, 2, 3]);
        let lines: Vec<u64> = (0..7).map(|at| ranges.line(at)).collect();
        assert_eq!(lines, [11, 12, 11, 11, 0, 14, 0]);
        // No column; a long one, back by 70 lines; one line on; none; short.
        let new =
            code(11, &[0x80 | 13 << 3 | 1, 4, 0x80 | 14 << 3, 0x4d, 2, 0, 1, 1, 0x80 | 11 << 3, 1, 2, 0xf8, 0x80, 5]);
        let lines: Vec<u64> = (0..7).map(|at| new.line(at)).collect();
        assert_eq!(lines, [12, 12, 0, 0, 0, 0, 0], "negative lines are none");
        let near = code(13, &[0x80 | 13 << 3, 4, 0x80 | 11 << 3 | 7, 1, 2, 0xf8, 0x80, 5]);
        assert_eq!([0, 1, 8, 9, 10, 11].map(|at| near.line(at)), [12, 13, 13, 0, 13, 0]);
    }

    /// Else a process that lies, or a file that somebody sent, ends the command.
    #[test]
    fn any_table_has_lines_or_none() {
        for minor in [9, 10, 11] {
            hakmem_fuzz::mutations("a table of lines", &[0xe9, 0x7f, 0xf0, 1, 2, 3, 0x80, 0xff], 500, |bytes| {
                let code = code(minor, bytes);
                std::hint::black_box((0..40).map(|at| code.line(at)).fold(0, u64::max));
            });
        }
    }

    fn merged_names(calls: &[&str], words: &[u64]) -> Vec<String> {
        let frame = |name: &str| Frame { function: name.to_string(), file: String::new(), line: 0 };
        let in_c = calls.iter().map(|name| Place {
            address: 1,
            module: Some(usize::from(name.starts_with("lib"))),
            frames: vec![frame(name)],
        });
        let codes: Codes =
            (0..9).map(|number| (number, Code { name: format!("py{number}"), ..code(11, &[]) })).collect();
        let in_python =
            words.iter().map(|&word| Place { address: word, module: None, frames: vec![super::frame(word, &codes)] });
        let mut profile = Profile { places: in_c.chain(in_python).collect(), ..Profile::default() };
        let places = (0..profile.places.len()).collect();
        let none = Default::default();
        profile.stacks.push(Stack { places, live: none, ..Stack::default() });
        merge(&mut profile);
        profile.frames(&profile.stacks[0]).into_iter().map(|(frame, _)| frame.function).collect()
    }

    #[test]
    fn frames_stand_where_their_loops_are() {
        let word = |number: u64, entry: bool| FRAME | number << NUMBER_SHIFT | if entry { ENTRY } else { 0 };
        let calls = ["list_append", LOOP, "_PyEval_Vector", "libx_sort", "PyObject_Call", LOOP, "pymain_run", "main"];
        let words = [word(0, false), word(1, true), word(2, true)];
        assert_eq!(merged_names(&calls, &words), ["list_append", "py0", "py1", "libx_sort", "py2", "main"]);
        assert_eq!(merged_names(&calls[..5], &words), ["list_append", "py0", "py1", "libx_sort", "py2"], "it was cut");
        assert_eq!(merged_names(&["a", LOOP, "b"], &[]), ["a", LOOP, "b"], "none were noted");
        assert_eq!(merged_names(&["a", LOOP, LOOP], &words[1..2]), ["a", "py1"], "not all were noted");
        assert_eq!(
            merged_names(&["libx_a"], &[word(8, true), word(9, true)]),
            ["libx_a", "py8", "(a Python function)"]
        );
    }
}
