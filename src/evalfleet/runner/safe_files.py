"""Safe access to files below a folder in which a task writes or wrote: through descriptors, one path component at a time.

No step follows a link, and an open descriptor stays valid if the path is replaced. So nothing outside the folder is ever read,
written or removed, even while a task replaces files and folders by links.
"""

from __future__ import annotations

import binascii
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_OPEN = 64  # folders at once, one in the other
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_folder(path: str, folder: int | None = None) -> int:
    """Open a folder that is not a link.

    Raises:
        OSError: it is missing, a link, or not a folder.
    """
    return os.open(path, FOLDER_FLAGS, dir_fd=folder)


def open_regular(path: str, folder: int | None = None) -> int:
    """Open a regular file without following a link or waiting for a FIFO.

    Raises:
        OSError: it is missing, or not a regular file.
    """
    fd = os.open(path, READ_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def parts_of(path: str) -> list[str]:
    """The components of a relative path.

    Raises:
        OSError: it could lead out of its folder.
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise OSError(errno.EINVAL, "not a plain relative path", path)
    return parts


def enter(here: int, parts: Sequence[str], make: bool = False) -> int:
    """Open the folder to which `parts` lead; the caller closes it.

    Args:
        make: create missing folders.

    Raises:
        OSError: a component is missing, a link, or not a folder.
    """
    fd = os.dup(here)
    for part in parts:
        try:
            if make:
                try:
                    os.mkdir(part, 0o700, dir_fd=fd)
                except FileExistsError:
                    pass
            deeper = open_folder(part, fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd


def open_below(here: int, path: str) -> int:
    """Open the regular file `path` below the folder `here`.

    Raises:
        OSError: there is no such file that can be reached without links.
    """
    parts = parts_of(path)
    folder = enter(here, parts[:-1])
    try:
        return open_regular(parts[-1], folder)
    finally:
        os.close(folder)


def walk(here: int, most: int, deepest: int) -> tuple[list[tuple[str, os.stat_result]], int]:
    """Regular files below as (relative path, stat result), sorted, and how many entries were left out.

    Once there are more than `most`, further folders are not entered and count as one entry each.
    """
    found: list[tuple[str, os.stat_result]] = []
    left_out = _walk(here, "", deepest, most, found)
    found.sort(key=lambda one: one[0])
    return found, left_out


def _walk(here: int, above: str, levels: int, most: int, found: list[tuple[str, os.stat_result]]) -> int:
    left_out = 0
    with os.scandir(here) as entries:
        for entry in entries:
            path = above + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if levels > 0 and len(found) < most:
                        deeper = open_folder(entry.name, here)
                        try:
                            left_out += _walk(deeper, path + "/", levels - 1, most, found)
                        finally:
                            os.close(deeper)
                    else:
                        left_out += 1
                elif entry.is_file(follow_symlinks=False):
                    if len(found) < most:
                        found.append((path, entry.stat(follow_symlinks=False)))
                    else:
                        left_out += 1
            except OSError:
                left_out += 1
    return left_out


def remove(path: str) -> OSError | None:
    """Delete a folder and everything in it, as far as possible. Links are deleted, not followed; missing parts are ignored.

    Returns:
        The first entry that could not be deleted; None if nothing is left.
    """
    failed: list[OSError] = []
    _remove(path, None, [], failed, [])
    return failed[0] if failed else None


def _remove(name: str, folder: int | None, above: list[int], failed: list[OSError], lifted: list[str]) -> None:
    """
    Args:
        folder: the folder's parent.
        above: the open folders above it, from the topmost.
        lifted: collects the names of folders that were moved up to the topmost folder.
    """
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        pass  # a folder, or in one that is closed
    except OSError as error:
        failed.append(error)
        return
    if folder is not None and _is_removed_empty(name, folder):
        return
    try:
        here = _open_closed(name, folder)
        try:
            _remove_all(here, above, failed, lifted)
        finally:
            os.close(here)
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        failed.append(error)


def _is_removed_empty(name: str, folder: int) -> bool:
    """Remove a folder if it is empty, as most folders of tasks are."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _remove_all(here: int, above: list[int], failed: list[OSError], lifted: list[str]) -> None:
    inner = [*above, here]
    while True:
        before, moved = len(failed), len(lifted)
        for name in os.listdir(here):
            if len(inner) > MOST_OPEN and _lift(name, here, inner[0], lifted):
                continue
            _remove(name, here, inner, failed, lifted)
        # what was lifted to the first folder lies there only now
        if len(inner) > 1 or len(failed) > before or len(lifted) == moved:
            return


def _lift(name: str, here: int, first: int, lifted: list[str]) -> bool:
    """Move a deep folder up to the topmost one: a task may have created thousands of levels. False if it is not a folder."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
        return False
    fresh = ".evalfleet-%s" % binascii.hexlify(os.urandom(8)).decode()
    os.rename(name, fresh, src_dir_fd=here, dst_dir_fd=first)
    lifted.append(fresh)
    return True


def _open_closed(name: str, folder: int | None) -> int:
    """Open a folder, and restore its permissions if the task removed them."""
    try:
        here = open_folder(name, folder)
    except PermissionError:
        return _open_unreadable(name, folder)
    try:
        if os.fstat(here).st_mode & 0o700 != 0o700:
            os.fchmod(here, 0o700)
    except OSError:
        os.close(here)
        raise
    return here


def _open_unreadable(name: str, folder: int | None) -> int:
    known = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod("/proc/self/fd/%d" % known, 0o700)
        return os.open(".", FOLDER_FLAGS, dir_fd=known)
    finally:
        os.close(known)
