#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]
// SPDX-License-Identifier: MIT

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// What [`hak_set_soft_limit_callback`] takes.
pub type SoftLimitCallback = unsafe extern "C" fn(argument: *mut c_void);

/// An arena: a handle, no address.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct hak_arena {
    opaque: [u8; 0],
}

/// What [`hak_arena_new`] takes. All zero: no name, no limit.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct hak_arena_options {
    /// Shown by statistics; null: none.
    pub name: *const c_char,
    /// How many bytes of slots may be in use; 0: no limit.
    pub limit_bytes: usize,
    /// Called when an allocation would pass the limit: whether to try again.
    pub over_limit: Option<unsafe extern "C" fn(arena: *mut hak_arena, size: usize, argument: *mut c_void) -> c_int>,
    /// For the call.
    pub argument: *mut c_void,
}

/// What [`hak_arena_get_stats`] fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hak_arena_stats {
    /// Bytes of slots in use.
    pub used_bytes: usize,
    /// Most of these so far.
    pub peak_bytes: usize,
    /// 0: no limit.
    pub limit_bytes: usize,
    /// Of SuperSlabs: addresses.
    pub reserved_bytes: usize,
    /// Threads that use the arena, and ended ones whose lists wait for the next thread.
    pub heaps: usize,
    /// Slots that the limit refused.
    pub refusals: usize,
}

/// What [`hak_arena_visit`] calls for each block; other than 0 ends the visit.
#[allow(non_camel_case_types)]
pub type hak_arena_visitor = unsafe extern "C" fn(block: *mut c_void, bytes: usize, argument: *mut c_void) -> c_int;

/// What [`hak_site_get_stats`] fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct hak_site_stats {
    /// The site's name, which lives as long as the process.
    pub name: *const c_char,
    /// One of the `HAK_POLICY_` numbers.
    pub policy: c_int,
    /// Blocks allocated so far.
    pub blocks: usize,
    /// Bytes asked for in these.
    pub bytes: usize,
}

/// As [`hak_malloc`]; for [`hak_alloc_site`] the policy of the site.
pub const HAK_POLICY_DEFAULT: c_int = 0;
/// With the ordinary blocks; long-lived ones lie elsewhere.
pub const HAK_POLICY_SHORT_LIVED: c_int = 1;
/// In slabs of long-lived blocks.
pub const HAK_POLICY_LONG_LIVED: c_int = 2;
/// In slabs of blocks that are used all the time.
pub const HAK_POLICY_HOT: c_int = 3;
/// In slabs of blocks that are hardly ever used.
pub const HAK_POLICY_COLD: c_int = 4;
/// As [`hak_malloc_dense`].
pub const HAK_POLICY_DENSE: c_int = 5;

/// A cursor over the live blocks of sparse slabs. All zero before its first use.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct hak_defrag {
    /// The cursor's own.
    pub state: [c_ulonglong; 136],
}

/// What the blocks of one size take, as [`hak_class_uses`] stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hak_class_use {
    /// Usable bytes of a block; 0: all blocks above 64 KiB together, and those of secure mode.
    pub block_bytes: usize,
    /// How many a slab has; 0 as above.
    pub slab_blocks: usize,
    /// In use.
    pub slabs: usize,
    /// Bytes of these slabs together, free blocks included.
    pub slab_bytes: usize,
    /// Blocks the program holds, and those in threads' caches.
    pub live_bytes: usize,
    /// The same, and free blocks whose pages were not given back.
    pub held_bytes: usize,
}

