//! `hakmem migrate`: the settings of another allocator, as HAKMEM's options.
//!
//! 1. TABLE is the one place that knows what each setting becomes; docs/migrating.md holds it as text (a test
//!    compares).
//! 2. What is printed is lines NAME=VALUE that a shell, an EnvironmentFile or a container takes. A setting that needs
//!    nothing, or that HAKMEM lacks, is a comment that says why.
// SPDX-License-Identifier: MIT

use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use hakmem_base::print;
use std::fmt::Write;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Exit status: 0 every setting is known; 1 one is unknown, and a comment names it; 2 a value is \
    wrong.\n\
    Example: hakmem migrate 'MALLOC_CONF=dirty_decay_ms:0,narenas:4' MIMALLOC_SHOW_STATS=1"
)]
pub struct Options {
    /// Variables as in the environment, such as MALLOC_CONF=…, MIMALLOC_…=… and TCMALLOC_…=…; without any, those that
    /// are set
    #[arg(value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Print the whole table, as Markdown
    #[arg(long, conflicts_with = "settings")]
    table: bool,
}

/// What a setting becomes.
enum Rule {
    /// An option when it is on, and one when it is off; empty: that is the default.
    Switch(&'static str, &'static str),
    /// By its word. Empty: that is the default; behind a #: HAKMEM cannot do it.
    Words(&'static [(&'static str, &'static str)]),
    /// Milliseconds: 0 is at once, -1 never.
    Decay,
    /// The option, in bytes: 2 to the power of the setting.
    Power(&'static str),
    /// The option, by a number and a unit that is put behind.
    Number(&'static str, &'static str),
    /// The option, as a file; the text is put behind it.
    File(&'static str, &'static str),
    /// HAKMEM does it by itself, or it has no meaning there.
    Needless,
    /// HAKMEM cannot do it.
    Lacking,
}
use Rule::{Decay, File, Lacking, Needless, Number, Power, Switch, Words};

struct Setting {
    /// What they call it, and what else they call so or treat so; a variable has upper-case letters, jemalloc's
    /// settings do not.
    names: &'static [&'static str],
    /// A value of the first one.
    example: &'static str,
    rule: Rule,
    remark: &'static str,
}

const fn setting(names: &'static [&'static str], example: &'static str, rule: Rule, remark: &'static str) -> Setting {
    Setting { names, example, rule, remark }
}

/// The variables that hold a list of jemalloc's settings.
const LISTS: [&str; 3] = ["MALLOC_CONF", "_RJEM_MALLOC_CONF", "JE_MALLOC_CONF"];

