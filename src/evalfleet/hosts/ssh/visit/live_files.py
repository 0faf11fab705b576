"""Reads the files and screens of attempts that still run on a host.

Uses an existing connection, writes nothing on the host and does not involve the runner. Answers are validated: the host is not
trusted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncssh
import msgspec
from anyio.abc import ByteStream

from evalfleet.errors import HostRefused, HostUnreachable, NotFound
from evalfleet.hosts.ssh.channel import ChannelStream, Process, RunnerPlace, run_program
from evalfleet.hosts.ssh.connection import words_of
from evalfleet.model import JsonObject
from evalfleet.runner.build import live_files_program
from evalfleet.runner.visit.files import MOST_BYTES, MOST_FILES, STREAMS

PIECE = MOST_BYTES
_LONGEST = 4 << 20  # an answer of 2000 files is far below
_BLOCK = 1 << 16


class LiveFile(msgspec.Struct, frozen=True, array_like=True):
    """An artifact at the time of the request."""

    path: str
    size: int
    changed_at: float  # by the host's clock


class AttemptSnapshot(msgspec.Struct, frozen=True):
    """The files of a live attempt and their sizes at one moment."""

    logs: dict[str, int]  # bytes by stream
    events: int  # bytes of its event lines
    files: list[LiveFile]
    screen: bool  # it has a desktop that can be watched


class _Piece(msgspec.Struct, frozen=True):
    data: str
    size: int


class LiveFilesClient:
    """Requests to one host. Any number may run at once; `serve` must run beside them."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next = 0
        self._waiting: dict[int, tuple[anyio.Event, list[JsonObject]]] = {}
        self.broken: str | None = None

    async def look(self, attempt_id: str) -> AttemptSnapshot | None:
        """The current files of an attempt; None if the host does not have it. Raises HostUnreachable, HostRefused."""
        told = await self._ask({"do": "look", "attempt": attempt_id})
        if "missing" in told:
            return None
        seen = _checked(told, AttemptSnapshot)
        if any(seen.logs.get(stream, -1) < 0 for stream in STREAMS) or len(seen.files) > MOST_FILES or seen.events < 0:
            raise _strange()
        kept = [one for one in seen.files if _is_plain(one.path) and one.size >= 0]
        return msgspec.structs.replace(seen, files=kept)

    async def read(self, attempt_id: str, path: str, offset: int, limit: int) -> tuple[bytes, int]:
        """At most `PIECE` bytes of a file below the attempt's folder, and its size.

        Raises NotFound: there is no such file. HostUnreachable, HostRefused.
        """
        limit = min(limit, PIECE)
        told = await self._ask({"do": "read", "attempt": attempt_id, "path": path, "offset": offset, "limit": limit})
        if "missing" in told:
            raise NotFound(f"{path}: {str(told['missing'])[:200]}")
        piece = _checked(told, _Piece)
        try:
            data = base64.b64decode(piece.data, validate=True)
        except (binascii.Error, ValueError):
            raise _strange() from None
        if len(data) > limit:
            raise _strange()
        return data, piece.size

    async def screens(self) -> list[str]:
        """The attempts there that have a screen, newest first."""
        told = await self._ask({"do": "screens"})
        return [one for one in _checked(told.get("attempts"), list[str]) if len(one) < 200]

    async def serve(self) -> None:
        """Read answers until the program ends."""
        try:
            async for line in _lines(self._process):
                told = _checked(_decoded(line), dict[str, Any])
                waiting = self._waiting.pop(told.get("id", -1), None)
                if waiting is not None:
                    waiting[1].append(told)
                    waiting[0].set()
            self.broken = "the file viewer on the host has ended"
        except (asyncssh.Error, OSError, HostRefused) as error:
            self.broken = words_of(error)
        finally:
            self.broken = self.broken or "the connection is no longer being read"
            for event, _ in self._waiting.values():
                event.set()
            self._waiting.clear()

    async def _ask(self, question: JsonObject) -> JsonObject:
        if self.broken is not None:
            raise HostUnreachable(f"the connection broke: {self.broken}")
        self._next += 1
        number = self._next
        event, answers = self._waiting[number] = (anyio.Event(), [])
        try:
            self._process.stdin.write(msgspec.json.encode({**question, "id": number}) + b"\n")
            await event.wait()
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
        finally:
            self._waiting.pop(number, None)
        if not answers:
            raise HostUnreachable(f"the connection broke: {self.broken}")
        return answers[0]


@asynccontextmanager
async def live_files_client(
    connection: asyncssh.SSHClientConnection, place: RunnerPlace
) -> AsyncGenerator[LiveFilesClient]:
    """Run the file viewer on the host inside the block. Raises HostUnreachable, HostRefused."""
    async with run_program(connection, place, live_files_program(), {"do": "answer"}) as (_, process):
        peek = LiveFilesClient(process)
        async with anyio.create_task_group() as group:
            group.start_soon(peek.serve)
            yield peek
            group.cancel_scope.cancel()


@asynccontextmanager
async def attempt_screen(
    connection: asyncssh.SSHClientConnection, place: RunnerPlace, attempt_id: str
) -> AsyncGenerator[ByteStream]:
    """Connect to the desktop of an attempt, through its `vnc.sock`.

    A program on the host opens the socket, not sshd: so a task cannot replace it by a link, sshd need not allow forwarding, and the
    path may be longer than a socket address.

    Raises NotFound: there is none, or it does not answer. HostUnreachable, HostRefused.
    """
    orders: JsonObject = {"do": "relay", "attempt": attempt_id}
    async with run_program(connection, place, live_files_program(), orders) as (first, process):
        if "missing" in first:
            raise NotFound(
                f"the desktop of attempt {attempt_id} does not answer: {str(first['missing'])[:200]}; it may be over"
            )
        yield ChannelStream(process)


async def _lines(process: Process) -> AsyncGenerator[bytes]:
    pieces = b""
    while data := await process.stdout.read(_BLOCK):
        *whole, rest = (pieces + data).split(b"\n") if b"\n" in data else ((pieces + data),)
        for line in whole:
            yield line
        pieces = rest
        if len(pieces) > _LONGEST:
            raise _strange()


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.MsgspecError:
        raise _strange() from None


def _checked(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise _strange() from None


def _strange() -> HostRefused:
    return HostRefused("the host sent an invalid answer")


def _is_plain(path: str) -> bool:
    """Whether the path is safe to use here."""
    parts = path.split("/")
    if not path or "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
        return False
    return all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)
