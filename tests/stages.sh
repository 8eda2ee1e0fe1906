# shellcheck shell=bash
# The stages of `./hak test`, and the long forms: `./hak fuzz`, `./hak soak`, `./hak test --coverage`. hak reads this
# file, which uses hak's functions and variables. A line `figure: NAME VALUE` in any output is a result; the figures are
# summed up in build/results/reliability-*.json, from which `./hak doc figures` makes docs/reliability.md.
#
#  1. A stage is a function stage_NAME; its output goes to build/test-logs/NAME.log.
#  2. A stage passes if its status is 0. The tests it ran are counted from its output.
# SPDX-License-Identifier: MIT

# ---- tests ----

# ctest_in DIRECTORY [CTEST ARGS…]: runs all tests that were built there.
ctest_in() {
  local status=0
  ulimit -c 0
  ctest --test-dir "$ROOT/build/$1" --output-on-failure --no-tests=error --timeout 3000 --parallel "$JOBS" "${@:2}" || status=$?
  grep '^figure: ' "$ROOT/build/$1/Testing/Temporary/LastTest.log" || true
  return "$status"
}

# figures NAME LOG…: writes the sums of the figures in the logs to build/results/reliability-NAME.json.
figures() {
  mkdir -p "$RESULTS"
  awk '/^figure: [a-z_0-9]+ [0-9.]+$/ { most = /_percent|_most/ # for these the maximum, not the sum
      sum[$2] = most && sum[$2] > $3 ? sum[$2] : $3 + (most ? 0 : sum[$2]) }
    END { for (name in sum) printf "%s  \"%s\": %.10g", (n++ ? ",\n" : "{\n"), name, sum[name]; print n ? "\n}" : "{}" }' \
    "${@:2}" >"$RESULTS/reliability-$1.json"
}

with_gcc=(-DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++)
with_clang=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++)

stage_lint() { lint; }
stage_driver() {
  local steps_failed=0
  step "commands of the driver" "$ROOT/tests/driver.sh"
  step "what each gate is to find" "$ROOT/tests/gates.sh"
  step "what a release refuses, and what it makes" "$ROOT/tests/release.sh"
  step "what a mutant is" python3 "$ROOT/tests/mutants/mutants_test.py"
  step "peers that are not those we know" "$ROOT/tests/peers.sh"
  ((steps_failed == 0))
}

# The library as it is shipped, under every test except the model checker's.
build_gcc() { compile gcc release "${with_gcc[@]}" -DHAKMEM_TESTS=ON -DHAKMEM_RACES=OFF; }

# The library with assertions, under the tests that the sanitized builds, which also have assertions, do not run; and
# the model checker, which has assertions in every build and is built only here.
build_clang() { compile clang checked "${with_clang[@]}" -DHAKMEM_RACES=ON -DHAKMEM_TESTS_ONCE=ON; }
build_asan() { compile asan asan; }
build_tsan() { compile tsan tsan; }

stage_gcc() { build_gcc && ctest_in gcc; }
stage_clang() { build_clang && ctest_in clang; }
stage_asan() { build_asan && ctest_in asan; }
stage_tsan() { build_tsan && ctest_in tsan; }

# The two other pairs of compiler and build must compile without warnings; the tests that may depend on the pair run.
stage_pairs() {
  compile gcc-checked checked "${with_gcc[@]}" -DHAKMEM_TESTS=OFF
  TARGET=pairs compile clang-release release "${with_clang[@]}" -DHAKMEM_TESTS=ON -DHAKMEM_BENCH=ON -DHAKMEM_RACES=OFF
  ctest_in clang-release --label-regex pairs
}

# ---- what the editing loop runs ----

# Format, layers and scripts.
stage_text() {
  lint_text
}

# Runs the tests labelled quick, shortened, in the directory of stage gcc.
stage_quick() {
  TARGET=quick compile gcc release "${with_gcc[@]}" -DHAKMEM_TESTS=ON -DHAKMEM_RACES=OFF
  HAK_TEST_SHORTER=20 ctest_in gcc --label-regex quick
}