#[rustfmt::skip]
const TABLE: &[Setting] = &[
    setting(&["stats_print"], "true", Switch("STATS=1", ""), ""),
    setting(&["stats_print_opts", "stats_interval", "stats_interval_opts"], "Jmdabl", Lacking,
        "`hakmem metrics` and `hakmem top` show the statistics of a running program"),
    setting(&["dirty_decay_ms"], "5000", Decay, "0 is PURGE=eager, -1 is PURGE=never"),
    setting(&["muzzy_decay_ms"], "5000", Needless, "memory goes back in one step"),
    setting(&["background_thread"], "true", Switch("PURGER=1", "PURGER=0"), "on by default"),
    setting(&["max_background_threads"], "4", Needless, "there is one thread, which sleeps when it has nothing to do"),
    setting(&["narenas", "percpu_arena", "mutex_max_spin"], "4", Needless, "threads share one pool without locks"),
    setting(&["thp"], "always", Words(&[("always", "HUGE_PAGES=always"), ("never", "HUGE_PAGES=never"), ("default",
        "")]), ""),
    setting(&["metadata_thp"], "auto", Needless, "the tables are small"),
    setting(&["hpa", "hpa_slab_max_alloc", "hpa_hugification_threshold", "hpa_hugify_delay_ms",
        "hpa_min_purge_interval_ms",
        "hpa_dirty_mult", "hpa_sec_nshards", "hpa_sec_max_alloc", "hpa_sec_max_bytes"], "true", Needless,
        "HUGE_PAGES=auto, the default, uses huge pages where they waste little"),
    setting(&["tcache"], "false", Switch("", "RING_BYTES=0"), "the lists of blocks up to 1 KiB stay"),
    setting(&["tcache_max", "lg_tcache_max", "tcache_nslots_small_min", "tcache_nslots_small_max",
        "tcache_nslots_large",
        "lg_tcache_nslots_mul", "tcache_gc_incr_bytes", "tcache_gc_delay_bytes", "lg_tcache_flush_small_div",
        "lg_tcache_flush_large_div"], "65536", Needless,
        "threads keep free blocks up to 1 MiB; RING_BYTES bounds all of them together"),
    setting(&["oversize_threshold"], "8388608", Needless, "blocks above 1 MiB are never kept by a thread"),
    setting(&["retain"], "true", Needless, "addresses are always kept"),
    setting(&["lg_extent_max_active_fit", "cache_oblivious", "trust_madvise"], "6", Needless, "there are no extents"),
    setting(&["dss"], "disabled", Needless, "HAKMEM never uses sbrk"),
    setting(&["prof"], "true", Switch("PROFILE=1", ""), ""),
    setting(&["prof_active", "prof_thread_active_init"], "false", Switch("", "PROFILE=0"),
        "also with prof:true; `hakmem profile start PID` starts sampling later"),
    setting(&["lg_prof_sample"], "19", Power("PROFILE_BYTES"), ""),
    setting(&["prof_accum"], "true", Needless, "a profile has what was allocated and what is live"),
    setting(&["prof_prefix"], "heap", File("PROFILE_FILE", ".%p.heap"), "one file, at exit; with prof:true"),
    setting(&["prof_final"], "true", Switch("PROFILE_FILE=hakmem.%p.heap", ""), "with prof:true"),
    setting(&["prof_leak", "prof_leak_error"], "true", Lacking,
        "`hakmem flame` of the profile at exit shows what is still live"),
    setting(&["prof_gdump"], "true", Switch("DUMP_PEAK=1", ""), "with prof:true"),
    setting(&["lg_prof_interval"], "30", Lacking,
        "DUMP_INTERVAL_MS and DUMP_GROWTH_BYTES write profiles by time and by growth"),
    setting(&["junk"], "free", Words(&[("free", "SECURE=1"), ("true", "SECURE=1"),
        ("alloc", "#new blocks are not filled"), ("false", "")]),
        "finds writes into freed blocks by zeroes instead of a pattern; new blocks are not filled"),
    setting(&["zero"], "true", Lacking, "calloc clears"),
    setting(&["zero_realloc"], "free", Needless, "realloc to 0 bytes frees, as in glibc"),
    setting(&["xmalloc", "experimental_infallible_new"], "true", Lacking,
        "a failed malloc returns NULL, a failed new throws"),
    setting(&["abort"], "true", Lacking,
        "a warning never ends the program; an error in the heap does, unless ON_ERROR says otherwise"),
    setting(&["abort_conf"], "true", Lacking, "a wrong option prints one line"),
    setting(&["confirm_conf"], "true", Lacking, "`hakmem options PID` prints the options of a running program"),
    setting(&["utrace"], "true", Lacking, "the probes otel_memory:alloc and otel_memory:free show samples"),
    setting(&["MIMALLOC_SHOW_STATS", "MIMALLOC_VERBOSE"], "1", Switch("STATS=1", ""),
        "HAKMEM_HELP=1 prints the options"),
    setting(&["MIMALLOC_SHOW_ERRORS", "MIMALLOC_MAX_ERRORS", "MIMALLOC_MAX_WARNINGS"], "1", Needless,
        "errors always print a line"),
    setting(&["MIMALLOC_PURGE_DELAY", "MIMALLOC_RESET_DELAY"], "100", Decay, "0 is PURGE=eager, -1 is PURGE=never"),
    setting(&["MIMALLOC_ALLOW_LARGE_OS_PAGES", "MIMALLOC_LARGE_OS_PAGES"], "1", Switch("HUGE_PAGES=always", ""), ""),
    setting(&["MIMALLOC_ALLOW_THP"], "0", Switch("", "HUGE_PAGES=never"), ""),
    setting(&["MIMALLOC_RESERVE_HUGE_OS_PAGES", "MIMALLOC_RESERVE_HUGE_OS_PAGES_AT"], "2", Lacking,
        "HUGE_PAGES=always uses transparent huge pages"),
    setting(&["MIMALLOC_RESERVE_OS_MEMORY", "MIMALLOC_ARENA_RESERVE"], "1g", Needless,
        "addresses are reserved at the start"),
    setting(&["MIMALLOC_EAGER_COMMIT", "MIMALLOC_EAGER_COMMIT_DELAY", "MIMALLOC_ARENA_EAGER_COMMIT",
        "MIMALLOC_EAGER_REGION_COMMIT",
        "MIMALLOC_PAGE_COMMIT_ON_DEMAND"], "1", Needless, "pages become resident when they are first used"),
    setting(&["MIMALLOC_PURGE_DECOMMITS", "MIMALLOC_RESET_DECOMMITS"], "1", Needless, "memory goes back in one step"),
    setting(&["MIMALLOC_ARENA_PURGE_MULT", "MIMALLOC_PURGE_EXTEND_DELAY", "MIMALLOC_MINIMAL_PURGE_SIZE",
        "MIMALLOC_ABANDONED_PAGE_PURGE"],
        "10", Needless, "DECAY_MS is all there is to memory that goes back later"),
    setting(&["MIMALLOC_MAX_SEGMENT_RECLAIM", "MIMALLOC_ABANDONED_RECLAIM_ON_FREE", "MIMALLOC_PAGE_RECLAIM_ON_FREE",
        "MIMALLOC_GENERIC_COLLECT"], "10", Needless, "the slabs of threads that ended are found by whoever needs them"),
    setting(&["MIMALLOC_DISALLOW_OS_ALLOC", "MIMALLOC_LIMIT_OS_ALLOC"], "0", Lacking, "HARD_LIMIT bounds the heap"),
    setting(&["MIMALLOC_USE_NUMA_NODES"], "1", Needless, "memory lies where it is first used"),
    setting(&["MIMALLOC_DESTROY_ON_EXIT"], "1", Needless, "memory ends with the process"),
    setting(&["MIMALLOC_GUARDED_SAMPLE_RATE", "MIMALLOC_GUARDED_MIN", "MIMALLOC_GUARDED_MAX",
        "MIMALLOC_GUARDED_PRECISE"],
        "4000", Lacking, "GUARD_SAMPLE_BYTES counts bytes instead of blocks"),
    setting(&["TCMALLOC_HEAP_LIMIT_MB"], "512", Number("HARD_LIMIT", "m"), "malloc returns NULL above it"),
    setting(&["TCMALLOC_AGGRESSIVE_DECOMMIT"], "1", Switch("PURGE=eager", ""), ""),
    setting(&["TCMALLOC_DISABLE_MEMORY_RELEASE"], "1", Switch("PURGE=never", ""), ""),
    setting(&["TCMALLOC_RELEASE_RATE"], "0", Words(&[("0", "PURGE=never"), ("1", ""), ("10", "PURGE=eager")]),
        "10 is PURGE=eager; other rates need nothing: memory goes back by itself"),
    setting(&["TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "TCMALLOC_TRANSFER_NUM_OBJ"], "33554432", Needless,
        "RING_BYTES bounds each thread"),
    setting(&["TCMALLOC_SAMPLE_PARAMETER"], "524288", Number("PROFILE_BYTES", ""),
        "PROFILE=1 or `hakmem profile` starts sampling"),
    setting(&["TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD"], "1073741824", Lacking, "SOFT_LIMIT reports the heap's growth"),
    setting(&["TCMALLOC_MEMFS_MALLOC_PATH", "TCMALLOC_MEMFS_LIMIT_MB"], "/mnt/huge", Lacking,
        "HUGE_PAGES=always uses transparent huge pages"),
    setting(&["TCMALLOC_SKIP_MMAP", "TCMALLOC_SKIP_SBRK"], "1", Needless, "HAKMEM takes memory from mmap alone"),
    setting(&["HEAPPROFILE"], "/tmp/heap", File("PROFILE_FILE", ".%p.heap"), "one file, at exit"),
    setting(&["HEAPCHECK"], "normal", Lacking, "`hakmem flame` of the profile at exit shows what is still live"),
    setting(&["MALLOCSTATS"], "1", Switch("STATS=1", ""), ""),
];

/// Settings of jemalloc that do nothing where it does not sample. The options that they become start that.
const WITH_PROF: [&str; 3] = ["prof_prefix", "prof_final", "prof_gdump"];

/// What one setting becomes.
enum Line {
    Option(String),
    Comment(String),
    Unknown(String),
}

impl Line {
    fn of(text: &str) -> Line {
        match text {
            "" => Line::Comment("the default".into()),
            text if text.starts_with('#') => Line::Comment(format!("HAKMEM has none: {}", &text[1..])),
            text => Line::Option(format!("HAKMEM_{text}")),
        }
    }
}

fn switch(value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "2" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
        _ => bail!("expected true or false"),
    }
}

