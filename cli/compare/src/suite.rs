//! Suite files: workloads in TOML, checked as a whole before anything runs. Each error names file and line.
//!
//! "{name}" in commands, setup, environment and needs stands for a variable: {suite} is the file's directory, {work} a
//! scratch directory of the whole comparison, others come from --var. "{{name}}" is a literal "{name}". In `setup`,
//! which is a shell's, names that are no variables are left alone, and so is "${name}".
// SPDX-License-Identifier: MIT

use crate::output::{self, Patterns};
use crate::results::{Curve, Metric, Processes};
use anyhow::{anyhow, bail, Context, Result};
use hakmem_base::files;
use regex_lite::{Captures, Regex};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use toml::Spanned;

// ---- the file ----

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuiteFile {
    title: String,
    rounds: Option<Spanned<usize>>,
    baseline: Option<String>,
    #[serde(default)]
    workload: Vec<WorkloadFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    name: Spanned<String>,
    #[serde(default)]
    group: String,
    #[serde(default)]
    tags: Vec<String>,
    command: Spanned<Vec<Spanned<String>>>,
    metric: Option<Spanned<String>>,
    metric_name: Option<String>,
    #[serde(default)]
    values: BTreeMap<String, Spanned<String>>,
    curve: Option<CurveFile>,
    #[serde(default)]
    environment: BTreeMap<String, Spanned<String>>,
    setup: Option<String>,
    #[serde(default)]
    needs: Vec<Spanned<String>>,
    #[serde(default)]
    check_output: bool,
    ignore: Option<Spanned<String>>,
    #[serde(default)]
    exit_status: i32,
    timeout_s: Option<Spanned<f64>>,
    #[serde(default)]
    processes: Processes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveFile {
    name: String,
    x: f64,
    unit: String,
}

// ---- what it means ----

/// A workload that can be run.
#[derive(Debug, Clone)]
pub struct Spec {
    pub name: String,
    pub group: String,
    pub tags: Vec<String>,
    pub command: Vec<String>,
    pub metric: Option<Metric>,
    pub patterns: Patterns,
    pub curve: Option<Curve>,
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    pub setup: Option<String>,
    pub needs: Vec<String>,
    pub exit_status: i32,
    pub timeout: Option<Duration>,
    pub processes: Processes,
    pub rounds: Option<usize>,
}

#[derive(Debug)]
pub struct Suite {
    pub title: String,
    pub baseline: Option<String>,
    pub workloads: Vec<Spec>,
}

/// Variables by name.
pub type Variables = HashMap<String, String>;

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    work: &'a Path,
    variables: Variables,
}

pub fn read(path: &Path, variables: &Variables, work: &Path) -> Result<Suite> {
    let text = files::read_text(path).with_context(|| path.display().to_string())?;
    let directory = fs::canonicalize(path)?.parent().unwrap_or(Path::new("/")).display().to_string();
    let mut variables = variables.clone();
    variables.insert("suite".to_string(), directory);
    variables.insert("work".to_string(), work.display().to_string());
    Reader { path, text: &text, work, variables }.suite()
}

