#!/usr/bin/env bash
# Checks the recipes in packaging/ with what their own systems offer: conan builds the library both ways and runs a
# program with it,
# nix reads its expression, rubocop the formula, makepkg the PKGBUILD, shellcheck both shell recipes. What is not
# installed is named as skipped. For vcpkg only the shape of the manifest is checked. ./hak soak and ./hak release run
# this.
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

if has makepkg; then
  (cd recipes && cp PKGBUILD ../hakmem-*.tar.gz "$SCRATCH" && cd "$SCRATCH" && chmod -R a+rwX . &&
    setpriv --reuid=65534 --clear-groups makepkg --printsrcinfo | grep "pkgver = $version" >/dev/null) || fail "makepkg"
fi
if has rubocop; then
  rubocop --only Lint,Security --format quiet recipes/hakmem.rb || fail "rubocop complains"
fi
if has nix-instantiate; then
  nix-instantiate --parse "$SCRATCH/tree/packaging/nix/default.nix" >/dev/null || fail "nix does not read default.nix"
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
