"""The prompts of the agent `llm`, and the parser for the model's replies. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import Struct

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write, from_json, to_json
from evalfleet.agents.base import Element, Observation
from evalfleet.errors import InputError

MOST_ACTIONS = 10
_MOST_ELEMENTS = 150
_LONGEST_TEXT = 80
_LONGEST_MISTAKE = 2000

_EXAMPLES: tuple[tuple[Action, str], ...] = (
    (Click(x=80, y=120), 'click; "count": 2 is a double click, "held": ["Control"] holds a key'),
    (Move(x=80, y=120), "let the pointer rest there"),
    (Drag(x=10, y=20, to_x=90, to_y=20), "press at the first point, release at the second"),
    (Scroll(x=80, y=120, dy=200), "turn the wheel there; positive dy shows what lies below"),
    (Write(text="hello"), "type into what has the focus: click there before"),
    (Press(key="Enter"), 'press a key: "Tab", "ArrowDown", "Backspace", "a"; "times": 3, "held": ["Shift"]'),
    (Wait(seconds=1), "let time pass, at most 10 seconds"),
)

_RULES = """You operate a computer for a person. At each step you are shown the screen, and you say what to do next with \
pointer and keyboard, until the goal is reached.

Answer with one JSON object and nothing else:
{{"thought": "one sentence on what you see and why you act so", "actions": [...], "done": false}}

"actions" is a list of at most {most} actions, carried out in order before you see the screen again. Points are pixels of \
the screenshot, (0, 0) is the upper left corner. There are these actions:
{actions}

Do no more in one step than you can foresee: when an action changes the screen, look again. Set "done" to true with the \
last actions that the goal needs, or when it cannot be reached."""


class Said(Struct, frozen=True, kw_only=True):
    """What a model's reply says to do."""

    actions: tuple[Action, ...]
    done: bool
    thought: str


class Step(Struct, frozen=True, kw_only=True):
    """An earlier step, as the model is told of it."""

    number: int
    said: Said


def rules() -> str:
    """Return what the model is told once: its part, the form of a reply, and the actions."""
    lines = [f"{json.dumps(to_json(action))}  {meaning}" for action, meaning in _EXAMPLES]
    return _RULES.format(most=MOST_ACTIONS, actions="\n".join(lines))


def messages(observation: Observation, history: Sequence[Step], *, elements: bool) -> list[dict[str, Any]]:
    """Return the chat that asks for the next step. Earlier screens are left out: the history says what was done."""
    told = [f"Goal: {observation.goal}", f"Screenshot: {observation.width} x {observation.height} pixels."]
    if history:
        told += ["", "What you did so far:", *map(_step, history)]
    if elements and (listed := list(_listed(observation.elements))):
        told += ["", "What is on the screen, with the point where a click hits it:", *listed]
    told += ["", f"This is step {observation.step}. What do you do?"]
    content: list[dict[str, Any]] = [{"type": "text", "text": "\n".join(told)}]
    if observation.screenshot:
        address = "data:image/png;base64," + base64.b64encode(observation.screenshot).decode()
        content.append({"type": "image_url", "image_url": {"url": address}})
    return [{"role": "system", "content": rules()}, {"role": "user", "content": content}]


def correction(reply: str, mistake: str) -> list[dict[str, Any]]:
    """Return what is added to the chat to tell the model of its mistake."""
    told = f"That cannot be used: {mistake} Answer again, with one JSON object as described and nothing else."
    return [
        {"role": "assistant", "content": reply[:_LONGEST_MISTAKE] or "(nothing)"},
        {"role": "user", "content": told},
    ]


def understand(reply: str) -> Said:
    """Read a model's reply. Words or a fence around the object are forgiven.

    Raises:
        InputError: says what is wrong, in words that the model can use.
    """
    said = _object(reply)
    actions = said.get("actions", [])
    done = said.get("done", False)
    if not isinstance(actions, list):
        raise InputError('"actions" must be a list.')
    listed = cast("list[Any]", actions)
    if len(listed) > MOST_ACTIONS:
        raise InputError(f'"actions" has {len(listed)} actions, and {MOST_ACTIONS} is the most.')
    if not isinstance(done, bool):
        raise InputError('"done" must be true or false.')
    if not listed and not done:
        raise InputError('"actions" is empty; act, wait, or set "done" to true.')
    thought = said.get("thought", "")
    return Said(
        actions=tuple(map(from_json, listed)), done=done, thought=thought if isinstance(thought, str) else str(thought)
    )


def _object(reply: str) -> dict[str, Any]:
    """Return the last JSON object of the text that looks like an answer: a model may think aloud before it."""
    reader = json.JSONDecoder()
    found: dict[str, Any] | None = None
    at = reply.find("{")
    while at >= 0:
        try:
            value, end = reader.raw_decode(reply, at)
        except (ValueError, RecursionError):
            end, value = at + 1, None
        if isinstance(value, dict) and ("actions" in value or "done" in value):
            found = cast("dict[str, Any]", value)
        at = reply.find("{", end)
    if found is None:
        raise InputError('there is no JSON object with "actions" in it.')
    return found


def _step(step: Step) -> str:
    actions = json.dumps([to_json(action) for action in step.said.actions])
    return f"{step.number}. {_short(step.said.thought, 200)} {actions}"


def _listed(elements: Iterable[Element]) -> Iterable[str]:
    """Yield a line for each element that a click can hit and that is more than a frame around others."""
    all_elements = list(elements)
    parents = {element.parent for element in all_elements}
    shown = 0
    for element in all_elements:
        leaf = element.index not in parents
        if element.point is None or not (leaf or element.value is not None) or shown >= _MOST_ELEMENTS:
            continue
        shown += 1
        yield _line(element)


def _line(element: Element) -> str:
    assert element.point is not None
    words = [element.tag]
    if kind := element.attributes.get("type"):
        words.append(kind)
    if name := element.text or element.attributes.get("aria-label") or element.attributes.get("placeholder"):
        words.append(json.dumps(_short(name, _LONGEST_TEXT), ensure_ascii=False))
    if element.value:
        words.append(f"value {json.dumps(_short(element.value, _LONGEST_TEXT), ensure_ascii=False)}")
    if element.checked:
        words.append("checked")
    if element.focused:
        words.append("focused")
    return f"- {' '.join(words)} at ({element.point.x:.0f}, {element.point.y:.0f})"


def _short(text: str, most: int) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= most else line[: most - 1] + "…"
