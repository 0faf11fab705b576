"""Telemetry of real runs, as a collector reads it: one trace across a kill -9, and none of the run's time for a dead one."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter

import pytest
from tests.support.collector import Collector, attributes, collecting
from tests.support.fleet import Fleet, wait_for

STEPS = (
    'for step in 1 2 3; do echo "{\\"step\\": $step}" >> $EVALFLEET_EVENTS; sleep 0.3; done; '
    "echo begun >> ledger; until [ -e gate ]; do sleep 0.05; done"
)


def configure(fleet: Fleet, endpoint: str) -> None:
    (fleet.folder / "evalfleet.toml").write_text(f'[otel]\nendpoint = "{endpoint}"\ninterval = "1s"\n')


def tree(collector: Collector) -> set[tuple[str, str | None]]:
    """Each span as its name and that of its parent. A parent that never came is a KeyError."""
    names = {span.span_id: span.name for span in collector.spans()}
    return {(span.name, names[span.parent_span_id] if span.parent_span_id else None) for span in collector.spans()}


def numbers(collector: Collector) -> list[int]:
    return [attributes(record)["evalfleet.event.number"] for record in collector.logs()]


def test_a_run_that_is_killed_and_resumed_is_one_trace(fleet: Fleet):
    with collecting() as collector:
        configure(fleet, "http://127.0.0.1:1")  # the variable counts more
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=hunter2"}
        rows = [
            {"key": "slow", "command": ["sh", "-c", STEPS]},
            {"key": "bad", "command": ["sh", "-c", "echo sorry >&2; exit 3"]},
        ]
        first = fleet.start("run", fleet.tasks(rows, attempts=1), "--workers", "2", **env)
        wait_for(
            lambda: collector.spans("step") and fleet.lines() and collector.spans("task"), "spans of live attempts"
        )
        first.kill()
        first.communicate()
        before = {span.span_id for span in collector.spans()}
        (fleet.folder / "gate").touch()
        assert fleet.command("resume", **env).returncode == 0
        assert before
        assert tree(collector) == {("run", None), ("task", "run"), ("attempt", "task"), ("step", "attempt")}
        spans = {span.span_id: span for span in collector.spans()}
        assert Counter(span.name for span in spans.values()) == {"run": 1, "task": 2, "attempt": 2, "step": 3}
        assert len({span.trace_id for span in spans.values()}) == 1
        # What was sent twice, because the controller died before it wrote that down, is the same.
        assert len({span.SerializeToString() for span in collector.spans()}) == len(spans)
        bad = next(one for one in collector.spans("attempt") if attributes(one)["evalfleet.task.key"] == "bad")
        assert (bad.status.code, attributes(bad)["evalfleet.attempt.outcome"]) == (2, "task_error")
        told = [event["number"] for event in fleet.events() if event["type"] != "attempt.progressed"]
        assert sorted(set(numbers(collector))) == told
        points = collector.points()
        last = {attributes(one)["evalfleet.state"]: one.as_double for one in points["evalfleet.run.tasks"]}
        assert (last["done"], last["failed"]) == (1.0, 1.0)
        assert {headers["api-key"] for headers in collector.headers} == {"hunter2"}
        assert not any(b"hunter2" in file.read_bytes() for file in fleet.home.rglob("*") if file.is_file())


@pytest.mark.slow
def test_a_dead_collector_costs_no_time_and_is_told_everything_later(fleet: Fleet):
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections and never answers
        configure(fleet, f"http://127.0.0.1:{deaf.getsockname()[1]}")
        quick = fleet.tasks([{"key": f"t_{n}", "command": ["true"]} for n in range(20)])
        begun = time.monotonic()
        done = fleet.command("run", quick, "--workers", "4", "--json", OTEL_EXPORTER_OTLP_TIMEOUT="60000")
        took_s = time.monotonic() - begun
        assert done.returncode == 0, done.stderr
        events = fleet.events()
        summary = json.loads(done.stdout)
        assert summary["tasks"]["done"] == 20
        assert took_s < summary["duration_s"] + 40  # not the 60 s that an answer is waited for
        run = summary["run"]
    with collecting() as collector:
        configure(fleet, collector.url)
        later = fleet.start(
            "run", fleet.tasks([{"key": "wait", "command": ["sh", "-c", "until [ -e gate ]; do sleep 0.1; done"]}])
        )
        number = next(event["number"] for event in events if event["type"] == "run.completed")
        try:
            wait_for(lambda: number in numbers(collector), "the rest of the run before")
        finally:
            (fleet.folder / "gate").touch()
            later.communicate()
        old = [span for span in collector.spans() if attributes(span)["evalfleet.run.id"] == run]
        assert Counter(span.name for span in old) == {"run": 1, "task": 20, "attempt": 20}
        told = Counter(numbers(collector))
        assert all(told[event["number"]] == 1 for event in events if event["type"] != "attempt.progressed")


def test_nothing_is_loaded_where_no_endpoint_is_named(fleet: Fleet):
    (fleet.folder / "opentelemetry").mkdir()
    (fleet.folder / "opentelemetry" / "__init__.py").write_text("raise SystemExit('loaded')")
    task = fleet.tasks([{"key": "a", "command": ["true"]}])
    assert fleet.command("run", task, PYTHONPATH=str(fleet.folder)).returncode == 0
    assert not list(fleet.home.glob("runs/*/telemetry.*"))


def test_a_missing_package_is_said_and_the_run_goes_on(fleet: Fleet):
    (fleet.folder / "opentelemetry").mkdir()
    (fleet.folder / "opentelemetry" / "__init__.py").write_text("raise ImportError('none')")
    task = fleet.tasks([{"key": "a", "command": ["true"]}])
    done = fleet.command("run", task, PYTHONPATH=str(fleet.folder), OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert done.returncode == 0, done.stderr
    assert "pip install 'evalfleet[otel]'" in done.stderr
