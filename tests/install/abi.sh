#!/usr/bin/env bash
# Tests the check of the binary interface: it passes, and it finds a symbol that is gone, one that is new, another type,
# and another version.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/../kit.sh"
cd "$(dirname "$0")/../.."
KEPT=packaging/abi/libhakmem.so.0.$(uname -m).abi

# finds TEXT SED_SCRIPT: with the kept interface changed like that the check fails, and its last line begins with this.
finds() {
  sed "$2" "$KEPT" >"$SCRATCH/abi"
  ! packaging/abi.sh "$SCRATCH/abi" >"$SCRATCH/out" || { echo "abi: not found: $2" && exit 1; }
  [[ $(tail -n 1 "$SCRATCH/out") == "abi: $1"* ]] || { cat "$SCRATCH/out" && exit 1; }
}

packaging/abi.sh
[[ -f $KEPT ]] || exit 0
finds 'programs that are linked' "s/hak_trim/hak_gone/g"
finds 'programs that are linked' "s/'HAKMEM_0'/'HAKMEM_1'/; s/@@HAKMEM_0/@@HAKMEM_1/"
size="name='size'"
finds 'programs that are linked' \
  "/mangled-name='hak_good_size'/,/<.function-decl>/s/<parameter [^>]*$size/<parameter type-id='type-id-1' $size/"
finds 'the library exports more' "/<function-decl name='hak_trim'/,/<.function-decl>/d; /name='hak_trim'/d"
echo "the check finds what it is for"
