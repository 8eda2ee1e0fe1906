#!/usr/bin/env python3
"""test_record.py REPLAY: records a small program with known calls; trace and replay must be exactly these calls.

If it fails, traces differ from what programs did: calls are lost, doubled, out of order, or by the wrong thread.
"""
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import trace  # (the one beside this file)

CC = ["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin"]

# Blocks that the C library allocates for itself (a thread's table, for one) are recognised by size: ours are
# 1001-1099.
PROGRAM = r"""
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *handed;
static pthread_key_t key;

static void at_end(void *block) { free(block); }

static void *thread(void *argument) {
    free(argument);
    handed = calloc(7, 143); /* 1001 */
    pthread_setspecific(key, malloc(1002));
    return NULL;
}

int main(void) {
    void *a = malloc(1003), *b = calloc(1, 1004), *c = aligned_alloc(64, 1024 + 64), *d = NULL;
    a = realloc(a, 1050);
    d = realloc(d, 1005);
    if (posix_memalign(&d, 24, 1006) == 0 || posix_memalign(&d, 4096, 1007) != 0)
        return 1;
    free(NULL);
    free(b);
    if (realloc(c, 0) != NULL || malloc((size_t)-1 / 2) != NULL)
        return 1;
    pid_t child = fork();
    if (child == 0) { /* records nothing, not even into a file of its own */
        free(malloc(1008));
        execl("/proc/self/exe", "again", "again", NULL);
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child)
        return 1;
    pthread_key_create(&key, at_end);
    for (int i = 0; i < 2; i++) {
        pthread_t started;
        pthread_create(&started, NULL, thread, memalign(32, 1009));
        pthread_join(started, NULL);
        free(handed);
    }
    free(a);
    free(malloc(1010));
    _exit(0);
}
""".replace("int main(void) {", "int main(int argc, char **argv) {\n    if (argc > 1 && argv[1])\n        return 0;")

# Blocks are numbered by birth among ours; #4 and #5 are never freed.
EXPECTED = """
0 malloc(1003) = #0
0 calloc(1004) = #1
0 aligned(64, 1088) = #2
0 realloc(#0, 1050) = #3
0 realloc(NULL, 1005) = #4
0 aligned(4096, 1007) = #5
0 free(NULL)
0 free(#1)
0 free(#2)
0 aligned(32, 1009) = #6
0 birth of 1
1 free(#6)
1 calloc(1001) = #7
1 malloc(1002) = #8
1 free(#8)
1 end
0 free(#7)
0 aligned(32, 1009) = #9
0 birth of 2
2 free(#9)
2 calloc(1001) = #10
2 malloc(1002) = #11
2 free(#11)
2 end
0 free(#10)
0 free(#3)
0 malloc(1010) = #12
0 free(#12)
""".strip().splitlines()


def ours(events):
    """Returns the events of blocks of 1001-1099 B, renumbered; births and ends; free(NULL) before the first birth."""
    numbers, kept, alone = {}, [], True
    for event in events:
        alone = alone and event.op != trace.Op.BIRTH
        null = event.op == trace.Op.FREE and event.old is None and numbers and alone
        if not (event.old in numbers or 1001 <= event.size <= 1099 or event.op in (trace.Op.BIRTH, trace.Op.END) or
                null):
            continue
        event = event._replace(old=numbers.get(event.old))
        if event.new is not None:
            numbers[event.new] = len(numbers)
            event = event._replace(new=numbers[event.new])
        kept.append(event)
    return kept


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"test_record: {Path(command[0]).name} ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def replay_figures(replay, path, repeat=1):
    lines = run(replay, path, repeat).splitlines()
    return {key: int(value) for key, value in (line.split(" ", 1)[1].split(": ") for line in lines)}


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"test_record: {what}\n  got:    {got}\n  wanted: {wanted}")


def main(replay):
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "known.c").write_text(PROGRAM)
        run(*CC, work / "known.c", "-o", work / "known")
        run(*CC, "-fPIC", "-shared", "-fvisibility=hidden", HERE.parent / "record.c", "-o", work / "record.so")
        run(work / "known", env={**os.environ, "TRACE_RECORD": work / "raw", "LD_PRELOAD": work / "record.so"})
        run(sys.executable, HERE / "trace.py", "pack", work / "raw", work / "packed")

        numbered, unknown = trace.raw_number(str(work / "raw"))
        packed = (work / "packed").read_bytes()
        check("unpacking what was packed gives other events", list(trace.unpack(packed)), numbered)
        check("ends of blocks the recorder has not seen begin", unknown, 0)
        for number, (got, wanted) in enumerate(zip([*map(trace.line, ours(numbered)), "nothing"], EXPECTED)):
            check(f"event {number}", got, wanted)
        check("events", len(ours(numbered)), len(EXPECTED))

        for repeat in (1, 3):
            wanted = trace.figures(numbered)
            got = replay_figures(replay, work / "packed", repeat)
            for key in ("threads", "operations", "blocks", "live_peak_bytes"):
                check(f"replay says other {key}", got[key], wanted[key])
        for cut in range(0, len(packed), max(1, len(packed) // 64)):
            (work / "cut").write_bytes(packed[:cut])
            done = subprocess.run([replay, work / "cut"], capture_output=True, text=True, check=False)
            check(f"replay of a trace cut at {cut}", (done.returncode, done.stderr),
                  (1, f"{Path(replay).name}: FILE is no trace, or cut short\n"))
    print(f"recorded and replayed: {len(EXPECTED)} known events among {len(numbered)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split(":")[0].replace("test_record.py", "usage: test_record.py"))
    main(sys.argv[1])
