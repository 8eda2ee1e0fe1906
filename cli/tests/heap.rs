//! `hakmem explain`, `options`, `set`, `purge` and `doctor` as a user runs them, on real programs and on one whose heap
//! is known. HAKMEM_LIBRARY names libhakmem.so; libhakmem.a is to lie beside it.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[path = "heap/kit.rs"]
mod kit;

use kit::*;

const MIB: i64 = 1 << 20;

// ---- what is to hold of every explanation ----

fn term(explanation: &Value, name: &str) -> i64 {
    explanation["heap"][name].as_i64().unwrap_or_else(|| panic!("no {name} in {}", explanation["heap"]))
}

fn sum_of(list: &Value, field: &str) -> i64 {
    list.as_array().unwrap().iter().map(|entry| entry[field].as_i64().unwrap()).sum()
}

fn near(a: i64, b: i64, slack: i64) -> bool {
    (a - b).abs() <= b.abs() / 50 + slack
}

/// The terms, the classes and the process add up. `slack`: for a program that runs meanwhile.
fn adds_up(explanation: &Value, slack: i64) {
    let total = term(explanation, "total");
    let terms = explanation["heap"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| !["total", "mapped_rss", "untouched"].contains(&&***name))
        .map(|(_, bytes)| bytes.as_i64().unwrap());
    assert!(terms.clone().all(|bytes| bytes >= 0), "no term is negative: {}", explanation["heap"]);
    assert_eq!(terms.sum::<i64>(), total, "the terms");
    assert!(near(total, term(explanation, "mapped_rss"), slack), "within 2 % of smaps: {}", explanation["heap"]);
    for (field, name) in [("live", "live"), ("free", "partly_used_slabs"), ("cached", "thread_caches")] {
        assert_eq!(sum_of(&explanation["classes"], field), term(explanation, name), "{field} by class");
    }
    let rss = explanation["process"]["rss"].as_i64().unwrap();
    assert_eq!(total + sum_of(&explanation["rest"], "rss"), rss, "heap and the rest are all there is");
}

/// The kernel's own figure for the whole process. It may make a huge page or split one between two looks, but not each
/// time.
fn agrees_with_the_kernel(pid: &str, explanation: &Value) {
    let rss = || {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() * 1024
    };
    let differs = |explanation: &Value| {
        let (said, rss) = (explanation["process"]["rss"].as_i64().unwrap(), rss());
        (!near(said, rss, 64 << 10)).then(|| format!("{said}, and {rss} by the kernel"))
    };
    let mut found = differs(explanation);
    for _ in 0..20 {
        found = found.and_then(|_| differs(&explain(pid)));
    }
    assert_eq!(found, None);
}

fn counter(explanation: &Value, name: &str) -> u64 {
    let counters = explanation["counters"].as_array().unwrap();
    counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
}

fn class(explanation: &Value, block_bytes: u64) -> Value {
    let classes = explanation["classes"].as_array().unwrap();
    classes.iter().find(|class| class["block_bytes"] == block_bytes).cloned().unwrap_or(Value::Null)
}

// ---- explain ----

/// Else the user is told of memory that is not there, or not told of what is.
#[test]
fn a_known_heap_is_explained_exactly() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("blocks 3 50000 400");
    program.tell("touch 67108864");
    let explanation = explain(&program.pid());
    adds_up(&explanation, 64 << 10);
    agrees_with_the_kernel(&program.pid(), &explanation);
    let known = class(&explanation, 416);
    assert_eq!(known["live_blocks"], 150_000, "{known}");
    assert_eq!(known["live"], 150_000 * 416);
    // Each slab of 64 KiB has a record of 128 bytes; the records are no memory of the program's.
    assert!(term(&explanation, "metadata") >= 150_000 * 416 / (64 << 10) * 128, "{}", explanation["heap"]);
    assert!(near(term(&explanation, "untouched"), 64 * MIB, MIB), "{}", explanation["heap"]);
    assert!(explanation["process"]["threads"].as_i64().unwrap() >= 4);
    let stacks = explanation["rest"].as_array().unwrap().iter().find(|mapping| mapping["name"] == "stacks").unwrap();
    assert!(stacks["rss"].as_i64().unwrap() >= 4 * 4096, "{stacks}");
}

/// Else they count as blocks of 8 bytes.
#[test]
fn large_blocks_of_secure_mode_are_a_class() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_SECURE", "1")]);
    program.tell("blocks 1 100 200000");
    let explanation = explain(&program.pid());
    adds_up(&explanation, 64 << 10);
    let large = class(&explanation, 0);
    let live = large["live_blocks"].as_i64().unwrap();
    assert!(large["tier"] == "secure" && (100..110).contains(&live), "{large}");
    assert!(text(&["explain", &program.pid()]).contains("large (above 64 KiB)"));
    let metrics = text(&["metrics", &program.pid(), "--budget", "60"]);
    assert!(metrics.contains("tier=\"secure\",block_bytes=\"0\""), "{metrics}");
}