// In the order of hakmem.h, with its names; tests/library.rs compares them.
unsafe extern "C" {
    /// Returns a block of at least `size` bytes.
    pub fn hak_malloc(size: usize) -> *mut c_void;
    /// Returns a cleared block for `count` objects of `size` bytes each.
    pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
    /// Resizes the block to `size` bytes and returns it, perhaps at another address.
    pub fn hak_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    /// Frees a block.
    pub fn hak_free(block: *mut c_void);
    /// Frees a block of which the caller knows the size it asked for.
    pub fn hak_free_sized(block: *mut c_void, size: usize);
    /// Returns a block of at least `size` bytes, aligned to `alignment` bytes.
    pub fn hak_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    /// Returns how many bytes of the block the program may use.
    pub fn hak_usable_size(block: *const c_void) -> usize;
    /// Returns the usable size that a block of `size` bytes would have.
    pub fn hak_good_size(size: usize) -> usize;
    /// Makes `size` bytes of the block usable without moving it: 1 if they are, else 0.
    pub fn hak_expand(block: *mut c_void, size: usize) -> c_int;
    /// Returns a block of at least `size` bytes and stores its usable size.
    pub fn hak_alloc_at_least(size: usize, usable: *mut usize) -> *mut c_void;
    /// Gives free memory back to the operating system, and returns how many bytes.
    pub fn hak_trim() -> usize;
    /// Lets go of all that the calling thread's heap has, before the thread waits.
    pub fn hak_thread_rests();
    /// Writes the statistics as text to a file descriptor.
    pub fn hak_stats_print(fd: c_int);
    /// Writes the statistics as one JSON object, and returns its length.
    pub fn hak_stats_json(buffer: *mut c_char, bytes: usize) -> usize;
    /// Writes the value of an option, and returns its length.
    pub fn hak_option_get(name: *const c_char, buffer: *mut c_char, bytes: usize) -> usize;
    /// Sets an option: 0, `EINVAL` or `EPERM`.
    pub fn hak_option_set(name: *const c_char, value: *const c_char) -> c_int;
    /// Sets the function to call when the heap passes `SOFT_LIMIT`.
    pub fn hak_set_soft_limit_callback(call: Option<SoftLimitCallback>, argument: *mut c_void);
    /// Makes an arena; null: no memory.
    pub fn hak_arena_new(options: *const hak_arena_options) -> *mut hak_arena;
    /// Makes an arena in memory of the caller's; null: bad memory, or too many such arenas.
    /// Keeps the arena's blocks out of core dumps, before it has any: 0, `EBUSY` or `EINVAL`.
    pub fn hak_arena_no_dump(arena: *mut hak_arena) -> c_int;
    /// Frees all blocks of the arena at once, and ends it.
    pub fn hak_arena_destroy(arena: *mut hak_arena);
    /// Ends the arena and hands its blocks over to the process's heap.
    pub fn hak_arena_release(arena: *mut hak_arena);
    /// Returns a block of at least `size` bytes.
    pub fn hak_arena_malloc(arena: *mut hak_arena, size: usize) -> *mut c_void;
    /// Returns a cleared block for `count` objects of `size` bytes each.
    pub fn hak_arena_calloc(arena: *mut hak_arena, count: usize, size: usize) -> *mut c_void;
    /// Returns a block of at least `size` bytes, aligned to `alignment` bytes.
    pub fn hak_arena_aligned_alloc(arena: *mut hak_arena, alignment: usize, size: usize) -> *mut c_void;
    /// Resizes the block, which moves into the arena if it is elsewhere.
    pub fn hak_arena_realloc(arena: *mut hak_arena, block: *mut c_void, size: usize) -> *mut c_void;
    /// Copies a string into the arena.
    pub fn hak_arena_strdup(arena: *mut hak_arena, text: *const c_char) -> *mut c_char;
    /// Sets where the calling thread's allocations go that name no arena.
    pub fn hak_arena_set_default(arena: *mut hak_arena, before: *mut *mut hak_arena) -> c_int;
    /// Returns the arena that has the block; null: none has.
    pub fn hak_arena_of(block: *const c_void) -> *mut hak_arena;
    /// Fills in the figures of an arena: 0 or `EINVAL`.
    pub fn hak_arena_get_stats(arena: *mut hak_arena, stats: *mut hak_arena_stats) -> c_int;
    /// Calls `visit` for each live block of the arena.
    pub fn hak_arena_visit(arena: *mut hak_arena, visit: hak_arena_visitor, argument: *mut c_void) -> c_int;
    /// Returns a number for a place of the program's code, made once for a name; 0: bad input, or too many.
    pub fn hak_site_new(name: *const c_char, policy: c_int) -> c_uint;
    /// Returns a block of at least `size` bytes for a site, or with a policy of its own; null: no memory, or bad input.
    pub fn hak_alloc_site(size: usize, site: c_uint, policy: c_int) -> *mut c_void;
    /// Fills in the figures of a site: 0 or `EINVAL`.
    pub fn hak_site_get_stats(site: c_uint, stats: *mut hak_site_stats) -> c_int;
    /// Begins to sample allocations, one every `mean_bytes` bytes: 0 or `ENOTSUP`.
    pub fn hak_profile_start(mean_bytes: usize) -> c_int;
    /// Stops sampling.
    pub fn hak_profile_stop();
    /// Writes what was sampled to a file: 0, `EIO` or `ENOTSUP`.
    pub fn hak_profile_dump(path: *const c_char) -> c_int;
    /// Returns the version of the library.
    pub fn hak_version() -> *const c_char;
    /// Returns 1 if a copy of the block by [`hak_malloc_dense`] would free memory, else 0.
    pub fn hak_should_move(block: *const c_void) -> c_int;
    /// Returns a block of at least `size` bytes from a dense slab.
    pub fn hak_malloc_dense(size: usize) -> *mut c_void;
    /// Frees a block past the thread's caches.
    pub fn hak_free_dense(block: *mut c_void);
    /// Opens a time box of `ns` nanoseconds, 0: without end.
    pub fn hak_defrag_begin(cursor: *mut hak_defrag, ns: c_ulonglong);
    /// Returns the next block and stores its usable size; null: the time is up, or all slabs were looked at.
    pub fn hak_defrag_next(cursor: *mut hak_defrag, bytes: *mut usize) -> *mut c_void;
    /// Closes the time box: 1 if all slabs were looked at, else 0.
    pub fn hak_defrag_end(cursor: *mut hak_defrag) -> c_int;
    /// Stores what each class of blocks takes, and returns how many entries there are.
    pub fn hak_class_uses(classes: *mut hak_class_use, room: usize) -> usize;
}

// The linker takes libc.c from the archive, as long as something of this crate is used.
#[cfg(feature = "override")]
#[used]
static MALLOC_WANTED: unsafe extern "C" fn(size: usize) -> *mut c_void = {
    unsafe extern "C" {
        fn malloc(size: usize) -> *mut c_void;
    }
    malloc
};