# The model checker's harnesses, without their seeded bugs.
stage_races() {
  TARGET=races compile clang checked "${with_clang[@]}" -DHAKMEM_RACES=ON -DHAKMEM_TESTS_ONCE=ON
  ctest_in clang --tests-regex '^races_[a-z_]*$' --exclude-regex _finds_
}

# ---- fuzzing ----

FUZZERS=(operations damage options)

# The words that the parser knows: names of options, and words their values may have.
fuzz_dictionary() {
  sed -n 's/^X(\([A-Z0-9_]*\), .*/"\1="/p' "$ROOT/src/base/options.h"
  sed -n 's/^X([A-Z0-9_]*, *CHOICE, [^"]*"\([^"]*\)".*/\1/p' "$ROOT/src/base/options.h" | tr '|' '\n' | sed 's/.*/"&"/'
  printf '"%s"\n' HAKMEM_ , / k m g t ib . on off yes no true false 18446744073709551615
}

# fuzz_target NAME SECONDS: continues from the corpus in build/fuzz/corpus/NAME and the seeds in
# tests/fuzz/corpus/NAME.
fuzz_target() {
  local corpus=$ROOT/build/fuzz/corpus/$1 log=$ROOT/build/fuzz/$1${HAKMEM_SECURE:+-secure}.log more=(-len_control=0 -max_len=4096)
  mkdir -p "$corpus"
  if [[ $1 == options ]]; then
    fuzz_dictionary >"$ROOT/build/fuzz/options.dict"
    more=(-max_len=512 -close_fd_mask=2 "-dict=$ROOT/build/fuzz/options.dict")
  fi
  if ! "$ROOT/build/fuzz/tests/fuzz/fuzz_$1" -max_total_time="$2" -timeout=60 -rss_limit_mb=1024 "${more[@]}" \
    -artifact_prefix="$ROOT/build/fuzz/$1-" "$corpus" "$ROOT/tests/fuzz/corpus/$1" >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "again: build/fuzz/tests/fuzz/fuzz_$1 FILE"
    return 1
  fi
  grep '^figure: ' "$log"
}

# fuzz_targets SECONDS NAME…
fuzz_targets() {
  local seconds=$(($1 * ${HAK_TEST_LONGER:-1})) steps_failed=0 name
  TARGET=fuzzers compile fuzz fuzz >"$ROOT/build/fuzz-build.log" 2>&1 || { cat "$ROOT/build/fuzz-build.log" && return 1; }
  for name in "${@:2}"; do
    step "fuzz $name" fuzz_target "$name" "$seconds"
    if [[ $name == damage ]] && grep '^X(SECURE,' "$ROOT/src/base/options.h" >/dev/null; then
      HAKMEM_SECURE=1 step "fuzz $name, secure mode" fuzz_target "$name" "$seconds"
    fi
  done
  ((steps_failed == 0))
}

