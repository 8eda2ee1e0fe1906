#!/usr/bin/env bash
# Plants in small trees what each gate of ./hak test is to find, and sees the gate fail. If this fails, a gate lets
# through what it is there to stop. Elsewhere are layers_test.py, install/abi.sh, release.sh, the seeds of races/,
# bench/test_counts.py for what grows, sanitizer_finds_… in CMakeLists.txt, and in fast_path_test and entry/ the tests
# called Watch.
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2016,SC2317 # what is planted is no shell; the driver calls what is redefined here
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
PROJECT=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=hak
. "$PROJECT/hak" help >/dev/null
ROOT=$SCRATCH/tree
export GIT_CONFIG_GLOBAL=/dev/null

# run COMMAND…: its status, and its output in $SCRATCH/out. In no condition, where set -e would be off.
run() {
  set +e
  (
    set -e
    "$@"
  ) >"$SCRATCH/out" 2>&1 </dev/null
  status=$?
  set -e
}

# passes COMMAND…: so that what a gate finds later is what was planted.
passes() {
  run "$@"
  ((status == 0)) || fail "$*, with nothing planted: status $status: $(cat "$SCRATCH/out")"
}

# finds TEXT COMMAND…
finds() {
  local text=$1
  shift
  run "$@"
  ((status != 0)) || fail "$*: does not fail where it should say '$text': $(cat "$SCRATCH/out")"
  grep -F -- "$text" "$SCRATCH/out" >/dev/null || fail "$*: says nothing of '$text': $(cat "$SCRATCH/out")"
}

# fails COMMAND…: where the gate has nothing to say.
fails() {
  run "$@"
  ((status != 0)) || fail "$*: does not fail: $(cat "$SCRATCH/out")"
}

# plant FILE: its text is the standard input.
plant() {
  mkdir -p "$(dirname "$ROOT/$1")"
  cat >"$ROOT/$1"
}

# planted TEXT FILE COMMAND…: passes without the file, whose text is the standard input, and finds TEXT with it.
planted() {
  local text=$1 file=$2
  shift 2
  passes "$@"
  [[ ! -e $ROOT/$file ]] || cp "$ROOT/$file" "$SCRATCH/before"
  plant "$file"
  finds "$text" "$@"
  rm "$ROOT/$file"
  [[ ! -e $SCRATCH/before ]] || mv "$SCRATCH/before" "$ROOT/$file"
}

mkdir -p "$ROOT"/{.ci,bench,build,cli/tests,docs/programs,include,packaging,python,src,tests/races}
cp "$PROJECT"/{.clang-format,.clang-tidy,hak} "$ROOT"
cp "$PROJECT/.ci/run" "$ROOT/.ci"
cp "$PROJECT"/tests/{*.py,stages.sh,kit.sh} "$ROOT/tests"
printf '/* One. */\n/* SPDX-License-Identifier: MIT */\nint one(void) { return 1; }\n' | plant src/one.c
printf '# SPDX-License-Identifier: MIT\n' | plant CMakeLists.txt
printf '# A page\n\n```sh run\ntrue\n```\n' | tee "$ROOT/python/README.md" "$ROOT/docs/programs/one.md" | plant README.md

# ---- lint ----

printf 'int  one (void) ;\n' | planted 'one.h:1:4: error: code should be clang-formatted' include/one.h lint_format
printf '#!/bin/sh\nrm $1\n' | planted SC2086 bench/rm.sh lint_scripts
printf 'def one(:\n' | planted SyntaxError packaging/one.py lint_python
printf 'int *one(int n);\nint two(int n) {\n    int *p = n > 1 ? &n : 0;\n    return *p;\n}\n' |
  planted clang-analyzer-core.NullDereference src/two.c lint_sources
printf 'int two(int n) { return n > 1 ? 1 : 1; }\nint three(int n) {\n    if (n)\n        return 1;\n    else\n        return 1;\n}\n' | planted bugprone-branch-clone src/two.c lint_sources
printf 'int two(void) { return 2; }\n' | planted 'src/two.c: has no line SPDX' src/two.c python3 "$ROOT/tests/licence.py"
printf '/* %0118d */\n' 0 | planted 'src/two.h:1: 124 columns, more than 120' src/two.h python3 "$ROOT/tests/columns.py"

