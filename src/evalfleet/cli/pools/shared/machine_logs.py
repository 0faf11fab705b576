"""Logs of machines on the terminal, of several at the same time."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import anyio
import click

from evalfleet.answers.machines import MachineLog, MachineLogList
from evalfleet.cli.pools.shared.hosts import AT_ONCE, say
from evalfleet.cli.pools.shared.pools import chosen
from evalfleet.cli.pools.shared.prefixed_lines import Lines
from evalfleet.cli.results.logs import harmless
from evalfleet.cli.shared.document import print_document
from evalfleet.errors import BackendError, EvalfleetError
from evalfleet.hosts.base import single_error
from evalfleet.model import Pool
from evalfleet.operations.machines import machine_logs
from evalfleet.operations.machines.machine_logs import Target
from evalfleet.store.reader import StoreReader

LOST = 3


def pool_of(name: str | None, host: str | None, pools: list[Pool], reader: StoreReader | None) -> Pool:
    """The pool that is named; without a name that of the machine, or the only one."""
    if name is None and host is not None and reader is not None:
        for pool in pools:
            hosts = [row.name for row in reader.hosts.of_pool(pool.name, gone=True)]
            if any(host == known or host.rpartition("-")[0] == known for known in hosts):
                return pool
    return chosen(name, pools)


class MachineLogPrinter:
    def __init__(
        self, machines: Sequence[Target], log: str | None, lines: int | None, *, kept: bool, as_json: bool
    ) -> None:
        """
        Args:
            log: None: the names of the logs that there are.
        """
        self._machines = machines
        self._log = log
        self._lines = lines
        self._kept = kept
        self._as_json = as_json
        self._failures: dict[str, EvalfleetError] = {}
        self._found: dict[str, MachineLog | MachineLogList] = {}

    async def run(self) -> int:
        """Print, and return the exit status. Raises the error where there is only one machine."""
        limit = anyio.CapacityLimiter(AT_ONCE)

        async def ask(target: Target) -> None:
            async with limit:
                try:
                    self._found[target.name] = await self._asked(target)
                except EvalfleetError as error:
                    self._failures[target.name] = error

        with single_error():
            async with anyio.create_task_group() as group:
                for target in self._machines:
                    group.start_soon(ask, target)
        for target in self._machines:
            self._print(target.name)
        failures = list(self._failures.values())
        if failures and len(self._machines) == 1:
            raise failures[0]
        return LOST if any(isinstance(error, BackendError) for error in failures) else int(bool(failures))

    async def _asked(self, target: Target) -> MachineLog | MachineLogList:
        if self._log is None:
            return await machine_logs.names(target)
        return await machine_logs.read(target, self._log, lines=self._lines, from_kept=self._kept)

    def _print(self, name: str) -> None:
        answer = self._found.get(name)
        if answer is None:
            if len(self._machines) > 1:
                say(str(self._failures[name]))
        elif self._as_json:
            print_document(answer)
        elif isinstance(answer, MachineLogList):
            self._print_names(answer)
        else:
            self._print_text(answer)

    def _print_names(self, answer: MachineLogList) -> None:
        for row in answer.logs:
            click.echo(f"{answer.host}  {row.log}" + (f"  (kept in {row.file})" if row.source == "kept" else ""))
        for reason in answer.unread:
            say(f"host {answer.host}: more may be there: {reason}")

    def _print_text(self, answer: MachineLog) -> None:
        if answer.kept:
            where = f"run {answer.run}" if answer.run else "its pool"
            say(f"host {answer.host}: kept with {where} when it failed")
        if len(self._machines) == 1:
            click.echo(harmless(answer.text, colour=True) if sys.stdout.isatty() else answer.text, nl=False)
            return
        lines = Lines(max(len(target.name) for target in self._machines))
        for line in answer.text.splitlines():
            lines.line(answer.host, line)
