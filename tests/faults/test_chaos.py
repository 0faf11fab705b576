"""A short piece of `make chaos`: a few rounds with fixed seeds, every kind of kill among them."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest
from tests.faults import chaos_processes as processes
from tests.faults.chaos import KEEPER, one_round
from tests.faults.chaos_command import EVALFLEET, environment
from tests.faults.chaos_plan import POSTGRES
from tests.faults.chaos_tasks import write_tasks
from tests.faults.sharing.trouble import KINDS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flavour", ["controller", "mixed", "runner"])
def test_nothing_is_lost_when_anything_is_killed(tmp_path: Path, flavour: str) -> None:
    tally = one_round(tmp_path / "round", 5, 0, tasks=120, workers=8, only=flavour)

    assert sum(tally.kills.values()) >= 2, "the seed kills hardly anybody; choose another one"
    assert (tally.lost, tally.twice, tally.restarted, tally.left) == (0, 0, 0, 0)
    if flavour == "controller":
        assert tally.reattached > 0


def test_nothing_is_lost_when_the_database_server_crashes_and_connections_are_cut(tmp_path: Path) -> None:
    tally = one_round(tmp_path / "round", 4, 0, tasks=60, workers=8, only=POSTGRES)

    assert tally.kills["server"] + tally.kills["connections"] >= 2, (
        "the seed hardly harms the server; choose another one"
    )
    assert (tally.lost, tally.twice, tally.restarted, tally.left) == (0, 0, 0, 0)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [11])
def test_ten_more_rounds_with_a_database_server_lose_nothing(tmp_path: Path, seed: int) -> None:
    for number in range(10):
        tally = one_round(tmp_path / f"round-{number}", seed, number, tasks=120, workers=8, only=POSTGRES)
        assert (tally.lost, tally.twice, tally.restarted, tally.left) == (0, 0, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize("kind", [*KINDS, KEEPER])
def test_nothing_is_lost_where_machines_and_homes_are_shared(tmp_path: Path, kind: str) -> None:
    """Each kind checks itself against a ledger outside and raises where something was lost, doubled, left or blamed wrongly."""
    tally = one_round(tmp_path / "round", 5, 0, tasks=120, workers=8, only=kind)

    assert (tally.tasks > 0, tally.attempts >= tally.tasks) == (True, True)


@pytest.mark.parametrize("moment", ["before it connects", "while tasks run"])
def test_a_run_that_nobody_resumes_leaves_no_process(tmp_path: Path, home: Path, moment: str) -> None:
    tasks = write_tasks(tmp_path, 20, random.Random(1))
    sign = home / "spool" / "runner.json" if moment == "before it connects" else tmp_path / "ledger"
    controller = subprocess.Popen(
        [EVALFLEET, "run", str(tasks), "--home", str(home)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(EVALFLEET_RUNNER_IDLE="1s"),
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (sign.exists() and sign.stat().st_size):
            pass  # closely: the first moment lasts for milliseconds
    finally:
        controller.kill()
        controller.wait()

    try:
        deadline = time.monotonic() + 15
        while (left := processes.left_of(home)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left
    finally:
        processes.end_all(home)
