#!/usr/bin/env python3
"""What ACE costs a program whose memory hardly moves: a thousandth of its instructions at most.

    steady.py VALGRIND LIBRARY PROGRAM ARGUMENTS…

Instructions are counted by callgrind, with ACE and without. It slows the program so far that nearly each settling looks
at the heap, which is more often than without it. If it fails, programs pay for ACE that gain nothing from it."""
# SPDX-License-Identifier: MIT
import os
import re
import subprocess
import sys

SHARE = 1000

valgrind, library, *command = sys.argv[1:]


def instructions(ace):
    counted = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    run = subprocess.run(counted, check=True, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         env={**os.environ, "LD_PRELOAD": library, "HAKMEM_ACE": ace})
    return int(re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)[1].replace(",", ""))


off, on = instructions("0"), instructions("on")
print(f"figure: ace_steady_instructions {on - off}\n{on - off:,} instructions more with ACE than {off:,} without")
sys.exit(not 0 < on - off <= off // SHARE)
