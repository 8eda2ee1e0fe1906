//! The commands `hakmem profile`, `hakmem flame` and `hakmem diff`.
//!
//! A profile is a process, a file that `profile dump` wrote, or the file that a program wrote at its end; the
//! name of the output says what is written.
// SPDX-License-Identifier: MIT

use super::{flame as formats, page, pprof, read, text, Metric, Profile};
use crate::heap::named::{process_or_file, NamedOwn};
use crate::heap::rows::parse_number;
use anyhow::{bail, ensure, Context, Result};
use hakmem_base::files;
use hakmem_base::print;
use hakmem_base::proc::Pid;
use hakmem_base::say;
use hakmem_base::table::Style;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct ProfileOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start to sample new allocations
    Start {
        /// A process that runs HAKMEM; a NAME means a process of this user
        #[arg(value_name = "PID|NAME", value_parser = NamedOwn, allow_negative_numbers = true)]
        pid: Pid,
        /// Mean number of bytes between two samples
        #[arg(long, value_name = "N", default_value = "512K", value_parser = interval)]
        bytes: u64,
    },
    /// Stop sampling; the samples stay, and their frees are still recorded
    Stop {
        /// The process; a NAME means a process of this user
        #[arg(value_name = "PID|NAME", value_parser = NamedOwn, allow_negative_numbers = true)]
        pid: Pid,
    },
    /// Write the profile so far
    Dump {
        #[command(flatten)]
        source: Source,
        /// .pb.gz (pprof), .folded, .speedscope.json, .svg, .html or .txt; `-` is stdout [default: PROGRAM.PID.pb.gz]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Format of the file, whatever its name; the default on stdout is pprof
        #[arg(long, value_enum)]
        format: Option<Format>,
    },
}

#[derive(clap::Args)]
struct Source {
    /// A process that runs HAKMEM, or a file from `profile dump` or HAKMEM_PROFILE_FILE
    #[arg(value_name = "PID|NAME|FILE")]
    source: String,
    #[command(flatten)]
    symbols: Symbols,
}

#[derive(clap::Args)]
pub struct Symbols {
    /// Directory with separate debug files; can be repeated
    #[arg(long, value_name = "DIRECTORY", default_value = "/usr/lib/debug")]
    pub debug_directory: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct Look {
    /// What to draw, and to sort sites by
    #[arg(long, value_enum, default_value_t = Metric::InuseSpace)]
    metric: Metric,
    /// Maximum number of sites in a text
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Format of the file, whatever its name; the default on stdout is text
    #[arg(long, value_enum, requires = "output")]
    format: Option<Format>,
}

#[derive(clap::Args)]
pub struct FlameOptions {
    #[command(flatten)]
    source: Source,
    /// .svg, .html, .folded, .speedscope.json, .pb.gz (pprof) or .txt; can be repeated; `-` is stdout [default: text on
    /// stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
    #[command(flatten)]
    look: Look,
}

#[derive(clap::Args)]
pub struct DiffOptions {
    /// The profile before: a process or a file
    #[arg(value_name = "BEFORE")]
    before: String,
    /// The profile after
    #[arg(value_name = "AFTER")]
    after: String,
    #[command(flatten)]
    symbols: Symbols,
    /// .svg, .html or .txt; can be repeated; `-` is stdout [default: text on stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
    #[command(flatten)]
    look: Look,
}

impl Look {
    /// What each output is to hold.
    fn formats(&self, outputs: &[PathBuf]) -> Result<Vec<Format>> {
        print::ensure_one(outputs.iter().map(PathBuf::as_path), false)?;
        outputs.iter().map(|path| format_of(path, self.format, Format::Text)).collect()
    }
}

/// The library's own bounds (PROFILE_BYTES).
pub fn interval(text: &str) -> Result<u64> {
    let bytes = parse_number(text).context("a size is a number, with k, m or g")?;
    ensure!((1..=256 << 20).contains(&bytes), "a mean distance is 1 byte to 256 MiB");
    Ok(bytes)
}

impl Source {
    fn read(&self) -> Result<Profile> {
        read_profile(&self.source, &self.symbols)
    }
}

fn read_profile(source: &str, symbols: &Symbols) -> Result<Profile> {
    let directories = &symbols.debug_directory;
    match process_or_file(source, read::begins_profile)? {
        Some(pid) => read::process(pid, directories),
        None => read::file(Path::new(source), directories).with_context(|| source.to_string()),
    }
}

/// By the end of the name, if no option tells it.
#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum Format {
    Pprof,
    Folded,
    Speedscope,
    Svg,
    Html,
    Text,
}

const FORMATS: [(&str, Format); 8] = [
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".folded", Format::Folded),
    (".speedscope.json", Format::Speedscope),
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".htm", Format::Html),
    (".txt", Format::Text),
];

