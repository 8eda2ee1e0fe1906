#!/usr/bin/env bash
# `./hak bench peers` compiles and runs what others publish: a crate whose checksum is not the one that
# bench/peers/crates.sha256 says is not compiled. In a copy, with a cargo that delivers another crate by the same name
# and version.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
ROOT=$(cd "$(dirname "$0")/.." && pwd)

mkdir -p "$SCRATCH/bench" "$SCRATCH/bin"
cp -R "$ROOT/bench/peers" "$SCRATCH/bench"
cat >"$SCRATCH/bin/cargo" <<'END'
#!/bin/sh
crate=$(sed -n 's/^\(.*\) = "=.*/\1/p' Cargo.toml)
mkdir -p "vendor/$crate"
printf '{"files":{},"package":"%064d"}' "${SUM:-7}" >"vendor/$crate/.cargo-checksum.json"
END
printf '#!/bin/sh\nexit 1\n' | tee "$SCRATCH/bin/apt-get" "$SCRATCH/bin/apt-cache" >/dev/null # none of Debian's
chmod +x "$SCRATCH/bin"/*

! PATH=$SCRATCH/bin:$PATH "$SCRATCH/bench/peers/build.sh" >"$SCRATCH/out" 2>&1 || fail "nothing failed"
for log in "$SCRATCH"/build/peers/log/*; do
  name=${log##*/}
  crate=$(sed -n "s/^$name .*crate:\([^ ]*\)=\([^ ]*\) .*/\1 \2/p" "$ROOT/bench/peers/build.sh")
  [[ -n $crate ]] || continue
  [[ $(cat "$log") == "$crate has the checksum $(printf %064d 7), and not that of bench/peers/crates.sha256" ]] ||
    fail "$name: $(cat "$log")"
done
(($(wc -l <"$ROOT/bench/peers/crates.sha256") == $(grep -o 'crate:[a-z0-9_-]*=[0-9.]*' "$ROOT/bench/peers/build.sh" |
  sort -u | wc -l))) ||
  fail "crates.sha256 does not name each crate"
echo "other crates by the same names are refused"
