"""What another program has finished becomes a completed run: to report, compare and export, never to be run.

The files are copied first; then the run, its tasks and attempts are stored in one transaction, with the events of a run
that was driven here. A task without a verdict is held, since the cause of its failure is unknown here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from evalfleet import config
from evalfleet.benchmarks import registry
from evalfleet.benchmarks.base import Benchmark, PastTask, ReadsResults
from evalfleet.core.failures.kinds import JUDGE_VERSION, failure, outcome_of
from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import InputError, NotFound
from evalfleet.layout import Home, task_folder_name
from evalfleet.model import (
    Attempt,
    JsonObject,
    Kind,
    Outcome,
    Ownership,
    Policy,
    Requests,
    Run,
    TaskSpec,
    TaskState,
    Verdict,
)
from evalfleet.operations.runs.ownership import ownership
from evalfleet.store.attempts.records import Claim, Finish, Progress
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.validation import sentence, suggestion

HOST = "import"
# What `retry` would run: it says why there is nothing to run, and blames nobody's task.
_REFUSAL = {
    "error": "the task was imported; there is nothing here that could run it",
    "error_kind": Kind.ENVIRONMENT_FAILED,
}
_COMMAND = ("sh", "-c", f"echo '{json.dumps(_REFUSAL)}' > \"$EVALFLEET_RESULT\"; exit 1")


class Imported(Struct, frozen=True, kw_only=True):
    run: Run
    new: bool  # False: the same results were imported before, as this run


class ImportedFolder(Struct, frozen=True, kw_only=True):
    """What was imported, or found to be imported before."""

    run: str
    name: str
    new: bool
    tasks: int
    verdicts: int
    no_verdict: int


def formats(settings: config.Settings) -> list[str]:
    """Return the benchmarks whose own results can be imported."""
    return [name for name in registry.names() if isinstance(_found(name, settings), ReadsResults)]


def _found(name: str, settings: config.Settings) -> Benchmark | None:
    try:
        return registry.find(name, settings)
    except InputError:
        return None  # a plug-in that is broken


def import_folder(
    settings: config.Settings, folder: str | os.PathLike[str], format: str, name: str | None = None
) -> ImportedFolder:
    """Make a completed run of the results in a folder. The same results are imported once.

    Args:
        format: a benchmark that reads results of its own tools, such as waa.
        name: what to call the run; else the format and the model.

    Raises InputError.
    """
    reader = registry.find(format, settings) if registry.is_known(format) else None
    if not isinstance(reader, ReadsResults):
        raise InputError(sentence(f"there is no format {format!r}{suggestion(format, formats(settings))}"))
    tree = reader.read_results(os.fspath(folder))
    with closing(open_store(settings.home)) as store:
        label, source = name or f"{format}-{tree.model}", os.path.abspath(folder)
        whose = ownership(settings, None, {})
        done = import_tasks(store, settings.home, tree.tasks, name=label, source=source, whose=whose)
    verdicts = sum(task.score is not None for task in tree.tasks)
    return ImportedFolder(
        run=done.run.id,
        name=done.run.name,
        new=done.new,
        tasks=len(tree.tasks),
        verdicts=verdicts,
        no_verdict=len(tree.tasks) - verdicts,
    )


def import_tasks(
    store: Store, home: Path, tasks: Sequence[PastTask], *, name: str, source: str, whose: Ownership
) -> Imported:
    """Store a completed run of these tasks. Importing the same results again finds the run that is there."""
    digest = _digest(tasks)
    known = _find(store, digest)
    if known is not None:
        return Imported(run=known, new=False)
    partial = Home(home).run(f"import-{os.getpid()}.partial")
    try:
        artifacts = {task.key: _copy(task, partial) for task in tasks}
        run = _store(store, home, tasks, artifacts, partial, name=name, source=source, digest=digest, whose=whose)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    store.runs.leave(run)
    return Imported(run=run, new=True)


def _digest(tasks: Sequence[PastTask]) -> str:
    """What tells these results from others: the scores, the steps and their times, wherever the files lie."""
    rows = [[task.key, task.score, task.evidence, task.payload, task.lines, task.duration_s] for task in tasks]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _find(store: Store, digest: str) -> Run | None:
    for run in store.runs.newest():
        with suppress(NotFound):  # a run that is open may have no task yet
            payload = store.tasks.at(run.id, 1).spec.payload
            if isinstance(payload, dict) and cast("JsonObject", payload).get("imported") == digest:
                return run
    return None


def _copy(task: PastTask, target: Path) -> list[dict[str, Any]]:
    """Copy the regular files of a task to where an attempt's artifacts lie, and tell its steps; links are not followed."""
    copied: list[dict[str, Any]] = []
    place = target / task_folder_name(task.key) / "1" / "artifacts"
    place.mkdir(parents=True)
    told = "".join(json.dumps(line) + "\n" for line in task.lines)
    (place.parent / "events.jsonl").write_text(told, "utf-8")
    for folder, _, names in os.walk(task.files):
        for name in sorted(names):
            source = Path(folder, name)
            if stat.S_ISREG(source.lstat().st_mode):
                path = source.relative_to(task.files)
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place / path)
                copied.append({"path": path.as_posix(), "size": source.stat().st_size})
    return copied