for name in design protocols hangs system secure sampling costs compaction arenas tunables experiments tour; do
  printf '# A page of `one`\n' | plant "docs/$name.md"
done
: | plant tests/races/races.c
git -C "$ROOT" init --quiet && git -C "$ROOT" add --all
printf '`no_such_word`\n' | planted 'docs/hangs.md: no_such_word is in no source' docs/hangs.md python3 "$ROOT/tests/docs_names.py"
printf '`one` and `two` in `one.c`\n' | planted 'docs/hangs.md: two is not in one.c' docs/hangs.md python3 "$ROOT/tests/docs_names.py"
printf '**Harness:** nothing.\n' | planted 'nothing is no harness' docs/protocols.md python3 "$ROOT/tests/docs_names.py"

printf '[package]\nname = "one"\nversion = "0.1.0"\nedition = "2021"\n' | plant cli/Cargo.toml
printf '//! One.\n' | plant cli/src/lib.rs
(cd "$ROOT/cli" && cargo generate-lockfile --offline --quiet)
printf 'fn  one() {}\n' | planted 'Diff in' cli/src/lib.rs lint_rust cli
export HAK_CLI_PROFILE=dev
printf 'pub fn one(v: &Vec<u8>) -> usize {\n    v.len()\n}\n' | planted clippy::ptr_arg cli/src/lib.rs in_cli check
unset HAK_CLI_PROFILE

# What a reader follows: ten more functions on the way of a malloc that takes a slot.
cp -R "$PROJECT"/{src,include} "$SCRATCH" && mkdir "$SCRATCH/tests" && cp "$PROJECT"/tests/walks.* "$SCRATCH/tests"
for n in {1..10}; do printf 'static int more%d(int n) { n++; return n; }\n' "$n"; done | cat - "$PROJECT/src/pool.c" >"$SCRATCH/src/pool.c"
sed -i "s/^size_t pool_take(.*{\$/&$(printf ' more%d(0);' {1..10})/" "$SCRATCH/src/pool.c"
finds ', at most ' python3 "$SCRATCH/tests/walks.py"

# ---- pages ----

for link in 'one.md' '#one' '../README.md#one'; do
  printf '# A page\n\n[one](%s)\n' "$link" | planted "links to $link, which" docs/tour.md python3 "$ROOT/tests/pages.py"
done
printf '`src/no.c`\n' | planted 'names src/no.c, which is not there' docs/tour.md python3 "$ROOT/tests/pages.py"
printf '`two` in `src/one.c`\n' | planted 'two is not in src/one.c' docs/tour.md python3 "$ROOT/tests/pages.py"
printf 'line\n%.0s' {1..200} | planted 'README.md: 200 lines, more than 150' README.md python3 "$ROOT/tests/pages.py"

