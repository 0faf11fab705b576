"""What an export is made from: one moment of a run, and the files of its attempts."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalfleet.layout import Home
from evalfleet.model import Event, Run
from evalfleet.report.summary import Summary, summarise
from evalfleet.store.base import StoreReader

_PAGE = 1000
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Source(Struct, frozen=True, kw_only=True):
    """All of it is the same moment, although files are copied later: attempts that have ended do not change any more."""

    store: StoreReader
    home: Home
    summary: Summary  # without its results
    results: list[dict[str, Any]]  # as in the summary, in the order of submission
    decided_by: dict[str, int]  # key -> number of the attempt that decided the task
    attempts: list[dict[str, Any]]  # the store's rows, with their task's `key`; by task and number
    last_event: int

    def events(self) -> Iterator[Event]:
        after = 0
        while page := self.store.events(self.summary["run"], after, _PAGE):
            for event in page:
                if event.number > self.last_event:
                    return
                yield event
            after = page[-1].number

    def folder(self, key: str, number: int) -> Path:
        """Where the collected files of an attempt lie, if it left any."""
        return self.home.attempt(self.summary["run"], key, number)


def read(store: StoreReader, run: Run, home: Path) -> Source:
    """Read one moment of a run into memory."""
    with store.snapshot():
        summary = summarise(store, run)
        rows = list(store.result_rows(run.id))
        attempts = list(store.attempt_rows(run.id))
        last = store.last_event(run.id)
    keys = {row["number"]: row["key"] for row in rows}
    return Source(
        store=store,
        home=Home(home),
        results=summary.pop("results", []),
        summary=summary,
        decided_by={row["key"]: row["decided_by"] for row in rows if row["decided_by"] is not None},
        attempts=[{"key": keys[one["task_number"]], **one} for one in attempts],
        last_event=last.number if last else 0,
    )


def copy_files(source: Path, target: Path, *, but: str | None = None) -> list[str]:
    """Copy the regular files below a folder; a link is neither followed nor copied. None at all is no error.

    Returns their paths below `target`, sorted. `but` is a name directly in `source` that is left out.
    """
    copied: list[str] = []
    if source.is_symlink():
        return copied
    for folder, _, names in os.walk(source):
        below = Path(folder).relative_to(source)
        for name in names:
            path = below / name
            if path.parts[0] != but and _copy_file(source / path, target / path):
                copied.append(path.as_posix())
    return sorted(copied)


def _copy_file(source: Path, target: Path) -> bool:
    try:
        descriptor = os.open(source, _READ_FLAGS)
    except OSError:  # a link, a socket, or gone
        return False
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    return True
