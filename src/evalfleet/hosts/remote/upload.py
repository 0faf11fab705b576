"""Copies the files of a run to a host: each content once, whatever its name."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio.to_thread
from msgspec import Struct

from evalfleet.hosts.protocol.link import RunnerLink
from evalfleet.hosts.remote.bulk_link import BulkLink
from evalfleet.model import JsonObject
from evalfleet.runner.attempt.collect import MAX_DEPTH, MAX_FILES

PIECE = 1 << 19
AHEAD = 4  # pieces on their way at once: enough for a host that is far away, little enough for a thin line


class UnusableFile(Exception):
    """A file of the run cannot be copied: which, and why.

    Attributes:
        errno: from the host, if it could not store the file.
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class _Stamp(Struct, frozen=True):
    """Files with the same stamp are taken to have the same content, as `make` does."""

    path: Path
    size: int
    changed_ns: int


class FileSums:
    """SHA-256 sums of files, computed once per content; shared by all hosts."""

    def __init__(self) -> None:
        self._known: dict[_Stamp, str] = {}

    async def of(self, files: Mapping[str, Path]) -> dict[str, tuple[str, Path]]:
        """Path in the work folder -> sum and file; a folder means all regular files in it.

        Raises Unusable where one of them cannot be read, or its path leads out of the work folder.
        """
        return await anyio.to_thread.run_sync(self._all, files) if files else {}

    def _all(self, files: Mapping[str, Path]) -> dict[str, tuple[str, Path]]:
        found: dict[str, tuple[str, Path]] = {}
        for name, path in files.items():
            plain = os.path.normpath(name)
            if os.path.isabs(plain) or plain.split("/", 1)[0] == "..":
                raise UnusableFile(
                    f"files: {name} is outside the task file's folder; only files below it can be copied to a host"
                )
            try:
                for below, file in _regular(path):
                    found[os.path.normpath(os.path.join(plain, below))] = (self._sum(file), file)
            except OSError as error:
                raise UnusableFile(
                    f"files: {name} cannot be read: {error.strerror} ({error.filename or path})"
                ) from error
            if len(found) > MAX_FILES:
                raise UnusableFile(f"files: more than {MAX_FILES} files; pack them into one archive")
        return found

    def _sum(self, path: Path) -> str:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            stamp = _Stamp(path, status.st_size, status.st_mtime_ns)
            if stamp not in self._known:
                self._known[stamp] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._known[stamp]


def _regular(path: Path) -> Iterator[tuple[str, Path]]:
    """The file itself, or the regular files below a folder with their relative paths. Follows no links inside it."""
    if not path.is_dir():
        yield "", path
        return
    for parent, folders, names in os.walk(path, onerror=_raise):
        here = Path(parent).relative_to(path)
        if len(here.parts) >= MAX_DEPTH:
            folders.clear()
        for name in names:
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                yield str(here / name), file


def _raise(error: OSError) -> None:
    raise error


class HostFiles:
    """The files that one host has, as far as this connection knows. Each content is copied by one task at a time."""

    def __init__(self, bulk: BulkLink) -> None:
        self._bulk = bulk
        self._has: set[str] = set()
        self._bringing: dict[str, anyio.Lock] = {}

    def has(self, sums: Mapping[str, tuple[str, Path]]) -> bool:
        return all(digest in self._has for digest, _ in sums.values())

    async def upload(self, sums: Mapping[str, tuple[str, Path]]) -> None:
        """Copy the files that are missing. Raises BackendError; Unusable if a file changed meanwhile."""
        for name, (digest, path) in sums.items():
            async with self._bringing.setdefault(digest, anyio.Lock()):
                if digest not in self._has:
                    await self._put(await self._bulk.link(), digest, path, name)
                    self._has.add(digest)

    async def _put(self, link: RunnerLink, digest: str, path: Path, name: str) -> None:
        first = await link.request("put", sha256=digest, offset=0, data="", last=False)
        if first["known"]:
            return
        try:
            async with await anyio.open_file(path, "rb") as file:
                size = os.fstat(file.wrapped.fileno()).st_size
                offset = 0
                while True:
                    data = await file.read(PIECE * AHEAD)
                    if not data and offset < size:
                        raise UnusableFile(f"files: {name} shrank while it was being read")
                    for answer in await link.send_many(_pieces(digest, data, offset, size)):
                        if not answer.get("ok"):
                            said = f"files: the host could not store {name}: {answer.get('message')}"
                            raise UnusableFile(said, answer.get("errno"))
                    offset += len(data)
                    if offset >= size:
                        return
        except OSError as error:
            raise UnusableFile(f"files: {name} cannot be read: {error.strerror}") from error


def _pieces(digest: str, data: bytes, offset: int, size: int) -> Iterator[JsonObject]:
    for start in range(0, len(data) or 1, PIECE):
        piece = data[start : start + PIECE]
        end = offset + start + len(piece)
        text = base64.b64encode(piece).decode()
        yield {"do": "put", "sha256": digest, "offset": offset + start, "data": text, "last": end >= size}
