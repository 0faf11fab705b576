"""Submitting a run: of tasks, of a task file, or of a benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from evalfleet import config
from evalfleet.config.secrets import Secrets
from evalfleet.core.secret_names import warning
from evalfleet.engine.placement.least_budget import require_budget
from evalfleet.errors import InputError
from evalfleet.model import Distribution, Ownership, Run, RunState
from evalfleet.operations.runs.ownership import ownership
from evalfleet.operations.runs.program_check import Programs
from evalfleet.store.store import Store
from evalfleet.taskfile import Submission
from evalfleet.validation import explain, sentence, suggestion

if TYPE_CHECKING:
    from evalfleet.benchmarks.base import Benchmark, BenchmarkOptions

_FORMER = {"json_name": "list", "waa_root": "checkout"}  # options of waa that were options of `run`


class RunOptions(Struct, frozen=True, kw_only=True):
    """What a person says of a run besides its tasks. None: what the task file or the benchmark says."""

    name: str | None = None
    workers: int | None = None
    distribution: str | None = None
    budget_usd: float | None = None
    priority: int | None = None  # among the runs of its owner: higher goes first
    pool: str | None = None  # None: this machine
    project: str | None = None  # None: the one that the settings name
    tags: dict[str, str] = field(default_factory=dict[str, str])


class Submitted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that is stored."""

    run: str
    name: str
    state: RunState
    tasks: int
    warning: str | None = None  # a variable of a task looks like a secret


def benchmark_options(given: Mapping[str, Any]) -> BenchmarkOptions:
    """The options by their names; those that are None were not given. Raises InputError."""
    from evalfleet.benchmarks.base import BenchmarkOptions  # a run of a task file need not load it

    values = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(values, BenchmarkOptions)
    except msgspec.ValidationError as error:
        raise InputError(sentence(explain(error, BenchmarkOptions, {}))) from None


def benchmark_submission(
    name: str,
    options: BenchmarkOptions,
    settings: config.Settings,
    *,
    folder: str,
    remote: bool,
    timeout_s: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Submission:
    """The tasks of a benchmark, with everything checked that can be checked before anything is written.

    Args:
        name: one that `evalfleet benchmarks` lists.
        folder: where attempts start, and where a person's own agent is looked for first.
        remote: the run uses the hosts of a pool, not this machine.
        timeout_s: of an attempt; None: the benchmark's own.
        say: called with what the user should know before the run begins.

    Raises InputError: unknown benchmark, agent, task or domain, or this machine lacks something.
    """
    from evalfleet.agents import registry as agents
    from evalfleet.benchmarks import registry as benchmarks
    from evalfleet.benchmarks.base import OwnAgents, Selection
    from evalfleet.benchmarks.submission import submission

    benchmark = benchmarks.find(name, settings)
    own = isinstance(benchmark, OwnAgents)
    its_options = own_options(benchmark, options, say)
    if not options.agent:
        known, others = (
            (benchmark.agents, "another that it knows") if own else (agents.names(), f"your own as {agents.OWN}")
        )
        raise InputError(f"{name} needs --agent: {', '.join(known)}, or {others}.")
    given = asdict(replace(options, options=its_options))
    selection = Selection(**given, timeout_s=timeout_s, remote=remote)
    return submission(benchmark, selection, settings, folder=folder, say=say)


def own_options(
    benchmark: Benchmark, options: BenchmarkOptions, say: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """The options that only this benchmark knows, with those that had words of their own until 0.3. Raises InputError."""
    from evalfleet.benchmarks.base import TakesOptions

    given = dict(options.options)
    for former, word in _FORMER.items():
        if (value := getattr(options, former)) is not None:
            say(f"--{former.replace('_', '-')} goes away with version 0.3; write --option {word}={value}")
            given.setdefault(word, value)
    known: Mapping[str, str] = benchmark.own_options if isinstance(benchmark, TakesOptions) else {}
    wrong = next((word for word in given if word not in known), None)
    if wrong is not None:
        takes = f"takes: {', '.join(known)}" if known else "takes no options of its own"
        raise InputError(f"option {wrong}: is not known; {benchmark.name} {takes}.")
    return given


def require_benchmark(name: str) -> None:
    """Raises InputError if `name` is not a benchmark."""
    from evalfleet.benchmarks import registry as benchmarks

    if not benchmarks.is_known(name):
        raise InputError(sentence(f"{name!r} is neither a file nor a benchmark{suggestion(name, benchmarks.names())}"))


def submit(
    settings: config.Settings,
    store: Store,
    submission: Submission,
    options: RunOptions,
    *,
    by: str | None = None,
    owner: str | None = None,
    elsewhere: bool = False,
) -> tuple[Run, Submitted]:
    """Store the run, whole or not at all. The options override what the task file says.

    Args:
        by: who asks, where that is not the person at this terminal; recorded as an event.
        owner: the user whose run it is, where that is not the person at this terminal.
        elsewhere: a controller of another machine may drive it, so that secrets need not be here.

    Raises InputError: a secret is not set, the budget admits no attempt (see `require_budget`), or, for a run on this machine,
    a program of its tasks is missing (see `Programs`).
    """
    whose = ownership(settings, options.project, options.tags, owner)
    if not elsewhere:
        require_secrets(settings, submission, whose)
    with store.batch():
        run = _stored(store, submission, options, settings.local.price_usd_per_hour, whose)
        if by is not None:
            store.events.note(run.id, "run.requested", {"verb": "submit", "by": by})
        else:
            store.audit.add(whose.owner, "run.submit", run.id)
    tasks, exposed = len(submission.tasks), warning(submission.tasks)
    return run, Submitted(run=run.id, name=run.name, state=run.state, tasks=tasks, warning=exposed)


def require_secrets(settings: config.Settings, submission: Submission, whose: Ownership) -> None:
    """Raise InputError where no source here has a secret that a task needs."""
    if not submission.secrets:
        return
    secrets = Secrets(settings.secrets)
    missing = secrets.missing(submission.secrets, user=whose.owner, project=whose.project)
    if missing:
        wants = next(task.key for task in submission.tasks if missing[0] in task.secrets)
        raise InputError(
            f"task {wants!r} wants the secret {missing[0]}, and {secrets.lack} {', '.join(missing)}; {secrets.remedy(missing)} and "
            "submit again. Nothing was submitted."
        )


def _stored(
    store: Store, submission: Submission, options: RunOptions, local_usd_per_hour: float, whose: Ownership
) -> Run:
    policy = submission.policy
    usual = os.cpu_count() or 1
    if options.pool:
        from evalfleet.engine.hosts.fleet import slots_of  # all backends with it, which `--detach` need not load

        usual = slots_of(store, options.pool)
    policy = replace(
        policy,
        workers=options.workers or policy.workers or usual,
        distribution=Distribution(options.distribution or policy.distribution),
        budget_usd=policy.budget_usd if options.budget_usd is None else options.budget_usd,
        priority=policy.priority if options.priority is None else options.priority,
        pool=options.pool,
    )
    require_budget(store, policy, submission.tasks, local_usd_per_hour=local_usd_per_hour)
    base_env = config.base_env()
    tasks = submission.tasks if options.pool else Programs(submission.folder, base_env).checked(submission.tasks)
    return store.runs.submit(
        options.name or submission.name,
        policy,
        tasks,
        folder=submission.folder,
        base_env=base_env,
        ownership=whose,
    )
