"""`evalfleet import`."""
# ruff: noqa: N999 - the command's name, which no statement needs to import

from __future__ import annotations

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("import")
@click.argument("folder", metavar="DIR")
@click.option("--format", "format", metavar="BENCHMARK", required=True, help="Format of the results, such as waa.")
@click.option("--name", help="Name of the run.  [default: format and model]")
@json_option
@home_option
def command(folder: str, format: str, name: str | None, as_json: bool, home: str | None) -> None:
    """Import the results of another program from a folder as a completed run, to report and compare.

    The benchmark that --format names reads them. A task without a verdict is held, with its exception as evidence.
    No task is run. The same results are imported only once.
    """
    from evalfleet import config
    from evalfleet.operations.runs.import_results import import_folder
    from evalfleet.report import text

    done = import_folder(config.load(home), folder, format, name)
    if as_json:
        print_document(done)
        return
    shown = text.printable(done.name)
    if not done.new:
        click.echo(f"These results are in the home already, as run {done.run} ({shown}). Nothing was imported.")
        return
    held = f", {text.count(done.no_verdict, 'task')} without one held" if done.no_verdict else ""
    click.echo(f"Imported {text.count(done.verdicts, 'verdict')} as run {done.run} ({shown}){held}")
    click.echo(f"`evalfleet report {done.run}` shows it")
