"""What an operator asks of a run or pool is done, whatever the server does at that moment, and whatever kills it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec.structs import replace
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet.daemon.pool_children import PoolChildren, PoolStanding
from evalfleet.daemon.supervisor import Child, ChildSupervisor, Next
from evalfleet.model import HostState, PauseCause
from evalfleet.store.controllers import Controller
from evalfleet.store.daemon import ChildRow
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.web.server import Options


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with closing(open_store(home)) as store:
        yield store


@pytest.fixture
def controller(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program in the place of all controllers, which only writes down that it was started, and may be held."""
    program = tmp_path / "controller"
    held = '[ ! -p "$EVALFLEET_HOME/hold" ] || read _ < "$EVALFLEET_HOME/hold"'
    end = '[ ! -e "$EVALFLEET_HOME/crash" ] || { rm "$EVALFLEET_HOME/crash"; exit 70; }'
    program.write_text(f'#!/bin/sh\nshift 2\necho "$*" >> "$EVALFLEET_HOME/started"; {held}; {end}\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    yield program
    hold = home / "hold"
    if hold.exists():  # what still waits there sees the end of the pipe, and ends
        fd = os.open(hold, os.O_RDWR)
        hold.unlink()
        os.close(fd)


@asynccontextmanager
async def server(home: Path) -> AsyncGenerator[Client]:
    async with serving(home, Options(port=0, drive=True)) as client:
        yield client


@pytest.fixture
async def client(home: Path, controller: Path) -> AsyncGenerator[Client]:
    async with server(home) as client:
        yield client


def paused(store: Store) -> str:
    run = cases.drive(store)
    store.runs.pause(run, {"cause": str(PauseCause.OPERATOR), "message": "lunch"})
    store.runs.leave(run)
    return run.id


def settled_pool(store: Store) -> str:
    """A pool that is in its desired state, so that only a request starts a process for it."""
    settings = {"workers": 1, "min": 1, "max": 1, "size": ["Standard_D2s_v5"], "regions": ["eastus"]}
    store.pools.create("lab", "azure-vm", settings)
    pool = store.pools.take("lab", "me")
    for host in store.hosts.request("lab", "vm-", [{}]):
        before = HostState.REQUESTED
        for state in (HostState.CREATING, HostState.PREPARING, HostState.READY):
            assert store.hosts.move(pool, before, replace(host, state=state))
            before = state
    store.pools.leave(pool)
    return "lab"


def entered(store: Store, id: str) -> str:
    """A controller that lives as long as this store is open."""
    facts = {"member": "", "host": "box", "path": "/home", "pid": 7, "since": store.now(), "runs": 4}
    store.controllers.enter(msgspec.convert({"id": id, **facts}, Controller))
    return id


MADE: dict[str, Callable[[Store], str]] = {"run": paused, "pool": settled_pool}
COMMANDS = {"run": "resume {} --stay-paused", "pool": "pool settle {}"}


def supervisor_of(client: Client, kind: str) -> ChildSupervisor[Any]:
    site = client.server.site
    found = site.run_supervisor if kind == "run" else site.pool_supervisor
    assert found is not None
    return found


async def started(home: Path, count: int = 1) -> list[str]:
    """The commands that were started, once there are so many."""
    with anyio.fail_after(30):
        while True:
            found = (home / "started").read_text().splitlines() if (home / "started").exists() else []
            if len(found) >= count:
                return found
            await anyio.sleep(0.01)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110 - the server's own loop, or another process, makes it true
            await anyio.sleep(0.01)


class Held:
    """Holds the looks of a supervisor between reading the store and acting on it."""

    def __init__(self, client: Client, supervisor: ChildSupervisor[Any]) -> None:
        self._real: Callable[[Any], Awaitable[Any]] = client.server.site.readers.call
        self._read = supervisor._read  # pyright: ignore[reportPrivateUsage]
        self.looked, self.go_on = anyio.Event(), anyio.Event()
        client.server.site.readers.call = self._call  # pyright: ignore[reportAttributeAccessIssue]

    async def _call(self, function: Any) -> Any:
        found = await self._real(function)
        if function == self._read:
            self.looked.set()
            await self.go_on.wait()
        return found


@pytest.mark.parametrize("kind", ["run", "pool"])
async def test_a_request_that_comes_during_a_look_is_kept(home: Path, store: Store, client: Client, kind: str):
    supervisor = supervisor_of(client, kind)
    held = Held(client, supervisor)
    await held.looked.wait()
    name = MADE[kind](store)  # the look knows nothing of it
    await supervisor.request(name)
    ours = ChildRow(supervisor.registration.id)
    assert store.daemon.children(kind) == {name: ours}, "it is in the store before the answer"
    held.go_on.set()
    assert await started(home) == [COMMANDS[kind].format(name)]


async def test_a_click_on_resume_during_a_look_is_kept(home: Path, store: Store, client: Client):
    run = paused(store)
    held = Held(client, supervisor_of(client, "run"))
    await held.looked.wait()
    assert (await client.post(f"runs/{run}/resume"))["by"] == "this server"
    held.go_on.set()
    assert await started(home) == [f"resume {run} --stay-paused"]


@pytest.mark.parametrize("kind", ["run", "pool"])
async def test_a_request_while_its_process_ends_starts_another(home: Path, store: Store, client: Client, kind: str):
    name, supervisor = MADE[kind](store), supervisor_of(client, kind)
    os.mkfifo(home / "hold")
    await supervisor.request(name)
    await started(home)
    await supervisor.request(name)  # the first cannot know of it
    for _ in range(2):
        await anyio.to_thread.run_sync((home / "hold").write_text, "end\n")
    assert await started(home, 2) == [COMMANDS[kind].format(name)] * 2


@pytest.mark.parametrize("kind", ["run", "pool"])
async def test_the_next_server_goes_on_with_what_was_requested(home: Path, store: Store, controller: Path, kind: str):
    name = MADE[kind](store)
    store.daemon.request_child(kind, name, retry=kind == "pool")
    async with server(home):
        again = " --again" if kind == "pool" else ""
        assert await started(home) == [COMMANDS[kind].format(name) + again]
        await until(lambda: store.daemon.children(kind) == {})


@pytest.mark.parametrize("kind", ["run", "pool"])
async def test_the_files_of_older_versions_are_read_once(home: Path, store: Store, controller: Path, kind: str):
    name = MADE[kind](store)
    runs, pools = home / "serve.json", home / "serve-pools.json"
    runs.write_text(json.dumps({"runs": [name if kind == "run" else "gone", 7]}))
    pools.write_text(json.dumps({"pools": {name if kind == "pool" else "gone": False}}))
    async with server(home):
        assert await started(home) == [COMMANDS[kind].format(name)]
        await until(lambda: not (runs.exists() or pools.exists()))
        await until(lambda: {**store.daemon.children("run"), **store.daemon.children("pool")} == {})


async def test_what_another_server_remembers_is_left_alone(home: Path, store: Store, client: Client):
    other = entered(store, "another server")
    store.daemon.request_child("pool", "its pool", other)
    name = settled_pool(store)
    await supervisor_of(client, "pool").request(name)
    await started(home)
    await until(lambda: store.daemon.children("pool") == {"its pool": ChildRow(other)})


async def test_a_controller_that_crashed_is_started_again_after_a_delay(home: Path, store: Store, client: Client):
    run = cases.drive(store)
    store.runs.leave(run)
    (home / "crash").touch()
    supervisor = supervisor_of(client, "run")
    await supervisor.request(run.id)
    await started(home)
    child = supervisor._children[run.id]  # pyright: ignore[reportPrivateUsage]
    await until(lambda: child.failures == 1)
    assert child.not_before > anyio.current_time()
    assert store.daemon.children("run") == {run.id: ChildRow(supervisor.registration.id)}
    await supervisor.request(run.id)  # whoever asks need not wait
    await started(home, 2)


async def test_a_request_to_a_controller_that_leaves_is_kept(home: Path, store: Store, client: Client):
    run = paused(store)
    owned = store.runs.take(run, "a controller")
    asked: list[dict[str, Any]] = []

    async def ask() -> None:
        asked.append(await client.post(f"runs/{run}/resume"))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not store.requests.pending(run):  # noqa: ASYNC110 - it comes from another connection
            await anyio.sleep(0.01)
        store.runs.leave(owned)
    assert asked[0]["by"] == "this server"
    assert await started(home) == [f"resume {run} --stay-paused"]


async def test_a_request_waits_while_a_run_is_owned_for_a_moment(home: Path, store: Store, client: Client):
    """A process that changes something in a run without a controller owns it meanwhile."""
    run = paused(store)
    supervisor = supervisor_of(client, "run")
    owned = store.runs.take(run, "a request")
    await supervisor.request(run)
    looked = anyio.Event()
    real = client.server.site.readers.call

    async def counted(function: Any) -> Any:
        found = await real(function)
        if function == supervisor._read and not supervisor._unseen:  # pyright: ignore[reportPrivateUsage]
            looked.set()
        return found

    client.server.site.readers.call = counted  # pyright: ignore[reportAttributeAccessIssue]
    await looked.wait()
    await anyio.lowlevel.checkpoint()
    store.runs.leave(owned)
    assert await started(home) == [f"resume {run} --stay-paused"]


async def test_a_request_is_over_once_its_controller_owns_the_run(home: Path, store: Store, client: Client):
    """Else the pause that an operator asks for later would be undone."""
    run = paused(store)
    os.mkfifo(home / "hold")
    await client.post(f"runs/{run}/resume")
    await started(home)
    await client.post(f"runs/{run}/resume")  # the controller does not own it yet
    supervisor = supervisor_of(client, "run")
    child = supervisor._children[run]  # pyright: ignore[reportPrivateUsage]
    assert child.more
    store.runs.take(run, "a controller")
    supervisor._wake.set()  # pyright: ignore[reportPrivateUsage]
    await until(lambda: not child.more)
    (home / "hold").write_text("end\n")


def test_a_request_for_a_pool_outlives_an_owner_that_has_left_since():
    pools, child = PoolChildren(reachable=True), Child()
    owned, free = (PoolStanding(owned=owned, settled=True, used=False) for owned in (True, False))
    assert pools.next(child, owned, unseen=True, now=0.0) is Next.WAIT  # requested after the look that saw the owner
    assert child.requested
    assert pools.next(child, free, unseen=False, now=0.0) is Next.START
    assert pools.next(child, owned, unseen=False, now=0.0) is Next.WAIT
    assert pools.next(child, free, unseen=False, now=0.0) is Next.FORGET, "the owner has done it"
