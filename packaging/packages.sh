#!/usr/bin/env bash
# Builds packages into build/packages: packages.sh deb|rpm… HAKMEM_COMMAND is the command to pack. The same sources and
# compiler give the same bytes: times are SOURCE_DATE_EPOCH, or else the time of the last commit.
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=build/packages/work
declare -A LIBDIR=([deb]=lib/$(gcc -print-multiarch) [rpm]=lib64) GENERATOR=([deb]=DEB [rpm]=RPM)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022
grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" $BUILD/CMakeCache.txt || rm -rf $BUILD # the whole tree has moved
mkdir -p $BUILD

for kind; do
  {
    cmake -S . -B $BUILD -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-g -DCMAKE_CXX_FLAGS=-g \
      -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--build-id -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="${LIBDIR[$kind]}" \
      -DHAKMEM_WERROR=OFF ${DEBEMAIL:+"-DHAKMEM_MAINTAINER=${DEBFULLNAME:-HAKMEM} <$DEBEMAIL>"} \
      -DHAKMEM_COMMAND="${HAKMEM_COMMAND:-$PWD/build/hakmem}"
    cmake --build $BUILD
    rm -f build/packages/*."$kind"
    (cd build/packages && cpack --config work/CPackConfig.cmake -G "${GENERATOR[$kind]}" \
      -D "CPACK_RELEASE_DATE=$(date -Ru -d "@$SOURCE_DATE_EPOCH")")
  } >$BUILD.log 2>&1 || { cat $BUILD.log && exit 1; }
done
ls build/packages/*.*{deb,rpm} 2>/dev/null || true
