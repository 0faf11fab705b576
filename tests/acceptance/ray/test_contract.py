"""An actor of a real Ray cluster keeps the contract of every backend."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import anyio
import pytest

from evalfleet.core.hosts.health import OtherWay
from evalfleet.hosts.base import Backend, Inbox
from evalfleet.hosts.ray.backend import RayBackend
from evalfleet.hosts.ray.connection import RayConnection
from evalfleet.hosts.ray.settings import RayHostSpec, folder_of, prefix_of
from evalfleet.layout import Home
from evalfleet.model import JsonObject
from evalfleet.runner.attempt.process_tree import stat_of
from evalfleet.testing.backend_contract import BackendContract, Watcher, launch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HOME = Home(Path("/nowhere"), "home1")
PREFIX = prefix_of(HOME, "lab")
DEADLINE_S = 120.0
_numbers = count(1)


async def ask_for(connection: RayConnection, host: str, *, idle_s: float = 60.0, limit_s: float = 3600.0) -> None:
    arguments = [folder_of(HOME, host), ["home1"], idle_s, limit_s]
    request = {"num_cpus": 0, "num_gpus": 0, "resources": {}}
    assert await connection.ask("create", name=PREFIX + host, arguments=arguments, node=None, **request) == {}


async def until(connection: RayConnection, host: str, state: str) -> JsonObject:
    with anyio.fail_after(DEADLINE_S):
        while True:
            row = (await connection.ask("list", prefix=PREFIX))["actors"].get(PREFIX + host, {})
            if row.get("state") == state:
                return row
            await anyio.sleep(0.1)


async def until_ended(pid: int) -> None:
    with anyio.fail_after(DEADLINE_S):
        while (found := stat_of(pid)) is not None and not found.dead:  # noqa: ASYNC110
            await anyio.sleep(0.05)


@pytest.fixture
async def host(connection: RayConnection) -> AsyncIterator[str]:
    name = f"lab-{next(_numbers)}"
    await ask_for(connection, name)
    yield name
    await connection.ask("end", name=PREFIX + name, force=True)


@pytest.fixture
def backend(connection: RayConnection, host: str) -> RayBackend:
    return RayBackend(HOME, RayHostSpec(name=host, slots=2), PREFIX + host, connection)


class TestRayActor(BackendContract):
    @pytest.fixture
    def backend(self, backend: RayBackend) -> Backend:
        return backend


@pytest.mark.anyio
async def test_the_death_of_the_actor_ends_its_tasks_and_is_certain(
    connection: RayConnection, backend: RayBackend, host: str
):
    inbox = Inbox()
    async with backend.acquire("run1", 1, inbox) as found:
        await found.launch([launch("run1.1.1", "sleep", "600")])
        task = (await Watcher(inbox).until("run1.1.1", "started")).data["pid"]
        row = await until(connection, host, "alive")
        os.kill(row["facts"]["pid"], signal.SIGKILL)
        with anyio.fail_after(DEADLINE_S):
            await found.lost()
    await until(connection, host, "dead")
    assert await backend.ask_otherwise() is OtherWay.GONE
    await until_ended(task)
    # Another actor of that name on the same machine reports what became of it.
    await ask_for(connection, host)
    async with backend.acquire("run1", 2, inbox) as found:
        assert await found.observe("run1.1.1", -1)
        assert (await Watcher(inbox).until("run1.1.1")).data["cause"] == "runner_lost"
        await found.forget(["run1.1.1"])


@pytest.mark.anyio
async def test_an_actor_without_a_controller_ends_by_itself(connection: RayConnection):
    await ask_for(connection, "lab-idle", idle_s=0.5)
    backend = RayBackend(HOME, RayHostSpec(name="lab-idle"), PREFIX + "lab-idle", connection)
    inbox = Inbox()
    async with backend.acquire("run1", 1, inbox) as found:
        folder = Path((await until(connection, "lab-idle", "alive"))["facts"]["folder"])
        assert folder.exists()  # noqa: ASYNC240
        await found.known()
    await until(connection, "lab-idle", "dead")
    assert not folder.exists()  # noqa: ASYNC240


@pytest.mark.anyio
async def test_a_limit_ends_an_actor_that_still_has_work(connection: RayConnection):
    await ask_for(connection, "lab-late", idle_s=0.5, limit_s=1.0)
    backend = RayBackend(HOME, RayHostSpec(name="lab-late"), PREFIX + "lab-late", connection)
    inbox = Inbox()
    async with backend.acquire("run1", 1, inbox) as found:
        await found.launch([launch("run1.1.1", "sleep", "600")])
        task = (await Watcher(inbox).until("run1.1.1", "started")).data["pid"]
    await until(connection, "lab-late", "dead")
    await until_ended(task)


@pytest.mark.anyio
async def test_large_files_come_and_go(connection: RayConnection, backend: RayBackend, tmp_path: Path):
    data = os.urandom(1 << 20)
    (tmp_path / "in").write_bytes(data)
    inbox = Inbox()
    async with backend.acquire("run1", 1, inbox) as found:
        order = launch("run1.1.1", "sh", "-c", 'cp in "$EVALFLEET_ARTIFACTS/out"')
        order.files["in"] = tmp_path / "in"  # type: ignore[index]
        await found.launch([order])
        assert (await Watcher(inbox).until("run1.1.1")).data["exit_code"] == 0
        await found.collect("run1.1.1", tmp_path / "there", {})
        await found.forget(["run1.1.1"])
    assert (tmp_path / "there" / "artifacts" / "out").read_bytes() == data
