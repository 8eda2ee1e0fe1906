//! Where things lie in the library of another process: the tables of `struct inspect` (src/inspect.h).
//!
//! The only layout known here is that of `struct inspect` and its two tables, version 1.

use super::remote::Remote;
use anyhow::{bail, ensure, Context, Result};
use std::collections::HashMap;

pub const VERSION: u32 = 1;
const MAGIC: &[u8] = b"hakmem inspect\0\0";
const INSPECT_BYTES: usize = 48;
const FACT_NAME: usize = 40;
const FACT_BYTES: usize = 56;
const PLACE_NAME: usize = 24;
const PLACE_BYTES: usize = 32;
const ENTRIES_MOST: usize = 10_000;

#[derive(Debug)]
pub struct Layout {
    pub inspect: u64,
    pub version: String,
    facts: HashMap<String, (u64, u64)>,
    places: HashMap<String, u64>,
}

/// A field of a struct.
#[derive(Debug, Clone, Copy, Default)]
pub struct Field {
    pub at: usize,
    pub bytes: usize,
}

impl Field {
    /// Of the struct that begins at the start of `record`. 0 if the record is cut short.
    pub fn of(self, record: &[u8]) -> u64 {
        let Some(bytes) = record.get(self.at..self.at + self.bytes.min(8)) else {
            return 0;
        };
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    }

    /// Of an array of numbers of `width` bytes each.
    pub fn element(self, record: &[u8], index: usize, width: usize) -> u64 {
        Field { at: self.at + index * width, bytes: width }.of(record)
    }

    pub fn slice(self, record: &[u8]) -> &[u8] {
        record.get(self.at..self.at + self.bytes).unwrap_or(&[])
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub fn word(bytes: &[u8], at: usize) -> u64 {
    Field { at, bytes: 8 }.of(bytes)
}

fn read_places(remote: &Remote, at: u64, count: usize) -> Result<HashMap<String, u64>> {
    let table = remote.read_vec(at, count * PLACE_BYTES)?;
    Ok(table.chunks_exact(PLACE_BYTES).map(|entry| (text(&entry[..PLACE_NAME]), word(entry, PLACE_NAME))).collect())
}

impl Layout {
    pub fn read(remote: &Remote, inspect: u64) -> Result<Layout> {
        let head = remote.read_vec(inspect, INSPECT_BYTES)?;
        ensure!(head.starts_with(MAGIC), "PID {}: its HAKMEM's tables are overwritten", remote.pid);
        let number = |at| Field { at, bytes: 4 }.of(&head) as usize;
        let (tables, facts, places) = (number(16) as u32, number(20), number(24));
        ensure!(facts <= ENTRIES_MOST && places <= ENTRIES_MOST, "PID {}: its HAKMEM's tables are damaged", remote.pid);
        let (facts_at, places_at) = (word(&head, 32), word(&head, 40));
        let places = read_places(remote, places_at, places);
        let version = places.as_ref().ok().and_then(|places| remote.text(*places.get("version")?).ok());
        let version = version.unwrap_or("of an unknown version".to_string());
        if tables != VERSION {
            bail!(
                "PID {} runs HAKMEM {version}, whose tables have version {tables}; this command knows version {VERSION}: \
                 update it",
                remote.pid
            );
        }
        let places = places?;
        let facts = remote
            .read_vec(facts_at, facts * FACT_BYTES)?
            .chunks_exact(FACT_BYTES)
            .map(|entry| (text(&entry[..FACT_NAME]), (word(entry, FACT_NAME), word(entry, FACT_NAME + 8))))
            .collect();
        Ok(Layout { inspect, version, facts, places })
    }

    fn fact(&self, name: &str) -> Result<(u64, u64)> {
        let missing = || format!("HAKMEM {} does not tell {name}: update this command or the library", self.version);
        self.facts.get(name).copied().with_context(missing)
    }

    /// "slab.kind"
    pub fn field(&self, name: &str) -> Result<Field> {
        let (at, bytes) = self.fact(name)?;
        Ok(Field { at: at as usize, bytes: bytes as usize })
    }

    /// "SLOT_BYTES", "sizeof slab"
    pub fn constant(&self, name: &str) -> Result<u64> {
        Ok(self.fact(name)?.0)
    }

    pub fn size(&self, name: &str) -> Result<usize> {
        Ok(self.constant(name)? as usize)
    }

    pub fn place(&self, name: &str) -> Result<u64> {
        let missing = || format!("HAKMEM {} does not tell where {name} is: update this command", self.version);
        self.places.get(name).copied().with_context(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_widths() {
        let record: Vec<u8> = (1..=16).collect();
        assert_eq!(Field { at: 1, bytes: 1 }.of(&record), 2);
        assert_eq!(Field { at: 2, bytes: 4 }.of(&record), 0x0605_0403);
        assert_eq!(Field { at: 14, bytes: 8 }.of(&record), 0, "cut short");
        assert_eq!(Field { at: 0, bytes: 16 }.element(&record, 3, 2), 0x0807);
        assert_eq!(Field { at: 4, bytes: 3 }.slice(&record), [5, 6, 7]);
    }
}
