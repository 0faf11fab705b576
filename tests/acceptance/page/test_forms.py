"""Forms of the page as they are found, in a real Chromium: what a person leaves alone is taken, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fleet import Fleet
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, viewed
from tests.support.web_server import Served, serve

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

STUDY = """
[study]
name = "as pasted"
strategy = "random"
trials = 7
max_parallel_experiments = 3
objective = { maximize = "speed" }

[parameters]
size = [1, 2, 3, 4, 5, 6, 7, 8]

[trial]
command = ["true"]
"""


@pytest.fixture
def server(fleet: Fleet, tmp_path: Path) -> Served:
    """Of a machine that has a browser and no desktop; it drives nothing, so what is made stays as it was made."""
    programs = tmp_path / "programs"
    programs.mkdir()
    browser = Path(CHROMIUM or "")
    (programs / browser.name).symlink_to(browser)
    return serve(fleet, "--no-drive", PATH=str(programs))


@pytest.fixture
def view(server: Served, tmp_path: Path) -> Iterator[View]:
    with viewed(server, tmp_path) as view:
        yield view


def made(view: View, thing: str) -> str:
    """Press the button, and return the id of what it made; fails at once with what the server said against it."""
    view.click(f"Create the {thing}")
    view.until("!location.pathname.endsWith('/new') || document.querySelector('.refused')", "an answer")
    assert view.js("document.querySelector('.refused')?.innerText ?? null") is None
    return str(view.js("location.pathname")).rpartition("/")[2]


def test_a_new_run_is_taken_as_the_form_is_found(server: Served, view: View):
    ready = {row["name"]: row["ready"] for row in server.get("benchmarks")["benchmarks"]}
    assert ready["miniwob"]
    assert not ready["desk"]
    view.go("/runs/new")
    view.until("document.querySelector('[name=benchmark]')?.value", "the benchmarks")
    view.look_at({"run-new": "/runs/new"})
    assert server.get(f"runs/{made(view, 'run')}")["name"] == "miniwob-oracle"


def test_a_benchmark_that_this_machine_cannot_run_says_so(view: View):
    view.go("/runs/new")
    view.until("document.querySelector('[name=benchmark]')?.value", "the benchmarks")
    view.lacks("This machine lacks")
    view.fill(benchmark="desk")
    view.sees("This machine lacks what it needs", "evalfleet benchmarks desk")
    view.shoot("run-new-lacking-1280-light")


def test_a_new_study_is_the_pasted_one_where_no_field_is_filled_in(server: Served, view: View):
    view.look_at({"study-new": "/studies/new"})
    view.fill(toml=STUDY)
    study = server.get(f"studies/{made(view, 'study')}")
    assert (study["name"], study["wanted"], study["parallel"]) == ("as pasted", 7, 3)
    view.go("/studies/new")
    view.fill(toml=STUDY, trials="5")
    study = server.get(f"studies/{made(view, 'study')}")
    assert (study["wanted"], study["parallel"]) == (5, 3), "what is filled in goes before the file, and nothing else"
