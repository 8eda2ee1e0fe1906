#!/usr/bin/env bash
# record.sh [NAME…]: records the traces of this directory again, all or the named ones: NAME.trace.xz.
#
# Needs Debian's packages gcc g++ python3.11 perl sqlite3 nodejs rocksdb-tools xz-utils. A program's allocations depend
# on its version and, with threads, on the machine's scheduling: a new recording is another trace. `trace.py sum`
# prints a trace's figures, `trace.py show` its calls.
# SPDX-License-Identifier: MIT
set -euo pipefail
PATH=/usr/bin:/bin # a wrapper found first would be recorded instead
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cc -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -fno-builtin \
  -o "$work/record.so" "$here/../record.c"

# record NAME [VARIABLE=VALUE…] PROGRAM ARGS…: runs it with no other environment, and packs its calls.
record() {
  local name=$1
  shift
  (cd "$work" && env -i PATH="$PATH" HOME="$work" LC_ALL=C.UTF-8 TRACE_RECORD="$work/$name.raw" \
    LD_PRELOAD="$work/record.so" "$@") >"$work/$name.out" 2>&1 || {
    tail "$work/$name.out" >&2
    echo "record.sh: $name has failed" >&2
    exit 1
  }
  python3 "$here/trace.py" pack "$work/$name.raw" "$work/$name.trace"
  xz -9e -c "$work/$name.trace" >"$here/$name.trace.xz"
  rm "$work/$name.raw"
}

trace_python() { record python PYTHONMALLOC=malloc PYTHONHASHSEED=1 python3.11 "$here/programs/rows.py"; }
trace_perl() { record perl PERL_HASH_SEED=1 perl "$here/programs/words.pl"; }
trace_sqlite() { record sqlite sqlite3 :memory: ".read $here/programs/tables.sql"; }
trace_node() { record node node "$here/programs/server.js"; }
trace_cc1plus() {
  record cc1plus "$(g++ -print-prog-name=cc1plus)" -quiet -imultiarch "$(g++ -print-multiarch)" \
    "$here/programs/containers.cc" -o "$work/containers.s"
}
trace_rocksdb() {
  record rocksdb db_bench --benchmarks=fillrandom,readwhilewriting --num=5000 --threads=4 --value_size=200 --seed=1 \
    --db="$work/db" --write_buffer_size=262144 --compression_type=none --stats_interval=1000000000
}

(($#)) || set -- python perl sqlite cc1plus node rocksdb
for name; do
  "trace_$name"
done
