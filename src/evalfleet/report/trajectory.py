"""What an attempt did, step by step, read from the files that it left.

`artifacts/trajectory.jsonl` has a line per step (docs/reference/trajectory.md). Where a task left none, its event lines
tell as much as they do. All of it was written by tasks: what is not as expected is skipped, and sizes are bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from evalfleet.answers.attempts import Film, Frame
from evalfleet.hosts.attempt_files import read_inside
from evalfleet.report import text
from evalfleet.report.action_text import in_words, points

TRAJECTORY = "trajectory.jsonl"
_MOST_BYTES = 8 << 20
_MOST_FRAMES = 500
_MOST_WORDS = 1000


def film_of(folder: Path, clean: Callable[[bytes], bytes] | None = None) -> Film | None:
    """Read the film of an attempt's files; None where it left nothing to show.

    Args:
        clean: takes secrets out of files that are not collected yet.
    """
    lines = list(_lines(folder, f"artifacts/{TRAJECTORY}", clean)) or list(_lines(folder, "events.jsonl", clean))
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


def _lines(folder: Path, name: str, clean: Callable[[bytes], bytes] | None) -> Iterator[dict[str, Any]]:
    content = read_inside(folder, name, _MOST_BYTES, whole=False) or b""
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
