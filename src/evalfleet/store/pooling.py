"""Pools: named sets of hosts."""

from __future__ import annotations

from evalfleet.errors import WrongState
from evalfleet.model import JsonObject, Pool
from evalfleet.store import rows
from evalfleet.store.recording import Recording


class Pooling(Recording):
    """The part of `Store` that keeps pools."""

    def create_pool(self, name: str, backend: str, settings: JsonObject) -> Pool:
        with self._db.transaction():
            made = self._db.rows(
                "insert_pool", name=name, backend=backend, settings=rows.to_json(settings), now=self._db.now()
            )
            if not made:
                raise WrongState(f"there is a pool {name!r} already; --replace gives it other hosts")
            return rows.pool(made[0])

    def replace_pool(self, name: str, backend: str, settings: JsonObject) -> Pool:
        with self._db.transaction():
            self.pool(name)
            changed = self._db.rows("replace_pool", name=name, backend=backend, settings=rows.to_json(settings))
            return rows.pool(changed[0])

    def delete_pool(self, name: str) -> None:
        with self._db.transaction():
            self.pool(name)
            wanted_by = [rows.run(row) for row in self._db.rows("select_runs_of_pool", name=name)]
            if wanted_by:
                one = wanted_by[0]
                raise WrongState(
                    f"run {one.id} is {one.state} and uses pool {name!r}; `evalfleet cancel {one.id}` ends it"
                )
            self._db.rows("delete_pool", name=name)
