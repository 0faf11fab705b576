"""Two runs on one rented pool whose keeper is killed, while people scale and stop it: no machine goes with work on it."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from subprocess import Popen

from tests.faults.chaos_round import Broken
from tests.support.rented import PATIENCE_S, Rented, rented

TASKS = 8
SPEED = 100


def keeper_round(folder: Path, seed: str, tally: Counter[str]) -> Counter[str]:
    """Raises Broken, or whatever the emulator's own checks raise."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    with rented(folder, SPEED) as here:
        idle = ("--min", "0", "--max", "2", "--idle", "5m", "--idle-action", rng.choice(("stop", "delete")))
        here.create(*rng.choice((idle, ("--workers", "2"))))
        drivers = {
            name: here.fleet.start("run", _work(here, name, rng), "--pool", "p1", "--name", name) for name in "xy"
        }
        for count in sorted(rng.sample(range(1, 2 * TASKS - 2), 3)):
            _until_ends(here, drivers, count)
            _strike(here, drivers, rng, tally)
        _see_through(here, drivers)
        counts = _check(here)
        here.leave()
    return counts


def _work(here: Rented, name: str, rng: random.Random) -> str:
    script = f"echo b $1 >> {here.fleet.ledger}; sleep $2; echo e $1 >> {here.fleet.ledger}"
    rows = [
        {"key": f"{name}_{n}", "command": ["sh", "-c", script, "-", f"{name}_{n}", f"{rng.uniform(0.2, 1.5):.2f}"]}
        for n in range(TASKS)
    ]
    return here.fleet.tasks(rows, name=f"{name}.jsonl", retry_base="200ms")


def _until_ends(here: Rented, drivers: dict[str, Popen[str]], count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(here.ended()) < count and any(one.poll() is None for one in drivers.values()):
        if time.monotonic() > deadline:
            raise Broken(f"no {count} ends in {PATIENCE_S} s")
        time.sleep(0.02)


def _strike(here: Rented, drivers: dict[str, Popen[str]], rng: random.Random, tally: Counter[str]) -> None:
    kind = rng.choice(("kill", "kill", "scale"))
    if kind == "scale":
        here.fleet.command("pool", "scale", "p1", str(rng.choice((1, 2, 3))))
        tally["scaled"] += 1
        return
    name = rng.choice(list(drivers))
    if drivers[name].poll() is None:
        os.killpg(drivers[name].pid, signal.SIGKILL)
        drivers[name].wait()
        tally["keeper"] += 1
        time.sleep(rng.choice((0.0, 1.0)))  # long enough for the other run to keep the pool alone
        drivers[name] = here.fleet.start("resume", name)


def _see_through(here: Rented, drivers: dict[str, Popen[str]]) -> None:
    for name, process in drivers.items():
        out = process.communicate(timeout=PATIENCE_S)[0]
        if process.returncode:
            state = here.fleet.json("status", name)
            raise Broken(f"run {name} ended with {process.returncode}: {out[-1000:]} {json.dumps(state)[:300]}")


def _check(here: Rented) -> Counter[str]:
    counts: Counter[str] = Counter()
    begun = Counter(here.begun())
    again = {key: count for key, count in begun.items() if count > 1}
    if again or len(begun) != 2 * TASKS:
        raise Broken(f"{len(begun)} tasks began; more than once: {again}")
    for name in "xy":
        told = here.fleet.json("report", name)
        counts["tasks"] += told["tasks"]["total"]
        counts["attempts"] += told["attempts"]["total"]
        if told["scores"]["verdicts"] != TASKS or told["attempts"]["by_outcome"]["ok"] != TASKS:
            raise Broken(f"run {name}: {told['scores']}, {told['attempts']}")
    here.births()
    return counts
