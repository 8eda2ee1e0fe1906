//! `hakmem leak --unreachable`, `leak --sparse` and `what`, and what commands say of core files, on a program with
//! planted faults (heap/lost.cc). HAKMEM_LIBRARY names libhakmem.so.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[path = "heap/kit.rs"]
mod kit;

use kit::*;

/// Some words that functions left on a stack or in a register may hold a block.
const HELD_BY_CHANCE: i64 = 3;

/// The planted program, when all is planted; its directory is removed with the first.
fn planted(library: &Path, environment: &[(&str, &str)]) -> (tempfile::TempDir, Program) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("lost");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heap/lost.cc");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-g", "-w", "-fno-builtin", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().expect("the tests need c++").success());
    let mut command = Command::new(program);
    let mut program = Program::start(command.env("LD_PRELOAD", library).envs(environment.iter().copied()));
    program.tell("is all planted?");
    (directory, program)
}

fn kind<'a>(found: &'a Value, what: &str) -> &'a Value {
    let kinds = found["kinds"].as_array().unwrap();
    kinds.iter().find(|kind| kind["what"] == what).unwrap_or_else(|| panic!("no {what} in {found:#}"))
}

fn line(mark: &str) -> u64 {
    let source = include_str!("heap/lost.cc");
    source.lines().position(|line| line.ends_with(mark)).unwrap() as u64 + 1
}

fn near(found: &Value, planted: i64) {
    let found = found.as_i64().unwrap();
    assert!((planted - HELD_BY_CHANCE..=planted + HELD_BY_CHANCE).contains(&found), "{found}, planted {planted}");
}

/// What is planted, and nothing of what is kept.
fn check_lost(found: &Value) {
    near(&found["direct"]["objects"], 500 + 100 + 1);
    near(&found["held"]["objects"], 2 * 500 + 100);
    let nodes = kind(found, "object of class Node");
    near(&nodes["blocks"], 500);
    let leads_to = nodes["holds_bytes"].as_i64().unwrap();
    assert!((490 * (96 + 208)..=500 * (96 + 208)).contains(&leads_to), "{nodes}");
    near(&kind(found, "begins with a pointer to a block of 176 B")["blocks"], 100);
}

/// The program that holds all of its blocks (heap/held.c), and how many it holds by variables. `limit`: what a shell
/// does before.
fn holding(library: &Path, limit: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Program, i64) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; LD_PRELOAD=\"$1\"; export LD_PRELOAD; shift; exec \"$@\""), "sh"]);
    command.arg(library).arg(directory().join("held")).args(arguments).envs(environment.iter().copied());
    let mut program = Program::start(&mut command);
    let held = program.ask("how many?", "done")[0].parse().unwrap();
    (program, held)
}

fn gcore(directory: &Path, name: &str, pid: &str) -> String {
    let path = directory.join(name);
    let done = Command::new("gcore").arg("-o").arg(&path).arg(pid).output().expect("the tests need gcore");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    directory.join(format!("{name}.{pid}")).to_str().unwrap().to_string()
}

/// As the kernel writes the core, which leaves out what is in files: gcore has such pages whose file is deleted.
fn leave_out_shared(core: &str, pid: &str) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains("/memfd:hakmem"));
    let shared: Vec<u64> =
        shared.map(|line| u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()).collect();
    let mut bytes = std::fs::read(core).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (headers, count) = (number(&bytes, 32) as usize, u16::from_le_bytes([bytes[56], bytes[57]]) as usize);
    for at in (0..count).map(|i| headers + 56 * i) {
        if bytes[at] == 1 && shared.contains(&number(&bytes, at + 16)) {
            bytes[at + 32..at + 40].fill(0);
        }
    }
    std::fs::write(core, bytes).unwrap();
}

