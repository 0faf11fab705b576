"""Pools and their hosts: reading."""

from __future__ import annotations

from typing import Any

from evalfleet.errors import NotFound
from evalfleet.model import AttemptState, HostWork, Pool, PoolHost, RunDemand
from evalfleet.store import rows
from evalfleet.store.database.base import Database


class PoolQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, name: str) -> Pool:
        """The pool of that name. Raises NotFound."""
        found = self._db.rows("select_pool", name=name)
        if not found:
            known = ", ".join(pool.name for pool in self.all())
            raise NotFound(f"there is no pool {name!r}; known pools: {known or 'none'}")
        return rows.pool(found[0])

    def all(self) -> list[Pool]:
        """All pools, by name."""
        return [rows.pool(row) for row in self._db.rows("select_pools")]

    def owner(self, name: str) -> str | None:
        """Who keeps the pool at this moment; None if it has no owner."""
        return self._db.lock_owner(pool_lock(name))

    def tallies(self, pool: Pool) -> dict[str, Any]:
        """Of the runs that use the pool: total, completed, failed (tasks), and `hosts`, by name: assigned, completed
        (attempts), current (key of a task that runs there), busy_s (of all its attempts together)."""
        values = {"pool": pool.name, "since": pool.created_at}
        found = self._db.rows("select_host_tallies", **values, now=self._db.now())
        hosts = {row["host"]: dict(row) for row in found}
        return {**dict(self._db.rows("select_pool_tallies", **values)[0]), "hosts": hosts}

    def container_tallies(self, pool: Pool) -> dict[tuple[str, str], int]:
        """How many attempts of the runs that use the pool gave a verdict, by host and container."""
        found = self._db.rows("select_container_tallies", pool=pool.name, since=pool.created_at)
        return {(row["host"], row["container"]): row["completed"] for row in found}

    def host_keys(self, pool: Pool) -> dict[str, tuple[list[str], list[str]]]:
        """By host, the keys of the tasks that it was given since the pool was made, and of those that it finished."""
        found: dict[str, tuple[list[str], list[str]]] = {}
        for row in self._db.rows("select_host_keys", pool=pool.name, since=pool.created_at):
            assigned, completed = found.setdefault(row["host"], ([], []))
            assigned.append(row["key"])
            if row["completed"]:
                completed.append(row["key"])
        return found

    def demand(self, pool: str) -> list[RunDemand]:
        """What each run that goes on could use of the pool, as its pool or as a tier of that."""
        direct = [
            rows.record(RunDemand, row, open=bool(row["open"]), driven=self._db.lock_owner(row["run_id"]) is not None)
            for row in self._db.rows("select_pool_demand", pool=pool)
        ]
        tiered = [
            RunDemand(
                run_id=row["run_id"],
                workers=row["wanted"],
                live=row["live"],
                queued=row["wanted"],
                open=False,
                driven=self._db.lock_owner(row["run_id"]) is not None,
            )
            for row in self._db.rows("select_tier_demand", tier=pool, pool=None)
        ]
        return direct + tiered


class HostQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of_pool(self, pool: str, *, gone: bool = False) -> list[PoolHost]:
        """The machines that were made for a pool, by number; with `gone` also those that were deleted."""
        return [rows.host(row) for row in self._db.rows("select_hosts", pool=pool, gone=gone)]

    def live_counts(self) -> dict[str, int]:
        """How many attempts of all runs are live on each host; hosts without one are left out."""
        return {row["host"]: row["attempts"] for row in self._db.rows("select_host_loads")}

    def work(self) -> dict[str, list[HostWork]]:
        """What would be lost with each host: attempts of all runs that are live, or have ended there and are not collected
        yet. Hosts without any are left out."""
        found: dict[str, list[HostWork]] = {}
        for row in self._db.rows("select_host_work"):
            work = HostWork(run_id=row["run_id"], key=row["key"], state=AttemptState(row["state"]))
            found.setdefault(row["host"], []).append(work)
        return found

    def last_uses(self) -> dict[str, float]:
        """When each host last had an attempt. Reads all attempts."""
        return {row["host"]: row["at"] for row in self._db.rows("select_last_use")}


def pool_lock(name: str) -> str:
    """The name of the lock that the owner of a pool holds."""
    return f"pool-{name}"


def pool_subject(name: str) -> str:
    """What the events of a pool have instead of a run id."""
    return f"pool:{name}"