impl Setting {
    fn is_variable(&self) -> bool {
        self.names[0].starts_with(|c: char| c.is_ascii_uppercase())
    }

    fn line(&self, value: &str) -> Result<Line> {
        let number = || value.parse::<i64>().ok().context("expected a number");
        Ok(match self.rule {
            Switch(on, off) => Line::of(if switch(value)? { on } else { off }),
            Words(words) => match words.iter().find(|(theirs, _)| *theirs == value) {
                Some((_, ours)) => Line::of(ours),
                None if words.iter().any(|(theirs, _)| theirs.parse::<f64>().is_ok())
                    && value.parse::<f64>().is_ok() =>
                {
                    Line::Comment(self.remark.into())
                }
                None => bail!("expected {}", words.iter().map(|word| word.0).collect::<Vec<_>>().join(", ")),
            },
            Decay => match number()? {
                0 => Line::of("PURGE=eager"),
                -1 => Line::of("PURGE=never"),
                millis => {
                    ensure!(millis > 0, "expected -1 or more");
                    Line::of(&format!("DECAY_MS={}", millis.max(10)))
                }
            },
            Power(option) => {
                let power = number()?;
                ensure!((0..=28).contains(&power), "expected 0 to 28"); // PROFILE_BYTES is at most 256 MiB
                Line::of(&format!("{option}={}", 1u64 << power))
            }
            Number(option, unit) => match number()? {
                0 => Line::of(""),
                count => {
                    ensure!(count > 0, "expected 0 or more");
                    Line::of(&format!("{option}={count}{unit}"))
                }
            },
            File(..) if value.is_empty() => Line::of(""),
            File(option, end) => Line::of(&format!("{option}={value}{end}")),
            Needless => Line::Comment(format!("nothing to set: {}", self.remark)),
            Lacking if self.example == "true" && matches!(switch(value), Ok(false)) => Line::of(""),
            Lacking => Line::Comment(format!("HAKMEM has none: {}", self.remark)),
        })
    }
}

