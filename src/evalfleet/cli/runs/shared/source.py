"""From what a person typed after `run` to a submission: the tasks of a file, or episodes of a benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.options import Command
from evalfleet.taskfile import Submission, load
from evalfleet.taskfile.part import Part, part_of

if TYPE_CHECKING:
    from evalfleet.config import Settings

_OF_FILES = ("tasks", "domain", "task", "seed", "repeat")  # choose a part of a task file as well

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
        "--tasks", "--limit", type=click.IntRange(min=1), help="Run this many of the matching tasks, spread evenly."
    ),
    "domain": click.option("--domain", metavar="PATTERN", help="Only matching domains, such as 'click*'."),
    "task": click.option(
        "--task",
        multiple=True,
        metavar="KEY",
        help="Only this task; of a file also a pattern such as 'files_*', of a benchmark also an episode. Repeatable.",
    ),
    "tasks_file": click.option(
        "--tasks-file", metavar="FILE", help="Benchmark: only the tasks or episodes in this file, one per line."
    ),
    "seed": click.option(
        "--seed", type=click.IntRange(0, 999_999_999), help="Seed of the first repetition.  [default: 0]"
    ),
    "repeat": click.option("--repeat", type=click.IntRange(1, 1000), help="Play each task this often.  [default: 1]"),
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


def _pairs(_ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.BadParameter("write it as NAME=VALUE; a value that is secret is given by --secret NAME.")
        found[name] = value
    return found


def variable_options(function: Command) -> Command:
    """Gives the command `variables: dict[str, Any]`: `env` and `secrets` as `Part` has them."""

    @click.option(
        "--env", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="A variable of every task; repeatable."
    )
    @click.option(
        "--secret", "secrets", multiple=True, metavar="NAME", help="A secret variable of every task; repeatable."
    )
    @wraps(function)
    def gathering(env: dict[str, str], secrets: tuple[str, ...], **given: Any) -> int:
        return function(**given, variables={"env": env, "secrets": secrets})

    return gathering


def submission_of(
    source: str,
    chosen: Mapping[str, Any],
    settings: Settings,
    timeout_s: float | None = None,
    *,
    variables: Mapping[str, Any] = {},
    remote: bool = False,
) -> Submission:
    """Check everything that can be checked before anything is written.

    Args:
        source: a task file, or the name of a benchmark.
        chosen: the options that were given, of a benchmark or of a part of a file.
        settings: the machine's.
        timeout_s: of an attempt of a benchmark; None: the benchmark's own. It does not change what a task file says.
        variables: what `variable_options` gave.
        remote: it runs on the hosts of a pool, not on this machine.

    Raises:
        InputError: the file, or what was asked of the benchmark, is not usable, or this machine lacks something.
        click.UsageError: options of a benchmark with a task file.
    """
    if _is_word(source) and not os.path.exists(source):
        return part_of(_of_benchmark(source, dict(chosen), settings, timeout_s, remote), Part(**variables))
    first = next((name for name in OPTIONS if name in chosen and name not in _OF_FILES), None)
    if first is not None:
        option = f"--{first.removesuffix('s') if first in ('files', 'options') else first.replace('_', '-')}"
        raise click.UsageError(f"{option} is for benchmarks only, and {source!r} is a task file.")
    return part_of(load(source), Part(**chosen, **variables))


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
    from evalfleet.operations.runs.submit import benchmark_options, benchmark_submission, require_benchmark

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
