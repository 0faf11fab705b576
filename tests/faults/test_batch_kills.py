"""30 tasks on Batch nodes that are taken back, with kill -9 of the controller at seeded points: nothing lost, doubled or left."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import Rented, rented

TASKS = 30
LINES = 2 * TASKS  # of the ledger: each task writes one when it begins and one when it ends
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def batch_pool(folder: Path, *options: str) -> Iterator[Rented]:
    """An emulator, and a pool of three nodes in front of it; boxes are folders."""
    with rented(folder, 300) as here:
        boxes = folder / "boxes"
        here.fleet.env |= {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(boxes)}
        size = ("--size", "Standard_D2s_v3", "--workers", "3")
        done = here.fleet.command("pool", "create", "p1", "--backend", "azure-batch", *size, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        yield here
        here.leave()
        assert [path for path in boxes.rglob("*") if path.is_file()] == []


def until_lines(here: Rented, process: subprocess.Popen[str], count: int) -> None:
    wait_for(lambda: len(here.fleet.lines()) >= count or process.poll() is not None, f"{count} lines")


def play(here: Rented, seed: int, kills: int, evictions: int) -> None:
    """Run all tasks, through so many deaths of the controller and losses of a node."""
    rng = random.Random(seed)
    what = ["kill"] * kills + ["evict"] * evictions
    rng.shuffle(what)
    points = sorted(rng.sample(range(2, LINES - 4), len(what)))
    process = here.fleet.start("run", here.work(TASKS, 0.2), "--pool", "p1")
    evicted = 0
    for point, each in zip(points, what, strict=True):
        until_lines(here, process, point)
        if each == "evict":
            evicted += len(here.control("POST", "evictions", {"count": 1})["evicted"])
        elif process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            process = here.fleet.start("resume", "latest")
    said = process.communicate(timeout=400)[0]
    assert process.returncode == 0, said
    report = here.fleet.json("report")
    assert report["attempts"]["by_outcome"]["ok"] == TASKS, report["attempts"]
    outcomes = Counter({name: n for name, n in report["attempts"]["by_outcome"].items() if n})
    assert set(outcomes) <= {"ok", "preempted", "lost"}, outcomes
    # What was run again was on a node that went: at most one task on each.
    assert sum(outcomes.values()) - TASKS <= evicted, (outcomes, evicted)
    assert set(here.ended()) == {f"t_{number}" for number in range(TASKS)}


def test_thirty_tasks_survive_deaths_and_preemptions(tmp_path: Path):
    with batch_pool(tmp_path, "--spot") as here:
        play(here, seed=1, kills=2, evictions=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 104))
def test_thirty_tasks_survive_twenty_more_deaths(tmp_path: Path, seed: int):
    with batch_pool(tmp_path, "--spot") as here:
        play(here, seed, kills=5, evictions=3)
