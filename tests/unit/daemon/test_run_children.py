"""When the controller of a run is started again after it ended. Pure."""

from __future__ import annotations

import pytest

from evalfleet.daemon.run_children import RunChildren, RunStanding
from evalfleet.model import RunState

CASES = [
    (0, RunState.COMPLETED, None, 0, None),
    (1, RunState.CANCELLED, None, 0, None),
    (130, RunState.RUNNING, None, 0, None),  # somebody stopped the controller
    (3, RunState.PAUSED, "budget", 0, None),  # waits for a person
    (3, RunState.PAUSED, "secret", 0, None),
    (3, RunState.PAUSED, "operator", 0, None),
    (3, RunState.PAUSED, "breaker", 0, 60.0),  # probed on
    (3, RunState.PAUSED, "breaker", 2, 240.0),
    (3, RunState.PAUSED, "breaker", 20, 900.0),
    (3, RunState.RUNNING, None, 0, None),  # another process drives it
    (2, RunState.QUEUED, None, 0, None),
    (70, RunState.RUNNING, None, 0, 5.0),  # crashed
    (-9, RunState.RUNNING, None, 1, 10.0),  # killed
    (-9, RunState.RUNNING, None, 5, None),
]


@pytest.mark.parametrize(("code", "state", "cause", "times", "wanted"), CASES)
def test_again(code: int, state: RunState, cause: str | None, times: int, wanted: float | None):
    standing = RunStanding(state=state, cause=cause)
    assert RunChildren(most=4).delay_s(code, standing, times) == wanted
