"""Actions in words, for a person who looks over an agent's shoulder. Pure; never fails, whatever a program wrote."""

from __future__ import annotations

import json
import math
from typing import Any, cast

_MOST_ACTIONS = 20


def in_words(action: Any) -> str:
    """Say what one action, or a list of them, did. An unknown action is shown as it is."""
    if action is None:
        return ""
    if isinstance(action, str):
        return action
    if isinstance(action, list):
        actions = cast("list[Any]", action)
        more = [f"and {len(actions) - _MOST_ACTIONS} more"] if len(actions) > _MOST_ACTIONS else []
        return ", then ".join([*map(in_words, actions[:_MOST_ACTIONS]), *more])
    if isinstance(action, dict):
        return _one(cast("dict[str, Any]", action))
    return _plain(action)


def points(action: Any) -> list[tuple[float, float]]:
    """Where the pointer acted, in the order of the actions."""
    found: list[tuple[float, float]] = []
    for one in cast("list[Any]", action) if isinstance(action, list) else [action]:
        if isinstance(one, dict):
            given = cast("dict[str, Any]", one)
            for x, y in (("x", "y"), ("to_x", "to_y")):
                if _is_number(given.get(x)) and _is_number(given.get(y)):
                    found.append((round(given[x], 1), round(given[y], 1)))
    return found


def _one(action: dict[str, Any]) -> str:
    keys = action.get("held")
    held = (
        "".join(f"{key}+" for key in cast("list[Any]", keys) if isinstance(key, str)) if isinstance(keys, list) else ""
    )
    match action.get("do"):
        case "click":
            count = action.get("count", 1)
            kind = (
                {1: "click", 2: "double click"}.get(count, f"click {_plain(count)} times")
                if _is_number(count)
                else "click"
            )
            return f"{held}{kind} at {_at(action)}"
        case "move":
            return f"move to {_at(action)}"
        case "drag":
            return f"drag from {_at(action)} to {_at(action, 'to_x', 'to_y')}"
        case "scroll":
            return f"scroll {_scrolled(action)} at {_at(action)}"
        case "write":
            return f"type {json.dumps(action.get('text'), ensure_ascii=False)}"
        case "press":
            times = f" {_plain(action['times'])} times" if action.get("times", 1) != 1 else ""
            return f"press {held}{_plain(action.get('key'))}{times}"
        case "wait":
            return f"wait {_plain(action.get('seconds'))} s"
        case _:
            return _plain(action)


def _at(action: dict[str, Any], x: str = "x", y: str = "y") -> str:
    return f"{_plain(action.get(x))}, {_plain(action.get(y))}"


def _scrolled(action: dict[str, Any]) -> str:
    ways: list[str] = []
    for name, forth, back in (("dy", "down", "up"), ("dx", "right", "left")):
        size = action.get(name, 0)
        if _is_number(size) and size:
            ways.append(f"{forth if size > 0 else back} by {_plain(abs(size))}")
    return " and ".join(ways) or "by nothing"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9 and math.isfinite(value)


def _plain(value: Any) -> str:
    if _is_number(value):
        return f"{value:.6g}" if isinstance(value, float) and abs(value) < 10 else f"{value:.0f}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
