"""Shared by `run`, `resume` and `retry`: drive a run, show it, and return its exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.thresholds import Thresholds
from evalfleet.config import is_terminal
from evalfleet.layout import Home
from evalfleet.model import Run
from evalfleet.report.live import live_state, parallel_live, write_live
from evalfleet.report.summary import summarise
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

if TYPE_CHECKING:
    from evalfleet.cli.shared.view import LiveView, PlainLines
    from evalfleet.config import Settings
    from evalfleet.engine.supervisor import Ending

INTERRUPTED = 130
_WRITE_S = 1.0


class Show(Struct, frozen=True, kw_only=True):
    """How a person or program wants to see the run."""

    as_json: bool = False
    verbose: bool = False
    after: int = 0  # plain lines begin after this event
    thresholds: Thresholds = Thresholds()


def drive_and_report(settings: Settings, store: Store, run: Run, show: Show) -> int:
    """Drive the run until it settles or we are interrupted; print its summary; return the exit code."""
    from evalfleet.engine.supervisor import Ending

    ending = driven(settings, store, run, show)
    code = report(settings, store, run, show)
    return INTERRUPTED if ending is Ending.INTERRUPTED else code


def driven(settings: Settings, store: Store, run: Run, show: Show) -> Ending:
    """Drive the run until it settles or we are interrupted, and show it meanwhile."""
    import anyio

    from evalfleet.daemon.alerts.beside import alerts_beside
    from evalfleet.daemon.otel.beside import telemetry_beside
    from evalfleet.engine.controller import drive

    with (
        _audience(settings, run, show) as audience,
        alerts_beside(settings, audience.notice),
        telemetry_beside(settings, run.id, audience.notice),
    ):
        ending = anyio.run(
            lambda: drive(settings, store, run, spectators=[audience], notice=audience.notice, signals=True)
        )
        audience.tick(last=True)
    return ending


def report(settings: Settings, store: StoreReader, run: Run, show: Show, *, driven: bool = False) -> int:
    """Print the state of a run, or the result of a study; return the exit code.

    Args:
        driven: whether a controller drives a run that is not over.
    """
    summary = show.thresholds.applied(summarise(store, run, results=show.as_json))
    if show.as_json:
        print_document(summary)
    elif summary.study is not None:
        from evalfleet.cli.studies.shared.text import echo, summary_lines
        from evalfleet.report.studies.study import study_facts

        echo(summary_lines(study_facts(store, run)))
    else:
        from evalfleet.cli.shared.view import print_summary

        print_summary(summary, settings, driven=driven)
    return show.thresholds.code(summary)


class Audience:
    """All outputs of a run: the live file, and the live view or plain lines. Implements `Spectator`."""

    def __init__(
        self, reader: StoreReader, run: Run, home: Home, view: LiveView | None, lines: PlainLines | None
    ) -> None:
        self._reader = reader
        self._run = run
        self._home = home
        self._view = view
        self._lines = lines
        self._write_at = 0.0
        home.run(run.id).mkdir(parents=True, exist_ok=True)

    def tick(self, *, last: bool = False) -> None:
        if self._view is not None:
            self._view.update(self._reader, now=last)
        elif self._lines is not None:
            self._lines.update(self._reader)
        if last or time.monotonic() >= self._write_at:
            begun = time.monotonic()
            if last:
                self._write_aggregated()
            write_live(self._home.live_file(self._run.id), parallel_live(live_state(self._reader, self._run)))
            # A run of 100,000 tasks takes a while to sum up; looking on must not become a load of its own.
            self._write_at = time.monotonic() + max(_WRITE_S, 20 * (time.monotonic() - begun))

    def _write_aggregated(self) -> None:
        """For tools that read files: the results of a run that has ended."""
        run = self._reader.runs.get(self._run.id)
        if run.ended_at is not None and run.policy.study is None and self._home.run(run.id).is_dir():
            from evalfleet.report.exports.waa import write_aggregated
            from evalfleet.report.summary import task_result

            rows = [task_result(row) for row in self._reader.tasks.result_rows(run.id)]
            write_aggregated(rows, self._home.run(run.id))

    def notice(self, text: str) -> None:
        if self._view is not None:
            self._view.notice = text
        else:
            click.echo(f"evalfleet: {text}", err=True)


@contextmanager
def _audience(settings: Settings, run: Run, show: Show) -> Generator[Audience]:
    from evalfleet.cli.shared.view import LiveView, PlainLines
    from evalfleet.report.reader import opened_run

    home = Home(settings.home)
    with opened_run(settings.home, run.id) as (reader, _):
        if show.as_json:
            yield Audience(reader, run, home, None, None)
        elif is_terminal(sys.stdout):
            with LiveView(run, colour=settings.colour, hint="Ctrl-C stops; what runs goes on") as view:
                yield Audience(reader, run, home, view, None)
        else:
            lines = PlainLines(run, verbose=show.verbose, after=show.after, colour=settings.colour)
            yield Audience(reader, run, home, None, lines)
