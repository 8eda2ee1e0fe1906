// SPDX-License-Identifier: MIT
use core::alloc::Layout;
use core::ffi::CStr;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};
use hakmem_sys::{hak_arena, hak_arena_options, hak_arena_stats};

/// A heap of its own: blocks that are freed together, limited together and counted together. `&Arena` is an allocator
/// for the containers of `allocator-api2`; because they borrow the arena, none outlives it. Dropping the arena frees
/// all its blocks at once.
///
/// ```
/// use allocator_api2::vec::Vec;
///
/// let arena = hakmem::Arena::new(Some(c"requests"), 64 << 20).unwrap();
/// let mut numbers = Vec::new_in(&arena);
/// numbers.extend(0..1000);
/// assert!(arena.stats().used_bytes > 0);
/// ```
#[derive(Debug)]
pub struct Arena(NonNull<hak_arena>);

// SAFETY: any thread may use any arena; only dropping it asks that nobody else does, which Rust sees to.
unsafe impl Send for Arena {}
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes an arena. Statistics show the name; `limit_bytes` bounds its slots of 64 KiB in use, 0 does not.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(name: Option<&CStr>, limit_bytes: usize) -> Result<Self, AllocError> {
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        let options = hak_arena_options { name, limit_bytes, over_limit: None, argument: ptr::null_mut() };
        // SAFETY: the options live during the call, which copies the name.
        NonNull::new(unsafe { hakmem_sys::hak_arena_new(&options) }).map(Self).ok_or(AllocError)
    }

    /// The same, and core dumps have none of its blocks: for keys, or for a cache that would make dumps large.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new_not_dumped(name: Option<&CStr>, limit_bytes: usize) -> Result<Self, AllocError> {
        let arena = Self::new(name, limit_bytes)?;
        // SAFETY: the arena lives, and has no block yet.
        match unsafe { hakmem_sys::hak_arena_no_dump(arena.0.as_ptr()) } {
            0 => Ok(arena),
            _ => Err(AllocError),
        }
    }

    /// Figures of a moment ago, if other threads use the arena.
    #[must_use]
    pub fn stats(&self) -> hak_arena_stats {
        let mut stats = hak_arena_stats::default();
        // SAFETY: the arena lives.
        unsafe { hakmem_sys::hak_arena_get_stats(self.0.as_ptr(), &mut stats) };
        stats
    }

    /// The handle, for the functions of `hakmem-sys`.
    #[must_use]
    pub fn as_ptr(&self) -> *mut hak_arena {
        self.0.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: nobody borrows the arena, so nobody uses its blocks.
        unsafe { hakmem_sys::hak_arena_destroy(self.0.as_ptr()) }
    }
}

// SAFETY: blocks are as large and as aligned as the layout says, and live until they are freed or the arena is dropped,
// which the allocator borrows.
unsafe impl Allocator for &Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (size, alignment) = (layout.size(), layout.align());
        let block = if crate::is_aligned_anyway(size, alignment) {
            unsafe { hakmem_sys::hak_arena_malloc(self.0.as_ptr(), size) }
        } else {
            unsafe { hakmem_sys::hak_arena_aligned_alloc(self.0.as_ptr(), alignment, size) }
        };
        NonNull::new(block.cast()).map(|start| NonNull::slice_from_raw_parts(start, size)).ok_or(AllocError)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        hakmem_sys::hak_free_sized(block.as_ptr().cast(), layout.size());
    }
}
