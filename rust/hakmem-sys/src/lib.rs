#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]
// SPDX-License-Identifier: MIT

use core::ffi::{c_char, c_int, c_void};

/// What [`hak_set_soft_limit_callback`] takes.
pub type SoftLimitCallback = unsafe extern "C" fn(argument: *mut c_void);

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
    /// Begins to sample allocations, one every `mean_bytes` bytes: 0 or `ENOTSUP`.
    pub fn hak_profile_start(mean_bytes: usize) -> c_int;
    /// Stops sampling.
    pub fn hak_profile_stop();
    /// Returns the version of the library.
    pub fn hak_version() -> *const c_char;
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
