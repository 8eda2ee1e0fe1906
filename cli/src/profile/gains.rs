//! `set` lines of a policy file (docs/arenas.md), each with the figures that justify it.
//!
//!  1. Where ACE (docs/options.md) settled on a preset, and that saves at least 1 % of the time, the file sets what the
//!     preset has set.
//!  2. Where misses of a class of up to 1 KiB bring no more blocks than carve_bytes cuts, and four times as many would
//!     save at least 4 % of the CPU time, the class cuts 16 KiB. Reused slabs bring as many blocks by chance, but take
//!     more time for each miss.
//!
//! Rings get no line: in no program did smaller ones make the process smaller (docs/experiments.md).
// SPDX-License-Identifier: MIT

use crate::heap::rows::parse_number;
use crate::heap::{Ace, Class, OptionValue, Snapshot, Tier};
use hakmem_base::say;

/// What presets set (src/learn/presets.h).
const OF_PRESETS: [&str; 4] = ["PURGE", "RETAIN_BYTES", "RETAIN_PERCENT", "DECAY_MS"];
/// At least so much of a second is to be saved.
const PRESET_US: u64 = 10_000;
const CARVE_PERCENT: f64 = 4.0;
const CARVE_BYTES: u64 = 16 << 10;
/// The system counts CPU time in steps of 10 ms.
const CPU_MIN: f64 = 0.1;
/// A miss less saves at least that (docs/experiments.md: 14 to 18 ns).
const MISS_NS: f64 = 10.0;
/// The blocks that misses bring are newly cut ones if they are at most this many times as many.
const MARGIN: f64 = 1.25;

/// What is known of a process, `first` when the watching began; None: that was its start.
pub struct Seen {
    pub first: Option<Snapshot>,
    pub last: Snapshot,
    pub settings: Vec<OptionValue>,
    /// Seconds of processor time in between.
    pub cpu: f64,
    /// /proc/PID/environ: what the user has set is his.
    pub environment: Vec<u8>,
}

impl Seen {
    pub fn lines(&self) -> Vec<String> {
        let is_own = |name: &str| is_set(&String::from_utf8_lossy(&self.environment), name);
        let settings: Vec<&OptionValue> = self.settings.iter().filter(|setting| !is_own(&setting.name)).collect();
        let mut lines = self.last.ace.as_ref().map_or(Vec::new(), |ace| of_preset(ace, &settings));
        let carve = settings.iter().find(|setting| setting.name == "carve_bytes");
        for class in self.last.classes.iter().filter(|class| class.tier == Tier::Tiny && self.cpu >= CPU_MIN) {
            let before = self.first.iter().flat_map(|first| &first.classes).find(|one| one.key() == class.key());
            let cut = carve.and_then(|carve| value_for(&carve.value, class.block_bytes));
            lines.extend(cut.and_then(|cut| of_class(class, before, cut, self.cpu)));
        }
        lines
    }
}

/// Has a variable of its own or HAKMEM_TUNE set it? Variables end with a NUL.
fn is_set(environment: &str, name: &str) -> bool {
    environment.split('\0').filter_map(|variable| variable.split_once('=')).any(|(variable, value)| match variable {
        "HAKMEM_TUNE" => value.split([',', ';']).any(|part| part.split(['=', ':']).next() == Some(name)),
        _ => variable.strip_prefix("HAKMEM_") == Some(name),
    })
}

/// Of "4096,512:16384", as tunables are shown: the value, or that of a class.
fn value_for(text: &str, block_bytes: u64) -> Option<u64> {
    let mut parts = text.split(',');
    let all = parts.next()?.parse().ok();
    let own = parts.filter_map(|part| part.split_once(':')).find(|(bytes, _)| bytes.parse() == Ok(block_bytes));
    own.map_or(all, |(_, value)| value.parse().ok())
}

