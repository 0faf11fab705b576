"""The tables of states."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from evalfleet.core.breaker import Breaker, Limits
from evalfleet.core.transitions import (
    ALERT_EDGES,
    ATTEMPT_EDGES,
    BREAKER_EDGES,
    DESIRED_EDGES,
    GPU_EDGES,
    HOST_EDGES,
    POOL_EDGES,
    RUN_EDGES,
    TASK_EDGES,
    WORKER_EDGES,
    allowed,
    verbs,
)
from evalfleet.model import (
    LIVE_ATTEMPT_STATES,
    AlertState,
    AttemptState,
    Blame,
    BreakerState,
    DesiredState,
    Failure,
    GpuRequestState,
    HostState,
    Kind,
    PoolState,
    RunState,
    TaskState,
    WorkerState,
)

TABLES = [
    (RunState, RUN_EDGES),
    (TaskState, TASK_EDGES),
    (AttemptState, ATTEMPT_EDGES),
    (DesiredState, DESIRED_EDGES),
    (HostState, HOST_EDGES),
    (PoolState, POOL_EDGES),
    (BreakerState, BREAKER_EDGES),
    (WorkerState, WORKER_EDGES),
    (GpuRequestState, GPU_EDGES),
    (AlertState, ALERT_EDGES),
]


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


# Hosts


def test_what_is_gone_stays_gone():
    assert not any(allowed(HostState.GONE, after) for after in HostState)
    assert not any(allowed(DesiredState.GONE, after) for after in DesiredState)
    assert not any(allowed(PoolState.DELETED, after) for after in PoolState)
    assert all(allowed(before, HostState.GONE) for before in HostState if before is not HostState.GONE)
    assert not allowed(PoolState.DELETING, PoolState.ACTIVE)


# Breaker

FAILURE = Failure(kind=Kind.SERVICE_FAILED, blame=Blame.POOL, retryable=True, consumes=False, evidence="e")
BREAKERS = {
    BreakerState.CLOSED: Breaker(healthy=True),
    BreakerState.OPEN: Breaker(state=BreakerState.OPEN, next_probe_at=0.0),
    BreakerState.HALF_OPEN: Breaker(state=BreakerState.HALF_OPEN, probe="probe"),
}


@pytest.mark.parametrize(("before", "after"), list(product(BreakerState, BreakerState)))
def test_a_breaker_moves_only_along_the_edges(before: BreakerState, after: BreakerState):
    move = BREAKERS[before]._moved  # type: ignore[reportPrivateUsage] - the gate that all moves go through
    if before is after or allowed(before, after):
        assert move(after).state is after
    else:
        with pytest.raises(ValueError, match=f"from {before} to {after}"):
            move(after)


def test_every_edge_of_a_breaker_is_taken_and_no_other():
    seen: set[tuple[BreakerState, BreakerState]] = set()
    todo = [Breaker(limits=Limits(failures=2, tasks=2))]
    known: set[str] = set()
    while todo:
        breaker = todo.pop()
        key = repr(breaker)
        if key in known or len(breaker.marks) > 3 or breaker.probes > 2:
            continue
        known.add(key)
        for name in ("probe", "other"):
            nexts = [
                breaker.admitted(name),
                breaker.succeeded(name),
                breaker.ran(name, 0.0, 1000.0),
                breaker.forgotten(name, 0.0),
                breaker.rearmed(0.0),
                *(breaker.failed(name, FAILURE, task, 0.0) for task in ("a", "b", "c")),
            ]
            seen |= {(breaker.state, one.state) for one in nexts if one.state is not breaker.state}
            todo += nexts
    assert seen == set(BREAKER_EDGES)
