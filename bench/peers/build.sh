#!/usr/bin/env bash
# Obtains the allocators that HAKMEM is compared with, builds them and verifies them. build/peers/NAME/ has one peer's
# libraries, build/peers/peers.toml lists the peers that work, for `hakmem compare --peers`.
#  1. Crates come by `cargo vendor`, Debian's packages by `apt-get download`, both to build/peers/source/NAME/. A crate
#     has the checksum that crates.sha256 says. Nothing of the crates that it depends on is compiled or run.
#  2. build_NAME makes the libraries, with -O3 and otherwise upstream's defaults. A peer is not built again while its
#     version, recipe and compiler match its stamp.
#  3. On every run probe.cc, with the peer preloaded, verifies that it is the malloc in use and works.
# A peer that fails gets one line and its log, and does not stop the others; then the exit status is 1.
# SPDX-License-Identifier: MIT
set -euo pipefail
unset CDPATH LD_PRELOAD
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PEERS=$(cd "$HERE/../.." && pwd)/build/peers
JOBS=$(getconf _NPROCESSORS_ONLN)
TBB=libtbbmalloc.so.2,libtbbmalloc_proxy.so.2
SCUDO=libclang_rt.scudo_standalone-$(uname -m).so

# The peers, one on each line. A version - means that of the Debian package; of several packages, the first that
# exists. Google's tcmalloc has no versions: the date is that of the crate's copy. hardened_malloc's version is the
# crate's. Two forks of mimalloc have the version of what they were forked from: mimalloc-bun is the one of the runtime
# Bun, in a copy without its later scavenger; mimalloc-pprof took over that scavenger and its purging of holes.
# NAME           VERSION         TAG      PACKAGES                                     LIBRARIES
TABLE="
mimalloc3        3.6.1           fast     crate:rustfs-mimalloc-sys=0.7.3              libmimalloc3.so
mimalloc2        2.5.2           fast     crate:libmimalloc-sys2=0.1.65                libmimalloc2.so
snmalloc         0.7.6           fast     crate:snmalloc-sys=0.7.6                     libsnmalloc.so
snmalloc-checks  0.7.6           hardened crate:snmalloc-sys=0.7.6                     libsnmalloc-checks.so
jemalloc         5.3.1           fast     crate:tikv-jemalloc-sys=0.7.1                libjemalloc.so
tcmalloc         2025-06-16      fast     crate:libtcmalloc-sys=0.1.14                 libtcmalloc.so
rpmalloc         1.4.3           fast     crate:rpmalloc-sys=0.2.3                     librpmalloc.so
rpmalloc2        -               fast     debian:librpmalloc1                          librpmalloc.so.1
mimalloc-bun     3.3.2           fast     crate:bun_mimalloc_sys=0.1.1                 libmimalloc-bun.so
mimalloc-pprof   3.5.0           fast     crate:mimalloc-pprof=1.1.1                   libmimalloc-pprof.so
hardened         16.0.2026071503 hardened crate:hardened-malloc-sys=16.0.2026071503    libhardened.so
hardened-light   16.0.2026071503 hardened crate:hardened-malloc-sys=16.0.2026071503    libhardened-light.so
scudo            -               hardened debian:libclang-rt-19-dev,libclang-rt-14-dev $SCUDO
jemalloc-debian  -               old      debian:libjemalloc2                          libjemalloc.so.2
gperftools       -               old      debian:libtcmalloc-minimal4                  libtcmalloc_minimal.so.4
mimalloc2-debian -               old      debian:libmimalloc2.0                        libmimalloc.so.2
tbbmalloc        -               old      debian:libtbbmalloc2                         $TBB
"

# Without it, Google's tcmalloc finds glibc in the area it needs for its per-CPU mode, and silently does without that
# mode.
declare -A ENVIRONMENT=([tcmalloc]='GLIBC_TUNABLES=glibc.pthread.rseq=0')

# Prints the reason if a peer cannot be used here.
unusable() {
  local oldest
  oldest=$(printf 'glibc 2.38\n%s\n' "$(getconf GNU_LIBC_VERSION)" | sort -V | head -1)
  if [[ $1 == rpmalloc2 && $oldest != 'glibc 2.38' ]]; then
    echo 'its package needs glibc 2.38'
  fi
}

