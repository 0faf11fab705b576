"""Pools on the page: machines of an emulated cloud, made by the form, scaled, stopped, started and deleted by buttons."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet import wait_for
from pageview import BUILT, CHROMIUM, MISSING, View, viewed
from rented import NAME, rented
from webserver import serve

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
STATES = "[...document.querySelectorAll('[data-host] .state')].map((one) => one.innerText.trim())"
PATIENCE_S = 150


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
            view.click("Make them", within="dialog")
            view.until("document.querySelector('dialog .refused')", "what the server said against it")
            view.click("Back", within="dialog")
            view.fill(regions="eastus", size="")
            view.confirm("Create the pool", "Make 2 VMs?", "Make them")
            view.sees(NAME, "Machines")
            until(view, "ready", "ready")
            view.sees("rung runner", "of $50.00", "Quota in eastus")
            view.look_at({"pools-some": "/pools", "pool": f"/pools/{NAME}"})
            view.confirm("Scale", f"How many machines for {NAME}?", "Scale", workers="3")
            until(view, "ready", "ready", "ready")
            view.confirm("Stop waa-eval-1", "Stop waa-eval-1?", "Stop")
            until(view, "ready", "ready", "stopped")
            view.shoot("pool-stopped-1280-light")
            view.confirm("Start waa-eval-1", "Start waa-eval-1?", "Start")
            until(view, "ready", "ready", "ready")
            view.confirm("Delete", f"Delete the pool {NAME}?", "Delete the pool")
            wait_for(lambda: server.ask(f"/api/v1/pools/{NAME}").status == 404, "the end of the pool", PATIENCE_S)
            view.sees("No pools")
        assert here.is_empty(), here.leaks()
