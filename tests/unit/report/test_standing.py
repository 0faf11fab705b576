"""How hosts stand, as views show it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.support.store import cases

from evalfleet.core.transitions import WORKER_EDGES
from evalfleet.model import Event, Policy, Requests, WorkerState
from evalfleet.report.live import live_state, parallel_live, standings, workers
from evalfleet.report.terminal.events import Feed
from evalfleet.report.terminal.lines import Line
from evalfleet.report.terminal.live import worker_lines
from evalfleet.store.attempts.records import Claim
from evalfleet.store.open import open_store


def told(*types: str | tuple[str, dict[str, Any]]) -> list[Event]:
    given = [(one, {}) if isinstance(one, str) else one for one in types]
    return [
        Event(number=n, run_id="r", at=0.0, type=kind, task=None, attempt=None, data={"host": "h", **data})
        for n, (kind, data) in enumerate(given)
    ]


BACK = ("worker.returned", {"from": "quarantined"})


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (told("run.taken"), None),
        (told("worker.suspected"), "suspect"),
        (told("worker.suspected", "worker.returned"), None),
        (told("worker.suspected", "worker.lost"), "lost"),
        (told("worker.suspected", "worker.lost", "worker.returned"), None),
        (told("worker.suspected", "run.taken"), None),
        (told("worker.draining", "worker.suspected", "worker.returned"), "draining"),
        (told("worker.draining", ("worker.returned", {"from": "draining"})), None),
        (told("worker.quarantined", "worker.canary_failed"), "quarantined"),
        (told("worker.quarantined", "worker.suspected", "worker.returned"), "quarantined"),
        (told("worker.quarantined", "worker.canary_passed", BACK), None),
        (told("worker.draining", "worker.lost", "worker.left"), "gone"),
        (told("worker.left", "worker.joined"), None),
    ],
)
def test_events_tell_how_a_host_stands(events: list[Event], state: str | None):
    assert standings(events).get("h") == state


VERBS = {
    "worker.suspected": "suspect",
    "worker.lost": "lose",
    "worker.draining": "drain",
    "worker.quarantined": "quarantine",
    "worker.canary_failed": "quarantine",
    "worker.left": "leave",
    "worker.joined": "join",
    "worker.returned": "answer",
    "worker.returned from quarantined": "unquarantine",
    "worker.returned from draining": "stay",
    "run.taken": "take",
}


def test_every_edge_is_taken_and_no_other():
    """Whatever holds of a host already, and whichever event comes next."""

    def after(*names: str) -> WorkerState:
        given = [name.split(" from ") for name in names]
        events = told(*((kind, {"from": rest[0]} if rest else {}) for kind, *rest in given))
        return standings(events).get("h", WorkerState.READY)

    taken: dict[tuple[WorkerState, WorkerState], set[str]] = {}
    for count in range(4):
        for history in product(VERBS, repeat=count):
            before = after(*history)
            for name, verb in VERBS.items():
                now = after(*history, name)
                if now is not before:
                    taken.setdefault((before, now), set()).add(verb)
    edges = {edge: set(verbs) for edge, verbs in WORKER_EDGES.items() if WorkerState.BUSY not in edge}
    assert taken == edges


def test_an_event_about_one_worker_says_nothing_of_a_host():
    one = Event(number=1, run_id="r", at=0.0, type="worker.quarantined", task=None, attempt=None, data={"worker": "w"})
    assert standings([one]) == {}


def plain(lines: list[Line]) -> str:
    return "\n".join("".join(span.text for span in one) for one in lines)


def test_views_show_hosts_that_are_not_well(home: Path):
    store = open_store(home)
    run = cases.drive(store, 2, Policy(workers=2))
    for number, host in ((1, "a"), (2, "b")):
        claim = Claim(task_number=number, worker=f"{host}-1", host=host, token="t", lease_s=60.0, requests=Requests())
        assert store.attempts.claim(run, claim)
    store.events.note(run.id, "worker.draining", {"host": "a", "reason": "Preempt"})
    shown = {line.name: line for line in workers(store, run)}
    assert (shown["a-1"].state, shown["a-1"].standing) == (WorkerState.BUSY, WorkerState.DRAINING)
    assert shown["b-1"].standing is None
    assert "draining" in plain(worker_lines(workers(store, run), 100))
    rows = {row["name"]: row["status"] for row in parallel_live(live_state(store, run))["workers"]}
    assert rows == {"a": "running", "b": "running"}  # in the words of that file, by the names of the machines
    store.close()


def test_a_line_says_why_a_host_gets_no_more_work():
    event = told(("worker.quarantined", {"reason": "3 tasks failed there"}))[0]
    line = Feed().line(event)
    assert line is not None
    assert "worker quarantined" in plain([line])
    assert "h: 3 tasks failed there" in plain([line])
