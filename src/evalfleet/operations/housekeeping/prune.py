"""Removing files of finished runs to make room: by rules, or of runs that a person names.

What goes is written down before it goes, so that reports can say so, and a prune that was killed is gone on with by the next. While files
go, the run is locked as by a controller: nothing else can take it. Runs that are pinned, go on, wait, are paused or are not collected stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from evalfleet.core.retention import Choice, Part, Rules, Size, StoredRun, choose
from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import NotFound, Owned, WrongState
from evalfleet.operations.housekeeping.run_files import RunFiles
from evalfleet.report.reader import opened
from evalfleet.store.home.place import is_there
from evalfleet.store.open import open_store
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

LOCK = "housekeeping"  # one prune or backup of a home at a time

_WITH = {  # what goes along where a person names a part: artifacts go before logs
    Part.ARTIFACTS: (Part.ARTIFACTS,),
    Part.LOGS: (Part.ARTIFACTS, Part.LOGS),
    Part.RUN: (Part.RUN,),
}


class PrunedPart(Struct, frozen=True, kw_only=True):
    run: str
    name: str
    part: Part
    ended_at: float
    files: int
    bytes: int
    why: str


class SparedRun(Struct, frozen=True, kw_only=True):
    """A run that the rules name, and that stays."""

    run: str
    why: str


class Pruned(Struct, frozen=True, kw_only=True):
    dry_run: bool
    removed: list[PrunedPart]
    spared: list[SparedRun]
    files: int
    bytes: int
    used: int  # bytes of the files of all runs before


def prune(
    home: Path,
    rules: Rules,
    *,
    runs: Sequence[str] = (),
    what: Part = Part.ARTIFACTS,
    dry_run: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Remove what the rules say, or that part of the named runs.

    Args:
        runs: ids or names; then the rules do not count.
        dry_run: remove nothing; the answer says what would go.
        stop: asked again and again; ends the work after the file at hand.

    Raises NotFound; WrongState: a named run is not finished and collected, or is pinned; Owned: another prune or a backup is at work.
    """
    used = RunFiles(home).used()
    if dry_run:
        with opened(home) as reader:
            chosen = [] if reader is None else _chosen(reader, home, rules, runs, what, used)
            return _told(chosen, reader, used, dry_run=True)
    if not is_there(home):
        raise NotFound(f"there is no run in {home} yet")
    with closing(open_store(home)) as store:
        other = store.retention.lock(LOCK, owner_name())
        if other is not None:
            raise Owned(f"{other} is pruning or backing up this home; try again when it has ended")
        try:
            chosen = _chosen(store, home, rules, runs, what, used)
            return _told(
                chosen, store, used, dry_run=False, remove=lambda one: _remove(store, home, one, stop), stop=stop
            )
        finally:
            store.retention.unlock(LOCK)


def _chosen(store: StoreReader, home: Path, rules: Rules, runs: Sequence[str], what: Part, used: int) -> list[Choice]:
    files = RunFiles(home)
    named = {store.runs.find(text).id for text in runs}
    found = [
        StoredRun(id=run.id, ended_at=run.ended_at, pinned=run.pinned, sizes=files.sizes(run.id))
        for run in store.retention.finished()
        if not named or run.id in named
    ]
    if not runs:
        return choose(found, rules, store.now(), used)
    for run_id in named:
        _refuse_unfinished(store, run_id, found)
    every = [
        Choice(run=run.id, part=part, size=run.size(part), why="was named") for run in found for part in _WITH[what]
    ]
    return [one for one in every if one.size.files or one.part is Part.RUN]


def _refuse_unfinished(store: StoreReader, run_id: str, found: Sequence[StoredRun]) -> None:
    run = next((one for one in found if one.id == run_id), None)
    if run is None:
        state = store.runs.get(run_id).state
        raise WrongState(
            f"run {run_id} is {state}, and {'not collected yet' if state.is_over else 'not over'}; nothing was removed"
        )
    if run.pinned:
        raise WrongState(f"run {run_id} is pinned; nothing was removed. `evalfleet unpin {run_id}` takes the pin away")


def _told(
    chosen: Sequence[Choice],
    store: StoreReader | None,
    used: int,
    *,
    dry_run: bool,
    remove: Callable[[Choice], Size | str] = lambda one: one.size,
    stop: Callable[[], bool] = lambda: False,
) -> Pruned:
    facts = {} if store is None else {run.id: run for run in store.retention.finished()}
    removed: list[PrunedPart] = []
    spared: list[SparedRun] = []
    for one in chosen:
        if stop():
            break
        gone = remove(one)
        if isinstance(gone, str):
            spared.append(SparedRun(run=one.run, why=gone))
            continue
        run = facts[one.run]
        removed.append(
            PrunedPart(
                run=run.id,
                name=run.name,
                part=one.part,
                ended_at=run.ended_at,
                files=gone.files,
                bytes=gone.bytes,
                why=one.why,
            )
        )
    return Pruned(
        dry_run=dry_run,
        removed=removed,
        spared=spared,
        files=sum(one.files for one in removed),
        bytes=sum(one.bytes for one in removed),
        used=used,
    )


def _remove(store: Store, home: Path, one: Choice, stop: Callable[[], bool]) -> Size | str:
    """What went, or why the run stays."""
    other = store.retention.lock(one.run, f"{owner_name()}, which removes files of it")
    if other is not None:
        return f"is driven by {other}"
    try:
        if not store.retention.begin_removal(one.run, one.part, one.why):
            return "was pinned, or goes on again"
        gone = RunFiles(home).remove(one.run, one.part, stop)
        store.retention.add_removed(one.run, one.part, files=gone.files, freed=gone.bytes)
        if one.part is Part.RUN and not stop():
            name = store.runs.get(one.run).name
            store.retention.forget_run(one.run, name)
        return gone
    finally:
        store.retention.unlock(one.run)