def _store(
    store: Store,
    home: Path,
    tasks: Sequence[PastTask],
    artifacts: Mapping[str, list[dict[str, Any]]],
    files: Path,
    *,
    name: str,
    source: str,
    digest: str,
    whose: Ownership,
) -> Run:
    with store.batch():
        specs = [_spec(task, digest) for task in tasks]
        policy = Policy(workers=1, result_required=True, progress="events", timeout_is_verdict=True)
        submitted = store.runs.submit(name, policy, specs, folder=source, base_env={}, ownership=whose)
        run = store.runs.begin(store.runs.take(submitted.id, owner_name()))
        assert run is not None
        for number, task in enumerate(tasks, 1):
            _finish(store, run, number, task, artifacts[task.key])
        completed = store.runs.complete(run)
        assert completed is not None
        # Before the commit: a run that is there has its files, and files without a run are in nobody's way.
        os.rename(files, Home(home).run(run.id))
        return completed


def _spec(task: PastTask, digest: str) -> TaskSpec:
    payload = {**task.payload, "imported": digest}
    return TaskSpec(key=task.key, domain=task.domain, command=_COMMAND, payload=payload)


def _finish(store: Store, run: Run, number: int, task: PastTask, artifacts: list[dict[str, Any]]) -> None:
    claim = Claim(task_number=number, worker=task.worker, host=HOST, token="import", lease_s=1.0, requests=Requests())
    claimed = store.attempts.claim(run, claim)
    assert claimed is not None
    lines = tuple(dict(line) for line in task.lines)
    told = Progress(
        attempt=claimed.attempt, last_event=1, state="running", started_at=task.started_at, step=task.steps, lines=lines
    )
    store.attempts.progress(run, told)
    finished = store.attempts.finish(run, _end(claimed.attempt, task))
    assert finished is not None
    store.attempts.collect(run, finished.attempt, artifacts)


def _end(attempt: Attempt, task: PastTask) -> Finish:
    verdict = None if task.score is None else Verdict(score=task.score, success=task.score == 1.0, steps=task.steps)
    failed = None if verdict else failure(Kind.ENVIRONMENT_FAILED, task.evidence)
    result = {"score": task.score} if verdict else {"error": task.evidence, "error_kind": Kind.ENVIRONMENT_FAILED}
    ended_at = task.started_at + task.duration_s
    return Finish(
        attempt=attempt,
        outcome=Outcome.OK if failed is None else outcome_of(failed.kind),
        ended_at=ended_at,
        duration_s=task.duration_s,
        started_at=task.started_at,
        ready_at=None,
        cost_usd=0.0,
        reported_usd=0.0,
        last_event=2,
        # As a runner would have seen it, so that it can be judged again.
        end={"cause": "exited", "exit_code": int(failed is not None), "has_result": True, "result": result,
             "steps": task.steps, "started_at": task.started_at, "ended_at": ended_at, "duration_s": task.duration_s},
        judge_version=JUDGE_VERSION,
        verdict=verdict,
        failure=failed,
        next_state=None if verdict else TaskState.HELD,
        reason=None if verdict else f"imported without a verdict: {task.evidence}",
    )  # fmt: skip
