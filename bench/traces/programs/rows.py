"""Objects written as JSON, read again, searched by regular expressions, sorted, changed; three times over."""
# SPDX-License-Identifier: MIT
import json
import random
import re

random.seed(1)
rows = [{"id": number, "name": f"user{random.randrange(10**6)}", "score": random.random(),
         "tags": [f"t{random.randrange(500)}" for _ in range(5)], "note": "lorem ipsum " * random.randrange(6)}
        for number in range(3000)]
for turn in range(3):
    text = json.dumps(rows)
    rows = json.loads(text)
    values = {}
    for match in re.finditer(r'"(\w+)": ("[^"]*"|[\d.]+)', text):
        values.setdefault(match.group(1), []).append(match.group(2))
    rows.sort(key=lambda row: (row["tags"][0], row["score"]))
    changed = re.sub(r"user(\d+)", lambda match: f"person{int(match.group(1)) // 2}", text)
print(len(changed), len(values))
