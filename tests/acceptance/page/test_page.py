"""The page as people use it: a real Chromium in front of a real `evalfleet serve` with real runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, WIDE, View, viewed
from tests.support.web_server import Served, serve

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"
GATED = "echo $EVALFLEET_ATTEMPT >> ledger; echo begun; until [ -e gate ]; do sleep 0.05; done; echo over"
STEPPING = 'i=0; while [ $i -lt 12 ]; do i=$((i+1)); echo "{\\"step\\": $i}" >> "$EVALFLEET_EVENTS"; sleep 0.1; done'
FIRST_LOAD = 150_000  # bytes on the wire, packed
NASTY = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def server(fleet: Fleet) -> Served:
    return serve(fleet)


@pytest.fixture
def view(server: Served, tmp_path: Path) -> Iterator[View]:
    with viewed(server, tmp_path) as one:
        yield one


def gated(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "command": ["sh", "-c", GATED]} for key in keys]


def submit(fleet: Fleet, tasks: list[dict[str, Any]], **run: Any) -> str:
    return fleet.json("run", fleet.tasks(tasks, **run), "--detach")["run"]


def agents(fleet: Fleet, *payloads: dict[str, Any], **run: Any) -> str:
    """A run of the pretended desktop agent, which writes pictures."""
    shutil.copy(EXAMPLES / "agent.py", fleet.folder)
    tasks = [
        {"key": f"editor_{i}", "domain": "editor", "command": ["python3", "agent.py"], "payload": payload}
        for i, payload in enumerate(payloads)
    ]
    return submit(fleet, tasks, result="required", **run)


def done(server: Served, run: str, state: str = "completed") -> None:
    wait_for(lambda: server.get(f"runs/{run}")["state"] == state, f"the run to be {state}")


def numbers(view: View) -> list[int]:
    return view.js("[...document.querySelectorAll('[data-number]')].map((one) => Number(one.dataset.number))")


def test_a_run_appears_grows_and_ends_on_an_open_page(fleet: Fleet, view: View):
    view.sees("No runs yet")
    run = submit(fleet, gated("a", "b", "c"), name="first", workers=2)
    view.sees("first", "running", "0 of 3")
    view.click("first")
    view.sees("2 running", "1 queued", "Workers over time")
    view.until("document.querySelector('canvas[data-bars=\"2\"]')", "two bars in the lanes")
    view.js("window.kept = true")
    (fleet.folder / "gate").touch()
    view.sees("completed", "all decided")
    view.until('document.querySelector(\'canvas[data-bars="3"][data-lanes="2"]\')', "three bars in two lanes")
    view.until("document.querySelectorAll('[data-task].pass').length === 3", "three squares in the grid")
    assert view.js("window.kept"), "the page was never loaded again"
    assert view.js("location.pathname") == f"/runs/{run}"
    assert view.js("document.cookie") == "", "the token is not for scripts"
    assert "token" not in view.js(
        "location.href + JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage})"
    )


def test_a_film_is_stepped_through_by_keyboard(fleet: Fleet, server: Served, view: View):
    run = agents(fleet, {"steps": 3, "step_s": 0.05}, {"steps": 2, "step_s": 0.05, "trouble": "crash_once"}, attempts=2)
    done(server, run)
    view.open(f"/runs/{run}/tasks/1")
    view.sees("editor_0", "passed", "1 of 3")
    view.key("ArrowRight")
    view.sees("2 of 3")
    view.key("ArrowRight")
    view.key("ArrowRight")
    view.sees("3 of 3")
    view.key("ArrowLeft")
    view.sees("2 of 3")
    view.until("document.querySelector('figure img').naturalWidth > 0", "the picture")
    view.shoot("task-1280-light")
    view.open(f"/runs/{run}?tab=failures")
    view.click("editor_1")
    view.sees("Attempt 1", "Attempt 2", "bad exit", "the window of editor_1 did not open")
    view.click("Attempt 2")
    view.sees("passed", "step_2.png")
    address = view.js("document.querySelector('a[download]').pathname")
    assert server.ask(address).status == 200


def test_every_button_asks_first_and_then_acts(fleet: Fleet, server: Served, view: View):
    run = submit(fleet, gated("a", "b", "c"), name="steered", workers=1)
    wait_for(fleet.lines, "the first task to start")
    view.open(f"/runs/{run}")
    view.click("Pause")
    view.sees("Pause steered?")
    view.click("Back", within="dialog")
    view.lacks("Pause steered?")
    assert not [event for event in fleet.events(run) if event["type"] == "run.requested"], "nothing without a yes"
    view.open(f"/runs/{run}/tasks/3")
    view.click("Hold")
    view.click("Hold", within="dialog")
    view.sees("held", "Release")
    view.open(f"/runs/{run}")
    view.click("Pause")
    view.js("document.querySelector('dialog input[name=reason]').value = 'lunch'")
    view.js("document.querySelector('dialog input[name=reason]').dispatchEvent(new Event('input', {bubbles: true}))")
    view.click("Pause", within="dialog")
    view.lacks("Pause steered?")
    (fleet.folder / "gate").touch()
    view.sees("Paused (operator)", "lunch")
    (fleet.folder / "gate").unlink()
    wait_for(lambda: not server.get(f"runs/{run}")["driven"], "its controller to leave")
    view.click("Resume")
    view.click("Resume", within="dialog")
    wait_for(lambda: len(fleet.lines()) == 2, "the second task to start")
    view.sees("1 running")
    view.click("Cancel", within="main")
    view.sees("Cancel steered?")
    view.click("Cancel the run", within="dialog")
    view.sees("cancelled")
    done(server, run, "cancelled")
    asked = [event["data"]["verb"] for event in fleet.events(run) if event["type"] == "run.requested"]
    assert asked == ["hold", "pause", "resume", "cancel"]


def test_the_page_outlives_a_killed_server_and_misses_nothing(fleet: Fleet, server: Served, view: View):
    run = submit(fleet, [{"key": f"t{i}", "command": ["sh", "-c", STEPPING]} for i in range(8)], workers=2)
    view.open(f"/runs/{run}?tab=events")
    wait_for(lambda: len(numbers(view)) > 10, "events on the page")
    view.js("window.kept = true")
    server.kill()
    view.sees("Connection lost", "last update")
    view.shoot("lost-1280-light")
    again = serve(fleet, port=server.port)
    view.lacks("Connection lost")
    done(again, run)
    view.sees("run.left")
    shown = numbers(view)
    assert shown == sorted(set(shown), reverse=True), "none twice, newest first"
    told = [event["number"] for event in fleet.events(run) if event["run"] == run]
    assert sorted(shown) == [number for number in told if shown[-1] <= number <= shown[0]], "none is missing"
    assert shown[-1] <= min(event["number"] for event in fleet.events(run)), "from the first to the last"
    assert view.js("window.kept")


def test_a_reader_sees_all_and_can_change_nothing(fleet: Fleet, server: Served, tmp_path: Path):
    token = fleet.json("token", "new", "guest", "--role", "reader")["token"]
    run = submit(fleet, gated("a"), name="watched")
    wait_for(fleet.lines, "the task to start")
    with viewed(server, tmp_path, token) as view:
        view.sees("watched", "reader")
        view.click("watched")
        view.sees("1 running", "Workers over time")
        assert view.js("[...document.querySelectorAll('main button')].map((one) => one.innerText.trim())") == [
            "−",
            "+",
            "All",
            "All tasks",
        ]
        refused = view.js(f"""fetch('/api/v1/runs/{run}/cancel', {{method: 'POST', body: '{{}}',
            headers: {{'Content-Type': 'application/json', 'X-Evalfleet': '1'}}}}).then((answer) => answer.status)""")
        assert refused == 403
        for path in ("/runs/new", "/studies/new", "/pools/new"):
            view.go(path)
            view.sees("This needs another role")
            assert view.js("document.querySelectorAll('main form').length") == 0
    (fleet.folder / "gate").touch()


def test_without_a_token_it_says_how_to_come_in_and_the_first_load_is_small(server: Served, tmp_path: Path):
    with viewed(server, tmp_path, None) as view:
        view.sees("This browser is not let in", "evalfleet serve")
        view.open(f"/?token={server.token}")
        view.sees("No runs yet")
        loaded = view.js(
            "[performance.getEntriesByType('navigation')[0], ...performance.getEntriesByType('resource')]"
            ".filter((one) => !one.name.includes('/api/')).map((one) => [one.name, one.encodedBodySize])"
        )
        assert sum(size for _, size in loaded) < FIRST_LOAD, loaded
        assert any(name.endswith(".js") and size > 10_000 for name, size in loaded), "sizes are those on the wire"
        assert not any("rfb" in name or "Study" in name for name, _ in loaded), "what few open is loaded later"


def test_names_and_logs_are_words_never_markup(fleet: Fleet, server: Served, view: View):
    run = submit(fleet, [{"key": NASTY, "domain": NASTY, "command": ["echo", NASTY]}], name=NASTY)
    done(server, run)
    for path in ("/", f"/runs/{run}", f"/runs/{run}?tab=tasks", f"/runs/{run}?tab=events", f"/runs/{run}/tasks/1"):
        view.open(path)
        view.sees("<img src=x")
    view.sees("Nothing" if server.get(f"runs/{run}/tasks/1/attempts/1")["logs"]["stdout"] == 0 else "onerror")
    assert view.js("document.title") != "owned"
    assert view.js("document.querySelectorAll('img[src=\"x\"]').length") == 0


def test_failures_with_one_message_are_told_together(fleet: Fleet, server: Served, view: View):
    # The first proves that the program works at all, so the others are blamed on their tasks.
    seats = [f"echo no licence for seat {number} >&2; exit 1" for number in range(4)]
    scripts = ["true", *seats, "echo else >&2; exit 1"]
    tasks = [{"key": f"t_{number}", "command": ["sh", "-c", script]} for number, script in enumerate(scripts)]
    run = submit(fleet, tasks, attempts=1, workers=1)
    done(server, run)
    view.open(f"/runs/{run}?tab=failures")
    view.sees("4 of 5 failures share one message", "no licence for seat #", f"evalfleet judge {run}", "Same message")


@pytest.mark.timeout(300)
def test_all_pages_fit_a_screen_and_a_phone_in_light_and_dark(fleet: Fleet, server: Served, view: View):
    troubles = [{}, {"score": 0.0}, {"trouble": "crash_once"}, {"trouble": "crash"}, {}, {}]
    runs = [
        agents(fleet, *[{"steps": 3, "step_s": 0.02} | one for one in troubles], name=name, attempts=2, workers=3)
        for name in ("before", "after")
    ]
    for run in runs:
        done(server, run)
    a, b = runs
    view.sees("before", "after")
    pages = {
        "runs": "/",
        "run": f"/runs/{a}",
        "tasks": f"/runs/{a}?tab=tasks",
        "workers": f"/runs/{a}?tab=workers",
        "failures": f"/runs/{a}?tab=failures",
        "queue": f"/runs/{a}?tab=queue",
        "events": f"/runs/{a}?tab=events",
        "task": f"/runs/{a}/tasks/3",
        "compare": f"/compare?a={a}&b={b}",
        "pools": "/pools",
        "pool-new": "/pools/new",
        "run-new": "/runs/new",
        "alerts": "/alerts",
    }
    view.look_at(pages)
    view.wear(WIDE, "dark")
    dark = "getComputedStyle(document.body).backgroundColor"
    before = view.js(dark)
    view.click("Colours: system")
    assert view.js(dark) != before, "the switch goes to light while the system is dark"


def test_the_keyboard_reaches_a_run_and_its_lanes(fleet: Fleet, server: Served, view: View):
    run = submit(fleet, [{"key": "a", "command": ["true"]}], name="reached")
    done(server, run)
    view.sees("reached", "completed")
    view.js("document.querySelector('input[type=search]').focus()")
    view.key("Tab")
    assert view.js("document.activeElement.innerText") == "Plans"
    view.key("Tab")
    assert view.js("document.activeElement.innerText") == "New run"
    assert view.js("getComputedStyle(document.activeElement).outlineStyle") == "solid", "one sees where one is"
    view.key("Tab")
    assert view.js("document.activeElement.dataset.run") == run
    view.key("Enter", "\r")
    view.sees("Workers over time")
    view.until("document.querySelector('canvas[data-bars=\"1\"]')", "the lane")
    view.js("document.querySelector('canvas').focus()")
    view.key("ArrowRight")
    view.key("Enter", "\r")
    view.sees("Attempt 1")
    assert view.js("location.pathname") == f"/runs/{run}/tasks/1/attempts/1"


def test_lanes_of_a_live_run_stay_while_it_goes_on(fleet: Fleet, view: View, server: Served):
    """The chart, its zoom and the place of what is below it stay while answers about the run come in."""
    run = submit(fleet, gated("a", "b"), name="lasting", workers=2)
    view.open(f"/runs/{run}")
    view.until("document.querySelector('canvas[data-bars=\"2\"]')", "two bars in the lanes")
    view.js("window.canvas = document.querySelector('canvas[data-bars]')")
    asked = f"performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/runs/{run}')).length"
    for _ in range(3):
        known = view.js(asked)
        server.post(f"runs/{run}/hold", {"keys": ["b"]})
        server.post(f"runs/{run}/release", {"keys": ["b"]})
        view.until(f"{asked} > {known}", "another answer about the run")
    assert view.js("document.contains(window.canvas) && window.canvas.dataset.bars") == "2"
    assert len([url for url in view.asked if url.endswith("/lanes")]) == 1, "read whole once"


def test_eight_tabs_share_one_feed(fleet: Fleet, view: View, server: Served):
    view.sees("No runs yet")
    for _ in range(7):
        view.call("Runtime.evaluate", expression="(window.tabs ??= []).push(window.open('/'))", userGesture=True)
    view.until(
        "window.tabs.length === 7 && window.tabs.every((one) => one.document.body?.innerText.includes('No runs yet'))",
        "seven more tabs",
    )
    assert (
        view.js(
            "Promise.race([fetch('/api/v1/me').then((one) => one.status), new Promise((late) => setTimeout(late, 9000))])"
        )
        == 200
    )
    view.open("/")  # another tab reads from now on, and tells this one
    view.sees("No runs yet")
    submit(fleet, gated("a"), name="for-all")
    view.sees("for-all")
    assert "evalfleet_feed_readers 1" in server.ask("/metrics").body.decode()
