"""A service in miniature: requests that build and keep little, a cache that is dropped, and rest."""
# SPDX-License-Identifier: MIT
import json
import time


def request(number):
    rows = [{"row": row, "name": f"user {row}", "text": "x" * (number * row % 600)} for row in range(20 + number % 300)]
    return json.dumps(rows).encode()


total = 0
for requests in (100, 800, 50):
    cache = {}
    for number in range(requests):
        cache[number % 200] = request(number)
        total += len(cache[number % 200])
    del cache
time.sleep(0.5)
print(f"{total} bytes")