/// Else whoever gives each request an arena does not see which of them takes the memory.
#[test]
fn arenas_are_named_everywhere() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("arenas 20000 500");
    let explanation = explain(&program.pid());
    adds_up(&explanation, 0);
    let arenas = explanation["arenas"].as_array().unwrap();
    let number = |arena: usize, field: &str| arenas[arena][field].as_i64().unwrap();
    assert_eq!([&arenas[0]["name"], &arenas[1]["name"]], ["requests", "own"], "{arenas:?}");
    assert!(near(number(0, "live"), 10000 * 512, 0), "{arenas:?}");
    assert!(number(0, "used") >= 20000 * 512 / 64 * 63 && number(0, "used") <= number(0, "peak"), "{arenas:?}");
    assert!(near(number(0, "resident"), number(0, "used"), 2 * MIB), "{arenas:?}");
    assert!(number(0, "limit") == 64 * MIB && number(1, "used") >= 10000, "{arenas:?}");
    let printed = text(&["explain", &program.pid()]);
    assert!(printed.contains("\"requests\"") && printed.contains("\"own\""), "{printed}");
    let map = text(&["map", &program.pid()]);
    assert!(map.contains("arena \"requests\": ") && map.contains(" in use, SuperSlabs "), "{map}");
    let metrics = text(&["metrics", &program.pid(), "--budget", "60"]);
    assert!(metrics.contains("arena=\"requests\",state=\"live\"} 5120000"), "{metrics}");
    let top = text(&["top", "--once", "--interval", "0.1", &program.pid()]);
    assert!(top.contains("\"requests\""), "{top}");
}

/// Else the user of the commonest programs has no answer.
#[test]
fn real_programs_are_explained() {
    let Some(library) = library() else { return };
    let mut python = Command::new("python3");
    python.args([
        "-u",
        "-c",
        "import sys\nfor line in sys.stdin:\n  x = [str(i) for i in range(300000)]; print('done')",
    ]);
    python.env("PYTHONMALLOC", "malloc");
    let mut sqlite = Command::new("sqlite3");
    sqlite.args(["-batch", ":memory:"]);
    let table = "create table t as with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) \
        select i, hex(randomblob(100)) h from n; select 'done';";
    for (mut command, line) in [(python, "go"), (sqlite, table)] {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut program = Program::start(command.env("LD_PRELOAD", &library));
        program.ask(line, "done");
        let explanation = explain(&program.pid());
        adds_up(&explanation, 64 << 10);
        agrees_with_the_kernel(&program.pid(), &explanation);
        assert!(term(&explanation, "live") > 3 * MIB, "{name}: {}", explanation["heap"]);
    }
}

/// Else whoever turns ACE on does not see what it does.
#[test]
fn what_ace_finds_is_shown() {
    let Some(library) = library() else { return };
    let mut python = Command::new("python3");
    python.args([
        "-u",
        "-c",
        "import sys\nfor line in sys.stdin:\n  x = [str(i) for i in range(200000)]; print('done')",
    ]);
    let mut program =
        Program::start(python.env("PYTHONMALLOC", "malloc").env("HAKMEM_ACE", "on").env("LD_PRELOAD", &library));
    for _ in 0..100 {
        (0..10).for_each(|_| drop(program.ask("go", "done")));
        if explain(&program.pid())["ace"]["rounds"].as_i64() > Some(1) {
            break; // the first one takes a second of swings
        }
    }
    let explanation = explain(&program.pid());
    let ace = &explanation["ace"];
    let presets = ace["presets"].as_array().unwrap();
    let names: Vec<&str> = presets.iter().map(|preset| preset["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["balanced", "lean", "bursty", "throughput"], "{ace}");
    assert!(names.contains(&ace["preset"].as_str().unwrap()) && ace["rounds"].as_i64() > Some(0), "{ace}");
    assert!(presets.iter().all(|preset| (500..=2500).contains(&preset["rating"].as_i64().unwrap())), "{ace}");
    let printed = text(&["explain", &program.pid()]);
    assert!(printed.contains("- ACE: preset "), "{printed}");
    let top = text(&["top", "--once", "--interval", "0.1", &program.pid()]);
    assert!(top.contains("preset ") && top.contains("of CPU time"), "{top}");
    let metrics = text(&["metrics", &program.pid(), "--budget", "60"]);
    assert_eq!(metrics.matches("hakmem_preset_rating{").count(), 4, "{metrics}");
}

/// Else a program that was started a moment ago is taken for one under glibc's malloc: it has not loaded the library
/// yet.
#[test]
fn a_program_that_has_just_started_is_waited_for() {
    let Some(library) = library() else { return };
    let explained = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 0.1; LD_PRELOAD=\"$0\" exec sqlite3 -batch :memory:"]).arg(&library);
        let mut program = shell.env_remove("LD_PRELOAD").stdin(Stdio::piped()).spawn().unwrap();
        let explained = hakmem(&["explain", &program.id().to_string()]);
        program.kill().unwrap();
        program.wait().unwrap();
        explained
    };
    // It is waited for some moments, in which a busy machine may not start it.
    let mut last = explained();
    for _ in 0..100 {
        if !last.status.success() {
            last = explained();
        }
    }
    assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
}

/// Else the user of the commonest server has no answer.
#[test]
fn redis_is_explained() {
    let Some(library) = library() else { return };
    let socket = directory().join(format!("redis-{}.sock", std::process::id()));
    let mut server = Command::new("redis-server");
    server.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).env("LD_PRELOAD", &library);
    let Ok(mut server) = server.stdout(Stdio::null()).spawn() else {
        eprintln!("skipped: there is no redis-server");
        return;
    };
    let fill = "for i = 1, 100000 do redis.call('set', 'k' .. i, string.rep('x', 200)) end";
    let filled = (0..1000).any(|_| {
        let ask = Command::new("redis-cli").arg("-s").arg(&socket).args(["eval", fill, "0"]).output().unwrap();
        let done = socket.exists() && ask.status.success();
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        done
    });
    let pid = server.id().to_string();
    let explanation = filled.then(|| explain(&pid));
    server.kill().unwrap();
    server.wait().unwrap();
    let explanation = explanation.expect("redis took the keys");
    adds_up(&explanation, 256 << 10);
    assert!(term(&explanation, "live") > 20 * MIB, "{}", explanation["heap"]);
}

