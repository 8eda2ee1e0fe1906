"""Inference of changing lengths: a small transformer answers texts, each of another length, a few at a time, so that
tensors have a new size at every step; then the process waits for the next request. OpenMP's threads sleep while they
wait: they would spin, and on busy processors four fifths of the CPU time would be theirs."""
# SPDX-License-Identifier: MIT
import os
import random
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch  # noqa: E402 after what its threads read

REQUESTS, LEAST, MOST, REST_S = 16, 8, 384, 0.7

torch.manual_seed(1)
torch.set_num_threads(2)
random.seed(1)
layer = torch.nn.TransformerEncoderLayer(d_model=128, nhead=4, dim_feedforward=512, batch_first=True)
model = torch.nn.Sequential(torch.nn.Embedding(1000, 128), torch.nn.TransformerEncoder(layer, num_layers=3))
model.eval()
tokens, kept = 0, []
with torch.inference_mode():
    for request in range(REQUESTS):
        texts, length = random.randint(1, 4), int(LEAST * (MOST / LEAST) ** random.random())
        answer = model(torch.randint(0, 1000, (texts, length)))
        tokens += texts * length
        kept.append(answer.mean(dim=(1, 2)))
        time.sleep(0.005)
time.sleep(REST_S)
print(f"{REQUESTS} requests, {tokens} tokens, {sum(len(one) for one in kept)} answers")
