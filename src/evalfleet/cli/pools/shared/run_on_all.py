"""One command on several hosts at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from msgspec import Struct

from evalfleet.answers.machines import CommandEnd
from evalfleet.cli.pools.shared.hosts import AT_ONCE, say
from evalfleet.cli.pools.shared.prefixed_lines import Lines
from evalfleet.errors import BackendError
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.base import single_error
from evalfleet.hosts.ssh import command
from evalfleet.hosts.ssh.command import CommandExit
from evalfleet.hosts.ssh.visit.connection import visit_connection
from evalfleet.layout import Home

KEPT_BYTES = 16 << 20  # of each stream of a host, where it is collected
_CUT = b"\n[evalfleet: the rest was left out]\n"


class Row(Struct):
    """How the command ended on one host."""

    host: str
    ended: CommandExit
    stdout: bytes = b""
    stderr: bytes = b""

    def told(self) -> CommandEnd:
        out, err = (data.decode("utf-8", "replace") for data in (self.stdout, self.stderr))
        return CommandEnd(exit=self.ended.exit, stdout=out, stderr=err, error=self.ended.error)


class Everywhere:
    """The command is begun on all hosts at once, but for very many of them."""

    def __init__(
        self, hosts: Sequence[ReachableHost | UnavailableHost], home: Home, line: str, timeout_s: float | None
    ) -> None:
        self._hosts = hosts
        self._home = home
        self._line = line
        self._timeout_s = timeout_s

    async def run(self, live: bool) -> list[Row]:
        """Returns a row per host, in their order.

        Args:
            live: print what comes, instead of collecting it.
        """
        lines = Lines(max(len(host.name) for host in self._hosts)) if live else None
        rows: dict[str, Row] = {}
        limit = anyio.CapacityLimiter(AT_ONCE)

        async def there(host: ReachableHost | UnavailableHost) -> None:
            async with limit:
                rows[host.name] = await self._one(host, lines)

        with single_error():
            async with anyio.create_task_group() as group:
                for host in self._hosts:
                    group.start_soon(there, host)
        return [rows[host.name] for host in self._hosts]

    async def _one(self, host: ReachableHost | UnavailableHost, lines: Lines | None) -> Row:
        if isinstance(host, UnavailableHost):
            return Row(host.name, CommandExit(error=host.why, is_lost=True))
        kept = {stream: bytearray() for stream in command.STREAMS}

        def keep(stream: str, data: bytes) -> None:
            if lines is not None:
                lines.feed(host.name, stream, data)
            elif len(kept[stream]) < KEPT_BYTES:
                kept[stream] += data
                if len(kept[stream]) >= KEPT_BYTES:
                    kept[stream][KEPT_BYTES:] = _CUT

        try:
            async with visit_connection(host, self._home, say) as connection:
                ended = await command.run(connection, self._line, keep, self._timeout_s)
        except BackendError as error:
            ended = CommandExit(error=str(error).removeprefix(f"host {host.name}: "), is_lost=True)
        if lines is not None:
            lines.end(host.name)
        return Row(host.name, ended, bytes(kept["stdout"]), bytes(kept["stderr"]))
