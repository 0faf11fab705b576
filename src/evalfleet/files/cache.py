"""A cache of files on this machine: each by its SHA-256, so that what is in it is always right, whoever put it there.

Processes share it without talking: a file appears whole by a rename, and one that is removed stays readable for who has it open. What
was used longest ago goes first. The limit may be passed for a moment by a twentieth for each process that writes. A cache that cannot
be written costs speed and nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from evalfleet.errors import FilesUnreachable

_PARTIAL = ".partial"
_LEFT_S = 3600.0  # a partial file that old was left by a killed process
_USED_S = 60.0  # a use is noted that often
_ROUND = 0.9  # of the limit is kept when room is made


class Cache:
    def __init__(self, folder: Path, limit: int, *, largest: int) -> None:
        """
        Args:
            limit: bytes of all files.
            largest: bytes of one file; larger ones are not kept.
        """
        self._folder = folder
        self._limit = limit
        self._largest = min(largest, limit // 4)
        self._added = 0
        self._mutex = threading.Lock()

    def takes(self, size: int) -> bool:
        return size <= self._largest

    def open(self, sha256: str) -> int | None:
        """A descriptor of the file; None where it is not here. The caller closes it."""
        try:
            descriptor = os.open(self._place(sha256), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        with suppress(OSError):
            if time.time() - os.fstat(descriptor).st_mtime > _USED_S:
                os.utime(descriptor)
        return descriptor

    def add(self, sha256: str, blocks: Iterable[bytes]) -> int | None:
        """Keep what the blocks give. Returns its descriptor, also where it must make room again at once.

        None: the cache cannot be written. Raises FilesUnreachable where the content is not what it should be, and whatever `blocks`
        raises.
        """
        place = self._place(sha256)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial = place.with_name(f"{sha256}.{os.urandom(6).hex()}{_PARTIAL}")
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            size = self._fill(descriptor, sha256, blocks)
            if size is not None:
                partial.rename(place)
        except BaseException:
            os.close(descriptor)
            _unlink(partial)
            raise
        if size is None:
            os.close(descriptor)
            _unlink(partial)
            return None
        self._made(size)
        return descriptor

    def _place(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256

    def _fill(self, descriptor: int, sha256: str, blocks: Iterable[bytes]) -> int | None:
        """Write and check. None: the disk does not take it."""
        digest, size = hashlib.sha256(), 0
        for block in blocks:
            digest.update(block)
            try:
                size += _write(descriptor, block)
            except OSError:
                return None
        if digest.hexdigest() != sha256:
            raise FilesUnreachable(f"a file was changed in the storage: its SHA-256 is not {sha256}")
        return size

    def _made(self, size: int) -> None:
        with self._mutex:
            self._added += size
            if self._added <= self._limit // 20:
                return
            self._added = 0
        self.make_room()

    def make_room(self) -> None:
        """Remove what was used longest ago, until the files fit. Does nothing while another process does that."""
        try:
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_oldest()
        except OSError:
            return
        finally:
            os.close(lock)

    def _remove_oldest(self) -> None:
        now, found = time.time(), list[tuple[float, int, str]]()
        for path, known in _files(self._folder):
            if not path.endswith(_PARTIAL):
                found.append((known.st_mtime, known.st_size, path))
            elif now - known.st_mtime > _LEFT_S:
                _unlink(Path(path))
        total = sum(size for _, size, _ in found)
        if total <= self._limit:
            return
        for _, size, path in sorted(found):
            if total <= self._limit * _ROUND:
                return
            _unlink(Path(path))
            total -= size


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for inner in os.scandir(folder):
        if inner.is_dir(follow_symlinks=False):
            for entry in os.scandir(inner.path):
                with suppress(FileNotFoundError):  # another process removed it
                    yield entry.path, entry.stat(follow_symlinks=False)


def _write(descriptor: int, block: bytes) -> int:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(block)


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
