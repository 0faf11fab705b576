"""The run that a selection asks for, checked as far as possible before it is submitted."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from evalfleet.agents import registry as agents
from evalfleet.agents.base import AgentOptions
from evalfleet.benchmarks.base import Benchmark, HasNotes, OwnAgents, Selection
from evalfleet.benchmarks.worker_tools import AgentFiles, agent_files_of, tools_of, with_agent
from evalfleet.config import Settings
from evalfleet.errors import InputError
from evalfleet.taskfile import Submission, from_mappings


def submission(
    benchmark: Benchmark,
    selection: Selection,
    settings: Settings,
    *,
    folder: str,
    say: Callable[[str], None],
) -> Submission:
    """Return the run that a person asked for.

    Args:
        benchmark: from the registry.
        selection: which episodes, and who acts.
        settings: the machine's.
        folder: where attempts start, and where a person's own agent is looked for first.
        say: is told what the person should know before the run begins.

    Raises:
        InputError: this machine lacks something, the agent cannot be loaded or set up, or nothing fits.
    """
    own = isinstance(benchmark, OwnAgents)
    if own:
        benchmark.check_agent(selection.agent)
    # Other machines are asked when the run connects to them.
    missing = [need for need in benchmark.requirements() if not need.present and (need.here or not selection.remote)]
    if missing:
        said = "; ".join(f"{need.what} ({need.found}), install it with: {need.install}" for need in missing)
        raise InputError(f"{benchmark.name} needs {said}")
    agent_files = AgentFiles(files=selection.files)
    if not own:
        agent = agents.load(selection.agent, folder=folder)
        options = AgentOptions(model=selection.model, base_url=selection.base_url)
        for note in agents.setup_of(selection.agent, agent, options, settings).notes:
            say(note)
        agent_files = agent_files_of(selection, folder)
    if isinstance(benchmark, HasNotes):
        for note in benchmark.notes(selection):
            say(note)
    tasks, run = benchmark.tasks(selection), benchmark.settings(selection)
    found = from_mappings(tasks, run, folder=folder, name=benchmark.name, shown=benchmark.name)
    policy = replace(
        found.policy,
        tools=with_agent(tools_of(benchmark, settings), agent_files),
        files=tuple(dict.fromkeys((*found.policy.files, *agent_files.files))),
    )
    if selection.timeout_s is not None:
        policy = replace(policy, timeout_s=selection.timeout_s)
    return replace(found, policy=policy)
