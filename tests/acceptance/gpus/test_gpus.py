"""GPUs as leased resources: real processes on GPUs that a file describes."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.fleet import Fleet, wait_for
from tests.support.gpu_cards import PROGRAM, gpus, tasks


def ledger(fleet: Fleet) -> list[dict[str, Any]]:
    return [json.loads(line) for line in fleet.lines()]


def assert_nobody_shared(fleet: Fleet) -> None:
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in ledger(fleet):
        for gpu in row["gpus"].split(","):
            spans[gpu].append((row["began"], row["ended"]))
    for gpu, held in spans.items():
        held.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(held)), gpu


def test_two_runs_share_a_machine_and_no_gpu(fleet: Fleet):
    gpus(fleet, 4)
    counts = [1, 2, 1, 3, 1, 1, 2, 4, 1, 1]
    first = fleet.start("run", tasks(fleet, counts, "one.jsonl"), "--workers", "6", "--json")
    second = fleet.start("run", tasks(fleet, counts[::-1], "two.jsonl"), "--workers", "6", "--json")
    assert first.wait(60) == second.wait(60) == 0
    rows = ledger(fleet)
    assert sorted(len(row["gpus"].split(",")) for row in rows) == sorted(counts * 2)
    assert {row["order"] for row in rows} == {"PCI_BUS_ID"}
    assert {gpu for row in rows for gpu in row["gpus"].split(",")} == {"0", "1", "2", "3"}
    assert_nobody_shared(fleet)


def test_a_gpu_with_a_strangers_process_is_left_alone_until_that_is_gone(fleet: Fleet):
    gpus(fleet, 2, gpu_0=os.getpid())
    assert fleet.json("run", tasks(fleet, [1, 1, 1]), "--workers", "2")["tasks"]["done"] == 3
    assert {row["gpus"] for row in ledger(fleet)} == {"1"}
    fleet.ledger.unlink()
    process = fleet.start("run", tasks(fleet, [2], "both.jsonl"), "--json")
    wait_for(lambda: any(event["type"] == "run.started" for event in fleet.events()), "the start of the run")
    assert fleet.lines() == []
    gpus(fleet, 2)
    assert process.wait(60) == 0
    assert [row["gpus"] for row in ledger(fleet)] == ["0,1"]


def test_more_gpus_than_there_are_is_said_at_once(fleet: Fleet):
    gpus(fleet, 2)
    summary = fleet.json("run", tasks(fleet, [3, 1]), code=1)
    held = next(row for row in summary["results"] if row["key"] == "t_0")
    assert held["state"] == "held"
    assert "asks for 3 GPUs; no host has that much" in json.dumps(held)


def test_a_killed_controller_leaks_no_gpu(fleet: Fleet):
    gpus(fleet, 2)
    process = fleet.start("run", tasks(fleet, [1, 2, 1, 1, 2, 1, 1, 2]), "--workers", "4", "--json")
    wait_for(lambda: len(fleet.lines()) >= 2, "two tasks")
    process.kill()
    process.wait()
    assert fleet.json("resume")["tasks"]["done"] == 8
    assert_nobody_shared(fleet)
    assert len(ledger(fleet)) == 8


def test_trials_of_a_study_get_the_gpus_of_their_own_parameters(fleet: Fleet):
    gpus(fleet, 4)
    (fleet.folder / "trial.py").write_text(
        PROGRAM + 'json.dump({"success": True, "metrics": {"n": len(row["gpus"].split(","))}}, '
        'open(os.environ["EVALFLEET_RESULT"], "w"))\n'
    )
    Path(fleet.folder / "study.toml").write_text(
        '[study]\nname = "g"\nstrategy = "grid"\ntrials = 6\nmax_parallel_experiments = 4\nobjective = { maximize = "n" }\n'
        "[parameters]\ntp = [1, 2, 4]\nb = [1, 2]\n"
        '[trial]\ncommand = ["{python}", "trial.py"]\ngpus = "tp"\n'
    )
    facts = fleet.json("tune", "study.toml")
    assert [row["metrics"]["n"] for row in facts["trials"]] == [row["parameters"]["tp"] for row in facts["trials"]]
    assert_nobody_shared(fleet)


def test_within_a_run_a_freed_gpu_is_handed_over_at_once(fleet: Fleet):
    gpus(fleet, 1)
    assert fleet.json("run", tasks(fleet, [1] * 8), "--workers", "4")["tasks"]["done"] == 8
    events = fleet.events()
    ends = [event["at"] for event in events if event["type"] == "attempt.finished"]
    claims = [event["at"] for event in events if event["type"] == "attempt.claimed"]
    waits = sorted(claim - end for end, claim in zip(ends, claims[1:], strict=False))
    assert waits[len(waits) // 2] < 0.05
