//! How the parts of a heap are called and coloured: the same in the terminal, on the page and in `top`.
//!
//! A class's colour follows from its tier and size alone, so that it stays while the heap changes: tiny from blue to
//! green, mid from yellow to red, large violet, huge pink; the larger the block, the further along. Neighbouring
//! classes differ in how light they are.
// SPDX-License-Identifier: MIT

use crate::heap::model::{Class, Slot, State, Tier};

/// The largest block of a class.
const CLASS_BYTES_MAX: u64 = 64 << 10;

/// What a slab's blocks are: large and huge blocks are one kind each, whatever their size, and so are large blocks of
/// secure mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    tier: Tier,
    block_bytes: u64,
}

impl Kind {
    fn new(tier: Tier, block_bytes: u64) -> Kind {
        let has_class = !matches!(tier, Tier::Large | Tier::Huge) && block_bytes <= CLASS_BYTES_MAX;
        Kind { tier, block_bytes: if has_class { block_bytes } else { 0 } }
    }

    /// None if the slot is not ACTIVE.
    pub fn of_slot(slot: &Slot) -> Option<Kind> {
        (slot.state == State::Active).then(|| Some(Kind::new(slot.tier?, slot.block_bytes))).flatten()
    }

    pub fn of_class(class: &Class) -> Kind {
        Kind::new(class.tier, class.block_bytes)
    }

    pub fn name(&self) -> String {
        match self.tier {
            Tier::Large => "large".into(),
            Tier::Huge => "huge".into(),
            Tier::Secure if self.block_bytes == 0 => "secure large".into(),
            Tier::Secure => format!("secure {}", self.block_bytes),
            Tier::Tiny | Tier::Mid => self.block_bytes.to_string(),
        }
    }

    /// In degrees.
    fn hue(&self) -> f64 {
        let share =
            |least: f64, most: f64| ((self.block_bytes as f64 / least).ln() / (most / least).ln()).clamp(0.0, 1.0);
        match self.tier {
            Tier::Tiny => 268.0 - 120.0 * share(8.0, 1024.0),
            Tier::Mid => 100.0 - 78.0 * share(1152.0, 65536.0),
            Tier::Large => 305.0,
            Tier::Huge => 350.0,
            Tier::Secure if self.block_bytes == 0 => 110.0,
            Tier::Secure => 200.0 - 90.0 * share(8.0, 65536.0),
        }
    }

    /// Darker, middle, lighter: in turn from class to class, which lie 16 bytes apart or eight to a doubling.
    fn tone(&self) -> f64 {
        let place = match self.block_bytes {
            0 => 1,
            bytes if bytes <= 256 => bytes / 16,
            bytes => 8 * u64::from(bytes.ilog2()) + (bytes >> (bytes.ilog2() - 3)) - 56,
        };
        [-0.1, 0.0, 0.1][(place % 3) as usize]
    }

    pub fn colour(&self) -> Colour {
        Colour { hue: self.hue(), chroma: 0.13, tone: self.tone() }
    }
}

/// In OKLCH; how light it is depends on what it is drawn on.
#[derive(Debug, Clone, Copy)]
pub struct Colour {
    hue: f64,
    chroma: f64,
    /// Added to its lightness.
    tone: f64,
}

impl Colour {
    pub const fn new(hue: f64, chroma: f64) -> Colour {
        Colour { hue, chroma, tone: 0.0 }
    }

    pub fn on_light(&self) -> String {
        self.hex(0.58)
    }

    pub fn on_dark(&self) -> String {
        self.hex(0.74)
    }

    fn hex(&self, lightness: f64) -> String {
        let [red, green, blue] = self.rgb(lightness + self.tone).map(|part| (part * 255.0).round() as u8);
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    /// The nearest of the 216 colours that terminals have behind number 16.
    pub fn in_terminal(&self) -> u8 {
        let steps = self.rgb(0.68 + self.tone).map(|part| match part * 255.0 {
            level if level < 48.0 => 0,
            level if level < 115.0 => 1,
            level => ((level - 35.0) / 40.0) as u8,
        });
        16 + 36 * steps[0] + 6 * steps[1] + steps[2]
    }

    /// Björn Ottosson's matrices.
    fn rgb(&self, lightness: f64) -> [f64; 3] {
        let (sin, cos) = self.hue.to_radians().sin_cos();
        let (a, b) = (self.chroma * cos, self.chroma * sin);
        let l = (lightness + 0.3963377774 * a + 0.2158037573 * b).powi(3);
        let m = (lightness - 0.1055613458 * a - 0.0638541728 * b).powi(3);
        let s = (lightness - 0.0894841775 * a - 1.2914855480 * b).powi(3);
        let linear = [
            4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
            -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
            -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
        ];
        linear.map(|part| match part.clamp(0.0, 1.0) {
            part if part <= 0.0031308 => 12.92 * part,
            part => 1.055 * part.powf(1.0 / 2.4) - 0.055,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader who cannot tell the tiers by colour has only the numbers left.
    #[test]
    fn tiers_do_not_look_alike() {
        let kinds = [(Tier::Tiny, 8), (Tier::Tiny, 1024), (Tier::Mid, 1152), (Tier::Mid, 65536), (Tier::Large, 0)];
        let kinds = kinds.map(|(tier, bytes)| Kind::new(tier, bytes));
        for (number, one) in kinds.iter().enumerate() {
            for other in &kinds[..number] {
                assert_ne!(one.colour().in_terminal(), other.colour().in_terminal(), "{one:?} {other:?}");
                let apart = (one.hue() - other.hue()).abs();
                assert!(apart.min(360.0 - apart) > 35.0, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn neighbours_do_not_look_alike() {
        let tiny = (1..=16).map(|n| n * 16).chain((9..=16).map(|n| n * 32)).chain((9..=16).map(|n| n * 64));
        let mid = (0..6).flat_map(|doubling| (9..=16).map(move |n| n << (7 + doubling)));
        for (tier, sizes) in [(Tier::Tiny, tiny.collect::<Vec<u64>>()), (Tier::Mid, mid.collect())] {
            for pair in sizes.windows(2) {
                let [one, other] = [pair[0], pair[1]].map(|bytes| Kind::new(tier, bytes).tone());
                assert_ne!(one, other, "{pair:?}");
            }
        }
    }

    #[test]
    fn colours_are_those_of_the_formula() {
        // White, black, and what CSS calls red.
        assert_eq!(Colour::new(90.0, 0.0).hex(1.0), "#ffffff");
        assert_eq!(Colour::new(0.0, 0.0).hex(0.0), "#000000");
        let red = Colour::new(29.23, 0.2577).rgb(0.628);
        assert!(red[0] > 0.99 && red[1] < 0.02 && red[2] < 0.02, "{red:?}");
        assert_eq!(Colour::new(0.0, 0.0).in_terminal(), 16 + 43 * 2, "grey stays grey");
    }

    #[test]
    fn blocks_of_any_size_are_large() {
        assert_eq!(Kind::new(Tier::Large, 70_000), Kind::new(Tier::Large, 0));
        assert_eq!(Kind::new(Tier::Secure, 70_000).name(), "secure large");
        assert_ne!(Kind::new(Tier::Mid, 2048), Kind::new(Tier::Mid, 4096));
    }
}
