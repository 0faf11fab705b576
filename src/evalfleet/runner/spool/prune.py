"""Removes stored files that are no longer used. A controller that needs one puts it again."""

from __future__ import annotations

import os
import time

from .. import jsontext
from ..safe_files import open_regular
from .spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..loop import Loop

KEPT_S = 7 * 86400.0  # after a file was last put, requested or used
EVERY_S = 86400.0


class Pruner:
    """Prunes now, and once per day while the runner lives. Runs in the loop's thread, so no file is put meanwhile."""

    def __init__(self, spool: Spool, loop: Loop, wall: Callable[[], float]) -> None:
        self._spool = spool
        self._loop = loop
        self._wall = wall
        self._prune()

    def _prune(self) -> None:
        self._loop.at(time.monotonic() + EVERY_S, self._prune)
        try:
            count, size = prune(self._spool, self._wall())
        except OSError as error:
            self._spool.log("cannot prune: %s" % error)
            return
        if count:
            self._spool.log(
                "pruned %d files (%d bytes) that were not used for %d days" % (count, size, KEPT_S // 86400)
            )


def prune(spool: Spool, now: float) -> tuple[int, int]:
    """Remove files that are old and that neither an attempt here nor a connected controller needs; returns their number and bytes.

    Args:
        now: by the host's wall clock, as the files' own times are.
    """
    old: list[tuple[str, int]] = []
    with os.scandir(spool.files) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if entry.name not in spool.wanted and now - found.st_mtime > KEPT_S:
                old.append((entry.name, found.st_size))
    if not old:
        return 0, 0
    used = _used(spool)
    gone = [(name, size) for name, size in old if name not in used]
    for name, _ in gone:
        os.unlink(os.path.join(spool.files, name))
    return len(gone), sum(size for _, size in gone)


def _used(spool: Spool) -> set[str]:
    """The files that the attempts of the spool were launched with."""
    used: set[str] = set()
    for name in os.listdir(spool.attempts):
        try:
            with open(open_regular(spool.attempt(name) + "/journal.jsonl"), "rb") as file:
                launched = jsontext.as_object(jsontext.parse_own(file.readline())) or {}
        except (OSError, ValueError):
            continue  # it was taken away, or never launched
        files = jsontext.as_object((jsontext.as_object(launched.get("spec")) or {}).get("files")) or {}
        used.update(str(digest) for digest in files.values())
    return used