/// Each of the blocks holds another one.
fn check_held(found: &Value, held: i64) {
    let of = |what: &str| found[what]["objects"].as_i64().unwrap();
    assert!(of("live") >= 2 * held, "{held} blocks are held, {found:#}");
    assert!(of("direct") + of("held") <= HELD_BY_CHANCE, "none of {held} is lost: {found:#}");
}

fn explains_held(explanation: &Value, held: i64) {
    let classes = explanation["classes"].as_array().unwrap();
    let live: i64 = classes.iter().map(|class| class["live_blocks"].as_i64().unwrap()).sum();
    assert!((2 * held..2 * held + 20).contains(&live), "{held} blocks are held, and {live} live: {classes:?}");
}

/// Else a leak that is over is never found: nothing grows any more, and nothing was sampled.
#[test]
fn blocks_that_nothing_points_to_are_found() {
    let Some(library) = library() else { return };
    let (_directory, mut program) = planted(&library, &[]);
    let found = json(&["leak", "--unreachable", &program.pid(), "--json"]);
    check_lost(&found);
    assert_eq!((&found["sampled"], found["threads"].as_u64() >= Some(2)), (&Value::Bool(false), true), "{found}");
    let said = text(&["leak", "--unreachable", &program.pid()]);
    assert!(said.contains("it stood still for") && said.contains("HAKMEM_PROFILE=1"), "{said}");
    program.tell("and now?"); // nothing of it is changed, and it goes on
    let refused = refusal(&["leak", "--unreachable", &program.pid(), "--for", "5s"]);
    assert!(refused.contains("cannot be used with"), "{refused}");
}

/// Else nearly the whole heap of a program whose slabs share pages is called lost, and is in no figure.
#[test]
fn blocks_in_meshed_slabs_are_held() {
    let Some(library) = library() else { return };
    let (program, held) = holding(&library, ":", &["sparse", "200000", "112", "40"], &[("HAKMEM_MESH", "1")]);
    let explanation = explain(&program.pid());
    let counter = explanation["counters"].as_array().unwrap().iter().find(|one| one["name"] == "mesh_merged_pages");
    if counter.unwrap()["value"] == 0 {
        return eprintln!("skipped: this system does not let pages be shared");
    }
    check_held(&json(&["leak", "--unreachable", &program.pid(), "--json"]), held);
    explains_held(&explanation, held);
    let directory = tempfile::tempdir().unwrap();
    let core = gcore(directory.path(), "core", &program.pid());
    check_held(&json(&["leak", "--unreachable", &core, "--json"]), held);
    leave_out_shared(&core, &program.pid());
    for arguments in [&["leak", "--unreachable"][..], &["leak", "--sparse"], &["what"]] {
        let refused = refusal(&[arguments, &[&core]].concat());
        assert!(refused.contains("that slabs share") && refused.lines().count() == 1, "{refused}");
    }
    for arguments in [["explain", &core], ["map", &core]] {
        let output = hakmem(&arguments);
        let note = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && note.contains("bit 2 of coredump_filter") && note.lines().count() == 1,
            "{note}"
        );
    }
}

/// Else in a program whose addresses are limited, what packed blocks hold is called lost, and free pieces are live.
#[test]
fn packed_blocks_are_held() {
    let Some(library) = library() else { return };
    let (program, held) = holding(&library, "ulimit -v 300000", &["blocks", "3000", "20000"], &[]);
    let explanation = explain(&program.pid());
    let classes = explanation["classes"].as_array().unwrap();
    let large = classes.iter().find(|class| class["tier"] == "large").unwrap();
    let (blocks, live) = (large["live_blocks"].as_i64().unwrap(), large["live"].as_i64().unwrap());
    assert!(blocks > 500 && live == blocks * 20480, "in pieces of 1 KiB: {large}");
    explains_held(&explanation, held);
    check_held(&json(&["leak", "--unreachable", &program.pid(), "--json"]), held);
    let what = json(&["what", &program.pid(), "--json"]);
    let holding = what["kinds"].as_array().unwrap().iter().filter(|kind| kind["most_bytes"] == 20480);
    assert!(holding.clone().all(|kind| kind["category"] == "pointer" && kind["least_bytes"] == 20480), "{what:#}");
    assert_eq!(holding.map(|kind| kind["blocks"].as_i64().unwrap()).sum::<i64>(), held, "{what:#}");
}

