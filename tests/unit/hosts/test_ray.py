"""Pools on Ray without a cluster: options, errors, and how the fleet follows what a gateway says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from evalfleet.config import Settings
from evalfleet.errors import HostRefused, HostUnreachable, InputError
from evalfleet.hosts.ray import fleet as fleet_module
from evalfleet.hosts.ray.connection import RayConnection, refusal
from evalfleet.hosts.ray.fleet import RayFleet
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool
from evalfleet.pools.kinds.ray import KIND
from evalfleet.runner.gpu import devices

HERE = Settings(home=Path())
DEADLINE_S = 30.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "address: is missing"),
        ({"min": 3, "max": 2}, "min 3 is more than max 2"),
        ({"options": {"cpu": "1"}}, "option cpu: is not known.*cpus"),
        ({"options": {"cpus": "many"}}, "option cpus: must be a number"),
        ({"options": {"cpus": "nan"}}, "option cpus: must be a number"),
        ({"options": {"gpus": "0.5"}}, "option gpus: must be a whole number"),
        ({"options": {"resources": "fast"}}, "resources fast: must be a number"),
        ({"options": {"resources": ""}}, "NAME:COUNT"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], said: str):
    given = options if not options else {"address": "auto", **options}
    with pytest.raises(InputError, match=said):
        KIND.settings(given, HERE)


def test_options_become_requests_of_ray():
    own = {"cpus": "0.5", "gpus": "2", "resources": "fast:1+tpu:4", "price": "1.2"}
    kept = KIND.settings({"address": "auto", "workers": 8, "slots": 2, "idle": 30.0, "options": own}, HERE)
    pool = Pool(name="lab", backend="ray", settings=kept, created_at=0.0)
    assert kept["resources"] == {"fast": 1.0, "tpu": 4.0}
    assert (kept["cpus"], kept["gpus"], kept["max"], kept["min"], kept["idle_s"]) == (0.5, 2, 8, 0, 30.0)
    assert KIND.slots(pool) == 16
    assert [host.name for host in KIND.hosts(pool, ())][::7] == ["lab-1", "lab-8"]


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.9.3
    Python: 3.10.4
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


def test_another_version_of_the_cluster_is_named_with_the_remedy():
    error = refusal("ray://head:10001", {"error": "RuntimeError", "message": MISMATCH})
    assert isinstance(error, HostRefused)
    assert "runs Ray 2.9.3 with Python 3.10.4, and this evalfleet has Ray 2.60.0 with Python 3.11.7" in str(error)
    assert "ray==2.9.3" in str(error)


def test_an_address_without_a_cluster_says_what_to_do():
    error = refusal("head:6379", {"error": "ConnectionError", "message": "Could not find any running Ray instance"})
    assert isinstance(error, HostUnreachable)
    assert "no Ray cluster answers at head:6379; start one with `ray start --head`" in str(error)


@pytest.mark.parametrize(
    ("given", "left"),
    [(None, [0, 1, 2]), ("", []), ("1", [1]), ("2, 0", [0, 2]), ("GPU-a1", [1]), ("10", []), ("GPU-a0,GPU-a2", [0, 2])],
)
def test_a_runner_uses_the_gpus_that_it_was_given(monkeypatch: pytest.MonkeyPatch, given: str | None, left: list[int]):
    monkeypatch.delenv(devices.GIVEN, raising=False)
    if given is not None:
        monkeypatch.setenv(devices.GIVEN, given)
    rows: list[JsonObject] = [{"index": number, "uuid": f"GPU-a{number}"} for number in range(3)]
    assert [row["index"] for row in devices.given(rows)] == left


def test_nodes_need_no_evalfleet():
    """The actor's class travels by value: it is made where evalfleet cannot be imported."""
    make = (
        "import sys; from ray import cloudpickle; from evalfleet.hosts.ray import actor; "
        "cloudpickle.register_pickle_by_value(actor); sys.stdout.buffer.write(cloudpickle.dumps(actor.RunnerActor))"
    )
    take = (
        "import sys, pickle; sys.modules['evalfleet'] = None; import ray.cloudpickle; "
        "print(pickle.load(sys.stdin.buffer).__name__)"
    )
    data = subprocess.run([sys.executable, "-c", make], check=True, capture_output=True).stdout
    told = subprocess.run([sys.executable, "-c", take], input=data, check=True, capture_output=True).stdout
    assert told.strip() == b"RunnerActor"


