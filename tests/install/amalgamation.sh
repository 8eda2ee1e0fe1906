#!/usr/bin/env bash
# Tests the single file that `./hak amalgamate` writes: gcc, clang and musl-gcc compile it without a warning, programs
# run with it in C and in C++ and with link-time optimization, and with HAKMEM_NO_OVERRIDE it leaves malloc alone.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/../kit.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
FLAGS=(-std=gnu17 -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Wundef -Werror)

# works COMPILER FLAGS…: compiles the file and a program, and runs that.
works() {
  local made=$SCRATCH/$1
  mkdir "$made"
  "$1" "${FLAGS[@]}" "${@:2}" -c "$SCRATCH/hakmem.c" -o "$made/hakmem.o" || fail "$1 does not compile it"
  "$1" -O1 -I"$SCRATCH" "$HERE/consumer.c" "$made/hakmem.o" -pthread -o "$made/consumer"
  [[ $("$made/consumer") == 'consumer works' ]] || fail "a program by $1 does not work"
  HAKMEM_STATS=1 "$made/consumer" 2>&1 | grep '^hakmem [0-9]' >/dev/null || fail "a program by $1 has no statistics"
}

"$HERE/../../hak" amalgamate "$SCRATCH"
works gcc -O2 &
gcc=$!
works clang -O0 && works musl-gcc -O0
wait $gcc
for compiler in gcc clang; do
  "${compiler/%gcc/g++}" -std=c++17 -I"$SCRATCH" "$HERE/consumer.cc" "$SCRATCH/$compiler/hakmem.o" -lstdc++ -pthread \
    -o "$SCRATCH/cc"
  [[ $("$SCRATCH/cc") == 'consumer works' ]] || fail "a program in C++ by $compiler does not work"
done
gcc "${FLAGS[@]}" -O1 -flto=2 "$HERE/plain.c" "$SCRATCH/hakmem.c" -pthread -o "$SCRATCH/lto"
HAKMEM_STATS=1 "$SCRATCH/lto" 2>&1 | grep '^hakmem [0-9]' >/dev/null || fail "with -flto malloc is another one"
readelf --notes "$SCRATCH/lto" | grep HAKMEM >/dev/null || fail "with -flto hakmem explain does not find the heap"
gcc "${FLAGS[@]}" -DHAKMEM_NO_OVERRIDE -DCONSUMER_EMBEDS -I"$SCRATCH" "$HERE/consumer.c" "$SCRATCH/hakmem.c" -pthread \
  -o "$SCRATCH/embedded"
[[ $("$SCRATCH/embedded") == 'consumer works' ]] || fail "a program with HAKMEM_NO_OVERRIDE does not work"
! nm --defined-only "$SCRATCH/embedded" | grep -wE 'malloc|free|calloc|realloc' || fail "it defines malloc"
echo "one file works"
