"""Agents by name: the built-in ones, and a user's own as `module:Class` or `cmd:command`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from evalfleet.agents import command
from evalfleet.agents.base import AgentClass
from evalfleet.errors import InputError

BUILT_IN = {
    "oracle": "evalfleet.agents.oracle:Oracle",
    "random": "evalfleet.agents.random:RandomAgent",
}


def load(name: str, *, folder: str | None = None) -> AgentClass:
    """Import an agent's class.

    Args:
        name: of a built-in one, or `module:Class`, or `cmd:` and a command.
        folder: where a user's module is looked for before all other places.

    Raises:
        InputError: there is no such agent, or its module cannot be imported.
    """
    if name.startswith(command.PREFIX):
        return command.Command(name, folder=folder)
    module, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not colon or not module or not attribute:
        raise InputError(
            f"there is no agent {name!r}; known: {', '.join(BUILT_IN)}, or your own as module:Class or cmd:COMMAND."
        )
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
    if not callable(found):
        raise InputError(f"agent {name!r}: {module} has no class {attribute}.")
    agent: Any = found
    return agent


def label(name: str) -> str:
    """Return a short name of an agent, for the name of a run: its class, or the file that its command runs."""
    if not name.startswith(command.PREFIX):
        return name.rpartition(":")[2]
    words = name.removeprefix(command.PREFIX).split()
    files = [Path(word).stem for word in words if Path(word).suffix[1:].isalpha() and "://" not in word]
    return (files or [Path(words[0]).name])[0]
