//! Terms over time, one on the other: a column a sample, the newest at the right, an eighth of a line exact.
// SPDX-License-Identifier: MIT

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::widgets::Widget;

pub struct Stack<'a> {
    /// Oldest first; the same terms in each.
    pub samples: &'a [Vec<u64>],
    pub colours: &'a [Color],
}

impl Widget for Stack<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let shown = &self.samples[self.samples.len().saturating_sub(area.width.into())..];
        let most = shown.iter().map(|sample| sample.iter().sum::<u64>()).max().unwrap_or(0).max(1);
        for (place, sample) in shown.iter().rev().enumerate() {
            let x = area.right() - 1 - place as u16;
            let ends = ends(sample, u64::from(area.height) * 8, most);
            for line in 0..area.height {
                let (letter, lower, upper) = cell(&ends, u64::from(line) * 8);
                let colour = |part: Option<usize>| part.map_or(Color::Reset, |part| self.colours[part]);
                let cell = &mut buffer[(x, area.bottom() - 1 - line)];
                cell.set_symbol(letter).set_fg(colour(lower)).set_bg(colour(upper));
            }
        }
    }
}

/// Where each term ends, in eighths of a line from the bottom.
fn ends(sample: &[u64], eighths: u64, most: u64) -> Vec<u64> {
    let mut sum = 0u64;
    let end = |part: &u64| {
        sum += part;
        (u128::from(sum) * u128::from(eighths)).div_ceil(u128::from(most)) as u64
    };
    sample.iter().map(end).collect()
}

/// The character of the line that begins at `bottom`, the term below its edge and the one above.
fn cell(ends: &[u64], bottom: u64) -> (&'static str, Option<usize>, Option<usize>) {
    const LETTERS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let at = |height: u64| ends.iter().position(|end| *end > height);
    let lower = at(bottom);
    let Some(end) = lower.map(|part| ends[part]) else {
        return (" ", None, None);
    };
    match end - bottom {
        high if high >= 8 => (LETTERS[8], lower, None),
        high => (LETTERS[high as usize], lower, at(end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_shares_of_the_highest() {
        let colours = [Color::Red, Color::Blue];
        let samples = vec![vec![1, 1], vec![4, 4]];
        let area = Rect::new(0, 0, 3, 4);
        let mut buffer = Buffer::empty(area);
        Stack { samples: &samples, colours: &colours }.render(area, &mut buffer);
        let column = |x: u16| (0..4).rev().map(|y| (buffer[(x, y)].symbol(), buffer[(x, y)].fg)).collect::<Vec<_>>();
        assert_eq!(column(2), [("█", Color::Red), ("█", Color::Red), ("█", Color::Blue), ("█", Color::Blue)]);
        assert_eq!(column(1)[..2], [("▄", Color::Red), (" ", Color::Reset)]);
        assert_eq!(buffer[(1, 3)].bg, Color::Blue, "what is above the first term");
        assert_eq!(column(0)[0].0, " ", "nothing was measured then");
    }

    #[test]
    fn empty_input_divides_by_no_zero() {
        let area = Rect::new(0, 0, 2, 2);
        Stack { samples: &[vec![0, 0]], colours: &[Color::Red; 2] }.render(area, &mut Buffer::empty(area));
        Stack { samples: &[], colours: &[] }.render(area, &mut Buffer::empty(area));
    }
}
