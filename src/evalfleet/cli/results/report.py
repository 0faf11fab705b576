"""`evalfleet report`."""

from __future__ import annotations

from pathlib import Path

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, run_argument, runs_of, server_option


@click.command("report")
@run_argument
@click.option("--html", "html_file", metavar="FILE", help="Write one self-contained HTML page; '-' is standard output.")
@click.option(
    "--pictures",
    type=click.FloatRange(0, 2000),
    metavar="MB",
    help="Maximum megabytes of screenshots in the page.  [default: 20]",
)
@server_option
@json_option
@home_option
def command(
    run: str, html_file: str | None, pictures: float | None, server: str | None, as_json: bool, home: str | None
) -> None:
    """Show both scores, coverage, failures and cost of a run.

    The object that --json prints is described in docs/reference/summary.md.
    """
    from evalfleet import config

    if as_json and html_file:
        raise click.UsageError("--json and --html exclude each other.")
    if pictures is not None and not html_file:
        raise click.UsageError("--pictures is for --html.")
    if server is not None and html_file:
        raise click.UsageError(
            "--html needs the run's files: use it where the home is, or the dashboard of the server."
        )
    settings = config.load(home)
    if html_file:
        from evalfleet.report.html.page import MOST_PICTURES, page
        from evalfleet.report.reader import opened_run

        beside = None if html_file == "-" else Path(html_file).absolute().parent
        most = MOST_PICTURES if pictures is None else round(pictures * 1e6)
        with opened_run(settings.home, run) as (store, found):
            _write(html_file, page(store, found, settings.home, beside=beside, most=most))
        return
    summary, driven = runs_of(settings, server).summary(run, results=as_json)
    if as_json:
        print_document(summary)
    else:
        from evalfleet.cli.shared.view import print_summary

        print_summary(summary, settings, driven=driven)


def _write(name: str, page: str) -> None:
    if name == "-":
        click.echo(page, nl=False)
        return
    path = Path(name)
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        raise click.UsageError(f"--html: cannot write {name}: {error.strerror}.") from None
    click.echo(f"Wrote {path.absolute()}")
