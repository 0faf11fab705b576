"""From what a person typed after `run` to a submission: the tasks of a file, or episodes of a benchmark."""

from __future__ import annotations

import os
from dataclasses import dataclass

import click

from evalfleet.config import Settings
from evalfleet.errors import InputError
from evalfleet.taskfile import Submission, from_mappings, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options that only benchmarks know; None or empty where they were not given."""

    agent: str | None
    tasks: int | None
    domain: str | None
    task: tuple[str, ...]
    seed: int | None
    repeat: int | None
    max_steps: int | None

    def given(self) -> list[str]:
        """Return the names of the options that were given."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return [f"--{name.replace('_', '-')}" for name, value in values.items() if value not in (None, ())]


def submission_of(source: str, choice: Choice, settings: Settings) -> Submission:
    """Check everything that can be checked before anything is written.

    Raises:
        InputError: the file, or what was asked of the benchmark, is not usable, or this machine lacks something.
        click.UsageError: options of a benchmark with a task file.
    """
    if _is_word(source) and not os.path.exists(source):
        return _of_benchmark(source, choice, settings)
    if choice.given():
        raise click.UsageError(f"{choice.given()[0]} is for benchmarks only, and {source!r} is a task file.")
    return load(source)


def _is_word(source: str) -> bool:
    return source != "-" and os.sep not in source and "." not in source


def _of_benchmark(name: str, choice: Choice, settings: Settings) -> Submission:
    from evalfleet.agents import registry as agents
    from evalfleet.benchmarks import registry as benchmarks
    from evalfleet.benchmarks.base import Selection

    if not benchmarks.is_known(name):
        raise InputError(
            f"{name!r} is neither a file nor a benchmark; known benchmarks: {', '.join(benchmarks.names())}."
        )
    benchmark = benchmarks.find(name, settings)
    if choice.agent is None:
        raise click.UsageError(
            f"{name} needs --agent: {', '.join(agents.BUILT_IN)}, or your own as module:Class or cmd:COMMAND."
        )
    missing = [need for need in benchmark.requirements() if not need.present]
    if missing:
        said = "; ".join(f"{need.what} ({need.found}), install it with: {need.install}" for need in missing)
        raise InputError(f"{name} needs {said}")
    agents.load(choice.agent, folder=os.getcwd())
    selection = Selection(
        agent=choice.agent,
        count=choice.tasks,
        keys=choice.task,
        domain=choice.domain,
        seed=choice.seed or 0,
        repeat=choice.repeat or 1,
        max_steps=choice.max_steps,
    )
    run = benchmark.settings(selection)
    return from_mappings(benchmark.tasks(selection), run, folder=os.getcwd(), name=name, shown=name)
