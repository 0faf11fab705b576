"""GPUs that a file describes, and tasks that write down when they had which."""

from __future__ import annotations

import json
from typing import Any

from tests.support.fleet import Fleet

# Writes down when it had which GPUs, by the clock that all processes of a machine share.
PROGRAM = """
import json, os, time
began = time.monotonic()
time.sleep(0.1)
row = {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "order": os.environ.get("CUDA_DEVICE_ORDER")}
with open("ledger", "a") as file:
    file.write(json.dumps({**row, "began": began, "ended": time.monotonic()}) + "\\n")
"""


def gpus(fleet: Fleet, count: int, **foreign: int) -> None:
    """Give the machine so many GPUs; on some runs a stranger's process."""
    spool = fleet.home / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "index": index,
            "uuid": f"GPU-{index}",
            "memory_mb": 80000,
            "used_mb": 600,
            "utilization": 0,
            "processes": [foreign[f"gpu_{index}"]] if f"gpu_{index}" in foreign else [],
        }
        for index in range(count)
    ]
    (spool / "new").write_text(json.dumps(rows))
    (spool / "new").rename(spool / "gpus.json")


def tasks(fleet: Fleet, counts: list[int], name: str = "tasks.jsonl", **run: Any) -> str:
    (fleet.folder / "trial.py").write_text(PROGRAM)
    rows = [
        {"key": f"t_{place}", "command": ["{python}", "trial.py"], "requests": {"gpus": count}}
        for place, count in enumerate(counts)
    ]
    return fleet.tasks(rows, name, **run)