/// Else it works on the developer's build only, and not on what is shipped.
#[test]
fn static_stripped_and_deleted_files_are_read() {
    let Some(library) = library() else { return };
    let stripped = directory().join("stripped.so");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&library).status().unwrap();
    assert!(strip.success());
    let of = |program: &str| Command::new(directory().join(program));
    let mut preloaded = of("program");
    preloaded.env("LD_PRELOAD", &stripped);
    for (mut command, delete) in [(of("static"), false), (of("stripped"), false), (preloaded, true)] {
        let mut program = Program::start(&mut command);
        program.tell("blocks 2 10000 100");
        if delete {
            fs::remove_file(&stripped).unwrap();
        }
        let explanation = explain(&program.pid());
        adds_up(&explanation, 64 << 10);
        let blocks = class(&explanation, 112)["live_blocks"].as_i64().unwrap();
        assert!((20_000..20_010).contains(&blocks), "{blocks}, some of them libc's: {command:?}");
    }
}

/// Else the figures of each worker of a pre-forking server are wrong: their pages are shared.
#[test]
fn a_forked_child_is_read() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("spread 100000 256 1");
    let child = program.ask("fork", "done").remove(0);
    let explanation = explain(&child);
    let _ = Command::new("kill").arg(&child).status();
    adds_up(&explanation, 256 << 10);
    let blocks = class(&explanation, 256)["live_blocks"].as_i64().unwrap();
    assert!((100_000..100_010).contains(&blocks), "{blocks}, some of them libc's");
}

/// Else the command fails, or hangs, on just those programs that are busy.
#[test]
fn a_moving_target_is_read() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("churn 3");
    for _ in 0..5 {
        adds_up(&explain(&program.pid()), 2 * MIB);
    }
}

/// Else the one thing the user came for is not said.
#[test]
fn planted_fragmentation_is_named() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("spread 400000 128 50");
    let explanation = explain(&program.pid());
    adds_up(&explanation, 64 << 10);
    let first = &explanation["advice"][0];
    let said = first["text"].as_str().unwrap();
    assert!(said.contains("is free in partly used slabs of class 128: 8,0") && said.contains("3 % full"), "{said}");
    assert!(first["saves"].as_i64().unwrap() > 20 * MIB, "{first}");
    assert!(said.contains("hak_should_move"), "{said}");
    let classes = explanation["classes"].as_array().unwrap();
    let class = classes.iter().find(|class| class["block_bytes"] == 128).unwrap();
    let (movable, free) = (class["movable"].as_i64().unwrap(), class["free"].as_i64().unwrap());
    assert!(movable > free / 10 * 9 && movable <= free, "{class}");
    let printed = text(&["explain", &program.pid()]);
    assert!(printed.contains(said) && !printed.contains('\x1b'), "no colour when piped: {printed}");
}

/// Each processor keeps a few pages that were given lazily; the kernel counts them as LazyFree only with the next ones.
const LAZY_KEPT: i64 = 64 * 4096;

/// This thread and what it starts run on one processor, so that no more than LAZY_KEPT is missing.
fn stay_on_one_processor() {
    // SAFETY: a set of processors, all of whose bits are valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Bytes, and the number of mappings that have some. None: this kernel does not say.
fn lazy_free(pid: &str) -> Option<(i64, i64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let bytes =
        |line: &str| Some(line.strip_prefix("LazyFree:")?.trim().trim_end_matches(" kB").parse::<i64>().unwrap());
    let found: Vec<i64> = text.lines().filter_map(bytes).collect();
    let (sum, mappings) = (found.iter().sum::<i64>() << 10, found.iter().filter(|&&kib| kib > 0).count() as i64);
    (!found.is_empty()).then_some((sum, mappings))
}

/// Else memory that the system may take at any time seems to be in use, or memory in use seems to be free.
#[test]
fn lazy_memory_is_what_the_kernel_calls_so() {
    let Some(library) = library() else { return };
    stay_on_one_processor();
    let swing = "free 2000 10000";
    for lines in [["free 3000 16000"; 2], ["spread 400000 96 50", swing], ["spread 3000 16000 3", swing]] {
        let mut program = Program::known(&library, &[("HAKMEM_PURGE", "lazy")]);
        lines.iter().for_each(|line| program.tell(line));
        let pid = program.pid();
        let slots = counter(&explain(&pid), "lazy_slots");
        let Some((before, mappings)) = lazy_free(&pid) else { return eprintln!("skipped: no LazyFree in smaps") };
        let explanation = explain(&pid);
        let (after, _) = lazy_free(&pid).unwrap(); // less where the system has just taken some
        adds_up(&explanation, 64 << 10);
        let (lazy, slack) = (term(&explanation, "lazy"), mappings * 4096);
        assert!(
            slots > 160 && (after - slack..=before + slack + LAZY_KEPT).contains(&lazy),
            "{lines:?}: {slots} slots, {lazy}, {before}, {after}"
        );
        let metrics = text(&["metrics", &pid, "--budget", "60"]);
        assert!(metrics.contains("term=\"lazy\"}") && text(&["map", &pid]).contains(" LAZY, "), "{metrics}");
        hakmem(&["purge", "--wait", "0", &pid]);
        program.tell("work");
        let left = term(&explain(&pid), "lazy");
        assert!(left < MIB, "{lines:?}: {left} after a purge");
    }
}

/// Else the user does not know whether that is a fault, or what to do about it.
#[test]
fn lazy_memory_is_no_fault() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PURGE", "lazy")]);
    program.tell("free 3000 16000");
    let explanation = explain(&program.pid());
    if term(&explanation, "lazy") < 8 * MIB {
        return eprintln!("skipped: the system has taken what is LAZY");
    }
    let said = explanation["advice"][0]["text"].as_str().unwrap();
    assert!(
        said.contains(" is LAZY: the system takes it when it needs memory") && said.contains("`hakmem purge "),
        "{said}"
    );
}

