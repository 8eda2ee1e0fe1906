#!/usr/bin/env bash
# Other machines and other libcs: machines.sh BUILD_DIRECTORY [STEP…]. If it fails, HAKMEM works only here.
#   sources       no source but base.h and os_* depends on the machine, the system or the compiler; machines of 32 bits
#                 and big-endian ones are refused in one line
#   aarch64-smoke gcc; the tests that cover most in a minute, under qemu with pages of 4 KiB and of 64 KiB; left out
#                 where the system cannot run them
#   aarch64       gcc; the suitable tests run under qemu with pages of 4 KiB
#   aarch64-16k   the tests that depend on the page size, with pages of 16 KiB; aarch64-64k: with pages of 64 KiB
#   aarch64-clang with assertions, pages of 64 KiB
#   riscv64       gcc; the plain C test and the stack, linked in each way, under qemu
#   musl          gcc; the plain C test, linked in each way, and every workload in C; clang reads the sources
# Installs nothing. Each step ends in a line "ok   NAME" or "FAIL NAME".
# SPDX-License-Identifier: MIT
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
(($#)) || { echo "usage: machines.sh BUILD_DIRECTORY [STEP…]" && exit 2; }
mkdir -p "$1"
BUILD=$(cd "$1" && pwd)
shift
JOBS=$(getconf _NPROCESSORS_ONLN)
SYSROOT=/usr/aarch64-linux-gnu
MUSL=/usr/include/x86_64-linux-musl
STEPS=(sources aarch64 aarch64-16k aarch64-64k aarch64-clang riscv64 musl)

# PROBE:PACKAGE, as in ./hak.
NEEDS=(cmake:cmake ninja:ninja-build clang:clang g++:g++ ctest:cmake)
AARCH64_NEEDS=(aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu
  unshare:util-linux
  qemu-aarch64-static:qemu-user-static /usr/src/googletest/CMakeLists.txt:googletest)
MUSL_NEEDS=(musl-gcc:musl-tools)
RISCV64_NEEDS=(riscv64-linux-gnu-gcc:gcc-riscv64-linux-gnu riscv64-linux-gnu-g++:g++-riscv64-linux-gnu
  qemu-riscv64-static:qemu-user-static)

# need_all STEP…
need_all() {
  local need missing=()
  [[ " $* " != *" aarch64"* ]] || NEEDS+=("${AARCH64_NEEDS[@]}")
  [[ " $* " != *" riscv64 "* ]] || NEEDS+=("${RISCV64_NEEDS[@]}")
  [[ " $* " != *" musl "* ]] || NEEDS+=("${MUSL_NEEDS[@]}")
  for need in "${NEEDS[@]}"; do
    case $need in
      /*) [[ -e ${need%%:*} ]] || missing+=("${need#*:}") ;;
      *) command -v "${need%%:*}" >/dev/null || missing+=("${need#*:}") ;;
    esac
  done
  ((${#missing[@]} == 0)) || { echo "FAIL needs what Debian calls: ${missing[*]}" && exit 1; }
}

# ---- sources ----

# Allows only include guards and HAK_CHECKED, the one switch of the build.
directives() {
  local others
  others=$(find "$ROOT/src" -name '*.[ch]' -o -name '*.cc' | grep -v '/base\.h$\|/os_[a-z]*\.[ch]$' |
    xargs grep -HnE '^[[:space:]]*#[[:space:]]*(if|ifdef|ifndef|elif)|__(x86_64|aarch64|linux|GLIBC|clang|GNUC)_*' |
    grep -vE ':#ifndef HAK_[A-Z_]+_H$|:#ifdef HAK_CHECKED$' || true)
  [[ -z $others ]] || { echo "$others" && return 1; }
}

# What a machine for which HAKMEM is not made gets to read, before any header of its own is looked for.
refusals() {
  local target message='error: .*HAKMEM needs a 64-bit little-endian machine: x86-64, aarch64 or riscv64'
  for target in i386 x86_64-linux-gnux32 armv7 powerpc64 powerpc64le aarch64_be riscv32 s390x; do
    [[ $(printf '#include "base/base.h"\n' | clang --target="$target" -fsyntax-only -iquote "$ROOT/src" -x c - 2>&1 |
      grep -m 1 ' error: ') =~ $message ]] || { echo "$target is not refused" && return 1; }
  done
}

# ---- aarch64 ----

# Reasons: glibc's own memalign crashes under qemu; 10,000 threads, 1 TiB, and the library's options with a process for
# each take too long there; one test knows the purger by the number of the system call it waits in, which is the host's;
# some compare faults, or what the kernel says is resident, where the emulator's own memory counts, too; and one sets
# REGION_BYTES, but under an emulator nothing is reserved.
NOT_EMULATED="-*AlignedAllocEdges:*MemalignEdges:*TenThousandAlive*:*MainEndsFirst:*Sparse*:BadOption.*"
NOT_EMULATED+=":*BlocksOutliveTheirThreads:*OneAfterAnotherUseTheSamePages:*RssIsExplained*:*UntouchedBlocksAreNoTerm"
NOT_EMULATED+=":Moves.WhatGrewAndWasFreedServesTheNext:Audit.OptionsInTheEnvironmentCount"

# emulated PAGE_BYTES COMMAND…: runs aarch64 programs, also those that the command starts. Where the system cannot run
# them, registers qemu with the kernel in a namespace of its own.
emulated() {
  local page=$1
  shift
  export QEMU_LD_PREFIX=$SYSROOT QEMU_PAGESIZE=$page HAK_TEST_SHORTER=20
  export GTEST_FILTER="$NOT_EMULATED"
  if ((page != 4096)); then
    GTEST_FILTER+=":MallocTrim.*:*TrimGivesBack*" # these tests read the statistics
    # Where a page is larger than the host's, qemu does not know of the dynamic linker's last one, in which the names of
    # libraries are: instructions of SVE, which glibc copies by where there are any, cannot read it.
    export QEMU_CPU=max,sve=off
  fi
  if grep -qs '^interpreter .*aarch64' /proc/sys/fs/binfmt_misc/*aarch64*; then
    "$@"
  else
    # shellcheck disable=SC2016
    unshare --user --map-root-user --mount bash -euc '
      mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
      elf="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
      mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
      echo -n ":aarch64:M::$elf:$mask:$0:F" >/proc/sys/fs/binfmt_misc/register
      exec "$@"' "$(command -v qemu-aarch64-static)" "$@"
  fi
}

# Does this system run aarch64 programs, by itself or in such a namespace? Not every container may make one.
runs_aarch64() {
  echo 'int main(void) { return 0; }' | aarch64-linux-gnu-gcc -x c - -o "$BUILD/nothing"
  (emulated 4096 "$BUILD/nothing") 2>"$BUILD/nothing.log" && return
  echo "left out: aarch64, whose programs this system cannot run: $(tail -n 1 "$BUILD/nothing.log")"
  return 1
}

cross=(-G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64)
cross_gcc=("${cross[@]}" -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++)
cross_clang=("${cross[@]}" -DCMAKE_C_COMPILER=clang -DCMAKE_C_COMPILER_TARGET=aarch64-linux-gnu
  -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_COMPILER_TARGET=aarch64-linux-gnu)

googletest() {
  [[ -f $BUILD/googletest/lib/libgtest.a ]] && return
  cmake -S /usr/src/googletest -B "$BUILD/googletest-build" "${cross_gcc[@]}" -DCMAKE_BUILD_TYPE=None \
    -DBUILD_GMOCK=OFF -DCMAKE_INSTALL_PREFIX="$BUILD/googletest" -DCMAKE_INSTALL_LIBDIR=lib >/dev/null
  cmake --build "$BUILD/googletest-build" --parallel "$JOBS" >/dev/null
  cmake --install "$BUILD/googletest-build" >/dev/null
}

# build_for NAME CMAKE_ARGS… -- TARGETS…
build_for() {
  local name=$1 arguments=()
  shift
  while [[ $1 != -- ]]; do arguments+=("$1") && shift; done
  googletest
  cmake -S "$ROOT" -B "$BUILD/$name" "${arguments[@]}" -DHAKMEM_TESTS=ON \
    -DCMAKE_PREFIX_PATH="$BUILD/googletest" >/dev/null
  cmake --build "$BUILD/$name" --parallel "$JOBS" --target hakmem "${@:2}"
}

# tests_of NAME PAGE_BYTES TESTS…
tests_of() {
  emulated "$2" ctest --test-dir "$BUILD/$1" --output-on-failure --no-tests=error --parallel "$JOBS" --timeout 280 \
    --tests-regex "^($(IFS='|' && echo "${*:3}"))\$"
}

# Tests that depend on the page size, except those that read the statistics: qemu's mincore answers in pages of the
# host, whatever page size it told the program, and so writes beyond the buffer.
page_tests=(pool_test sizes_test std_test machine_test machine_static_test order_static_test)
more_tests=(stats_test contents_hak_test stack_test stack_static_test order_test bitset_test classes_test api_hak_test
  api_std_test bad_std_test fork_test threads_test loading_test
  order_archive_test order_preload_test dlopen_test deepbind_test handlers_test)
targets=(test_plugin)
# What ./hak test runs, where the packages are to be had: natively these reach 5,500 lines of src/ in 5 s of processor
# time, and threads_test, pool_test and traffic_test, in 7 s, add 550.
smoke_tests=(machine_test sizes_test std_test bad_std_test)
smoke_page_tests=(machine_static_test sizes_test std_test)

# qemu keeps a few bytes for each page that is mapped: if the library reserved all that it may ever use, a small program
# would take gigabytes of the host's memory. The limit is the host's, so that it fails early then.
emulated_small() {
  printf '#include <stdlib.h>\nint main(void) { free(malloc(100)); return 0; }\n' >"$BUILD/small.c"
  aarch64-linux-gnu-gcc -fno-builtin "$BUILD/small.c" -o "$BUILD/small"
  export QEMU_LD_PREFIX=$SYSROOT
  python3 - qemu-aarch64-static -E "LD_PRELOAD=$BUILD/aarch64/libhakmem.so" "$BUILD/small" <<'END'
import resource, subprocess, sys

limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
subprocess.run(sys.argv[1:], check=True, preexec_fn=limit, timeout=60)
kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"figure: emulated_host_kib_most {kib}")
sys.exit(kib > 60 << 10 and f"{kib} KiB of the host's memory for a program that uses 100 bytes")
END
}

aarch64_gcc() {
  build_for aarch64 "${cross_gcc[@]}" -DCMAKE_BUILD_TYPE=Release -- "${page_tests[@]}" "${more_tests[@]}" \
    "${targets[@]}"
  tests_of aarch64 "$1" "${@:2}"
}

# Threads, forks and a double free in plain C, linked in each way; sizes, what the standard says, each misuse.
aarch64_smoke() {
  build_for aarch64 "${cross_gcc[@]}" -DCMAKE_BUILD_TYPE=Release -- "${smoke_tests[@]}" "${smoke_page_tests[@]}"
  tests_of aarch64 4096 "${smoke_tests[@]}"
  tests_of aarch64 65536 "${smoke_page_tests[@]}"
}

aarch64_clang() {
  build_for aarch64-clang "${cross_clang[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DHAKMEM_CHECKED=ON \
    -- "${page_tests[@]}"
  tests_of aarch64-clang 65536 "${page_tests[@]}"
}

# ---- riscv64 ----

# gcc leaves out the tables by which the stack is walked there, without this option.
riscv64_cc() {
  riscv64-linux-gnu-gcc -std=gnu17 -D_GNU_SOURCE -O1 -fasynchronous-unwind-tables -I"$ROOT/include" -I"$ROOT/src" \
    -fno-builtin "$@" -pthread -Wl,--eh-frame-hdr
}

riscv64() {
  local here=$BUILD/riscv64 program
  cmake -S "$ROOT" -B "$here" -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=riscv64 \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=riscv64-linux-gnu-gcc \
    -DCMAKE_CXX_COMPILER=riscv64-linux-gnu-g++ >/dev/null
  cmake --build "$here" --parallel "$JOBS"
  for program in life/machine_test unit/stack_static; do
    riscv64_cc "$ROOT/tests/$program.c" -o "$here/${program##*/}" -static "$here/libhakmem.a" -l:libatomic.a
    qemu-riscv64-static "$here/${program##*/}"
  done
  riscv64_cc "$ROOT/tests/life/machine_test.c" -o "$here/shared" "$here/libhakmem.so" -Wl,-rpath,"$here"
  QEMU_LD_PREFIX=/usr/riscv64-linux-gnu qemu-riscv64-static "$here/shared"
}

# ---- musl ----

# musl_library BUILD_TYPE CHECKED: the library from its own build, including the C++ operators; there is no C++ library
# to link with.
musl_library() {
  printf '#!/bin/sh\nREALGCC=g++ exec musl-gcc "$@"\n' >"$BUILD/musl-g++"
  chmod +x "$BUILD/musl-g++"
  cmake -S "$ROOT" -B "$BUILD/musl" -G Ninja -DCMAKE_BUILD_TYPE="$1" -DCMAKE_C_COMPILER=musl-gcc \
    -DCMAKE_CXX_COMPILER="$BUILD/musl-g++" -DCMAKE_CXX_COMPILER_WORKS=1 -DCMAKE_CXX_ABI_COMPILED=1 \
    -DHAKMEM_CHECKED="$2" >/dev/null
  cmake --build "$BUILD/musl" --parallel "$JOBS"
}

# Debian's musl lacks the kernel's headers, which one workload needs.
musl_cc() {
  local one
  mkdir -p "$BUILD/kernel"
  for one in /usr/include/{linux,asm-generic,x86_64-linux-gnu/asm}; do
    ln -sfn "$one" "$BUILD/kernel/${one##*/}"
  done
  musl-gcc -std=gnu17 -D_GNU_SOURCE -O2 -I"$ROOT/include" -idirafter "$BUILD/kernel" -fno-builtin "$@" -pthread
}

musl_links() {
  local here=$BUILD/musl
  musl_cc "$ROOT/tests/life/machine_test.c" -o "$here/shared" "$here/libhakmem.so" -Wl,-rpath,"$here"
  musl_cc "$ROOT/tests/life/machine_test.c" -o "$here/static" -static "$here/libhakmem.a"
  "$here/shared"
  "$here/static"
}

# Without dlopen_test: musl's loader refuses libraries with initial-exec thread-local variables after the start.
musl_tests() {
  local here=$BUILD/musl
  musl_library Debug ON
  musl_links
  musl_library Release OFF
  musl_links
  musl_cc "$ROOT/tests/unit/stack_static.c" -I"$ROOT/src" -o "$here/stack" -static "$here/libhakmem.a" \
    -Wl,--eh-frame-hdr
  "$here/stack"
}

# Runs every workload in C that needs no file, small, with the library preloaded; they check what they allocate.
musl_workloads() {
  local line words
  sed -n 's/^command = \["{bench}\/\(.*\)\]$/\1/p' "$ROOT/bench/suites/tiny.toml" | tr -d '",' >"$BUILD/workloads"
  while read -r line; do
    read -ra words <<<"$line"
    [[ -f $ROOT/bench/workloads/${words[0]}.c && $line != *\{* ]] || continue # C++, or needs a file
    musl_cc "$ROOT/bench/workloads/${words[0]}.c" -o "$BUILD/musl/${words[0]}"
    LD_PRELOAD=$BUILD/musl/libhakmem.so "$BUILD/musl/${words[0]}" "${words[@]:1}"
  done <"$BUILD/workloads"
}

# Without those that stand before functions of glibc's.
musl_clang() {
  find "$ROOT/src" -name '*.c' ! -name deepbind.c ! -name dlmopen.c ! -name '*signals.c' -print0 |
    xargs -0 -n 1 clang -fsyntax-only -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror \
    -nostdinc -isystem "$(clang -print-resource-dir)/include" -isystem "$MUSL" -iquote "$ROOT/src" -I"$ROOT/include"
}

# ---- the steps ----

failed=0
step() {
  local name=$1
  echo "---- $name"
  set +e
  (
    set -e
    "${@:2}"
  )
  local status=$?
  set -e
  if ((status == 0)); then
    echo "ok   $name"
  else
    echo "FAIL $name"
    failed=$((failed + 1))
  fi
}

need_all "${@:-"${STEPS[@]}"}"
for name in "${@:-"${STEPS[@]}"}"; do
  case $name in
    sources)
      step "sources" directives
      step "other machines" refusals
      ;;
    aarch64-smoke)
      if runs_aarch64; then step "aarch64, the shortest tests" aarch64_smoke; fi
      ;;
    aarch64)
      step "aarch64, 4 KiB pages" aarch64_gcc 4096 "${page_tests[@]}" "${more_tests[@]}"
      step "aarch64, memory of the host" emulated_small
      ;;
    aarch64-16k) step "aarch64, 16 KiB pages" aarch64_gcc 16384 "${page_tests[@]}" ;;
    aarch64-64k) step "aarch64, 64 KiB pages" aarch64_gcc 65536 "${page_tests[@]}" ;;
    riscv64) step "riscv64" riscv64 ;;
    aarch64-clang) step "aarch64, clang, assertions" aarch64_clang ;;
    musl)
      step "musl" musl_tests
      step "musl, workloads" musl_workloads
      step "musl, clang" musl_clang
      ;;
    *) echo "machines.sh: no such step: $name; there are: ${STEPS[*]} aarch64-smoke" && exit 2 ;;
  esac
done
((failed == 0))
