"""From what a person typed after `run` to a submission: the tasks of a file, or episodes of a benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.options import Command
from evalfleet.taskfile import Submission, load

if TYPE_CHECKING:
    from evalfleet.config import Settings

# By the names of `BenchmarkOptions`; `tasks_file` adds to `task`.
OPTIONS: dict[str, Callable[[Command], Command]] = {
    "agent": click.option(
        "--agent",
        metavar="AGENT",
        help="Benchmark: the agent: a name from `evalfleet agents`, module:Class or cmd:COMMAND.",
    ),
    "model": click.option("--model", metavar="NAME", help="Benchmark: the model that the agent uses."),
    "base_url": click.option("--base-url", metavar="URL", help="Benchmark: the endpoint that serves the model."),
    "tasks": click.option(
        "--tasks", type=click.IntRange(min=1), help="Benchmark: run this many of the matching tasks, spread evenly."
    ),
    "domain": click.option("--domain", metavar="PATTERN", help="Benchmark: only matching domains, such as 'click*'."),
    "task": click.option(
        "--task", multiple=True, metavar="KEY", help="Benchmark: only this task or episode; repeatable."
    ),
    "tasks_file": click.option(
        "--tasks-file", metavar="FILE", help="Benchmark: only the tasks or episodes in this file, one per line."
    ),
    "seed": click.option(
        "--seed", type=click.IntRange(0, 999_999_999), help="Benchmark: seed for the first episode.  [default: 0]"
    ),
    "repeat": click.option(
        "--repeat", type=click.IntRange(1, 1000), help="Benchmark: episodes per task.  [default: 1]"
    ),
    "max_steps": click.option(
        "--max-steps",
        type=click.IntRange(min=1),
        help="Benchmark: maximum steps per episode.  [default: the benchmark's]",
    ),
    "options": click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Benchmark: an option of its own, from `evalfleet benchmarks NAME`; repeatable.",
    ),
    "json_name": click.option("--json-name", hidden=True),
    "waa_root": click.option("--waa-root", hidden=True),
    "files": click.option(
        "--file",
        "files",
        multiple=True,
        metavar="PATH",
        help="Benchmark: a file that the agent needs on a pool's hosts; repeatable.",
    ),
}


def benchmark_options(function: Command) -> Command:
    """Gives the command `chosen: dict[str, Any]`: the options of `OPTIONS` that were given."""

    @wraps(function)
    def gathering(**given: Any) -> int:
        values = {name: given.pop(name) for name in OPTIONS}
        return function(**given, chosen={name: value for name, value in values.items() if value not in (None, ())})

    for option in reversed(OPTIONS.values()):
        option(gathering)
    return gathering


def submission_of(
    source: str,
    chosen: Mapping[str, Any],
    settings: Settings,
    timeout_s: float | None = None,
    *,
    remote: bool = False,
) -> Submission:
    """Check everything that can be checked before anything is written.

    Args:
        source: a task file, or the name of a benchmark.
        chosen: the benchmark's options that were given.
        settings: the machine's.
        timeout_s: of an attempt of a benchmark; None: the benchmark's own. It does not change what a task file says.
        remote: it runs on the hosts of a pool, not on this machine.

    Raises:
        InputError: the file, or what was asked of the benchmark, is not usable, or this machine lacks something.
        click.UsageError: options of a benchmark with a task file.
    """
    if _is_word(source) and not os.path.exists(source):
        return _of_benchmark(source, dict(chosen), settings, timeout_s, remote)
    if chosen:
        first = next(iter(name for name in OPTIONS if name in chosen))
        option = f"--{first.removesuffix('s') if first in ('files', 'options') else first.replace('_', '-')}"
        raise click.UsageError(f"{option} is for benchmarks only, and {source!r} is a task file.")
    return load(source)


def own_options(given: Iterable[str]) -> dict[str, str]:
    """What `--option NAME=VALUE` says."""
    return {word: value for word, _, value in (one.partition("=") for one in given)}


def _is_word(source: str) -> bool:
    return source != "-" and os.sep not in source and "." not in source


def _of_benchmark(
    name: str, chosen: dict[str, Any], settings: Settings, timeout_s: float | None, remote: bool
) -> Submission:
    from evalfleet.benchmarks import registry
    from evalfleet.cli.runs.shared.tasks_file import keys_in
    from evalfleet.operations.submit import benchmark_options, benchmark_submission, require_benchmark

    require_benchmark(name)
    file: str | None = chosen.pop("tasks_file", None)
    if file is not None:
        chosen["task"] = (*chosen.get("task", ()), *keys_in(file, registry.find(name, settings)))
    if "options" in chosen:
        chosen["options"] = own_options(chosen["options"])
    return benchmark_submission(
        name,
        benchmark_options(chosen),
        settings,
        folder=os.getcwd(),
        remote=remote,
        timeout_s=timeout_s,
        say=lambda note: click.echo(f"evalfleet: {note}", err=True),
    )
