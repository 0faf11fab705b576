"""`--min-score` and `--min-coverage`: a CI job fails where the run was measured and is not good enough."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.fleet import Fleet

from evalfleet.cli.shared.thresholds import share


def sh(script: str, key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script], **more}


def half(fleet: Fleet) -> str:
    """Four tasks, two of which score 1."""
    return fleet.tasks([sh(f"echo '{{\"score\": {n % 2}}}' > $EVALFLEET_RESULT", f"t_{n}") for n in range(4)])


def test_a_low_valid_score_exits_with_1_and_says_so(fleet: Fleet):
    path = half(fleet)
    assert fleet.command("run", path, "--min-score", "0.5").returncode == 0
    low = fleet.command("run", path, "--min-score", "70%")
    assert low.returncode == 1
    assert "the valid score is 50.0%; wanted by --min-score: 70%" in low.stderr
    told = fleet.command("run", path, "--min-score", "0.7", "--json")
    assert (told.returncode, json.loads(told.stdout)["scores"]["valid"]) == (1, 0.5)
    run = json.loads(told.stdout)["run"]
    for command in ("resume", "retry", "watch"):
        assert fleet.command(command, run, "--min-score", "0.51").returncode == 1, command
        assert fleet.command(command, run, "--min-score", "50%").returncode == 0, command


def test_nothing_that_counts_is_no_score(fleet: Fleet):
    path = fleet.tasks([sh("true", "big", requests={"gpus": 8})])
    done = fleet.command("run", path, "--min-score", "0", "--min-coverage", "0")
    assert done.returncode == 1
    assert "nothing counts" in done.stderr
    assert fleet.command("resume", "latest", "--min-coverage", "0").returncode == 0


def test_the_coverage_asked_for_goes_before_accept_and_is_shown(fleet: Fleet):
    tasks = [*(sh("true", f"t_{n}") for n in range(3)), sh("true", "big", requests={"gpus": 8})]
    done = fleet.command("run", fleet.tasks(tasks), "--min-coverage", "75%")
    assert done.returncode == 0
    assert "wanted 75%: reached" in done.stdout
    assert fleet.command("resume", "latest", "--min-coverage", "0.76").returncode == 1
    assert fleet.command("resume", "latest").returncode == 1  # the run's own accept is as it was
    assert fleet.json("report")["accept"] == 1.0


def test_what_cannot_be_decided_is_refused(fleet: Fleet):
    path = half(fleet)
    for args in (["--min-score", "70"], ["--min-score", "high"], ["--min-coverage", "101%"], ["--min-score", "nan"]):
        refused = fleet.command("run", path, *args)
        assert refused.returncode == 2, args
        assert "0.7 or 70%" in refused.stderr
    refused = fleet.command("run", path, "--detach", "--min-score", "1")
    assert (refused.returncode, "--detach" in refused.stderr) == (2, True)
    assert not fleet.home.exists()


@pytest.mark.parametrize(("text", "value"), [("0.7", 0.7), ("70%", 0.7), ("1", 1.0), ("0", 0.0), ("99.5%", 0.995)])
def test_shares(text: str, value: float):
    assert share(text) == pytest.approx(value)
