"""A run that an operator wants driven is driven, whatever the server does at that moment."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.web_client import Client, serving

from evalfleet.daemon.pools import Standing, Stewards, _Wanted, standings  # pyright: ignore[reportPrivateUsage]
from evalfleet.model import PauseCause
from evalfleet.store.base.store import Store
from evalfleet.store.database.sqlite import open_store
from evalfleet.testing.store import cases
from evalfleet.web.server import Options


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with closing(open_store(home)) as store:
        yield store


@pytest.fixture
async def client(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Client]:
    """A server whose controllers only write down that they were started."""
    program = tmp_path / "controller"
    hold = '[ ! -p "$EVALFLEET_HOME/hold" ] || read _ < "$EVALFLEET_HOME/hold"'
    program.write_text(f'#!/bin/sh\necho "$3 $4" >> "$EVALFLEET_HOME/started"; {hold}\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    async with serving(home, Options(port=0, drive=True)) as client:
        yield client


def paused(store: Store) -> str:
    run = cases.drive(store)
    store.pause(run, {"cause": str(PauseCause.OPERATOR), "message": "lunch"})
    store.leave(run)
    return run.id


async def started(home: Path) -> list[str]:
    with anyio.fail_after(30):
        while not (home / "started").exists():  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.01)
    return (home / "started").read_text().splitlines()


async def test_a_wish_that_comes_during_a_look_is_kept(home: Path, store: Store, client: Client):
    run = paused(store)
    site = client.server.site
    real, looked, go_on = site.readers.call, anyio.Event(), anyio.Event()

    async def held(function: Any) -> Any:
        found = await real(function)
        if function == site.drivers._look:  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
            looked.set()
            await go_on.wait()
        return found

    site.readers.call = held  # pyright: ignore[reportAttributeAccessIssue]
    await looked.wait()
    assert (await client.post(f"runs/{run}/resume"))["by"] == "this server"
    go_on.set()
    assert await started(home) == [f"resume {run}"]


async def test_a_wish_to_a_controller_that_leaves_is_kept(home: Path, store: Store, client: Client):
    run = paused(store)
    owned = store.take(run, "a controller")
    asked: list[dict[str, Any]] = []

    async def ask() -> None:
        asked.append(await client.post(f"runs/{run}/resume"))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not store.requests(run):  # noqa: ASYNC110 - it comes from another connection
            await anyio.sleep(0.01)
        store.leave(owned)
    assert asked[0]["by"] == "this server"
    assert await started(home) == [f"resume {run}"]


async def test_a_wish_waits_while_somebody_owns_the_run_for_a_moment(home: Path, store: Store, client: Client):
    """Whoever changes something in a run that nobody drives owns it meanwhile; that is no controller."""
    run = paused(store)
    drivers = client.server.site.drivers
    assert drivers is not None
    owned = store.take(run, "a request")
    drivers.want(run)
    looked = anyio.Event()
    real = client.server.site.readers.call

    async def counted(function: Any) -> Any:
        found = await real(function)
        if function == drivers._look and not drivers._unseen:  # pyright: ignore[reportPrivateUsage]
            looked.set()
        return found

    client.server.site.readers.call = counted  # pyright: ignore[reportAttributeAccessIssue]
    await looked.wait()
    await anyio.lowlevel.checkpoint()
    store.leave(owned)
    assert await started(home) == [f"resume {run}"]


async def test_a_wish_is_over_once_its_controller_drives(home: Path, store: Store, client: Client):
    """Else the pause that an operator wishes later would be undone."""
    run = paused(store)
    os.mkfifo(home / "hold")
    await client.post(f"runs/{run}/resume")
    await started(home)
    await client.post(f"runs/{run}/resume")  # it does not drive yet
    drivers = client.server.site.drivers
    assert drivers is not None
    wanted = drivers._wanted[run]  # pyright: ignore[reportPrivateUsage]
    assert wanted.again
    store.take(run, "a controller")
    drivers._wake.set()  # pyright: ignore[reportPrivateUsage]
    with anyio.fail_after(30):
        while wanted.again:  # noqa: ASYNC110 - the server's own loop sees it
            await anyio.sleep(0.01)
    (home / "hold").write_text("end\n")


async def test_a_pool_that_is_made_during_a_look_is_looked_after(home: Path, client: Client):
    site = client.server.site
    assert site.stewards is not None
    stewards, real, looked, go_on = site.stewards, site.readers.call, anyio.Event(), anyio.Event()

    async def held(function: Any) -> Any:
        found = await real(function)
        if function is standings:
            looked.set()
            await go_on.wait()
        return found

    site.readers.call = held  # pyright: ignore[reportAttributeAccessIssue]
    await looked.wait()
    stewards.want("lab")
    site.readers.call = real  # pyright: ignore[reportAttributeAccessIssue]
    before = stewards._wake.is_set()  # pyright: ignore[reportPrivateUsage]
    go_on.set()
    assert before
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    assert "lab" in stewards._wanted  # pyright: ignore[reportPrivateUsage]


async def test_a_wish_for_a_pool_outlives_a_keeper_that_has_left_since(client: Client, monkeypatch: pytest.MonkeyPatch):
    site = client.server.site
    assert site.stewards is not None
    stewards = site.stewards
    started: list[str] = []
    monkeypatch.setattr(Stewards, "_start", lambda _self, name, _wanted: started.append(name))
    kept, free = (Standing(kept=kept, settled=True, used=False) for kept in (True, False))
    wanted = _Wanted()
    stewards._wanted["lab"] = wanted  # pyright: ignore[reportPrivateUsage]
    stewards.want("lab")  # while the look that saw the keeper was under way
    stewards._go_on("lab", wanted, kept, anyio.current_time())  # pyright: ignore[reportPrivateUsage]
    assert wanted.forced
    stewards._unseen.clear()  # pyright: ignore[reportPrivateUsage]
    stewards._go_on("lab", wanted, free, anyio.current_time())  # pyright: ignore[reportPrivateUsage]
    assert started == ["lab"]
