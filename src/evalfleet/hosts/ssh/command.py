"""Runs one command on a host, with live output and a time limit."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import anyio
import asyncssh
from msgspec import Struct

from evalfleet.hosts.ssh.connection import words_of

Process: TypeAlias = asyncssh.SSHClientProcess[bytes]
Sink: TypeAlias = Callable[[str, bytes], None]
PIECE = 1 << 16
GRACE_S = 4.0  # a command that is asked to end gets half of it before it is killed
STREAMS = ("stdout", "stderr")
# The command ends when the connection does: a watcher beside it reads standard input to its end, and then ends the whole
# process group. A server need not pass signals on, and OpenSSH's does not for root. Without single quotes, so that any login
# shell passes it on as it is.
_TIED = (
    'exec 3<&0; (trap "" TERM; cat <&3 >/dev/null; kill -s TERM -- -$$; sleep 2; kill -s KILL -- -$$) >/dev/null 2>&1 & w=$!; '
    '"${SHELL:-/bin/sh}" -c "$1" </dev/null 3<&-; s=$?; kill -s KILL $w; exit $s'
)


class CommandExit(Struct, frozen=True, kw_only=True):
    """How a command ended. `exit` is None if that is not known: it timed out, or the host was lost."""

    exit: int | None = None
    error: str | None = None
    is_lost: bool = False  # the host was not reached, or the connection broke


async def run(
    connection: asyncssh.SSHClientConnection, command: str, sink: Sink, timeout_s: float | None
) -> CommandExit:
    """Run a command in the login shell, without input. On a timeout or cancellation it is ended on the host as well.

    Args:
        sink: called with the name of a stream and the data that arrived on it.
    """
    try:
        tied = f"exec sh -c {shlex.quote(_TIED)} sh {shlex.quote(command)}"
        process = await connection.create_process(tied, encoding=None)
    except (asyncssh.Error, OSError) as error:
        return CommandExit(error=f"the host opens no session: {words_of(error)}", is_lost=True)
    try:
        with anyio.move_on_after(timeout_s):
            return await _watched(process, sink)
        return CommandExit(error=f"did not finish within {timeout_s:g} s, and was stopped on the host")
    finally:
        await _close(process)


async def _watched(process: Process, sink: Sink) -> CommandExit:
    lost: list[str] = []

    async def pump(stream: str, reader: asyncssh.SSHReader[bytes]) -> None:
        data = b"?"
        while data:
            try:
                data = await reader.read(PIECE)
            except (asyncssh.Error, OSError) as error:
                lost.append(words_of(error))
                return
            sink(stream, data)

    async with anyio.create_task_group() as group:
        for stream, reader in zip(STREAMS, (process.stdout, process.stderr), strict=True):
            group.start_soon(pump, stream, reader)
    await process.wait_closed()
    if process.exit_status is None and process.exit_signal is None:
        return CommandExit(error=f"the connection was lost{f': {lost[0]}' if lost else ''}", is_lost=True)
    return CommandExit(exit=exit_of(process))


def exit_of(process: asyncssh.SSHClientProcess[bytes]) -> int:
    """The exit status; 128 + N for a command that was ended by signal N, as in a shell."""
    if process.exit_signal is None:
        return process.exit_status or 0
    number = getattr(signal, f"SIG{process.exit_signal[0]}", signal.SIGHUP)
    return 128 + int(number)


async def _close(process: Process) -> None:
    """End the command if it still runs."""
    with anyio.CancelScope(shield=True):
        with suppress(asyncssh.Error, OSError):
            process.stdin.write_eof()
        with anyio.move_on_after(GRACE_S):
            await process.wait_closed()
        process.close()
