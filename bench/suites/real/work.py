"""Objects, strings, JSON, sorting and a parser, like a typical Python program; prints digests of the results."""
# SPDX-License-Identifier: MIT

import ast
import collections
import hashlib
import json
import random
import re

generator = random.Random(1)


class Order:
    def __init__(self, number):
        self.number = number
        self.customer = f"customer {generator.randrange(500)}"
        self.lines = [(generator.randrange(1000), generator.random()) for _ in range(generator.randrange(1, 9))]


def digest(value):
    print(hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest())


live = collections.OrderedDict()
totals = collections.defaultdict(list)
for number in range(100_000):
    order = live[number] = Order(number)
    totals[order.customer].append(sum(price for _, price in order.lines))
    if len(live) > 10_000:
        del live[generator.choice((number, number - 5_000 if number - 5_000 in live else number))]
digest({customer: round(sum(prices), 6) for customer, prices in totals.items()})

text = json.dumps([{"id": order.number, "who": order.customer, "lines": order.lines} for order in live.values()])
for _ in range(3):
    parsed = json.loads(text)
    words = collections.Counter(re.findall(r"\d{3,6}", text[:500_000]))
    parsed.sort(key=lambda entry: (entry["who"], -entry["id"]))
digest([parsed[:100], words.most_common(50)])

source = "\n".join(f"def f{n}(a, b={n}):\n    return [x * {n} for x in range(a) if x % b] or {{'k{n}': (a, b)}}"
                   for n in range(1500))
digest(sum(isinstance(node, ast.Name) for node in ast.walk(ast.parse(source))))
digest(len(compile(source, "generated", "exec").co_consts))
