//! Tunables of another process (src/process/tunables.h): constants of 32 bits, one each or one for each class.
// SPDX-License-Identifier: MIT

use super::model::OptionValue;
use super::reader::Reader;
use super::rows::{parse_number, OptionEntry};
use anyhow::{ensure, Context, Result};
use std::ops::Range;

/// A tunable's words, one for each class where the tunable has classes.
struct Words {
    at: u64,
    classes: Range<usize>,
}

impl Words {
    fn address(&self, class: usize) -> u64 {
        self.at + 4 * class as u64
    }
}

impl Reader {
    fn tuned_words(&self, place: usize) -> Result<Words> {
        let (places, facts) = (&self.layout.places, &self.layout.table);
        let Some(class_place) = place.checked_sub(facts.tunables as usize) else {
            return Ok(Words { at: places.tunables + (facts.tunable_words.at + 4 * place) as u64, classes: 0..1 });
        };
        let all = facts.tuned_classes as usize;
        let range = self.remote.read_vec(places.tunable_ranges + 2 * class_place as u64, 2)?;
        let (first, end) = (range[0] as usize, range[1] as usize);
        ensure!(first < end && end <= all, "PID {}: its HAKMEM's tables are damaged: classes of a tunable", self.pid());
        let at = places.tunables + (facts.tunable_class_words.at + 4 * class_place * all) as u64;
        Ok(Words { at, classes: first..end })
    }

    /// The block size that the class stands for: those of tiny and mid, then large blocks by slots.
    pub(super) fn class_bytes(&self, class: usize) -> u64 {
        match self.sizes.get(class) {
            Some(size) => size.block_bytes,
            None => (class - self.sizes.len()) as u64 * self.layout.slab.slot_bytes,
        }
    }

    fn class_for(&self, bytes: u64) -> Option<usize> {
        let all = 0..self.layout.table.tuned_classes as usize;
        all.filter(|&class| self.class_bytes(class) >= bytes).min_by_key(|&class| self.class_bytes(class))
    }

    /// "4096", or "4096,112:512" where a class differs from the first one.
    fn tuned_value(&self, words: &Words) -> Result<String> {
        let values = self.remote.read_vec(words.address(words.classes.start), 4 * words.classes.len())?;
        let mut values = values.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let first = values.next().context("no class")?;
        let others = (words.classes.start + 1..).zip(values).filter(|(_, value)| *value != first);
        let others: String = others.map(|(class, value)| format!(",{}:{value}", self.class_bytes(class))).collect();
        Ok(format!("{first}{others}"))
    }

    pub fn read_tunables(&self) -> Result<Vec<OptionValue>> {
        let each = self.tunables.iter().enumerate();
        each.map(|(place, entry)| Ok(entry.tunable(self.tuned_value(&self.tuned_words(place)?)?))).collect()
    }

    /// The tunable's place, the addresses of the words to write and their value. None: there is no such tunable; an
    /// error: it may not be set to this, or has no value for this size.
    pub fn tuned_setting(&self, name: &str, text: &str) -> Result<Option<(usize, Vec<u64>, u32)>> {
        let (bare, size) = match name.split_once(':') {
            Some((bare, size)) => (bare, Some(size)),
            None => (name, None),
        };
        let Some(place) = self.tunables.iter().position(|entry| entry.name == bare) else { return Ok(None) };
        let words = self.tuned_words(place)?;
        let has_classes = place >= self.layout.table.tunables as usize;
        let class = size.map(|size| parse_number(size).and_then(|bytes| self.class_for(bytes)));
        let classes = match class {
            None => words.classes.clone(),
            Some(class) => {
                let class = class.filter(|class| has_classes && words.classes.contains(class));
                let class = class.with_context(|| format!("{name}={text}: {bare} has no value for this size"))?;
                class..class + 1
            }
        };
        let value = self.tunables[place].parse_tunable(text);
        let expected = || format!("{name}={text}: expected {}", self.tunables[place].tunable(String::new()).values);
        let value = value.with_context(expected)? as u32;
        Ok(Some((place, classes.map(|class| words.address(class)).collect(), value)))
    }

    /// Returns the value before and after, of all classes.
    pub fn set_tunable(&self, place: usize, addresses: &[u64], value: u32) -> Result<(String, String)> {
        let words = self.tuned_words(place)?;
        let before = self.tuned_value(&words)?;
        addresses.iter().try_for_each(|&at| self.remote.write(at, &value.to_ne_bytes()))?;
        Ok((before, self.tuned_value(&words)?))
    }
}

impl OptionEntry {
    fn tunable(&self, value: String) -> OptionValue {
        OptionValue {
            name: self.name.clone(),
            kind: "tunable".to_string(),
            value,
            default: self.initial.to_string(),
            live: true,
            values: format!("{} to {} {}", self.min, self.max, self.choices),
            help: self.help.clone(),
        }
    }

    fn parse_tunable(&self, text: &str) -> Option<u64> {
        parse_number(text).filter(|value| (self.min..=self.max.min(u32::MAX as u64)).contains(value))
    }
}
