//! The machine that was measured on, and the date.
// SPDX-License-Identifier: MIT

use crate::results::Machine;
use hakmem_base::{proc, say};
use std::fs;

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
            .and_then(|text| proc::kilobytes(&text, "MemTotal"))
            .unwrap_or(0),
        huge_pages: chosen.map_or("never", |(word, _)| word).to_string(),
        load: first_line("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
    }
}

/// Now, UTC, ISO 8601.
pub fn now() -> String {
    say::date(unsafe { libc::time(std::ptr::null_mut()) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_machine_is_known() {
        let machine = super::describe();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
        assert!(super::now().starts_with("20") && super::now().len() == 20);
    }
}
