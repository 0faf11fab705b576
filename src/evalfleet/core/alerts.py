"""Which alerts should be firing, from what is known of a run or a pool. Pure: `now` is part of the facts.

Rules are latched by whoever calls this: a condition that holds fires once, and is resolved once when it holds no more. The same facts
give the same conditions after a restart, so that nothing is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evalfleet.core.stats import percentile
from evalfleet.model import PauseCause, RunState

_LEAST_STALL_S = 60.0
_STALLS = 3.0  # times the median
_ENOUGH = 5  # durations, for a median
_RECENT = 20  # attempts, for the failure rate
_ENOUGH_RECENT = 10
_ENOUGH_TRIED = 20
_UNDRIVEN_S = 60.0
_SLOW = 2.0  # times what was expected
_LEAST_SLOW_S = 60.0


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is watched for, in a sentence."""

    name: str
    severity: Severity  # the worst that it fires with
    text: str
    resolves: bool = True  # False: a notice, which is over as soon as it was given


RULES: tuple[Rule, ...] = (
    Rule(name="no_progress", severity=Severity.CRITICAL, text="a running run makes no progress"),
    Rule(name="undriven", severity=Severity.CRITICAL, text="a run is running, and nobody drives it"),
    Rule(name="paused", severity=Severity.CRITICAL, text="a run paused by itself and needs a person"),
    Rule(name="breaker", severity=Severity.CRITICAL, text="the breaker of a run is open"),
    Rule(name="budget", severity=Severity.CRITICAL, text="a run has spent a large share of its budget"),
    Rule(name="worker_lost", severity=Severity.WARNING, text="a host was given up"),
    Rule(name="quarantine", severity=Severity.WARNING, text="a worker is quarantined"),
    Rule(name="failure_rate", severity=Severity.WARNING, text="many of the latest attempts failed"),
    Rule(name="retry_rate", severity=Severity.WARNING, text="many tasks need more than one attempt"),
    Rule(name="slow_task", severity=Severity.WARNING, text="a task takes much longer than expected"),
    Rule(name="idle_pool", severity=Severity.WARNING, text="machines of a pool cost money and do nothing"),
    Rule(name="finished", severity=Severity.INFO, text="a run is over", resolves=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLimits:
    """When rules fire."""

    no_progress_s: float = 600.0  # while no median is known
    failure_rate: float = 0.5
    retry_rate: float = 0.2
    budget_shares: tuple[float, ...] = (0.5, 0.8, 1.0)
    idle_s: float = 900.0
    off: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTask:
    key: str
    elapsed_s: float
    expected_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of one run at one moment."""

    now: float
    name: str
    state: RunState
    cause: str | None = None  # of a pause
    message: str = ""
    driven: bool = True
    since: float | None = None  # since when it is as it is: begun, or left by its controller
    waiting: int = 0
    tried: int = 0
    retried: int = 0
    tasks: str = ""  # how many of them stand how, in words
    live: tuple[LiveTask, ...] = ()
    durations: Sequence[float] = ()
    progressed_at: float | None = None
    finished_at: float | None = None  # the last end of an attempt
    recent: tuple[bool, ...] = ()  # of the latest judged attempts: whether each gave a verdict
    breaker: str | None = None
    cost_usd: float = 0.0
    budget_usd: float | None = None
    lost: frozenset[str] = frozenset()  # hosts
    quarantined: frozenset[str] = frozenset()
    ended_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    name: str
    idle_s: float  # since when none of its hosts does anything
    usd_per_hour: float  # of all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that holds now. `rule` and `subject` tell it from others of the same run."""

    rule: str
    subject: str
    severity: Severity
    message: str


def conditions(facts: RunFacts, limits: AlertLimits) -> list[Condition]:
    """All that hold for a run, by rules that are not off."""
    found = [one for rule, check in _CHECKS.items() if rule not in limits.off for one in check(facts, limits)]
    return list({(one.rule, one.subject): one for one in found}.values())


def pool_conditions(facts: PoolFacts, limits: AlertLimits) -> list[Condition]:
    if "idle_pool" in limits.off or facts.usd_per_hour <= 0 or facts.idle_s < limits.idle_s:
        return []
    text = f"pool {facts.name} costs ${facts.usd_per_hour:.2f} an hour and does nothing; stop it, or use it"
    return [Condition(rule="idle_pool", subject=facts.name, severity=Severity.WARNING, message=text)]


def stall_limit_s(durations: Sequence[float], limits: AlertLimits) -> float:
    """After how long without progress a run is said to be stuck."""
    if len(durations) < _ENOUGH:
        return limits.no_progress_s
    return max(_LEAST_STALL_S, _STALLS * percentile(durations, 0.5))


def _no_progress(facts: RunFacts, limits: AlertLimits) -> Iterator[Condition]:
    if facts.state is not RunState.RUNNING or not facts.driven or not (facts.live or facts.waiting):
        return
    limit = stall_limit_s(facts.durations, limits)
    moments = {"progressed": facts.progressed_at, "finished": facts.finished_at}
    for what, at in moments.items():
        idle = facts.now - max(at or 0.0, facts.since or 0.0)
        if idle > limit:
            nothing = "nothing happened" if what == "progressed" else "no attempt ended"
            text = (
                f"{nothing} for {_span(idle)} in run {facts.name}: {len(facts.live)} running, {facts.waiting} waiting"
            )
            yield Condition(rule="no_progress", subject="", severity=Severity.CRITICAL, message=text)
            return


def _undriven(facts: RunFacts, _limits: AlertLimits) -> Iterator[Condition]:
    if facts.state is RunState.RUNNING and not facts.driven and facts.now - (facts.since or 0.0) > _UNDRIVEN_S:
        text = f"nobody drives run {facts.name}; `evalfleet resume` goes on with it"
        yield Condition(rule="undriven", subject="", severity=Severity.CRITICAL, message=text)


def _paused(facts: RunFacts, _limits: AlertLimits) -> Iterator[Condition]:
    if facts.state is RunState.PAUSED and facts.cause != PauseCause.OPERATOR:
        text = f"run {facts.name} is paused: {facts.message}"
        yield Condition(rule="paused", subject=facts.cause or "", severity=Severity.CRITICAL, message=text)


def _breaker(facts: RunFacts, _limits: AlertLimits) -> Iterator[Condition]:
    if facts.breaker is not None and facts.state in (RunState.RUNNING, RunState.PAUSED):
        text = f"the breaker of run {facts.name} is open: {facts.breaker}"
        yield Condition(rule="breaker", subject="", severity=Severity.CRITICAL, message=text)


def _budget(facts: RunFacts, limits: AlertLimits) -> Iterator[Condition]:
    if not facts.budget_usd:
        return
    for share in limits.budget_shares:
        if facts.cost_usd >= share * facts.budget_usd - 1e-9:
            text = (
                f"run {facts.name} has spent ${facts.cost_usd:.2f}, {facts.cost_usd / facts.budget_usd:.0%} of its "
                f"budget of ${facts.budget_usd:.2f}"
            )
            severity = Severity.CRITICAL if share >= 1 else Severity.WARNING
            yield Condition(rule="budget", subject=f"{share * 100:g}", severity=severity, message=text)


def _workers(facts: RunFacts, limits: AlertLimits) -> Iterator[Condition]:
    del limits
    for host in sorted(facts.lost):
        text = f"host {host} of run {facts.name} does not answer and was given up"
        yield Condition(rule="worker_lost", subject=host, severity=Severity.WARNING, message=text)


def _quarantine(facts: RunFacts, _limits: AlertLimits) -> Iterator[Condition]:
    for worker in sorted(facts.quarantined) if facts.ended_at is None else ():
        text = f"{worker} is quarantined in run {facts.name} and gets no more work"
        yield Condition(rule="quarantine", subject=worker, severity=Severity.WARNING, message=text)


def _failure_rate(facts: RunFacts, limits: AlertLimits) -> Iterator[Condition]:
    recent = facts.recent[-_RECENT:]
    failed = sum(not ok for ok in recent)
    if facts.ended_at is None and len(recent) >= _ENOUGH_RECENT and failed / len(recent) > limits.failure_rate:
        text = f"{failed} of the latest {len(recent)} attempts of run {facts.name} failed"
        yield Condition(rule="failure_rate", subject="", severity=Severity.WARNING, message=text)


def _retry_rate(facts: RunFacts, limits: AlertLimits) -> Iterator[Condition]:
    if facts.tried >= _ENOUGH_TRIED and facts.retried / facts.tried > limits.retry_rate:
        text = f"{facts.retried} of {facts.tried} tasks of run {facts.name} needed more than one attempt"
        yield Condition(rule="retry_rate", subject="", severity=Severity.WARNING, message=text)


def _slow_task(facts: RunFacts, _limits: AlertLimits) -> Iterator[Condition]:
    for task in facts.live:
        if task.expected_s and task.elapsed_s > max(_LEAST_SLOW_S, _SLOW * task.expected_s):
            text = (
                f"task {task.key} of run {facts.name} runs for {_span(task.elapsed_s)}; {_span(task.expected_s)} was "
                "expected"
            )
            yield Condition(rule="slow_task", subject=task.key, severity=Severity.WARNING, message=text)


def _finished(facts: RunFacts, _limits: AlertLimits) -> Iterator[Condition]:
    if facts.ended_at is not None and facts.state in (RunState.COMPLETED, RunState.CANCELLED):
        text = f"run {facts.name} is {facts.state}: {facts.tasks}"
        yield Condition(rule="finished", subject=f"{facts.ended_at:.3f}", severity=Severity.INFO, message=text)


_CHECKS: dict[str, Callable[[RunFacts, AlertLimits], Iterator[Condition]]] = {
    "no_progress": _no_progress,
    "undriven": _undriven,
    "paused": _paused,
    "breaker": _breaker,
    "budget": _budget,
    "worker_lost": _workers,
    "quarantine": _quarantine,
    "failure_rate": _failure_rate,
    "retry_rate": _retry_rate,
    "slow_task": _slow_task,
    "finished": _finished,
}


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# The latch


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be told: a condition that began to hold, or (by the number of its alert) one that holds no more."""

    fired: tuple[Condition, ...] = ()
    resolved: tuple[int, ...] = ()


def latch(firing: dict[tuple[str, str], int], told: set[tuple[str, str]], now: Sequence[Condition]) -> Change:
    """Compare what holds with what was told of one run.

    Args:
        firing: the numbers of its alerts that are firing, by rule and subject.
        told: rule and subject of notices that were given; they never fire again.
        now: what holds.
    """
    holds = {(one.rule, one.subject) for one in now}
    fired = tuple(one for one in now if (one.rule, one.subject) not in firing and (one.rule, one.subject) not in told)
    return Change(fired=fired, resolved=tuple(number for key, number in firing.items() if key not in holds))
