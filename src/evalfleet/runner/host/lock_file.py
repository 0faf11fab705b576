"""Lock files in a folder of the host that all homes and users share.

All users can write to the folder. A file in it is used only if it is a regular file; links are not followed.
"""

from __future__ import annotations

import errno
import os
import stat

from ..attempt import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SHARED = 0o1777
ALL_USERS = 0o666
TOUCH_S = 3600.0  # how often a holder updates the time: cleanups remove empty files that were not used for days
MOST_TEXT = 200


def open_lock(folder: str, name: str, make: bool, alone: bool = True) -> int:
    """
    Args:
        alone: it must have no second hard link. Any user can create one; without this, write only if `is_alone`.

    Raises OSError: it is missing or cannot be trusted.
    """
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
                fd = _made(name, flags, base)
            except FileExistsError:
                fd = os.open(name, flags, dir_fd=base)
    finally:
        os.close(base)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or (alone and found.st_nlink > 1):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file, or has a second link")
    if found.st_uid == os.getuid() and found.st_mode & ALL_USERS != ALL_USERS:
        os.fchmod(fd, ALL_USERS)  # our file, but without access for other users
    return fd


def _made(name: str, flags: int, base: int) -> int:
    """Create it with open permissions from the start: a kill must not leave a file that only one user can open."""
    umask = os.umask(0)  # no other thread of a runner makes files
    try:
        return os.open(name, flags | os.O_CREAT | os.O_EXCL, ALL_USERS, dir_fd=base)
    finally:
        os.umask(umask)


def is_alone(fd: int) -> bool:
    """Whether it has no second hard link, through which it could be any of our files."""
    return os.fstat(fd).st_nlink == 1


def _open_folder(folder: str, make: bool) -> int:
    """Raises OSError: another user could tamper with it."""
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


def is_current(fd: int, folder: str, name: str) -> bool:
    """Whether the path still leads to the file that was locked."""
    try:
        found = os.lstat(os.path.join(folder, name))
    except OSError:
        return False
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def touch(folder: str, held: Iterable[int]) -> None:
    """Update the times of the folder and these files, so that a cleanup spares them: after a deletion, others would lock a new file."""
    for where in (folder, *held):
        try:
            os.utime(where)
        except OSError:
            pass  # the folder may belong to another user


def holders(fd: int) -> list[int]:
    """The processes whose descriptor holds the lock, as far as they are visible."""
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
            if same and b"FLOCK" in process_tree.read("/proc/%s/fdinfo/%s" % (name, number), 4096):
                found.append(int(name))
                break
    return sorted(found)


def plain(value: Any) -> str:
    """Printable text from a file that any user can write."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else "unknown"
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:MOST_TEXT]
