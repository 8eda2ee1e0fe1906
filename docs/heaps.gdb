# What a hung program's heaps are doing: gdb -batch -p PID -x docs/heaps.gdb (a library with debug information; docs/protocols.md)
# SPDX-License-Identifier: MIT
set pagination off
printf "pool: %d settlings, gathered %d, %lu SuperSlabs, %u unmapped\n", hak_presence.settlings, hak_presence.gathered, hak_region_use.superslabs, hak_region_use.unmapped
if hak_presence.page
  printf "purger: state %u (0 none, 1 made, 2 ends, 3 waits, 4 leaves, 5 runs, 6 parked, 7 called)\n", hak_presence.page->purger
end
set $h = heap_newest_made
while $h
  printf "heap %u at %p: in_use %d, caches_busy %d, caches_flags %u, slabs owned %u, on loan %u\n", $h->number, $h, $h->in_use, $h->caches_busy, $h->caches_flags, $h->owned.slabs, $h->lent.slabs
  set $h = $h->next
end
thread apply all -q printf "thread %d has heap %p\n", $_thread, hak_heap
thread apply all backtrace 12
