"""Scripts of the oracle on desktops that only exist on paper."""

from __future__ import annotations

from evalfleet.agents.base import Box, Click, Decision, Element, Observation, Point, Press, Wait, Write
from evalfleet.agents.solutions.screen import ENTER, Player, Screen, Steps


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def seen(*titles: str, clipboard: str | None = None) -> Observation:
    """Return an observation with these windows, of which the last is active."""
    elements = [
        Element(
            index=index,
            parent=None,
            tag="window",
            text=title,
            value=None,
            checked=None,
            focused=title == titles[-1],
            box=Box(x=10, y=20, width=100, height=50),
            point=Point(x=60, y=45),
        )
        for index, title in enumerate(titles)
    ]
    if clipboard is not None:
        nowhere = Box(x=0, y=0, width=0, height=0)
        elements.append(
            Element(
                index=len(titles),
                parent=None,
                tag="clipboard",
                text=clipboard,
                value=clipboard,
                checked=None,
                focused=False,
                box=nowhere,
                point=None,
            )
        )
    return Observation(step=1, goal='Save "a" as "b".', screenshot=b"", width=1, height=1, elements=tuple(elements))


def save(screen: Screen) -> Steps:
    yield [Write(text=screen.quoted(1))]
    yield from screen.press_until(ENTER, lambda: not screen.has("Save"), "the dialog to close")


def test_a_script_goes_on_when_it_sees_what_it_waits_for():
    player = Player(save, clock=Clock())
    assert player.act(seen("Editor", "Save")).actions == (Write(text="b"),)
    assert player.act(seen("Editor", "Save")).actions == (ENTER,)
    waiting = player.act(seen("Editor", "Save"))
    assert (waiting.actions, waiting.note) == ((Wait(seconds=0.1),), "waiting for the dialog to close")
    assert player.act(seen("Editor")) == Decision(done=True, note="done")


def test_a_key_that_nothing_came_of_is_pressed_a_second_time():
    clock = Clock()
    player = Player(save, clock=clock)
    done = []
    for _ in range(8):
        done += player.act(seen("Save")).actions
        clock.now += 1.0
    assert [action for action in done if isinstance(action, Press)] == [ENTER]
    done += player.act(seen("Save")).actions
    assert [action for action in done if isinstance(action, Press)] == [ENTER, ENTER]


def test_a_script_that_waits_in_vain_gives_up():
    clock = Clock()

    def script(screen: Screen) -> Steps:
        yield from screen.active("Editor")

    player = Player(script, patience_s=30, clock=clock)
    assert player.act(seen("Editor", "Crash")).actions == (Wait(seconds=0.1),)
    clock.now = 31
    end = player.act(seen("Editor", "Crash"))
    assert end == Decision(done=True, note="waited 30 s for 'Editor' to be active; windows: Editor, Crash")


def test_a_window_is_brought_to_the_front_by_a_click():
    def script(screen: Screen) -> Steps:
        yield from screen.focus("Editor")
        assert screen.clipboard == "42"

    player = Player(script, clock=Clock())
    assert player.act(seen("Editor", "Files", clipboard="42")).actions == (Click(x=60, y=45),)
    assert player.act(seen("Files", "Editor", clipboard="42")).done
