"""The machines of pools that we make: what each should be, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.core.transitions import allowed
from evalfleet.errors import NotFound, Owned, WrongState
from evalfleet.model import DesiredState, HostState, JsonObject, Pool, PoolHost
from evalfleet.store.pools.pools import Pooling, pool_subject
from evalfleet.store.runs import rows

_EVENTS = {
    HostState.REQUESTED: "worker.requested",
    HostState.CREATING: "worker.ordered",
    HostState.PREPARING: "worker.created",
    HostState.READY: "worker.readied",
    HostState.QUARANTINED: "worker.quarantined",
    HostState.DRAINING: "worker.dismissed",
    HostState.STOPPED: "worker.stopped",
    HostState.LOST: "worker.lost",
    HostState.GONE: "worker.deleted",
}


class Hosting(Pooling):
    """The part of `Store` that keeps the hosts of pools, and the pools' owners."""

    def take_pool(self, name: str, owner: str) -> Pool:
        self.pool(name)
        try:
            self._db.own(f"pool-{name}", owner)
        except Owned:
            who = self.pool_owner(name) or "another process"
            raise Owned(f"pool {name!r} is kept by {who}, which does what is wished meanwhile") from None
        try:
            with self._db.transaction():
                taken = self._db.rows("take_pool", name=name, owner=owner)
                if not taken:
                    raise NotFound(f"there is no pool {name!r} any more")
                return rows.pool(taken[0])
        except BaseException:
            self._db.disown(f"pool-{name}")
            raise

    def leave_pool(self, pool: Pool) -> None:
        with self._db.transaction():
            self._db.rows("leave_pool", name=pool.name, epoch=pool.epoch)
        self._db.disown(f"pool-{pool.name}")

    def amend_pool(self, name: str, settings: JsonObject) -> Pool:
        with self._db.transaction():
            self.pool(name)
            changed = rows.pool(self._db.rows("amend_pool", name=name, settings=rows.to_json(settings))[0])
            self._event(pool_subject(name), "pool.amended", {"settings": settings})
            return changed

    def explain_pool(self, name: str, reason: JsonObject | None) -> None:
        with self._db.transaction():
            text = None if reason is None else rows.to_json(reason)
            if self._db.rows("explain_pool", name=name, reason=text):
                self._event(pool_subject(name), "pool.resumed" if reason is None else "pool.paused", reason or {})

    def mark_pool_for_deletion(self, name: str, *, force: bool = False) -> Pool:
        with self._db.transaction():
            self.pool(name)
            self._refuse_wanted(name)
            if self._db.rows("mark_pool_for_deletion", name=name):
                self._event(pool_subject(name), "pool.doomed", {})
            names = [host.name for host in self.hosts(name)]
            self.set_desired(name, names, DesiredState.GONE, "the pool is deleted", force=force)
            return self.pool(name)

    def request_hosts(self, pool: str, names: str, facts: Sequence[JsonObject]) -> list[PoolHost]:
        with self._db.transaction():
            self.pool(pool)
            taken = {row["name"] for row in self._db.rows("select_host_names")}
            number = int(self._db.rows("next_host_number", pool=pool)[0]["number"])
            made: list[PoolHost] = []
            for each in facts:
                while f"{names}{number}" in taken:
                    number += 1
                name = f"{names}{number}"
                inserted = self._db.rows(
                    "insert_host", name=name, pool=pool, number=number, facts=rows.to_json(each), now=self.now()
                )
                if not inserted:
                    break
                self._event(pool_subject(pool), _EVENTS[HostState.REQUESTED], {"host": name})
                made.append(rows.host(inserted[0]))
                number += 1
            return made

    def set_desired(
        self, pool: str, names: Sequence[str], desired: DesiredState, reason: str, *, force: bool = False
    ) -> list[PoolHost]:
        with self._db.transaction():
            known = {host.name for host in self.hosts(pool, gone=True)}
            changed: list[PoolHost] = []
            for name in names:
                if name not in known:
                    raise NotFound(
                        f"pool {pool!r} has no machine {name!r}; it has: {', '.join(sorted(known)) or 'none'}"
                    )
                for row in self._db.rows("set_desired", name=name, desired=desired, forced=force, now=self.now()):
                    changed.append(rows.host(row))
                    data = {"host": name, "desired": desired, "reason": reason, **({"forced": True} if force else {})}
                    self._event(pool_subject(pool), "worker.wished", data)
            return changed

    def move_host(self, pool: Pool, before: HostState, host: PoolHost) -> PoolHost | None:
        with self._db.transaction():
            moved = self._db.rows(
                "move_host",
                name=host.name,
                before=before,
                epoch=pool.epoch,
                state=host.state,
                reason=host.reason,
                rung=host.rung,
                facts=rows.to_json(host.facts),
                usd_per_hour=host.usd_per_hour,
                kept_usd_per_hour=host.kept_usd_per_hour,
                made_at=host.made_at,
                allocated_since=host.allocated_since,
                allocated_s=host.allocated_s,
                now=self.now(),
            )
            if not moved:
                if before is not host.state and not allowed(before, host.state):
                    raise WrongState(f"host {host.name!r} cannot go from {before} to {host.state}")
                return None
            if host.state is not before:
                data = {"host": host.name, "from": before, "reason": host.reason, "rung": host.rung}
                self._event(pool_subject(pool.name), _EVENTS[host.state], data)
            return rows.host(moved[0])
