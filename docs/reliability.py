#!/usr/bin/env python3
"""reliability.py [figures]: writes reliability.md from reliability.json, the figures of long runs and their days, and
tests/mutants/judged.txt, which has the mutants that were judged. What a section says besides its figures is in NOTES.

figures: first takes over what the last runs of `./hak test`, `soak`, `fuzz`, `prove` and `test --coverage` left in
build/results/reliability-*.json; if several have a figure, the largest one.
"""
# SPDX-License-Identifier: MIT
import datetime
import json
import pathlib
import re
import subprocess
import sys
import textwrap

from wrap import wrapped

DOCS = pathlib.Path(__file__).resolve().parent
TESTS = DOCS.parent / "tests"
PROOFS = TESTS / "prove" / "prove.py"
RESULTS = DOCS.parent / "build" / "results"
FIGURES = DOCS / "reliability.json"
JUDGED = TESTS / "mutants" / "judged.txt"
CONDITIONS = DOCS / "conditions.json"
SOAKED = DOCS / "soaked.json"

# Sections, and what each figure means. Figures that are missing here come last, by their names, except shares of sums.
SHARES = ("fault_points_", "fault_preloaded_")
PROVED = "Proved"
MUTATED = "Mutants"
RACES = "A second opinion on races"
BUSY = "A busy machine"
MACHINES = "Other machines"
GATES = "What the gates find"
AUDITS = "Audits"
REHEARSED = "Rehearsals"
NIGHT = "A night"
COVERAGE = "Coverage"
SENTENCES = {
    "Random sequences of calls": {
        "model_operations_one_thread": "random calls over the whole API by one thread, each answer checked",
        "model_operations_threads": "random calls by 4 to 16 threads that hand blocks over, end and fork",
        "fuzz_operations_executions": "sequences of calls that libFuzzer tried",
        "fuzz_operations_operations": "calls in these sequences",
        "fuzz_options_executions": "texts that libFuzzer gave to the options parser",
    },
    PROVED: {
        "proofs": "statements that are proved for all inputs within the bounds that they name",
        "proof_properties": "places in the sources and in the proofs where nothing can go wrong: bounds, shifts, "
                            "assertions",
        "proof_bugs_found": "bugs put into the sources on purpose, each of which makes its proof fail",
    },
    "Histories of real programs": {
        "histories_programs": "programs, all of whose calls of malloc and its like were recorded and checked "
                              "afterwards: no two live blocks"
                              " overlap, none is handed out before its free begins, alignment and usable size hold, "
                              "what is freed was live",
        "histories_events": "calls in them",
        "histories_threads": "threads that made these calls",
        "histories_processes": "processes in which these threads ran",
        "histories_faults": "faults",
    },
    "Damage": {
        "fuzz_damage_executions": "sequences with damage among them: overwritten links and neighbours, bad frees",
        "fuzz_damage_operations": "calls in these sequences",
        "fuzz_damage_refused": "of these sequences ended in one line and abort; the others survived, or:",
        "fuzz_damage_wild_faults": "ended in a fault outside the allocator's tables, because malloc followed an"
                                   " overwritten link (not in secure mode)",
    },
    "Faults": {
        "fault_points": "places where a system call was made to fail, singly, in bursts or from then on, in 13 "
                        "programs",
        "fault_preloaded_points": "such places in python3, lua, sqlite3 and perl under the shipped library, by seccomp",
    },
    "Life": {
        "threads_alive_most": "threads alive at once",
        "threads_alive_heap_bytes_each_most": "bytes of heap each of them costs",
        "threads_alive_rss_bytes_each_most": "bytes of resident memory each of them costs, including its stack",
        "thread_deaths": "threads born and dead, with destructors that allocate",
        "thread_deaths_heap_growth_bytes_most": "bytes by which the heap grew meanwhile",
        "thread_deaths_rss_growth_bytes_most": "bytes by which the resident memory grew",
        "forks_while_four_threads_allocate": "forks while four threads allocate",
        "forks_in_a_signal_handler": "forks in a signal handler",
        "programs_started_by_vfork_and_spawn": "programs started by vfork and posix_spawn",
    },
    "Memory over time": {
        "soak_hours": "hours of a server's day, accelerated",
        "soak_operations": "allocations in them",
        "soak_rss_percent_of_live_peak": "percent of the peak of live memory were resident at most",
        "soak_phases_rss_percent_of_live_peak": "percent where each hour has sizes of its own",
        "soak_mesh_pss_percent_of_live_peak": "percent there where slabs share pages (`HAKMEM_MESH=1`)",
    },
    BUSY: {
        "steady_runs": "runs of all tests of a build (gcc, clang, the sanitizers), three at a time for each processor, "
                       "on machines where"
                       " huge pages are cheap, or dear, or where the clock leaps",
        "steady_failed_runs": "of them failed",
    },
    MUTATED: {
        "mutants_killed": "changes of one place in the sources at which a test failed",
        "mutants_survived": "changes at which none did: tests that are missing",
        "mutants_equivalent": "changes that no program could notice (`tests/mutants/equivalent.txt` has the reasons)",
        "mutants_core_killed": "of the changes that were noticed are in the core, without the wings",
        "mutants_core_survived": "of those that were not",
        "mutants_core_equivalent": "of those that no program could notice",
    },
    RACES: {
        "relacy_harnesses": "of the model checker's harnesses were also run under Relacy, a checker that others wrote",
        "relacy_executions": "executions of them, drawn by chance; no error in the sources",
        "relacy_bugs": "bugs put into the sources on purpose, which both find",
        "relacy_bugs_left_to_chance": "that the model checker finds and Relacy is not asked for: one execution in a"
                                      " million shows them",
    },
    MACHINES: {
        "machines_tests": "tests and steps that passed on such machines, once for each size of pages",
        "emulated_host_kib_most": "KiB of the host's memory for a program of 100 bytes under qemu, at most",
    },
    GATES: {
        "gates_faults": "faults that `tests/gates_test.py` plants, each of which its gate finds",
    },
    REHEARSED: {
        "rehearsed_readers": "readers came from a bare Debian 12, 13 or Ubuntu 24.04 to the figures of a program of"
                             " their own, in Ruby, node, Rust, Python and C++",
        "rehearsed_seconds_most": "seconds of the one who took longest",
    },
    COVERAGE: {
        "line_coverage_percent": "percent of the lines of `src/` are reached by the short tests",
        "conditions": "conditions of the files below: true, false and, where several make a decision, deciding it"
                      " alone (MC/DC)",
        "conditions_shown": "of them the tests show",
        "conditions_tests": "tests, shortened, of which this is so; others may show more",
        "conditions_with_reasons": "no test shows, or only by chance; `tests/conditions.txt` says why",
    },
}


