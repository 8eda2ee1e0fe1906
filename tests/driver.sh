#!/usr/bin/env bash
# ./hak run keeps its promise: the program's own output, input, arguments and exit status, and nothing else.
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

"$HAK" build
expect 0 'build/release/libhakmem.so' run sh -c 'grep -o "build/release/libhakmem.so" /proc/self/maps | sort -u'
expect 7 '' run sh -c 'exit 7'
expect 143 '' run sh -c 'kill $$'
expect 0 'input' run cat
expect 0 '[a  b] []' run printf '[%s] [%s]' 'a  b' ''
cd /
expect 0 '/' run pwd

! "$HAK" no-such-command 2>/dev/null || fail "an unknown command is taken for a good one"
! "$HAK" test no-such-stage 2>/dev/null || fail "an unknown stage is taken for a good one"
"$HAK" help | grep '^usage: ' >/dev/null || fail "no help"
