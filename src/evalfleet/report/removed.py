"""What retention removed of a run, in words: a reader must not take it for files that were never there."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.answers.summary import RemovedPart
from evalfleet.core.retention import Part
from evalfleet.duration import day
from evalfleet.model import Attempt
from evalfleet.report.text import size
from evalfleet.store.reader import StoreReader


def removed_parts(store: StoreReader, run_id: str) -> list[RemovedPart]:
    found = store.retention.removals(run_id)
    return [RemovedPart.copy_of(one, part=str(one.part), bytes=one.freed) for one in found]


def removed_words(parts: Sequence[RemovedPart]) -> list[str]:
    """A sentence for each part."""
    names = {Part.ARTIFACTS: "Artifacts were", Part.LOGS: "Output and steps were", Part.RUN: "The run is being"}
    return [
        f"{names[Part(one.part)]} removed by retention on {day(one.removed_at)} ({size(one.bytes)})." for one in parts
    ]


def removal_of(store: StoreReader, attempt: Attempt, part: Part) -> str | None:
    """ "were removed by retention on 2026-11-18", where that is why the attempt's files are missing."""
    for one in reversed(store.retention.removals(attempt.run_id)):
        gone = one.part is Part.RUN or one.part is part
        if gone and attempt.ended_at is not None and attempt.ended_at <= one.removed_at:
            return f"were removed by retention on {day(one.removed_at)}"
    return None