def gather():
    figures = json.loads(FIGURES.read_text())
    fresh = {}
    for path in sorted(RESULTS.glob("reliability-*.json")):
        day = datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
        for name, value in json.loads(path.read_text()).items():
            if name == "fault_preloaded_points" or not name.startswith(SHARES):
                fresh[name] = max((value, day), fresh.get(name, (value, day)))
    if (RESULTS / CONDITIONS.name).exists():
        CONDITIONS.write_bytes((RESULTS / CONDITIONS.name).read_bytes())
    if (RESULTS / SOAKED.name).exists():
        passed = json.loads(SOAKED.read_text()) | json.loads((RESULTS / SOAKED.name).read_text())
        SOAKED.write_text(json.dumps(passed, indent=2, sort_keys=True) + "\n")
    if not fresh:
        sys.exit("reliability.py: build/results has no figures; ./hak test, soak, fuzz and prove leave them there")
    for name, (value, day) in fresh.items():
        figures[name] = value
        figures["days"][name] = day
    FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


def days(rows, day_of):
    """On which days the figures of a section were taken."""
    first, last = min(day_of[name] for name, _ in rows), max(day_of[name] for name, _ in rows)
    return f"The figures are of {first}." if first == last else f"The figures are of {first} to {last}."


def mutants_table():
    """Those that were killed and that survived, by file."""
    files = {}
    for line in JUDGED.read_text().splitlines():
        verdict, _, file = line.split("\t")[:3] if "\t" in line else ("", "", "")
        if verdict in ("killed", "survived"):
            files.setdefault(file, [0, 0])[verdict == "survived"] += 1
    return ["| file | killed | survived |", "|---|---:|---:|",
            *(f"| `{name}` | {killed} | {survived} |" for name, (killed, survived) in sorted(files.items()))]


