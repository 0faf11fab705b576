"""Killing whoever keeps a pool, at exact points: when the cloud or a machine has got its Nth request."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.support.web_site import NAME, Site

from evalfleet.emulator import app
from evalfleet.emulator.context import Dropped
from evalfleet.model import HostState

LIMIT_S = 60.0
LATER_S = 0.04


class How(StrEnum):
    LOST_REQUEST = "lost_request"  # it dies before the cloud has heard of it
    LOST_ANSWER = "lost_answer"  # the cloud does it, and nobody hears the answer
    LATER = "later"  # some milliseconds afterwards


@dataclass
class Point:
    """Where to kill."""

    number: int
    how: How
    rng: random.Random
    only: str = ""  # of requests that begin so
    met: int = 0
    killed_at: str = ""
    _pid: int = 0
    _known: anyio.Event = field(default_factory=anyio.Event)

    def meets(self, where: str) -> bool:
        """Count a request; whether it is the one."""
        self.met += where.startswith(self.only)
        return where.startswith(self.only) and self.met == self.number and not self.killed_at

    def aim(self, pid: int) -> None:
        self._pid = pid
        self._known.set()

    async def kill(self, where: str) -> None:
        self.killed_at = f"{self.how} of {where}"
        await self._known.wait()
        if self.how is How.LATER:
            await anyio.sleep(self.rng.uniform(0, LATER_S))
        os.kill(self._pid, signal.SIGKILL)


class Keepers:
    """Starts processes that keep a pool."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("pool_keeper.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def keep(self, here: Site, point: Point | None = None) -> int:
        """Let one settle the pool, and perhaps die on the way. Returns its status: a signal, or an exit code times 256."""
        order = {"home": str(here.settings.home), "pool": NAME, "environ": here.cloud.emulator.settings()}
        pid = (await anyio.to_thread.run_sync(self._say, json.dumps(order)))["pid"]
        if point is not None:
            point.aim(pid)
        try:
            with anyio.fail_after(LIMIT_S):
                return (await anyio.to_thread.run_sync(self._hear, abandon_on_cancel=True))["status"]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise

    def _say(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        self._process.stdout.close()


@contextmanager
def aimed(here: Site, point: Point) -> Generator[None]:
    """Let the emulator meet the point."""
    route, world = app._route, here.cloud.emulator.world  # pyright: ignore[reportPrivateUsage]
    fault_of = world.fault_of

    async def watched(world: Any, routes: Any, request: Any, body: Any) -> Any:
        where = f"{request.method} {request.path.rpartition('/')[0].rpartition('/')[2]}"
        mine = point.meets(where)
        if mine and point.how is How.LOST_REQUEST:
            await point.kill(where)
            raise Dropped
        answer = await route(world, routes, request, body)
        if mine and point.how is How.LOST_ANSWER:
            await point.kill(where)
        elif mine:
            world.tasks.start_soon(point.kill, where)
        return answer

    def watched_fault(op: str, attributes: Any) -> Any:
        where = f"command on {attributes['name']}"
        if op == "host.exec" and point.meets(where):
            world.tasks.start_soon(point.kill, where)
        return fault_of(op, attributes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "_route", watched)
        patch.setattr(world, "fault_of", watched_fault)
        yield


def check(here: Site, powers: dict[str, str | None], wanted: dict[str, int]) -> None:
    """What must hold once somebody has settled the pool: rows and cloud say the same, and nothing was made twice."""
    rows = here.hosts()
    states = [row.state for row in rows]
    assert {state: states.count(HostState(state)) for state in wanted} == wanted, here.states()
    assert sum(wanted.values()) == len(rows), here.states()
    shown = {HostState.READY: "running", HostState.STOPPED: "released"}
    assert powers == {row.name: shown[row.state] for row in rows}
    _check_births(here)
    _check_keys(here)


def _check_births(here: Site) -> None:
    alive: dict[str, int] = {}
    born: dict[str, int] = {}
    for event in here.cloud.events():
        change = {"vm.creating": 1, "vm.deleted": -1}.get(event["type"], 0)
        alive[event["subject"]] = alive.get(event["subject"], 0) + change
        born[event["subject"]] = born.get(event["subject"], 0) + max(0, change)
        assert alive[event["subject"]] <= 1, event
    assert max(born.values()) == 1, born


def _check_keys(here: Site) -> None:
    """Each machine shows the key that we have on record, and not the one that was in its cloud-init."""
    folder = here.cloud.emulator.world.folder / "vms"
    shown = {" ".join(path.read_text().split()[:2]) for path in folder.glob("*/etc/ssh/ssh_host_ed25519_key.pub")}
    for row in here.hosts():
        facts = here.facts(row.name)
        assert facts.host_key in shown, row.name
        assert facts.host_key not in facts.keys.values(), row.name
