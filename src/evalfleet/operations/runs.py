"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from evalfleet.answers.runs import RunRow
from evalfleet.errors import InputError
from evalfleet.model import RunState
from evalfleet.report.reader import opened
from evalfleet.report.run_row import run_row
from evalfleet.validation import sentence, suggestion


class Listing(Struct, frozen=True, kw_only=True):
    """The runs, and when they were read."""

    runs: list[RunRow]
    now: float  # by the store's clock


def list_runs(home: Path, *, limit: int, states: Sequence[str] = (), search: str | None = None) -> Listing:
    """The runs of a home, newest first.

    Args:
        limit: at most this many.
        states: only runs in these.
        search: only runs whose id or name contains this text.

    Raises InputError for an unknown state.
    """
    known = [str(state) for state in RunState]
    wrong = next((word for word in states if word not in known), None)
    if wrong is not None:
        raise InputError(sentence(f"there is no state {wrong!r}{suggestion(wrong, known)}"))
    with opened(home) as store:
        if store is None:
            return Listing(runs=[], now=0.0)
        with store.snapshot():
            found = store.runs.page(limit=limit, states=states, search=search)
            rows = [run_row(store, row["run"]) for row in found]
        return Listing(runs=rows, now=store.now())