def list_of_proofs():
    claims = subprocess.run([sys.executable, PROOFS, "--list"], capture_output=True, text=True, check=True).stdout
    return [f"- `{name}`: {claim}" for name, claim in (line.split(": ", 1) for line in claims.splitlines())]


PARTS = {
    "lint": "format, layers, clang-tidy with more patience than in `./hak test`, shellcheck, clippy",
    "packages": "packages of every format are built, and used",
    "wheel": "the Python package, from the sources",
    "machines": "aarch64, riscv64 and musl",
    "prove": "the proofs",
    "relacy": "the second opinion on races",
    "races": "the model checker's harnesses in their long forms",
    "steady": "all tests 52 times, on busy machines of each kind",
    "tests": "the tests of long lives: calls, threads, forks, days of a server, faults",
    "histories": "what real programs allocate",
    "fuzz": "each fuzzer for ten minutes, the command's readers for an hour",
}


def night_table():
    passed = json.loads(SOAKED.read_text())
    return ["| part | what | last passed on |", "|---|---|---|",
            *(f"| `{name}` | {what} | {passed.get(name, '–')} |" for name, what in PARTS.items())]


def conditions_table():
    return ["| file | conditions | shown | with a reason | percent |", "|---|---:|---:|---:|---:|",
            *(f"| `{name}` | {every} | {shown} | {reasoned} | {100 * (shown + reasoned) / every:.1f} |"
              for name, (shown, reasoned, every) in json.loads(CONDITIONS.read_text()).items() if every)]


def count(pattern, *files):
    """How many lines of the tests' files match."""
    return sum(len(re.findall(pattern, (TESTS / file).read_text(), re.MULTILINE)) for file in files)


def gates_table():
    """Each gate, and what is planted for it to find."""
    seeds = count(r"^X\(\w", "races/seeds.h")
    misuses = count(r'^    \{"', "bad/misuses.cc")
    rows = (
        ("format, scripts, clang-tidy, clippy; licence lines, columns; the command's floors; walks", "gates_test.py"),
        ("layers, circles, a wing that the core includes, what grew without a reason", "layers_test.py"),
        ("names, links and blocks of the documents; pages that are generated", "gates_test.py"),
        ("tests that fail, are not there or do not run; stages; fuzzers; coverage; workloads", "gates_test.py"),
        ("sources that ask for the machine, machines that are not refused", "gates_test.py"),
        ("golden counts of the hit paths", "fast_path_test.cc, `Watch`"),
        ("golden counts of pairs, lives, slabs and atomics", "counts_test.c, its last line"),
        ("the lists of system calls and of libc's symbols, cancellation, stacks", "entry/, `Watch`"),
        ("the sandbox's list of calls", "entry/sandbox_test.cc, `Watch`"),
        ("the binary interface", "install/abi.sh"),
        ("what grows with threads and blocks", "bench/test_counts.py"),
        ("the sanitizers", "unit/sanitized.c"),
        ("histories: five faults of an allocator", "history/faulty.c"),
        (f"the model checker: {seeds} bugs in the sources", "races/seeds.h"),
        ("proofs: a bug for each", "prove/seeds.txt"),
        (f"misuses by programs: {misuses}, each with its line", "bad/misuses.cc"),
        ("mutants: what is no change, and what no test reaches", "mutants/mutants_test.py"),
        ("what a release refuses", "release.sh"),
    )
    return ["| what is to be found | planted in |", "|---|---|", *(f"| {what} | {where} |" for what, where in rows)]


