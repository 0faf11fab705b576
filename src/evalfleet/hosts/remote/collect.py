"""Collects the files of an ended attempt from a host.

They arrive in pieces in a folder beside the destination (`….partial`), which is kept for the next try if the connection breaks and
is renamed at the end. Paths and sizes from the host are not trusted.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import anyio.to_thread
from msgspec import Struct

from evalfleet.hosts.late_redaction import redact
from evalfleet.hosts.protocol.link import PROTOCOL
from evalfleet.hosts.protocol.manifest import Manifest, manifest_of
from evalfleet.model import JsonObject
from evalfleet.runner.attempt.collect import FILES, MAX_DEPTH, MAX_FILES
from evalfleet.runner.safe_files import open_regular

LEFT_OUT = "left-out.json"
PIECE = 1 << 18
AT_ONCE = 2 << 20  # bytes on their way at once: enough for a host that is far away, little enough for a thin line
MOST_PIECES = 64
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO})  # or no regular file


class AttemptSource(Protocol):
    """What answers requests for files: a link to the runner, or something that has them already."""

    async def send_many(self, messages: Iterable[JsonObject]) -> list[JsonObject]: ...


class CollectLimits(Struct, frozen=True, kw_only=True):
    """How much is collected at most; the rest stays on the host."""

    file_bytes: int = 4 << 30
    all_bytes: int = 32 << 30


class _Piece(Struct, frozen=True):
    path: str
    offset: int
    limit: int

    def message(self, attempt_id: str) -> JsonObject:
        return {"do": "fetch", "attempt": attempt_id, "path": self.path, "offset": self.offset, "limit": self.limit}


class Collection:
    """The transfer of one attempt's files to one destination."""

    def __init__(self, link: AttemptSource, attempt_id: str, destination: Path, caps: CollectLimits) -> None:
        self._link = link
        self._attempt_id = attempt_id
        self._destination = destination
        self._caps = caps
        self._partial = destination.with_name(f"{destination.name}.partial")
        self._left_out: dict[str, str] = {}  # path -> why

    async def collect(self, secrets: Mapping[str, str]) -> None:
        """Collect the files. Does nothing if the host does not have the attempt, or the attempt has not ended.

        Raises:
            BackendError: the connection broke; what has arrived is kept for the next try.
            OSError: a file cannot be written here or is too large to collect, or the journal has no end record. The host must then keep
                its files.
        """
        if self._destination.exists():
            _raise_left_out(self._destination)
            return
        if secrets:
            # Files of an earlier try may be redacted in part, so sizes prove nothing.
            await anyio.to_thread.run_sync(self._start_anew)
        if not await self._collect_fixed():
            return
        manifest = await anyio.to_thread.run_sync(self._manifest)
        artifacts = self._wanted(manifest)
        await self._collect_all(artifacts)
        await anyio.to_thread.run_sync(self._finish, manifest, artifacts, secrets)
        _raise_left_out(self._destination)

    async def _collect_fixed(self) -> bool:
        """Request the attempt's state and the start of its standard files at once: usually that is all. False if it has not ended."""
        pieces = [_Piece(path, self._have(path), PIECE) for path in FILES]
        hello: JsonObject = {"do": "hello", "protocol": PROTOCOL}
        state, *answers = await self._link.send_many([hello, *(one.message(self._attempt_id) for one in pieces)])
        found = [one["state"] for one in state.get("attempts", []) if one["attempt"] == self._attempt_id]
        if found != ["ended"]:
            return False
        sizes = await anyio.to_thread.run_sync(self._write, pieces, answers)
        await self._collect_all({path: min(size, self._caps.file_bytes) for path, size in sizes.items()})
        return True

    async def _collect_all(self, sizes: Mapping[str, int]) -> None:
        for batch in _batches(self._missing(sizes)):
            answers = await self._link.send_many(one.message(self._attempt_id) for one in batch)
            await anyio.to_thread.run_sync(self._write, batch, answers)

    def _missing(self, sizes: Mapping[str, int]) -> Iterator[_Piece]:
        for path, size in sizes.items():
            for offset in range(self._have(path), size, PIECE):
                yield _Piece(path, offset, min(PIECE, size - offset))

    def _have(self, path: str) -> int:
        try:
            return (self._partial / path).stat().st_size
        except FileNotFoundError:
            return 0

    def _write(self, pieces: Iterable[_Piece], answers: Iterable[JsonObject]) -> dict[str, int]:
        """Store what arrived; returns the sizes of the files as the host reported them."""
        sizes: dict[str, int] = {}
        for piece, answer in zip(pieces, answers, strict=True):
            if piece.path in self._left_out:
                continue
            if not answer.get("ok"):
                if piece.path not in FILES or answer.get("errno") not in _NOT_THERE:
                    self._left_out[piece.path] = str(answer.get("message"))
                continue
            sizes[piece.path] = size = int(answer["size"])
            data = base64.b64decode(answer["data"], validate=True)[: piece.limit]
            if len(data) < min(piece.limit, size - piece.offset) or size < piece.offset:
                self._left_out[piece.path] = "it shrank while it was being copied"
                continue
            self._write_piece(self._partial / piece.path, data, piece.offset)
        return sizes

    def _write_piece(self, target: Path, data: bytes, offset: int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while data:
                written = os.pwrite(fd, data, offset)
                data, offset = data[written:], offset + written
        finally:
            os.close(fd)

    def _manifest(self) -> Manifest:
        journal = open_regular(str(self._partial / "journal.jsonl"))
        try:
            return manifest_of(journal)
        except OSError:
            self._start_anew()  # the host's answers about the rest may be outdated too
            raise
        finally:
            os.close(journal)

    def _wanted(self, manifest: Manifest) -> dict[str, int]:
        """The artifacts in the end record that may be collected."""
        wanted: dict[str, int] = {}
        total = 0
        for path, size in manifest.artifacts:
            if not _is_plain(path) or len(wanted) >= MAX_FILES:
                self._left_out[path] = "its path is not valid here"
            elif size > self._caps.file_bytes or total + size > self._caps.all_bytes:
                self._left_out[path] = f"too large: {size} bytes"
            else:
                total += size
                wanted[f"artifacts/{path}"] = size
        return wanted

    def _finish(self, manifest: Manifest, artifacts: Mapping[str, int], secrets: Mapping[str, str]) -> None:
        for name in manifest.unclean & frozenset(FILES):
            (self._partial / name).unlink(missing_ok=True)
        (self._partial / "artifacts").mkdir(parents=True, exist_ok=True)
        for path, size in artifacts.items():
            if size == 0:
                self._write_piece(self._partial / path, b"", 0)
        if secrets:
            redact(self._partial, secrets)
        if self._left_out:
            (self._partial / LEFT_OUT).write_text(json.dumps(self._left_out, indent=1) + "\n")
        for parent, _, names in os.walk(self._partial):
            for name in (".", *names):
                _sync(os.path.join(parent, name))
        self._partial.rename(self._destination)
        _sync(str(self._destination.parent))

    def _start_anew(self) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)


def _batches(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    batch: list[_Piece] = []
    for piece in pieces:
        batch.append(piece)
        if sum(one.limit for one in batch) >= AT_ONCE or len(batch) >= MOST_PIECES:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return (
        len(parts) <= MAX_DEPTH + 1
        and "\0" not in path
        and all(part not in ("", ".", "..") and len(os.fsencode(part)) <= 255 for part in parts)
    )


def _raise_left_out(folder: Path) -> None:
    """Raise OSError every time, so that the host keeps its files."""
    try:
        left_out: dict[str, str] = json.loads((folder / LEFT_OUT).read_bytes())
    except FileNotFoundError:
        return
    path, why = next(iter(left_out.items()))
    more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
    raise OSError(errno.EFBIG, f"{len(left_out)} files stay on the host: {path} ({why}){more}", str(folder / LEFT_OUT))


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
