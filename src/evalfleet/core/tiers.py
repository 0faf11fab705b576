"""Which of a pool's tiers gets work, and how much. Pure.

A tier is a pool. Work goes to the first tier that is healthy and has room, the rest to the next. Each tier has a breaker:

- It opens when several hosts of the tier failed (did not start, stopped answering, failed one task after the other) and none of
  its hosts serves, or when its cloud refuses everything. An open tier gets no new work; what runs there goes on.
- After a cool-down it is half open: one worker is asked for. If a host serves, the breaker closes; if one fails, or none serves
  in time, it opens again, for twice as long.

A host that was taken back by the cloud is no failure of its tier: capacity comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from evalfleet.core.transitions import allowed
from evalfleet.model import BreakerState, JsonObject

FAILURES = 3  # hosts, of a tier that has as many or more
LONGEST_COOL_DOWN_S = 1800.0
PROBES = 1  # workers that a half-open tier is asked for


class Prefer(StrEnum):
    ORDER = "order"
    CHEAPEST = "cheapest"


class TierTerms(Struct, frozen=True, kw_only=True):
    cool_down_s: float = 300.0  # of the first opening; each one soon after doubles it
    start_s: float = 600.0  # in which a host must serve


class Condition(StrEnum):
    """What a tier's host is to a run."""

    STARTING = "starting"  # on its way, or in doubt for a short time
    JOINING = "joining"  # ready, and about to be reached for the first time
    SERVING = "serving"  # it answers and takes new work
    FAILED = "failed"
    LEAVING = "leaving"  # its cloud takes it back, or its pool does not want it any more


class TierHost(Struct, frozen=True, kw_only=True):
    name: str
    workers: int
    condition: Condition
    busy: int = 0  # attempts
    since: float = 0.0  # when it failed
    reason: str = ""  # why it failed


class TierBreaker(Struct, frozen=True, kw_only=True):
    """Every method that moves it returns the next one."""

    state: BreakerState = BreakerState.CLOSED
    since: float = 0.0  # when it was last moved
    failed: dict[str, str] = field(default_factory=dict[str, str])  # hosts, and why, while none serves
    openings: int = 0  # in short succession
    retry_at: float | None = None  # while it is open
    reason: str | None = None  # why it was opened last

    def observe(
        self,
        hosts: Sequence[TierHost],
        now: float,
        terms: TierTerms,
        refusal: str | None = None,
        *,
        began: float = 0.0,
    ) -> TierBreaker:
        """The breaker after a look at the tier.

        Args:
            hosts: those that it has, and those that failed.
            refusal: why nothing can be had of the tier at all.
            began: when one of them served last, or the first of these looks was. What was long before says nothing of it now.
        """
        match self.state:
            case BreakerState.OPEN:
                due = self.retry_at is not None and now >= self.retry_at
                return self._moved(BreakerState.HALF_OPEN, now, retry_at=None) if due else self
            case BreakerState.HALF_OPEN:
                return self._probed(hosts, now, terms, refusal, began)
            case _:
                return self._watched(hosts, now, terms, refusal, began)

    def _probed(
        self, hosts: Sequence[TierHost], now: float, terms: TierTerms, refusal: str | None, began: float
    ) -> TierBreaker:
        if any(host.condition is Condition.SERVING for host in hosts):
            return self._moved(BreakerState.CLOSED, now, failed={}, reason=None)
        tried_s = now - max(self.since, began)
        late = f"no worker served within {terms.start_s:g} s" if tried_s >= terms.start_s else None
        reasons = [host.reason for host in self._news(hosts, began - terms.start_s)]
        why = refusal or (reasons[-1] if reasons else late)
        return self if why is None else self.opened(why, now, terms)

    def _watched(
        self, hosts: Sequence[TierHost], now: float, terms: TierTerms, refusal: str | None, began: float
    ) -> TierBreaker:
        if any(host.condition is Condition.SERVING for host in hosts):
            calm = self.openings and now - self.since >= terms.cool_down_s
            return replace(self, failed={}, openings=0 if calm else self.openings) if self.failed or calm else self
        failed = self.failed | {host.name: host.reason for host in self._news(hosts, began - terms.start_s)}
        if refusal is not None:
            return self.opened(refusal, now, terms)
        if failed and len(failed) >= min(FAILURES, max(1, len(_present(hosts) | failed.keys()))):
            reasons = list(failed.values())
            more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            return replace(self, failed=failed).opened(f"{reasons[-1]}{more}", now, terms)
        return self if failed == self.failed else replace(self, failed=failed)

    def _news(self, hosts: Sequence[TierHost], after: float) -> list[TierHost]:
        """What failed since the breaker was moved, and not before that moment."""
        first = max(self.since, after)
        return [host for host in hosts if host.condition is Condition.FAILED and host.since >= first]

    def opened(self, reason: str, now: float, terms: TierTerms) -> TierBreaker:
        """The tier failed. Of one that is open already nothing new is learnt."""
        if self.state is BreakerState.OPEN:
            return self
        wait_s = min(LONGEST_COOL_DOWN_S, terms.cool_down_s * 2.0 ** min(self.openings, 10))
        return self._moved(
            BreakerState.OPEN, now, openings=self.openings + 1, retry_at=now + wait_s, reason=reason, failed={}
        )

    def _moved(self, state: BreakerState, now: float, **changes: object) -> TierBreaker:
        if not allowed(self.state, state):
            raise ValueError(f"a breaker cannot go from {self.state} to {state}")
        return replace(self, state=state, since=now, **changes)

    def to_json(self) -> JsonObject:
        return to_builtins(self)

    @classmethod
    def from_json(cls, data: JsonObject) -> TierBreaker:
        return convert(data, cls)


