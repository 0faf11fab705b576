"""`evalfleet files`."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.group("files")
def command() -> None:
    """Move the files of attempts between a home and object storage."""


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--run", default=None, metavar="RUN", help="Only the files of this run.")
@click.option("--remove", is_flag=True, help="Remove each attempt from FROM once its copy was compared.")
@json_option
@home_option
def copy(source: str, target: str, run: str | None, remove: bool, as_json: bool, home: str | None) -> None:
    """Copy the files of attempts, read them back, and compare them by their SHA-256.

    FROM and TO are the word 'home', or a place as in [files] url: az://CONTAINER/PREFIX, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, or
    /FOLDER. What TO has already is compared, not sent again. Safe to repeat.
    """
    from evalfleet.operations.files_copy import copy_files
    from evalfleet.report import text

    def notice(told: str) -> None:
        click.echo(f"evalfleet: {text.printable(told)}", err=True)

    done = copy_files(config.load(home), source, target, run=run, remove=remove, notice=notice)
    if as_json:
        print_document(done)
        return
    click.echo(
        f"copied {text.count(done.copied, 'attempt')} ({done.bytes / 1e6:,.1f} MB) of {done.attempts} from {done.source} to {done.target}; "
        "every file was compared"
    )
    if remove:
        click.echo(f"removed {text.count(done.removed, 'attempt')} from {done.source}")
