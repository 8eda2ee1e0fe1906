//! What is mapped where, and the bits of an entry of pagemap, as the kernel writes them.
// SPDX-License-Identifier: MIT

pub const PRESENT: u64 = 1 << 63;
pub const SWAPPED: u64 = 1 << 62;
/// A file's page, or shared memory.
pub const OF_A_FILE: u64 = 1 << 61;
pub const ALONE: u64 = 1 << 56;

/// The file of the pages that slabs share (HAKMEM_MESH), which has no directory.
pub const SHARED_FILE: &str = "memfd:hakmem";

/// A path without directories, and without the mark of a file that is no longer there.
pub fn file_name(path: &str) -> Option<&str> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.starts_with('/').then(|| path.rsplit('/').next().unwrap_or(path))
}

/// A line of maps, or an entry of smaps.
#[derive(Debug, Clone, Default)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    /// "rw-p"
    pub access: String,
    pub offset: u64,
    pub inode: u64,
    /// Path, "[stack]" and the like, or nothing.
    pub name: String,
    pub rss: u64,
    /// How much of `rss` is in huge pages.
    pub huge: u64,
}

impl Area {
    pub fn parse(line: &str) -> Option<Area> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, access) = (hex(start)?, hex(end)?, words.next()?.to_string());
        if start > end {
            return None;
        }
        let (offset, _device) = (hex(words.next()?)?, words.next()?);
        let inode = words.next()?.parse().ok()?;
        let name = words.next().unwrap_or_default().trim_start().to_string();
        Some(Area { start, end, access, offset, inode, name, rss: 0, huge: 0 })
    }

    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && (self.name.is_empty() || self.name.starts_with("[anon:"))
    }

    pub fn file_name(&self) -> Option<&str> {
        file_name(&self.name)
    }
}