# ---- recipes: each runs in a subshell, in an empty directory; $SOURCE is the crate, $LIBRARY the file to make ----

# build_mimalloc FILE FLAGS…: from the one file that includes the others; the flags are those of a release.
build_mimalloc() {
  cc -O3 -fPIC -std=gnu11 -fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc -shared -DNDEBUG=1 \
    -DMI_BUILD_RELEASE -DMI_CMAKE_BUILD_TYPE=release -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT \
    "${@:2}" "$1" -o "$LIBRARY" -lpthread -lrt -latomic
}

build_mimalloc3() {
  local mimalloc=$SOURCE/c_src/mimalloc
  build_mimalloc "$mimalloc/src/static.c" -I"$mimalloc/include" -DMI_GUARDED=0 -DMI_STATS=1 -DMI_PROFILE=1 \
    -DMI_DEFAULT_ALLOW_THP=2 -DMI_HAS_UNISTDH=1 -DMI_HAS_EXECINFOH=1
}

# As the runtime is built, except that what a library loaded by others does at the end of a process is left in.
build_mimalloc-bun() {
  local mimalloc=$SOURCE/csrc/mimalloc
  build_mimalloc "$mimalloc/src/static.c" -I"$mimalloc/include" -D_GNU_SOURCE -DMI_NO_SET_VMA_NAME=1 \
    -DMI_DEFAULT_ALLOW_THP=0
}

# The crate's default: nothing that observes is built in.
build_mimalloc-pprof() {
  build_mimalloc "$SOURCE/vendor/mimalloc-pprof-amalgamated.c" -I"$SOURCE/vendor" -DMI_PPROF=0 -DMI_MEMEVT=0 \
    -DMI_DIAGNOSTICS=0 -DMI_DHAT=0 -DMI_OWNER_GATE=0
}

build_mimalloc2() {
  cmake -S "$SOURCE/c_src/mimalloc" -B . -DCMAKE_BUILD_TYPE=Release -DMI_BUILD_STATIC=OFF -DMI_BUILD_OBJECT=OFF \
    -DMI_BUILD_TESTS=OFF
  cmake --build . --parallel "$JOBS"
  cp -L libmimalloc.so "$LIBRARY"
}

build_snmalloc() {
  local target=${1:-snmallocshim}
  cmake -S "$SOURCE/upstream" -B . -DCMAKE_BUILD_TYPE=Release -DSNMALLOC_BUILD_TESTING=OFF \
    -DSNMALLOC_STATIC_LIBRARY=OFF
  cmake --build . --parallel "$JOBS" --target "$target"
  cp "lib$target.so" "$LIBRARY"
}

build_snmalloc-checks() { build_snmalloc snmallocshim-checks; }

build_jemalloc() {
  cp -r "$SOURCE/jemalloc/." .
  cp "$SOURCE/configure/configure" .
  ./configure --with-version=5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8 --disable-doc
  make -j "$JOBS" build_lib_shared
  cp lib/libjemalloc.so.2 "$LIBRARY"
}

