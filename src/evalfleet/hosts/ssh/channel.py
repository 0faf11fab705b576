"""Copies the runner to a host over SSH, starts it, and connects it to a stream."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeAlias

import anyio
import asyncssh
from anyio.abc import ByteStream
from msgspec import Struct

from evalfleet.errors import BackendError, HostRefused, HostUnreachable, RunnerUnavailable
from evalfleet.hosts.ssh.connection import words_of
from evalfleet.model import JsonObject
from evalfleet.runner.__main__ import KEPT
from evalfleet.runner.bootstrap import MARK
from evalfleet.runner.build import bootstrap, build, visit_program

Process: TypeAlias = asyncssh.SSHClientProcess[bytes]

ANSWER_S = 150.0  # a runner may have a dead predecessor's tasks to end first, on a host far away
NOISE = 1 << 20  # what a login shell may say before us
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "/usr/bin/python3", "/usr/local/bin/python3")
NO_PYTHON = 93
EXIT_S = 10.0  # between the end of a program's output and its exit status
# One line without single quotes, backslashes or exclamation marks, so that any login shell passes it on as it is. What is read
# raw leaves the rest of standard input to the next program.
_FIND = (
    'for p in "$@"; do "$p" -c "import sys; sys.exit(sys.version_info < (3, LEAST))" 2>/dev/null && '
    'exec "$p" -I -S -c "import sys; exec(sys.stdin.buffer.raw.readline())"; done; '
    'for p in "$@"; do v=$("$p" -V 2>&1) && echo "$p is $v" >&2; done; '
    f"exit {NO_PYTHON}"
)


class RunnerPlace(Struct, frozen=True, kw_only=True):
    """The runner's folder and Python on a host."""

    folder: str
    python: str | None  # None: looked for


class ChannelStream(ByteStream):
    """The standard input and output of a process on a host."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def receive(self, max_bytes: int = 65536) -> bytes:
        try:
            data = await self._process.stdout.read(max_bytes)
        except (asyncssh.Error, OSError) as error:
            raise anyio.BrokenResourceError from error
        if data:
            return data
        with anyio.move_on_after(EXIT_S):
            await self._process.wait_closed()
        if self._process.exit_status == 0:
            raise anyio.EndOfStream
        raise anyio.BrokenResourceError from await _failure(self._process)

    async def send(self, item: bytes) -> None:
        try:
            self._process.stdin.write(item)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        self._process.stdin.write_eof()

    async def aclose(self) -> None:
        self._process.close()


@asynccontextmanager
async def runner_stream(
    connection: asyncssh.SSHClientConnection, place: RunnerPlace, *words: str
) -> AsyncGenerator[ChannelStream]:
    """Start the runner's program on the host with the arguments `words`, as a stream. Copies it there first if it is missing.

    Raises HostRefused where the host has no suitable Python, or no space for the runner; HostUnreachable where the connection
    broke.
    """
    process = await waiting_python(connection, _pythons(place))
    try:
        try:
            with anyio.fail_after(ANSWER_S):
                await _prepare(process, place, words)
        except TimeoutError as error:
            raise HostUnreachable(f"the host has not answered for {ANSWER_S:.0f} s") from error
        yield ChannelStream(process)
    finally:
        process.close()


@asynccontextmanager
async def visit_answers(
    connection: asyncssh.SSHClientConnection, place: RunnerPlace, orders: JsonObject
) -> AsyncGenerator[AsyncGenerator[JsonObject]]:
    """Run the inspection program on the host and return its answers line by line. Writes nothing on the host.

    Raises HostRefused where the host has no Python that will do; HostUnreachable where the connection broke.
    """
    async with (
        run_program(connection, place, visit_program(), orders) as (_, process),
        aclosing(_lines(process)) as lines,
    ):
        yield lines


@asynccontextmanager
async def run_program(
    connection: asyncssh.SSHClientConnection, place: RunnerPlace, program: bytes, orders: JsonObject
) -> AsyncGenerator[tuple[JsonObject, Process]]:
    """Send a program to the host's Python and wait for its first marked line. Writes nothing on the host.

    Raises HostRefused where the host has no Python that will do; HostUnreachable where the connection broke.
    """
    process = await waiting_python(connection, _pythons(place))
    try:
        try:
            with anyio.fail_after(ANSWER_S):
                process.stdin.write(program_text(program, {"folder": place.folder, **orders}))
                first = await _marked_line(process, ", ".join(_pythons(place)))
        except TimeoutError as error:
            raise HostUnreachable(f"the host has not answered for {ANSWER_S:.0f} s") from error
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
        yield first, process
    finally:
        process.close()


async def _lines(process: Process) -> AsyncGenerator[JsonObject]:
    pieces: list[bytes] = []
    while True:
        try:
            data = await process.stdout.read(1 << 18)
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
        if not data:
            break
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield json.loads(b"".join((*pieces, line)))
            pieces.clear()
        pieces.append(rest)
    with anyio.move_on_after(EXIT_S):
        await process.wait_closed()
    if process.exit_status != 0:
        raise await _failure(process)


async def waiting_python(
    connection: asyncssh.SSHClientConnection, pythons: Sequence[str], *, least: int = 8
) -> Process:
    """Start the first of these Pythons on the host that is 3.`least` or newer; it waits for a program. Raises HostUnreachable."""
    find = _FIND.replace("LEAST", str(least))
    return await start_process(
        connection, " ".join(["exec sh -c", shlex.quote(find), "sh", *map(shlex.quote, pythons)])
    )


async def start_process(connection: asyncssh.SSHClientConnection, command: str) -> Process:
    """Start a command on the host. Raises HostUnreachable."""
    try:
        return await connection.create_process(command, encoding=None)
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the host does not open a session: {words_of(error)}") from error


def program_text(program: bytes, orders: JsonObject) -> bytes:
    """Encode a program on one line, and its orders on the next."""
    text = base64.b64encode(program).decode()
    return f'import base64; exec(base64.b64decode("{text}").decode())\n{json.dumps(orders)}\n'.encode()


def _pythons(place: RunnerPlace) -> tuple[str, ...]:
    return (place.python,) if place.python else PYTHONS


async def run_command(
    connection: asyncssh.SSHClientConnection, place: RunnerPlace, word: str, *more: str
) -> JsonObject:
    """Run one command of the runner's program on the host and return its answer, a line of JSON."""
    async with runner_stream(connection, place, word, "--spool", "{folder}", *more) as stream:
        data = b""
        try:
            with anyio.fail_after(ANSWER_S), suppress(anyio.EndOfStream):
                while not data.endswith(b"\n"):
                    data += await stream.receive()
            return json.loads(data)
        except (TimeoutError, anyio.BrokenResourceError) as error:
            raise HostUnreachable(f"the connection broke, or no answer came within {ANSWER_S:.0f} s") from error
        except ValueError as error:
            raise RunnerUnavailable(f"the runner's program gave an invalid answer: {data[:80]!r}") from error


