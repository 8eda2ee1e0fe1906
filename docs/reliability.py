#!/usr/bin/env python3
"""reliability.py [figures]: writes reliability.md from reliability.json, the figures of long runs, and
tests/mutants/judged.txt, which has the mutants that were judged.

figures: first takes over what the last runs of `./hak test`, `soak`, `fuzz`, `prove` and `test --coverage` left in
build/results/reliability-*.json; if several have a figure, the largest one.
"""
# SPDX-License-Identifier: MIT
import json
import pathlib
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parent
PROOFS = DOCS.parent / "tests" / "prove" / "prove.py"
RESULTS = DOCS.parent / "build" / "results"
FIGURES = DOCS / "reliability.json"
JUDGED = DOCS.parent / "tests" / "mutants" / "judged.txt"
CONDITIONS = DOCS / "conditions.json"

# Sections, and what each figure means. Figures that are missing here come last, by their names, except shares of sums.
SHARES = ("fault_points_", "fault_preloaded_")
PROVED = "Proved"
MUTATED = "Mutants"
RACES = "A second opinion on races"
REHEARSED = "Rehearsals"
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
    },
    "A busy machine": {
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
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    fresh = {}
    for path in sorted(RESULTS.glob("reliability-*.json")):
        for name, value in json.loads(path.read_text()).items():
            if name == "fault_preloaded_points" or not name.startswith(SHARES):
                fresh[name] = max(value, fresh.get(name, value))
    if (RESULTS / CONDITIONS.name).exists():
        CONDITIONS.write_bytes((RESULTS / CONDITIONS.name).read_bytes())
    if not fresh:
        sys.exit("reliability.py: build/results has no figures; ./hak test, soak, fuzz and prove leave them there")
    figures.update(fresh)
    FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


def mutants_table():
    """Those that were killed and that survived, by file."""
    files = {}
    for line in JUDGED.read_text().splitlines():
        verdict, _, file = line.split("\t")[:3] if "\t" in line else ("", "", "")
        if verdict in ("killed", "survived"):
            files.setdefault(file, [0, 0])[verdict == "survived"] += 1
    yield from ("", "`./hak soak mutants` makes them, drawn by chance with a fixed seed, as many in each file, and",
                "runs the tests that reach the change until one fails. `tests/mutants/judged.txt` names each.", "",
                "| file | killed | survived |", "|---|---:|---:|")
    for name, (killed, survived) in sorted(files.items()):
        yield f"| `{name}` | {killed} | {survived} |"


def write_page():
    figures = json.loads(FIGURES.read_text())
    lines = ["# Reliability", "",
             "What the tests have tried. The figures are those that `./hak test`, `./hak soak`, `./hak fuzz` and "
             "`./hak prove`",
             "print; `./hak doc figures` takes them over into `docs/reliability.json`. [Programs that were "
             "tried](tried.md)",
             "lists real programs, with the memory that they need under glibc's malloc and under HAKMEM."]
    sections = {title: [(name, text) for name, text in texts.items() if name in figures]
                for title, texts in SENTENCES.items()}
    known = {name for texts in SENTENCES.values() for name in texts}
    sections["Further"] = [(name, name.replace("_", " ")) for name in sorted(figures) if name not in known]
    for title, rows in sections.items():
        if rows:
            lines += ["", f"## {title}", "", "| figure | what it counts |", "|---:|---|"]
            lines += [f"| {figures[name]:,} | {text} |" for name, text in rows]
        if rows and title == PROVED:
            lines += ["", "`./hak prove` proves these with cbmc over the shipped sources, in minutes. What is proved "
                          "for a word that other"
                      " threads", "may have changed just before holds however threads alternate.", "",
                      "| proof | what it says |", "|---|---|"]
            proofs = subprocess.run([sys.executable, PROOFS, "--list"], capture_output=True, text=True,
                                    check=True).stdout
            lines += [f"| `{name}` | {claim} |" for name,
                      claim in (line.split(": ", 1) for line in proofs.splitlines())]
        if rows and title == MUTATED:
            lines += mutants_table()
        if rows and title == COVERAGE and CONDITIONS.exists():
            lines += ["", "`./hak soak conditions` counts them with clang 19 and lists those that are missing.", "",
                      "| file | conditions | shown | with a reason | percent |", "|---|---:|---:|---:|---:|"]
            lines += [f"| `{name}` | {every} | {shown} | {reasoned} | {100 * (shown + reasoned) / every:.1f} |"
                      for name, (shown, reasoned, every) in json.loads(CONDITIONS.read_text()).items() if every]
        if rows and title == REHEARSED:
            lines += ["", "`./hak soak rehearse` was last seen to its end on 2026-11-26;",
                      "[the times](recipes.md#first-minutes) are those of two cores on which much else ran.",
                      "`./hak release --rehearse` was seen to its end on that day: 1,189 tests passed, packages of all",
                      "formats built and used, `.deb` files and tarball built twice with the same bytes, 22 files with",
                      "their checksums, in 27 minutes on two idle cores."]
        if rows and title == RACES:
            lines += ["", "`./hak soak relacy` runs them. Relacy decides which thread goes on, which value a load sees",
                      "and what is ordered before what, in place of the project's own model checker",
                      "(`tests/races/model.c`), over the same sources and harnesses. In the litmus programs the two",
                      "differ where a store comes into effect before one that was made earlier to the same address:",
                      "RC11 allows that, and Relacy has no such executions. Nor does it look whether an atomic store",
                      "meets a plain load."]
    (DOCS / "reliability.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["figures"]:
        gather()
    elif sys.argv[1:]:
        sys.exit(__doc__.split("\n")[0])
    write_page()
