"""The machines that a plan may use, what is known of them, and what they cost. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from msgspec import Struct

from evalfleet.core.plan.pace import Pace


class Offer(Struct, frozen=True, kw_only=True):
    """One kind of machine that can be bought."""

    size: str
    region: str
    spot: bool = False
    vcpus: int = 0
    memory_mb: int = 0  # 0: not known, and then not checked
    usd_per_hour: float
    kept_usd_per_hour: float = 0.0  # disk and address, as long as the machine exists
    image_usd_per_hour: float = 0.0  # of the golden image in the region, while the run lasts
    at_most: bool = False  # the spot price is not known: that on demand stands for it
    most: int | None = None  # machines that the quota still allows; None: it was not asked for

    @property
    def total_usd_per_hour(self) -> float:
        return self.usd_per_hour + self.kept_usd_per_hour


class Start(Struct, frozen=True, kw_only=True):
    """How long one machine of an earlier run took to become ready."""

    wait_s: float  # from the order until it ran, and cost
    prepare_s: float  # from then until it got work
    run: str = ""


class Reliability(Struct, frozen=True, kw_only=True):
    """How often machines of one kind were taken away or did not become ready."""

    evictions_per_hour: float = 0.0
    failed_starts: float = 0.0  # share
    machines: int = 0  # that tell


class StartPrior(Struct, frozen=True, kw_only=True):
    """What is assumed of machines where no history tells."""

    wait_s: float = 90.0
    prepare_s: float = 210.0
    deviation: float = 0.3  # of the logarithm
    evictions_per_hour: float = 0.05  # of spot machines; those on demand are not taken away
    weight_hours: float = 20.0  # so many machine hours of history count as much as the assumption
    failed_starts: float = 0.02
    weight_starts: float = 20.0


class Group(Struct, frozen=True, kw_only=True):
    """Several machines of one kind."""

    offer: Offer
    machines: int
    reliability: Reliability = Reliability()


class Fleet(Struct, frozen=True, kw_only=True):
    """All machines of one option of a plan."""

    groups: tuple[Group, ...]

    @property
    def workers(self) -> int:
        return sum(group.machines for group in self.groups)


class Starts(Struct, frozen=True, kw_only=True):
    """How long machines take to start: samples of earlier runs, else the prior. All starts of one run vary together, too."""

    samples: tuple[Start, ...] = ()
    between_runs: Pace = Pace()
    prior: StartPrior = StartPrior()

    def pace(self, rng: random.Random) -> float:
        """The factor of one run."""
        return math.exp(self.between_runs.draw(rng))

    def draw(self, rng: random.Random, pace: float) -> tuple[float, float]:
        """Seconds until it runs, and until it has work after that."""
        if self.samples:
            found = self.samples[int(rng.random() * len(self.samples))]
            return found.wait_s * pace, found.prepare_s * pace
        spread = math.exp(rng.gauss(0.0, self.prior.deviation))
        return self.prior.wait_s * spread, self.prior.prepare_s * spread


class Tails(Struct, frozen=True, kw_only=True):
    """How long machines are paid for after their last task: nothing of a run varies more, and all of one run alike."""

    seconds: float = 60.0
    factors: tuple[float, ...] = ()  # of single machines, around what is usual in their run
    between_runs: Pace = Pace()

    def draw(self, rng: random.Random, count: int) -> list[float]:
        """Of so many machines of one run."""
        usual = self.seconds * math.exp(self.between_runs.draw(rng))
        factors = self.factors or (1.0,)
        return [usual * factors[int(rng.random() * len(factors))] for _ in range(count)]


def reliability(
    evictions: int, hours: float, failed: int, machines: int, *, spot: bool, prior: StartPrior
) -> Reliability:
    """Rates from what was counted, drawn towards the prior as long as little was."""
    usual = prior.evictions_per_hour if spot else 0.0
    return Reliability(
        evictions_per_hour=(evictions + usual * prior.weight_hours) / (hours + prior.weight_hours),
        failed_starts=(failed + prior.failed_starts * prior.weight_starts) / (machines + prior.weight_starts),
        machines=machines,
    )


def spread_over(offers: Sequence[Offer], machines: int) -> tuple[tuple[Offer, int], ...] | None:
    """So many machines of one size from the cheapest region on, as each region's quota allows; None: they are too many."""
    found: list[tuple[Offer, int]] = []
    left = machines
    for offer in sorted(offers, key=lambda one: one.total_usd_per_hour):
        taken = left if offer.most is None else min(left, offer.most)
        if taken > 0:
            found.append((offer, taken))
            left -= taken
        if not left:
            return tuple(found)
    return None
