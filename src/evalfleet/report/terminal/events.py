"""Events as lines of text: those worth a line, for logs and pipes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from evalfleet.answers.runs import EventRow
from evalfleet.model import Event, JsonObject
from evalfleet.report import text
from evalfleet.report.terminal.lines import Line, Span, Style, line

# How each event moves the number of settled tasks. One that is asked for anew was settled before.
_SETTLED = {"task.done": 1, "task.failed": 1, "task.held": 1, "task.cancelled": 1, "task.released": -1}

_STYLES = {
    "failed": Style.BAD,
    "held": Style.WARN,
    "retried": Style.WARN,
    "paused": Style.WARN,
    "crowded": Style.WARN,
    "opened": Style.WARN,
    "draining": Style.WARN,
    "quarantined": Style.WARN,
    "completed": Style.GOOD,
    "cancelled": Style.WARN,
}


def settled_by(event: Event) -> int:
    """By how much the event raises the number of tasks that nothing more happens to."""
    if event.type == "task.retried":
        return -1 if event.attempt is None else 0
    return _SETTLED.get(event.type, 0)


def clock(at: float, *, date: bool = False) -> str:
    """The local time of day."""
    return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S", time.localtime(at))


def event_row(event: Event) -> EventRow:
    """An event as programs get it."""
    return EventRow.copy_of(event, run=event.run_id)


class Feed:
    """Turns events, given in their order, into lines. Remembers how an attempt ended until its task's event comes."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._ends: dict[str, JsonObject] = {}

    def line(self, event: Event, progress: str = "") -> Line | None:
        """Return the event's line, or None if it is not worth one. `progress` comes before it ("3/10")."""
        if event.type == "attempt.finished" and event.attempt:
            self._ends[event.attempt] = event.data
            return None
        say = _SAYERS.get(event.type) or (_VERBOSE_SAYERS.get(event.type) if self._verbose else None)
        if say is None:
            return None
        end = self._ends.pop(event.attempt, {}) if event.attempt and event.type.startswith("task.") else {}
        subject, _, verb = event.type.partition(".")
        word = f"{subject} {verb}" if subject in ("run", "breaker", "lease", "worker") else verb
        style = _STYLES.get(verb, Style.PLAIN)
        if event.type == "task.done":
            word, style = ("passed", Style.GOOD) if event.data["success"] else ("not passed", Style.PLAIN)
        said = text.printable(say(event, end))
        key = [Span(text.printable(event.task), Style.STRONG), "  "] if event.task is not None else []
        return line(
            Span(clock(event.at), Style.FAINT),
            f" {f'[{progress}] ' if progress else ''}",
            Span(f"{word:<14}", style),
            " ",
            *key,
            said,
        )


def _verdict(event: Event, end: JsonObject) -> str:
    said = f"score {event.data['score']:g}"
    if end:
        said += f", {text.span(end['duration_s'])} on {end['worker']}"
    return said


def _reason(event: Event, end: JsonObject) -> str:
    if end.get("kind"):
        return f"{end['kind']}, blamed on {end['blame']}: {end['evidence']}"
    return str(event.data.get("reason") or "")


def _retried(event: Event, end: JsonObject) -> str:
    said = _reason(event, end)
    wait = event.data.get("not_before", 0.0) - event.at
    return f"{said}; again in {text.span(wait)}" if wait > 0.5 else said


def _message(event: Event, _end: JsonObject) -> str:
    return ": ".join(str(event.data[name]) for name in ("cause", "message") if event.data.get(name))


def _breaker(event: Event, _end: JsonObject) -> str:
    return str(event.data.get("cause") or "")


def _requested(event: Event, _end: JsonObject) -> str:
    return f"{event.data.get('verb')} by {event.data.get('by')}"


def _worker(event: Event, _end: JsonObject) -> str:
    return ", ".join(f"{name} {value}" for name, value in event.data.items())


def _host(event: Event, _end: JsonObject) -> str:
    why = event.data.get("reason") or event.data.get("message")
    return f"{event.data.get('host')}: {why}" if why else str(event.data.get("host"))


def _claimed(event: Event, _end: JsonObject) -> str:
    return f"attempt {event.data.get('number')} on {event.data.get('worker')}"


def notes_of(event: Event) -> list[str]:
    """What an attempt told people in this event."""
    return [str(one["note"]) for one in _objects(event.data.get("lines")) if one.get("note")]


def _progressed(event: Event, _end: JsonObject) -> str:
    notes = notes_of(event)
    step = event.data.get("step")
    return " ".join(([f"step {step}"] if step is not None else []) + notes[-1:])


def _objects(lines: Any) -> list[JsonObject]:
    return [cast("JsonObject", one) for one in cast("list[object]", lines or []) if isinstance(one, dict)]


def _nothing(_event: Event, _end: JsonObject) -> str:
    return ""


_SAYERS: dict[str, Callable[[Event, JsonObject], str]] = {
    "task.done": _verdict,
    "task.retried": _retried,
    "task.failed": _reason,
    "task.held": _reason,
    "task.released": _nothing,
    "task.cancelled": _reason,
    "run.crowded": _message,
    "breaker.opened": _breaker,
    "breaker.closed": _nothing,
    "worker.awaited": _reason,
    "worker.disk_full": _reason,
    "worker.draining": _host,
    "worker.quarantined": _host,
    "worker.left": _host,
    "run.started": _nothing,
    "run.resumed": _nothing,
    "run.requested": _requested,
    "run.paused": _message,
    "run.completed": _nothing,
    "run.cancelled": _nothing,
}

_VERBOSE_SAYERS: dict[str, Callable[[Event, JsonObject], str]] = {
    "attempt.claimed": _claimed,
    "attempt.readied": _nothing,
    "attempt.progressed": _progressed,
    "attempt.judged": _worker,
    "breaker.probed": _breaker,
    "run.taken": _worker,
    "run.left": _nothing,
    "worker.suspected": _worker,
    "worker.lost": _worker,
    "worker.returned": _worker,
    "worker.granted": _nothing,
    "worker.joined": _host,
    "worker.canary_passed": _host,
    "worker.canary_failed": _host,
}
