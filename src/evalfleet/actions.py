"""Actions: what can be done with pointer and keyboard in any environment, as records and as plain JSON.

They lie below agents and environments, because both speak of them: an agent returns them, an environment performs them.
"""

from __future__ import annotations

import math
from typing import Any, cast, get_args, get_origin

from msgspec import Struct
from msgspec.structs import asdict, fields

from evalfleet.errors import InputError


class Click(Struct, frozen=True, kw_only=True):
    """Move to a point and click; `count` 2 is a double click. `held` are modifiers such as "Control"."""

    x: float
    y: float
    count: int = 1
    held: tuple[str, ...] = ()


class Move(Struct, frozen=True, kw_only=True):
    """Let the pointer rest on a point."""

    x: float
    y: float


class Drag(Struct, frozen=True, kw_only=True):
    """Press at one point, release at another."""

    x: float
    y: float
    to_x: float
    to_y: float


class Scroll(Struct, frozen=True, kw_only=True):
    """Turn the wheel over a point; positive `dy` shows what lies below."""

    x: float
    y: float
    dx: float = 0.0
    dy: float = 0.0


class Write(Struct, frozen=True, kw_only=True):
    """Type a text, key by key, into what has the focus."""

    text: str


class Press(Struct, frozen=True, kw_only=True):
    """Press a key by its name in browsers ("Enter", "ArrowDown"), or one character."""

    key: str
    times: int = 1
    held: tuple[str, ...] = ()


class Wait(Struct, frozen=True, kw_only=True):
    """Let time pass, for something that the environment does by itself. At most 10 seconds."""

    seconds: float


Action = Click | Move | Drag | Scroll | Write | Press | Wait


def to_json(action: Action) -> dict[str, Any]:
    """Return the action as a plain object for the trajectory: {"do": "click", "x": 80, "y": 120}; defaults are left out."""
    defaults = {each.name: each.default for each in fields(action)}
    given = {name: value for name, value in asdict(action).items() if value != defaults[name]}
    return {"do": type(action).__name__.lower(), **given}


def from_json(value: Any) -> Action:
    """Return the action that `to_json` wrote, or that another program wrote in the same words.

    Raises:
        InputError: it is no object, or names an action or a member that does not exist, or a value is of a wrong type.
    """
    if not isinstance(value, dict):
        raise InputError('an action is an object such as {"do": "click", "x": 80, "y": 120}.')
    given = dict(cast("dict[str, Any]", value))
    done = given.pop("do", None)
    kind = _KINDS.get(done) if isinstance(done, str) else None
    if kind is None:
        raise InputError(f"there is no action {done!r}; known: {', '.join(_KINDS)}.")
    known = {each.name: each.type for each in fields(kind)}
    for name, inner in given.items():
        if name not in known:
            raise InputError(f"{done} has no {name!r}; known: {', '.join(known)}.")
        given[name] = _checked(str(done), name, known[name], inner)
    try:
        return kind(**given)
    except TypeError:
        missing = [each.name for each in fields(kind) if each.required and each.name not in given]
        raise InputError(f"{done} needs {', '.join(missing)}.") from None


def _checked(action: str, name: str, kind: Any, value: Any) -> Any:
    """Return the value as its field wants it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and number and math.isfinite(value):
        return float(value)
    if kind is int and number and isinstance(value, int):
        return value
    if kind is str and isinstance(value, str):
        return value
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        words = cast("list[Any]", value)
        if all(isinstance(word, str) for word in words):
            return tuple(words)
    wanted = {float: "a finite number", int: "a whole number", str: "text"}.get(kind, "a list of texts")
    raise InputError(f"{action}: {name} must be {wanted}.")


_KINDS: dict[str, type[Action]] = {kind.__name__.lower(): kind for kind in get_args(Action)}
