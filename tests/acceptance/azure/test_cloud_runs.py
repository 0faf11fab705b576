"""Runs on rented machines, by commands: what they cost, how pools follow them, and who may do what meanwhile."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import PATIENCE_S, rented, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HOUR_S = 3600.0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_thirty_tasks_of_eight_minutes_take_an_hour_and_cost_what_the_bill_says(tmp_path: Path):
    """Five workers, 30 tasks: six rounds of 8 minutes, and 12 minutes, which are a minute here, for all else.

    A slow start lasts a minute of our clock, which no hour here has.
    """
    speed = 12
    with rented(tmp_path, speed) as here:
        began = time.monotonic()
        here.create("--workers", "5")
        summary = here.run("run", here.work(30, 480 / speed, timeout="1m", breaker=False), "--pool", "p1")
        assert summary["scores"]["verdicts"] == 30
        assert summary["attempts"]["by_outcome"]["ok"] == 30
        took_s = (time.monotonic() - began) * speed
        assert took_s < HOUR_S, "from the order of the machines to the last verdict"
        status, billed = here.status(), here.billed_usd()
        print(took_s / 60, "min;", status["cost_usd"], billed, summary["cost"])
        assert status["cost_usd"] == pytest.approx(billed, rel=0.05)
        # Tasks are charged for the time that they had a worker: 4 hours of machines in all.
        assert summary["cost"]["total_usd"] == pytest.approx(30 * 480 * 0.452 / HOUR_S, rel=0.15)
        assert summary["cost"]["total_usd"] < status["cost_usd"]
        scaled = here.fleet.json("pool", "scale", "p1", "2")
        assert len(scaled["hosts"]) == 2
        assert scaled["cost_usd"] == pytest.approx(here.billed_usd(), rel=0.05)  # with those that are gone
        assert here.fleet.command("pool", "stop", "p1").returncode == 0
        assert here.status()["cost_usd"] == pytest.approx(here.billed_usd(), rel=0.05)
        # While machines run, a second between two questions is 12 of Azure's; in the end all is known.
        assert here.fleet.json("pool", "delete", "p1", "--yes")["cost_usd"] == pytest.approx(
            here.billed_usd(), rel=0.01
        )
        assert here.is_empty(), here.leaks()


@pytest.mark.long
def test_a_run_starts_a_pool_that_is_stopped(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        here.create("--workers", "3")
        here.fleet.json("pool", "stop")
        assert set(here.states().values()) == {"stopped"}
        summary = here.run("run", here.work(2, 0.2), "--pool", "p1")
        assert summary["scores"]["verdicts"] == 2
        # As many as it can use, and no more.
        assert Counter(here.states().values()) == {"ready": 2, "stopped": 1}
        assert len(here.births()) == 3
        here.leave()


@pytest.mark.long
def test_a_pool_grows_for_a_run_and_sheds_what_is_idle(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        made = here.create("--min", "0", "--max", "6", "--idle", "2s", "--idle-action", "delete")
        assert made["hosts"] == []
        long = {"key": "long", "command": ["sleep", "12"]}
        run = here.fleet.start("run", here.work(24, 0.5, more=[long]), "--pool", "p1")
        wait_until(here, {"ready": 6})
        wait_until(here, {"ready": 1})  # five had nothing to do any more while one worked
        assert run.poll() is None
        assert run.wait(PATIENCE_S) == 0
        here.all_ok(25)
        assert len(here.births()) == 6
        here.leave()


@pytest.mark.long
def test_two_runs_share_one_pool(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        here.create("--workers", "3", "--slots", "2")
        one = here.fleet.start("run", here.work(12, 1), "--pool", "p1", "--name", "one")
        wait_for(lambda: len(here.begun()) >= 3, "the first run to work")
        more = [{"key": f"u_{n}", "command": ["sleep", "1"]} for n in range(12)]
        two = here.fleet.start("run", here.fleet.tasks(more, name="two.jsonl"), "--pool", "p1", "--name", "two")
        assert one.wait(PATIENCE_S) == 0
        assert two.wait(PATIENCE_S) == 0
        for run in here.fleet.json("status")["runs"]:
            here.all_ok(12, run["run"])
        assert len(here.births()) == 3
        assert set(here.states().values()) == {"ready"}


@pytest.mark.long
def test_wishes_are_obeyed_while_a_run_uses_the_pool(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        fleet = here.fleet
        here.create("--workers", "4")
        run = fleet.start("run", here.work(40, 1), "--pool", "p1")
        wait_for(lambda: len(here.begun()) >= 4, "the run to work")
        refused = fleet.command("pool", "delete", "p1", "--yes")
        assert refused.returncode == 3
        assert "uses pool 'p1'" in refused.stderr
        assert run.poll() is None
        assert len(fleet.json("pool", "scale", "p1", "2")["hosts"]) == 2
        stopped = fleet.json("pool", "stop", "p1", "--worker", "evalfleet-1")
        assert {row["host"]: row["state"] for row in stopped["hosts"]}["evalfleet-1"] == "stopped"
        assert len(fleet.json("pool", "scale", "p1", "3")["hosts"]) == 3
        assert run.wait(PATIENCE_S) == 0
        # Machines that work end their tasks before they go: nothing was done twice.
        here.all_ok(40)
        assert Counter(here.begun()) == Counter({f"t_{n}": 1 for n in range(40)})
        here.leave()


@pytest.mark.long
def test_what_a_person_stops_stays_so_until_a_person_starts_it(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        here.create("--workers", "2")
        run = here.fleet.start("run", here.work(8, 2), "--pool", "p1")
        wait_for(lambda: len(here.begun()) >= 2, "the run to work")
        assert here.fleet.command("pool", "stop", "p1").returncode == 0
        assert set(here.states().values()) == {"stopped"}
        assert len(here.ended()) == len(here.begun()) < 8  # it waited for the work
        assert run.poll() is None
        assert here.fleet.command("pool", "start", "p1").returncode == 0
        assert run.wait(PATIENCE_S) == 0
        here.all_ok(8)


@pytest.mark.long
def test_a_pool_at_its_budget_takes_no_more_work(tmp_path: Path):
    """Two machines cost a dollar an hour: at 60 times the speed half of it is there in half a minute, and a busy second costs little."""
    with rented(tmp_path, 60) as here:
        here.create("--workers", "2", "--budget", "0.5")
        run = here.fleet.start("run", here.work(60, 1), "--pool", "p1")
        wait_for(lambda: (here.status()["reason"] or {}).get("cause") == "budget", "the budget")
        wait_until(here, {"stopped": 2})
        done, begun = len(here.ended()), len(here.begun())
        assert done == begun < 60  # what ran has ended
        assert here.status()["cost_usd"] < 0.6
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE_S) in (3, 130)
        assert here.fleet.json("pool", "scale", "p1", "2", "--budget", "5")["reason"] is None
        assert here.run("resume")["scores"]["verdicts"] == 60
        assert len(here.begun()) == 60