fuzz() {
  local seconds=60 names=() status=0
  while (($#)); do
    case $1 in
      --seconds)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "fuzz: --seconds takes a number"
        seconds=$2
        shift
        ;;
      *)
        [[ " ${FUZZERS[*]} " == *" $1 "* ]] || die "fuzz: no such target: $1; there are: ${FUZZERS[*]}"
        names+=("$1")
        ;;
    esac
    shift
  done
  need "${BUILD_NEEDS[@]}" "${FUZZ_NEEDS[@]}"
  mkdir -p "$ROOT/build"
  ((${#names[@]})) || names=("${FUZZERS[@]}")
  fuzz_targets "$seconds" "${names[@]}" | tee "$ROOT/build/fuzz.log" || status=1
  figures fuzz "$ROOT/build/fuzz.log"
  return "$status"
}

# fuzz_readers SECONDS: each reader of the command gets damaged input for so long, all of a crate's at once.
fuzz_readers() {
  HAKMEM_FUZZ_SECONDS=$1 in_cli test --workspace --exclude hakmem-proto --lib --bins -- \
    --nocapture --test-threads 64 any_ every_fact
}

stage_fuzz() { fuzz_targets 5 "${FUZZERS[@]}"; }

# ---- proofs ----

CBMC_RELEASE=trixie # the first of Debian's with cbmc 6
CBMC_PACKAGES=(cbmc minisat libc6 libgcc-s1 libstdc++6)

# Where no package of this system's will do: unpacks that release's, and the libraries they need, below build/tools, where their own
# loader runs them. Takes no password, and nothing of the system changes.
unpack_cbmc() {
  local tools=$ROOT/build/tools/cbmc site get package loader
  site=$(apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' 2>/dev/null | grep -E -m 1 '/debian/?$') || true
  present dpkg-deb || site=
  [[ -n $site ]] || die "please install cbmc 6, a model checker for C: Debian 13 has it as cbmc"
  printf 'unpacking cbmc of Debian %s into build/tools …\n' "$CBMC_RELEASE" >&2
  rm -rf "$tools"
  mkdir -p "$tools"/{bin,root,lists/partial,archives/partial}
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$site" "$CBMC_RELEASE" >"$tools/sources.list"
  get=(apt-get -qq -o "Dir::Etc::SourceList=$tools/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$tools/lists"
    -o Dir::State::Status=/dev/null -o "Dir::Cache=$tools" -o APT::Sandbox::User=root)
  { "${get[@]}" update && (cd "$tools/archives" && "${get[@]}" download "${CBMC_PACKAGES[@]}"); } >"$tools/log" 2>&1 </dev/null ||
    { cat "$tools/log" >&2 && die "cbmc of Debian $CBMC_RELEASE cannot be had; please install cbmc 6"; }
  for package in "$tools"/archives/*.deb; do dpkg-deb -x "$package" "$tools/root"; done
  loader=$(compgen -G "$tools/root/usr/lib/*/ld-linux-*.so.*" | head -n 1)
  printf '#!/bin/sh\nexec %q --library-path %q:%q %q "$@"\n' "$loader" "${loader%/*}" "$tools/root/usr/lib" "$tools/root/usr/bin/cbmc" >"$tools/bin/cbmc"
  chmod +x "$tools/bin/cbmc"
  rm -r "$tools/archives" "$tools/lists"
}

# Puts cbmc 6 into PATH: that which is there, this system's package, or another release's.
need_cbmc() {
  export PATH=$ROOT/build/tools/cbmc/bin:$PATH
  present cbmc && return
  if [[ $(apt-cache policy cbmc 2>/dev/null) =~ Candidate:\ ([0-9]+)\. ]] && ((BASH_REMATCH[1] >= 6)); then
    need cbmc:cbmc
  else
    unpack_cbmc
  fi
  present cbmc || die "cbmc 6 or newer is needed; this one says: $(cbmc --version 2>&1 | head -n 1)"
}

# The leaves that cbmc can follow, for all inputs, and the bugs that it must find in them: tests/prove/prove.py.
prove() {
  local status=0
  need python3:python3 cc:gcc /usr/include/stdlib.h:libc6-dev
  if [[ ${1-} == --list ]]; then
    python3 "$ROOT/tests/prove/prove.py" --list
    return
  fi
  need_cbmc
  mkdir -p "$ROOT/build"
  python3 "$ROOT/tests/prove/prove.py" "$(type -P cbmc)" "$@" | tee "$ROOT/build/prove.log" || status=1
  (($#)) || figures prove "$ROOT/build/prove.log"
  return "$status"
}

# ---- long forms ----

# The table of programs, each under both mallocs; what has run with this library is not run again.
soak_programs() {
  need "${BUILD_NEEDS[@]}" python3:python3 setpriv:util-linux
  build_library
  python3 "$ROOT/tests/programs/soak.py" --library "$LIBRARY" --commit "$(git -C "$ROOT" describe --always --dirty)" \
    --results "$RESULTS/programs.json" --jobs "$JOBS" "$@"
}

# What real programs allocate and free, recorded and checked: tests/history/run.py.
soak_histories() {
  local status=0
  need "${BUILD_NEEDS[@]}" python3:python3 setpriv:util-linux
  build_library
  python3 "$ROOT/tests/history/run.py" --library "$LIBRARY" "$@" | tee "$ROOT/build/histories.log" || status=1
  (($#)) || figures histories "$ROOT/build/histories.log"
  return "$status"
}

# soak_mutants [COUNT] [OPTION…]: small changes of the sources, each of which a test must notice: tests/mutants/mutants.py. Those that
# no test does are for whoever reads the list: they fail nothing.
soak_mutants() {
  need "${BUILD_NEEDS[@]}" gcc:gcc g++:g++ 'g++ <gtest/gtest.h>:libgtest-dev' python3:python3 unshare:util-linux
  mkdir -p "$ROOT/build"
  python3 "$ROOT/tests/mutants/mutants.py" "$@" | tee "$ROOT/build/mutants.log"
  figures mutants "$ROOT/build/mutants.log"
}

# The tests' time limits are multiplied when the directory is configured.
soak() {
  case ${1-} in
    programs | histories | mutants)
      "soak_$1" "${@:2}"
      return
      ;;
  esac
  local times=${1:-10} status=0
  [[ $times =~ ^[1-9][0-9]*$ ]] || die "soak: TIMES is a number, not '$times'"
  need "${BUILD_NEEDS[@]}" "${TEST_NEEDS[@]}" "${EMULATION_NEEDS[@]}" "${RUST_NEEDS[@]}" "${PACKAGE_NEEDS[@]}"
  mkdir -p "$ROOT/build"
  HAK_LINT_NODES=225000 "$ROOT/hak" lint || status=1 # a process of its own, which ends at the first fault
  build_cli
  "$ROOT/tests/packages.sh" || status=1
  "$ROOT/tests/recipes.sh" || status=1
  "$ROOT/tests/wheel.sh" '' "$ROOT/build/whole-wheel" || status=1 # cargo builds the command, as in `pip install .`
  "$ROOT/tests/machines.sh" "$ROOT/build/machines" || status=1
  "$ROOT/hak" prove || status=1
  steady "$((4 * times))" | tee "$ROOT/build/steady.log" || status=1
  export HAK_TEST_LONGER=$times
  compile soak release "${with_gcc[@]}" -DHAKMEM_TESTS=ON >"$ROOT/build/soak-build.log" 2>&1 || { cat "$ROOT/build/soak-build.log" && return 1; }
  ctest_in soak | tee "$ROOT/build/soak.log" || status=1
  "$ROOT/hak" soak histories || status=1
  fuzz_targets 60 "${FUZZERS[@]}" | tee -a "$ROOT/build/soak.log" || status=1
  fuzz_readers "$((360 * times))" | tee -a "$ROOT/build/soak.log" || status=1
  HAKMEM_LIBRARY=$ROOT/build/soak/libhakmem.so in_cli test --workspace -- --ignored | tee -a "$ROOT/build/soak.log" || status=1 # by the clock
  figures soak "$ROOT/build/soak.log" "$ROOT/build/steady.log"
  return "$status"
}

# steady_run BUILD HOST: its tests once, more at a time than there are processors, on such a machine (tests/host.c). Not
# the model checker's, which is still alone; nor what a preloaded library is kept out of.
steady_run() {
  local log=$ROOT/build/steady/$1-$2.log host=() status=0
  [[ $2 == usual ]] || host=(LD_PRELOAD="$ROOT/build/$1/tests/libtest_host.so" HAK_TEST_HOST="$2")
  (ulimit -c 0 && env "${host[@]}" ctest --test-dir "$ROOT/build/$1" --output-on-failure --no-tests=error --timeout 3000 \
    --parallel $((3 * JOBS)) --exclude-regex '^races_|^privileged_test$' >"$log" 2>&1) || status=1
  ((status == 0)) || cat "$log" >>"$ROOT/build/steady/failed.log"
  sed -n "s/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \([^ ]*\) .*\*\*\*\([A-Za-z]*\).*/     $1 on a $2 machine: \1 \2/p" "$log"
  return "$status"
}

# steady TIMES: all tests again and again, under load and on machines of each kind. No verdict may hang on the machine.
steady() {
  local times=${1:-50} run build host failed=0
  local builds=(gcc clang asan tsan) hosts=(usual cheap dear late)
  [[ $times =~ ^[1-9][0-9]*$ ]] || die "steady: TIMES is a number, not '$times'"
  need "${BUILD_NEEDS[@]}" "${TEST_NEEDS[@]}"
  rm -rf "$ROOT/build/steady" && mkdir -p "$ROOT/build/steady"
  for build in "${builds[@]}"; do
    "build_$build" >"$ROOT/build/steady/$build.log" 2>&1 || { cat "$ROOT/build/steady/$build.log" && return 1; }
  done
  for ((run = 0; run < times; run++)); do
    host=${hosts[run % ${#hosts[@]}]}
    for build in "${builds[@]}"; do
      steady_run "$build" "$host" || failed=$((failed + 1))
    done
  done
  printf 'figure: steady_runs %d\nfigure: steady_failed_runs %d\n' $((times * ${#builds[@]})) "$failed"
  ((failed == 0)) || echo "what failed is in build/steady/failed.log"
  return $((failed != 0))
}

# Counters live in files that are mapped (%c), so that tests that abort count; one for each process (%p), so that code
# that ran before its file was mapped counts; and one for each library (%m), because two libraries that map one file
# overwrite each other or die of SIGBUS. The model checker's programs take long and contain only copies of the
# protocols, which do not count. Counting takes time, so the tests' time limits are tripled.
coverage() {
  local directory=$ROOT/build/coverage status=0 objects
  need "${BUILD_NEEDS[@]}" "${COVERAGE_NEEDS[@]}"
  mkdir -p "$directory"
  rm -rf "$directory/profiles"
  HAK_TEST_LONGER=3 compile coverage coverage -DHAKMEM_RACES=OFF >"$directory/build.log" 2>&1 || { cat "$directory/build.log" && return 1; }
  LLVM_PROFILE_FILE=$directory/profiles/%c%p-%m.profraw ctest_in coverage \
    >"$directory/tests.log" 2>&1 || status=1
  ((status == 0)) || grep -E 'Failed|FAILED|Timeout|hakmem: ' "$directory/tests.log"
  mapfile -t objects < <(find "$directory/tests" -type f -executable -name '*_test' -printf '-object\n%p\n')
  find "$directory/profiles" -name '*.profraw' >"$directory/profiles.txt"
  "$(clang --print-prog-name=llvm-profdata)" merge -sparse --input-files="$directory/profiles.txt" -o "$directory/all.profdata" &&
    "$(clang --print-prog-name=llvm-cov)" export -format=lcov -instr-profile "$directory/all.profdata" "$directory/libhakmem.so" "${objects[@]}" \
      "$ROOT/src" >"$directory/lines.info" &&
    python3 "$ROOT/tests/coverage.py" "$directory/lines.info" "$ROOT/src" 95 | tee "$directory/report.txt" || status=1
  figures coverage "$directory/report.txt"
  return "$status"
}

# ---- stages of several steps ----

# step NAME COMMAND…: prints one line, ok or FAIL, and returns in either case. Adds to `steps_failed`.
step() {
  local name=$1
  echo "---- $name"
  if "${@:2}"; then
    echo "ok   $name"
  else
    echo "FAIL $name"
    steps_failed=$((steps_failed + 1))
  fi
}

# Runs the workloads under HAKMEM, small. Each checks what it allocates, and tiny.toml contains all of them.
run_workloads() {
  local missing
  missing=$(comm -23 <(workloads) <(sed -n 's|^command = \["{bench}/\([a-z_]*\)".*|\1|p' \
    "$ROOT/bench/suites/tiny.toml" | LC_ALL=C sort -u))
  [[ -z $missing ]] || { echo "bench/suites/tiny.toml lacks: $missing" && return 1; }
  "$TOOL" compare --suite "$ROOT/bench/suites/tiny.toml" --var "bench=$BENCH/bench" --only hakmem --rounds 1
}

# What `./hak run` shows, in one round, which decides nothing.
run_demonstration() {
  local text line
  rm -f "$ROOT/build/service.svg"
  text=$(run_demo --rounds 1) || return
  for line in '  ━━━ hakmem  ─── system' 'HAKMEM against the system allocator, 1 round:' '  CPU time ' '  average memory ' \
    '  ./hak compare --area -- PROGRAM ARGS…' '  ./hak hakmem explain -- PROGRAM ARGS…'; do
    grep -F -- "$line" <<<"$text" >/dev/null || { printf 'not shown: %s\n%s\n' "$line" "$text" && return 1; }
  done
  grep '^<svg' "$ROOT/build/service.svg" >/dev/null
}

read_suite() { "$TOOL" compare --list --suite "$1" --var "bench=$BENCH/bench" --var "recipes=$ROOT/build" >/dev/null; }

# The command, which clippy compiles, its report in a browser, the suites, the workloads and the recorder.
stage_cli() {
  local steps_failed=0 name
  build_bench
  build_lines
  build_cli
  export HAKMEM_LIBRARY=$BENCH/libhakmem.so
  step "tests of the command" in_cli test --workspace
  step "report in a browser" python3 "$ROOT/cli/tests/report_browser.py" "$TOOL"
  step "map and live page in a browser" python3 "$ROOT/cli/tests/map_browser.py" "$TOOL" "$HAKMEM_LIBRARY"
  step "heap profiles" python3 "$ROOT/cli/tests/profile_test.py" "$TOOL" "$HAKMEM_LIBRARY"
  step recorder python3 "$ROOT/bench/traces/test_record.py" "$BENCH/bench/replay"
  step counts python3 "$ROOT/bench/test_counts.py" "$BENCH"
  for name in $(suite_names); do
    step "suite $name" read_suite "$ROOT/bench/suites/$name.toml"
  done
  for name in $(suite_names recipes); do
    step "recipe $name" read_suite "$ROOT/bench/recipes/$name.toml"
  done
  step "table of recipes" python3 "$ROOT/bench/recipes/test_page.py"
  step "every workload" run_workloads
  step "the first demonstration" run_demonstration
  ((steps_failed == 0))
}

# The crates, which clippy compiles, with malloc replaced; and what a program gets from their packages, with it as it
# is.
stage_rust() {
  local steps_failed=0
  need "${RUST_NEEDS[@]}"
  export CARGO_TARGET_DIR=$ROOT/build/rust
  cd "$ROOT/rust"
  cargo fetch --locked
  RUSTC_WORKSPACE_WRAPPER=clippy-driver RUSTFLAGS=-Dwarnings step "tests of the crates" \
    cargo test --locked --offline --all-features
  HAKMEM_SECURE=1 RUSTC_WORKSPACE_WRAPPER=clippy-driver RUSTFLAGS=-Dwarnings step "the same in secure mode" \
    cargo test --locked --offline --all-features --package hakmem --tests
  step packages "$ROOT/tests/crates.sh"
  ((steps_failed == 0))
}

# The wheel, around the command that stage cli builds, too.
stage_python() {
  need "${WHEEL_NEEDS[@]}" "${BUILD_NEEDS[@]}"
  build_cli
  "$ROOT/tests/wheel.sh" "$TOOL" "$ROOT/build/wheel"
}

# Every way in which a project uses the library, and what is installed beside it.
stage_install() {
  local steps_failed=0
  build_library
  step "a project that uses it" "$ROOT/tests/install/run.sh" "$ROOT/build/release"
  step "beside another malloc" "$ROOT/tests/install/beside.sh" "$ROOT/build/release"
  step "installed, used, removed" "$ROOT/tests/install/tree.sh"
  step "links in the way of the installer" "$ROOT/tests/install/links.sh"
  step "one file" "$ROOT/tests/install/amalgamation.sh"
  step "binary interface" "$ROOT/tests/install/abi.sh"
  ((steps_failed == 0))
}

# run_block BLOCK FOLDERS: its first line is a comment with its place, and what it needs: programs, files, root. The
# blocks of a page about programs share a folder below FOLDERS, in which the page's files are.
run_block() {
  local words need here=$ROOT page
  read -ra words <"$1"
  echo "---- ${words[1]}"
  for need in "${words[@]:2}"; do
    if { [[ $need == root ]] && ((EUID != 0)); } || { [[ $need != root ]] && ! present "$need"; }; then
      echo "left out: no $need here"
      return
    fi
  done
  page=${words[1]%.md:*}
  if [[ $page == docs/programs/* ]]; then # as a user who has installed HAKMEM; another user must be able to read it
    here=$2/${page##*/}
    if [[ ! -d $here ]]; then
      mkdir "$here" && cp "$LIBRARY" "$here" && chmod 1777 "$2" "$here"
      [[ ! -d $ROOT/$page ]] || cp "$ROOT/$page"/* "$here"
    fi
  fi
  (cd "$here" && LD_LIBRARY_PATH=$here HAKMEM_LIBRARY=$LIBRARY PATH=$ROOT/build:$PATH timeout 3000 bash -euo pipefail -x "$1" </dev/null)
}

# doc_blocks FOLDER: writes each block of the documentation opened by ```sh run into a file there, for run_block.
doc_blocks() {
  (cd "$ROOT" && awk -v out="$1" '
    /^```sh run/ { name = sprintf("%s/%03d", out, ++n); print "# " FILENAME ":" FNR substr($0, 10) > name; on = 1; next }
    /^```/ { on = 0 }
    on { print > name }' README.md docs/*.md docs/programs/*.md)
  [[ -n $(ls "$1") ]] || die "no block of the documentation is marked to be run"
}

# What ./hak doc writes.
GENERATED=(docs/{options,counters,tunables,migrating,reliability,tried}.md README.md cli/src/heap/terms.rs)

# Fails if ./hak doc would write other pages than there are.
doc_is_new() {
  local before file
  before=$(mktemp -d)
  for file in "${GENERATED[@]}"; do
    cp "$ROOT/$file" "$before"
  done
  doc
  for file in "${GENERATED[@]}"; do
    diff "$before/${file##*/}" "$ROOT/$file" || return
  done
  rm -r "$before"
}

# Runs every block of the documentation; checks that links lead somewhere and that the generated pages are up to date.
stage_docs() {
  local blocks folders block
  python3 "$ROOT/tests/pages.py"
  need redis-server:redis-server redis-benchmark:redis-tools "${WHEEL_NEEDS[@]}"
  build_library
  build_cli
  blocks=$(mktemp -d)
  folders=$(mktemp -d)
  doc_blocks "$blocks"
  for block in "$blocks"/*; do
    run_block "$block" "$folders"
  done
  rm -r "$folders" "$blocks"
  doc_is_new
}

# The emulated machines take too long for every run; ./hak soak runs them.
stage_machines() { "$ROOT/tests/machines.sh" "$ROOT/build/machines" sources musl; }

# A program that can't be installed must not keep the others from being tested: its own test reports that and fails.
stage_programs() {
  local steps_failed=0
  build_library
  step "long sessions" python3 "$ROOT/tests/programs/run.py" --library "$LIBRARY"
  step "what runs short ones" python3 "$ROOT/tests/programs/soak_test.py"
  step "short sessions" python3 "$ROOT/tests/programs/soak.py" --quick --jobs "$JOBS" --library "$LIBRARY"
  ((steps_failed == 0))
}

# counts LOG: prints "PASSED FAILED" for everything named in it: tests of ctest, cargo and Python, programs and steps.
counts() {
  awk '/ tests passed, [0-9]+ tests? failed out of / { bad += $4; good += $NF - $4 }
    /^test result: / { good += $4; bad += $6 }
    /^Ran [0-9]+ tests? in / { good += $2 }
    /^FAILED \(/ { n = 0; gsub(/[^0-9]+/, " "); for (i = 1; i <= NF; i++) n += $i; good -= n; bad += n }
    /^ok   / { good++ } /^FAIL / { bad++ } END { print good + 0, bad + 0 }' "$1"
}

# log_of NAME
log_of() { printf '%s/build/test-logs/%s.log' "$ROOT" "$1"; }

# cpu_seconds FILE: user and system time of the child processes, as bash's `times` wrote them.
cpu_seconds() { awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$1"; }

# Runs a stage and writes its output, status and times, for run_stages. Must not be called from a condition: that would
# turn off set -e.
run_stage() {
  local start=$SECONDS status
  set +e
  (
    set -e
    "stage_$1"
  ) >"$(log_of "$1")" 2>&1 </dev/null
  status=$?
  times >"$(log_of "$1").times"
  echo "$status $((SECONDS - start)) $(cpu_seconds "$(log_of "$1").times")" >"$(log_of "$1").ended"
}

# report_stage NAME: reports its result and adds to `passed` and `failed`. For a failed stage, prints the end of its
# log and the command to repeat it.
report_stage() {
  local name=$1 status seconds cpu good bad log
  log=$(log_of "$name")
  read -r status seconds cpu <"$log.ended"
  read -r good bad < <(counts "$log")
  passed=$((passed + good)) failed=$((failed + bad))
  if ((status == 0)); then
    passed=$((passed + 1))
    printf 'ok   %-9s %4d s %5d s CPU%s\n' "$name" "$seconds" "$cpu" "$( ((good)) && printf ' %5d tests' "$good")"
  else
    failed=$((failed + 1))
    printf 'FAIL %-9s %4d s   again: ./hak test %s   all of it: build/test-logs/%s.log\n' "$name" "$seconds" "$name" "$name"
    grep -E '^FAIL |\*\*\*(Failed|Timeout|Exception)|\[  FAILED  \]|^test .* FAILED$' "$log" | sort -u | head -n 20 | sed 's/^/     /' || true
    grep -vE ' Passed +[0-9.]+ sec$|^ +Start ' "$log" | tail -n 40 | sed 's/^/     | /' || true
  fi
}

# Prints how long the run has taken and what is running.
progress() {
  printf '     %2d:%02d' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
  ((${#running[@]} == 0)) || printf '   running: %s' "${running[*]}"
  if [[ -t 1 ]]; then
    printf ' …\033[K\r'
  else
    printf '\n'
  fi
}

# Waits until a stage of `running` has ended, and reports those that have.
reap() {
  local name left=()
  wait -n || true
  for name in "${running[@]}"; do
    if [[ -f $(log_of "$name").ended ]]; then
      report_stage "$name"
    else
      left+=("$name")
    fi
  done
  running=("${left[@]}")
  progress
}

# run_stages NAME…: runs two at a time, because a stage that links or waits leaves cores to the other. Each is a
# process group: an interrupt reaches its programs, which do not start with SIGINT ignored.
run_stages() {
  local running=() began=$SECONDS name
  set -m
  trap 'trap - INT TERM; kill -- $(jobs -p | sed s/^/-/) 2>/dev/null; exit 130' INT TERM
  for name; do
    ((${#running[@]} < 2)) || reap
    rm -f "$(log_of "$name").ended"
    run_stage "$name" &
    running+=("$name")
    progress
  done
  while ((${#running[@]})); do
    reap
  done
  trap - INT TERM
  set +m
}

run_tests() {
  local passed=0 failed=0 stages=("${STAGES[@]}") needs=("${BUILD_NEEDS[@]}" "${TEST_NEEDS[@]}" "${RUST_NEEDS[@]}" "${MUSL_NEEDS[@]}")
  case ${1-} in
    --coverage)
      coverage
      return
      ;;
    quick) stages=("${QUICK_STAGES[@]}") needs=("${BUILD_NEEDS[@]}" "${QUICK_NEEDS[@]}") ;;
    '') ;;
    *)
      [[ " ${STAGES[*]} ${QUICK_STAGES[*]} " == *" $1 "* ]] || die "no such stage: $1; there are: quick ${STAGES[*]}"
      stages=("$1")
      ;;
  esac
  need "${needs[@]}"
  [[ " ${stages[*]} " != *" programs "* ]] || install_programs "${PROGRAM_NEEDS[@]}"
  mkdir -p "$ROOT/build/test-logs"
  export HAK_CLI_PROFILE=dev
  build_library # here, so that no two stages build it at the same time
  run_stages "${stages[@]}"
  (($#)) || figures test "$ROOT"/build/test-logs/*.log
  printf '%d passed, %d failed\n' "$passed" "$failed"
  ((failed == 0))
}
