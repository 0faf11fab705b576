"""The conditions of alerts about runs. Pure: `now` is part of the facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from evalfleet.core.alerts.rules import Condition, budget_conditions, chosen, span
from evalfleet.core.alerts.settings import AlertSettings
from evalfleet.core.statistics.scores import percentile
from evalfleet.model import PauseCause, RunState

_STALLS = 3.0  # times the median
_ENOUGH = 5  # durations or steps, for a median
_RECENT = 20  # attempts, for the failure rate
_ENOUGH_RECENT = 10
_ENOUGH_OWN = 40  # attempts, to know the run's own failure rate
_OWN_LEAST = 0.1  # the latest must be that much worse
_ENOUGH_TRIED = 20


class LiveTask(Struct, frozen=True, kw_only=True):
    key: str
    elapsed_s: float
    expected_s: float | None
    attempt: str = ""
    host: str = ""
    quiet_s: float = 0.0  # since its last sign of life
    steps: bool = False  # it has told of a step


class Unstarted(Struct, frozen=True, kw_only=True):
    """A worker whose latest attempt did not start in time."""

    worker: str
    host: str
    key: str
    evidence: str


class RunFacts(Struct, frozen=True, kw_only=True):
    """What is known about a run at one moment."""

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
    step_times: Sequence[float] = ()
    stepped_at: float | None = None
    progressed_at: float | None = None
    finished_at: float | None = None  # the last end of an attempt
    recent: tuple[bool, ...] = ()  # of the latest judged attempts: whether each gave a verdict
    judged: int = 0  # attempts, but for the cancelled
    failed: int = 0  # of these
    breaker: str | None = None
    disk: str | None = None  # why nothing starts, while the home's disk is almost full
    cost_usd: float = 0.0
    budget_usd: float | None = None
    lost: frozenset[str] = frozenset()  # hosts
    quarantined: frozenset[str] = frozenset()
    unstarted: tuple[Unstarted, ...] = ()
    pulling: tuple[tuple[str, float], ...] = ()  # hosts that pull an image, and since when
    unstored: str | None = None  # why files cannot be stored
    ended_at: float | None = None


def conditions(facts: RunFacts, limits: AlertSettings) -> list[Condition]:
    """The conditions that hold for a run, by rules that are on."""
    return chosen((one for check in _CHECKS for one in check(facts, limits)), limits)


def stall_limit_s(medians_of: Sequence[float], limits: AlertSettings) -> float:
    """How long a run may go without an ended attempt, from the durations so far."""
    if len(medians_of) < _ENOUGH:
        return limits.no_progress_s
    return max(limits.stall_least_s, _STALLS * percentile(medians_of, 0.5))


def _no_progress(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    if facts.state is not RunState.RUNNING or not facts.driven or not (facts.live or facts.waiting):
        return
    limit = stall_limit_s(facts.durations, limits)
    moments = [("nothing happened", facts.progressed_at, limit), ("no attempt ended", facts.finished_at, limit)]
    if len(facts.step_times) >= _ENOUGH and any(task.steps for task in facts.live):
        moments.insert(0, ("no task made a step", facts.stepped_at, stall_limit_s(facts.step_times, limits)))
    for nothing, at, limit_s in moments:
        idle = facts.now - max(at or 0.0, facts.since or 0.0)
        if idle > limit_s:
            stuck = tuple(task.attempt for task in facts.live if task.attempt and task.quiet_s > limit_s)
            text = f"{nothing} for {span(idle)} in run {facts.name}: {len(facts.live)} running, {facts.waiting} waiting"
            yield Condition(rule="no_progress", message=text, attempts=stuck)
            return


def _undriven(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    gone_s = facts.now - (facts.since or 0.0)
    if facts.state is RunState.RUNNING and not facts.driven and gone_s > limits.undriven_s:
        text = f"run {facts.name} has no controller; continue it with `evalfleet resume`"
        yield Condition(rule="undriven", message=text)


def _paused(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    if facts.state is RunState.PAUSED and facts.cause != PauseCause.OPERATOR:
        text = f"run {facts.name} is paused: {facts.message}"
        yield Condition(rule="paused", subject=facts.cause or "", message=text)


def _breaker(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    if facts.breaker is not None and facts.state in (RunState.RUNNING, RunState.PAUSED):
        text = f"the breaker of run {facts.name} is open: {facts.breaker}"
        yield Condition(rule="breaker", message=text)


def _disk(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    if facts.disk is not None and facts.state is RunState.RUNNING and facts.driven:
        yield Condition(rule="disk_full", message=f"no task of run {facts.name} starts: {facts.disk}")


def _budget(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    yield from budget_conditions("budget", f"run {facts.name}", facts.cost_usd, facts.budget_usd, limits.budget_shares)


def _lost(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    for host in sorted(facts.lost):
        text = f"host {host} of run {facts.name} did not answer and was given up"
        yield Condition(rule="worker_lost", subject=host, message=text, host=host)


def _quarantine(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    for worker in sorted(facts.quarantined) if facts.ended_at is None else ():
        text = f"{worker} is quarantined in run {facts.name} and gets no more work"
        yield Condition(rule="quarantine", subject=worker, message=text, host=worker)


def _failure_rate(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    recent = facts.recent[-_RECENT:]
    if facts.ended_at is not None or len(recent) < _ENOUGH_RECENT:
        return
    failed = sum(not ok for ok in recent)
    rate, own = failed / len(recent), _own_rate(facts, recent)
    text = f"{failed} of the latest {len(recent)} attempts of run {facts.name} failed"
    if rate > limits.failure_rate:
        yield Condition(rule="failure_rate", message=text)
    elif own is not None and rate > own + max(_OWN_LEAST, 3 * math.sqrt(own * (1 - own) / len(recent))):
        text += f"; before, it was {own:.0%} of them"
        yield Condition(rule="failure_rate", message=text)


def _own_rate(facts: RunFacts, recent: Sequence[bool]) -> float | None:
    """The share of the run's earlier attempts that failed; None while there were too few."""
    before = facts.judged - len(recent)
    return None if before < _ENOUGH_OWN else max(0, facts.failed - sum(not ok for ok in recent)) / before