/// Else what the guarded samples of a program in production hold is called lost.
#[test]
fn guarded_blocks_are_held() {
    let Some(library) = library() else { return };
    let guarded = [("HAKMEM_GUARD_SAMPLE_BYTES", "20000")];
    let (program, held) = holding(&library, ":", &["blocks", "2000", "4000"], &guarded);
    let explanation = explain(&program.pid());
    let classes = explanation["classes"].as_array().unwrap();
    let large = classes.iter().find(|class| class["tier"] == "large").unwrap();
    assert!((16..=32).contains(&large["live_blocks"].as_i64().unwrap()), "nearly all slots for them: {large}");
    explains_held(&explanation, held);
    check_held(&json(&["leak", "--unreachable", &program.pid(), "--json"]), held);
}

/// Else a program has several times as many live blocks as soon as they are sampled.
#[test]
fn what_sampling_cuts_off_a_list_is_free() {
    let Some(library) = library() else { return };
    for environment in [&[][..], &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "4k")]] {
        let (program, held) = holding(&library, ":", &["refilled"], environment);
        explains_held(&explain(&program.pid()), held);
    }
}

/// Else all is lost that a program with stacks of its own keeps beside them: fibers that wait, for example.
#[test]
fn what_lies_below_a_stack_in_its_mapping_holds_blocks() {
    let Some(library) = library() else { return };
    let (program, held) = holding(&library, ":", &["below", "1000", "100"], &[]);
    check_held(&json(&["leak", "--unreachable", &program.pid(), "--json"]), held);
}

/// Else whoever looks for leaks damages the program: a signal on its way when the threads are stopped would be gone.
#[test]
fn no_signal_is_lost_while_the_program_stands_still() {
    let Some(library) = library() else { return };
    let (_directory, mut program) = planted(&library, &[]);
    let pid = program.child.id() as libc::pid_t;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
                // SAFETY: a signal to a child of ours. It is queued, or refused while the queue is full.
                sent += i32::from(unsafe { libc::sigqueue(pid, libc::SIGRTMIN(), value) } == 0);
            }
            sent
        });
        let looks: Vec<_> = (0..5).map(|_| hakmem(&["leak", "--unreachable", &pid.to_string()])).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for look in looks {
            assert!(look.status.success(), "{}", String::from_utf8_lossy(&look.stderr));
        }
        sender.join().unwrap()
    });
    let mut got = || program.ask("signals", "done")[0].parse::<i32>().unwrap();
    // Another thread may still be about to count its last one, when it gets a processor.
    let all = (0..60_000).find(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        got() == sent
    });
    assert!(sent > 100 && all.is_some(), "{} of {sent}", got());
}

/// Else a lost block has no line.
#[test]
fn lost_blocks_that_were_sampled_have_lines() {
    let Some(library) = library() else { return };
    let (_directory, program) = planted(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "1k")]);
    let found = json(&["leak", "--unreachable", &program.pid(), "--json"]);
    let bytes = |mark: &str, what: &str| {
        let sites = found["sites"].as_array().unwrap().iter();
        let here = sites
            .filter(|site| site["line"] == line(mark) && site["function"].as_str().unwrap().contains("lose_nodes"));
        here.map(|site| site[what]["bytes"].as_i64().unwrap()).sum::<i64>()
    };
    // 48,000 bytes from 48 samples: far beyond chance is half of that.
    assert!(bytes("// HEAD", "direct") > 20_000 && bytes("// HEAD", "held") < 5_000, "{found:#}");
    assert!(bytes("// SECOND", "held") > 20_000 && bytes("// SECOND", "direct") < 5_000, "{found:#}");
    let said = text(&["leak", "--unreachable", &program.pid()]);
    assert!(said.contains(&format!("lose_nodes at lost.cc:{}", line("// HEAD"))), "{said}");
}

