"""Studies: submitted, listed, opened, extended. A study is a run with trials."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from evalfleet import config
from evalfleet.answers.studies import StudyFacts, StudyRow, Trial
from evalfleet.api.handle import RunHandle
from evalfleet.api.tasks import Folder
from evalfleet.api.twins import in_thread
from evalfleet.operations.runs import studies
from evalfleet.operations.runs.studies import MoreTrials, StudyOptions
from evalfleet.report.reader import opened
from evalfleet.report.studies.study import opened_study, study_facts, study_rows
from evalfleet.store.open import open_store


def submit_study(
    study: Folder | Mapping[str, Any],
    *,
    name: str | None = None,
    parallel: int | None = None,
    trials: int | None = None,
    pool: str | None = None,
    gpus: Sequence[int] = (),
    budget_usd: float | None = None,
    project: str | None = None,
    tags: Mapping[str, str] | None = None,
    folder: Folder | None = None,
    home: Folder | None = None,
) -> StudyHandle:
    """Store a study: what `evalfleet tune --detach` submits. `StudyHandle.wait` drives it.

    Args:
        study: the path of a study file, or the table that it stands for.
        name: what to call it; else the study's own name.
        parallel: trials at a time; else the study's, or 1.
        trials: how many to try; else the study's, or 20.
        pool: whose hosts to use; else this machine.
        gpus: lease only these GPUs of each host, by index; else all.
        budget_usd: admit no work beyond it.
        project: that the study belongs to; else the one that the settings name.
        tags: words to find it by.
        folder: where the trials start; else the file's folder, or the current one.
        home: where everything is kept; else EVALFLEET_HOME, or ~/.evalfleet.

    Raises InputError, NotFound, StoreError.
    """
    machine = config.load(home)
    if isinstance(study, Mapping):
        place = str(Path(folder or ".").absolute())
        found = studies.study_in_table(study, "study", parallel=parallel, trials=trials)
        studies.require_files(found, Path(place), "study")
    else:
        found, place = studies.study_in_file(os.fspath(study), parallel=parallel, trials=trials)
        place = place if folder is None else str(Path(folder).absolute())
    options = StudyOptions(
        name=name,
        pool=pool,
        budget_usd=budget_usd,
        gpus=studies.gpu_indices(list(gpus)),
        project=project,
        tags=dict(tags or {}),
    )
    with closing(open_store(machine.home)) as store:
        return StudyHandle(machine, studies.submit(machine, store, found, options, folder=place))


def open_study(study: str = "latest", *, home: Folder | None = None) -> StudyHandle:
    """A study of the home, by its id, a unique prefix of it, its name, or "latest". Raises NotFound, AmbiguousId, InputError."""
    machine = config.load(home)
    with opened_study(machine.home, study) as (_, found):
        return StudyHandle(machine, found)


def list_studies(*, home: Folder | None = None) -> list[StudyRow]:
    """The studies, newest first: the `studies` that `evalfleet study list --json` prints."""
    with opened(config.load(home).home) as reader:
        return [] if reader is None else study_rows(reader)


class StudyHandle(RunHandle):
    """A study. Everything that a run has, and what was found so far."""

    def facts(self) -> StudyFacts:
        """How far it is, the best so far, every trial: the object that `evalfleet study show --json` prints."""
        with self._opened() as (reader, run):
            return study_facts(reader, run)

    def trials(self) -> list[Trial]:
        """Every trial with its parameters and metrics, in order."""
        return self.facts().trials

    def best(self) -> dict[str, Any] | None:
        """The parameters of the best configuration that keeps all limits; None while there is none."""
        found = self.facts().best
        return None if found is None else found.parameters

    def add_trials(self, trials: int) -> MoreTrials:
        """Let it try so many more, also when it is over. `wait` drives them."""
        with self._changing() as (store, run):
            return studies.add_trials(store, run, trials)

    def retry_failed(self) -> list[str]:
        """Give failed and held trials new attempts; returns their keys. `wait` drives them."""
        with self._changing() as (store, run):
            return studies.retry_failed(store, run).tasks

    facts_async = in_thread(facts)
    trials_async = in_thread(trials)
    best_async = in_thread(best)
    add_trials_async = in_thread(add_trials)
    retry_failed_async = in_thread(retry_failed)
