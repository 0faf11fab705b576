"""From an empty subscription to 154 scores, while machines are taken away and the controller is killed: nothing lost, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from examples.fake_waa.client import score_of
from tests.support.fleet import wait_for
from tests.support.waa_cloud import GOLDEN, WaaCloud, waa_cloud

from evalfleet.store.open import open_store

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
PATIENCE_S = 900.0
SPEED = 60.0  # a task of 7 minutes takes 7 seconds
TASKS, WORKERS = 154, 10
NO_CAPACITY = """
seed = 5
[[fault]]
op = "vm.create"
match = { location = "eastus" }
preset = "allocation_failed"
"""


def test_154_scores_in_spite_of_evictions_kills_and_a_full_region(tmp_path: Path):
    began = time.monotonic()
    with waa_cloud(tmp_path, SPEED, NO_CAPACITY, pause_s=2.0) as here:
        fleet, cloud = here.fleet, here.rented
        here.build()
        for region in ("eastus", "westus2"):
            fleet.json("prices", "--refresh", "--region", region, "--size", "Standard_D8ds_v5")
        here.bake("westus2,eastus")
        ordered = time.monotonic()
        create = ("pool", "create", "waa", "--backend", "azure-vm", "--benchmark", "waa", "--image", GOLDEN)
        here.patient(*create, "--workers", str(WORKERS), "--spot", "--regions", "eastus,westus2")
        _work(here)
        worked_s = time.monotonic() - ordered
        _judge(here)
        assert "nothing of it is left" in here.patient("pool", "delete", "waa", "--yes")
        here.patient("pool", "images", "--delete", GOLDEN)
        assert cloud.is_empty(), cloud.leaks()
        cloud.births()  # checks that no machine was made beside itself
        books, bill = _books(here), cloud.control("GET", "bill")
        billed = sum(bill["by_kind"][kind] for kind in ("vm", "disk", "ip"))
        emulated_min, took_s = worked_s * SPEED / 60, time.monotonic() - began
        print(f"books ${sum(books.values()):.4f}, bill ${billed:.4f}, images ${bill['usd'] - billed:.4f}")
        print(
            f"{emulated_min:.0f} emulated minutes from the order of machines to the last score; {took_s:.0f} s in all"
        )
        assert sum(books.values()) == pytest.approx(billed, rel=0.01), {
            name: (usd, bill["vms"].get(name)) for name, usd in books.items()
        }


def _work(here: WaaCloud) -> None:
    """Two evictions with notice and two without, and two deaths of the controller, between which nobody is there."""
    cloud = here.rented
    run = here.fleet.start("run", "waa", "--agent", "navi", "--model", "gpt-4o", "--pool", "waa")
    for played, silent in ((20, False), (80, True)):
        _wait_for(here, run, played)
        assert len(cloud.control("POST", "evictions", {"count": 2, "silent": silent})["evicted"]) == 2
        _wait_for(here, run, played + 20)
        os.killpg(run.pid, signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        run = here.fleet.start("resume")
    out = run.communicate(timeout=PATIENCE_S)[0]
    assert run.returncode == 0, out


def _wait_for(here: WaaCloud, run: subprocess.Popen[str], played: int) -> None:
    def reached() -> bool:
        assert run.poll() is None, run.communicate()[0]
        return here.arena.played().total() >= played

    wait_for(reached, f"{played} tasks to be played", PATIENCE_S)


def _judge(here: WaaCloud) -> None:
    report, cloud = here.fleet.json("report"), here.rented
    assert report["state"] == "completed"
    assert report["tasks"]["done"] == report["scores"]["verdicts"] == TASKS
    assert {row["key"]: row["score"] for row in report["results"]} == {
        row["key"]: score_of(row["key"].partition("/")[2]) for row in report["results"]
    }
    claimed = Counter(event["attempt"] for event in cloud.told("attempt.claimed"))
    finished = cloud.told("attempt.finished")
    assert Counter(event["attempt"] for event in finished) == claimed
    assert set(claimed.values()) == {1}, "none was begun or counted twice"
    outcomes = Counter(event["data"]["outcome"] for event in finished)
    assert outcomes == {"ok": TASKS, "preempted": outcomes["preempted"]}
    assert Counter(event["task"] for event in cloud.told("task.done")).total() == TASKS
    # What the machines played, as they counted it: a task is played again only if its machine was taken before its result came.
    played = here.arena.played()
    assert len(played) == TASKS
    assert played.total() - TASKS <= outcomes["preempted"] <= 4
    taken = cloud.events("vm.evicted")
    regions = Counter(event["data"]["location"] for event in cloud.events("vm.creating"))
    print(f"{dict(outcomes)}; {len(taken)} evictions; ordered {dict(regions)}, failed {len(cloud.events('vm.failed'))}")
    assert len(taken) == 4
    assert len(cloud.events("image.made")) == 1
    assert cloud.events("vm.failed"), "the region without capacity was tried"


def _books(here: WaaCloud) -> dict[str, float]:
    """What each machine cost by our books, those of pools that are gone included."""
    with closing(open_store(here.fleet.home)) as store:
        return {machine.name: machine.cost_usd(store.now()) for machine in store.plans.machines()}
