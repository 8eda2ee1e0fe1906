#!/bin/sh
# Tests the switches for examining a program. If they fail, someone with a bug does not get the output they were
# promised. switches.sh LIBRARY CHECKED: CHECKED is 1 for the build that has the debug log.
# SPDX-License-Identifier: MIT
set -u
library=$1 checked=$2 failed=0

under() { env "$@"; }

# expect NAME PATTERN TEXT: some line of the text must match.
expect() {
  printf '%s\n' "$3" | grep -Eq "$2" && return
  printf 'FAIL %s: no line like %s in:\n%s\n' "$1" "$2" "$3"
  failed=1
}

numbers=$(seq 1 20000)
plain=$(printf '%s\n' "$numbers" | sort -r | cksum)
for setting in SUPERSLAB=0 SUPERSLAB=1 PURGE=eager PURGE=never HUGE_PAGES=always REGION_BYTES=0 DRAIN=0; do
  got=$(printf '%s\n' "$numbers" | under LD_PRELOAD="$library" HAKMEM_$setting sort -r | cksum)
  expect "sort under $setting" "^$plain\$" "$got"
done

crash=$(under LD_PRELOAD="$library" HAKMEM_CRASH_LOG=1 sh -c 'kill -SEGV $$' 2>&1)
expect "the crash line" '^hakmem: signal 11 in process [0-9]+ at 0x0 \(no address\); heap of ' "$crash"

text=$(under LD_PRELOAD="$library" HAKMEM_STATS=1 perl -e 'close STDERR' 2>&1)
expect "statistics though the program closed its standard error" '^hakmem [0-9.]+, process [0-9]+ \(perl\): ' "$text"

if [ "$checked" != 1 ]; then
  log=$(under LD_PRELOAD="$library" HAKMEM_DEBUG=acquire,lru sh -c 'sh -c :; sh -c :' 2>&1)
  # shellcheck disable=SC2016 # the line quotes a command
  expect "who logs" \
    '^hakmem: HAKMEM_DEBUG=acquire,lru: only the checked build logs events; `./hak build checked` makes it$' "$log"
  expect "who logs, once for the shells" '^1$' "$(printf '%s\n' "$log" | grep -c ^)"
fi

