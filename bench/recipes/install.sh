#!/bin/sh
# What a recipe needs from a registry, into DIRECTORY, once for these words:
#   install.sh pip DIRECTORY PACKAGE==VERSION…          a virtual environment
#   install.sh npm DIRECTORY PACKAGE@VERSION…           node_modules, and npm's cache of it
#   install.sh cargo DIRECTORY SOURCE.rs CRATE=VERSION FEATURE…
#                                                       release/recipe, which is SOURCE.rs
#   install.sh freethreaded DIRECTORY VERSION PACKAGE==VERSION…
#                                                       bin/pythonVERSIONt, built from Debian 13's sources, and wheels
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
  freethreaded)
    version=$1
    shift
    mkdir -p "$directory/lists/partial"
    # shellcheck disable=SC2016 # apt-get expands it
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' |
      sed -n 's|^\(.*/debian\)/$|deb-src \1 trixie main|p' | head -1 >"$directory/sources.list"
    trap 'tail -n 30 "$directory/log" >&2' EXIT
    (
      cd "$directory"
      set -- -qq -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" -o APT::Sandbox::User=root
      apt-get "$@" update
      apt-get "$@" source --download-only "python$version"
      tar -xf python*.orig.tar.xz
      cd Python-*/
      ./configure -q --disable-gil --prefix="$directory" --disable-test-modules --without-ensurepip CFLAGS=-O2
      make -s -j "$(getconf _NPROCESSORS_ONLN)"
      make -s install
    ) >"$directory/log" 2>&1
    trap - EXIT
    rm -rf "$directory"/Python-* "$directory"/python* "$directory/lists"
    python3 -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
      --python-version "$version" --implementation cp --abi "cp$(echo "$version" | tr -d .)t" \
      --platform "manylinux_2_28_$(uname -m)" --target "$directory/lib/python${version}t/site-packages" "$@"
    ;;
  *)
    echo "install.sh: $kind: pip, npm, cargo or freethreaded" >&2
    exit 2
    ;;
esac
echo "$words" >"$stamp"
