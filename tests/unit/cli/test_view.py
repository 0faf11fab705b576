"""The live view at every size, without a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.report_builders import RunBuilder, mixed_run

from evalfleet.cli.shared.redraw import Redraw
from evalfleet.cli.shared.view import LiveView, print_summary
from evalfleet.config import Settings
from evalfleet.core.statistics.scores import Interval
from evalfleet.model import Kind, Policy, WorkerState
from evalfleet.report.live import LiveState, WorkerLine, live_state
from evalfleet.report.summary import summarise
from evalfleet.report.terminal.lines import cells, paint
from evalfleet.report.terminal.live import remaining, screen

EVIL = "\x1b[2J[red]x[/red]\n日本" * 9


@pytest.fixture
def mixed(home: Path):
    builder = mixed_run(home)
    yield builder
    builder.close()


def crowd(live: LiveState, count: int) -> LiveState:
    lines = [
        WorkerLine(name=f"local-{i}", state=WorkerState.BUSY, key=EVIL, attempt=2, step=i, elapsed_s=60.0 * i)
        if i % 10
        else WorkerLine(name=f"local-{i}", state=WorkerState.READY)
        for i in range(1, count + 1)
    ]
    return replace(
        live, workers=tuple(lines), failures=tuple(replace(one, key=EVIL, evidence=EVIL) for one in live.failures)
    )


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (60, 12), (40, 8), (300, 100)])
@pytest.mark.parametrize("count", [0, 1, 8, 40, 500])
def test_every_frame_fits(mixed: RunBuilder, size: tuple[int, int], count: int) -> None:
    live = crowd(live_state(mixed.store, mixed.run), count)
    drawn = screen(live, *size, notice="stopping", hint="Ctrl-C")
    assert len(drawn) <= size[1]
    assert all(cells(line) <= size[0] for line in drawn)
    text = paint(drawn, colour=False)
    assert "\x1b" not in text
    if size[0] >= 60:
        assert "5/6" in text


def test_a_small_terminal_shows_what_matters(mixed: RunBuilder) -> None:
    claimed = mixed.claim("web_2", "local-1")
    mixed.step(claimed, 7)
    text = paint(screen(live_state(mixed.store, mixed.run), 80, 24, drift_s=65.0, hint="Ctrl-C ends"), colour=False)
    assert "nightly" in text
    assert mixed.run.id in text
    assert "1/2 workers busy" in text
    assert "2 passed  1 not passed  1 failed  1 held  1 running  1 retried" in text
    assert "valid 50.0% (15.0–85.0%)  strict 33.3%  coverage 66.7%" in text
    assert "cost $0.60  waste $0.30" in text
    assert "step 7   1m 05s" in text, "the clock goes on between two reads"
    assert "○ local-2  ready" in text
    assert "preempted · pool" in text
    assert "evicted" in text
    assert text.rstrip().endswith("Ctrl-C ends")


def test_forty_workers_on_a_small_terminal(mixed: RunBuilder) -> None:
    text = paint(screen(crowd(live_state(mixed.store, mixed.run), 40), 80, 24), colour=False)
    assert "39m" in text, "the longest-running is among those shown"
    assert "more workers" in text


def test_pause_and_breaker_are_said(mixed: RunBuilder) -> None:
    live = live_state(mixed.store, mixed.run)
    assert "breaker open: bad" in paint(screen(replace(live, breaker="bad"), 80, 24), colour=False)
    mixed.pause()
    assert "paused: the budget is spent" in paint(screen(live_state(mixed.store, mixed.run), 80, 24), colour=False)


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (360, 480, "6–8 min"),
        (50, 70, "50–70 s"),
        (0, 0, "0–1 s"),
        (7200, 9000, "2.0–2.5 h"),
        (300, 301, "5 min"),
        (90, 91, "2 min"),
    ],
)
def test_remaining(low: float, high: float, shown: str) -> None:
    assert remaining(low, high) == shown


def test_eta_stands_in_the_bar(mixed: RunBuilder) -> None:
    live = replace(live_state(mixed.store, mixed.run), eta=Interval(low=360, high=480))
    assert "6–8 min left" in paint(screen(live, 80, 24), colour=False)


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def test_the_view_draws_at_most_five_times_a_second_and_cleans_up(mixed: RunBuilder) -> None:
    stream, clock = io.StringIO(), Clock()
    redraw = Redraw(stream, colour=False, size=lambda: (80, 24))
    with LiveView(mixed.run, redraw=redraw, clock=clock) as view:
        view.update(mixed.store)
        first = len(stream.getvalue())
        clock.at = 0.1
        view.update(mixed.store)
        assert len(stream.getvalue()) == first
        clock.at = 0.3
        view.update(mixed.store)
        assert len(stream.getvalue()) > first
    assert "nightly" in stream.getvalue()
    assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("nightly"), "the cursor is back"


def test_the_cursor_comes_back_after_an_interrupt(mixed: RunBuilder) -> None:
    stream = io.StringIO()
    redraw = Redraw(stream, colour=True, size=lambda: (80, 24))

    def interrupted() -> None:
        with LiveView(mixed.run, redraw=redraw) as view:
            view.update(mixed.store)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")


def test_a_slow_store_is_not_asked_all_the_time(mixed: RunBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reads = Clock(), 0

    def slow(*_args: object) -> LiveState:
        nonlocal reads
        reads += 1
        clock.at += 0.5
        return live_state(mixed.store, mixed.run)

    monkeypatch.setattr("evalfleet.cli.shared.view.live_state", slow)
    view = LiveView(mixed.run, clock=clock)
    while clock.at < 60:
        view.update(mixed.store)
        clock.at += 0.1
    assert 8 <= reads <= 12, "about a tenth of the time"


def test_nothing_is_coloured_off_a_terminal(mixed: RunBuilder) -> None:
    stream = io.StringIO()
    print_summary(summarise(mixed.store, mixed.run, results=False), Settings(home=mixed.home), stream)
    assert "\x1b" not in stream.getvalue()
    assert "Valid score" in stream.getvalue()


def test_hostile_names_are_escaped_everywhere(home: Path) -> None:
    builder = RunBuilder(home, [EVIL], name=EVIL, policy=Policy(workers=1)).begin()
    builder.attempt(EVIL, kind=Kind.BAD_EXIT, evidence=EVIL)
    builder.claim(EVIL)
    stream = io.StringIO()
    redraw = Redraw(stream, colour=False, size=lambda: (80, 24))
    with LiveView(builder.run, redraw=redraw) as view:
        view.update(builder.store)
        frame = paint(view.draw(80, 24), colour=False)
    print_summary(summarise(builder.store, builder.run), Settings(home=home), stream)
    builder.close()
    assert "\\e[2J[red]x[/red]\\n" in frame
    assert "\x1b[2J" not in stream.getvalue()
