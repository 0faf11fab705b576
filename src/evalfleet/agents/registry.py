"""Agents by name: the built-in ones, those of other packages by the entry point group `evalfleet.agents`, and a user's
own as `module:Class` or `cmd:command`.

Nothing is imported before it is asked for by its name.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from evalfleet import plugins
from evalfleet.agents import command
from evalfleet.agents.base import AgentClass, AgentOptions, AgentSetup
from evalfleet.config import Settings
from evalfleet.errors import InputError

OWN = "module:Class or cmd:COMMAND"  # how a person names an agent of their own


class Declared(Struct, frozen=True, kw_only=True):
    """What an agent's class declares; see `AgentClass`."""

    title: str
    deterministic: bool
    accepts: tuple[str, ...]
    secrets: tuple[str, ...]
    modules: Mapping[str, str]


def names() -> list[str]:
    """Return the built-in agents, then those of other packages."""
    return plugins.names(plugins.AGENTS)


def load(name: str, *, folder: str | None = None) -> AgentClass:
    """Import an agent's class.

    Args:
        name: of a built-in one or of one that another package brings, or `module:Class`, or `cmd:` and a command.
        folder: where a user's module is looked for before all other places.

    Raises:
        InputError: there is no such agent, or its module cannot be imported.
    """
    if name.startswith(command.PREFIX):
        return command.Command(name, folder=folder)
    built_in = plugins.BUILT_IN[plugins.AGENTS]
    plugin = None if name in built_in or ":" in name else plugins.installed(plugins.AGENTS).get(name)
    if plugin is not None:
        try:
            brought: Any = plugin.load()
        except Exception as error:
            raise InputError(
                f"agent {name!r}: {plugin.value} cannot be loaded: {type(error).__name__}: {error}."
            ) from error
        return _checked(name, brought, f"{plugin.value} is not a class")
    module, colon, attribute = built_in.get(name, name).partition(":")
    if not colon or not module or not attribute:
        from difflib import get_close_matches

        near = get_close_matches(name, names(), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else "."
        raise InputError(f"there is no agent {name!r}{meant} Known: {', '.join(names())}, or your own as {OWN}.")
    if folder is not None and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"agent {name!r}: importing {module} failed: {error}.") from error
        raise InputError(
            f"agent {name!r}: there is no module {module}; start evalfleet in its folder, or install it."
        ) from None
    except Exception as error:
        raise InputError(f"agent {name!r}: importing {module} failed: {type(error).__name__}: {error}.") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return _checked(name, found, f"{module} has no class {attribute}")


def declared(agent: AgentClass) -> Declared:
    """Return what the class declares, with defaults for the rest."""
    title: Any = getattr(agent, "title", None) or (agent.__doc__ or "").strip().partition("\n")[0]
    return Declared(
        title=str(title),
        deterministic=bool(getattr(agent, "deterministic", False)),
        accepts=tuple(_attribute(agent, "accepts", "wishes") or ()),
        secrets=tuple(getattr(agent, "secrets", ())),
        modules=dict(cast("Mapping[str, str]", getattr(agent, "modules", {}))),
    )


def setup_of(name: str, agent: AgentClass, options: AgentOptions, settings: Settings) -> AgentSetup:
    """Prepare what the agent's attempts get.

    Raises:
        InputError: the agent does not understand one of the options, or lacks a module.
    """
    said = declared(agent)
    for option in options.__struct_fields__:
        if getattr(options, option) is not None and option not in said.accepts:
            raise InputError(f"--{option.replace('_', '-')} has no effect on the agent {name!r}; leave it out.")
    missing = {module: install for module, install in said.modules.items() if find_spec(module) is None}
    for module, install in missing.items():
        raise InputError(f"agent {name!r} needs the module {module}; install it with: {install}")
    make = _attribute(agent, "agent_setup", "equip")
    return make(options, settings) if make is not None else AgentSetup(secrets=said.secrets)


def _attribute(agent: AgentClass, name: str, before: str) -> Any:
    """Return what the agent declares, also under the name of version 0.1, which is read for one more version."""
    if hasattr(agent, name) or not hasattr(agent, before):
        return getattr(agent, name, None)
    warnings.warn(f"an agent's {before!r} is now called {name!r}: rename it", DeprecationWarning, stacklevel=2)
    return getattr(agent, before)


def _checked(name: str, found: Any, problem: str) -> AgentClass:
    if not callable(found):
        raise InputError(f"agent {name!r}: {problem}.")
    agent: Any = found
    return agent


def label(name: str) -> str:
    """Return a short name of an agent, for the name of a run: its class, or the file that its command runs."""
    if not name.startswith(command.PREFIX):
        return name.rpartition(":")[2]
    words = name.removeprefix(command.PREFIX).split()
    files = [Path(word).stem for word in words if Path(word).suffix[1:].isalpha() and "://" not in word]
    return (files or [Path(words[0]).name])[0]
