"""What the page shows as a score, in a real Chromium: none for a study, and which tasks it covers where that is not all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet
from tests.support.page_view import BUILT, CHROMIUM, MISSING, PHONE, WIDE, View, viewed
from tests.support.web_server import Served, serve

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

STUDY = """
[study]
name = "NAME"
strategy = "grid"
confirm = false
objective = { maximize = "speed" }
constraints = ["speed <= LIMIT"]

[parameters]
size = [10, 20, 30]

[trial]
command = ["python3", "trial.py"]
"""
PROGRAM = """
import json, os
size = json.load(open(os.environ["EVALFLEET_TASK"]))["payload"]["parameters"]["size"]
json.dump({"success": True, "metrics": {"speed": size}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""


def tuned(fleet: Fleet, name: str, limit: int, code: int) -> str:
    (fleet.folder / "trial.py").write_text(PROGRAM)
    path = fleet.folder / f"{name}.toml"
    path.write_text(STUDY.replace("NAME", name).replace("LIMIT", str(limit)))
    return fleet.json("tune", str(path), code=code)["run"]


def ran(fleet: Fleet, name: str, question: str = "same", *more: str, code: int = 0) -> str:
    script = "echo '{\"cost_usd\": 0.1}' >> $EVALFLEET_EVENTS"
    tasks: list[dict[str, Any]] = [
        {"key": f"{domain}_{n}", "command": ["sh", "-c", script], "payload": {"question": question if n else "q"}}
        for domain in ("files", "forms")
        for n in range(3)
    ]
    return fleet.json("run", fleet.tasks(tasks, name=f"{name}.jsonl"), *more, code=code)["run"]


def studied(view: View, found: str, none: str) -> None:
    view.open("/")
    view.sees("best: speed 20", "size=20", "no configuration keeps all limits")
    view.sees("Valid score, or best", found)
    view.lacks("100.0%")
    view.wear(PHONE)
    view.until("document.querySelectorAll('.short').length === 2", "the rows of a phone")
    assert view.js("[...document.querySelectorAll('.short')].every((one) => one.scrollHeight <= one.clientHeight)")
    view.wear(WIDE)
    view.go(f"/runs/{found}")
    view.sees("Best configuration", "speed 20", "size=20", "keeps speed <= 20")
    view.lacks("Valid score")
    view.lacks("Score over time")
    view.go(f"/runs/{none}")
    view.sees("Nearest configuration", "no configuration keeps all limits", "breaks speed <= 5")
    view.lacks("Valid score")


def compared(view: View, one: str, two: str, studies: tuple[str, str]) -> None:
    view.go(f"/compare?a={studies[0]}&b={studies[1]}")
    view.sees("both are studies", "evalfleet study best")
    view.go(f"/compare?a={one}&b={two}")
    view.sees("4 of 6 common tasks are not the same work in both runs and left out", "2 compared, 4 left out")
    view.js("document.querySelector('.picks input[type=checkbox]').click()")
    view.sees("6 compared", "Not the same work: question differs in 4 of 6 common tasks")


def test_a_score_is_shown_only_where_there_is_one_and_of_what_it_covers(fleet: Fleet, tmp_path: Path):
    found, none = tuned(fleet, "found", 20, 0), tuned(fleet, "none", 5, 1)
    server: Served = serve(fleet)
    with viewed(server, tmp_path) as view:
        studied(view, found, none)
        one, two = ran(fleet, "one"), ran(fleet, "two", "other")
        compared(view, one, two, (found, none))
        part = ran(fleet, "part", "same", "--budget", "0.4", "--workers", "1", code=3)
        view.go(f"/runs/{part}")
        view.sees("The scores cover 4 of 6 tasks: files 2 of 3, forms 2 of 3.")
        pages = {"runs": "/", "compare": f"/compare?a={one}&b={two}"}
        view.look_at(
            pages | {name: f"/runs/{run}" for name, run in {"study": found, "none": none, "part": part}.items()}
        )
