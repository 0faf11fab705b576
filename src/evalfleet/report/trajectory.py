"""What an attempt did, step by step, read from the files that it left.

`artifacts/trajectory.jsonl` has a line per step (docs/reference/trajectory.md). Where a task left none, its event lines
tell as much as they do. All of it was written by tasks: what is not as expected is skipped, and sizes are bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

from evalfleet.answers.attempts import Film, Frame
from evalfleet.files.base import AttemptFiles, read
from evalfleet.report import text

TRAJECTORY = "trajectory.jsonl"
_MOST_BYTES = 8 << 20
_MOST_FRAMES = 500
_MOST_WORDS = 1000
_MOST_ACTIONS = 20


def film_of(files: AttemptFiles, clean: Callable[[bytes], bytes] | None = None) -> Film | None:
    """Read the film of an attempt's files; None where it left nothing to show.

    Args:
        clean: takes secrets out of files that are not collected yet.

    Raises FilesUnreachable.
    """
    lines = list(_lines(files, f"artifacts/{TRAJECTORY}", clean)) or list(_lines(files, "events.jsonl", clean))
    goal = ""
    frames: list[Frame] = []
    for line in lines:
        if _is_head(line):
            goal = goal or _words(line.get("goal", line.get("note")))
        elif (frame := _frame(line)) is not None:
            frames.append(frame)
    if not any(frame.picture or frame.step is not None for frame in frames):
        return None
    return Film(goal=goal, frames=tuple(frames[:_MOST_FRAMES]), cut=max(0, len(frames) - _MOST_FRAMES))


def _lines(files: AttemptFiles, name: str, clean: Callable[[bytes], bytes] | None) -> Iterator[dict[str, Any]]:
    content = read(files, name, _MOST_BYTES, whole=False) or b""
    if clean is not None:
        content = clean(content)
    for line in content.splitlines():
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):  # half a line, because the attempt was killed
            continue
        if isinstance(value, dict):
            yield cast("dict[str, Any]", value)


def _is_head(line: dict[str, Any]) -> bool:
    return "step" not in line and ("goal" in line or line.get("ready") is True)


def _frame(line: dict[str, Any]) -> Frame | None:
    step, picture, action = line.get("step"), line.get("screenshot"), line.get("action")
    note = _words(line.get("note"))
    if "score" in line:
        score = _number(line["score"])
        reason = _words(line.get("reason"))
        ended = f"end: score {score:g}" if score is not None else "end"
        note = note or (f"{ended} ({reason})" if reason else ended)
    elif not (picture or note or isinstance(step, int)):
        return None
    return Frame(
        step=step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None,
        at_s=_number(line.get("at_s")),
        action=_words(in_words(action)),
        note=note,
        tokens=_tokens(line),
        cost_usd=max(0.0, _number(line.get("cost_usd")) or 0.0),
        picture=picture if isinstance(picture, str) else None,
        points=tuple(points(action)[:20]),
    )


def _words(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    shown = text.printable(value[: _MOST_WORDS + 1])
    return shown if len(shown) <= _MOST_WORDS else f"{shown[:_MOST_WORDS]}…"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def _tokens(line: dict[str, Any]) -> str:
    """`tokens` is a number, or an object such as {"in": 900, "out": 40}."""
    value = line.get("tokens")
    counts = cast("dict[Any, Any]", value) if isinstance(value, dict) else {"": value}
    told = [
        f"{number:,.0f} {_words(name)[:20]}".rstrip()
        for name, count in list(counts.items())[:6]
        if (number := _number(count)) is not None
    ]
    return ", ".join(told)


# Actions in words, for a person who looks over an agent's shoulder. Never fails, whatever a program wrote.


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
