//! With the feature `override`, C code gets its memory from HAKMEM. If this test fails, the feature does nothing.
// SPDX-License-Identifier: MIT
use hakmem::Hakmem;
use std::ffi::{c_char, c_void, CStr};

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

unsafe extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
    fn free(block: *mut c_void);
    fn malloc(size: usize) -> *mut c_void;
}

#[test]
fn malloc_of_c_is_hakmem() {
    unsafe {
        for block in [malloc(100), strdup(c"a text of C".as_ptr()).cast()] {
            assert!(Hakmem.usable_size(block.cast()) >= 12); // ends the program if the block is not HAKMEM's
            free(block);
        }
        let kept = strdup(c"kept".as_ptr());
        assert_eq!(CStr::from_ptr(kept), c"kept");
        free(kept.cast());
    }
}
