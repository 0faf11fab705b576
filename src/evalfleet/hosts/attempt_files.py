"""Safe access to the files of an attempt on this machine.

A task may have left anything there, and may still write: links, pipes, folders in place of files. Each function returns an open
descriptor of a regular file that was reached without a link; later changes of the path do not affect it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evalfleet.runner.safe_files import enter, open_below, open_folder, parts_of, remove, walk

_DEEPEST = 64
_EVERY = 1 << 30


def open_inside(folder: Path, name: str) -> int | None:
    """Open the regular file `name` below an attempt's folder; None if there is none. The caller closes it."""
    try:
        here = open_folder(str(folder))
    except (OSError, ValueError):
        return None
    try:
        return open_below(here, name)
    except (OSError, ValueError):  # missing, a link on the way, a name that no file can have
        return None
    finally:
        os.close(here)


def open_socket(folder: Path, name: str) -> int | None:
    """Find the socket `name` in an attempt's folder. Returns a descriptor, so that /proc leads to exactly that socket."""
    try:
        here = open_folder(str(folder))
    except OSError:
        return None
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    except OSError:
        return None
    finally:
        os.close(here)
    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def files_inside(folder: Path, below: str, most: int) -> list[tuple[str, os.stat_result]]:
    """Return at most `most` regular files below a folder of an attempt, by their relative paths."""
    try:
        here = open_folder(str(folder))
    except OSError:
        return []
    try:
        inner = enter(here, parts_of(below) if below else ())
        try:
            return walk(inner, most, _DEEPEST)[0]
        finally:
            os.close(inner)
    except OSError:
        return []
    finally:
        os.close(here)


@contextmanager
def looked_into(folder: Path) -> Generator[tuple[int, list[tuple[str, os.stat_result]], int]]:
    """An attempt's folder as a descriptor, all its regular files, and how many entries could not be looked at. Raises OSError."""
    here = open_folder(str(folder))
    try:
        yield here, *walk(here, _EVERY, _DEEPEST)
    finally:
        os.close(here)


def open_there(here: int, name: str) -> int:
    """Open the regular file `name` below the folder with that descriptor. Raises OSError."""
    return open_below(here, name)


def remove_folder(folder: Path) -> OSError | None:
    """Remove a folder with everything in it, as far as possible. Returns the first failure."""
    return remove(str(folder))
