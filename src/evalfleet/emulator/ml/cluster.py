"""One AmlCompute cluster: nodes come when jobs wait for them, and go when they were idle for long enough."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from evalfleet.emulator.arm.protocol import ArmError, Body
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.ml import node as nodes
from evalfleet.emulator.ml.node import Node

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")
LOOK_S = 5.0  # cloud seconds between two looks at idle nodes


def duration_s(text: str) -> float:
    """Read an ISO 8601 duration such as PT2M."""
    found = _DURATION.fullmatch(text)
    if found is None or text in ("P", "PT"):
        raise ArmError(400, "UserError", f"'{text}' is not a valid ISO 8601 duration.")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


class Waiting(Protocol):
    """The jobs that are to run on a compute."""

    def waiting(self, compute: str) -> Sequence[str]:
        """Names of the jobs that have no node yet, the oldest first."""
        ...

    def begin(self, job: str, node: Node) -> None:
        """Run a job on a node, which is its own until `Cluster.released`."""
        ...

    def requeue(self, job: str) -> None:
        """Its node was taken away: it waits for the next."""
        ...


class Cluster:
    """Grows and shrinks in a task of its own."""

    def __init__(
        self,
        world: EmulatorContext,
        body: Body,
        jobs: Waiting,
        admit: Callable[[str, str, bool], None],
    ) -> None:
        """
        Args:
            admit: raises ArmError where the quota has no place for one more node: region, size, whether low priority.
        """
        self._world = world
        self._jobs = jobs
        self._admit = admit
        self._wake = asyncio.Event()
        self._scope = anyio.CancelScope()
        self.body = body
        self.nodes: list[Node] = []
        self.resizing = False
        self.target = 0
        self.errors: list[Body] = []
        self._resized_at = world.clock.now()

    @property
    def _asked(self) -> Body:
        return self.body["properties"]["properties"]

    @property
    def size(self) -> str:
        return self._asked["vmSize"]

    @property
    def spot(self) -> bool:
        return self._asked.get("vmPriority") == "LowPriority"

    def wake(self) -> None:
        wake, self._wake = self._wake, asyncio.Event()
        wake.set()

    def shown(self) -> Body:
        """What Azure adds to what was asked for."""
        counts = {
            f"{state}NodeCount": 0 for state in ("idle", "running", "preparing", "unusable", "leaving", "preempted")
        }
        for node in self.nodes:
            counts[f"{node.state}NodeCount"] += 1
        return {
            **self._asked,
            "allocationState": "Resizing" if self.resizing else "Steady",
            "allocationStateTransitionTime": iso(self._resized_at),
            "errors": self.errors,
            "currentNodeCount": len(self.nodes),
            "targetNodeCount": self.target,
            "nodeStateCounts": counts,
        }

    async def serve(self) -> None:
        with self._scope:
            while True:
                wake = self._wake
                self._assign()
                await self._resize()
                if not self._jobs.waiting(self.body["name"]) or not self._free():
                    with anyio.move_on_after(max(0.02, self._world.clock.real(LOOK_S))):
                        await wake.wait()

    def released(self, node: Node) -> None:
        """A job has ended on its node, which waits for the next one."""
        node.job = ""
        if node in self.nodes:
            node.state, node.idle_since = "idle", self._world.clock.elapsed()
        self.wake()

    def _free(self) -> list[Node]:
        return [node for node in self.nodes if node.state == "idle"]

    def _assign(self) -> None:
        for node, job in zip(self._free(), self._jobs.waiting(self.body["name"]), strict=False):
            node.state, node.job = "running", job
            self._jobs.begin(job, node)

    async def _resize(self) -> None:
        scale = self._asked["scaleSettings"]
        busy = sum(1 for node in self.nodes if node.job)
        needed = busy + len(self._jobs.waiting(self.body["name"]))
        wanted = min(scale["maxNodeCount"], max(scale.get("minNodeCount", 0), needed))
        if wanted > len(self.nodes):
            await self._grow(wanted)
        else:
            await self._shrink(wanted, duration_s(scale.get("nodeIdleTimeBeforeScaleDown") or "PT120S"))

    async def _grow(self, wanted: int) -> None:
        """Ask for what is missing. What cannot be had stands in `errors`, and is asked for again a while later."""
        world, missing = self._world, wanted - len(self.nodes)
        self.resizing, self.target, self._resized_at = True, wanted, world.clock.now()
        attributes = {"name": self.body["name"], "location": self.body["location"], "size": self.size}
        errors: list[Body] = []
        granted = 0
        try:
            late = await world.meet("ml.resize", attributes)
            if late is not None:
                raise late
            for _ in range(missing):
                self._admit(self.body["location"], self.size, self.spot)
                granted += 1
                world.journal.tell("node.creating", self.body["name"])
                await world.clock.sleep(world.times.ml_node if granted == 1 else 0)
                self.nodes.append(await nodes.booted(world, self.body, self.size, spot=self.spot))
                self._assign()
        except ArmError as error:
            errors = [{"error": {"code": error.code, "message": error.message}}]
        self.errors = errors
        self.resizing, self.target = False, len(self.nodes)
        if errors:
            await world.clock.sleep(LOOK_S)

    async def _shrink(self, wanted: int, idle_s: float) -> None:
        now = self._world.clock.elapsed()
        for node in self._free()[: len(self.nodes) - wanted]:
            if now - node.idle_since >= idle_s:
                self.nodes.remove(node)
                self.target = len(self.nodes)
                await nodes.removed(self._world, node)

    async def preempt(self, node: Node) -> None:
        """Take a node of low priority back; its job waits for the next one, as on Azure."""
        self.nodes.remove(node)
        job, node.job, node.state = node.job, "", "preempted"
        self._world.journal.tell("node.preempted", node.name, compute=self.body["name"], job=job)
        if job:
            self._jobs.requeue(job)
        await nodes.removed(self._world, node)
        self.wake()

    async def end(self) -> None:
        self._scope.cancel()
        gone, self.nodes = self.nodes, []
        for node in gone:
            await nodes.removed(self._world, node)
