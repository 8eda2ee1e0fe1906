//! Options, statistics, limits and the profile. If these tests fail, a program cannot see or steer its heap.
// SPDX-License-Identifier: MIT
use hakmem::{Error, Hakmem, Stats};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

hakmem::options!(c"DECAY_MS=4321,PROFILE_RATE=0");

/// Options are the process's: for tests that change the same ones.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn options_are_compiled_in_read_and_set() {
    assert_eq!(hakmem::option("DECAY_MS").as_deref(), Some("4321"));
    assert_eq!(hakmem::set_option("HAKMEM_DECAY_MS", "1234"), Ok(()));
    assert_eq!(hakmem::option("decay_ms").as_deref(), Some("1234"));
    assert_eq!(hakmem::option("STATS_FILE").as_deref(), Some(""));
    assert_eq!(hakmem::option("NO_SUCH"), None);
    assert_eq!(hakmem::set_option("NO_SUCH", "1"), Err(Error::NoSuchOption));
    assert_eq!(hakmem::set_option("NO\0", "1"), Err(Error::NoSuchOption));
    assert_eq!(hakmem::set_option("DECAY_MS", "soon"), Err(Error::InvalidValue));
    assert_eq!(hakmem::set_option("DECAY_MS", "1\0"), Err(Error::InvalidValue));
    assert_eq!(hakmem::set_option("REGION_BYTES", "0"), Err(Error::OnlyAtStart));
    assert_eq!(Error::NoSuchOption.to_string(), "there is no such option");
    assert_eq!(Error::InvalidValue.to_string(), "the option cannot have that value");
    assert_eq!(Error::OnlyAtStart.to_string(), "the option is only read at the start");
}

#[test]
fn statistics_count_what_lives() {
    let kept = vec![1u8; 50 << 20];
    let stats = Stats::now();
    assert!(stats.get("live").unwrap() >= kept.len() as u64);
    assert!(stats.get("total").is_some() && stats.get("realloc_copied").is_some());
    assert_eq!(stats.get("version"), None);
    assert_eq!(stats.get("no_such"), None);
    assert_eq!(stats.get("ive"), None);
    assert!(stats.json().starts_with("{\"version\":") && stats.json().ends_with("}\n"));
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn free_memory_goes_back() {
    drop(vec![1u8; 900_000]);
    hakmem::thread_rests();
    hakmem::trim();
    assert!(hakmem::good_size(100) >= Some(100));
    assert_eq!(hakmem::good_size(usize::MAX), None);
}

#[test]
fn limits_call_back_and_refuse() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    hakmem::on_soft_limit(Some(|| {
        CALLS.fetch_add(1, Ordering::SeqCst);
        drop(vec![1u8; 1000]); // may allocate
    }));
    hakmem::set_option("SOFT_LIMIT", "200m").unwrap();
    let kept = vec![1u8; 300 << 20];
    drop(vec![1u8; 2 << 20]);
    assert!(CALLS.load(Ordering::SeqCst) >= 1);
    hakmem::on_soft_limit(None);
    hakmem::set_option("SOFT_LIMIT", "0").unwrap();
    drop(kept);

    hakmem::set_option("HARD_LIMIT", "1g").unwrap();
    assert!(Vec::<u8>::new().try_reserve(2 << 30).is_err());
    hakmem::set_option("HARD_LIMIT", "0").unwrap();
    assert!(Vec::<u8>::new().try_reserve(2 << 30).is_ok());
}

#[test]
fn profile_samples_while_it_is_on() {
    let secure = hakmem::option("SECURE").as_deref() == Some("1");
    let started = hakmem::start_profile(1000);
    assert_eq!(started, if secure { Err(Error::SecureMode) } else { Ok(()) });
    let kept: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 2000]).collect();
    hakmem::stop_profile();
    assert_eq!(Stats::now().get("samples_taken").unwrap() > 0, !secure);
    drop(kept);
}
