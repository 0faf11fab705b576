"""Pools: named sets of hosts, and who keeps them."""

from __future__ import annotations

from evalfleet.errors import NotFound, Owned, WrongState
from evalfleet.model import DesiredState, JsonObject, Pool
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.events import Events
from evalfleet.store.pools.hosts import Hosts
from evalfleet.store.pools.queries import PoolQueries, pool_lock, pool_subject

QUOTA_SEEN = "pool.quota_seen"


class Pools(PoolQueries):
    def __init__(self, database: Database, events: Events, hosts: Hosts) -> None:
        super().__init__(database)
        self._events = events
        self._hosts = hosts

    def create(self, name: str, backend: str, settings: JsonObject) -> Pool:
        """Make a pool. Event `pool.created`. Raises WrongState where there is one of that name."""
        with self._db.transaction():
            made = self._db.rows(
                "insert_pool", name=name, backend=backend, settings=rows.to_json(settings), now=self._db.now()
            )
            if not made:
                raise WrongState(f"there is a pool {name!r} already; --replace gives it other hosts or tiers")
            self._events.write(pool_subject(name), "pool.created", {"backend": backend})
            return rows.pool(made[0])

    def replace(self, name: str, backend: str, settings: JsonObject) -> Pool:
        """Give a pool other hosts. The driver of a run notices at the next `resume`. Raises NotFound."""
        with self._db.transaction():
            self.get(name)
            changed = self._db.rows("replace_pool", name=name, backend=backend, settings=rows.to_json(settings))
            return rows.pool(changed[0])

    def delete(self, name: str) -> None:
        """Delete a pool without hosts. Event `pool.deleted`. Raises NotFound, and WrongState while it has hosts, a run that is not
        over uses it, or it is a tier of another pool."""
        with self._db.transaction():
            self.get(name)
            self._refuse_wanted(name)
            left = [row["name"] for row in self._db.rows("select_hosts", pool=name, gone=False)]
            if left:
                raise WrongState(f"pool {name!r} still has machines ({', '.join(left)}); they must be gone first")
            self._db.rows("delete_pool", name=name)
            self._db.rows("drop_tiers", pool=name, kept="[]")
            self._db.rows("drop_tier_demand", pool=name, run_id=None)
            self._events.write(pool_subject(name), "pool.deleted", {})

    def take(self, name: str, owner: str) -> Pool:
        """Become the owner, and raise the epoch. Raises Owned while another owner lives, NotFound."""
        self.get(name)
        other = self._db.lock(pool_lock(name), owner)
        if other is not None:
            raise Owned(f"pool {name!r} is kept by {other}, which carries out what was asked for")
        try:
            with self._db.transaction():
                taken = self._db.rows("take_pool", name=name, owner=owner)
                if not taken:
                    raise NotFound(f"there is no pool {name!r} any more")
                return rows.pool(taken[0])
        except BaseException:
            self._db.unlock(pool_lock(name))
            raise

    def leave(self, pool: Pool) -> None:
        """Give the pool up, if it is ours."""
        with self._db.transaction():
            self._db.rows("leave_pool", name=pool.name, epoch=pool.epoch)
        self._db.unlock(pool_lock(pool.name))

    def amend(self, name: str, settings: JsonObject) -> Pool:
        """Change what the pool should be; its owner follows. Event `pool.amended`. Raises NotFound."""
        with self._db.transaction():
            self.get(name)
            changed = rows.pool(self._db.rows("amend_pool", name=name, settings=rows.to_json(settings))[0])
            self._events.write(pool_subject(name), "pool.amended", {"settings": settings})
            return changed

    def explain(self, name: str, reason: JsonObject | None) -> None:
        """Say why the pool makes no more hosts, or (None) that it does again. Event `pool.paused` or `pool.resumed`."""
        with self._db.transaction():
            text = None if reason is None else rows.to_json(reason)
            if self._db.rows("explain_pool", name=name, reason=text):
                self._events.write(
                    pool_subject(name), "pool.resumed" if reason is None else "pool.paused", reason or {}
                )

    def mark_for_deletion(self, name: str, *, force: bool = False) -> Pool:
        """Mark all hosts of a pool for deletion, and the pool itself with the last of them; `force` as in `Hosts.set_desired`. Event
        `pool.deleting`. Raises NotFound, and WrongState while a run that is not over uses it, or it is a tier of another pool."""
        with self._db.transaction():
            self.get(name)
            self._refuse_wanted(name)
            if self._db.rows("mark_pool_for_deletion", name=name):
                self._events.write(pool_subject(name), "pool.deleting", {})
            names = [host.name for host in self._hosts.of_pool(name)]
            self._hosts.set_desired(name, names, DesiredState.GONE, "the pool is deleted", force=force)
            return self.get(name)

    def _refuse_wanted(self, name: str) -> None:
        for row in self._db.rows("select_runs_of_pool", name=name):
            one = rows.run(row)
            raise WrongState(f"run {one.id} is {one.state} and uses pool {name!r}; `evalfleet cancel {one.id}` ends it")
        for row in self._db.rows("select_pools_of_tier", name=name):
            raise WrongState(
                f"pool {name!r} is a tier of pool {row['pool']!r}; delete that first, or give it other tiers with --replace"
            )
