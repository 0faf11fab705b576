"""Pools: named sets of hosts."""

from __future__ import annotations

from evalfleet.errors import WrongState
from evalfleet.model import JsonObject, Pool
from evalfleet.store.runs import rows
from evalfleet.store.runs.events import Recording

QUOTA_SEEN = "pool.quota_seen"


def pool_subject(name: str) -> str:
    """What stands for the run in the events of a pool."""
    return f"pool:{name}"


class Pooling(Recording):
    """The part of `Store` that keeps pools."""

    def create_pool(self, name: str, backend: str, settings: JsonObject) -> Pool:
        with self._db.transaction():
            made = self._db.rows(
                "insert_pool", name=name, backend=backend, settings=rows.to_json(settings), now=self._db.now()
            )
            if not made:
                raise WrongState(f"there is a pool {name!r} already; --replace gives it other hosts")
            self._event(pool_subject(name), "pool.created", {"backend": backend})
            return rows.pool(made[0])

    def replace_pool(self, name: str, backend: str, settings: JsonObject) -> Pool:
        with self._db.transaction():
            self.pool(name)
            changed = self._db.rows("replace_pool", name=name, backend=backend, settings=rows.to_json(settings))
            return rows.pool(changed[0])

    def delete_pool(self, name: str) -> None:
        with self._db.transaction():
            self.pool(name)
            self._refuse_wanted(name)
            left = [row["name"] for row in self._db.rows("select_hosts", pool=name, gone=False)]
            if left:
                raise WrongState(f"pool {name!r} still has machines ({', '.join(left)}); they must be gone first")
            self._db.rows("delete_pool", name=name)
            self._event(pool_subject(name), "pool.deleted", {})

    def _refuse_wanted(self, name: str) -> None:
        for row in self._db.rows("select_runs_of_pool", name=name):
            one = rows.run(row)
            raise WrongState(f"run {one.id} is {one.state} and uses pool {name!r}; `evalfleet cancel {one.id}` ends it")
