//! What a profile lacks, and how to get it: debug information of libraries, and names of code made at run time.
// SPDX-License-Identifier: MIT

use super::{sites, Metric, Profile};
use crate::symbols::{self, Module};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// What concerns a smaller part of the bytes is not worth a line.
const SHARE_MIN: f64 = 0.1;
/// Servers of all large distributions answer there.
const SERVER: &str = "https://debuginfod.elfutils.org";
const DPKG: &str = "/var/lib/dpkg/info";

/// The package with the debug information of a file, by the lists of what packages installed; Debian and Ubuntu have
/// them.
fn debug_package(lists: &Path, file: &str) -> Option<String> {
    // /lib is a link to /usr/lib; packages write either.
    let names = [file, file.strip_prefix("/usr").unwrap_or(file)];
    let has_file = |list: &str| list.lines().any(|line| names.contains(&line));
    let of_package = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let package = name.strip_suffix(".list")?.split(':').next()?.to_string();
        has_file(&fs::read_to_string(entry.path()).ok()?).then_some(package)
    };
    let package = fs::read_dir(lists).ok()?.flatten().find_map(of_package)?;
    Some(if package == "libc6" { "libc6-dbg".to_string() } else { format!("{package}-dbgsym") })
}

fn how_to_get(path: &str, lists: &Path) -> String {
    let package = debug_package(lists, path).map(|package| format!("install {package}"));
    let server = match symbols::debuginfod_is_on() {
        true => format!("debuginfod-find gets none from {}", symbols::DEBUGINFOD),
        false => format!("install debuginfod and set {}={SERVER}", symbols::DEBUGINFOD),
    };
    package.into_iter().chain([server]).collect::<Vec<_>>().join(", or ")
}

/// Sets the profile's advice.
pub fn advise(profile: &mut Profile) {
    profile.advice = advice_for(profile, Path::new(DPKG));
}

fn advice_for(profile: &Profile, lists: &Path) -> Vec<String> {
    let (mut by_module, mut unnamed, mut total) = (HashMap::<usize, u64>::new(), 0_u64, 0_u64);
    for stack in &profile.stacks {
        let bytes = stack.value(Metric::AllocSpace);
        total = total.saturating_add(bytes);
        let mut places = stack.places.iter().map(|&place| &profile.places[place]);
        if places.any(|place| place.module.is_none() && place.frames.is_empty()) {
            unnamed = unnamed.saturating_add(bytes);
        }
        if let (frame, Some(module), _) = sites::site(profile, stack) {
            let sum = by_module.entry(module).or_default();
            *sum = sum.saturating_add(if frame.line == 0 { bytes } else { 0 });
        }
    }
    let matters = |bytes: u64| bytes > 0 && bytes as f64 >= total as f64 * SHARE_MIN;
    let mut lacking: Vec<usize> = by_module.into_iter().filter(|one| matters(one.1)).map(|one| one.0).collect();
    lacking.sort();
    let lacking = lacking.into_iter().map(|module| &profile.modules[module]).filter(|one| one.path.starts_with('/'));
    let of_module =
        |module: &Module| format!("{} has no debug information: {}", module.name(), how_to_get(&module.path, lists));
    let mut advice: Vec<String> = lacking.map(of_module).collect();
    advice.dedup();
    if matters(unnamed) {
        let how = "started with `node --perf-basic-prof`, `DOTNET_PerfMapEnabled=1` or the like, the program names it";
        advice.push(format!("code made at run time has no names: {how}"));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::samples::Totals;
    use crate::profile::{Place, Stack};
    use crate::symbols::Frame;

    #[test]
    fn what_is_lacking_is_said_once() {
        let directory = std::env::temp_dir().join(format!("hakmem-missing-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("libc6:amd64.list"), "/.\n/lib/x/libc.so.6\n").unwrap();
        fs::write(directory.join("libz1.list"), "/usr/lib/x/libz.so.1\n").unwrap();
        assert_eq!(debug_package(&directory, "/usr/lib/x/libc.so.6").as_deref(), Some("libc6-dbg"));
        assert_eq!(debug_package(&directory, "/usr/lib/x/libz.so.1").as_deref(), Some("libz1-dbgsym"));
        assert_eq!(debug_package(&directory, "/usr/lib/x/libz.so"), None);

        let module = |path: &str| Module { path: path.into(), ..Module::default() };
        let place = |module, line| Place {
            address: 9,
            module,
            frames: vec![Frame { function: "f".into(), file: String::new(), line }],
        };
        let stack =
            |place, bytes| Stack { places: vec![place], live: Totals { objects: 1, bytes }, ..Stack::default() };
        let mut profile = Profile {
            modules: ["/usr/lib/x/libz.so.1", "/opt/a", "/opt/b"].map(module).to_vec(),
            places: vec![place(Some(0), 0), place(Some(1), 0), place(Some(2), 7), place(None, 0)],
            stacks: vec![stack(0, 500), stack(0, 500), stack(1, 10), stack(2, 500), stack(3, 300)],
            ..Profile::default()
        };
        profile.places[3].frames.clear();
        let advice = advice_for(&profile, &directory);
        fs::remove_dir_all(directory).unwrap();
        let [library, code] = &advice[..] else { panic!("{advice:?}") };
        assert!(library.starts_with("libz.so.1 has no debug information: install libz1-dbgsym, or "), "{library}");
        assert!(code.starts_with("code made at run time has no names"), "{code}");
    }
}
