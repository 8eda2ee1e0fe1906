#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]
// SPDX-License-Identifier: MIT

extern crate alloc;

#[cfg(feature = "allocator-api2")]
mod arena;
mod control;
#[cfg(feature = "allocator-api2")]
mod site;

#[cfg(feature = "allocator-api2")]
pub use arena::Arena;
pub use control::*;
#[cfg(feature = "allocator-api2")]
pub use site::{Policy, Site};

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr;

/// The allocator, for `#[global_allocator]`.
///
/// The functions of this crate work without it, too. They are about the whole process: all threads have one heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

/// Is every block of so many bytes aligned like that? hakmem.h promises these alignments.
const fn is_aligned_anyway(size: usize, alignment: usize) -> bool {
    alignment <= 8 || (alignment <= 16 && size > 8) || (alignment <= 4096 && size > 64 * 1024)
}

// SAFETY: blocks are as large and as aligned as the layout says, live until they are freed, and no function panics.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        if is_aligned_anyway(size, alignment) {
            hakmem_sys::hak_malloc(size).cast()
        } else {
            hakmem_sys::hak_aligned_alloc(alignment, size).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        hakmem_sys::hak_free_sized(block.cast(), layout.size());
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        if is_aligned_anyway(size, alignment) {
            return hakmem_sys::hak_calloc(1, size).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            ptr::write_bytes(block, 0, size);
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_aligned_anyway(new_size, layout.align()) {
            hakmem_sys::hak_realloc(block.cast(), new_size).cast()
        } else {
            self.realloc_aligned(block, layout, new_size)
        }
    }
}

impl Hakmem {
    /// Grows in place or copies, because `hak_realloc` need not keep an alignment.
    #[cold]
    unsafe fn realloc_aligned(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if new_size > layout.size() && hakmem_sys::hak_expand(block.cast(), new_size) != 0 {
            return block;
        }
        let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
        if !moved.is_null() {
            ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
            self.dealloc(block, layout);
        }
        moved
    }

    /// Returns how many bytes of the block the program may use: at least as many as it asked for.
    ///
    /// # Safety
    /// The block is live and HAKMEM's.
    #[inline]
    pub unsafe fn usable_size(&self, block: *const u8) -> usize {
        hakmem_sys::hak_usable_size(block.cast::<c_void>())
    }
}
