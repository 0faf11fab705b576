"""What rules do when they fire: each step once, as an event, whoever is killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.daemon.alerts.actions import _take, due  # pyright: ignore[reportPrivateUsage]
from evalfleet.daemon.alerts.state import FIRED, RESOLVED
from evalfleet.engine.requests import barred
from evalfleet.model import DesiredState, HostState, RunState
from evalfleet.store.open import open_store
from evalfleet.store.store import Store


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with closing(open_store(home)) as store:
        yield store


def fire(store: Store, about: str, rule: str, action: str, **data: Any) -> int:
    store.events.note(
        about, FIRED, {"rule": rule, "subject": "", "severity": "warning", "message": "m", "action": action, **data}
    )
    return store.events.last_number()


def act(store: Store) -> list[str]:
    """Do all that is due, as the server does after each look."""
    steps = due(store)
    for step in steps:
        partial(_take, step, lambda _: None)(store)
    return [step.name for step in steps]


def acted(store: Store) -> list[tuple[str, str, bool]]:
    found = [event.data for event in store.events.alerts() if event.type == "alert.acted"]
    return [(data["step"], data["by"], "error" in data) for data in found]


def test_a_run_is_paused_once_by_the_rule(store: Store):
    run = cases.drive(store, 2)
    store.runs.leave(run)
    fire(store, run.id, "budget", "pause")
    assert (act(store), act(store)) == (["pause"], [])
    assert store.runs.get(run.id).state is RunState.PAUSED
    assert "alert budget" in str(store.runs.get(run.id).reason)
    asked = [event.data for event in store.events.of_run(run.id) if event.type == "run.requested"]
    assert [(data["verb"], data["by"]) for data in asked] == [("pause", "alert budget")]
    assert acted(store) == [("pause", "alert budget", False)]
    fire(store, run.id, "retry_rate", "pause")
    assert act(store) == ["pause"]
    assert acted(store)[-1] == ("pause", "alert retry_rate", True), "it was paused already, and that is said"
    assert act(store) == []


def test_what_is_told_only_or_over_is_left_alone(store: Store):
    run = cases.drive(store, 2)
    fire(store, run.id, "budget", "notify")
    number = fire(store, run.id, "budget", "pause")
    store.events.note(run.id, RESOLVED, {"alert": number})
    fire(store, run.id, "no_progress", "retry_elsewhere", attempts=[])
    assert act(store) == []


def test_a_host_that_is_not_ours_is_quarantined_until_it_is_well(store: Store):
    run = cases.drive(store, 2)
    cases.claimed(store, run)
    store.runs.leave(run)
    number = fire(store, "host:h1", "overload", "restart_worker", host="h1")
    assert (act(store), act(store)) == (["quarantine"], [])
    assert barred(store, run.id) == {"h1"}
    store.events.note("host:h1", RESOLVED, {"alert": number})
    assert (act(store), act(store)) == (["unquarantine"], [])
    assert barred(store, run.id) == frozenset()


def test_what_a_person_did_meanwhile_stands(store: Store):
    run = cases.drive(store, 2)
    cases.claimed(store, run)
    store.runs.leave(run)
    number = fire(store, "host:h1", "overload", "restart_worker", host="h1")
    act(store)
    store.events.note(run.id, "worker.quarantined", {"worker": "h1", "reason": "anna looks at it"})
    store.events.note("host:h1", RESOLVED, {"alert": number})
    assert act(store) == ["unquarantine"]
    assert barred(store, run.id) == {"h1"}


def test_a_machine_that_we_made_is_stopped_and_then_started(store: Store):
    store.pools.create("p", "azure-vm", {})
    pool = store.pools.take("p", "me")
    (host,) = store.hosts.request("p", "p-", [{}])
    cases.move_host(store, pool, replace(host, state=HostState.READY))
    number = fire(store, "host:p-1", "overload", "restart_worker", host="p-1")
    assert act(store) == ["stop"]
    (host,) = store.hosts.of_pool("p")
    assert host.desired is DesiredState.STOPPED
    store.events.note("host:p-1", RESOLVED, {"alert": number})  # it says nothing any more while it is off
    assert act(store) == [], "it is not off yet"
    store.hosts.move(pool, HostState.READY, replace(host, state=HostState.STOPPED))
    assert (act(store), act(store)) == (["start"], [])
    assert store.hosts.of_pool("p")[0].desired is DesiredState.RUNNING
    reasons = [event.data["reason"] for event in store.events.of_run("pool:p") if event.type == "worker.desired"]
    assert reasons == ["alert overload"] * 2


def test_a_host_that_nobody_uses_cannot_be_quarantined(store: Store):
    fire(store, "host:h9", "overload", "restart_worker", host="h9")
    assert (act(store), act(store)) == (["quarantine"], [])
    assert acted(store) == [("quarantine", "alert overload", True)]
