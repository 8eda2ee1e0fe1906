#!/usr/bin/env bash
# Tests every way in which a project can use HAKMEM: run.sh BUILD_DIRECTORY (a release build). Installs to a scratch
# directory, and builds consumers by find_package, FetchContent and pkg-config, shared and static, in C and in C++;
# then checks the symbols of a build for embedding. FetchContent builds from a copy of the sources, so the libraries
# of both places can be compared.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/../kit.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
SOURCE=$(cd "$HERE/../.." && pwd)
BUILD=$(cd "$1" && pwd)

# works PROGRAM KIND: runs the program, and checks that it is linked with the right HAKMEM: `shared` or `static`.
works() {
  local program=$1 kind=$2
  echo "$program ($kind)"
  [[ $("$program") == 'consumer works' ]] || fail "$program does not work"
  if [[ $kind == shared ]]; then
    ldd "$program" | grep 'libhakmem\.so\.0 => ' >/dev/null || fail "$program is not linked with libhakmem.so.0"
  elif ldd "$program" 2>/dev/null | grep libhakmem >/dev/null; then
    fail "$program was to be linked with libhakmem.a"
  fi
}

# cmake_consumers NAME CMAKE_ARGS…
cmake_consumers() {
  local directory=$SCRATCH/$1 language
  shift
  cmake -S "$HERE" -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >/dev/null
  cmake --build "$directory" --target optimized hakmem_c hakmem_cc hakmem_static_c hakmem_static_cc
  works "$directory/optimized" shared
  replaces "$directory/optimized"
  for language in c cc; do
    works "$directory/hakmem_$language" shared
    works "$directory/hakmem_static_$language" static
  done
}

pkg_config_consumers() {
  local flags libs static directory
  PKG_CONFIG_PATH=$(dirname "$(find "$SCRATCH/prefix" -name hakmem.pc)")
  export PKG_CONFIG_PATH
  for directory in prefix: libdir:/lib includedir:/include; do
    [[ $(pkg-config --variable="${directory%:*}" hakmem) == "$SCRATCH/prefix${directory#*:}" ]] ||
      fail "hakmem.pc has another ${directory%:*}"
  done
  read -ra flags < <(pkg-config --cflags hakmem)
  read -ra libs < <(pkg-config --libs hakmem)
  read -ra static < <(pkg-config --static --libs hakmem)
  cd "$SCRATCH"
  cc "${flags[@]}" "$HERE/consumer.c" -o pc_shared "${libs[@]}" "-Wl,-rpath,$(pkg-config --variable=libdir hakmem)"
  cc "${flags[@]}" "$HERE/consumer.c" -o pc_static -Wl,-Bstatic "${libs[@]}" -Wl,-Bdynamic -pthread
  cc "${flags[@]}" "$HERE/consumer.c" -o pc_all_static -static "${static[@]}"
  c++ "${flags[@]}" "$HERE/consumer.cc" -std=c++17 -o pc_all_static_cc -static "${static[@]}"
  works ./pc_shared shared
  works ./pc_static static
  works ./pc_all_static static
  works ./pc_all_static_cc static
  cc "${flags[@]}" "$HERE/consumer.c" -o pc_lld -fuse-ld=lld -Wl,-Bstatic "${libs[@]}" -Wl,-Bdynamic -pthread
  works ./pc_lld static
  optimized
  cd "$HERE"
}

# replaces PROGRAM: its malloc is HAKMEM's.
replaces() { HAKMEM_STATS=1 "$1" 2>&1 | grep '^hakmem [0-9]' >/dev/null || fail "$1 has another malloc"; }

# Programs that are optimized at link time, when the linker learns late which functions they call.
optimized() {
  local compiler one program
  for one in gcc 'clang -fuse-ld=lld'; do
    read -ra compiler <<<"$one"
    "${compiler[@]}" -O2 -flto "$HERE/plain.c" -o lto_shared -Wl,--as-needed "${libs[@]}" \
      "-Wl,-rpath,$(pkg-config --variable=libdir hakmem)"
    "${compiler[@]}" -O2 -flto "$HERE/plain.c" -o lto_static -Wl,-Bstatic "${libs[@]}" -Wl,-Bdynamic -pthread
    "${compiler[@]}" -O2 -flto "$HERE/plain.c" -o lto_all_static -static "${static[@]}"
    "${compiler[@]}" -O2 -flto "$HERE/plain.c" -o lto_whole -Wl,--whole-archive "$BUILD/libhakmem.a" \
      -Wl,--no-whole-archive -pthread
    works ./lto_shared shared
    for program in lto_static lto_all_static lto_whole; do works "./$program" static; done
    for program in lto_*; do replaces "./$program"; done
  done
}