/// Else two tables, one beside the other, count different blocks.
#[test]
fn sparse_slabs_and_what_is_in_them_agree() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("spread 40000 128 50");
    let sparse = json(&["leak", "--sparse", &program.pid(), "--json"]);
    let blocks = |of: &str, size: &str| {
        let all = sparse[of].as_array().unwrap().iter().filter(|one| one[size] == 128);
        all.map(|one| one["blocks"].as_i64().unwrap()).sum::<i64>()
    };
    let (of_class, of_kinds) = (blocks("classes", "block_bytes"), blocks("kinds", "least_bytes"));
    assert!(of_class == of_kinds && (700..=800).contains(&of_class), "{of_class} and {of_kinds}: {sparse}");
}

/// Blocks of 64 bytes, one kept in each page.
fn one_block_a_page(library: &Path, keep: u64) -> (Program, Value) {
    let mut program = Program::known(library, &[]);
    program.tell(&format!("spread 1000000 64 {keep}"));
    let explanation = explain(&program.pid());
    (program, explanation)
}

fn pss(pid: &str) -> i64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() << 10
}

/// Else a user switches meshing on for nothing, or does not learn what it would do.
#[test]
fn what_meshing_gives_back_is_known_beforehand() {
    let Some(library) = library() else { return };
    let (_same, explanation) = one_block_a_page(&library, 64);
    let (movable, meshable) = (explanation["movable"].as_i64().unwrap(), class(&explanation, 64)["meshable"].as_i64());
    assert!(movable > 50 * MIB && meshable.unwrap() < MIB, "blocks at the same place of each page: {explanation}");

    let (mut program, explanation) = one_block_a_page(&library, 65);
    let known = class(&explanation, 64);
    let (meshable, pages) = (known["meshable"].as_i64().unwrap(), known["live_blocks"].as_i64().unwrap());
    assert!(near(meshable, pages * 63 / 64 * 4096, 2 * MIB), "64 places of a page, one after the other: {known}");
    assert!(explanation["meshable"].as_i64().unwrap() >= meshable);
    let said = explanation["advice"][0]["text"].as_str().unwrap();
    let next = format!("`hakmem set {0} MESH=1`, then `hakmem purge {0}`", program.pid());
    assert!(said.contains(&next), "{said}");
    assert!(text(&["explain", &program.pid()]).contains(" by meshing (HAKMEM_MESH=1): estimates."));

    let before = pss(&program.pid());
    text(&["set", &program.pid(), "MESH=1"]);
    hakmem(&["purge", &program.pid()]);
    program.tell("work");
    let after = explain(&program.pid());
    let merged = counter(&after, "mesh_merged_pages");
    if merged != 0 {
        assert!(after["rest"].as_array().unwrap().iter().any(|mapping| mapping["name"] == "shared by meshing"));
        assert!(near(before - pss(&program.pid()), meshable, 6 * MIB), "{before} {}, {merged}", pss(&program.pid()));
    }
}

/// Else every user is told to change something.
#[test]
fn a_sound_heap_gets_no_advice() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("blocks 1 400000 100");
    assert_eq!(explain(&program.pid())["advice"].as_array().unwrap().len(), 0, "{}", explain(&program.pid()));
    assert!(text(&["explain", &program.pid()]).contains("Nothing is wrong"));
}

/// Else a program that ends by itself can't be explained.
#[test]
fn a_program_is_explained_at_its_peak() {
    let Some(library) = library() else { return };
    let (program, library) = (directory().join("program"), library.display().to_string());
    let run = |line: &str| json(&["explain", "--json", "--hakmem", &library, "--", program.to_str().unwrap(), line]);
    let held = run("spread 200000 256 1");
    adds_up(&held, 64 << 10);
    let blocks = class(&held, 256)["live_blocks"].as_i64().unwrap();
    assert!((200_000..200_010).contains(&blocks), "{blocks} when it ended, some of them libc's");
    let freed = run("peak 2000000 48");
    assert!(freed["process"]["rss"].as_i64().unwrap() > 20 * MIB, "read before it freed: {}", freed["process"]);
    assert!(freed["process"]["rss_peak"].as_i64().unwrap() > 90 * MIB, "{}", freed["process"]);
    let missing = refusal(&["explain", "--hakmem", &library, "--", "/nowhere/program"]);
    assert!(missing.contains("/nowhere/program: No such file"), "{missing}");
}

/// Else nobody learns what block sizes cost them. 100 bytes are served by blocks of 112.
#[test]
fn rounding_is_estimated_from_samples() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "8192")]);
    program.tell("blocks 1 200000 100");
    let explanation = explain(&program.pid());
    let (waste, live) = (explanation["rounding_waste"].as_f64().unwrap(), term(&explanation, "live") as f64);
    assert!((waste / live - 12.0 / 112.0).abs() < 0.02, "{waste} of {live}");
    let unsampled = Program::known(&library, &[]);
    assert!(explain(&unsampled.pid())["rounding_waste"].is_null());
}

