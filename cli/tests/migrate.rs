//! `hakmem migrate` as a user runs it: the library takes every option that it prints. HAKMEM_LIBRARY names
//! libhakmem.so.
// SPDX-License-Identifier: MIT

use std::process::{Command, Output};

fn migrate(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.arg("migrate").args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn arguments_or_the_environment() {
    let output = migrate(&["MALLOC_CONF=dirty_decay_ms:0,narenas:4"], &[]);
    let expected = "HAKMEM_PURGE=eager\n# narenas:4: nothing to set: threads share one pool without locks\n";
    assert_eq!((text(&output.stdout), output.status.code()), (expected, Some(0)));
    let output = migrate(&[], &[("MIMALLOC_SHOW_STATS", "1")]);
    assert_eq!(text(&output.stdout), "HAKMEM_STATS=1\n");
    let output = migrate(&[], &[]);
    let refused = "hakmem: no variable of jemalloc, mimalloc or tcmalloc is set; name some: 'MALLOC_CONF=…'\n";
    assert_eq!((text(&output.stderr), output.status.code()), (refused, Some(2)));
    let output = migrate(&["MALLOC_CONF=nope:1"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let output = migrate(&["MALLOC_CONF=dirty_decay_ms:x"], &[]);
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1));
}

/// The library prints a line about an option that it does not know, or whose value is out of range.
#[test]
fn the_library_takes_every_option() {
    let Some(library) = std::env::var_os("HAKMEM_LIBRARY") else {
        eprintln!("skipped: HAKMEM_LIBRARY does not name the library");
        return;
    };
    let complaints = |option: &str| {
        let (name, value) = option.split_once('=').unwrap();
        let mut program = Command::new("true");
        let directory = tempfile::tempdir().unwrap();
        program
            .current_dir(&directory)
            .env("LD_PRELOAD", &library)
            .env("HAKMEM_STATS_FILE", "/dev/null")
            .env(name, value);
        text(&program.output().unwrap().stderr).to_string()
    };
    assert_ne!(complaints("HAKMEM_DECAY_MS=1"), "");
    let output = migrate(&["--table"], &[]);
    let options: Vec<&str> = text(&output.stdout).split('`').filter(|part| part.starts_with("HAKMEM_")).collect();
    assert!(options.len() > 15, "{options:?}");
    for option in options.into_iter().filter(|option| option.contains('=') && !option.contains('/')) {
        assert_eq!(complaints(option), "", "{option}");
    }
}
