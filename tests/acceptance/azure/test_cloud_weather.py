"""What a run on rented machines takes from its cloud: evictions, slow lines, wrong clocks. Attempts, cost and events."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import PATIENCE_S, Rented, rented

from evalfleet.model import Outcome
from evalfleet.store.open import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def preempted(here: Rented) -> set[str]:
    """Tasks of the run that lost an attempt with a machine."""
    with closing(open_store(here.fleet.home)) as store:
        run = store.runs.newest()[0].id
        keys = {task.number: task.key for task in store.tasks.all(run)}
        return {keys[one.task_number] for one in store.attempts.all(run) if one.outcome is Outcome.PREEMPTED}


@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(False, id="announced", marks=pytest.mark.long),
        pytest.param(True, id="silent", marks=pytest.mark.long),
    ],
)
def test_an_eviction_of_a_third_consumes_no_attempt(tmp_path: Path, silent: bool):
    # A notice comes 30 seconds of the cloud before: at this pace long enough to be heard by who asks once a second.
    with rented(tmp_path, 60 if silent else 12) as here:
        here.fleet.command("prices", "--refresh", "--region", "eastus")  # spot prices
        here.create("--workers", "10", "--spot")
        # One attempt is all that a task may consume.
        # Longer than the notice: a task that has just begun does not end in time.
        run = here.fleet.start("run", here.work(40, 3 if silent else 6, attempts=1), "--pool", "p1")
        wait_for(lambda: len(here.begun()) >= 10, "every machine to have a task")
        taken = here.control("POST", "evictions", {"share": 0.3, "silent": silent})["evicted"]
        assert len(taken) == 3
        out = run.communicate(timeout=PATIENCE_S)[0]
        assert run.returncode == 0, out
        report = here.fleet.json("report")
        assert report["tasks"]["done"] == 40
        outcomes = {name: count for name, count in report["attempts"]["by_outcome"].items() if count}
        lost = outcomes.get("preempted", 0)
        assert 1 <= lost <= 3
        assert outcomes == {"ok": 40, "preempted": lost}
        ended = Counter(here.ended())
        assert set(ended) == {f"t_{n}" for n in range(40)}
        # A program that had just come to its end took its result along with the machine.
        assert {key for key, times in ended.items() if times > 1} <= preempted(here)
        # Each of the three is told once by the pool; the run tells why its attempts went.
        assert {e["data"]["host"] for e in here.told("worker.lost", "pool:p1")} == set(taken)
        left = {e["data"]["host"]: e["data"]["cause"] for e in here.told("worker.left") if "cause" in e["data"]}
        gone = {e["data"]["host"]: e["data"]["cause"] for e in here.told("worker.lost")}
        assert set((left | gone).values()) == {"preempted"}
        assert bool(here.told("worker.draining")) is not silent
        assert here.status()["cost_usd"] == pytest.approx(here.billed_usd(), rel=0.05)
        here.leave()


@pytest.mark.long
def test_a_slow_line_is_no_death(tmp_path: Path):
    """Every byte to and from one machine takes 5 seconds each way, longer than the lease here."""
    with rented(tmp_path, 60) as here:
        here.create("--workers", "3")
        here.fleet.env |= {"EVALFLEET_LEASE_DURATION": "4s", "EVALFLEET_LEASE_GIVE_UP": "5s"}
        run = here.fleet.start("run", here.work(9, 2), "--pool", "p1")
        wait_for(lambda: len(here.begun()) >= 3, "all machines to work")
        here.control("POST", "vms/evalfleet-2/link", {"latency_s": 5})
        out = run.communicate(timeout=PATIENCE_S)[0]
        assert run.returncode == 0, out
        here.all_ok(9)
        assert here.told("worker.lost") == []
        assert here.told("worker.lost", "pool:p1") == []
        assert len(here.births()) == 3


def test_a_clock_that_is_wrong_does_not_lengthen_tasks(tmp_path: Path):
    with rented(tmp_path, 60) as here:
        here.control("POST", "faults", {"op": "host.boot", "preset": "clock_skew", "match": {"name": "evalfleet-1"}})
        here.create("--workers", "2")
        away = here.fleet.command("pool", "exec", "p1", "--worker", "evalfleet-1", "--", "date", "+%s").stdout
        right = here.fleet.command("pool", "exec", "p1", "--worker", "evalfleet-2", "--", "date", "+%s").stdout
        assert 500 < int(away.split()[-1]) - int(right.split()[-1]) < 700
        summary = here.run("run", here.work(6, 1), "--pool", "p1")
        assert summary["attempts"]["by_outcome"]["ok"] == summary["attempts"]["total"] == 6
        assert {row["worker"] for row in summary["results"]} == {"evalfleet-1-1", "evalfleet-2-1"}
        assert all(0.9 < row["duration_s"] < 20 for row in summary["results"])
        assert summary["duration_s"] < 120
        assert summary["cost"]["total_usd"] == pytest.approx(6 * 1 * 60 * 0.452 / 3600, rel=0.5)
