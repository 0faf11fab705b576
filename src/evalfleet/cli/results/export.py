"""`evalfleet export`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, run_argument

_FORMATS = ("evalfleet", "csv", "junit", "waa")


@click.command("export")
@run_argument
@click.option("--to", metavar="DIR", required=True, help="Folder to create; an existing one must be empty.")
@click.option("--format", "format", type=click.Choice(_FORMATS), required=True, help="Output format.")
@json_option
@home_option
def command(run: str, to: str, format: str, as_json: bool, home: str | None) -> None:
    """Write the current state of a run to a new folder, completely or not at all.

    \b
    evalfleet   summary, results, events, and the files of every attempt
    csv         tasks.csv and attempts.csv, for spreadsheets
    junit       junit.xml, for CI systems
    waa         what tools for Windows Agent Arena read

    The files are described in docs/reference/exports.md.
    """
    from evalfleet import config
    from evalfleet.report.exports.folder import export
    from evalfleet.report.reader import opened_run

    settings = config.load(home)
    with opened_run(settings.home, run) as (store, found):
        done = export(store, found, settings.home, to, format)
    if as_json:
        print_document(done)
        return

    from evalfleet.report import text

    click.echo(f"Wrote {text.count(done.files, 'file')} of run {done.run} to {text.printable(done.to)}")
    if done.unfinished:
        are = "is" if done.unfinished == 1 else "are"
        click.echo(f"The run is {done.state}: {text.count(done.unfinished, 'task')} {are} not finished.", err=True)
    for note in done.notes:
        click.echo(f"{note[0].upper()}{note[1:]}.", err=True)
