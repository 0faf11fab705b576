"""Pools on the page: machines of an emulated cloud, made by the form, scaled, stopped, started and deleted by buttons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.desktops import COLOURS, DESKTOP
from tests.support.fleet import wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, type_in, viewed
from tests.support.rented import NAME, Rented, rented
from tests.support.web_server import Served, serve

from evalfleet.environments.desktop import environment

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING),
    pytest.mark.skipif(
        any(not need.present for need in environment.requirements()),
        reason="this machine has no desktop: see scripts/desktop",
    ),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
STATES = "[...document.querySelectorAll('[data-host] .state')].map((one) => one.innerText.trim())"
PATIENCE_S = 150


def watch_its_screen(here: Rented, server: Served, view: View) -> None:
    """First there is none, and the page says so; then a task has one there, which is watched and typed into."""
    view.click("Screen of evalfleet-1")
    view.sees("host evalfleet-1 ")
    view.click("Screenshot")
    view.sees("there is no picture")
    view.click("Close", within="main")
    fleet, typed = here.fleet, here.fleet.folder / "typed"
    (fleet.folder / "desk.py").write_text(DESKTOP)
    task = {"key": "a", "command": [sys.executable, str(fleet.folder / "desk.py"), str(typed)]}
    fleet.command("run", fleet.tasks([task]), "--pool", NAME, "--detach")
    place = "/api/v1/runs/latest/tasks/1/attempts/1"
    seen = wait_for(
        lambda: (told := server.ask(place)).status == 200 and told.json["desktop"]["vnc"] and told.json, "the desktop"
    )
    view.click(f"Screen of {seen['host']}")
    view.sees("view only")
    view.until(f"{COLOURS} > 1", "the screen")
    view.shoot("pool-screen-1280-light")
    view.confirm("Take over", f"Take over the screen of {seen['host']}?", "Take over")
    view.sees("you have the controls")
    type_in(view, "hello\r")
    wait_for(typed.exists, "the line to arrive in the terminal")
    assert typed.read_text() == "hello\n"
    view.click("Close", within="main")
    wait_for(lambda: server.get("runs/latest")["state"] == "completed", "the end of the task", PATIENCE_S)


def until(view: View, *wanted: str) -> None:
    """Machines of the table are in these states, in any order."""
    wait_for(lambda: sorted(view.js(STATES)) == sorted(wanted), f"{wanted}, not {view.js(STATES)}", PATIENCE_S)


def test_a_pool_is_made_scaled_stopped_started_and_deleted_by_buttons(tmp_path: Path):
    with rented(tmp_path, 60) as here:
        server = serve(here.fleet)
        with viewed(server, tmp_path) as view:
            view.go("/pools")
            view.sees("No pools")
            view.click("New pool")
            view.sees("VMs that are made (Azure)")
            view.js("document.querySelector('input[type=radio][value=azure-vm]').click()")
            view.fill(name=NAME, regions="nowhere", workers="2", max_hours="2", budget_usd="50", size="none-such")
            view.click("Create the pool")
            view.click("Create them", within="dialog")
            view.until("document.querySelector('dialog .refused')", "what the server said against it")
            view.click("Back", within="dialog")
            view.fill(regions="eastus", size="")
            view.confirm("Create the pool", "Create 2 machines?", "Create them")
            view.sees(NAME, "Machines")
            until(view, "ready", "ready")
            view.sees("check runner", "of $50.00", "Quota in eastus")
            view.look_at({"pools-some": "/pools", "pool": f"/pools/{NAME}"})
            view.click("Logs of evalfleet-1")
            view.sees("evalfleet-1 login:")
            view.click("docker", within="[aria-label='Logs of evalfleet-1']")
            view.sees("Daemon has completed initialization")
            view.shoot("pool-logs-1280-light")
            view.click("Close", within="main")
            watch_its_screen(here, server, view)
            view.confirm("Scale", f"How many machines for {NAME}?", "Scale", workers="3")
            until(view, "ready", "ready", "ready")
            view.confirm("Stop evalfleet-1", "Stop evalfleet-1?", "Stop")
            until(view, "ready", "ready", "stopped")
            view.shoot("pool-stopped-1280-light")
            view.confirm("Start evalfleet-1", "Start evalfleet-1?", "Start")
            until(view, "ready", "ready", "ready")
            view.confirm("Delete", f"Delete the pool {NAME}?", "Delete the pool")
            wait_for(lambda: server.ask(f"/api/v1/pools/{NAME}").status == 404, "the end of the pool", PATIENCE_S)
            view.sees("No pools")
        assert here.is_empty(), here.leaks()