AUDITED = (
    ("a cut of the addresses unmapped what other threads had taken", "races `cut`, `cut_heap`"),
    ("a thread that was refused memory during a cut got none", "races `cut_blindly`, `limited_together_test`"),
    ("an arena's end took a slot that another thread was giving back", "races `arena_emptied`"),
    ("two threads without a heap owned one slab", "races `unborn_look`"),
    ("a slab was noted before it was let go", "races `noted`"),
    ("a parked purger did not hear of a new heap's rings", "races `watched`"),
    ("a heap rested for good after the last thread of a small program", "`rests_test`"),
    ("a child forked while an outbox was sent kept a purger that never parked", "`rests_test`"),
    ("a child with lost loans found no offers of a class", "`slabs_test`, lost_loans"),
    ("an arena's end left a wrong number of loans", "`slabs_test`, counted_late"),
    ("free or exit ended a program that had given back or shut a block's last page", "`harmless_test`"),
    ("a block was shut that CPython reads after its free", "`harmless_test`"),
    ("hak_arena_realloc refused a block without bytes, in secure mode", "`arena_test`"),
    ("one random number was key, place and seed: an address told bits of the key", "`options_test`"),
    ("a program that had closed and reused descriptors got statistics into its own file", "`dump_test`"),
    ("numbers of heaps were lost, until threads got no memory though there was some", "`limited_refused_test`"),
    ("a handler that a thread set while signals got theirs was replaced by the older one", "`caught_test`"),
    ("secure mode: a refusal to replace a mapping left a hole, which the next block got", "`fault_test`, whole"),
    ("a policy's step beyond the stack, in code that took the place of an unloaded library", "`policy_test`"),
    ("at a program's end a late thread's block was a write into unused memory (`./hak steady`)", "`harmless_test`"),
    ("a cursor in a thread without a heap gave slabs to a heap that is no thread's", "`dense_test`"),
    ("hak_malloc_dense never returned where a slab's list and count disagreed", "`dense_test`"),
    ("a cursor listed an address within a live block", "`dense_test`"),
    ("free memory was left to a purger that had never run and was about to end", "`slabs_test`"),
    ("a time box of nearly 2^64 ns was over at once", "`defrag_test`"),
    ("a cgroup's name that holds another hierarchy's key hid its limit", "`cgroup_test`"),
    ("before Linux 6.17 the second move of a huge block left a hole, to which the next mmap came", "`os_test`"),
    ("statistics at the end went into the program's own file, once that had number 2", "`dump_test`"),
    ("a stack's walk read what could be read once and is unmapped now", "`stack_test`"),
    ("so did statistics, where a slot became inaccessible meanwhile", "`slots_test`, readers"),
    ("or was unmapped, as the program limited its addresses", "`slots_test`, unmapped"),
    ("or was the first guarded sample's", "`slots_test`, guards"),
    ("or was mapped anew, which the system refused when it had unmapped it",
     "`huge_pages_test`, read; `slots_test`, read_moved"),
    ("the program crashed, as an arena ended that had lost a SuperSlab to a refused call",
     "`huge_pages_test`, arena_lost"),
    ("or whose huge block had", "`huge_pages_test`, arena_block_lost"),
    ("LAZY slots that a refused call had unmapped counted as LAZY for good", "`huge_pages_test`, lost_lazy"),
    ("or that it had unmapped in part", "`huge_pages_test`, lost_lazy_part"),
    ("each guarded sample lost 2 MiB where the system refuses guards", "`slots_test`, no_guards"),
    ("other threads were refused memory below HARD_LIMIT, while a huge block moved", "`slots_test`, moves_once"),
    ("what an arena's huge block had lost to a refused call counted against the arena's limit for good",
     "`huge_pages_test`, arena_limit"),
    ("statistics read outside of the packs, by a half-copied record", "`stats_test`"),
    ("`hak_class_uses` claimed 112 TiB; the test of such a record had stopped to make one", "`stats_test`"),
    ("statistics in JSON held bytes that are no UTF-8", "`arena_test`"),
    ("a module's note was read although no part of the file that is loaded has it", "`loading_test`"),
    ("a handler that interrupted a sample wrote its calls into that one's stack", "`profile_test`"),
    ("a tunable was read twice, and a full slab waited for 2^32 frees", "argued at `slab_reuse_frees`"),
    ("no purger for threads made some other way, once one had ended (`./hak steady`)", "`rests_test`"),
    ("two purgers, one of them ending, used a number that was not atomic", "`rests_test` under TSan"),
    ("a time box shorter than a reading of the clock made no way (`./hak steady`)", "`defrag_test`"),
    ("a Python string that only claimed to be ASCII was written over another name", "`python_test`"),
    ("in a static program each sigaction took the dynamic linker's lock: a forked child hung", "`static_actions_test`"),
    ("at a limit of tasks the purger had the program's last place", "`purger_yields_runs_test` and its like"),
    ("it never came back to a program that made no further thread", "`rests_test`"),
    ("it ended, and gave back what should stay, though threads came and went", "`swings_test`"),
    ("in a program that had locked its memory it woke ten times a second", "`fault_test`, Purger"),
    ("a fork's child was taken for its own child by vfork, or the other way round", "`limited_setrlimit_0_test`"),
    ("mlockall counted all that is reserved against RLIMIT_MEMLOCK", "`limited_locked_test`"),
    ("main began with an error where /proc cannot be read", "`errno_test`"),
    ("operator new ended programs whose C++ library is static, or a plugin's alone", "`cxx_plugin_test` and its like"),
    ("secure mode ended a program, not position-independent, at its delete[]", "`operators_new_test` and its like"),
    ("with SUPERSLAB=0 a block had no usable bytes before the constructors", "`early_0_test`"),
    ("malloc called address 0 when a profile began while memory was scarce", "`slots_test`, profile_begins"),
    ("secure mode: a trim beside other threads lost blocks, and their slabs never ended", "`secure_test`"),
    ("secure mode: statistics read an address out of a half-copied record", "`secure_test`"),
    ("ACE: a look that came late ended a round twice", "`ace_test`"),
    ("up to seven EMPTY slots of each sleeping thread stayed for good", "`purger_wanted_bound_test`"),
    ("they stayed where no thread settled, beside a purger that was parked or not wanted", "`purger_wanted_few_test`"),
    ("a program at rest kept RETAIN_BYTES of EMPTY slots, however old", "`purger_wanted_aged_test`"),
    ("its LAZY memory that may grow older than that stayed, too", "`purger_wanted_aged_lazy_test`"),
    ("after pthread_exit of main the process ended two seconds after its last thread", "`purger_wanted_main_test`"),
    ("a purge that was refused after the thread had been stopped for a minute went on for good",
     "`slots_test`, stopped"),
    ("nothing was purged for a minute as the clock came around, after 49 days of uptime", "`slots_test`, clock"),
    ("a signal handler's exit in the middle of a realloc was told as an overflow", "`harmless_test`, end_in_realloc"),
    ("or in the middle of a move, as an access to what was no longer mapped", "`harmless_test`, end_in_move"),
    ("secure mode: an exit in the middle of malloc or free ended by abort", "`harmless_test`, end_anywhere"),
    ("a site of a policy never returned from malloc at the end of memory (mutants)", "`policy_test`"),
    ("each process of a tree repeated what is wrong with TUNE, POLICY, DUMP_SIGNAL", "`options_test`, `switches_test`"),
    ("`hakmem`: a legend's product of slots and their size overflowed", "`blocks_of_any_size_are_large`"),
    ("`hakmem`: so did the first line of a Python function", "`a_first_line_may_be_any_number`"),
    ("`hakmem leak`: what meshed, packed and guarded blocks hold was lost", "`cli/tests/outside.rs`"),
    ("`hakmem leak`: so was what lies below a stack in the same mapping", "`cli/tests/outside.rs`"),
    ("`hakmem leak`: records of a hostile process took memory without end", "`no_slot_has_the_blocks_of_others`"),
    ("`hakmem leak`: so did the names of symbols", "`names_take_a_bounded_part_of_memory`"),
    ("`hakmem`: sampled, the rest of a list counted as live", "`cli/tests/outside.rs`"),
    ("`hakmem`: in a core without the pages that slabs share, what they hold was lost", "`cli/tests/outside.rs`"),
    ("`hakmem`: a wait was over when a shell stopped it", "`a_wait_that_is_interrupted_goes_on`"),
    ("statistics, `hakmem metrics`, top and map counted different SuperSlabs", "`all_count_the_same_superslabs`"),
    ("`hakmem metrics`: blocks in lists counted as allocated", "`metrics_are_those_of_the_heap`"),
    ("`hakmem metrics`: classes whose slabs were gone had no counters", "`classes_without_slabs_keep_their_counters`"),
    ("`hakmem metrics`: counters of classes fell", "`counters_of_classes_never_fall`"),
    ("`hakmem`: a profile that was cut short gave a wrong answer", "`a_text_that_was_cut_is_refused_wherever_it_was`"),
)


