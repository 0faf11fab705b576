"""Pools of rented machines whose controller was killed, by commands: what has ended there is not lost, and not done twice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import PATIENCE_S, rented

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_no_command_takes_a_machine_whose_results_nobody_has_collected(tmp_path: Path):
    with rented(tmp_path, 200) as here:
        fleet = here.fleet
        here.create("--workers", "2")
        run = fleet.start("run", here.work(2, 1), "--pool", "p1")
        wait_for(lambda: len(here.begun()) == 2, "two tasks to run")
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        wait_for(lambda: len(here.ended()) == 2, "both tasks to end on their machines")
        scaling = fleet.start("pool", "scale", "p1", "1")
        assert scaling.stdout is not None
        said = next(line for line in scaling.stdout if "draining" in line)
        assert "waits for t_" in said
        assert "no controller drives it" in said
        assert here.events("vm.deleted", "vm.deallocated") == []
        assert fleet.command("resume").returncode == 0
        assert scaling.wait(PATIENCE_S) == 0
        here.all_ok(2)
        assert sorted(here.begun()) == ["t_0", "t_1"]  # nothing was done twice
        assert len(here.states()) == 1
        here.leave()


def test_stop_by_force_ends_what_a_dead_controller_left(tmp_path: Path):
    with rented(tmp_path, 200) as here:
        fleet = here.fleet
        here.create("--workers", "1")
        run = fleet.start("run", here.work(1, 600), "--pool", "p1")
        wait_for(here.begun, "the task to run")
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        began = time.monotonic()
        stopped = fleet.json("pool", "stop", "p1", "--force")
        assert time.monotonic() - began < 30
        assert [row["state"] for row in stopped["hosts"]] == ["stopped"]


@pytest.mark.long
def test_a_machine_that_does_not_answer_is_given_up_replaced_and_not_paid_for(tmp_path: Path):
    with rented(tmp_path, 200) as here:
        here.fleet.env |= {"EVALFLEET_LEASE_GIVE_UP": "5s", "EVALFLEET_LEASE_DURATION": "5s"}
        here.create("--workers", "2")
        run = here.fleet.start("run", here.work(6, 4, timeout="60s"), "--pool", "p1")
        wait_for(lambda: len(here.begun()) >= 2, "the run to work")
        here.control("POST", "vms/evalfleet-1/link", {"blocked": True})
        wait_for(lambda: here.states().get("evalfleet-1") == "stopped", "the silent machine to be stopped", 150)
        assert run.wait(PATIENCE_S) == 0
        assert here.states()["evalfleet-3"] == "ready"
        summary = here.fleet.json("report")
        assert summary["scores"]["verdicts"] == 6
