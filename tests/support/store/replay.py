"""The states of a run as its events alone tell them, by rules that know nothing of the store's statements."""

from __future__ import annotations

from evalfleet.core import transitions
from evalfleet.model import AttemptState, Event, RunState, TaskState

A, R, T = AttemptState, RunState, TaskState

_RUN = {
    "run.started": R.RUNNING,
    "run.resumed": R.RUNNING,
    "run.paused": R.PAUSED,
    "run.completed": R.COMPLETED,
    "run.cancelled": R.CANCELLED,
}
_TASK = {
    "attempt.claimed": T.RUNNING,
    "task.done": T.DONE,
    "task.retried": T.QUEUED,
    "task.released": T.QUEUED,
    "task.failed": T.FAILED,
    "task.held": T.HELD,
    "task.cancelled": T.CANCELLED,
}
_ATTEMPT = {
    "attempt.claimed": A.LEASED,
    "attempt.readied": A.RUNNING,
    "attempt.finished": A.COLLECTING,
    "attempt.collected": A.ENDED,
}


class Replay:
    """Feed it all events of one run in order. Raises AssertionError at the first that cannot be true."""

    def __init__(self, keys: list[str]) -> None:
        self.run = R.QUEUED
        self.tasks = dict.fromkeys(keys, T.QUEUED)
        self.attempts: dict[str, AttemptState] = {}
        self.outcomes: dict[str, str] = {}
        self.epoch = 0
        self.last = 0

    def feed(self, event: Event) -> None:
        assert event.number > self.last, f"event {event.number} came after {self.last}"
        self.last = event.number
        if event.type == "run.taken":
            assert event.data["epoch"] == self.epoch + 1
            self.epoch += 1
        if event.type in _RUN:
            assert transitions.allowed(self.run, _RUN[event.type]), (self.run, event)
            self.run = _RUN[event.type]
        if event.type in _TASK:
            assert event.task is not None
            before, after = self.tasks[event.task], _TASK[event.type]
            assert transitions.allowed(before, after), (before, event)
            self.tasks[event.task] = after
        if event.attempt is not None:
            self._feed_attempt(event, event.attempt)

    def _feed_attempt(self, event: Event, attempt: str) -> None:
        if event.type == "attempt.judged":
            self.outcomes[attempt] = event.data["outcome"]
        before = self.attempts.get(attempt)
        after = A(event.data["state"]) if event.type == "attempt.started" else _ATTEMPT.get(event.type)
        if after is A.LEASED:
            assert before is None, (before, event)
        elif event.type == "attempt.started":
            assert before is A.LEASED, (before, event)
        if after is A.COLLECTING:
            late = self.outcomes.get(attempt) == "lost" and event.data["outcome"] == "ok"
            assert late or attempt not in self.outcomes, ("finished twice", event)
            self.outcomes[attempt] = event.data["outcome"]
            assert late or before is None or transitions.allowed(before, after), (before, event)
        elif before is not None and after is not None:
            assert transitions.allowed(before, after), (before, event)
        if after is not None:
            self.attempts[attempt] = after
