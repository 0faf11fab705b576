"""Admits nothing while the home's disk is almost full, and says so. What runs goes on; with room again, the run goes on by itself.

A full disk would cost more than a wait: no verdict could be stored, and no file collected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from evalfleet.model import Run
from evalfleet.store.store import Store

LOOK_S = 1.0
_MOST_KEPT = 10**9
_SHARE = 0.05  # of a small disk
_ROOM = 1.1  # times what is kept must be free before tasks start again, so that it does not change at every file


class Space(NamedTuple):
    free: int  # bytes
    total: int


def space_of(folder: Path) -> Space:
    found = os.statvfs(folder)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def kept_free(asked: int | None, total: int) -> int:
    """The bytes that stay free. Pure."""
    return min(_MOST_KEPT, int(total * _SHARE)) if asked is None else asked


class DiskGuard:
    """Used inside the dispatcher's steps."""

    def __init__(
        self,
        store: Store,
        run: Run,
        folder: Path | None,
        keep_free: int | None,
        space: Callable[[Path], Space] = space_of,
    ) -> None:
        """
        Args:
            folder: of the home; None: nothing is watched.
            keep_free: bytes; None: as the disk is large.
        """
        self._store = store
        self._run = run
        self._folder = folder
        self._keep_free = keep_free
        self._space = space
        self.is_full = False
        self.look_at = 0.0

    def freed(self) -> bool:
        """Look, at most once a second. Whether there is room again. Events `worker.disk_full`, `worker.disk_freed`."""
        now = self._store.now()
        if self._folder is None or now < self.look_at:
            return False
        self.look_at = now + LOOK_S
        try:
            free, total = self._space(self._folder)
        except OSError:
            return False  # the store says what is wrong with it
        kept = kept_free(self._keep_free, total)
        was, self.is_full = self.is_full, free < (kept * _ROOM if self.is_full else kept)
        if self.is_full != was:
            self._say(free, kept)
        return was and not self.is_full

    def _say(self, free: int, kept: int) -> None:
        data = {"free_mb": free // 10**6, "keep_free_mb": kept // 10**6, "folder": str(self._folder)}
        if self.is_full:
            data["reason"] = (
                f"the disk of {self._folder} has {free // 10**6:,} MB free, and {kept // 10**6:,} MB are kept; "
                "`evalfleet prune` makes room"
            )
        self._store.events.note(self._run.id, "worker.disk_full" if self.is_full else "worker.disk_freed", data)
