"""`evalfleet artifacts`."""

from __future__ import annotations

import sys

import click

from evalfleet.answers.attempts import ArtifactList
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, key_argument, run_required


@click.command("artifacts")
@run_required
@key_argument
@click.argument("path", required=False, metavar="[PATH]")
@click.option(
    "--attempt", "number", type=click.IntRange(min=1), metavar="N", help="Number of the attempt.  [default: the latest]"
)
@json_option
@home_option
def command(run: str, key: str, path: str | None, number: int | None, as_json: bool, home: str | None) -> None:
    """List the files of a task, or write the one at PATH unchanged to standard output.

    Files of an attempt on another machine are here once it has ended. `evalfleet export` copies those of a whole run.
    """
    from evalfleet import config
    from evalfleet.core.retention import Part
    from evalfleet.layout import Home
    from evalfleet.operations.runs.attempt_files import artifacts, find_attempt, read_artifact
    from evalfleet.report import text
    from evalfleet.report.reader import opened_run
    from evalfleet.report.removed import removal_of
    from evalfleet.report.terminal.lines import Column, Span, columns, table, write

    if path is not None and as_json:
        raise click.UsageError("--json lists the files; leave out PATH.")
    settings = config.load(home)
    with opened_run(settings.home, run) as (store, found):
        attempt = find_attempt(store, found, key, number)
        if path is not None:
            sys.stdout.buffer.writelines(read_artifact(store, Home(settings.home), key, attempt, path))
            return
        files = artifacts(Home(settings.home), key, attempt)
        removed = None if files else removal_of(store, attempt, Part.ARTIFACTS)
    if as_json:
        print_document(ArtifactList(run=found.id, key=key, attempt=attempt.number, artifacts=files))
    elif files:
        rows = [[Span(f"{one.size:,}"), Span(text.printable(one.path))] for one in files]
        write(table([Column("bytes", right=True), Column("file")], rows, columns()), colour=settings.colour)
    elif removed is not None:
        click.echo(f"artifacts of attempt {attempt.number} of {key!r} {removed}", err=True)
    else:
        click.echo(f"attempt {attempt.number} of {key!r} has no files", err=True)