def audits_table():
    return ["| what was found | what finds it now |", "|---|---|", *(f"| {bug} | {test} |" for bug, test in AUDITED)]


# Files without their endings, what a reading for races found there, and what one for an attacker found: a test, or
# where the argument stands. Only what was read as a whole.
READ_ON = "2026-11-27"
READ = (
    ("blocks/inbox heap/outbox heap/slab heap/slab_record", "", ""),
    ("heap/heap", "`limited_refused_test`", ""),
    ("heap/ring heap/search", "", ""),
    ("tiers/mid tiers/large tiers/lookup tiers/tiny tiers/huge", "", ""),
    ("tiers/packed alloc/alloc alloc/resize", "`slots_test`", ""),
    ("heap/pages heap/sample heap/ledger", "", ""),
    ("space/superslab space/purge space/arena_record space/arena_space", "", ""),
    ("pool/pool pool/limits pool/huge_pages", "", ""),
    ("pool/retain", "what a sum may come to: at its field", ""),
    ("threads/thread threads/chores threads/purger process/presence", "", ""),
    ("region/account region/region region/region_space region/region_tables", "", ""),
    ("base/bitset base/snapshot base/scratch base/log base/fail", "", ""),
    ("base/options", "when options are read: at `were_read`", ""),
    ("base/os_files base/os_modules base/text observe/dump", "", "`dump_test`"),
    ("base/os_crash", "`caught_test`", ""),
    ("observe/python", "", "`python_test`"),
    ("observe/profile observe/profile_file observe/sampled observe/guard_sample", "", ""),
    ("observe/report observe/exit_check observe/inspect", "", ""),
    ("observe/stats observe/cfi observe/stack observe/probes", "`slots_test`, `stats_test`",
     "`dump_test`, `stack_test`, `loading_test`, `arena_test`"),
    ("process/tunables region/classes", "at `slab_reuse_frees`", ""),
    ("move/defrag move/dense machine/cgroup", "`dense_test`", "`dense_test`, `defrag_test`, `cgroup_test`"),
    ("base/os_memory", "`os_test`", ""),
    ("beside/next", "`static_actions_test`", ""),
    ("beside/create", "", "`purger_yields`: waits, runs, parked"),
    ("beside/limit beside/lock base/os_linux", "`limited`: setrlimit, prlimit", "`limited_locked_test`, `errno_test`"),
    ("entry/new_handler", "", "`cxx_plugin_test`, `cxx_shared_test`, `cxx_static_test`"),
    ("entry/new", "", "`operators_new_test`, `operators_delete_test`"),
    ("base/os_malloc", "", "`early_0_test`"),
    ("entry/hakmem entry/hinted entry/libc entry/libc_stats entry/start entry/wings", "", ""),
    ("beside/deepbind beside/dlmopen beside/old_signals beside/other beside/signals", "", ""),
    ("alloc/alloc_slow base/clear base/counters base/logs base/mode", "", ""),
    ("machine/nodes machine/page_cost blocks/block blocks/canary blocks/links blocks/zero", "", ""),
    ("arena/arena arena/arena_heap arena/arena_alloc arena/arena_api arena/lane arena/site_api", "", ""),
    ("arena/policy", "", "`policy_test`"),
    ("secure/secure secure/secure_slab", "`secure_test`", ""),
    ("secure/secure_alloc secure/secure_span secure/secure_damage secure/secure_trace", "", ""),
    ("secure/secure_large", "`fault_test`, whole", ""),
    ("learn/ace learn/tuner", "`ace_test`", ""),
    ("learn/presets", "a child forked within a change: at `giving`", ""),
    ("mesh/mesh mesh/meshed mesh/os_merge", "", "files of pinned memory: [compaction.md](compaction.md)"),
)


