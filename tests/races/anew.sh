#!/bin/sh
# Does what is found depend on whether executions go back to a moment of the one before, or each begins anew? anew.sh
# RACES: harnesses of two and three threads, with fences, choices of the kernel's, and threads that end.
# SPDX-License-Identifier: MIT
for harness in litmus foreign pool rest outbox mesh_hold; do
    back=$("$1" "$harness") && anew=$("$1" --anew "$harness") || exit 1
    if [ "${back% s}" = "" ] || [ "${back%, *}" != "${anew%, *}" ]; then
        printf '%s\n' "with moments: $back" "anew: $anew"
        exit 1
    fi
    echo "${anew##*, } anew: $back"
done
