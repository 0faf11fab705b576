"""The tables of states."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from evalfleet.core.transitions import ATTEMPT_EDGES, RUN_EDGES, TASK_EDGES, allowed, verbs
from evalfleet.model import LIVE_ATTEMPT_STATES, AttemptState, RunState, TaskState

TABLES = [(RunState, RUN_EDGES), (TaskState, TASK_EDGES), (AttemptState, ATTEMPT_EDGES)]


@pytest.mark.parametrize(("states", "edges"), TABLES)
def test_the_tables_are_what_is_allowed(states: Any, edges: dict[Any, tuple[str, ...]]):
    for before, after in product(states, states):
        assert allowed(before, after) == ((before, after) in edges)
        assert verbs(before, after) == edges.get((before, after), ())
    assert all(edges.values())


@pytest.mark.parametrize(("states", "edges"), TABLES)
def test_every_state_can_be_reached(states: Any, edges: dict[Any, tuple[str, ...]]):
    reached = {next(iter(states))}
    for _ in states:
        reached |= {after for before, after in edges if before in reached}
    assert reached == set(states)


def test_states_of_different_kinds_do_not_mix():
    assert allowed(TaskState.QUEUED, TaskState.RUNNING)
    assert not allowed(TaskState.QUEUED, RunState.RUNNING)
    assert not allowed(TaskState.RUNNING, RunState.CANCELLED)


def test_a_verdict_is_never_taken_back():
    assert not any(allowed(TaskState.DONE, after) for after in TaskState)


def test_attempts_only_go_forward_except_for_a_late_verdict():
    order = list(AttemptState)
    back = [edge for edge in ATTEMPT_EDGES if order.index(edge[0]) > order.index(edge[1])]
    assert back == [(AttemptState.ENDED, AttemptState.COLLECTING)]
    assert all(any(allowed(live, after) for after in AttemptState) for live in LIVE_ATTEMPT_STATES)
