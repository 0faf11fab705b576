"""File locks on GPUs that all homes and users of a host share.

A runner opens the file of a GPU once and locks it; every attempt on that GPU inherits the same open file. So the lock lasts as
long as any of their processes lives, even after the runner has died: an orphan keeps its GPU locked. It is released by closing,
never by unlocking, which would release it for the orphans too.

`host.lock_file` opens such files safely in a folder that all users can write.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from .. import jsontext
from ..attempt import process_tree
from ..host import lock_file
from .devices import stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "/tmp/evalfleet-gpus"
VARIABLE = "EVALFLEET_GPU_LOCKS"  # in the place of that, where homes share another folder
BESIDE_STAND_IN = "gpu-locks"
TRIES = 5  # a process that only tests whether it is free holds it for microseconds
PAUSE_S = 0.002
MOST_NOTE = 4096


class GpuLockHeld(Exception):
    """The lock is not available. `words` say who has it, or why; `pids` are known holders; `ours`: they belong to this spool."""

    def __init__(self, words: str, pids: list[int] | None = None, ours: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.pids = pids or []
        self.ours = ours


def folder_for(spool: str) -> str:
    """The folder of the locks. For GPUs from a `gpus.json` it is beside that file."""
    path = stand_in(spool)
    if os.path.exists(path):
        return os.path.join(os.path.dirname(os.path.realpath(path)), BESIDE_STAND_IN)
    return os.environ.get(VARIABLE) or FOLDER


class GpuLocks:
    """The locks of one runner: each GPU at most once, for any number of its attempts."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._held: dict[str, tuple[int, set[str]]] = {}  # by uuid: the descriptor, and for whom

    @property
    def descriptors(self) -> list[int]:
        return [fd for fd, _ in self._held.values()]

    def take(self, uuid: str, attempt: str) -> int:
        """Lock a GPU, and return the descriptor that an attempt inherits.

        Raises:
            Held: another process has it, or its file cannot be trusted.
        """
        known = self._held.get(uuid)
        if known is None:
            attempts: set[str] = set()
            known = self._held[uuid] = (_locked(folder_for(self._spool), uuid, self._spool), attempts)
        fd, attempts = known
        attempts.add(attempt)
        self._note(fd, attempts)
        return fd

    def drop(self, uuid: str, attempt: str) -> bool:
        """An attempt no longer needs it. True if it was the last one here, so that no process should hold the lock any longer."""
        known = self._held.get(uuid)
        if known is None or attempt not in known[1]:
            return False
        fd, attempts = known
        attempts.discard(attempt)
        if attempts:
            self._note(fd, attempts)
            return False
        del self._held[uuid]
        os.close(fd)
        return True

    def touch(self) -> None:
        """Update the files' times, so that a cleanup of the folder spares them."""
        lock_file.touch(folder_for(self._spool), self.descriptors)

    def outsider(self, uuid: str) -> str | None:
        """Who else holds the lock, in words; None if no other process does."""
        if uuid in self._held:
            return None
        found = holder(folder_for(self._spool), uuid, self._spool, names=False)
        return found.words if found is not None else None

    def _note(self, fd: int, attempts: set[str]) -> None:
        """Write who holds the lock, for people and for the next runner of the spool."""
        note = {"spool": self._spool, "runner": os.getpid(), "uid": os.getuid(), "attempts": sorted(attempts)[:16]}
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, jsontext.encode(note), 0)
        except OSError:
            pass  # the lock counts, not the note


def holder(folder: str, uuid: str, spool: str, names: bool = True) -> GpuLockHeld | None:
    """Who holds the lock of a GPU; None if it is free. Tested with a shared lock, so that two tests do not see each other.

    Args:
        names: also find the processes, which means scanning the open files of all processes.
    """
    try:
        fd = lock_file.open_lock(folder, _name(uuid), make=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        return GpuLockHeld(_unusable(folder, uuid, error))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _held_by(fd, spool, names)
    finally:
        os.close(fd)
    return None


def end_orphans(spool: str, uuid: str, patience_s: float) -> GpuLockHeld | None:
    """Kill processes that keep a lock of this spool after its runner released it or died; returns who is left.

    Only processes with that lock's open file count, which only attempts of this spool have, with or without a mark. Only processes of
    our own user are killed: any user can write the note that names the holder.
    """
    folder = folder_for(spool)
    deadline = time.monotonic() + patience_s
    while True:
        found = holder(folder, uuid, spool)
        if found is None or not found.ours:
            return None
        if time.monotonic() > deadline:
            return found
        for pid in found.pids:
            if pid != os.getpid() and _uid_of(pid) == os.getuid():
                process_tree.kill(pid)
        time.sleep(PAUSE_S)


def lock(folder: str, uuid: str, words: str) -> int:
    """Lock a GPU for a program that is not an attempt. No spool is named, so no runner takes it for one of its orphans.

    Args:
        words: name of the holder, shown to people.

    Raises:
        Held: another process has it, or its file cannot be trusted.
    """
    fd = _locked(folder, uuid, "")
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, jsontext.encode({"program": words, "uid": os.getuid()}), 0)
    except OSError:
        pass  # the lock counts, not the note
    return fd


def _locked(folder: str, uuid: str, spool: str) -> int:
    """Raises Held."""
    found = GpuLockHeld("its lock file %s keeps being replaced" % os.path.join(folder, uuid + ".lock"))
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        try:
            fd = lock_file.open_lock(folder, _name(uuid), make=True)
        except OSError as error:  # perhaps it is just being made, and not open to all yet
            found = GpuLockHeld(_unusable(folder, uuid, error))
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock_file.is_current(fd, folder, _name(uuid)):
                return fd
        except OSError:
            found = _held_by(fd, spool)
        os.close(fd)
    raise found


def _name(uuid: str) -> str:
    return uuid + ".lock"


def _held_by(fd: int, spool: str, names: bool = True) -> GpuLockHeld:
    note: dict[str, Any] = {}
    try:
        note = jsontext.as_object(json.loads(os.pread(fd, MOST_NOTE, 0))) or {}
    except (OSError, ValueError, RecursionError):
        pass
    pids = lock_file.holders(fd) if names else []
    ours = note.get("spool") == spool
    where = (
        "an earlier attempt of this runner's spool" if ours else "the runner of %s" % lock_file.plain(note.get("spool"))
    )
    words = "%s (runner %s, uid %s)" % (where, lock_file.plain(note.get("runner")), lock_file.plain(note.get("uid")))
    if note.get("program") is not None:
        words = "%s (uid %s)" % (lock_file.plain(note.get("program")), lock_file.plain(note.get("uid")))
    if pids:
        words += ", process " + ", ".join(map(str, pids[:8]))
    return GpuLockHeld(words, pids, ours)


def _uid_of(pid: int) -> int:
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return -1


def _unusable(folder: str, uuid: str, error: OSError) -> str:
    return "an unknown holder: its lock file %s cannot be used (%s); an administrator must repair %s, mode 1777" % (
        os.path.join(folder, uuid + ".lock"),
        error.strerror or error,
        folder,
    )