/// Else there are two truths: the library's own statistics are printed at the very end, and it is read there.
#[test]
fn the_library_says_the_same() {
    let Some(library) = library() else { return };
    let program = directory().join("program");
    for (line, secure) in [("spread 300000 96 9", "0"), ("blocks 3 5000 3000", "0"), ("spread 20000 500 3", "1")] {
        let statistics = directory().join("statistics");
        let output = Command::new(env!("CARGO_BIN_EXE_hakmem"))
            .args(["explain", "--json", "--hakmem"])
            .args([&library, Path::new("--"), &program])
            .arg(line)
            .envs([("HAKMEM_STATS", "json"), ("HAKMEM_SECURE", secure)])
            .env("HAKMEM_STATS_FILE", &statistics)
            .output()
            .unwrap();
        let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
        let statistics = statistics.with_extension(explanation["process"]["pid"].to_string());
        let own: Value = serde_json::from_slice(&fs::read(&statistics).unwrap()).unwrap();
        fs::remove_file(&statistics).unwrap();
        for (name, value) in own["rss_bytes"].as_object().unwrap() {
            let (own, read) = (value.as_i64().unwrap(), term(&explanation, name));
            // The library asks the kernel nothing: it takes each page of its tables and of its slots to be resident,
            // and all that a huge page would keep.
            let exact = matches!(name.as_str(), "live" | "thread_caches");
            let (less, more) = (64 << 10, if exact { own / 2 + (128 << 10) } else { own });
            let agree = read - own <= less && own - read <= more;
            assert!(agree, "{line}: {name} is {own} by the library, {read} from outside");
        }
    }
}

/// Else many processes can't be looked at in turn, as the metrics do.
#[test]
fn a_hundred_processes_are_explained() {
    let Some(library) = library() else { return };
    let start = |_| Program::start(Command::new("cat").env("LD_PRELOAD", &library));
    let mut programs: Vec<Program> = (0..100).map(start).collect();
    for program in &mut programs {
        program.ask("done", "done");
        adds_up(&explain(&program.pid()), 64 << 10);
    }
}

// ---- what cannot be read ----

/// Else the user does not know what is wrong, or believes figures that are none.
#[test]
fn programs_without_hakmem_are_reported() {
    let mut cat = Program::start(&mut Command::new("cat"));
    cat.ask("done", "done");
    let pid = cat.pid();
    assert_eq!(refusal(&["explain", &pid]), format!("hakmem: PID {pid} does not run HAKMEM: its malloc is glibc's"));
    let mut fixed = Program::start(&mut Command::new(directory().join("plain-static")));
    fixed.tell("work");
    assert!(refusal(&["explain", &fixed.pid()]).ends_with("it is a static program, and no HAKMEM is in it"));
    assert_eq!(refusal(&["purge", "2147483647"]), "hakmem: there is no process 2147483647");
    match fs::read_to_string("/proc/2/comm") {
        Ok(name) if name.trim() == "kthreadd" => {
            assert_eq!(refusal(&["explain", "2"]), "hakmem: PID 2 is the kernel's own: it has no malloc");
        }
        _ => eprintln!("skipped: PID 2 is no thread of the kernel here"),
    }
}

/// Another malloc by its library's name; what the file holds does not matter.
#[test]
fn other_mallocs_are_named() {
    for (file, whose) in [("libjemalloc.so.2", "jemalloc's"), ("libtcmalloc_minimal.so.4", "tcmalloc's")] {
        compile(directory(), "shim", file, &["-shared", "-fPIC"]);
        let mut cat = Program::start(Command::new("cat").env("LD_PRELOAD", directory().join(file)));
        cat.ask("done", "done");
        assert!(refusal(&["explain", &cat.pid()]).ends_with(&format!("its malloc is {whose}")));
    }
}

/// Else a race with the program's end looks like a bug of the command.
#[test]
fn a_process_that_ends_meanwhile_is_reported() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("work");
    let pid = program.pid();
    program.child.kill().unwrap();
    let ended = format!("hakmem: PID {pid} has just ended");
    loop {
        let output = hakmem(&["explain", &pid]);
        if output.status.code() == Some(2) {
            assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), ended, "it is a zombie");
            break;
        }
    }
    program.child.wait().unwrap();
    assert_eq!(refusal(&["explain", &pid]), format!("hakmem: there is no process {pid}"));
    for _ in 0..20 {
        let mut short = Command::new("true").env("LD_PRELOAD", &library).spawn().unwrap();
        let output = hakmem(&["explain", &short.id().to_string(), "--json"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let known = ["has just ended", "no process", "does not run HAKMEM", "just starting"]
            .iter()
            .any(|text| said.contains(text));
        assert!(output.status.success() || known, "{said}");
        short.wait().unwrap();
    }
}

/// Else the user does not learn that sudo is all it takes.
#[test]
fn wrong_permissions_are_told() {
    let Some(library) = library() else { return };
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = directory.path().join("hakmem");
    copy_by_other_process(env!("CARGO_BIN_EXE_hakmem"), &tool);
    let mut program = Program::known(&library, &[]);
    program.tell("work");
    for command in ["explain", "purge", "options"] {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool).args([command, &program.pid()]);
        let Ok(output) = other.output() else { return eprintln!("skipped: there is no setpriv") };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let wanted = format!("PID {} is another user's (user 0): run `sudo hakmem …`", program.pid());
        assert!(said.contains(&wanted), "{said}");
    }
}

/// Else an old command reads a new library's tables wrongly.
#[test]
fn an_unknown_version_is_refused() {
    let Some(library) = library() else { return };
    let mut bytes = fs::read(&library).unwrap();
    let magic = b"hakmem inspect\0\0\x01\0\0\0";
    let place = bytes.windows(magic.len()).position(|window| window == magic).unwrap();
    bytes[place + 16] = 7;
    let other = directory().join("version7.so");
    fs::write(&other, bytes).unwrap();
    let mut program = Program::known(&other, &[]);
    program.tell("work");
    let said = refusal(&["explain", &program.pid()]);
    let wanted = "whose tables have version 7; this command knows version 1: update it";
    assert!(
        said.starts_with(&format!("hakmem: PID {} runs HAKMEM ", program.pid())) && said.ends_with(wanted),
        "{said}"
    );
}

