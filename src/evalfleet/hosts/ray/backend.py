"""Backend for one actor of a Ray cluster. The actor holds a runner; calls of the actor carry the bytes of its connections.

The actor outlives the controller. The next one finds it by its name and continues after the last event that was seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import BackendError, HostRefused, HostUnreachable
from evalfleet.hosts.access import name_in_errors
from evalfleet.hosts.base import HostInfo, Inbox, gpus_of, single_error
from evalfleet.hosts.protocol.current_runner import current_link, in_time
from evalfleet.hosts.protocol.link import OnEvents, RunnerLink
from evalfleet.hosts.protocol.runner_host import into
from evalfleet.hosts.ray.connection import RayConnection
from evalfleet.hosts.ray.settings import RayHostSpec
from evalfleet.hosts.remote.bulk_link import BulkLink
from evalfleet.hosts.remote.collect import CollectLimits
from evalfleet.hosts.remote.host import RemoteHost
from evalfleet.hosts.remote.upload import FileSums
from evalfleet.layout import Home
from evalfleet.model import JsonObject


class RayBackend:
    """Implements `Backend`."""

    is_remote = True
    canary = None

    def __init__(
        self,
        home: Home,
        spec: RayHostSpec,
        actor: str,
        connection: RayConnection,
        sums: FileSums | None = None,
        packages: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            actor: its name in the cluster.
            sums: of files, shared by the hosts of a run.
            packages: name and version of what the run's tasks need in the Python of the cluster.
        """
        self.name = spec.name
        self.slots = spec.slots
        self.is_draining = False  # its node will be taken away
        self._claim = home.claim
        self._spec = spec
        self._connection = connection
        self._actor = actor
        self._sums = sums or FileSums()
        self._packages = packages or {}

    @asynccontextmanager
    async def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AsyncGenerator[RemoteHost]:
        with single_error():
            async with AsyncExitStack() as stack:
                with name_in_errors(self.name), single_error():
                    fence = {"run": run_id, "epoch": epoch, **self._claim}
                    link = await stack.enter_async_context(current_link(lambda: self._linked(into(inbox)), fence))
                    info = self._info(await in_time(link, "inventory"))
                    python = await self._python()
                bulk = BulkLink(lambda: self._linked(lambda _: None))
                group = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(group.cancel_scope.cancel)
                group.start_soon(bulk.serve)
                yield RemoteHost(
                    link,
                    bulk,
                    group,
                    inbox,
                    info,
                    run_id,
                    epoch,
                    sums=self._sums,
                    caps=CollectLimits(),
                    python=python,
                    slots=self.slots,
                    claim=self._claim,
                )

    async def _python(self) -> str:
        """The Python of the cluster, which the run's tasks use. Raises HostRefused where it lacks what they need."""
        answer = await self._connection.ask("python", name=self._actor, packages=list(self._packages))
        if "error" in answer:
            raise HostUnreachable(f"its actor: {answer['message']}")
        for package, version in self._packages.items():
            found = answer["versions"][package]
            if found != version:
                raise HostRefused(
                    f"the tasks need {package} {version} in the cluster's Python {answer['python']}, which has "
                    f"{found or 'none'}; install it on the nodes: {answer['python']} -m pip install '{package}=={version}'"
                )
        return answer["python"]

    async def ask_otherwise(self) -> OtherWay:
        """Ask the cluster about the actor, and the actor about its runner."""
        try:
            seen = await self._connection.ask("command", name=self._actor, word="look")
        except BackendError:
            return OtherWay.SILENT
        if seen.get("error") in ("died", "absent") and (seen.get("preempted") or self.is_draining):
            return OtherWay.EVICTED
        if seen.get("error") in ("died", "absent", "no_program") or seen.get("held") is False:
            return OtherWay.GONE
        return OtherWay.ALIVE if seen.get("answers") else OtherWay.SILENT

    async def look(self) -> JsonObject:
        """The node's resources (`host`), and whether a runner is there (`held`) and `answers`. Raises HostUnreachable."""
        return await self._tell("look")

    async def reset(self) -> None:
        await self._tell("kill")

    async def release(self) -> None:
        await self._tell("retire")

    async def _tell(self, word: str) -> JsonObject:
        with name_in_errors(self.name):
            answer = await self._connection.ask("command", name=self._actor, word=word)
            if "error" in answer:
                raise HostUnreachable(f"its actor: {answer['message']}")
            return answer

    @asynccontextmanager
    async def _linked(self, on_events: OnEvents) -> AsyncGenerator[RunnerLink]:
        async with (
            self._connection.runner(self._actor) as stream,
            RunnerLink.connect(stream, on_events) as link,
        ):
            yield link

    def _info(self, inventory: JsonObject) -> HostInfo:
        devices = gpus_of(self.name, inventory.get("gpus") or ())
        return HostInfo(
            name=self.name,
            memory_mb=inventory.get("memory_mb"),
            gpus=len(devices),
            price_usd_per_hour=self._spec.price_usd_per_hour / self._spec.slots,
            devices=devices,
        )
