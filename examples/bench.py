"""A stand-in for the benchmark of an inference server with one set of parameters.

A real one starts the server, says {"ready": true} when it answers, sends the load, and stops the server. The verdict is
whether the service level holds; what was measured goes into the metrics.
"""

import json
import os
import time
from pathlib import Path

# Tokens per second and time to the first token, by batch size: larger batches are faster in all and slower at first.
TOKENS_PER_S = {8: 900.0, 32: 2600.0, 128: 4100.0}
FIRST_TOKEN_MS = {8: 90.0, 32: 240.0, 128: 700.0}


def tell(**event):
    with open(os.environ["EVALFLEET_EVENTS"], "a", encoding="utf-8") as events:
        events.write(json.dumps(event) + "\n")


def main():
    payload = json.loads(Path(os.environ["EVALFLEET_TASK"]).read_text(encoding="utf-8"))["payload"]
    parameters = payload["parameters"]

    tell(note="starting the server")
    tell(ready=True)
    for step, rate in enumerate((1, 4, 16), 1):
        tell(step=step, note=f"{rate} requests per second")
        time.sleep(0.05)

    faster = 1.1 if parameters["block"] == 16 else 1.0
    later = 0.55 if parameters["prefill"] == "chunked" else 1.0
    metrics = {
        "tokens_per_s": round(TOKENS_PER_S[parameters["batch"]] * faster, 1),
        "first_token_ms": round(FIRST_TOKEN_MS[parameters["batch"]] * later, 1),
    }
    held = metrics["first_token_ms"] <= payload["slo_ms"]
    result = {"success": held, "steps": 3, "metrics": {**parameters, **metrics}}
    Path(os.environ["EVALFLEET_RESULT"]).write_text(json.dumps(result), encoding="utf-8")
    print(json.dumps(result["metrics"]))


main()
