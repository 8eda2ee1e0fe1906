# shellcheck shell=bash
# What the test scripts share: bash that stops at the first error, a scratch directory that goes away at the end, and
# one way to fail.
# SPDX-License-Identifier: MIT
set -euo pipefail
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

# fail WORDS…: ends the test with a line that begins with the script's name.
fail() {
  printf '%s: %s\n' "$(basename "$0" .sh)" "$*"
  exit 1
}
