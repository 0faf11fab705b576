"""The settings and tasks of chosen episodes, for benchmarks whose attempts are run by `evalfleet.benchmarks.attempt`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalfleet import duration
from evalfleet.agents import registry as agents
from evalfleet.agents.base import AgentOptions
from evalfleet.benchmarks.base import Selection
from evalfleet.benchmarks.selection import Chosen
from evalfleet.config import Settings
from evalfleet.model import PYTHON


def episode_settings(benchmark: str, selection: Selection, *, timeout: str, quiet: str) -> dict[str, Any]:
    """Return a run's settings, with the keys of `[run]`. `quiet`: how long an attempt may take to start, or show no progress."""
    return {
        "name": f"{benchmark}-{agents.label(selection.agent)}",
        "result": "required",
        "progress": "events",
        "timeout": timeout,
        "timeout_is_verdict": True,
        "stall": quiet,
        "start_timeout": quiet,
    }


def episode_tasks(
    benchmark: str,
    chosen: Iterable[Chosen],
    selection: Selection,
    settings: Settings,
    *,
    max_steps: int,
    timeout: str,
    payload: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return a task for every episode, with the keys of `[[task]]`, and in it what the agent needs.

    Args:
        benchmark: its name.
        chosen: from `selecting.choose`.
        selection: who acts.
        settings: the machine's.
        max_steps: where the selection does not say.
        timeout: where the selection does not say. The time that an agent waits for a busy service is not taken from
            it: the runner's limit is longer by the agent's patience, and the attempt itself keeps to this one.
        payload: what the benchmark's own `episode` needs besides the task and the seed.

    Raises:
        InputError: the agent cannot be loaded, or cannot do what was asked for.
    """
    options = AgentOptions(model=selection.model, base_url=selection.base_url)
    setup = agents.setup_of(selection.agent, agents.load(selection.agent), options, settings)
    shared: dict[str, Any] = {
        "benchmark": benchmark,
        "agent": selection.agent,
        "max_steps": selection.max_steps or max_steps,
        **(payload or {}),
        **({"agent_options": dict(setup.options)} if setup.options else {}),
    }
    task: dict[str, Any] = {"command": [PYTHON, "-m", "evalfleet.benchmarks.attempt"]}
    if setup.secrets:
        task["secrets"] = list(setup.secrets)
    if setup.env:
        task["env"] = dict(setup.env)
    if setup.patience_s:
        limit_s = selection.timeout_s or duration.parse(timeout)
        task["timeout"] = limit_s + setup.patience_s
        shared["time_limit_s"] = limit_s
    return [
        {
            "key": each.key,
            "domain": each.task.domain,
            **task,
            "payload": {**shared, "task": each.task.name, "seed": each.seed},
        }
        for each in chosen
    ]
