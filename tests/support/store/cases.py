"""Factories of store inputs for tests: everything has a default, and a test names what matters to it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from evalfleet.core.transitions import HOST_EDGES
from evalfleet.model import (
    Attempt,
    Blame,
    Failure,
    Kind,
    Outcome,
    Policy,
    Pool,
    PoolHost,
    Requests,
    Run,
    TaskSpec,
    TaskState,
    Verdict,
)
from evalfleet.store.attempts.records import Claim, Claimed, Finish, Finished
from evalfleet.store.store import Store


def move_host(store: Store, pool: Pool, host: PoolHost) -> PoolHost:
    """Move a host to the state that `host` has, along the edges."""
    now = next(row for row in store.hosts.of_pool(pool.name, gone=True) if row.name == host.name).state
    ways = [[now]]
    while ways[0][-1] is not host.state:
        way = ways.pop(0)
        ways += [[*way, after] for before, after in HOST_EDGES if before is way[-1] and after not in way]
    for before, after in pairwise(ways[0]):
        moved = store.hosts.move(pool, before, replace(host, state=after))
        assert moved is not None
        host = replace(moved, state=host.state)
    return host


def task_spec(key: str, domain: str = "d", **fields: Any) -> TaskSpec:
    return TaskSpec(key=key, domain=domain, command=("true",), **fields)


def submit(store: Store, tasks: int | Iterable[str] = 1, policy: Policy | None = None, **fields: Any) -> Run:
    """A new run with that many tasks, named task_1, task_2, ..., or with those keys."""
    keys = [f"task_{number}" for number in range(1, tasks + 1)] if isinstance(tasks, int) else tasks
    specs = [task_spec(key) for key in keys]
    return store.runs.submit("a run", policy or Policy(), specs, folder="/tmp", base_env={"PATH": "/bin"}, **fields)


def drive(store: Store, tasks: int | Iterable[str] = 1, policy: Policy | None = None, **fields: Any) -> Run:
    """A new run that we own and that runs."""
    run = store.runs.begin(store.runs.take(submit(store, tasks, policy, **fields).id, "me"))
    assert run is not None
    return run


def new_claim(task_number: int, *, worker: str = "w1", memory_mb: int = 0, limit_mb: int | None = None) -> Claim:
    return Claim(
        task_number=task_number,
        worker=worker,
        host="h1",
        token="token",
        lease_s=60.0,
        requests=Requests(memory_mb=memory_mb),
        host_memory_mb=limit_mb,
    )


def claimed(store: Store, run: Run, task_number: int = 1) -> Claimed:
    found = store.attempts.claim(run, new_claim(task_number))
    assert found is not None
    return found


def finished(store: Store, run: Run, finish: Finish) -> Finished:
    found = store.attempts.finish(run, finish)
    assert found is not None
    return found


def new_failure(kind: Kind = Kind.BAD_EXIT, *, consumes: bool = True, evidence: str = "exit 1") -> Failure:
    return Failure(kind=kind, blame=Blame.TASK, retryable=True, consumes=consumes, evidence=evidence)


def with_verdict(attempt: Attempt, score: float = 1.0, **fields: Any) -> Finish:
    verdict = Verdict(score=score, success=score > 0.5, steps=3, metrics={"a": 1})
    return Finish(attempt=attempt, outcome=Outcome.OK, verdict=verdict, **(_ENDED | fields))


def with_failure(
    attempt: Attempt,
    next_state: TaskState = TaskState.QUEUED,
    outcome: Outcome = Outcome.TASK_ERROR,
    failure: Failure | None = None,
    **fields: Any,
) -> Finish:
    """An end without verdict; `lost` ends do not consume."""
    found = failure or new_failure(consumes=outcome is not Outcome.LOST)
    more: dict[str, Any] = {"reason": "because", **fields}
    return Finish(attempt=attempt, outcome=outcome, failure=found, next_state=next_state, **(_ENDED | more))


_ENDED: dict[str, Any] = {
    "ended_at": 1_000_010.0,
    "duration_s": 7.0,
    "started_at": 1_000_003.0,
    "ready_at": None,
    "cost_usd": 0.5,
    "reported_usd": 0.25,
    "last_event": 9,
    "end": {"cause": "exited", "exit_code": 0},
    "judge_version": 1,
}
