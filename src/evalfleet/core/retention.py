"""Which parts of finished runs go to make room. Pure.

Age comes first, then the number of runs whose files are kept, then the size of all files. For the size, artifacts of all runs go before
logs of any, those of the oldest run first. A run goes as a whole only by the age that was given for that. Pinned runs stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from evalfleet import duration


class Part(StrEnum):
    """What can be removed of a finished run, in the order in which it goes. Verdicts go with the whole run only."""

    ARTIFACTS = "artifacts"  # what tasks left in their artifact folders
    LOGS = "logs"  # output, steps, logs of machines and controllers
    RUN = "run"  # everything, also what the database knows


class Rules(Struct, frozen=True, kw_only=True):
    """None: the rule asks for nothing."""

    artifacts_s: float | None = None  # age since the run's end
    logs_s: float | None = None
    runs_s: float | None = None
    size: int | None = None  # bytes of the files of all runs
    count: int | None = None  # finished runs whose files are kept

    @property
    def is_set(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__struct_fields__)

    def overridden(self, **rules: float | None) -> Rules:
        """These rules, with others in place of those that are given."""
        return replace(self, **{name: value for name, value in rules.items() if value is not None})


class Size(Struct, frozen=True):
    files: int = 0
    bytes: int = 0


class StoredRun(Struct, frozen=True, kw_only=True):
    """A finished run, and what its files take."""

    id: str
    ended_at: float
    pinned: bool = False
    sizes: Mapping[Part, Size] = field(default_factory=dict[Part, Size])  # RUN: what is neither of the others

    def size(self, part: Part) -> Size:
        return self.sizes.get(part, Size())


class Choice(Struct, frozen=True, kw_only=True):
    run: str
    part: Part
    size: Size
    why: str


def choose(runs: Sequence[StoredRun], rules: Rules, now: float, used: int) -> list[Choice]:
    """What goes, in the order in which it should.

    Args:
        runs: all finished runs, oldest first.
        used: bytes of the files of all runs, also of those that are not finished.
    """
    free = [run for run in runs if not run.pinned]
    chosen: dict[tuple[str, Part], Choice] = {}
    for one in (*_by_age(free, rules, now), *_by_count(runs, rules)):
        chosen.setdefault((one.run, one.part), one)
    whole = {run for run, part in chosen if part is Part.RUN}
    kept = [one for one in chosen.values() if one.part is Part.RUN or one.run not in whole]
    if rules.size is not None:
        used -= sum(one.size.bytes for one in kept)
        kept += _by_size(
            [run for run in free if run.id not in whole], {(one.run, one.part) for one in kept}, rules.size, used
        )
    return kept


def _by_age(runs: Sequence[StoredRun], rules: Rules, now: float) -> Iterator[Choice]:
    for run in runs:
        for part, limit in ((Part.RUN, rules.runs_s), (Part.ARTIFACTS, rules.artifacts_s), (Part.LOGS, rules.logs_s)):
            if limit is not None and now - run.ended_at >= limit:
                yield from _gone(run, part, f"ended more than {duration.show(limit)} ago")


def _by_count(runs: Sequence[StoredRun], rules: Rules) -> Iterator[Choice]:
    if rules.count is None:
        return
    for run in runs[: max(0, len(runs) - rules.count)]:
        for part in (Part.ARTIFACTS, Part.LOGS):
            if not run.pinned:
                yield from _gone(run, part, f"is not among the newest {rules.count}")


def _by_size(runs: Sequence[StoredRun], gone: set[tuple[str, Part]], limit: int, used: int) -> Iterator[Choice]:
    for part in (Part.ARTIFACTS, Part.LOGS):
        for run in runs:
            if used <= limit:
                return
            if (run.id, part) not in gone and run.size(part).bytes:
                used -= run.size(part).bytes
                yield from _gone(run, part, f"all files take more than {limit:,} bytes")


def _gone(run: StoredRun, part: Part, why: str) -> Iterator[Choice]:
    """A whole run takes all its files along; a part goes only where something is left of it."""
    size = run.size(part)
    if part is Part.RUN:
        sizes = [run.size(one) for one in Part]
        size = Size(sum(one.files for one in sizes), sum(one.bytes for one in sizes))
    if size.files or part is Part.RUN:
        yield Choice(run=run.id, part=part, size=size, why=why)