impl Reader<'_> {
    fn error(&self, span: Range<usize>, message: impl std::fmt::Display) -> anyhow::Error {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        let message = message.to_string();
        let one_line: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        anyhow!("{}:{line}: {}", self.path.display(), one_line.join("; "))
    }

    fn suite(&self) -> Result<Suite> {
        let file: SuiteFile =
            toml::from_str(self.text).map_err(|error| self.error(error.span().unwrap_or(0..0), error.message()))?;
        let rounds = file.rounds.map(|rounds| self.positive(rounds)).transpose()?;
        let mut names = HashMap::new();
        for workload in &file.workload {
            let span = workload.name.span();
            if names.insert(workload.name.get_ref(), ()).is_some() {
                return Err(self.error(span, format!("a second workload named {:?}", workload.name.get_ref())));
            }
        }
        let workloads = file.workload.into_iter().map(|workload| self.spec(workload, rounds));
        Ok(Suite { title: file.title, baseline: file.baseline, workloads: workloads.collect::<Result<_>>()? })
    }

    fn positive(&self, number: Spanned<usize>) -> Result<usize> {
        let span = number.span();
        match number.into_inner() {
            0 => Err(self.error(span, "rounds is at least 1")),
            number => Ok(number),
        }
    }

    fn spec(&self, file: WorkloadFile, rounds: Option<usize>) -> Result<Spec> {
        let command_span = file.command.span();
        let command = self.expand_all(file.command.into_inner())?;
        if command.is_empty() {
            return Err(self.error(command_span, "the command is empty"));
        }
        let metric_pattern = file.metric.as_ref().map(|pattern| pattern.get_ref().clone());
        let metric_name = file.metric_name.unwrap_or("ops/s".to_string());
        let values =
            file.values.into_iter().map(|(name, regex)| Ok((name, self.regex(regex, output::number_pattern)?)));
        let patterns = Patterns {
            metric: file.metric.map(|regex| self.regex(regex, output::number_pattern)).transpose()?,
            values: values.collect::<Result<_>>()?,
            check: file.check_output,
            ignore: file.ignore.map(|regex| self.regex(regex, output::pattern)).transpose()?,
        };
        let environment = file.environment.into_iter().map(|(name, value)| Ok((name, self.expand(&value)?)));
        Ok(Spec {
            name: file.name.into_inner(),
            group: file.group,
            tags: file.tags,
            command,
            metric: metric_pattern.map(|pattern| Metric { name: metric_name, pattern }),
            patterns,
            curve: file.curve.map(|curve| Curve { name: curve.name, x: curve.x, unit: curve.unit }),
            environment: environment.collect::<Result<_>>()?,
            directory: self.work.to_path_buf(),
            setup: file.setup.map(|text| expand(&text, &self.variables, false)).transpose()?,
            needs: self.expand_all(file.needs)?,
            exit_status: file.exit_status,
            timeout: file.timeout_s.map(|seconds| self.timeout(seconds)).transpose()?,
            processes: file.processes,
            rounds,
        })
    }

    fn timeout(&self, seconds: Spanned<f64>) -> Result<Duration> {
        let duration = Duration::try_from_secs_f64(*seconds.get_ref()).ok().filter(|duration| !duration.is_zero());
        duration.ok_or_else(|| self.error(seconds.span(), "timeout_s is a number of seconds above 0"))
    }

    fn regex(&self, text: Spanned<String>, compile: impl Fn(&str) -> Result<Regex>) -> Result<Regex> {
        compile(text.get_ref()).map_err(|error| self.error(text.span(), error))
    }

    fn expand(&self, text: &Spanned<String>) -> Result<String> {
        expand(text.get_ref(), &self.variables, true).map_err(|error| self.error(text.span(), error))
    }

    fn expand_all(&self, texts: Vec<Spanned<String>>) -> Result<Vec<String>> {
        texts.iter().map(|text| self.expand(text)).collect()
    }
}

/// Puts variables in. If `strict`, an unknown one is an error.
fn expand(text: &str, variables: &Variables, strict: bool) -> Result<String> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{[a-z_]+\}\}|\$?\{[a-z_]+\}").unwrap());
    let mut unknown = None;
    let expanded = NAME.replace_all(text, |captures: &Captures| {
        let found = &captures[0];
        if found.starts_with("{{") {
            return found[1..found.len() - 1].to_string();
        }
        let name = &found.trim_start_matches('$')[1..found.trim_start_matches('$').len() - 1];
        match variables.get(name) {
            Some(value) if !found.starts_with('$') => value.clone(),
            None if !found.starts_with('$') => {
                unknown.get_or_insert(name.to_string());
                found.to_string()
            }
            _ => found.to_string(),
        }
    });
    if let (Some(name), true) = (unknown, strict) {
        bail!("unknown variable {{{name}}}: give --var {name}=VALUE, or write {{{{{name}}}}} for the text itself");
    }
    Ok(expanded.into_owned())
}

