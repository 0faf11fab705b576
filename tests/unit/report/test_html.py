"""The HTML page: complete, self-contained, and safe whatever the tasks wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.support.report_builders import START, RunBuilder, mixed_run

from evalfleet.model import Blame, Kind, TaskState
from evalfleet.report.html.page import page
from evalfleet.report.timeline import SCALE, Axis, look_of, timeline

HOSTILE = [
    "<script>alert(1)</script>_1",
    "\"'><img src=x onerror=alert(2)>_1",
    "</script><script>alert(3)</script>_1",
    "<!--<script>_1",
    "&lt;b&gt;_1",
    "\x1b[31mred\n\u202e_1",
    "javascript:alert(4)_1",
]


class Reader(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


@pytest.fixture
def hostile(home: Path):
    builder = RunBuilder(home, HOSTILE, name="<script>alert(0)</script>").begin()
    for key in HOSTILE[:3]:
        builder.attempt(key, 1.0, worker="<w>")
    builder.attempt(HOSTILE[5], 0.4)
    builder.attempt(HOSTILE[6], 0.0)
    for key in HOSTILE[3:5]:
        builder.attempt(key, kind=Kind.BAD_EXIT, evidence=f"</td></script>{key}", then=TaskState.FAILED)
    builder.pause(message="<img src=x onerror=alert(5)>")
    yield builder
    builder.close()


def test_hostile_text_stays_text(hostile: RunBuilder) -> None:
    text = page(hostile.store, hostile.run)
    reader = read(text)
    assert reader.tags.count("script") == 3, "two kinds of data and the page's own"
    assert "img" not in reader.tags
    assert not [one for one in reader.attributes if one[1].startswith("on")]
    assert "\x1b" not in text
    assert "\u202e" not in text
    data = json.loads(reader.scripts[0])
    assert [task[0] for task in data["tasks"]][:5] == HOSTILE[:5]


def test_nothing_is_requested(hostile: RunBuilder) -> None:
    text = page(hostile.store, hostile.run)
    reader = read(text)
    assert not [one for one in reader.attributes if one[1] in ("src", "srcset", "action", "xlink:href")]
    assert [value for _, name, value in reader.attributes if name == "href"] == ["data:,"]
    assert "@import" not in text
    assert "url(" not in text
    assert "fetch(" not in text
    policy = next(
        value
        for tag, name, value in reader.attributes
        if tag == "meta" and name == "content" and value and "default-src" in value
    )
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)


def test_shows_every_section(home: Path) -> None:
    builder = mixed_run(home)
    text = page(builder.store, builder.run)
    builder.close()
    for part in (
        "Valid score",
        "Strict score",
        "Coverage",
        "Waste",
        "By domain",
        "Workers over time",
        "Failed attempts",
    ):
        assert part in text
    for part in ("Do retries flatter", "no end after 15m", "50.0%", "15.0–85.0%", "$0.30"):
        assert part in text
    data = json.loads(read(text).scripts[0])
    assert [len(task[-1]) for task in data["tasks"]] == [1, 1, 2, 1, 1, 0]
    assert data["tasks"][2][-1][0][6:9] == ["runner_lost", "worker", "the runner died"]


def test_a_run_without_attempts_has_a_page(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"])
    text = page(builder.store, builder.run)
    builder.close()
    assert "Workers over time" not in text
    assert "Nothing counts yet" in text


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_draws_the_table_and_runs_nothing_else(hostile: RunBuilder, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(hostile.store, hostile.run), "utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --dump-dom"
    command = [str(CHROMIUM), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.count('class="open"') == len(HOSTILE)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;_1" in done.stdout
    assert [done.stdout.count(f"</i>{word}</td>") for word in ("passed", "score 0.4", "not passed")] == [3, 1, 1]
    assert "CONSOLE" not in done.stderr, "neither an error nor a refused script"


def attempt(start: float, end: float | None, worker: str = "w1", outcome: str | None = "ok", **more: object) -> dict:
    return {
        "task_number": 1, "number": 1, "worker": worker, "claimed_at": START + start, "started_at": START + start,
        "ended_at": None if end is None else START + end, "outcome": outcome, "success": 1, "blame": None, "kind": None,
        "state": "ended", "duration_s": None, **more,
    }  # fmt: skip


def test_looks() -> None:
    assert look_of(attempt(0, 1)) == "pass"
    assert look_of(attempt(0, 1, success=0)) == "wrong"
    assert look_of(attempt(0, 1, outcome="timeout", blame=Blame.TASK)) == "own"
    assert look_of(attempt(0, 1, outcome="lost", blame="worker")) == "infra"
    assert look_of(attempt(0, 1, outcome="cancelled", blame="run")) == "off"
    assert look_of(attempt(0, None, outcome=None)) == "live"


def test_lanes_fill_the_width_in_order() -> None:
    made = timeline([attempt(0, 50), attempt(50, 100, "w10"), attempt(20, None, "w2", None)], START + 80)
    assert made is not None
    assert [lane.worker for lane in made.lanes] == ["w1", "w2", "w10"]
    assert made.lanes[0].bars[0].x == 0
    assert made.lanes[2].bars[0].x + made.lanes[2].bars[0].width == pytest.approx(SCALE)
    assert [seconds for _, seconds in made.ticks] == [0, 15, 30, 45, 60, 75, 90]
    assert not made.cuts


def test_a_long_pause_is_cut_out() -> None:
    made = timeline([attempt(0, 100), attempt(50_000, 50_100)], START)
    assert made is not None
    assert [cut.seconds for cut in made.cuts] == [49_900]
    first, second = made.lanes[0].bars
    assert first.width == pytest.approx(second.width)
    assert first.width > 0.45 * SCALE


def test_many_attempts_become_few_bars() -> None:
    made = timeline([attempt(i, i + 1) for i in range(20_000)], START)
    assert made is not None
    assert len(made.lanes[0].bars) <= SCALE
    assert sum(len(bar.attempts) for bar in made.lanes[0].bars) == 20_000


def test_an_axis_of_no_length() -> None:
    axis = Axis([(START, START)])
    assert axis.place(START) == 0
    assert axis.ticks()[0] == (0, 0)


def test_no_attempts_no_timeline() -> None:
    assert timeline([], START) is None
