"""The contract of a store: plans, and what earlier runs tell about the next one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.errors import NotFound, WrongState
from evalfleet.model import HostState, Kind, Outcome, Run, TaskState
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

HOUR_S = 3600.0


class PlanContract:
    """A plan is stored before its run and never changes; machines are remembered longer than their pool."""

    def test_plans_are_kept_as_they_were_made(self, store: Store, clock: FakeClock) -> None:
        first = store.plans.add({"tasks": 3, "options": [{"workers": 2}]})
        clock.advance(1)
        second = store.plans.add({"tasks": 4})
        assert store.plans.get(first.id) == first
        assert (first.content, first.run_id) == ({"tasks": 3, "options": [{"workers": 2}]}, None)
        assert second.created_at == first.created_at + 1
        assert store.plans.newest() == [second, first]
        assert store.plans.newest(1) == [second]
        with pytest.raises(NotFound, match="no plan 'nope'"):
            store.plans.get("nope")

    def test_one_run_follows_a_plan(self, store: Store) -> None:
        plan, run, other = store.plans.add({}), cases.submit(store), cases.submit(store)
        assert store.plans.of_run(run.id) is None
        store.plans.take(plan.id, run.id)
        assert store.plans.of_run(run.id) == replace(plan, run_id=run.id)
        with pytest.raises(WrongState, match=f"run {run.id} follows plan {plan.id} already"):
            store.plans.take(plan.id, other.id)
        assert store.plans.get(plan.id).run_id == run.id
        with pytest.raises(NotFound):
            store.plans.take("nope", other.id)

    def test_a_plan_is_not_taken_by_a_run_that_is_not_stored(self, store: Store) -> None:
        plan = store.plans.add({})

        def submitted() -> None:
            with store.batch():
                store.plans.take(plan.id, cases.submit(store).id)
                raise WrongState("no more")

        with pytest.raises(WrongState, match="no more"):
            submitted()
        assert store.runs.newest() == []
        assert store.plans.get(plan.id).run_id is None

    def test_two_runs_do_not_take_one_plan(self, store: Store, another: Store) -> None:
        plan, run, other = store.plans.add({}), cases.submit(store), cases.submit(store)
        another.plans.take(plan.id, other.id)
        with pytest.raises(WrongState, match=other.id):
            store.plans.take(plan.id, run.id)

    def test_machines_are_remembered_longer_than_their_pool(self, store: Store, clock: FakeClock) -> None:
        store.pools.create("p", "azure-vm", {})
        pool = store.pools.take("p", "me")
        [host, taken] = store.hosts.request("p", "eval-", [{"size": "D4", "region": "eastus", "spot": True}] * 2)
        begun = store.now()
        made = replace(host, made_at=begun, allocated_since=begun, usd_per_hour=0.4, kept_usd_per_hour=0.1)
        ready = cases.move_host(store, pool, replace(made, state=HostState.READY))
        (known,) = [one for one in store.plans.machines("p") if one.name == host.name]
        assert (known.size, known.region, known.spot, known.taken) == ("D4", "eastus", True, False)
        assert (known.ran_from, known.ready_at, known.ended_at) == (begun, begun, None)
        clock.advance(HOUR_S)
        assert known.cost_usd(store.now()) == pytest.approx(0.5)
        gone = replace(ready, state=HostState.GONE, allocated_since=None, allocated_s=HOUR_S, gone_at=store.now())
        cases.move_host(store, pool, gone)
        cases.move_host(store, pool, replace(taken, state=HostState.LOST))
        cases.move_host(store, pool, replace(taken, state=HostState.GONE, gone_at=store.now()))
        store.pools.leave(pool)
        store.pools.mark_for_deletion("p")
        store.pools.delete("p")
        found = {one.name: one for one in store.plans.machines()}
        assert found[host.name].cost_usd(store.now() + 9 * HOUR_S) == pytest.approx(0.5), (
            "nothing is paid after its end"
        )
        assert (found[host.name].taken, found[taken.name].taken) == (False, True)
        assert store.plans.machines("p", since=store.now()) == []

    def test_durations_are_known_by_key_and_those_of_the_same_run_are_marked(
        self, store: Store, clock: FakeClock
    ) -> None:
        run = done(store, clock, 30.0)
        clock.advance(1)
        done(store, clock, 60.0)
        found = store.plans.task_history(["task_1", "unknown"], "a run")
        assert [(row["key"], row["domain"], row["worker_s"], bool(row["same"])) for row in found] == [
            ("task_1", "d", 60.0, True),
            ("task_1", "d", 30.0, True),
        ]
        assert [bool(row["same"]) for row in store.plans.task_history(["task_1"], "another")] == [False, False]
        facts = store.plans.run_history(run.id)
        assert (facts["attempts"], facts["failed"], facts["failed_s"]) == (2, 1, 5.0)
        assert store.plans.gaps(run.id) == [2.0]
        assert store.plans.collected(run.id) == (0.0, 0)


def done(store: Store, clock: FakeClock, seconds: float) -> Run:
    """A run whose task fails after 5 seconds, waits for 2, and has its verdict after so many."""
    run = cases.drive(store)
    failure = cases.new_failure(Kind.BAD_EXIT)
    for wait_s, takes_s in ((0.0, 5.0), (2.0, seconds)):
        clock.advance(wait_s)
        attempt = cases.claimed(store, run).attempt
        clock.advance(takes_s)
        end = (
            cases.with_verdict(attempt, ended_at=store.now())
            if wait_s
            else cases.with_failure(attempt, TaskState.QUEUED, Outcome.TASK_ERROR, failure, ended_at=store.now())
        )
        cases.finished(store, run, end)
    return run