def _retry_rate(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    if facts.tried >= _ENOUGH_TRIED and facts.retried / facts.tried > limits.retry_rate:
        text = f"{facts.retried} of {facts.tried} tasks of run {facts.name} needed more than one attempt"
        yield Condition(rule="retry_rate", message=text)


def _slow_task(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    for task in facts.live:
        if task.expected_s and task.elapsed_s > max(limits.slow_least_s, limits.slow * task.expected_s):
            text = (
                f"task {task.key} of run {facts.name} has been running for {span(task.elapsed_s)}; "
                f"{span(task.expected_s)} was expected"
            )
            yield Condition(
                rule="slow_task",
                subject=task.key,
                message=text,
                host=task.host or None,
                attempts=(task.attempt,) if task.attempt else (),
            )


def _not_started(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    for one in facts.unstarted if facts.ended_at is None else ():
        text = f"task {one.key} of run {facts.name} did not start on {one.worker} in time: {one.evidence}"
        yield Condition(rule="not_started", subject=one.worker, message=text, host=one.host)


def _image_pull(facts: RunFacts, limits: AlertSettings) -> Iterator[Condition]:
    for host, since in facts.pulling if facts.ended_at is None else ():
        if facts.now - since > limits.pull_s:
            yield pull_condition(host, facts.now - since, f"run {facts.name}")


def pull_condition(host: str, took_s: float, whose: str) -> Condition:
    text = f"host {host} of {whose} has been pulling an image for {span(took_s)}; check its network, or bake the image into the machine"
    return Condition(rule="image_pull", subject=host, message=text, host=host)


def _files(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    if facts.unstored is not None and facts.ended_at is None:
        text = f"files of run {facts.name} cannot be stored; verdicts are not affected: {facts.unstored}"
        yield Condition(rule="files", message=text)


def _finished(facts: RunFacts, _limits: AlertSettings) -> Iterator[Condition]:
    if facts.ended_at is not None and facts.state.is_over:
        text = f"run {facts.name} is {facts.state}: {facts.tasks}"
        yield Condition(rule="finished", subject=f"{facts.ended_at:.3f}", message=text)


_CHECKS: tuple[Callable[[RunFacts, AlertSettings], Iterator[Condition]], ...] = (
    _no_progress,
    _undriven,
    _paused,
    _breaker,
    _disk,
    _budget,
    _lost,
    _quarantine,
    _failure_rate,
    _retry_rate,
    _slow_task,
    _not_started,
    _image_pull,
    _files,
    _finished,
)
