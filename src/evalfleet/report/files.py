"""Reading what attempts left behind. A task may have left anything there: links, pipes, folders where files should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_inside(folder: Path, name: str, most: int, *, whole: bool = True) -> bytes | None:
    """Return the content of the regular file `name` below `folder`; None if there is none, or a link leads elsewhere.

    One of more than `most` bytes is None, too; without `whole` it is cut.
    """
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()):
            return None
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError, RuntimeError):  # missing, a NUL in the name, a ring of links
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (whole and found.st_size > most):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
