"""`vm_pool_registry.json`: tools that were written for such files read it as they read their own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evalfleet.model import DesiredState, HostState, Pool, PoolHost
from evalfleet.pools.registry_file import registry_text, write_registry


@dataclass
class Worker:
    """What a reader of such files knows of a worker; an unknown member would be its TypeError."""

    name: str
    ip: str
    status: str = "creating"
    docker_container: str = "winarena"
    waa_ready: bool = False
    assigned_tasks: list[str] = field(default_factory=list[str])
    completed_tasks: list[str] = field(default_factory=list[str])
    current_task: str | None = None
    error: str | None = None
    created_at: str = ""
    updated_at: str = ""


STATUSES = {"creating", "ready", "running", "completed", "failed", "deleted"}
POOL = Pool(
    name="waa",
    backend="azure-vm",
    settings={
        "workers": 2,
        "size": ["Standard_D8ds_v5"],
        "regions": ["eastus"],
        "benchmark": "waa",
        "account": {"subscription": "s", "resource_group": "evalfleet"},
    },
    created_at=1_767_364_252.0,
)


def host(state: HostState, desired: DesiredState = DesiredState.RUNNING, name: str = "waa-eval-1") -> PoolHost:
    return PoolHost(
        pool="waa",
        name=name,
        number=1,
        state=state,
        desired=desired,
        reason="why",
        readiness_check=None,
        facts={"address": "203.0.113.7", "region": "westus2"},
        usd_per_hour=0.4,
        kept_usd_per_hour=0.1,
        made_at=None,
        allocated_since=None,
        allocated_s=0.0,
        created_at=1_767_364_253.0,
        updated_at=1_767_364_254.0,
        gone_at=None,
    )


def read(*hosts: PoolHost) -> tuple[dict[str, Any], list[Worker]]:
    tally = {"current": "notepad/1-WOS"}
    tallies = {"total": 30, "completed": 12, "failed": 2, "hosts": {"waa-eval-1": tally}}
    keys = {"waa-eval-1": (["notepad/1-WOS", "clock/2-WOS"], ["clock/2-WOS"])}
    data = json.loads(registry_text(POOL, hosts, tallies, keys))
    return data, [Worker(**each) for each in data["workers"]]


def test_it_has_the_members_that_its_readers_ask_for():
    data, (first, second) = read(host(HostState.READY), host(HostState.PREPARING, name="waa-eval-2"))
    assert {name: value for name, value in data.items() if name != "workers"} == {
        "pool_id": "20260102_143052",
        "created_at": "2026-01-02T14:30:52+00:00",
        "resource_group": "evalfleet",
        "location": "westus2",
        "vm_size": "Standard_D8ds_v5",
        "total_tasks": 30,
        "completed_tasks": 12,
        "failed_tasks": 2,
    }
    assert (first.name, first.ip, first.status, first.waa_ready) == ("waa-eval-1", "203.0.113.7", "running", True)
    assert (first.assigned_tasks, first.completed_tasks) == (["notepad/1-WOS", "clock/2-WOS"], ["clock/2-WOS"])
    assert (first.current_task, first.docker_container) == ("notepad/1-WOS", "winarena")
    assert (second.status, second.waa_ready, second.assigned_tasks, second.current_task) == (
        "creating",
        False,
        [],
        None,
    )


@pytest.mark.parametrize("state", HostState)
def test_every_state_has_a_word_that_readers_know(state: HostState):
    _, (worker,) = read(host(state, name="other"))
    assert worker.status in STATUSES
    assert (worker.error is None) == (state not in (HostState.QUARANTINED, HostState.LOST, HostState.GONE))


def test_a_reader_never_sees_half_of_it(tmp_path: Path):
    path = tmp_path / "pools" / "waa" / "vm_pool_registry.json"
    write_registry(path, "{}")
    write_registry(path, "{}\n")
    assert [each.name for each in path.parent.iterdir()] == [path.name]
