#!/usr/bin/env bash
# Tests the .deb and .rpm packages, the source package for Debian and the tarball: lintian has nothing to say, a build
# elsewhere gives the same bytes, in a bare Debian packages can be installed, used, and removed without a trace, and the
# tarball works wherever it is unpacked. Takes minutes: ./hak soak packages and ./hak release run it.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
ROOT=$(cd "$(dirname "$0")/.." && pwd)
BARE=$SCRATCH/bare

# The maintainer's address is the packager's, DEBEMAIL, and nobody has asked Debian for this package.
without_complaints() {
  lintian --allow-root --fail-on error,warning \
    --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs "$@" ||
    fail "lintian complains"
}

# Builds the packages again, in a copy of the sources, and compares.
reproducible() {
  local copy="$SCRATCH/copy of the sources" package
  mkdir -p "$copy/build"
  (cd "$ROOT" && cp -R CMakeLists.txt LICENSE THIRD_PARTY.md cmake cli docs include packaging src "$copy")
  HAKMEM_COMMAND=$ROOT/build/hakmem "$copy/packaging/packages.sh" deb tar
  for package in "$ROOT"/build/packages/*.deb "$ROOT"/build/packages/*.tar.gz; do
    cmp "$package" "$copy/build/packages/${package##*/}" || fail "${package##*/} depends on where and when it is built"
  done
}

# inside COMMAND…: in the bare Debian, as its root.
inside() { unshare --mount --pid --fork --mount-proc="$BARE/proc" chroot "$BARE" env -i \
  PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# The files there, but for what dpkg and ldconfig keep of their own.
files() {
  (cd "$BARE" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache \
    -o -path ./tmp \) \
    -prune -o ! -name ld.so.cache -print | LC_ALL=C sort)
}

# works_there DIRECTORY PACKAGE…: the packages in DIRECTORY, which have these names.
works_there() {
  rm -f "$BARE"/tmp/*.deb
  cp "$1"/*.deb "$BARE/tmp"
  inside sh -c 'dpkg --install /tmp/*.deb' || fail "dpkg --install fails"
  for library in libhakmem.so.0 /usr/lib/libhakmem.so; do
    inside env LD_PRELOAD=$library HAKMEM_STATS=1 perl -e '"x" x 1000' 2>&1 | grep '^hakmem [0-9]' ||
      fail "perl does not run under $library"
  done
  inside test -f /usr/include/hakmem.h || fail "files are missing"
  if [[ " ${*:2} " == *' hakmem-tools '* ]]; then
    inside hakmem options | grep '^RETAIN_BYTES ' || fail "the command does not find the library"
    inside test -f /usr/share/man/man1/hakmem.1.gz || fail "files are missing"
  fi
  inside dpkg --purge "${@:2}"
  diff "$SCRATCH/before" <(files) || fail "removing the packages left or took the above"
}

in_a_bare_debian() {
  mmdebstrap --quiet --variant=essential bookworm "$BARE" || fail "no bare Debian could be made"
  files >"$SCRATCH/before"
  works_there "$ROOT/build/packages" hakmem-tools libhakmem-dev libhakmem0
  works_there "$ROOT/build/packages/source" libhakmem-dev libhakmem0-dbgsym libhakmem0
}

# The tarball, unpacked somewhere: programs are compiled with it, and the command needs nothing of the system, not even
# a libc, which an empty root shows.
tarball_works() {
  local there=$SCRATCH/somewhere flags
  mkdir "$there"
  tar -xzf "$ROOT"/build/packages/hakmem-*-linux-*.tar.gz -C "$there" --strip-components=1
  unshare --user --map-root-user chroot "$there" /bin/hakmem --version ||
    fail "the command does not run in an empty root"
  "$there/bin/hakmem" options | grep '^RETAIN_BYTES ' >/dev/null ||
    fail "the command does not find the library beside it"
  read -ra flags < <(PKG_CONFIG_PATH=$there/lib/pkgconfig pkg-config --cflags --libs hakmem)
  cc "$ROOT/tests/install/consumer.c" -o "$SCRATCH/consumer" "${flags[@]}"
  [[ $(LD_LIBRARY_PATH=$there/lib "$SCRATCH/consumer") == 'consumer works' ]] ||
    fail "a program with the tarball does not work"
  [[ -f $there/share/man/man1/hakmem.1 && -f $there/share/licenses/hakmem/LICENSE ]] || fail "the tarball lacks files"
}

# rpm_has PACKAGE PATH…: rpm names these files.
rpm_has() {
  local file
  rpm --query --package --list "$ROOT"/build/packages/"$1"-[0-9]*.rpm >"$SCRATCH/list"
  for file in "${@:2}"; do
    grep -x -- "$file" "$SCRATCH/list" >/dev/null || fail "$1.rpm has no $file"
  done
}

# Installed by rpm in a root of their own, the library serves a program, and the command and the C files are whole.
# Removed again, they leave nothing but rpm's records.
rpm_works() {
  local there=$SCRATCH/rpm-root
  mkdir "$there"
  rpm --root "$there" --nodeps --noscripts --install "$ROOT"/build/packages/*.rpm || fail "rpm --install fails"
  LD_PRELOAD=$there/usr/lib64/libhakmem.so.0 HAKMEM_STATS=1 perl -e '"x" x 1000' 2>&1 | grep '^hakmem [0-9]' ||
    fail "perl does not run under the library of libhakmem0.rpm"
  chroot "$there" /usr/bin/hakmem --version || fail "the command does not run in an empty root"
  cc "$ROOT/tests/install/consumer.c" -o "$SCRATCH/rpm-consumer" -I"$there/usr/include" -L"$there/usr/lib64" \
    -lhakmem
  [[ $(LD_LIBRARY_PATH=$there/usr/lib64 "$SCRATCH/rpm-consumer") == 'consumer works' ]] ||
    fail "a program with hakmem-devel.rpm does not work"
  rpm --root "$there" --noscripts --erase hakmem-tools hakmem-devel libhakmem0 || fail "rpm --erase fails"
  find "$there" \( -name 'libhakmem*' -o -name 'hakmem*' \) -print | { ! grep .; } || fail "rpm leaves the above"
}

SOURCE_DATE_EPOCH=$(git -C "$ROOT" log -1 --format=%ct) # once, as a commit may come in between
export SOURCE_DATE_EPOCH
"$ROOT/packaging/packages.sh" deb rpm tar source
without_complaints "$ROOT"/build/packages/*.deb "$ROOT"/build/packages/source/*.changes
tarball_works
rpm_has libhakmem0 '/usr/lib64/libhakmem\.so\.0' /usr/share/licenses/hakmem/LICENSE
rpm_has hakmem-devel /usr/include/hakmem.h '/usr/lib64/libhakmem\.so' /usr/lib64/pkgconfig/hakmem.pc
rpm_has hakmem-tools /usr/bin/hakmem '/usr/share/man/man1/hakmem.1.*'
if ((EUID == 0)); then rpm_works; else echo "skipped: rpm's root of its own needs root"; fi
reproducible
if ((EUID == 0)); then in_a_bare_debian; else echo "skipped: a bare Debian needs root"; fi
echo "the packages are good"
