#!/usr/bin/env bash
# Tests `./hak install` and `./hak uninstall`: what users find below the prefix works, all of it goes away again, and
# nothing else does. gdb's `hak block` is tested on the installed library, which has no debug information.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/../kit.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
HAK=$HERE/../../hak
PREFIX=$SCRATCH/prefix

# tree: every path below the prefix, with its type, mode and, of a link, where it leads.
tree() { (cd "$PREFIX" && find . -printf '%p %y %m %l\n' | LC_ALL=C sort); }

# has TEXT COMMAND…: the command succeeds and prints a line with the text.
has() {
  local text=$1
  shift
  "$@" >"$SCRATCH/out" 2>&1 || fail "'$*' failed: $(cat "$SCRATCH/out")"
  grep -F -- "$text" "$SCRATCH/out" >/dev/null || fail "'$*' does not say '$text' but: $(cat "$SCRATCH/out")"
}

# refuses TEXT COMMAND…: it fails and says this one line.
refuses() {
  local text=$1
  shift
  ! "$@" >"$SCRATCH/out" 2>&1 || fail "'$*' did not fail"
  [[ $(cat "$SCRATCH/out") == "$text" ]] || fail "'$*' says '$(cat "$SCRATCH/out")', not '$text'"
}

installed_command() {
  has 'hakmem 0.' "$PREFIX/bin/hakmem" --version
  has RETAIN_BYTES env -u HAKMEM_LIBRARY "$PREFIX/bin/hakmem" options # finds the library beside it
  rm "$PREFIX/lib/libhakmem.so"
  has RETAIN_BYTES env -u HAKMEM_LIBRARY "$PREFIX/bin/hakmem" options # and without the development files, too
  has '.SH SYNOPSIS' cat "$PREFIX/share/man/man1/hakmem-explain.1"
  has 'explain' bash -c ". '$PREFIX/share/bash-completion/completions/hakmem' && complete -p hakmem &&
    COMP_WORDS=(hakmem expl) COMP_CWORD=1 && _hakmem hakmem expl hakmem && echo \"\${COMPREPLY[@]}\""
  grep '^#compdef hakmem' "$PREFIX/share/zsh/site-functions/_hakmem" >/dev/null || fail "no completions for zsh"
  grep '^complete -c hakmem ' "$PREFIX/share/fish/vendor_completions.d/hakmem.fish" >/dev/null || fail "none for fish"
  has title python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])))' "$PREFIX/share/hakmem/grafana.json"
}

# block EXPRESSION LINE…: what gdb says of the address in the stopped program, beginning with these lines.
block() {
  local expression=$1
  shift
  gdb -nx -batch -ex 'set env LD_PRELOAD='"$PREFIX"'/lib/libhakmem.so.0' -ex "set env HAKMEM_SECURE=${secure-0}" \
    -ex run \
    -x "$PREFIX/share/hakmem/block.py" -ex "hak block $expression" "$SCRATCH/stopped" >"$SCRATCH/out" 2>&1 || true
  grep -E '^(block|state|slab|heap|arena|hak:) ' "$SCRATCH/out" |
    sed -E 's/slot [0-9]+ at 0x[0-9a-f]+/a slot/; s/0x[0-9a-f]+/ADDRESS/g' >"$SCRATCH/said"
  diff <(printf '%s\n' "$@") "$SCRATCH/said" || fail "hak block $expression says the above: $(cat "$SCRATCH/out")"
}

installed_gdb_script() {
  cc -g "$HERE/stopped.c" -o "$SCRATCH/stopped"
  block '(char *)tiny + 5' 'block   ADDRESS, 48 bytes, number 0 of 1365; the address is 5 bytes into it' \
    'state   in use' \
    'slab    tiny, a slot, class 3' 'heap    heap 0 (ADDRESS)'
  block tiny_freed 'block   ADDRESS, 48 bytes, number 1 of 1365; the address is 0 bytes into it' \
    'state   free, in the list of heap 0' 'slab    tiny, a slot, class 3' 'heap    heap 0 (ADDRESS)'
  block mid 'block   ADDRESS, 5120 bytes, number 0 of 12; the address is 0 bytes into it' 'state   in use' \
    'slab    mid, a slot, class 50'
  block mid_freed 'block   ADDRESS, 5120 bytes, number 1 of 12; the address is 0 bytes into it' \
    'state   free, kept by a thread' 'slab    mid, a slot, class 50'
  block '(char *)large + 200000' 'block   327680 bytes, the only one of its span' 'state   in use' \
    'slab    large, a slot'
  block '(char *)huge + 10000000' 'block   20971520 bytes, the only one of its span' 'state   in use' \
    'slab    huge, a slot'
  block in_arena 'block   ADDRESS, 5120 bytes, number 0 of 12; the address is 0 bytes into it' 'state   in use' \
    'slab    mid, a slot, class 50' 'arena   1, "requests"'
  block '&tiny' "hak: ADDRESS is not in HAKMEM's region"
  secure=1
  block '(char *)huge + 10000000' 'block   20971520 bytes, the only one of its span' 'state   in use' \
    'slab    secure large, a slot'
  block '(char *)large_in_arena + 200000' 'block   300000 bytes, the only one of its span' 'state   in use' \
    'slab    secure large, a slot' 'arena   1, "requests"'
  refuses 'hak: this program does not run HAKMEM' bash -c "gdb -nx -batch -x '$PREFIX/share/hakmem/block.py' \
    -ex 'break main' -ex run -ex 'hak block 1' '$SCRATCH/stopped' 2>&1 | grep '^hak: ' && false"
}

mkdir -p "$PREFIX/share/man/man1"
chmod 700 "$PREFIX/share"
touch "$PREFIX/share/man/man1/other.1"
tree >"$SCRATCH/before"
"$HAK" install --prefix "$PREFIX"
tree >"$SCRATCH/after"
"$HAK" install --prefix "$PREFIX" >/dev/null # over itself
diff "$SCRATCH/after" <(tree) || fail "installing again changes the tree"
installed_command
installed_gdb_script
touch "$PREFIX/lib/other" # somebody's, in a directory of ours
"$HAK" uninstall --prefix "$PREFIX"
(rm "$PREFIX/lib/other" && rmdir "$PREFIX/lib") || fail "uninstall removed a file that is not HAKMEM's"
diff "$SCRATCH/before" <(tree) || fail "uninstall left or removed the above"

refuses "hak: HAKMEM is not installed in $PREFIX: there is no share/hakmem/manifest" "$HAK" uninstall --prefix "$PREFIX"
refuses "hak: $SCRATCH/none: there is no such directory" "$HAK" uninstall --prefix "$SCRATCH/none"
refuses "hak: usage: ./hak install [--prefix DIRECTORY]" "$HAK" install "$PREFIX"
refuses "hak: cannot write to /proc/hakmem" "$HAK" install --prefix /proc/hakmem
echo "installed, used and removed"
