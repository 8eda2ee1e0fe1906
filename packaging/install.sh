#!/usr/bin/env bash
# Puts what `cmake --install` would install below a prefix, or removes it:
#   install.sh install BUILD_DIRECTORY PREFIX      install.sh uninstall PREFIX
#
#  1. The files are installed into a scratch directory first, which yields their list: the manifest, kept below the
#     prefix. It also has the directories that were not there before.
#  2. Uninstalling removes what the manifest names; a directory only if it is empty.
#  3. Installing again first removes the version that is there. A file is replaced, never overwritten, because running
#     programs map the library.
#  4. Everything that is written elsewhere lies below the one directory that mktemp made: others can put nothing there,
#     and no link that they leave is followed.
# SPDX-License-Identifier: MIT
set -euo pipefail
MANIFEST=share/hakmem/manifest

die() {
  printf 'hak: %s\n' "$*" >&2
  exit 1
}

# to_remove: reads paths relative to the prefix, a file or directory on each line, the innermost last.
to_remove() {
  tac | while IFS= read -r path; do
    if [[ -d $path && ! -L $path ]]; then
      rmdir "$path" 2>/dev/null || true # others have files there
    else
      rm -f "$path"
    fi
  done
}

uninstall() {
  cd "$1" 2>/dev/null || die "$1: there is no such directory"
  [[ -f $MANIFEST ]] || die "HAKMEM is not installed in $1: there is no $MANIFEST"
  [[ -w . ]] || die "cannot write to $1"
  ! grep -qE '^/|(^|/)\.\.(/|$)' "$MANIFEST" || die "$1/$MANIFEST names files that are not below $1"
  to_remove < <(cat "$MANIFEST")
}

install() {
  local build=$1 prefix=$2 scratch tree path
  (mkdir -p "$prefix" 2>/dev/null && [[ -w $prefix ]]) || die "cannot write to $prefix"
  scratch=$(mktemp -d)
  # shellcheck disable=SC2064 # the directory of now
  trap "rm -rf '$scratch'" EXIT
  prefix=$(cd "$prefix" && pwd)
  tree=$scratch/tree$prefix # hakmem.pc names the prefix
  DESTDIR=$scratch/tree cmake --install "$build" --prefix "$prefix" --strip >"$scratch/log" ||
    { cat "$scratch/log" && die "cmake --install failed"; }
  [[ ! -f $prefix/$MANIFEST ]] || (uninstall "$prefix")
  (cd "$tree" && find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort) | while IFS= read -r path; do
    [[ -d $tree/$path && ! -L $tree/$path && -d $prefix/$path ]] || printf '%s\n' "$path"
  done >"$scratch/list"
  while IFS= read -r path; do
    if [[ -d $tree/$path && ! -L $tree/$path ]]; then
      mkdir -m 755 "$prefix/$path"
    else
      cp -P --preserve=mode,timestamps --remove-destination "$tree/$path" "$prefix/$path"
    fi
  done <"$scratch/list"
  { cat "$scratch/list" && printf '%s\n' "$MANIFEST"; } >"$scratch/manifest"
  cp --remove-destination "$scratch/manifest" "$prefix/$MANIFEST"
  printf 'installed in %s: %d files\n' "$prefix" "$(find "$tree" ! -type d | wc -l)"
}

"$@"