/// Else blocks that are freed at once are work that nobody sees: they are never held.
#[test]
fn lines_that_allocate_most_are_told() {
    let Some(library) = library() else { return };
    let (_directory, mut program) = planted(&library, &[]);
    program.tell("work");
    let watched = |time| json(&["leak", "--rates", &program.pid(), "--for", time, "--bytes", "4k", "--json"]);
    // A busy machine may keep the program from its work for a second.
    let found = ["1s", "10s"].into_iter().map(watched).find(|found| !found["sites"][0].is_null());
    let found = found.unwrap_or_else(|| watched("100s"));
    let site = &found["sites"][0];
    assert_eq!(site["line"], line("// TEMPORARY"), "{found:#}");
    assert!(site["bytes_per_second"].as_f64() > Some(0.0) && site["temporary"].as_f64() > Some(0.9), "{site}");
}

/// Else nobody knows what was there before the profile.
#[test]
fn blocks_are_told_by_their_contents() {
    let Some(library) = library() else { return };
    let (_directory, program) = planted(&library, &[]);
    let found = json(&["what", &program.pid(), "--json"]);
    assert_eq!(kind(&found, "object of class Node")["blocks"], 1000);
    let texts = kind(&found, "text");
    assert!(texts["blocks"].as_i64() >= Some(500), "{texts}");
    let all = found["kinds"].as_array().unwrap();
    let sum = |field: &str| all.iter().map(|kind| kind[field].as_i64().unwrap()).sum::<i64>();
    assert_eq!((sum("blocks"), sum("bytes")), (found["blocks"].as_i64().unwrap(), found["bytes"].as_i64().unwrap()));
    assert!(text(&["what", &program.pid()]).contains("object of class Node"));
}

/// Else the process must still be there to be understood.
#[test]
fn a_core_file_is_read_as_the_process_it_was() {
    let Some(library) = library() else { return };
    let (directory, program) = planted(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "16k")]);
    let pid = program.pid();
    let core = |name: &str| gcore(directory.path(), name, &pid);
    let alive = (explain(&pid), json(&["what", &pid, "--json"]));
    let core_file = core("core");
    let (explained, what) = (explain(&core_file), json(&["what", &core_file, "--json"]));
    for field in ["live", "thread_caches", "partly_used_slabs"] {
        let (then, now) = (explained["heap"][field].as_i64().unwrap(), alive.0["heap"][field].as_i64().unwrap());
        assert!((then - now).abs() <= 64 << 10, "{field}: {then} in the core, {now} alive");
    }
    assert_eq!(explained["process"]["threads"], alive.0["process"]["threads"]);
    assert_eq!(kind(&what, "object of class Node"), kind(&alive.1, "object of class Node"));
    let found = json(&["leak", "--unreachable", &core_file, "--json"]);
    near(&found["held"]["objects"], 2 * 500 + 100);
    assert!(found["sites"].to_string().contains("lost.cc"), "{found}");
    assert!(text(&["map", &core_file]).contains("SuperSlabs"));
    assert!(refusal(&["leak", &core_file]).contains("a core file does not grow"));
    assert!(refusal(&["set", &core_file, "PURGE=eager"]).starts_with("hakmem: "));

    std::fs::write(format!("/proc/{pid}/coredump_filter"), "0").unwrap();
    let empty = core("empty");
    assert!(refusal(&["explain", &empty]).contains("coredump_filter"), "{}", refusal(&["explain", &empty]));
    let cut = directory.path().join("cut");
    std::fs::write(&cut, &std::fs::read(&core_file).unwrap()[..1 << 20]).unwrap();
    assert!(refusal(&["explain", cut.to_str().unwrap()]).contains("is cut short"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(refusal(&["what", source]).contains("is no core file"));
}
