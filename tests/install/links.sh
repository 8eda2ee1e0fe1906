#!/usr/bin/env bash
# What packaging/install.sh writes while other users watch the common directory for temporary files: nothing beside its
# own directory there, where they leave links, so that root overwrites no file of its own.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/../kit.sh"
INSTALL=$(cd "$(dirname "$0")/../.." && pwd)/packaging/install.sh
PREFIX=$SCRATCH/prefix

# A mktemp after which somebody was quick.
mkdir "$SCRATCH/bin" "$SCRATCH/tmp" "$SCRATCH/project"
cat >"$SCRATCH/bin/mktemp" <<END
#!/bin/sh
made=\$($(command -v mktemp) "\$@") || exit
for name in log list manifest tree; do ln -s '$SCRATCH/precious' "\$made.\$name"; done
ls -1 '$SCRATCH/tmp' >'$SCRATCH/planted'
echo "\$made"
END
chmod +x "$SCRATCH/bin/mktemp"
echo precious >"$SCRATCH/precious"
printf 'cmake_minimum_required(VERSION 3.16)\nproject(x NONE)\ninstall(FILES a DESTINATION share/hakmem)\n' \
  >"$SCRATCH/project/CMakeLists.txt"
echo a >"$SCRATCH/project/a"
cmake -S "$SCRATCH/project" -B "$SCRATCH/build" >/dev/null

PATH=$SCRATCH/bin:$PATH TMPDIR=$SCRATCH/tmp "$INSTALL" install "$SCRATCH/build" "$PREFIX" >/dev/null
[[ $(wc -l <"$SCRATCH/planted") == 5 ]] || fail "the links were not there in time"
[[ $(cat "$SCRATCH/precious") == precious ]] || fail "a link was followed: $(cat "$SCRATCH/precious")"
[[ $(cat "$PREFIX/share/hakmem/a") == a ]] || fail "nothing was installed"
diff <(printf 'share\nshare/hakmem\nshare/hakmem/a\nshare/hakmem/manifest\n') "$PREFIX/share/hakmem/manifest"

# Neither a link at the manifest's place, nor a manifest that leads out of the prefix.
ln -sf "$SCRATCH/precious" "$SCRATCH/link"
mv "$SCRATCH/link" "$PREFIX/share/hakmem/a"
TMPDIR=$SCRATCH "$INSTALL" install "$SCRATCH/build" "$PREFIX" >/dev/null
[[ ! -L $PREFIX/share/hakmem/a && $(cat "$SCRATCH/precious") == precious ]] ||
  fail "a link below the prefix was followed"
for path in ../precious "$SCRATCH/precious" share/../../precious; do
  echo "$path" >"$PREFIX/share/hakmem/manifest"
  ! "$INSTALL" uninstall "$PREFIX" >"$SCRATCH/out" 2>&1 || fail "$path was removed"
  [[ $(cat "$SCRATCH/out") == "hak: $PREFIX/share/hakmem/manifest names files that are not below $PREFIX" ]] ||
    fail "$(cat "$SCRATCH/out")"
  [[ -f $SCRATCH/precious ]] || fail "$path was removed"
done
echo "no link is followed"