def read_table():
    rows = []
    for files, *found in READ:
        if missing := [name for name in files.split() if not list((DOCS.parent / "src").glob(f"{name}.[ch]"))]:
            sys.exit(f"reliability.py: src/ has no {missing[0]}")
        named = " ".join(f"`{name}`" for name in files.split())
        rows.append(f"| {named} | {' | '.join(one or '–' for one in found)} |")
    text = (f"On {READ_ON} a reader read each of these files (of a pair, the `.c`), with both instructions. There were "
            "three readers; two read `tiers/packed`, `tiers/lookup`, `heap/search`, `heap/heap` and `space/purge`. A "
            "dash: nothing was found.")
    return [*textwrap.wrap(text, 118, break_on_hyphens=False), "",
            "| read | races | an attacker |", "|---|---|---|", *rows]


# What follows the figures of a section: paragraphs, and tables.
NOTES = {
    "Random sequences of calls": ("`./hak soak` makes the calls, `./hak fuzz` the sequences and the texts.",),
    PROVED: ("`./hak prove` proves these with cbmc over the shipped sources, in minutes on idle cores. What is proved "
             "for a word that other threads may have changed just before holds however threads alternate.",
             list_of_proofs),
    "Histories of real programs": ("`./hak soak histories` records and checks them.",),
    "Damage": ("`./hak fuzz damage` tries them.",),
    "Faults": ("`./hak test gcc fault` makes them; `./hak soak` lets the programs run longer.",),
    "Life": ("`./hak soak` runs the tests of threads and forks in these lengths.",),
    "Memory over time": ("`./hak soak` lets these days pass.",),
    BUSY: ("`./hak steady TIMES` runs them. A test's verdict hangs on counts, on a clock that "
           "the test makes up (`tests/host.c`), or on what it has itself made sure of.",),
    MUTATED: ("`./hak soak mutants` makes them, drawn by chance with a fixed seed, as many in each file, and runs the "
              "tests that reach the change until one fails. `tests/mutants/judged.txt` names each. Tests for most of "
              "those that survived outside the core were written afterwards, each seen to fail at its change; "
              "`./hak soak mutants --again survived` judges them anew.", mutants_table),
    RACES: ("`./hak soak relacy` runs them. Relacy decides which thread goes on, which value a load sees and what is "
            "ordered before what, in place of the project's own model checker (`tests/races/model.c`), over the same "
            "sources and harnesses. In the litmus programs the two differ where a store comes into effect before one "
            "that was made earlier to the same address: RC11 allows that, and Relacy has no such executions. It does "
            "not look, either, whether an atomic store meets a plain load.",),
    MACHINES: ("`./hak soak machines` builds and runs them, with what Debian has (gcc and clang for aarch64 and "
               "riscv64, qemu-user, musl): aarch64 with pages of 4, 16 and 64 KiB; riscv64, the plain C test and the "
               "walk of the stack; musl on x86-64, with every workload in C. Each compiler refuses machines of 32 "
               "bits, and big-endian ones, by one line. `./hak test machines` has the refusals, musl and, where the "
               "packages can be had, the shortest tests on aarch64. Not tried: a "
               "kernel with pages of 16 KiB (qemu-user makes them up), and musl on other machines.",),
    GATES: ("`./hak test` runs all of these. A gate that finds nothing where a fault is planted is a test that fails.",
            gates_table),
    AUDITS: ("Readers with two instructions read the sources: one looked for races, one for what ends a right program "
             "or helps an attacker; two more read the newest code in the same way. One read the command, and one tried "
             "it and its documents as a stranger would. Each finding became a test, or an argument in "
             "[protocols.md](protocols.md). `./hak soak` gives damaged input to each of the command's readers for an "
             "hour of the clock. `cli/tests/hostile.rs` has hostile processes, files and cores, `cli/tests/siege.rs` "
             "besieges its servers, and `http.rs` has requests that are slow, huge or from elsewhere: `./hak test "
             "cli`.", audits_table, read_table),
    NIGHT: ("`./hak soak` does these, one after the other, in six hours on two cores; `./hak soak PART` does one. On "
            "2026-11-27 and 28 they ran part by part, beside other work: `fuzz` three minutes for each fuzzer and 18 "
            "for each reader (`./hak soak fuzz 3`), `tests` as long as in `./hak test`, with those that it leaves out "
            "(`./hak soak tests 1`). `races` had 159 tests in 20 minutes: of its eight long harnesses, last, lazy and "
            "cache end at the bound of 134 million states, all others are exhaustive.",
            night_table),
    REHEARSED: ("`./hak soak rehearse` was last seen to its end on 2026-11-26; [the times](recipes.md#first-minutes) "
                "are those of two cores on which much else ran. `./hak release --rehearse` was seen to its end on that "
                "day: 1,189 tests passed, packages of all formats built and used, `.deb` files and tarball built twice "
                "with the same bytes, 22 files with their checksums, in 27 minutes on two idle cores.",),
    COVERAGE: ("`./hak test --coverage` counts the lines. `./hak soak conditions` counts the conditions, with clang "
               "19, and lists those that are missing.", conditions_table),
}


