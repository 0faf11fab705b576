"""The rate limit that all attempts of a run on one host share: a small file under a lock.

It lies in a folder that only this user can enter, below the one for temporary files. The kernel frees the lock of a
process that dies; what it leaves half written is not read. Another host has a file, and so a pace, of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from evalfleet.agents.llm import governor
from evalfleet.agents.llm.governor import Limits, Pace, Turn
from evalfleet.errors import EnvironmentFailed

_LOCK_S = 10.0  # a holder that was stopped must not stop the others; going on without the file is the lesser harm
_PAUSE_S = 0.005
_LARGEST = 1 << 16
_AGED_S = 24 * 3600.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Governor:
    """Gives turns to the requests for one model at one endpoint. Used by one thread; many processes share the file."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,  # counts from the boot: the same for all processes of a host
        rng: Random | None = None,
    ) -> None:
        self._path = path
        self._limits = limits
        self._clock = clock
        self._rng = rng or Random()
        self._boot = _boot()

    def take_turn(self) -> Turn:
        with self._shared() as keep:
            keep.pace, turn = governor.take_turn(keep.pace, self._limits, self._clock())
        return turn

    def holds(self, turn: Turn) -> bool:
        """Whether the turn may be used now; if not, it is given back."""
        with self._shared() as keep:
            held = governor.holds(keep.pace, turn, self._clock())
            if not held:
                keep.pace = governor.give_back(keep.pace, turn)
        return held

    def answered(self, turn: Turn, tokens: int) -> None:
        with self._shared() as keep:
            keep.pace = governor.answered(keep.pace, turn, tokens)

    def refused(self, turn: Turn, wait_s: float | None) -> None:
        with self._shared() as keep:
            keep.pace = governor.refused(keep.pace, turn, self._clock(), wait_s, self._rng)

    def pause(self, wait_s: float) -> None:
        with self._shared() as keep:
            keep.pace = governor.paused(keep.pace, self._clock(), wait_s)

    @contextmanager
    def _shared(self) -> Generator[_Stored]:
        """Give what the file holds, and write what becomes of it."""
        file, locked = _locked(self._path)
        try:
            keep = _Stored(self._boot, _read(file, self._boot))
            yield keep
            if locked:
                line = msgspec.json.encode(keep) + b"\n"
                os.pwrite(file, line, 0)  # one call: a process that is killed has written all or nothing
                os.ftruncate(file, len(line))
        finally:
            os.close(file)


class _Stored(Struct):
    """What is in the file."""

    boot: str
    pace: Pace


def pace_file(attempt: str | None, endpoint: str, model: str) -> Path:
    """Return the path of the pace that an attempt shares with the others of its run; makes the folders.

    Args:
        attempt: its id, `run.task.number`; None where there is none, and then nothing is shared with anybody.
        endpoint: address of the service.
        model: its name.

    Raises:
        EnvironmentFailed: the folder is somebody else's, or cannot be made.
    """
    run = (attempt or f"process-{os.getpid()}").partition(".")[0]
    name = run if re.fullmatch(r"[\w-]{1,64}", run) else hashlib.sha256(run.encode()).hexdigest()[:16]
    top = Path(tempfile.gettempdir()) / f"evalfleet-pace-{os.getuid()}"
    folder = top / name
    try:
        for each in (top, folder):
            _make_private(each)
        _remove_aged(top, folder)
    except OSError as error:
        raise EnvironmentFailed(f"cannot create {folder}: {error.strerror}; set TMPDIR to another folder") from None
    digest = hashlib.sha256(f"{endpoint} {model}".encode()).hexdigest()[:16]
    return folder / f"{digest}.json"


def _make_private(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise EnvironmentFailed(f"{folder} can be used by other users; remove it, or set TMPDIR to another folder")


def _remove_aged(top: Path, own: Path) -> None:
    """Remove the files of old runs."""
    oldest = time.time() - _AGED_S
    for folder in top.iterdir():
        if folder == own or folder.lstat().st_mtime > oldest:
            continue
        with suppress(OSError):  # another process does the same
            files = list(folder.iterdir())
            if all(file.lstat().st_mtime <= oldest for file in files):
                for file in files:
                    file.unlink()
                folder.rmdir()


def _locked(path: Path) -> tuple[int, bool]:
    """Open the file and lock it; without the lock where somebody keeps it too long."""
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise EnvironmentFailed(f"cannot open {path}: {error.strerror}; set TMPDIR to another folder") from None
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                return file, False
            time.sleep(_PAUSE_S)
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                return file, True
        os.close(file)  # it was removed for its age while we waited


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: int, boot: str) -> Pace:
    """Return what the file's first line says; a new pace where it is empty, torn, or of another boot."""
    line = os.pread(file, _LARGEST, 0).partition(b"\n")[0]
    try:
        stored = msgspec.json.decode(line, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Pace()
    return stored.pace if stored.boot == boot else Pace()


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
