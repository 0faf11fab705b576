"""Studies: reading, submitting and extending them. Everything else is that of their runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evalfleet import config
from evalfleet.engine.trials import submit_study
from evalfleet.errors import InputError, NotFound
from evalfleet.model import Run, Verb
from evalfleet.operations.runs import steer
from evalfleet.operations.runs.ownership import ownership
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.taskfile.row import Problem, gpu_places
from evalfleet.tune.study import Study, study_of
from evalfleet.validation import quoted


class StudyOptions(Struct, frozen=True, kw_only=True):
    """What a person says of a study besides its file. None: what the file says."""

    name: str | None = None
    pool: str | None = None  # None: this machine
    budget_usd: float | None = None
    gpus: tuple[int, ...] = ()  # lease only these GPUs of each host, by index; empty: all
    project: str | None = None  # None: the one that the settings name
    tags: dict[str, str] = field(default_factory=dict[str, str])


class MoreTrials(steer.Amended, frozen=True, kw_only=True):
    trials: int  # in all


def study_in_file(file: str | Path, *, parallel: int | None = None, trials: int | None = None) -> tuple[Study, str]:
    """The study in a TOML file, and the folder that its commands start in. What is given overrides the file.

    Raises InputError, which names the file, the part and what to do.
    """
    path, shown = Path(file), quoted(str(file))
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no study file {shown}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not TOML: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {shown}: {getattr(error, 'strerror', None) or error}") from None
    study = study_in_toml(text, shown, parallel=parallel, trials=trials)
    folder = path.absolute().parent
    require_files(study, folder, shown)
    return study, str(folder)


def study_in_toml(text: str, shown: str, *, parallel: int | None = None, trials: int | None = None) -> Study:
    """The study that a TOML text describes. What is given overrides the text.

    Raises InputError, which begins with `shown` and names the line or the part.
    """
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{shown} is not TOML: {error}") from None
    return study_in_table(table, shown, parallel=parallel, trials=trials)


def study_in_table(
    table: Mapping[str, Any], shown: str, *, parallel: int | None = None, trials: int | None = None
) -> Study:
    """Like `study_in_toml`, for a table that was read before."""
    wanted = {"max_parallel_experiments": parallel, "trials": trials}
    given = {name: value for name, value in wanted.items() if value is not None}
    if isinstance(table.get("study"), dict):
        table = {**table, "study": {**table["study"], **given}}
    try:
        return study_of(table)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from None


def require_files(study: Study, folder: Path, shown: str) -> None:
    """Raise InputError where a file that the study's trials need is not in its folder."""
    if missing := [name for name in study.files if not (folder / name).exists()]:
        raise InputError(f"{shown}: study.files: there is no {quoted(missing[0])} in {folder}")


def gpu_indices(gpus: str | Sequence[int] | None, shown: str = "gpus") -> tuple[int, ...]:
    """The GPUs that a text such as "0,1" or a list names, by index; () for all. Raises InputError."""
    if isinstance(gpus, str):
        words = gpus.replace(",", " ").split()
        if not words or not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
            raise InputError(
                f"{shown}: {quoted(gpus, 40)} is not a list of indices; write, for example, 0,1,2,3 (`evalfleet gpus` shows them)"
            )
        gpus = sorted({int(word) for word in words})
    try:
        return gpu_places(shown, list(gpus)) if gpus else ()
    except Problem as problem:
        raise InputError(str(problem)) from None


def submit(
    settings: config.Settings,
    store: Store,
    study: Study,
    options: StudyOptions,
    *,
    folder: str,
    by: str | None = None,
    owner: str | None = None,
) -> Run:
    """Store a study as an open run. Its trials are added while it is driven.

    Raises InputError and NotFound: a file or the pool is missing, the strategy cannot be used here, the budget admits nothing.
    """
    if options.pool is not None:
        store.pools.get(options.pool)
    with store.batch():
        run = submit_study(
            store,
            study,
            folder=folder,
            name=options.name,
            pool=options.pool,
            budget_usd=options.budget_usd,
            gpus=options.gpus,
            local_usd_per_hour=settings.local.price_usd_per_hour,
            ownership=ownership(settings, options.project, options.tags, owner),
        )
        if by is not None:
            store.events.note(run.id, "run.requested", {"verb": "submit", "by": by})
        else:
            store.audit.add(run.owner, "study.submit", run.id)
    return run


def newest_of_name(store: StoreReader, name: str) -> Run:
    """The newest study of that name. Raises NotFound."""
    for run in store.runs.newest():
        if run.policy.study is not None and run.name == name:
            return run
    raise NotFound(f"there is no study {name!r} to continue; leave out --resume to create one")


def add_trials(store: Store, study: Run, trials: int, *, by: str | None = None) -> MoreTrials:
    """Let a study try more, also one that is over."""
    return MoreTrials(**steer.change(store, study, Verb.AMEND, {"add_trials": trials}, by))


def retry_failed(store: Store, study: Run, *, by: str | None = None) -> steer.ChangedTasks:
    """Give failed and held trials new attempts, with the parameters that they had."""
    return steer.retry(store, study, ("failed", "held"), by=by)
