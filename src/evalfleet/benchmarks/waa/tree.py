"""The results that WAA writes: `<action_space>/<observation_type>/<model>/<trial>/<domain>/<id>/`, read to be imported."""

from __future__ import annotations

import os
import re
from pathlib import Path

from evalfleet.benchmarks.base import PastResults, PastTask
from evalfleet.benchmarks.waa.trajectory import RESULT, TRAJECTORY, event_line, read_score, read_trajectory
from evalfleet.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_TASK_LOG = re.compile(r"task-(\d+)-.*\.log")
_SHAPE = "<action_space>/<observation_type>/<model>/<trial>/<domain>/<id>"


def read_tree(root: str) -> PastResults:
    """Read the results at or below a folder.

    A task without `result.txt`, or with an empty one, has no verdict: WAA leaves such where an exception ended the task.

    Raises:
        InputError: there is no such folder, there are no results in it or those of several models, or one is broken.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise InputError(f"there is no folder {root}.")
    trials = _trials(folder)
    if not trials:
        raise InputError(f"{root}: contains no results of WAA; expected {_SHAPE}/{RESULT}.")
    models = sorted({trial.parent for trial in trials})
    if len(models) > 1:
        shown = ", ".join(str(model) for model in models[:3]) + (", …" if len(models) > 3 else "")
        raise InputError(f"{root}: contains the results of {len(models)} models; name one of them: {shown}.")
    numbered = [(_number(trial, place), trial) for place, trial in enumerate(sorted(trials))]
    tasks = [task for number, trial in sorted(numbered) for task in _tasks(trial, number)]
    return PastResults(model=models[0].name, tasks=tasks)


def _trials(root: Path) -> set[Path]:
    """The folders of trials: those with a result or a trajectory three levels below them."""
    found: set[Path] = set()
    for folder, _, files in os.walk(root.resolve()):
        if RESULT in files or TRAJECTORY in files:
            found.add(Path(folder).parents[1])
    return found


def _number(trial: Path, place: int) -> int:
    """WAA's trial is any text; where it is no number, its place among the others is."""
    return int(trial.name) if trial.name.isdecimal() else place


def _tasks(trial: Path, number: int) -> list[PastTask]:
    folders = [
        task
        for domain in sorted(trial.iterdir())
        if domain.is_dir()
        for task in sorted(domain.iterdir())
        if task.is_dir() and task.name != "onboard"  # which WAA leaves out, too
    ]
    return [_task(folder, number) for folder in folders]


def _task(folder: Path, trial: int) -> PastTask:
    domain, name = folder.parent.name, folder.name
    for word in (domain, name):
        if not _NAME.fullmatch(word):
            raise InputError(f"{folder}: {word!r} cannot be the name of a domain or task; expected {_SHAPE}.")
    steps, raised = read_trajectory(_text(folder / TRAJECTORY))
    moments = [step.at for step in steps if step.at is not None]
    ended = max((path.stat().st_mtime for path in folder.rglob("*") if path.is_file()), default=folder.stat().st_mtime)
    started = min(moments, default=ended)
    return PastTask(
        key=f"{domain}/{name}" + (f"_{trial}" if trial else ""),
        domain=domain,
        payload={"benchmark": "waa", "task": f"{domain}/{name}", "seed": trial, "model": folder.parents[2].name},
        files=folder,
        score=_score(folder / RESULT),
        evidence=raised.words if raised else f"there is no {RESULT}",
        steps=max((step.number for step in steps), default=0),
        lines=tuple(event_line(step) for step in steps),
        worker=_worker(folder),
        started_at=started,
        duration_s=max(moments, default=started) - started,
    )


def _score(path: Path) -> float | None:
    text = _text(path)
    try:
        return read_score(text) if text.strip() else None
    except ValueError as error:
        raise InputError(f"{path}: {error}; correct it, or remove it to import the task without a verdict.") from None


def _worker(folder: Path) -> str:
    """The name of WAA's worker, which stands in the name of the task's log."""
    numbers = [match[1] for path in folder.glob("logs/*.log") if (match := _TASK_LOG.fullmatch(path.name))]
    return f"waa-{max(numbers, default='0')}"


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
