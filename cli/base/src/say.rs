//! Numbers and dates as a person reads them.
// SPDX-License-Identifier: MIT

use std::mem::MaybeUninit;

/// Three digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    let (scaled, unit) = match size {
        _ if size >= 999.5e6 => (value / 1e9, " G"),
        _ if size >= 999.5e3 => (value / 1e6, " M"),
        _ if size >= 9999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    digits(scaled) + unit
}

fn digits(value: f64) -> String {
    let size = value.abs();
    let places = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    text
}

pub fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(size, _)| value.abs() >= *size as f64 * 0.9995);
    let (size, name) = unit.unwrap_or((1, "B"));
    format!("{} {name}", digits(value / size as f64))
}

/// The unit that `bytes` writes this with.
pub fn byte_unit(value: f64) -> f64 {
    [30, 20, 10, 0].into_iter().map(|power| (1u64 << power) as f64).find(|unit| value >= *unit).unwrap_or(1.0)
}

pub fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let units = [(60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let enough = |size: f64| value.abs() >= if size == 60.0 { 600.0 } else { size * 0.9995 };
    let (size, name) = units.into_iter().find(|(size, _)| enough(*size)).unwrap_or((1.0, "s"));
    format!("{} {name}", digits(value / size))
}

/// A difference as per cent: 0.07 is "7 %".
pub fn percent(share: f64) -> String {
    let percent = share.abs() * 100.0;
    if percent < 9.95 {
        format!("{percent:.1}\u{a0}%")
    } else {
        format!("{percent:.0}\u{a0}%")
    }
}

/// How many of the first: "1st".
pub fn place(place: usize) -> String {
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{place}{ending}")
}

pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
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
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(
            [bytes(0.0), bytes(1023.0), bytes(1048576.0), bytes(3.5 * 1073741824.0)],
            ["0 B", "1023 B", "1 MiB", "3.5 GiB"]
        );
        assert_eq!(
            [seconds(1.234), seconds(0.0005), seconds(0.25), seconds(0.0)],
            ["1.23 s", "500 µs", "250 ms", "0 s"]
        );
        assert_eq!([number(123456789.0), number(9999.0), number(12.0), number(0.5)], ["123 M", "9999", "12", "0.5"]);
        assert_eq!([percent(0.0712), percent(-0.234)], ["7.1\u{a0}%", "23\u{a0}%"]);
        assert_eq!([place(1), place(2), place(11), place(23)], ["1st", "2nd", "11th", "23rd"]);
    }

    #[test]
    fn dates_are_utc() {
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
    }
}