# The files are those of the crate's build.rs, without its bridge to Rust and plus the one that defines malloc.
build_tcmalloc() {
  local sources
  mapfile -t sources < <(grep -oE '"c_src/[^"]+\.(cc|S)"' "$SOURCE/build.rs" | tr -d '"' | grep -v bridge)
  sources+=(c_src/tcmalloc/tcmalloc/tcmalloc.cc)
  # shellcheck disable=SC2016 # the inner shell expands these
  printf '%s\n' "${sources[@]}" | xargs -P "$JOBS" -I{} sh -c 'g++ -std=c++17 -O3 -DNDEBUG -DNOMINMAX \
    -DTCMALLOC_INTERNAL_8K_PAGES -fPIC -ftls-model=initial-exec -w -I"$0/c_src/abseil-cpp" -I"$0/c_src/tcmalloc" \
    -c "$0/$1" -o "$(echo "$1" | tr / _).o"' "$SOURCE" {}
  echo '{ local: *absl*; };' >hidden
  g++ -shared -Wl,--version-script=hidden ./*.o -o "$LIBRARY" -lpthread
}

build_rpmalloc() {
  gcc -std=c11 -O3 -funroll-loops -DNDEBUG -D_GNU_SOURCE -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1 -fPIC \
    -ftls-model=initial-exec -shared "$SOURCE/rpmalloc/rpmalloc/rpmalloc.c" -o "$LIBRARY" -lpthread -ldl
}

build_hardened() {
  local directory=$SOURCE/vendor/hardened-malloc config flags
  mapfile -t config < <(grep -v '^#' "$SOURCE/config-${1:-default}.conf")
  flags=(-O3 -fPIC -fvisibility=hidden -D_GNU_SOURCE "${config[@]/#/-D}" -I"$directory" -I"$directory/include"
    -I"$directory/third_party")
  gcc -std=c2x -include stdalign.h "${flags[@]}" -c "$directory"/*.c
  g++ -std=c++17 "${flags[@]}" -c "$directory/new.cc"
  g++ -shared ./*.o -o "$LIBRARY" -lpthread
}

build_hardened-light() { build_hardened light; }

# ---- sources ----

# fetch_crate NAME=VERSION DIRECTORY: a package of its own for each crate, since crates with equal `links` clash.
fetch_crate() {
  local crate=$1 directory=$2
  mkdir -p "$directory/src"
  : >"$directory/src/lib.rs"
  printf '[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n[workspace]\n' \
    "${crate%=*}" "${crate#*=}" >"$directory/Cargo.toml"
  (cd "$directory" && cargo vendor --quiet)
  check_crate "$crate" "$directory/vendor/${crate%=*}/.cargo-checksum.json"
}

# check_crate NAME=VERSION FILE: cargo writes into FILE which checksum the package had that it took apart.
check_crate() {
  local sum
  sum=$(sed -n 's/.*"package":"\([0-9a-f]\{64\}\)".*/\1/p' "$2")
  grep -qxF "$sum  ${1%=*}-${1#*=}.crate" "$HERE/crates.sha256" && return
  echo "${1%=*} ${1#*=} has the checksum ${sum:-none}, and not that of bench/peers/crates.sha256" >&2
  return 1
}

# Prints the first of the packages that apt knows, fetching apt's lists if they are missing.
known_package() {
  local try package
  for try in 1 2; do
    for package; do
      if apt-cache show "$package" >/dev/null 2>&1; then
        echo "$package"
        return
      fi
    done
    ((try == 1 && EUID == 0)) && apt-get -qq update >&2
  done
  echo "apt-get knows none of $*" >&2
  return 1
}

# ---- one peer: each of these takes a line of the table ----

