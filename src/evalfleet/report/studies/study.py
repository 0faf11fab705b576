"""What a study has found so far, read from its run's tasks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalfleet.answers import studies as answers
from evalfleet.errors import InputError, NotFound
from evalfleet.model import Run, RunState
from evalfleet.report.reader import opened
from evalfleet.report.studies.trials import deciding, trial_row
from evalfleet.store.reader import StoreReader
from evalfleet.tune.confirmation import Confirmation, confirmation
from evalfleet.tune.expression import Value
from evalfleet.tune.importance import importance
from evalfleet.tune.ranking import Contender, best, contenders, front, verdict
from evalfleet.tune.server import flag_words
from evalfleet.tune.space import Choice, Parameter
from evalfleet.tune.strategies.halving import Halving, rungs
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.tasks import trials_of
from evalfleet.tune.trial import Progress, Role, Trial

NO_STUDY = "there is no study yet; `evalfleet tune STUDY.toml` makes one"


def find_study(store: StoreReader, text: str) -> Run:
    """The study that `text` names; of several with one name the newest. Raises NotFound, AmbiguousId, InputError."""
    studies = [run for run in store.runs.newest() if run.policy.study is not None]
    if not studies:
        raise NotFound(NO_STUDY)
    if text == "latest":
        return studies[0]
    found = next((run for run in studies if run.name == text), None) or store.runs.find(text)
    study_in(found)
    return found


@contextmanager
def opened_study(home: Path, text: str) -> Generator[tuple[StoreReader, Run]]:
    """A reader, and the study that `text` names. Raises NotFound, AmbiguousId, InputError."""
    with opened(home) as reader:
        if reader is None:
            raise NotFound(NO_STUDY)
        yield reader, find_study(reader, text)


def study_in(run: Run) -> Study:
    """Raises InputError for a run that is no study."""
    if run.policy.study is None:
        raise InputError(f"run {run.id} is no study; `evalfleet study list` shows those that are")
    return study_of(run.policy.study)


def study_facts(store: StoreReader, run: Run) -> answers.StudyFacts:
    """All of it, as one moment shows it. Raises InputError for a run that is no study."""
    study = study_in(run)
    with store.snapshot():
        run = store.runs.get(run.id)
        now = store.now()
        crowded = store.events.last(run.id, "run.crowded")
        tasks = {task.number: task for task in store.tasks.all(run.id)}
        attempts = deciding(tasks, store.attempts.all(run.id))
    trials = trials_of(tasks.values(), study.objective)
    rows = [trial_row(study, trial, attempts.get(trial.number), now) for trial in trials]
    said = crowded is not None and run.state is RunState.RUNNING and crowded.data["workers"] == run.policy.workers
    return answers.StudyFacts.copy_of(
        run,
        study,
        **_head(study, run),
        **_found(study, trials),
        **_searched(study, trials),
        crowded=crowded.data["message"] if crowded is not None and said else None,
        history=_history(study, trials, rows),
        trials=rows,
    )


def study_found(store: StoreReader, run: Run) -> answers.StudyFound:
    """What a study found, for where a run shows its scores."""
    return answers.StudyFound.copy_of(study_facts(store, run))


def study_rows(store: StoreReader) -> list[answers.StudyRow]:
    """Every study, newest first, without its trials and what is drawn of them."""
    return [
        answers.StudyRow.copy_of(study_facts(store, run)) for run in store.runs.newest() if run.policy.study is not None
    ]


def _head(study: Study, run: Run) -> dict[str, Any]:
    return {
        "run": run.id,
        "reason": (run.reason or {}).get("message"),
        "parallel": run.policy.workers,
        "pool": run.policy.pool,
        "objective": [{("maximize" if goal.maximise else "minimize"): goal.metric} for goal in study.objective.goals],
        "constraints": [limit.text for limit in study.objective.limits],
        "parameters": [_parameter(one) for one in study.space.parameters],
        "forbid": [rule.text for rule in study.space.forbid],
        "wanted": study.trials,
    }


def _found(study: Study, trials: Sequence[Trial]) -> dict[str, Any]:
    """Which configuration leads, and how sure that is."""
    ranked = contenders(study.objective, trials)
    leader = best(study.objective, ranked)
    baseline = next((one for one in ranked if one.is_baseline), None)
    alone = confirmation(study.objective, trials, ranked)
    return {
        "best": None if leader is None else _configuration(leader),
        "baseline": None if baseline is None else _configuration(baseline),
        "verdict": None if leader is None else verdict(study.objective, leader, baseline),
        "confirmed": None if alone is None else _confirmed(alone),
        "flags": None if leader is None else as_flags(dict(leader.parameters)),
        "front": [_configuration(one) for one in front(study.objective, ranked)]
        if len(study.objective.goals) > 1
        else None,
        "nearest": _configuration(ranked[0]) if leader is None and ranked else None,
    }


def _searched(study: Study, trials: Sequence[Trial]) -> dict[str, Any]:
    """How far the search is, and what it showed on its way."""
    shares = importance(study.space, study.objective, trials)
    counts = {str(one): sum(trial.progress is one for trial in trials) for one in Progress}
    return {
        "searched": sum(trial.role is Role.SEARCH for trial in trials),
        "counts": answers.TrialCounts(**counts),
        "importance": None
        if shares is None
        else [answers.Importance(name=name, share=share) for name, share in shares],
        "resource": None if study.halving is None else study.halving.resource,
        "rungs": None if study.halving is None else _rungs(study, study.halving, trials),
    }


def _history(study: Study, trials: Sequence[Trial], rows: Sequence[answers.Trial]) -> list[answers.HistoryPoint]:
    """What was measured, in the order of its ends, with the best until then that keeps all limits."""
    goal = study.objective.goals[0]
    found: list[answers.HistoryPoint] = []
    leading: float | None = None
    ended = [
        (row.ended_at or 0.0, trial)
        for row, trial in zip(rows, trials, strict=True)
        if trial.progress is Progress.MEASURED and trial.final and trial.role is not Role.CONFIRM
    ]
    for at, trial in sorted(ended, key=lambda one: (one[0], one[1].number)):
        value = trial.metrics[goal.metric]
        feasible = study.objective.feasible(trial.metrics)
        if feasible and (leading is None or goal.cost(value) < goal.cost(leading)):
            leading = value
        found.append(answers.HistoryPoint(number=trial.number, at=at, value=value, feasible=feasible, best=leading))
    return found


def _rungs(study: Study, halving: Halving, trials: Sequence[Trial]) -> list[answers.Rung]:
    searched = sum(trial.role is Role.SEARCH for trial in trials)
    found: list[answers.Rung] = []
    for rung in rungs(halving, study.objective, trials, max(study.trials, searched)):
        states = [trial.progress for trial in rung.trials]
        leads = next((trial for trial in rung.trials if trial.progress is Progress.MEASURED), None)
        found.append(
            answers.Rung(
                rung=rung.number,
                budget=rung.budget,
                wanted=rung.expected,
                made=len(states),
                **{str(one): states.count(one) for one in Progress},
                leads=None if leads is None else leads.key,
            )
        )
    return found


def _parameter(one: Parameter) -> answers.StudyParameter:
    when = None if one.when is None else one.when.text
    if isinstance(one, Choice):
        return answers.StudyParameter(
            name=one.name, type="choice", values=list(one.values), low=None, high=None, log=False, when=when
        )
    kind = "integer" if one.whole else "continuous"
    return answers.StudyParameter(
        name=one.name, type=kind, values=None, low=one.low, high=one.high, log=one.log, when=when
    )


def _configuration(one: Contender) -> answers.Configuration:
    interval = one.interval
    return answers.Configuration.copy_of(
        one,
        trial=one.key,
        parameters=dict(one.parameters),
        metrics=dict(one.metrics),
        measurements=len(one.values),
        values=list(one.values),
        ci95=None if interval is None else answers.Bounds(low=interval.low, high=interval.high),
        broken=list(one.broken),
    )


def _confirmed(found: Confirmation) -> answers.Confirmed:
    return answers.Confirmed(
        alone=_configuration(found.alone), beside=found.beside, change=found.change, text=found.text
    )


def as_flags(parameters: dict[str, Value]) -> str:
    """As command-line flags: true is a bare flag, false is left out."""
    import shlex

    return shlex.join(flag_words(parameters))


def as_toml(parameters: dict[str, Value]) -> str:
    import json

    def shown(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)

    return "\n".join(f"{name} = {shown(value)}" for name, value in parameters.items())
