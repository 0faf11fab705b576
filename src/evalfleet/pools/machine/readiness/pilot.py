"""The readiness checks of a machine that cannot be called: what its pilot proves and tells.

`node` (the cloud says that the pilot runs) holds when the checks begin. Then: `pilot` it has said hello with the token that only it
was given; `runner` it answers; `docker`, `image` and `kvm`, where they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.hosts.lifecycle import Power
from evalfleet.errors import BackendError, HostRefused, HostUnreachable
from evalfleet.pools.cloud.protocol import RunsJobs
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.mailbox import Mailbox
from evalfleet.pools.machine.readiness.checks import TimedChecks, Unwell
from evalfleet.pools.machine.record import MachineRecord


class PilotChecks(TimedChecks):
    """The checks of one machine that is reached through its box. Another machine might do better in each of them."""

    deadlines_s: ClassVar[Mapping[str, float]] = {
        "pilot": 600.0,
        "runner": 180.0,
        "docker": 300.0,
        "image": 1800.0,
        "kvm": 60.0,
    }

    def __init__(self, context: PoolContext, record: MachineRecord, mailbox: Mailbox) -> None:
        super().__init__(context, record)
        self._backend = mailbox.backend(context.provider, record.host, self._wanted.slots, self._ask)
        self._facts: dict[str, Any] = {}  # of the node, as the pilot told them last

    def _usual_s(self, name: str) -> float:
        provider = self._context.provider
        if name == "pilot" and isinstance(provider, RunsJobs):
            return provider.start_timeout_s
        return super()._usual_s(name)

    async def run(self) -> None:
        await self._check("pilot", self._hello, replace=True)
        await self._check("runner", self._answers, replace=True)
        if self._context.images:
            await self._check("docker", self._docker, replace=True)
            await self._check("image", self._images, replace=True)
        if self._wanted.kvm:
            await self._check("kvm", self._kvm, replace=True)
        await self._record.move(facts=replace(self._record.facts, checks_s=self._took))

    async def _ask(self, name: str) -> OtherWay | None:
        del name
        return None

    async def _hello(self) -> str | None:
        try:
            known = await self._backend.facts()
        except HostUnreachable:
            await self._require_running()
            raise
        self._facts = dict(known.facts)
        await self._record.move(facts=replace(self._record.facts, pilot=msgspec.to_builtins(known)))
        return None

    async def _answers(self) -> str | None:
        await self._require_running()
        await self._look()
        return None

    async def _docker(self) -> str | None:
        if self._facts.get("docker"):
            return None
        await self._look()
        return None if self._facts.get("docker") else str(self._facts.get("docker_trouble") or "Docker does not answer")

    async def _images(self) -> str | None:
        missing = [image for image in self._context.images if image not in (self._facts.get("images") or ())]
        if missing:
            await self._look()
        return f"{missing[0]} is not there yet" if missing else None

    async def _kvm(self) -> str | None:
        if not self._facts.get("kvm"):
            raise Unwell(str(self._facts.get("kvm_trouble") or "KVM is not usable"))
        return None

    async def _look(self) -> None:
        """Ask the pilot how its node is now. Raises HostUnreachable."""
        try:
            self._facts |= (await self._backend.control("facts")).get("facts") or {}
        except (HostUnreachable, HostRefused):
            raise
        except BackendError as error:
            raise HostUnreachable(str(error)) from error

    async def _require_running(self) -> None:
        """Raises Unwell where the cloud says that there is nothing any more that could answer."""
        view = await self._context.cloud.view(self._record.name)
        if view is None or view.power is not Power.RUNNING:
            said = view.problem.message if view is not None and view.problem is not None else "its node is gone"
            raise Unwell(said)