# Builds the library from a crate.
make_crate() {
  local name=$1 package=${3#crate:}
  local SOURCE=$PEERS/source/$name/vendor/${package%=*} LIBRARY=$PEERS/$name/$4
  fetch_crate "$package" "$PEERS/source/$name"
  mkdir "$PEERS/source/$name/build"
  cd "$PEERS/source/$name/build"
  "build_$name"
  echo "$2" >"$PEERS/$name/version"
}

# Takes the libraries from a Debian package, which need not be installed.
make_debian() {
  local name=$1 candidates package library
  IFS=, read -ra candidates <<<"${3#debian:}"
  package=$(known_package "${candidates[@]}")
  cd "$PEERS/source/$name"
  apt-get -q download "$package"
  dpkg-deb -x ./*.deb files
  for library in ${4//,/ }; do
    cp -L "$(find files -name "$library" | head -1)" "$PEERS/$name/$library"
  done
  dpkg-deb -f ./*.deb Version | sed -E 's/^[0-9]+://; s/[-+].*//' >"$PEERS/$name/version"
}

make_peer() {
  rm -rf "${PEERS:?}/$1" "$PEERS/source/$1"
  mkdir -p "$PEERS/$1" "$PEERS/source/$1"
  "make_${3%%:*}" "$@"
  recipe "$@" >"$PEERS/$1/stamp"
}

# Prints everything that the libraries depend on.
recipe() {
  declare -f "make_${3%%:*}" "build_$1" "build_${1%%[0-9-]*}" || true # a variant's recipe calls that of its first part
  printf '%s\n' "$@" "$COMPILERS"
}

# probe NAME LIBRARIES: returns its status, and prints in one line what is wrong with the peer.
probe() {
  local paths=() library said status=0
  for library in ${2//,/ }; do
    paths+=("$PEERS/$1/$library")
  done
  said=$(env ${ENVIRONMENT[$1]:+"${ENVIRONMENT[$1]}"} LD_PRELOAD="$(IFS=:; echo "${paths[*]}")" \
    timeout 60 "$PEERS/probe" "${paths[@]}" 2>&1) || status=$?
  printf '%s\n' "${said%%$'\n'*}"
  return "$status"
}

# list NAME VERSION TAG LIBRARIES: prints the peer in the form that `hakmem compare` reads; it was taken when it was
# built.
list() {
  local libraries=${4//,/\", \"$1/}
  printf '\n[[allocator]]\nname = "%s"\nversion = "%s"\ntaken = "%s"\nlibraries = ["%s/%s"]\n' \
    "$1" "$2" "$(date -u -r "$PEERS/$1/stamp" +%F)" "$1" "$libraries"
  if [[ -n ${ENVIRONMENT[$1]:-} ]]; then
    printf 'environment = { %s = "%s" }\n' "${ENVIRONMENT[$1]%%=*}" "${ENVIRONMENT[$1]#*=}"
  fi
  printf 'tags = ["%s"]\n' "$3"
}

# row NAME VERSION LIBRARIES VERDICT
row() {
  local size=- library bytes=0
  for library in ${3//,/ }; do
    ((bytes += $(stat -Lc %s "$PEERS/$1/$library" 2>/dev/null || echo 0))) || true
  done
  ((bytes == 0)) || size="$((bytes / 1024)) KiB"
  printf '%-17s %-16s %9s  %s\n' "$1" "$2" "$size" "$4"
}

# Brings a peer up to date, verifies it and reports it in a row. Never call it left of ||, where set -e has no effect.
do_peer() {
  local name=$1 version=$2 tag=$3 packages=$4 libraries=$5 problem
  problem=$(unusable "$name")
  if [[ -n $problem ]]; then
    row "$name" "$version" "$libraries" "left out: $problem"
    return
  fi
  if ! recipe "$name" "$version" "$packages" "$libraries" | cmp -s - "$PEERS/$name/stamp"; then
    make_peer "$name" "$version" "$packages" "$libraries" >"$PEERS/log/$name" 2>&1 </dev/null &
    if ! wait $!; then
      row "$name" "$version" "$libraries" "FAILED to build, see $PEERS/log/$name"
      FAILED=1
      return
    fi
  fi
  version=$(<"$PEERS/$name/version")
  if problem=$(probe "$name" "$libraries"); then
    row "$name" "$version" "$libraries" "yes${problem:+, but $problem}"
    list "$name" "$version" "$tag" "$libraries" >>"$PEERS/peers.toml.new"
  else
    row "$name" "$version" "$libraries" "FAILED: ${problem:-the probe crashed or hangs}"
    FAILED=1
  fi
}

mkdir -p "$PEERS/source" "$PEERS/log"
renice -n 10 $$ >/dev/null
COMPILERS=$(cc --version | head -1 && c++ --version | head -1)
FAILED=0
c++ -std=c++17 -O0 -fno-builtin -o "$PEERS/probe" "$HERE/probe.cc" -pthread # -O1 takes alignment for granted
echo "# Written by bench/peers/build.sh: the peers that work here." >"$PEERS/peers.toml.new"
printf '%-17s %-16s %9s  %s\n' name version size verified
while read -ra line; do
  ((${#line[@]} == 0)) || do_peer "${line[@]}"
done <<<"$TABLE"
mv "$PEERS/peers.toml.new" "$PEERS/peers.toml"
((FAILED == 0))