def _present(hosts: Sequence[TierHost]) -> set[str]:
    return {host.name for host in hosts if host.condition is not Condition.FAILED}


class Tier(Struct, frozen=True, kw_only=True):
    """What is known of a tier now. All numbers are workers."""

    name: str
    breaker: TierBreaker = TierBreaker()
    capacity: int  # that it may have
    serving: int = 0  # on hosts that answer and take new work
    starting: int = 0  # on their way, not longer than a start may take
    busy: int = 0  # with work
    shortage: str | None = None  # why no more can be had now: sold out, quota or budget used up, starts fail
    usd_per_hour: float | None = None  # of a worker; None: not known

    @property
    def room(self) -> int:
        """How many workers it can have, as far as is known."""
        return min(self.capacity, self.serving + self.starting) if self.shortage else self.capacity


class Share(Struct, frozen=True, kw_only=True):
    """`order`: workers that the tier's pool should have. `use`: of those that serve, so many may take new work."""

    order: int
    use: int


def preferred(tiers: Sequence[Tier], prefer: Prefer) -> list[Tier]:
    """The tiers, first the one that gets work first. A price that is not known comes last."""
    if prefer is Prefer.ORDER:
        return list(tiers)
    return sorted(tiers, key=lambda tier: inf if tier.usd_per_hour is None else tier.usd_per_hour)


def divide(
    tiers: Sequence[Tier], wanted: int, prefer: Prefer = Prefer.ORDER, most: int | None = None
) -> Mapping[str, Share]:
    """How many workers each tier shall have.

    Workers that are being started count as there, so that no second tier is paid for meanwhile; but as long as they are not
    there, workers of later tiers that serve anyway go on taking work.

    Args:
        wanted: workers that the run could use now, those at work included.
        most: workers that it may ever have at a time; those of preferred tiers take its next task. None: `wanted`.
    """
    shares: dict[str, Share] = {}
    to_order = to_keep = wanted
    to_use = wanted if most is None else max(most, wanted)
    for tier in preferred(tiers, prefer):
        if tier.breaker.state is not BreakerState.CLOSED:
            # The worker of a probe is not counted on: the others are there for all work until it has shown itself.
            probes = min(PROBES, wanted) if tier.breaker.state is BreakerState.HALF_OPEN else 0
            shares[tier.name] = Share(order=max(tier.busy, probes), use=0)
            to_order, to_keep, to_use = to_order - tier.busy, to_keep - tier.busy, to_use - tier.busy
            continue
        use, kept = max(0, min(to_use, tier.serving)), max(0, min(to_keep, tier.serving))
        order = max(kept, min(to_order, tier.room), 0)
        shares[tier.name] = Share(order=order, use=use)
        to_order, to_keep, to_use = to_order - min(max(to_order, 0), tier.room), to_keep - kept, to_use - use
    return shares


def explain(tier: Tier, share: Share, *, is_first: bool) -> str:
    """Why a tier is used or not, in a few words."""
    breaker = tier.breaker
    if breaker.state is BreakerState.OPEN:
        rest = f"; {tier.busy} at work there go on" if tier.busy else ""
        return f"not used: {breaker.reason}{rest}"
    if breaker.state is BreakerState.HALF_OPEN:
        return f"tried again with {PROBES} worker after: {breaker.reason}"
    if not share.order and not tier.busy:
        if tier.shortage and not tier.room:
            return f"not used: {tier.shortage}"
        return "not needed: no work waits" if is_first else "not needed: the tiers before it have room"
    said = f"used: {tier.serving} of {max(share.order, tier.serving)} workers serve"
    if not share.order:
        return f"no longer needed: {tier.busy} at work there go on"
    if tier.shortage:
        return f"{said}; no more to be had: {tier.shortage}"
    return f"{said}; full" if share.order >= tier.capacity else said
