//! What /proc says about a process: memory, faults, mapped files, children.
//!
//! statm costs a few microseconds whatever the size of the process; smaps_rollup walks its page tables.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

pub type Pid = libc::pid_t;

fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

/// The number behind "KEY:" in a text of lines "KEY: NUMBER kB", in bytes.
pub fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// A process's statm, kept open for reading it often.
pub struct Statm(fs::File);

impl Statm {
    pub fn open(pid: Pid) -> Option<Statm> {
        fs::File::open(format!("/proc/{pid}/statm")).ok().map(Statm)
    }

    /// Resident bytes; None if the process or its address space is gone.
    pub fn rss(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let pages: u64 = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?.parse().ok()?;
        (pages > 0).then_some(pages * page_bytes())
    }
}

/// Resident bytes and their peak, of a process whose main thread may have ended before the others.
pub fn rss_and_peak(pid: Pid) -> Option<(u64, u64)> {
    let read = |path: String| {
        let text = fs::read_to_string(path).ok()?;
        Some((kilobytes(&text, "VmRSS")?, kilobytes(&text, "VmHWM")?))
    };
    read(format!("/proc/{pid}/status")).or_else(|| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        tasks.flatten().find_map(|task| read(format!("{}/status", task.path().display())))
    })
}

/// Resident bytes, those that several processes share divided among them.
pub fn pss(pid: Pid) -> Option<u64> {
    kilobytes(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss")
}

/// The fields of /proc/PID/stat behind the name in brackets: the first is the state, the second the parent.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text[text.rfind(')')? + 1..].split_whitespace().map(str::to_string).collect())
}

pub fn minor_faults(pid: Pid) -> u64 {
    stat(pid).and_then(|fields| fields.get(7)?.parse().ok()).unwrap_or(0)
}

/// What is told about a process besides memory.
pub struct About {
    pub command: String,
    pub threads: u64,
    pub rss_peak: u64,
    pub age_ms: u64,
}

pub fn about(pid: Pid) -> Option<About> {
    let fields = stat(pid)?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    let command = words.join(" ").trim().to_string();
    let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string();
    let uptime = fs::read_to_string("/proc/uptime").ok()?.split(' ').next()?.parse::<f64>().ok()?;
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let started = fields.get(19)?.parse::<f64>().ok()? / ticks;
    Some(About {
        command: if command.is_empty() { name() } else { command },
        threads: fields.get(17)?.parse().ok()?,
        rss_peak: rss_and_peak(pid).map_or(0, |(_, peak)| peak),
        age_ms: ((uptime - started).max(0.0) * 1e3) as u64,
    })
}

/// CPU time of the main thread so far, in seconds.
pub fn cpu(pid: Pid) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

/// The files that are mapped, each once.
pub fn mapped_files(pid: Pid) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut files: Vec<String> = text.lines().filter_map(|line| Some(line[line.find('/')?..].to_string())).collect();
    files.sort();
    files.dedup();
    files
}

/// All processes below `root`, `root` itself not included.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<Pid>().ok()) else {
            continue;
        };
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse::<Pid>().ok()) {
            parents.insert(pid, parent);
        }
    }
    let below = |mut pid: Pid| {
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(&parent) if parent == root => return true,
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|&pid| below(pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_found() {
        let me = std::process::id() as Pid;
        let (rss_now, peak) = rss_and_peak(me).unwrap();
        assert!(Statm::open(me).unwrap().rss().unwrap() > 0 && rss_now > 0 && peak >= rss_now);
        assert!(pss(me).unwrap() > 0);
        assert!(minor_faults(me) > 0 && cpu(me) < 3600.0);
    }

    #[test]
    fn numbers_in_kilobytes() {
        let text = "Rss:     12 kB\nPss_Dirty:  3 kB\nPss:   5 kB\n";
        assert_eq!(kilobytes(text, "Pss"), Some(5 * 1024));
        assert_eq!(kilobytes(text, "VmHWM"), None);
    }

    #[test]
    fn a_grandchild_is_a_descendant() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 30 & echo; wait"]).spawn().unwrap();
        let me = std::process::id() as Pid;
        let child = shell.id() as Pid;
        while descendants(child).is_empty() {
            std::thread::yield_now();
        }
        let all = descendants(me);
        let grandchild = descendants(child)[0];
        assert!(all.contains(&child) && all.contains(&grandchild));
        unsafe { libc::kill(grandchild, libc::SIGKILL) };
        shell.wait().unwrap();
    }
}