# defined FILE: prints the global symbols that the file defines.
defined() {
  nm --defined-only -g "$@" | awk 'NF == 3 && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}

# A build without override has only hak_* symbols, in both libraries, and works beside the system's malloc. It is not
# optimized: that would take three times as long, and changes none of them.
embedding() {
  local directory=$SCRATCH/embed
  cmake -S "$SOURCE" -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DHAKMEM_OVERRIDE=OFF >/dev/null
  cmake --build "$directory" >/dev/null
  echo "embedding"
  defined -D "$directory/libhakmem.so" >"$SCRATCH/exported"
  grep -qx hak_malloc "$SCRATCH/exported" || fail "the embedding build does not export hak_malloc"
  ! grep -v '^hak_' "$SCRATCH/exported" || fail "the embedding build exports more than hak_*"
  ! defined "$directory/libhakmem.a" | grep -xE \
    'malloc|calloc|realloc|free|cfree|memalign|posix_memalign|_Zn.*|_Zd.*' ||
    fail "the embedding build defines the symbols above"
  cc -DCONSUMER_EMBEDS -I"$SOURCE/include" "$HERE/consumer.c" -o "$SCRATCH/embedded" "$directory/libhakmem.a" -pthread
  works "$SCRATCH/embedded" static
}

# The library's path is the same on every architecture, and with directories that are absolute, as Nix has them, all is
# there and in hakmem.pc. Nothing is built again: the libraries are put where CMake will look for them.
paths() {
  local tree=$SCRATCH/paths lib=lib/of-this-machine
  cmake -S "$SOURCE" -B "$tree/build" -DHAKMEM_COMMAND=none -DCMAKE_INSTALL_PREFIX=/usr \
    "-DCMAKE_INSTALL_LIBDIR=$lib" >/dev/null
  cp -P "$BUILD"/libhakmem.* "$tree/build"
  DESTDIR=$tree cmake --install "$tree/build" >/dev/null
  cmp "$tree/usr/lib/libhakmem.so" "$BUILD/libhakmem.so" || fail "there is no /usr/lib/libhakmem.so"
  grep -x "libdir=/usr/$lib" "$tree/usr/$lib/pkgconfig/hakmem.pc" >/dev/null || fail "hakmem.pc has another libdir"
  cmake -S "$SOURCE" -B "$tree/build" "-DCMAKE_INSTALL_PREFIX=$tree/out" "-DCMAKE_INSTALL_LIBDIR=$tree/lib" \
    "-DCMAKE_INSTALL_INCLUDEDIR=$tree/dev/include" >/dev/null
  cmake --install "$tree/build" >/dev/null
  [[ ! -e $tree/out/lib ]] || fail "something is in lib, which another directory stands for"
  (
    PKG_CONFIG_PATH=$tree/lib/pkgconfig
    export PKG_CONFIG_PATH
    [[ $(pkg-config --cflags --libs-only-L hakmem | xargs) == "-I$tree/dev/include -L$tree/lib" ]] ||
      fail "hakmem.pc with absolute directories: $(cat "$tree/lib/pkgconfig/hakmem.pc")"
  )
}

# lld links the shared library, too: of the objects that the archive has, which CMake finds out.
linked_by_lld() {
  cmake -S "$SOURCE" -B "$SCRATCH/lld" -G Ninja -DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld >/dev/null
  ninja -C "$SCRATCH/lld" -t query libhakmem.so.0.1.0 | grep hakmem_program_objects >/dev/null ||
    fail "CMake takes other objects for lld"
  cc -fuse-ld=lld -shared -o "$SCRATCH/libhakmem_lld.so" -Wl,--whole-archive "$BUILD/libhakmem.a" \
    -Wl,--no-whole-archive \
    "-Wl,--version-script=$SOURCE/cmake/hakmem.map" \
    -Wl,-z,nodelete,-z,now,-z,noseparate-code,--no-undefined,--eh-frame-hdr
  cc "$HERE/plain.c" -o "$SCRATCH/plain"
  LD_PRELOAD=$SCRATCH/libhakmem_lld.so HAKMEM_STATS=1 "$SCRATCH/plain" 2>&1 | grep '^hakmem [0-9]' >/dev/null ||
    fail "the library that lld links does not replace malloc"
}

cmake --install "$BUILD" --prefix "$SCRATCH/prefix" >/dev/null
cmake_consumers find_package -DCMAKE_PREFIX_PATH="$SCRATCH/prefix"
mkdir "$SCRATCH/copy"
cp -R "$SOURCE"/{CMakeLists.txt,cmake,include,src} "$SCRATCH/copy"
cmake_consumers fetch_content -DHAKMEM_SOURCE="$SCRATCH/copy"
for library in libhakmem.so libhakmem.a; do
  cmp "$BUILD/$library" "$SCRATCH/fetch_content/_deps/hakmem-build/$library" ||
    fail "$library depends on where it is built"
done
pkg_config_consumers
paths
embedding
linked_by_lld

# The library needs only libc, and its name is stable. With shadow stacks it does not switch them off.
library=$BUILD/libhakmem.so
[[ $(uname -m) != x86_64 ]] || readelf -n "$library" | grep 'x86 feature: .*SHSTK' >/dev/null ||
  fail "no note of shadow stacks"
[[ $(readelf -d "$library" | grep -c '(NEEDED)') == 1 ]] ||
  fail "the library needs more than libc: $(readelf -d "$library")"
readelf -d "$library" | grep 'SONAME.*\[libhakmem\.so\.0\]' >/dev/null || fail "the SONAME is not libhakmem.so.0"