/// Else nobody but root can look inside where Yama is on, whatever the program's owner wishes.
#[test]
fn the_program_may_allow_readers() {
    let Some(library) = library() else { return };
    let preload = format!("{}:{}", directory().join("shim.so").display(), library.display());
    let said = |inspect: &str| {
        let mut program = Command::new(directory().join("program"));
        program.env_remove("HAKMEM_LIBRARY");
        let output = program.arg("work").env("LD_PRELOAD", &preload).env("HAKMEM_INSPECT", inspect).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!((said("1").as_str(), said("0").as_str()), ("any reader\n", ""));
}

// ---- options, set, purge, doctor ----

/// Else what the user sets is not what the program does.
#[test]
fn options_are_set() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PURGE", "never"), ("HAKMEM_STATS_FILE", "/dev/null")]);
    let pid = program.pid();
    program.tell("free 3000 16000");
    let value = |name: &str| {
        let options = json(&["options", &pid, "--json"]);
        let options = options.as_array().unwrap();
        let option = options.iter().find(|option| option["name"] == name).unwrap();
        (option["value"].as_str().unwrap().to_string(), option["live"].as_bool().unwrap())
    };
    assert_eq!((value("PURGE").0.as_str(), value("STATS_FILE").0.as_str()), ("never", "/dev/null"));
    let kept = term(&explain(&pid), "empty_slots");
    assert!(kept > 30 * MIB, "{kept} EMPTY");
    let printed = text(&["set", &pid, "hakmem_purge=EAGER", "DRAIN_INTERVAL=7", "RETAIN_BYTES=3m"]);
    assert!(
        printed.contains("PURGE: never -> eager\n") && printed.contains("RETAIN_BYTES: 1 MiB -> 3 MiB"),
        "{printed}"
    );
    assert_eq!((value("PURGE").0.as_str(), value("DRAIN_INTERVAL").0.as_str()), ("eager", "7"));
    program.tell("free 3000 16000");
    let kept = term(&explain(&pid), "empty_slots");
    assert!(kept < 4 * MIB, "it goes back now: {kept} EMPTY");

    let printed = text(&["set", &pid, "carve_bytes:100=1k", "ring_blocks:1m=2", "owned_slabs=7"]);
    assert_eq!(
        printed,
        "carve_bytes: 4096 -> 4096,112:1024\nring_blocks: 1024 -> 1024,1048576:2\nowned_slabs: 16 -> 7\n"
    );
    assert_eq!((value("carve_bytes").0.as_str(), value("owned_slabs").0.as_str()), ("4096,112:1024", "7"));

    let said = |setting: &str| refusal(&["set", &pid, setting]);
    assert!(said("carve_bytes=1").contains("carve_bytes=1: expected 64 to 65536 bytes"));
    assert!(said("carve_bytes:3000=64").contains("carve_bytes has no value for this size"));
    assert!(said("owned_slabs:64=64").contains("owned_slabs has no value for this size"));
    assert!(said("SECURE=1").contains("SECURE is fixed when the program starts: start it with HAKMEM_SECURE=1"));
    assert!(text(&["set", &pid, "hakmem_PRESSURE=5"]).starts_with("PRESSURE: 0 -> 5"), "its variable");
    assert!(said("PURGE=often").contains("PURGE=often: expected never|lazy|auto|eager"));
    assert!(said("RETAIN_PERCENT=1001").contains("expected 0 to 1000"));
    assert!(said("FOO=1").contains("FOO: no such option") && said("PURGE").contains("expected OPTION=VALUE"));
    assert_eq!(value("SECURE"), ("0".to_string(), false), "what was refused is not done");
}

/// Else the user can't learn which options there are without starting a program.
#[test]
fn options_of_the_library_are_listed() {
    let Some(library) = library() else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_hakmem"))
        .args(["options", "--hakmem"])
        .arg(library)
        .env("HAKMEM_RETAIN_PERCENT", "12")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let line = printed.lines().find(|line| line.starts_with("RETAIN_PERCENT")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[..4], ["RETAIN_PERCENT", "12*", "10", "live"], "{line}");
    assert!(printed.lines().count() > 30, "{printed}");
}

/// Else `hakmem purge` does nothing for a program that never allocates again.
#[test]
fn a_parked_purger_is_woken() {
    let Some(library) = library() else { return };
    let keep =
        [("HAKMEM_RETAIN_BYTES", "256m"), ("HAKMEM_DECAY_MS", "100000000"), ("HAKMEM_SS_CACHE_AGE_MS", "100000000")];
    let mut program = Program::known(&library, &keep);
    program.tell("blocks 2 3000 400");
    program.tell("free 3000 16000");
    let pid = program.pid();
    let futex = libc::SYS_futex.to_string();
    let purger_is_parked = || {
        // The two threads pause, the main one reads: who waits for a futex is the purger.
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let calls = tasks.map(|task| fs::read_to_string(task.path().join("syscall")).unwrap_or_default());
        calls.filter(|call| call.starts_with(&format!("{futex} "))).count() == 1
    };
    while !purger_is_parked() {
        std::thread::yield_now();
    }
    assert!(term(&explain(&pid), "empty_slots") > 30 * MIB);
    let purged = json(&["purge", &pid, "--wait", "600", "--json"]);
    assert!(purged["given_back"].as_i64().unwrap() > 30 * MIB, "{purged}");
    assert_eq!(purged["honoured"], true, "{purged}");
    assert!(term(&explain(&pid), "empty_slots") < MIB);
    assert!(purged["rss_after"].as_i64().unwrap() + 30 * MIB < purged["rss_before"].as_i64().unwrap(), "{purged}");
    program.tell("work"); // it has not come to harm
}

