"""The page with much to show: a thousand runs, forty workers, ten thousand tasks. What costs is counted, and timed with room."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, viewed
from tests.support.report_builders import START, RunBuilder
from tests.support.web_server import serve

from evalfleet.model import Blame, Kind
from evalfleet.store.open import open_store

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
# Frames while something is done to the page again and again; the longest are what a person feels.
FRAMES = """new Promise((tell) => {
    const times = []; let last = performance.now(), left = %d;
    const act = (i) => { %s };
    const next = (now) => {
        times.push(now - last); last = now;
        if (left-- > 0) { act(left); requestAnimationFrame(next); return; }
        times.sort((a, b) => a - b);
        tell({median: times[times.length >> 1], p95: times[Math.floor(times.length * .95)], most: times.at(-1)});
    };
    requestAnimationFrame(next);
})"""
ZOOM = """document.querySelector("canvas").dispatchEvent(new WheelEvent("wheel", {bubbles: true, cancelable: true, ctrlKey: true,
    deltaY: i > 60 ? -8 : 8, clientX: 500 + i, clientY: 300}))"""
SCROLL = "scrollBy(0, 120)"


def frames(view: View, act: str, count: int = 120) -> dict[str, float]:
    found: dict[str, float] = view.js(FRAMES % (count, act))
    print({name: round(ms, 1) for name, ms in found.items()})
    return found


def crowd(home: Path, tasks: int, workers: int) -> str:
    """A run that is over: every attempt on the worker that was free first, some of them failed."""
    luck = random.Random(7)
    builder = RunBuilder(home, [f"domain{i % 12}_{i}" for i in range(tasks)], name="crowd").begin()
    free = [START] * workers
    with builder.store.batch():
        for key in builder.numbers:
            for last in (luck.random() > 0.15, True):
                worker = min(range(workers), key=free.__getitem__)
                builder.time = free[worker]
                how: dict[str, Any] = {} if last else {"kind": Kind.RUNNER_LOST, "blame": Blame.WORKER}
                score = float(luck.random() > 0.6) if last else None
                builder.attempt(
                    key, score, worker=f"vm-{worker + 1}", seconds=luck.uniform(200, 1500), cost_usd=0.02, **how
                )
                free[worker] = builder.time
                if last:
                    break
        builder.complete()
    builder.leave().close()
    return builder.run.id


def test_forty_workers_zoom_smoothly(fleet: Fleet, tmp_path: Path):
    run = crowd(fleet.home, 154, 40)
    with viewed(serve(fleet), tmp_path) as view:
        view.open(f"/runs/{run}")
        view.until("document.querySelector('canvas[data-lanes=\"40\"]')", "forty lanes")
        view.until("document.querySelectorAll('[data-task]').length === 154", "the grid")
        view.shoot("crowd-1280-light")
        found = frames(view, ZOOM)
        assert found["median"] < 50, "zooming is smooth"


def test_a_thousand_runs_scroll_smoothly_and_are_few_rows(fleet: Fleet, tmp_path: Path):
    with closing(open_store(fleet.home)):
        pass
    for i in range(1000):
        builder = RunBuilder(fleet.home, ["a_1"], name=f"run {i}").begin()
        builder.time = START + i * 60
        builder.attempt("a_1", 1.0)
        builder.complete().leave().close()
    with viewed(serve(fleet), tmp_path) as view:
        view.sees("1,000 runs", "run 999")
        assert view.js("document.querySelectorAll('[data-run]').length") < 100, "only rows in sight are made"
        found = frames(view, SCROLL)
        assert found["median"] < 50, "scrolling is smooth"
        view.js("scrollTo(0, 1e6)")
        view.sees("run 0\n")
        view.js("""(() => { const box = document.querySelector("input[type=search]"); box.value = "run 77";
            box.dispatchEvent(new Event("input", {bubbles: true})); })()""")
        view.until("document.querySelectorAll('[data-run]').length === 11", "run 77 and run 770 to 779")


STUDY = """
[study]
name = "wide"
trials = 400
max_parallel_experiments = 12
objective = [{ maximize = "speed" }, { minimize = "delay" }]
[parameters]
size = { type = "integer", low = 1, high = 100000, log = true }
share = { type = "continuous", low = 0.1, high = 0.9 }
mode = ["slow", "fast", "faster"]
[trial]
command = ["sh", "trial.sh"]
"""


# No interpreter to start: four hundred of them must not take minutes.
TRIAL = """
n=$(sed -n 's/.*"size": *\\([0-9]*\\).*/\\1/p' "$EVALFLEET_TASK" | head -1)
echo '{"success": true, "metrics": {"speed": '$n', "delay": '$((n % 977))'}}' > "$EVALFLEET_RESULT"
"""


def test_four_hundred_trials_are_read_and_brushed_smoothly(fleet: Fleet, tmp_path: Path):
    (fleet.folder / "study.toml").write_text(STUDY)
    (fleet.folder / "trial.sh").write_text(TRIAL)
    process = fleet.start("tune", "study.toml", "--json")
    out = process.communicate(timeout=200)[0]
    assert process.returncode == 0, out
    run = fleet.json("study", "list")["studies"][0]["run"]
    with viewed(serve(fleet), tmp_path) as view:
        view.open(f"/studies/{run}")
        view.until("Number(document.querySelector('canvas[data-lines]')?.dataset.lines) >= 400", "the lines")
        view.shoot("study-400-1280-light")
        drag = """(() => { const one = document.querySelector('[data-axis=share]'), box = one.getBoundingClientRect();
            const send = (type, y) => one.dispatchEvent(new PointerEvent(type, {bubbles: true, cancelable: true, pointerId: 1,
                clientX: box.x + 12, clientY: y}));
            if (i === 59) { one.setPointerCapture = () => undefined; send("pointerdown", box.y + 5); }
            else send("pointermove", box.bottom - i * 2); })()"""
        found = frames(view, drag, 60)
        assert found["median"] < 100, "dragging along an axis is smooth"
        view.until("document.querySelector('[aria-label=Trials] h2 + span').innerText.includes('pass')", "the choice")


def test_ten_thousand_tasks_open_soon(fleet: Fleet, tmp_path: Path):
    run = crowd(fleet.home, 10_000, 40)
    with viewed(serve(fleet), tmp_path) as view:
        view.open(f"/runs/{run}?tab=tasks")
        view.until(
            "[...document.querySelectorAll('h2 + span')].some((one) => one.innerText === '10,000 tasks')", "the list"
        )
        taken = view.js(
            "performance.getEntriesByType('resource').filter((one) => one.name.includes('/grid'))[0].responseEnd"
        )
        print(f"the list was there {taken:.0f} ms after the page was asked for")
        assert view.js("document.querySelectorAll('a.line').length") < 100, "only rows in sight are made"
        found = frames(view, SCROLL)
        assert found["median"] < 50, "scrolling is smooth"
        view.go(f"/runs/{run}")
        view.until("document.querySelectorAll('[data-task]').length === 10000", "the grid")
        frames(view, ZOOM, 60)
