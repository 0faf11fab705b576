import json
import os
from pathlib import Path

task = json.loads(Path(os.environ["EVALFLEET_TASK"]).read_text())
numbers = task["payload"]["numbers"]

total = 0
with open(os.environ["EVALFLEET_EVENTS"], "a", buffering=1) as events:
    for step, number in enumerate(numbers, 1):
        total += number
        print(json.dumps({"step": step, "note": f"total {total}"}), file=events)

Path(os.environ["EVALFLEET_ARTIFACTS"], "total.txt").write_text(str(total))
result = {"score": 1.0 if total == 10 else 0.0, "steps": len(numbers), "metrics": {"total": total}}
Path(os.environ["EVALFLEET_RESULT"]).write_text(json.dumps(result))
