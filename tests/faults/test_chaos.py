"""A short piece of `make chaos`: a few rounds with fixed seeds, every kind of kill among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.chaos import one_round

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flavour", ["controller", "mixed", "runner"])
def test_nothing_is_lost_when_anything_is_killed(tmp_path: Path, flavour: str) -> None:
    tally = one_round(tmp_path / "round", 5, 0, tasks=120, workers=8, only=flavour)

    assert sum(tally.kills.values()) >= 2, "the seed kills hardly anybody; choose another one"
    assert (tally.lost, tally.twice, tally.restarted, tally.left) == (0, 0, 0, 0)
    if flavour == "controller":
        assert tally.reattached > 0
