#!/usr/bin/env bash
# Checks the recipes in packaging/ with what their own systems offer: conan builds the library both ways and runs a
# program with it, makepkg builds Arch's package and pacman installs it below a root of its own, nix evaluates its
# expression, rubocop reads the formula, shellcheck both shell recipes. The steps of Alpine's run without abuild. What
# is not installed is named as skipped. For vcpkg only the shape of the manifest is checked. cargo, which takes
# minutes and has a test of its own, is stood in for: it delivers build/hakmem. ./hak soak packages and ./hak release
# run this.
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2031 # the recipes that are read do not change our variables
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
ROOT=$(cd "$(dirname "$0")/.." && pwd)
export HOME=$SCRATCH CONAN_HOME=$SCRATCH/conan
skipped=()

# has TOOL: false, and noted, if it is not installed.
has() { command -v "$1" >/dev/null || { skipped+=("$1") && false; }; }

mkdir "$SCRATCH/tree"
cd "$ROOT"
cp -R CMakeLists.txt CHANGELOG.md LICENSE THIRD_PARTY.md cli docs cmake include packaging src "$SCRATCH/tree"
mkdir "$SCRATCH/tree/tests" && cp -R tests/install "$SCRATCH/tree/tests"
cd "$SCRATCH/tree"
version=$(sed -n 's/^project(hakmem VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

# As ./hak release fills them in, with a tarball of the sources.
mkdir "$SCRATCH/filled"
(cd "$SCRATCH" && tar -czf "filled/hakmem-$version.tar.gz" tree --transform "s/^tree/hakmem-$version/")
SOURCE_DATE_EPOCH=0 packaging/release.sh single "$version" "$SCRATCH/filled"
packaging/release.sh recipes "$version" "$SCRATCH/filled"
cd "$SCRATCH/filled"
! grep -rn '@[A-Z0-9]*@' recipes || fail "the above is not filled in"
shellcheck -e SC2164 recipes/PKGBUILD recipes/APKBUILD
# shellcheck disable=SC1091,SC2154 # they set these variables
(. ./recipes/PKGBUILD && [[ $pkgver == "$version" &&
  ${sha256sums[0]} == "$(sha256sum <"$source" | cut -d' ' -f1)" ]]) || fail PKGBUILD
# shellcheck disable=SC1091,SC2154 # likewise
(. ./recipes/APKBUILD && sha512sum --check --quiet - <<<"$(sed '/^$/d' <<<"$sha512sums")") || fail APKBUILD
python3 - "$version" "$SCRATCH/tree/packaging/vcpkg/hakmem/vcpkg.json" <<'END_OF_PYTHON'
import json, sys
port = json.load(open(sys.argv[2]))
assert port["name"] == "hakmem" and port["version"] == sys.argv[1] and port["license"] == "MIT", port
END_OF_PYTHON

# A cargo that was already run: to `cargo build --release --target TARGET` in cli, build/hakmem is what comes out.
mkdir "$SCRATCH/bin"
cat >"$SCRATCH/bin/cargo" <<END
#!/bin/bash
set -eu
[[ -f Cargo.lock && " \$* " =~ ' --locked '|' --frozen ' && " \$* " =~ --target[=\ ]([^ ]+) ]] ||
  { echo "cargo \$* in \$PWD" && exit 1; }
[[ \$1 == fetch ]] || install -D "$ROOT/build/hakmem" "target/\${BASH_REMATCH[1]}/release/hakmem"
END
chmod +x "$SCRATCH/bin/cargo"

# package_works ROOT: what is installed there, below usr.
package_works() {
  [[ $("$1/usr/bin/hakmem" --version) == "hakmem $version" ]] || fail "$1 has no command"
  LD_PRELOAD=$1/usr/lib/libhakmem.so HAKMEM_STATS=1 perl -e 1 2>&1 | grep '^hakmem [0-9]' >/dev/null ||
    fail "$1 has no library"
  [[ -f $1/usr/include/hakmem.h && -f $1/usr/share/man/man1/hakmem.1 || -f $1/usr/share/man/man1/hakmem.1.gz ]] ||
    fail "$1 lacks files"
}

# makepkg wants to be no root, which it is not in a namespace where it has another name.
if has makepkg; then
  mkdir "$SCRATCH/arch"
  cp recipes/PKGBUILD "./hakmem-$version.tar.gz" "$SCRATCH/arch"
  (cd "$SCRATCH/arch" && PATH=$SCRATCH/bin:$PATH PKGEXT=.pkg.tar.gz \
    unshare --user --map-user=1000 --map-group=1000 makepkg --nodeps >log 2>&1) ||
    { cat "$SCRATCH/arch/log" && fail makepkg; }
  if has pacman; then
    mkdir -p "$SCRATCH/arch/root/var/lib/pacman"
    pacman --root "$SCRATCH/arch/root" --upgrade --noconfirm --nodeps --nodeps \
      "$SCRATCH"/arch/hakmem-"$version"-*.pkg.tar.gz \
      >"$SCRATCH/arch/log" 2>&1 || { cat "$SCRATCH/arch/log" && fail pacman; }
    package_works "$SCRATCH/arch/root"
  fi
fi

# Alpine's: the functions in abuild's order, each from where abuild calls it. They run in this system, for which gcc
# makes glibc's library and not musl's.
mkdir "$SCRATCH/alpine"
tar -xzf "hakmem-$version.tar.gz" -C "$SCRATCH/alpine"
for step in prepare build package; do
  (cd "$SCRATCH/alpine/hakmem-$version" && PATH=$SCRATCH/bin:$PATH \
    CTARGET=$(uname -m)-alpine-linux-musl pkgdir=$SCRATCH/alpine/root \
    bash -euc "default_prepare() { :; }; . '$SCRATCH/filled/recipes/APKBUILD'; $step" >"$SCRATCH/log" 2>&1) ||
    { cat "$SCRATCH/log" && fail "APKBUILD: $step"; }
done
package_works "$SCRATCH/alpine/root"

if has rubocop; then
  rubocop --only Lint,Security --format quiet recipes/hakmem.rb || fail "rubocop complains"
fi
# Without nixpkgs, which no registry has: what it would give is stood in for, so that the expression says what it asks
# for.
if has nix-instantiate; then
  cat >"$SCRATCH/ask.nix" <<'END'
let
  pkgs = {
    cmake = "cmake";
    ninja = "ninja";
    stdenv.mkDerivation = asked: asked;
    pkgsStatic.rustPlatform.buildRustPackage = asked:
      assert builtins.pathExists asked.cargoLock.lockFile; "command-${asked.version}";
    lib.licenses.mit = "MIT";
  };
  asked = import ./tree/packaging/nix { inherit pkgs; };
in
assert builtins.pathExists (asked.src + "/CMakeLists.txt");
"${asked.pname} ${asked.version} ${toString asked.nativeBuildInputs} ${toString asked.cmakeFlags} ${asked.meta.license}"
END
  asked=$(NIX_STATE_DIR=$SCRATCH/nix NIX_STORE_DIR=$SCRATCH/nix/store \
    nix-instantiate --eval "$SCRATCH/ask.nix") ||
    fail nix
  flags="-DHAKMEM_WERROR=OFF -DHAKMEM_COMMAND=command-$version/bin/hakmem"
  [[ $asked == "\"hakmem $version cmake ninja $flags MIT\"" ]] ||
    fail "nix is asked for $asked"
fi
if has conan; then
  conan profile detect >/dev/null 2>&1
  for shared in True False; do
    conan create "$SCRATCH/tree/packaging/conan" -o "&:shared=$shared" >"$SCRATCH/log" 2>&1 ||
      { cat "$SCRATCH/log" && fail conan; }
    grep -x 'consumer works' "$SCRATCH/log" >/dev/null || fail "conan's package does not work"
  done
fi
echo "the recipes are good${skipped[*]:+; skipped, not installed: ${skipped[*]}}"
