"""Attempts that run on other machines, as the API shows those that run here: logs that grow, films, files, screenshots.

What is looked at is copied to a folder of this server as far as it is needed, and read from there like anything else. A reader names
no path on a host: a file is one of those that the host told of a moment ago. Each attempt is looked at once a second at most, however
many people do.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evalfleet.benchmarks.screens import screen_of
from evalfleet.config import Settings
from evalfleet.errors import BackendError, Refused
from evalfleet.files.folder import FolderFiles
from evalfleet.hosts.access import ReachableHost, UnavailableHost, present
from evalfleet.report.trajectory import TRAJECTORY, film_of
from evalfleet.web.coalescing import Shared
from evalfleet.web.handlers.attempts import Place, Seen, SeenFile, newest_of
from evalfleet.web.host_connections import Line, Lines

if TYPE_CHECKING:
    from evalfleet.hosts.ssh.visit.live_files import AttemptSnapshot

FRESH_S = 1.0
MOST_BYTES = 64 << 20  # of one file that is brought while its attempt runs
_BLOCK = 1 << 16  # of a log
_PIECE = 1 << 18
_FILM_BYTES = 8 << 20
_FILM_STEP = 2 << 20  # that a look brings at most; the next one goes on
_AT_ONCE = 4
_KEPT_FILES = 1000
_KEPT_S = 600.0
_KEPT_FILMS = 200
_ROOM = 256 << 20  # bytes of files that are kept
_LATEST = 4e9  # seconds: a host may say anything of its files' age
_EVENTS = "events.jsonl"


class Remote:
    """Looks at attempts of other machines. Used in the event loop's thread."""

    def __init__(self, lines: Lines, settings: Settings) -> None:
        self.lines = lines
        self._settings = settings
        self._made: Path | None = None
        self._looks: Shared[Seen | None] = Shared(FRESH_S, 500)
        self._blocks: Shared[bytes] = Shared(30.0, 200)
        self._copies: Shared[Path] = Shared(_KEPT_S, _KEPT_FILES)
        self._ports: Shared[bool] = Shared(10.0, 500)

    def close(self) -> None:
        for shared in (self._looks, self._blocks, self._copies, self._ports):
            shared.close()
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        """Made when it is needed: a server that is killed leaves none behind unless it looked at other machines."""
        if self._made is None:
            self._made = Path(tempfile.mkdtemp(prefix="evalfleet-seen-"))
        return self._made

    async def seen(self, found: Place) -> Seen | None:
        """How far an attempt on another machine is. None: its files are here, or nowhere.

        Raises HostUnreachable, HostRefused.
        """
        if found.away is None or (isinstance(found.away, UnavailableHost) and not found.is_live):
            return None
        host = present(found.away)
        return await self._looks.get(found.attempt.id, lambda: self._look(host, found))

    async def seen_or_problem(self, found: Place) -> Seen | None:
        """Like `seen`, but an unreachable host is reported, not raised, because the store knows the rest."""
        try:
            return await self.seen(found)
        except BackendError as error:
            return Seen(film=found.files, problem=str(error)) if found.is_live else None

    async def log(self, found: Place, stream: str, begin: int, limit: int) -> bytes:
        """A piece of what an attempt writes; `seen` says how much there is."""
        seen = await self.seen(found)
        if seen is None or found.away is None:
            return b""
        host, size = present(found.away), seen.logs.get(stream, 0)
        end = min(size, begin + limit)
        blocks = range(begin // _BLOCK, -(-end // _BLOCK) if end > begin else begin // _BLOCK)
        pieces = await asyncio.gather(*(self._block(host, found, stream, number, size) for number in blocks))
        # A block that is shorter than it was told to be ends what can be given.
        return b"".join(pieces)[begin % _BLOCK :][: end - begin]

    async def file(self, found: Place, name: str) -> Path | None:
        """A copy of one of its artifacts; None where the host told of none of that name.

        Raises Refused: too large. NotFound: gone meanwhile. HostUnreachable, HostRefused.
        """
        seen = await self.seen(found)
        one = next((each for each in seen.files if each.path == name), None) if seen is not None else None
        if one is None or found.away is None:
            return None
        if one.size > MOST_BYTES:
            raise Refused(
                f"{name} has {one.size >> 20} MB; while its attempt runs on {found.attempt.host} files of at most "
                f"{MOST_BYTES >> 20} MB can be had. Wait until it ended"
            )
        host, attempt_id = present(found.away), found.attempt.id
        for _ in range(2):
            path = await self._copies.get((attempt_id, one), lambda: self._bring(host, attempt_id, one))
            if path.is_file():
                return path
            self._copies.forget((attempt_id, one))  # it had to make room
        return None

    async def picture(self, found: Place) -> Path | None:
        """A copy of its newest screenshot."""
        seen = await self.seen(found)
        if seen is None:
            return None
        film = await asyncio.to_thread(film_of, seen.film)
        newest = newest_of(film, seen.files)
        return None if newest is None else await self.file(found, newest)

    # What goes to the host

    async def _look(self, host: ReachableHost, found: Place) -> Seen | None:
        attempt_id = found.attempt.id
        folder = self._folder / "films" / hashlib.sha256(attempt_id.encode()).hexdigest()[:20]
        async with self.lines.to(host) as line:
            glimpse = await line.ask(lambda line: line.peek.look(attempt_id))
            if glimpse is None:
                if found.is_live:  # not launched yet, or just over
                    return Seen(film=FolderFiles(folder))
                return None
            await self._grow(line, attempt_id, folder, glimpse)
            port = None if glimpse.screen else await self._shown_on(line, found)
        files = tuple(SeenFile(path=one.path, size=one.size, changed_at=one.changed_at) for one in glimpse.files)
        return Seen(film=FolderFiles(folder), files=files, logs=dict(glimpse.logs), socket=glimpse.screen, port=port)

    async def _shown_on(self, line: Line, found: Place) -> int | None:
        """The port on which the host shows what the attempt does, where its benchmark says so."""
        from evalfleet.hosts.ssh.visit.screen import listens

        payload = cast("dict[str, Any] | None", found.task.spec.payload)
        name = payload.get("benchmark") if isinstance(payload, dict) else None
        screen = screen_of(name, self._settings) if isinstance(name, str) else None
        if screen is None or not screen.single:
            return None
        port = screen.port
        there = await self._ports.get(
            (line.host.name, port), lambda: line.ask(lambda line: listens(line.connection, port), vital=False)
        )
        return port if there else None

    async def _grow(self, line: Line, attempt_id: str, folder: Path, glimpse: AttemptSnapshot) -> None:
        """Bring what is new of what the film is made of."""
        size = next((one.size for one in glimpse.files if one.path == TRAJECTORY), None)
        name, size = (_EVENTS, glimpse.events) if size is None else (f"artifacts/{TRAJECTORY}", size)
        target = folder / name
        have = target.stat().st_size if target.is_file() else 0
        if size < have:
            target.unlink()  # it was begun anew
            have = 0
        end = min(size, _FILM_BYTES, have + _FILM_STEP)
        if end > have:
            pieces = await self._pieces(line, attempt_id, name, have, end)
            await asyncio.to_thread(_append, folder, target, pieces)

    async def _pieces(self, line: Line, attempt_id: str, path: str, begin: int, end: int) -> list[bytes]:
        """The bytes from `begin` to `end`, as far as they come: what is cut off there ends it."""
        found: list[bytes] = []
        offsets = range(begin, end, _PIECE)
        for first in range(0, len(offsets), _AT_ONCE):
            asked = [
                line.ask(lambda line, at=at: line.peek.read(attempt_id, path, at, min(_PIECE, end - at)))
                for at in offsets[first : first + _AT_ONCE]
            ]
            for at, (data, _) in zip(offsets[first:], await asyncio.gather(*asked), strict=False):
                found.append(data)
                if len(data) < min(_PIECE, end - at):
                    return found
        return found

    async def _block(self, host: ReachableHost, found: Place, stream: str, number: int, size: int) -> bytes:
        """One block of a log as it was when the log had `size` bytes. A full one never changes."""
        begin = number * _BLOCK
        end = min(size, begin + _BLOCK)
        attempt_id = found.attempt.id

        async def fetch() -> bytes:
            async with self.lines.to(host) as line:
                data, _ = await line.ask(lambda at: at.peek.read(attempt_id, f"{stream}.log", begin, end - begin))
                return data

        return await self._blocks.get((attempt_id, stream, begin, end), fetch)

    async def _bring(self, host: ReachableHost, attempt_id: str, one: SeenFile) -> Path:
        key = hashlib.sha256(f"{attempt_id}\0{one}".encode()).hexdigest()[:32]
        target = self._folder / "files" / key / one.path.rpartition("/")[2]
        async with self.lines.to(host) as line:
            pieces = await self._pieces(line, attempt_id, f"artifacts/{one.path}", 0, one.size)
        await asyncio.to_thread(_write, target, pieces, one.changed_at)
        return target


def _append(folder: Path, path: Path, pieces: Sequence[bytes]) -> None:
    """More of a film. The films that grew least lately make room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(pieces)
    os.utime(folder)
    for old in sorted(folder.parent.iterdir(), key=lambda one: one.stat().st_mtime)[:-_KEPT_FILMS]:
        shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, pieces: Sequence[bytes], changed_at: float) -> None:
    """Whole or not at all, in a folder of its own. What was brought first makes room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(".fresh")
    fresh.write_bytes(b"".join(pieces))
    at = min(max(changed_at, 0.0), _LATEST)
    os.utime(fresh, (at, at))
    fresh.rename(path)
    kept = sorted(path.parent.parent.iterdir(), key=lambda one: one.stat().st_ctime, reverse=True)
    size = 0
    for folder in kept:
        size += sum(file.stat().st_size for file in folder.iterdir())
        if size > _ROOM and folder != path.parent:
            shutil.rmtree(folder, ignore_errors=True)
