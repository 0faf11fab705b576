"""Keeps the breaker of one run: moves it, stores its moves, and says why it is open."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from evalfleet.core.breaker import UNLIMITED, Breaker, Limits
from evalfleet.core.failures.kinds import failure
from evalfleet.engine.orders import LiveAttempt
from evalfleet.model import AttemptState, BreakerState, Failure, Kind, Run
from evalfleet.store.store import Store

_CONNECTION = "connection"  # in place of an attempt, if connecting to a host is the probe
_RECONNECT_S = 0.5


class RunBreaker:
    """The breaker as the engine uses it. With `breaker = false` in the run's policy it lets everything pass."""

    def __init__(self, store: Store, run: Run, limits: Limits) -> None:
        self._store = store
        self._run = run
        self._limits = limits
        self._breaker = Breaker(limits=limits)
        self.probed: tuple[str, ...] = ()  # hosts whose probes failed since it opened

    def load(self, *, proven: bool) -> None:
        """Load the state that an earlier controller left. A new controller may probe again.

        A pool that is `proven` by an earlier verdict of this run needs no slow start.
        """
        tasks = self._store.tasks.total(self._run.id, self._limits.tasks)
        if tasks < self._limits.tasks and not self._run.open:
            self._limits = replace(self._limits, launches=tasks)
            self._breaker = Breaker(limits=self._limits)
        if stored := self._store.runs.breaker(self._run.id):
            self._breaker = Breaker.from_json(stored, self._limits).rearmed(self._store.now())
        if proven and self._breaker.state is BreakerState.CLOSED:
            self._breaker = replace(self._breaker, healthy=True)

    @property
    def exhausted(self) -> bool:
        return self._run.policy.breaker and self._breaker.exhausted

    @property
    def is_slow(self) -> bool:
        """Whether it still waits for a first sign of health."""
        return self._run.policy.breaker and not self._breaker.healthy

    @property
    def prefers_fresh(self) -> bool | None:
        """Whether tasks that never failed should come first, or last; None: keep the order."""
        return self._breaker.prefers_fresh if self._run.policy.breaker else None

    @property
    def next_probe_at(self) -> float | None:
        return self._breaker.next_probe_at if self._run.policy.breaker else None

    def allowance(self, in_flight: int) -> int:
        if not self._run.policy.breaker:
            return UNLIMITED
        return self._breaker.allowance(self._store.now(), in_flight)

    def watch(self, live: Iterable[LiveAttempt]) -> None:
        """Look for a first sign of health in these attempts."""
        for one in live if self.is_slow else ():
            waits = one.task.spec.start_timeout_s or self._run.policy.start_timeout_s
            since = one.attempt.ready_at if waits else one.attempt.started_at
            if since is not None and one.attempt.state is AttemptState.RUNNING:
                self.ran(one.attempt.id, since)

    def message(self) -> str:
        """Why the run pauses, and what to do."""
        cause = self._breaker.cause
        if cause is not None and cause.kind is Kind.SERVICE_REFUSED:
            return (
                f"the breaker is open: {cause}. It does not pass by itself: check the key, its permissions, the model's name "
                f"and what is left of quota and credit, then `evalfleet resume {self._run.id}`"
            )
        return (
            f"the breaker is open: {cause or 'the backend failed'}, and {self._breaker.probes} probes failed too. "
            f"Remove the cause, then `evalfleet resume {self._run.id}`"
        )

    def admitted(self, attempt_id: str, host: str) -> None:
        self._move(self._breaker.admitted(attempt_id))
        if self._breaker.probe == attempt_id:
            self.probed += (host,)

    def ran(self, attempt_id: str, since: float) -> None:
        self._move(self._breaker.ran(attempt_id, since, self._store.now()))

    def ended(self, attempt_id: str, failed: Failure | None, key: str) -> None:
        if failed is None:
            self._move(self._breaker.succeeded(attempt_id))
        else:
            self._move(self._breaker.failed(attempt_id, failed, key, self._store.now()))

    def backend_failed(self, message: str) -> float | None:
        """No host could be reached. Returns after how many seconds to try again; None: give up."""
        now = self._store.now()
        found = failure(Kind.BACKEND_ERROR, message)
        if self._breaker.state is BreakerState.CLOSED:
            self._move(self._breaker.failed(None, found, None, now))
        else:
            self._move(self._breaker.admitted(_CONNECTION).failed(_CONNECTION, found, None, now))
        if self._breaker.exhausted:
            return None
        due = self._breaker.next_probe_at
        return _RECONNECT_S if due is None else max(0.0, due - now)

    def backend_returned(self) -> None:
        """A host was reached: failures to connect no longer count."""
        marks = tuple(mark for mark in self._breaker.marks if mark.kind is not Kind.BACKEND_ERROR)
        if len(marks) == len(self._breaker.marks):
            return
        if self._breaker.state is BreakerState.CLOSED or any(mark.blamed for mark in marks):
            self._move(replace(self._breaker, marks=marks))
        else:
            self._move(Breaker(limits=self._limits, marks=marks))

    def moved_on(self) -> None:
        """Work goes to another pool now: one that is open probes that at once."""
        if self._breaker.state is not BreakerState.CLOSED:
            self.probed = ()
            self._move(self._breaker.rearmed(self._store.now()))

    def _move(self, breaker: Breaker) -> None:
        before, self._breaker = self._breaker.state, breaker
        if breaker.state is BreakerState.CLOSED:
            self.probed = ()
        if before is breaker.state or not self._run.policy.breaker:
            return
        if breaker.state is BreakerState.OPEN:
            event = "breaker.opened" if before is BreakerState.CLOSED else "breaker.probed"
        else:
            event = "breaker.closed" if breaker.state is BreakerState.CLOSED else "breaker.half_opened"
        cause = str(breaker.cause) if breaker.cause else None
        data = {"cause": cause, "probes": breaker.probes, "next_probe_at": breaker.next_probe_at}
        self._store.runs.store_breaker(self._run, breaker.to_json(), event, data)