if [ "$checked" = 1 ]; then
  log=$(printf '%s\n' "$numbers" "$numbers" "$numbers" |
    under LD_PRELOAD="$library" HAKMEM_DEBUG=acquire,free,lru,drain sort -r --parallel=2 2>&1 >/dev/null)
  expect "stage 2" '^\[SP_ACQUIRE_STAGE2\] class=[0-9]+ using UNUSED slot \(ss=0x[0-9a-f]+ slab=[0-9]+\)$' "$log"
  expect "stage 3" '^\[SP_ACQUIRE_STAGE3\] class=([0-9]+|large|huge) new SuperSlab \(ss=0x[0-9a-f]+ from_lru=[01]\)$' \
    "$log"
  expect "the cache" '^\[SS_LRU_INIT\] max_cached=256 max_memory_mb=512 ttl_sec=60$' "$log"
  expect "a cache miss" '^\[LRU_POP\] class=([0-9]+|large|huge) \(miss\) \(cache_size=0/256\)$' "$log"
  # shellcheck disable=SC2016 # the $_ is perl's
  log=$(under LD_PRELOAD="$library" HAKMEM_DEBUG=free,acquire perl -e \
    'for (1 .. 3) { my @a = map { "x" x 200 . $_ } 1 .. 20000; }' 2>&1)
  expect "a slot given back" \
    '^\[SP_SLOT_RELEASE\] ss=0x[0-9a-f]+ slab_idx=[0-9]+ class=[0-9]+ used=0 \(marking EMPTY\)$' "$log"
  expect "stage 1" '^\[SP_ACQUIRE_STAGE1\] class=[0-9]+ reusing EMPTY slot \(ss=0x[0-9a-f]+ slab=[0-9]+\)$' "$log"
  slot='\(ss=0x[0-9a-f]+ slab=[0-9]+'
  expect "stage 0" "^\[SP_ACQUIRE_STAGE0_L0\] class=[0-9]+ using the slot given back last $slot\)\$" "$log"
  expect "stage 0.5" "^\[SP_ACQUIRE_STAGE0\.5_EMPTY\] class=[0-9]+ found by a scan $slot empty_count=[0-9]+\)\$" "$log"
  expect "the list of EMPTY slots" \
    "^\[SP_SLOT_FREELIST\] class=[0-9]+ pushed slot $slot\) count=[0-9]+ active_slots=[0-9]+/32\$" "$log"
  expect "a slab that is empty" '^\[EMPTY detected\] ss=0x[0-9a-f]+ slab_idx=[0-9]+ class=[0-9]+$' "$log"
  # shellcheck disable=SC2016 # the $_ is perl's
  log=$(under LD_PRELOAD="$library" HAKMEM_DEBUG=free,drain,retries HAKMEM_SS_CACHE_COUNT=0 HAKMEM_RING_BYTES=64m \
    perl -e 'my $ballast = "x" x 64e6; for (1 .. 4) { my @a = map { "x" x 8000 . $_ } 1 .. 900; }
             my @b = map { "x" x 900 . $_ } 1 .. 60000;' 2>&1)
  expect "an eviction" '^\[SS_FREE\] ss=0x[0-9a-f]+ evicted: cache_evicted_(count|bytes) \(cache_size=[0-9]+/0\)$' \
    "$log"
  expect "a drain before a new SuperSlab" \
    '^\[TENSION_DRAIN\] a new SuperSlab was taken: [0-9]+ spans came back from rings and outbox$' "$log"
  expect "retries" \
    '^\[RETRIES\] pool=[0-9]+ inbox=[0-9]+ mid=[0-9]+ offers=[0-9]+ of [0-9]+ atomic read-modify-writes$' "$log"
  expect "the drain, once a process" '^2$' \
    "$(printf '%s\n' "$log" | grep -c '^\[TLS_SLL_DRAIN\] \(Drain ENABLED\|Interval=1024\) (default)$')"
  # shellcheck disable=SC2016 # likewise
  log=$(under LD_PRELOAD="$library" HAKMEM_DEBUG=tables HAKMEM_GUARD_SAMPLE_BYTES=1 perl -e \
    'my @a = map { "x" x 200 . $_ } 1 .. 20000;' 2>&1)
  expect "a full table" '^\[TABLE_FULL\] guarded samples: all [0-9]+ places are taken$' "$log"
  # The lines about a SuperSlab, taken and given back, identify a block by its address.
  for kind in "large 300000 SP_SLOT_RELEASE" "huge 9000000 SP_SLOT_COMPLETELY_EMPTY"; do
    # shellcheck disable=SC2086 # three words
    set -- $kind
    # shellcheck disable=SC2016 # the $s is perl's
    log=$(under LD_PRELOAD="$library" HAKMEM_DEBUG=acquire,free HAKMEM_TUNE=ring_blocks=1 HAKMEM_RING_BYTES=0 perl -e \
      'my $s = "x" x shift; printf "block %d\n", unpack("Q", pack("p", $s)); undef $s;' "$2" 2>&1)
    block=$(printf '%s\n' "$log" | sed -n 's/^block //p')
    superslab=$(printf '0x%x' $((block / 2097152 * 2097152)))
    expect "a $1 block taken" "^\[SP_ACQUIRE_STAGE[123]\] class=$1 .*\(ss=$superslab " "$log"
    expect "a $1 block given back" "^\[$3\] ss=$superslab " "$log"
    printf '%s\n' "$log" | grep -Eq 'class=[0-9]{4,}' && expect "only classes that there are" '^$' "$log"
  done
fi
exit $failed