# Whatever line of a block fails, whatever comes after it.
blocks() {
  local block folders=$SCRATCH/folders
  rm -rf "$SCRATCH/blocks" "$folders"
  mkdir "$SCRATCH/blocks" "$folders"
  doc_blocks "$SCRATCH/blocks"
  for block in "$SCRATCH/blocks"/*; do run_block "$block" "$folders"; done
}
printf 'one\n```sh run\nfalse\ntrue\n```\n' | planted '---- docs/tour.md:2' docs/tour.md blocks
printf '```sh run\nfalse | true\ntrue\n```\n' | planted '---- docs/programs/one.md:1' docs/programs/one.md blocks
for file in "${GENERATED[@]}"; do printf 'old\n' | plant "$file"; done
doc() { :; }
passes doc_is_new
doc() { printf 'new\n' >"$ROOT/cli/src/heap/terms.rs"; }
finds '> new' doc_is_new

# ---- tests ----

mkdir -p "$ROOT"/build/{none,some,fuzz/tests/fuzz} "$ROOT/tests/fuzz/corpus/one"
printf 'add_test(one true)\n' | plant build/some/CTestTestfile.cmake
finds 'No tests were found' ctest_in none
printf 'add_test(one false)\n' | planted '1 tests failed out of 1' build/some/CTestTestfile.cmake ctest_in some
printf 'add_test(one true)\nadd_test(two no-such-program)\n' | planted 'two (Not Run)' build/some/CTestTestfile.cmake ctest_in some

mkdir "$ROOT/build/steady"
passes steady_run some usual
printf 'add_test(one false)\n' | planted 'some on a usual machine: one Failed' build/some/CTestTestfile.cmake steady_run some usual

printf '#!/bin/sh\necho "figure: one 1"\n' | plant build/fuzz/tests/fuzz/fuzz_one
chmod +x "$ROOT/build/fuzz/tests/fuzz/fuzz_one"
passes fuzz_target one 1
printf 'echo broken\nexit 77\n' >>"$ROOT/build/fuzz/tests/fuzz/fuzz_one"
finds 'again: build/fuzz/tests/fuzz/fuzz_one' fuzz_target one 1

printf 'SF:%s/src/one.c\nDA:3,%d\nDA:1,1\n' "$ROOT" 1 | plant build/lines.info
passes python3 "$ROOT/tests/coverage.py" "$ROOT/build/lines.info" "$ROOT/src" 95
printf 'SF:%s/src/one.c\nDA:3,%d\nDA:1,1\n' "$ROOT" 0 | plant build/lines.info
finds 'not reached: 3' python3 "$ROOT/tests/coverage.py" "$ROOT/build/lines.info" "$ROOT/src" 95

# What the command shows: a workload that no suite runs, and a demonstration that lacks a line, or the drawing.
TOOL=true
: | plant bench/workloads/one.c
printf 'command = ["{bench}/one", "1"]\n' | plant bench/suites/tiny.toml
: | planted 'bench/suites/tiny.toml lacks: two' bench/workloads/two.c run_workloads
TOOL=false
fails run_workloads
fails read_suite "$ROOT/bench/suites/tiny.toml"
run_demo() {
  printf '  ━━━ hakmem  ─── system\nHAKMEM against the system allocator, 1 round:\n  CPU time 1\n  average memory 1\n'
  printf '  ./hak compare --area -- PROGRAM ARGS…\n%s\n' "$explained"
  printf '%s' "$drawing" >"$ROOT/build/service.svg"
}
explained='  ./hak hakmem explain -- PROGRAM ARGS…' drawing='<svg>'
passes run_demonstration
drawing='' fails run_demonstration
explained='' finds 'not shown:   ./hak hakmem explain' run_demonstration

# The proofs, with a cbmc that always says the same: what cannot be proved, a bug that is not found, and what cbmc did not look at.
says() {
  printf '#!/bin/sh\necho "%s"\nexit %d\n' "$1" "$2" >"$SCRATCH/cbmc"
  chmod +x "$SCRATCH/cbmc"
}
says '** 0 of 3 failed' 0
finds 'FAIL offers finds src/superslab.c' python3 "$PROJECT/tests/prove/prove.py" "$SCRATCH/cbmc" offers
says '[offers.assertion.1] line 1 x: FAILURE
VERIFICATION FAILED' 10
finds '[offers.assertion.1] line 1 x: FAILURE' python3 "$PROJECT/tests/prove/prove.py" "$SCRATCH/cbmc" offers
says '**** WARNING: no body for function strcspn
** 0 of 3 failed' 0
finds 'strcspn has no body' python3 "$PROJECT/tests/prove/prove.py" "$SCRATCH/cbmc" offers
finds 'no such proof: nothing' python3 "$PROJECT/tests/prove/prove.py" "$SCRATCH/cbmc" nothing

# A stage that fails, whatever its last command says, and whatever the others do.
need() { :; }
build_library() { :; }
STAGES=(good)
stage_good() { printf 'ok   one\nRan 2 tests in 0.1s\n'; }
stage_bad() {
  false
  true
}
stage_steps() {
  local steps_failed=0
  step one false
  step two true
  ((steps_failed == 0))
}
passes run_tests
grep -x '4 passed, 0 failed' "$SCRATCH/out" >/dev/null || fail "what a stage ran is not counted: $(cat "$SCRATCH/out")"
STAGES=(good bad)
finds 'FAIL bad ' run_tests
STAGES=(steps good)
finds '     FAIL one' run_tests
grep -x '5 passed, 2 failed' "$SCRATCH/out" >/dev/null || fail "what a stage ran is not counted: $(cat "$SCRATCH/out")"
