"""What the workers of a run need: packages for their Python, the benchmark's settings, and the files of a person's own agent."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from evalfleet import config, plugins
from evalfleet.agents import command
from evalfleet.benchmarks.base import Benchmark, HasTools, Selection
from evalfleet.errors import InputError
from evalfleet.model import Tools


class AgentFiles(Struct, frozen=True, kw_only=True):
    """What comes along with an agent."""

    files: tuple[str, ...] = ()  # of the run's folder
    packages: tuple[str, ...] = ()


def tools_of(benchmark: Benchmark, settings: config.Settings) -> Tools:
    """What a machine of a pool needs for a benchmark."""
    if isinstance(benchmark, HasTools):
        tools = benchmark.tools
    else:
        tools = Tools(
            shipped=("evalfleet", *_packages_of(plugins.BENCHMARKS, benchmark.name)),
            settings={benchmark.name: to_builtins(settings.tables.get(benchmark.name, {}))},
        )
    return replace(tools, benchmark=benchmark.name, settings=config.for_workers(settings, tools.settings))


def with_agent(tools: Tools, agent_files: AgentFiles) -> Tools:
    more = [name for name in agent_files.packages if name not in tools.shipped]
    return replace(tools, shipped=(*tools.shipped, *more))


def agent_files_of(selection: Selection, folder: str) -> AgentFiles:
    """What an agent needs on another machine than this one.

    Args:
        selection: names the agent, which was loaded before, and files of its own.
        folder: the run's folder, from which files are copied.

    Raises:
        InputError: the agent cannot be copied to the other machines that it must run on.
    """
    name, given = selection.agent, selection.files
    for file in given:
        if not Path(folder, file).exists():
            raise InputError(f"--file {file}: there is no such file or folder in {folder}.")
        if _below(Path(folder, file), folder) is None:
            raise InputError(f"--file {file}: is outside {folder}; only files below it can be copied to hosts.")
    if name.startswith(command.PREFIX):
        words = command.Command(name, folder=folder).words
        found = [
            _below(Path(folder, word), folder)
            for word in words
            if not word.startswith("-") and Path(folder, word).is_file()
        ]
        return AgentFiles(files=tuple(dict.fromkeys((*given, *filter(None, found)))))
    if ":" not in name:
        return AgentFiles(files=given, packages=_packages_of(plugins.AGENTS, name))
    top = name.partition(":")[0].partition(".")[0]
    place = _place_of(top)
    own = _below(place, folder) if place is not None else None
    if own is not None:
        return AgentFiles(files=tuple(dict.fromkeys((*given, own))))
    if top in sys.stdlib_module_names or top == "evalfleet":
        return AgentFiles(files=given)
    packages = tuple(dict.fromkeys(packages_distributions().get(top, ())))
    if not packages and selection.remote:
        raise InputError(
            f"--agent {name}: its module is in {place}, which cannot be copied to other machines; start evalfleet in a folder "
            f"that has it, or install it as a package."
        )
    return AgentFiles(files=given, packages=packages)


def _packages_of(group: str, name: str) -> tuple[str, ...]:
    """The package that brings a benchmark or an agent by an entry point."""
    points: Any = entry_points(group=group, name=name)
    return tuple(dict.fromkeys(point.dist.name for point in points if point.dist is not None))


def _place_of(module: str) -> Path | None:
    """A module's file, or a package's folder."""
    spec = find_spec(module)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _below(path: Path, folder: str) -> str | None:
    """Its path from the folder; None where it lies elsewhere, or among installed packages."""
    plain = os.path.relpath(path, folder)
    return None if plain.split(os.sep, 1)[0] == ".." or "site-packages" in plain else plain