fn find(name: &str, is_variable: bool) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.is_variable() == is_variable && setting.names.contains(&name))
}

/// The line of a setting; `theirs` is how its user wrote it.
fn translate(setting: Option<&Setting>, value: &str, theirs: &str) -> Result<Line> {
    match setting {
        Some(setting) => match setting.line(value).with_context(|| theirs.to_string())? {
            Line::Comment(why) => Ok(Line::Comment(format!("# {theirs}: {why}"))),
            line => Ok(line),
        },
        None => Ok(Line::Unknown(format!("# {theirs}: not a setting that this command knows"))),
    }
}

fn is_ours(name: &str) -> bool {
    LISTS.contains(&name) || find(name, true).is_some()
}

/// The settings in a list of jemalloc's.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Does jemalloc sample with these?
fn has_prof(settings: &[String]) -> bool {
    let lists = settings.iter().filter_map(|one| one.split_once('=')).filter(|(name, _)| LISTS.contains(name));
    let values = lists.flat_map(|(_, list)| parts(list)).filter_map(|part| part.strip_prefix("prof:"));
    values.last().is_some_and(|value| switch(value).unwrap_or(false))
}

/// All settings of NAME=VALUE.
fn translate_variable(text: &str, has_prof: bool) -> Result<Vec<Line>> {
    let (name, value) = text.split_once('=').with_context(|| format!("{text}: expected NAME=VALUE"))?;
    if !LISTS.contains(&name) {
        return Ok(vec![translate(find(name, true), value, text)?]);
    }
    let pairs = parts(value).map(|part| {
        let (key, value) = part.split_once(':').with_context(|| format!("{name}: {part}: expected NAME:VALUE"))?;
        match translate(find(key, false), value, part)? {
            Line::Option(_) if WITH_PROF.contains(&key) && !has_prof => {
                Ok(Line::Comment(format!("# {part}: nothing to set without prof:true")))
            }
            line => Ok(line),
        }
    });
    pairs.collect()
}

/// As a shell reads it.
fn quoted(text: &str) -> String {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "_=./%:+-".contains(c)) {
        return text.to_string();
    }
    let (name, value) = text.split_once('=').unwrap_or(("", text));
    format!("{name}='{}'", value.replace('\'', "'\\''"))
}

