"""A short version of `controller_kills.py`, which is run by hand at its full length."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.controller_kills import fight
from tests.support import sshd


@pytest.mark.long
def test_controllers_that_are_killed_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd.require()
    monkeypatch.setenv("EVALFLEET_STORE_URL", "")
    tally = fight(tmp_path, "short", controllers=3, runs=8, tasks=3, kills=8, limit_s=240.0)
    assert (tally.tasks, tally.lost, tally.twice, tally.unended) == (24, 0, 0, 0), tally
    assert tally.starts == 24
    assert sum(tally.kills.values()) >= 3, tally
