//! How allocators look: told by colour and shape together, the same in every drawing.
// SPDX-License-Identifier: MIT

use std::fmt::Write;

/// How an allocator looks: families share colour and shape, their older or stricter members are hollow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    pub light: &'static str,
    pub dark: &'static str,
    shape: &'static str,
    pub hollow: bool,
}

const CIRCLE: &str = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z";
const SQUARE: &str = "M-4 -4h8v8h-8z";
const UP: &str = "M0 -5.2L5 3.8H-5z";
const DOWN: &str = "M0 5.2L5 -3.8H-5z";
const DIAMOND: &str = "M0 -5.6L5 0L0 5.6L-5 0z";
const PENTAGON: &str = "M0 -5.2L5 -1.6L3.1 4.2H-3.1L-5 -1.6z";
const HEXAGON: &str = "M-5 0L-2.5 -4.4H2.5L5 0L2.5 4.4H-2.5z";
const PLUS: &str = "M-1.8 -5h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z";
const CROSS: &str = "M-5 -2.6L-2.6 -5L0 -2.4L2.6 -5L5 -2.6L2.4 0L5 2.6L2.6 5L0 2.4L-2.6 5L-5 2.6L-2.4 0z";
const STAR: &str = "M0 -5.8L1.5 -1.9L5.6 -1.8L2.4 0.8L3.5 4.8L0 2.5L-3.5 4.8L-2.4 0.8L-5.6 -1.8L-1.5 -1.9z";

/// (names, light, dark, shape): the first name is filled, the others hollow.
const FAMILIES: [(&[&str], &str, &str, &str); 11] = [
    (&["hakmem"], "#0b57d0", "#6aa9ff", CIRCLE),
    (&["system", "glibc"], "#56606e", "#b3bcc8", SQUARE),
    (&["mimalloc3", "mimalloc2", "mimalloc2-debian", "mimalloc"], "#b84a00", "#ff9f5f", UP),
    (&["mimalloc-pprof", "mimalloc-bun"], "#8f2d00", "#ffc19a", SQUARE),
    (&["jemalloc", "jemalloc-debian"], "#00735c", "#3ccfa4", DIAMOND),
    (&["tcmalloc", "gperftools"], "#a3328a", "#f090d6", DOWN),
    (&["snmalloc", "snmalloc-checks"], "#856200", "#e3bd45", PLUS),
    (&["rpmalloc", "rpmalloc2"], "#007390", "#58c9ea", PENTAGON),
    (&["tbbmalloc"], "#6443c2", "#ad98ff", CROSS),
    (&["hardened", "hardened-light"], "#a8262f", "#ff8c88", STAR),
    (&["scudo"], "#75543f", "#cfa98f", HEXAGON),
];

/// The looks of allocators that belong to no family, by their place.
const OTHERS: [(&str, &str, &str); 4] = [
    ("#3f6b1f", "#9ad06a", HEXAGON),
    ("#8c3b5e", "#f29bbb", PENTAGON),
    ("#2f5f7d", "#8fc4e6", UP),
    ("#5d5a1e", "#cfca7a", DIAMOND),
];

pub fn look(name: &str, place: usize) -> Look {
    for (names, light, dark, shape) in FAMILIES {
        if let Some(member) = names.iter().position(|one| *one == name) {
            return Look { light, dark, shape, hollow: member > 0 && name != "glibc" };
        }
    }
    let (light, dark, shape) = OTHERS[place % OTHERS.len()];
    Look { light, dark, shape, hollow: place / OTHERS.len() % 2 == 1 }
}

/// Classes a0, a1, … that carry the allocators' colours.
pub fn palette(names: &[&str]) -> String {
    let (mut classes, mut light, mut dark) = (String::new(), String::new(), String::new());
    for (place, name) in names.iter().enumerate() {
        let look = look(name, place);
        let _ = write!(classes, ".a{place}{{color:var(--a{place})}}");
        let _ = write!(light, "--a{place}:{};", look.light);
        let _ = write!(dark, "--a{place}:{};", look.dark);
    }
    format!(":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{classes}\n")
}

/// Definitions m0, m1, … of the allocators' markers, and n0, n1, … of the same in small.
pub fn markers(names: &[&str]) -> String {
    let mut all = String::from("<defs>");
    for (place, name) in names.iter().enumerate() {
        let look = look(name, place);
        let class = if look.hollow { "hollow" } else { "full" };
        let _ = write!(all, r#"<path id="m{place}" class="{class}" d="{}"/>"#, look.shape);
        let _ = write!(all, r##"<g id="n{place}"><use href="#m{place}" transform="scale(.75)"/></g>"##);
    }
    all + "</defs>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use hakmem_base::page::CHART_STYLE;

    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap() as f64 / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// Names in their colours would be hard to read otherwise (WCAG AA). The papers are those of chart.css.
    #[test]
    fn colours_can_be_read_on_both_papers() {
        assert!(CHART_STYLE.contains("--paper:#fdfdfc") && CHART_STYLE.contains("--paper:#15181d"));
        let names = FAMILIES.iter().flat_map(|family| family.0).copied();
        for name in names.chain(["one", "two", "three", "four"]) {
            for place in 0..4 {
                let look = look(name, place);
                assert!(contrast(look.light, "#fdfdfc") >= 4.5, "{name} light");
                assert!(contrast(look.dark, "#15181d") >= 4.5, "{name} dark");
            }
        }
    }

    #[test]
    fn known_allocators_never_look_alike() {
        let looks: Vec<Look> = FAMILIES
            .iter()
            .flat_map(|family| family.0[..family.0.len().min(2)].iter())
            .map(|name| look(name, 0))
            .collect();
        for (number, one) in looks.iter().enumerate() {
            let same = looks[..number].iter().filter(|other| *other == one).count();
            assert!(same == 0 || *one == look("system", 0), "{one:?}");
        }
    }
}
