# SPDX-License-Identifier: MIT
"""One run of a program that prints its peak resident memory in KiB when it ends."""
import os
import subprocess
import sys


def run(command, environment=None):
    """Returns seconds of CPU time, and KiB resident at most. (The kernel's ru_maxrss counts what Python had before
    exec.)"""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    peak = int(child.stdout.read() or 0)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command[:2]))}: status {status}")
    return usage.ru_utime + usage.ru_stime, peak
