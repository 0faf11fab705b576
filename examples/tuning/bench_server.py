"""Stands in for a server and its load test: reads the trial's parameters, writes what was measured."""

import json
import os
import random
import sys

with open(os.environ["EVALFLEET_TASK"]) as file:
    task = json.load(file)
trial = task["payload"]
p = trial["parameters"]
if p["max_num_seqs"] > 200 * p["tp"]:
    sys.exit("CUDA out of memory: the cache does not fit")
rng = random.Random(f"{task['key']}")  # another noise for every measurement
noise = rng.gauss(1.0, 0.01)
batch = p["max_num_seqs"] / (1 + p["max_num_seqs"] / (160 * p["tp"]))
throughput = 40 * batch * (1.15 if p["chunked"] else 1.0) * p["tp"] ** 0.2 * noise
ttft = 30 + p["max_num_seqs"] / p["tp"] * (0.6 if p["chunked"] else 1.6) + p.get("chunk", 2048) / 64
with open(os.environ["EVALFLEET_RESULT"], "w") as file:
    metrics = {"throughput_tok_s": round(throughput, 1), "ttft_p99_ms": round(ttft * noise, 1)}
    json.dump({"success": True, "metrics": metrics}, file)
