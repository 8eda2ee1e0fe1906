#!/usr/bin/env bash
# Tests that ./hak run keeps its promise: the program's own output, input, arguments and exit status, and nothing else;
# and that the driver reports in one line what it cannot do.
# SPDX-License-Identifier: MIT
set -euo pipefail
HAK=$(cd "$(dirname "$0")/.." && pwd)/hak

fail() {
  printf 'driver: %s\n' "$*"
  exit 1
}

# expect STATUS OUTPUT COMMAND…: runs ./hak COMMAND…, with "input" on its standard input; stderr must stay empty.
expect() {
  local status=$1 output=$2 got=0 errors text
  shift 2
  errors=$(mktemp)
  text=$("$HAK" "$@" <<<input 2>"$errors") || got=$?
  [[ $got == "$status" ]] || fail "'$*' ended with status $got, not $status"
  [[ $text == "$output" ]] || fail "'$*' printed '$text', not '$output'"
  [[ ! -s $errors ]] || fail "'$*' wrote to stderr: $(cat "$errors")"
  rm "$errors"
}

# refuse MESSAGE COMMAND…: ./hak COMMAND… must fail with this as its first line, and print nothing on stdout.
refuse() {
  local message=$1 text errors
  shift
  errors=$(mktemp)
  ! text=$("$HAK" "$@" 2>"$errors" </dev/null) || fail "'$*' is taken for a good command"
  [[ -z $text ]] || fail "'$*' printed '$text'"
  [[ $(head -n 1 "$errors") == "$message" ]] || fail "'$*' said '$(cat "$errors")', not '$message'"
  rm "$errors"
}

"$HAK" build
expect 0 'build/release/libhakmem.so' run sh -c 'grep -o "build/release/libhakmem.so" /proc/self/maps | sort -u'
expect 7 '' run sh -c 'exit 7'
expect 143 '' run sh -c 'kill $$'
expect 0 'input' run cat
expect 0 '[a  b] []' run printf '[%s] [%s]' 'a  b' ''
cd /
expect 0 '/' run pwd

got=0
refuse 'hak: run: /nonexistent: no such program' run /nonexistent
refuse 'hak: run: no-such-program: no such program' run no-such-program --help
refuse 'hak: run: /tmp: no such program' run /tmp
"$HAK" run /nonexistent 2>/dev/null || got=$?
[[ $got == 127 ]] || fail "a program that is not there ends with status $got, not the shells' 127"
[[ $("$HAK" --version) =~ ^hakmem\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "no version"
refuse 'hak: no such command: nonsense; see ./hak help, or ./hak hakmem --help for those of hakmem' nonsense
refuse 'hak: usage: ./hak compare [OPTIONS] -- PROGRAM ARGS…; --help says more' compare
refuse 'hak: usage: ./hak build [checked]' build nonsense
! "$HAK" test no-such-stage 2>/dev/null || fail "an unknown stage is taken for a good one"
refuse 'hak: fuzz: no such target: nope; there are: operations damage options' fuzz nope
refuse 'hak: fuzz: --seconds takes a number' fuzz operations --seconds soon
refuse "hak: soak: TIMES is a number, not 'long'" soak long
refuse "hak: steady: TIMES is a number, not 'often'" steady often
"$HAK" prove --list | grep '^block_starts: Each class ' >/dev/null || fail "the proofs are not listed"
"$HAK" help | grep '^usage: ' >/dev/null || fail "no help"

# Compilers of other versions than this machine's: packages for a version that is not in use do not count.
others=$(mktemp -d)
trap 'rm -r "$others"' EXIT
cat >"$others/clang" <<'END'
#!/bin/sh
case "$*" in
  *-###*) echo ' "/nowhere/lib/clang/19/lib/linux/libclang_rt.fuzzer-x86_64.a" "x.o"' >&2 ;;
  -dumpversion) echo 19.1.7 ;;
  -v) echo 'Selected GCC installation: /usr/lib/gcc/x86_64-linux-gnu/14' >&2 ;;
  --print-prog-name=*) echo "${1#*=}" ;;
esac
END
printf '#!/bin/sh\nexit 1\n' >"$others/clang++"
printf '#!/bin/sh\necho cargo 1.75.0\n' >"$others/cargo"
printf '#!/bin/sh\necho "clippy 0.1.75 (0 2024-01-01)"\n' >"$others/cargo-clippy"
chmod +x "$others"/*
lacking=$(PATH=$others:$PATH "$HAK" needs)
for one in libclang-rt-19-dev libstdc++-14-dev llvm-19 'cargo(-web)?' '(rust-web|rust)-clippy'; do
  grep -Ex -- "${one//+/\\+}" <<<"$lacking" >/dev/null || fail "with other compilers $one is not missed: $lacking"
done
rm "$others"/clang*
! PATH=$others:$PATH "$HAK" needs | grep -E '^(libclang-rt|llvm)' >/dev/null || fail "this machine's clang is not asked"

"$HAK" bench --help | grep '^usage: ' >/dev/null || fail "no help for bench"
"$HAK" bench --workload-list | grep '^string_map ' >/dev/null || fail "the C++ workloads are not listed"
refuse 'hak: bench: no-such-workload: no such workload; there are:' bench no-such-workload 1 2
{ ! "$HAK" bench no-such-workload; } 2>&1 | grep '^random_mixed ITERATIONS' >/dev/null ||
  fail "the workloads are not listed"
refuse 'hak: bench: --rounds takes a value' bench random_mixed --rounds
refuse 'hak: bench: no workload is named; see ./hak bench --help' bench --rounds 3
suites='all area changing field quick real reports service sweep tiny traces'
refuse "hak: bench suite: name a file, or one of: $suites" bench suite
refuse "hak: bench suite: nope: no such suite; there are: $suites" bench suite nope
refuse 'hak: bench suite: nope.toml: no such file' bench suite nope.toml
recipes=$(basename -s .toml -a "$(dirname "$HAK")"/bench/recipes/*.toml | LC_ALL=C sort | xargs)
refuse "hak: bench recipes: nope: no such recipe; there are: $recipes" bench recipes nope
refuse 'hak: bench report takes no arguments; build/hakmem report --help does' bench report nope
