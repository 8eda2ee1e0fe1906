#!/usr/bin/env bash
# Tests the packages that would be published: they hold all C sources, and a program builds from them without network
# and runs. Needs cargo 1.90, which packages crates that depend on each other.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
cd "$(dirname "$0")/../rust"

[[ $(cargo --version) =~ ^cargo\ 1\.([0-9]+) ]]
((BASH_REMATCH[1] >= 90)) || { echo "skipped: this cargo is older than 1.90" && exit; }

cargo package --workspace --offline --locked --allow-dirty --no-verify --target-dir "$SCRATCH" 2>&1 | tee "$SCRATCH/log"
! grep '^warning' "$SCRATCH/log" || fail "cargo warns"
for crate in "$SCRATCH"/package/*.crate; do
  tar -xf "$crate" -C "$SCRATCH"
done
for crate in hakmem hakmem-sys; do
  for line in 'authors = ["The HAKMEM authors"]' 'repository = "https://github.com/hakmem/hakmem"' \
    'homepage = "https://github.com/hakmem/hakmem"'; do
    grep -xF -- "$line" "$SCRATCH/$crate"-[0-9]*/Cargo.toml >/dev/null || fail "$crate does not say: $line"
  done
done
diff -r ../src "$SCRATCH"/hakmem-sys-*/c/src || fail "other sources than in src/"

# The first program of the README.
mkdir "$SCRATCH/program" "$SCRATCH/program/src"
cat >"$SCRATCH/program/Cargo.toml" <<END
[package]
name = "program"
edition = "2021"
[dependencies]
hakmem = "0.1"
[patch.crates-io]
hakmem = { path = "$(echo "$SCRATCH"/hakmem-[0-9]*)" }
hakmem-sys = { path = "$(echo "$SCRATCH"/hakmem-sys-*)" }
END
awk '/^```/ { n++; next } n == 1' hakmem/README.md >"$SCRATCH/program/src/main.rs"
cp Cargo.lock "$SCRATCH/program"
# With CFLAGS, which stand behind the crate's own, its sources compile in a third of the time.
CFLAGS=-O0 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 \
  cargo build --offline --manifest-path "$SCRATCH/program/Cargo.toml" --target-dir "$SCRATCH/target"
HAKMEM_STATS=1 "$SCRATCH/target/debug/program" 2>&1 | grep '^hakmem [0-9.]*, process' ||
  fail "the program does not use HAKMEM"
nm "$SCRATCH/target/debug/program" >"$SCRATCH/symbols"
! grep ' T malloc$' "$SCRATCH/symbols" || fail "malloc is replaced, though nobody asked for that"
