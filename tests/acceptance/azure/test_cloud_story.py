"""The whole story of rented machines, by commands only: an emulated Azure, a pool, a run on it, and nothing left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import PATIENCE_S, Rented, rented

SETUP = "mkdir -p prepared; date > prepared/by-the-script\n"
HUNG = {"key": "hung", "command": ["sleep", "600"], "stall": "2s"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_whole_story(tmp_path: Path):
    with rented(tmp_path, 60) as here:
        fleet = here.fleet
        (fleet.folder / "setup.sh").write_text(SETUP)
        pool = here.create("--workers", "6", "--spot", "--setup", "setup.sh")
        assert [row["state"] for row in pool["hosts"]] == ["ready"] * 6
        assert fleet.command("pool", "exec", "p1", "--", "test", "-s", "prepared/by-the-script").returncode == 0
        run = fleet.start("run", here.work(35, 2, more=[HUNG], attempts=2), "--pool", "p1")
        wait_for(lambda: len(here.ended()) >= 8, "the run to be in the middle")
        here.control("POST", "vms/evalfleet-1/link", {"blocked": True})
        taken = here.control("POST", "evictions", {"count": 3, "name": "evalfleet-[2-6]"})["evicted"]
        assert len(taken) == 3
        wait_for(lambda: len(here.ended()) >= 18, "half of the tasks")
        here.control("POST", "vms/evalfleet-1/link", {})
        assert run.wait(PATIENCE_S) == 0, run.stdout.read() if run.stdout else ""
        _judge(here, taken)
        here.leave()
        assert max(here.births().values()) == 1


def _judge(here: Rented, taken: list[str]) -> None:
    report = here.fleet.json("report")
    assert report["state"] == "completed"
    assert report["tasks"]["done"] == report["scores"]["verdicts"] == 35
    (hung,) = [row for row in report["results"] if row["state"] == "failed"]
    assert (hung["key"], hung["failure"]["kind"], hung["attempts"]) == ("hung", "stall", 2)
    assert report["scores"]["coverage"] == 1.0
    assert report["scores"]["valid"] == pytest.approx(35 / 36)
    finished = here.told("attempt.finished")
    outcomes = Counter(event["data"]["outcome"] for event in finished)
    print(f"{dict(outcomes)}, {report['duration_s']:.1f} s, ${report['cost']['total_usd']:.3f}")
    assert outcomes == {"ok": 35, "stalled": 2, "preempted": outcomes["preempted"]}
    assert 1 <= outcomes["preempted"] <= 3
    preempted = {
        event["data"]["worker"].rpartition("-")[0] for event in finished if event["data"]["outcome"] == "preempted"
    }
    assert preempted <= set(taken)
    verdicts = Counter(event["task"] for event in here.told("task.done"))
    assert set(verdicts.values()) == {1}
    assert Counter(here.ended()) == Counter({f"t_{n}": 1 for n in range(35)})
    # The machine that was cut off is asked for patiently, and never given up.
    assert "evalfleet-1" not in {event["data"]["host"] for event in here.told("worker.lost")}
    assert len(here.told("worker.lost", "pool:p1")) == 3
    assert here.status()["cost_usd"] > report["cost"]["total_usd"] > 0
