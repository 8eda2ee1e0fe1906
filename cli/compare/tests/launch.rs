//! A run's peak memory is the program's own, however large the process is that starts it.
//!
//! A program without Rust's test harness: the launcher waits for all children of its process, and the signals it waits
//! for must be blocked in every thread.

use hakmem_base::{proc, signals};
use hakmem_compare::{launch, results};
use std::path::Path;

fn main() {
    let blocked = signals::block();
    let before = vec![1u8; 300 << 20];
    assert!(std::hint::black_box(&before)[1 << 20] == 1);
    let own = proc::rss_and_peak(std::process::id() as i32).unwrap();
    assert!(own.1 >= 300 << 20, "the test touches 300 MiB");
    let directory = tempfile::tempdir().unwrap();
    let (stdout, stderr) = (directory.path().join("stdout"), directory.path().join("stderr"));
    let cost = launch::run(&launch::Job {
        program: Path::new("/bin/true"),
        arguments: &["true".to_string()],
        environment: &[],
        directory: Path::new("/"),
        libraries: &[],
        processes: results::Processes::Main,
        timeout: None,
        stdout: &stdout,
        stderr: &stderr,
        signals: blocked.before(),
        samples: None,
        lazy: false,
        traces: false,
    })
    .unwrap();
    assert!(std::hint::black_box(&before)[1 << 20] == 1);
    assert_eq!(cost.end, launch::End::Status(0));
    assert!(cost.traced, "this test is about traced runs");
    assert!(cost.peak_rss_bytes > 0 && cost.peak_rss_bytes < 20 << 20, "{}", cost.peak_rss_bytes);
    assert!(cost.average_rss_bytes <= cost.peak_rss_bytes && cost.average_rss_bytes > 0);
    assert!(cost.minor_faults < 2000, "the launcher's copy is not the program's: {}", cost.minor_faults);
    println!("the peak is not the launcher's: {} KiB", cost.peak_rss_bytes >> 10);
}
