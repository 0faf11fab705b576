"""What an export is made from: one moment of a run, and the files of its attempts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.answers.summary import Summary
from evalfleet.answers.task_result import TaskResult
from evalfleet.files.base import AttemptFiles, copy
from evalfleet.files.home import home_files
from evalfleet.model import Event, Run
from evalfleet.report.summary import summarise
from evalfleet.store.reader import StoreReader

_PAGE = 1000


class Source(Struct, frozen=True, kw_only=True):
    """All of it is the same moment, although files are copied later: attempts that have ended do not change any more."""

    store: StoreReader
    home: Path
    summary: Summary  # without its results
    results: list[TaskResult]  # as in the summary, in the order of submission
    decided_by: dict[str, int]  # key -> number of the attempt that decided the task
    attempts: list[dict[str, Any]]  # the store's rows, with their task's `key`; by task and number
    last_event: int
    model: str | None = None  # that the agent asked in all tasks, where there is one

    def events(self) -> Iterator[Event]:
        after = 0
        while page := self.store.events.of_run(self.summary.run, after, _PAGE):
            for event in page:
                if event.number > self.last_event:
                    return
                yield event
            after = page[-1].number

    def files(self, key: str, number: int) -> AttemptFiles | None:
        """The collected files of an attempt, if it left any. Raises FilesUnreachable."""
        return home_files(self.home).get(self.summary.run, key, number)


def read(store: StoreReader, run: Run, home: Path) -> Source:
    """Read one moment of a run into memory."""
    with store.snapshot():
        summary = summarise(store, run)
        rows = list(store.tasks.result_rows(run.id))
        attempts = list(store.attempts.all_rows(run.id))
        last = store.events.last(run.id)
        models = store.tasks.models(run.id)
    keys = {row["number"]: row["key"] for row in rows}
    return Source(
        store=store,
        home=home,
        results=summary.results or [],
        summary=replace(summary, results=None),
        decided_by={row["key"]: row["decided_by"] for row in rows if row["decided_by"] is not None},
        attempts=[{"key": keys[one["task_number"]], **one} for one in attempts],
        last_event=last.number if last else 0,
        model=models[0] if len(models) == 1 else None,
    )


def copy_files(source: AttemptFiles | None, target: Path, *, below: str = "", but: str | None = None) -> list[str]:
    """Copy the regular files of an attempt; a link is neither followed nor copied. None at all is no error.

    Returns their paths below `target`, sorted. `below` is a folder in `source` to which the copy is limited; `but` is a name directly
    in it that is left out.
    """
    copied: list[str] = []
    for path in (one.path for one in source.list(below)) if source is not None else ():
        name = f"{below}/{path}" if below else path
        if source is not None and path.split("/")[0] != but and copy(source, name, target / path):
            copied.append(path)
    return sorted(copied)
