"""What a pool of a cloud's machines should be, as the store keeps it. The words are those of `pool create`, of
`evalfleet.toml` and of the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from evalfleet.model import DesiredState, HostState, JsonObject, Pool, PoolHost
from evalfleet.pools.cloud.records import DISK_GB

NAME_PREFIX = "evalfleet"
# Words of pools that older versions made, and what they are called now.
_FORMER = {"sizes": "size", "prefix": "name_prefix", "idle": "idle_action", "idle_s": "idle", "deadlines": "deadline"}

_REACHED = {
    DesiredState.RUNNING: (HostState.READY, HostState.QUARANTINED),
    DesiredState.STOPPED: (HostState.STOPPED,),
    DesiredState.GONE: (HostState.GONE,),
}


class PoolSettings(Struct, frozen=True, kw_only=True):
    """Which machines, how many, for how long and for how much."""

    workers: int
    min: int | None = None  # machines that stay, whatever the runs need
    max: int | None = None  # with `min` or `max` it follows the queue; None: `workers`
    name_prefix: str = NAME_PREFIX
    size: tuple[str, ...] = ()
    mix: dict[str, int] = field(default_factory=dict[str, int])  # machines of each size; empty: all as `size` says
    regions: tuple[str, ...] = ()
    spot: bool = False
    max_price_usd: float | None = None  # of spot
    image: str | None = None  # name of a golden image, or id of any
    disk_gb: int = DISK_GB
    slots: int = 1  # workers on each machine
    max_hours: float = 4.0  # a machine stops after so much time without a controller
    budget_usd: float | None = None
    idle: float = 600.0  # seconds without work, after which a machine is not needed
    idle_action: str = "stop"  # what becomes of such a machine: "stop" or "delete"
    deadline: dict[str, float] = field(default_factory=dict[str, float])  # of readiness checks, other than usual
    free_gb: float = 2.0  # that its machines must have left
    kvm: bool = False  # whether they need it
    benchmark: str | None = None  # that its machines are made ready for
    setup: str | None = None  # a shell script that makes them ready
    run: str | None = None  # whose own pool it is: it goes with the run
    account: dict[str, str] = field(default_factory=dict[str, str])  # where its machines are; empty: of an old pool
    stopped_at: float | None = None  # a person stopped it then: until it is started it creates no machines

    @property
    def scales(self) -> bool:
        """Whether it follows the queue between `min` and `max`."""
        return self.min is not None or self.max is not None

    @property
    def least(self) -> int:
        return self.min or 0

    @property
    def limit(self) -> int:
        return self.workers if self.max is None else self.max

    def to_json(self) -> JsonObject:
        return msgspec.to_builtins(self)


def settings_of(pool: Pool) -> PoolSettings:
    return msgspec.convert(in_present_words(pool.settings), PoolSettings, strict=False)


def in_present_words(kept: JsonObject) -> JsonObject:
    """The settings of a pool that an older version wrote, in the words of today; others as they are."""
    if "idle_s" not in kept and "sizes" not in kept and "scales" not in kept:
        return kept
    known: dict[str, Any] = {_FORMER.get(name, name): value for name, value in kept.items()}
    least, most = known.pop("least", 0), known.pop("most", None)
    if known.pop("scales", False):
        known |= {"min": least, "max": most}
    place = {name: known.pop(name, "") for name in ("subscription", "resource_group")}
    return known | {"account": {name: value for name, value in place.items() if value}}


def is_settled(pool: Pool, hosts: Sequence[PoolHost]) -> bool:
    """Whether, by the stored state, nothing is left to do; changes made by the cloud are seen only by a controller.

    A pool that said why it makes no more machines waits for a person, or for a run.
    """
    if pool.deleting or not all(host.state in _REACHED[host.desired] for host in hosts):
        return False
    wanted = settings_of(pool)
    have = sum(1 for host in hosts if host.state is not HostState.LOST)
    if wanted.stopped_at is not None:
        return True
    return pool.reason is not None or have >= (wanted.least if wanted.scales else wanted.workers)