/// NAME=VALUE where the setting differs from its default.
fn changed(setting: &OptionValue) -> Vec<String> {
    let mut parts = setting.value.split(',');
    let all = parts.next().unwrap_or_default();
    let is_changed = match (parse_number(all), parse_number(&setting.default)) {
        (None, None) => all != setting.default,
        (value, default) => value != default,
    };
    let one = is_changed.then(|| format!("{}={}", setting.name, all.replace(' ', "")));
    let of_classes = parts.filter_map(|part| part.split_once(':'));
    one.into_iter().chain(of_classes.map(|(bytes, value)| format!("{}:{bytes}={value}", setting.name))).collect()
}

fn of_preset(ace: &Ace, settings: &[&OptionValue]) -> Vec<String> {
    let cost_of = |name: &str| ace.presets.iter().find(|rated| rated.name == name).map_or(0, |rated| rated.cost_us);
    let (used, first) = (cost_of(&ace.preset), ace.presets.first().map_or(0, |rated| rated.cost_us));
    if ace.preset != ace.best || first.saturating_sub(used) < PRESET_US {
        return Vec::new();
    }
    let why = format!(
        "preset {}: costs {} ms in a second instead of {}, CPU time and memory at GOAL's price",
        ace.preset,
        used / 1000,
        first / 1000
    );
    let of_presets = settings.iter().filter(|setting| OF_PRESETS.contains(&setting.name.as_str()));
    of_presets.flat_map(|setting| changed(setting)).map(|setting| format!("set {setting} # {why}")).collect()
}

