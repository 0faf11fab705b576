"""How soon the page shows a run of 10,000 tasks in a real browser, how smoothly it scrolls, and how much it loads."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from table import Line
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, viewed

from evalfleet.model import Outcome, Policy, Requests, TaskSpec, Verdict
from evalfleet.store.attempts.records import Claim, Finish
from evalfleet.store.open import open_store

TASKS = 10_000
OPENINGS = 3
OPEN_MS = 1000.0
FRAME_MS = 50.0  # twenty frames a second are the least that looks like motion
FIRST_KB = 150.0
SHOWN = "[...document.querySelectorAll('h2 + span')].some((one) => one.innerText === '10,000 tasks')"
# When the list is there, counted from the moment that the address was opened.
OPENED = f"""new Promise((tell) => {{ const look = () => {SHOWN} && document.querySelectorAll("a.line").length > 5
    ? tell(performance.now()) : requestAnimationFrame(look); look(); }})"""
SCROLLED = """new Promise((tell) => { const times = []; let last = performance.now();
    const next = (now) => { times.push(now - last); last = now; scrollBy(0, 120);
        if (times.length < 121) requestAnimationFrame(next); else tell(times.slice(1)); };
    requestAnimationFrame(next); })"""
LOADED = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .filter((one) => !one.name.includes("/api/")).map((one) => [one.name, one.encodedBodySize])"""


def bench_page(home: Path, served: Callable[[Path], AbstractContextManager[Any]]) -> list[Line]:
    if CHROMIUM is None or not BUILT:
        return [Line("the page", f"not measured: {MISSING}")]
    run = _large(home)
    with served(home) as server, viewed(server, home.parent / "web-view") as view:
        loaded: list[list[Any]] = view.js(LOADED)
        opened = [_open(view, run) for _ in range(OPENINGS)]
        frames: list[float] = sorted(view.js(SCROLLED))
        rows: int = view.js("document.querySelectorAll('a.line').length")
    middle, p95 = statistics.median(opened), frames[int(len(frames) * 0.95)]
    first_kb = sum(size for name, size in loaded if "rfb" not in name) / 1000
    return [
        Line(
            f"the page: open a run of {TASKS:,} tasks",
            f"{middle:.0f} ms median, {max(opened):.0f} most",
            f"< {OPEN_MS / 1000:.0f} s",
            middle < OPEN_MS,
        ),
        Line(
            "  scroll through them",
            f"{statistics.median(frames):.0f} ms a frame, {p95:.0f} p95",
            f"< {FRAME_MS:.0f} ms",
            statistics.median(frames) < FRAME_MS,
        ),
        Line("  rows that exist at a time", f"{rows}"),
        Line("  first load, gzipped, without noVNC", f"{first_kb:.0f} kB", f"< {FIRST_KB:.0f} kB", first_kb < FIRST_KB),
    ]


def _open(view: View, run: str) -> float:
    view.open(f"/runs/{run}?tab=tasks")
    return view.js(OPENED)


def _large(home: Path) -> str:
    """A run that is over, with a verdict for each task."""
    specs = [TaskSpec(key=f"domain{n % 12}_{n}", domain=f"domain{n % 12}", command=("true",)) for n in range(TASKS)]
    with closing(open_store(home)) as store:
        run = store.runs.submit("large", Policy(workers=40), specs, folder="/", base_env={})
        run = store.runs.begin(store.runs.take(run.id, "bench"))
        assert run is not None
        with store.batch():
            for number in range(1, TASKS + 1):
                worker = f"vm-{number % 40 + 1}"
                claim = Claim(
                    task_number=number, worker=worker, host=worker, token="t", lease_s=600.0, requests=Requests()
                )
                claimed = store.attempts.claim(run, claim)
                assert claimed is not None
                now = store.now()
                store.attempts.finish(
                    run,
                    Finish(
                        attempt=claimed.attempt,
                        outcome=Outcome.OK,
                        verdict=Verdict(score=float(number % 3 > 0), success=number % 3 > 0, steps=7, metrics={}),
                        ended_at=now,
                        started_at=now - 60.0,
                        ready_at=None,
                        duration_s=60.0,
                        cost_usd=0.01,
                        reported_usd=0.0,
                        last_event=1,
                        end={"cause": "exited", "exit_code": 0},
                        judge_version=1,
                    ),
                )
        store.runs.complete(run)
        return run.id
