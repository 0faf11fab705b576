"""The conditions of alerts about pools, hosts and the home. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from evalfleet.core.alerts.rules import Condition, budget_conditions, chosen, span
from evalfleet.core.alerts.run_checks import pull_condition
from evalfleet.core.alerts.settings import AlertSettings
from evalfleet.core.hosts.load import Load, Sample, mean

_SLACK_S = 15.0  # samples come every few seconds, not to the second
_SILENT_S = 60.0  # a host that says nothing is another matter
_CALM_S = 60.0  # that an overload must be gone for, in the mean
_PARTS = {"cpu": "processors busy to", "memory": "memory full to", "disk": "disk full to"}


class PoolFacts(Struct, frozen=True, kw_only=True):
    now: float = 0.0
    name: str
    idle_s: float  # since when none of its hosts does anything
    usd_per_hour: float  # of all of them
    cost_usd: float = 0.0  # since the pool was made
    budget_usd: float | None = None
    reason: str | None = None  # why it makes no more machines
    failed_tiers: tuple[tuple[str, str], ...] = ()  # tiers that get no work, and why
    unready: tuple[tuple[str, str], ...] = ()  # machines that failed a readiness check, and which
    pulling: tuple[tuple[str, float], ...] = ()  # machines that pull an image, and since when


class HostFacts(Struct, frozen=True, kw_only=True):
    now: float
    name: str
    samples: Sequence[Sample]  # the latest, oldest first
    firing: frozenset[str] = frozenset()  # the parts that are told to be full


class Reaped(Struct, frozen=True, kw_only=True):
    """One pass of a reaper that found something."""

    number: int  # of its event
    found: int
    left: int
    names: tuple[str, ...]


def pool_conditions(facts: PoolFacts, limits: AlertSettings) -> list[Condition]:
    spent = budget_conditions(
        "pool_budget", f"pool {facts.name}", facts.cost_usd, facts.budget_usd, limits.pool_budget_shares
    )
    return chosen([*spent, *_idle(facts, limits), *_stuck(facts, limits)], limits)


def _idle(facts: PoolFacts, limits: AlertSettings) -> Iterator[Condition]:
    if facts.usd_per_hour > 0 and facts.idle_s >= limits.idle_s:
        text = f"pool {facts.name} costs ${facts.usd_per_hour:.2f} an hour and is idle; stop it, or use it"
        yield Condition(rule="idle_pool", subject=facts.name, message=text)


def _stuck(facts: PoolFacts, limits: AlertSettings) -> Iterator[Condition]:
    if facts.reason is not None:
        text = f"pool {facts.name} has stopped creating machines: {facts.reason}"
        yield Condition(rule="breaker", message=text)
    for tier, why in facts.failed_tiers:
        text = f"tier {tier} of pool {facts.name} has failed, and its work goes to the other tiers: {why}"
        yield Condition(rule="tier", subject=tier, message=text)
    for host, why in facts.unready:
        text = f"machine {host} of pool {facts.name} did not become ready: {why}"
        yield Condition(rule="not_started", subject=host, message=text, host=host)
    for host, since in facts.pulling:
        if facts.now - since > limits.pull_s:
            yield pull_condition(host, facts.now - since, f"pool {facts.name}")


def host_conditions(facts: HostFacts, limits: AlertSettings) -> list[Condition]:
    """Which resources of a host are full: every sample of the period is above the limit. It holds until a minute's mean is not."""
    samples = [one for one in facts.samples if one.at <= facts.now]
    if not samples or facts.now - samples[-1].at > _SILENT_S:
        return []
    found: list[Condition] = []
    for part, words in _PARTS.items():
        share = _full(facts, samples, part, limits)
        if share is not None:
            text = f"{words} {share:.0%} on host {facts.name}, for {span(limits.load_for_s)} or longer"
            one = Condition(rule="overload", subject=part, message=text, host=facts.name)
            found.append(one)
    return chosen(found, limits)


def _full(facts: HostFacts, samples: Sequence[Sample], part: str, limits: AlertSettings) -> float | None:
    """How full it is, if that is above the limit."""
    now = facts.now
    if part in facts.firing:
        share = _share(mean([one.load for one in samples if one.at >= now - _CALM_S]), part)
        return share if share is not None and share >= limits.load else None
    # Up to the last sample that we have: they are written several at a time, so that now is some seconds after it.
    begins = samples[-1].at - limits.load_for_s
    window = [one for one in samples if one.at >= begins]
    is_whole = samples[0].at <= begins and _has_no_gap(window)
    shares = [_share(one.load, part) for one in window]
    if not is_whole or any(share is None or share < limits.load for share in shares):
        return None
    return _share(mean([one.load for one in window]), part)


def _has_no_gap(samples: Sequence[Sample]) -> bool:
    return all(later.at - one.at <= _SLACK_S for one, later in pairwise(samples))


def _share(load: Load, part: str) -> float | None:
    return getattr(load, part)


def reap_conditions(looks: Sequence[Reaped], limits: AlertSettings) -> list[Condition]:
    found: list[Condition] = []
    for look in looks:
        some = ", ".join(look.names[:3]) + (", …" if look.found > 3 else "")
        then = f"{look.left} are still there; run `evalfleet reap`" if look.left else "they are gone now"
        text = f"found {look.found} of evalfleet's resources in the cloud that belong to no pool ({some}); {then}"
        found.append(Condition(rule="orphans", subject=str(look.number), message=text))
    return chosen(found, limits)
