//! What a program prints: the numbers in it, and whether it is what the baseline's run printed.
// SPDX-License-Identifier: MIT

use anyhow::{Context, Result};
use regex_lite::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Regular expressions over a program's output. `^` and `$` are the ends of lines.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// Throughput; group 1 is the number.
    pub metric: Option<Regex>,
    /// Further numbers, by name.
    pub values: BTreeMap<String, Regex>,
    /// Must the output be the same whatever the allocator?
    pub check: bool,
    /// What may differ.
    pub ignore: Option<Regex>,
}

pub fn pattern(text: &str) -> Result<Regex> {
    RegexBuilder::new(text).multi_line(true).build().map_err(|error| anyhow::anyhow!("{text:?}: {error}"))
}

/// A pattern whose group 1 is a number.
pub fn number_pattern(text: &str) -> Result<Regex> {
    let regex = pattern(text)?;
    anyhow::ensure!(regex.captures_len() > 1, "{text:?} has no group (…) around the number");
    Ok(regex)
}

pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn read(stdout: &Path, stderr: &Path) -> Output {
        let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Output { stdout: text(stdout), stderr: text(stderr) }
    }

    /// The last line of stderr that is not empty, cut to a readable length.
    pub fn last_words(&self) -> Option<String> {
        let line = self.stderr.lines().rev().find(|line| !line.trim().is_empty())?.trim();
        Some(match line.char_indices().nth(160) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_string(),
        })
    }

    /// The number in the last match, on stdout or else on stderr.
    fn number(&self, regex: &Regex) -> Option<f64> {
        let last = |text: &str| -> Option<f64> {
            let group = regex.captures_iter(text).filter_map(|captures| captures.get(1)).last()?;
            group.as_str().replace(',', "").parse().ok().filter(|number: &f64| number.is_finite())
        };
        last(&self.stdout).or_else(|| last(&self.stderr))
    }

    /// The metric and the values.
    pub fn numbers(&self, patterns: &Patterns) -> Result<(Option<f64>, BTreeMap<String, f64>)> {
        let find = |regex: &Regex| self.number(regex).with_context(|| format!("prints no number for {regex}"));
        let metric = patterns.metric.as_ref().map(find).transpose()?;
        anyhow::ensure!(metric.is_none_or(|number| number > 0.0), "prints a throughput of {}", metric.unwrap_or(0.0));
        let values = patterns.values.iter().map(|(name, regex)| Ok((name.clone(), find(regex)?)));
        Ok((metric, values.collect::<Result<_>>()?))
    }

    /// stdout without what may differ.
    pub fn masked(&self, patterns: &Patterns) -> String {
        let regexes = patterns.metric.iter().chain(patterns.values.values()).chain(&patterns.ignore);
        regexes.fold(self.stdout.clone(), |text, regex| regex.replace_all(&text, "…").into_owned())
    }
}

/// Where two texts first differ, in words.
pub fn difference(text: &str, expected: &str) -> Option<String> {
    if text == expected {
        return None;
    }
    let short = |line: Option<&str>| match line {
        None => "nothing".to_string(),
        Some(line) => format!("{:?}", line.chars().take(60).collect::<String>()),
    };
    let (mut lines, mut others) = (text.lines(), expected.lines());
    for number in 1.. {
        let (line, other) = (lines.next(), others.next());
        if line != other {
            return Some(format!("line {number} is {} instead of {}", short(line), short(other)));
        }
        if line.is_none() {
            break;
        }
    }
    Some("the ends of lines differ".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str) -> Output {
        Output { stdout: stdout.to_string(), stderr: "warning\nlast words\n\n".to_string() }
    }

    fn patterns() -> Patterns {
        Patterns {
            metric: Some(number_pattern("ops/s: ([0-9.,]+)").unwrap()),
            values: BTreeMap::from([("P99".to_string(), number_pattern("^p99: ([0-9]+)$").unwrap())]),
            check: true,
            ignore: Some(pattern("took [0-9.]+ s").unwrap()),
        }
    }

    #[test]
    fn numbers_are_found() {
        let (metric, values) = output("x ops/s: 12\nx ops/s: 1,234.5\np99: 77\n").numbers(&patterns()).unwrap();
        assert_eq!((metric, values["P99"]), (Some(1234.5), 77.0));
        let error = output("p99: 77\n").numbers(&patterns()).unwrap_err();
        assert!(error.to_string().contains("ops/s"), "{error}");
        assert!(output("x ops/s: 0\np99: 1").numbers(&patterns()).is_err());
    }

    #[test]
    fn what_may_differ_is_masked() {
        let one = output("sum 5\nops/s: 100\np99: 3\ntook 1.5 s\n").masked(&patterns());
        let other = output("sum 5\nops/s: 2.5\np99: 44\ntook 9 s\n").masked(&patterns());
        assert_eq!(difference(&one, &other), None);
        let wrong = output("sum 6\nops/s: 2.5\np99: 44\ntook 9 s\n").masked(&patterns());
        assert_eq!(difference(&wrong, &one).unwrap(), r#"line 1 is "sum 6" instead of "sum 5""#);
        assert_eq!(difference("a\n", "a\nb\n").unwrap(), r#"line 2 is nothing instead of "b""#);
        assert!(difference("a", "a\n").is_some());
    }

    #[test]
    fn last_words_are_the_last_line() {
        assert_eq!(output("").last_words().unwrap(), "last words");
    }

    #[test]
    fn a_number_needs_a_group() {
        assert!(number_pattern("ops: [0-9]+").is_err());
        assert!(number_pattern("ops: ([0-9]+").is_err());
    }
}
