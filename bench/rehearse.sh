#!/usr/bin/env bash
# Five readers' first minutes, rehearsed: in a bare system of each release, from nothing to the figures of a program of
# their own. rehearse.sh [RELEASE…], of bookworm, trixie (Debian 12, 13) and noble (Ubuntu 24.04); needs root.
#
#  1. build/readers/RELEASE.tar is the bare system, made once by mmdebstrap: apt and what it needs. Every reader begins
#     with a copy of it, and with what a release of HAKMEM consists of: packages, tarball and wheel, in build/packages.
#  2. A reader is a function: it installs the language and HAKMEM, builds the program and asks for its figures. All
#     of it is timed, the downloads too, and it fails if the figures are not there.
#  3. The times go to build/results/readers.md, a table as in docs/recipes.md. A release that no mirror here has is
#     named there. How many came to their figures, and the longest time, are printed for docs/reliability.md.
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2016,SC2317 # readers are called by name, and their text is expanded inside
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK=$ROOT/build/readers
declare -A NAMES=([bookworm]='Debian 12' [trixie]='Debian 13' [noble]='Ubuntu 24.04')
READERS=(ruby node rust python cc)
(($#)) || set -- bookworm trixie noble
((EUID == 0)) || { echo "rehearse: a system of its own needs root" && exit 1; }

# Debian's package of Ubuntu's keys vouches for Ubuntu's packages.
ubuntu_keys() {
  local keys=$WORK/keys
  [[ -f $keys/usr/share/keyrings/ubuntu-archive-keyring.gpg ]] || {
    rm -rf "$keys"
    mmdebstrap --quiet --variant=extract --include=ubuntu-keyring trixie "$keys"
  }
  echo "$keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
}

# bare RELEASE: its tarball.
bare() {
  local options=(--quiet --variant=minbase --include=apt)
  [[ ! -f $WORK/$1.tar ]] || return 0
  case $1 in
    noble) options+=('--components=main,universe' "--keyring=$(ubuntu_keys)") ;;
  esac
  mmdebstrap "${options[@]}" "$1" "$WORK/new.tar" 2>"$WORK/$1.log" && mv "$WORK/new.tar" "$WORK/$1.tar"
}

# inside COMMAND…: in the copy, as a reader who works in /root.
inside() {
  unshare --mount --pid --fork --mount-proc="$WORK/root/proc" chroot "$WORK/root" env -i HOME=/root \
    PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin DEBIAN_FRONTEND=noninteractive bash -euc "cd /root; $*" </dev/null
}
packages() { inside "apt-get -qq update && apt-get -qq install --no-install-recommends $* >/dev/null"; }
tarball() { inside 'tar -xzf /release/hakmem-*-linux-*.tar.gz -C /usr/local --strip-components=1'; }
measure() { inside "hakmem compare --only system,hakmem --rounds 3 -- $*"; }

with_ruby() {
  packages ruby && inside 'dpkg --install /release/libhakmem0_*.deb /release/hakmem-tools_*.deb' &&
    measure ruby /programs/jobs.rb
}
with_node() {
  packages nodejs && tarball && measure node /programs/service.js
}
with_rust() {
  packages rustc && tarball && inside 'rustc -O /programs/service.rs' && measure ./service
}
with_python() {
  packages python3-venv && inside 'python3 -m venv own; own/bin/pip --quiet install /release/hakmem-*.whl
    PATH=$PWD/own/bin:$PATH; hakmem compare --only system,hakmem --rounds 3 -- python /programs/service.py'
}
with_cc() {
  packages g++ pkg-config && inside 'cd /release
    dpkg --install libhakmem0_*.deb libhakmem-dev_*.deb hakmem-tools_*.deb
    cd
    g++ -O2 /programs/service.cc $(pkg-config --cflags --libs hakmem) -o service; hakmem explain -- ./service'
}

# reader RELEASE NAME: prints the seconds.
reader() {
  local begin log=$WORK/$1-$2.log
  rm -rf "$WORK/root"
  mkdir -p "$WORK/root"
  tar -xf "$WORK/$1.tar" -C "$WORK/root"
  mkdir "$WORK/root/release" "$WORK/root/programs"
  cp "$ROOT"/build/packages/*.deb "$ROOT"/build/packages/*-linux-*.tar.gz "$ROOT"/build/packages/wheel/tagged/*.whl \
    "$WORK/root/release"
  cp "$ROOT"/bench/rehearsal/* "$ROOT/bench/recipes/jobs.rb" "$WORK/root/programs"
  begin=$SECONDS
  "with_$2" >"$log" 2>&1 &
  wait $! || { cat "$log" >&2 && return 1; }
  grep -E '^(hakmem +[0-9]|= resident )' "$log" >/dev/null || { cat "$log" >&2 && return 1; }
  echo $((SECONDS - begin))
}

mkdir -p "$WORK" "$ROOT/build/results"
trap 'rm -rf "$WORK/root"' EXIT
table=$ROOT/build/results/readers.md
printf '| | ruby | node | rust | python | C++ |\n|---|--:|--:|--:|--:|--:|\n' >"$table"
failed=0 readers=0 longest=0
for release; do
  if ! bare "$release"; then
    echo "| ${NAMES[$release]} | not had: no mirror here | | | | |" >>"$table"
    continue
  fi
  row="| ${NAMES[$release]} |"
  for name in "${READERS[@]}"; do
    if seconds=$(reader "$release" "$name"); then
      row+=" $seconds s |" readers=$((readers + 1)) longest=$((seconds > longest ? seconds : longest))
    else
      row+=" failed |" failed=1
    fi
  done
  echo "$row" >>"$table"
done
cat "$table"
printf 'figure: rehearsed_readers %d\nfigure: rehearsed_seconds_most %d\n' $readers $longest
exit $failed
