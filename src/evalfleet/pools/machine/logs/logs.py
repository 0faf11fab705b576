"""The logs of one machine by name: what its cloud keeps of it, and what a login finds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from evalfleet.errors import BackendError
from evalfleet.hosts.access import ReachableHost
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.protocol import Cloud, KeepsLogs

if TYPE_CHECKING:
    import asyncssh

BOOT = "boot"  # the console


class MachineLogs:
    """Used inside `machine_logs`. The login is made when it is needed first."""

    def __init__(
        self, name: str, cloud: Cloud | None, host: ReachableHost | None, home: Home, stack: AsyncExitStack
    ) -> None:
        self._name = name
        self._cloud = cloud
        self._host = host
        self._home = home
        self._stack = stack
        self._connection: asyncssh.SSHClientConnection | None = None
        self.unread: list[str] = []  # why some logs cannot be had, for people

    async def cloud_names(self) -> Sequence[str]:
        """The logs that the cloud keeps."""
        if self._cloud is None:
            return ()
        try:
            has_console = bool(await self._cloud.log(self._name))
            more = await self._cloud.logs(self._name) if isinstance(self._cloud, KeepsLogs) else ()
        except Refusal as error:
            self.unread.append(str(error))
            return ()
        return [*([BOOT] if has_console else []), *more]

    async def login_names(self) -> Sequence[str]:
        """The logs that a login finds."""
        if self._host is None:
            return ()
        try:
            from evalfleet.hosts.ssh import machine_logs as found

            return await found.names(await self._logged_in(self._host))
        except BackendError as error:
            self.unread.append(str(error))
            return ()

    async def read(self, log: str, limit: int) -> str:
        """The end of a log, at most `limit` characters; empty where there is none of that name. Raises BackendError; NotFound
        for a container that there is not."""
        text = await self._from_cloud(log, limit)
        if not text and self._host is not None:
            from evalfleet.hosts.ssh import machine_logs as found

            text = await found.read(await self._logged_in(self._host), log, limit)
        return text[-limit:]

    async def _from_cloud(self, log: str, limit: int) -> str:
        if self._cloud is None:
            return ""
        if log == BOOT:
            return await self._cloud.log(self._name)
        return await self._cloud.read_log(self._name, log, limit) if isinstance(self._cloud, KeepsLogs) else ""

    async def _logged_in(self, host: ReachableHost) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            from evalfleet.hosts.ssh.visit.connection import visit_connection

            connection = visit_connection(host, self._home, lambda _: None)
            self._connection = await self._stack.enter_async_context(connection)
        return self._connection


@asynccontextmanager
async def machine_logs(
    name: str, cloud: Cloud | None, host: ReachableHost | None, home: Home
) -> AsyncGenerator[MachineLogs]:
    """
    Args:
        cloud: that the machine is of; None: it exists by itself.
        host: how it is reached over SSH; None: it is not now, or never.
    """
    async with AsyncExitStack() as stack:
        yield MachineLogs(name, cloud, host, home, stack)
