"""Progress of live attempts: gathered in memory, stored at most four times a second."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from evalfleet.engine.orders import LiveAttempt
from evalfleet.hosts.base import AttemptEvent
from evalfleet.model import AttemptState, Run
from evalfleet.store.attempts.records import Progress
from evalfleet.store.store import Store

FLUSH_S = 0.25
_MOST_LINES = 200  # event lines kept per attempt between two flushes


class ProgressBuffer:
    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self._next_at = 0.0
        self._news: dict[str, LiveAttempt] = {}  # those with something that is not stored

    def note(self, live: Mapping[str, LiveAttempt], seen: AttemptEvent) -> bool:
        """Keep what is new of a live attempt; True if it says that the attempt ended."""
        if seen.type == "ended":
            return True
        one = live.get(seen.attempt_id)
        if one is None or seen.number <= one.last_event or seen.type == "launched":
            return False
        one.last_event = seen.number
        self._news[seen.attempt_id] = one
        if seen.type == "started":
            one.started_at = seen.at
            waits = one.task.spec.start_timeout_s or self._run.policy.start_timeout_s
            one.state = AttemptState.STARTING if waits else AttemptState.RUNNING
        elif seen.type == "ready":
            one.ready_at, one.state = seen.at, AttemptState.RUNNING
        elif seen.type == "progress":
            one.step = seen.data.get("step", one.step)
            one.reported_usd = seen.data.get("cost_usd") or one.reported_usd
            one.lines = (one.lines + list(seen.data.get("lines") or ()))[-_MOST_LINES:]
        return False

    @property
    def due_at(self) -> float:
        return self._next_at if self._news else inf

    @property
    def is_due(self) -> bool:
        return self.due_at <= self._store.now()

    def flush(self) -> None:
        """Store what is new, if it is time."""
        if not self.is_due:
            return
        for one in list(self._news.values()):
            self._write(one)
        self._next_at = self._store.now() + FLUSH_S

    def close(self, one: LiveAttempt) -> None:
        """The attempt has ended: store what is not part of its end."""
        self._news.pop(one.attempt.id, None)
        if one.lines or one.ready_at is not None:
            self._write(one)

    def _write(self, one: LiveAttempt) -> None:
        stored = self._store.attempts.progress(
            self._run,
            Progress(
                attempt=one.attempt,
                last_event=one.last_event,
                state=one.state,
                started_at=one.started_at,
                ready_at=one.ready_at,
                step=one.step,
                reported_usd=one.reported_usd,
                lines=tuple(one.lines),
            ),
        )
        one.attempt = stored or one.attempt
        one.lines, one.ready_at = [], None
        self._news.pop(one.attempt.id, None)
