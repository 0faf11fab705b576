"""The contract of a store: pools."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Policy, Verdict
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class PoolContract:
    """Named sets of hosts."""

    def test_a_pool_is_kept(self, store: Store, clock: FakeClock) -> None:
        made = store.pools.create("gpus", "ssh", {"hosts": [{"name": "a"}]})
        assert (made.name, made.backend, made.settings) == ("gpus", "ssh", {"hosts": [{"name": "a"}]})
        assert made.created_at == store.now()
        store.pools.create("attic", "ssh", {})
        assert store.pools.get("gpus") == made
        assert [pool.name for pool in store.pools.all()] == ["attic", "gpus"]

    def test_a_name_stands_for_one_pool(self, store: Store) -> None:
        made = store.pools.create("gpus", "ssh", {"hosts": [1]})
        with pytest.raises(WrongState, match="gpus"):
            store.pools.create("gpus", "ssh", {"hosts": [2]})
        assert store.pools.get("gpus") == made

    def test_a_pool_may_get_other_hosts(self, store: Store) -> None:
        made = store.pools.create("gpus", "ssh", {"hosts": [1]})
        changed = store.pools.replace("gpus", "ssh", {"hosts": [2]})
        assert store.pools.get("gpus") == changed
        assert (changed.settings, changed.created_at) == ({"hosts": [2]}, made.created_at)
        with pytest.raises(NotFound, match="nobody"):
            store.pools.replace("nobody", "ssh", {})

    def test_an_unknown_pool_names_those_that_there_are(self, store: Store) -> None:
        with pytest.raises(NotFound, match="known pools: none"):
            store.pools.get("gpus")
        store.pools.create("attic", "ssh", {})
        with pytest.raises(NotFound, match="known pools: attic"):
            store.pools.delete("gpus")

    def test_a_pool_is_deleted_once_no_run_wants_it(self, store: Store) -> None:
        store.pools.create("gpus", "ssh", {})
        waiting = cases.submit(store, policy=Policy(pool="gpus"))
        with pytest.raises(WrongState, match=waiting.id):
            store.pools.delete("gpus")
        run = store.runs.take(waiting.id, "me")
        store.tasks.cancel(run, "enough")
        assert store.runs.cancel(run)
        store.pools.delete("gpus")
        assert store.pools.all() == []

    def test_the_load_of_a_host_is_that_of_all_runs(self, store: Store) -> None:
        assert store.hosts.live_counts() == {}
        for _ in range(2):
            run = cases.drive(store, 2)
            assert store.attempts.claim(run, cases.new_claim(1))
        assert list(store.hosts.live_counts().values()) == [2]

    def test_the_work_of_a_host_is_that_of_all_runs_until_it_is_collected(self, store: Store) -> None:
        assert store.hosts.work() == {}
        runs = [cases.drive(store, 2) for _ in range(2)]
        first = cases.claimed(store, runs[0], 1).attempt
        second = cases.claimed(store, runs[1], 2).attempt
        cases.finished(store, runs[0], cases.with_verdict(first))
        found = {(one.run_id, one.key): one.state for one in store.hosts.work()[first.host]}
        assert found == {(runs[0].id, "task_1"): "collecting", (runs[1].id, "task_2"): "leased"}
        store.attempts.collect(runs[0], first, [])
        cases.finished(store, runs[1], cases.with_verdict(second))
        store.attempts.collect(runs[1], second, [])
        assert store.hosts.work() == {}

    def test_tasks_done_are_counted_by_container(self, store: Store) -> None:
        pool = store.pools.create("gpus", "ssh", {})
        run, other = cases.drive(store, 4, Policy(pool="gpus")), cases.drive(store, 1)  # of no pool
        for owner, number, metrics in [(run, 1, "a"), (run, 2, "a"), (run, 3, None), (other, 1, "a")]:
            verdict = Verdict(score=0.0, success=False, metrics={"container": metrics} if metrics else {})
            attempt = cases.claimed(store, owner, number).attempt
            cases.finished(store, owner, replace(cases.with_verdict(attempt), verdict=verdict))
        failed = cases.claimed(store, run, 4).attempt
        cases.finished(store, run, cases.with_failure(failed))
        assert store.pools.container_tallies(pool) == {("h1", "a"): 2}

    def test_what_runs_could_use_of_a_pool(self, store: Store) -> None:
        store.pools.create("gpus", "ssh", {})
        run = cases.drive(store, 3, Policy(pool="gpus", workers=2))
        cases.drive(store, 3)  # of no pool
        cases.submit(store, 3, policy=Policy(pool="gpus"))  # not begun
        cases.claimed(store, run, 1)
        [one] = store.pools.demand("gpus")
        assert (one.run_id, one.workers, one.live, one.queued, one.driven) == (run.id, 2, 1, 2, True)
        assert one.wanted == 2
        store.runs.leave(run)
        [one] = store.pools.demand("gpus")
        assert (one.driven, one.wanted) == (False, 1)  # no controller would give it more
