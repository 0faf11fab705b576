"""`evalfleet events`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import click
from msgspec import to_builtins

from evalfleet import config
from evalfleet.cli.shared.options import home_option, json_option, run_argument
from evalfleet.errors import NotFound
from evalfleet.model import Event
from evalfleet.report.reader import opened, opened_run
from evalfleet.report.terminal import events as feed
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.events import event_row
from evalfleet.report.terminal.lines import Line, Span, Style, line
from evalfleet.store.reader import StoreReader

_PAGE = 1000
_POLL_S = 0.1
_POOL = "pool:"


@click.command("events")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow new events until the run is over.")
@click.option("--type", "pattern", metavar="PATTERN", default="*", help="Only types that match, such as 'task.*'.")
@click.option("--task", "key", metavar="KEY", help="Only events of this task.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="Only events after this number.")
@json_option
@home_option
def command(run: str, follow: bool, pattern: str, key: str | None, after: int, as_json: bool, home: str | None) -> None:
    """Print the numbered events of a run, or of a pool as pool:NAME, oldest first. With --json one object per line."""
    settings = config.load(home)
    with _opened(settings.home, run) as (store, subject):
        if key is not None:
            store.tasks.get(subject, key)

        def wanted(event: Event) -> bool:
            return fnmatchcase(event.type, pattern) and (key is None or event.task == key)

        show = _json_printer() if as_json else _line_printer(settings.colour)
        for page in _pages(store, subject, after, follow=follow):
            show([event for event in page if wanted(event)])


@contextmanager
def _opened(home: Path, text: str) -> Generator[tuple[StoreReader, str]]:
    """A reader, and the owner of the events: the id of a run, or `pool:NAME`, also of a deleted pool."""
    if not text.startswith(_POOL):
        with opened_run(home, text) as (store, run):
            yield store, run.id
        return
    with opened(home) as reader:
        if reader is None or not reader.events.of_run(text, 0, 1):
            raise NotFound(
                f"no pool {text.removeprefix(_POOL)!r} has ever existed in this home; `evalfleet pool list` lists the pools"
            )
        yield reader, text


def _is_over(store: StoreReader, subject: str) -> bool:
    if subject.startswith(_POOL):
        return subject.removeprefix(_POOL) not in {pool.name for pool in store.pools.all()}
    return store.runs.get(subject).state.is_over


def _pages(store: StoreReader, subject: str, after: int, *, follow: bool) -> Iterator[list[Event]]:
    while True:
        # The state is read first: what was written before the end is then sure to be in the last page.
        over = not follow or _is_over(store, subject)
        while page := store.events.of_run(subject, after, _PAGE):
            after = page[-1].number
            yield page
        if over:
            return
        while not store.changed():
            time.sleep(_POLL_S)


def _json_printer() -> Callable[[list[Event]], None]:
    def show(events: list[Event]) -> None:
        for event in events:
            sys.stdout.write(json.dumps(to_builtins(event_row(event))) + "\n")
        sys.stdout.flush()

    return show


def _line_printer(colour: str) -> Callable[[list[Event]], None]:
    def show(events: list[Event]) -> None:
        lines.write(map(_line, events), colour=colour)

    return show


def _line(event: Event) -> Line:
    from evalfleet.report import text

    data = " ".join(f"{name}={json.dumps(value)}" for name, value in event.data.items() if value is not None)
    task = "" if event.task is None else text.printable(event.task)
    return line(
        Span(f"{event.number:>6}  {feed.clock(event.at, date=True)}  ", Style.FAINT),
        f"{event.type:<18}  ",
        Span(f"{task}  " if task else "", Style.STRONG),
        Span(data, Style.FAINT),
    )