def write_page():
    figures = json.loads(FIGURES.read_text())
    day_of = figures.pop("days")
    lines = ["# Reliability", "",
             "What the tests have tried. The figures are those that `./hak test`, `./hak soak`, `./hak fuzz` and "
             "`./hak prove`",
             "print; `./hak doc figures` takes them over into `docs/reliability.json`. [Programs that were "
             "tried](tried.md)",
             "lists real programs, with the memory that they need under glibc's malloc and under HAKMEM."]
    sections = {title: [(name, text) for name, text in texts.items() if name in figures]
                for title, texts in SENTENCES.items()}
    known = {name for texts in SENTENCES.values() for name in texts}
    sections |= {title: [] for title in NOTES if title not in SENTENCES}
    sections["Further"] = [(name, name.replace("_", " ")) for name in sorted(figures) if name not in known]
    for title, rows in sections.items():
        if rows or title in NOTES and title not in SENTENCES:
            lines += ["", f"## {title}"]
        if rows:
            lines += ["", "| figure | what it counts |", "|---:|---|"]
            lines += [f"| {figures[name]:,} | {text} |" for name, text in rows]
            lines += ["", days(rows, day_of)]
        for note in NOTES.get(title, ()) if rows or title not in SENTENCES else ():
            lines += ["", *(note() if callable(note) else textwrap.wrap(note, 118, break_on_hyphens=False))]
    (DOCS / "reliability.md").write_text(wrapped("\n".join(lines) + "\n"))


if __name__ == "__main__":
    if sys.argv[1:] == ["figures"]:
        gather()
    elif sys.argv[1:]:
        sys.exit(__doc__.split("\n")[0])
    write_page()
