"""Kill -9 of a study's controller at any moment: no trial is lost, none is made twice, and the count is exact.

A short one is in tests/acceptance/studies/test_tuning.py.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, fleet_at

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PROGRAM = """
import json, os, time
task = json.load(open(os.environ["EVALFLEET_TASK"]))
payload = task["payload"]
with open("ledger", "a") as file:
    file.write(json.dumps([task["key"], payload["role"], payload["parameters"], payload.get("rung")]) + "\\n")
time.sleep(0.12)
metrics = {"speed": payload["parameters"]["a"] * 7919 % 10007}
json.dump({"success": True, "metrics": metrics}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
STUDY = """
[study]
name = "s"
strategy = "STRATEGY"
trials = 18
max_parallel_experiments = 4
objective = { maximize = "speed" }
baseline = { a = 3 }
repeats = 2
contenders = 2
MORE
[parameters]
a = { type = "integer", low = 1, high = 10000 }
[trial]
command = ["python3", "trial.py"]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    yield from fleet_at(tmp_path)


def made(fleet: Fleet) -> list[list[Any]]:
    return [json.loads(line) for line in fleet.lines()]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("strategy", ["random", "halving", "bayesian"])
def test_no_trial_is_lost_or_doubled(fleet: Fleet, seed: int, strategy: str):
    rng = random.Random(f"{seed}:{strategy}")
    fleet.env["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    more = 'halving = { resource = "n", min = 1, max = 9 }' if strategy == "halving" else ""
    (fleet.folder / "trial.py").write_text(PROGRAM)
    path = fleet.folder / "study.toml"
    path.write_text(STUDY.replace("STRATEGY", strategy).replace("MORE", more))
    args = ["tune", str(path)]
    for _ in range(rng.randint(3, 7)):
        process = fleet.start(*args)
        time.sleep(rng.uniform(0.05, 1.6))  # any moment will do, also before it has begun
        process.kill()
        process.wait()
        if fleet.json("study", "list")["studies"]:
            args = ["study", "resume"]
    fleet.command(*args)
    facts = fleet.json("study", "show")
    assert (facts["state"], facts["searched"]) == ("completed", 18)
    roles = [row["role"] for row in facts["trials"]]
    assert (roles.count("search"), roles.count("baseline"), roles.count("confirm")) == (18, 1, 4)
    assert roles.count("promoted") == (8 if strategy == "halving" else 0)  # 6 and 2 of 18
    assert [row["key"] for row in facts["trials"]] == [f"trial_{n:04d}" for n in range(1, len(roles) + 1)]
    assert {row["progress"] for row in facts["trials"]} == {"measured"}
    ledger = made(fleet)
    assert sorted(row[0] for row in ledger) == [row["key"] for row in facts["trials"]]
    told = {row["key"]: row["parameters"] for row in facts["trials"]}
    assert all(told[key] == parameters for key, _, parameters, _ in ledger)
    points = [json.dumps(row["parameters"]) for row in facts["trials"] if row["role"] == "search"]
    assert len(set(points)) == 18
