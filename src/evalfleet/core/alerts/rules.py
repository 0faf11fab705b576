"""The alert rules: what each watches for, its severity, and the actions it allows. Pure.

Rules are latched: a condition that holds fires once, and is resolved once when it no longer holds. The same facts give the same conditions
after a restart, so that nothing is told twice. `run_checks` and `host_checks` have the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from evalfleet.core.alerts.settings import AlertSettings


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Action(StrEnum):
    """What is done when a rule fires, besides notifying people."""

    NOTIFY = "notify"  # nothing else
    PAUSE = "pause"  # the run admits no more work
    RETRY = "retry_elsewhere"  # end the attempts that are stuck, as the infrastructure's, so that other workers try their tasks
    RESTART = "restart_worker"  # give the host no more work; one of a pool that we make is stopped and started, too


class Rule(Struct, frozen=True, kw_only=True):
    """What is watched for, in a sentence."""

    name: str
    severity: Severity  # the worst that it fires with
    text: str
    resolves: bool = True  # False: a notice, which is over as soon as it was given
    actions: tuple[Action, ...] = (Action.NOTIFY,)  # that it may be given


_OF_RUN = (Action.NOTIFY, Action.PAUSE)
_OF_ATTEMPT = (*_OF_RUN, Action.RETRY, Action.RESTART)
_OF_HOST = (Action.NOTIFY, Action.RESTART)

_critical = partial(Rule, severity=Severity.CRITICAL)
_warning = partial(Rule, severity=Severity.WARNING)

RULES: tuple[Rule, ...] = (
    _critical(name="no_progress", text="a running run makes no progress", actions=(*_OF_RUN, Action.RETRY)),
    _critical(name="undriven", text="a run is running without a controller"),
    _critical(name="paused", text="a run paused itself and needs a person"),
    _critical(name="breaker", text="the breaker of a run or pool is open"),
    _critical(name="budget", text="a run has spent a large share of its budget", actions=_OF_RUN),
    _critical(name="pool_budget", text="a pool has spent a large share of its budget"),
    _critical(name="not_started", text="a container or program did not start within its deadline", actions=_OF_HOST),
    _critical(
        name="overload", text="processors, memory or disk of a host have been full for a long time", actions=_OF_HOST
    ),
    _critical(name="disk_full", text="no task of a run starts, because the home's disk is almost full"),
    _warning(name="worker_lost", text="a host was given up", actions=_OF_HOST),
    _warning(name="quarantine", text="a worker is quarantined", actions=_OF_HOST),
    _warning(
        name="failure_rate",
        text="many of the latest attempts failed, or more than the run's own share",
        actions=_OF_RUN,
    ),
    _warning(name="retry_rate", text="many tasks need more than one attempt", actions=_OF_RUN),
    _warning(name="slow_task", text="a task takes much longer than expected", actions=_OF_ATTEMPT),
    _warning(name="image_pull", text="a host has been pulling an image for a long time", actions=_OF_HOST),
    _warning(name="files", text="files of ended attempts cannot be stored"),
    _warning(name="tier", text="a tier of a pool has failed, and its work goes to others"),
    _warning(name="idle_pool", text="machines of a pool cost money and are idle"),
    _warning(name="orphans", text="a resource of evalfleet in the cloud belongs to no pool any more", resolves=False),
    Rule(name="finished", severity=Severity.INFO, text="a run is over", resolves=False),
)
BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
NOTICES = frozenset(rule.name for rule in RULES if not rule.resolves)


class Condition(Struct, frozen=True, kw_only=True):
    """Something that holds now. `rule` and `subject` tell it from others of the same run, pool or host."""

    rule: str
    subject: str = ""
    severity: Severity | None = None  # None: the rule's own
    message: str
    host: str | None = None  # that it is about: what `restart_worker` acts on
    attempts: tuple[str, ...] = ()  # that are stuck: what `retry_elsewhere` acts on


def chosen(found: Iterable[Condition], settings: AlertSettings) -> list[Condition]:
    """The conditions of rules that are on, each once, with the severity that is configured for its rule."""
    kept = {(one.rule, one.subject): one for one in found if not settings.is_off(one.rule)}
    return [
        replace(one, severity=settings.severity(one.rule) or one.severity or BY_NAME[one.rule].severity)
        for one in kept.values()
    ]


def budget_conditions(
    rule: str, what: str, cost_usd: float, budget_usd: float | None, shares: Sequence[float]
) -> Iterator[Condition]:
    """One for each share of a budget that is spent; below all of it a warning."""
    for share in shares if budget_usd else ():
        if budget_usd and cost_usd >= share * budget_usd - 1e-9:
            text = f"{what} has spent ${cost_usd:.2f}, {cost_usd / budget_usd:.0%} of its budget of ${budget_usd:.2f}"
            severity = Severity.CRITICAL if share >= 1 else Severity.WARNING
            yield Condition(rule=rule, subject=f"{share * 100:g}", severity=severity, message=text)


def span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# The latch


class Change(Struct, frozen=True, kw_only=True):
    """A change to report: a condition that began to hold, or (by the number of its alert) one that no longer holds."""

    fired: tuple[Condition, ...] = ()
    resolved: tuple[int, ...] = ()


def latch(
    firing: dict[tuple[str, str], int], told: set[tuple[str, str]], now: Sequence[Condition], *, over: bool = False
) -> Change:
    """Compare the current conditions of one run, pool or host with those that were reported.

    Args:
        firing: the numbers of its alerts that are firing, by rule and subject.
        told: rule and subject of what must not fire again: notices that were given.
        now: what holds.
        over: it has ended, so that nothing of it stays wrong: what is firing is resolved, what is new is still told.
    """
    holds = {(one.rule, one.subject) for one in now}
    fired = tuple(one for one in now if (one.rule, one.subject) not in firing and (one.rule, one.subject) not in told)
    resolved = tuple(number for key, number in firing.items() if over or key not in holds)
    return Change(fired=fired, resolved=resolved)
