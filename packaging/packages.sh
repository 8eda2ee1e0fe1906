#!/usr/bin/env bash
# Builds packages into build/packages: packages.sh deb|rpm|tar|source… HAKMEM_COMMAND is the command to pack. The same
# sources and compiler give the same bytes: times are SOURCE_DATE_EPOCH, or else the time of the last commit.
#   deb, rpm   library, development files and command, with CPack
#   tar        the same below one directory, to be unpacked anywhere: the command is static, hakmem.pc finds itself
#   source     a source package for Debian of the last commit, and what dpkg-buildpackage makes of it, without the
#              command
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=build/packages/work
VERSION=$(sed -n 's/^project(hakmem VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
MAINTAINER="${DEBFULLNAME:-HAKMEM} <${DEBEMAIL:-hakmem@localhost.localdomain}>"
declare -A LIBDIR=([deb]=lib/$(gcc -print-multiarch) [rpm]=lib64 [tar]=lib) GENERATOR=([deb]=DEB [rpm]=RPM)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
export CCACHE_DISABLE=1 # objects from a cache may name another directory in their debug information
umask 022
grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" $BUILD/CMakeCache.txt || rm -rf $BUILD # the whole tree has moved
mkdir -p $BUILD

# compile KIND
compile() {
  cmake -S . -B $BUILD -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-g -DCMAKE_CXX_FLAGS=-g \
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--build-id -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="${LIBDIR[$1]}" \
    -DHAKMEM_WERROR=OFF "-DHAKMEM_MAINTAINER=$MAINTAINER" -DHAKMEM_COMMAND="${HAKMEM_COMMAND:-$PWD/build/hakmem}"
  cmake --build $BUILD
}

# with_cpack deb|rpm
with_cpack() {
  compile "$1"
  rm -f build/packages/*."$1"
  (cd build/packages && cpack --config work/CPackConfig.cmake -G "${GENERATOR[$1]}" \
    -D "CPACK_RELEASE_DATE=$(date -Ru -d "@$SOURCE_DATE_EPOCH")")
}

tarball() {
  local name tree=$BUILD/tree
  name=hakmem-$VERSION-linux-$(uname -m)
  compile tar
  rm -rf "$tree"
  mkdir "$tree"
  cmake --install $BUILD --prefix "$PWD/$tree/$name" --strip
  strip -g -D "$tree/$name/lib/libhakmem.a"
  sed -i "s|$PWD/$tree/$name|\${pcfiledir}/../..|" "$tree/$name/lib/pkgconfig/hakmem.pc"
  tar -C "$tree" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
    gzip -9n >"build/packages/$name.tar.gz"
}

source_package() {
  local work=build/packages/source tree=build/packages/source/hakmem-$VERSION
  rm -rf $work
  mkdir -p "$tree"
  git archive --format=tar --prefix="hakmem-$VERSION/" HEAD | gzip -9n >"$work/hakmem_$VERSION.orig.tar.gz"
  tar -xf "$work/hakmem_$VERSION.orig.tar.gz" -C $work
  cp -R packaging/debian "$tree/debian"
  (
    cd "$tree/debian"
    sed -i "/^#/d; s|@MAINTAINER@|$MAINTAINER|" control
    sed -e '/^#/d' -e "s|@CPACK_PACKAGE_VERSION@|$VERSION-1|" -e "s|@CPACK_PACKAGE_CONTACT@|$MAINTAINER|" \
      -e "s|@CPACK_RELEASE_DATE@|$(date -Ru -d "@$SOURCE_DATE_EPOCH")|" changelog.in >changelog
    rm changelog.in prepare.cmake triggers ./*.lintian-overrides # CPack's
    cd ..
    dpkg-buildpackage --unsigned-source --unsigned-changes
  )
}

for kind; do
  case $kind in
    deb | rpm) with_cpack "$kind" ;;
    tar) tarball ;;
    source) source_package ;;
    *) echo "packages.sh: $kind: deb, rpm, tar or source" && exit 2 ;;
  esac >$BUILD.log 2>&1 || { cat $BUILD.log && exit 1; }
done
for file in build/packages/*.* build/packages/source/*.*; do
  [[ ! -f $file || $file == *.log ]] || echo "${file#build/packages/}"
done
