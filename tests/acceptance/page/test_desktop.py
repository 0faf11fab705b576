"""A live desktop in the page: a real one in a real attempt, watched by a reader, used by an operator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.desktops import COLOURS, DESKTOP
from tests.support.fleet import Fleet, wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, type_in, viewed
from tests.support.web_server import Served, serve

from evalfleet.environments.desktop import environment

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING),
    pytest.mark.skipif(
        any(not need.present for need in environment.requirements()),
        reason="this machine has no desktop: see scripts/desktop",
    ),
    pytest.mark.slow,
]


@pytest.fixture
def server(fleet: Fleet) -> Served:
    (fleet.folder / "desk.py").write_text(DESKTOP)
    served = serve(fleet)
    task = {"key": "a", "command": [sys.executable, "desk.py", str(fleet.folder / "typed")]}
    fleet.command("run", fleet.tasks([task]), "--detach")
    wait_for(lambda: watchable(served), "the desktop to be there")
    return served


def watchable(server: Served) -> bool:
    answer = server.ask("/api/v1/runs/latest/tasks/1/attempts/1")
    return answer.status == 200 and answer.json["desktop"]["vnc"]


def watch(view: View) -> None:
    view.open("/runs/latest/tasks/1")
    view.click("Open the desktop")
    view.sees("view only")
    view.until(f"{COLOURS} > 1", "the screen")


def test_an_operator_watches_takes_over_and_types(fleet: Fleet, server: Served, tmp_path: Path):
    with viewed(server, tmp_path) as view:
        watch(view)
        view.shoot("desktop-1280-light")
        view.click("Take over")
        view.sees("Take over the desktop of a?")
        view.click("Take over", within="dialog")
        view.sees("you have the controls")
        type_in(view, "hello\r")
        wait_for((fleet.folder / "typed").exists, "the line to arrive in the terminal")
        assert (fleet.folder / "typed").read_text() == "hello\n"
        view.sees("passed")
    assert "take_over" in [event["data"].get("verb") for event in fleet.events()]


def test_a_reader_watches_and_types_nothing(fleet: Fleet, server: Served, tmp_path: Path):
    token = fleet.json("token", "new", "guest", "--role", "reader")["token"]
    with viewed(server, tmp_path, token) as view:
        watch(view)
        assert "Take over" not in view.text
        view.js("document.querySelector('.screen canvas').focus()")
        type_in(view, "hello\r")
        refused = view.js("""new Promise((tell) => {
            const asked = new WebSocket(`ws://${location.host}/api/v1/runs/latest/tasks/1/attempts/1/vnc?control=1`, "binary");
            asked.onopen = () => undefined; asked.onclose = (event) => tell(event.code); })""")
        assert refused in (1006, 4003), "control is refused"
        assert not (fleet.folder / "typed").exists()
    (fleet.folder / "typed").touch()
