"""Submitting: from tasks, a task file or a benchmark to a stored run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

from msgspec.structs import replace

from evalfleet import config, taskfile
from evalfleet.api.handle import RunHandle
from evalfleet.api.tasks import Folder, RunSettings, Task, mapping, plain
from evalfleet.errors import InputError, TaskFileError
from evalfleet.operations.runs import submit as submitting
from evalfleet.operations.runs.ownership import ownership
from evalfleet.operations.runs.submit import RunOptions
from evalfleet.store.open import open_store
from evalfleet.taskfile import row
from evalfleet.taskfile.part import Part, part_of
from evalfleet.validation import seconds, sentence

_FIELDS = {name: f"{name}_s" for name in ("timeout", "stall", "start_timeout", "retry_base", "retry_cap")}
_FIELDS["result"] = "result_required"


def submit(
    tasks: Iterable[Mapping[str, Any] | Task] | Folder,
    *,
    name: str | None = None,
    workers: int | None = None,
    pool: str | None = None,
    project: str | None = None,
    tags: Mapping[str, str] | None = None,
    home: Folder | None = None,
    folder: Folder | None = None,
    part: Part | None = None,
    **settings: Unpack[RunSettings],
) -> RunHandle:
    """Store a run with all its tasks, or nothing. It is driven by `RunHandle.wait`.

    Args:
        tasks: mappings with the keys of the task file, `Task` objects, or the path of a task file.
        name: what to call the run; else the file's name, or "python".
        workers: tasks at a time; else the file's, or as many as this machine has CPUs or the pool has workers.
        pool: whose hosts to use; else this machine.
        project: that the run belongs to; else the one that the settings name.
        tags: words to find the run by.
        home: where everything is kept; else EVALFLEET_HOME, or ~/.evalfleet.
        folder: where the tasks start; else the task file's folder, or the current one.
        part: which of the tasks, how often, and with which variables besides; else all of them, once.
        settings: the keys of `[run]` in the task file; they override what the file says.

    Raises:
        InputError: a task or setting is wrong, a key is used twice, a secret is not set; nothing is stored.
        StoreError: the home cannot be used.

    Example:
        >>> run = submit([Task(key="a", command=["true"])], workers=2, attempts=1)  # doctest: +SKIP
    """
    wanted = _wanted(name, workers, settings)
    submission = _from_file(tasks, wanted) if isinstance(tasks, str | os.PathLike) else _from_script(tasks, wanted)
    if folder is not None:
        submission = replace(submission, folder=str(Path(folder).absolute()))
    if part is not None:
        submission = part_of(submission, part)
    return _stored(config.load(home), submission, RunOptions(pool=pool, project=project, tags=dict(tags or {})))


def submit_benchmark(
    benchmark: str,
    *,
    agent: str,
    tasks: int | None = None,
    task: str | Sequence[str] = (),
    domain: str | None = None,
    seed: int = 0,
    repeat: int = 1,
    max_steps: int | None = None,
    model: str | None = None,
    base_url: str | None = None,
    options: Mapping[str, str] | None = None,
    json_name: str | None = None,
    waa_root: Folder | None = None,
    name: str | None = None,
    workers: int | None = None,
    pool: str | None = None,
    project: str | None = None,
    tags: Mapping[str, str] | None = None,
    home: Folder | None = None,
    folder: Folder | None = None,
    **settings: Unpack[RunSettings],
) -> RunHandle:
    """Store a run of a benchmark's tasks, or nothing: what `evalfleet run BENCHMARK` submits.

    Args:
        benchmark: one that `evalfleet benchmarks` lists.
        agent: one that `evalfleet agents` lists, or `module:Class`.
        tasks: this many, spread over those that match; else all.
        task: only these tasks, by name, or episodes, by key.
        domain: only domains that match this pattern.
        seed: of the first episode of each task.
        repeat: episodes of each task.
        max_steps: steps per episode; else the benchmark's own.
        model: that the agent asks, where it asks one.
        base_url: of the endpoint that serves the model.
        options: the benchmark's own, as `evalfleet benchmarks NAME` lists them.
        json_name, waa_root: until 0.3: the options `list` and `checkout` of waa.
        name, workers, pool, project, tags, home: as for `submit`.
        folder: where the attempts start, and where the module of an own agent lies; else the current one.
        settings: the keys of `[run]` in the task file; they override what the benchmark says. `files` are those that the
            agent needs on a pool's hosts besides its own.

    Raises:
        InputError: unknown benchmark, agent, task or domain; this machine lacks something; a secret is not set.
        StoreError: the home cannot be used.
    """
    wanted = _wanted(name, workers, settings)
    given = {"agent": agent, "tasks": tasks, "domain": domain, "seed": seed, "repeat": repeat, "max_steps": max_steps}
    given |= {"task": (task,) if isinstance(task, str) else tuple(task), "model": model, "base_url": base_url}
    given |= {"json_name": json_name, "waa_root": None if waa_root is None else os.fspath(waa_root), "options": options}
    chosen = submitting.benchmark_options({**given, "files": tuple(wanted.pop("files", ()))})
    machine = config.load(home)
    found = submitting.benchmark_submission(
        benchmark,
        chosen,
        machine,
        folder=str(Path(folder or ".").absolute()),
        remote=pool is not None,
        timeout_s=seconds("timeout", wanted.pop("timeout", None)),
        say=_warn,
    )
    options_of_run = RunOptions(pool=pool, project=project, tags=dict(tags or {}))
    return _stored(machine, _overridden(found, wanted), options_of_run)


def _wanted(name: str | None, workers: int | None, settings: RunSettings) -> dict[str, Any]:
    given = {"name": name, "workers": workers, **settings}
    return {word: plain(value) for word, value in given.items() if value is not None}


def _warn(note: str) -> None:
    warnings.warn(note, stacklevel=5)  # of the line that submits


def _stored(machine: config.Settings, submission: taskfile.Submission, options: RunOptions) -> RunHandle:
    submitting.require_secrets(
        machine, submission, ownership(machine, options.project, options.tags)
    )  # before a home is made
    with closing(open_store(machine.home)) as store:
        run, answer = submitting.submit(machine, store, submission, options)
    if answer.warning is not None:
        _warn(answer.warning)
    return RunHandle(machine, run)


def _from_script(tasks: Iterable[Any], wanted: dict[str, Any]) -> taskfile.Submission:
    if isinstance(tasks, Mapping | Task):
        raise InputError("submit takes several tasks; put the one into a list")
    return taskfile.from_mappings(map(mapping, tasks), wanted, folder=os.getcwd(), name="python")


def _from_file(path: Folder, wanted: dict[str, Any]) -> taskfile.Submission:
    for word in ("command", "payload"):
        if word in wanted:
            raise InputError(f"{word}: is for tasks that are given here; write it under [run] of {os.fspath(path)}.")
    return _overridden(taskfile.load(path), wanted)


def _overridden(submission: taskfile.Submission, wanted: dict[str, Any]) -> taskfile.Submission:
    """Let what is given here go before what the file or the benchmark says."""
    try:
        name, policy = row.policy(wanted)
    except row.Problem as problem:
        raise TaskFileError(f"submit: {sentence(str(problem))}") from None
    names = [_FIELDS.get(word, word) for word in wanted if word not in ("name", *row.Defaults.__struct_fields__)]
    merged = replace(submission.policy, **{field: getattr(policy, field) for field in names})
    part = Part(env=wanted.get("env", {}), secrets=tuple(wanted.get("secrets", ())))
    return part_of(replace(submission, name=name or submission.name, policy=merged), part)