/// Else the user of a program without threads thinks that it has been done, or never will.
#[test]
fn a_program_without_threads_purges_when_it_allocates() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PURGE", "never")]);
    program.tell("free 3000 16000");
    let pid = program.pid();
    let output = hakmem(&["purge", &pid, "--wait", "0.6"]);
    let (said, noted) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}{noted}");
    assert!(
        said.starts_with("nothing given back yet: the request waits") && said.contains("no purger thread"),
        "{said}"
    );
    assert!(noted.starts_with("hakmem: waiting at most 0.6 s for its next allocation that leaves"), "{noted}");
    assert!(refusal_of_usage(&["purge", &pid, "--wait", "4000"]).contains("0 to 3600 seconds"));
    assert!(term(&explain(&pid), "empty_slots") > 30 * MIB);
    program.tell("work");
    assert!(term(&explain(&pid), "empty_slots") < 4 * MIB, "{}", explain(&pid)["heap"]);
}

/// Else the three figures contradict each other: what is allocated meanwhile is in one and not in the others.
#[test]
fn what_a_purge_gave_back_is_the_difference() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[]);
    program.tell("spread 300000 400 100");
    program.tell("churn 2");
    let purged = json(&["purge", &program.pid(), "--wait", "600", "--json"]);
    let figure = |name: &str| purged[name].as_i64().unwrap();
    assert_eq!(figure("given_back"), (figure("rss_before") - figure("rss_after")).max(0), "{purged}");
}

/// Else there are as many truths as commands, and a dashboard goes on showing the peak after the blocks were freed.
#[test]
fn all_count_the_same_superslabs() {
    let Some(library) = library() else { return };
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_string();
    let (statistics, profile) = (path("statistics"), path("profile"));
    let files = [("HAKMEM_STATS_FILE", statistics.as_str()), ("HAKMEM_PROFILE_FILE", &profile)];
    let environment = [("HAKMEM_STATS", "json"), ("HAKMEM_DUMP_SIGNAL", "12"), ("HAKMEM_PURGE", "never")];
    let mut program = Program::known(&library, &[&files[..], &environment].concat());
    for line in ["hot 100 50000", "touch 50000000", "free 3000 16000"] {
        program.tell(line);
    }
    // SAFETY: a signal to a child of ours, which handles it before it goes on.
    unsafe { libc::kill(program.child.id() as libc::pid_t, libc::SIGUSR2) };
    program.tell("nothing");
    let pid = program.pid();
    let own: Value = serde_json::from_slice(&fs::read(format!("{statistics}.{pid}.1")).unwrap()).unwrap();
    let in_use = own["superslabs"].as_u64().unwrap();
    assert!(in_use >= 24 && own["superslabs_peak"].as_u64() > Some(in_use + 10), "{own}");
    let explanation = explain(&pid);
    assert_eq!(explanation["superslab_count"], in_use);
    let metrics = text(&["metrics", &pid, "--budget", "60"]);
    assert!(metrics.contains(&format!("process=\"program\"}} {in_use}\n")), "{in_use}: {metrics}");
    for arguments in [&["map", &pid][..], &["top", &pid, "--once"]] {
        let said = text(arguments);
        assert!(said.contains(&format!(" {in_use} SuperSlabs in use")), "{in_use}: {said}");
    }
}

/// Else the user is promised what does not come: nobody acts on the request while such a program sleeps.
#[test]
fn what_a_sleeping_program_cannot_give_back_is_reported() {
    let Some(library) = library() else { return };
    let said = |program: &Program| text(&["explain", &program.pid()]);
    // Whole free pages stay where many EMPTY slots may: a program with few gives such pages back while it frees.
    let mut alone = Program::known(&library, &[("HAKMEM_RETAIN_BYTES", "1g")]);
    alone.tell("spread 400000 96 200");
    while !said(&alone).contains("the program sleeps and has no purger thread, so `hakmem purge") {
        std::thread::yield_now(); // until it waits for its next line
        assert!(said(&alone).contains("that leaves the fast path"), "{}", said(&alone));
    }
    // A purger gives such pages back, too, in its own time, but LAZY ones only when asked.
    let mut threads = Program::known(&library, &[("HAKMEM_PURGE", "lazy")]);
    threads.tell("blocks 2 3000 400");
    threads.tell("free 3000 16000");
    let lazy = |program: &Program| term(&explain(&program.pid()), "lazy");
    while lazy(&threads) < 20 * MIB {
        std::thread::yield_now(); // until the purger has made them so
    }
    let purger = format!("`hakmem purge {}` gives it back at once", threads.pid());
    assert!(said(&threads).contains(&purger), "{}", said(&threads));
    assert_eq!(hakmem(&["purge", "--wait", "600", &threads.pid()]).status.code(), Some(0));
    assert_eq!(lazy(&threads), 0);
    let (path, library) = (directory().join("program"), library.display().to_string());
    let words = ["env", "HAKMEM_RETAIN_BYTES=1g", path.to_str().unwrap(), "spread 400000 96 200"];
    let ended = text(&[&["explain", "--hakmem", &library, "--"][..], &words].concat());
    assert!(ended.contains("`hakmem purge` gives it back while the program runs"), "{ended}");
}

