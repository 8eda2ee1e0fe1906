#!/usr/bin/env bash
# The parts of `./hak release VERSION` that need no build:
#   release.sh check VERSION                 refuses, with one line, what is not ready
#   release.sh make VERSION DIRECTORY        writes the tarball, the single file with what builds it, the bill of
#                                            materials, the packages that packages.sh and tests/wheel.sh built, the
#                                            recipes, and the checksums of all
#   release.sh single VERSION DIRECTORY      writes the single file alone
#   release.sh recipes VERSION DIRECTORY     fills in the recipes that begin with the tarballs there
#   release.sh verify VERSION DIRECTORY      checks the signature, and the checksums of all
# HAKMEM_SIGNING_KEY names the file of an SSH key whose public half packaging/allowed_signers has; make then signs the
# checksums. Everything follows from the last commit: the same commit gives the same bytes. Publishes nothing.
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."
VERSION=${2-}
NAMESPACE=hakmem-release # what a signature is for

die() {
  printf 'hak: release: %s\n' "$*" >&2
  exit 1
}

# says FILE VERSION: dies unless that is the version to be released.
says() { [[ $2 == "$VERSION" ]] || die "$1 has version ${2:-none}, not $VERSION"; }

check() {
  local heading part file
  [[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "'$VERSION' is not a version such as 1.2.3"
  [[ -d .git || -f .git ]] || die "a release is made from a git checkout"
  [[ -z $(git status --porcelain) ]] || die "the tree is dirty: $(git status --porcelain | head -n 1 | cut -c4-)"
  says CMakeLists.txt "$(sed -n 's/^project(hakmem VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
  says include/hakmem.h "$(for part in MAJOR MINOR PATCH; do
    sed -n "s/^#define HAKMEM_VERSION_$part \([0-9]*\)$/\1/p" include/hakmem.h
  done | paste -sd.)"
  for file in cli/Cargo.toml rust/Cargo.toml; do
    says "$file" "$(sed -n 's/^version = "\([0-9.]*\)"$/\1/p' "$file" | head -n 1)"
  done
  heading=$(grep -m 1 "^## ${VERSION//./\\.}\( \|$\)" CHANGELOG.md) || die "CHANGELOG.md has no section $VERSION"
  [[ $heading != *'not released'* ]] || die "CHANGELOG.md says that $VERSION is not released yet; put the date there"
}

# The time that everything here has.
seconds() { echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"; }

# single DIRECTORY: the amalgamation, as a tarball with builds for Meson, Bazel and Zig.
single() {
  local scratch
  scratch=$(mktemp -d)
  mkdir -p "$1"
  python3 packaging/amalgamate.py "$scratch/hakmem-single-$VERSION" >/dev/null
  tar -C "$scratch" --sort=name --mtime="@$(seconds)" --owner=0 --group=0 --numeric-owner --mode=go=rX,u=rwX \
    -cf - "hakmem-single-$VERSION" | gzip -9n >"$1/hakmem-single-$VERSION.tar.gz"
  rm -r "$scratch"
}

# fill FILE TARBALL DIRECTORY
fill() {
  sed -e "s/@VERSION@/$VERSION/g" -e "s/@SHA256@/$(sha256sum <"$2" | cut -d ' ' -f 1)/" \
    -e "s/@SHA512@/$(sha512sum <"$2" | cut -d ' ' -f 1)/" "$1" >"$3/${1##*/}"
}

recipes() {
  local file
  mkdir -p "$1/recipes"
  for file in packaging/aur/PKGBUILD packaging/alpine/APKBUILD packaging/homebrew/hakmem.rb; do
    fill "$file" "$1/hakmem-$VERSION.tar.gz" "$1/recipes"
  done
  fill packaging/single/hakmem.wrap "$1/hakmem-single-$VERSION.tar.gz" "$1/recipes"
}

make() {
  local directory=$1
  mkdir -p "$directory"
  git archive --format=tar --prefix="hakmem-$VERSION/" HEAD | gzip -9n >"$directory/hakmem-$VERSION.tar.gz"
  python3 packaging/sbom.py "$VERSION" "$(git rev-parse HEAD)" "$(seconds)" >"$directory/hakmem-$VERSION.spdx.json"
  find build/packages build/packages/{source,wheel/tagged} -maxdepth 1 -type f \( -name '*.deb' -o -name '*.ddeb' -o \
    -name '*.rpm' -o -name '*.tar.*' -o -name '*.dsc' -o -name '*.whl' \) -exec cp -t "$directory" {} + \
    2>/dev/null || true
  single "$directory"
  recipes "$directory"
  rm -f "$directory/SHA256SUMS"
  rm -f "$directory/SHA256SUMS.sig"
  (cd "$directory" && sha256sum -- *.* recipes/* >../SHA256SUMS.new && mv ../SHA256SUMS.new SHA256SUMS)
  if [[ -n ${HAKMEM_SIGNING_KEY-} ]]; then
    ssh-keygen -q -Y sign -f "$HAKMEM_SIGNING_KEY" -n "$NAMESPACE" "$directory/SHA256SUMS"
    verify "$directory"
  else
    echo "release: unsigned, as HAKMEM_SIGNING_KEY names no key" >&2
  fi
}

# With the signers of this checkout: those beside a release would be whoever's who made it.
verify() {
  ssh-keygen -q -Y verify -f packaging/allowed_signers -I release -n "$NAMESPACE" -s "$1/SHA256SUMS.sig" \
    <"$1/SHA256SUMS" ||
    die "no key of packaging/allowed_signers has signed $1/SHA256SUMS"
  (cd "$1" && sha256sum --check --quiet --strict SHA256SUMS) || die "$1 is not what was signed"
}

case ${1-} in
  check) check ;;
  make) make "$3" ;;
  single) single "$3" ;;
  recipes) recipes "$3" ;;
  verify) verify "$3" ;;
  *) die "usage: release.sh check VERSION | make|single|recipes|verify VERSION DIRECTORY" ;;
esac
