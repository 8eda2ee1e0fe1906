//! If these tests fail, containers in an arena have their elements elsewhere, or outgrow its limit.
// SPDX-License-Identifier: MIT
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hakmem::Arena;

fn is_in<T>(arena: &Arena, place: *const T) -> bool {
    unsafe { hakmem_sys::hak_arena_of(place.cast()) == arena.as_ptr() }
}

#[test]
fn containers_lie_in_their_arena() {
    #[repr(align(512))]
    struct Wide(u8);
    let (one, other) = (Arena::new(Some(c"one"), 0).unwrap(), Arena::new(None, 0).unwrap());
    let mut numbers = Vec::new_in(&one);
    numbers.extend(0..100_000_u64);
    let wide = Box::new_in(Wide(7), &other);
    assert!(is_in(&one, numbers.as_ptr()) && is_in(&other, &raw const *wide));
    assert_eq!((&raw const *wide as usize % 512, wide.0), (0, 7));
    assert!(numbers.iter().copied().eq(0..100_000));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut words = Vec::new_in(&one);
                for i in 0..1000 {
                    words.push(Box::new_in(i, &one));
                }
                assert!(words.iter().all(|word| is_in(&one, &raw const **word)));
            });
        }
    });
    assert!(one.stats().used_bytes >= 800_000);
}

#[test]
fn limit_is_an_error() {
    let small = Arena::new(None, 1 << 20).unwrap();
    let mut bytes = Vec::<u8, _>::new_in(&small);
    assert!(bytes.try_reserve(2 << 20).is_err());
    assert!(bytes.try_reserve(1 << 16).is_ok());
    assert_eq!(small.stats().limit_bytes, 1 << 20);
}

/// The C library's tests read what a dump would have.
#[test]
fn an_arena_that_is_not_dumped_is_an_arena() {
    let keys = Arena::new_not_dumped(Some(c"keys"), 0).unwrap();
    let key = Box::new_in([7_u8; 32], &keys);
    assert!(is_in(&keys, &raw const *key));
    assert_ne!(unsafe { hakmem_sys::hak_arena_no_dump(keys.as_ptr()) }, 0, "it has a block");
}