/// Else a program that only seems to run under HAKMEM is measured, or blamed.
#[test]
fn the_doctor_finds_what_is_wrong() {
    let Some(library) = library() else { return };
    let lines = |arguments: &[&str]| {
        let output = hakmem(arguments);
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = lines(&["doctor", "--hakmem", library.to_str().unwrap()]);
    assert!(code == 0 && said.contains("a program that preloads it allocates from HAKMEM"), "{said}");
    for name in ["RLIMIT_AS", "huge pages", "overcommit", "vm.max_map_count", "Yama", "membarrier", "MADV_POPULATE"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    let mut program = Program::known(&library, &[("HAKMEM_RETAIN_PERCENT", "3"), ("HAKMEM_REGION_BYTES", "0")]);
    program.tell("work");
    let (code, said) = lines(&["doctor", &program.pid()]);
    assert!(code == 0 && said.contains("HAKMEM serves malloc") && said.contains("RETAIN_PERCENT=3"), "{said}");
    assert!(said.contains("SuperSlabs are mapped one by one"), "{said}");
    let mut fixed = Program::start(Command::new(directory().join("plain-static")).env("LD_PRELOAD", &library));
    fixed.tell("work");
    let (code, said) = lines(&["doctor", &fixed.pid()]);
    assert!(code == 1 && said.contains("is statically linked") && said.contains("PROBLEM"), "{said}");
    let behind = format!("libc.so.6:{}", library.display());
    let mut cat = Program::start(Command::new("cat").env("LD_PRELOAD", behind));
    cat.ask("done", "done");
    let (code, said) = lines(&["doctor", &cat.pid()]);
    assert!(code == 1 && said.contains("HAKMEM is loaded, but nothing has been allocated from it"), "{said}");
    assert!(refusal(&["explain", &cat.pid()]).contains("has loaded HAKMEM, but not allocated from it"));
    let mut off = Program::known(&library, &[("HAKMEM_SUPERSLAB", "0")]);
    off.tell("work");
    let (code, said) = lines(&["doctor", &off.pid()]);
    let option = "HAKMEM_SUPERSLAB=0 leaves all of its blocks to libc's own allocator";
    assert!(code == 1 && said.contains(option) && !said.contains("LD_PRELOAD"), "{said}");
    assert_eq!(refusal(&["explain", &off.pid()]), format!("hakmem: PID {}: {option}", off.pid()));
    let (code, said) = lines(&["doctor", "--hakmem", "/nowhere.so", "--json"]);
    assert!(code == 1 && serde_json::from_str::<Value>(&said).unwrap()[0]["verdict"] == "problem", "{said}");
}

/// Else a user of secure mode follows advice that leads nowhere.
#[test]
fn secure_mode_is_not_sent_to_what_it_refuses() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_SECURE", "1")]);
    program.tell("spread 200000 128 10");
    let pid = program.pid();
    let said = text(&["explain", &pid]);
    assert!(said.contains(" is free in partly used slabs of class ") && said.contains(" of secure mode"), "{said}");
    assert!(said.contains("nothing is sampled") && !said.contains("profile start"), "{said}");
    assert!(!said.contains("Nothing is wrong") && !said.contains("leak --sparse"), "{said}");
    for command in [&["cold", &pid][..], &["flame", &pid], &["profile", "start", &pid], &["leak", "--sparse", &pid]] {
        let said = refusal(command);
        assert!(said.starts_with(&format!("hakmem: PID {pid} runs with HAKMEM_SECURE=1, wh")), "{command:?}: {said}");
        assert!(!said.contains("profile start"), "{said}");
    }
    let said = text(&["leak", "--unreachable", &pid]);
    assert!(!said.contains("profile start"), "{said}");
    let said = refusal(&["set", &pid, "GUARD_SAMPLE_BYTES=4k"]);
    assert!(said.contains("GUARD_SAMPLE_BYTES has no effect with HAKMEM_SECURE=1"), "{said}");
}

/// Else secure mode, or a limit on addresses, is a blind spot.
#[test]
fn other_modes_add_up() {
    let Some(library) = library() else { return };
    for mode in [("HAKMEM_SECURE", "1"), ("HAKMEM_REGION_BYTES", "0"), ("HAKMEM_HUGE_PAGES", "always")] {
        let mut program = Program::known(&library, &[mode, ("HAKMEM_PURGE", "never")]); // or it gives back meanwhile
        program.tell("blocks 2 20000 200");
        program.tell("spread 2000 20000 3");
        program.tell("touch 3000000");
        let explanation = explain(&program.pid());
        adds_up(&explanation, 128 << 10);
        agrees_with_the_kernel(&program.pid(), &explanation);
        let live = 40_000 * 200 + 667 * 20_000 + 3_000_000;
        let held = term(&explanation, "live") + term(&explanation, "untouched");
        assert!(held >= live, "{mode:?}: {}", explanation["heap"]);
        assert!(held <= live * 6 / 5 + MIB, "{mode:?}: {}", explanation["heap"]);
    }
}

// ---- cold memory ----

/// Else memory that is in use is called cold, or the line that holds the cold memory is not found.
#[test]
fn cold_memory_is_found_at_its_line() {
    let Some(library) = library() else { return };
    let mut program = Program::known(&library, &[("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "1000")]);
    program.tell("spread 200 20000 1");
    program.tell("hot 200 20000");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(["cold", &program.pid(), "--for", "10h", "--touched", "--json"]);
    let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watching.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("watching PID"), "{line}");
    program.tell("rewrite");
    unsafe { libc::kill(watching.id() as i32, libc::SIGINT) };
    let output = watching.wait_with_output().unwrap();
    assert!(output.status.success());
    let cold: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |function: &str| {
        let site = cold["sites"].as_array().unwrap().iter().find(|site| site["function"] == function);
        let site = site.unwrap_or_else(|| panic!("no {function} in {cold}"));
        ["bytes", "cold", "deflated_from", "deflated_to"].map(|name| site[name].as_i64().unwrap())
    };
    let [bytes, cold_bytes, from, to] = of("allocate");
    assert!(near(bytes, 4_000_000, 400_000) && near(cold_bytes, bytes, 100), "{cold}");
    assert!(from > 0 && to < from / 10, "{cold}");
    let [bytes, cold_bytes, ..] = of("hold_hot");
    assert!(near(bytes, 4_000_000, 400_000) && cold_bytes == 0, "{cold}");
    let plain = Program::known(&library, &[]);
    assert!(refusal(&["cold", &plain.pid()]).contains("hakmem profile start"));
}
