"""Agents by name: the built-in ones, and a user's own as `module:Class`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from evalfleet.agents.base import AgentClass
from evalfleet.errors import InputError

BUILT_IN = {
    "oracle": "evalfleet.agents.oracle:Oracle",
    "random": "evalfleet.agents.random:RandomAgent",
}


def load(name: str, *, folder: str | None = None) -> AgentClass:
    """Import an agent's class.

    Args:
        name: of a built-in one, or `module:Class`.
        folder: where a user's module is looked for before all other places.

    Raises:
        InputError: there is no such agent, or its module cannot be imported.
    """
    module, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not colon or not module or not attribute:
        from difflib import get_close_matches

        near = get_close_matches(name, BUILT_IN, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else "."
        raise InputError(
            f"there is no agent {name!r}{meant} Known: {', '.join(BUILT_IN)}, or your own as module:Class."
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
