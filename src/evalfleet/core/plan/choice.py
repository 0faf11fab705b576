"""Which fleets are worth a look, which of them no other one beats, and which one to take. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from evalfleet.core.plan.fleet import Fleet, Group, Offer, Reliability, spread_over
from evalfleet.core.plan.simulation import Draws, Forecast
from evalfleet.duration import HOUR_S

COUNTS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320)
_STEPS = 500_000  # tasks that are played through in all, so that a plan takes about a second
_COARSE = 40
_FINE = (100, 1000)
_WORTH = 0.01
HOURS_PER_MONTH = 730

Rates = Callable[[Offer], Reliability]


class Option(Struct, frozen=True, kw_only=True):
    """A fleet, and what the run would take on it."""

    fleet: Fleet
    forecast: Forecast


class Goal(Struct, frozen=True, kw_only=True):
    """What a person asks for. The upper ends of the intervals must keep it, not the means alone."""

    deadline_s: float | None = None
    budget_usd: float | None = None


def counts(tasks: int, wanted: int | None, slots: int = 1) -> list[int]:
    """The numbers of machines to look at: more than tasks are of no use."""
    if wanted is not None:
        return [wanted]
    most = -(-tasks // slots)
    return sorted({count for count in COUNTS if count < most} | {min(most, COUNTS[-1])})


def fleets(offers: Iterable[Offer], numbers: Iterable[int], needs: Iterable[int], rates: Rates) -> list[Fleet]:
    """The fleets of one size each that hold every task, and, where few tasks need much memory, of two sizes.

    Args:
        needs: the memory of each task, in MB.
    """
    by_kind: dict[tuple[str, bool], list[Offer]] = {}
    for offer in offers:
        by_kind.setdefault((offer.size, offer.spot), []).append(offer)
    asked = sorted(needs)
    most = asked[-1] if asked else 0
    holding = [kind for kind in by_kind.values() if not kind[0].memory_mb or kind[0].memory_mb >= most]
    found = [made for kind in holding for count in numbers if (made := _fleet([(kind, count)], rates)) is not None]
    small = [kind for kind in by_kind.values() if kind[0].memory_mb and kind[0].memory_mb < most]
    for large in holding:
        for other in small:
            cheaper = other[0].spot == large[0].spot and other[0].total_usd_per_hour < large[0].total_usd_per_hour
            share = sum(need > other[0].memory_mb for need in asked) / len(asked)
            for count in numbers if cheaper and share < 1 else ():
                some = min(count - 1, max(1, round(share * count)))
                made = _fleet([(large, some), (other, count - some)], rates) if count > 1 else None
                found += [] if made is None else [made]
    return found


def _fleet(kinds: Sequence[tuple[Sequence[Offer], int]], rates: Rates) -> Fleet | None:
    groups: list[Group] = []
    for offers, machines in kinds:
        spread = spread_over(offers, machines)
        if spread is None:
            return None
        groups += [Group(offer=offer, machines=count, reliability=rates(offer)) for offer, count in spread]
    return Fleet(groups=tuple(groups))


def options(draws: Draws, candidates: Sequence[Fleet], tasks: int) -> list[Option]:
    """What no other fleet beats in time and money, the fastest first. All are looked at roughly, the best ones closely."""
    rough = min(_COARSE, max(5, _STEPS // 2 // max(1, tasks * len(candidates))))
    seen = [Option(fleet=fleet, forecast=draws.forecast(fleet, rough)) for fleet in candidates]
    best = front(seen)
    low, high = _FINE
    fine = max(20 if tasks > 5000 else low, min(high, _STEPS // 2 // max(1, tasks * len(best))))
    return front([Option(fleet=one.fleet, forecast=draws.forecast(one.fleet, fine)) for one in best])


def front(found: Iterable[Option]) -> list[Option]:
    """The Pareto front, the fastest first: each further one is slower and costs less, by an amount that is worth a line."""
    ordered = sorted(found, key=lambda one: (one.forecast.seconds.mean, one.forecast.usd.mean))
    kept: list[Option] = []
    for one in ordered:
        if not kept or one.forecast.usd.mean < kept[-1].forecast.usd.mean * (1 - _WORTH):
            kept.append(one)
    return kept


def choose(found: Sequence[Option], goal: Goal) -> tuple[Option, bool]:
    """The option to take, and whether it keeps the goal.

    With a deadline the cheapest that keeps it, with a budget the fastest, with both the cheapest that keeps both. With none the
    cheapest that takes at most twice as long as the fastest. Where nothing keeps the goal with its upper ends: what does so with
    its means, else what comes nearest.
    """
    if not found:
        raise ValueError("there is nothing to choose from")
    if goal.deadline_s is None and goal.budget_usd is None:
        limit = 2 * found[0].forecast.seconds.mean
        return [one for one in found if one.forecast.seconds.mean <= limit][-1], True
    for upper in (True, False):
        keeping = [one for one in found if _keeps(one.forecast, goal, upper=upper)]
        if keeping:
            return (keeping[0] if goal.deadline_s is None else keeping[-1]), upper
    in_time = [one for one in found if _keeps(one.forecast, Goal(deadline_s=goal.deadline_s), upper=False)]
    if goal.deadline_s is not None:
        return (in_time[-1] if in_time else min(found, key=lambda one: one.forecast.seconds.mean)), False
    return min(found, key=lambda one: one.forecast.usd.mean), False


def _keeps(forecast: Forecast, goal: Goal, *, upper: bool) -> bool:
    seconds = forecast.seconds.high if upper else forecast.seconds.mean
    usd = forecast.usd.high if upper else forecast.usd.mean
    in_time = goal.deadline_s is None or seconds <= goal.deadline_s
    return in_time and (goal.budget_usd is None or usd <= goal.budget_usd)


def break_even_runs(machines: int, forecast: Forecast, share: float) -> float | None:
    """How many such runs a month cost as much as the same machines reserved; None: more than a month has time for.

    Args:
        share: of the price on demand that reserved capacity costs, used or not.
    """
    if forecast.machine_hours <= 0:
        return None
    runs = share * HOURS_PER_MONTH * machines / forecast.machine_hours
    return runs if runs * forecast.seconds.mean / HOUR_S <= HOURS_PER_MONTH else None