/// The lines to print, an option that is set twice once; and whether every setting is known.
fn migrated(settings: &[String]) -> Result<(String, bool)> {
    let (mut options, mut comments, mut known) = (Vec::<String>::new(), String::new(), true);
    let has_prof = has_prof(settings);
    for setting in settings {
        for line in translate_variable(setting, has_prof)? {
            match line {
                // prof_active:false, whatever comes first.
                Line::Option(text) if text == "HAKMEM_PROFILE=1" && options.contains(&"HAKMEM_PROFILE=0".into()) => {}
                Line::Option(text) => {
                    let name = |option: &str| option.split('=').next().map(str::to_string);
                    options.retain(|option| name(option) != name(&text));
                    options.push(text);
                }
                Line::Comment(text) => comments += &(text + "\n"),
                Line::Unknown(text) => {
                    comments += &(text + "\n");
                    known = false;
                }
            }
        }
    }
    let options: String = options.iter().map(|option| quoted(option) + "\n").collect();
    Ok((options + &comments, known))
}

/// The table as Markdown.
fn table() -> Result<String> {
    let mut text = String::from("| setting | HAKMEM | remark |\n|---|---|---|\n");
    for setting in TABLE {
        let ours = match setting.line(setting.example)? {
            Line::Option(option) => format!("`{option}`"),
            _ if matches!(setting.rule, Lacking) => "none".into(),
            _ if matches!(setting.rule, Needless) => "nothing to set".into(),
            _ => "the default".into(),
        };
        let mark = if setting.is_variable() { '=' } else { ':' };
        let others: String = setting.names[1..].iter().map(|name| format!(", `{name}`")).collect();
        writeln!(text, "| `{}{mark}{}`{others} | {ours} | {} |", setting.names[0], setting.example, setting.remark)?;
    }
    Ok(text)
}

