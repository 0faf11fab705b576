"""A real benchmark on the page: its tasks are played in browsers while another one watches."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.fleet import Fleet
from tests.support.page_view import BUILT, CHROMIUM, viewed
from tests.support.page_view import MISSING as NO_PAGE
from tests.support.web_server import serve

from evalfleet import config
from evalfleet.benchmarks.miniwob.benchmark import Miniwob

LACKS = [need.what for need in Miniwob(config.Settings(home=Path())).requirements() if not need.present]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=NO_PAGE),
    pytest.mark.skipif(bool(LACKS), reason=f"missing: {', '.join(LACKS)}"),
    pytest.mark.slow,
]
TASKS = 6


def test_a_live_benchmark_from_its_start_to_its_end(fleet: Fleet, tmp_path: Path):
    server = serve(fleet)
    with viewed(server, tmp_path) as view:
        words = ("run", "miniwob", "--tasks", str(TASKS), "--agent", "oracle", "--workers", "2", "--detach")
        run = fleet.json(*words)["run"]
        view.open(f"/runs/{run}")
        view.js("window.grown = new Set()")
        view.js(
            "setInterval(() => grown.add(+document.querySelector('canvas[data-bars]')?.dataset.bars || 0), 50), null"
        )
        view.sees("completed", "all decided", "100")
        view.until(f"document.querySelector('canvas[data-bars=\"{TASKS}\"]')", "a bar for each task")
        grown = sorted(view.js("[...grown]"))
        assert len(grown) >= 3, f"the lanes grow while it runs, and not at its end: {grown}"
        view.shoot("benchmark-1280-light")
        # The longest film, picture by picture.
        films = {
            number: len(server.get(f"runs/{run}/tasks/{number}/attempts/1")["film"]["frames"])
            for number in range(1, TASKS + 1)
        }
        longest = max(films, key=lambda number: films[number])
        frames = films[longest]
        assert frames >= 2, films
        view.open(f"/runs/{run}/tasks/{longest}")
        view.sees(f"1 of {frames}")
        for step in range(2, frames + 1):
            view.key("ArrowRight")
            view.sees(f"{step} of {frames}")
        view.until("document.querySelector('figure img').naturalWidth > 0", "the picture")
        view.shoot("film-1280-light")
        assert view.foreign == []
