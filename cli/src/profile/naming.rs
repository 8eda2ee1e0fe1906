//! Names for the places of a profile: of the files that were mapped, and of code that was made at run time.
// SPDX-License-Identifier: MIT

use super::Profile;
use crate::budget::{self, Budget};
use crate::symbols::{self, Module, Names, Origin};
use std::collections::BTreeMap;
use std::fs::File;

/// The largest file with names of code made at run time that is read.
const FILE_MAX: u64 = 256 << 20;

/// Names what has no name yet, in modules whose files are as they were.
pub fn from_files(profile: &mut Profile, origin: &Origin, is_as_it_was: &dyn Fn(&Module) -> bool) {
    let mut wanted = BTreeMap::<usize, Vec<usize>>::new();
    for (at, place) in profile.places.iter().enumerate().filter(|(_, place)| place.frames.is_empty()) {
        if let Some(module) = place.module {
            wanted.entry(module).or_default().push(at);
        }
    }
    let mut left = Budget::new(budget::PROGRAM);
    for (number, places) in wanted {
        let module = &profile.modules[number];
        let Some(mut names) = Some(module).filter(|one| is_as_it_was(one)).and_then(|one| Names::open(origin, one))
        else {
            continue;
        };
        if !module.build_id.is_empty() && module.build_id != names.linked.build_id {
            profile.notes.push(format!("{} is not the file that was mapped (another build id)", module.path));
            continue;
        }
        let address = |place: &usize| profile.places[*place].address;
        let offset = |place: &usize| address(place).wrapping_sub(module.start).wrapping_add(module.offset);
        let linked: Vec<(usize, u64)> =
            places.iter().filter_map(|place| Some((*place, names.linked.linked(offset(place))?))).collect();
        let addresses: Vec<u64> = linked.iter().map(|one| one.1).collect();
        for ((place, _), frames) in linked.iter().zip(names.at(origin, &addresses)) {
            let bytes: usize = frames.iter().map(|frame| frame.function.len() + frame.file.len()).sum();
            if left.have(frames.len() as u64, bytes as u64) {
                profile.places[*place].frames = frames;
            }
        }
        if names.have_failed() {
            profile.notes.push(format!("{} cannot be read for names: they take too much", module.path));
        }
        profile.modules[number].build_id = names.linked.build_id;
    }
    profile.notes.extend(origin.obstacle().map(|why| format!("names are missing: {why}")));
}

/// Names what has no name yet. Files that cannot be read say nothing.
pub fn from_dumps(profile: &mut Profile, origin: &Origin, files: &[File]) {
    let places = profile.places.iter().enumerate().filter(|(_, place)| place.frames.is_empty());
    let mut places: Vec<(u64, usize)> = places.map(|(at, place)| (place.address, at)).collect();
    places.sort();
    if places.is_empty() {
        return;
    }
    let addresses: Vec<u64> = places.iter().map(|one| one.0).collect();
    for file in files.iter().filter(|file| file.metadata().is_ok_and(|data| data.len() <= FILE_MAX)) {
        for (number, frame) in symbols::code(origin, file, &addresses) {
            let Some(place) = places.get(number).map(|one| &mut profile.places[one.1]) else { continue };
            (place.module, place.frames) = (None, vec![frame]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Place;
    use crate::symbols::Frame;

    #[test]
    fn only_places_without_a_name_are_named() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"1000 100 made\n").unwrap();
        let known = vec![Frame { function: "known".into(), file: String::new(), line: 0 }];
        let places = [(0x1000, known), (0x1001, vec![])];
        let places = places.map(|(address, frames)| Place { address, module: Some(0), frames }).to_vec();
        let mut profile = Profile { places, ..Profile::default() };
        from_dumps(&mut profile, &Origin::of_machine(&[]), &[tempfile::tempfile().unwrap(), file]);
        assert_eq!(profile.places[0].frames[0].function, "known");
        assert_eq!((profile.places[1].frames[0].function.as_str(), profile.places[1].module), ("made", None));
    }
}
