"""The contract of a store: pools."""

from __future__ import annotations

import pytest

from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Policy
from evalfleet.store.base import Store
from evalfleet.testing import store_cases as cases
from evalfleet.testing.clock import FakeClock


class PoolContract:
    """Named sets of hosts."""

    def test_a_pool_is_kept(self, store: Store, clock: FakeClock) -> None:
        made = store.create_pool("gpus", "ssh", {"hosts": [{"name": "a"}]})
        assert (made.name, made.backend, made.settings) == ("gpus", "ssh", {"hosts": [{"name": "a"}]})
        assert made.created_at == store.now()
        store.create_pool("attic", "ssh", {})
        assert store.pool("gpus") == made
        assert [pool.name for pool in store.pools()] == ["attic", "gpus"]

    def test_a_name_stands_for_one_pool(self, store: Store) -> None:
        made = store.create_pool("gpus", "ssh", {"hosts": [1]})
        with pytest.raises(WrongState, match="gpus"):
            store.create_pool("gpus", "ssh", {"hosts": [2]})
        assert store.pool("gpus") == made

    def test_a_pool_may_get_other_hosts(self, store: Store) -> None:
        made = store.create_pool("gpus", "ssh", {"hosts": [1]})
        changed = store.replace_pool("gpus", "ssh", {"hosts": [2]})
        assert store.pool("gpus") == changed
        assert (changed.settings, changed.created_at) == ({"hosts": [2]}, made.created_at)
        with pytest.raises(NotFound, match="nobody"):
            store.replace_pool("nobody", "ssh", {})

    def test_an_unknown_pool_names_those_that_there_are(self, store: Store) -> None:
        with pytest.raises(NotFound, match="known pools: none"):
            store.pool("gpus")
        store.create_pool("attic", "ssh", {})
        with pytest.raises(NotFound, match="known pools: attic"):
            store.delete_pool("gpus")

    def test_a_pool_is_deleted_once_no_run_wants_it(self, store: Store) -> None:
        store.create_pool("gpus", "ssh", {})
        waiting = cases.submit(store, policy=Policy(pool="gpus"))
        with pytest.raises(WrongState, match=waiting.id):
            store.delete_pool("gpus")
        run = store.take(waiting.id, "me")
        store.cancel_tasks(run, "enough")
        assert store.cancel(run)
        store.delete_pool("gpus")
        assert store.pools() == []

    def test_the_load_of_a_host_is_that_of_all_runs(self, store: Store) -> None:
        assert store.host_loads() == {}
        for _ in range(2):
            run = cases.drive(store, 2)
            assert store.claim(run, cases.new_claim(1))
        assert list(store.host_loads().values()) == [2]
