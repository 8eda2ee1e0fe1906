#!/usr/bin/env bash
# Tests HAKMEM beside what else wants to be the malloc of a program: beside.sh BUILD_DIRECTORY (a release build).
# Sanitizers, a malloc of the program's own, and libc's malloc where HAKMEM comes late, with a plugin. Either all works,
# or whoever ends the program says why.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/../kit.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
BUILD=$(cd "$1" && pwd)
cd "$SCRATCH"
SHARED=("$BUILD/libhakmem.so" "-Wl,-rpath,$BUILD")

fail() {
  printf 'beside: %s: %s\n' "$*" "$(cat out)"
  exit 1
}

# works NAME COMMAND…: prints this and nothing else.
works() {
  "${@:2}" >out 2>&1 || fail "$1 ends with status $?"
  [[ $(cat out) == 'consumer works' ]] || fail "$1"
  echo "$1 works"
}

# says TEXT NAME COMMAND…: it ends with a status, not by a signal, and says this.
says() {
  local status=0
  "${@:3}" >out 2>&1 || status=$?
  ((status > 0 && status < 128)) || fail "$2 ends with status $status"
  grep -F -- "$1" out >/dev/null || fail "$2"
  echo "$2 says why not"
}

# The sanitizer's malloc is the program's, except that UndefinedBehaviorSanitizer has none. Only gcc's runtimes are
# libraries, which a preloaded one comes before.
sanitized() {
  local cc sanitizer program preloaded=(env "LD_PRELOAD=$BUILD/libhakmem.so")
  for cc in gcc clang; do
    for sanitizer in address undefined thread leak; do
      program="a program by $cc -fsanitize=$sanitizer"
      "$cc" -O1 "-fsanitize=$sanitizer" "$HERE/plain.c" -o plain -pthread
      "$cc" -O1 "-fsanitize=$sanitizer" "$HERE/plain.c" -o shared -pthread "${SHARED[@]}"
      "$cc" -O1 "-fsanitize=$sanitizer" "$HERE/plain.c" -o static -pthread "$BUILD/libhakmem.a"
      works "$program, linked" ./shared
      works "$program, linked statically" ./static
      case $cc-$sanitizer in
        gcc-address) says 'ASan runtime does not come first' "$program, preloaded" "${preloaded[@]}" ./plain ;;
        gcc-thread) says 'FATAL: ThreadSanitizer: unexpected memory mapping' "$program, preloaded" \
          "${preloaded[@]}" ./plain ;;
        *) works "$program, preloaded" "${preloaded[@]}" ./plain ;;
      esac
    done
  done
}

own_malloc() {
  local sight
  for sight in default hidden; do
    gcc -O1 -fno-builtin "-DOWN=\"$sight\"" "$HERE/own_malloc.c" -o own
    gcc -O1 -fno-builtin "-DOWN=\"$sight\"" "$HERE/own_malloc.c" -o own_linked -Wl,--no-as-needed "${SHARED[@]}"
    works "a malloc of its own, $sight" env "LD_PRELOAD=$BUILD/libhakmem.so" ./own
    works "a malloc of its own, $sight, linked" ./own_linked
  done
  gcc -O1 -fno-builtin -DOWN='"default"' -static "$HERE/own_malloc.c" -o own_static
  works "a malloc of its own in a static program" env "LD_PRELOAD=$BUILD/libhakmem.so" ./own_static
}

late() {
  local flags
  gcc -O1 -I"$HERE/../../include" -shared -fPIC "$HERE/late_plugin.c" -o late_plugin.so "${SHARED[@]}"
  gcc -O1 "$HERE/late_host.c" -o late_host -pthread
  for flags in local global; do
    works "a plugin with HAKMEM, $flags" ./late_host ./late_plugin.so "$flags"
  done
  { ! ./late_host ./late_plugin.so deep; } >out 2>&1 || fail "a block of libc's is freed by HAKMEM"
  grep -x 'each keeps its blocks' out >/dev/null || fail "a plugin with HAKMEM, RTLD_DEEPBIND"
  grep '^hakmem: invalid free of 0x[0-9a-f]* (not a block of this heap)$' out >/dev/null ||
    fail "no line says what is wrong"
  echo "a plugin with HAKMEM, RTLD_DEEPBIND, works"
}

sanitized
own_malloc
late
