"""Threads of free-threaded Python with NumPy: each makes arrays of its own and of the others' rows, as a service that
scores requests does; a cache keeps some. Then the process waits for the next request."""
# SPDX-License-Identifier: MIT
import random
import sys
import threading
import time

import numpy

THREADS, REQUESTS, CACHED, REST_S = 4, 4000, 2000, 0.7

assert not sys._is_gil_enabled(), "this Python has a GIL"
lock, cache, sums = threading.Lock(), {}, [0] * THREADS


def serve(number):
    seeded = random.Random(number)
    for request in range(REQUESTS):
        rows, columns = seeded.randint(1, 60), seeded.choice([8, 32, 128, 300])
        batch = numpy.full((rows, columns), 1 + request % 7, dtype=numpy.int64)
        scores = [(row * 2).sum() for row in batch]
        with lock:
            before = cache.get((number * 7 + request) % CACHED)
            cache[request % CACHED] = batch
        if before is not None:
            scores.append((before[:1] * 0).sum())
        sums[number] += int(sum(scores))


threads = [threading.Thread(target=serve, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
cache.clear()
time.sleep(REST_S)
print(f"{THREADS * REQUESTS} requests, scores {sum(sums)}")
