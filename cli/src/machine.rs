//! The machine that was measured on, and the date.
// SPDX-License-Identifier: MIT

use crate::results::Machine;
use std::fs;
use std::mem::MaybeUninit;

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_string()
}

/// The value behind "KEY…:" of the first such line.
fn field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

pub fn describe() -> Machine {
    let huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = huge_pages.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Machine {
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        processor: ["model name", "Model", "CPU part"]
            .iter()
            .find_map(|key| field("/proc/cpuinfo", key))
            .unwrap_or_else(|| std::env::consts::ARCH.to_string()),
        kernel: first_line("/proc/sys/kernel/osrelease"),
        memory_bytes: fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| crate::proc::kilobytes(&text, "MemTotal"))
            .unwrap_or(0),
        huge_pages: chosen.map_or("never", |(word, _)| word).to_string(),
        load: first_line("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
    }
}

/// Now, UTC, ISO 8601.
pub fn now() -> String {
    date(unsafe { libc::time(std::ptr::null_mut()) })
}

/// Seconds since 1970, UTC, ISO 8601.
pub fn date(seconds: i64) -> String {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let parts = unsafe {
        libc::gmtime_r(&seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_machine_is_known() {
        let machine = super::describe();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
        assert!(super::now().starts_with("20") && super::now().len() == 20);
        assert_eq!(super::date(951_782_400), "2000-02-29T00:00:00Z");
    }
}
