"""Studies on the page: made by its form, watched while they search, steered, and read when they are over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, viewed
from tests.support.web_server import Served, serve

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

# Trials wait for the gate from the fourth on, so that a person has something to steer.
PROGRAM = """
import json, os, sys, time
task = json.load(open(os.environ["EVALFLEET_TASK"]))
parameters = task["payload"]["parameters"]
with open("ledger", "a") as file:
    file.write("trial\\n")
if parameters["size"] > 200:
    sys.exit("CUDA out of memory: tried to allocate 2 GiB")
if sum(1 for _ in open("ledger")) > 6:
    while not os.path.exists("gate"):
        time.sleep(0.02)
speed = parameters["size"] * (2 if parameters["mode"] == "fast" else 1)
json.dump({"success": True, "metrics": {"speed": speed, "delay": 10 + speed / 7}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
STUDY = """
[study]
name = "two goals"
strategy = "random"
objective = [{ maximize = "speed" }, { minimize = "delay" }]
constraints = ["delay <= 160"]
seed = 4
baseline = { size = 8, mode = "slow" }

[parameters]
size = { type = "integer", low = 4, high = 900, log = true }
mode = ["fast", "slow"]

[trial]
command = ["python3", "trial.py"]
"""
ROWS = "[...document.querySelectorAll('[data-trial]')].map((one) => Number(one.dataset.trial))"


def made(fleet: Fleet, view: View) -> str:
    view.go("/studies")
    view.sees("No studies yet")
    view.click("New study")
    view.until("document.querySelector('[name=toml]')?.value.includes('[parameters]')", "a template")
    view.fill(toml=STUDY.replace('"random"', '"guess"'), trials="12", parallel="2", folder=str(fleet.folder))
    view.click("Create the study")
    view.until("document.querySelector('.refused')?.innerText.includes('guess')", "what the server said against it")
    view.shoot("study-new-refused-1280-light")
    view.fill(toml=STUDY)
    view.click("Create the study")
    view.sees("two goals", "of 12 trials searched")
    return str(view.js("location.pathname")).rpartition("/")[2]


def steered(fleet: Fleet, server: Served, view: View, run: str) -> None:
    wait_for(lambda: len(fleet.lines()) >= 7, "trials that wait")
    view.confirm("Parallel", "How many trials of two goals at a time?", "Change", parallel="3")
    wait_for(lambda: server.get(f"studies/{run}")["parallel"] == 3, "three at a time")
    view.confirm("Pause", "Pause two goals?", "Pause", reason="lunch")
    (fleet.folder / "gate").touch()
    wait_for(lambda: server.get(f"runs/{run}")["state"] == "paused", "the study to pause")
    view.sees("Paused.", "lunch")
    wait_for(lambda: not server.get(f"runs/{run}")["driven"], "its controller to leave")
    view.confirm("Resume", "Resume two goals?", "Resume")
    view.sees("completed")
    view.confirm("Add trials", "More trials for two goals", "Add", trials="4")
    view.sees("16", "of 16 trials searched")
    wait_for(lambda: server.get(f"studies/{run}")["state"] == "completed", "the study to end again")
    view.confirm("Retry failed", "failed trial", "Retry")


def read(server: Served, view: View, run: str) -> None:
    wait_for(lambda: server.get(f"studies/{run}")["state"] == "completed", "the study to end")
    facts = server.get(f"studies/{run}")
    view.open(f"/studies/{run}")
    view.sees("Best configuration", "Pareto front", "Parallel coordinates", "failed", "CUDA out of memory")
    assert view.js("document.querySelector('[data-flags]').innerText") == facts["flags"]
    view.js(
        """(() => { window.copied = null; navigator.clipboard.writeText = async (text) => { window.copied = text; }; })()"""
    )
    view.click("Copy flags")
    view.sees("Copied")
    assert view.js("window.copied") == facts["flags"]
    shown = view.js(ROWS)
    assert sorted(shown) == [trial["number"] for trial in facts["trials"]], "every trial has a row"
    view.js("[...document.querySelectorAll('th button')].find((one) => one.innerText.startsWith('speed')).click()")
    view.until("document.querySelector('th[aria-sort=ascending]')?.innerText.startsWith('speed')", "sorted by speed")
    speeds = {trial["number"]: trial["metrics"].get("speed") for trial in facts["trials"]}
    sorted_speeds = [speeds[number] for number in view.js(ROWS) if speeds[number] is not None]
    assert sorted_speeds == sorted(sorted_speeds)
    link = view.js("document.querySelector('[data-trial=\"2\"] a').pathname")
    task = next(trial["task"] for trial in facts["trials"] if trial["number"] == 2)
    assert link == f"/runs/{run}/tasks/{task}"


def brushed(view: View) -> None:
    """Drag along the axis of the speed: only trials that pass there stay in the table."""
    everything = len(view.js(ROWS))
    box = view.js(
        "(() => { const one = document.querySelector('[data-axis=speed]'); one.scrollIntoView({block: 'center'});"
        " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y, box.height]; })()"
    )
    x, top, tall = box
    for kind, y in (("mousePressed", top + 2), ("mouseMoved", top + tall / 3), ("mouseReleased", top + tall / 3)):
        view.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    view.until(f"{ROWS}.length < {everything}", "fewer trials")
    view.shoot("study-brushed-1280-light")
    view.click("Show all")
    view.until(f"{ROWS}.length === {everything}", "all trials again")


@pytest.fixture
def server(fleet: Fleet) -> Served:
    fleet.env["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    (fleet.folder / "trial.py").write_text(PROGRAM)
    return serve(fleet)


def test_a_study_is_made_and_read(fleet: Fleet, server: Served, tmp_path: Path):
    (fleet.folder / "gate").touch()
    with viewed(server, tmp_path) as view:
        run = made(fleet, view)
        read(server, view, run)
        brushed(view)


@pytest.mark.long
def test_a_study_is_steered_and_fits_a_screen_and_a_phone(fleet: Fleet, server: Served, tmp_path: Path):
    with viewed(server, tmp_path) as view:
        run = made(fleet, view)
        steered(fleet, server, view, run)
        view.look_at({"studies": "/studies", "study": f"/studies/{run}", "study-new": "/studies/new"})
