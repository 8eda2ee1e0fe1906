"""Data frames: batches are read, grouped, joined and dropped, and little is kept; then the process waits for the next
one."""
# SPDX-License-Identifier: MIT
import time

import numpy as np
import pandas as pd

ROWS, BATCHES, REST_S = 150_000, 6, 0.25

random = np.random.default_rng(1)
names = np.array([f"customer {number:06d}" for number in range(20_000)], dtype=object)
kept, total = [], 0.0
for batch in range(BATCHES):
    frame = pd.DataFrame({
        "name": random.choice(names, ROWS),
        "day": random.integers(0, 30, ROWS),
        "value": random.random(ROWS),
    })
    frame["label"] = frame["name"] + " on day " + frame["day"].astype(str)
    sums = frame.groupby("name", as_index=False)["value"].sum()
    joined = frame.merge(sums, on="name", suffixes=("", "_sum"))
    kept.append(joined.iloc[:: ROWS // 1000][["label", "value_sum"]].to_dict("records"))
    total += joined["value_sum"].mean()
    del frame, sums, joined
    time.sleep(REST_S)
print(f"{sum(map(len, kept))} kept, {total:.6f}")
