"""The breaker of a pool or backend: it stops an outage from using up the attempts of a run.

**Slow start.** Until the first sign of health at most 3 attempts are in flight. Health is a verdict, or an attempt
that has run for 60 s without failing.

**Opening.** It opens at 5 failures blamed on the pool or the backend across at least 3 tasks with no verdict between;
3 failures without a task in a row (no runner starts at all) are enough. When a cause is recognised as the pool's, its
earlier failures, which were still blamed on their tasks, count too: so an outage from the start costs at most
5 failures + 2 more in flight + 3 probes.

**Refusal.** A service that refuses us (`service_refused`) does not recover by itself: 3 such failures with no verdict between are
enough, of two tasks, or of one where nothing was healthy yet; and no probes are made until somebody re-arms it.

**Probing.** When open, one attempt at a time is admitted, after 2, 4 and 8 s. A verdict closes the breaker, and so
does a failure that attribution leaves with the task: it would have blamed the pool for the known cause, so the pool
has run a program to its own end. (Then the slow start begins anew.) A probe that runs for 60 s closes it as well, so
that long tasks do not wait for one. Only the probe decides: an older attempt that ends well says nothing about new
ones. After the last failed probe the breaker is `exhausted`, and stays open until somebody re-arms it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from evalfleet.core.failures.kinds import same_cause
from evalfleet.core.transitions import allowed
from evalfleet.model import Blame, BreakerState, Failure, JsonObject, Kind

UNLIMITED = 1 << 30
_MOST_MARKS = 64


class Limits(Struct, frozen=True, kw_only=True):
    """When a breaker opens and how it probes. `probes = None` probes for ever."""

    slow_start: int = 3
    slow_start_s: float = 60.0
    failures: int = 5
    tasks: int = 3
    taskless: int = 3
    launches: int | None = None  # so many tasks whose program is missing are all that there are; None: there are more
    refusals: int = 3
    probes: int | None = 3
    probe_base_s: float = 2.0
    probe_cap_s: float = 300.0


class Mark(Struct, frozen=True, kw_only=True):
    """One failure since the last verdict."""

    kind: Kind
    line: str  # the evidence without what differs between tasks
    evidence: str
    task: str | None
    blamed: bool  # on the pool or the backend


class Cause(Struct, frozen=True, kw_only=True):
    """Why it is open, for the message."""

    kind: Kind
    evidence: str
    failures: int
    tasks: int

    def __str__(self) -> str:
        count = "1 failure" if self.failures == 1 else f"{self.failures} failures"
        if self.tasks:
            count += " of 1 task" if self.tasks == 1 else f" of {self.tasks} tasks"
        return f"{self.kind}: {self.evidence} ({count})"


class Breaker(Struct, frozen=True, kw_only=True):
    """The state of one breaker; every method that moves it returns the next one. Attempts are named by their ids."""

    limits: Limits = Limits()
    state: BreakerState = BreakerState.CLOSED
    healthy: bool = False
    marks: tuple[Mark, ...] = ()
    probes: int = 0  # failed ones since it opened
    probe: str | None = None  # the attempt that probes now
    next_probe_at: float | None = None

    @property
    def exhausted(self) -> bool:
        """Open, and all probes are used: the run pauses."""
        last = self.limits.probes
        return self.state is BreakerState.OPEN and last is not None and self.probes >= last

    @property
    def prefers_fresh(self) -> bool | None:
        """Whether tasks that never failed should come first (or last); None: it does not matter. For `place`.

        In the slow start different tasks show an outage soonest. Of the probes every second one is a task that failed
        before: fresh ones tell an outage from bad tasks, the others tell it from tasks that fail once.
        """
        if self.state is BreakerState.CLOSED:
            return None if self.healthy else True
        return self.probes % 2 == 0

    @property
    def cause(self) -> Cause | None:
        """The most frequent counted cause since the last verdict; None where nothing is blamed on the pool."""
        counted = self._counted()
        if not counted:
            return None
        groups: dict[tuple[Kind, str], list[Mark]] = {}
        for mark in counted:
            groups.setdefault((mark.kind, mark.line), []).append(mark)
        group = max(groups.values(), key=len)
        return Cause(
            kind=group[0].kind, evidence=group[-1].evidence, failures=len(group), tasks=len(_tasks(group)))  # fmt: skip

    def allowance(self, now: float, in_flight: int) -> int:
        """How many more attempts may be admitted now, with so many in flight on this pool or backend."""
        if self.state is BreakerState.CLOSED:
            return UNLIMITED if self.healthy else max(0, self.limits.slow_start - in_flight)
        due = self.state is BreakerState.OPEN and self.next_probe_at is not None and now >= self.next_probe_at
        return 1 if due else 0

    def admitted(self, attempt: str) -> Breaker:
        """An attempt was claimed. The first one after `allowance` gave a probe is the probe."""
        if self.state is not BreakerState.OPEN or self.next_probe_at is None:
            return self
        return self._moved(BreakerState.HALF_OPEN, probe=attempt, next_probe_at=None)

    def succeeded(self, attempt: str) -> Breaker:
        """An attempt has a verdict."""
        if self.healthy and not self.marks:
            return self
        if self.state is BreakerState.CLOSED or attempt == self.probe:
            return self._closed(healthy=True)
        return self

    def ran(self, attempt: str, since: float, now: float) -> Breaker:
        """An attempt is running (ready, where it must say so) since then, and has not failed."""
        if now - since < self.limits.slow_start_s:
            return self
        if self.state is BreakerState.CLOSED:
            return self if self.healthy else replace(self, healthy=True)
        return self._closed() if attempt == self.probe else self

    def failed(self, attempt: str | None, failure: Failure, task: str | None, now: float) -> Breaker:
        """An attempt failed, with its blame as attributed; `attempt` and `task` are None where no attempt was made."""
        if failure.kind is Kind.CANCELLED:
            return self if attempt is None else self.forgotten(attempt, now)
        probing = attempt is not None and attempt == self.probe
        if probing and failure.blame is Blame.TASK:
            return self._closed()
        marked = replace(self, marks=(*self.marks, _mark(failure, task))[-_MOST_MARKS:])
        if probing:
            return marked._probe_failed(now)
        if self.state is BreakerState.CLOSED and marked._must_open():
            spent = (self.limits.probes or 0) if marked._is_refused() else 0
            return marked._moved(BreakerState.OPEN, healthy=False, probes=spent)._scheduled(now)
        return marked

    def forgotten(self, attempt: str, now: float) -> Breaker:
        """An attempt ended without saying anything (cancelled, released). A probe is made again."""
        if attempt != self.probe:
            return self
        return self._moved(BreakerState.OPEN, probe=None)._scheduled(now)

    def rearmed(self, now: float) -> Breaker:
        """A person says that the cause is fixed: an open breaker probes again at once, a closed one starts slowly."""
        if self.state is BreakerState.CLOSED:
            return self._closed()
        return self._moved(BreakerState.OPEN, probes=0, probe=None, next_probe_at=now)

    def _moved(self, state: BreakerState, **changes: Any) -> Breaker:
        if state is not self.state and not allowed(self.state, state):
            raise ValueError(f"a breaker cannot go from {self.state} to {state}")
        return replace(self, state=state, **changes)

    def _closed(self, *, healthy: bool = False) -> Breaker:
        """A new breaker, without history."""
        self._moved(BreakerState.CLOSED)
        return Breaker(limits=self.limits, healthy=healthy)

    def _probe_failed(self, now: float) -> Breaker:
        return self._moved(BreakerState.OPEN, probe=None, probes=self.probes + 1)._scheduled(now)

    def _scheduled(self, now: float) -> Breaker:
        if self.exhausted:
            return replace(self, next_probe_at=None)
        delay = min(self.limits.probe_cap_s, self.limits.probe_base_s * 2.0 ** min(self.probes, 60))
        return replace(self, next_probe_at=now + delay)

    def _counted(self) -> list[Mark]:
        causes = {(mark.kind, mark.line) for mark in self.marks if mark.blamed}
        return [mark for mark in self.marks if (mark.kind, mark.line) in causes]

    def _must_open(self) -> bool:
        last = self.marks[-self.limits.taskless :]
        if len(last) == self.limits.taskless and all(mark.blamed and mark.task is None for mark in last):
            return True
        if self._is_refused():
            return True
        counted = self._counted()
        if self.limits.launches is not None and counted and all(mark.kind is Kind.LAUNCH_FAILED for mark in self.marks):
            return len(_tasks(counted)) >= self.limits.launches
        return len(counted) >= self.limits.failures and len(_tasks(counted)) >= self.limits.tasks

    def _is_refused(self) -> bool:
        refused = [mark for mark in self.marks if mark.kind is Kind.SERVICE_REFUSED]
        return len(refused) >= self.limits.refusals and (not self.healthy or len(_tasks(refused)) > 1)

    def to_json(self) -> JsonObject:
        """The state without its limits, which belong to the settings."""
        told: JsonObject = to_builtins(self)
        del told["limits"]
        return told

    @classmethod
    def from_json(cls, data: JsonObject, limits: Limits | None = None) -> Breaker:
        return replace(convert(data, cls), limits=limits or Limits())


def _mark(failure: Failure, task: str | None) -> Mark:
    blamed = failure.blame in (Blame.POOL, Blame.BACKEND)
    line = same_cause(failure.evidence, task)
    return Mark(kind=failure.kind, line=line, evidence=failure.evidence, task=task, blamed=blamed)


def _tasks(marks: Iterable[Mark]) -> set[str]:
    return {mark.task for mark in marks if mark.task is not None}
