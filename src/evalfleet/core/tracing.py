"""A run as a trace: run, tasks, attempts and steps as spans, made of the run's events. Pure.

All ids come from the ids of run, task and attempt. So a controller that goes on after a crash continues the same trace, and
a span that is sent again replaces itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, TypeAlias, cast

from msgspec import Struct, field

from evalfleet.model import Event, Outcome

Value: TypeAlias = str | int | float | bool
_ENDED_RUN = ("run.completed", "run.cancelled")
_ENDED_TASK = ("task.done", "task.failed", "task.held", "task.cancelled")
_FAILED_TASK = ("task.failed", "task.held")
_OF_ATTEMPT = ("outcome", "worker", "duration_s", "cost_usd", "kind", "blame", "evidence")


class Severity(IntEnum):
    """As OpenTelemetry numbers them."""

    INFO = 9
    WARN = 13
    ERROR = 17


_SEVERITIES = {
    **dict.fromkeys(("task.failed", "task.held", "worker.lost", "breaker.opened", "alert.fired"), Severity.ERROR),
    **dict.fromkeys(("task.retried", "run.paused", "worker.suspected", "worker.quarantined"), Severity.WARN),
    **dict.fromkeys(
        ("attempt.uncollected", "run.troubled", "files.unreachable", "breaker.probed", "worker.draining"), Severity.WARN
    ),
}


class Span(Struct, frozen=True, kw_only=True):
    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    begin: float
    end: float
    attributes: Mapping[str, Value]
    error: str | None = None  # why it did not go well
    marks: tuple[tuple[float, str], ...] = ()  # what happened within it


class Log(Struct, frozen=True, kw_only=True):
    """An event of the run, and the span that it belongs to."""

    event: Event
    trace_id: bytes
    span_id: bytes
    severity: Severity


class _Open(Struct):
    """What is known of something that has begun."""

    begin: float | None = None  # None: not yet
    turn: int = 1  # a task or run that was over may be opened again, and an attempt that was given up may come back
    attributes: dict[str, Value] = field(default_factory=dict[str, Value])
    marks: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    parent_id: bytes | None = None  # of an attempt: the span of its task when it was claimed
    step: int = 0
    stepped_at: float | None = None


def trace_id_of(run_id: str) -> bytes:
    return hashlib.sha256(f"evalfleet run {run_id}".encode()).digest()[:16]


def span_id_of(run_id: str, kind: str, name: str = "", turn: int = 1) -> bytes:
    return hashlib.sha256(f"evalfleet {kind} {run_id} {name} {turn}".encode()).digest()[:8]


class TraceBuilder:
    """Takes the events of one run in their order."""

    def __init__(self, run_id: str) -> None:
        self._id = run_id
        self._trace_id = trace_id_of(run_id)
        self._run = _Open()
        self._tasks: dict[str, _Open] = {}
        self._attempts: dict[str, _Open] = {}

    def feed(self, event: Event) -> tuple[list[Span], Log | None]:
        """The spans that end with the event, and its log record; progress of an attempt is told by spans alone."""
        log = None if event.type == "attempt.progressed" else self._log(event)
        return list(self._spans(event)), log

    def _log(self, event: Event) -> Log:
        severity = _SEVERITIES.get(event.type, Severity.INFO)
        if event.type == "attempt.finished" and event.data.get("outcome") != Outcome.OK:
            severity = Severity.WARN
        return Log(event=event, trace_id=self._trace_id, span_id=self._place(event), severity=severity)

    def _place(self, event: Event) -> bytes:
        if event.attempt is not None and event.task is not None:
            return self._attempt_id(event.attempt)
        return self._run_id() if event.task is None else self._task_id(event.task)

    def _run_id(self) -> bytes:
        return span_id_of(self._id, "run", turn=self._run.turn)

    def _task_id(self, key: str) -> bytes:
        return span_id_of(self._id, "task", key, self._tasks.setdefault(key, _Open()).turn)

    def _attempt_id(self, attempt: str) -> bytes:
        return span_id_of(self._id, "attempt", attempt, self._attempts.setdefault(attempt, _Open()).turn)

    def _spans(self, event: Event) -> Iterator[Span]:
        if event.type == "run.submitted":
            self._run.attributes = _plain({"evalfleet.run.name": event.data.get("name")})
        if self._run.begin is None and event.type in ("run.submitted", "run.started", "run.resumed", "run.opened"):
            self._run.begin = event.at
        if event.attempt is not None and event.task is not None:
            yield from self._of_attempt(event, event.attempt, event.task)
        if event.task is not None and event.type in _ENDED_TASK:
            yield from self._task_ended(event, event.task)
        if event.type in _ENDED_RUN:
            attributes = {"evalfleet.run.state": event.type.removeprefix("run.")}
            yield self._ended("run", self._run, event.at, self._run_id(), None, attributes)
            self._run = _Open(turn=self._run.turn + 1, attributes=self._run.attributes)

    def _of_attempt(self, event: Event, attempt: str, key: str) -> Iterator[Span]:
        task = self._tasks.setdefault(key, _Open())
        found = self._attempts.setdefault(attempt, _Open())
        match event.type:
            case "attempt.claimed":
                found.begin, found.parent_id = event.at, self._task_id(key)
                task.begin = event.at if task.begin is None else task.begin
                found.attributes = _plain({"evalfleet.attempt.number": event.data.get("number")})
                found.marks.append((event.at, "claimed"))
            case "attempt.started" | "attempt.readied":
                found.marks.append((event.at, event.type.removeprefix("attempt.")))
                found.stepped_at = event.at
            case "attempt.progressed":
                yield from self._steps(event, attempt, found)
            case "attempt.finished":
                parent = found.parent_id or self._task_id(key)
                told = {f"evalfleet.attempt.{name}": event.data.get(name) for name in _OF_ATTEMPT}
                attributes = _plain({**told, "evalfleet.task.key": key, "evalfleet.attempt.id": attempt})
                outcome = str(event.data.get("outcome"))
                error = None if outcome == Outcome.OK else str(event.data.get("evidence") or outcome)
                yield self._ended("attempt", found, event.at, self._attempt_id(attempt), parent, attributes, error)
                self._attempts[attempt] = _Open(
                    turn=found.turn + 1, begin=event.at, attributes=found.attributes, parent_id=parent
                )
            case _:
                pass

    def _steps(self, event: Event, attempt: str, found: _Open) -> Iterator[Span]:
        """The steps that were reported new. Those of one report share the time since the report before."""
        lines = cast("list[Any]", event.data.get("lines") or [])
        told = [cast("dict[str, Any]", line) for line in lines if isinstance(line, dict)]
        new = [line for line in told if isinstance(step := line.get("step"), int) and step > found.step]
        new = list({line["step"]: line for line in new}.values())
        begin = found.stepped_at or found.begin or event.at
        each_s = max(0.0, event.at - begin) / max(1, len(new))
        parent = self._attempt_id(attempt)
        for place, line in enumerate(new):
            found.step = max(found.step, line["step"])
            yield Span(
                name="step",
                trace_id=self._trace_id,
                span_id=span_id_of(self._id, "step", f"{attempt} {line['step']}", found.turn),
                parent_id=parent,
                begin=begin + place * each_s,
                end=begin + (place + 1) * each_s,
                attributes=_plain(
                    {
                        "evalfleet.run.id": self._id,
                        "evalfleet.attempt.id": attempt,
                        "evalfleet.step": line["step"],
                        "evalfleet.step.cost_usd": line.get("cost_usd"),
                    }
                ),
            )
        if new:
            found.stepped_at = event.at

    def _task_ended(self, event: Event, key: str) -> Iterator[Span]:
        task = self._tasks.setdefault(key, _Open())
        if task.begin is None:
            return  # it never began
        attributes = _plain(
            {
                "evalfleet.task.key": key,
                "evalfleet.task.state": event.type.removeprefix("task."),
                "evalfleet.task.score": event.data.get("score"),
                "evalfleet.task.success": event.data.get("success"),
            }
        )
        error = str(event.data.get("reason") or event.type) if event.type in _FAILED_TASK else None
        yield self._ended("task", task, event.at, self._task_id(key), self._run_id(), attributes, error)
        self._tasks[key] = _Open(turn=task.turn + 1)

    def _ended(
        self,
        name: str,
        found: _Open,
        end: float,
        span_id: bytes,
        parent_id: bytes | None,
        attributes: Mapping[str, Value],
        error: str | None = None,
    ) -> Span:
        return Span(
            name=name,
            trace_id=self._trace_id,
            span_id=span_id,
            parent_id=parent_id,
            begin=min(end, end if found.begin is None else found.begin),
            end=end,
            attributes={"evalfleet.run.id": self._id, **found.attributes, **attributes},
            error=error,
            marks=tuple(found.marks),
        )


def _plain(values: Mapping[str, object]) -> dict[str, Value]:
    """Those that are known, in types that every back end takes."""
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}
