"""What several hosts log, as one stream of lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

import anyio
import click

from evalfleet.cli.pools.shared.hosts import AT_ONCE, say
from evalfleet.cli.pools.shared.prefixed_lines import Lines
from evalfleet.errors import BackendError, HostUnreachable
from evalfleet.hosts.access import ReachableHost, UnavailableHost, pause_s, present
from evalfleet.hosts.base import single_error
from evalfleet.hosts.ssh.visit.connection import show_logs
from evalfleet.layout import Home
from evalfleet.model import JsonObject


class Tails:
    """The logs of some hosts. If a connection breaks while following, it is opened again and continues where it was."""

    def __init__(
        self,
        hosts: Sequence[ReachableHost | UnavailableHost],
        home: Home,
        title: Callable[[str], str],
        *,
        lines: int,
        follow: bool,
        as_json: bool,
    ) -> None:
        """
        Args:
            title: what to call an attempt.
            lines: how many of each log to begin with.
        """
        self._hosts = hosts
        self._home = home
        self._title = title
        self._lines = lines
        self._follow = follow
        self._as_json = as_json
        self._rng = Random()
        self._printer = Lines(max(len(host.name) for host in hosts))

    async def run(self) -> list[str]:
        """Print until all logs end. Returns the hosts that were not reached."""
        lost: list[str] = []
        limit = anyio.CapacityLimiter(len(self._hosts) if self._follow else AT_ONCE)

        async def there(host: ReachableHost | UnavailableHost) -> None:
            async with limit:
                try:
                    await self._one(host)
                except BackendError as error:
                    lost.append(host.name)
                    self._print_error(host.name, str(error))

        with single_error():
            async with anyio.create_task_group() as group:
                for host in self._hosts:
                    group.start_soon(there, host)
        return lost

    async def _one(self, host: ReachableHost | UnavailableHost) -> None:
        host = present(host)
        seen: dict[str, int] = {}
        failures, was_there = 0, False
        while True:
            orders: JsonObject = {"do": "tail", "lines": self._lines, "follow": self._follow, "seen": seen}
            try:
                async with show_logs(host, self._home, say, orders) as lines:
                    if failures:
                        say(f"host {host.name}: connected again")
                    failures, was_there = 0, True
                    async for line in lines:
                        self._take(host.name, line, seen)
                if not seen:
                    say(f"host {host.name}: nothing is logged there; no run has used it lately")
                return
            except HostUnreachable as error:
                if not (self._follow and was_there):
                    raise
                failures += 1
                pause = pause_s(failures, self._rng)
                say(f"{error}; next try in {pause:.0f} s")
            await anyio.sleep(pause)

    def _take(self, host: str, line: JsonObject, seen: dict[str, int]) -> None:
        title = self._title(line["source"])
        if "over" in line:
            self._print(host, title, {"source": line["source"], "over": True}, "attempt is over")
            return
        seen[line["path"]] = line["offset"]
        for text in line["lines"]:
            row = {"source": line["source"], "stream": line["stream"], "text": text}
            self._print(host, title, row, text, line["stream"])

    def _print(self, host: str, title: str, row: JsonObject, text: str, stream: str = "") -> None:
        if self._as_json:
            key = {} if title == row["source"] else {"key": title}
            click.echo(json.dumps({"host": host, **key, **row}))
            return
        front = title if row["source"] == "runner" else f"{title} {stream}".rstrip()
        self._printer.line(host, f"{front} | {text}")

    def _print_error(self, host: str, error: str) -> None:
        if self._as_json:
            click.echo(json.dumps({"host": host, "error": error}))
        say(error)
