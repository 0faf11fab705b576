"""`evalfleet logs`."""

from __future__ import annotations

import codecs
import re
import sys
import time

import click

from evalfleet import config
from evalfleet.answers.attempts import AttemptLog
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, key_argument, run_required
from evalfleet.core.retention import Part
from evalfleet.errors import NotFound
from evalfleet.layout import Home
from evalfleet.model import Attempt, Run
from evalfleet.operations.runs.attempt_files import STREAMS, Tail, find_attempt
from evalfleet.report.reader import opened_run
from evalfleet.report.removed import removal_of
from evalfleet.store.reader import StoreReader

_POLL_S = 0.1
_OPERATING = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@click.command("logs")
@run_required
@key_argument
@click.option(
    "--attempt", "number", type=click.IntRange(min=1), metavar="N", help="Number of the attempt.  [default: the latest]"
)
@click.option("-f", "--follow", is_flag=True, help="Follow the output while the attempt runs.")
@click.option("--stdout", "only", flag_value="stdout", help="Only standard output.")
@click.option("--stderr", "only", flag_value="stderr", help="Only standard error.")
@json_option
@home_option
def command(
    run: str, key: str, number: int | None, follow: bool, only: str | None, as_json: bool, home: str | None
) -> None:
    """Print the output of a task, while it runs or later.

    On a terminal, control codes other than colours are printed, not executed. With --json one object; with
    --json and -f one object per piece.
    """
    settings = config.load(home)
    with opened_run(settings.home, run) as (store, found):
        place = Home(settings.home)
        attempt = _attempt(store, found, key, number, wait=follow)
        tail = Tail(place, key, attempt)
        streams = (only,) if only else STREAMS
        if as_json and not follow:
            _print_object(found, key, attempt, tail, streams)
        elif follow:
            _follow(
                store, attempt, tail, streams, printer=Printer(as_json=as_json, label=False, colour=settings.colour)
            )
        else:
            printer = Printer(as_json=False, label=only is None, colour=settings.colour)
            for stream in streams:
                for block in tail.read(stream):
                    printer.show(stream, block)
            printer.end()
            if not printer.shown and only is None:
                removed = removal_of(store, attempt, Part.LOGS)
                nothing = f"attempt {attempt.number} of {key!r} has written nothing"
                click.echo(f"output of attempt {attempt.number} of {key!r} {removed}" if removed else nothing, err=True)


def _attempt(store: StoreReader, run: Run, key: str, number: int | None, *, wait: bool) -> Attempt:
    """The named attempt. With `wait`, waits for one that does not exist yet while the run goes on."""
    store.tasks.get(run.id, key)  # one that does not exist is not waited for
    while True:
        try:
            return find_attempt(store, run, key, number)
        except NotFound:
            if not wait or store.runs.get(run.id).state.is_over:
                raise
        time.sleep(_POLL_S)


class Printer:
    """Prints blocks of output: raw to a pipe, harmless on a terminal, as objects with `as_json`."""

    def __init__(self, *, as_json: bool, label: bool, colour: str) -> None:
        self.shown = False
        self._as_json = as_json
        self._label = label
        self._plain = colour == "never"
        self._terminal = sys.stdout.isatty()
        self._last = ""
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def show(self, stream: str, block: bytes) -> None:
        self.shown = True
        if self._label and stream != self._last:
            self._heading(stream)
        self._last = stream
        if self._as_json or self._terminal:
            self._show_text(stream, block)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(block)
        sys.stdout.flush()

    def _heading(self, stream: str) -> None:
        # To standard error, so that a pipe gets the output alone.
        if self._terminal:
            click.echo(click.style(f"--- {stream} ---", dim=not self._plain), err=True, color=None)

    def _show_text(self, stream: str, block: bytes) -> None:
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(block)
        if self._as_json:
            import json

            sys.stdout.write(json.dumps({"stream": stream, "text": text}) + "\n")
        else:
            sys.stdout.write(harmless(text, colour=not self._plain))

    def end(self) -> None:
        if self._terminal and self.shown and not self._plain and not self._as_json:
            sys.stdout.write("\x1b[0m")
            sys.stdout.flush()


def harmless(text: str, *, colour: bool) -> str:
    """Make control codes visible; keep colours if `colour` says so."""
    text = _OPERATING.sub(lambda match: "\\e" if match[0] == "\x1b" else f"\\x{ord(match[0]):02x}", text)
    return text if colour else _COLOURS.sub("", text)


def _follow(store: StoreReader, attempt: Attempt, tail: Tail, streams: tuple[str, ...], printer: Printer) -> None:
    while True:
        now = _now(store, attempt)
        # Asked before reading: what was written before the end is then read for sure.
        over = now.state == "ended"
        for stream in streams:
            for block in tail.read(stream):
                printer.show(stream, block)
        if over:
            break
        time.sleep(_POLL_S)
    printer.end()
    click.echo(f"attempt {now.number} ended: {now.failure.kind if now.failure else now.outcome}", err=True)


def _now(store: StoreReader, attempt: Attempt) -> Attempt:
    found = store.attempts.all(attempt.run_id, attempt.task_number)
    return next(one for one in found if one.number == attempt.number)


def _print_object(run: Run, key: str, attempt: Attempt, tail: Tail, streams: tuple[str, ...]) -> None:
    texts = {stream: b"".join(tail.read(stream)).decode("utf-8", "replace") for stream in streams}
    answer = AttemptLog(
        run=run.id,
        key=key,
        attempt=attempt.number,
        state=attempt.state,
        outcome=attempt.outcome,
        worker=attempt.worker,
        folder=tail.where(),
        stdout=texts.get("stdout"),
        stderr=texts.get("stderr"),
    )
    print_document(answer)