class Cluster:
    """Stands for a gateway: actors as a test says, and what was asked for."""

    address = "auto"

    def __init__(self) -> None:
        self.actors: dict[str, JsonObject] = {}
        self.ended: list[str] = []
        self.draining: list[str] = []
        self.trouble: str | None = None
        self.starts = True  # actors that are asked for start at once
        self.is_closed = False

    async def ask(self, do: str, **fields: Any) -> JsonObject:
        if self.trouble is not None:
            raise HostUnreachable(self.trouble)
        name = fields.get("name", "").rpartition("/")[2]
        if do == "create":
            self.actors[name] = {"state": "alive" if self.starts else "pending", "facts": {"node": f"node of {name}"}}
        elif do == "end":
            self.ended.append(name)
            self.actors.pop(name, None)
        elif do == "list":
            dead = {"reason": "its node died", "preempted": False}
            rows = {f"{fields['prefix']}{host}": {**dead, **row} for host, row in self.actors.items()}
            return {"actors": rows, "draining": list(self.draining)}
        return {}

    async def aclose(self) -> None:
        self.is_closed = True


class Driven:
    def __init__(self, fleet: RayFleet, cluster: Cluster, loads: dict[str, int], said: list[str]) -> None:
        self.fleet = fleet
        self.cluster = cluster
        self.loads = loads
        self.said = said

    @property
    def hosts(self) -> list[str]:
        return [one.name for one in self.fleet.backends()]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(DEADLINE_S):
            while not condition():  # noqa: ASYNC110
                await anyio.sleep(0.005)


@asynccontextmanager
async def driven(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, used: tuple[str, ...] = (), **settings: Any
) -> AsyncIterator[Driven]:
    monkeypatch.setattr(fleet_module, "LOOK_S", 0.01)
    monkeypatch.setattr(fleet_module, "AGAIN_S", 0.05)
    monkeypatch.setattr(fleet_module, "SETTLE_S", 0.02)
    monkeypatch.setattr(fleet_module, "RayConnection", lambda _address: cluster)
    kept = {"address": "auto", "max": 4, "idle_s": 0.05, **settings}
    pool = Pool(name="lab", backend="ray", settings=kept, created_at=0.0)
    loads: dict[str, int] = {}
    said: list[str] = []
    fleet = RayFleet(Home(Path(), "home1"), pool, lambda text: said.append(str(text)), lambda: loads, used)
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.serve)
        yield Driven(fleet, cluster, loads, said)
        group.cancel_scope.cancel()
    assert cluster.is_closed


@pytest.mark.anyio
async def test_actors_follow_the_demand_of_all_runs_up_to_the_limit(monkeypatch: pytest.MonkeyPatch):
    async with driven(monkeypatch, Cluster(), slots=2) as found:
        found.fleet.want(3)
        await found.until(lambda: found.hosts == ["lab-1", "lab-2"])
        found.loads["lab-1"] = 2  # another run has it
        await found.until(lambda: found.hosts == ["lab-1", "lab-2", "lab-3"])
        found.fleet.want(100)
        await found.until(lambda: len(found.hosts) == 4)
        assert len(found.cluster.actors) == 4


@pytest.mark.anyio
async def test_idle_workers_are_released_down_to_the_minimum(monkeypatch: pytest.MonkeyPatch):
    async with driven(monkeypatch, Cluster(), min=1) as found:
        found.fleet.want(3)
        await found.until(lambda: len(found.hosts) == 3)
        found.fleet.busy("lab-3", 1)
        found.loads["lab-3"] = 1
        found.fleet.want(1)
        await found.until(lambda: found.hosts == ["lab-3"])
        await found.until(lambda: sorted(found.cluster.ended) == ["lab-1", "lab-2"])
        assert found.fleet.departure("lab-1") is not None
        found.fleet.want(0)
        found.fleet.busy("lab-3", 0)
        found.loads.clear()
        await anyio.sleep(0.2)
        assert found.hosts == ["lab-3"], "the minimum stays while the run goes on"