/// NAME=VALUE; a path that exists is made absolute, as programs run elsewhere.
pub fn variable(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').with_context(|| format!("--var {text}: expected NAME=VALUE"))?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        bail!("--var {text}: a name has only a-z and _");
    }
    let is_path = value == "." || value == ".." || value.contains('/');
    let path = fs::canonicalize(value).ok().filter(|_| is_path);
    Ok((name.to_string(), path.map_or(value.to_string(), |path| path.display().to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Suite> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("suite.toml");
        fs::write(&path, text).unwrap();
        let variables = Variables::from([("bench".to_string(), "/opt/bench".to_string())]);
        read(&path, &variables, Path::new("/work dir"))
    }

    const GOOD: &str = r#"
title = "Some"
rounds = 7
baseline = "hakmem"
[[workload]]
name = "larson 2"
group = "reports"
tags = ["threads"]
command = ["{bench}/larson", "2", "{{bench}}", "${HOME}", "{work}"]
metric = 'larson ops/s: ([0-9.]+)'
values = { "P99.99 ns" = 'p99_99_ns: ([0-9]+)' }
curve = { name = "larson", x = 2, unit = "threads" }
environment = { LANG = "C", DATA = "{work}/data" }
setup = "cd {work}; for i in {a,b} ${x} {print}; do echo; done"
needs = ["sh"]
check_output = true
ignore = 'took [0-9.]+ s'
exit_status = 3
timeout_s = 60
processes = "all"
[[workload]]
name = "plain"
command = ["true"]
"#;

    #[test]
    fn a_suite_is_read() {
        let suite = read_text(GOOD).unwrap();
        assert_eq!((suite.title.as_str(), suite.baseline.as_deref()), ("Some", Some("hakmem")));
        let larson = &suite.workloads[0];
        assert_eq!(larson.command, ["/opt/bench/larson", "2", "{bench}", "${HOME}", "/work dir"]);
        assert_eq!(larson.environment["DATA"], "/work dir/data");
        assert_eq!(larson.setup.as_deref(), Some("cd /work dir; for i in {a,b} ${x} {print}; do echo; done"));
        assert_eq!((larson.rounds, larson.exit_status, larson.processes), (Some(7), 3, Processes::All));
        assert_eq!((larson.timeout, larson.curve.as_ref().unwrap().x), (Some(Duration::from_secs(60)), 2.0));
        assert_eq!(larson.metric.as_ref().unwrap().name, "ops/s");
        let plain = &suite.workloads[1];
        assert!(plain.metric.is_none() && !plain.patterns.check && plain.processes == Processes::Main);
    }

    /// What is said of GOOD with one text replaced: a user finds the line.
    #[track_caller]
    fn expect_error(from: &str, to: &str, line: usize, words: &str) {
        assert!(GOOD.contains(from));
        let error = format!("{:#}", read_text(&GOOD.replacen(from, to, 1)).unwrap_err());
        assert!(error.contains(&format!("suite.toml:{line}: ")), "{error}");
        assert!(error.contains(words), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }

    #[test]
    fn errors_name_their_line() {
        expect_error("rounds = 7", "rounds = 0", 3, "at least 1");
        expect_error("rounds = 7", "runds = 7", 3, "runds");
        expect_error("tags = [\"threads\"]", "tag = [\"threads\"]", 8, "tag");
        expect_error("tags = [\"threads\"]", "tags = \"threads\"", 8, "sequence");
        expect_error("name = \"plain\"", "name = \"larson 2\"", 22, "second workload");
        expect_error("{bench}/larson", "{brench}/larson", 9, "unknown variable {brench}");
        expect_error("([0-9.]+)'", "([0-9.]+'", 10, "open group without closing");
        expect_error("([0-9.]+)'", "[0-9.]+'", 10, "no group");
        expect_error("p99_99_ns: ([0-9]+)", "p99_99_ns: ([0-9]+", 11, "open group without closing");
        expect_error("unit = \"threads\"", "units = \"threads\"", 12, "units");
        expect_error("{work}/data", "{wrok}/data", 13, "unknown variable {wrok}");
        expect_error("took [0-9.]+ s", "took [0-9.+ s", 17, "class has no closing bracket");
        expect_error("timeout_s = 60", "timeout_s = -1", 19, "above 0");
        expect_error("\"all\"", "\"some\"", 20, "some");
        expect_error("command = [\"true\"]", "command = []", 23, "empty");
        expect_error("command = [\"true\"]", "", 21, "command");
        expect_error("command = [\"true\"]", "command = [\"true\"", 23, "array");
    }

    #[test]
    fn variables_are_checked() {
        assert_eq!(variable("n=5").unwrap(), ("n".to_string(), "5".to_string()));
        assert_eq!(variable("bench=/usr/../usr/lib").unwrap().1, "/usr/lib");
        assert!(variable("bench").is_err() && variable("Bench=1").is_err() && variable("=1").is_err());
    }

    /// Else a suite that somebody sent ends the command, or keeps it.
    #[test]
    fn any_text_is_a_suite_or_an_error() {
        let (path, work) = (Path::new("suite.toml"), Path::new("/work"));
        hakmem_fuzz::mutations("a suite", GOOD.as_bytes(), 1000, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let variables = Variables::from([("bench".to_string(), "/opt/bench".to_string())]);
            if let Err(error) = (Reader { path, text: &text, work, variables }.suite()) {
                assert!(error.to_string().starts_with("suite.toml:"), "{error}");
            }
        });
    }
}
