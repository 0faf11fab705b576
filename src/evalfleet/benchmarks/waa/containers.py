"""Which container an attempt works in. An attempt does not know its worker: it takes a container that is free.

The right to a container is a lock on a small file, which the kernel frees however its holder dies. The files lie in
one place for all homes and runs of a user, because the containers are the machine's. The file also tells how the last
attempt there ended: a container whose Windows failed is taken last, and restarted first. Beside it lies, for each task that
failed, in which containers it did: the next attempt prefers another one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evalfleet import config
from evalfleet.errors import EnvironmentFailed

_FAILED = b"failed\n"
_ASK_S = 0.1
_VARIABLE = "EVALFLEET_CONTAINER_LOCKS"  # names another folder, where machines share one /tmp


def lock_folder() -> Path:
    return Path(config.environment().get(_VARIABLE) or f"/tmp/evalfleet-waa-{os.getuid()}")


class TaskMemory:
    """In which containers of this machine one task of one run failed, and how often it hung.

    Args:
        task: names the run and the task.
    """

    def __init__(self, task: str, folder: Path | None = None) -> None:
        self._file = _checked(folder or lock_folder()) / f"task-{hashlib.sha256(task.encode()).hexdigest()[:24]}"

    def failed_in(self) -> list[str]:
        """The containers, the oldest failure first; one may be there several times."""
        return _content(self._file).decode().split()

    def add(self, container: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{container}\n")

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


class Lease:
    """The right to a container, until the file is closed."""

    def __init__(self, container: str, descriptor: int) -> None:
        self.container = container
        self._descriptor = descriptor

    @property
    def failed(self) -> bool:
        """Whether the container did not work when it was last used."""
        return os.pread(self._descriptor, len(_FAILED), 0) == _FAILED

    def mark(self, *, failed: bool) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, _FAILED if failed else b"", 0)

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def leased(
    containers: Sequence[str], timeout_s: float, folder: Path | None = None, avoid: Sequence[str] = ()
) -> Generator[Lease]:
    """Take a free container, those of `avoid` last; wait for one if all are taken. Raises EnvironmentFailed after `timeout_s`."""
    place = _checked(folder or lock_folder())
    until = time.monotonic() + timeout_s
    while True:
        lease = _try(containers, place, avoid)
        if lease is not None:
            break
        if time.monotonic() >= until:
            raise EnvironmentFailed(
                f"container: none of {len(containers)} was free within {timeout_s:g} s ({', '.join(containers[:3])}): another run "
                "uses them, or there are more workers than [waa] containers"
            )
        time.sleep(_ASK_S)
    try:
        yield lease
    finally:
        lease.close()


def _try(containers: Sequence[str], folder: Path, avoid: Sequence[str]) -> Lease | None:
    files = {name: folder / f"{name}.lock" for name in containers}
    for name in sorted(containers, key=lambda name: (avoid.count(name), _content(files[name]) == _FAILED)):
        descriptor = os.open(files[name], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return Lease(name, descriptor)
    return None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _checked(folder: Path) -> Path:
    """Create the folder; refuse one that another user may have prepared."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise EnvironmentFailed(f"{folder} belongs to another user; remove it")
    return folder
