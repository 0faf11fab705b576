"""A tier goes down completely in the middle of 154 tasks, its machines running and silent, and comes back: no one intervenes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.alert_receiver import Receiver, configured
from tests.support.fleet import wait_for
from tests.support.rented import Rented, rented

from evalfleet.model import Outcome
from evalfleet.store.open import open_store

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
PATIENCE_S = 600.0
TASKS, WORKERS, TASK_S = 154, 10, 6.0
QUICK = {
    "EVALFLEET_LEASE_DURATION": "20s",
    "EVALFLEET_LEASE_GIVE_UP": "20s",
    "EVALFLEET_BREAKER_SLOW_START": "10",
}


class Jobs:
    """Jobs of Azure ML that say that they run and tell nothing, as those that start meanwhile do; then Azure Batch."""

    def __init__(self, here: Rented) -> None:
        self.here = here
        boxes = str(here.fleet.folder / "boxes")
        here.fleet.env |= {
            "EVALFLEET_AZURE_WORKSPACE": "evalfleet",
            "EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet",
            "EVALFLEET_AZURE_STORAGE": boxes,
        }

    def create(self) -> None:
        deadlines = ("--deadline", "pilot=15s", "--deadline", "silence=10s")
        made(self.here, "one", "azure-ml", "--regions", "eastus", "--size", "Standard_D4ds_v5", *deadlines)
        made(self.here, "two", "azure-batch", "--size", "Standard_D2s_v3")

    def silence(self, *, silent: bool) -> None:
        self.here.control("POST", "ml/silence", {"silent": silent})


def made(here: Rented, name: str, backend: str, *options: str) -> None:
    limits = ("--min", "0", "--max", str(WORKERS), "--idle", "20s")
    here.fleet.json("pool", "create", name, "--backend", backend, "--name-prefix", name, *limits, *options)


def test_a_tier_that_is_silent_for_a_while_costs_at_most_what_was_on_it(tmp_path: Path):
    with rented(tmp_path, 60.0) as here, closing(Receiver()) as receiver:
        here.fleet.env |= QUICK
        configured(here.fleet, receiver)
        pools = Jobs(here)
        pools.create()
        tiers = ("--tier", "one", "--tier", "two", "--cool-down", "15s", "--start-timeout", "60s", "--budget", "50")
        here.fleet.json("pool", "create", "both", *tiers)
        tasks = here.work(TASKS, TASK_S, timeout="5m")
        run = here.fleet.start("run", tasks, "--pool", "both", "--workers", str(WORKERS))
        _wait(here, run, 40)
        down, began = sorted(here.states("one")), time.time()
        pools.silence(silent=True)
        _wait_for_move(here, run, "tier.opened")
        _wait(here, run, 60)
        silent = (began, time.time())
        pools.silence(silent=False)
        _wait_for_move(here, run, "tier.closed")
        out = run.communicate(timeout=PATIENCE_S)[0]
        assert run.returncode == 0, out
        _judge(here, down, silent)
        assert receiver.of("tier") == ["fired", "resolved"], "one alert per move"
        for name in ("both", "one", "two"):
            assert here.fleet.command("pool", "delete", name, "--yes").returncode == 0
        assert here.is_empty(), here.leaks()


def test_a_tier_that_is_deleted_by_hand_and_a_controller_that_is_killed_then_lose_nothing(tmp_path: Path):
    with rented(tmp_path, 60.0) as here:
        here.fleet.env |= QUICK
        for name, region in (("one", "eastus"), ("two", "westus2")):
            create = ("pool", "create", name, "--backend", "azure-vm", "--regions", region, "--name-prefix", name)
            here.fleet.json(*create, "--min", "0", "--max", "3")
        here.fleet.json("pool", "create", "both", "--tier", "one", "--tier", "two")
        run = here.fleet.start("run", here.work(18, 2.0), "--pool", "both", "--workers", "3")
        _wait(here, run, 4)
        refused = {"op": "vm.create", "match": {"location": "eastus"}, "preset": "allocation_failed"}
        here.control("POST", "faults", refused)
        for name in here.states("one"):
            here.arm("DELETE", f"Microsoft.Compute/virtualMachines/{name}", None, "2024-07-01")
        _wait_for_move(here, run, "tier.opened")
        os.killpg(run.pid, signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        status = {row["tier"]: row for row in here.status("both")["tiers"]}
        assert (status["one"]["state"], status["two"]["state"]) == ("open", "closed")
        assert "one-" in status["one"]["why"], "it is said why"
        here.run("resume")
        report = here.fleet.json("report")
        assert report["tasks"]["done"] == report["scores"]["verdicts"] == 18
        assert report["attempts"]["total"] - 18 <= 3
        refused = here.fleet.command("pool", "delete", "one", "--yes")
        assert (refused.returncode != 0, "is a tier of pool 'both'" in refused.stderr) == (True, True)
        for name in ("both", "one", "two"):
            assert here.fleet.command("pool", "delete", name, "--yes").returncode == 0
        assert here.is_empty(), here.leaks()


def _wait(here: Rented, run: subprocess.Popen[str], count: int) -> None:
    def has_ended() -> bool:
        assert run.poll() is None, run.communicate()[0]
        return sum(line.startswith("e ") for line in here.fleet.lines()) >= count

    wait_for(has_ended, f"{count} tasks to end", PATIENCE_S)


def _wait_for_move(here: Rented, run: subprocess.Popen[str], event: str) -> None:
    def was_told() -> bool:
        assert run.poll() is None, run.communicate()[0]
        return bool(_moves(here, event))

    wait_for(was_told, event, PATIENCE_S)


def _moves(here: Rented, event: str) -> list[dict[str, Any]]:
    return [one for one in here.fleet.events("pool:both") if one["type"] == event]


def _judge(here: Rented, down: Sequence[str], silent: tuple[float, float]) -> None:
    report = here.fleet.json("report")
    assert report["state"] == "completed"
    assert report["tasks"]["done"] == report["scores"]["verdicts"] == TASKS
    with closing(open_store(here.fleet.home)) as store:
        run = store.runs.find("latest")
        attempts = store.attempts.all(run.id)
        tasks = list(store.tasks.all(run.id))
        machines = [one for pool in ("one", "two") for one in store.plans.machines(pool)]
        assert store.tiers.demand(pool="both") == []
    assert not any(one.failure and one.failure.consumes for one in attempts)
    assert {task.consumed for task in tasks} <= {0, 1}
    outcomes = Counter(str(one.outcome) for one in attempts)
    useful = list({one.task_number: one for one in attempts if one.outcome is Outcome.OK}.values())
    assert len(attempts) - len(useful) <= WORKERS, outcomes
    assert {one.host for one in attempts if one not in useful} <= set(down)
    used = Counter(one.host[:3] for one in useful)
    assert run.started_at is not None
    assert run.ended_at is not None
    events: list[tuple[float, int]] = []
    for one in machines:
        if one.ready_at is None:
            continue
        ends = one.ended_at or run.ended_at
        spans = [(one.ready_at, ends)]
        if one.name in down:
            spans = [(one.ready_at, silent[0]), (silent[1], ends)]
        events += [(at, step) for begin, end in spans if begin < end for at, step in ((begin, 1), (end, -1))]
    work_s = sum((one.ended_at or 0.0) - one.claimed_at for one in useful)
    bound_s = _least(events, run.started_at, work_s)
    took_s = run.ended_at - run.started_at
    print(f"{outcomes}; {dict(used)}; took {took_s:.1f} s, at least {bound_s:.1f} s: {took_s / bound_s:.3f}")
    assert used["one"] > 40, "work came back"
    assert used["two"] > 10
    assert took_s <= 1.10 * bound_s
    assert [one["data"]["tier"] for one in _moves(here, "tier.opened")] == ["one"]


def _least(changes: list[tuple[float, int]], begins: float, work_s: float) -> float:
    """The least time that so much work takes on machines that come and go, of which the run may use some at a time."""
    there, done, last = 0, 0.0, begins
    for at, step in sorted(changes):
        if at > last:
            rate = min(WORKERS, there)
            if rate and done + rate * (at - last) >= work_s:
                return last + (work_s - done) / rate - begins
            done, last = done + rate * (at - last), at
        there += step
    raise AssertionError(f"{work_s:.1f} s of work on machines that had room for {done:.1f} s")