@pytest.mark.parametrize("preempted", [False, True])
@pytest.mark.anyio
async def test_a_dead_actor_departs_and_another_one_takes_its_place(monkeypatch: pytest.MonkeyPatch, preempted: bool):
    async with driven(monkeypatch, Cluster()) as found:
        found.fleet.want(1)
        await found.until(lambda: found.hosts == ["lab-1"])
        (before,) = found.fleet.backends()
        assert found.fleet.departure("lab-1") is None
        found.cluster.starts = False
        found.cluster.actors["lab-1"] |= {"state": "dead", "preempted": preempted}
        await found.until(lambda: not found.hosts)
        departure = found.fleet.departure("lab-1")
        assert departure is not None
        assert departure.cause == ("preempted" if preempted else "worker_lost")
        await found.until(lambda: found.cluster.actors["lab-1"]["state"] == "pending")
        await found.until(lambda: "1 actors wait in the Ray cluster for a node with 1 CPU" in found.fleet.waits_for())
        found.cluster.actors["lab-1"]["state"] = "alive"
        await found.until(lambda: found.hosts == ["lab-1"])
        assert found.fleet.backends()[0] is not before


@pytest.mark.anyio
async def test_a_silent_cluster_says_nothing_about_its_actors(monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster()
    cluster.trouble = "no Ray cluster answers"
    async with driven(monkeypatch, cluster, used=("lab-2", "elsewhere")) as found:
        await found.until(lambda: found.said)
        assert found.hosts == ["lab-2"], "it may hold attempts of the run"
        assert found.fleet.departure("lab-1") is None
        assert "no Ray cluster answers" in found.fleet.waits_for()
        cluster.trouble = None
        await found.until(lambda: found.fleet.departure("lab-2") is not None)
        assert len(found.said) == 1


@pytest.mark.anyio
async def test_a_node_that_will_be_taken_away_gets_no_more_work(monkeypatch: pytest.MonkeyPatch):
    async with driven(monkeypatch, Cluster()) as found:
        found.fleet.want(2)
        await found.until(lambda: len(found.hosts) == 2)
        found.cluster.draining.append("node of lab-2")
        await found.until(lambda: set(found.fleet.draining()) == {"lab-2"})
        assert found.hosts == ["lab-1", "lab-2"], "what runs there goes on"


@pytest.mark.anyio
async def test_what_did_not_start_is_taken_back(monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster()
    cluster.starts = False
    async with driven(monkeypatch, cluster) as found:
        found.fleet.want(2)
        await found.until(lambda: len(cluster.actors) == 2 and "2 actors wait" in found.fleet.waits_for())
    assert sorted(cluster.ended) == ["lab-1", "lab-2"]


@pytest.mark.anyio
async def test_a_gateway_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evalfleet.hosts.ray.connection.sys.executable", "/bin/false")
    connection = RayConnection("head:6379")
    try:
        for _ in range(2):  # the second one is told at once
            with pytest.raises(HostUnreachable, match="no Ray cluster answers at head:6379"):
                await connection.ask("list", prefix="")
    finally:
        await connection.aclose()


@pytest.mark.anyio
async def test_a_probe_that_gets_no_answer_in_time_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nread line\n")  # it ends with its input, and says nothing
    silent.chmod(0o700)
    monkeypatch.setattr("evalfleet.hosts.ray.connection.sys.executable", str(silent))
    kept = KIND.settings({"address": "head:6379", "workers": 2}, HERE)
    pool = Pool(name="lab", backend="ray", settings=kept, created_at=0.0)
    found = await KIND.probe(pool, Home(tmp_path, "home1"), 0.2)
    assert [row["reachable"] for row in found.values()] == [False, False]
    assert "no Ray cluster answers at head:6379; start one with" in found["lab-1"]["error"]
