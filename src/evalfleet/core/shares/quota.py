"""Quotas: the most that a user or a project may have at once, or spend in a day. Checked in the transaction of every claim.

A quota of a project holds for all its users together. What is given for `*` holds for each one that has none of that subject of its own.
A day begins at 00:00 UTC. Dollars count as for a budget: what ended attempts cost, and what those that run may cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from evalfleet.core.budget import Budget

DAY_S = 86_400.0
ANY = "*"


class Subject(StrEnum):
    """Whom a weight or a quota is for."""

    USER = "user"
    PROJECT = "project"


class ShareRule(Struct, frozen=True, kw_only=True):
    """What a user or a project may have. None: not said."""

    subject: Subject
    name: str  # `*`: each one that is not named
    weight: float | None = None
    running: int | None = None  # attempts at a time
    gpus: int | None = None  # at a time
    usd_per_day: float | None = None

    @property
    def limits(self) -> bool:
        return self.running is not None or self.gpus is not None or self.usd_per_day is not None


class Use(Struct, frozen=True, kw_only=True):
    """What a user or a project has now, and has spent today."""

    running: int = 0
    gpus: int = 0
    spent_usd: float = 0.0  # by attempts that ended today
    committed_usd: float = 0.0  # by those that run


class Wanted(Struct, frozen=True, kw_only=True):
    """One more attempt."""

    gpus: int = 0
    usd: float = 0.0  # what it may cost


def merged(weaker: Iterable[ShareRule], stronger: Iterable[ShareRule]) -> list[ShareRule]:
    """Two sets of rules; each field of a stronger one goes before that of the weaker."""
    found = {(rule.subject, rule.name): rule for rule in weaker}
    for rule in stronger:
        found[rule.subject, rule.name] = _over(found.get((rule.subject, rule.name)), rule)
    return [found[key] for key in sorted(found)]


def rule_for(rules: Iterable[ShareRule], subject: Subject, name: str) -> ShareRule | None:
    """What holds for one user or project; None: nothing."""
    by_name = {rule.name: rule for rule in rules if rule.subject is subject}
    own, any_ = by_name.get(name), by_name.get(ANY)
    if own is None:
        return any_
    return _over(any_, own)


def weights_of(rules: Iterable[ShareRule], subject: Subject) -> Mapping[str, float]:
    return {rule.name: rule.weight for rule in rules if rule.subject is subject and rule.weight is not None}


def day_begin(now: float) -> float:
    return now - now % DAY_S


def refusal(rule: ShareRule, use: Use, wanted: Wanted, name: str) -> str | None:
    """Why one more attempt is over a quota; None: it is within.

    Args:
        name: of the user or project, where the rule is for all.
    """
    whose = "your quota" if rule.subject is Subject.USER else f"the quota of project {name}"
    if rule.running is not None and use.running >= rule.running:
        return f"{whose} is {_count(rule.running, 'running attempt')}, {use.running} run"
    if rule.gpus is not None and wanted.gpus and use.gpus + wanted.gpus > rule.gpus:
        return f"{whose} is {_count(rule.gpus, 'GPU')}, {use.gpus} in use"
    if rule.usd_per_day is not None:
        budget = Budget(limit_usd=rule.usd_per_day)
        if not budget.admits(use.spent_usd, use.committed_usd, wanted.usd):
            return (
                f"{whose} is ${rule.usd_per_day:.2f} a day: ${use.spent_usd:.2f} spent, ${use.committed_usd:.2f} committed, "
                f"about ${wanted.usd:.2f} for one more; the day begins at 00:00 UTC"
            )
    return None


def room(rule: ShareRule, use: Use) -> int | None:
    """How many more attempts may run; None: no limit."""
    return None if rule.running is None else max(0, rule.running - use.running)


def gpu_room(rule: ShareRule, use: Use) -> int | None:
    """How many more GPUs may be had; None: no limit."""
    return None if rule.gpus is None else max(0, rule.gpus - use.gpus)


def _over(weaker: ShareRule | None, stronger: ShareRule) -> ShareRule:
    if weaker is None:
        return stronger
    given = {name: getattr(stronger, name) for name in ("weight", "running", "gpus", "usd_per_day")}
    return ShareRule(
        subject=stronger.subject,
        name=stronger.name,
        **{name: getattr(weaker, name) if value is None else value for name, value in given.items()},
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
