"""Actions as records and as JSON."""

import pytest

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write, from_json, to_json
from evalfleet.errors import InputError


@pytest.mark.parametrize(
    "action",
    [
        Click(x=1, y=2.5),
        Click(x=1, y=2, count=2, held=("Control", "Shift")),
        Move(x=0, y=0),
        Drag(x=1, y=2, to_x=3, to_y=4),
        Scroll(x=1, y=2, dy=-30),
        Write(text="käse\n"),
        Press(key="Enter", times=3, held=("Alt",)),
        Wait(seconds=0.5),
    ],
)
def test_what_is_written_is_read(action: Action):
    assert from_json(to_json(action)) == action


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "an action is an object"),
        ({}, "there is no action None"),
        ({"do": ["click"]}, "there is no action"),
        ({"do": "klick"}, "known: click, move"),
        ({"do": "click", "x": 1}, "click needs y"),
        ({"do": "click", "x": 1, "y": 2, "z": 3}, "click has no 'z'"),
        ({"do": "click", "x": "1", "y": 2}, "x must be a finite number"),
        ({"do": "click", "x": float("nan"), "y": 2}, "x must be a finite number"),
        ({"do": "click", "x": True, "y": 2}, "x must be a finite number"),
        ({"do": "press", "key": "a", "times": 1.5}, "times must be a whole number"),
        ({"do": "press", "key": "a", "held": "Control"}, "held must be a list of texts"),
        ({"do": "write", "text": 5}, "text must be text"),
    ],
)
def test_bad_actions_are_told(value: object, words: str):
    with pytest.raises(InputError, match=words):
        from_json(value)
