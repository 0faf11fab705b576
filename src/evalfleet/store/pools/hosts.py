"""The machines that are made for pools: what each should be, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.core.transitions import allowed
from evalfleet.errors import NotFound, WrongState
from evalfleet.model import DesiredState, HostState, JsonObject, Pool, PoolHost
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.events import Events
from evalfleet.store.pools.queries import HostQueries, PoolQueries, pool_subject

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


class Hosts(HostQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events
        self._pools = PoolQueries(database)

    def request(self, pool: str, names: str, facts: Sequence[JsonObject]) -> list[PoolHost]:
        """Write down that machines are wanted, named `names` + number, before a cloud is asked for them. A number is not used
        again in a pool, nor a name in a home. None for a pool that is being deleted. Event `worker.requested`. Raises NotFound."""
        with self._db.transaction():
            self._pools.get(pool)
            taken = {row["name"] for row in self._db.rows("select_host_names")}
            number = int(self._db.rows("next_host_number", pool=pool)[0]["number"])
            made: list[PoolHost] = []
            for each in facts:
                while f"{names}{number}" in taken:
                    number += 1
                name = f"{names}{number}"
                inserted = self._db.rows(
                    "insert_host", name=name, pool=pool, number=number, facts=rows.to_json(each), now=self._db.now()
                )
                if not inserted:
                    break
                self._events.write(pool_subject(pool), _EVENTS[HostState.REQUESTED], {"host": name})
                made.append(rows.host(inserted[0]))
                number += 1
            return made

    def set_desired(
        self, pool: str, names: Sequence[str], desired: DesiredState, reason: str, *, force: bool = False
    ) -> list[PoolHost]:
        """Say what hosts should be; the pool's owner follows. Returns those for which it is new: one that is to go stays so.
        From then on no task is claimed on a host that is not to run. Event `worker.desired`. Raises NotFound.

        Args:
            force: at once, although work is on it. Otherwise it keeps its work, and the change waits until that has ended.
        """
        with self._db.transaction():
            known = {host.name for host in self.of_pool(pool, gone=True)}
            changed: list[PoolHost] = []
            for name in names:
                if name not in known:
                    raise NotFound(
                        f"pool {pool!r} has no machine {name!r}; it has: {', '.join(sorted(known)) or 'none'}"
                    )
                for row in self._db.rows("set_desired", name=name, desired=desired, forced=force, now=self._db.now()):
                    changed.append(rows.host(row))
                    data = {"host": name, "desired": desired, "reason": reason, **({"forced": True} if force else {})}
                    self._events.write(pool_subject(pool), "worker.desired", data)
            return changed

    def move(self, pool: Pool, before: HostState, host: PoolHost) -> PoolHost | None:
        """Store how far a host is, if it is still as `before` and the pool is still ours; all but what it should be. Event
        where the state is another. None: not ours any more. Raises WrongState for a state that cannot follow `before`."""
        with self._db.transaction():
            moved = self._db.rows(
                "move_host",
                name=host.name,
                was=before,
                epoch=pool.epoch,
                state=host.state,
                reason=host.reason,
                readiness_check=host.readiness_check,
                facts=rows.to_json(host.facts),
                usd_per_hour=host.usd_per_hour,
                kept_usd_per_hour=host.kept_usd_per_hour,
                made_at=host.made_at,
                allocated_since=host.allocated_since,
                allocated_s=host.allocated_s,
                now=self._db.now(),
            )
            if not moved:
                if before is not host.state and not allowed(before, host.state):
                    raise WrongState(f"host {host.name!r} cannot go from {before} to {host.state}")
                return None
            self._db.rows("record_machine", name=host.name, now=self._db.now())
            if host.state is not before:
                data = {
                    "host": host.name,
                    "from": before,
                    "reason": host.reason,
                    "readiness_check": host.readiness_check,
                }
                self._events.write(pool_subject(pool.name), _EVENTS[host.state], data)
            return rows.host(moved[0])
