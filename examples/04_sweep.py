"""Print a parameter sweep as a task file: one line per combination, one task per line.

    python3 examples/04_sweep.py | evalfleet run - --name sweep
    python3 examples/04_sweep.py --gpus 1 > sweep.jsonl

The program that measures one combination is bench.py.
"""

import argparse
import itertools
import json
from pathlib import Path

SPACE = {
    "batch": [8, 32, 128],
    "block": [16, 32],
    "prefill": ["chunked", "whole"],
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--slo-ms", type=float, default=400.0, help="longest time to the first token")
    options.add_argument("--gpus", type=int, default=0, help="GPUs that one experiment needs")
    wanted = options.parse_args()

    bench = str(Path(__file__).resolve().with_name("bench.py"))  # the lines may be used from any folder
    settings = {"name": "sweep", "attempts": 2, "timeout": "10m", "result": "required"}
    print(json.dumps({"run": settings}))
    for values in itertools.product(*SPACE.values()):
        parameters = dict(zip(SPACE, values, strict=True))
        task = {
            "key": "_".join(f"{name}-{value}" for name, value in parameters.items()),
            "domain": f"batch-{parameters['batch']}",
            "command": ["python3", bench],
            "payload": {"parameters": parameters, "slo_ms": wanted.slo_ms},
        }
        if wanted.gpus:
            task["requests"] = {"gpus": wanted.gpus}
        print(json.dumps(task))


main()
