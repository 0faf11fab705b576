"""From what a person typed after `run` to a submission: the tasks of a file, or episodes of a benchmark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from evalfleet.cli.shared.options import gathered
from evalfleet.errors import InputError
from evalfleet.taskfile import Submission, load
from evalfleet.validation import sentence, suggestion

if TYPE_CHECKING:
    from evalfleet.config import Settings


class Choice(Struct, frozen=True, kw_only=True):
    """The options that only benchmarks know; None or empty where they were not given."""

    agent: str | None
    tasks: int | None
    domain: str | None
    task: tuple[str, ...]
    tasks_file: str | None
    seed: int | None
    repeat: int | None
    max_steps: int | None
    model: str | None
    base_url: str | None
    json_name: str | None
    waa_root: str | None
    file: tuple[str, ...]

    def given(self) -> list[str]:
        """Return the names of the options that were given."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return [f"--{name.replace('_', '-')}" for name, value in values.items() if value not in (None, ())]


benchmark_options = gathered(
    "choice",
    Choice,
    click.option(
        "--agent",
        metavar="AGENT",
        help="Benchmark: who acts: one that `evalfleet agents` lists, or module:Class or cmd:COMMAND.",
    ),
    click.option("--model", metavar="NAME", help="Benchmark: the model that the agent asks."),
    click.option("--base-url", metavar="URL", help="Benchmark: the endpoint that serves the model."),
    click.option("--tasks", type=click.IntRange(min=1), help="Benchmark: so many tasks, spread over those that fit."),
    click.option("--domain", metavar="PATTERN", help="Benchmark: only domains like this, such as 'click*'."),
    click.option("--task", multiple=True, metavar="KEY", help="Benchmark: only this task or episode; repeatable."),
    click.option(
        "--tasks-file", metavar="FILE", help="Benchmark: only the tasks or episodes that it names, one per line."
    ),
    click.option(
        "--seed", type=click.IntRange(0, 999_999_999), help="Benchmark: seed of the first episode.  [default: 0]"
    ),
    click.option("--repeat", type=click.IntRange(1, 1000), help="Benchmark: episodes per task.  [default: 1]"),
    click.option("--max-steps", type=click.IntRange(min=1), help="Benchmark: steps per episode.  [default: its own]"),
    click.option("--json-name", metavar="FILE", help="waa: a list of its tasks, such as test_small.json."),
    click.option("--waa-root", metavar="DIR", help="waa: your checkout, for lists and instructions."),
    click.option(
        "--file", multiple=True, metavar="PATH", help="Benchmark: the agent needs it on a pool's hosts too; repeatable."
    ),
)
"""Gives the command `choice: Choice`."""


def submission_of(
    source: str, choice: Choice, settings: Settings, timeout_s: float | None = None, *, remote: bool = False
) -> Submission:
    """Check everything that can be checked before anything is written.

    Args:
        source: a task file, or the name of a benchmark.
        choice: of the benchmark's options.
        settings: the machine's.
        timeout_s: of an attempt of a benchmark; the benchmark's own, if None. What a task file says is not changed here.
        remote: it runs on the hosts of a pool, not on this machine.

    Raises:
        InputError: the file, or what was asked of the benchmark, is not usable, or this machine lacks something.
        click.UsageError: options of a benchmark with a task file.
    """
    if _is_word(source) and not os.path.exists(source):
        return _of_benchmark(source, choice, settings, timeout_s, remote)
    if choice.given():
        raise click.UsageError(f"{choice.given()[0]} is for benchmarks only, and {source!r} is a task file.")
    return load(source)


def _is_word(source: str) -> bool:
    return source != "-" and os.sep not in source and "." not in source


def _of_benchmark(name: str, choice: Choice, settings: Settings, timeout_s: float | None, remote: bool) -> Submission:
    from evalfleet.agents import registry as agents
    from evalfleet.benchmarks import registry as benchmarks
    from evalfleet.benchmarks.base import OwnAgents, Selection
    from evalfleet.benchmarks.submission import submission
    from evalfleet.cli.shared.tasks_file import keys_in

    if not benchmarks.is_known(name):
        raise InputError(sentence(f"{name!r} is neither a file nor a benchmark{suggestion(name, benchmarks.names())}"))
    benchmark = benchmarks.find(name, settings)
    own = isinstance(benchmark, OwnAgents)
    if not own and (choice.json_name or choice.waa_root):
        raise click.UsageError(f"{'--json-name' if choice.json_name else '--waa-root'} is for waa, not for {name}.")
    if choice.agent is None and own:
        raise click.UsageError(f"{name} needs --agent: {', '.join(benchmark.agents)}, or another that it knows.")
    if choice.agent is None:
        raise click.UsageError(f"{name} needs --agent: {', '.join(agents.names())}, or your own as {agents.OWN}.")
    selection = Selection(
        agent=choice.agent,
        count=choice.tasks,
        keys=(*choice.task, *(keys_in(choice.tasks_file, benchmark) if choice.tasks_file else ())),
        domain=choice.domain,
        seed=choice.seed or 0,
        repeat=choice.repeat or 1,
        max_steps=choice.max_steps,
        model=choice.model,
        base_url=choice.base_url,
        timeout_s=timeout_s,
        remote=remote,
        files=choice.file,
        json_name=choice.json_name,
        waa_root=choice.waa_root,
    )
    return submission(benchmark, selection, settings, folder=os.getcwd(), say=_say)


def _say(note: str) -> None:
    click.echo(f"evalfleet: {note}", err=True)
