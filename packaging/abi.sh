#!/usr/bin/env bash
# Compares the library's binary interface with the one that packaging/abi keeps: the exported symbols, their versions
# and the types of the calls in hakmem.h.
#
#   abi.sh [FILE]     with FILE, if it is named     abi.sh --write     keeps the present one instead
# SPDX-License-Identifier: MIT
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
MACHINE=$(uname -m)
KEPT=packaging/abi/libhakmem.so.0.$MACHINE.abi
BUILD=build/abi
[[ ${1---write} == --write ]] || KEPT=$(realpath "$1")
cd "$ROOT"

grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" $BUILD/CMakeCache.txt || rm -rf $BUILD # the whole tree has moved

# Debug: the interface does not depend on optimization, and its types are in the debug information.
cmake -S . -B $BUILD -G Ninja -DCMAKE_BUILD_TYPE=Debug -DHAKMEM_INSTALL=OFF >/dev/null
cmake --build $BUILD --target hakmem >$BUILD/build.log 2>&1 || { cat $BUILD/build.log && exit 1; }
abidw --headers-dir include --drop-private-types --drop-undefined-syms --exported-interfaces-only --no-comp-dir-path \
  --no-corpus-path --no-show-locs $BUILD/libhakmem.so --out-file $BUILD/abi

if [[ ${1-} == --write ]]; then
  cp $BUILD/abi "$KEPT"
  echo "written: $KEPT"
  exit
fi
[[ -f $KEPT ]] || { echo "skipped: packaging/abi keeps no interface of $MACHINE" && exit; }
if abidiff "$KEPT" $BUILD/abi; then
  echo "the binary interface is that of $KEPT"
elif abidiff --no-added-syms "$KEPT" $BUILD/abi >/dev/null; then
  echo "abi: the library exports more than $KEPT says; packaging/abi.sh --write takes that over" && exit 1
else
  echo "abi: programs that are linked with the library would break; restore what changed, or raise SOVERSION" && exit 1
fi
