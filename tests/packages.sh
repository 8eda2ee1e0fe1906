#!/usr/bin/env bash
# Tests the .deb and .rpm packages: lintian has nothing to say, a build elsewhere gives the same bytes, and in a bare
# Debian they can be installed, used, and removed without a trace. Takes minutes: ./hak soak and ./hak release run it.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
ROOT=$(cd "$(dirname "$0")/.." && pwd)
BARE=$SCRATCH/bare

# The maintainer's address is the packager's: DEBEMAIL.
without_complaints() {
  lintian --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$@" ||
    fail "lintian complains"
}

# Builds the packages again, in a copy of the sources, and compares.
reproducible() {
  local copy="$SCRATCH/copy of the sources" package
  mkdir -p "$copy/build"
  (cd "$ROOT" && cp -R CMakeLists.txt LICENSE THIRD_PARTY.md cmake cli docs include packaging src "$copy")
  SOURCE_DATE_EPOCH=$(git -C "$ROOT" log -1 --format=%ct) HAKMEM_COMMAND=$ROOT/build/hakmem \
    "$copy/packaging/packages.sh" deb
  for package in "$ROOT"/build/packages/*.deb; do
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

in_a_bare_debian() {
  mmdebstrap --quiet --variant=essential bookworm "$BARE" || fail "no bare Debian could be made"
  files >"$SCRATCH/before"
  cp "$ROOT"/build/packages/*.deb "$BARE/tmp"
  inside sh -c 'dpkg --install /tmp/*.deb' || fail "dpkg --install fails"
  inside env LD_PRELOAD=libhakmem.so.0 HAKMEM_STATS=1 perl -e '"x" x 1000' 2>&1 | grep '^hakmem [0-9]' ||
    fail "perl does not run under the library"
  inside hakmem options | grep '^RETAIN_BYTES ' || fail "the command does not find the library"
  inside test -f /usr/share/man/man1/hakmem.1.gz -a -f /usr/include/hakmem.h || fail "files are missing"
  inside dpkg --purge hakmem-tools libhakmem-dev libhakmem0
  diff "$SCRATCH/before" <(files) || fail "removing the packages left or took the above"
}

# rpm_has PACKAGE PATH…: rpm names these files.
rpm_has() {
  local file
  rpm --query --package --list "$ROOT"/build/packages/"$1"-[0-9]*.rpm >"$SCRATCH/list"
  for file in "${@:2}"; do
    grep -x -- "$file" "$SCRATCH/list" >/dev/null || fail "$1.rpm has no $file"
  done
}

"$ROOT/packaging/packages.sh" deb rpm
without_complaints "$ROOT"/build/packages/*.deb
rpm_has libhakmem0 '/usr/lib64/libhakmem\.so\.0' /usr/share/licenses/hakmem/LICENSE
rpm_has hakmem-devel /usr/include/hakmem.h '/usr/lib64/libhakmem\.so' /usr/lib64/pkgconfig/hakmem.pc
rpm_has hakmem-tools /usr/bin/hakmem '/usr/share/man/man1/hakmem.1.*'
reproducible
if ((EUID == 0)); then in_a_bare_debian; else echo "skipped: a bare Debian needs root"; fi
echo "the packages are good"