async def _prepare(process: Process, place: RunnerPlace, words: tuple[str, ...]) -> None:
    """Copy the runner to the host if it is missing, and let the process become it."""
    data, _ = build()
    orders: JsonObject = {
        "folder": place.folder,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "words": words,
        "keep": sorted(KEPT),
    }
    try:
        with suppress(BrokenPipeError):  # it has ended already; why is read below
            process.stdin.write(program_text(bootstrap(), orders))
        line = await _marked_line(process, ", ".join(_pythons(place)))
        if not line.get("has") and "error" not in line:
            process.stdin.write(data)
            await process.stdin.drain()
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
    if "error" in line:
        raise HostRefused(f"cannot copy the runner to the host: {line['error']}")


async def _marked_line(process: Process, tried: str) -> dict[str, Any]:
    """The first marked line; a login shell may print others before it."""
    seen = 0
    while seen < NOISE:
        line = await process.stdout.readline()
        seen += len(line)
        if line.startswith(MARK.encode()):
            return json.loads(line[len(MARK) :])
        if not line:
            await process.wait_closed()
            break
    raise await _failure(process, tried)


async def _failure(process: Process, tried: str = "") -> BackendError:
    """Why the process has ended."""
    said = ""
    with anyio.move_on_after(EXIT_S), suppress(asyncssh.Error, OSError):
        said = (await process.stderr.read(1 << 16)).decode(errors="replace").strip()
    status = process.exit_status
    if status is None:  # the connection broke before its exit status arrived
        return HostUnreachable("the connection to the host was lost")
    if status == NO_PYTHON:
        found = "found: " + ", ".join(said.splitlines()) if said else f"tried {tried}"
        return HostRefused(
            f'the host has no Python 3.8 or newer ({found}); install one there, or set python = "…" in the hosts file'
        )
    last = (said.splitlines() or ["no output"])[-1]
    return HostRefused(f"the runner's program ended with exit status {status}: {last}")
