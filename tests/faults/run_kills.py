"""Killing the controller of a run on rented machines with -9, at seeded moments, until nothing is left to be killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.fleet import wait_for
from tests.support.rented import Rented, rented

TASKS = 20
MACHINES = 3
_EARLY_S = 4.0
_LATE_S = 1.0


def rounds(folder: Path, seed: int, deaths: int) -> list[str]:
    """A run on a pool that is stopped, whose controller dies so often; then everything is checked. Returns where it died."""
    rng = random.Random(seed)
    died: list[str] = []
    with rented(folder, 100) as here:
        here.create("--workers", str(MACHINES))
        here.fleet.json("pool", "stop")
        tasks = here.work(TASKS, 1.2)
        begin = ("run", tasks, "--pool", "p1")
        for _ in range(deaths):
            if _dies(here, ("resume",) if _runs(here) else begin, rng, died):
                break
        words = ("resume",) if _runs(here) else begin
        if words == begin or _runs(here)[0]["state"] != "completed":
            assert here.run(*words)["state"] == "completed"
        _check(here)
        here.leave()
    return died


def _runs(here: Rented) -> list[dict[str, Any]]:
    """None where the controller died before it had submitted the run."""
    return here.fleet.json("status")["runs"]


def _dies(here: Rented, words: tuple[str, ...], rng: random.Random, died: list[str]) -> bool:
    """Kill a controller some time after something was seen to happen. True: it had ended before."""
    lines, events = len(here.fleet.lines()), len(here.events())
    process = here.fleet.start(*words)
    early = rng.random() < 0.4  # while it starts machines, connects to them, or learns what they have done meanwhile

    def moved() -> bool:
        started = early or len(here.fleet.lines()) > lines or (words[0] == "run" and len(here.events()) > events)
        return started or process.poll() is not None

    wait_for(moved, "the run to do something")
    time.sleep(rng.uniform(0, _EARLY_S if early else _LATE_S))  # the moment itself is the chance that the seed draws
    if process.poll() is not None:
        return True
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    died.append(f"{'early' if early else 'late'}, {len(here.ended())} ended of {len(here.begun())} begun")
    return False


def _check(here: Rented) -> None:
    report = here.fleet.json("report")
    assert report["tasks"]["done"] == report["scores"]["verdicts"] == TASKS
    outcomes = {name: count for name, count in report["attempts"]["by_outcome"].items() if count}
    assert outcomes == {"ok": TASKS}, outcomes  # what was in flight went on without us
    assert Counter(here.begun()) == Counter({f"t_{n}": 1 for n in range(TASKS)})
    assert set(Counter(event["task"] for event in here.told("task.done")).values()) == {1}
    assert here.births() == {f"evalfleet-{n}": 1 for n in range(1, MACHINES + 1)}
