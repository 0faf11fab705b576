"""The list of runs."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from evalfleet.answers.runs import RunRow
from evalfleet.errors import InputError
from evalfleet.model import RunFilter, RunState
from evalfleet.report.reader import opened
from evalfleet.report.run_row import run_row
from evalfleet.validation import sentence, suggestion


class Listing(Struct, frozen=True, kw_only=True):
    """The runs, and when they were read."""

    runs: list[RunRow]
    now: float  # by the store's clock


def list_runs(home: Path, *, limit: int, wanted: RunFilter | None = None) -> Listing:
    """The runs of a home that match, newest first, at most this many. Raises InputError for an unknown state."""
    wanted = wanted or RunFilter()
    known = [str(state) for state in RunState]
    wrong = next((word for word in wanted.states if word not in known), None)
    if wrong is not None:
        raise InputError(sentence(f"there is no state {wrong!r}{suggestion(wrong, known)}"))
    with opened(home) as store:
        if store is None:
            return Listing(runs=[], now=0.0)
        with store.snapshot():
            found = store.runs.page(limit=limit, **asdict(wanted))
            rows = [run_row(store, row["run"]) for row in found]
        return Listing(runs=rows, now=store.now())
