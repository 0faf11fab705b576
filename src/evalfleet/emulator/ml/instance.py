"""One compute instance: a node that is started and stopped, keeps its disk, and runs its setup scripts at each start."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio

from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.ml import node as nodes
from evalfleet.emulator.ml.cluster import Waiting
from evalfleet.emulator.ml.node import Node


class Instance:
    """`state` is Azure's word."""

    def __init__(self, world: EmulatorContext, body: Body, jobs: Waiting, logs: Path) -> None:
        self._world = world
        self._jobs = jobs
        self._logs = logs  # of its setup scripts
        self._disk = world.folder / "ml" / "disks" / body["name"]
        self.body = body
        self.node: Node | None = None
        self.state = "Creating"
        self._last = ("Create", "InProgress", world.clock.now())

    @property
    def nodes(self) -> list[Node]:
        return [self.node] if self.node is not None else []

    def shown(self) -> Body:
        operation, status, at = self._last
        asked = self.body["properties"]["properties"]
        return {
            **asked,
            "state": self.state,
            "errors": [],
            "lastOperation": {"operationName": operation, "operationStatus": status, "operationTime": iso(at)},
        }

    async def start(self, operation: str, *, first: bool = False) -> None:
        """Switch it on; its scripts run before it counts as running. One that fails leaves it in SetupFailed."""
        self._last = (operation, "InProgress", self._world.clock.now())
        size = self.body["properties"]["properties"]["vmSize"]
        self.node = await nodes.booted(self._world, self.body, size, spot=False)
        if self._disk.exists():
            shutil.rmtree(self.node.folder / "home", ignore_errors=True)
            shutil.move(self._disk, self.node.folder / "home")
        failed = False
        for name in ("creationScript", "startupScript") if first else ("startupScript",):
            failed = failed or not await self._script(self.node, name)
        self.state = "SetupFailed" if failed else "Running"
        self._last = (operation, f"{operation}Failed" if failed else "Succeeded", self._world.clock.now())
        self._world.journal.tell("instance.running", self.body["name"], state=self.state)
        self.assign()

    async def _script(self, node: Node, name: str) -> bool:
        script = inside(self.body["properties"]["properties"], "setupScripts", "scripts", name)
        if not script or not script.get("scriptData"):
            return True
        self.state = "SettingUp"
        text = base64.b64decode(script["scriptData"]).decode()
        self._logs.mkdir(parents=True, exist_ok=True)
        process = await node.spawn(text, {}, self._logs / f"{name}.log")
        return await process.wait() == 0

    async def stop(self) -> None:
        node, self.node = self.node, None
        self.state, self._last = "Stopping", ("Stop", "InProgress", self._world.clock.now())
        if node is not None:
            if node.job:
                self._jobs.requeue(node.job)
            await node.end_processes()
            self._disk.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(node.folder / "home", self._disk)
            await nodes.removed(self._world, node)
        self.state, self._last = "Stopped", ("Stop", "Succeeded", self._world.clock.now())
        self._world.journal.tell("instance.stopped", self.body["name"])

    async def stop_at(self, moment: float, is_there: Callable[[], bool]) -> None:
        """Do what its schedule says."""
        await self._world.clock.until(moment)
        if is_there() and self.state == "Running":
            await self.stop()

    def wake(self) -> None:
        self.assign()

    def assign(self) -> None:
        waiting = self._jobs.waiting(self.body["name"])
        if self.node is not None and self.state == "Running" and not self.node.job and waiting:
            self.node.job, self.node.state = waiting[0], "running"
            self._jobs.begin(waiting[0], self.node)

    def released(self, node: Node) -> None:
        node.job, node.state = "", "idle"
        self.assign()

    async def end(self) -> None:
        with anyio.CancelScope(shield=True):
            node, self.node = self.node, None
            if node is not None:
                await nodes.removed(self._world, node)
            shutil.rmtree(self._disk, ignore_errors=True)
