"""File locks on GPUs that all homes and users of a host share.

A runner opens the file of a GPU once and locks it; every attempt on that GPU inherits the very same open file. So the lock
lasts as long as any process of theirs lives, also when the runner is dead: an orphan keeps its GPU fenced. It is given up by
closing, never by unlocking, which would take it from the orphans too.

The folder is open to everybody. A file in it is used only if it is a plain one with no second name, and no link is followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time

from . import jsontext, tree
from .gpus import stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "/tmp/evalfleet-gpus"
VARIABLE = "EVALFLEET_GPU_LOCKS"  # in the place of that, where homes share another folder
BESIDE_STAND_IN = "gpu-locks"
SHARED = 0o1777
TRIES = 5  # somebody who only looks whether it is free has it for microseconds
PAUSE_S = 0.002
MOST_NOTE = 4096
MOST_TEXT = 200


class Held(Exception):
    """The lock cannot be had. `words` say who has it, or why; `pids` are known holders; `ours`: they are this spool's."""

    def __init__(self, words: str, pids: list[int] | None = None, ours: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.pids = pids or []
        self.ours = ours


def folder_for(spool: str) -> str:
    """Where the locks of the spool's GPUs lie. Those of a stand-in lie beside the file, whose GPUs nobody else has."""
    path = stand_in(spool)
    if os.path.exists(path):
        return os.path.join(os.path.dirname(os.path.realpath(path)), BESIDE_STAND_IN)
    return os.environ.get(VARIABLE) or FOLDER


class Locks:
    """The locks of one runner: each GPU at most once, for any number of its attempts."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._held: dict[str, tuple[int, set[str]]] = {}  # by uuid: the descriptor, and for whom

    @property
    def descriptors(self) -> list[int]:
        return [fd for fd, _ in self._held.values()]

    def take(self, uuid: str, attempt: str) -> int:
        """The descriptor that an attempt on that GPU inherits.

        Raises:
            Held: somebody else has it, or its file cannot be trusted.
        """
        known = self._held.get(uuid)
        if known is None:
            nobody: set[str] = set()
            known = self._held[uuid] = (_locked(folder_for(self._spool), uuid, self._spool), nobody)
        fd, attempts = known
        attempts.add(attempt)
        self._note(fd, attempts)
        return fd

    def drop(self, uuid: str, attempt: str) -> bool:
        """An attempt does not need it any more. True: it was the last one here, and whoever still has the lock should not."""
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

    def outsider(self, uuid: str) -> str | None:
        """Who outside of this runner has it, in words."""
        if uuid in self._held:
            return None
        found = holder(folder_for(self._spool), uuid, self._spool, names=False)
        return found.words if found is not None else None

    def _note(self, fd: int, attempts: set[str]) -> None:
        """Write down who we are, for people and for the next runner of the spool."""
        note = {"spool": self._spool, "runner": os.getpid(), "uid": os.getuid(), "attempts": sorted(attempts)[:16]}
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, jsontext.encode(note), 0)
        except OSError:
            pass  # the lock counts, not the note


def holder(folder: str, uuid: str, spool: str, names: bool = True) -> Held | None:
    """Who has the lock of a GPU; None if nobody. Asked with a shared lock: two who look do not see each other.

    Args:
        names: find the processes, which means a look at everybody's open files.
    """
    try:
        fd = _open(folder, uuid, make=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Held(_unusable(folder, uuid, error))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _held_by(fd, spool, names)
    finally:
        os.close(fd)
    return None


def end_orphans(spool: str, uuid: str, patience_s: float) -> Held | None:
    """Kill who keeps a lock of this spool that its runner has given up or died with; who is left is returned.

    Only that lock's own open file counts, which nobody has but the processes of this spool's attempts, whatever became of
    their marks. Only our own user's processes are touched: anybody may write the note that says whose the lock is.
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
                tree.kill(pid)
        time.sleep(PAUSE_S)


def _locked(folder: str, uuid: str, spool: str) -> int:
    """Raises Held."""
    found = Held("its lock file %s was replaced again and again" % os.path.join(folder, uuid + ".lock"))
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        try:
            fd = _open(folder, uuid, make=True)
        except OSError as error:  # perhaps it is just being made, and not open to all yet
            found = Held(_unusable(folder, uuid, error))
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(fd, folder, uuid):
                return fd
        except OSError:
            found = _held_by(fd, spool)
        os.close(fd)
    raise found


def _open(folder: str, uuid: str, make: bool) -> int:
    """Raises OSError: it is not there, or nothing that can be trusted."""
    name = uuid + ".lock"
    base = _open_folder(folder, make)
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            # without O_CREAT first: kernels refuse it for files of others in a folder that is open to all
            fd = os.open(name, flags, dir_fd=base)
        except FileNotFoundError:
            if not make:
                raise
            try:
                fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=base)
                os.fchmod(fd, 0o666)  # whatever our umask is
            except FileExistsError:
                fd = os.open(name, flags, dir_fd=base)
    finally:
        os.close(base)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a plain file of its own")
    return fd


def _open_folder(folder: str, make: bool) -> int:
    """Raises OSError: somebody could play tricks with it."""
    if make:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.getuid() and mode == 0o700:
        os.fchmod(fd, SHARED)  # we made it
    elif mode & SHARED != SHARED and found.st_uid not in (0, os.getuid()):
        os.close(fd)
        raise OSError(errno.EPERM, "it belongs to uid %d and has mode %o, not 1777" % (found.st_uid, mode))
    return fd


def _is_current(fd: int, folder: str, uuid: str) -> bool:
    """Whether the name still leads to the file that was locked."""
    try:
        found = os.lstat(os.path.join(folder, uuid + ".lock"))
    except OSError:
        return False
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def _held_by(fd: int, spool: str, names: bool = True) -> Held:
    note: dict[str, Any] = {}
    try:
        note = jsontext.as_object(json.loads(os.pread(fd, MOST_NOTE, 0))) or {}
    except (OSError, ValueError, RecursionError):
        pass
    pids = _lock_pids(fd) if names else []
    ours = note.get("spool") == spool
    where = "an earlier attempt of this runner's spool" if ours else "the runner of %s" % _plain(note.get("spool"))
    words = "%s (runner %s, uid %s)" % (where, _plain(note.get("runner")), _plain(note.get("uid")))
    if pids:
        words += ", process " + ", ".join(map(str, pids[:8]))
    return Held(words, pids, ours)


def _lock_pids(fd: int) -> list[int]:
    """The processes whose descriptor carries the lock, as far as we may see."""
    wanted = os.fstat(fd)
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            numbers = os.listdir("/proc/%s/fd" % name)
        except OSError:
            continue
        for number in numbers:
            try:
                seen = os.stat("/proc/%s/fd/%s" % (name, number))
            except OSError:
                continue
            same = (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino)
            if same and b"FLOCK" in tree.read("/proc/%s/fdinfo/%s" % (name, number), 4096):
                found.append(int(name))
                break
    return sorted(found)


def _uid_of(pid: int) -> int:
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return -1


def _unusable(folder: str, uuid: str, error: OSError) -> str:
    return "nobody can be asked: its lock file %s cannot be used (%s); an administrator must repair %s, mode 1777" % (
        os.path.join(folder, uuid + ".lock"),
        error.strerror or error,
        folder,
    )


def _plain(value: Any) -> str:
    """Text of a file that anybody may write."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else "unknown"
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:MOST_TEXT]
