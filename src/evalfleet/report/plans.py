"""Plans as they are answered, with what became of the run that followed one."""

from __future__ import annotations

from msgspec import convert
from msgspec.structs import replace

from evalfleet.answers.plans import Estimate, Plan, PlanActual
from evalfleet.errors import NotFound
from evalfleet.model import Run, RunState
from evalfleet.store.plans import StoredPlan
from evalfleet.store.reader import StoreReader

_OVER = (RunState.COMPLETED, RunState.CANCELLED)


def plan_answer(store: StoreReader, stored: StoredPlan) -> Plan:
    """The plan, and what the run that follows it has taken."""
    found = convert(
        {**stored.content, "id": stored.id, "created_at": stored.created_at, "actual": None}, Plan, strict=False
    )
    return replace(found, actual=_actual(store, stored, found))


def plan_of_run(store: StoreReader, run: Run) -> Plan | None:
    """The plan that a run follows, with the truth beside it."""
    stored = store.plans.of_run(run.id)
    return None if stored is None else plan_answer(store, stored)


def _actual(store: StoreReader, stored: StoredPlan, plan: Plan) -> PlanActual | None:
    if stored.run_id is None:
        return None
    try:
        run = store.runs.get(stored.run_id)
    except NotFound:  # it was deleted since
        return None
    if run.started_at is None:
        return None
    seconds = max(0.0, (run.ended_at or store.now()) - run.started_at) * plan.speed
    usd = run_cost_usd(store, run)
    return PlanActual(
        run=run.id,
        over=run.state in _OVER,
        seconds=seconds,
        usd=usd,
        seconds_inside=_inside(seconds, plan.option.seconds),
        usd_inside=_inside(usd, plan.option.usd),
    )


def run_cost_usd(store: StoreReader, run: Run) -> float:
    """What a run with machines of its own cost: their time, disks and addresses, and what its tasks reported."""
    pool, now = run.policy.pool, store.now()
    machines = [] if pool is None else store.plans.machines(pool, since=run.created_at)
    if not machines:
        return store.costs.total_usd(run.id) + store.costs.idle_usd(run.id)
    reported = sum(attempt.reported_usd for attempt in store.attempts.all(run.id))
    return sum(machine.cost_usd(now) for machine in machines) + reported


def _inside(value: float, planned: Estimate) -> bool:
    return planned.low <= value <= planned.high
