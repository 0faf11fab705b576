"""Plug-ins by entry point group and name: those that evalfleet itself brings, and those of other packages.

This is the only list of what is built in. Nothing is imported before it is asked for by its name.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

AGENTS = "evalfleet.agents"
BENCHMARKS = "evalfleet.benchmarks"
SETTINGS = "evalfleet.settings"  # tables of evalfleet.toml; see `evalfleet.config.tables`

BUILT_IN: dict[str, dict[str, str]] = {
    AGENTS: {
        "oracle": "evalfleet.agents.oracle:Oracle",
        "random": "evalfleet.agents.random:RandomAgent",
        "llm": "evalfleet.agents.llm.agent:Llm",
    },
    BENCHMARKS: {
        "desk": "evalfleet.benchmarks.desk.benchmark:Desk",
        "miniwob": "evalfleet.benchmarks.miniwob.benchmark:Miniwob",
        "waa": "evalfleet.benchmarks.waa.benchmark:Waa",
    },
    SETTINGS: {
        "desk": "evalfleet.benchmarks.desk.settings:DeskSettings",
        "llm": "evalfleet.agents.llm.settings:LlmSettings",
        "vm": "evalfleet.environments.vm.settings:VmSettings",
        "waa": "evalfleet.benchmarks.waa.settings:WaaSettings",
    },
}
VARIABLES = {  # variable -> table and key that it sets
    "EVALFLEET_DESK_ENVIRONMENT": ("desk", "environment"),
    "EVALFLEET_DESK_TASKS": ("desk", "tasks"),
    "OPENAI_BASE_URL": ("llm", "base_url"),
}


def names(group: str) -> list[str]:
    """Return the built-in ones, then those of other packages."""
    return [*BUILT_IN[group], *sorted(installed(group).keys() - BUILT_IN[group].keys())]


def is_known(group: str, name: str) -> bool:
    return name in BUILT_IN[group] or name in installed(group)


def built_in(group: str, name: str) -> Any:
    """Import what evalfleet brings under that name. Raises KeyError."""
    module, _, attribute = BUILT_IN[group][name].partition(":")
    return getattr(import_module(module), attribute)


def installed(group: str) -> dict[str, EntryPoint]:
    """Return what other packages bring, also those that were installed a moment ago."""
    return _read(group, tuple((folder, _changed_at(folder)) for folder in sys.path))


@cache  # it reads the metadata of every installed package; a controller asks for each worker at each turn
def _read(group: str, _folders: tuple[tuple[str, int], ...]) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    found: Any = entry_points(group=group)
    return {point.name: point for point in found}


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0
