//! What meshing (HAKMEM_MESH, src/mesh) would give back, estimated: pages of a class whose live blocks do not overlap
//! fit into one.
//!
//!  1. Some of the sparse slabs of a class are read, and stand for all.
//!  2. Their pages are put together as the library does it (src/mesh/mesh.c): the fullest first, each into the first
//!     group where it fits.
//!  3. The library also puts pages of different classes together, and finds more partners among all slabs than among
//!     some: it may give back more. The program may write to shared pages, which are its own again then: it may give
//!     back less.
// SPDX-License-Identifier: MIT

use super::layout::SizeClass;

/// The pages that the library meshes.
pub const PAGE_BYTES: u64 = 4096;
/// Slabs of a class that are read.
pub const SLABS_READ: usize = 32;
const GRAIN_BYTES: u64 = 16;
const WORDS: usize = (PAGE_BYTES / GRAIN_BYTES / 64) as usize;
/// As in src/mesh: the largest share of live blocks in a slab, and the most pages of a group.
const SPARSE_SHARE: u64 = 4;
const MEMBERS_MAX: usize = 64;

/// Bit i: live blocks cover the i-th 16 bytes of the page.
pub type PageMap = [u64; WORDS];

/// Does the library mesh slabs of the class that are so full?
pub fn is_sparse(size: SizeClass, used_blocks: u64) -> bool {
    size.block_bytes >= GRAIN_BYTES && used_blocks > 0 && used_blocks <= size.blocks / SPARSE_SHARE
}

/// The pages of a slab. `is_live`: by block.
pub fn pages(size: SizeClass, slot_bytes: u64, is_live: &[bool]) -> Vec<PageMap> {
    let mut pages = vec![[0; WORDS]; (slot_bytes / PAGE_BYTES) as usize];
    for (block, _) in (0u64..).zip(is_live).filter(|(_, &is_live)| is_live) {
        for grain in block * size.block_bytes / GRAIN_BYTES..(block + 1) * size.block_bytes / GRAIN_BYTES {
            let (page, bit) = (grain * GRAIN_BYTES / PAGE_BYTES, grain % (PAGE_BYTES / GRAIN_BYTES));
            if let Some(page) = pages.get_mut(page as usize) {
                page[bit as usize / 64] |= 1 << (bit % 64);
            }
        }
    }
    pages
}

/// What would become of some pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meshed {
    /// Pages that would go back.
    pub saved: u64,
    /// Pages that would be mapped to files. A process may have a bounded number of mappings.
    pub mapped: u64,
}

/// Puts pages together.
pub fn mesh(mut pages: Vec<PageMap>) -> Meshed {
    let full = |page: &PageMap| page.iter().map(|word| word.count_ones()).sum::<u32>();
    pages.retain(|page| full(page) > 0);
    pages.sort_by_key(|page| std::cmp::Reverse(full(page)));
    let mut groups: Vec<(PageMap, usize)> = Vec::new();
    for page in &pages {
        let fits = |group: &&mut (PageMap, usize)| {
            group.1 < MEMBERS_MAX && group.0.iter().zip(page).all(|(group, page)| group & page == 0)
        };
        match groups.iter_mut().find(fits) {
            Some((group, members)) => {
                group.iter_mut().zip(page).for_each(|(group, page)| *group |= page);
                *members += 1;
            }
            None => groups.push((*page, 1)),
        }
    }
    let mapped = groups.iter().map(|&(_, members)| members).filter(|&members| members > 1).sum::<usize>() as u64;
    Meshed { saved: (pages.len() - groups.len()) as u64, mapped }
}

/// How many pages a process may have mapped to files: a quarter of its mappings, as in src/mesh/meshed.c.
pub fn mapped_most() -> u64 {
    let known = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    known.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(65530) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: SizeClass = SizeClass { block_bytes: 64, blocks: 1024, slots: 1 };

    fn slab(live: impl Fn(usize) -> bool) -> Vec<PageMap> {
        pages(SIZE, 65536, &(0..1024).map(live).collect::<Vec<_>>())
    }

    #[test]
    fn pages_share_if_their_blocks_do_not_overlap() {
        assert_eq!(mesh(slab(|_| false)), Meshed::default());
        assert_eq!(mesh(slab(|block| block % 64 == 0)), Meshed::default(), "all at the same place");
        assert_eq!(mesh(slab(|block| block % 65 == 0)), Meshed { saved: 15, mapped: 16 }, "each at another place");
        assert_eq!(mesh(slab(|block| block == 7)), Meshed::default(), "one page alone");
        let two = slab(|block| block % 128 == 0).into_iter().chain(slab(|block| block % 128 == 65)).collect();
        assert_eq!(mesh(two), Meshed { saved: 8, mapped: 16 });
    }

    /// A block of 240 bytes at the end of a page goes on in the next one.
    #[test]
    fn a_block_that_crosses_pages_covers_both() {
        let size = SizeClass { block_bytes: 240, blocks: 273, slots: 1 };
        let map = pages(size, 65536, &(0..273).map(|block| block == 17).collect::<Vec<_>>());
        let bits = |page: usize| map[page].iter().map(|word| word.count_ones()).sum::<u32>();
        assert_eq!((bits(0), bits(1)), (1, 14));
    }

    #[test]
    fn only_sparse_slabs_are_meshed() {
        assert!(is_sparse(SIZE, 256) && !is_sparse(SIZE, 257) && !is_sparse(SIZE, 0));
        assert!(!is_sparse(SizeClass { block_bytes: 8, blocks: 8192, slots: 1 }, 10));
    }
}
