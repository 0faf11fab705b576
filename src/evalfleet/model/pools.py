"""The records and words of pools: sets of machines, and what is wanted of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

JsonObject = dict[str, Any]


class PoolState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"  # makes no more hosts; `reason` says why and what to do
    DELETING = "deleting"  # goes when the last of its hosts is gone
    DELETED = "deleted"  # has no row any more


class Pool(Struct, frozen=True, kw_only=True):
    """A named set of hosts on one backend."""

    name: str
    backend: str
    settings: JsonObject  # what the backend needs to find the hosts
    created_at: float
    owner: str | None = None  # who makes its hosts what they should be
    epoch: int = 0
    deleting: bool = False  # it goes when the last of its hosts is gone
    reason: JsonObject | None = (
        None  # why it makes no more hosts: {"cause": …, "message": what happened and what to do}
    )

    @property
    def state(self) -> PoolState:
        if self.deleting:
            return PoolState.DELETING
        return PoolState.ACTIVE if self.reason is None else PoolState.PAUSED


class DesiredState(StrEnum):
    """What a host should be."""

    RUNNING = "running"
    STOPPED = "stopped"  # deallocated: its disk stays
    GONE = "gone"


class HostState(StrEnum):
    """How far a host is. That it is busy or suspect is known to the runs that use it."""

    REQUESTED = "requested"
    CREATING = "creating"
    PREPARING = "preparing"
    READY = "ready"
    QUARANTINED = "quarantined"
    DRAINING = "draining"  # on its way to be stopped or gone
    STOPPED = "stopped"
    LOST = "lost"  # taken away, or given up; what is left of it is being deleted
    GONE = "gone"


class PoolHost(Struct, frozen=True, kw_only=True):
    """A machine of a pool that we made, or are about to make."""

    name: str
    pool: str
    number: int
    desired: DesiredState
    state: HostState
    reason: str | None  # why it is so, for a person
    readiness_check: str | None  # of the readiness checks: the last that was tried
    facts: JsonObject  # what the backend must know to find and reach it
    usd_per_hour: float  # while it is allocated
    kept_usd_per_hour: float  # as long as it exists
    made_at: float | None
    allocated_since: float | None  # None: not allocated now
    allocated_s: float  # before that
    created_at: float
    updated_at: float
    gone_at: float | None
    forced: bool = False  # its desired state holds although work is on it


class RunDemand(Struct, frozen=True, kw_only=True):
    """What a run that goes on could use of its pool."""

    run_id: str
    workers: int  # that it asked for
    live: int  # attempts
    queued: int  # tasks
    open: bool  # more tasks may come
    driven: bool  # by a controller that lives

    @property
    def wanted(self) -> int:
        """Workers. Nobody gives work to a run without a controller: it wants only what it has."""
        if not self.driven:
            return self.live
        free = max(0, self.workers - self.live)
        return self.live + (free if self.open else min(free, self.queued))


class StoredTier(Struct, frozen=True, kw_only=True):
    """A pool's place among the pools that another one consists of."""

    pool: str
    name: str  # of the pool that is the tier
    place: int
    breaker: JsonObject
    base_usd: float  # what its machines had cost before they served this pool
    usd_per_hour: float | None  # of a worker; None: not known


class TierDemand(Struct, frozen=True, kw_only=True):
    """What a run that goes on could use of a tier, and why."""

    tier: str
    run_id: str
    wanted: int
    why: str
    live: int  # attempts on machines that were created for it
    driven: bool  # by a controller that lives
