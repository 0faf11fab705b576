"""`evalfleet watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from evalfleet import config
from evalfleet.cli.shared.options import home_option, json_option, run_argument
from evalfleet.cli.shared.thresholds import Thresholds, threshold_options
from evalfleet.config import Settings, is_terminal
from evalfleet.model import Run
from evalfleet.report.reader import opened_run
from evalfleet.store.reader import StoreReader

UNDRIVEN = 3
_POLL_S = 0.1
_ASK_S = 1.0
_PATIENCE_S = 3.0  # a controller that is just starting, or taking over, is given this time
_HINT = "Ctrl-C ends the view, not the run"


@click.command("watch")
@run_argument
@threshold_options
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
def command(run: str, thresholds: Thresholds, verbose: bool, as_json: bool, home: str | None) -> int:
    """Follow a run until it is over, then show how it ended.

    On a terminal the view is redrawn in place; elsewhere a line is printed per event. With --json only the summary is
    printed, at the end. Exit codes: 0 enough tasks count; 1 too few do, the valid score is below --min-score, or
    cancelled; 3 paused, or no controller drives the run; 130 interrupted. Interrupting `watch` does not affect the run.
    """
    from evalfleet.cli.shared.drive import Show, report

    settings = config.load(home)
    with opened_run(settings.home, run) as (store, found):
        thresholds.check(found)
        driven = _follow(store, found, settings, verbose=verbose, quiet=as_json)
        code = report(settings, store, found, Show(as_json=as_json, thresholds=thresholds), driven=driven)
    if not driven:
        click.echo(f"no controller drives this run; `evalfleet resume {found.id}`", err=True)
        return UNDRIVEN
    return code


def _follow(store: StoreReader, run: Run, settings: Settings, *, verbose: bool, quiet: bool) -> bool:
    """Show the run until it is over; returns whether it really ended, rather than lost its controller."""
    ending = Ending(store.runs.driver)
    if quiet:
        return _tick(store, run, ending, lambda: None)
    if is_terminal(sys.stdout):
        from evalfleet.cli.shared.view import LiveView

        if ending.reached(store.runs.get(run.id)):
            return ending.driven
        with LiveView(run, colour=settings.colour, hint=_HINT) as view:
            return _tick(store, run, ending, lambda: view.update(store))
    from evalfleet.cli.shared.view import PlainLines

    last = store.events.last(run.id)
    plain = PlainLines(run, verbose=verbose, after=last.number if last else 0, colour=settings.colour)
    return _tick(store, run, ending, lambda: plain.update(store))


def _tick(store: StoreReader, run: Run, ending: Ending, show: Callable[[], object]) -> bool:
    while True:
        over = ending.reached(store.runs.get(run.id))
        show()
        if over:
            return ending.driven
        time.sleep(_POLL_S)


class Ending:
    """Decides when to stop waiting."""

    def __init__(self, driver: Callable[[str], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        self.driven = True
        self._driver = driver
        self._clock = clock
        self._asked_at = float("-inf")
        self._alone_since: float | None = None

    def reached(self, run: Run) -> bool:
        """Whether the run is over, or waits for a person. Then `driven` says whether it is not merely abandoned."""
        if run.state.is_over:
            return True
        now = self._clock()
        if now - self._asked_at >= _ASK_S:
            self._ask(run, now)
        alone_s = 0.0 if self._alone_since is None else now - self._alone_since
        if run.state == "paused":
            return self._alone_since is not None
        self.driven = alone_s < _PATIENCE_S
        return not self.driven

    def _ask(self, run: Run, now: float) -> None:
        self._asked_at = now
        if self._driver(run.id) is not None:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
