#!/usr/bin/env bash
# Tests `./hak release`, in clones: it refuses, with one line, whatever is not ready; and what it makes is complete and
# the same bytes for the same commit.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
ROOT=$(cd "$(dirname "$0")/.." && pwd)
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test GIT_COMMITTER_NAME=test \
  GIT_COMMITTER_EMAIL=test

# clone NAME: the last commit with the scripts as they are now.
clone() {
  git clone --quiet --no-local --depth 1 "file://$ROOT" "$SCRATCH/$1"
  cp -R "$ROOT/hak" "$ROOT/packaging" "$ROOT/tests" "$ROOT/tools" "$SCRATCH/$1"
  commit "$1"
}
commit() { (cd "$SCRATCH/$1" && git add --all && git commit --quiet --allow-empty -m test --date @1700000000 2>&1); }

# refuses LINE [VERSION]: ./hak release in the clone fails at once and says this.
refuses() {
  local line=$1 version=${2-$VERSION}
  ! "$SCRATCH/one/hak" release "$version" >"$SCRATCH/out" 2>&1 || fail "it did not refuse: $line"
  [[ $(tail -n 1 "$SCRATCH/out") == "hak: $line" ]] || fail "it says '$(cat "$SCRATCH/out")', not '$line'"
}

[[ -e $ROOT/.git ]] || { echo "skipped: no git checkout" && exit; }
VERSION=$(sed -n 's/^project(hakmem VERSION \([0-9.]*\).*/\1/p' "$ROOT/CMakeLists.txt")
export GIT_COMMITTER_DATE=@1700000000
clone one
cd "$SCRATCH/one"
[[ $("$ROOT/hak" release 2>&1) == 'hak: usage: ./hak release VERSION | --rehearse' ]] || fail "no usage"
refuses "release: 'soon' is not a version such as 1.2.3" soon
refuses "release: CMakeLists.txt has version $VERSION, not 99.0.0" 99.0.0
touch left
refuses "release: the tree is dirty: left"
rm left
sed -i "s/^## $VERSION.*/## $VERSION (not released yet)/" CHANGELOG.md && commit one
echo 'def run_tests(*_): run("false")' >>tools/stages.py && commit one
refuses "release: ./hak test fails" --rehearse # which the changelog's date is not in the way of
git reset --quiet --hard HEAD~1
refuses "release: CHANGELOG.md says that $VERSION is not released yet; put the date there"
sed -i "/^## $VERSION/d" CHANGELOG.md && commit one
refuses "release: CHANGELOG.md has no section $VERSION"
printf '## %s (2026-01-01)\n' "$VERSION" >>CHANGELOG.md
sed -i 's/^version = .*/version = "98.0.0"/' cli/Cargo.toml && commit one
refuses "release: cli/Cargo.toml has version 98.0.0, not $VERSION"
git checkout --quiet HEAD~1 cli/Cargo.toml
echo 'def run_tests(*_): run("false")' >>tools/stages.py && commit one
refuses "release: ./hak test fails"

# What is made, twice, in two places and with two umasks.
clone two
git -C "$SCRATCH/two" fetch --quiet "$SCRATCH/one" HEAD && git -C "$SCRATCH/two" reset --quiet --hard FETCH_HEAD
"$SCRATCH/one/packaging/release.sh" check "$VERSION"
unset HAKMEM_SIGNING_KEY
"$SCRATCH/one/packaging/release.sh" make "$VERSION" "$SCRATCH/first" 2>"$SCRATCH/out" ||
  fail "it makes nothing: $(tail -n 3 "$SCRATCH/out")"
grep -x 'release: unsigned, as HAKMEM_SIGNING_KEY names no key' "$SCRATCH/out" >/dev/null ||
  fail "it does not say that it is unsigned"
(umask 077 && "$SCRATCH/two/packaging/release.sh" make "$VERSION" "$SCRATCH/second" 2>/dev/null)
diff -r "$SCRATCH/first" "$SCRATCH/second" || fail "the same commit gives different bytes"
cd "$SCRATCH/first"
sha256sum --check --quiet SHA256SUMS
[[ $(wc -l <SHA256SUMS) == $(find . -type f ! -name SHA256SUMS | wc -l) ]] || fail "SHA256SUMS does not name all files"
tar -tzf "hakmem-$VERSION.tar.gz" | grep -x "hakmem-$VERSION/src/alloc/alloc.h" >/dev/null ||
  fail "the tarball has no sources"
tar -xzf "hakmem-single-$VERSION.tar.gz" -C "$SCRATCH"
grep -F ".version = \"$VERSION\"" "$SCRATCH/hakmem-single-$VERSION/build.zig.zon" >/dev/null ||
  fail "the single file is not there"
sum=$(sha256sum <"hakmem-single-$VERSION.tar.gz" | cut -d ' ' -f 1)
grep -xF "source_hash = $sum" recipes/hakmem.wrap >/dev/null ||
  fail "hakmem.wrap has another checksum"
python3 - "hakmem-$VERSION.spdx.json" <<'END_OF_PYTHON'
import json, sys
bill = json.load(open(sys.argv[1]))
names = {one["SPDXID"]: one["name"] for one in bill["packages"]}
assert len(names) == len(bill["packages"]), "two packages have one id"
assert {"libhakmem", "hakmem", "clap", "libc"} <= set(names.values()) and "proptest" not in names.values()
assert all(one["licenseDeclared"] != "NOASSERTION" for one in bill["packages"]), "a licence is missing"
for one in bill["relationships"]:
    assert {one["spdxElementId"], one["relatedSpdxElement"]} <= {"SPDXRef-DOCUMENT", *names}, one
END_OF_PYTHON

# Signed; and then a file is exchanged together with its checksum, or alone, or the key is another.
ssh-keygen -q -t ed25519 -N '' -C '' -f "$SCRATCH/key"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$SCRATCH/other"
cd "$SCRATCH/one"
printf 'release %s\n' "$(cat "$SCRATCH/key.pub")" >packaging/allowed_signers && commit one
signed=$SCRATCH/signed
HAKMEM_SIGNING_KEY=$SCRATCH/key packaging/release.sh make "$VERSION" "$signed"
packaging/release.sh verify "$VERSION" "$signed"
unverified() {
  ! packaging/release.sh verify "$VERSION" "$signed" >"$SCRATCH/out" 2>&1 || fail "verified: $1"
  [[ $(tail -n 1 "$SCRATCH/out") == "hak: release: $1" ]] || fail "not '$1' but: $(cat "$SCRATCH/out")"
}
echo more >>"$signed/recipes/PKGBUILD"
unverified "$signed is not what was signed"
(cd "$signed" && sha256sum -- *.gz *.json recipes/* >SHA256SUMS)
unverified "no key of packaging/allowed_signers has signed $signed/SHA256SUMS"
! HAKMEM_SIGNING_KEY=$SCRATCH/other packaging/release.sh make "$VERSION" "$signed" >"$SCRATCH/out" 2>&1 ||
  fail "signed by a key that nobody knows"
echo "releases are refused and made as they should be"
