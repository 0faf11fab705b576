"""A run as a trace, made of its events alone."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.core.tracing import Severity, Span, TraceBuilder, trace_id_of
from evalfleet.model import Event

RUN = "gvkwjgf6"


def event(place: int, type: str, task: str | None = None, attempt: str | None = None, /, **data: Any) -> Event:
    return Event(number=place, run_id=RUN, at=float(place), type=type, task=task, attempt=attempt, data=data)


def lines(*steps: int) -> dict[str, Any]:
    return {"step": steps[-1], "lines": [{"step": step, "cost_usd": 0.5} for step in steps]}


EVENTS = [
    event(1, "run.submitted", name="nightly", tasks=2),
    event(2, "run.taken", owner="me", epoch=1),
    event(3, "run.started"),
    event(10, "attempt.claimed", "a", "r.1.1", number=1, worker="h-1"),
    event(11, "attempt.started", "a", "r.1.1", worker="h-1", state="running"),
    event(13, "attempt.progressed", "a", "r.1.1", **lines(1)),
    event(17, "attempt.progressed", "a", "r.1.1", **lines(1, 2, 3)),
    event(18, "attempt.finished", "a", "r.1.1", outcome="task_error", kind="exit", blame="task", evidence="boom", worker="h-1"),
    event(19, "task.retried", "a", "r.1.1", reason="boom"),
    event(20, "attempt.claimed", "a", "r.1.2", number=2, worker="h-2"),
    event(25, "attempt.finished", "a", "r.1.2", outcome="ok", worker="h-2", cost_usd=0.25),
    event(26, "task.done", "a", "r.1.2", score=1.0, success=True),
    event(27, "task.cancelled", "b", reason="never begun"),
    event(28, "run.completed"),
]  # fmt: skip


def spans_of(events: list[Event], builder: TraceBuilder | None = None) -> list[Span]:
    made = builder or TraceBuilder(RUN)
    return [span for one in events for span in made.feed(one)[0]]


def test_a_run_is_a_tree_of_spans():
    spans = spans_of(EVENTS)
    shown = [(span.name, span.begin, span.end, span.error) for span in spans]
    assert shown == [
        ("step", 11.0, 13.0, None),
        ("step", 13.0, 15.0, None),
        ("step", 15.0, 17.0, None),
        ("attempt", 10.0, 18.0, "boom"),
        ("attempt", 20.0, 25.0, None),
        ("task", 10.0, 26.0, None),
        ("run", 1.0, 28.0, None),
    ]
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    parents = [by_id[span.parent_id].name if span.parent_id else None for span in spans]
    assert parents == [*["attempt"] * 3, "task", "task", "run", None]
    assert {span.trace_id for span in spans} == {trace_id_of(RUN)}
    assert spans[3].attributes["evalfleet.attempt.kind"] == "exit"
    assert spans[3].marks == ((10.0, "claimed"), (11.0, "started"))
    assert spans[5].attributes["evalfleet.task.score"] == 1.0
    assert spans[6].attributes["evalfleet.run.name"] == "nightly"


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_a_controller_that_reads_again_goes_on_with_the_same_trace(cut: int):
    before = spans_of(EVENTS[:cut])
    builder = TraceBuilder(RUN)
    spans_of(EVENTS[:cut], builder)
    assert before + spans_of(EVENTS[cut:], builder) == spans_of(EVENTS)


def test_a_task_that_is_tried_again_after_its_end_is_another_span():
    again = [
        event(40, "run.resumed"),
        event(41, "attempt.claimed", "a", "r.1.3", number=3, worker="h-1"),
        event(44, "attempt.finished", "a", "r.1.3", outcome="ok", worker="h-1"),
        event(45, "task.done", "a", "r.1.3", score=1.0),
        event(46, "run.completed"),
    ]
    spans = spans_of([*EVENTS, *again])
    assert len({span.span_id for span in spans}) == len(spans)
    attempt, task, run = spans[-3:]
    assert (attempt.parent_id, task.parent_id, run.parent_id) == (task.span_id, run.span_id, None)
    assert (task.begin, run.begin) == (41.0, 40.0)


def test_a_late_verdict_belongs_to_the_task_that_it_was_claimed_for():
    spans = spans_of([*EVENTS[:-1], event(30, "attempt.finished", "a", "r.1.1", outcome="ok", worker="h-1")])
    task = next(span for span in spans if span.name == "task")
    assert spans[-1].parent_id == task.span_id
    assert len({span.span_id for span in spans}) == len(spans)


def test_every_event_but_progress_is_a_log_of_its_span():
    builder = TraceBuilder(RUN)
    told = [(one, *builder.feed(one)) for one in EVENTS]
    spans = {span.span_id: span.name for _, some, _ in told for span in some}
    logs = {one.number: log for one, _, log in told}
    assert [number for number, log in logs.items() if log is None] == [13, 17]
    shown = {number: (spans.get(log.span_id), log.severity) for number, log in logs.items() if log is not None}
    assert shown[1] == ("run", Severity.INFO)
    assert shown[18] == ("attempt", Severity.WARN)
    assert shown[25][1] is Severity.INFO


@pytest.mark.parametrize("strange", [None, "x", [], {"step": 1}, [7], [{"step": "two"}], [{"step": 0}], [{"note": 1}]])
def test_lines_of_any_shape_break_nothing(strange: object):
    builder = TraceBuilder(RUN)
    spans_of(EVENTS[:5], builder)
    assert builder.feed(event(12, "attempt.progressed", "a", "r.1.1", lines=strange))[0] == []
