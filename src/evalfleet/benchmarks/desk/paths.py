"""Paths in task files: inside the home folder of the desktop, and nowhere else."""

from __future__ import annotations

import posixpath


def require_path(path: str) -> None:
    """Refuse a path that leads out of the home folder. Raises ValueError."""
    if not path or "\0" in path:
        raise ValueError("path: is empty")
    if posixpath.isabs(path) or ".." in path.split("/") or path.startswith("~"):
        raise ValueError("path: must be relative to the home folder of the desktop, and stay in it")
