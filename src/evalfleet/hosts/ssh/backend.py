"""Backend for one machine over SSH. Nothing is installed there: its own Python runs the runner, which is copied to it.

One connection carries two channels: the runner's protocol, and files. The runner outlives the connection; the next connection
continues after the last event that was seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.readiness import Notice, ReadinessCheck
from evalfleet.errors import BackendError, ConfigError
from evalfleet.hosts.access import USERS, name_in_errors
from evalfleet.hosts.base import CanarySpec, HostInfo, Inbox, gpus_of, single_error
from evalfleet.hosts.protocol.current_runner import current_link, in_time
from evalfleet.hosts.protocol.link import PROTOCOL, CommandRefused, OnEvents, RunnerLink
from evalfleet.hosts.protocol.runner_host import into
from evalfleet.hosts.ssh.login.hosts_file import SshHostSpec
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Tools

try:
    import asyncssh
except ImportError as error:
    raise ConfigError(
        "hosts over SSH need the package asyncssh, which is not installed; run `pip install 'evalfleet[ssh]'`"
    ) from error

from evalfleet.hosts.remote.bulk_link import BulkLink
from evalfleet.hosts.remote.collect import CollectLimits
from evalfleet.hosts.remote.host import RemoteHost
from evalfleet.hosts.remote.upload import FileSums
from evalfleet.hosts.ssh.channel import RunnerPlace, run_command, runner_stream
from evalfleet.hosts.ssh.connection import Keepalive, connected
from evalfleet.hosts.ssh.login.host_keys import HostKeys
from evalfleet.hosts.ssh.tools import HostTools, Say, Tell, ToolsPackage, prepare_host, recheck_host

_OTHER_S = 180.0  # a host that is slow to answer must not seem silent


class SshSettings(Struct, frozen=True, kw_only=True):
    """Settings that all hosts of a pool share."""

    idle_s: float = 600.0  # a runner ends after this time without work and connection
    trust_first_use: bool = False
    watch_eviction: bool = False  # the runner asks the cloud's metadata service whether its machine is taken away
    known_hosts: tuple[Path, ...] = USERS
    ssh_config: Path | None = None  # for hosts that use it; None: the files that ssh reads by itself
    keepalive: Keepalive = field(default_factory=Keepalive)
    caps: CollectLimits = field(default_factory=CollectLimits)


class SshBackend:
    """Implements `Backend`."""

    def __init__(
        self,
        home: Home,
        spec: SshHostSpec,
        settings: SshSettings,
        notice: Notice = lambda _: None,
        tools: Tools | None = None,
    ) -> None:
        """
        Args:
            notice: called with messages for people, such as a host key that was learned, and with the events of the host.
            tools: installed on the host, and its readiness checked, when a run first connects.
        """
        self.name = spec.name
        self.slots = spec.slots
        self.is_remote = True
        self._claim = home.claim
        self.canary: CanarySpec | None = None
        self._spec = spec
        self._settings = settings
        self._place = RunnerPlace(folder=spec.folder, python=spec.python)
        self._sums = FileSums()
        trust = settings.trust_first_use
        self._tools = None if tools is None else HostTools(spec, tools, notice)
        self._keys = HostKeys(home.known_hosts, settings.known_hosts, trust_first_use=trust, notice=notice)

    @asynccontextmanager
    async def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AsyncGenerator[RemoteHost]:
        with single_error():
            async with AsyncExitStack() as stack:
                with name_in_errors(self.name), single_error():
                    connection = await stack.enter_async_context(self._connected())
                    fence = {"run": run_id, "epoch": epoch, **self._claim}
                    link = await stack.enter_async_context(
                        current_link(lambda: self._linked(connection, into(inbox)), fence)
                    )
                    if self._settings.watch_eviction:
                        await _watch(link)
                    info = self._info(await in_time(link, "inventory"))
                    python = None
                    if self._tools is not None:
                        hello = await in_time(link, "hello", protocol=PROTOCOL, **fence)
                        busy = any(one["run"] == run_id and one["state"] == "running" for one in hello["attempts"])
                        python = await self._tools.prepare(connection, busy=busy)
                bulk = BulkLink(lambda: self._linked(connection, lambda _: None))
                group = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(group.cancel_scope.cancel)
                group.start_soon(bulk.serve)
                caps = self._settings.caps
                yield RemoteHost(
                    link,
                    bulk,
                    group,
                    inbox,
                    info,
                    run_id,
                    epoch,
                    sums=self._sums,
                    caps=caps,
                    python=python,
                    slots=self.slots,
                    claim=self._claim,
                )

    async def ask_otherwise(self) -> OtherWay:
        """Use a separate connection, which inspects the runner without its protocol."""
        with anyio.move_on_after(_OTHER_S), suppress(BackendError), single_error():
            async with self._connected() as connection:
                seen = await run_command(connection, self._place, "look")
            if not seen["held"]:
                return OtherWay.GONE  # the host itself says that no process has the spool's lock
            if seen["answers"]:
                return OtherWay.ALIVE
        return OtherWay.SILENT

    async def look(self) -> JsonObject:
        """The host's resources (`host`), and whether a runner is there (`held`) and `answers`. Starts nothing."""
        return await self._tell("look")

    async def prepare(
        self, tools: Tools, tell: Tell, say: Say, package: ToolsPackage | None = None
    ) -> list[ReadinessCheck]:
        """Make the host ready for the tools' benchmark; see `tools.prepare_host`. A failure becomes a check that does not hold."""
        begun = anyio.current_time()
        login = ReadinessCheck(name="ssh", holds=True, seen=str(self._spec.login))
        try:
            with name_in_errors(self.name), single_error():
                async with self._connected() as connection:
                    login = replace(login, took_s=round(anyio.current_time() - begun, 3))
                    tell(login)
                    return [login, *await prepare_host(connection, self._spec, tools, tell, say, package)]
        except BackendError as error:
            login = replace(login, holds=False, seen=str(error), remedy="then prepare again")
            tell(login)
            return [login]

    async def recheck(self, tools: Tools, restarted: Collection[str]) -> list[ReadinessCheck]:
        """Check over a separate connection whether the host is still ready; see `tools.recheck_host`. Raises BackendError."""
        with name_in_errors(self.name), single_error():
            async with self._connected() as connection:
                return await recheck_host(connection, self._spec, tools, restarted)

    async def reset(self) -> None:
        await self._tell("kill")

    async def release(self) -> None:
        await self._tell("retire")

    async def remove(self) -> JsonObject:
        """Remove the runner's folder from the host if it is no longer needed: `removed`, or `why` not."""
        homes = [self._claim["home"], *self._claim["former"]] if self._claim else []
        return await self._tell("remove", *(("--homes", ",".join(homes)) if homes else ()))

    async def _tell(self, word: str, *more: str) -> JsonObject:
        with name_in_errors(self.name), single_error():
            async with self._connected() as connection:
                return await run_command(connection, self._place, word, *more)

    def _connected(self) -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
        return connected(self._spec, self._keys, self._settings.keepalive, self._settings.ssh_config)

    @asynccontextmanager
    async def _linked(
        self, connection: asyncssh.SSHClientConnection, on_events: OnEvents
    ) -> AsyncGenerator[RunnerLink]:
        """A link to the host's runner, which is started if it does not run."""
        words = ("stdio", "--spool", "{folder}", "--idle", f"{self._settings.idle_s:g}")
        async with (
            runner_stream(connection, self._place, *words) as stream,
            RunnerLink.connect(stream, on_events) as link,
        ):
            yield link

    def _info(self, inventory: JsonObject) -> HostInfo:
        return HostInfo(
            name=self._spec.name,
            memory_mb=self._spec.memory_mb or inventory.get("memory_mb"),
            gpus=len(inventory.get("gpus") or ()),
            price_usd_per_hour=self._spec.price_usd_per_hour / self._spec.slots,
            devices=gpus_of(self._spec.name, inventory.get("gpus") or ()),
        )


async def _watch(link: RunnerLink) -> None:
    try:
        await in_time(link, "watch")
    except CommandRefused as error:
        if error.code != "bad_request":  # a busy runner of an older version, which knows no notices
            raise
