//! What a profile will take when it is decoded, from its bytes alone: a message of two bytes becomes a structure of a
//! hundred, and 64 MiB of those become gigabytes.
// SPDX-License-Identifier: MIT

use super::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::budget::Budget;

/// The next number; None: the bytes are cut short, or it has none.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift).unwrap_or(0);
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The next field: its number, and the bytes that it has if it is not a number. What is damaged here prost refuses.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = number(bytes)?;
    let length = match key & 7 {
        0 => return number(bytes).map(|_| (key >> 3, None)),
        1 => 8,
        2 => number(bytes)? as usize,
        5 => 4,
        _ => return None,
    };
    let (found, rest) = (bytes.get(..length)?, &bytes[length..]);
    *bytes = rest;
    Some((key >> 3, (key & 7 == 2).then_some(found)))
}

/// Numbers in a row: each ends with a byte below 0x80.
fn numbers(packed: &[u8]) -> u64 {
    packed.iter().filter(|&&byte| byte < 0x80).count() as u64
}

/// Takes what the messages need, a vector's room to grow included. False: there is not so much.
pub fn fits(mut profile: &[u8], left: &mut Budget) -> bool {
    const WORD: u64 = 8;
    let mut take = |entries: u64, size: u64| left.have(entries, 2 * size);
    let mut all = take(1, size_of::<Profile>() as u64);
    while let (true, Some((number, content))) = (all, field(&mut profile)) {
        let content = content.unwrap_or_default();
        let inner = |wanted: u64| {
            let mut rest = content;
            std::iter::from_fn(move || field(&mut rest)).filter(move |one| one.0 == wanted).map(|one| one.1)
        };
        let words = |wanted| inner(wanted).map(|packed| packed.map_or(1, numbers)).sum::<u64>();
        all = match number {
            1 | 11 => take(1, size_of::<ValueType>() as u64),
            2 => {
                let (words, labels) = (words(1) + words(2), inner(3).count() as u64);
                take(1 + words, size_of::<Sample>() as u64 + WORD * words)
                    && take(labels, labels * size_of::<Label>() as u64)
            }
            3 => take(1, size_of::<Mapping>() as u64),
            4 => {
                let lines = inner(4).count() as u64;
                take(1 + lines, size_of::<Location>() as u64 + lines * size_of::<Line>() as u64)
            }
            5 => take(1, size_of::<Function>() as u64),
            6 => take(1, size_of::<String>() as u64 + content.len() as u64 / 2),
            13 => take(0, WORD * numbers(content).max(1)),
            _ => true,
        };
    }
    all
}
