"""A machine of a cloud once it is ready: reached over SSH, and its cloud can be asked, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.readiness import Notice
from evalfleet.hosts.base import CanarySpec
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.hosts.ssh.login.hosts_file import SshHostSpec
from evalfleet.layout import Home
from evalfleet.model import Tools

AskCloud: TypeAlias = Callable[[str], Awaitable[OtherWay | None]]


class CloudBackend(SshBackend):
    """Implements `Backend`. Before a silent machine is asked by SSH, the cloud says whether it is still there."""

    def __init__(self, home: Home, spec: SshHostSpec, ask: AskCloud, notice: Notice, tools: Tools | None) -> None:
        """
        Args:
            ask: what the cloud says of the machine of that name; None: that it is there, or nothing.
            tools: what the run's tasks need on the machine.
        """
        super().__init__(home, spec, SshSettings(known_hosts=(), watch_eviction=True), notice, tools)
        self._ask = ask
        self.canary = CanarySpec()  # a machine that was made a moment ago proves itself before it gets paid work

    async def ask_otherwise(self) -> OtherWay:
        said = await self._ask(self.name)
        return await super().ask_otherwise() if said is None else said
