#!/bin/sh
# What a recipe needs from a registry, into DIRECTORY, once for these words:
#   install.sh pip DIRECTORY PACKAGE==VERSION…          a virtual environment
#   install.sh npm DIRECTORY PACKAGE@VERSION…           node_modules, and npm's cache of it
#   install.sh cargo DIRECTORY SOURCE.rs CRATE=VERSION FEATURE…
#                                                       release/recipe, which is SOURCE.rs
# SPDX-License-Identifier: MIT
set -eu
kind=$1 directory=$2
shift 2
words="$*"
[ "$kind" != cargo ] || words="$words $(cksum <"$1")"
stamp=$directory/installed
[ "$(cat "$stamp" 2>/dev/null)" = "$words" ] && exit 0
rm -rf "$directory"
mkdir -p "$directory"
case $kind in
  pip)
    python3 -m venv "$directory"
    "$directory/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@"
    ;;
  npm) npm install --prefix "$directory" --cache "$directory/cache" --silent --no-audit --no-fund --no-save "$@" ;;
  cargo)
    mkdir "$directory/src"
    cp "$1" "$directory/src/main.rs"
    crate=$2
    shift 2
    {
      printf '[package]\nname = "recipe"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n'
      printf '%s = { version = "=%s", features = [' "${crate%%=*}" "${crate#*=}"
      [ $# = 0 ] || printf '"%s",' "$@"
      printf '] }\n'
    } >"$directory/Cargo.toml"
    cargo build --quiet --release --manifest-path "$directory/Cargo.toml" --target-dir "$directory"
    ;;
  *)
    echo "install.sh: $kind: pip, npm or cargo" >&2
    exit 2
    ;;
esac
echo "$words" >"$stamp"