/// `cut`: bytes of new blocks that the class cuts at once.
fn of_class(class: &Class, before: Option<&Class>, cut: u64, cpu: f64) -> Option<String> {
    let since = |of: fn(&Class) -> u64| of(class).saturating_sub(before.map_or(0, of)) as f64;
    let (allocations, misses) = (since(|class| class.allocations), since(|class| class.misses));
    let blocks_cut = (cut / class.block_bytes.max(1)).max(1) as f64;
    let saved = misses * (1.0 - cut as f64 / CARVE_BYTES as f64) * MISS_NS / 1e9;
    let is_worth_it =
        saved * 100.0 >= cpu * CARVE_PERCENT && saved > 0.0 && allocations <= MARGIN * blocks_cut * misses;
    is_worth_it.then(|| {
        format!(
            "set carve_bytes:{}={CARVE_BYTES} # {} misses bring {:.1} blocks each: cutting 16 KiB would save {:.0} ms \
            of {:.0}",
            class.block_bytes,
            say::number(misses),
            allocations / misses,
            saved * 1000.0,
            cpu * 1000.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{Rated, Target};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fn setting(name: &str, value: &str, default: &str) -> OptionValue {
        let [name, value, default] = [name, value, default].map(String::from);
        OptionValue { name, value, default, ..OptionValue::default() }
    }

    #[test]
    fn a_preset_that_saves_is_written_as_it_was_set() {
        let rated = |name: &str, cost_us| Rated { name: name.into(), rating: 1500, cost_us };
        let mut ace = Ace { preset: "bursty".into(), best: "bursty".into(), ..Ace::default() };
        ace.presets = vec![rated("balanced", 30_000), rated("bursty", 2_000)];
        let all = [
            setting("RETAIN_BYTES", "32 MiB", "1 MiB"),
            setting("RETAIN_PERCENT", "10", "10"),
            setting("PURGE", "lazy", "auto"),
            setting("carve_bytes", "4096,64:16384", "4096"),
        ];
        let all: Vec<&OptionValue> = all.iter().collect();
        let set = |ace: &Ace| {
            let lines = of_preset(ace, &all);
            lines.iter().map(|line| line.split(" # ").next().unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(set(&ace), ["set RETAIN_BYTES=32MiB", "set PURGE=lazy"]);
        assert!(of_preset(&ace, &all)[0].contains("costs 2 ms in a second instead of 30"));
        ace.presets[1].cost_us = 20_001;
        assert!(set(&ace).is_empty(), "less than 1 %");
        (ace.presets[1].cost_us, ace.best) = (2_000, "lean".into());
        assert!(set(&ace).is_empty(), "another one is better");
    }

    #[test]
    fn classes_whose_misses_bring_what_is_cut_cut_more() {
        let class = |allocations, misses| Class { block_bytes: 512, allocations, misses, ..Class::default() };
        let line = |class: &Class, cpu| of_class(class, None, 4096, cpu);
        let busy = class(160_000_000, 20_000_000);
        assert_eq!(
            line(&busy, 1.0).unwrap(),
            "set carve_bytes:512=16384 # 20 M misses bring 8.0 blocks each: cutting 16 KiB would save 150 ms of 1000"
        );
        assert_eq!(line(&busy, 10.0), None, "less than 4 %");
        assert_eq!(line(&class(320_000_000, 20_000_000), 1.0), None, "blocks that were free before");
        assert_eq!(of_class(&busy, None, CARVE_BYTES, 1.0), None, "it does already");
        assert_eq!(of_class(&busy, Some(&class(150_000_000, 19_000_000)), 4096, 1.0), None);
    }

    /// Runs a program. Returns its misses for blocks of 500 bytes, and the lines of advice for each of the two
    /// processor times, in seconds. None: there is no library.
    fn grown(tune: &str, cpu: [f64; 2]) -> Option<(u64, [Vec<String>; 2])> {
        let Some(library) = std::env::var_os("HAKMEM_LIBRARY") else {
            eprintln!("skipped: HAKMEM_LIBRARY names no libhakmem.so");
            return None;
        };
        let place = tempfile::tempdir().unwrap();
        let (source, program) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profile/growing.c"), place.path().join("growing"));
        assert!(Command::new("cc")
            .args(["-O1", "-fno-builtin", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .unwrap()
            .success());
        let mut growing = Command::new(&program);
        growing.args(["300", "stay"]).env("LD_PRELOAD", library).env("HAKMEM_TUNE", tune);
        let mut growing = growing.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(growing.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "grown\n");
        let target = Target::attach(growing.id() as hakmem_base::proc::Pid).unwrap();
        let (last, settings) = (target.snapshot().unwrap(), target.read_settings().unwrap());
        drop(growing.stdin.take());
        assert!(growing.wait().unwrap().success());
        let misses = last.classes.iter().find(|class| class.block_bytes == 512).unwrap().misses;
        let mut seen = Seen { first: None, last, settings, cpu: 0.0, environment: Vec::new() };
        let lines = cpu.map(|cpu| {
            seen.cpu = cpu;
            seen.lines()
        });
        Some((misses, lines))
    }

    /// Else a program that could take a sixth less time has to be searched by hand, or gets settings that gain nothing.
    /// The time it took is made up, as what a miss costs beside that is the machine's.
    #[test]
    fn a_program_that_grows_gets_a_setting_that_gains() {
        let Some((misses, [short, long])) = grown("", [0.1, 100.0]) else { return };
        assert!(short.len() == 1 && long.is_empty(), "{short:?} {long:?}");
        let (setting, why) = short[0].split_once(" # ").unwrap();
        assert_eq!(setting, "set carve_bytes:512=16384");
        assert!(why.contains(" misses bring ") && why.ends_with(" ms of 100"), "{why}");
        let (fewer, lines) = grown("carve_bytes:512=16384", [0.1, 100.0]).unwrap();
        assert!(fewer * 3 < misses, "{fewer} misses with the setting, {misses} without");
        assert!(lines.iter().all(Vec::is_empty), "{lines:?}");
    }

    #[test]
    fn what_the_user_has_set_is_his() {
        let environment = "HOME=/\0HAKMEM_TUNE=ring_spills=3,carve_bytes:64=8k\0HAKMEM_DECAY_MS=5\0";
        let set = |name| is_set(environment, name);
        assert!(
            set("carve_bytes") && set("ring_spills") && set("DECAY_MS") && !set("reuse_frees") && !set("RETAIN_BYTES")
        );
        assert_eq!((value_for("4096,512:16384", 512), value_for("4096,512:16384", 64)), (Some(16384), Some(4096)));
    }
}
