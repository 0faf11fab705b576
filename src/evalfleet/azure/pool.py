"""What a pool of VMs should be, as it is kept in the store."""

from __future__ import annotations

from msgspec import Struct, field

from evalfleet.azure import sizes
from evalfleet.azure.offers import Offering, candidates
from evalfleet.azure.requests.vm import DISK_GB
from evalfleet.azure.settings import DEFAULT_REGIONS

PREFIX = "evalfleet"
MOST_WORKERS = 1000


class AzurePool(Struct, frozen=True, kw_only=True):
    """Which machines, how many, for how long and for how much."""

    workers: int
    least: int = 0  # machines that stay, whatever the runs need
    most: int | None = None  # None: `workers`
    prefix: str = PREFIX
    sizes: tuple[str, ...] = (sizes.DEFAULT_SIZE,)
    regions: tuple[str, ...] = DEFAULT_REGIONS
    spot: bool = False
    max_price_usd: float | None = None  # of spot
    image: str | None = None  # name of a golden image, or id of any
    disk_gb: int = DISK_GB
    slots: int = 1  # workers on each machine
    max_hours: float = 4.0  # after so much time without us a machine stops by itself
    budget_usd: float | None = None
    idle_s: float = 600.0
    idle: str = "stop"  # what becomes of an idle machine: "stop" or "delete"
    scales: bool = False  # whether it follows the queue between `least` and `most`
    deadlines: dict[str, float] = field(default_factory=dict[str, float])  # of readiness checks, other than usual
    free_gb: float = 2.0  # that its machines must have left
    kvm: bool = False  # whether they need it
    benchmark: str | None = None  # that its machines are made ready for
    setup: str | None = None  # a shell script that makes them ready
    run: str | None = None  # whose own pool it is: it goes with the run
    # Where its machines are, as it was made; empty: made before pools remembered it.
    subscription: str = ""
    resource_group: str = ""
    stopped_at: float | None = None  # a person stopped it then: until it is started it makes no machines

    @property
    def limit(self) -> int:
        return self.workers if self.most is None else self.most

    def offers(self) -> tuple[Offering, ...]:
        return candidates(self.sizes, self.regions, spot=self.spot)