/// `named`: what --format says; `usual`: what goes to stdout without it.
fn format_of(path: &Path, named: Option<Format>, usual: Format) -> Result<Format> {
    if let Some(format) = named {
        return Ok(format);
    }
    if print::is_stdout(path) {
        return Ok(usual);
    }
    let name = path.to_string_lossy().to_ascii_lowercase();
    let found = FORMATS.iter().find(|(end, _)| name.ends_with(end));
    let unknown = || {
        format!(
            "{}: the name does not say the format: end it in .pb.gz, .folded, .speedscope.json, .svg, .html or .txt, \
            or give --format",
            path.display()
        )
    };
    Ok(found.with_context(unknown)?.1)
}

fn formatted(profile: &Profile, format: Format, look: (Metric, usize)) -> Result<Vec<u8>> {
    let (metric, top) = look;
    Ok(match format {
        Format::Pprof => pprof::write(profile)?,
        Format::Folded => formats::folded(profile, metric).into(),
        Format::Speedscope => formats::speedscope(profile, metric).to_string().into(),
        Format::Svg => formats::svg(profile, metric)?,
        Format::Html => page::profile(profile, metric).into(),
        Format::Text => text::text(profile, metric, top, Style { color: false, width: usize::MAX }).into(),
    })
}

/// All outputs, or the text on stdout. Names without a format are refused before anything is read.
pub fn flame(options: &FlameOptions) -> Result<ExitCode> {
    let formats = options.look.formats(&options.output)?;
    let profile = options.source.read()?;
    let look = &options.look;
    for (path, format) in options.output.iter().zip(formats) {
        files::write(path, formatted(&profile, format, (look.metric, look.top))?)?;
    }
    if look.json {
        let totals = Metric::ALL.map(|metric| (metric.name().to_string(), json!(profile.total(metric))));
        let sites = super::sites::sites(&profile, look.metric);
        let totals: serde_json::Map<_, _> = totals.into_iter().collect();
        print::json_line(&json!({ "totals": totals, "sites": sites, "profile": profile }))?;
    } else if options.output.is_empty() {
        print::text(&text::text(&profile, look.metric, look.top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn diff(options: &DiffOptions) -> Result<ExitCode> {
    let formats = options.look.formats(&options.output)?;
    let (before, after) =
        (read_profile(&options.before, &options.symbols)?, read_profile(&options.after, &options.symbols)?);
    let (metric, top) = (options.look.metric, options.look.top);
    for (path, format) in options.output.iter().zip(formats) {
        let bytes = match format {
            Format::Svg => formats::difference_svg(&before, &after, metric)?,
            Format::Html => page::difference(&before, &after, metric).into(),
            Format::Text => {
                text::difference(&before, &after, metric, top, Style { color: false, width: usize::MAX }).into()
            }
            _ => bail!("{}: a difference is written as .svg, .html or .txt", path.display()),
        };
        files::write(path, bytes)?;
    }
    if options.look.json {
        let (old, new) = (before.total(metric), after.total(metric));
        let changes = super::sites::changes(&before, &after, metric);
        print::json_line(&json!({ "metric": metric, "before": old, "after": new, "changes": changes }))?;
    } else if options.output.is_empty() {
        print::text(&text::difference(&before, &after, metric, top, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn profile(options: &ProfileOptions) -> Result<ExitCode> {
    match &options.action {
        Action::Start { pid, bytes } => {
            read::switch(*pid, *bytes)?;
            print::note(&format!(
                "one allocation in {} is sampled from now on; `hakmem flame {pid}` shows them",
                say::bytes(*bytes as f64)
            ));
        }
        Action::Stop { pid } => read::switch(*pid, 0)?,
        Action::Dump { source, output, format } => {
            let usual = Format::Pprof;
            let format = output.as_deref().map_or(Ok(usual), |path| format_of(path, *format, usual))?;
            let profile = source.read()?;
            let name = profile.command.split(['/', ' ']).next().filter(|name| !name.is_empty()).unwrap_or("program");
            let path = output.clone().unwrap_or_else(|| format!("{name}.{}.pb.gz", profile.pid).into());
            files::write(&path, formatted(&profile, format, (Metric::InuseSpace, 20))?)?;
            let place = if print::is_stdout(&path) { "stdout".into() } else { path.to_string_lossy() };
            print::note(&format!("{place}: {}", text::headline(&profile, Metric::InuseSpace)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(
            (interval("4096").unwrap(), interval("64k").unwrap(), interval("2MiB").unwrap()),
            (4096, 65_536, 2 << 20)
        );
        for wrong in ["", "0", "x", "1T", "-1", "257m"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_name_says_the_format() {
        let format = |name: &str, named| format_of(Path::new(name), named, Format::Text);
        assert_eq!(format("a.b.pb.gz", None).unwrap(), Format::Pprof);
        assert_eq!(format("A.SVG", None).unwrap(), Format::Svg);
        assert_eq!((format("-", None).unwrap(), format("-", Some(Format::Svg)).unwrap()), (Format::Text, Format::Svg));
        assert!(format("x.json", None).unwrap_err().to_string().contains(".speedscope.json"));
    }
}
