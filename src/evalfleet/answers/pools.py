"""Pools and their hosts."""

from __future__ import annotations

from evalfleet.answers.base import Answer
from evalfleet.answers.summary import Reason
from evalfleet.model import JsonObject


class Quota(Answer, frozen=True, kw_only=True):
    """What the cloud allows, as the pool saw it last."""

    family: str | None
    used: float
    limit: float
    region: str | None
    at: float


class GuestRow(Answer, frozen=True, kw_only=True):
    """A guest of a host, as it answered just now."""

    container: str
    state: str  # answers, silent, stopped, missing; unknown where Docker or the host did not say
    seen: str  # what was found, where it does not answer
    tasks_done: int  # in this container
    screen_port: int | None  # of the host; None: the container publishes none, so there is no screen
    screen: str | None  # the command that opens the screen


class HostRow(Answer, frozen=True, kw_only=True):
    """A host. Of one that nobody rents, all from `state` to `box_usd_per_hour` is null."""

    host: str
    workers: int
    busy: int
    price_usd_per_hour: float
    state: str | None = None
    desired: str | None = None
    readiness_check: str | None = None
    checks_s: dict[str, float] | None = None  # how long each readiness check took, when it was last made ready
    reason: str | None = None
    size: str | None = None
    region: str | None = None
    spot: bool | None = None
    price: str | None = None  # where the price is from
    address: str | None = None
    age_s: float | None = None
    cost_usd: float | None = None
    deadline_at: float | None = None
    idle_share: float | None = None
    box_requests_per_hour: float | None = None  # of a machine that cannot be called, to the box between us and it
    box_usd_per_hour: float | None = None  # what these requests cost
    vnc: bool = True
    probe: JsonObject | None = None  # what it answered just now, where it was asked
    tasks_done: int | None = None  # attempts with a verdict in runs of this pool, where it was asked
    guests: list[GuestRow] | None = None  # where it was asked, reached, and has some


class TierRow(Answer, frozen=True, kw_only=True):
    """A pool that is a tier of another one."""

    tier: str  # its name
    backend: str
    state: str  # of its breaker: closed (it may get work), open (it gets none), half_open (it is tried with one worker)
    why: str  # it is used or not
    since: float  # when its breaker was last moved
    retry_at: float | None  # when a tier whose breaker is open is tried again
    capacity: int  # workers that it may have
    ready: int  # workers on machines that are ready
    busy: int  # attempts of all runs
    wanted: int  # workers that runs on the whole pool want of it
    usd_per_hour: float | None  # of a worker; null: not known
    cost_usd: float | None  # of its machines since it is a tier; null: they are not rented
    starts: int  # of its newest machines, how many are known to have become ready or failed
    start_rate: float | None  # share of those that became ready
    ready_s: float | None  # how long that took, at the median


class PoolRow(Answer, frozen=True, kw_only=True):
    """A pool. Of one whose machines are not rented, all from `reason` to `kept_usd_per_day` is null."""

    name: str
    backend: str
    creates_machines: bool  # whether its machines are created, stopped and deleted by orders
    workers: int
    created_at: float
    reason: Reason | None = None
    breaker: str | None = None
    quota: Quota | None = None
    deleting: bool = False
    owner: str | None = None
    budget_usd: float | None = None
    cost_usd: float | None = None
    usd_per_hour: float | None = None
    kept_usd_per_day: float | None = None


class PoolCount(PoolRow, frozen=True, kw_only=True):
    """As a list shows it."""

    hosts: int


class PoolFacts(PoolRow, frozen=True, kw_only=True):
    hosts: list[HostRow]
    tiers: list[TierRow] | None = None  # of a pool that consists of other pools; the most preferred first


class PoolList(Answer, frozen=True, kw_only=True):
    pools: list[PoolCount]


class BackendRow(Answer, frozen=True, kw_only=True):
    """A kind of pool."""

    name: str
    title: str
    creates_machines: bool  # whether its machines are created by orders, and cost money meanwhile
    options: list[str]  # those of a new pool that it takes
    broken: str | None  # why it cannot be used here


class BackendList(Answer, frozen=True, kw_only=True):
    backends: list[BackendRow]


class CreatedPool(Answer, frozen=True, kw_only=True):
    pool: str
    backend: str
    hosts: int
    workers: int
    by: str | None  # which process makes its machines


class PoolOrder(Answer, frozen=True, kw_only=True):
    """What was ordered of a pool's machines, and which process does it."""

    pool: str
    machines: list[str]
    by: str
    deleting: bool


class DeletedPool(Answer, frozen=True, kw_only=True):
    """A pool that is gone. Machines that evalfleet did not create stay; our folder goes from those that are reached and idle."""

    deleted: str
    left: dict[str, str]  # hosts where our folder stays, and why
    cost_usd: float | None = None  # what the machines that were created for it cost in all, with disks and addresses


class PoolDeletion(Answer, frozen=True, kw_only=True):
    """What goes with a pool, or with one machine of it."""

    machines: list[str]  # created for the pool: they are deleted
    left: dict[str, str]  # existing machines where our folder stays, and why
