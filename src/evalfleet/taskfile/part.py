"""A part of a task file: which of its tasks, how often, and with which variables besides. Pure.

The words are those of benchmarks. A repeated task becomes one task per seed, with the seed behind its key; reports and comparisons
take these together, as they do with the episodes of a benchmark.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.errors import InputError
from evalfleet.model import TaskSpec
from evalfleet.taskfile import Submission, Tasks, row
from evalfleet.validation import quoted, sentence, suggestion

_PATTERN = frozenset("*?[")
_SUGGESTED_FROM = 10_000  # keys, of which a misspelt one is looked for


class Part(Struct, frozen=True, kw_only=True):
    """What a person chose of a task file."""

    task: tuple[str, ...] = ()  # keys, or patterns such as "files_*"
    domain: str | None = None  # a pattern such as "click*"
    tasks: int | None = None  # at most this many, spread over those that match
    repeat: int = 1  # of each task, with consecutive seeds
    seed: int = 0  # of the first repetition
    env: Mapping[str, str] = {}  # of every task; goes before the task's own
    secrets: tuple[str, ...] = ()  # names of variables, besides the tasks' own


def part_of(submission: Submission, part: Part) -> Submission:
    """The submission with that part of its tasks alone. The tasks are not held in memory.

    Raises InputError: a key or pattern names no task, nothing is left, more is wanted than there is, or a variable is not usable.
    """
    if part == Part():
        return submission
    fitting = _fitting(submission.tasks, part)
    if part.tasks is not None:
        if part.tasks > len(fitting):
            raise InputError(f"--tasks {part.tasks}: only {len(fitting)} tasks fit; ask for fewer.")
        fitting = array("Q", (fitting[index * len(fitting) // part.tasks] for index in range(part.tasks)))
    tasks = _PartOfTasks(submission.tasks, fitting, part)
    try:
        secrets = {name for spec in tasks for name in spec.secrets}
    except row.Problem as problem:
        raise InputError(sentence(str(problem))) from None
    return replace(submission, tasks=tasks, secrets=tuple(sorted(secrets)))


class _PartOfTasks:
    """Tasks at some places of others, read anew on each iteration."""

    def __init__(self, tasks: Tasks, places: array[int], part: Part) -> None:
        self._tasks = tasks
        self._places = places
        self._part = part

    def __len__(self) -> int:
        return len(self._places) * self._part.repeat

    def __iter__(self) -> Iterator[TaskSpec]:
        places = iter(self._places)
        wanted = next(places, None)
        for place, spec in enumerate(self._tasks):  # to its end: a file notices then that it was changed meanwhile
            if place == wanted:
                wanted = next(places, None)
                yield from _repeated(row.with_variables(spec, self._part.env, self._part.secrets), self._part)


def _repeated(spec: TaskSpec, part: Part) -> Iterator[TaskSpec]:
    if part.repeat == 1:
        yield replace(spec, seed=part.seed) if part.seed else spec
        return
    for seed in range(part.seed, part.seed + part.repeat):
        # The last number of a key tells these apart, so no key of another task can be met.
        yield replace(spec, key=f"{spec.key}_{seed}", repeats=spec.key, seed=seed)


def _fitting(tasks: Tasks, part: Part) -> array[int]:
    """The places of the tasks that were asked for."""
    names = dict.fromkeys(part.task, False)  # whether a task was found for it
    keys = [name for name in names if not _PATTERN & set(name)]
    patterns = [name for name in names if _PATTERN & set(name)]
    exact = set(keys)
    found: array[int] = array("Q")
    for place, spec in enumerate(tasks):
        if names:
            fits = [spec.key] if spec.key in exact else []
            fits += [pattern for pattern in patterns if fnmatchcase(spec.key, pattern)]
            for name in fits:
                names[name] = True
            if not fits:
                continue
        if part.domain is None or fnmatchcase(spec.domain, part.domain):
            found.append(place)
    missing = next((name for name, is_there in names.items() if not is_there), None)
    if missing is not None:
        raise InputError(_no_task(missing, tasks, is_pattern=missing in patterns))
    if not found:
        raise InputError(_no_domain(part, tasks))
    return found


def _no_task(name: str, tasks: Tasks, *, is_pattern: bool) -> str:
    if is_pattern:
        return f"--task: no key of a task matches {quoted(name)}."
    known = [spec.key for _, spec in zip(range(_SUGGESTED_FROM), tasks, strict=False)]
    return sentence(f"--task: there is no task {quoted(name)}{suggestion(name, known)}")


def _no_domain(part: Part, tasks: Tasks) -> str:
    if part.task:
        return f"none of the named tasks is in a domain that matches {quoted(part.domain or '')}."
    known = sorted({spec.domain for _, spec in zip(range(_SUGGESTED_FROM), tasks, strict=False)})
    return sentence(f"--domain: no domain matches {quoted(part.domain or '')}{suggestion(part.domain or '', known)}")
