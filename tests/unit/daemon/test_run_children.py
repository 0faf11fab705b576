"""When the controller of a run is started again after it ended. Pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.config import Settings
from evalfleet.daemon.ability import Ability
from evalfleet.daemon.run_children import RunChildren, RunStanding
from evalfleet.daemon.supervisor import Child, Next
from evalfleet.model import RunState

RUNS = RunChildren(most=4, ability=Ability(Settings(home=Path("/nowhere"))))
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
    (3, RunState.RUNNING, None, 0, 5.0),  # another process drove it, and may be gone
    (2, RunState.QUEUED, None, 0, None),
    (1, RunState.RUNNING, None, 0, 5.0),  # the store was away
    (70, RunState.RUNNING, None, 0, 5.0),  # crashed
    (-9, RunState.RUNNING, None, 1, 10.0),  # killed
    (-9, RunState.RUNNING, None, 5, None),
]


@pytest.mark.parametrize(("code", "state", "cause", "times", "wanted"), CASES)
def test_again(code: int, state: RunState, cause: str | None, times: int, wanted: float | None):
    standing = RunStanding(state=state, cause=cause)
    assert RUNS.delay_s(code, standing, times) == wanted


def test_a_controller_that_outlived_its_server_is_waited_for_and_replaced():
    runs, child = RUNS, Child(recalled=True)
    kept = RunStanding(state=RunState.RUNNING, owner="process 7 on box", epoch=3)
    for now in (0.0, 1.0, 100.0):
        assert runs.next(child, kept, unseen=False, now=now) is Next.WAIT
    left = RunStanding(state=RunState.RUNNING, epoch=3)
    assert runs.next(child, left, unseen=False, now=200.0) is Next.WAIT
    assert runs.next(child, left, unseen=False, now=204.0) is Next.WAIT, "what crashed is not started again at once"
    assert runs.next(child, left, unseen=False, now=205.0) is Next.START


@pytest.mark.parametrize(
    ("state", "cause", "after_s"),
    [
        (RunState.COMPLETED, None, None),
        (RunState.CANCELLED, None, None),
        (RunState.PAUSED, "operator", None),
        (RunState.PAUSED, "breaker", 60.0),
    ],
)
def test_what_is_done_when_such_a_controller_has_ended(state: RunState, cause: str | None, after_s: float | None):
    runs, child = RUNS, Child(recalled=True)
    runs.next(child, RunStanding(state=RunState.RUNNING, owner="process 7 on box", epoch=3), unseen=False, now=0.0)
    ended = RunStanding(state=state, cause=cause, epoch=3, unfinished=state is RunState.PAUSED)
    then = runs.next(child, ended, unseen=False, now=10.0)
    assert then is (Next.FORGET if after_s is None else Next.WAIT)
    if after_s is not None:
        assert runs.next(child, ended, unseen=False, now=10.0 + after_s) is Next.START


def test_a_run_that_no_process_kept_is_continued_at_once():
    left = RunStanding(state=RunState.RUNNING, epoch=3)
    assert RUNS.next(Child(recalled=True), left, unseen=False, now=0.0) is Next.START