pub fn command(options: &Options) -> Result<ExitCode> {
    if options.table {
        print::text(&table()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut settings = options.settings.clone();
    if settings.is_empty() {
        settings =
            std::env::vars().filter(|(name, _)| is_ours(name)).map(|(name, value)| format!("{name}={value}")).collect();
        ensure!(
            !settings.is_empty(),
            "no variable of jemalloc, mimalloc or tcmalloc is set; name some: 'MALLOC_CONF=…'"
        );
        settings.sort();
    }
    let (text, known) = migrated(&settings)?;
    print::text(&text)?;
    Ok(ExitCode::from(u8::from(!known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[&str]) -> String {
        migrated(&settings.iter().map(|one| one.to_string()).collect::<Vec<_>>()).unwrap().0
    }

    #[test]
    fn each_rule() {
        assert_eq!(of(&["MALLOC_CONF=dirty_decay_ms:0,stats_print:true"]), "HAKMEM_PURGE=eager\nHAKMEM_STATS=1\n");
        assert_eq!(of(&["MALLOC_CONF=dirty_decay_ms:-1"]), "HAKMEM_PURGE=never\n");
        assert_eq!(of(&["_RJEM_MALLOC_CONF=dirty_decay_ms:3"]), "HAKMEM_DECAY_MS=10\n");
        assert_eq!(
            of(&["MALLOC_CONF=lg_prof_sample:20, prof_prefix:/a b,prof:true"]),
            "HAKMEM_PROFILE_BYTES=1048576\nHAKMEM_PROFILE_FILE='/a b.%p.heap'\nHAKMEM_PROFILE=1\n"
        );
        assert_eq!(of(&["MALLOC_CONF=thp:default"]), "# thp:default: the default\n");
        assert_eq!(
            of(&["MALLOC_CONF=narenas:4"]),
            "# narenas:4: nothing to set: threads share one pool without locks\n"
        );
        assert_eq!(
            of(&["TCMALLOC_HEAP_LIMIT_MB=64", "MIMALLOC_PURGE_DELAY=100", "MIMALLOC_SHOW_STATS=on"]),
            "HAKMEM_HARD_LIMIT=64m\nHAKMEM_DECAY_MS=100\nHAKMEM_STATS=1\n"
        );
        assert_eq!(
            of(&["TCMALLOC_RELEASE_RATE=5"]),
            "# TCMALLOC_RELEASE_RATE=5: 10 is PURGE=eager; other rates need nothing: memory goes back by itself\n"
        );
        assert_eq!(of(&["MALLOC_CONF=dirty_decay_ms:100", "MIMALLOC_PURGE_DELAY=200"]), "HAKMEM_DECAY_MS=200\n");
    }

    /// Else a service that has jemalloc ready to sample is sampled all the time, and leaves files.
    #[test]
    fn sampling_begins_where_jemalloc_begins_it() {
        for order in ["prof:true,prof_active:false", "prof_active:false,prof:true"] {
            assert_eq!(of(&[&format!("MALLOC_CONF={order}")]), "HAKMEM_PROFILE=0\n");
        }
        let both = of(&["MALLOC_CONF=prof:true,prof_active:false,prof_prefix:a"]);
        assert_eq!(both, "HAKMEM_PROFILE=0\nHAKMEM_PROFILE_FILE=a.%p.heap\n");
        for setting in ["prof_prefix:a", "prof_final:true", "prof_gdump:true"] {
            let without = format!("# {setting}: nothing to set without prof:true\n");
            assert_eq!(of(&[&format!("MALLOC_CONF={setting}")]), without);
            assert_eq!(of(&[&format!("MALLOC_CONF={setting},prof:false")]), without + "# prof:false: the default\n");
            assert!(of(&["MALLOC_CONF=prof:true", &format!("_RJEM_MALLOC_CONF={setting}")]).contains("\nHAKMEM_"));
        }
    }

    /// Else a user looks for what the program had anyway, or misses what is gone.
    #[test]
    fn what_is_off_is_the_default_and_what_is_lacking_is_not() {
        for off in ["zero:false", "xmalloc:false", "abort:false", "utrace:false", "prof_prefix:"] {
            assert_eq!(of(&[&format!("MALLOC_CONF={off}")]), format!("# {off}: the default\n"));
        }
        assert_eq!(of(&["HEAPPROFILE="]), "# HEAPPROFILE=: the default\n");
        assert!(of(&["MALLOC_CONF=zero:true"]).contains("HAKMEM has none"));
        let junk = "# junk:alloc: HAKMEM has none: new blocks are not filled\n";
        assert_eq!(of(&["MALLOC_CONF=junk:alloc"]), junk);
        assert_eq!(of(&["TCMALLOC_RELEASE_RATE=10"]), "HAKMEM_PURGE=eager\n");
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let said = |text: &str| format!("{:#}", migrated(&[text.to_string()]).unwrap_err());
        assert_eq!(said("narenas"), "narenas: expected NAME=VALUE");
        assert_eq!(said("MALLOC_CONF=narenas"), "MALLOC_CONF: narenas: expected NAME:VALUE");
        assert_eq!(said("MALLOC_CONF=dirty_decay_ms:soon"), "dirty_decay_ms:soon: expected a number");
        assert_eq!(said("MALLOC_CONF=dirty_decay_ms:-2"), "dirty_decay_ms:-2: expected -1 or more");
        assert_eq!(said("MALLOC_CONF=thp:some"), "thp:some: expected always, never, default");
        assert_eq!(said("MALLOC_CONF=lg_prof_sample:64"), "lg_prof_sample:64: expected 0 to 28");
        assert_eq!(said("MIMALLOC_SHOW_STATS=x"), "MIMALLOC_SHOW_STATS=x: expected true or false");
        let (text, known) = migrated(&["MALLOC_CONF=nope:1".to_string()]).unwrap();
        assert_eq!((text.as_str(), known), ("# nope:1: not a setting that this command knows\n", false));
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../docs/migrating.md");
        assert!(
            page.contains(&table().unwrap()),
            "docs/migrating.md lacks the table that `hakmem migrate --table` prints"
        );
    }

    /// The calls on the page, too, are those of the header.
    #[test]
    fn the_calls_exist() {
        let header = include_str!("../../include/hakmem.h");
        let page = include_str!("../../docs/migrating.md");
        let calls: Vec<_> = page.split('`').filter(|word| word.starts_with("hak_") && *word != "hak_options").collect();
        assert!(calls.len() > 10);
        for call in calls {
            assert!(header.contains(&format!("{call}(")), "hakmem.h has no {call}");
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let names: Vec<_> = TABLE.iter().flat_map(|setting| setting.names).collect();
        let unique: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
    }

    /// The library prints a line about each option that it does not know or whose value is out of range.
    #[test]
    fn the_options_exist() {
        let options = include_str!("../../src/base/options.h");
        for setting in TABLE {
            let mut values = vec![setting.example];
            match &setting.rule {
                Switch(..) => values.extend(["0", "1"]),
                Words(words) => values.extend(words.iter().map(|word| word.0)),
                _ => {}
            }
            for value in values {
                if let Line::Option(text) = setting.line(value).unwrap() {
                    let name = text.trim_start_matches("HAKMEM_").split('=').next().unwrap();
                    assert!(options.contains(&format!("X({name}, ")), "{text}: no such option");
                }
            }
        }
    }
}
