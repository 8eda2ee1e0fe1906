// SPDX-License-Identifier: MIT
use core::alloc::Layout;
use core::ffi::{c_int, c_uint, CStr};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

/// How the blocks of a [`Site`] are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Policy {
    /// As all other blocks.
    Default = hakmem_sys::HAK_POLICY_DEFAULT,
    /// With the ordinary blocks; long-lived ones lie elsewhere.
    ShortLived = hakmem_sys::HAK_POLICY_SHORT_LIVED,
    /// In slabs of long-lived blocks.
    LongLived = hakmem_sys::HAK_POLICY_LONG_LIVED,
    /// In slabs of blocks that are used all the time.
    Hot = hakmem_sys::HAK_POLICY_HOT,
    /// In slabs of blocks that are hardly ever used.
    Cold = hakmem_sys::HAK_POLICY_COLD,
    /// In slabs that are nearly full.
    Dense = hakmem_sys::HAK_POLICY_DENSE,
}

/// A place of the program's code: an allocator whose blocks are placed by how long they live, and counted.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use hakmem::{Policy, Site};
///
/// let cache = Site::new(c"cache", Policy::LongLived).unwrap();
/// let mut numbers = Vec::new_in(cache);
/// numbers.push(1);
/// assert_eq!(cache.blocks(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Site(c_uint);

impl Site {
    /// The site of this name, made now if there is none; only then the policy counts.
    ///
    /// # Errors
    /// There are 1,023 sites already.
    pub fn new(name: &CStr, policy: Policy) -> Result<Self, AllocError> {
        // SAFETY: the call copies the name.
        match unsafe { hakmem_sys::hak_site_new(name.as_ptr(), policy as c_int) } {
            0 => Err(AllocError),
            number => Ok(Self(number)),
        }
    }

    /// Blocks allocated so far.
    #[must_use]
    pub fn blocks(self) -> usize {
        let mut stats = MaybeUninit::uninit();
        // SAFETY: the site exists, so the call fills in the figures.
        unsafe {
            hakmem_sys::hak_site_get_stats(self.0, stats.as_mut_ptr());
            stats.assume_init().blocks
        }
    }
}

// SAFETY: blocks are as large and as aligned as the layout says, and live until they are freed.
unsafe impl Allocator for Site {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (size, alignment) = (layout.size(), layout.align());
        let block = if crate::is_aligned_anyway(size, alignment) {
            unsafe { hakmem_sys::hak_alloc_site(size, self.0, hakmem_sys::HAK_POLICY_DEFAULT) }
        } else {
            unsafe { hakmem_sys::hak_aligned_alloc(alignment, size) }
        };
        NonNull::new(block.cast()).map(|start| NonNull::slice_from_raw_parts(start, size)).ok_or(AllocError)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        hakmem_sys::hak_free_sized(block.as_ptr().cast(), layout.size());
    }
}
